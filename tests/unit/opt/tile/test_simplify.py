"""``simplify`` and the other passes keep what a kernel does, faults included."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tessera_lang.driver.pipeline import TILE
from tessera_lang.ir.core import Program
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.verify import verify
from tests.unit.analysis.ranges.test_ranges_sound import arguments
from tests.unit.random_tile import random_kernel
from tests.unit.tile_interpreter import launch


def _run(program: Program, given: list[Any]) -> tuple[list[int], list[int]]:
    x = given[0].copy()
    faults = launch(program.operations[0], [x, *given[1:]], 2)
    return x.tolist(), faults


@pytest.mark.parametrize("seed", range(1000, 1160, 20))
@pytest.mark.sample(1)
def test_passes_keep_values_and_faults(seed: int) -> None:
    for part in range(20):
        _check(seed + part)


def _check(seed: int) -> None:
    choose = Random(seed)
    program = verify(random_kernel(choose.choice))
    runs = [arguments(choose) for _ in range(3)]
    expected = [_run(program, given) for given in runs]
    for step in TILE:
        program = verify(step.run(program))
        assert [_run(program, given) for given in runs] == expected, (seed, step.name)
    again = program
    for step in TILE:
        again = step.run(again)
    assert print_program(again) == print_program(program), seed
