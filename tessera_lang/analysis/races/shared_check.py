"""The check of shared memory: races between two barriers, and reads of what nobody wrote.

Owns T0410 to T0413 and the verdict on a kernel. An error is only what two lanes of a stated
launch surely do; what is neither proved nor shown is a warning that has to be asked for. Must
not know how the accesses are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Literal, cast

from tessera_lang.analysis.lanes.concrete_lane import Effort, Event, Launch, trace_lane
from tessera_lang.analysis.lanes.hand_overs import Orders, Sync, hands_over
from tessera_lang.analysis.lanes.lane_walk import GivesUp, walk_lanes
from tessera_lang.analysis.lanes.launch_samples import sample_launches
from tessera_lang.analysis.lanes.shared_access_log import (
    BUFFER_AT,
    Record,
    SharedMemory,
    Suspicion,
    Unwritten,
    reads_first,
)
from tessera_lang.analysis.lanes.unknown_accesses import untraced
from tessera_lang.analysis.races.hand_over_races import Runs, report
from tessera_lang.analysis.races.run_records import Meeting
from tessera_lang.analysis.races.updates import is_made_of
from tessera_lang.analysis.ranges.integer_ranges import Ranges, ranges
from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity, uniformity
from tessera_lang.diagnostics import Diagnostic, Label
from tessera_lang.ir.core import BufferType, Operation, Value
from tessera_lang.ir.definitions import BUFFERS
from tessera_lang.ir.tile.tile_ops import TILE_LEVEL_OPS
from tessera_lang.record import dataclass, field
from tessera_lang.target.launch_plan import LaunchPlan

Verdict = Literal["none", "proved", "witness", "not proved"]
Question = Literal["meet", "read"]
_OF_TILES = frozenset(definition.name for definition in TILE_LEVEL_OPS)
_MAX_LANES = 16  # that are traced for a suspicion of a race
_MAX_SUSPECTS = 8  # reads for which all lanes are traced


@dataclass(frozen=True, slots=True)
class Open:
    """What is not proved: whether lanes ``meet``, or whether what is ``read`` was written, in a
    buffer or an array (None: in all buffers)."""

    question: Question
    where: Value | None
    said: Diagnostic


@dataclass(slots=True)
class SharedMemoryCheck:
    """What was found about a kernel. ``races`` and ``unwritten``: "none" where it has no
    shared memory."""

    races: Verdict
    unwritten: Verdict
    errors: list[Diagnostic] = field(default_factory=list[Diagnostic])
    open: list[Open] = field(default_factory=list[Open])
    notes: list[Diagnostic] = field(default_factory=list[Diagnostic])

    @property
    def unproved(self) -> list[Diagnostic]:
        return [*(o.said for o in self.open), *self.notes]


def check_shared(
    kernel: Operation, plan: LaunchPlan, uniform: Uniformity | None = None,
    known: Ranges | None = None, runs: Runs | None = None,
) -> SharedMemoryCheck:  # fmt: skip
    """The check of a kernel whose barriers every lane gets to."""
    if not kernel.holds(BUFFERS):
        return SharedMemoryCheck("none", "none")
    if any(_by_tiles(o) for o in kernel.walk()):
        return SharedMemoryCheck("not proved", "not proved")
    uniform = uniform or uniformity(kernel)
    runs = runs or Runs(kernel, plan, uniform)
    launches = list(sample_launches(kernel, plan))
    numbers = launches[0].arguments if launches else ()
    try:
        memory = walk_lanes(
            kernel, uniform, known or ranges(kernel), untraced(kernel, numbers),
        )  # fmt: skip
    except GivesUp as stop:
        return SharedMemoryCheck("not proved", "not proved", [], [
            Open("meet", None, _gave_up(kernel, stop))
        ])  # fmt: skip
    found = SharedMemoryCheck("proved", "proved")
    _races(found, kernel, launches, memory, uniform, runs)
    _unwritten(found, kernel, launches, memory)
    found.notes.extend(_same_value(o) for o in memory.same_value)
    return found


@dataclass(frozen=True, slots=True)
class Unproved:
    """Buffers of which a verdict is not "proved", without a look for witnesses."""

    races: frozenset[Value]
    reads: frozenset[Value]


def unproved_buffers(kernel: Operation, known: Ranges) -> Unproved:
    every = frozenset(o.result for o in kernel.walk() if o.name in BUFFERS)
    if any(_by_tiles(o) for o in kernel.walk()):
        return Unproved(every, every)
    try:
        memory = walk_lanes(kernel, uniformity(kernel), known)
    except GivesUp:
        return Unproved(every, every)
    return Unproved(
        frozenset(
            s.first.operation.operands[BUFFER_AT[s.first.operation.name]] for s in memory.suspicions
        ),
        frozenset(memory.uncertain_reads.values()),
    )


def _by_tiles(operation: Operation) -> bool:
    """Whether a group uses a buffer together: who put the barriers there is the compiler, and
    this check, which is of lanes, has nothing to say."""
    of_tiles = operation.name in _OF_TILES
    return of_tiles and any(isinstance(v.type, BufferType) for v in operation.operands)


# --- races --------------------------------------------------------------------------------


def _races(
    found: SharedMemoryCheck, kernel: Operation, launches: Sequence[Launch], memory: SharedMemory,
    uniform: Uniformity, runs: Runs,
) -> None:  # fmt: skip
    if not memory.suspicions:
        return
    found.races = "not proved"
    open_ = {_buffer(s.second.operation) for s in memory.suspicions}

    def is_open(meeting: Meeting) -> bool:
        alike = meeting.second.operation in memory.same_value and meeting.both_write
        return meeting.second.root in open_ and not alike

    for shown in runs.shown(is_open):
        if len(shown.begins) <= 1:
            found.races = "witness"
            found.errors.append(report(shown, "T0410", "error"))
    if not found.errors and not any(run.whole for run in runs.done):
        _shown_by_lanes(found, kernel, launches, memory, uniform)
    if not found.errors:
        found.open.extend(
            Open("meet", _buffer(s.second.operation), _not_proved(s)) for s in memory.suspicions
        )


def _shown_by_lanes(
    found: SharedMemoryCheck, kernel: Operation, launches: Sequence[Launch], memory: SharedMemory,
    uniform: Uniformity,
) -> None:  # fmt: skip
    lanes = _lanes_to_try(memory)
    effort = Effort()
    shown = [s for s in memory.suspicions if memory.can_show(s.first.operation, s.second.operation)]
    for launch in launches if shown else ():
        traces = {lane: trace_lane(kernel, launch, lane, effort).events for lane in lanes}
        orders = _Orders(kernel, launch, effort)
        for together in _by_place(_meetings(traces, orders, uniform)):
            found.races = "witness"
            found.errors.append(_race(launch, together, uniform.definitions))
        if found.errors:
            return


def _buffer(operation: Operation) -> Value:
    return operation.operands[BUFFER_AT[operation.name]]


def _lanes_to_try(memory: SharedMemory) -> list[int]:
    """Lanes that evaluation found, then the ends of the group and of its warps."""
    lanes: dict[int, None] = {}
    for suspicion in memory.suspicions:
        if suspicion.lanes is not None and len(lanes) < _MAX_LANES:
            lanes.update(dict.fromkeys(suspicion.lanes))
    last = memory.space.lanes - 1
    for lane in (0, 1, 2, last, last - 1, 31, 32, 33, last // 2, last // 2 + 1):
        if 0 <= lane <= last and len(lanes) < _MAX_LANES:
            lanes[lane] = None
    return sorted(lanes)


@dataclass(slots=True)
class _Orders:
    """Orders that atomics and fences may make between two barriers; all lanes are followed once
    it is asked for the first time."""

    kernel: Operation
    launch: Launch
    effort: Effort
    syncs: dict[int, list[Sync]] | None = None
    followed: int = 1 << 62
    known: dict[int, Orders] = field(default_factory=dict[int, Orders])

    def may_order(self, a: Event, b: Event, lanes: tuple[int, int]) -> bool:
        if self.syncs is None:
            every = range(prod(self.kernel.integers("group"))) if hands_over(self.kernel) else ()
            traced = {i: trace_lane(self.kernel, self.launch, i, self.effort) for i in every}
            self.syncs = {i: t.syncs for i, t in traced.items()}
            self.followed = min((t.whole for t in traced.values()), default=self.followed)
        if not self.syncs:
            return False
        if a.interval >= self.followed:
            return True  # what the lanes come to there is not known
        orders = self.known.get(a.interval)
        if orders is None:
            orders = self.known[a.interval] = Orders({
                (0, i): [s for s in found if s.interval in (a.interval, -1)]
                for i, found in self.syncs.items()
            })  # fmt: skip
        first, second = ((0, lane) for lane in lanes)
        return orders.may_order(first, a.time, second, b.time) or orders.may_order(
            second, b.time, first, a.time
        )


def _meetings(
    traces: dict[int, list[Event]], orders: _Orders, uniform: Uniformity
) -> Iterator[tuple[Event, Event, tuple[int, int]]]:
    """One pair of conflicting accesses for each pair of operations, each of another lane."""
    places: dict[tuple[int, Value, int], list[tuple[int, Event]]] = {}
    for lane, events in traces.items():
        for event in events:
            places.setdefault((event.interval, event.buffer, event.cell), []).append((lane, event))
    reported: set[frozenset[Operation]] = set()
    for accesses in places.values():
        if len(accesses) < 2 or all(e.kind == "read" for _, e in accesses):
            continue
        for i, (lane, event) in enumerate(accesses):
            for other, later in accesses[i + 1 :]:
                pair = frozenset((event.operation, later.operation))
                if other == lane or pair in reported or not _conflict(event, later, uniform):
                    continue
                if not orders.may_order(event, later, (lane, other)):
                    reported.add(pair)
                    yield event, later, (lane, other)


_Meeting = tuple[Event, Event, tuple[int, int]]


def _by_place(meetings: Iterable[_Meeting]) -> Iterable[list[_Meeting]]:
    """Together those in one buffer between the same two barriers: one barrier too few makes
    many."""
    found: dict[tuple[Value, int], list[_Meeting]] = {}
    for meeting in meetings:
        found.setdefault((meeting[0].buffer, meeting[0].interval), []).append(meeting)
    return found.values()


def _conflict(a: Event, b: Event, uniform: Uniformity) -> bool:
    if a.kind == b.kind == "write":
        if a.value is None and a.operation is b.operation and a.rounds == b.rounds:
            return not uniform.is_uniform(a.operation.operands[0])
        return a.value is None or a.value != b.value
    return "write" in (a.kind, b.kind) or {a.kind, b.kind} == {"read", "atomic"}


def _race(
    launch: Launch, together: Sequence[_Meeting], definitions: Mapping[Value, Operation]
) -> Diagnostic:
    """The first of these in full."""
    a, b, lanes = together[0]
    rounds = (_apart_by_rounds(x, y) for x, y, _ in together)
    around, more = next((r for r in rounds if r is not None), None), len(together) - 1
    if a.kind == "write" and b.kind != "write":
        (a, b), lanes = (b, a), (lanes[1], lanes[0])
    place = f"`{_cell(b.buffer, b.cell)}`"
    one = "both write" if a.kind == b.kind == "write" else "one of them writes"
    message = (
        f"lanes {lanes[0]} and {lanes[1]} touch {place} without a barrier between them, and {one}"
    )
    labels: tuple[Label, ...] = ()
    if a.operation.span is not None and a.operation.span != b.operation.span:
        labels = (Label(a.operation.span, f"lane {lanes[0]} {_does(a)} {place} here"),)
    notes = [f"this happens in group 0 of a launch with {launch.text}"] if launch.text else []
    if around is not None:
        notes.append(
            "the loop brings the end of one iteration together with the start of the next: "
            f"iterations {around[0]} and {around[1]}, counted from 0"
        )
    if more:
        pairs = (
            "1 more pair of accesses meets" if more == 1 else f"{more} more pairs of accesses meet"
        )
        notes.append(f"{pairs} in `{b.buffer.name}` between the same two barriers")
    return Diagnostic(
        "T0410", message, b.operation.span, f"{_acts(a, b, lanes, place)} here",
        labels=labels, notes=tuple(notes), helps=(_help(a, b, around is not None, definitions),),
    )  # fmt: skip


def _help(a: Event, b: Event, around: bool, definitions: Mapping[Value, Operation]) -> str:
    """No barrier comes between what lanes do in one statement, but for two iterations."""
    if a.operation is not b.operation:
        if a.kind == "read" and b.kind == "write" and not around:
            if is_made_of(b.operation, a.operation, definitions):
                return (
                    "read what is needed into variables, put a `tbarrier()` behind that, and write"
                    " then, with one more `tbarrier()` before it is read again"
                )
        return "put a `tbarrier()` between the two, where every lane of the group gets to it"
    apart = "let one lane write, or give each lane an element of its own"
    return apart + (", or put a `tbarrier()` into the loop" if around else "")


def _acts(a: Event, b: Event, lanes: tuple[int, int], place: str) -> str:
    """What is done at the place of ``b``: by both lanes where they do it in one place."""
    second = f"lane {lanes[1]} {_does(b)} {place}"
    if a.operation.span != b.operation.span:
        return second
    if a.kind == b.kind:
        return f"lanes {lanes[0]} and {lanes[1]} both {_does(b).removesuffix('s')} {place}"
    return f"{second}, and lane {lanes[0]} {_does(a)} it"


def _does(event: Event) -> str:
    return {"read": "reads", "write": "writes", "atomic": "updates"}[event.kind]


def _apart_by_rounds(a: Event, b: Event) -> tuple[int, int] | None:
    """The numbers of the iterations, where the accesses are in two of one loop."""
    for (loop, i), (other, j) in zip(a.rounds, b.rounds, strict=False):
        if loop is not other:
            return None
        if i != j:
            return min(i, j), max(i, j)
    return None


def _cell(buffer: Value, cell: int) -> str:
    t = cast("BufferType", buffer.type)
    places: list[str] = []
    for extent in reversed(t.shape):
        places.append(str(cell % extent))
        cell //= extent
    if t.space == "local":
        places = places[1:]  # whose it is, is not said in the source
    return f"{buffer.name or 'shared memory'}[{', '.join(reversed(places))}]"


# --- reads of what nobody wrote -----------------------------------------------------------


def _unwritten(
    found: SharedMemoryCheck, kernel: Operation, launches: Sequence[Launch], memory: SharedMemory
) -> None:
    if not memory.uncertain_reads:
        return
    found.unwritten = "not proved"
    reported: set[Operation] = set()
    effort = Effort()
    for suspect in memory.unwritten[:_MAX_SUSPECTS]:
        operation = suspect.record.operation
        if operation in reported:
            continue
        buffer = operation.operands[BUFFER_AT[operation.name]]
        never = not memory.may_write(buffer, suspect.cell)
        if any(_is_unwritten(kernel, launch, suspect, never, effort) for launch in launches):
            reported.add(operation)
            found.unwritten = "witness"
            found.errors.append(never_written(operation, suspect.lane, _cell(buffer, suspect.cell)))
    for operation in memory.uncertain_reads:
        if operation not in reported:
            found.open.append(Open("read", _buffer(operation), _maybe_unwritten(operation)))


def _is_unwritten(
    kernel: Operation, launch: Launch, suspect: Unwritten, never: bool, effort: Effort
) -> bool:
    """Whether the lane surely reads the cell, and surely no lane has written it before.
    ``never``: the walk of all lanes shows that none does."""
    operation = suspect.record.operation
    trace = trace_lane(kernel, launch, suspect.lane, effort)
    events = (i for i, e in enumerate(trace.events) if e.operation is operation)
    at = next((i for i in events if trace.events[i].cell == suspect.cell), None)
    if at is None or never:
        return at is not None
    read = trace.events[at]
    for lane in range(prod(kernel.integers("group"))):
        other = trace_lane(kernel, launch, lane, effort, read.interval)
        if read.buffer in other.omitted or other.whole <= read.interval:
            return False
        before = trace.events[:at] if lane == suspect.lane else other.events
        if any(_writes(e, read) for e in before if e.interval <= read.interval):
            return False
    return True


def _writes(event: Event, read: Event) -> bool:
    """Whether an event may write what is read. An update does not count: the first of all
    updates reads what nobody has written."""
    if event.buffer is not read.buffer or event.cell != read.cell or event.kind == "read":
        return False
    return not reads_first(event.operation)


def never_written(operation: Operation, lane: int, element: str, launch: str = "") -> Diagnostic:
    """``launch``: what is known of it, where this is not so in each."""
    buffer = operation.operands[BUFFER_AT[operation.name]]
    what, who, then = "shared memory", "no lane", ", then `tbarrier()`"
    if cast("BufferType", buffer.type).space == "local":
        what, who, then = "an array of a lane", "nothing", ""
    happens = (f"this happens, for example, in a launch with {launch}",) if launch else ()
    return Diagnostic(
        "T0411",
        f"lane {lane} reads `{element}`, and {who} has written it before",
        operation.span,
        "nothing has been written here yet",
        notes=(f"{what} holds anything until it is written", *happens),
        helps=(f"write every element of `{buffer.name}` that is read{then}",),
    )


# --- what is not proved -------------------------------------------------------------------


def _not_proved(suspicion: Suspicion) -> Diagnostic:
    first, second = suspicion.first, suspicion.second
    buffer = second.operation.operands[BUFFER_AT[second.operation.name]]
    labels: tuple[Label, ...] = ()
    if first.operation.span is not None and first.operation is not second.operation:
        labels = (Label(first.operation.span, "the other access"),)
    return Diagnostic(
        "T0412",
        f"it is not proved that lanes do not meet in `{buffer.name}` between two barriers",
        second.operation.span, _reason(first, second), "warning", labels=labels,
        notes=("no pair of lanes that surely meet was found either",),
        helps=("put a `tbarrier()` between the two, or write indices of the lane and of sizes that"
               " differ; `tesserac run --checked` watches the accesses of a run",),
    )  # fmt: skip


def _reason(first: Record, second: Record) -> str:
    if second.place is None or first.place is None:
        return "an index depends on data, or on more than the lane and sizes"
    return "the two indices may be equal in two lanes, as far as is known"


def _maybe_unwritten(operation: Operation) -> Diagnostic:
    buffer = operation.operands[BUFFER_AT[operation.name]]
    return Diagnostic(
        "T0412",
        f"it is not proved that what is read of `{buffer.name}` has been written",
        operation.span, "some of these elements may never have been written", "warning",
        helps=(f"write every element of `{buffer.name}` first, or read only under the condition of"
               " the write; `tesserac run --checked` watches the accesses of a run",),
    )  # fmt: skip


def _gave_up(kernel: Operation, stop: GivesUp) -> Diagnostic:
    return Diagnostic(
        "T0412",
        f"it is not proved that lanes do not meet in shared memory: {stop.reason}",
        stop.operation.span or kernel.span, "the check ended here", "warning",
    )  # fmt: skip


def _same_value(operation: Operation) -> Diagnostic:
    return Diagnostic(
        "T0413",
        "several lanes write one element, all of them the same value",
        operation.span, "this is allowed", "note",
    )  # fmt: skip
