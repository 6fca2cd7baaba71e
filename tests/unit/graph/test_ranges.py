"""Sums of loops stay within the range of what operators one after the other give: the text of
kernels by NumPy in float64, with data at the ends of its range and in an order that is adverse to
running results."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tessera_lang.ir.core import Operation
from tessera_lang.lower.graph_to_kernels.fusion import plan_of
from tests.unit.graph import by_numpy, cascades, on_cpu, reference

NAMES: list[str] = re.findall(r"def (\w+)", cascades.RANGES)
_RELATIVE = ("squared", "scaled", "scaled_square", "rms", "l_one", "floored", "never_zero",
             "near_zero", "biased_scale", "unshifted")  # fmt: skip
"""Sums relative to a divisor of what is so far."""
_ONE_LOOP = ("by_hand", "mirrored", "alone", "of_weights", "of_quotients", "given", "counted",
             *_RELATIVE)  # fmt: skip
Given = dict[str, Any]


def _infinite_first(g: Given) -> None:
    g["b"][:, : g["b"].shape[1] * 4 // 5] = -np.inf


def _infinite_row(g: Given) -> None:
    g["b"][0] = -np.inf


def _infinite_above(g: Given) -> None:
    g["b"][0, -3] = np.inf


def _late(g: Given) -> None:
    g["k"] *= np.linspace(-3.0, 900.0, len(g["k"]))[:, None] ** 3
    g["v"] *= np.linspace(1.0, 40.0, len(g["v"]))[:, None]


def _equal(score: float) -> Callable[[Given], None]:
    def change(g: Given) -> None:
        for name, value in (("q", 0.25), ("k", score * 4.0 / 16), ("b", 0.0)):
            g[name][:] = value

    return change


def _zeros_first(g: Given) -> None:
    g["k"][: len(g["k"]) * 4 // 5] = 0.0
    g["v"][: len(g["v"]) * 4 // 5] = 0.0


def _scales(q: float, k: float, v: float) -> Callable[[Given], None]:
    def change(g: Given) -> None:
        for name, factor in (("q", q), ("k", k), ("v", v), ("w", v)):
            g[name] *= factor
        g["r"] /= q * k

    return change


DATA: dict[str, Callable[[Given], None]] = {
    "even": lambda g: None,
    "infinite first": _infinite_first,
    "infinite row": _infinite_row,
    "infinite above": _infinite_above,
    "late": _late,
    **{f"equal {n}": _equal(n) for n in (-1600.0, 900.0, 1e5)},
    "zeros first": _zeros_first,
    "large": _scales(1e153, 1e153, 1e2),
    "larger": _scales(1e90, 1e90, 1e130),
    "small": _scales(1e-150, 1e-150, 1e-20),
}


def _inputs(name: str, sizes: dict[str, int], seed: int) -> Given:
    rng = np.random.default_rng(seed)
    made = {n: rng.uniform(-1.0, 1.0, [sizes[x] for x in s]) for n, s in cascades.SHAPES.items()}
    DATA[name](made)
    return made


def _check(found: Any, wanted: Any, rtol: float, relative: bool = False) -> None:
    """``relative``: where a norm is 0 but what it is of is not, terms of both signs are infinite
    one after the other, and their sum is."""
    finite = np.isfinite(wanted)
    if relative:
        np.testing.assert_array_equal(np.isfinite(found), finite)
    else:
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
        np.testing.assert_array_equal(found[~finite], wanted[~finite])
    most = max(1e-300, float(np.abs(wanted[finite]).max(initial=0.0)))
    np.testing.assert_allclose(found[finite], wanted[finite], atol=rtol * most)


def _both(function: Operation, given: Given, rtol: float) -> None:
    inputs = [given[n] for n in function.strings("parameters")]
    with np.errstate(all="ignore"):
        wanted = reference.run(function, inputs)
        for a, b in zip(by_numpy.run(function, inputs), wanted, strict=True):
            _check(a, b, rtol, function.attributes["sym_name"] in _RELATIVE)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sample(3)
def test_loops_stay_in_range(name: str, dtype: str) -> None:
    """Of any number of rows and places. Numbers of f32 are rounded, such as 1 / n of a mean: that
    of 1e5 in an exponent is 1 %."""
    rng = np.random.default_rng(NAMES.index(name))
    sizes = {**cascades.SIZES, "s": int(rng.integers(1, 150)) + 1, "t": int(rng.integers(70, 400))}
    function = cascades.graph_of(name, dtype, with_gradient=False, sizes=sizes)
    for seed, data in enumerate(DATA):
        if dtype == "f32" and name in _RELATIVE and data in ("large", "larger", "small"):
            continue  # no data of f32: divisors stay within its range
        _both(function, _inputs(data, sizes, seed), 1e-9 if dtype == "f64" else 2e-2)


@pytest.mark.sample(10)
@pytest.mark.parametrize("name", [*_ONE_LOOP, "about_mean", "squared", "rms"])
def test_an_empty_axis(name: str) -> None:
    sizes = {**cascades.SIZES, "t": 0}
    function = cascades.graph_of(name, "f64", with_gradient=False, sizes=sizes)
    given = _inputs("even", sizes, 0)
    inputs = [given[n] for n in function.strings("parameters")]
    found = by_numpy.run(function, inputs)
    assert all(np.all(x == 0.0) for x in found) or name in ("by_hand", "mirrored")


@pytest.mark.sample(13)
@pytest.mark.parametrize("name", NAMES)
def test_how_many_loops(name: str) -> None:
    """One where a running result bounds the terms, else one before it."""
    plan = plan_of(cascades.graph_of(name, "f32", with_gradient=False), ())
    kernels = plan.kernels
    loops = [k for k in kernels if "for j in" in k.source]
    assert len(loops) == 1 if name in _ONE_LOOP else len(loops) > 1
    assert any(r.apart for r in plan.refusals) == (name not in _ONE_LOOP)


def test_numbers_of_another_dtype() -> None:
    """Numbers are f64 until they meet an array: factors of both dtypes are one term."""
    function = cascades.graph_of("counted", "f32", with_gradient=False)
    given = _inputs("even", cascades.SIZES, 0)
    inputs = [given[n].astype(np.float32) for n in function.strings("parameters")]
    for a, b in zip(on_cpu.run(function, inputs), reference.run(function, inputs), strict=True):
        _check(a, b, 1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_on_the_cpu(name: str) -> None:
    sizes = {**cascades.SIZES, "s": 37, "t": 300}
    function = cascades.graph_of(name, "f64", with_gradient=False, sizes=sizes)
    host = on_cpu.host()
    for seed, data in enumerate(DATA):
        given = _inputs(data, sizes, seed)
        inputs = [given[n] for n in function.strings("parameters")]
        with np.errstate(all="ignore"):
            wanted = reference.run(function, inputs)
        for a, b in zip(on_cpu.run(function, inputs, host), wanted, strict=True):
            _check(a, b, 1e-9, name in _RELATIVE)
