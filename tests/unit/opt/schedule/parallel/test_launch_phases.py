"""Kernels of several loops do what their statements do one after the other, on every target."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tests.unit.lower.ast_to_schedule import phase_programs as programs
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded


def compared(seeds: range, target: str) -> None:
    bodies = {f"k{seed}": programs.body_of(seed) for seed in seeds}
    text = "\n\n".join(programs.kernel_text(k, b) for k, b in bodies.items())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = loaded(text, target)
    for name, body in bodies.items():
        r = np.random.default_rng(len(body))
        given = {x: r.integers(0, 5, programs.N).astype(np.float32) for x in programs.ARRAYS}
        want = programs.ran_by_python(body, given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(module, name)(*given.values())
        for x in programs.ARRAYS:
            assert np.array_equal(given[x], want[x]), (name, x, "\n".join(body))


@pytest.mark.parametrize("target", ["cpu", GPU])
def test_statements_as_python(target: str) -> None:
    compared(range(6), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.parametrize("part", range(5))
def test_more_statements_as_python(part: int, target: str) -> None:
    compared(range(6 + 20 * part, 26 + 20 * part), target)
