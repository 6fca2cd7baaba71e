"""A pass that decides changes attributes and nothing else, which the runner sees to."""

from __future__ import annotations

import pytest

from tessera_lang.driver.internal_fault import InternalFault
from tessera_lang.driver.pass_runner import run_passes
from tessera_lang.ir.core import Operation, Program, Value
from tessera_lang.ir.pass_type import Pass, changed_operation
from tessera_lang.ir.rewrite import rewrite_operation
from tessera_lang.record import replace
from tessera_lang.target.machine import machine_named
from tessera_lang.types.dtype import INDEX
from tests.unit.opt.schedule.decided import decide
from tests.unit.opt.schedule.programs import matmul

_DOT = "tessera.schedule.dot"


def attributed(program: Program) -> Program:
    def step(operation: Operation) -> Operation | None:
        if operation.name != _DOT:
            return None
        return replace(operation, attributes={**operation.attributes, "unit": "fma"})

    return Program("schedule", (rewrite_operation(program.operations[0], step),))


def longer(program: Program) -> Program:
    """With one more operation, which nothing uses."""
    (kernel,) = program.operations
    (region,) = kernel.regions
    more = Operation("tile.constant", (), (Value(INDEX, "more"),), {"value": 1})
    made = replace(region, operations=(more, *region.operations))
    return Program("schedule", (replace(kernel, regions=(made,)),))


def without(program: Program) -> Program:
    """Without the last operation of the kernel."""
    (kernel,) = program.operations
    (region,) = kernel.regions
    shorter = replace(region, operations=region.operations[:-1])
    return Program("schedule", (replace(kernel, regions=(shorter,)),))


def test_attributes_are_no_change() -> None:
    program = matmul().program
    assert changed_operation(program, attributed(program)) is None
    decided = Pass("units", "schedule", "schedule", attributed, "decide")
    assert run_passes(program, (decided,)) is not program


@pytest.mark.parametrize("change", [longer, without])
def test_anything_else_is_the_fault_of_the_pass(change: object) -> None:
    program = matmul().program
    assert changed_operation(program, change(program)) is not None  # type: ignore[operator]
    step = Pass("sly", "schedule", "schedule", change, "decide")  # type: ignore[arg-type]
    with pytest.raises(InternalFault, match="`sly` failed: it decides, and changes"):
        run_passes(program, (step,))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_rewrites_and_decisions_are_parted(arch: str) -> None:
    """Of the passes that run, at least one of each kind does something, so both are looked at."""
    program, did = matmul().program, set[str]()
    for one in decide(machine_named("cuda", arch)):
        after = run_passes(program, (one,))
        if after is not program:
            did.add(one.kind)
        program = after
    assert did == {"rewrite", "decide"}
