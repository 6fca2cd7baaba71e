"""Groups side by side run row by row where their lanes are apart: what they do stays the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu import entry
from tessera_backend.cpu.interleaved_groups import RowRuns, row_runs

import tessera_lang as tessera

HEAD = """
@kernel tile[({rows}, {lanes})] grid[(ceil_div(m, {rows}), ceil_div(n, {lanes}))]
def k(x: i32[m, n], out: mut i32[{out}]):
    i = group_id(0) * {rows} + tile_id(0)
    j = group_id(1) * {lanes} + tile_id(1)
"""
STENCIL = """
    if i > 0 and i < m - 1 and j > 0 and j < n - 1:
        out[i, j] = x[i - 1, j] + 3 * x[i + 1, j] - x[i, j - 1] + 5 * x[i, j + 1]
"""
NUMBERS = """
    if i >= m or j >= n: return
    t = i32(tile_linear_id())
    if t % 7 == 3: return
    out[i, j] = x[i, j] * 1000 + t * 3 + i32(group_id(1) + group_linear_id())
"""
UNPROVED = """
    if j < n: out[min(i, m - 1), j] = x[min(i, m - 1), j] + 1
"""
FLIPPED = "    if i < m and j < n: out[j, i] = x[i, j]\n"
LOOPED = """
    if i < m and j < n:
        for q in range(3): out[i, j] = x[i, j] + i32(q)
"""
ADDED = "    if i < m and j < n: atomic_add(out[i, j], x[i, j])\n"
TOGETHER = """
    v = x[min(i, m - 1), min(j, n - 1)]
    w = warp_sum(v)
    if i < m and j < n: out[i, j] = w
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[RowRuns | None]:
    """What was answered for each kernel that was compiled."""
    found: list[RowRuns | None] = []

    def noted(kernel: Any) -> RowRuns | None:
        found.append(row_runs(kernel))
        return found[-1]

    monkeypatch.setattr(entry, "row_runs", noted)
    return found


def made(body: str, rows: int, lanes: int, out: str = "m, n") -> Any:
    return tessera.compile(HEAD.format(rows=rows, lanes=lanes, out=out) + body, target="cpu").k


def stencil(x: np.ndarray, rows: int, lanes: int) -> np.ndarray:
    out = np.full_like(x, -1)
    out[1:-1, 1:-1] = x[:-2, 1:-1] + 3 * x[2:, 1:-1] - x[1:-1, :-2] + 5 * x[1:-1, 2:]
    return out


def numbers(x: np.ndarray, rows: int, lanes: int) -> np.ndarray:
    i, j = np.indices(x.shape)
    t = i % rows * lanes + j % lanes
    across = -(-x.shape[1] // lanes)
    group = j // lanes + i // rows * across + j // lanes
    return np.where(t % 7 == 3, -1, x * 1000 + t * 3 + group)


def unproved(x: np.ndarray, rows: int, lanes: int) -> np.ndarray:
    return x + 1


@pytest.mark.parametrize("group", [(16, 16), (4, 8), (3, 32), (32, 24)])
@pytest.mark.parametrize(
    ("body", "want"), [(STENCIL, stencil), (NUMBERS, numbers), (UNPROVED, unproved)]
)
@pytest.mark.sample(6)
def test_the_same_as_an_array_expression(
    asked: list[RowRuns | None], body: str, want: Any, group: tuple[int, int]
) -> None:
    kernel = made(body, *group)
    for m, n in ((1, 1), (2, 70), (33, 31), (16, 2048), (37, 1100)):
        x = np.random.default_rng(m * n).integers(-99, 99, (m, n)).astype(np.int32)
        for threads in (1, 3):
            out = np.full_like(x, -1)
            tessera.set_num_threads(threads)
            try:
                kernel(x, out)
            finally:
                tessera.set_num_threads(None)
            np.testing.assert_array_equal(out, want(x, *group))
    assert any(asked), "no kernel was run row by row"


@pytest.mark.parametrize("body", [FLIPPED, LOOPED, ADDED, TOGETHER])
def test_what_stays_a_group(asked: list[RowRuns | None], body: str) -> None:
    """Columns, loops, atomics and warps: their lanes gain from the other rows of the group."""
    kernel = made(body, 16, 16, "n, m" if body == FLIPPED else "m, n")
    x = np.ones((40, 50), np.int32)
    kernel(x, np.zeros((50, 40) if body == FLIPPED else (40, 50), np.int32))
    assert asked and not any(asked)


def test_a_fault_is_told(asked: list[RowRuns | None]) -> None:
    kernel = made("    out[i, j] = x[i, j]\n", 8, 16)
    x, out = np.ones((8, 32), np.int32), np.zeros((8, 32), np.int32)
    kernel(x, out)
    assert (out == 1).all()
    with pytest.raises(tessera.TesseraError, match=r"T0\d+"):
        kernel(x[:7, :20].copy(), out[:7, :20].copy())
    assert any(asked)
