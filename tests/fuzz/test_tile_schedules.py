"""A sample of random schedules; ``python -m tests.fuzz.tile_schedules`` tries more."""

from __future__ import annotations

import pytest

from tests.fuzz.tile_schedules import case_of, tried

pytestmark = pytest.mark.slow  # the longer sample; a shorter one is in the tests beside it

TARGETS = {"cpu": 24, "sm_80": 40, "sm_90a": 60}


@pytest.mark.parametrize("target", TARGETS)
def test_schedules_change_nothing(target: str) -> None:
    refused = 0
    for seed in range(TARGETS[target]):
        outcome = tried(case_of(seed), target)
        assert not outcome.wrong, f"seed {seed}: {outcome.wrong}\n{case_of(seed).program.text()}"
        refused += bool(outcome.refused)
    assert refused < TARGETS[target] // 4


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(500, 560))
def test_schedules_change_nothing_on_a_gpu(seed: int) -> None:
    outcome = tried(case_of(seed), "cuda")
    assert not outcome.wrong, f"{outcome.wrong}\n{case_of(seed).program.text()}"
