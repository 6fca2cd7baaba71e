"""Indices that are outside in some lane of some launch which the sizes allow.

Owns what `--strict` tells of bounds: T0402 with the launch and the lane where it is sure, T0412
where only data say whether the lane comes there, where the call says how many groups there are, or
where nothing shows that an access stays inside. The lanes of small launches are followed one by
one, every way where data say which. Indices that are made of data are left to the guards, unless
the kernel says how far they go, and that is too far. Must not know ranges beyond which accesses are
open, and how far an index goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import prod

from tessera_lang.analysis.lanes.concrete_lane import Effort, Launch, trace_lane
from tessera_lang.analysis.lanes.decoded_steps import steps_of
from tessera_lang.analysis.lanes.followed_operations import followed_operations
from tessera_lang.analysis.lanes.lane_walk import inside_accesses
from tessera_lang.analysis.lanes.launch_samples import (
    sample_launches,
    small_launches,
    varied_launches,
)
from tessera_lang.analysis.lanes.shared_access_log import BUFFER_AT
from tessera_lang.analysis.races.array_races import several_groups
from tessera_lang.analysis.races.checked_launches import named
from tessera_lang.analysis.races.lane_out_of_bounds import (
    Outside,
    Watch,
    check_lane_bounds,
    in_turn,
    open_accesses,
)
from tessera_lang.analysis.races.simulated_launch import MOST_LANES
from tessera_lang.analysis.ranges.integer_ranges import ranges
from tessera_lang.analysis.ranges.reads_again import reads_again
from tessera_lang.analysis.ranges.state import Ranges, Reads, State
from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import GROUP_IDS
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.launch_plan import LaunchPlan

_STEPS = 300_000  # operations of all lanes that are followed for a kernel
_ENOUGH = 3  # launches in which nothing is outside, where sizes are not numbers
_NAMED = 6  # launches in a note
_OF_ITS_TYPE = 1 << 30  # an index that may be as large is one of which the kernel says nothing
_NEAR_A_SIZE = 1 << 20  # one that is below a size and so much more is limited by the size


@dataclass(slots=True)
class _Followed:
    """``outside``: by access, the launch and the first lane; ``inside``: accesses of which some
    lane had a known index that was, ``unknown``: with an index that is not known; ``whole``:
    launches of which all lanes came to their end, of ``tried``."""

    outside: dict[Operation, tuple[Launch, Outside]] = field(
        default_factory=dict[Operation, "tuple[Launch, Outside]"]
    )
    inside: set[Operation] = field(default_factory=set[Operation])
    unknown: set[Operation] = field(default_factory=set[Operation])
    whole: list[Launch] = field(default_factory=list[Launch])
    tried: int = 0

    @property
    def enough(self) -> bool:
        needed = 1 if self.whole and not self.whole[0].text else min(_ENOUGH, self.tried)
        return len(self.whole) >= max(1, needed)

    def sure(self, operation: Operation) -> bool:
        return operation in self.outside and not self.outside[operation][1].possible


def unproved_bounds(
    kernel: Operation, known: Ranges, plan: LaunchPlan, uniform: Uniformity
) -> list[Diagnostic]:
    """What is said of each array with accesses that ranges do not prove, one report for each index;
    and a note of arrays that launches show nothing of."""
    told = {d.span for d in check_lane_bounds(kernel, known, plan)}
    open_ = [o for o in open_accesses(known) if o.span not in told]
    if open_:
        inside = inside_accesses(kernel, uniform, known, frozenset(open_))
        open_ = [o for o in open_ if o not in inside]
    if not open_:
        return []
    found = _followed(kernel, plan, frozenset(open_))
    by_call = not plan.grid and kernel.holds(GROUP_IDS)
    reports: dict[tuple[Value, ...], Diagnostic] = {}
    fine: dict[Value, None] = {}
    by_data: list[Operation] = []
    for o in open_:
        key = o.operands[BUFFER_AT[o.name] :]
        if o in found.outside:
            reports.setdefault(key, _outside(o, *found.outside[o], by_call=by_call))
        elif o in found.inside and found.enough:
            fine[key[0]] = None
        elif o in found.inside or (o not in found.unknown and not found.enough):
            reports.setdefault(key, _not_followed(o, found))
        elif o in found.unknown:
            by_data.append(o)
    for o, said in _of_data(kernel, known, by_data):
        reports.setdefault(o.operands[BUFFER_AT[o.name] :], said)
    return [*reports.values(), *_note(kernel, fine, found)]


def _followed(kernel: Operation, plan: LaunchPlan, open_: frozenset[Operation]) -> _Followed:
    found, effort = _Followed(), Effort(_STEPS)
    views = {o.result: o for o in kernel.walk() if o.name == "tile.view"}
    kept = followed_operations(kernel, open_.__contains__)
    used = {v for operations in kept.values() for o in operations for v in o.operands}
    by_group = any(v in used for o in kernel.nested(GROUP_IDS) for v in o.results)
    ready, lanes = steps_of(kept), prod(kernel.integers("group"))
    for launch in _launches(kernel, plan):
        groups = prod(launch.groups) if by_group else 1
        if lanes * groups > MOST_LANES:
            continue
        if effort.left <= 0 or all(map(found.sure, open_)):
            break
        found.tried += 1
        whole = True
        for who in in_turn(lanes, groups):
            watch = Watch(open_ - found.unknown, who, views)
            there = replace(launch, group=who[0])
            traced = trace_lane(kernel, there, who[1], effort, watch=watch, ready=ready, ways=True)
            found.inside |= watch.inside
            for o, outside in watch.found.items():
                if o not in found.outside or not (found.sure(o) or outside.possible):
                    found.outside[o] = launch, outside
            whole &= traced.ends and effort.left > 0
            if effort.left <= 0:
                break
            found.unknown |= watch.unknown - found.outside.keys() - found.inside
        if whole:
            found.whole.append(launch)
        open_ -= found.unknown
    return found


def _launches(kernel: Operation, plan: LaunchPlan) -> Iterator[Launch]:
    """Small ones first; arrays of no elements tell little."""
    several, seen = several_groups(kernel, plan) is not None, set[str]()
    small = small_launches(kernel, plan, several)
    varied = varied_launches(kernel, plan, 3 if several else 1)
    for launch in chain(small, varied, sample_launches(kernel, plan)):
        if launch.text not in seen and min(launch.arguments.values(), default=1) > 0:
            seen.add(launch.text)
            yield launch


def _name(operation: Operation) -> str:
    array = operation.operands[BUFFER_AT[operation.name]]
    return f"`{array.name}`" if array.name else "the array"


def _outside(
    operation: Operation, launch: Launch, outside: Outside, *, by_call: bool
) -> Diagnostic:
    array = operation.operands[BUFFER_AT[operation.name]]
    several = len(array.array_type.shape) > 1
    of_axis = f" axis {outside.axis} of" if several else ""
    group, lane = outside.who
    where = f"lane {lane}" + (f" of group {group}" if prod(launch.groups) > 1 else "")
    with_ = f" with {launch.text}" if launch.text else ""
    at = f"{outside.index}, outside{of_axis} {_name(operation)} (size {outside.size})"
    help_ = (
        "let a lane do this only where the index is inside, or state in `where` what sizes may be"
    )
    if outside.possible or by_call:
        why = "data let it come here" if outside.possible else "the call has so many groups"
        return Diagnostic(
            "T0412",
            f"it is not proved that this index is inside of {_name(operation)}",
            operation.span, f"in {where} it is {at}", "warning",
            notes=(f"so it is{with_ or ' in each launch'}, where {why}",),
            helps=(help_,),
        )  # fmt: skip
    return Diagnostic(
        "T0402", f"in {where} this index is {at}",
        operation.span, f"outside in {where}{with_}",
        helps=(help_,),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Limits:
    """How far indices of data go by what the kernel says: the ranges, and accesses whose index may
    reach the size of its array along an axis, or goes up to another size."""

    known: Ranges
    by_size: dict[Operation, int]


def _limits(kernel: Operation, accesses: frozenset[Operation], reads: Reads) -> _Limits:
    by_size: dict[Operation, int] = {}

    def see(state: State, operation: Operation) -> None:
        verdict = state.result.accesses.get(operation)
        if operation not in accesses or verdict is None or verdict.verdict != "unknown":
            return
        at = BUFFER_AT[operation.name]
        own = state.sizes.get(operation.operands[at], ())
        sizes = dict.fromkeys(chain(own, *state.sizes.values()))
        for axis in verdict.open:
            index = state.form(operation.operands[at + 1 + axis])
            if axis < len(own) and state.known.proves((own[axis] - index).shifted(-1)):
                continue
            near = ((s - index).shifted(_NEAR_A_SIZE) for s in sizes if s.terms)
            if any(map(state.known.proves, near)):
                by_size[operation] = axis
                break

    return _Limits(ranges(kernel, see, {"verdicts", "indices"}, reads), by_size)


def _of_data(
    kernel: Operation, known: Ranges, accesses: Sequence[Operation]
) -> Iterator[tuple[Operation, Diagnostic]]:
    """What is said of indices that data decide. Guards may look at another read of an element than
    the access: where nothing can change it in between, that is the same."""
    left = [o for o in accesses if known.accesses[o].verdict == "unknown"]
    before: _Limits | None = None
    for reads in ("apart", "steady", "alike"):
        if not left:
            return
        if reads != "apart" and not reads_again(kernel, reads):
            return
        found = _limits(kernel, frozenset(left), reads)
        for o in list(left):
            limit = _limit_outside(o, found.known)
            inside = found.known.accesses[o].verdict == "proved"
            told = limit is not None or o in found.by_size
            if not (told or inside):
                continue
            left.remove(o)
            if reads == "alike" and before is not None:
                yield o, _read_twice(o)
            elif limit is not None:
                yield o, _by_data(o, *limit)
            elif told:
                yield o, _by_a_size(o, found.by_size[o])
        before = found


def _limit_outside(operation: Operation, known: Ranges) -> tuple[int, int] | None:
    """The axis along which an index of data has a limit that the kernel says, as in `x[i] & 31`,
    and that is outside or may be so; and the limit."""
    verdict = known.accesses[operation]
    if verdict.verdict != "unknown":
        return None
    array = operation.operands[BUFFER_AT[operation.name]]
    extent = array.array_type.shape[verdict.axis]
    low, high = verdict.index
    if -_OF_ITS_TYPE < low < 0:
        return verdict.axis, low
    if 0 <= high < _OF_ITS_TYPE and (extent is None or high >= extent):
        return verdict.axis, high
    return None


def _by_data(operation: Operation, axis: int, limit: int) -> Diagnostic:
    array = operation.operands[BUFFER_AT[operation.name]]
    extent = array.array_type.shape[axis]
    where = f"axis {axis} of {_name(operation)}" if len(array.array_type.shape) > 1 else "the array"
    size = f" (size {extent})" if extent is not None else ""
    way = "from" if limit < 0 else "up to"
    return Diagnostic(
        "T0412",
        f"it is not proved that this index is inside of {_name(operation)}",
        operation.span, f"data decide it, {way} {limit}, which may be outside of {where}{size}",
        "warning", notes=("an element outside is read as 0, and is not written",),
        helps=("bring the index inside (`max(0, min(i, n - 1))`, a remainder), or let a lane do"
               " this only where it is",),
    )  # fmt: skip


def _by_a_size(operation: Operation, axis: int) -> Diagnostic:
    array = operation.operands[BUFFER_AT[operation.name]]
    where = f"axis {axis} of {_name(operation)}" if len(array.array_type.shape) > 1 else "the array"
    return Diagnostic(
        "T0412",
        f"it is not proved that this index is inside of {_name(operation)}",
        operation.span, f"data decide it, up to a size that is not shown to be inside of {where}",
        "warning", notes=("an element outside is read as 0, and is not written",),
        helps=(f"compare it with the size of {where} (`i < n`, not `i <= n`), or state in `where`"
               " how sizes compare",),
    )  # fmt: skip


def _read_twice(operation: Operation) -> Diagnostic:
    return Diagnostic(
        "T0412",
        f"it is not proved that this index is inside of {_name(operation)}",
        operation.span, "it is read again, and may be another number than the one compared",
        "warning", notes=("an element outside is read as 0, and is not written",),
        helps=("read it once, into a name, and use this for the comparison and the access",),
    )  # fmt: skip


def _not_followed(operation: Operation, found: _Followed) -> Diagnostic:
    why = f"{len(found.whole)} of {found.tried} launches were followed whole"
    if not found.tried:
        why = "no launch that its sizes allow is small enough to be followed whole"
    return Diagnostic(
        "T0412",
        f"it is not proved that this index is inside of {_name(operation)}",
        operation.span, "no lane is known to be outside", "warning", notes=(why,),
        helps=("let a lane do this only where the index is inside",),
    )  # fmt: skip


def _note(kernel: Operation, fine: Mapping[Value, None], found: _Followed) -> Iterator[Diagnostic]:
    if not fine:
        return
    names = " and ".join(sorted({f"`{v.name or 'array'}`" for v in fine}))
    launches = "; ".join(named(x) for x in found.whole[:_NAMED])
    yield Diagnostic(
        "T0416", f"indices of {names} are inside in the launches that were followed",
        kernel.span, "found by following all lanes of small launches", "note",
        notes=(f"followed: {launches}", "other sizes are not proved"),
    )  # fmt: skip
