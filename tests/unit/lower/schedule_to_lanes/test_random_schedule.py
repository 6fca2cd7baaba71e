"""Random kernels of Schedule IR as loops of lanes, against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.lower.ast_to_schedule.reference import Leak
from tests.unit.lower.schedule_to_lanes.lanes import CPU, GPU, check_made, compiled
from tests.unit.lower.schedule_to_lanes.random_schedule import ARRAYS, random_kernel

pytestmark = pytest.mark.slow  # the longer sample; a shorter one is in the tests beside it


@pytest.mark.parametrize("seed", range(64))
def test_random_kernels(seed: int) -> None:
    built = random_kernel(seed)
    machines = (CPU, GPU) if seed % 8 == 0 else (CPU,)
    mades = [compiled(built, machine) for machine in machines]
    random = np.random.default_rng(seed)
    for n in (5, 8, 1, 0, 17):
        arrays = [random.uniform(-1, 1, (n, n)).astype(np.float32) for _ in range(ARRAYS)]
        for made in mades:
            try:
                check_made(built, made, arrays, 1e-3, 1e-3)
            except Leak:
                return  # the generator made one that observes what is not there
