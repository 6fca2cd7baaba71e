"""Cascaded reductions of two and three stages that nothing here was written for: each is one loop
or says why not, and its values are as right as those of the operators one after the other,
whatever the magnitude of the data."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.function_graphs import graph_program, plain_functions
from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Operation
from tessera_lang.lower.graph_to_kernels.fusion import plan_of
from tests.on_device import call
from tests.unit.graph import by_numpy
from tests.unit.graph.cascades import prepared
from tests.unit.graph.fresh_cascades import LOOPS, NUMPY, SHAPES, TEXT, arrays

SCORES = (1e-30, 1e-6, 1.0, 1e4, 1e30)
VALUES = (1e-30, 1.0, 1e30)
_NEAR = 1e-5
"""Of the largest element: f32, sums of some hundred terms."""


@cache
def _graph(name: str, sizes: tuple[tuple[str, int], ...]) -> Operation:
    session, of = Session(overlay={"fresh.tessera": TEXT}), dict(sizes)
    (f,) = (x for x in plain_functions(session, "fresh.tessera") if x.name == name)
    parts = (
        f"{p.name}: {'i64' if p.name == 'y' else 'f32'}"
        f"[{', '.join(str(of[n]) for n in SHAPES[p.name])}]" for p in f.parameters
    )  # fmt: skip
    (made,) = graph_program(session, "fresh.tessera", f, ", ".join(parts)).operations
    return prepared(made)


def _sizes(name: str) -> dict[str, int]:
    rng = np.random.default_rng([*map(ord, name)])
    return {"s": int(rng.integers(2, 150)), "t": int(rng.integers(65, 300)), "d": 16, "e": 24}


def _wanted(name: str, given: dict[str, Any], names: list[str]) -> Any:
    wide = (given[n].astype(np.float64) if given[n].dtype.kind == "f" else given[n] for n in names)
    with np.errstate(all="ignore"):
        return NUMPY[name](*wide)


def _error(found: Any, wanted: Any) -> float:
    found = np.asarray(found, np.float64)
    assert found.shape == wanted.shape
    if not np.isfinite(found).all():
        return float(np.inf)
    return float(np.abs(found - wanted).max()) / max(float(np.abs(wanted).max()), 1e-300)


@pytest.mark.parametrize("name", NUMPY)
def test_how_many_loops(name: str) -> None:
    sizes = {"s": 70, "t": 300, "d": 16, "e": 24}
    plan = plan_of(_graph(name, tuple(sizes.items())), ())
    assert sum("for j in" in k.source for k in plan.kernels) == LOOPS[name]
    assert any(r.apart for r in plan.refusals) == (LOOPS[name] > 1)


@pytest.mark.parametrize("name", NUMPY)
def test_text_of_kernels(name: str) -> None:
    sizes = _sizes(name)
    function = _graph(name, tuple(sizes.items()))
    given, names = arrays(name, sizes, 1), list(function.strings("parameters"))
    inputs = [given[n].astype(np.float64) if n != "y" else given[n] for n in names]
    (found,) = by_numpy.run(function, inputs)
    assert _error(found, _wanted(name, given, names)) < _NEAR


def _check_magnitudes(name: str, target: Literal["cpu", "cuda"]) -> None:
    function = getattr(tessera.compile(TEXT, target="cpu"), name)
    fused = tessera.fused(getattr(tessera.compile(TEXT, target=target), name))
    sizes = {"s": 37, "t": 190, "d": 16, "e": 24}
    names = [n for n in inspect.signature(function).parameters if n in SHAPES]
    for scores in SCORES:
        for values in VALUES if "v" in names else (1.0,):
            given = arrays(name, sizes, 0, scores, values)
            inputs, wanted = tuple(given[n] for n in names), _wanted(name, given, names)
            # Operators one by one are the host program's, which has no arrays of a device.
            alone = _error(call(function, inputs, "cpu"), wanted)
            found = _error(call(fused, inputs, target), wanted)
            assert found <= 4.0 * alone + _NEAR, (scores, values)


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.slow
def test_magnitudes(name: str) -> None:
    _check_magnitudes(name, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("name", NUMPY)
def test_magnitudes_on_a_device(name: str) -> None:
    _check_magnitudes(name, "cuda")
