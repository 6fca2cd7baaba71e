"""Random kernels under random directives, lowered to register tiles, against the evaluator."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu.interpreter import launch as machine

from tessera_lang.ir.verify import verify
from tessera_lang.lower.schedule_to_tile import NotTiled
from tessera_lang.record import replace
from tessera_lang.target.machine import machine_named
from tests.unit.lower.ast_to_schedule import reference
from tests.unit.lower.ast_to_schedule.reference import Leak
from tests.unit.lower.schedule_to_lanes.random_schedule import ARRAYS, random_kernel
from tests.unit.tiled import as_tiles

pytestmark = pytest.mark.slow  # the longer sample; a shorter one is in the tests beside it


def directives(random: Random) -> dict[str, Any]:
    """Some of what a schedule can say; none of it changes a result."""
    every: dict[str, Any] = {
        "warps": random.choice((1, 2, 4, 8)), "pipeline_stages": random.choice((1, 2, 3, 5)),
        "async_copy": random.random() < 0.5, "use_shared_memory": random.random() < 0.5,
        "padding": random.choice((0, 1, 4, 8)), "swizzle": random.choice((0, 32, 64, 128)),
        "persistent": random.random() < 0.5, "group_rows": random.choice((1, 2, 8)),
        "vectorize": random.choice((1, 2, 4)),
    }  # fmt: skip
    return {name: value for name, value in every.items() if random.random() < 0.4}


@pytest.mark.parametrize("seed", range(100))
def test_random_kernels(seed: int) -> None:
    program, plan = random_kernel(seed)
    (kernel,) = program.operations
    said = replace(kernel, attributes={**kernel.attributes, **directives(Random(seed))})
    try:
        made, launch = as_tiles(
            replace(program, operations=(said,)), plan, machine_named("cuda", "sm_80"), []
        )
    except NotTiled as reason:
        pytest.skip(reason.reason)
    verify(made)
    random = np.random.default_rng(seed)
    for n in (5, 8, 1, 0, 17):
        ours = [random.uniform(-1, 1, (n, n)).astype(np.float32) for _ in range(ARRAYS)]
        theirs = [a.copy() for a in ours]
        try:
            reference.launch(program, plan, *theirs)
        except Leak:
            return  # the generator made one that observes what is not there
        machine.launch(made, launch, *ours)
        for x, y in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3)
