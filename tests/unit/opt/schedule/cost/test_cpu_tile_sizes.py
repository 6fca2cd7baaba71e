"""Tiles of the CPU for reductions: whole rows where rows are reduced, and the right numbers."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tessera_lang as tessera
from tessera_lang.driver.commands import group
from tessera_lang.target.tuned_constants import CPU_ELEMENTS, CPU_RUN

SOURCE = """
@op.kernel
def sums(a: f32[m, n], y: mut f32[m]): y[:] = op.sum(a, axis=1)

@op.kernel
def most(a: f32[m, n], y: mut f32[m]): y[:] = op.max(a, axis=1)

@op.kernel
def least(a: i32[m, n], y: mut i32[m]): y[:] = op.min(a, axis=1)

@op.kernel
def gemv(a: f32[m, n], x: f32[n], y: mut f32[m]): y[:] = op.sum(a * x[None, :], axis=1)

@op.kernel
def columns(a: f32[m, n], y: mut f32[n]): y[:] = op.sum(a, axis=0)

@op.kernel
def norms(a: f64[k, m, n], y: mut f64[k, m]): y[:, :] = op.sum(a * a, axis=2)
"""
SHAPES = [
    (1, 1),
    (1, 5000),
    (5000, 1),
    (3, 7),
    (200, 300),
    (16, 4097),
    (1000, 16),
    (33, 64),
    (0, 5),
]


@cache
def kernels() -> Any:
    return tessera.compile(SOURCE, target="cpu")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.sample(1)
def test_reductions_give_what_numpy_gives(shape: tuple[int, int]) -> None:
    m, n = shape
    k = kernels()
    rng = np.random.default_rng(m * 7 + n)
    a, x = rng.standard_normal(shape, np.float32), rng.standard_normal(n, np.float32)
    y, z = np.full(m, 9, np.float32), np.full(n, 9, np.float32)
    exact = a.astype(np.float64)
    k.sums(a, y)
    assert np.allclose(y, exact.sum(1), atol=1e-4)
    k.gemv(a, x, y)
    assert np.allclose(y, exact @ x, atol=1e-3)
    k.columns(a, z)
    assert np.allclose(z, exact.sum(0), atol=1e-3)
    if n:
        k.most(a, y)
        assert np.array_equal(y, a.max(1))
        numbers, least = rng.integers(-999, 999, shape).astype(np.int32), np.zeros(m, np.int32)
        k.least(numbers, least)
        assert np.array_equal(least, numbers.min(1))
    cube, norms = rng.standard_normal((2, *shape)), np.zeros((2, m))
    k.norms(cube, norms)
    assert np.allclose(norms, (cube * cube).sum(2))


def tile(kernel: str, signature: str, tmp_path: Path) -> tuple[int, ...]:
    path = tmp_path / "k.tessera"
    path.write_text(SOURCE, encoding="utf-8")
    asked = ["emit", str(path), "--stage=schedule", "--target=cpu", f"--kernel={kernel}",
             f"--signature={signature}"]  # fmt: skip
    done = CliRunner().invoke(group, asked)
    assert done.exit_code == 0, done.output
    found = re.search(r"\btile = \[([^\]]+)\]", done.output)
    assert found is not None
    return tuple(int(n.split(":")[0]) for n in found[1].split(","))


@pytest.mark.parametrize("m", [3, 100, 4000])
@pytest.mark.parametrize("n", [3, 16, 300, 4000, 50_000])
@pytest.mark.sample(1)
def test_rows_are_reduced_whole(m: int, n: int, tmp_path: Path) -> None:
    """As far as a run goes, in tiles that the cache keeps."""
    rows, columns = tile("sums", f"a: f32[{m},{n}], y: mut f32[{m}]", tmp_path)
    assert columns >= min(n, CPU_RUN) and rows * columns <= CPU_ELEMENTS
    assert rows * columns >= min(m, 4) * min(n, CPU_RUN) // 4


def test_columns_are_as_before(tmp_path: Path) -> None:
    """Their results lie side by side."""
    assert tile("columns", "a: f32[2000,2000], y: mut f32[2000]", tmp_path)[0] >= 64
