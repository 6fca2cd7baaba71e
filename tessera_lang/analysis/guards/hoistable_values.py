"""Index values as sums that can be computed at an earlier point of the kernel.

The terms are values from before it, counters at the ends of their loops, and what can be moved.

Must not know accesses.
"""

from __future__ import annotations

from typing import cast

from tessera_lang.analysis.ranges.linear import Linear
from tessera_lang.analysis.ranges.state import Ranges
from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity, uniformity
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import INDEX, DType

NEAR = 1 << 56
"""A value that is known to be no further from 0 takes part in sums that cannot wrap."""
_MOST_TERMS = 8
_MOST_MOVED = 16


@dataclass(slots=True)
class KernelValues:
    """The values of one kernel, numbered. ``numbers``: the operation that a value comes with;
    ``counters``: of loops; ``lasts``: values made for the last iteration of a loop."""

    kernel: Operation
    known: Ranges
    numbers: dict[Value, int] = field(default_factory=dict[Value, int])
    places: dict[Operation, int] = field(default_factory=dict[Operation, int])
    definitions: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    counters: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    lasts: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    atoms: list[Value] = field(default_factory=list[Value])
    _numbered: dict[Value, int] = field(default_factory=dict[Value, int])
    _lasts: dict[Operation, tuple[Operation, ...]] = field(
        default_factory=dict["Operation", "tuple[Operation, ...]"]
    )
    _uniform: Uniformity | None = None

    def __post_init__(self) -> None:
        for number, operation in enumerate(self.kernel.walk()):
            self.places[operation] = number
            for value in operation.results:
                self.numbers[value] = number
                self.definitions[value] = operation
            for region in operation.regions:
                self.numbers.update(dict.fromkeys(region.arguments, number))
            if operation.name == "tile.for":
                self.counters[operation.regions[0].arguments[0]] = operation

    def atom(self, value: Value) -> int:
        found = self._numbered.get(value)
        if found is None:
            found = self._numbered[value] = len(self.atoms)
            self.atoms.append(value)
        return found

    def is_uniform(self, value: Value) -> bool:
        """Whether a value is the same in all lanes of a group."""
        if self._uniform is None:
            self._uniform = uniformity(self.kernel)
        loop = self.lasts.get(value)
        values = (value,) if loop is None else loop.operands[:2]
        return all(self._uniform.is_uniform(v) for v in values)

    def interval(self, value: Value, ahead: Ahead) -> tuple[int, int]:
        """Bounds of a value before a group: what holds within it holds there only."""
        loop = self.lasts.get(value)
        if loop is not None:
            lower, upper, step = (self.interval(v, ahead) for v in loop.operands[:3])
            return min(lower[0], upper[0] - step[1]), upper[1] - 1
        operation = self.definitions.get(value)
        if ahead.has(value) or (operation is not None and operation.name == "tile.constant"):
            return self.known.interval(value)
        return -(1 << 63), (1 << 63) - 1

    def last_of(self, loop: Operation, step: int) -> tuple[Operation, ...]:
        """Operations that give ``lower + (upper - 1 - lower) // step * step``."""
        made = self._lasts.get(loop)
        if made is None:
            out: list[Operation] = []

            def do(name: str, *operands: Value, **attributes: int) -> Value:
                value = Value(INDEX)
                out.append(Operation(f"tile.{name}", operands, (value,), attributes))
                return value

            lower, upper = loop.operands[:2]
            room = do("sub", do("sub", upper, do("constant", value=1)), lower)
            by = do("constant", value=step)
            iterations = do("floordiv", room, by, site=-1)
            do("add", lower, do("mul", iterations, by))
            made = self._lasts[loop] = tuple(out)
            self.lasts[out[-1].result] = loop
        return made


