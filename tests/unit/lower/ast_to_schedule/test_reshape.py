"""``op.reshape`` and ``op.ravel`` in tile kernels: arrays of the call seen with other sizes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tests.unit.backend.nvptx.kernels import needs_ptxas
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded
from tests.unit.lower.ast_to_schedule.test_numpy_names_assembled import assembled

EMULATED = [pytest.param(a, marks=pytest.mark.slow) for a in ("sm_90a", "sm_80")]
TARGETS = ["cpu", *EMULATED, GPU]
TEXT = """
@op.kernel
def shapes(x: f32[m, n]):
    return op.reshape(x, (n, m)), op.reshape(x, -1), op.ravel(x) * 2.0, op.reshape(x, (1, m, -1))

@op.kernel
def rows(x: f32[m, n], y: mut f32[k, 4]):
    z = op.reshape(x, (-1, 4))
    for i in op.tile_range(k, step=2):
        y[i:i+2, :] = z[i:i+2, :] + x[0, 0]

@op.kernel
def batch(x: bf16[b, s, h], w: bf16[h, o]) -> f32[b * s, o]:
    return (op.reshape(x, (b * s, h)) @ w).to(f32)

@op.kernel
def square(x: bf16[m, n], w: bf16[m, o]) -> f32[n, o]:
    return (op.reshape(x, (n, m)) @ w).to(f32)

@op.kernel
def grouped(x: f32[b, c], groups: f32[g]) -> f32[b, g]:
    return op.mean(op.reshape(x, (b, g, -1)), axis=2)

@op.kernel
def heads(x: bf16[s, n]) -> f32[8, s, s]:
    q = op.reshape(x, (s, 8, n // 8))
    return op.einsum("shd,thd->hst", q, q).to(f32)
"""
B = ml_dtypes.bfloat16


def whole(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    """Small integers, whose sums are exact."""
    return np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("target", TARGETS)
def test_reshape(target: str) -> None:
    m = loaded(TEXT, target)
    x = whole((4, 6))
    found = [np.asarray(f) for f in m.shapes(x)]
    for a, right in zip(found, (x.reshape(6, 4), x.ravel(), x.ravel() * 2, x[None]), strict=True):
        np.testing.assert_array_equal(a, right)
    y = np.zeros((6, 4), np.float32)
    m.rows(x, y)
    np.testing.assert_array_equal(y, x.reshape(6, 4) + x[0, 0])
    np.testing.assert_array_equal(m.grouped(x, np.zeros(3, np.float32)), x.reshape(4, 3, 2).mean(2))
    for b, s, h, o in ((3, 64, 128, 64), (2, 33, 40, 24)):
        a, w = whole((b, s, h), B), whole((h, o), B)
        right = a.reshape(-1, h).astype(np.float32) @ w.astype(np.float32)
        np.testing.assert_array_equal(np.asarray(m.batch(a, w)), right.astype(B).astype(np.float32))
    a, w = whole((64, 128), B), whole((64, 32), B)
    right = a.reshape(128, 64).astype(np.float32) @ w.astype(np.float32)
    np.testing.assert_array_equal(np.asarray(m.square(a, w)), right.astype(B).astype(np.float32))
    q = whole((40, 64), B)
    f = q.astype(np.float32).reshape(40, 8, 8)
    right = np.einsum("shd,thd->hst", f, f).astype(B).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(m.heads(q)), right)


@needs_ptxas
@pytest.mark.sample(1)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_assembled(arch: str) -> None:
    assembled(TEXT, ("shapes", "rows", "batch", "square", "grouped", "heads"), arch)


def test_what_the_launch_refuses() -> None:
    x = whole((4, 6))
    for body, said in (("op.reshape(x, (3, 3))", "24 == 9"), ("op.reshape(x, (-1, 5))", "24")):
        with pytest.raises(tessera.TesseraError) as caught:
            loaded(f"@op.kernel\ndef k(x: f32[m, n]):\n    return {body}\n").k(x)
        assert said in str(caught.value)


@pytest.mark.parametrize("target", ["cpu", GPU])
def test_an_array_with_gaps_is_copied(target: str) -> None:
    m, x = loaded(TEXT, target), whole((4, 6))
    for a, right in zip(m.shapes(np.asfortranarray(x)), m.shapes(x), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(right))
    y, wanted = np.zeros((2, 6, 4), np.float32)
    m.rows(np.asfortranarray(x), y)
    m.rows(x, wanted)
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        ("return op.reshape(x, (-1, -1))", "T0311", ""),
        (
            "y = op.zeros((m,), f32)\n    for i in op.tile_range(m, step=1):\n"
            "        y[i] = op.sum(op.reshape(x[i, :] * 2.0, (n, 1)))\n    return y",
            "T0207",
            "in front",
        ),
        (
            "y = op.zeros((m,), f32)\n    for i in op.tile_range(m, step=1):\n"
            "        y[i] = op.sum(op.reshape(x.T, (m, n))[i, :])\n    return y",
            "T0207",
            "in front",
        ),
        ("y = op.reshape(x, -1)\n    x[0, :] = x[1, :]\n    return y * 2.0", "T0621", "in front"),
        ("y = op.reshape(x, -1)\n    y[0:4] = 1.0", "T0621", ""),
    ],
)
def test_bad_calls(lines: str, code: str, said: str) -> None:
    text = f"@op.kernel\ndef k(x: mut f32[m, n]):\n    {lines}\n"
    found = Session(overlay={"k.tessera": text}).check("k.tessera", ())
    wanted = [d for d in found if d.code == code]
    assert wanted, found
    assert said in " ".join(wanted[0].helps)
