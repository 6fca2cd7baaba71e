"""Places that an array does not have: their elements are 0 everywhere, and so is what a gradient
has for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.on_device import call

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TEXT = """
def rows(x, places): return op.take(x * 2.0, places, axis=0) + 1.0
def columns(x, places): return op.exp(op.take(x, places, axis=1))
def chosen(x, places): return x[places] * 3.0
def total(x, places): return op.sum(op.take(x, places, axis=0) ** 2)
fused_rows = fused(rows)
fused_columns = fused(columns)
fused_chosen = fused(chosen)
slope = grad(total)
"""


def _taken(x: Any, places: Any, axis: int, from_the_end: bool = False) -> Any:
    n = x.shape[axis]
    if from_the_end:
        places = places + n * (places < 0)
    there: Any = (places >= 0) & (places < n)
    found = np.take(x, np.where(there, places, 0), axis)
    return np.where(there[:, None] if axis == 0 else there, found, 0.0)


@pytest.mark.parametrize("target", TARGETS)
def test_places_outside_are_zeros(target: Any) -> None:
    m = tessera.compile(TEXT, target=target)
    rng: Any = np.random.default_rng(3)
    x = rng.standard_normal((5, 4)).astype(np.float32)
    for _ in range(3):
        places = rng.integers(-9, 9, 7).astype(np.int32)
        rows = _taken(x * 2.0, places, 0) + 1.0
        columns = np.exp(_taken(x, places, 1))
        chosen = _taken(x, places, 0, from_the_end=True) * 3.0
        for name, wanted in (("rows", rows), ("columns", columns), ("chosen", chosen)):
            # Outside of graphs, arithmetic is not there for arrays on a device.
            plain = [getattr(m, name)] if target == "cpu" else []
            for f in (*plain, getattr(m, f"fused_{name}")):
                found = call(f, (x, places), target)
                np.testing.assert_allclose(found, wanted, rtol=1e-6)
        slope = np.zeros_like(x)
        there = places[(places >= 0) & (places < 5)]
        np.add.at(slope, there, 2.0 * x[there])
        np.testing.assert_allclose(call(m.slope, (x, places), target), slope, rtol=1e-5)
