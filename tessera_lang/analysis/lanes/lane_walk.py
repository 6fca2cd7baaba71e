"""A walk over a kernel for all lanes of a group at once, for its accesses to shared memory.

Loops whose bounds are known run as they would; others run for any iteration and the one after
it, which is enough for every pair of accesses between two barriers. Where it is not known which
way a condition goes, both are gone. So what the log holds at a place is at least what any
launch can have done. Must not know what is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from math import prod

from tessera_lang.analysis.lanes.alike_conditions import arguments_of
from tessera_lang.analysis.lanes.guarded_writes import Guarded
from tessera_lang.analysis.lanes.hand_overs import hands_over
from tessera_lang.analysis.lanes.lane_forms import NOBODY, Mask, Space
from tessera_lang.analysis.lanes.lane_loops import run_for, run_while
from tessera_lang.analysis.lanes.lane_rules import LaneRules
from tessera_lang.analysis.lanes.lane_state import (
    ArrayAccess,
    GivesUp,
    LaneWalk,
    Target,
    exact_within,
)
from tessera_lang.analysis.lanes.shared_access_log import (
    BUFFER_AT,
    Log,
    SharedMemory,
    Sure,
    Write,
    only_writing,
)
from tessera_lang.analysis.lanes.synchronised import Synchronised, filled_by_counts, unique_results
from tessera_lang.analysis.ranges.linear import Linear
from tessera_lang.analysis.ranges.state import Ranges
from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity
from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.definitions import OUTER_EXITS

NO_ARRAYS: Mapping[Value, Value] = {}

# --- control ------------------------------------------------------------------------------


def _barrier(walk: LaneWalk, operation: Operation) -> None:
    walk.memory.barrier()


def _if(walk: LaneWalk, operation: Operation) -> None:
    condition = operation.operands[0]
    taken = walk.rules.mask(condition)
    before = walk.mask
    unknown = not exact_within(taken, before)
    if unknown and walk.rules.uniformity.is_uniform(condition):
        _either(walk, operation, before)
        return
    everyone = Mask(walk.space.everyone, walk.space.everyone)
    sides = ((before.both(taken), True), (before.both(everyone.without(taken)), False))
    ends: list[tuple[Mask, Region]] = []
    written: list[set[Write]] = []
    outer, guards = walk.memory.collected, walk.guards
    for (mask, truth), region in zip(sides, operation.regions, strict=True):
        if mask.may and not unknown:
            ends.append((_side(walk, condition, mask, None, region), region))
        elif mask.may:
            walk.memory.collected = set()
            there = Mask(before.must & mask.may, mask.may)
            walk.guards = walk.guarded_by(condition, truth)
            ends.append((_side(walk, condition, there, truth, region), region))
            written.append(walk.memory.collected)
            walk.guards = guards
    walk.memory.collected = outer
    if len(written) == 2:
        walk.memory.wrote(written[0] & written[1])
    _rejoin(walk, operation, before, ends, taken)


def _side(walk: LaneWalk, condition: Value, mask: Mask, truth: bool | None, region: Region) -> Mask:
    """Run one side, where the condition is ``truth``; the lanes that fall out of it."""
    walk.mask = mask
    mark = len(walk.facts)
    if truth is not None:
        walk.assume(condition, truth)
    walk.block(region)
    del walk.facts[mark:]
    return walk.mask


def _rejoin(
    walk: LaneWalk, operation: Operation, before: Mask, ends: list[tuple[Mask, Region]],
    taken: Mask,
) -> None:  # fmt: skip
    alive = [(mask, region) for mask, region in ends if mask.may]
    may = 0
    for mask, _ in alive:
        may |= mask.may
    walk.mask = Mask(before.must & may & ~walk.gone(), may)
    for i, value in enumerate(operation.results):
        forms = [walk.rules.form(region.terminator.operands[i]) for _, region in alive]
        if len(forms) == 2:
            form = walk.rules.select(taken, forms[0], forms[1])
            walk.rules.forms[value] = walk.rules.unknown(value) if form is None else form
        elif forms:
            walk.rules.forms[value] = forms[0]
    if len(ends) == 2 and len(alive) == 1:
        walk.assume(operation.operands[0], alive[0][1] is operation.regions[0])


def _either(walk: LaneWalk, operation: Operation, before: Mask) -> None:
    """All lanes go one way, and it is not known which: the two ways do not meet."""
    memory, condition = walk.memory, operation.operands[0]
    matters = walk.relevant(operation)
    entry, written = memory.copied_log() if matters else {}, memory.surely_written()
    passed = memory.barriers
    ends: list[tuple[Mask, Region]] = []
    logs: list[Log] = []
    sure: list[Sure] = []
    guarded: list[dict[Value, set[Guarded]]] = []
    counts: list[int] = []
    whole = before.must == walk.space.everyone and not walk.gone()
    walk.parted += 1
    guards = walk.guards
    for truth, region in zip((True, False), operation.regions, strict=True):
        if matters and not truth:
            guarded.append(memory.guarded())
            memory.log = entry
            memory.keep_sure(written)
        memory.barriers = passed
        walk.guards = walk.guarded_by(condition, truth)
        sure_here = before.must if memory.collected is None else 0
        absent = [(t, t.apart, t.paused) for t in walk.targets]
        end = _side(walk, condition, Mask(sure_here, before.may), truth, region)
        ends.append((end, region))
        if end.may:
            logs.append(memory.log)
            sure.append(memory.surely_written())
            counts.append(memory.barriers)
        elif whole:
            _leave_together(absent)
        walk.guards = guards
    walk.parted -= 1
    memory.barriers = min(counts, default=passed)
    if matters:
        memory.log = logs[0] if logs else {}
        memory.join(*logs[1:])
        if sure:
            guarded.append(memory.guarded())
            memory.keep_sure(*sure)
        if not operation.holds(OUTER_EXITS):
            for found in guarded:  # under conditions of which the one is false on the other way
                memory.add_guarded(found)
    _rejoin(walk, operation, before, ends, Mask(0, walk.space.everyone))


def _leave_together(before: Sequence[tuple[Target, int, int]]) -> None:
    """The whole group has left for one place: on the other way nobody is missed."""
    moved = [(t, a, p) for t, a, p in before if (t.apart, t.paused) != (a, p)]
    if len(moved) == 1:
        target, apart, paused = moved[0]
        target.apart, target.paused = apart, paused


def _exit(walk: LaneWalk, target: Target, values: Sequence[Value], back: bool) -> None:
    """The lanes that are here leave a target, or go to its next iteration."""
    forms = tuple(walk.rules.form(v) for v in values)
    (target.back if back else target.left).append((walk.mask, forms))
    if back:
        target.paused |= walk.mask.may
        target.back_barriers.append(walk.memory.barriers)
    else:
        target.gone |= walk.mask.may
        target.apart |= walk.mask.may
    if walk.parted:
        (target.back_ways if back else target.left_ways).append(walk.memory.way())
    walk.mask = NOBODY


def _innermost(walk: LaneWalk, *names: str) -> Target:
    return next(t for t in reversed(walk.targets) if t.operation.name in names)


def _continue(walk: LaneWalk, operation: Operation) -> None:
    _exit(walk, _innermost(walk, "tile.for", "tile.while"), operation.operands, True)


def _break(walk: LaneWalk, operation: Operation) -> None:
    _exit(walk, _innermost(walk, "tile.for", "tile.while"), operation.operands, False)


def _leave(walk: LaneWalk, operation: Operation) -> None:
    _exit(walk, _innermost(walk, "tile.scope"), operation.operands, False)


def _return(walk: LaneWalk, operation: Operation) -> None:
    walk.targets[0].apart |= walk.mask.may
    walk.mask = NOBODY


def _nothing(walk: LaneWalk, operation: Operation) -> None:
    pass


def _scope(walk: LaneWalk, operation: Operation) -> None:
    before = walk.mask
    target = Target(operation)
    walk.targets.append(target)
    walk.block(operation.regions[0])
    walk.targets.pop()
    walk.memory.join_ways(target.left_ways)
    walk.mask = Mask(before.must & target.gone & ~walk.gone(), target.gone)
    for i, value in enumerate(operation.results):
        walk.rules.forms[value] = walk.merge(value, [(m, f[i]) for m, f in target.left])


_RULES: dict[str, Callable[[LaneWalk, Operation], None]] = {
    "tile.barrier": _barrier, "tile.if": _if, "tile.for": run_for, "tile.while": run_while,
    "tile.scope": _scope, "tile.break": _break, "tile.continue": _continue,
    "tile.leave": _leave, "tile.return": _return, "tile.yield": _nothing,
    "tile.condition": _nothing,
}  # fmt: skip


def walk_lanes(
    kernel: Operation, uniformity: Uniformity, ranges: Ranges,
    untraced: frozenset[Operation] = frozenset(), arrays: Mapping[Value, Value] = NO_ARRAYS,
) -> SharedMemory:  # fmt: skip
    """What a kernel without divergent barriers does in shared memory, and in ``arrays``: views of
    what belongs to single groups, with their pointers. Raises GivesUp. Where lanes seem to meet, a
    second walk asks more: what single axes and remainders say, what comes in which iteration, and
    whether atomics order it."""
    walk = _start(kernel, uniformity, ranges)
    walk.memory.untraced, walk.arrays = untraced, arrays
    walk.block(kernel.regions[0])
    if not walk.memory.suspicions:
        return walk.memory
    first = walk.memory
    walk = _start(kernel, uniformity, ranges)
    walk.memory.untraced, walk.arrays, walk.thorough = untraced, arrays, True
    walk.unique = unique_results(kernel)
    if hands_over(kernel):
        walk.memory.ordered = Synchronised(kernel, first.atomics).ordered
    try:
        walk.block(kernel.regions[0])
    except GivesUp:
        return first
    return walk.memory


def array_accesses(
    kernel: Operation, uniformity: Uniformity, ranges: Ranges
) -> tuple[Space, list[ArrayAccess]]:
    """Accesses to arrays and buffers, loops that nothing else is known of included; what was
    met before the walk gave up."""
    walk = _start(kernel, uniformity, ranges)
    walk.accesses = []
    with suppress(GivesUp):
        walk.block(kernel.regions[0])
    return walk.space, walk.accesses


def inside_accesses(
    kernel: Operation, uniformity: Uniformity, ranges: Ranges, asked: Set[Operation]
) -> set[Operation]:
    """Those of ``asked`` whose indices are inside in every lane, whatever is not known."""
    walk = _start(kernel, uniformity, ranges)
    walk.accesses = []
    try:
        walk.block(kernel.regions[0])
    except GivesUp:
        return set()
    seen = [a for a in walk.accesses if a.operation in asked]
    outside = {a.operation for a in seen if not _is_inside(walk.space, a)}
    return {a.operation for a in seen} - outside


def _is_inside(space: Space, access: ArrayAccess) -> bool:
    array = access.operation.operands[BUFFER_AT[access.operation.name]]
    lanes = space.members(access.mask.may)
    for form, extent in zip(access.indices, array.array_type.shape, strict=True):
        if not isinstance(form, Linear) or extent is None:
            return False
        terms, numbers = space.split(form)
        low, high = space.range(Linear(terms))
        if any(low + numbers[i] < 0 or high + numbers[i] >= extent for i in lanes):
            return False
    return True


def _start(kernel: Operation, uniformity: Uniformity, ranges: Ranges) -> LaneWalk:
    group = kernel.integers("group")
    space = Space(prod(group))
    rules = LaneRules(group, space, uniformity, ranges)
    everyone = Mask(space.everyone, space.everyone)
    memory = SharedMemory(space, only_writing=only_writing(kernel))
    walk = LaneWalk(_RULES, rules, memory, everyone)
    walk.fills = filled_by_counts(kernel)
    walk.targets.append(Target(kernel))
    rules.forms.update(arguments_of(kernel, rules))
    return walk
