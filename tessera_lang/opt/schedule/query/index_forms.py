"""Index values as sums over atoms, with the facts that arithmetic says of them.

Owns the numbering of values: two that are computed in the same way of the same numbers are one
atom, wherever they stand. Quotients, products of two unknowns, minima and the like are atoms with
facts. Must not know loops, nor what is proved.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from math import gcd

from tessera_lang.analysis.ranges.linear import Knowledge, Linear
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import is_pure
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import INDEX

_FAR = 1 << 62  # no index is further from 0
_MOST_TERMS = 16  # of a product of two sums
_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
_PARAMETER = PREFIX + "parameter"


@dataclass(slots=True, eq=False)
class Scope:
    """What values are in one iteration, and the conditions that hold or do not hold in it."""

    forms: dict[Value, Linear] = field(default_factory=dict[Value, Linear])
    truths: dict[Value, bool] = field(default_factory=dict[Value, bool])


@dataclass(slots=True, eq=False)
class IndexForms:
    """``inside``: values that each iteration has of its own; all others are the same everywhere.
    ``sizes``: values that are sizes of arrays, which are not negative."""

    definitions: Mapping[Value, Operation]
    inside: Collection[Value] = frozenset()
    sizes: Collection[Value] = frozenset()
    known: Knowledge = field(default_factory=Knowledge)
    outer: Scope = field(default_factory=Scope)
    kept: list[Linear] = field(default_factory=list[Linear])
    """Facts about what is the same everywhere."""
    _names: dict[str, Linear] = field(default_factory=dict[str, Linear])
    _outer_atoms: set[int] = field(default_factory=set[int])
    _derived: dict[Hashable, Linear] = field(default_factory=dict[Hashable, Linear])
    _own_derived: dict[Hashable, Linear] = field(default_factory=dict[Hashable, Linear])
    _limits: dict[int, list[Linear]] = field(default_factory=dict[int, list[Linear]])

    # --- atoms and facts ----------------------------------------------------------------------

    def atom(self, outer: bool = False, low: int = -_FAR) -> Linear:
        """An unknown number. ``outer``: the same in all iterations."""
        made = self.known.atom((low, _FAR))
        if outer:
            self._outer_atoms.add(made)
        return Linear(((made, 1),))

    def is_fixed(self, form: Linear) -> bool:
        """Whether a form is the same in all iterations."""
        return all(atom in self._outer_atoms for atom, _ in form.terms)

    def forget(self) -> None:
        """Drops what was said of single iterations."""
        self.known.facts[:] = self.kept
        self._own_derived.clear()

    def holds(self, fact: Linear) -> None:
        """Takes ``fact >= 0`` as known; of multiples of a number only what is a multiple."""
        common = gcd(*(k for _, k in fact.terms))
        if common > 1:
            terms = tuple((atom, k // common) for atom, k in fact.terms)
            fact = Linear(terms, fact.constant // common)
        self.known.holds(fact)
        if fact.terms and self.is_fixed(fact):
            self.kept.append(fact)

    def limited(self, atom: Linear, fact: Linear) -> None:
        """Takes ``fact >= 0``, which says how large an atom can be, as known of products too."""
        self.holds(fact)
        if len(atom.terms) == 1:
            self._limits.setdefault(atom.terms[0][0], []).append(fact)

    def _is_at_least(self, number: int, form: Linear, always: bool) -> bool:
        """``always``: not only under what is known of an iteration."""
        if not always:
            return self.known.proves(form.shifted(-number), 2)
        here = list(self.known.facts)
        self.known.facts[:] = self.kept
        found = self.known.proves(form.shifted(-number), 2)
        self.known.facts[:] = here
        return found

    def size(self, size: int | str) -> Linear:
        """A size of a tile: at least 1."""
        if isinstance(size, int):
            return Linear((), size)
        if size not in self._names:
            self._names[size] = self.atom(outer=True, low=1)
        return self._names[size]

    # --- forms --------------------------------------------------------------------------------

    def form(self, value: Value, scope: Scope) -> Linear:
        """A number as a sum over what is not known, in an iteration."""
        if value not in self.inside:
            scope = self.outer
        found = scope.forms.get(value)
        if found is None:
            found = self._made(value, scope)
            scope.forms[value] = found
        return found

    def _made(self, value: Value, scope: Scope) -> Linear:
        o = self.definitions.get(value)
        outer = scope is self.outer
        if o is None or value.type != INDEX:
            return self.atom(outer, 0 if value in self.sizes else -_FAR)
        match o.name:
            case "tile.constant":
                number = o.attributes["value"]
                return Linear((), int(number)) if isinstance(number, int) else self.atom(outer)
            case "tile.add" | "tile.sub":
                a, b = (self.form(v, scope) for v in o.operands)
                return a + b if o.name == "tile.add" else a - b
            case "tile.mul":
                a, b = (self.form(v, scope) for v in o.operands)
                return self.product(a, b) or self._numbered(o, scope)
            case "tile.floordiv" | "tile.mod":
                a, b = (self.form(v, scope) for v in o.operands)
                if o.name == "tile.floordiv":
                    return self.quotient(a, b)
                return self._remainder(a, b) or self._numbered(o, scope)
            case "tile.min" | "tile.max":
                return self._extremum(o, scope)
            case "tile.select":
                truth = scope.truths.get(o.operands[0])
                if truth is not None:
                    return self.form(o.operands[1 if truth else 2], scope)
                return self._numbered(o, scope)
            case _ if o.name == _PARAMETER:
                return self.size(str(o.attributes["name"]))
            case _:
                return self._numbered(o, scope)

    def _derive(self, key: Hashable, outer: bool, low: int = -_FAR) -> tuple[Linear, bool]:
        """The atom of a key, and whether it is new."""
        found = self._derived.get(key) or self._own_derived.get(key)
        if found is not None:
            return found, False
        made = self.atom(outer, low)
        (self._derived if outer else self._own_derived)[key] = made
        return made, True

    def _numbered(self, o: Operation, scope: Scope) -> Linear:
        """An atom for what an operation gives: the same for the same operation on the same."""
        outer, keys = True, list[Hashable]()
        if len(o.results) != 1:  # of which each is another number
            return self.atom(scope is self.outer)
        low = 0 if o.result in self.sizes else -_FAR
        for v in o.operands:
            if v.type == INDEX:
                form = self.form(v, scope)
                outer = outer and self.is_fixed(form)
                keys.append(form)
            elif v in self.inside:
                return self.atom(False, low)
            else:
                keys.append(v)
        if not is_pure(o) or o.regions:
            return self.atom(scope is self.outer, low)
        attributes = tuple(sorted((n, repr(a)) for n, a in o.attributes.items()))
        return self._derive((o.name, attributes, *keys), outer, low)[0]

    def _extremum(self, o: Operation, scope: Scope) -> Linear:
        a, b = (self.form(v, scope) for v in o.operands)
        if a == b:
            return a
        least = o.name == "tile.min"
        pair = frozenset((a, b))
        outer = self.is_fixed(a) and self.is_fixed(b)
        found, new = self._derive((o.name, pair), outer)
        for other in (a, b) if new else ():
            self.holds(other - found if least else found - other)
        return found

    def product(self, a: Linear, b: Linear) -> Linear | None:
        """``a * b``; None where that has too many terms."""
        if not a.terms:
            return b.scaled(a.constant)
        if not b.terms:
            return a.scaled(b.constant)
        if len(a.terms) * len(b.terms) > _MOST_TERMS:
            return None
        total = Linear((), a.constant * b.constant)
        total = total.plus(Linear(a.terms), b.constant) if b.constant else total
        total = total.plus(Linear(b.terms), a.constant) if a.constant else total
        for x, k in a.terms:
            for y, m in b.terms:
                total = total.plus(self._pair(x, y), k * m)
        return total

    def _pair(self, x: int, y: int) -> Linear:
        """The product of two atoms: of what is not negative it is not negative, and what limits one
        of them limits it."""
        x, y = min(x, y), max(x, y)
        positive = all(self.known.intervals[atom][0] >= 0 for atom in (x, y))
        outer = x in self._outer_atoms and y in self._outer_atoms
        found, new = self._derive(("mul", x, y), outer, 0 if positive else -_FAR)
        if not new:
            return found
        for atom, other in ((x, y), (y, x)):
            if self.known.intervals[other][0] < 0:
                continue
            for fact in self._limits.get(atom, ()):
                if (times := self.product(fact, Linear(((other, 1),)))) is not None:
                    self.holds(times)
        return found

    def quotient(self, a: Linear, d: Linear) -> Linear:
        """``a // d`` rounded down; 0 where ``d`` is 0."""
        c = d.constant
        if not d.terms:
            if c == 0:
                return Linear()
            if c > 0 and a.constant % c == 0 and all(k % c == 0 for _, k in a.terms):
                return Linear(tuple((atom, k // c) for atom, k in a.terms), a.constant // c)
            if not a.terms:
                return Linear((), a.constant // c)
        fixed = self.is_fixed(a) and self.is_fixed(d)
        divides = self._is_at_least(1, d, fixed)
        above = self._is_at_least(0, a, fixed) and (divides or self._is_at_least(0, d, fixed))
        found, new = self._derive(("floordiv", a, d), fixed, 0 if above else -_FAR)
        back = self.product(found, d) if new else None
        if back is not None and (above or divides):
            self.limited(found, a - back)
            if divides:
                self.holds(back + d.shifted(-1) - a)
        return found

    def _remainder(self, a: Linear, d: Linear) -> Linear | None:
        """``a % d`` as what the quotient leaves; None where ``d`` may be 0 or less."""
        if not self._is_at_least(1, d, self.is_fixed(a) and self.is_fixed(d)):
            return None
        back = self.product(self.quotient(a, d), d)
        return None if back is None else a - back

    # --- conditions ---------------------------------------------------------------------------

    def told(self, condition: Value, truth: bool, scope: Scope) -> None:
        """What a condition says of numbers, where it is true or false."""
        scope.truths[condition] = truth
        o = self.definitions.get(condition)
        if o is None:
            return
        if o.name == "tile.not":
            self.told(o.operands[0], not truth, scope)
        elif o.name == ("tile.and" if truth else "tile.or"):
            for v in o.operands:
                self.told(v, truth, scope)
        elif o.name == "tile.cmp" and o.operands[0].type == INDEX:
            a, b = (self.form(v, scope) for v in o.operands)
            word = str(o.attributes["predicate"])
            word = word if truth else _OPPOSITE[word]
            if word in ("lt", "le", "eq"):
                self.holds_here((b - a).shifted(-1 if word == "lt" else 0))
            if word in ("gt", "ge", "eq"):
                self.holds_here((a - b).shifted(-1 if word == "gt" else 0))

    def holds_here(self, fact: Linear) -> None:
        """Takes ``fact >= 0`` as known until ``forget``, also of what is the same everywhere."""
        kept = len(self.kept)
        self.holds(fact)
        del self.kept[kept:]

    def present(self, extent: Value, scope: Scope) -> None:
        """What follows from an extent being at least 1."""
        o = self.definitions.get(extent)
        self.holds_here(self.form(extent, scope).shifted(-1))
        if o is None:
            return
        if o.name == "tile.select" and self._is_zero(o.operands[2]):
            self.told(o.operands[0], True, scope)
            self.present(o.operands[1], scope)
        elif o.name == "tile.max" and self._is_zero(o.operands[0]):
            self.present(o.operands[1], scope)
        elif o.name == "tile.min":
            for v in o.operands:
                self.present(v, scope)

    def widths(self, extent: Value, scope: Scope) -> list[Linear]:
        """Numbers that an extent of at least 1 is not above."""
        o = self.definitions.get(extent)
        if o is not None:
            if o.name == "tile.select" and self._is_zero(o.operands[2]):
                return self.widths(o.operands[1], scope)
            if o.name == "tile.max" and self._is_zero(o.operands[0]):
                return self.widths(o.operands[1], scope)
            if o.name == "tile.min":
                return [w for v in o.operands for w in self.widths(v, scope)]
        return [self.form(extent, scope)]

    def _is_zero(self, value: Value) -> bool:
        o = self.definitions.get(value)
        return o is not None and o.name == "tile.constant" and o.attributes["value"] == 0
