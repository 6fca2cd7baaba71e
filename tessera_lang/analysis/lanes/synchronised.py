"""Accesses between two barriers that lanes surely do one after the other, by a pattern of atomics.

Three patterns are known, of a cell of shared memory whose place is a number:

- a **flag**: one lane stores it with a release, others wait in a loop for a value that nobody else
  puts there;
- a **count**: every lane adds 1 with a release, others wait until all have, or the last to come
  goes on alone;
- a **lock**: taken by a compare-and-swap or an exchange that acquires, given back by a store that
  releases.

All accesses of the cell are looked at; one that fits no pattern ends it. Must not know indices of
what is handed over, nor what is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from operator import eq, ge, gt, le, lt, ne
from typing import TypeAlias, cast

from tessera_lang.analysis.lanes.shared_access_log import BUFFER_AT, Record
from tessera_lang.ir.core import BufferType, Operation, Region, Value
from tessera_lang.ir.definitions import ATOMICS, LEAVES, LOOPS
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import DType

_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge,
}  # fmt: skip
_SWAPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_WIDE = ("group", "device", "mesh")
Cell: TypeAlias = tuple[Value, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Span:
    """Operations of one region, from behind ``first`` up to ``last`` (None: to its end), with all
    that is nested in them."""

    region: Region
    first: int
    last: int | None = None


@dataclass(frozen=True, slots=True)
class _HandOver:
    """What is done before ``given`` comes before what is in ``taken``; ``by``: stores that must be
    of the one lane that did it, none where every lane has done all before ``given``."""

    given: Operation
    taken: _Span
    by: tuple[Operation, ...]


class Synchronised:
    """``masks``: for each atomic the lanes that may do it."""

    def __init__(self, kernel: Operation, masks: Mapping[Operation, int]) -> None:
        self._masks = masks
        self._shape = _Shape(kernel)
        self._lanes = prod(kernel.integers("group"))
        self._hand_overs: list[_HandOver] = []
        self._locks: list[tuple[_Span, ...]] = []
        for atomics in self._shape.cells():
            self._lock(atomics)
            self._values(atomics)

    def __bool__(self) -> bool:
        return bool(self._hand_overs or self._locks)

    def ordered(self, first: Record, second: Record) -> bool:
        """Whether no lane of one and no lane of the other do this at once."""
        a, b = first.operation, second.operation
        if any(self._is_in(a, x) and self._is_in(b, y) for held in self._locks
               for x in held for y in held):  # fmt: skip
            return True
        return any(self._hands(o, first, b) or self._hands(o, second, a) for o in self._hand_overs)

    def _hands(self, over: _HandOver, done: Record, begun: Operation) -> bool:
        if not self._is_in(begun, over.taken) or not self._shape.comes_before(
            done.operation, over.given
        ):
            return False
        if not over.by:
            return True
        by = 0
        for store in over.by:
            by |= self._masks.get(store, 0)
        return by.bit_count() == 1 and done.mask.may == by

    def _is_in(self, operation: Operation, span: _Span) -> bool:
        """Also in what is nested; ``taken`` spans are in no loop that the other is not in."""
        at: Operation | None = operation
        while at is not None:
            place = self._shape.places.get(at)
            if place is None:
                return False
            parent, region, number = place
            if region is span.region:
                return span.first < number and (span.last is None or number < span.last)
            at = parent
        return False

    # --- patterns ---------------------------------------------------------------------------

    def _lock(self, atomics: list[Operation]) -> None:
        """Every way to take it and every way to give it back are known."""
        shape, held, ends = self._shape, list[_Span](), set[Operation]()
        free = {shape.value_put(o) for o in atomics if o.name == "tile.atomic_store"}
        if len(free) != 1 or None in free:
            return
        (value,) = cast("set[int]", free)
        back = {o for o in atomics if o.name == "tile.atomic_store"}
        starts = shape.starting_values(atomics[0])
        if starts is None or starts - {value}:
            return
        for taking in atomics:
            if taking in back:
                continue
            span = self._held(taking, value, back)
            if span is None:
                return
            held.append(span[0])
            ends.add(span[1])
        if ends == back:  # nobody gives back what it has not taken
            self._locks.append(tuple(held))

    def _held(
        self, taking: Operation, free: int, back: set[Operation]
    ) -> tuple[_Span, Operation] | None:
        """What is done with the lock that ``taking`` takes: all up to where it is given back."""
        shape = self._shape
        if shape.value_put(taking) in (free, None):
            return None
        if taking.name == "tile.atomic_cas" and shape.number(taking.operands[0]) != free:
            return None
        span = shape.where_result(taking, lambda old: old == free, {free})
        if span is None:
            return None
        operations = span.region.operations
        inside = range(span.first + 1, len(operations))
        ends = [i for i in inside if operations[i] in back]
        if not ends:
            return None
        given = operations[ends[0]]
        mine = shape.taken(taking, _Span(span.region, span.first, ends[0]))
        end = shape.given(given)
        if mine is None or end is None or any(self._is_in(o, mine) for o in back):
            return None
        return _Span(mine.region, mine.first, shape.places[end][2]), given

    def _values(self, atomics: list[Operation]) -> None:
        """Flags and counts: what a cell holds says what has been done."""
        shape = self._shape
        if not shape.is_of_one_part(atomics):
            return
        starts = shape.starting_values(atomics[0])
        if starts is None or len(starts) != 1:
            return
        (start,) = starts
        writers = [o for o in atomics if o.name != "tile.atomic_load"]
        for reading in atomics:
            if reading.name == "tile.atomic_store":
                continue
            self._flag(reading, start, writers)
            self._count(reading, start, writers)

    def _flag(self, reading: Operation, start: int, writers: list[Operation]) -> None:
        shape = self._shape
        if reading.name != "tile.atomic_load":
            return
        if any(o.name != "tile.atomic_store" or shape.value_put(o) is None for o in writers):
            return
        values = {o: cast("int", shape.value_put(o)) for o in writers}
        for span, passes in shape.decided_by(reading):
            by = tuple(o for o in writers if passes(values[o]))
            taken = shape.taken(reading, span)
            if passes(start) or len(by) != 1 or taken is None:
                continue
            given = shape.given(by[0])
            if given is not None:
                self._hand_overs.append(_HandOver(given, taken, by))

    def _count(self, reading: Operation, start: int, writers: list[Operation]) -> None:
        """After so many additions as there are lanes, each has added once."""
        shape = self._shape
        if len(writers) != 1 or start != 0:
            return
        (adding,) = writers
        dtype = adding.results[0].type if adding.results else None
        if adding.name != "tile.atomic" or adding.attributes["kind"] != "add":
            return
        if not isinstance(dtype, DType) or not dtype.is_integer or dtype.bits < 16:
            return
        if shape.number(adding.operands[0]) != 1 or shape.is_in_loop(adding):
            return
        given = shape.given(adding)
        most = self._lanes if reading is not adding else self._lanes - 1
        for span, passes in shape.decided_by(reading):
            taken = shape.taken(reading, span)
            if reading is adding and sum(map(passes, range(self._lanes))) == 1:
                self._locks.append((span,))  # each number comes once: one lane goes on
            if (
                given is not None
                and taken is not None
                and passes(most)
                and not any(map(passes, range(most)))
            ):
                self._hand_overs.append(_HandOver(given, taken, ()))


def unique_results(kernel: Operation) -> dict[Operation, object]:
    """Additions to a cell of shared memory, each with a key for the cell, of which no two give one
    number: between the same two barriers nothing else writes it."""
    if not any(isinstance(o.operands[1].type, BufferType) for o in kernel.nested("tile.atomic")):
        return {}
    shape, found = _Shape(kernel), dict[Operation, object]()
    for number, atomics in enumerate(shape.cells()):
        adding = [o for o in atomics if o.name != "tile.atomic_load"]
        if shape.is_of_one_part(atomics) and all(_counts_up(shape, o) for o in adding):
            found.update((o, ("unique", number)) for o in adding)
    return found


def filled_by_counts(kernel: Operation) -> dict[Operation, tuple[Value, ...]]:
    """Reads of how many lanes have counted, each with the buffers of which then so many elements
    are written from the first on: every 1 that is added to the cell is followed by a store at the
    number that this gives, a barrier stands behind, and nothing else changes the cell."""
    if not any(isinstance(o.operands[1].type, BufferType) for o in kernel.nested("tile.atomic")):
        return {}
    shape, found = _Shape(kernel), dict[Operation, tuple[Value, ...]]()
    for atomics in shape.cells():
        adding = [o for o in atomics if o.name != "tile.atomic_load"]
        if (
            not adding
            or not shape.is_of_one_part(atomics)
            or shape.starting_values(adding[0]) != {0}
        ):
            continue
        if not all(_counts_up(shape, o) and shape.number(o.operands[0]) == 1 for o in adding):
            continue
        filled = set(shape.stored_at(adding[0]))
        for other in adding[1:]:
            filled.intersection_update(shape.stored_at(other))
        counter, *place = adding[0].operands[1:]
        numbers = [shape.number(v) for v in place]
        for user in shape.users[counter] if filled else ():
            if user.name == "tile.load" and shape.is_behind(user, adding[0]):
                if numbers == [shape.number(v) for v in user.operands[1:]]:
                    found[user] = tuple(filled)
    return found


def _counts_up(shape: _Shape, operation: Operation) -> bool:
    if operation.name != "tile.atomic" or operation.attributes["kind"] != "add":
        return False
    dtype, number = operation.result.type, shape.number(operation.operands[0])
    wide = isinstance(dtype, DType) and dtype.is_integer and dtype.bits >= 32
    return wide and number is not None and number > 0


def widens(cast_: Operation) -> bool:
    """Whether a cast keeps different numbers different."""
    old, new = cast_.operands[0].type, cast_.result.type
    if not (isinstance(old, DType) and isinstance(new, DType)):
        return False
    return old.is_integer and new.is_integer and new.bits >= old.bits


def _is_wide_fence(operation: Operation) -> bool:
    return operation.name == "tile.fence" and operation.attributes["scope"] in _WIDE


def _takes(operation: Operation) -> bool:
    wide = operation.attributes["scope"] in _WIDE
    return wide and operation.attributes["order"] in ("acquire", "acq_rel")


def _gives(operation: Operation) -> bool:
    wide = operation.attributes["scope"] in _WIDE
    return wide and operation.attributes["order"] in ("release", "acq_rel")


@dataclass(slots=True)
class _Shape:
    """Where operations stand. ``places``: for each the operation around it (None: the kernel), its
    region and its number there; ``numbers`` count in the order of the text."""

    kernel: Operation
    places: dict[Operation, tuple[Operation | None, Region, int]] = field(
        default_factory=dict[Operation, "tuple[Operation | None, Region, int]"]
    )
    numbers: dict[Operation, int] = field(default_factory=dict[Operation, int])
    made: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    users: dict[Value, list[Operation]] = field(default_factory=dict[Value, list[Operation]])

    def __post_init__(self) -> None:
        for number, operation in enumerate(self.kernel.walk()):
            self.numbers[operation] = number
            for value in operation.results:
                self.made[value] = operation
            for value in operation.operands:
                self.users.setdefault(value, []).append(operation)
            for region in operation.regions:
                around = None if operation is self.kernel else operation
                for i, inner in enumerate(region.operations):
                    self.places[inner] = (around, region, i)

    def number(self, value: Value) -> int | None:
        made = self.made.get(value)
        held = made.attributes["value"] if made is not None and made.name == "tile.constant" else ""
        return int(held) if isinstance(held, int) else None

    def value_put(self, operation: Operation) -> int | None:
        """The number that an atomic stores, where it is one."""
        match operation.name:
            case "tile.atomic_store":
                return self.number(operation.operands[0])
            case "tile.atomic_cas":
                return self.number(operation.operands[1])
            case "tile.atomic" if operation.attributes["kind"] == "exchange":
                return self.number(operation.operands[0])
            case _:
                return None

    # --- cells ------------------------------------------------------------------------------

    def cells(self) -> Iterator[list[Operation]]:
        """The atomics of each cell of shared memory, where all of its buffer are at numbers."""
        found: dict[Cell, list[Operation]] = {}
        bad: set[Value] = set()
        for operation in self.kernel.walk():
            if operation.name not in BUFFER_AT:
                bad.update(v for v in operation.operands if isinstance(v.type, BufferType))
                continue
            at = BUFFER_AT[operation.name]
            buffer = operation.operands[at]
            if operation.name not in ATOMICS or not isinstance(buffer.type, BufferType):
                continue
            indices = [self.number(v) for v in operation.operands[at + 1 :]]
            inside = (
                i is not None and 0 <= i < n
                for i, n in zip(indices, buffer.type.shape, strict=True)
            )
            if not all(inside):
                bad.add(buffer)
                continue
            found.setdefault((buffer, cast("tuple[int, ...]", tuple(indices))), []).append(
                operation
            )
        for (buffer, _), atomics in found.items():
            if buffer not in bad:
                yield atomics

    def starting_values(self, atomic: Operation) -> set[int] | None:
        """The numbers that plain stores put into the buffer; None where one puts another value."""
        buffer = atomic.operands[BUFFER_AT[atomic.name]]
        found: set[int] = set()
        for operation in self.users.get(buffer, ()):
            if operation.name != "tile.store":
                continue
            value = self.number(operation.operands[0])
            if value is None:
                return None
            found.add(value)
        return found

    def is_of_one_part(self, atomics: list[Operation]) -> bool:
        """Whether all are between the same two barriers, which come once, and the plain stores of
        the buffer before them."""
        part = {self._part(o) for o in atomics}
        if len(part) != 1 or None in part:
            return False
        (mine,) = part
        buffer = atomics[0].operands[BUFFER_AT[atomics[0].name]]
        before = [self._part(o) for o in self.users[buffer] if o.name == "tile.store"]
        return all(p is not None and mine is not None and p < mine for p in before)

    def is_behind(self, operation: Operation, other: Operation) -> bool:
        """Whether it is behind a barrier that comes after the other, and comes once."""
        mine, before = self._part(operation), self._part(other)
        return mine is not None and before is not None and before < mine

    def stored_at(self, adding: Operation) -> Iterator[Value]:
        """Buffers into which a lane that adds surely stores then, at the number that it gets."""
        _, region, first = self.places[adding]
        numbers = {adding.result}
        for o in region.operations[first + 1 :]:
            if o.holds(LEAVES):
                return
            if o.name == "tile.cast" and o.operands[0] in numbers and widens(o):
                numbers.add(o.result)
            if o.name == "tile.store" and set(o.operands[2:]) <= numbers:
                if isinstance(o.operands[1].type, BufferType) and len(o.operands) == 3:
                    yield o.operands[1]

    def _part(self, operation: Operation) -> int | None:
        """How many barriers at the top stand before an operation; None in what has others."""
        at = operation
        while True:
            around, region, number = self.places[at]
            if around is None:
                top = region.operations[:number]
                nested = at.regions and at.holds("tile.barrier")
                return None if nested else sum(1 for o in top if o.holds("tile.barrier"))
            at = around

    def is_in_loop(self, operation: Operation) -> bool:
        return any(o.name in LOOPS for o in self._around(operation))

    def _around(self, operation: Operation) -> Iterator[Operation]:
        at = self.places[operation][0]
        while at is not None:
            yield at
            at = self.places[at][0]

    def comes_before(self, a: Operation, b: Operation) -> bool:
        """Whether a lane that does both does the first before the second, each time."""
        if self.numbers[a] >= self.numbers[b]:
            return False
        loops = {o for o in self._around(a) if o.name in LOOPS}
        return loops.isdisjoint(self._around(b)) and self._part(a) == self._part(b)

    # --- orders -----------------------------------------------------------------------------

    def given(self, writing: Operation) -> Operation | None:
        """What is done before this is released by an atomic: itself, or a fence before it."""
        if _gives(writing):
            return writing
        _, region, number = self.places[writing]
        fences = [o for o in region.operations[:number] if _is_wide_fence(o)]
        wide = writing.attributes["scope"] in _WIDE
        return fences[-1] if fences and wide else None

    def taken(self, reading: Operation, span: _Span) -> _Span | None:
        """The part of a span that comes after an acquire: of the atomic, or of a fence in it."""
        if _takes(reading):
            return span
        operations = span.region.operations
        if reading.attributes["scope"] in _WIDE:
            for i in range(span.first + 1, len(operations) if span.last is None else span.last):
                if _is_wide_fence(operations[i]):
                    return _Span(span.region, i, span.last)
        return None

    # --- what a result decides --------------------------------------------------------------

    def where_result(
        self, reading: Operation, holds: Callable[[int], bool], values: set[int]
    ) -> _Span | None:
        """Where lanes are for which the number read has a property, and no others."""
        for span, passes in self.decided_by(reading):
            near = {v + d for v in values for d in (-1, 0, 1)}
            if all(passes(v) == holds(v) for v in near):
                return span
        return None

    def decided_by(self, reading: Operation) -> list[tuple[_Span, Callable[[int], bool]]]:
        """Operations that a lane comes to only if the number it read passes a test: inside of an
        ``if``, and behind a loop that repeats the reading until it does."""
        found: list[tuple[_Span, Callable[[int], bool]]] = []
        for compare in self.users.get(reading.result, ()):
            test = self._test(compare, reading.result)
            if test is None:
                continue
            for user in self.users.get(compare.result, ()):
                if user.name == "tile.if" and self.places[user][1] is self.places[reading][1]:
                    found.append((_Span(user.regions[0], -1), test))
                    found.append((_Span(user.regions[1], -1), _not(test)))
                if user.name == "tile.condition" and user.operands[0] is compare.result:
                    found.extend(self._behind_loop(user, reading, test))
        return found

    def _test(self, compare: Operation, value: Value) -> Callable[[int], bool] | None:
        if compare.name != "tile.cmp":
            return None
        a, b = compare.operands
        predicate = cast("str", compare.attributes["predicate"])
        if b is value:
            a, b, predicate = b, a, _SWAPPED[predicate]
        limit = self.number(b)
        if a is not value or limit is None:
            return None
        known, apply = limit, _COMPARED[predicate]
        return lambda number: apply(number, known)

    def _behind_loop(
        self, end: Operation, reading: Operation, test: Callable[[int], bool]
    ) -> Iterator[tuple[_Span, Callable[[int], bool]]]:
        loop = self.places[end][0]
        if loop is None or self.places[reading][1] is not loop.regions[0]:
            return
        leaves = any(o.name in LEAVES for o in loop.walk())
        if leaves:
            return
        _, region, number = self.places[loop]
        yield _Span(region, number), _not(test)


def _not(test: Callable[[int], bool]) -> Callable[[int], bool]:
    return lambda number: not test(number)
