"""Products of few rows as their transposes: when, that nothing changes, and what is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tessera_lang.ir.core import Operation, Program, TileType, Value
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.ir.verify import verify
from tessera_lang.opt.schedule.canonical.transpose_products import swap_operands, swapped
from tessera_lang.opt.schedule.query.decision_context import Context, origins_of
from tessera_lang.opt.schedule.query.kernel_facts import facts_of, kernel_of
from tessera_lang.target.machine import machine_named
from tessera_lang.types.dtype import DTYPES, F32
from tests.unit.lower.ast_to_schedule import reference
from tests.unit.lower.schedule_to_tile import hopper_programs as forms
from tests.unit.lower.schedule_to_tile.test_specialised import FORMS, arrays_of, check, numbers
from tests.unit.opt.schedule.decided import decided
from tests.unit.opt.schedule.programs import Kernel, matmul

HOPPER = machine_named("cuda", "sm_90a")


def dots(program: Program) -> list[Operation]:
    return [o for o in kernel_of(program).walk() if o.name.endswith("schedule.dot")]


def shapes(program: Program) -> list[object]:
    return [getattr(o.result.type, "shape", None) for o in dots(program)]


def run_both(kernel: Kernel, program: Program, arrays: list[np.ndarray[Any, Any]]) -> None:
    ours, theirs = [a.copy() for a in arrays], [a.copy() for a in arrays]
    reference.launch(verify(program), kernel.plan, *ours)
    reference.launch(kernel.program, kernel.plan, *theirs)
    for x, y in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("rows", [1, 5, 16, 32])
@pytest.mark.parametrize("transposed", [True, False])
def test_few_rows_become_columns(rows: int, transposed: bool) -> None:
    kernel = matmul(rows, 4096, 4096, transposed=transposed)
    made = swap_operands(kernel.program, Context(HOPPER))
    assert shapes(verify(made)) == [("$1", "$0")]
    found = kernel_of(made)
    assert found.attributes["swap"] is True
    assert origins_of(found)["swap"] == "cost model"
    assert not any(o.name.endswith("transpose") and o.operands[0].name == "acc"
                   for o in found.walk())  # fmt: skip


@pytest.mark.parametrize(
    "kernel",
    [matmul(33, 4096, 4096), matmul(4096, 16, 4096), matmul(16, 16, 4096), matmul(16, 4096, 64,
     dtype=F32)],
)  # fmt: skip
def test_others_stay(kernel: Kernel) -> None:
    assert swap_operands(kernel.program, Context(HOPPER)) is kernel.program


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_machines_without_the_unit(arch: str) -> None:
    program = matmul(16, 4096, 4096).program
    assert swap_operands(program, Context(machine_named("cuda", arch))) is program


@pytest.mark.parametrize(("rows", "capacity"), [(1, 8), (7, 8), (16, 16), (20, 32)])
def test_the_capacity_is_what_the_rows_need(rows: int, capacity: int) -> None:
    kernel, remarks = decided(matmul(rows, 8192, 8192))
    assert not [r for r in remarks if r.severity == "error"]
    found = kernel.attributes
    tile = found["tile"]
    assert isinstance(tile, tuple)
    assert tile[0] == capacity
    assert found["roles"] == (4, 4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sample(3)
def test_any_program_computes_the_same(form: Callable[[], Kernel]) -> None:
    """Every product of two loads of every form, transposed against its will."""
    kernel = form()
    facts = facts_of(kernel_of(kernel.program))
    able = [d for d in facts.dots if d.a.load is not None and d.b.load is not None]
    hints = kernel_of(kernel.program).attributes["hints"]
    assert isinstance(hints, tuple)
    sizes = {s.symbol: int(str(n)) for s, n in zip(kernel.plan.slots, hints, strict=True)}
    run_both(kernel, swapped(kernel.program, able), arrays_of(kernel, sizes))


def scaled(b: ScheduleBuilder, acc: Value) -> Value:
    """Element-wise work behind the loop."""
    assert isinstance(acc.type, TileType)
    half = b.full(b.constant(0.5, F32), acc.type.shape)
    return b.binary("add", b.binary("mul", acc, half), half)


@pytest.mark.parametrize("rows", [1, 3, 8, 16, 30])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.sample(4)
def test_on_the_machine(rows: int, transposed: bool) -> None:
    capacity = next(n for n in (8, 16, 32) if rows <= n)
    kernel = matmul(rows, 200, 264, transposed=transposed, finish=scaled,
                    tile=(capacity, 64, 64))  # fmt: skip
    b = (200, 264) if transposed else (264, 200)
    made = check(kernel, numbers((rows, 264)), numbers(b), np.full((rows, 200), np.nan,
                 reference.numpy_type(DTYPES["bf16"])))  # fmt: skip
    assert any(o.name == "tile.mma.async" for o in made.walk())


def test_the_form_that_is_stored_twice() -> None:
    """A store of the transpose reads what is at hand: no tile is transposed at all."""
    kernel = forms.several_results()
    facts = facts_of(kernel_of(kernel.program))
    made = swapped(kernel.program, facts.dots)
    transposes = [o for o in kernel_of(made).walk() if o.name.endswith("transpose")]
    assert all(t.operands[0].name in ("a", "b") for t in transposes)
