"""`assert` in lanes on both targets: reported like a guard, and the lane goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.diagnostics import TesseraError
from tests.unit.lowering import lower_source, optimized
from tests.unit.tile_interpreter import launch

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TEXT = """\
def half(v):
    assert v.dtype == f32 or v.dtype == f64, "`half` takes f32 and f64"
    assert v >= 0.0, "halves are of numbers from 0 on"
    return v * 0.5

@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def k(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        assert x[i] != 7.0
        out[i] = half(x[i])
"""


def faults(k: Any, *arguments: Any) -> list[Any]:
    try:
        k(*arguments)
        tessera.synchronize()
    except TesseraError as error:
        return list(error.diagnostics)
    return []


@pytest.mark.parametrize("target", TARGETS)
def test_the_lane_reports_and_goes_on(target: str) -> None:
    k = tessera.compile(TEXT, target=target).k
    x, out = np.full(100, 4.0, np.float32), np.zeros(100, np.float32)
    assert not faults(k, x, out) and (out == 2.0).all()
    x[70] = -4.0
    (found,) = faults(k, x, out)
    assert found.code == "T0845" and "halves are of numbers from 0 on" in found.message
    assert "in group 1, lane 6" in found.notes
    if target == "cpu":
        assert out[70] == -2.0 and out[71] == 2.0
    x[70] = 7.0
    (found,) = faults(k, x, out)
    assert "fails an assertion: x[i] != 7.0" in found.message
    x[70] = 4.0
    assert not faults(k, x, out)


def test_the_interpreter_agrees() -> None:
    program, plan, diagnostics = lower_source(TEXT)
    assert not diagnostics
    x, out = np.array([1.0, 7.0, -1.0], np.float32), np.zeros(3, np.float32)
    sites = launch(program.operations[0], (x, out, np.int64(3)), 1)
    texts = [plan.sites[s].what for s in sites]
    assert texts == ["x[i] != 7.0", "halves are of numbers from 0 on"]
    assert [plan.sites[s].kind for s in sites] == ["assert", "assert"]


def test_one_that_holds_for_every_signature_costs_nothing() -> None:
    program = optimized(
        "@kernel tile[(64,)]\ndef k(x: f32[n], out: mut f32[n]):\n"
        '    assert x.dtype == f32, "f32"\n    assert x.ndim == 1\n    out[0] = 1.0\n'
    )
    assert not [o for o in program.walk() if o.name == "tile.assert"]


def test_false_is_for_lanes_that_get_there() -> None:
    text = (
        "@kernel tile[(64,)] grid[(1,)]\ndef k(x: f32[n]):\n"
        '    if x[tile_linear_id()] > 1.0:\n        assert False, "too large"\n'
    )
    k = tessera.compile(text, target="cpu").k
    assert not faults(k, np.ones(64, np.float32))
    (found,) = faults(k, np.full(64, 2.0, np.float32))
    assert "too large" in found.message
