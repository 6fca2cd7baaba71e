"""What the lowering has no form for is decided again, and the schedule that is kept is the one that
was built."""

from __future__ import annotations

import pytest

from tessera_lang.driver.pass_runner import run_passes
from tessera_lang.driver.pipeline import for_machine as decide_in
from tessera_lang.driver.tile_compilation import ForMachine, fitted, for_machine, numbers_for
from tessera_lang.ir.core import Operation, Program
from tessera_lang.lower.schedule_to_tile import NotHonoured, NotTiled
from tessera_lang.lower.schedule_to_tile.hopper import specialised
from tessera_lang.lower.schedule_to_tile.split import split_k
from tessera_lang.opt.schedule.query.decision_context import Context
from tessera_lang.opt.tile.shared_allocation import shared_bytes
from tessera_lang.record import replace
from tessera_lang.target.machine import Machine, machine_named
from tests.printed import differences, unexplained
from tests.unit.opt.schedule.programs import Kernel, matmul

KIB = 1024


def smaller(arch: str, limit: int) -> Machine:
    return replace(machine_named("cuda", arch), shared_limit=limit)


def decided(kernel: Kernel, arch: str) -> tuple[Program, Context]:
    context = Context(machine_named("cuda", arch), numbers=numbers_for(kernel.plan))
    return run_passes(kernel.program, decide_in(context)), context


def stages(kernel: Operation) -> list[object]:
    return [o.attributes["stages"] for o in kernel.walk() if "stages" in o.attributes]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_less_is_taken_until_it_fits(arch: str) -> None:
    """A schedule for much memory, on machines with less and less of it."""
    kernel = matmul(512, 512, 512, tile=(128, 128, 64))
    program, context = decided(kernel, arch)
    deep, seen = stages(program.operations[0]), set[tuple[object, ...]]()
    for limit in (192, 128, 96, 80, 64):
        small = replace(context, machine=smaller(arch, limit * KIB), remarks=[])
        try:
            schedule, lowered = fitted(program, kernel.plan, small)
        except NotHonoured as found:
            assert arch == "sm_90a" and found.decision == "roles"
            break
        assert lowered is not None and shared_bytes(lowered[0].operations[0]) <= limit * KIB
        assert not differences(ForMachine(schedule, lowered))
        seen.add(tuple(stages(schedule.operations[0])))
        assert stages(schedule.operations[0]) <= deep
    assert len(seen) > 1


def test_a_depth_that_the_user_says_is_kept_or_refused() -> None:
    kernel = matmul(512, 512, 512, tile=(128, 128, 64), attributes={"pipeline_stages": 4})
    program, context = decided(kernel, "sm_80")
    small = replace(context, machine=smaller("sm_80", 64 * KIB), remarks=[])
    _, lowered = fitted(program, kernel.plan, small)
    assert lowered is None
    assert [d.code for d in small.remarks] == ["T0740"]


def test_roles_that_have_no_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedule that is printed is the one of warps that all do the same, with the reason."""

    def refuse(*_: object) -> None:
        raise NotTiled("nobody moves tiles today")

    monkeypatch.setattr(specialised, "thread", refuse)
    kernel = matmul(512, 512, 512, tile=(128, 128, 64))
    made = for_machine(kernel.program, kernel.plan, machine_named("cuda", "sm_90a"))
    schedule = made.schedule.operations[0]
    assert "roles" not in schedule.attributes and made.lowered is not None
    assert not differences(made) and not unexplained(made, "wgmma")
    said = {d.code: d.message for d in made.remarks}
    assert "nobody moves tiles today" in said["T0745"] and "by mma, not wgmma" in said["T0744"]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_parts_that_have_no_form(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise NotTiled("nobody knows how many tiles there are")

    kernel = matmul(128, 128, 16384, tile=(128, 128, 64))
    machine = machine_named("cuda", arch)
    before = for_machine(kernel.program, kernel.plan, machine).schedule.operations[0]
    assert before.attributes.get("split", 1) != 1
    monkeypatch.setattr(split_k, "tile_counts", refuse)
    made = for_machine(kernel.program, kernel.plan, machine)
    assert made.schedule.operations[0].attributes.get("split", 1) == 1
    assert made.lowered is not None and not differences(made)
    assert any("nobody knows how many" in d.message for d in made.remarks if d.code == "T0749")
