"""Functions that Python calls with device arrays do on the CPU what functions of host arrays do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.traced import traced

R = np.random.default_rng(5)
X = R.standard_normal((33, 70)).astype(np.float32)
PLACES = R.integers(0, 20, 300).astype(np.int32)
LIBRARY: dict[str, tuple[Any, ...]] = {
    "reduce.sum": (X,), "reduce.max": (X, 1), "reduce.argmax": (X, 0), "reduce.mean": (X, 1),
    "sort.sort": (X[0],), "sort.argsort": (X[0],), "reduce.min": (X, 0),
    "histogram.bincount": (PLACES, 20), "transpose.transpose": (X,), "nn.softmax": (X,),
}  # fmt: skip
MADE = {
    "op.zeros(x.shape)": np.zeros, "op.ones((3,), i32)": np.ones, "op.empty((0,))": np.empty,
    "op.full((2, 2), 7)": np.full, "op.full((2,), 0.5)": np.full, "op.arange(4)": np.arange,
    "op.arange(0.5, 3.5)": np.arange, "op.zeros((2,), dtype=f16)": np.zeros,
}  # fmt: skip


def _same(found: Any, right: Any) -> None:
    found, right = np.asarray(found), np.asarray(right)
    assert found.dtype == right.dtype and found.shape == right.shape
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, right, 1e-5, 1e-5)
    else:
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("name", LIBRARY)
@pytest.mark.sample(3)
def test_the_library(name: str) -> None:
    module, function = name.split(".")
    called = getattr(tessera.load(f"std.{module}", target="cpu"), function)
    _same(traced(called, *LIBRARY[name]), called(*LIBRARY[name]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("made", MADE)
def test_what_a_function_makes(made: str, dtype: Any) -> None:
    m: Any = tessera.compile(f"def f(x):\n    return {made}\n", target="cpu")
    x = X.astype(dtype)
    _same(traced(m.f, x), m.f(x))


def test_what_is_not_there_is_refused() -> None:
    m: Any = tessera.compile("def f(x):\n    print(x)\n    return x\n", target="cpu")
    with pytest.raises(tessera.TesseraError, match="T0809"):
        traced(m.f, X)
