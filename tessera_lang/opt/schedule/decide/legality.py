"""Whether a decided schedule fits the machine, before any code is made.

Owns the tables of shared memory and registers and the refusals: which tile takes how much, and
which directive to lower. Registers are judged twice: the products' alone on a schedule, and all
that is alive on Tile IR, where layouts are known. Must not change the program.
"""

from __future__ import annotations

from tessera_lang.analysis.resources.register_pressure import Pressure, pressure, table
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation, Program
from tessera_lang.opt.schedule.query.accumulator_registers import accumulators
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    decides,
    said_by_user,
)
from tessera_lang.opt.schedule.query.kernel_facts import Facts, facts_of, kernel_of
from tessera_lang.opt.schedule.query.ring_overlays import saved_bytes
from tessera_lang.opt.schedule.query.staging_rings import SharedUse, shared_use
from tessera_lang.target.arch.isa_constants import LANE_REGISTERS
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import ASSEMBLER_MARGIN, OTHER_REGISTERS


@decides
def check_fit(program: Program, context: Context) -> Program:
    if context.machine.target == "cpu":
        return program
    facts = facts_of(kernel_of(program))
    _check_shared(facts, context)
    _check_registers(facts, context)
    return program


def _check_shared(facts: Facts, context: Context) -> None:
    uses = shared_use(facts)
    total = sum(u.total for u in uses) - saved_bytes(facts)
    limit = context.machine.shared_limit
    if total <= limit:
        return
    span = next((u.span for u in uses if u.span is not None), facts.kernel.span)
    context.refuse(
        "T0740",
        f"the schedule needs {total} bytes of shared memory; {context.machine.arch} has {limit}",
        span, [f"{u.what} = {u.total} bytes" for u in uses], _lower(facts, uses, limit),
    )  # fmt: skip


def _lower(facts: Facts, uses: list[SharedUse], limit: int) -> list[str]:
    """What to write instead."""
    kernel = facts.kernel
    deep = [u for u in uses if u.stages > 1 and not u.what.startswith(("stores", "barriers"))]
    rest = sum(u.total for u in uses if u not in deep)
    one = sum(u.bytes for u in deep)
    fitting = (limit - rest) // one if one else 0
    helps: list[str] = []
    if fitting >= 1:
        helps.append(f"`schedule.pipeline_stages({fitting})` fits")
    if said_by_user(kernel, "tile"):
        shape = ", ".join(map(str, kernel.integers("tile")))
        helps.append(f"or make `schedule.tile(({shape}))` smaller" if helps
                     else f"make `schedule.tile(({shape}))` smaller")  # fmt: skip
    elif not helps:
        helps.append("use smaller tiles: `schedule.tile(...)`")
    return helps


def _check_registers(facts: Facts, context: Context) -> None:
    kernel = facts.kernel
    if not facts.dots:
        return
    warps = kernel.integer("warps", 4)
    roles = kernel.integers("registers")
    limit = (roles[-1] if roles and roles[-1] else LANE_REGISTERS) - OTHER_REGISTERS
    needed = accumulators(facts, max(1, warps // 4))
    if needed <= limit:
        return
    context.refuse(
        "T0741",
        f"the products need {needed} registers of each lane; there are {limit} for them",
        facts.dots[0].operation.span,
        [_accumulator(d.operation, warps) for d in facts.dots],
        (_smaller(kernel),),
    )  # fmt: skip


def _accumulator(dot: Operation, warps: int) -> str:
    t = dot.result.type
    m, n = t.sizes[-2:]  # type: ignore[union-attr]
    return f"the {m} x {n} accumulator over {warps} warps = {m * n // (32 * warps)} registers"


def _smaller(kernel: Operation) -> str:
    tile = kernel.integers("tile")
    shape = ", ".join(map(str, tile))
    return f"make `schedule.tile(({shape}))` smaller" if tile else "use smaller tiles"


def crowding(tile: Operation, kernel: Operation, machine: Machine) -> tuple[int, Diagnostic | None]:
    """Registers of a lane that a kernel of Tile IR probably needs and does not have (0 where all
    is well), and the refusal where its tiles alone are more than a lane can hold. ``kernel`` is
    the schedule it was lowered from."""
    most, worst, refusal = 0, 0, None
    for found in pressure(tile):
        limit = _limit(tile, kernel, found, machine)
        margin = ASSEMBLER_MARGIN if found.tiles else 0
        most = max(most, found.total + margin - limit)
        if found.tiles - limit > worst:
            worst, refusal = found.tiles - limit, _too_many(found, limit, kernel)
    return most, refusal


def _limit(tile: Operation, kernel: Operation, found: Pressure, machine: Machine) -> int:
    """Registers of a lane in a role, or in the whole group."""
    counts = kernel.integers("registers")
    if 0 <= found.role < len(counts) and counts[found.role]:
        return counts[found.role]
    lanes = 1
    for n in tile.integers("group"):
        lanes *= n
    return min(LANE_REGISTERS, machine.registers // lanes // 8 * 8)


def _too_many(found: Pressure, limit: int, kernel: Operation) -> Diagnostic:
    place = found.place.span if found.place is not None else None
    warps = kernel.attributes.get("warps")
    helps = [_smaller(kernel)]
    if isinstance(warps, int) and said_by_user(kernel, "warps") and warps < 16:
        helps.insert(0, f"`schedule.warps({2 * warps})` gives each lane half of them")
    return Diagnostic(
        "T0741",
        f"the tiles that are alive at once need {found.tiles} registers of each lane, which has"
        f" {limit}",
        place or kernel.span, notes=table(found), helps=tuple(helps),
    )  # fmt: skip
