"""Loop distribution (fission): one loop as several, one for each of the things that it writes.

``for i: A; B`` is ``for i: A`` and then ``for i: B`` where neither touches what the other writes.
What both need stands in both. Owns which operations go together. Must not know what it is good for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.definitions import (
    ARRAY_WRITES,
    LEAVES,
)
from tessera_lang.ir.rewrite import clone_operation
from tessera_lang.ir.schedule.ops import SCHEDULE_OPS
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.opt.schedule.parallel.loop_nest_rewrites import is_quiet, names_of
from tessera_lang.opt.schedule.query.array_dependence import FOR, accesses_in
from tessera_lang.record import dataclass, field, replace

_EXITS = {"tile.while", *LEAVES}


def distributed(
    loop: Operation, arrays: Mapping[Value, Value], deep: bool = False
) -> list[Operation] | None:
    """A loop as several that together do what it does, in this order; None where that may not be.
    What the loop gives the last of them gives. ``deep``: loops and conditions in it are several
    before."""
    if any(x.name in _EXITS or _says_something(x) for x in loop.walk()):
        return None
    body = _Body(loop, arrays, _split(loop.regions[0], arrays) if deep else loop.regions[0])
    parts = body.parts()
    last = body.results(parts) if loop.results else None
    if len(parts) + (1 if last is not None else 0) < 2:
        return None
    made = [body.made(part) for part in parts]
    if last is not None:
        made.append(last)
    return made


def _split(region: Region, arrays: Mapping[Value, Value]) -> Region:
    """The region whose loops and conditions are one for each thing that they write."""
    out: list[Operation] = []
    for o in region.operations:
        if o.name == FOR:
            out += distributed(o, arrays, True) or [o]
        elif o.name == "tile.if" and not o.results:
            out += _conditions(o, arrays)
        else:
            out.append(o)
    return Region(region.arguments, tuple(out))


def _conditions(o: Operation, arrays: Mapping[Value, Value]) -> list[Operation]:
    out: list[Operation] = []
    for number, region in enumerate(o.regions):
        body = _Body(o, arrays, _split(region, arrays))
        nothing = Region((), (replace(region.terminator, operands=()),))
        for part in body.parts():
            regions = [nothing, nothing]
            regions[number] = body.region(part, ())
            out.append(clone_operation(replace(o, regions=tuple(regions)), {}))
    return out


def _says_something(o: Operation) -> bool:
    """Whether an operation does something else than to write an array."""
    if o.name in ARRAY_WRITES or is_quiet(o):
        return False
    known = TILE_OPS.get(o.name) or SCHEDULE_OPS[o.name]
    may_be_twice = known.effect in ("none", "read", "nested") or (
        known.effect == "fault" and bool(o.results)
    )
    return not known.is_terminator and not may_be_twice


@dataclass(slots=True)
class _Part:
    """Operations of a body by number, and what of the loop's carried values they need."""

    own: set[int]
    carried: set[int] = field(default_factory=set[int])


@dataclass(slots=True)
class _Body:
    """A region of a loop or a condition."""

    loop: Operation
    arrays: Mapping[Value, Value]
    whole: Region
    operations: tuple[Operation, ...] = ()
    made_by: dict[Value, int] = field(default_factory=dict[Value, int])
    slots: dict[Value, int] = field(default_factory=dict[Value, int])
    yielded: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        *operations, end = self.whole.operations
        self.operations = tuple(operations)
        self.made_by = {v: i for i, o in enumerate(operations) for v in o.results}
        axes = len(names_of(self.loop)) if self.loop.name == FOR else 0
        carried = self.whole.arguments[axes:]
        self.slots = {v: k for k, v in enumerate(carried)}
        self.yielded = end.operands

    # --- what goes together -----------------------------------------------------------------------

    def parts(self) -> list[_Part]:
        """What is needed for each thing that is written; those that meet are one."""
        seeds = [[i] for i in range(len(self.operations)) if self._touched([i], True)]
        at = 0
        while at < len(seeds):
            other = self._meets(seeds, at)
            if other is None:
                at += 1
                continue
            seeds[other] = sorted((*seeds[other], *seeds.pop(at)))
            at = 0
        return [self._needed(seed) for seed in seeds]

    def _meets(self, seeds: Sequence[Sequence[int]], at: int) -> int | None:
        """A part in front that writes what this one touches, or the other way round."""
        for other in range(at):
            a, b = self._needed(seeds[at]), self._needed(seeds[other])
            if a.own & set(seeds[other]) or b.own & set(seeds[at]):
                return other
            if self._depend(a, b):
                return other
        return None

    def _touched(self, numbers: Sequence[int] | set[int], only_written: bool = False) -> set[Value]:
        return {
            a.array for i in numbers for a in accesses_in(self.operations[i], self.arrays)
            if a.writes or not only_written
        }  # fmt: skip

    def _needed(self, seed: Sequence[int]) -> _Part:
        part, stack = _Part(set(seed)), list(seed)
        while stack:
            stack += self._before(part, self.operations[stack.pop()].uses())
        return part

    def _before(self, part: _Part, values: Iterator[Value]) -> list[int]:
        """What makes these values and is new to a part."""
        found: list[int] = []
        todo = list(values)
        while todo:
            value = todo.pop()
            slot, number = self.slots.get(value), self.made_by.get(value)
            if slot is not None and slot not in part.carried:
                part.carried.add(slot)
                todo.append(self.yielded[slot])
            if number is not None and number not in part.own:
                part.own.add(number)
                found.append(number)
        return found

    # --- the loops --------------------------------------------------------------------------------

    def made(self, part: _Part) -> Operation:
        """The loop that does a part, with values of its own."""
        return self._loop(part, sorted(part.carried), False)

    def results(self, parts: list[_Part]) -> Operation:
        """The loop that gives what the loop gives. It takes the parts that it meets out of
        ``parts``: what it reads of their arrays is what stands there in each iteration."""
        part = _Part(set(), set(range(len(self.slots))))
        stack = self._before(part, iter(self.yielded))
        while stack:
            stack += self._before(part, self.operations[stack.pop()].uses())
        while (other := next((p for p in parts if self._depend(part, p)), None)) is not None:
            parts.remove(other)
            part.own |= other.own
        return self._loop(part, sorted(part.carried), True)

    def _depend(self, a: _Part, b: _Part) -> bool:
        """Whether one of two parts writes what the other one touches."""
        return bool(
            self._touched(a.own, True) & self._touched(b.own)
            or self._touched(b.own, True) & self._touched(a.own)
        )

    def _loop(self, part: _Part, carried: Sequence[int], last: bool) -> Operation:
        count = len(names_of(self.loop))
        bounds, first = self.loop.operands[: 3 * count], self.loop.operands[3 * count :]
        results = tuple(self.loop.results[k] for k in carried)
        made = Operation(
            FOR, (*bounds, *(first[k] for k in carried)), results, self.loop.attributes,
            (self.region(part, carried),), self.loop.span,
        )  # fmt: skip
        return made if last else clone_operation(made, {})

    def region(self, part: _Part, carried: Sequence[int]) -> Region:
        """The operations of a part, with what is carried."""
        count = len(self.whole.arguments) - len(self.slots)
        variables, taken = self.whole.arguments[:count], self.whole.arguments[count:]
        end = replace(self.whole.terminator, operands=tuple(self.yielded[k] for k in carried))
        operations = (self.operations[i] for i in sorted(part.own))
        return Region((*variables, *(taken[k] for k in carried)), (*operations, end))
