"""Checked mode finds the faults of kernels that are known to have them, and no other."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.fuzz.checked import Checked, Outcome, measure
from tests.fuzz.checker import run_lanes
from tests.fuzz.test_checker_sound import LANES, wild_kernel
from tests.unit.lowering import lower_source


def hold(out: Outcome) -> None:
    assert not out.wrong, out.wrong[0]
    assert all(row.faulty for name, row in out.rows.items() if name != "none")


def test_planted_faults() -> None:
    hold(measure(5, seed=3))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_many_planted_faults(seed: int) -> None:
    hold(measure(100, seed))


def right_by_chance(seed: int, kernels: int) -> tuple[int, int]:
    """Of kernels with guards on data and on a scalar of the call: faulty launches, and those
    found. What two lanes write with one and the same value is a fault that nobody can see."""
    r = random.Random(seed)
    faulty = found = 0
    for _ in range(kernels):
        kernel = wild_kernel(r)
        if any(d.code == "T0401" for d in lower_source(kernel.text())[2]):
            continue
        checked = Checked(kernel)
        for h in (-3, 1, 5, 33):
            x = np.random.default_rng(h & 7).random(LANES, np.float32)
            ran = run_lanes(kernel, {"h": h, "x": x})
            faults = [checked.fault(order, x, h) for order in ("forward", "reverse", "random")]
            wrong = [f for f in faults if f and f != "an access outside"]
            assert not wrong or ran.races or ran.unwritten, f"{kernel.text()}\nh = {h}: {wrong}"
            faulty += ran.races or ran.unwritten
            found += bool(wrong)
    return faulty, found


def test_launches_that_are_right_by_chance() -> None:
    faulty, found = right_by_chance(seed=5, kernels=5)
    assert found > 3 and found >= 0.9 * faulty, (faulty, found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_many_launches_that_are_right_by_chance(seed: int) -> None:
    faulty, found = right_by_chance(seed, 150)
    assert found >= 0.9 * faulty, (faulty, found)
