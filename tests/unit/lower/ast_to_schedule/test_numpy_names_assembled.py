"""NumPy's names in tile kernels as code of GPUs that ptxas takes."""

from __future__ import annotations

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tests.unit.backend.nvptx.kernels import needs_ptxas
from tests.unit.lower.ast_to_schedule.test_concatenation import HELD

BODIES = (
    "return op.cumsum(x, axis=1)", "return op.cumsum(x, axis=0)",
    "return op.cumprod(x, axis=1, exclusive=True).T", "return op.cumsum(x, axis=1) @ x.T",
    "return op.softmax(op.cumsum(x, axis=1), axis=1)", "return op.flip(x)",
    "return op.cumsum(x, axis=1, reverse=True)", "return op.cumsum(x, axis=0, reverse=True)",
    "return op.concat((x, op.flip(x, 1)), axis=1)", "return op.stack((x, x * 2.0), axis=-1)",
    "return op.broadcast_to(x, (3, a, b))", "return op.eye(32) + op.linspace(0, 1, 32)[:, None]",
)  # fmt: skip


@needs_ptxas
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.sample(2)
def test_expressions(body: str, arch: str) -> None:
    assembled(f"@op.kernel\ndef k(x: f32[a, b]):\n    {body}\n", ("k",), arch)


@needs_ptxas
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.sample(1)
def test_tiles_that_are_held(arch: str) -> None:
    assembled(HELD.format(T="f16"), ("flips", "all_of_it", "joined", "pairs"), arch)


def assembled(text: str, names: tuple[str, ...], arch: str) -> None:
    session = Session(overlay={"m.tessera": text})
    for name in names:
        signature = session.signature("m.tessera", name)
        made = session.compile_kernel("m.tessera", name, signature, TargetOptions("cuda", arch))
        assert made.kind == "cubin" and len(made.code) > 1000
