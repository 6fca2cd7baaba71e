"""Integers and conditions of all lanes of a group at once, exactly where they can be known.

An integer is a ``Linear`` over two kinds of atoms: lane vectors (one known number a lane) and
symbols (one unknown number, the same in every lane). A condition is a ``Mask``: lanes in which
it surely holds, and lanes in which it may. Must not know the IR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tessera_lang.analysis.ranges.linear import Interval, Linear
from tessera_lang.record import dataclass, field

Terms: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Mask:
    """Sets of lanes as bits: ``must`` within ``may``."""

    must: int
    may: int

    @property
    def exact(self) -> bool:
        return self.must == self.may

    def both(self, other: Mask) -> Mask:
        return Mask(self.must & other.must, self.may & other.may)

    def either(self, other: Mask) -> Mask:
        return Mask(self.must | other.must, self.may | other.may)

    def without(self, other: Mask) -> Mask:
        return Mask(self.must & ~other.may, self.may & ~other.must)


NOBODY = Mask(0, 0)
Form: TypeAlias = "Linear | Mask | None"
"""None: another unknown number in each lane."""


@dataclass(slots=True)
class Space:
    """The atoms of one kernel."""

    lanes: int
    intervals: list[Interval] = field(default_factory=list[Interval])
    vectors: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    _atoms: dict[object, int] = field(default_factory=dict[object, int])
    _splits: dict[Linear, tuple[Terms, tuple[int, ...]]] = field(
        default_factory=dict[Linear, tuple[Terms, tuple[int, ...]]]
    )
    _members: dict[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])

    @property
    def everyone(self) -> int:
        return (1 << self.lanes) - 1

    def symbol(self, key: object, interval: Interval) -> Linear:
        """The unknown of a key, the same in all lanes; a key of None makes a new one."""
        atom = self._atoms.get(key) if key is not None else None
        if atom is None:
            atom = len(self.intervals)
            self.intervals.append(interval)
            if key is not None:
                self._atoms[key] = atom
        return Linear(((atom, 1),))

    def vector(self, values: Sequence[int]) -> Linear:
        """One known number a lane, as a constant, a line or a vector of its own."""
        first = values[0]
        step = values[1] - first if len(values) > 1 else 0
        if step == 0 and values.count(first) == len(values):
            return Linear((), first)
        if step and list(values) == list(range(first, first + step * len(values), step)):
            return Linear(((self._vector(tuple(range(self.lanes))), step),), first)
        return Linear(((self._vector(tuple(v - first for v in values)), 1),), first)

    def _vector(self, values: tuple[int, ...]) -> int:
        atom = self._atoms.get(values)
        if atom is None:
            atom = self._atoms[values] = len(self.intervals)
            self.intervals.append((min(values), max(values)))
            self.vectors[atom] = values
        return atom

    def split(self, form: Linear) -> tuple[Terms, tuple[int, ...]]:
        """The symbols of a form, and what each lane adds to them."""
        found = self._splits.get(form)
        if found is None:
            terms = tuple(t for t in form.terms if t[0] not in self.vectors)
            values = [form.constant] * self.lanes
            for atom, factor in form.terms:
                vector = self.vectors.get(atom)
                if vector is not None:
                    values = [v + factor * x for v, x in zip(values, vector, strict=True)]
            found = self._splits[form] = (terms, tuple(values))
        return found

    def known(self, form: Form) -> bool:
        """Whether the number of every lane is known."""
        return isinstance(form, Linear) and all(a in self.vectors for a, _ in form.terms)

    def uniform(self, form: Form) -> bool:
        """Whether the number is surely the same in every lane."""
        return isinstance(form, Linear) and not any(a in self.vectors for a, _ in form.terms)

    def range(self, form: Linear) -> Interval:
        low = high = form.constant
        for atom, factor in form.terms:
            least, most = self.intervals[atom]
            low += factor * (least if factor > 0 else most)
            high += factor * (most if factor > 0 else least)
        return low, high

    def members(self, lanes: int) -> tuple[int, ...]:
        """The lanes of a set, in order."""
        found = self._members.get(lanes)
        if found is None:
            found = tuple(i for i in range(self.lanes) if lanes >> i & 1)
            self._members[lanes] = found
        return found

    def where(self, form: Linear, holds: Callable[[int, int], tuple[bool, bool]]) -> Mask:
        """The lanes in which ``holds(low, high)`` surely and possibly is so."""
        terms, values = self.split(form)
        low, high = self.range(Linear(terms))
        answers: dict[int, tuple[bool, bool]] = {}
        must = may = 0
        bit = 1
        for value in values:
            answer = answers.get(value)
            if answer is None:
                answer = answers[value] = holds(low + value, high + value)
            if answer[1]:
                may |= bit
                if answer[0]:
                    must |= bit
            bit <<= 1
        return Mask(must, may)


def negative(low: int, high: int) -> tuple[bool, bool]:
    return high < 0, low < 0


def not_positive(low: int, high: int) -> tuple[bool, bool]:
    return high <= 0, low <= 0


def zero(low: int, high: int) -> tuple[bool, bool]:
    return low == high == 0, low <= 0 <= high
