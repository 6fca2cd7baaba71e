"""Functions that Python calls with device arrays do on the CPU what functions of host arrays do."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from tessera_backend.runtime.arguments import order_arguments, place_arguments

import tessera_lang as tessera
from tests.on_device import call as on_device
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
@pytest.mark.sample(1)
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


NO_ARRAYS = """
@op.kernel
def line(a: f64):
    return op.arange(8) * a

@op.kernel
def ones():
    return op.ones((8,), dtype=f64)

def of_nothing(x): return ones()
def with_arrays(x): return ones() * x + line(2.0)
def results(x): return line(1.5), ones()
"""
"""Kernels whose arguments do not say where they run."""


@pytest.mark.parametrize(
    "target", ["traced", pytest.param("cuda", marks=pytest.mark.gpu)]
)  # fmt: skip
@pytest.mark.parametrize("name", ["of_nothing", "with_arrays", "results"])
@pytest.mark.parametrize("fused", [False, True])
def test_kernels_without_arrays_run_where_the_call_does(
    name: str, target: str, fused: bool
) -> None:
    wanted = getattr(tessera.compile(NO_ARRAYS, target="cpu"), name)
    m: Any = tessera.compile(NO_ARRAYS, target="cpu" if target == "traced" else "cuda")
    x = np.linspace(0.0, 1.0, 8)
    if name == "with_arrays" and not fused:
        pytest.skip("arithmetic of arrays on a device is in graphs")
    f = tessera.fused(getattr(m, name)) if fused else getattr(m, name)
    for _ in range(2):  # recorded, and replayed
        found = traced(f, x) if target == "traced" else on_device(f, (x,), "cuda")
        for a, b in zip(_several(found), _several(wanted(x)), strict=True):
            _same(a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("given", [[1.0], (X,), {"a": 1.0}])
def test_collections_beside_device_arrays_are_refused(given: Any) -> None:
    m: Any = tessera.compile("def f(x, t):\n    return x\n", target="cuda")
    with pytest.raises(tessera.TesseraError, match="T0809"):
        m.f(tessera.to_device(X), given)


def _several(found: Any) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", found) if isinstance(found, tuple) else (found,)


def test_where_no_array_says_a_device_it_is_the_one_of_the_call() -> None:
    m: Any = tessera.compile(NO_ARRAYS, target="auto")
    interface = m.ones._family.interface
    nothing = order_arguments(interface, [], {})
    for target, usual, device in (("auto", None, -1), ("auto", 3, 3), ("cuda", None, 0)):
        assert place_arguments(interface, nothing, target, None, False, usual).device == device


@pytest.mark.parametrize("target", ["traced", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_reductions_of_what_a_function_makes(target: str) -> None:
    made = "    w = op.linspace(0.0, 1.0, 8)\n"
    text = f"def f(x):\n{made}    return x * op.sum(w) + op.max(w, axis=0)\n"
    m: Any = tessera.compile(text, target="cpu" if target == "traced" else "cuda")
    x = np.linspace(0.0, 1.0, 8)
    f = tessera.fused(m.f)
    found = traced(f, x) if target == "traced" else on_device(f, (x,), "cuda")
    _same(found, x * 4.0 + 1.0)
