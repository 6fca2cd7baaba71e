"""Which factors a sum may take out, and which exponents may follow running results: those that
keep each partial sum within the range of what it is a part of.

A sum of G(x) * h is h times the sum of G(x), but only the first stays finite where G alone
overflows or vanishes. So h is taken out where it is a number, or a result, between 2**-24 and
2**24. ``exp(x - d)`` follows a running d where d is the greatest x so far: then it is at most 1,
and a sum of it never less than what counts at the end.

Owns these proofs. Must not know how terms are written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.graph_to_kernels.indexing_maps import (
    INNER,
    STREAM,
    Window,
    Windows,
    labels_of,
    moved,
    sizes_of,
    whole,
)
from tessera_lang.lower.graph_to_kernels.reduction_terms import Atoms, Term, Terms

FACTOR = 2**24
"""The part of the range of f32 (2**127) that a factor may take: as much as a sum of as many."""
_ALL = (-math.inf, math.inf)
_EXTREMES = {"graph.reduce_max": -1, "graph.reduce_min": 1}
Interval = tuple[float, float]


class Ranges:
    """What is known of the values of a loop, also of those that are in memory before it."""

    def __init__(self, terms: Terms) -> None:
        self._terms = Terms(terms.made, set(), terms.large, terms.held, terms.stream)
        self._known: dict[tuple[Value, Windows], Interval] = {}

    def own_extreme(self, atoms: Atoms, axis: str = STREAM) -> tuple[Value, Windows] | None:
        """Of an exponent, the part that is the extreme of all the rest along an axis, so that their
        sum is at most 0, for what is so far too."""
        along = {k: x for k, x in atoms.items() if axis in labels_of(k[1])}
        if not along:
            return None
        window = next(w for _, windows in along for w in windows if w.label == axis)
        for key, number in atoms.items():
            found = None if key in along else self._extreme(*key)
            if found is None or number * _EXTREMES[found[0].name] <= 0.0:
                continue
            operation, windows = found
            inner = inner_windows(operation, windows, window)
            left = dict(atoms)
            for k, x in self._terms.sum_of(operation.operands[0], inner).items():
                left[k] = left.get(k, 0.0) + number * x
            if not any(x for k, x in left.items() if k != key):
                return key
        return None

    def is_extreme(self, value: Value, windows: Windows) -> bool:
        """Whether a value is a maximum or a minimum, or 0 where that is infinite."""
        return self._extreme(value, windows) is not None

    def _extreme(self, value: Value, windows: Windows) -> tuple[Operation, Windows] | None:
        """The maximum or minimum that a value is, also where an infinite one is replaced by 0."""
        operation = self._terms.made.get(value)
        if operation is None:
            return None
        if operation.name in _EXTREMES:
            return (operation, windows) if len(operation.integers("axes")) == 1 else None
        inner = moved(operation, windows)
        if inner is not None:
            return self._extreme(operation.operands[0], inner)
        if operation.name == "graph.where" and self._is_zero(operation.operands[1]):
            condition, _, other = operation.operands
            return self._extreme(other, windows) if self._is_infinite(condition, other) else None
        return None

    def _is_infinite(self, condition: Value, value: Value) -> bool:
        """Whether a condition asks if a value is infinite."""
        asked = self._terms.made.get(condition)
        if asked is None or asked.name != "graph.eq":
            return False
        left, right = (self._terms.made.get(v) for v in asked.operands)
        of = left.operands[0] if left and left.name == "graph.abs" else asked.operands[0]
        return of is value and right is not None and right.name == "graph.full" and math.isinf(
            float(cast("float", right.attributes["value"]))
        )  # fmt: skip

    def _is_zero(self, value: Value) -> bool:
        operation = self._terms.made.get(value)
        while operation is not None and operation.name == "graph.broadcast":
            operation = self._terms.made.get(operation.operands[0])
        return operation is not None and operation.name == "graph.full" and (
            operation.attributes["value"] == 0
        )  # fmt: skip

    # --- factors -----------------------------------------------------------------------

    def outside(self, factors: Sequence[Term]) -> tuple[Term, ...]:
        """The factors whose product is 0 or near enough to 1, whatever of them is there."""
        room, found = float(FACTOR), list[Term]()
        for factor in factors:
            low, high = self._magnitude(*factor[:2])
            if not 0.0 < low <= high < math.inf:
                continue
            left = room / max(high, 1.0 / low, 1.0)
            if left >= 1.0:
                room = left
                found.append(factor)
        return tuple(found)

    def in_any_order(self, factors: Sequence[Term]) -> bool:
        """Whether a product of factors is in range if it is written so, in whatever order: all but
        one are no larger than what stands outside of a sum."""
        large = 0
        for value, windows, power in factors:
            low, high = absolute(self.interval(value, windows))
            large += (high > FACTOR) if power > 0 else (low < 1.0 / FACTOR)
        return large <= 1 and all(power > 0 for _, _, power in factors)

    def _magnitude(self, value: Value, windows: Windows) -> Interval:
        """Of a factor where it is not 0: `where(total == 0, 0, 1 / total)` is as good as 1 / total,
        for no term counts where it is 0."""
        operation = self._terms.made.get(value)
        if operation is not None:
            inner = moved(operation, windows)
            if inner is not None or operation.name == "graph.cast":
                return self._magnitude(operation.operands[0], inner or windows)
            if operation.name == "graph.where" and self._is_zero(operation.operands[1]):
                return self._magnitude(operation.operands[2], windows)
        return absolute(self.interval(value, windows))

    def interval(self, value: Value, windows: Windows) -> Interval:
        """Between which numbers the elements of a value are, but for NaN."""
        key = value, windows
        if key not in self._known:
            self._known[key] = self._interval(value, windows)
        return self._known[key]

    def _interval(self, value: Value, windows: Windows) -> Interval:
        operation = self._terms.made.get(value)
        if operation is None or not value.tensor_type.dtype.is_float:
            return _ALL
        inner = moved(operation, windows)
        if inner is not None:
            return self.interval(operation.operands[0], inner)
        name = operation.name.removeprefix("graph.")
        if name == "full":
            number = float(cast("float", operation.attributes["value"]))
            return _ALL if math.isnan(number) else (number, number)
        if name == "sum":
            return self._of_sum(operation, windows)
        if name in ("reduce_max", "reduce_min"):
            several = len(operation.integers("axes")) != 1
            inner = () if several else inner_windows(operation, windows, whole(INNER))
            return _ALL if several else self.interval(operation.operands[0], inner)
        if name == "exp":
            if any(self._is_relative(operation, windows, x) for x in labels_of(windows)):
                return 0.0, 1.0
        if name in _BOUNDED:
            return _BOUNDED[name]
        given = operation.operands[1:] if name == "where" else operation.operands
        known = [self.interval(v, windows) for v in given] if name in _RULES else []
        try:
            found = _RULES[name](known) if known else _ALL
        except (ArithmeticError, ValueError):
            return _ALL
        return _ALL if any(map(math.isnan, found)) else found

    def _of_sum(self, operation: Operation, windows: Windows) -> Interval:
        axes, source = operation.integers("axes"), operation.operands[0]
        if len(axes) != 1:
            return _ALL
        count = sizes_of(source)[axes[0]]
        inner = inner_windows(operation, windows, whole(INNER))
        low, high = self.interval(source, inner)
        # The greatest exponential of those that are relative to the greatest is 1.
        least = 1.0 if (low, high) == (0.0, 1.0) and self._has_a_one(source, inner) else count * low
        return (least, count * high) if count else (0.0, 0.0)

    def _has_a_one(self, value: Value, windows: Windows) -> bool:
        operation = self._terms.made.get(value)
        if operation is None:
            return False
        inner = moved(operation, windows)
        if inner is not None or operation.name == "graph.cast":
            return self._has_a_one(operation.operands[0], inner or windows)
        return operation.name == "graph.exp" and self._is_relative(operation, windows, INNER)

    def _is_relative(self, operation: Operation, windows: Windows, axis: str) -> bool:
        """Whether an exponential is one of x relative to the greatest x along an axis."""
        atoms = self._terms.sum_of(operation.operands[0], windows)
        return self.own_extreme(atoms, axis) is not None


def inner_windows(operation: Operation, windows: Windows, along: Window) -> Windows:
    """The parts of what is reduced that a part of the result is made of."""
    if operation.name == "graph.matmul":
        return *windows[:-1], along
    (axis,) = operation.integers("axes")
    kept = operation.attributes["keepdims"] is True
    return *windows[:axis], along, *windows[axis + kept :]


def _product(a: Interval, b: Interval) -> Interval:
    found = [x * y for x in a for y in b]
    return min(found), max(found)


def _quotient(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0.0 <= b[1]:
        return _ALL
    return _product(a, (1.0 / b[1], 1.0 / b[0]))


def absolute(a: Interval) -> Interval:
    low, high = sorted((abs(a[0]), abs(a[1])))
    return (0.0 if a[0] < 0.0 < a[1] else low), high


_BOUNDED: dict[str, Interval] = {
    "tanh": (-1, 1), "sigmoid": (0, 1), "sin": (-1, 1), "cos": (-1, 1),
    "erf": (-1, 1), "relu": (0, math.inf), "softplus": (0, math.inf),
}  # fmt: skip
_RULES: dict[str, Callable[[list[Interval]], Interval]] = {
    "cast": lambda a: a[0],
    "neg": lambda a: (-a[0][1], -a[0][0]),
    "abs": lambda a: absolute(a[0]),
    "exp": lambda a: (math.exp(a[0][0]), math.exp(a[0][1])),
    "sqrt": lambda a: (math.sqrt(a[0][0]), math.sqrt(a[0][1])),
    "rsqrt": lambda a: (1.0 / math.sqrt(a[0][1]), 1.0 / math.sqrt(a[0][0])),
    "add": lambda a: (a[0][0] + a[1][0], a[0][1] + a[1][1]),
    "sub": lambda a: (a[0][0] - a[1][1], a[0][1] - a[1][0]),
    "mul": lambda a: _product(*a),
    "div": lambda a: _quotient(*a),
    "max": lambda a: (max(a[0][0], a[1][0]), max(a[0][1], a[1][1])),
    "min": lambda a: (min(a[0][0], a[1][0]), min(a[0][1], a[1][1])),
    "where": lambda a: (min(a[0][0], a[1][0]), max(a[0][1], a[1][1])),
}
"""By operator, from the intervals of its operands. Infinite ends that meet are NaN: nothing is
known then."""