@dataclass(slots=True)
class Ahead:
    """What can be computed before operation number ``first`` of a kernel."""

    values: KernelValues
    first: int
    together: bool = False
    moved: dict[Operation, None] = field(default_factory=dict[Operation, None])
    _forms: dict[tuple[Value, int], Linear | None] = field(
        default_factory=dict["tuple[Value, int]", "Linear | None"]
    )

    def has(self, value: Value) -> bool:
        return self.values.numbers.get(value, self.first) < self.first

    def form(self, value: Value) -> Linear | None:
        """A value of type index as a sum; counters of loops within the group are terms too."""
        return self._form(value, 0)

    def _form(self, value: Value, depth: int) -> Linear | None:
        key = value, depth
        if key not in self._forms:
            self._forms[key] = self._form_now(value, depth)
        return self._forms[key]

    def _form_now(self, value: Value, depth: int) -> Linear | None:
        operation = self.values.definitions.get(value)
        if depth > 12:
            return self._unknown(value)
        if operation is not None and operation.name == "tile.constant":
            return Linear((), cast("int", operation.attributes["value"]))
        found: Linear | None = None
        if operation is not None and value.type == INDEX:
            found = self._sum(operation, depth + 1)
        short = found is not None and (self.together or len(found.terms) <= 2)
        return found if short or (found and not self.has(value)) else self._unknown(value)

    def _sum(self, operation: Operation, depth: int) -> Linear | None:
        name = operation.name
        if name not in ("tile.add", "tile.sub", "tile.mul", "tile.neg"):
            return None
        sides = [self._form(v, depth) for v in operation.operands]
        first = sides[0]
        if first is None or sides[-1] is None:
            return None
        last = sides[-1]
        if name == "tile.neg":
            return first.scaled(-1)
        if name == "tile.mul":
            if first.terms and last.terms:
                return None
            factor, other = (last, first) if first.terms else (first, last)
            made = other.scaled(factor.constant)
        else:
            made = first + last if name == "tile.add" else first - last
        return made if len(made.terms) <= _MOST_TERMS else None

    def _unknown(self, value: Value) -> Linear | None:
        """A value as a term: one from before, a counter, or one whose operation can be moved."""
        if self.has(value) or value in self.values.counters or self._move(value):
            return Linear(((self.values.atom(value), 1),))
        return None

    def _move(self, value: Value) -> bool:
        """Whether a value can be computed ahead; notes the operations for it."""
        operation = self.values.definitions.get(value)
        if operation is None or operation in self.moved:
            return operation is not None
        definition = TILE_OPS[operation.name]
        quiet = definition.pure or operation.attributes.get("site") == -1
        if not quiet or operation.regions or len(operation.results) != 1:
            return False
        values = (*operation.operands, value)
        if not all(isinstance(v.type, DType) and _whole(v.type) for v in values):
            return False
        if definition.effect not in ("none", "fault"):
            return False
        if not all(self.has(v) or self._move(v) for v in operation.operands):
            return False
        self.moved[operation] = None
        return len(self.moved) <= _MOST_MOVED

    # --- loops --------------------------------------------------------------------------------

    def least(self, form: Linear, split: Operation | None = None) -> Linear | None:
        """A sum of values from before that is at most the form, in every iteration of its loops,
        and, where all lanes are to go the same way, in every lane. What falls as the counter of
        ``split`` grows keeps that counter."""
        kept = -1 if split is None else self.values.atom(split.regions[0].arguments[0])
        for _ in range(_MOST_TERMS):
            inner = max(
                (a for a, c in form.terms if not self._is_ahead(a) and (a != kept or c > 0)),
                key=lambda a: self.values.numbers[self.values.atoms[a]],
                default=None,
            )
            if inner is None:
                return self._of_all_lanes(form) if self.together else form
            end = self._end(self.values.atoms[inner], form.coefficient(inner) > 0)
            if end is None:
                return None
            form = form.replaced(inner, end)
        return None

    def _of_all_lanes(self, form: Linear) -> Linear | None:
        """With the ends of their ranges in the place of values that are not the same in all."""
        for atom, coefficient in form.terms:
            value = self.values.atoms[atom]
            if not self.values.is_uniform(value):
                low, high = self.values.interval(value, self)
                if max(-low, high) > NEAR or value in self.values.lasts:
                    return None
                form = form.replaced(atom, Linear((), low if coefficient > 0 else high))
        return form

    def _is_ahead(self, atom: int) -> bool:
        value = self.values.atoms[atom]
        return self.has(value) or value not in self.values.counters

    def _end(self, counter: Value, low: bool) -> Linear | None:
        """The lowest or highest value that a counter comes to, or one beyond it."""
        loop = self.values.counters[counter]
        lower, upper = (self.form(v) for v in loop.operands[:2])
        step = self.values.known.interval(loop.operands[2])
        if lower is None or upper is None or step[0] <= 0 <= step[1]:
            return None
        if step[0] < 0:
            return upper.shifted(1) if low else lower
        if low:
            return lower
        room = (upper - lower).shifted(-1)
        if step[0] != step[1] or not 1 < step[0] <= NEAR:
            return upper.shifted(-1)
        if not room.terms:
            return lower.shifted(room.constant // step[0] * step[0])
        last = self._last(loop, step[0])
        return None if last is None else Linear(((self.values.atom(last), 1),))

    def _last(self, loop: Operation, step: int) -> Value | None:
        """The last value of a counter that skips some, computed ahead."""
        lower, upper = loop.operands[:2]
        if not all(self.has(v) or self._move(v) for v in (lower, upper)):
            return None
        made = self.values.last_of(loop, step)
        self.moved.update(dict.fromkeys(made))
        return made[-1].result


def _whole(dtype: DType) -> bool:
    return dtype.is_integer or dtype.kind == "bool"
