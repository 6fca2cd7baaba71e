"""Conditions on numbers that are arguments of a tile kernel: a literal takes the number's type."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tessera_lang as tessera

FLOATS = ("s > 0.5", "0.5 < s", "s > -0.5", "s > 1.0 / 3.0", "s * 2.0 > 1.5", "not s <= 0.5",
          "s > 0.5 and s < 4.0", "s == 2.0 or s > 9.0", "0.5 < s < 4.0")  # fmt: skip
INTEGERS = ("s > 1", "1 < s", "s + 1 > 2", "s == 2 or s > 9", "1 < s < 4", "not s <= 1")
CASES = [
    *itertools.product(("f64", "f32", "f16", "bf16"), FLOATS),
    *itertools.product(("i64", "i32", "u8", "i16"), INTEGERS),
]


@pytest.mark.parametrize(("dtype", "condition"), CASES)
@pytest.mark.sample(10)
def test_a_literal_beside_a_number(dtype: str, condition: str) -> None:
    m = tessera.compile(
        f"@op.kernel\ndef k(y: mut f32[m], s: {dtype}):\n"
        f"    for i in op.tile_range(m, step=1):\n"
        f"        if {condition}: y[i] = 1.0\n        else: y[i] = 2.0\n",
        target="cpu",
    )
    for s in (0, 2, 3):
        y = np.zeros(3, np.float32)
        m.k(y, s)
        assert (y == (1.0 if eval(condition, {"s": s}) else 2.0)).all(), s
