"""Divisors of a sum that follow running results: the greatest magnitude so far, or the norm.

``(z / max(abs(z))) @ v`` is summed relative to the greatest magnitude so far, and multiplied by
their quotient when that grows. The terms so far are at most 1 times what stands beside them, and so
are those at the end: no partial sum leaves the range of what it is a part of. The divisor of the
loop is kept within a range, in which its quotients are floats; what it lacks stands behind the
loop.

Owns the proof that a divisor bounds a term, and how such a divisor is written. Must not know how
terms are written.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.graph_to_kernels.indexing_maps import (
    STREAM,
    Window,
    Windows,
    labels_of,
    moved,
)
from tessera_lang.lower.graph_to_kernels.overflow_proofs import (
    FACTOR,
    Ranges,
    absolute,
    inner_windows,
)
from tessera_lang.lower.graph_to_kernels.reduction_terms import Term, Terms
from tessera_lang.lower.graph_to_kernels.tile_text import number_text
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import DType

_LEAST = {32: -96, 64: -560}
"""Powers of two of a divisor, by the bits of its dtype: x over it is at most 2**24 where squares of
x vanish."""
_MOST = {32: 126, 64: 1020}
_LARGEST = "3.0e38"
Key = tuple[Value, Windows]


@dataclass(frozen=True, slots=True)
class Bound:
    """A result that grows along the axis, and is at least the magnitude of the product of
    ``factors``, over ``times``, for what is so far. ``from_zero``: what it starts from."""

    factors: tuple[Key, ...]
    times: float
    from_zero: bool


def follow(terms: Terms, ranges: Ranges, inside: Sequence[Term], moving: Sequence[Term]) -> bool:
    """Whether ``moving``, the factors of a term that need running results, are each one over what
    bounds others of its factors, and all that is left along the axis is bounded."""
    along = [x for x in inside if STREAM in labels_of(x[1])]
    if not along:
        return False
    window = next(w for w in along[0][1] if w.label == STREAM)
    proofs = _Proofs(terms, ranges, window)
    left = Counter(proofs.magnitude(*x[:2]) for x in inside if x not in moving and x[2] > 0)
    room = float(FACTOR)
    for value, windows, power in moving:
        bound = proofs.bound(value, windows, power)
        if bound is None or any(n > left[key] for key, n in Counter(bound.factors).items()):
            return False
        left.subtract(bound.factors)
        room /= max(1.0, bound.times)
    for (value, windows), count in left.items():
        if STREAM in labels_of(windows):
            room /= max(1.0, absolute(ranges.interval(value, windows))[1]) ** count
    for value, windows, _ in (x for x in along if x[2] < 0):
        least = absolute(ranges.interval(value, windows))[0]
        room = room * min(1.0, least) if least else 0.0
    return room >= 1.0


@dataclass(slots=True, eq=False)
class _Proofs:
    terms: Terms
    ranges: Ranges
    window: Window

    def bound(self, value: Value, windows: Windows, power: int) -> Bound | None:
        """What a divisor bounds; of ``rsqrt`` what the root under it does."""
        operation = self.terms.made.get(value)
        if power < 0:
            return self._bound(value, windows)
        if operation is None or operation.name != "graph.rsqrt":
            return None
        return _root(self._bound(operation.operands[0], windows))

    def _bound(self, value: Value, windows: Windows) -> Bound | None:
        operation = self.terms.made.get(value)
        if operation is None or value in self.terms.leaves:
            return None
        inner = moved(operation, windows)
        if inner is not None:
            return self._bound(operation.operands[0], inner)
        match operation.name.removeprefix("graph."):
            case "sum" | "reduce_max" if self.terms.reduces(value, windows):
                return self._of_reduction(operation, windows)
            case "cast":
                return self._bound(operation.operands[0], windows)
            case "sqrt":
                return _root(self._bound(operation.operands[0], windows))
            case "mul" | "div":
                return self._scaled(operation, windows)
            case "add" | "max":
                return self._with_other(operation, windows)
            case "where":
                return self._replaced(operation, windows)
            case _:
                return None

    def _of_reduction(self, operation: Operation, windows: Windows) -> Bound | None:
        """A sum of what is not negative is at least each term, and so is the greatest of it."""
        source = operation.operands[0]
        inner = inner_windows(operation, windows, self.window)
        bare = self._bare(source, inner)
        factors = self.terms.factors(*bare, 1)
        found, times = Counter[Key](), 1.0
        for value, part, power in factors:
            known = self.terms.known(value)
            if power < 0 and known is None:
                return None
            if known is None:
                found[self.magnitude(value, part)] += 1
            else:
                times *= abs(known) if power < 0 else 1.0 / abs(known) if known else math.inf
        squares = all(n % 2 == 0 for n in found.values()) and all(
            (self.terms.known(x[0]) or 1.0) > 0.0 for x in factors
        )
        positive = squares or bare[0] is not source and self._is_magnitude(source, inner)
        if not positive and self.ranges.interval(source, inner)[0] < 0.0:
            return None
        return Bound(tuple(found.elements()), times, operation.name == "graph.sum")

    def _scaled(self, operation: Operation, windows: Windows) -> Bound | None:
        """A bound times a positive number."""
        left, right = operation.operands
        known = self.terms.known(right)
        if known is None and operation.name == "graph.mul":
            left, known = right, self.terms.known(left)
        if known is None or known <= 0.0:
            return None
        found = self._bound(left, windows)
        number = known if operation.name == "graph.mul" else 1.0 / known
        return None if found is None else Bound(found.factors, found.times / number,
                                                found.from_zero)  # fmt: skip

    def _with_other(self, operation: Operation, windows: Windows) -> Bound | None:
        """A bound plus what is not negative, or the greater of it and another."""
        left, right = operation.operands
        for one, other in ((left, right), (right, left)):
            known = self.terms.known(other)
            fits = known is not None and (operation.name == "graph.max" or known >= 0.0)
            found = self._bound(one, windows) if fits else None
            if found is not None:
                return found
        return None

    def _replaced(self, operation: Operation, windows: Windows) -> Bound | None:
        """A bound, or a positive number where it is 0, and so all that it bounds."""
        condition, number, other = operation.operands
        known, asked = self.terms.known(number), self.terms.made.get(condition)
        if known is None or known <= 0.0 or asked is None or asked.name != "graph.eq":
            return None
        sides = asked.operands
        if not any(a is other and self.terms.known(b) == 0.0 for a, b in (sides, sides[::-1])):
            return None
        return self._bound(other, windows)

    def magnitude(self, value: Value, windows: Windows) -> Key:
        """A value without a sign and what moves no element."""
        operation = self.terms.made.get(value)
        if operation is None or value in self.terms.leaves:
            return value, windows
        inner = moved(operation, windows)
        if inner is not None or operation.name in ("graph.abs", "graph.neg"):
            return self.magnitude(operation.operands[0], inner or windows)
        return value, windows

    def _bare(self, value: Value, windows: Windows) -> Key:
        """What a magnitude is one of, or the value itself."""
        return self.magnitude(value, windows) if self._is_magnitude(value, windows) else (
            value, windows)  # fmt: skip

    def _is_magnitude(self, value: Value, windows: Windows) -> bool:
        operation = self.terms.made.get(value)
        if operation is None or value in self.terms.leaves:
            return False
        inner = moved(operation, windows)
        if inner is not None:
            return self._is_magnitude(operation.operands[0], inner)
        return operation.name == "graph.abs"


def _root(bound: Bound | None) -> Bound | None:
    """What the root of a bound of squares bounds."""
    if bound is None or not bound.from_zero:
        return None
    counts = Counter(bound.factors)
    if any(n % 2 for n in counts.values()):
        return None
    half = Counter({key: n // 2 for key, n in counts.items()})
    return Bound(tuple(half.elements()), math.sqrt(bound.times), from_zero=True)


def within(text: str, power: int, dtype: DType) -> str:
    """A divisor, or one over it, within the range whose quotients are floats."""
    least, most = (math.ldexp(1.0, of[dtype.bits]) for of in (_LEAST, _MOST))
    low, high = (least, most) if power < 0 else (1.0 / most, 1.0 / least)
    return f"min(max({text}, {number_text(low, dtype)}), {number_text(high, dtype)})"


def step_of(before: str, now: str, power: int, dtype: DType) -> str:
    """What a sum so far is multiplied by; before the first element that counts it is 0, and stays
    so for a finite factor."""
    one, other = (before, now) if power < 0 else (now, before)
    return f"min({one} / {other}, {dtype}({_LARGEST}))"


def rest_of(taken: str, whole: str, power: int) -> str:
    """What is left behind the loop: 1 where a divisor is within the range."""
    one, other = (taken, whole) if power < 0 else (whole, taken)
    return f"{one} / {other}"
