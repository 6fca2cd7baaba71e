"""Warp groups that take turns never meet while one has its turn: that would never end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import tessera_stdlib

from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Region
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.schedule_to_tile.common.errors import NotHonoured
from tessera_lang.lower.schedule_to_tile.hopper.issue_order import check_turns
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


@pytest.mark.parametrize("d", [64, 80])
def test_no_turns_where_places_are_exchanged(d: int) -> None:
    """Places that a mask compares are exchanged between all warps, in the middle of a turn."""
    session = Session()
    few, many = (64, 128) if d <= 64 else (32, 128)
    rows, keys = f"bf16[1, 2, 256, {d}]", f"bf16[1, 256, {d}]"
    sizes = (
        f"q: {rows}, k: {keys}, v: {keys}, go: {rows}, high: f32[1, 2, 256], delta: f32[1, 2, 256],"
        f" dk: mut {keys}, dv: mut {keys}, BM={few}, BN={many}, K=True, V=True, LEFT=-1,"
        " RIGHT=0, how='plain'"
    )
    wanted = session.signature(FILE, "_of_keys", sizes)
    machine = session.machine("cuda", "sm_90a")
    made = session.for_machine(FILE, "_of_keys", wanted, machine)
    assert made.lowered is not None
    kernel = made.lowered[0].operations[0]
    assert any(o.name == "tile.roles" for o in kernel.walk())
    assert not any(o.name == "tile.ordered_barrier" for o in kernel.walk())
