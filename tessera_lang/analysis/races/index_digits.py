"""Numbers that the indices of an access tell: those along its axes, and what follows from them.

`i * n + j` with ``0 <= j < n`` tells ``i`` and ``j``; `i // n` and `i % n` together tell ``i``;
where `t % 8` is known, `t // 8` tells ``t``. A number has a key that says how it is made of the
indices: two accesses with equal indices have equal numbers of one key. Must not know lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias, cast

from tessera_lang.analysis.ranges.linear import Linear
from tessera_lang.analysis.ranges.state import State
from tessera_lang.ir.core import Operation, Value
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import DType, integer_range

Key: TypeAlias = "tuple[object, ...]"
_MOST = 24  # numbers of one access


@dataclass(slots=True)
class Digits:
    """``remainders``: operations that compute one. ``keys``: what the atoms stand for, of which so
    many as it has were looked at."""

    kernel: Operation
    remainders: list[Operation] = field(default_factory=list[Operation])
    arguments: frozenset[Value] = frozenset()
    keys: dict[int, object] = field(default_factory=dict[int, object])

    def __post_init__(self) -> None:
        self.remainders = [o for o in self.kernel.walk() if o.name in ("tile.mod", "tile.and")]
        self.arguments = frozenset(self.kernel.regions[0].arguments)

    def of(self, state: State, indices: Mapping[int, Linear]) -> dict[Key, Linear]:
        """By key, those of an access with these indices."""
        found: dict[Key, Linear] = {(axis,): form for axis, form in indices.items()}
        forms = indices.values()
        if not any(self._is_made(atom) for form in forms for atom, _ in form.terms):
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
        """Whether it is a size, a number of the call, how many groups there are, or a product of
        these."""
        key = self.keys.get(atom)
        if self._kind(atom) == "product":
            factors = cast("tuple[Linear, ...]", cast("Key", key)[2])
            return all(self._is_alike(a) for factor in factors for a, _ in factor.terms)
        return key in self.arguments or self._kind(atom) == "count"

    def _is_base(self, form: Linear) -> bool:
        return bool(form.terms) and self.alike(form).terms == form.terms

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
            if a != number or b is None or o.result not in state.forms:
                continue
            if b == base if o.name == "tile.mod" else _is_mask(b, base):
                found.append(state.forms[o.result])
        return found


def _is_mask(mask: Linear, base: Linear) -> bool:
    size = base.constant
    return not mask.terms and not base.terms and mask.constant == size - 1 and not size & (size - 1)


def _pairs(state: State, atom: int) -> list[tuple[Linear, Linear]]:
    product = Linear(((atom, 1),))
    return [(a, b) for p, a, b in state.products if p == product]
