"""Numbers that the indices of an access tell: those along its axes, and what follows from them.

`i * n + j` with ``0 <= j < n`` tells ``i`` and ``j``; `i // n` and `i % n` together tell ``i``;
where `t % 8` is known, `t // 8` tells ``t``. `i` and `n - 1 - i` tell the smaller of the two, and
``(i, j)`` and ``(j, i)`` both, where it is known which is smaller. A number has a key that says how
it is made of the indices: two accesses with equal indices have equal numbers of one key. Must not
know lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import TypeAlias, cast

from tessera_lang.analysis.ranges.linear import Linear
from tessera_lang.analysis.ranges.state import State
from tessera_lang.ir.core import Operation, Value
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import DType, integer_range

Key: TypeAlias = "tuple[object, ...]"
_MOST = 24  # numbers of one access
_MOST_SORTED = 6  # axes and what else there is of which pairs are compared


@dataclass(slots=True)
class Digits:
    """``remainders``: operations that compute one. ``keys``: what the atoms stand for, of which so
    many as it has were looked at. ``fixed``: elements of arrays that nothing in the kernel changes,
    at places that are written out."""

    kernel: Operation
    fixed: frozenset[Value] = frozenset()
    remainders: list[Operation] = field(default_factory=list[Operation])
    arguments: frozenset[Value] = frozenset()
    keys: dict[int, object] = field(default_factory=dict[int, object])

    def __post_init__(self) -> None:
        self.remainders = [o for o in self.kernel.walk() if o.name in ("tile.mod", "tile.and")]
        self.arguments = frozenset(self.kernel.regions[0].arguments)
        self.fixed = frozenset(_fixed(self.kernel))

    def of(
        self,
        state: State,
        indices: Mapping[Key, Linear],
        centres: Iterable[tuple[Key, Linear]] = (),
    ) -> dict[Key, Linear]:
        """By key, those of an access with these indices. ``centres``: along an axis, the sum of two
        indices that lie opposite each other."""
        found = dict(indices)
        for key, centre in centres:
            if key in indices:
                found.update(self._folded(state, key, indices[key], centre))
        found.update(self._sorted(state, indices))
        if not any(self._is_made(atom) for form in found.values() for atom, _ in form.terms):
            return found
        rules = (self._divided, self._put_together, self._without_remainder)
        seen = 0
        while seen < len(found) < _MOST:
            seen = len(found)
            for key, form in list(found.items()):
                for rule in rules:
                    for made, number in list(rule(state, key, form, found)):
                        found.setdefault(made, number)
        return found

    def see(self, state: State) -> Iterator[tuple[int, object]]:
        """The atoms that are new."""
        if len(self.keys) < len(state.atoms):
            for key, atom in state.atoms.items():
                if atom not in self.keys:
                    self.keys[atom] = key
                    yield atom, key

    def _is_made(self, atom: int) -> bool:
        return self._kind(atom) not in ("lane", "group", "count") and (
            self.keys.get(atom) not in self.arguments
        )

    def _kind(self, atom: int) -> object:
        """What a tuple that stands for an atom begins with."""
        key = self.keys.get(atom)
        return cast("Key", key)[0] if isinstance(key, tuple) else ""

    def alike(self, form: Linear) -> Linear:
        """The part of a number that is the same in the whole launch, without its constant."""
        return Linear(tuple(t for t in form.terms if self._is_alike(t[0])))

    def _is_alike(self, atom: int) -> bool:
        """Whether it is a size, a number of the call or of an array that stays, how many groups
        there are, or a product of these."""
        key = self.keys.get(atom)
        if self._kind(atom) == "product":
            factors = cast("tuple[Linear, ...]", cast("Key", key)[2])
            return all(self._is_alike(a) for factor in factors for a, _ in factor.terms)
        return key in self.arguments or key in self.fixed or self._kind(atom) == "count"

    def _is_base(self, form: Linear) -> bool:
        return bool(form.terms) and self.alike(form).terms == form.terms

    # --- reflections ---

    def _folded(
        self, state: State, key: Key, form: Linear, centre: Linear
    ) -> Iterator[tuple[Key, Linear]]:
        """The smaller one of an index and the one opposite."""
        ahead = centre.plus(form, -2)
        if state.known.proves(ahead):
            yield (*key, "fold", centre), form
        elif state.known.proves(ahead.scaled(-1)):
            yield (*key, "fold", centre), centre - form

    def _sorted(self, state: State, indices: Mapping[Key, Linear]) -> Iterator[tuple[Key, Linear]]:
        """Of two axes the smaller and the larger index."""
        if len(indices) > _MOST_SORTED:
            return
        for (x, a), (y, b) in combinations(indices.items(), 2):
            if len(x) > 1 or len(y) > 1 or not (a.terms and b.terms):
                continue
            if state.known.proves(b - a):
                yield ("min", x, y), a
                yield ("max", x, y), b
            elif state.known.proves(a - b):
                yield ("min", x, y), b
                yield ("max", x, y), a

    # --- digits ---

    def _divided(
        self, state: State, key: Key, form: Linear, found: Mapping[Key, Linear]
    ) -> Iterator[tuple[Key, Linear]]:
        """The quotient and the remainder by what products in it have as a factor."""
        for base in dict.fromkeys(
            b for atom, _ in form.terms for _, b in self._factors(state, atom)
        ):
            quotient, rest = Linear(), form
            for atom, c in form.terms:
                other = next((a for a, b in self._factors(state, atom) if b == base), None)
                if other is not None:
                    quotient = quotient.plus(other, c)
                    rest = rest.plus(Linear(((atom, 1),)), -c)
            if state.known.proves(rest) and state.known.proves((base - rest).shifted(-1)):
                yield (*key, "div", base), quotient
                yield (*key, "mod", base), rest
                return

    def _factors(self, state: State, atom: int) -> list[tuple[Linear, Linear]]:
        """The pairs of numbers that an atom is surely the product of, the second one the same in
        the whole launch."""
        if self._kind(atom) != "product" or not self._has_not_wrapped(state, atom):
            return []
        pairs = _pairs(state, atom)
        if not all(self._are_exact(state, a) and self._are_exact(state, b) for a, b in pairs):
            return []
        both = [p for a, b in pairs for p in ((a, b), (b, a))]
        return [(a, b) for a, b in both if self._is_base(b)]

    def _are_exact(self, state: State, form: Linear) -> bool:
        """Whether no product in a form may have wrapped."""
        for atom, _ in form.terms:
            if self._kind(atom) == "product":
                parts = [p for pair in _pairs(state, atom) for p in pair]
                if not self._has_not_wrapped(state, atom):
                    return False
                if not all(self._are_exact(state, part) for part in parts):
                    return False
        return True

    def _has_not_wrapped(self, state: State, atom: int) -> bool:
        """Of a product: one that may have is any number of its type."""
        dtype = cast("DType", cast("Key", self.keys[atom])[1])
        return state.known.intervals[atom] != integer_range(dtype)

    # --- quotients and remainders ---

    def _put_together(
        self, state: State, key: Key, form: Linear, found: Mapping[Key, Linear]
    ) -> Iterator[tuple[Key, Linear]]:
        """Of a quotient, with its remainder among the others, what was divided."""
        divided = self._quotient(state, form)
        if divided is None:
            return
        number, base = divided
        rests = self._rests(state, number, base)
        if not base.terms:
            rests.append(number.plus(form, -base.constant))
        for other, rest in found.items():
            if rest in rests:
                yield ("whole", key, base, other), number

    def _without_remainder(
        self, state: State, key: Key, form: Linear, found: Mapping[Key, Linear]
    ) -> Iterator[tuple[Key, Linear]]:
        """A multiple of a number in which what was divided stands for its quotient, where guards
        say what the remainder is."""
        for atom, c in form.terms:
            divided = self._quotient(state, Linear(((atom, 1),)))
            if divided is None or divided[1].terms:
                continue
            number, base = divided[0], divided[1].constant
            if any(self._is_made(a) or self.keys.get(a) in self.arguments for a, _ in number.terms):
                continue
            for rest in self._rests(state, number, divided[1]):
                low, high = state.known.range(rest)
                if low == high:
                    whole = form.plus(Linear(((atom, 1),)), -c).scaled(base)
                    yield (*key, "times", base, low), whole.plus(number.shifted(-low), c)
                    break

    def _quotient(self, state: State, form: Linear) -> tuple[Linear, Linear] | None:
        """What an unknown is the quotient of, and by which number: the same one in all lanes."""
        if len(form.terms) != 1 or form.terms[0][1] != 1 or form.constant:
            return None
        key = self.keys.get(form.terms[0][0])
        if self._kind(form.terms[0][0]) == "quotient":
            _, number, divisor = cast("tuple[str, Linear, int]", key)
            return number, Linear((), divisor)
        made = state.definitions.get(key) if isinstance(key, Value) else None
        if made is None or made.name != "tile.floordiv":
            return None
        number, base = (state.form(v) for v in made.operands)
        return (number, base) if self._is_base(base) else None

    def _rests(self, state: State, number: Linear, base: Linear) -> list[Linear]:
        """The remainders of a number that the kernel computes."""
        found: list[Linear] = []
        for o in self.remainders:
            a, b = (state.forms.get(v) for v in o.operands)
            if a is None or b is None or o.result not in state.forms:
                continue
            if a != number and not (base.constant and not base.terms and _leaves(a - number, base)):
                continue
            if b == base if o.name == "tile.mod" else _is_mask(b, base):
                found.append(state.forms[o.result])
        return found


def _leaves(difference: Linear, base: Linear) -> bool:
    """Whether two numbers that differ so have one remainder by a number."""
    parts = (difference.constant, *(factor for _, factor in difference.terms))
    return all(part % base.constant == 0 for part in parts)


def _fixed(kernel: Operation) -> Iterator[Value]:
    made = {v: o for o in kernel.walk() for v in o.results}
    views = {o.result: o.operands[0] for o in made.values() if o.name == "tile.view"}
    other = {
        views[v] for o in kernel.walk() if o.name != "tile.load" for v in o.operands if v in views
    }
    for o in kernel.nested("tile.load"):
        array, *indices = o.operands
        known = all(v in made and made[v].name == "tile.constant" for v in indices)
        if known and array in views and views[array] not in other:
            yield o.result


def _is_mask(mask: Linear, base: Linear) -> bool:
    size = base.constant
    return not mask.terms and not base.terms and mask.constant == size - 1 and not size & (size - 1)


def _pairs(state: State, atom: int) -> list[tuple[Linear, Linear]]:
    product = Linear(((atom, 1),))
    return [(a, b) for p, a, b in state.products if p == product]
