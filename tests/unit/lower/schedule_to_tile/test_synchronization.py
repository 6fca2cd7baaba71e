"""Every barrier and every wait is needed: without one of them the machine sees a race, or the
result is wrong."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tessera_backend.cpu.interpreter import launch as machine
from tessera_backend.cpu.interpreter.faults import AsynchronousFault

from tessera_lang.ir.core import Operation, Program
from tessera_lang.ir.rewrite import Replacement, rewrite_program
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.machine import machine_named
from tessera_lang.types.dtype import BF16
from tests.unit.lower.ast_to_schedule import reference
from tests.unit.opt.schedule.programs import matmul
from tests.unit.tiled import as_tiles

RANDOM = np.random.default_rng(3)


def without(program: Program, number: int, name: str) -> Program:
    """The program without the operation of this name with this number."""
    seen = -1

    def step(operation: Operation) -> Replacement | None:
        nonlocal seen
        seen += operation.name == name
        gone = operation.name == name and seen == number
        return Replacement() if gone else None

    return rewrite_program(program, step)


@pytest.mark.parametrize("name", ["tile.barrier", "tile.memcpy.wait"])
@pytest.mark.parametrize(
    "attributes",
    [{"pipeline_stages": 1}, {"pipeline_stages": 2}, {"pipeline_stages": 4},
     {"pipeline_stages": 3, "persistent": True}, {"pipeline_stages": 3, "async_copy": False}],
    ids=str,
)  # fmt: skip
def test_nothing_is_there_for_nothing(attributes: dict[str, Any], name: str) -> None:
    kernel = matmul(100, 70, 170, dtype=BF16, tile=(32, 32, 32), transposed=False,
                    attributes=attributes, aligned=16)  # fmt: skip
    program, plan = as_tiles(kernel.program, kernel.plan, machine_named("cuda", "sm_80"), [])
    dtype = ml_dtypes.bfloat16
    a, b = (RANDOM.integers(1, 5, s).astype(dtype) for s in ((100, 170), (170, 70)))
    wanted = np.zeros((100, 70), dtype)
    reference.launch(kernel.program, kernel.plan, a, b, wanted)
    count = sum(o.name == name for o in program.walk())
    if name == "tile.barrier" or attributes.get("async_copy") is not False:
        assert count > 0
    for number in range(count):
        got = np.zeros((100, 70), dtype)
        with pytest.raises((AsynchronousFault, AssertionError)):
            _compare(without(program, number, name), plan, (a, b, got), wanted)


def _compare(program: Program, plan: LaunchPlan, arrays: tuple[Any, ...], wanted: Any) -> None:
    machine.launch(program, plan, *arrays)
    np.testing.assert_array_equal(arrays[-1].astype(np.float32), wanted.astype(np.float32))
