"""Races on arrays: two lanes of a launch that surely touch one element, where nothing orders them.

Owns T0414. What is reported happens in a launch that is stated; the lanes are followed number by
number. What depends on data is left out. Barriers order the lanes of a group; what an acquire may
bring behind a release is no certain fault. Must not know the walk of all lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from math import prod

from tessera_lang.analysis.lanes.concrete_lane import Launch
from tessera_lang.analysis.lanes.hand_overs import hands_over
from tessera_lang.analysis.lanes.launch_samples import more_launches, sample_launches
from tessera_lang.analysis.lanes.shared_access_log import BUFFER_AT
from tessera_lang.analysis.lanes.unknown_accesses import untraced
from tessera_lang.analysis.races.array_events import Access, ArrayOrders, Followed, follow
from tessera_lang.analysis.races.atomic_indices import given_places
from tessera_lang.analysis.races.checked_launches import named
from tessera_lang.analysis.races.group_owned_arrays import owned_arrays
from tessera_lang.analysis.races.hand_over_races import Runs, Shown, report
from tessera_lang.analysis.races.injective_indices import own_places
from tessera_lang.analysis.races.run_records import Meeting
from tessera_lang.analysis.races.stored_values import Values
from tessera_lang.analysis.races.updates import atomic_of, is_limit, is_made_of
from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity, uniformity
from tessera_lang.diagnostics import Diagnostic, Label, Severity
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import ATOMICS, ELEMENT_ACCESSES, GROUP_IDS, WRITES
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.shape import symbols_of

_ACCESSES = ATOMICS | ELEMENT_ACCESSES
_CHANGES = WRITES & _ACCESSES
_BY_DATA = "this depends on data, or on a number of the call"
_BY_ATOMICS = "atomics may order what lanes do here, which is not followed"
_BY_VALUES = "several lanes store here what is not followed, and may differ"
_CALL_SAYS = "grid_groups"
_STEPS = 300_000  # operations of all lanes that are followed with other sizes
_LAUNCH_STEPS = 60_000  # of those of one launch
_NAMED = 6  # launches in a note


@dataclass(slots=True)
class ArrayCheck:
    """What was found about the arrays that a kernel changes, and that are not of single lanes:
    faults, and what is not proved with the reason. ``seen``: arrays with accesses that are
    followed, in ``whole`` launches and others. ``shown``: faults that runs showed before."""

    faults: dict[Value, Diagnostic] = field(default_factory=dict[Value, Diagnostic])
    unproved: dict[Value, tuple[str, Operation]] = field(
        default_factory=dict[Value, tuple[str, Operation]]
    )
    doubtful: dict[Value, str] = field(default_factory=dict[Value, str])
    seen: frozenset[Value] = frozenset()
    whole: list[Launch] = field(default_factory=list[Launch])
    shown: dict[Value, Diagnostic] = field(default_factory=dict[Value, Diagnostic])


def check_arrays(
    kernel: Operation, plan: LaunchPlan, uniform: Uniformity,
    own: Set[Value] = frozenset(), runs: Runs | None = None,
) -> tuple[Diagnostic, ...]:  # fmt: skip
    """What lanes surely do to each other in arrays, one for each array. ``own``: arrays of which
    every element belongs to one lane."""
    runs = runs or Runs(kernel, plan, uniform)
    return tuple(_checked(kernel, plan, uniform, own, runs).faults.values())


def unproved_arrays(
    kernel: Operation, plan: LaunchPlan, uniform: Uniformity | None = None,
    runs: Runs | None = None,
) -> list[Diagnostic]:  # fmt: skip
    """One warning for each array of which it is open whether lanes meet there."""
    return list(open_arrays(kernel, plan, uniform, runs).values())


def open_arrays(
    kernel: Operation, plan: LaunchPlan, uniform: Uniformity | None = None,
    runs: Runs | None = None,
) -> dict[Value, Diagnostic]:  # fmt: skip
    """By array, the warnings of ``unproved_arrays``; faults that more launches show; and notes of
    arrays where only these launches, and no proof, say that lanes do not meet."""
    uniform = uniform or uniformity(kernel)
    own = owned_arrays(kernel, uniform, several_groups(kernel, plan) is not None, plan.grid or ())
    check = _checked(kernel, plan, uniform, own, runs or Runs(kernel, plan, uniform))
    before = set(check.faults)
    pointers = frozenset(check.seen - before)
    if _is_all(kernel, plan, check):
        pointers &= check.unproved.keys()
    whole = _follow_more(check, kernel, plan, uniform, pointers) if pointers else []
    found = {p: _not_proved(p, *why) for p, why in check.unproved.items()}
    for pointer in pointers - found.keys():
        found[pointer] = _not_met(kernel, pointer, [*check.whole, *whole])
    found.update(check.faults)
    return {p: d for p, d in found.items() if p not in before}


def _checked(
    kernel: Operation, plan: LaunchPlan, uniform: Uniformity, own: Set[Value], runs: Runs
) -> ArrayCheck:
    views = {o.result: o for o in kernel.walk() if o.name == "tile.view"}
    pointers = _shared_pointers(kernel, views) - own - _harmless(kernel, views)
    if pointers:
        pointers -= given_places(kernel, several=several_groups(kernel, plan) is not None)
    check = ArrayCheck()
    if not pointers:
        return check
    accesses = [
        (v.operands[0], o) for o in kernel.nested(_ACCESSES)
        if (v := views.get(_array(o))) is not None and v.operands[0] in pointers
    ]  # fmt: skip
    launches = list(sample_launches(kernel, plan))
    if not launches:
        for pointer, o in accesses:
            check.unproved.setdefault(pointer, ("no launch was found that its sizes allow", o))
        return check
    unseen = untraced(kernel, launches[0].arguments)
    narrow = set[Value]()
    if several_groups(kernel, plan) is not None:
        narrow = {p for p, o in accesses if o.name in ATOMICS and not _is_wide(o)}
    atomic = {p for p in pointers if all(o.name in ATOMICS for q, o in accesses if q is p)} - narrow
    for pointer, o in accesses:
        if o in unseen and pointer not in atomic:
            check.unproved.setdefault(pointer, (_BY_DATA, o))
    seen = frozenset(p for p, o in accesses if o.name in _CHANGES and o not in unseen)
    _run(check, kernel, plan, uniform, runs, seen | check.unproved.keys())
    check.seen = seen
    if seen:
        _follow(check, kernel, plan, uniform, launches, seen, seen - atomic)
    for pointer, o in accesses:
        if pointer in check.doubtful:
            check.unproved.setdefault(pointer, (check.doubtful[pointer], o))
    return check


def _run(
    check: ArrayCheck, kernel: Operation, plan: LaunchPlan, uniform: Uniformity,
    runs: Runs, pointers: Set[Value],
) -> None:  # fmt: skip
    """Look for lanes that meet in spite of atomics."""

    def is_open(m: Meeting) -> bool:
        if m.second.root not in pointers:
            return False
        if m.second.kind == "read" and m.first.kind == "write":
            if is_limit(kernel, m.first.operation, m.second.operation, uniform.definitions):
                return False
        unknown = m.both_write and (m.first.value is None or m.second.value is None)
        return not unknown

    for shown in runs.shown(is_open):
        fault = array_fault(kernel, plan, shown)
        if fault is not None:
            check.faults[shown.meeting.second.root] = fault


def array_fault(kernel: Operation, plan: LaunchPlan, shown: Shown) -> Diagnostic | None:
    """What is said of two accesses that meet in a launch; nothing where the kernel may well have
    one group only."""
    m = shown.meeting
    severity = "error" if m.first.who[0] == m.second.who[0] else several_groups(kernel, plan)
    by_data = m.both_write and not all(isinstance(d.value, int | str) for d in (m.first, m.second))
    if severity is None:
        return None
    return report(shown, "T0414", "warning" if len(shown.begins) > 1 or by_data else severity)


def _follow(
    check: ArrayCheck, kernel: Operation, plan: LaunchPlan, uniform: Uniformity,
    launches: Sequence[Launch], seen: frozenset[Value], plain: Set[Value],
) -> None:  # fmt: skip
    """Look for lanes that meet in launches. ``plain``: arrays of which not all is atomic."""
    values = Values(uniform.definitions, kernel.regions[0].arguments)
    in_groups, possible = several_groups(kernel, plan), hands_over(kernel)
    settled, check.shown = False, dict(check.faults)
    for i, launch in enumerate(launches):
        few = i > 1 or settled
        followed = follow(kernel, plan, launch, seen, values, in_groups is not None, few)
        orders = ArrayOrders(followed, prod(plan.group), possible)
        _note_meetings(check, kernel, launch, followed, orders, uniform, in_groups)
        for pointer in _store_unknown(followed, in_groups is not None, orders, uniform):
            check.doubtful.setdefault(pointer, _BY_VALUES)
        for pointer in followed.unseen & plain:
            check.doubtful.setdefault(pointer, _BY_DATA)
        check.doubtful.update(dict.fromkeys(orders.doubted, _BY_ATOMICS))
        if few:
            continue
        lanes = prod(plan.group) * prod(launch.groups)
        settled |= followed.whole and (in_groups is None or prod(launch.groups) > 1)
        if followed.whole:
            check.whole.append(launch)
        if not settled and i in (1, len(launches) - 1):
            text = f"{len(followed.syncs)} of {lanes} lanes were followed, where the work ends"
            check.doubtful.update((p, text) for p in seen if p not in check.doubtful)


def _note_meetings(
    check: ArrayCheck, kernel: Operation, launch: Launch, followed: Followed, orders: ArrayOrders,
    uniform: Uniformity, in_groups: Severity | None,
) -> None:  # fmt: skip
    for pair in _meetings(followed, orders, uniform):
        if _settles(kernel, pair, followed, uniform.definitions):
            continue
        severity = "error" if pair.inside else in_groups
        if severity and not pair.sure:
            severity = "warning"
        pointer = pair.a.pointer
        before = check.faults.get(pointer)
        if severity and (before is None or severity == "error" != before.severity):
            race = _race(launch, pair, severity, uniform.definitions)
            told = check.shown.get(pointer)
            if told is not None and told.span == race.span:  # it says what is missing
                race = replace(told, severity=severity)
            check.faults[pointer] = race


def _is_all(kernel: Operation, plan: LaunchPlan, check: ArrayCheck) -> bool:
    """Whether there is no launch but one that was followed whole: nothing has a size that is a
    symbol, and the order of atomics decides nothing."""
    by_call = several_groups(kernel, plan) == "warning"
    return any(not x.text for x in check.whole) and not by_call and not hands_over(kernel)


def _follow_more(
    check: ArrayCheck, kernel: Operation, plan: LaunchPlan, uniform: Uniformity,
    pointers: frozenset[Value],
) -> list[Launch]:  # fmt: skip
    """Look for lanes that meet in launches of other sizes: unequal ones, and those just above the
    numbers in the kernel. The launches of which all lanes were followed."""
    values = Values(uniform.definitions, kernel.regions[0].arguments)
    in_groups, possible = several_groups(kernel, plan), hands_over(kernel)
    left, whole = _STEPS, list[Launch]()
    for launch in more_launches(kernel, plan, in_groups is not None):
        most = min(left, _LAUNCH_STEPS)
        several = in_groups is not None
        followed = follow(kernel, plan, launch, pointers, values, several, few=False, most=most)
        left -= followed.steps
        if followed.outside:
            continue  # nobody launches it so
        orders = ArrayOrders(followed, prod(plan.group), possible)
        _note_meetings(check, kernel, launch, followed, orders, uniform, in_groups)
        doubted = dict.fromkeys(_store_unknown(followed, several, orders, uniform), _BY_VALUES)
        for pointer, why in (doubted | dict.fromkeys(orders.doubted, _BY_ATOMICS)).items():
            check.unproved.setdefault(pointer, (why, _first(followed, pointer)))
        if followed.whole:
            whole.append(launch)
        if left <= 0 or pointers <= check.faults.keys():
            break
    return whole


def _first(followed: Followed, pointer: Value) -> Operation:
    """A change of those of an array that were followed."""
    there = (e for (p, _), es in followed.places.items() if p is pointer for e in es)
    return next(e.operation for e in there if e.changes)


def _array(operation: Operation) -> Value:
    return operation.operands[BUFFER_AT[operation.name]]


def _shared_pointers(kernel: Operation, views: dict[Value, Operation]) -> frozenset[Value]:
    """Arrays that are changed, unless all accesses of each lane are at a place of its own."""
    own = own_places(kernel)
    stored: set[Value] = set()
    places: dict[Value, set[tuple[int, Value]]] = {}
    for o in kernel.walk():
        if o.name not in BUFFER_AT or _array(o) not in views:
            continue
        at = BUFFER_AT[o.name]
        pointer = views[o.operands[at]].operands[0]
        if o.name in _CHANGES:
            stored.add(pointer)
        indices = enumerate(o.operands[at + 1 :])
        mine = {(i, v) for i, v in indices if v in own}
        places[pointer] = places.get(pointer, mine) & mine
    return frozenset(p for p in stored if not places[p])


def _harmless(kernel: Operation, views: Mapping[Value, Operation]) -> frozenset[Value]:
    """Arrays that only atomics of all groups touch, and those into which all store one literal and
    that nobody reads: it does not matter who comes first."""
    constants = {o.result: o for o in kernel.walk() if o.name == "tile.constant"}
    kinds: dict[Value, set[object]] = {}
    for o in kernel.nested(_ACCESSES):
        view = views.get(_array(o))
        if view is None:
            continue
        kind: object = o
        if o.name in ATOMICS and _is_wide(o):
            kind = "atomic"
        elif o.name == "tile.store" and (made := constants.get(o.operands[0])) is not None:
            kind = ("store", repr(made.attributes["value"]))
        kinds.setdefault(view.operands[0], set()).add(kind)
    return frozenset(
        p for p, (kind, *more) in kinds.items() if not more and not isinstance(kind, Operation)
    )


def _is_wide(atomic: Operation) -> bool:
    """Whether an atomic is one to the lanes of all groups."""
    return atomic.attributes["scope"] in ("device", "mesh")


def several_groups(kernel: Operation, plan: LaunchPlan) -> Severity | None:
    """How surely the kernel runs in several groups: "error" where its own grid says so, "warning"
    where the call does and the kernel asks which group it is."""
    if plan.grid and all(dim == 1 for dim in plan.grid):
        return None
    named = {name for dim in plan.grid or () for name in symbols_of(dim)}
    if plan.grid and _CALL_SAYS not in named:
        return "error"
    if kernel.holds(GROUP_IDS):
        return "warning"
    return None


@dataclass(frozen=True, slots=True)
class _Pair:
    """Accesses that conflict: ``a`` changes the element. ``update``: the lane of ``a`` does ``b``
    there too."""

    a: Access
    b: Access
    update: bool

    @property
    def sure(self) -> bool:
        """Whether it matters who comes first, whatever is in the arrays."""
        if not (self.a.writes and self.b.writes):
            return True
        return all(isinstance(e.value, int | str) for e in (self.a, self.b))

    @property
    def inside(self) -> bool:
        """Whether both are in one group."""
        return self.a.group == self.b.group

    @property
    def by_scope(self) -> bool:
        """Whether both are atomics, of which one has the scope of its group."""
        return self.a.kind == self.b.kind == "atomic"


def _meetings(followed: Followed, orders: ArrayOrders, uniform: Uniformity) -> Iterator[_Pair]:
    """One pair for each element: those in a group first, reads of what others write first."""
    shared = [es for es in followed.places.values() if len(es) > 1 and any(e.changes for e in es)]
    for across in (False, True):
        for both_write in (False, True):
            for found in shared:
                pair = _conflict(found, across, both_write, orders, uniform)
                if pair is not None:
                    yield pair


def _conflict(
    found: Sequence[Access], across: bool, both_write: bool, orders: ArrayOrders,
    uniform: Uniformity,
) -> _Pair | None:  # fmt: skip
    by_store, by_atomic = _others(found, across, both_write)
    for a in found:
        if not a.changes or (both_write and a.writes and a.value is None):
            continue
        for b in (by_store if a.writes else by_atomic).get(_together(a, across), ()):
            apart = a.who != b.who and (a.group != b.group) == across
            if not apart or not _collide(a, b, uniform) or orders.may_order(a, b):
                continue
            own = [e for e in found if e.who == a.who]
            return _Pair(a, b, any(e.operation is b.operation for e in own))
    return None


_Others = dict[tuple[int, int], list[Access]]


def _together(access: Access, across: bool) -> tuple[int, int]:
    """Of one group only what is between the same barriers meets."""
    return (0, 0) if across else (access.group, access.interval)


def _others(found: Sequence[Access], across: bool, both_write: bool) -> tuple[_Others, _Others]:
    """What a store and what an atomic may collide with, in order. What cannot is left out here, as
    pairs of all accesses grow with their square."""
    if across and len({e.group for e in found}) < 2:
        return {}, {}
    there = [e for e in found if e.writes == both_write]
    if both_write:
        known = [e for e in there if e.value is not None]
        lists = (known if len({e.value for e in known}) > 1 else [], there)
    else:
        narrow = across and any(e.narrow for e in found)
        lists = (there, there if narrow else [e for e in there if e.kind == "read"])
    by_store, by_atomic = _Others(), _Others()
    for which, accesses in zip((by_store, by_atomic), lists, strict=True):
        for e in accesses:
            which.setdefault(_together(e, across), []).append(e)
    return by_store, by_atomic


def _store_unknown(
    followed: Followed, several: bool, orders: ArrayOrders, uniform: Uniformity
) -> Iterator[Value]:
    """Arrays in an element of which two lanes put numbers that are not known, and nothing says
    that these are the same, or which comes last."""
    for (pointer, _), there in followed.places.items():
        stores = [e for e in there if e.writes]
        if all(e.value is not None for e in stores):
            continue
        for i, a in enumerate(stores):
            others = (
                b for b in stores[i + 1 :]
                if (several and a.group != b.group)
                or (a.group == b.group and a.lane != b.lane and a.interval == b.interval)
            )  # fmt: skip
            if any(not _are_alike(a, b, uniform) and not orders.may_order(a, b) for b in others):
                yield pointer
                break


def _collide(a: Access, b: Access, uniform: Uniformity) -> bool:
    if a.kind == b.kind == "atomic":
        return a.group != b.group and (a.narrow or b.narrow)
    if a.writes and b.writes:
        return _differ(a, b, uniform)
    return True


def _settles(
    kernel: Operation,
    pair: _Pair,
    followed: Followed,
    definitions: Mapping[Value, Operation],
) -> bool:
    """Whether a lane reads to bring the element within limits that all lanes know alike, as
    `out[0] = min(out[0], 1.0)` does: once or twice gives the same."""
    a, b = pair.a, pair.b
    if b.kind != "read" or not a.writes:
        return False
    if not is_limit(kernel, a.operation, b.operation, definitions):
        return False
    there = [e for e in followed.places[a.pointer, a.cell] if e.changes]
    values = {e.value for e in there if e.value is not None}
    return len(values) == 1 and any(e.who == b.who for e in there)


def _differ(a: Access, b: Access, uniform: Uniformity) -> bool:
    """Whether two stores are of values that are not the same by construction."""
    if a.value is None or b.value is None or a.value == b.value:
        return False
    return not _are_alike(a, b, uniform)


def _are_alike(a: Access, b: Access, uniform: Uniformity) -> bool:
    """Whether two stores are surely of one value."""
    if a.value is not None and a.value == b.value:
        return True
    same = a.operation is b.operation and a.group == b.group
    return same and uniform.is_uniform(a.operation.operands[0])


# --- what is said ---------------------------------------------------------------------------


def _not_proved(pointer: Value, reason: str, operation: Operation) -> Diagnostic:
    return Diagnostic(
        "T0412",
        f"it is not proved that lanes do not meet in `{pointer.name or 'array'}`",
        operation.span, reason, "warning",
        notes=("no pair of lanes that surely meet was found either",),
        helps=("give each lane elements of its own, or update by an atomic where several lanes may"
               " come to one; `tesserac run --checked` watches the accesses of a run",),
    )  # fmt: skip


def _not_met(kernel: Operation, pointer: Value, launches: Sequence[Launch]) -> Diagnostic:
    """Launches are all that is known: the sizes of those that were followed whole."""
    texts = dict.fromkeys(named(x) for x in launches)
    return Diagnostic(
        "T0416",
        f"lanes do not meet in `{pointer.name or 'array'}` in the launches that were followed",
        kernel.span, "found by following the lanes of some launches", "note",
        notes=(f"followed whole: {'; '.join(list(texts)[:_NAMED])}", "other sizes are not proved"),
    )  # fmt: skip


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
    if pair.by_scope:
        does = f"update {place} by atomics that are of one group only"
    elif not (a.writes and b.writes):
        does = f"touch {place} {order}, and one of them writes"
    elif pair.sure:
        does = f"write different values to {place} {order}"
    labels: tuple[Label, ...] = ()
    if a.operation.span is not None and a.operation.span != b.operation.span:
        labels = (Label(a.operation.span, f"{_lane(a, pair)} {_DOES[a.kind]} {place} here"),)
    known = [launch.text] if launch.text else []
    if not (pair.inside and known):
        known.insert(0, f"{prod(launch.groups)} groups")
    return Diagnostic(
        "T0414", f"{who} {does}", b.operation.span,
        f"{_acts(pair, place)} here", severity,
        labels=labels,
        notes=(f"this happens, for example, in {where} of a launch with {' and '.join(known)}",),
        helps=(_help(pair, definitions),),
    )  # fmt: skip


_DOES = {"read": "reads", "write": "writes", "atomic": "updates"}


def _acts(pair: _Pair, place: str) -> str:
    """What is done at the place of ``b``: by both lanes where they do it in one place."""
    a, b = pair.a, pair.b
    second = f"{_lane(b, pair)} {_DOES[b.kind]} {place}"
    if a.operation.span != b.operation.span:
        return second
    if a.kind != b.kind:
        return f"{second}, and {_lane(a, pair)} {_DOES[a.kind]} it"
    put = (a.value, b.value) if a.kind == "write" and pair.sure else ()
    both = f"{_lane(a, pair)} and {_lane(b, pair)} both {_DOES[b.kind].removesuffix('s')} {place}"
    return f"{both} ({put[0]} and {put[1]})" if put else both


def _name(event: Access) -> str:
    return event.pointer.name or "array"


def _lane(event: Access, pair: _Pair) -> str:
    return f"lane {event.lane}" + ("" if pair.inside else f" of group {event.group}")


_AMONG_ATOMICS = (
    "put a `tbarrier()` between the two in one group, or order them by atomics of one flag: a"
    " `release` after the one, an `acquire` before the other"
)


def _help(pair: _Pair, definitions: Mapping[Value, Operation]) -> str:
    name = _name(pair.a)
    if pair.by_scope:
        return 'write `scope="device"`'
    if pair.a.kind == "atomic" or pair.b.kind == "atomic":
        return _AMONG_ATOMICS
    if pair.b.writes:
        return "let one lane write, or give each lane an element of its own"
    made = pair.b.kind == "read" and is_made_of(pair.a.operation, pair.b.operation, definitions)
    if pair.update and not made:
        return "keep it in a variable of the lane, or give each lane an element of its own"
    if pair.update:
        atomic = atomic_of(pair.a.operation, pair.b.operation, definitions)
        if atomic:
            return f"`atomic_{atomic}({name}[...], ...)` loses no update"
        return (
            "no one atomic does this update: repeat `atomic_cas` until it finds the element that"
            " was computed with (`tesserac explain T0414` shows the loop), or let one lane do all"
        )
    if pair.inside and made:
        return (
            "read what is needed into variables, put a `tbarrier()` behind that, and write then; if"
            f" lanes of several groups touch these elements, write to another array than `{name}`"
        )
    if pair.inside:
        return "put a `tbarrier()` between the two, where every lane of the group gets to it"
    return f"write to another array than `{name}`, or make two launches of it"
