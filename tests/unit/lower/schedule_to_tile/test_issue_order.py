"""Warp groups that take turns never meet while one has its turn: that would never end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tessera_stdlib
from ml_dtypes import bfloat16
from tessera_backend.cpu.interpreter.faults import AsynchronousFault
from tessera_backend.cpu.interpreter.launch import launch

from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Program, Region
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.schedule_to_tile.common.errors import NotHonoured
from tessera_lang.lower.schedule_to_tile.common.value_map import Lowered
from tessera_lang.lower.schedule_to_tile.hopper import specialised
from tessera_lang.lower.schedule_to_tile.hopper.issue_order import check_turns
from tessera_lang.opt.schedule.loops import loads_ahead
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import BOOL

FILE = str(Path(tessera_stdlib.__file__).parent / "attention.tessera")


def turn(b: Builder, step: str) -> None:
    b.emit("tile.ordered_barrier", (), (), {"id": 4, "step": step})


def meet(b: Builder, each: str) -> None:
    b.emit("tile.named_barrier", (), (), {"id": 0, "lanes": 128, "wait": True, "each": each})


def nested(b: Builder, each: str) -> None:
    arms: list[Region] = []
    for inside in (True, False):
        with b.region() as arm:
            if inside:
                meet(b, each)
            b.yield_()
        arms.append(arm.region)
    b.emit("tile.if", (b.constant(True, BOOL),), (), None, arms)


@pytest.mark.parametrize("put", [meet, nested])
@pytest.mark.parametrize(("where", "each", "ends"), [
    ("before", "role", True), ("within", "role", False), ("behind", "role", True),
    ("within", "warp_group", True),
])  # fmt: skip
def test_where_all_may_meet(
    put: Callable[[Builder, str], None], where: str, each: str, ends: bool
) -> None:
    b = Builder()
    with b.region() as role:
        turn(b, "init")
        for place, step in (("before", "wait"), ("within", "arrive"), ("behind", "")):
            if place == where:
                put(b, each)
            if step:
                turn(b, step)
        b.yield_()
    if ends:
        check_turns(role.region)
        return
    with pytest.raises(NotHonoured) as found:
        check_turns(role.region)
    assert found.value.decision == "pingpong"


def of_keys(d: int, s: int, left: int, right: int, batch: int) -> tuple[Program, LaunchPlan]:
    """The gradient by keys of heads of `s` rows."""
    heads = 1
    few, many = (64, 128) if d <= 64 else (32, 128)
    rows, keys = f"bf16[{batch}, {heads}, {s}, {d}]", f"bf16[{batch}, {s}, {d}]"
    sizes = (
        f"q: {rows}, k: {keys}, v: {keys}, go: {rows}, high: f32[{batch}, {heads}, {s}],"
        f" delta: f32[{batch}, {heads}, {s}], dk: mut {keys}, dv: mut {keys},"
        f" BM={few}, BN={many}, K=True, V=True, LEFT={left}, RIGHT={right}, how='plain'"
    )
    session = Session()
    wanted = session.signature(FILE, "_of_keys", sizes)
    made = session.for_machine(FILE, "_of_keys", wanted, session.machine("cuda", "sm_90a"))
    assert made.lowered is not None
    return made.lowered


def run(program: Program, plan: LaunchPlan, d: int, heads: int) -> None:
    """With 256 rows."""
    rows, keys = np.ones((1, heads, 256, d), bfloat16), np.ones((1, 256, d), bfloat16)
    of_rows, factor = np.zeros((1, heads, 256), np.float32), np.float32(0.01)
    given = (
        rows,
        keys,
        keys,
        rows,
        of_rows,
        of_rows,
        keys.copy(),
        keys.copy(),
    )
    launch(program, plan, *given, factor, factor, factor)


def turns(program: Program) -> bool:
    return any(o.name == "tile.ordered_barrier" for o in program.operations[0].walk())


def nothing(*_: object) -> None:
    """In place of what this does without."""


@pytest.fixture
def exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places that a mask compares are exchanged between all warps, in the middle of a turn."""
    monkeypatch.setattr(Lowered, "generated", nothing)
    monkeypatch.setattr(loads_ahead, "_MOST_AXES", -1)


@pytest.mark.usefixtures("exchanged")
def test_no_turns_where_places_are_exchanged() -> None:
    program, _ = of_keys(64, 4096, 100, 0, 1)
    assert any(o.name == "tile.roles" for o in program.operations[0].walk())
    assert not turns(program)


@pytest.mark.usefixtures("exchanged")
def test_a_hang_is_found_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check the masked gradient never ends on a GPU, nor with each warp group by
    itself."""
    monkeypatch.setattr(specialised, "check_turns", nothing)
    program, plan = of_keys(64, 4096, 100, 0, 1)
    assert turns(program)
    with pytest.raises(AsynchronousFault, match=r"deadlock.*warp group 1 of role consumer"):
        run(program, plan, 64, 1)


@pytest.mark.parametrize(("left", "right", "batch"), [(-1, -1, 16), (-1, 0, 16)])
def test_turns_that_end(left: int, right: int, batch: int) -> None:
    """Lanes make the places of a mask themselves."""
    program, plan = of_keys(64, 4096, left, right, batch)
    operations = list(program.operations[0].walk())
    assert not any(o.name == "tile.convert" and len(o.operands) > 1 for o in operations)
    assert turns(program)
    run(program, plan, 64, 1)
