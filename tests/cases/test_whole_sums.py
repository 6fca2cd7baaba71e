"""Reductions over all axes of arrays of rank 1 to 5: the same as NumPy's, in little memory."""

from __future__ import annotations

import itertools
from math import prod
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tessera_lang.types.shape import evaluate_dim
from tests import on_device

pytest.importorskip("llvmlite")
SHAPES = [(70,), (5, 600), (5, 6, 7), (2, 3, 33, 11), (2, 4, 32, 8), (1, 1, 1, 9), (3, 3, 3, 3, 3),
          (2, 0, 4), (17, 1, 40, 2, 3)]  # fmt: skip
KINDS = ("sum", "max", "mean", "prod")
TEXT = "".join(f"@op.kernel\ndef {kind}(x): return op.{kind}(x)\n" for kind in KINDS)
MOST_BYTES = 1 << 22
"""Of scratch memory that one group may take."""


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def m(request: pytest.FixtureRequest) -> Any:
    return on_device.with_layouts(tessera.compile(TEXT, target="auto"), str(request.param))


@pytest.mark.parametrize(("shape", "kind"), itertools.product(SHAPES, KINDS))
@pytest.mark.sample(6)
def test_as_numpy(m: Any, shape: tuple[int, ...], kind: str) -> None:
    if not prod(shape) and kind in ("max", "mean"):
        pytest.skip("of no elements there is none")
    x = np.random.default_rng(1).uniform(0.5, 1.5, shape).astype(np.float32)
    if kind == "prod":
        x = x ** np.float32(1 / max(1, prod(shape) // 16))
    found, expected = getattr(m, kind)(x), getattr(np, kind)(x.astype(np.float64))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5)


@pytest.mark.parametrize("n", [100, 4096, 10000, 100_000])
def test_long_sums_keep_their_digits(m: Any, n: int) -> None:
    """Added one by one, 10,000 numbers lose four of seven digits."""
    x = np.arange(n, dtype=np.float32)
    exact = x.sum(dtype=np.float64)
    for shape in ((n,), (1, n), (2, n // 2)):
        np.testing.assert_allclose(np.asarray(m.sum(x.reshape(shape))), exact, rtol=3e-6)


@pytest.mark.parametrize("arch", ["native", "sm_80", "sm_90"])
@pytest.mark.parametrize("rank", [2, 3, 4, 5])
@pytest.mark.sample(3)
def test_the_memory_of_a_group(rank: int, arch: str) -> None:
    sizes = ", ".join("abcde"[:rank])
    session = Session(
        overlay={"s.tessera": f"@op.kernel\ndef k(x: f32[{sizes}]): return op.sum(x)\n"}
    )
    options = TargetOptions("cpu", "native") if arch == "native" else TargetOptions("cuda", arch)
    signature = session.signature("s.tessera", "k", "")
    made = session.compile_kernel("s.tessera", "k", signature, options)
    for launch in (made, *made.then):
        assert launch.resources.local_bytes < MOST_BYTES
        assert launch.resources.shared_bytes < MOST_BYTES
        known = {"grid_groups": 1, **dict.fromkeys("abcde", 7)}
        assert evaluate_dim(launch.plan.scratch, known) < MOST_BYTES
