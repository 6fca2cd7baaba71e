"""What a kernel counts of a grid is what the call says: there is code for each rank of a grid."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime.api import load, load_built

from tessera_lang import TesseraError
from tessera_lang.driver.session import Session

GRIDS = [g for rank in (1, 2, 3) for g in itertools.product((1, 2, 3), repeat=rank)]

KERNEL = """
@kernel tile[(1,)]
def k(out: mut i32[n, 3]):
    at = {place}
    atomic_store(out[at, 0], {value})
    atomic_store(out[at, 1], i32(group_count({axis})))
    atomic_store(out[at, 2], i32(grid_tile_count()))
"""


def expected(grid: Sequence[int], axis: int, linear: bool) -> np.ndarray:
    """What the groups of a grid leave, counted by hand."""
    out = np.zeros((64, 3), np.int32)
    for number, place in enumerate(itertools.product(*(range(n) for n in grid))):
        at = number if linear else place[axis]
        out[at, 0] = 1 + place[axis] if linear else 0
        out[at, 1:] = grid[axis], np.prod(grid)
    return out


def launched(folder: Path, text: str, grid: Sequence[int], target: str = "cpu") -> np.ndarray:
    path = folder / "k.tessera"
    path.write_text(text)
    out = np.zeros((64, 3), np.int32)
    load(path, target=target).k[tuple(grid)](out)
    return out


def kernel(axis: int, linear: bool) -> str:
    place = "group_linear_id()" if linear else f"group_id({axis})"
    value = f"i32(1 + group_id({axis}))" if linear else "0"
    return KERNEL.format(place=place, axis=axis, value=value)


def cases() -> list[tuple[tuple[int, ...], int, bool]]:
    return [(g, a, linear) for g in GRIDS for a in range(len(g)) for linear in (False, True)]


def test_every_grid_is_counted_as_the_call_says(tmp_path: Path) -> None:
    for grid, axis, linear in cases():
        found = launched(tmp_path, kernel(axis, linear), grid)
        assert np.array_equal(found, expected(grid, axis, linear)), (grid, axis, linear)


@pytest.mark.gpu
def test_every_grid_is_counted_as_the_call_says_on_a_device(tmp_path: Path) -> None:
    for grid, axis, linear in cases():
        found = launched(tmp_path, kernel(axis, linear), grid, "cuda")
        assert np.array_equal(found, expected(grid, axis, linear)), (grid, axis, linear)


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(TesseraError) as caught:
        call()
    return caught.value.diagnostics[0].code


@pytest.mark.parametrize(("grid", "axis"), [((4,), 1), ((4,), 2), ((2, 2), 2)])
def test_a_grid_of_fewer_axes_than_asked_for_is_refused(
    tmp_path: Path, grid: tuple[int, ...], axis: int
) -> None:
    text = kernel(axis, True)
    assert code_of(lambda: launched(tmp_path, text, grid)) == "T0839"
    call = f"out = op.zeros((64, 3), i32)\nk[{', '.join(map(str, grid))}](out)\n"
    session = Session(overlay={"k.tessera": text + "\n" + call})
    assert [d.code for d in session.check("k.tessera")] == ["T0839"]


@pytest.mark.parametrize("clause", ["grid[(4,)]", "grid[(2, 2)]"])
def test_a_clause_has_the_axes_that_the_kernel_asks_for(clause: str) -> None:
    text = kernel(2, True).replace("tile[(1,)]", f"tile[(1,)] {clause}")
    found = Session(overlay={"k.tessera": text}).check("k.tessera")
    assert {d.code for d in found} == {"T0311"}
    assert all("axis 2" in d.message for d in found)


def test_a_bound_launch_and_the_short_way_keep_the_rank(tmp_path: Path) -> None:
    path = tmp_path / "k.tessera"
    path.write_text(kernel(0, True))
    k = load(path, target="cpu").k
    for grid in ((6,), (2, 3), (3, 2), (1, 6), (1, 2, 3)):
        first, bound = np.zeros((64, 3), np.int32), np.zeros((64, 3), np.int32)
        again = k[grid].bind(bound)
        for _ in range(3):
            first[:], bound[:] = 0, 0
            k[grid](first)
            again()
            assert np.array_equal(first, expected(grid, 0, True)), grid
            assert np.array_equal(bound, first), grid


def test_a_folder_has_code_for_the_axes_it_was_built_for(tmp_path: Path) -> None:
    path = tmp_path / "k.tessera"
    path.write_text(kernel(0, True))
    built = tmp_path / "built"
    words = ["build", str(path), "-o", str(built), "--target", "cpu"]
    command = [sys.executable, "-m", "tessera_lang.driver.cli", *words]
    subprocess.run([*command, "--grid-axes", "1", "--grid-axes", "3"], check=True, timeout=60)
    k = load_built(str(built)).k
    for grid in ((6,), (1, 2, 3)):
        out = np.zeros((64, 3), np.int32)
        k[grid](out)
        assert np.array_equal(out, expected(grid, 0, True)), grid
    with pytest.raises(TesseraError, match="a grid of 2 axes"):
        k[2, 3](np.zeros((64, 3), np.int32))


def test_a_grid_of_more_groups_than_indices_tell_is_refused(tmp_path: Path) -> None:
    text = kernel(0, True)
    for grid in ((2**31,), (2**30, 2**19), (2**17, 2**17, 2**17)):
        assert code_of(lambda g=grid: launched(tmp_path, text, g)) == "T0840", grid
