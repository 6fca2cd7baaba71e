"""Persistent groups in kernels of rows: invariant loads are kept, the next row is prefetched.

Where reading weights again for each row bounds a kernel (``still``), persistent groups read them
once: they lie in shared memory as far as there is room beside a ring of two rows, or else in
registers, where the row makes room for them: it is read from shared memory again behind each
reduction. Other kernels do not gain by staying: groups that come and go are dealt out as others
end, and more of them share a multiprocessor.

Owns which kernels and loads. Must not know how the loop is built.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Attribute, Operation, Program
from tessera_lang.opt.schedule.decide.l2_prefetch import groups_at_once, moves
from tessera_lang.opt.schedule.decide.row_kernels import held_bytes
from tessera_lang.opt.schedule.query.copy_rules import pitch_reason
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    decides,
    said_by_user,
    with_attributes,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.query.invariant_loads import (
    bound_by_cache,
    bytes_of,
    is_written,
    still_loads,
)
from tessera_lang.opt.schedule.query.kernel_facts import Estimate, Facts, Load, facts_of, kernel_of
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.target.arch.isa_constants import LIMIT_REGISTERS, REGISTER_UNIT, WARP
from tessera_lang.target.tuned_constants import (
    ROW_OTHER_BYTES,
    STAYING_REGISTERS,
    STAYING_STAGES,
    STAYING_WAVES,
)


@decides
def load_early(program: Program, context: Context) -> Program:
    """Rows that clusters share, where what stands still is the bound: their groups stay."""
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    if facts.grid is None or facts.dots or not context.machine.has("cp_async"):
        return program
    said = any(said_by_user(kernel, name) for name in ("persistent", "pipeline_stages"))
    if said or not bound_by_cache(facts, context.machine) or not _stays(facts, facts.grid, context):
        return program
    grid, still = facts.grid, still_loads(facts)
    rows = [x for x in facts.loads if moves(facts, grid, x) is not None and not is_written(x.view)]
    if not rows or any(pitch_reason(access_of(x.operation), facts, "") for x in (*rows, *still)):
        return program
    groups = _groups(kernel, rows, still, context)
    if groups == 0:
        return program
    room = context.machine.shared_limit // groups - _taken(rows)
    marked = {**_kept(kernel, still, room), **dict.fromkeys((x.operation for x in rows), _ROW)}
    lanes = WARP * _warps(kernel)
    registers = min(
        LIMIT_REGISTERS,
        context.machine.registers // (groups * lanes) // REGISTER_UNIT * REGISTER_UNIT,
    )
    decisions: dict[str, Attribute] = {"persistent": True, "registers": (registers,)}
    return with_kernel(program, with_decisions(with_attributes(kernel, marked), decisions))


_SHARED: dict[str, Attribute] = {"stage": "shared", "copy": "async"}
_ROW: dict[str, Attribute] = {"early": True, "again": True, "stages": STAYING_STAGES, **_SHARED}


def _kept(
    kernel: Operation, still: Sequence[Load], room: int
) -> dict[Operation, dict[str, Attribute]]:
    """Where what stands still is kept: shared memory has ``room`` bytes, registers half of what a
    row takes as it is computed in."""
    found: dict[Operation, dict[str, Attribute]] = {}
    registers = held_bytes(kernel) // 2
    for load in reversed(still):
        size = bytes_of(load)
        if size <= room:
            found[load.operation] = {"kept": True, "stages": 1, **_SHARED}
            room -= size
        elif size <= registers:
            found[load.operation] = {"kept": True}
            registers -= size
    return found


def _groups(
    kernel: Operation, rows: Sequence[Load], still: Sequence[Load], context: Context
) -> int:
    """How many groups share a multiprocessor, 0 where there is no room for one: a row of each as it
    is computed in is in registers, its ring in shared memory. What stands still too, if that leaves
    room for two; else as many as leave room for it in registers, and where that is never so, as
    many as rows leave room for."""
    machine = context.machine
    needed = held_bytes(kernel) // 4 + STAYING_REGISTERS * WARP * _warps(kernel)
    most = max(1, machine.registers // needed)
    whole = machine.shared_limit // (_taken(rows) + sum(map(bytes_of, still)))
    if whole > 1:
        return min(most, whole)
    most = min(most, machine.shared_limit // _taken(rows))
    for groups in range(most, 0, -1):
        kept = _kept(kernel, still, machine.shared_limit // groups - _taken(rows))
        held = [x for x in still if "stage" not in kept.get(x.operation, _SHARED)]
        registers = needed + sum(map(bytes_of, held)) // 4
        if len(kept) == len(still) and groups * registers <= machine.registers:
            return groups
    return most


def _taken(rows: Sequence[Load]) -> int:
    return STAYING_STAGES * sum(map(bytes_of, rows)) + ROW_OTHER_BYTES


def _warps(kernel: Operation) -> int:
    return kernel.integer("warps")


def _stays(facts: Facts, grid: Operation, context: Context) -> bool:
    groups = Estimate(facts, {}).trips(grid)
    return groups is None or groups >= STAYING_WAVES * groups_at_once(facts.kernel, context)
