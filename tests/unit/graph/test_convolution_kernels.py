"""The kernels of convolutions: as code for a GPU, and what their text does not hold."""

from __future__ import annotations

from typing import Any

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.ir.core import TensorType, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.lower.graph_to_kernels.clusters import GraphKernel
from tessera_lang.lower.graph_to_kernels.fusion import plan_of
from tessera_lang.opt.graph.decompose import decompose
from tessera_lang.target.backend import TargetOptions
from tessera_lang.types.dtype import DTYPES
from tests.stdlib.assembled import needs_ptxas


def _kernels(
    name: str, dtype: str, x: tuple[int, ...], w: tuple[int, ...], size: tuple[int, ...],
    **given: Any,
) -> tuple[GraphKernel, ...]:  # fmt: skip
    """Of one convolution."""
    b, rank = GraphBuilder(OPERATORS), len(size)
    operands = [Value(TensorType(DTYPES[dtype], s), n) for n, s in (("x", x), ("w", w))]
    attributes: dict[str, Any] = {
        "stride": (1,) * rank, "before": (1,) * rank, "dilation": (1,) * rank,
        "spread": (1,) * rank, "groups": 1, "size": tuple(map(str, size)), **given,
    }  # fmt: skip
    function = b.function("f", operands, [b.op(name, *operands, **attributes)])
    return plan_of(decompose(function), ()).kernels


@needs_ptxas
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("name", ["conv", "conv_weights"])
@pytest.mark.slow
def test_kernels_assemble(name: str, groups: int, dtype: str, arch: str) -> None:
    """Without spills, and by matrix units where the dtype has some."""
    x = (8, 64, 28, 28)
    of_weights = name == "conv_weights"
    w = (8, 64, 14, 14) if of_weights else (64, 64 // groups, 3, 3)
    size = (3, 3) if of_weights else (14, 14)
    (kernel,) = _kernels(name, dtype, x, w, size, stride=(2, 2), groups=groups)
    session = Session(overlay={"k.tessera": kernel.source})
    wanted = session.signature("k.tessera", "call", f"x: {dtype}{[*x]}, w: {dtype}{[*w]}")
    options = TargetOptions("cuda", arch)
    made = session.compile_kernel("k.tessera", "call", wanted, options, ("ptx",))
    assert all(part.kind == "cubin" for part in (made, *made.then)), made.kind
    assert not made.diagnostics


def test_a_transposed_convolution_multiplies_no_zeros() -> None:
    """Each phase has its own places of the weights: together as many as there are."""
    kernels = _kernels("conv", "f32", (2, 4, 5, 5), (4, 4, 3, 3), (10, 10), spread=(2, 2))
    products = [k for k in kernels if k.operator == "graph.conv"]
    places = [
        v.tensor_type.shape[2:] for k in products for v in k.arguments[1:] if isinstance(v, Value)
    ]
    assert sorted(places) == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_nothing_is_stored_unfolded() -> None:
    """One kernel, which takes the two operands as they are."""
    for name, w in (("conv", (16, 8, 3, 3)), ("conv_weights", (2, 16, 20, 20))):
        size = (20, 20) if name == "conv" else (3, 3)
        (kernel,) = _kernels(name, "f32", (2, 8, 20, 20), w, size)
        assert len(kernel.arguments) == 2
