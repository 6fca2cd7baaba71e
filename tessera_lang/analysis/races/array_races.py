"""Races on arrays: two lanes of a launch that surely touch one element, where nothing orders them.

Owns T0414. What is reported happens in a launch that is stated; the lanes are followed number by
number. What depends on data is left out, and all that comes behind an atomic, a fence or a wait
for another lane, which may order what follows. Must not know the walk of all lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from tessera_lang.analysis.lanes.concrete_lane import Effort, Launch, Trace, WayUnknown, trace_lane
from tessera_lang.analysis.lanes.launch_samples import sample_launches
from tessera_lang.analysis.lanes.shared_access_log import BUFFER_AT, KINDS
from tessera_lang.analysis.lanes.unknown_accesses import untraced
from tessera_lang.analysis.races.injective_indices import own_places
from tessera_lang.analysis.races.stored_values import Values
from tessera_lang.analysis.races.updates import atomic_of, is_limit
from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity
from tessera_lang.diagnostics import Diagnostic, Label, Severity
from tessera_lang.ir.core import Operation, Value, ViewType
from tessera_lang.ir.definitions import (
    ATOMICS,
    ELEMENT_ACCESSES,
    GROUP_IDS,
)
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.shape import symbols_of

_STEPS = 20_000  # operations of all lanes that are followed for a kernel
_MOST_EVENTS = 2000  # of one lane
_ORDERS = ("update", "sync")
_CALL_SAYS = "grid_groups"


@dataclass(frozen=True, slots=True)
class _Event:
    """An access that surely happens. ``value``: what is stored, None if that is not known."""

    lane: int
    group: int
    interval: int
    operation: Operation
    pointer: Value
    cell: tuple[int, ...]
    value: object

    @property
    def writes(self) -> bool:
        return KINDS[self.operation.name] == "write"


@dataclass(slots=True)
class _Watch:
    """Collects the accesses of one lane to the arrays in question."""

    views: dict[Value, Operation]
    pointers: frozenset[Value]
    values: Values
    launch: Launch
    lane: int
    events: list[_Event] = field(default_factory=list[_Event])
    known: set[object] = field(default_factory=set[object])

    def matters(self, operation: Operation) -> bool:
        return self._pointer(operation) is not None or _may_order(operation)

    def passed_over(self, operation: Operation) -> None:
        if _may_order(operation):
            raise WayUnknown

    def see(self, trace: Trace, operation: Operation) -> None:
        if operation.name != "tile.barrier" and _may_order(operation):
            raise WayUnknown
        pointer = self._pointer(operation)
        if pointer is None:
            return
        at = BUFFER_AT[operation.name]
        view = self.views[operation.operands[at]]
        cell: list[int] = []
        for index, size in zip(operation.operands[at + 1 :], view.operands[1:], strict=False):
            number, extent = trace.number(index), trace.number(size)
            if number is None or extent is None or not 0 <= number < extent:
                return
            cell.append(number)
        key = (operation, trace.interval, *cell)
        if key in self.known:
            return  # in another round of a loop
        self.known.add(key)
        writes = KINDS[operation.name] == "write"
        value = self.values.of(operation.operands[0], trace) if writes else None
        self.events.append(_Event(
            self.lane, self.launch.group, trace.interval, operation, pointer, tuple(cell), value,
        ))  # fmt: skip
        if len(self.events) > _MOST_EVENTS:
            raise WayUnknown

    def _pointer(self, operation: Operation) -> Value | None:
        if operation.name not in ELEMENT_ACCESSES:
            return None
        view = self.views.get(operation.operands[BUFFER_AT[operation.name]])
        pointer = None if view is None else view.operands[0]
        return pointer if pointer in self.pointers else None


def _may_order(operation: Operation) -> bool:
    """Whether lanes may wait for each other here, or hand something over."""
    if operation.name == "tile.while" or operation.name in ATOMICS:
        return True
    return TILE_OPS[operation.name].effect in _ORDERS


def _hands_over(operation: Operation) -> bool:
    """Whether it may order groups: a loop does that reads until something is there."""
    if operation.name == "tile.while":
        loads = (o for o in operation.walk() if o.name == "tile.load")
        return any(isinstance(o.operands[0].type, ViewType) for o in loads)
    return operation.name != "tile.barrier" and _may_order(operation)


def check_arrays(
    kernel: Operation, plan: LaunchPlan, uniform: Uniformity
) -> tuple[Diagnostic, ...]:
    """What lanes surely do to each other in arrays, one for each array."""
    views = {o.result: o for o in kernel.walk() if o.name == "tile.view"}
    pointers = _shared_pointers(kernel, views)
    launches = list(sample_launches(kernel, plan)) if pointers else []
    if not launches:
        return ()
    unseen = untraced(kernel, launches[0].arguments)
    stores = [o for o in kernel.nested("tile.store") if o not in unseen]
    seen = (
        frozenset(views[o.operands[1]].operands[0] for o in stores if o.operands[1] in views)
        & pointers
    )
    if not seen:
        return ()
    found: dict[Value, Diagnostic] = {}
    effort, values = Effort(_STEPS), Values(uniform.definitions, kernel.regions[0].arguments)
    in_groups = _several_groups(kernel, plan)
    for launch in (launches[0], *launches[1:][-1:]):
        events: list[_Event] = []
        members = _members(plan, launch, in_groups is not None)
        for group, lane in members if launch is launches[0] else members[:2] + members[-1:]:
            there = replace(launch, group=group)
            watch = _Watch(views, seen, values, there, lane)
            trace_lane(kernel, there, lane, effort, watch=watch)
            events.extend(watch.events)
        for pair in _meetings(events, uniform):
            if _settles(kernel, pair, events, uniform.definitions):
                continue
            severity = "error" if pair.inside else in_groups
            if severity and not pair.sure:
                severity = "warning"
            before = found.get(pair.a.pointer)
            if severity and (before is None or severity == "error" != before.severity):
                found[pair.a.pointer] = _race(launch, pair, severity, uniform.definitions)
    return tuple(found.values())


def _shared_pointers(kernel: Operation, views: dict[Value, Operation]) -> frozenset[Value]:
    """Arrays that are stored into, unless all accesses of each lane are at a place of its own."""
    own = own_places(kernel)
    stored: set[Value] = set()
    places: dict[Value, set[tuple[int, Value]]] = {}
    for o in kernel.walk():
        if o.name not in BUFFER_AT or o.operands[BUFFER_AT[o.name]] not in views:
            continue
        at = BUFFER_AT[o.name]
        pointer = views[o.operands[at]].operands[0]
        if o.name == "tile.store":
            stored.add(pointer)
        indices = enumerate(o.operands[at + 1 :])
        mine = {(i, v) for i, v in indices if v in own}
        places[pointer] = places.get(pointer, mine) & mine
    return frozenset(p for p in stored if not places[p])


def _several_groups(kernel: Operation, plan: LaunchPlan) -> Severity | None:
    """How surely the kernel runs in several groups: "error" where its own grid says so, "warning"
    where the call does and the kernel asks which group it is. None where groups may wait."""
    if any(_hands_over(o) for o in kernel.walk()):
        return None  # barriers bring what one lane has waited for to all of its group
    named = {name for dim in plan.grid or () for name in symbols_of(dim)}
    if plan.grid and _CALL_SAYS not in named:
        return "error"
    if kernel.holds(GROUP_IDS):
        return "warning"
    return None


def _members(plan: LaunchPlan, launch: Launch, several: bool) -> list[tuple[int, int]]:
    """Groups and lanes to follow: ends and middles."""
    lanes, groups = prod(plan.group), prod(launch.groups)
    last = lanes - 1
    found = [(0, lane) for lane in (0, 1, 2, lanes // 2, 32) if lane < lanes]
    if several and groups > 1:
        found += [(1, lane) for lane in (0, 1, last) if lane < lanes] + [(groups - 1, last)]
    return list(dict.fromkeys((*found, (0, last))))


@dataclass(frozen=True, slots=True)
class _Pair:
    """Accesses that conflict: ``a`` writes. ``update``: the lane of ``a`` does ``b`` there too."""

    a: _Event
    b: _Event
    update: bool

    @property
    def sure(self) -> bool:
        """Whether it matters who comes first, whatever is in the arrays."""
        return not self.b.writes or all(isinstance(e.value, int | str) for e in (self.a, self.b))

    @property
    def inside(self) -> bool:
        """Whether both are in one group."""
        return self.a.group == self.b.group


def _meetings(events: Sequence[_Event], uniform: Uniformity) -> Iterator[_Pair]:
    """One pair for each element: those in a group first, reads of what others write first."""
    places: dict[tuple[Value, tuple[int, ...]], list[_Event]] = {}
    for event in events:
        places.setdefault((event.pointer, event.cell), []).append(event)
    shared = [es for es in places.values() if len(es) > 1 and any(e.writes for e in es)]
    for across in (False, True):
        for both_write in (False, True):
            for found in shared:
                pair = _conflict(found, across, both_write, uniform)
                if pair is not None:
                    yield pair


def _conflict(
    found: Sequence[_Event], across: bool, both_write: bool, uniform: Uniformity
) -> _Pair | None:
    for a in found:
        for b in found if a.writes else ():
            apart = (a.group, a.lane) != (b.group, b.lane) and (a.group != b.group) == across
            if not apart or b.writes != both_write or not (across or a.interval == b.interval):
                continue
            if not both_write or _differ(a, b, uniform):
                own = [e for e in found if (e.group, e.lane) == (a.group, a.lane)]
                return _Pair(a, b, any(e.operation is b.operation for e in own))
    return None


def _settles(
    kernel: Operation,
    pair: _Pair,
    events: Sequence[_Event],
    definitions: Mapping[Value, Operation],
) -> bool:
    """Whether a lane reads to bring the element within limits that all lanes know alike, as
    `out[0] = min(out[0], 1.0)` does: once or twice gives the same."""
    a, b = pair.a, pair.b
    if b.writes or not is_limit(kernel, a.operation, b.operation, definitions):
        return False
    there = [e for e in events if (e.pointer, e.cell) == (a.pointer, a.cell) and e.writes]
    return all(e.value is not None and e.value == a.value for e in there) and any(
        (e.group, e.lane) == (b.group, b.lane) for e in there
    )


def _differ(a: _Event, b: _Event, uniform: Uniformity) -> bool:
    """Whether two stores are of values that are not the same by construction."""
    if a.value is None or b.value is None or a.value == b.value:
        return False
    same = a.operation is b.operation and a.group == b.group
    return not (same and uniform.is_uniform(a.operation.operands[0]))


# --- what is said ---------------------------------------------------------------------------


def _race(
    launch: Launch, pair: _Pair, severity: Severity, definitions: Mapping[Value, Operation]
) -> Diagnostic:
    a, b = pair.a, pair.b
    place = f"`{_name(a)}[{', '.join(map(str, a.cell))}]`"
    first, second = sorted((a, b), key=lambda e: (e.group, e.lane))
    if pair.inside:
        who = f"lanes {first.lane} and {second.lane}"
        order, where = "without a barrier between them", f"group {first.group}"
    else:
        who = f"{_lane(first, pair)} and {_lane(second, pair)}"
        order, where = "in any order", f"groups {first.group} and {second.group}"
    does = f"write values that may differ to {place} {order}"
    if pair.sure:
        does = f"write different values to {place} {order}"
    if not b.writes:
        does = f"touch {place} {order}, and one of them writes"
    labels: tuple[Label, ...] = ()
    if a.operation.span is not None and a.operation.span != b.operation.span:
        labels = (Label(a.operation.span, f"{_lane(a, pair)} writes {place} here"),)
    known = [launch.text] if launch.text else []
    if not (pair.inside and known):
        known.insert(0, f"{prod(launch.groups)} groups")
    return Diagnostic(
        "T0414", f"{who} {does}", b.operation.span,
        f"{_lane(b, pair)} {'writes' if b.writes else 'reads'} {place} here", severity,
        labels=labels,
        notes=(f"this happens, for example, in {where} of a launch with {' and '.join(known)}",),
        helps=(_help(pair, definitions),),
    )  # fmt: skip


def _name(event: _Event) -> str:
    return event.pointer.name or "array"


def _lane(event: _Event, pair: _Pair) -> str:
    return f"lane {event.lane}" + ("" if pair.inside else f" of group {event.group}")


def _help(pair: _Pair, definitions: Mapping[Value, Operation]) -> str:
    name = _name(pair.a)
    if pair.b.writes:
        return "let one lane write, or give each lane an element of its own"
    if pair.update:
        atomic = atomic_of(pair.a.operation, pair.b.operation, definitions)
        if atomic:
            return f"`atomic_{atomic}({name}[...], ...)` loses no update"
        return (
            "no one atomic does this update: repeat `atomic_cas` until it finds the element that"
            " was computed with (`tesserac explain T0414` shows the loop), or let one lane do all"
        )
    if pair.inside:
        return "put a `tbarrier()` between the two, where every lane of the group gets to it"
    return f"write to another array than `{name}`, or make two launches of it"
