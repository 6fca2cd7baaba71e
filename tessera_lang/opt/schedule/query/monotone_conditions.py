"""Conditions that change once in a loop: comparisons of sums of its variable and of places.

``j + column <= i + row`` is true for all elements of a tile up to some ``j``; ``j * step > i`` from
some on. Owns the forms of such conditions and where in a loop they are surely what they are wanted
to be. Must not change anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.definitions import ARRAY_READS, ARRAY_WRITES, BOUNDED, IN_PLACE, MOVES
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.kernel_facts import PARAMETER, Facts
from tessera_lang.record import dataclass, replace
from tessera_lang.types.dtype import INDEX, DType

_FULL, _IOTA, _EXPAND = PREFIX + "full", PREFIX + "iota", PREFIX + "expand"
_BROADCAST, _TRANSPOSE = PREFIX + "broadcast", PREFIX + "transpose"
_K = TypeVar("_K")


@dataclass(frozen=True, slots=True)
class Form:
    """``constant`` and a factor for each number, and for the place along each axis of a tile."""

    numbers: Mapping[Value, int]
    places: Mapping[int, int]
    constant: int = 0

    def plus(self, other: Form, factor: int = 1) -> Form:
        return Form(
            _sum(self.numbers, other.numbers, factor), _sum(self.places, other.places, factor),
            self.constant + factor * other.constant,
        )  # fmt: skip

    def times(self, factor: int) -> Form:
        return Form({}, {}).plus(self, factor)


def _sum(a: Mapping[_K, int], b: Mapping[_K, int], factor: int) -> dict[_K, int]:
    out = dict(a)
    for key, n in b.items():
        out[key] = out.get(key, 0) + factor * n
    return {key: n for key, n in out.items() if n}


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """``known`` holds for all elements of ``value`` exactly where ``limit <= 0``, a sum of numbers
    with the loop's variable among them: up to some iteration if its factor is positive, else from
    some on. ``exact``: where it does not hold, the opposite does."""

    value: Value
    known: bool | int
    limit: Form
    factor: int
    exact: bool


class Forms:
    """Values as sums of numbers and of places."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def of(self, value: Value) -> Form | None:
        """A value as a sum; None where it is none."""
        t = value.type
        if isinstance(t, TileType):
            return self._tile(value) if t.dtype == INDEX else None
        return self._number(value) if t == INDEX else None

    def _number(self, value: Value) -> Form | None:
        number = self.facts.constant(value)
        return Form({value: 1}, {}) if number is None else Form({}, {}, number)

    def _tile(self, value: Value) -> Form | None:
        made = self.facts.definitions.get(value)
        if made is None:
            return None
        match made.name:
            case name if name == _FULL:
                return self.of(made.operands[0])
            case name if name == _IOTA:
                return Form({}, {made.integer("axis"): 1})
            case name if name in MOVES:
                inner = self.of(made.operands[0])
                return None if inner is None else _moved(inner, made)
            case _:
                return self._sum_of(made)

    def _sum_of(self, made: Operation) -> Form | None:
        if made.name not in ("tile.add", "tile.sub", "tile.mul"):
            return None
        a, b = (self.of(v) for v in made.operands)
        if a is None or b is None:
            return None
        if made.name != "tile.mul":
            return a.plus(b, 1 if made.name == "tile.add" else -1)
        if not a.numbers and not a.places:
            return b.times(a.constant)
        return a.times(b.constant) if not b.numbers and not b.places else None


class LoopForms(Forms):
    """Values of the body of one loop as sums over what does not change in it; those that change in
    another way are none."""

    def __init__(self, loop: Operation, facts: Facts) -> None:
        super().__init__(facts)
        self.variable = loop.regions[0].arguments[0]
        self._changing = {v for o in loop.walk() for v in o.results}
        self._changing.update(v for o in loop.walk() for r in o.regions for v in r.arguments)

    def _number(self, value: Value) -> Form | None:
        kept = value is self.variable or value not in self._changing
        if kept or self.facts.constant(value) is not None:
            return super()._number(value)
        made = self.facts.definitions.get(value)
        return None if made is None else self._sum_of(made)


def _moved(form: Form, by: Operation) -> Form | None:
    """The places of a tile along the axes of another; None where it is another part of it."""
    if by.name == _EXPAND:
        at = by.integer("axis")
        return replace(form, places={a + (a >= at): n for a, n in form.places.items()})
    if by.name == _TRANSPOSE:
        order = by.integers("permutation")
        return replace(form, places={order.index(a): n for a, n in form.places.items()})
    if by.name != _BROADCAST:
        return form if by.name in IN_PLACE else None
    given = by.operands[0].tile_type.shape
    return replace(form, places={a: n for a, n in form.places.items() if given[a] != 1})


def turns_of(loop: Operation, facts: Facts) -> tuple[Turn, ...]:
    """The conditions of a loop's body that change once, and the limits of tiles in it that are
    whole up to some iteration, with what they are wanted to be."""
    forms, found = LoopForms(loop, facts), list[Turn]()
    for o in loop.regions[0].operations:
        made = None
        if o.name == "tile.cmp":
            made = _comparison(o, forms)
        elif o.name == "tile.min" and o.result.type == INDEX and _limits(o.result, facts):
            made = _least(o, forms)
        if made is not None:
            found.append(made)
    return tuple(found)


