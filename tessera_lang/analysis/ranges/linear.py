"""Linear expressions over atoms, and the proofs of bounds that use them.

An atom is an integer unknown with constant bounds. ``Knowledge`` holds the bounds, the
facts ``expression >= 0`` that hold at a place, and what an atom is case by case. Must not
know the IR.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import TypeAlias

from tessera_lang.record import dataclass, field

Interval: TypeAlias = tuple[int, int]

_STEPS = 3000  # eliminations per question: bounds the time, never the soundness
_NEAREST, _FIRST = 128, 64  # facts about an atom that a question looks at, where there are more
_CASE_DEPTH = 2


@dataclass(frozen=True, slots=True)
class Linear:
    """``sum(coefficient * atom) + constant``; terms sorted by atom, no zero coefficient."""

    terms: tuple[tuple[int, int], ...] = ()
    constant: int = 0

    def __add__(self, other: Linear) -> Linear:
        return self.plus(other, 1)

    def __sub__(self, other: Linear) -> Linear:
        return self.plus(other, -1)

    def plus(self, other: Linear, factor: int, scale: int = 1) -> Linear:
        """``scale * self + factor * other``; ``scale`` is not 0."""
        mine = self if scale == 1 else self.scaled(scale)
        if not other.terms:
            return Linear(mine.terms, mine.constant + factor * other.constant)
        sums = dict(mine.terms)
        for atom, coefficient in other.terms:
            total = sums.get(atom, 0) + factor * coefficient
            if total:
                sums[atom] = total
            else:
                sums.pop(atom, None)
        return Linear(tuple(sorted(sums.items())), mine.constant + factor * other.constant)

    def scaled(self, factor: int) -> Linear:
        if factor == 0:
            return Linear()
        return Linear(tuple((a, c * factor) for a, c in self.terms), self.constant * factor)

    def shifted(self, amount: int) -> Linear:
        return Linear(self.terms, self.constant + amount)

    def coefficient(self, atom: int) -> int:
        return next((c for a, c in self.terms if a == atom), 0)

    def replaced(self, atom: int, by: Linear) -> Linear:
        """With ``by`` in the place of an atom."""
        factor = self.coefficient(atom)
        if not factor:
            return self
        rest = Linear(tuple(t for t in self.terms if t[0] != atom), self.constant)
        return rest.plus(by, factor)


Case: TypeAlias = tuple[Linear, tuple[Linear, ...]]
"""What an atom is in one case, and the facts that hold in that case."""


@dataclass(slots=True)
class Knowledge:
    """Bounds of atoms and the facts that hold at the current place.

    ``facts`` is a stack: a region pushes and, at its end, truncates. What was asked is remembered
    as long as the facts are the same: a long expression asks the same of each of its accesses.
    ``_of`` has for an atom and a sign of its coefficient the facts by number, with the coefficient;
    ``_most`` the largest value that the bounds of its atoms let a fact have, where it was asked.
    """

    intervals: list[Interval] = field(default_factory=list[Interval])
    facts: list[Linear] = field(default_factory=list[Linear])
    cases: dict[int, tuple[Case, ...]] = field(default_factory=dict[int, tuple[Case, ...]])
    _left: int = 0
    _asked: dict[tuple[Linear, int, int | None], int] = field(
        default_factory=dict["tuple[Linear, int, int | None]", int]
    )
    _asked_under: list[Linear] = field(default_factory=list[Linear])
    _of: dict[tuple[int, bool], list[tuple[int, int]]] = field(
        default_factory=dict["tuple[int, bool]", "list[tuple[int, int]]"]
    )
    _most: list[int | None] = field(default_factory=list["int | None"])

    def atom(self, interval: Interval) -> int:
        self.intervals.append(interval)
        return len(self.intervals) - 1

    def bound(self, atom: int, interval: Interval) -> None:
        """Other bounds for an atom."""
        if self.intervals[atom] != interval:
            self.intervals[atom] = interval
            self._most = [None] * len(self._most)
            self._asked.clear()

    def split(self, atom: int, cases: tuple[Case, ...]) -> None:
        """What an atom is, case by case."""
        if self.cases.get(atom) != cases:
            self.cases[atom] = cases
            self._asked.clear()

    def holds(self, fact: Linear) -> None:
        """Take ``fact >= 0`` as known from here on."""
        if fact.terms or fact.constant < 0:
            self.facts.append(fact)

    def holds_once(self, fact: Linear) -> None:
        if fact not in self.facts:
            self.holds(fact)

    def replace(self, atom: int, form: Linear) -> None:
        """Put ``form`` in the place of an atom in what is known."""
        self.facts[:] = [fact.replaced(atom, form) for fact in self.facts]
        for key, cases in self.cases.items():
            self.cases[key] = tuple(
                (value.replaced(atom, form), tuple(f.replaced(atom, form) for f in facts))
                for value, facts in cases
            )
        self._asked.clear()

    def contradicts(self) -> bool:
        """Whether a fact is surely false: then control never comes here."""
        return any(self.lower(fact.scaled(-1), 2) > 0 for fact in self.facts)

    def range(self, expression: Linear, depth: int = 1) -> Interval:
        """Constant bounds that the value surely lies within."""
        low = self.lower(expression, depth)
        high = -self.lower(expression.scaled(-1), depth)
        return low, max(low, high)

    def proves(self, expression: Linear, depth: int = 3) -> bool:
        """Whether ``expression >= 0`` follows; False means only that no proof was found."""
        return self.lower(expression, depth, enough=0) >= 0

    def lower(self, expression: Linear, depth: int, enough: int | None = None) -> int:
        """A constant the value is never below, the best found; stops at ``enough``."""
        if self._asked_under != self.facts:
            self._see_facts()
            self._asked.clear()
        key = (expression, depth, enough)
        found = self._asked.get(key)
        if found is None:
            found = self._asked[key] = self._search(expression, depth, enough)
        return found

    def _search(self, expression: Linear, depth: int, enough: int | None) -> int:
        """Where something is to be shown, with one fact first: that is mostly enough."""
        self._left = _STEPS
        if enough is not None and depth > 1:
            found = self._lower(expression, 1, enough, 0)
            if found >= enough:
                return found
        return self._lower(expression, depth, enough, _CASE_DEPTH if depth > 1 else 0)

    def _plain(self, expression: Linear) -> int:
        total = expression.constant
        for atom, coefficient in expression.terms:
            low, high = self.intervals[atom]
            total += coefficient * (low if coefficient > 0 else high)
        return total

    def _lower(self, expression: Linear, depth: int, enough: int | None, cases: int) -> int:
        plain = best = self._plain(expression)
        if depth == 0 or not expression.terms or (enough is not None and best >= enough):
            return best
        best = max(best, self._by_facts(expression, depth, enough, cases, plain))
        if cases and (enough is None or best < enough):
            best = max(best, self._by_cases(expression, depth, enough, cases, plain))
        return best

    def _by_facts(
        self, expression: Linear, depth: int, enough: int | None, cases: int, plain: int
    ) -> int:
        """``p*e = (p*e - q*f) + q*f >= lower(p*e - q*f)`` for a fact ``f >= 0``: pick p and q
        so that an atom disappears."""
        abouts = [
            (k, about if len(about) <= _NEAREST + _FIRST else about[:_FIRST] + about[-_NEAREST:])
            for atom, k in expression.terms if (about := self._of.get((atom, k > 0)))
        ]  # fmt: skip
        if not abouts:
            return plain
        if depth == 1 and sum([len(about) for _, about in abouts]) <= self._left:
            return self._by_one_fact(expression, abouts, enough, plain)
        found_in = [(number, k, c) for k, about in abouts for number, c in about]
        found_in.sort(reverse=True)  # what is nearest says most
        best = plain
        for number, k, c in found_in:
            self._left -= 1
            if self._left < 0:
                return best
            p, q = _without_the_atom(k, c)
            rest = expression.plus(self._asked_under[number], -q, p)
            wanted = None if enough is None else enough * p
            found = self._lower(rest, depth - 1, wanted, cases)
            found = -(-found // p)
            if found > best:
                best = found
                if enough is not None and best >= enough:
                    return best
        return best

    def _by_one_fact(
        self, expression: Linear, abouts: list[tuple[int, list[tuple[int, int]]]],
        enough: int | None, plain: int,
    ) -> int:  # fmt: skip
        """The best ``_plain(p*e - q*f)`` of all facts: most questions end here, so that this makes
        no expressions. The difference is ``p * _plain(e)`` less the largest ``q*f``; but an atom
        with one sign in both gives back what its bounds lie apart, as often as it cancels."""
        facts, most, intervals = self._asked_under, self._most, self.intervals
        mine, best, spread = dict(expression.terms), plain, 0
        for atom, k in mine.items():
            low, high = intervals[atom]
            spread += abs(k) * (high - low)
        for k, about in abouts:
            self._left -= len(about)
            for number, c in about:
                above = most[number]
                if above is None:
                    above = most[number] = self._largest(facts[number])
                p, q = (1, 1) if k == c else _without_the_atom(k, c)
                if q * above >= p * (plain + spread - best):
                    continue  # no better, even if all of the expression cancels
                total = p * plain - q * above
                for atom, x in facts[number].terms:
                    old = mine.get(atom, 0)
                    if old * x > 0:
                        low, high = intervals[atom]
                        total += min(p * abs(old), q * abs(x)) * (high - low)
                if total > best * p:
                    best = -(-total // p)
                    if enough is not None and best >= enough:
                        return best
        return best

    def _largest(self, expression: Linear) -> int:
        """A constant the value is never above, by the bounds of its atoms."""
        total = expression.constant
        for atom, coefficient in expression.terms:
            low, high = self.intervals[atom]
            total += coefficient * (high if coefficient > 0 else low)
        return total

    def _see_facts(self) -> None:
        """Bring ``_of`` up to the facts as they are now: most of them are as they were."""
        seen, now = self._asked_under, self.facts
        same, most = 0, min(len(seen), len(now))
        while same < most and seen[same : same + _NEAREST] == now[same : same + _NEAREST]:
            same = min(most, same + _NEAREST)  # many at once, as nearly all are
        while same < most and seen[same] is now[same]:
            same += 1
        while len(seen) > same:
            self._unsee()
        for fact in now[same:]:
            self._see(fact)

    def _see(self, fact: Linear) -> None:
        number = len(self._asked_under)
        self._asked_under.append(fact)
        self._most.append(None)
        for atom, c in fact.terms:
            self._of.setdefault((atom, c > 0), []).append((number, c))

    def _unsee(self) -> None:
        self._most.pop()
        for atom, c in self._asked_under.pop().terms:
            self._of[atom, c > 0].pop()

    def _by_cases(
        self, expression: Linear, depth: int, enough: int | None, cases: int, best: int
    ) -> int:
        for atom, _ in expression.terms:
            if atom not in self.cases:
                continue
            worst: int | None = None
            for value, facts in self.cases[atom]:
                for fact in facts:
                    self._see(fact)
                found = self._lower(expression.replaced(atom, value), depth, enough, cases - 1)
                for _ in facts:
                    self._unsee()
                worst = found if worst is None else min(worst, found)
            best = best if worst is None else max(best, worst)
        return best


def _without_the_atom(k: int, c: int) -> tuple[int, int]:
    """The least p and q above 0 with ``p*k == q*c``, of one sign."""
    common = gcd(k, c)
    return abs(c) // common, abs(k) // common


def join(intervals: Iterable[Interval]) -> Interval:
    """The least interval over all; there must be one."""
    items = list(intervals)
    return min(i[0] for i in items), max(i[1] for i in items)


def within(interval: Interval, limits: Interval) -> Interval:
    """An interval with each end moved to the nearest number inside of the limits."""
    low, high = (min(max(end, limits[0]), limits[1]) for end in interval)
    return low, high
