"""Divisions of many elements by one number: the same bits, without a branch each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tests.stdlib.arrays import TARGETS
from tests.unit.backend.nvptx.kernels import ptx_of

SEQUENCE = """\
@kernel tile[(128,)] grid[(64,)]
def k(x: f32[n], d: f32[n], out: mut f32[n]):
    for i in range(grid_tile_linear_id(), n, grid_tile_count()):
        r = 1.0 / d[i]
        q = x[i] * r
        q = math.fma(math.fma(d[i], q, -x[i]), -r, q)
        out[i] = math.fma(math.fma(d[i], q, -x[i]), -r, q)
"""
ROWS = """\
@op.kernel
def k(x: f32[n, 256], d: f32[n]) -> f32[n, 256]:
    out = op.empty_like(x)
    for i in op.tile_range(n, step=64):
        out[i:i+64, :] = x[i:i+64, :] / d[i:i+64][:, None]
    return out
"""


def ordinary(count: int, seed: int) -> tuple[Any, Any]:
    """Numbers of 2**-60 to 2**60, zeros, and positive divisors; many with extreme mantissas."""
    r = np.random.default_rng(seed)

    def numbers() -> Any:
        mantissa = r.integers(0, 1 << 23, count)
        edge = r.integers(0, 4, count)
        mantissa = np.where(edge == 0, (1 << 23) - 1 - (mantissa & 7), mantissa)
        mantissa = np.where(edge == 1, mantissa & 7, mantissa)
        bits = (r.integers(127 - 60, 127 + 60, count) << 23) | mantissa
        return bits.astype(np.uint32).view(np.float32)

    x = numbers() * r.choice([-1, 1], count).astype(np.float32)
    x[::97], x[1::97] = 0.0, -0.0
    return x, numbers()


@pytest.mark.parametrize("seed", range(3))
def test_the_sequence_is_the_quotient_rounded_once(seed: int) -> None:
    x, d = ordinary(1_000_000, seed)
    out = np.empty_like(x)
    tessera.compile(SEQUENCE, target="cpu").k(x, d, out)
    np.testing.assert_array_equal(out.view(np.uint32), (x / d).view(np.uint32))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("wild", [False, True])
def test_rows_of_any_numbers_have_the_same_bits(wild: bool, target: str) -> None:
    x, d = ordinary(256 * 256, 1)
    x, d = x.reshape(256, 256), d[:256].copy()
    if wild:
        r = np.random.default_rng(2)
        x = r.integers(0, 1 << 32, x.shape, dtype=np.uint32).view(np.float32)
        d = r.integers(0, 1 << 32, d.shape, dtype=np.uint32).view(np.float32)
        d[:6] = 0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42
    with np.errstate(all="ignore"):
        wanted = x / d[:, None]
    found = np.asarray(tessera.compile(ROWS, target=target).k(x, d))
    same = (found.view(np.uint32) == wanted.view(np.uint32)) | np.isnan(found) & np.isnan(wanted)
    assert same.all()


def test_a_lane_rounds_one_reciprocal_a_row() -> None:
    """... and has the divisions once more, for what is out of the ordinary."""
    session = Session(overlay={"k.tessera": ROWS})
    wanted = session.signature("k.tessera", "k", "x: f32[4096, 256], d: f32[4096]")
    program, plan = session.tile("k.tessera", "k", wanted, session.machine("cuda", "sm_90a"))
    text = ptx_of((program, plan), "sm_90a").ptx
    assert 0 < text.count("rcp.rn.f32") < text.count("div.rn.f32") / 3


ROUNDED = """\
@op.kernel
def k(a: bf16[n, 64], b: bf16[64, 128], d: f32[n]) -> {t}[n, 128]:
    out = op.empty((n, 128), {t})
    for i in op.tile_range(n, step=64):
        out[i:i+64, :] = (a[i:i+64, :] @ b / d[i:i+64][:, None]).to({t})
    return out
"""


@pytest.mark.parametrize(("t", "corrected"), [("bf16", False), ("f32", True)])
def test_what_is_rounded_at_once_is_one_product(t: str, corrected: bool) -> None:
    session = Session(overlay={"k.tessera": ROUNDED.format(t=t)})
    signature = "a: bf16[1024, 64], b: bf16[64, 128], d: f32[1024]"
    wanted = session.signature("k.tessera", "k", signature)
    options = TargetOptions("cuda", "sm_90a")
    made = session.compile_kernel("k.tessera", "k", wanted, options, ("ptx",))
    assert ("fma.rn.f32" in made.texts["ptx"]) == corrected


@pytest.mark.parametrize("target", TARGETS)
def test_rounded_quotients_are_right(target: Any) -> None:
    """Divisors of every size and sign, for ordinary rows and others."""
    import ml_dtypes

    r = np.random.default_rng(4)
    a, b = (r.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((192, 64), (64, 128)))
    d = np.ldexp(r.uniform(1, 2, 192), r.integers(-100, 100, 192)).astype(np.float32)
    d[::7] *= -1
    d[3], d[70:80] = 1.0, np.linspace(1.0, 2.0, 10)
    found = tessera.compile(ROUNDED.format(t="bf16"), target=target).k(a, b, d)
    with np.errstate(over="ignore"):
        wanted = (a.astype(np.float64) @ b.astype(np.float64)) / d.astype(np.float64)[:, None]
        magnitude = (abs(a.astype(np.float64)) @ abs(b.astype(np.float64))) / abs(d)[:, None]
    assert (
        abs(found.astype(np.float64) - wanted) <= 2**-8 * abs(wanted) + 2**-18 * magnitude
    ).all()
