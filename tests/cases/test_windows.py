"""``op.window`` of parts of arrays: rows and columns from a run-time place on, in steps, at every
edge. What is outside of the part is the fill, whatever the array has there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

PLACES = ["cpu", "as sm_90a", "as sm_80", pytest.param("cuda", marks=pytest.mark.gpu)]
TEXT = """
@op.kernel
def moved[S: int, F: float](x: f32[m, n], y: mut f32[8, 16], a: u32, b: u32, c: u32, p: i32, q: i32):
    y[:, :] = op.window(x[a:b, c::S], (p, q), (8, 16), fill=F)

@op.kernel
def rows[F: float](x: f32[m, n], y: mut f32[8, 16], a: u32, q: i32):
    y[:, :] = op.window(x[a:a+8, :], (0, q), (8, 16), fill=F)

@op.kernel
def one_row[F: float](x: f32[m, n], y: mut f32[16], a: u32, b: u32, q: i32):
    if a < m: y[:] = op.window(x[a, b:], q, 16, fill=F)
"""  # noqa: E501
Array = np.ndarray[Any, np.dtype[Any]]


def seen(part: Array, starts: tuple[int, ...], shape: tuple[int, ...], fill: float) -> Array:
    """What NumPy has at these places of a part, and the fill elsewhere."""
    out = np.full(shape, fill, np.float32)
    for at in np.ndindex(*shape):
        place = tuple(s + i for s, i in zip(starts, at, strict=True))
        if all(0 <= p < n for p, n in zip(place, part.shape, strict=True)):
            out[at] = part[place]
    return out


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.sample(1)
def test_windows_of_parts(place: str, step: int, tmp_path: Path) -> None:
    (tmp_path / "windows.tessera").write_text(TEXT)
    how = {"target": "cpu", "arch_as": place[3:]} if place[:2] == "as" else {"target": place}
    m = tessera.load(str(tmp_path / "windows.tessera"), **how)
    r = np.random.default_rng(step)
    fill = -7.0 if step == 2 else 0.0
    for rows, columns in ((11, 37), (3, 5)):
        x = r.standard_normal((rows, columns)).astype(np.float32)
        for _ in range(20):
            a, c = (int(v) for v in r.integers(0, (rows, columns)))
            b = int(r.integers(a, rows + 3))
            p, q = (int(v) for v in r.integers(-9, 14, 2))
            y = np.zeros((8, 16), np.float32)
            m.moved(x, y, a, b, c, p, q, S=step, F=fill)
            np.testing.assert_array_equal(y, seen(x[a:b, c::step], (p, q), (8, 16), fill))
            m.rows(x, y, a, q, F=fill)
            np.testing.assert_array_equal(y, seen(x[a : a + 8], (0, q), (8, 16), fill))
            line = np.zeros(16, np.float32)
            m.one_row(x, line, a, c, q, F=fill)
            np.testing.assert_array_equal(line, seen(x[a, c:], (q,), (16,), fill))
