"""What is said of windows and counts of an edge's length, and that what it says works."""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session

SUM_OF_NEIGHBOURS = """@op.kernel
def f(x: f32[m, n]) -> f32[m, n]:
    y = op.empty_like(x)
    for i, j in op.tile_range(m, n, step=(16, 32)):
        s = op.zeros((16, 32), f32)
        for dy, dx in ((-1, 0), (0, 1), (1, -1)):
            s += {window} - x[i:i+16, j:j+32]
        y[i:i+16, j:j+32] = s
    return y
"""
WHOLE = "op.window(x, (i + dy, j + dx), (16, 32))"
AT_EDGES = "op.window(x, (i + dy, j + dx), (min(16, x.shape[0] - i), min(32, x.shape[1] - j)))"


def test_a_window_at_an_edge() -> None:
    x = np.random.default_rng(0).normal(size=(21, 45)).astype(np.float32)
    f = tessera.compile(SUM_OF_NEIGHBOURS.format(window=WHOLE), target="cpu").f
    with pytest.raises(tessera.TesseraError, match="T0838") as caught:
        f(x)
    assert "`min(16, x.shape[0] - i)` elements from `i` on" in str(caught.value)
    f(x[:16, :32])
    f = tessera.compile(SUM_OF_NEIGHBOURS.format(window=AT_EDGES), target="cpu").f
    padded = np.pad(x.astype(np.float64), 1)
    places = ((-1, 0), (0, 1), (1, -1))
    wanted = sum(padded[1 + a : 22 + a, 1 + b : 46 + b] for a, b in places) - 3 * padded[1:22, 1:46]
    np.testing.assert_allclose(f(x), wanted, atol=1e-5)


def test_a_window_has_no_axis() -> None:
    text = SUM_OF_NEIGHBOURS.format(window="op.window(x, i + dy, 16, axis=0)")
    (found,) = Session(overlay={"k.tessera": text}).check("k.tessera")
    assert found.code == "T0106"
    assert "`op.window(x, start, length, fill=)`" in found.helps[0]
    assert "`op.window(x, (i, j), (16, 64))`" in found.helps[1]


COUNTED = """@op.kernel
def f(x: f32[m]) -> f32[m]:
    y = op.empty_like(x)
    for i in op.tile_range(m, step=16):
        rows = i + op.arange({count})
        inside = (rows >= 3)[:] & (rows < m - 1)[:]
        y[i:i+16] = op.where(inside, x[i:i+16], 0.0)
    return y
"""


def test_a_count_at_an_edge() -> None:
    """The one fault is said once, and its help works."""
    wrong = COUNTED.format(count="min(16, m - i)")
    (found,) = Session(overlay={"k.tessera": wrong}).check("k.tessera")
    assert found.code == "T0608" and "`op.arange(16)`" in found.helps[0]
    x = np.random.default_rng(1).normal(size=37).astype(np.float32)
    f = tessera.compile(COUNTED.format(count="16"), target="cpu").f
    at = np.arange(37)
    np.testing.assert_array_equal(f(x), np.where((at >= 3) & (at < 36), x, 0))
