"""What floats a value can be, from how it is made: an interval for every element.

``x - max(x)`` is at most 0, a square is at least 0, and ``exp(x - max(x))`` needs no care for great
arguments. A bound says nothing of NaN, which every operation here hands on, nor of elements behind
an extent, which nothing sees. Owns the rules. Must not change anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.definitions import MOVES
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.tile import constant_evaluation
from tessera_lang.opt.tile.constant_evaluation import Number
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import DType

_FULL, _EXPAND, _BROADCAST = PREFIX + "full", PREFIX + "expand", PREFIX + "broadcast"
_REDUCE, _MASK = PREFIX + "reduce", PREFIX + "mask"
_DEEP = 12
"""Steps that one comparison of two values looks back."""

Interval = tuple[float, float]
ANY: Interval = (-math.inf, math.inf)


def dtype_of(value: Value) -> DType | None:
    """The dtype of a number or of the elements of a tile."""
    if isinstance(value.type, TileType):
        return value.type.dtype
    return value.type if isinstance(value.type, DType) else None


@dataclass(slots=True, eq=False)
class FloatRanges:
    """Intervals of the values of one kernel; ``see`` takes its operations in their order."""

    definitions: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    _found: dict[Value, Interval] = field(default_factory=dict[Value, Interval])

    def see(self, operation: Operation) -> None:
        """An operation, behind all that make its operands."""
        for result in operation.results:
            self.definitions[result] = operation
        if len(operation.results) != 1 or operation.regions:
            return
        dtype = dtype_of(operation.result)
        if dtype is None or not dtype.is_float or dtype.bits == 8:
            return
        rule = _RULES.get(operation.name)
        if operation.name in MOVES:
            found = self.of(operation.operands[0])
        elif rule is not None:
            found = rule(self, operation, dtype)
        else:
            return
        if found != ANY:
            self._found[operation.result] = found

    def of(self, value: Value) -> Interval:
        """The least and the greatest that an element can be, unless it is NaN."""
        return self._found.get(value, ANY)

    def constant(self, value: Value) -> Number | None:
        """The number that all elements of a value are."""
        made = self.definitions.get(value)
        if made is not None and made.name == _FULL:
            made = self.definitions.get(made.operands[0])
        if made is None or made.name != "tile.constant":
            return None
        number = made.attributes["value"]
        return number if isinstance(number, bool | int | float) else None

    # --- one value beside another ---------------------------------------------------------------

    def is_within(self, a: Value, b: Value) -> bool:
        """Whether each element of ``a`` is surely at most the one of ``b`` at its place."""
        return self._within(a, b, (), _DEEP)

    def _within(self, a: Value, b: Value, without: tuple[int, ...], deep: int) -> bool:
        """``without``: the axes of ``a`` that ``b`` has not, in order."""
        if not without and a is b:
            return True
        if self.of(a)[1] <= self.of(b)[0] and self.of(a)[1] < math.inf:
            return True
        if not deep:
            return False
        upper, deep = self.definitions.get(b), deep - 1
        if upper is not None and self._below(a, upper, without, deep):
            return True
        lower = self.definitions.get(a)
        if lower is None or without:
            return False
        if lower.name == "tile.min":
            return any(self._within(x, b, without, deep) for x in lower.operands)
        if lower.name == "tile.select":
            return all(self._within(x, b, without, deep) for x in lower.operands[1:])
        return False

    def _below(self, a: Value, upper: Operation, without: tuple[int, ...], deep: int) -> bool:
        """Whether ``a`` is at most what ``upper`` gives."""
        if upper.name == "tile.max":
            return any(self._within(a, x, without, deep) for x in upper.operands)
        if upper.name == "tile.mul":
            return not without and self._scaled(a, upper, deep)
        kept = [i for i in range(_rank(a)) if i not in without]
        if upper.name == _EXPAND:
            axis = kept[upper.integer("axis")]
            return self._within(a, upper.operands[0], tuple(sorted((*without, axis))), deep)
        if upper.name == _BROADCAST:
            return self._within(a, upper.operands[0], without, deep)
        if upper.name == _FULL:
            return self._within(a, upper.operands[0], tuple(range(_rank(a))), deep)
        if upper.name == _REDUCE and upper.attributes["kind"] == "max":
            own = upper.integer("axis")
            for axis in without:
                rest = tuple(i for i in without if i != axis)
                if [i for i in range(_rank(a)) if i not in rest].index(axis) == own:
                    return self._within(a, upper.operands[0], rest, deep)
        return False

    def _scaled(self, a: Value, upper: Operation, deep: int) -> bool:
        """``x * s <= y * s`` where s is not negative."""
        lower = self.definitions.get(a)
        if lower is None or lower.name != "tile.mul":
            return False
        for x, s in (lower.operands, reversed(lower.operands)):
            for y, t in (upper.operands, reversed(upper.operands)):
                same = s is t or self._number(s) is not None and self._number(s) is self._number(t)
                if same and self.of(s)[0] >= 0 and self._within(x, y, (), deep):
                    return True
        return False

    def _number(self, value: Value) -> Value | None:
        """The scalar that a tile is full of."""
        made = self.definitions.get(value)
        while made is not None and made.name in MOVES:
            made = self.definitions.get(made.operands[0])
        return made.operands[0] if made is not None and made.name == _FULL else None


def _rank(value: Value) -> int:
    return len(value.type.shape) if isinstance(value.type, TileType) else 0


# --- a rule for each operation ------------------------------------------------------------------


def _hull(values: list[float]) -> Interval:
    return ANY if any(map(math.isnan, values)) else (min(values), max(values))


def _rounded(ends: Callable[[float, float], float], a: Interval, b: Interval) -> Interval:
    """Of an operation that rises or falls in each operand, and rounds to nearest."""
    return _hull([ends(x, y) for x in a for y in b])


def _arithmetic(r: FloatRanges, o: Operation, dtype: DType) -> Interval:
    name = o.name.removeprefix("tile.")
    a, b = (r.of(v) for v in o.operands)

    def ends(x: float, y: float) -> float:
        found = constant_evaluation.binary(name, x, y, dtype)
        return math.nan if found is None else float(found)

    low, high = _rounded(ends, a, b)
    if name == "sub":
        high = min(high, 0.0) if r.is_within(*o.operands) else high
        low = max(low, 0.0) if r.is_within(o.operands[1], o.operands[0]) else low
    return low, high


def _product(r: FloatRanges, o: Operation, dtype: DType) -> Interval:
    low, high = _arithmetic(r, o, dtype)
    return (max(low, 0.0), high) if o.operands[0] is o.operands[1] else (low, high)


def _quotient(r: FloatRanges, o: Operation, dtype: DType) -> Interval:
    """Of numbers that are not negative: a greater divisor may be any."""
    a, b = (r.of(v) for v in o.operands)
    return (0.0, math.inf) if a[0] >= 0 and b[0] >= 0 and _sure_sign(r, o.operands[1]) else ANY


def _sure_sign(r: FloatRanges, value: Value) -> bool:
    """Whether a number that is not negative is no -0.0 either."""
    return r.of(value)[0] > 0


def _fma(r: FloatRanges, o: Operation, dtype: DType) -> Interval:
    a, b, c = (r.of(v) for v in o.operands)
    found: list[float] = []
    for x in a:
        for y in b:
            for z in c:
                if not all(map(math.isfinite, (x, y, z))):
                    found.append(x * y + z)
                else:
                    exact = Fraction(x) * Fraction(y) + Fraction(z)
                    found.append(constant_evaluation.round_exact(exact, dtype))
    return _hull(found)


def _extreme(r: FloatRanges, o: Operation, dtype: DType) -> Interval:
    pick = min if o.name == "tile.min" else max
    a, b = (r.of(v) for v in o.operands)
    return pick(a[0], b[0]), pick(a[1], b[1])


def _negated(r: FloatRanges, o: Operation, dtype: DType) -> Interval:
    low, high = r.of(o.operands[0])
    return -high, -low


def _magnitude(r: FloatRanges, o: Operation, dtype: DType) -> Interval:
    low, high = r.of(o.operands[0])
    most = max(abs(low), abs(high))
    return (0.0, most) if low <= 0 <= high else (min(abs(low), abs(high)), most)


def _chosen(r: FloatRanges, o: Operation, dtype: DType) -> Interval:
    a, b = (r.of(v) for v in o.operands[1:3])
    return min(a[0], b[0]), max(a[1], b[1])


def _masked(r: FloatRanges, o: Operation, dtype: DType) -> Interval:
    a, b = (r.of(v) for v in o.operands[:2])
    return min(a[0], b[0]), max(a[1], b[1])


def _reduced(r: FloatRanges, o: Operation, dtype: DType) -> Interval:
    """Of no elements the result is that of the kind, which lies outside of any bound."""
    low, high = r.of(o.operands[0])
    match o.attributes["kind"]:
        case "max":
            return -math.inf, high
        case "min":
            return low, math.inf
        case _:
            return ANY


def _constant(r: FloatRanges, o: Operation, dtype: DType) -> Interval:
    number = o.attributes["value"]
    if not isinstance(number, bool | int | float) or math.isnan(number):
        return ANY
    value = constant_evaluation.literal(float(number), dtype)
    return value, value


def _filled(r: FloatRanges, o: Operation, dtype: DType) -> Interval:
    return r.of(o.operands[0])


def _root(r: FloatRanges, o: Operation, dtype: DType) -> Interval:
    low, _ = r.of(o.operands[0])
    if low <= 0 or not math.isfinite(low):
        return -0.0, math.inf
    return constant_evaluation.round_float(math.nextafter(math.sqrt(low), 0.0), dtype), math.inf


def _power_of_two(r: FloatRanges, o: Operation, dtype: DType) -> Interval:
    return 0.0, 1.0 if r.of(o.operands[0])[1] <= 0 else math.inf


def _cast(r: FloatRanges, o: Operation, dtype: DType) -> Interval:
    given = dtype_of(o.operands[0])
    if given is None:
        return ANY
    if not given.is_float:
        number = r.constant(o.operands[0])
        if number is None:
            return ANY
        value = float(constant_evaluation.cast(number, given, dtype))
        return value, value
    low, high = r.of(o.operands[0])
    return constant_evaluation.round_float(low, dtype), constant_evaluation.round_float(high, dtype)


_RULES: dict[str, Callable[[FloatRanges, Operation, DType], Interval]] = {
    "tile.constant": _constant, _FULL: _filled, "tile.add": _arithmetic, "tile.sub": _arithmetic,
    "tile.mul": _product, "tile.div": _quotient, "tile.fma": _fma, "tile.min": _extreme,
    "tile.max": _extreme, "tile.neg": _negated, "tile.abs": _magnitude, "tile.select": _chosen,
    _MASK: _masked, _REDUCE: _reduced, "tile.sqrt": _root, "tile.cast": _cast,
    "tile.exp2": _power_of_two,
}  # fmt: skip
