"""How many buffers each ring of staged loads has.

Owns the depth: what the user says, else what shared memory allows, no more than the loop has
iterations. Loads outside loops have two buffers where groups take tile after tile and there
is room, else one. Must not know who fills the buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tessera_lang.ir.core import Operation, Program
from tessera_lang.opt.schedule.cost.split_k_cost import parts_of, stream_of
from tessera_lang.opt.schedule.query.copy_rules import array_name
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    decides,
    overruled,
    said_by_user,
    with_attributes,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    LOOPS,
    PREFETCH,
    Dot,
    Estimate,
    Facts,
    facts_of,
    is_grid,
    kernel_of,
)
from tessera_lang.opt.schedule.query.occupancy_budget import room_of_residents
from tessera_lang.opt.schedule.query.ring_overlays import places, ring_bytes, turns_of
from tessera_lang.opt.schedule.query.staging_rings import SLOT_BARRIERS, Ring, rings_of, shared_use
from tessera_lang.record import replace
from tessera_lang.target.tuned_constants import ENOUGH_STAGES, RESERVED_BYTES, RING_STAGES


@decides
def pipeline(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    rings = rings_of(facts)
    if not rings or context.machine.target == "cpu":
        return program
    inner = [r for r in rings if r.loop is not None]
    outer = [r for r in rings if r.loop is None]
    rings_bytes = sum(x.bytes * x.stages for x in rings) + SLOT_BARRIERS * sum(
        x.stages for x in rings
    )
    others = sum(u.total for u in shared_use(facts)) - rings_bytes
    limit = room_of_residents(kernel.integer("residents", 1), context.machine)
    room = limit - others - RESERVED_BYTES - sum(r.bytes for r in outer)
    stages = _depths(inner, room, facts, context)
    used = sum(r.bytes * n for r, n in zip(inner, stages, strict=True))
    deeper = _in_turn(inner, stages, room, facts, context)
    if deeper is not None:
        stages, used = deeper
        kernel = with_decisions(kernel, {"turns": True})
    left = room - used
    decisions = {x.operation: {"stages": n} for r, n in zip(inner, stages, strict=True)
                 for x in r.loads}  # fmt: skip
    for ring in outer:
        twice = kernel.attributes.get("roles") is not None and ring.bytes + SLOT_BARRIERS <= left
        left -= ring.bytes if twice else 0
        decisions.update({x.operation: {"stages": 2 if twice else 1} for x in ring.loads})
    made = with_attributes(kernel, decisions)
    _note_unfed(facts_of(made), context)
    return with_kernel(program, made)


def _in_turn(
    rings: Sequence[Ring], stages: Sequence[int], room: int, facts: Facts, context: Context
) -> tuple[list[int], int] | None:
    """The depths and bytes where rings that follow each other take the same bytes in turn; None
    where that is no deeper, or is not needed: whoever fills them waits between two of them."""
    shared = max(facts.kernel.integers("cluster"), default=1) > 1  # others write into the bytes
    if facts.kernel.attributes.get("roles") is None or len(rings) < 2 or shared:
        return None
    said = [_said(r, facts) for r in rings]
    most = [n or most for n, most in zip(said, _most(rings, facts, context), strict=True)]
    flat = [i for i, n in enumerate(stages) if n < min(ENOUGH_STAGES, most[i])]
    turns = turns_of(rings, facts) if flat else {}
    if len(turns) < 2:
        return None
    for depth in range(max(most), 0, -1):
        found = [n or min(depth, top) for n, top in zip(said, most, strict=True)]
        sizes = {i: ring_bytes(r, n) for i, (r, n) in enumerate(zip(rings, found, strict=True))}
        used = places(sizes, turns)[0]
        if used <= room or depth == 1:
            deeper = min(found[i] for i in flat) > min(stages[i] for i in flat)
            fits = used <= room < sum(r.bytes * n for r, n in zip(rings, stages, strict=True))
            return (found, used) if deeper or fits else None
    return None


def _note_unfed(facts: Facts, context: Context) -> None:
    """Says of products of the asynchronous unit that no ring feeds them, and why."""
    staged = {x.operation.result: {x.operation: x.loop is not None}
              for x in facts.reads if x.operation.attributes.get("stage") == "shared"}  # fmt: skip
    for o in facts.kernel.walk():
        found = {load: inner for v in o.operands for load, inner in staged.get(v, {}).items()}
        if found and not o.regions and o.name != DOT and len(o.results) == 1:
            staged.setdefault(o.result, found)
    for dot in facts.dots:
        found = {**staged.get(dot.a.value, {}), **staged.get(dot.b.value, {})}
        # What is there before the loop may have a second place for the next tile: no ring of it.
        inner = [load for load, is_inner in found.items() if is_inner]
        several = [load.attributes.get("stages", 1) != 1 for load in inner or found]
        fed = all(several) if inner else any(several)
        if dot.operation.attributes.get("unit") != "wgmma" or found and fed:
            continue
        one = facts.kernel.attributes.get("pipeline_stages") == 1
        why = (
            "`schedule.pipeline_stages(1)` has one place for each tile"
            if found and one and said_by_user(facts.kernel, "pipeline_stages")
            else _why_one_place(facts, dot, inner) if found
            else "both of its factors are computed here or loaded once"
        )  # fmt: skip
        context.note("T0743", f"no ring is staged for this product: {why}", dot.operation.span)


def _why_one_place(facts: Facts, dot: Dot, inner: Sequence[Operation]) -> str:
    """Why a factor of a product, of those that its loop stages, has no second place."""
    loops = [x.loop for x in facts.reads if x.operation.attributes.get("stage") == "shared"
             and x.loop is not None and x.loop in dot.inside]  # fmt: skip
    if not loops:
        return "its factors are brought once"
    if all(Estimate(facts, {}).trips(loop) == 1 for loop in loops):
        return "its loop runs once"
    single = [load for load in inner if load.attributes.get("stages", 1) == 1]
    if len(single) == len(inner):
        return "shared memory has room for one place of each of its tiles"
    names = dict.fromkeys(f"`{array_name(facts, load.operands[0])}`" for load in single)
    return f"shared memory has room for one place of its tiles of {' and '.join(names)}"


def with_less_shared(program: Program, context: Context) -> Program | None:
    """The schedule that takes the next less of shared memory; None where there is none. For what
    only the lowering knows to need: places where warps exchange what they hold.

    Where warps all do the same, memory is accessed in the layouts that values have, which needs no
    exchange, before a buffer is given up."""
    kernel = kernel_of(program)
    if "roles" not in kernel.attributes:
        if not kernel.attributes.get("direct_access"):
            attributes = {**kernel.attributes, "direct_access": True}
            return with_kernel(program, replace(kernel, attributes=attributes))
        if said_by_user(kernel, "pipeline_stages"):
            return None
        attributes = {n: v for n, v in kernel.attributes.items() if n != "direct_access"}
        kernel = replace(kernel, attributes=attributes)
    fewer = _one_stage_less(kernel, context)
    return None if fewer is None else with_kernel(program, fewer)


def _one_stage_less(kernel: Operation, context: Context) -> Operation | None:
    """The kernel with one buffer less in its deepest rings; None where none has two to spare."""
    loads = [x for r in rings_of(facts_of(kernel)) for x in r.everywhere]
    depths = {x.operation: x.operation.attributes.get("stages", 1) for x in loads}
    most = max((n for n in depths.values() if isinstance(n, int)), default=1)
    if most <= 1:
        return None
    decisions = {o: {"stages": most - 1} for o, n in depths.items() if n == most}
    if said_by_user(kernel, "pipeline_stages"):
        reason = "warps need room to exchange what they hold"
        kernel = overruled(kernel, "pipeline_stages", most - 1, context, reason)
    return with_attributes(kernel, decisions)


def _depths(rings: Sequence[Ring], room: int, facts: Facts, context: Context) -> list[int]:
    """The depth of each ring: the user's, else an even share of the room. What that leaves gives
    rings of one place a second one, the smallest first: a copy then runs beside its product."""
    said = [_said(r, facts) for r in rings]
    left = room - sum(r.bytes * n for r, n in zip(rings, said, strict=True) if n)
    open_bytes = sum(r.bytes for r, n in zip(rings, said, strict=True) if not n)
    share = max(1, left // open_bytes) if open_bytes else 1
    most = _most(rings, facts, context)
    found = [n or min(share, top) for n, top in zip(said, most, strict=True)]
    left = room - sum(r.bytes * n for r, n in zip(rings, found, strict=True))
    for i in sorted(range(len(rings)), key=lambda i: rings[i].bytes):
        if not said[i] and found[i] == 1 < most[i] and rings[i].bytes <= left:
            found[i] = 2
            left -= rings[i].bytes
    return found


def _most(rings: Sequence[Ring], facts: Facts, context: Context) -> list[int]:
    """The depth that each ring may have: no more than it is filled."""
    estimate = Estimate(facts, {})
    fewest = 2 if context.machine.has("cp_async") else 1
    out: list[int] = []
    for ring in rings:
        trips = _trips(ring, facts, estimate)
        if trips is not None and ring.loop is not None and not stream_of(facts.kernel):
            trips = -(-trips // parts_of(facts.kernel))
        out.append(RING_STAGES if trips is None else max(fewest, min(RING_STAGES, trips)))
    return out


def _trips(ring: Ring, facts: Facts, estimate: Estimate) -> int | None:
    """How often a ring is filled for a tile: a role that moves data goes on with it from one run
    of its loop to the next, lanes that do all begin anew."""
    if ring.loop is None:
        return 1
    if facts.kernel.attributes.get("roles") is None:
        return estimate.trips(ring.loop)
    around = (o for o in ring.loads[0].inside if o.name in LOOPS and not is_grid(o))
    found = [estimate.trips(loop) for loop in around]
    known = [n for n in found if n is not None]
    return prod(known) if len(known) == len(found) else None


def _said(ring: Ring, facts: Facts) -> int:
    """What the user says of a ring: on the load's prefetch, its loop, or the kernel."""
    for load in ring.loads:
        for user in facts.users.get(load.operation.result, ()):
            if user.name == PREFETCH and user.attributes.get("double_buffer"):
                return 2
    for around in (ring.loop, facts.kernel):
        said = around.attributes.get("pipeline_stages") if around is not None else None
        if isinstance(said, int) and said > 0 and _is_users(around, facts):
            return said
    return 0


def _is_users(around: Operation | None, facts: Facts) -> bool:
    return around is not facts.kernel or said_by_user(facts.kernel, "pipeline_stages")
