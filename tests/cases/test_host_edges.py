"""Host programs at the edges: sizes that cannot be, numbers that are none, indices of another kind.

Each of these ended in an exception of Python or NumPy, or in a wrong array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def value(expression: str, target: str = "cpu") -> Any:
    m: Any = tessera.compile(f"\ndef f():\n    return {expression}\n", target=target)
    return m.f()


WRONG = {
    "op.arange(0, 3, 0.5, dtype=i32)": "step of `op.arange` is 0.5",
    "op.arange(0.5, 3, 1, dtype=i32)": "start of `op.arange` is 0.5",
    "op.arange(0, 3, nan)": "step of `op.arange` is nan",
    "op.arange(0, inf)": "end of `op.arange` is inf",
    "op.arange(nan, 3, dtype=i32)": "start of `op.arange` is nan",
    "op.arange(0, 3, 0)": "step is 0", "op.arange(1e300)": "there is no memory",
    "op.arange(-1e308, 1e308, 1e-300)": "there is no memory",
    "op.zeros((2**62, 4))": "there is no memory", "op.ones((2**40, 2**40))": "there is no memory",
    "op.arange(3)[1.5]": "an index is an integer, not 1.5",
    "op.arange(3)[True]": "an index is an integer, not True",
    "op.arange(6)[0, 1]": "2 indices for an array of 1 axes",
}  # fmt: skip


@pytest.mark.parametrize("expression", WRONG)
def test_what_cannot_be_is_said(expression: str) -> None:
    with pytest.raises(tessera.TesseraError) as caught:
        value(expression)
    (found,) = caught.value.diagnostics
    assert WRONG[expression] in found.message and found.span is not None


@pytest.mark.parametrize("place", ["x[1.5]", "x[True]", "x[0, False]"])
def test_a_place_to_write_is_held_to_the_same(place: str) -> None:
    m: Any = tessera.compile(
        f"def f():\n    x = op.zeros((3, 3))\n    {place} = 1.0\n", target="cpu"
    )
    with pytest.raises(tessera.TesseraError, match="an index is an integer"):
        m.f()


COUNTED = {
    "op.arange(0, 3, -1)": [], "op.arange(3, 0, -1, dtype=i8)": [3, 2, 1],
    "op.arange(3.0, dtype=i32)": [0, 1, 2], "op.arange(0, 1, 0.25)": [0, 0.25, 0.5, 0.75],
    "op.arange(-2, 2, dtype=f16)": [-2, -1, 0, 1], "op.arange(3, dtype=bool)": [0, 1, 1],
    "op.arange(9, 0, -4)": [9, 5, 1],
}  # fmt: skip


@pytest.mark.parametrize("expression", COUNTED)
def test_numbers_are_counted(expression: str) -> None:
    assert np.asarray(value(expression)).astype(np.float64).tolist() == COUNTED[expression]


def test_a_narrow_number_that_is_counted_rounds_once() -> None:
    found = value("op.arange(1.0, 1.5, 0.00390625093132257461547851562, dtype=bf16)")
    assert float(np.asarray(found)[1]) == 1.0078125


DEVICE = """
def counted(x):
    n = x.shape[0]
    a, b = op.arange(n, dtype=i64), op.arange(2.5, n + 2.5, dtype=f16)
    return a, b, op.arange(n, 0, -1, dtype=i8)
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [0, 1, 300])
def test_a_function_counts_where_its_arrays_are(n: int, target: str) -> None:
    """`op.arange` was refused in functions that are given arrays of a device."""
    m: Any = tessera.compile(DEVICE, target=target)
    x = np.zeros(n, np.float32)
    for _ in range(2):  # the second call is the recorded one
        a, b, c = m.counted(tessera.to_device(x) if target == "cuda" else x)
        k = np.arange(n)
        assert np.array_equal(np.asarray(a), k)
        assert np.array_equal(np.asarray(b), (k + 2.5).astype(np.float16))
        assert np.array_equal(np.asarray(c), (n - k).astype(np.int8))


@pytest.mark.parametrize("size", [0, 1, 50, 101, 200, 100_000])
def test_an_array_that_was_resized_is_not_written(size: int) -> None:
    """A bound launch wrote to memory that NumPy had given back."""
    m: Any = tessera.compile(
        "@kernel tile[(32,)] grid[(ceil_div(n, 32),)]\ndef clear(x: mut f32[n]):\n"
        "    i = grid_tile_linear_id()\n    if i < n: x[i] = 0.0\n",
        target="cpu",
    )
    x = np.ones(100, np.float32)
    again = m.clear.bind(x)
    again()
    assert not x.any()
    x.resize(size, refcheck=False)
    with pytest.raises(tessera.TesseraError, match="T0851"):
        again()
    view = np.ones(100, np.float32)[10:20]
    m.clear.bind(view)()
    assert view.base is not None and view.base.sum() == 90
