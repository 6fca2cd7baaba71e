"""What is beyond the end of a row in a reduction: zeros from memory stay, the rest is filled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.unit.lower.schedule_to_tile.test_dtypes import compiled, operations, run

ROWS = """
@op.kernel
def f(x: f32[m, n]) -> f32[m]:
    y = op.zeros((m,), f32)
    for i in op.tile_range(m, step=1):
        row = x[i, :]
        y[i] = {}
    return y
"""


@pytest.mark.parametrize(
    ("term", "fills", "want"),
    [
        ("op.sum(row)", 0, lambda x: x.sum(1)),
        ("op.sum(row * row)", 0, lambda x: (x * x).sum(1)),
        ("op.sum((row - 1.0) * (row - 1.0))", 1, lambda x: ((x - 1) ** 2).sum(1)),
        ("op.sum(row + 1.0)", 1, lambda x: (x + 1).sum(1)),
        ("op.sum(row * (row + 1.0))", 1, lambda x: (x * (x + 1)).sum(1)),
        ("op.max(row)", 1, lambda x: x.max(1)),
    ],
)
def test_only_what_may_be_no_identity_is_filled(
    term: str, fills: int, want: Callable[[Any], Any]
) -> None:
    x = np.random.default_rng(1).standard_normal((3, 301)).astype(np.float32)
    found = compiled(ROWS.format(term), x)
    assert len(operations(found, "tile.select")) == fills
    assert np.allclose(run(found, x), want(x), rtol=1e-5)
