"""What a loop nest touches of its arrays, and the proof that two iterations do not meet.

Owns accesses as boxes with affine starts, and the question ``disjoint``. An array is known by
its pointer: the launch refuses arguments that overlap where one of them is written. Must not
know what is done with an answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tessera_lang.analysis.ranges.linear import Linear
from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.definitions import ARRAY_READS, ARRAY_WRITES, BOXES
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.index_forms import IndexForms, Scope
from tessera_lang.opt.schedule.query.value_numbers import ValueNumbers
from tessera_lang.record import dataclass, field, replace

FOR, STORE, ACCUMULATE = (PREFIX + n for n in ("for", "store", "accumulate"))
LOAD, GATHER, PARAMETER = (PREFIX + n for n in ("load", "gather", "parameter"))
SCATTER = PREFIX + "scatter"
_ACCESSES = {"tile.load", *ARRAY_READS, *ARRAY_WRITES}
_Around = tuple[Operation | tuple[Value, bool], ...]
"""Loops, and conditions with whether each holds."""


@dataclass(frozen=True, slots=True, eq=False)
class MemoryAccess:
    """``starts`` one an axis of the array (None: unknown); ``sizes`` the elements touched along
    it, a number or the name of an open size, in steps of ``steps`` elements; ``extents`` how many
    of these there are (None: all)."""

    operation: Operation
    array: Value
    starts: tuple[Value | None, ...]
    sizes: tuple[int | str, ...]
    steps: tuple[int, ...]
    extents: tuple[Value | None, ...]

    @property
    def writes(self) -> bool:
        return self.operation.name in ARRAY_WRITES

    @property
    def view(self) -> Value:
        """What the array is seen as."""
        return self.operation.operands[1 if self.writes else 0]

    @property
    def kind(self) -> str:
        """Of a reduction: what it does; else empty."""
        return str(self.operation.attributes.get("kind", ""))

    @property
    def verb(self) -> str:
        if self.operation.name == ACCUMULATE:
            return "added to"
        return "written" if self.writes else "read"


def access_of(operation: Operation, arrays: Mapping[Value, Value]) -> MemoryAccess | None:
    """The access of an operation on a view; ``arrays`` gives the pointer of a view."""
    match operation.name:
        case "tile.load":
            view, *starts = operation.operands
            rank = len(starts)
            return MemoryAccess(operation, arrays.get(view, view), tuple(starts), (1,) * rank,
                          (1,) * rank, (None,) * rank)  # fmt: skip
        case _ if operation.name in ARRAY_READS:
            view, *numbers = operation.operands
            tile = operation.result.tile_type
        case _ if operation.name in ARRAY_WRITES:
            value, view, *numbers = operation.operands
            tile = value.tile_type
        case _:
            return None
    rank = len(view.view_type.shape)
    dims = operation.integers("dims")
    given = operation.integers("steps") or (1,) * len(dims)
    sizes: list[int | str] = [1] * rank
    steps = [1] * rank
    extents: list[Value | None] = [None] * rank
    for axis, dim in enumerate(dims):
        sizes[dim], steps[dim] = tile.shape[axis], given[axis]
        if operation.name in BOXES:
            extents[dim] = numbers[rank + axis]
    starts = tuple(None if isinstance(v.type, TileType) else v for v in numbers[:rank])
    return MemoryAccess(
        operation, arrays.get(view, view), starts, tuple(sizes), tuple(steps), tuple(extents)
    )


def accesses_in(operation: Operation, arrays: Mapping[Value, Value]) -> list[MemoryAccess]:
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
class Nest:
    """A loop whose iterations are compared: ``axes`` are its variables with their steps."""

    loop: Operation
    definitions: Mapping[Value, Operation]
    forms: IndexForms = field(default_factory=lambda: IndexForms({}))
    numbers: ValueNumbers = field(default_factory=lambda: ValueNumbers({}))
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
        views = (o for o in self.definitions.values() if o.name == "tile.view")
        sizes = {v for o in views for v in o.operands[1 : 1 + len(o.result.view_type.shape)]}
        self.numbers = ValueNumbers(self.definitions)
        self.forms = IndexForms(self.definitions, frozenset(found), sizes)
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

    # --- iterations -----------------------------------------------------------------------------

    def _enter(self, access: MemoryAccess, scope: Scope) -> None:
        """What holds where an access is made: a loop that it does not stand in may be empty, and
        so may a part of an array that it does not touch."""
        for o in self._around(access):
            if isinstance(o, Operation):
                self._bounds(o, scope)
            else:
                self.forms.told(*o, scope)
        for extent in access.extents:
            if extent is not None:
                self.forms.present(extent, scope)

    def _bounds(
        self,
        loop: Operation,
        scope: Scope,
        ahead: int = -1,
        of: Scope | None = None,
        same: Collection[int] = (),
    ) -> None:
        """``lower <= variable < upper`` for the variables of a loop, each some steps behind its
        lower bound; along the axis ``ahead`` at least one step further than in the iteration
        ``of``, along those of ``same`` where that is."""
        f = self.forms
        count = len(loop.strings("axes"))
        variables, bounds = loop.regions[0].arguments[:count], loop.operands
        for i, variable in enumerate(variables):
            if of is not None and i in same:
                scope.forms[variable] = f.form(variable, of)
                continue
            lower, upper, step = (f.form(bounds[i + k * count], scope) for k in range(3))
            first = lower if of is None or i != ahead else f.form(variable, of) + step
            if step.terms or step.constant < 1:
                at = f.form(variable, scope)
                f.holds_here(at - first)
                f.holds_here((upper - at).shifted(-1))
            else:
                iterations = f.atom(low=0)
                at = scope.forms[variable] = first + iterations.scaled(step.constant)
                f.limited(iterations, (upper - at).shifted(-1))

    def disjoint(
        self, axis: int, a: MemoryAccess, b: MemoryAccess, same: frozenset[int] = frozenset()
    ) -> bool:
        """Whether ``a`` and ``b`` surely touch other elements in any two iterations that differ
        along ``axis`` and not along those of ``same``, whatever the other variables are."""
        if a.array is not b.array:
            return True
        if self._seen_otherwise(a, b):
            return False
        a, b = self._axis_by_axis(a, b)
        alike = self._place(a) == self._place(b) and self._around(a) == self._around(b)
        return self._apart(axis, a, b, same) and (alike or self._apart(axis, b, a, same))

    def _seen_otherwise(self, a: MemoryAccess, b: MemoryAccess) -> bool:
        """Whether two accesses of an array see it with other sizes: their places say nothing of
        each other."""
        views = (self.definitions.get(x.view) for x in (a, b))
        return a.view is not b.view and any(
            o is not None and o.attributes.get("reshaped") and "merged" not in o.attributes
            for o in views
        )

    def _axis_by_axis(self, a: MemoryAccess, b: MemoryAccess) -> tuple[MemoryAccess, MemoryAccess]:
        """Two accesses of one array, as it is seen in one way: where one has merged axes and the
        other has not, each by the axes of the array, and nothing is known along merged ones."""
        of_a, of_b = (self._merged(x) for x in (a, b))
        return (a, b) if of_a == of_b else (_unmerged(a, of_a), _unmerged(b, of_b))

    def _merged(self, a: MemoryAccess) -> tuple[int, ...]:
        """How many axes of the array each axis of an access is."""
        made = self.definitions.get(a.view)
        of = made.integers("merged") if made is not None else ()
        return of or (1,) * len(a.starts)

    def _place(self, a: MemoryAccess) -> tuple[object, ...]:
        """What is touched of the array, the same for what is computed alike."""
        starts, extents = (tuple(map(self.numbers.of, vs)) for vs in (a.starts, a.extents))
        return starts, a.sizes, a.steps, extents

    def _around(self, a: MemoryAccess) -> _Around:
        return self.around.get(a.operation, ())

    def _apart(
        self, axis: int, later: MemoryAccess, earlier: MemoryAccess, same: frozenset[int]
    ) -> bool:
        """The same where the iteration of ``later`` is the one further along the axis; many
        accesses of a long body are of the same places."""
        around = self._around(later), self._around(earlier)
        key = (axis, same, self._place(later), self._place(earlier), *around)
        found = self.proved.get(key)
        if found is None:
            found = self.proved[key] = self._are_apart(axis, later, earlier, same)
        return found

    def _are_apart(
        self, axis: int, later: MemoryAccess, earlier: MemoryAccess, same: frozenset[int]
    ) -> bool:
        f, x, y = self.forms, Scope(), Scope()
        count = len(self.loop.strings("axes"))
        try:
            # Steps are positive, and two values of the variable are at least one step apart.
            f.holds_here(f.form(self.loop.operands[2 * count + axis], y).shifted(-1))
            self._bounds(self.loop, y)
            self._bounds(self.loop, x, axis, y, same)
            self._enter(later, x)
            self._enter(earlier, y)
            return any(
                self._beyond(later, earlier, d, x, y) or self._beyond(earlier, later, d, y, x)
                for d in range(len(later.starts))
            )
        finally:
            f.forget()

    def elsewhere(self, a: MemoryAccess, b: MemoryAccess) -> bool:
        """Whether two accesses whose places are the same in all iterations touch other elements."""
        if a.array is not b.array:
            return True
        if self._seen_otherwise(a, b):
            return False
        a, b = self._axis_by_axis(a, b)
        scope = Scope()
        try:
            self._bounds(self.loop, scope)
            return any(
                self._beyond(a, b, d, scope, scope) or self._beyond(b, a, d, scope, scope)
                for d in range(len(a.starts))
            )
        finally:
            self.forms.forget()

    def repeated(self, axis: int, a: MemoryAccess) -> Repeated | None:
        """What a write surely has in common with the one of the next iteration of ``axis``, all
        other axes being alike; None where that is not known, or where there is nothing."""
        if a.operation.name != STORE or self._around(a):
            return None
        f, scope = self.forms, Scope()
        count = len(self.loop.strings("axes"))
        variables = self.loop.regions[0].arguments[:count]
        for variable in variables:
            scope.forms[variable] = f.atom()
        moved = scope.forms[variables[axis]].terms[0][0]
        step = f.form(self.loop.operands[2 * count + axis], scope)
        starts = [None if v is None else f.form(v, scope) for v in a.starts]
        own = {t for v in variables for t, _ in scope.forms[v].terms}
        f.forget()
        if step.terms or step.constant < 1 or any(s is None for s in starts):
            return None
        found = Repeated(0, 0, step.constant)
        for start, size, by in zip(starts, a.sizes, a.steps, strict=True):
            assert start is not None
            if not f.is_fixed(Linear(tuple(t for t in start.terms if t[0] not in own))):
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

    def _beyond(self, a: MemoryAccess, b: MemoryAccess, dim: int, x: Scope, y: Scope) -> bool:
        """Whether ``a`` begins behind the end of ``b`` along an axis of the array."""
        first, second, step = a.starts[dim], b.starts[dim], b.steps[dim]
        if first is None or second is None or a.steps[dim] < 0 or step < 0:
            return False
        f, extent = self.forms, b.extents[dim]
        gap = f.form(first, x) - f.form(second, y)
        widths = [f.size(b.sizes[dim]), *(() if extent is None else f.widths(extent, y))]
        return any(f.known.proves(gap - w.shifted(-1).scaled(step).shifted(1)) for w in widths)


def _unmerged(a: MemoryAccess, of: Sequence[int]) -> MemoryAccess:
    """The access by the axes of the array, of which each of its own is so many."""
    starts: list[Value | None] = []
    sizes: list[int | str] = []
    steps: list[int] = []
    extents: list[Value | None] = []
    for i, count in enumerate(of):
        one = count == 1
        starts += [a.starts[i] if one else None] * count
        sizes += [a.sizes[i] if one else 1] * count
        steps += [a.steps[i] if one else 1] * count
        extents += [a.extents[i] if one else None] * count
    return replace(
        a, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps), extents=tuple(extents)
    )


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
                stack.extend(o.uses())
    return False
