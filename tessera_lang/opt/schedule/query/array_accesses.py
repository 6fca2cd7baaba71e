"""What a loop nest touches of its arrays, and the proof that two iterations do not meet.

Owns accesses as boxes with affine starts, and the question ``disjoint``. An array is known by
its pointer: the launch refuses arguments that overlap where one of them is written. Must not
know what is done with an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import cast

from tessera_lang.analysis.ranges.linear import Knowledge, Linear
from tessera_lang.ir.core import Operation, TileType, Value, ViewType
from tessera_lang.ir.definitions import ARRAY_READS, ARRAY_WRITES
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import INDEX

FOR, STORE, ACCUMULATE = (PREFIX + n for n in ("for", "store", "accumulate"))
LOAD, GATHER, PARAMETER = (PREFIX + n for n in ("load", "gather", "parameter"))
SCATTER = PREFIX + "scatter"
WRITES = ARRAY_WRITES
_FAR = 1 << 62  # no index is further from 0
_ACCESSES = {"tile.load", *ARRAY_READS, *ARRAY_WRITES}
_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
_Around = tuple[Operation | tuple[Value, bool], ...]
"""Loops, and conditions with whether each holds."""


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """``starts`` one an axis of the array (None: unknown); ``sizes`` the elements touched along
    it, a number or the name of an open size, in steps of ``steps`` elements."""

    operation: Operation
    array: Value
    starts: tuple[Value | None, ...]
    sizes: tuple[int | str, ...]
    steps: tuple[int, ...]

    @property
    def writes(self) -> bool:
        return self.operation.name in ARRAY_WRITES

    @property
    def place(self) -> tuple[object, ...]:
        """What is touched of the array."""
        return self.starts, self.sizes, self.steps

    @property
    def kind(self) -> str:
        """Of a reduction: what it does; else empty."""
        return str(self.operation.attributes.get("kind", ""))

    @property
    def verb(self) -> str:
        if self.operation.name == ACCUMULATE:
            return "added to"
        return "written" if self.writes else "read"


def access_of(operation: Operation, arrays: Mapping[Value, Value]) -> Access | None:
    """The access of an operation on a view; ``arrays`` gives the pointer of a view."""
    match operation.name:
        case "tile.load":
            view, *starts = operation.operands
            rank = len(starts)
            return Access(operation, arrays.get(view, view), tuple(starts), (1,) * rank,
                          (1,) * rank)  # fmt: skip
        case _ if operation.name in ARRAY_READS:
            view, *numbers = operation.operands
            tile = operation.result.type
        case _ if operation.name in ARRAY_WRITES:
            value, view, *numbers = operation.operands
            tile = value.type
        case _:
            return None
    assert isinstance(tile, TileType)
    assert isinstance(view.type, ViewType)
    rank = len(view.type.shape)
    dims = cast("tuple[int, ...]", operation.attributes["dims"])
    given = cast("tuple[int, ...]", operation.attributes.get("steps", (1,) * len(dims)))
    sizes: list[int | str] = [1] * rank
    steps = [1] * rank
    for axis, dim in enumerate(dims):
        sizes[dim], steps[dim] = tile.shape[axis], given[axis]
    starts = tuple(None if isinstance(v.type, TileType) else v for v in numbers[:rank])
    return Access(operation, arrays.get(view, view), starts, tuple(sizes), tuple(steps))


def arrays_of(kernel: Operation) -> dict[Value, Value]:
    """The pointer of each view."""
    return {
        o.result: o.operands[0] for o in kernel.walk() if o.name == "tile.view"
    }  # fmt: skip


def accesses_in(operation: Operation, arrays: Mapping[Value, Value]) -> list[Access]:
    found = (access_of(o, arrays) for o in operation.walk())
    return [a for a in found if a is not None]


@dataclass(frozen=True, slots=True)
class Repeated:
    """A write of ``width`` elements that moves on by ``factor`` times the ``step`` of a loop, and
    so meets its own next iteration. ``width`` 0: it does not move at all."""

    width: int
    factor: int
    step: int

    @property
    def apart(self) -> int | None:
        """The step at which no two iterations meet; None where there is none."""
        return self.width // self.factor if self.width and self.width % self.factor == 0 else None


@dataclass(slots=True)
class _Side:
    """One of two iterations: the atoms of what differs between them."""

    atoms: dict[Value, Linear] = field(default_factory=dict[Value, Linear])


@dataclass(slots=True)
class Nest:
    """A loop whose iterations are compared: ``axes`` are its variables with their steps."""

    loop: Operation
    definitions: Mapping[Value, Operation]
    known: Knowledge = field(default_factory=Knowledge)
    shared: dict[Value, Linear] = field(default_factory=dict[Value, Linear])
    names: dict[str, Linear] = field(default_factory=dict[str, Linear])
    inside: frozenset[Value] = frozenset()
    around: dict[Operation, _Around] = field(default_factory=dict[Operation, "_Around"])
    proved: dict[tuple[object, ...], bool] = field(default_factory=dict["tuple[object, ...]", bool])

    def __post_init__(self) -> None:
        found: set[Value] = set()
        for region in self.loop.regions:
            found.update(region.arguments)
            for o in region.operations:
                for inner in o.walk():
                    found.update(inner.results)
                    found.update(v for r in inner.regions for v in r.arguments)
        self.inside = frozenset(found)
        self._note_around(self.loop, ())

    def _note_around(self, o: Operation, around: _Around) -> None:
        """The loops and conditions inside the loop in which each access is made."""
        if around and o.name in _ACCESSES:
            self.around[o] = around
        for number, region in enumerate(o.regions):
            more: _Around = ()
            if o.name == "tile.if":
                more = ((o.operands[0], number == 0),)
            elif o.name == FOR and o is not self.loop:
                more = (o,)
            for inner in region.operations:
                self._note_around(inner, (*around, *more))

    # --- forms ----------------------------------------------------------------------------------

    def size(self, size: int | str) -> Linear:
        """A size of a tile: at least 1."""
        if isinstance(size, int):
            return Linear((), size)
        if size not in self.names:
            self.names[size] = Linear(((self.known.atom((1, _FAR)), 1),))
        return self.names[size]

    def _atom(self) -> Linear:
        return Linear(((self.known.atom((-_FAR, _FAR)), 1),))

    def form(self, value: Value, side: _Side) -> Linear:
        """A number as a sum over what is not known, for one of the iterations."""
        found = side.atoms.get(value)
        if found is None:
            found = self.shared.get(value)
        if found is None:
            made = self._sum(value, side)
            found = self._atom() if made is None else made
            (side.atoms if value in self.inside else self.shared)[value] = found
        return found

    def _sum(self, value: Value, side: _Side) -> Linear | None:
        o = self.definitions.get(value)
        if o is None:
            return None
        match o.name:
            case "tile.constant":
                number = o.attributes["value"]
                return Linear((), int(number)) if isinstance(number, int) else None
            case "tile.add" | "tile.sub":
                a, b = (self.form(v, side) for v in o.operands)
                return a + b if o.name == "tile.add" else a - b
            case "tile.mul":
                a, b = (self.form(v, side) for v in o.operands)
                if not a.terms:
                    return b.scaled(a.constant)
                return a.scaled(b.constant) if not b.terms else None
            case _ if o.name == PARAMETER:
                return self.size(str(o.attributes["name"]))
            case _:
                return None

    # --- iterations -----------------------------------------------------------------------------

    def _begin(self) -> tuple[_Side, _Side]:
        sides = _Side(), _Side()
        for side in sides:
            self._bounds(self.loop, side)
        return sides

    def _enter(self, access: Access, side: _Side) -> None:
        """What holds where an access is made: a loop that it does not stand in may be empty."""
        for o in self._around(access):
            if isinstance(o, Operation):
                self._bounds(o, side)
            else:
                self._told(*o, side)

    def _bounds(self, loop: Operation, side: _Side) -> None:
        """``lower <= variable < upper`` for the variables of a loop, each some steps behind its
        lower bound."""
        count = len(cast("tuple[str, ...]", loop.attributes["axes"]))
        variables, bounds = loop.regions[0].arguments[:count], loop.operands
        for i, variable in enumerate(variables):
            lower, upper, step = (self.form(bounds[i + k * count], side) for k in range(3))
            if step.terms or step.constant < 1:
                at = self.form(variable, side)
                self.known.holds(at - lower)
            else:
                iterations = Linear(((self.known.atom((0, _FAR)), 1),))
                at = side.atoms[variable] = lower + iterations.scaled(step.constant)
            self._holds((upper - at).shifted(-1))

    def _holds(self, fact: Linear) -> None:
        """Takes ``fact >= 0`` as known; of multiples of a number only what is a multiple."""
        common = gcd(*(k for _, k in fact.terms))
        if common > 1:
            terms = tuple((atom, k // common) for atom, k in fact.terms)
            fact = Linear(terms, fact.constant // common)
        self.known.holds(fact)

    def _told(self, condition: Value, truth: bool, side: _Side) -> None:
        """What a condition says of numbers, where it is true or false."""
        o = self.definitions.get(condition)
        if o is None:
            return
        if o.name == "tile.not":
            self._told(o.operands[0], not truth, side)
        elif o.name == ("tile.and" if truth else "tile.or"):
            for v in o.operands:
                self._told(v, truth, side)
        elif o.name == "tile.cmp" and o.operands[0].type == INDEX:
            a, b = (self.form(v, side) for v in o.operands)
            word = str(o.attributes["predicate"])
            word = word if truth else _OPPOSITE[word]
            if word in ("lt", "le", "eq"):
                self._holds((b - a).shifted(-1 if word == "lt" else 0))
            if word in ("gt", "ge", "eq"):
                self._holds((a - b).shifted(-1 if word == "gt" else 0))

    def disjoint(self, axis: int, a: Access, b: Access) -> bool:
        """Whether ``a`` and ``b`` surely touch other elements in any two iterations that differ
        along ``axis``, whatever the other variables are."""
        if a.array is not b.array:
            return True
        alike = a.place == b.place and self._around(a) == self._around(b)
        return self._apart(axis, a, b) and (alike or self._apart(axis, b, a))

    def _around(self, a: Access) -> _Around:
        return self.around.get(a.operation, ())

    def _apart(self, axis: int, later: Access, earlier: Access) -> bool:
        """The same where the iteration of ``later`` is the one further along the axis; many
        accesses of a long body are of the same places."""
        around = self._around(later), self._around(earlier)
        key = (axis, later.place, earlier.place, *around)
        found = self.proved.get(key)
        if found is None:
            found = self.proved[key] = self._are_apart(axis, later, earlier)
        return found

    def _are_apart(self, axis: int, later: Access, earlier: Access) -> bool:
        mark = len(self.known.facts)
        x, y = self._begin()
        count = len(cast("tuple[str, ...]", self.loop.attributes["axes"]))
        variable = self.loop.regions[0].arguments[axis]
        step = self.form(self.loop.operands[2 * count + axis], _Side())
        # Steps are positive, and two values of the variable are at least one step apart.
        self.known.holds(step.shifted(-1))
        self.known.holds(self.form(variable, x) - self.form(variable, y) - step)
        self._enter(later, x)
        self._enter(earlier, y)
        try:
            return any(
                self._beyond(later, earlier, d, x, y) or self._beyond(earlier, later, d, y, x)
                for d in range(len(later.starts))
            )
        finally:
            del self.known.facts[mark:]

    def elsewhere(self, a: Access, b: Access) -> bool:
        """Whether two accesses whose places are the same in all iterations touch other elements."""
        if a.array is not b.array:
            return True
        mark = len(self.known.facts)
        x, _ = self._begin()
        try:
            return any(
                self._beyond(a, b, d, x, x) or self._beyond(b, a, d, x, x)
                for d in range(len(a.starts))
            )
        finally:
            del self.known.facts[mark:]

    def repeated(self, axis: int, a: Access) -> Repeated | None:
        """What a write surely has in common with the one of the next iteration of ``axis``, all
        other axes being alike; None where that is not known, or where there is nothing."""
        if a.operation.name != STORE or self._around(a):
            return None
        count = len(cast("tuple[str, ...]", self.loop.attributes["axes"]))
        side = _Side()
        variables = self.loop.regions[0].arguments[:count]
        for variable in variables:
            side.atoms[variable] = self._atom()
        moved = side.atoms[variables[axis]].terms[0][0]
        step = self.form(self.loop.operands[2 * count + axis], side)
        starts = [None if v is None else self.form(v, side) for v in a.starts]
        fixed = {t for form in self.shared.values() for t, _ in form.terms}
        fixed |= {t for v in variables for t, _ in side.atoms[v].terms}
        if step.terms or step.constant < 1 or any(s is None for s in starts):
            return None
        found = Repeated(0, 0, step.constant)
        for start, size, by in zip(starts, a.sizes, a.steps, strict=True):
            assert start is not None
            if any(t not in fixed for t, _ in start.terms):
                return None  # it may depend on the iteration in any way
            factor = start.coefficient(moved)
            if factor == 0:
                continue
            if found.width or by != 1 or not isinstance(size, int) or factor < 0:
                return None
            if factor * step.constant >= size:
                return None
            found = Repeated(size, factor, step.constant)
        return found

    def _beyond(self, a: Access, b: Access, dim: int, x: _Side, y: _Side) -> bool:
        """Whether ``a`` begins behind the end of ``b`` along an axis of the array."""
        first, second = a.starts[dim], b.starts[dim]
        if first is None or second is None or a.steps[dim] < 0 or b.steps[dim] < 0:
            return False
        width = self.size(b.sizes[dim]).shifted(-1).scaled(b.steps[dim]).shifted(1)
        gap = self.form(first, x) - self.form(second, y) - width
        return self.known.proves(gap)


def definitions_of(kernel: Operation) -> dict[Value, Operation]:
    return {v: o for o in kernel.walk() for v in o.results}


def depends(value: Value, on: Sequence[Value], definitions: Mapping[Value, Operation]) -> bool:
    """Whether a number is computed from one of some values."""
    targets = frozenset(on)
    stack, seen = [value], set[Value]()
    while stack:
        found = stack.pop()
        if found in targets:
            return True
        if found in seen:
            continue
        seen.add(found)
        o = definitions.get(found)
        if o is not None:
            stack.extend(o.operands)
            if o.regions:  # what it computes inside may come from anywhere
                stack.extend(v for inner in o.walk() for v in inner.operands)
    return False