def _comparison(o: Operation, forms: LoopForms) -> Turn | None:
    """``form <= 0`` is what is compared."""
    a, b = (forms.of(v) for v in o.operands)
    predicate = str(o.attributes["predicate"])
    wanted = _wanted(o.result, forms.facts, set())
    if a is None or b is None or predicate not in _LESS or wanted is None:
        return None
    form = a.plus(b, -1) if predicate in ("lt", "le") else b.plus(a, -1)
    form = replace(form, constant=form.constant + _LESS[predicate])
    if not wanted:
        form = form.times(-1).plus(Form({}, {}, 1))
    shape = o.result.type.shape if isinstance(o.result.type, TileType) else ()
    most = form.constant
    for axis, n in form.places.items():
        size = shape[axis]
        if not isinstance(size, int):
            return None
        most += max(0, n * (size - 1))
    factor = form.numbers.get(forms.variable, 0)
    limit = Form(form.numbers, {}, most)
    if not factor or not is_near(limit, forms.facts):
        return None
    return Turn(o.result, wanted, limit, factor, not form.places)


_LESS = {"le": 0, "lt": 1, "ge": 0, "gt": 1}


def _least(o: Operation, forms: LoopForms) -> Turn | None:
    """``min(c, size - variable)`` is ``c`` where ``c - (size - variable) <= 0``."""
    for one, other in (o.operands, reversed(o.operands)):
        most, form = forms.facts.constant(one), forms.of(other)
        if most is None or form is None:
            continue
        factor = -form.numbers.get(forms.variable, 0)
        if factor:
            limit = Form({}, {}, most).plus(form, -1)
            if not is_near(limit, forms.facts):
                return None
            return Turn(o.result, most, limit, factor, False)
    return None


def is_near(limit: Form, facts: Facts) -> bool:
    """Whether what is computed of a limit surely fits 64 bits: numbers of the user of 64 bits may
    be as large as they are, and a limit adds places, a step and a bound to them."""
    total = abs(limit.constant)
    for value, factor in limit.numbers.items():
        bits = _bits(value, facts, _DEEP)
        if bits is None:
            return False
        total += abs(factor) << bits
    return total < 1 << _NEAR_BITS


_SIZE_BITS = 48  # an address has no more
_NEAR_BITS = 61
_DEEP = 8


def _bits(value: Value, facts: Facts, deep: int) -> int | None:
    """So many bits hold the magnitude of a number; None where nothing says it."""
    number = facts.constant(value)
    if number is not None:
        return number.bit_length()
    made = facts.definitions.get(value)
    if made is None or made.name in (PARAMETER, "tile.dim"):
        return _SIZE_BITS if value.type == INDEX else None  # a size, or what a loop counts
    if made.name == "tile.cast":
        given = made.operands[0].type
        small = isinstance(given, DType) and given.is_integer and given.bits <= 32
        return given.bits if small and isinstance(given, DType) else None
    parts = [_bits(v, facts, deep - 1) for v in made.operands] if deep else []
    known = [b for b in parts if b is not None]
    if made.name not in _BITS or not known or len(known) < len(parts):
        return None
    return _BITS[made.name](known)


_BITS: Mapping[str, Callable[[list[int]], int]] = {
    "tile.add": lambda bits: max(bits) + 1, "tile.sub": lambda bits: max(bits) + 1,
    "tile.mul": sum, "tile.min": max, "tile.max": max, "tile.floordiv": lambda bits: bits[0],
    "tile.mod": max, "tile.select": max,
}  # fmt: skip


def _limits(value: Value, facts: Facts) -> bool:
    """Whether a number is how far a reduction or a mask goes; loads and stores clip for nothing."""
    for user in facts.users.get(value, ()):
        if user.name in BOUNDED and user.name not in ARRAY_READS | ARRAY_WRITES:
            return True
        if user.name in ("tile.max", "tile.min") and _limits(user.result, facts):
            return True
    return False


def _wanted(value: Value, facts: Facts, seen: set[Value]) -> bool | None:
    """What a condition is to be, so that most of what it decides on is left: of a choice between
    a constant and anything else, the other. None where nobody asks."""
    if value in seen:
        return None
    seen.add(value)
    for user in facts.users.get(value, ()):
        found: bool | None = None
        if user.name == "tile.select" and user.operands[0] is value:
            found = not (_is_constant(user.operands[1], facts)
                         and not _is_constant(user.operands[2], facts))  # fmt: skip
        elif user.name in ("tile.if", "tile.cast"):
            found = True
        elif user.name in MOVES | {"tile.and", "tile.or", _FULL}:
            found = _wanted(user.result, facts, seen)
        elif user.name == "tile.not":
            other = _wanted(user.result, facts, seen)
            found = None if other is None else not other
        if found is not None:
            return found
    return None


def _is_constant(value: Value, facts: Facts) -> bool:
    made = facts.definitions.get(value)
    while made is not None and made.name in (_FULL, "tile.cast"):
        made = facts.definitions.get(made.operands[0])
    return made is not None and made.name == "tile.constant"
