"""One lane of one launch, number by number: what it surely touches of shared memory, or of arrays.

The second opinion on what ``lane_walk`` suspects: written apart from it, without masks and
symbols. What depends on data is not known and is left out; where that decides about a barrier
or an exit, the trace ends. Must not know what is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Protocol, cast

from tessera_lang.analysis.lanes.hand_overs import Sync, element_of, is_sync
from tessera_lang.analysis.lanes.lane_rules import INTEGERS, UNARY, wrap
from tessera_lang.analysis.lanes.shared_access_log import BUFFER_AT, KINDS, Kind
from tessera_lang.ir.core import BufferType, Operation, Region, Value
from tessera_lang.ir.definitions import (
    EXITS,
    LEAVES,
    OUTER_EXITS,
)
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import DType

_STEPS = 20_000  # operations of one lane
_TURNS = 2  # of a loop that data end
_ALL_STEPS = 150_000  # operations of all lanes that are traced for a kernel
_FAR = 1 << 62
_EXACT, _EXACT_IN_16 = 1 << 24, 1 << 8  # whole numbers that floats of 32 and of 16 bits have
COMPARED: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
_Number = int | None
Compute = Callable[["Trace"], None]
Step = tuple[str, Operation, Compute | None]
"""``access``, ``exit``, ``barrier``, ``fence`` or ``control``; or what computes a number."""


@dataclass(frozen=True, slots=True)
class Event:
    """An access that surely happens. ``interval`` counts the barriers before it, ``time`` the
    operations; ``rounds``
    are the loops around it with the number of the iteration. ``value``: an integer stored,
    or the operation that makes a constant; None if not known."""

    interval: int
    operation: Operation
    kind: Kind
    buffer: Value
    cell: int
    value: object
    rounds: tuple[tuple[Operation, int], ...]
    time: int


@dataclass(slots=True)
class Effort:
    """Operations that may still be traced for a kernel, and what is known of it by then: its
    atomics and fences, and loops with whether they are passed over."""

    left: int = _ALL_STEPS
    syncs: list[Operation] | None = None
    plain: dict[Operation, bool] = field(default_factory=dict[Operation, bool])

    def syncs_of(self, kernel: Operation) -> list[Operation]:
        if self.syncs is None:
            self.syncs = [o for o in kernel.walk() if is_sync(o)]
        return self.syncs


@dataclass(frozen=True, slots=True)
class Traced:
    """Accesses that surely happen, in order. ``omitted``: buffers that what was left out may
    write; ``whole``: intervals before this number were seen to their end; ``syncs``: atomics and
    fences, those in what was left out too; ``last``: the barriers that it comes to, many if the
    end is not known."""

    events: list[Event]
    omitted: frozenset[Value]
    whole: int
    syncs: list[Sync]
    last: int

    @property
    def ends(self) -> bool:
        """Whether the lane was followed to its end."""
        return self.whole == _FAR


class WayUnknown(Exception):
    """What the lane does from here on is not known, or does not count."""


class Watch(Protocol):
    """Who looks at the accesses to arrays that a lane does."""

    def matters(self, operation: Operation) -> bool:
        """Whether an operation must not be passed over in a loop that gives only floats."""
        ...

    def see(self, trace: Trace, operation: Operation) -> None:
        """Called at each operation without regions. May raise WayUnknown."""
        ...

    def passed_over(self, operation: Operation) -> None:
        """Called at each operation of what depends on data. May raise WayUnknown."""
        ...


@dataclass(frozen=True, slots=True)
class Launch:
    """Numbers of one launch: of the kernel's arguments, groups along each axis (none: not known),
    and which of them the lanes are in."""

    arguments: Mapping[Value, int]
    groups: tuple[int, ...]
    text: str
    group: int = 0


@dataclass(frozen=True, slots=True)
class Steps:
    """The operations of each region that are looked at, made ready, and the constants."""

    of: Mapping[Region, Sequence[Step]]
    constants: Mapping[Value, object]


@dataclass(slots=True)
class Trace:
    """A lane on its way: the numbers that it has, the barriers it has passed, its loops.
    ``both_ways``: whether it goes every way where data say which; ``possible``: above 0 where it
    only comes if data say so."""

    launch: Launch
    group: tuple[int, ...]
    lane: int
    effort: Effort
    watch: Watch | None = None
    values: dict[Value, object] = field(default_factory=dict[Value, object])
    events: list[Event] = field(default_factory=list[Event])
    interval: int = 0
    until: int = _FAR
    omitted: set[Value] = field(default_factory=set[Value])
    steps: int = _STEPS
    rounds: list[tuple[Operation, int]] = field(default_factory=list[tuple[Operation, int]])
    syncs: list[Sync] = field(default_factory=list[Sync])
    ready: Steps | None = None
    both_ways: bool = False
    possible: int = 0

    @property
    def time(self) -> int:
        """Operations so far."""
        return -self.steps

    def is_plain(self, loop: Operation) -> bool:
        found = self.effort.plain.get(loop)
        if found is None:
            found = self.effort.plain[loop] = _is_plain_loop(loop, self.watch)
        return found

    def number(self, value: Value) -> _Number:
        found = self.values.get(value)
        return int(found) if isinstance(found, int) else None

    def numbers(self, values: tuple[Value, ...]) -> list[object]:
        return [self.values.get(v) for v in values]

    def put(self, values: tuple[Value, ...], numbers: list[object]) -> None:
        for value, number in zip(values, numbers, strict=True):
            self.values[value] = number

    def region(self, region: Region) -> tuple[str, list[object]]:
        """Run to the terminator: its name and values."""
        if self.ready is not None:
            return self._ready(self.ready.of[region])
        for operation in region.operations:
            self.steps -= 1
            if self.steps < 0:
                raise WayUnknown
            name = operation.name
            if name in EXITS:
                return self._exit(operation)
            does = operation.regions or name in BUFFER_AT or is_sync(operation)
            if does or name == "tile.barrier":
                left = self._does(operation)
                if left is not None:
                    return left
            elif len(operation.results) == 1 and isinstance(operation.result.type, DType):
                self.values[operation.result] = self.compute(operation)
        raise WayUnknown

    def _ready(self, steps: Sequence[Step]) -> tuple[str, list[object]]:
        for kind, operation, compute in steps:
            self.steps -= 1
            if compute is not None:
                compute(self)
            elif kind == "exit":
                return self._exit(operation)
            else:
                if self.steps < 0:
                    raise WayUnknown
                left = self._does(operation)
                if left is not None:
                    return left
        raise WayUnknown

    def _exit(self, operation: Operation) -> tuple[str, list[object]]:
        if self.watch is not None:
            self.watch.see(self, operation)
        return operation.name, self.numbers(operation.operands)

    def _does(self, operation: Operation) -> tuple[str, list[object]] | None:
        """An access, a barrier, a fence, or control: how that leaves the region, if it does."""
        name = operation.name
        if is_sync(operation):
            element = element_of(operation, self.number)
            self.syncs.append(Sync(self.time, self.interval, operation, element, False))
        if operation.regions:
            rule = _CONTROL.get(name)
            if rule is None:
                raise WayUnknown
            return rule(self, operation)
        if self.watch is not None:
            self.watch.see(self, operation)
        if name == "tile.barrier":
            self.interval += 1
            if self.interval > self.until:
                raise WayUnknown
        elif name in BUFFER_AT and self.watch is None and _is_of_buffer(operation):
            self.touch(operation)
        return None

    def touch(self, operation: Operation) -> None:
        at = BUFFER_AT[operation.name]
        buffer, indices = operation.operands[at], operation.operands[at + 1 :]
        cell = 0
        for index, extent in zip(indices, cast("BufferType", buffer.type).shape, strict=True):
            number = self.number(index)
            if number is None and KINDS[operation.name] != "read":
                self.omitted.add(buffer)
            if number is None or not 0 <= number < extent:
                return
            cell = cell * extent + number
        value = self.values.get(operation.operands[0]) if operation.name == "tile.store" else None
        self.events.append(
            Event(
                self.interval, operation, KINDS[operation.name], buffer, cell, value,
                tuple(self.rounds), self.time,
            )
        )  # fmt: skip

    def compute(self, operation: Operation) -> object:
        dtype = cast("DType", operation.result.type)
        name = operation.name.removeprefix("tile.")
        match name:
            case "constant":
                value = operation.attributes["value"]
                return repr(value) if dtype.is_float else value
            case "lane_linear":
                return self.lane
            case "lane_index":
                return self._lane_index(cast("int", operation.attributes["axis"]))
            case "group_linear":
                return self.launch.group
            case "group_index":
                return self._group_index(cast("int", operation.attributes["axis"]))
            case "group_count":
                return self._count(cast("int", operation.attributes.get("axis", -1)))
            case "select":
                condition, a, b = self.numbers(operation.operands)
                return None if condition is None else a if condition else b
            case _:
                pass
        numbers = [self.number(o) for o in operation.operands]
        return None if None in numbers else self._computed(operation, name, dtype, numbers)

    def _computed(
        self, operation: Operation, name: str, dtype: DType, numbers: list[_Number]
    ) -> object:
        known = cast("list[int]", numbers)
        if name == "cmp":
            predicate = cast("str", operation.attributes["predicate"])
            return COMPARED[predicate](known[0], known[1])
        if dtype.is_float:
            return whole_float(operation, known[0]) if name == "cast" else None
        if name == "cast":
            return known[0] != 0 if dtype.kind == "bool" else wrap(known[0], dtype)
        if dtype.kind == "bool":
            if name == "not":
                return not known[0]
            return bool(INTEGERS[name](known[0], known[1], 1) & 1) if name in INTEGERS else None
        if name in INTEGERS:
            return wrap(INTEGERS[name](known[0], known[1], dtype.bits), dtype)
        return wrap(UNARY[name](known[0]), dtype) if name in UNARY else None

    def _lane_index(self, axis: int) -> int:
        if axis >= len(self.group):
            return 0
        return self.lane // prod(self.group[axis + 1 :]) % self.group[axis]

    def _group_index(self, axis: int) -> int:
        groups = self.launch.groups
        if axis >= len(groups):
            return 0
        return self.launch.group // prod(groups[axis + 1 :]) % groups[axis]

    def _count(self, axis: int) -> _Number:
        groups = self.launch.groups
        if not groups:
            return None
        return prod(groups) if axis < 0 else groups[axis] if axis < len(groups) else 1

    def skip(self, operation: Operation) -> None:
        """Leave out what depends on data, if the lane surely comes out behind it."""
        if self.both_ways:
            self._each_way(operation)
            return
        if operation.holds(("tile.barrier", *LEAVES)):
            raise WayUnknown
        made: dict[Value, Operation | None] = {v: o for o in operation.walk() for v in o.results}
        made.update((v, None) for o in operation.walk() for r in o.regions for v in r.arguments)

        def within(value: Value) -> _Number:
            if value not in made:
                return self.number(value)
            o = made[value]  # of another iteration, or of none, where it is no constant
            held = o.attributes["value"] if o is not None and o.name == "tile.constant" else None
            return held if isinstance(held, int) else None

        for inner in operation.walk():
            self.steps -= 1
            if self.watch is not None:
                self.watch.passed_over(inner)
            if is_sync(inner):
                element = element_of(inner, within)
                self.syncs.append(Sync(self.time, self.interval, inner, element, True))
            if inner.name in BUFFER_AT and KINDS[inner.name] != "read":
                self.omitted.add(inner.operands[BUFFER_AT[inner.name]])
        self.put(operation.results, [None] * len(operation.results))

    def _each_way(self, operation: Operation) -> None:
        """Go every way of what depends on data, loops for some iterations. Behind an exit the lane
        only comes if data say so."""
        self.possible += 1
        for region in operation.regions[-2:] if operation.name == "tile.if" else ():
            self.region(region)
        if operation.name == "tile.for":
            self._first_turns(operation)
        elif operation.name == "tile.while":
            carried = self.numbers(operation.regions[0].terminator.operands[1:])
            for _ in range(_TURNS):
                self.put(operation.regions[1].arguments, carried)
                name, carried = self.region(operation.regions[1])
                if name in LEAVES:
                    break
                self.put(operation.regions[0].arguments, carried)
                _, (_, *carried) = self.region(operation.regions[0])
        self.put(operation.results, [None] * len(operation.results))
        if not operation.holds(LEAVES):
            self.possible -= 1

    def _first_turns(self, loop: Operation) -> None:
        """Of a loop whose bounds are not all known: nothing where it is not known how it begins."""
        lower, upper, step = (self.number(o) for o in loop.operands[:3])
        carried, region = self.numbers(loop.operands[3:]), loop.regions[0]
        if self.is_plain(loop) or lower is None or step is None:
            return
        for j in range(_TURNS):
            if upper is not None and lower + j * step >= upper:
                return
            self.put(region.arguments, [lower + j * step, *carried])
            name, carried = self.region(region)
            if name in LEAVES and name != "tile.continue":
                return


def whole_float(cast_: Operation, number: object) -> str | None:
    """An integer as a float that has it exactly, written as a literal is."""
    bits = cast("DType", cast_.result.type).bits
    most = _EXACT if bits >= 32 else _EXACT_IN_16 if bits == 16 else 0
    if not isinstance(number, int) or not cast("DType", cast_.result.type).is_float:
        return None
    return repr(float(number)) if abs(number) <= most else None


_Left = tuple[str, list[object]] | None


def _if(trace: Trace, operation: Operation) -> _Left:
    condition = trace.number(operation.operands[0])
    if condition is None:
        trace.skip(operation)
        return None
    name, values = trace.region(operation.regions[0 if condition else 1])
    if name != "tile.yield":
        return name, values
    trace.put(operation.results, values)
    return None


def _scope(trace: Trace, operation: Operation) -> _Left:
    name, values = trace.region(operation.regions[0])
    if name != "tile.leave":
        return name, values
    trace.put(operation.results, values)
    return None


def _for(trace: Trace, operation: Operation) -> _Left:
    lower, upper, step = (trace.number(o) for o in operation.operands[:3])
    carried = trace.numbers(operation.operands[3:])
    if lower is None or upper is None or step is None or trace.is_plain(operation):
        trace.skip(operation)
        return None
    region = operation.regions[0]
    for j, i in enumerate(range(lower, upper, step) if step else ()):
        trace.rounds.append((operation, j))
        trace.put(region.arguments, [i, *carried])
        name, carried = trace.region(region)
        trace.rounds.pop()
        if name in OUTER_EXITS:
            return name, carried
        if name == "tile.break":
            break
    trace.put(operation.results, carried)
    return None


def _is_of_buffer(operation: Operation) -> bool:
    return isinstance(operation.operands[BUFFER_AT[operation.name]].type, BufferType)


def _is_plain_loop(operation: Operation, watch: Watch | None) -> bool:
    """Whether a loop gives only floats and touches nothing of interest."""
    if any(cast("DType", v.type).is_integer for v in operation.results):
        return False
    return not any(
        o.name in ("tile.barrier", *LEAVES)
        or (watch.matters(o) if watch else o.name in BUFFER_AT and _is_of_buffer(o))
        for o in operation.walk()
    )


def _while(trace: Trace, operation: Operation) -> _Left:
    head, body = operation.regions
    carried = trace.numbers(operation.operands)
    j = 0
    while True:
        trace.put(head.arguments, carried)
        _, (condition, *carried) = trace.region(head)
        if condition is None:
            trace.skip(operation)  # further iterations, if any, change results only
            return None
        if not condition:
            break
        trace.put(body.arguments, carried)
        trace.rounds.append((operation, j))
        name, carried = trace.region(body)
        trace.rounds.pop()
        j += 1
        if name in OUTER_EXITS:
            return name, carried
        if name == "tile.break":
            break
    trace.put(operation.results, carried)
    return None


_CONTROL: dict[str, Callable[[Trace, Operation], _Left]] = {
    "tile.if": _if, "tile.scope": _scope, "tile.for": _for, "tile.while": _while,
}  # fmt: skip


def _unknown(value: Value) -> _Number:
    return None


def trace_lane(
    kernel: Operation, launch: Launch, lane: int, effort: Effort, until: int = _FAR,
    watch: Watch | None = None, ready: Steps | None = None, ways: bool = False,
) -> Traced:  # fmt: skip
    """What a lane of the launch's group does, up to the end of the interval ``until``. ``ready``:
    the operations that are looked at, where that is not all. ``ways``: every way where data say
    which."""
    group = kernel.integers("group")
    steps = min(_STEPS, effort.left)
    trace = Trace(launch, group, lane, effort, watch, until=until, steps=steps)
    trace.ready, trace.both_ways = ready, ways
    if ready is not None:
        trace.values.update(ready.constants)
    trace.values.update(launch.arguments)
    whole = _FAR
    try:
        trace.region(kernel.regions[0])
    except WayUnknown:
        whole = trace.interval
        anything = (
            Sync(_FAR, -1, o, element_of(o, _unknown), True) for o in effort.syncs_of(kernel)
        )
        trace.syncs.extend(anything)
    effort.left -= steps - max(0, trace.steps)
    last = trace.interval if whole == _FAR else _FAR
    return Traced(trace.events, frozenset(trace.omitted), whole, trace.syncs, last)
