"""Arrays of which every element belongs to one lane of the grid: no two lanes meet there.

Every access of such an array tells numbers ``P + e`` by its indices: ``P`` is one and the same
sum of multiples of lane and group ids in all of them, and ``e`` so small that the ids can be told
from the sum, digit by digit; or ``e`` is a multiple of a number that the sum is below, as in
`range(t, n, 128)`; or a guard lets one lane only come there. Sound: what is not understood belongs
to nobody. Must not know passes, syntax or targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from math import gcd
from typing import TypeAlias, cast

from tessera_lang.analysis.races.index_digits import Digits, Key
from tessera_lang.analysis.races.steady_values import Steady, steady_values
from tessera_lang.analysis.ranges.accesses import ACCESSES
from tessera_lang.analysis.ranges.integer_ranges import ranges
from tessera_lang.analysis.ranges.linear import Interval, Linear
from tessera_lang.analysis.ranges.state import MOST_GROUPS, Ranges, State, is_integer
from tessera_lang.ir.core import Operation, Value
from tessera_lang.record import dataclass, field

Id: TypeAlias = "tuple[str, int]"
Terms: TypeAlias = tuple[tuple[int, int], ...]
_MOST_COUNTERS = 8  # in one index
_FAR = 1 << 40  # what is added to the ids; more tells nothing


@dataclass(slots=True)
class _Axis:
    """The ids in a number of all accesses, and what else there is: ``alike``, the same in the whole
    launch, ``rest``, and any multiple of ``modulus``."""

    terms: Terms
    rest: Interval
    modulus: int = 0
    alike: Linear = Linear()


@dataclass(slots=True)
class _Seen:
    """``axes`` of each pointer, by the key of a number that indices tell, and the same by
    remainders: those that all accesses have. ``one``: ids that guards hold to one number in all
    accesses. ``steady``: what loops count by one step. ``centres``: along each axis of a pointer,
    sums of an index with a falling id and of the one that lies opposite; ``fold``: whether these
    are known from before, and used."""

    pointers: dict[Value, Value]
    steady: Sequence[Steady]
    digits: Digits
    ids: dict[int, Id] = field(default_factory=dict[int, Id])
    axes: dict[Value, dict[Key, _Axis]] = field(default_factory=dict[Value, "dict[Key, _Axis]"])
    remainders: dict[Value, dict[Key, _Axis]] = field(
        default_factory=dict[Value, "dict[Key, _Axis]"]
    )
    one: dict[Value, set[tuple[Id, Linear]]] = field(
        default_factory=dict[Value, "set[tuple[Id, Linear]]"]
    )
    centres: dict[Value, set[tuple[Key, Linear]]] = field(
        default_factory=dict[Value, "set[tuple[Key, Linear]]"]
    )
    fold: bool = False

    def access(self, state: State, o: Operation) -> None:
        at = ACCESSES[o.name]
        pointer = self.pointers.get(o.operands[at])
        if pointer is None:
            return
        for atom, key in self.digits.see(state):
            if isinstance(key, tuple) and key[0] in ("lane", "group"):
                self.ids[atom] = cast("Id", key)
        held = set(self._held(state))
        self.one[pointer] = self.one.get(pointer, held) & held
        places = enumerate(o.operands[at + 1 :])
        indices: dict[Key, Linear] = {(n,): state.form(v) for n, v in places if is_integer(v)}
        centres = self.centres.setdefault(pointer, set())
        if not self.fold:
            centres.update(self._centres(indices))
        indices |= self._starts(state, indices)
        numbers = self.digits.of(state, indices, centres if self.fold else ())
        for axes, of in ((self.axes, self._axis), (self.remainders, self._remainder)):
            before = axes.get(pointer)
            found = {
                key: axis for key, form in numbers.items()
                if (before is None or key in before) and (axis := of(state, form)) is not None
            }  # fmt: skip
            if before is not None:
                both = ((key, _joined(before[key], axis)) for key, axis in found.items())
                found = {key: axis for key, axis in both if axis is not None}
            axes[pointer] = found

    def _held(self, state: State) -> Iterator[tuple[Id, Linear]]:
        """Ids that a guard holds to a number which is the same in the whole launch."""
        for atom, i in self.ids.items():
            mine = Linear(((atom, 1),))
            low, high = state.known.range(mine)
            if low == high:
                yield i, Linear((), low)
            for fact in state.known.facts:
                other = mine - fact
                if fact.coefficient(atom) != 1 or self.digits.alike(other).terms != other.terms:
                    continue
                if other.terms and state.known.proves(fact.scaled(-1)):
                    yield i, other

    def _centres(self, indices: Mapping[Key, Linear]) -> Iterator[tuple[Key, Linear]]:
        for key, form in indices.items():
            if any(factor < 0 for _, factor in self._ids_in(form)):
                alike = self.digits.alike(form)
                yield key, alike.shifted(form.constant)

    def _starts(self, state: State, indices: Mapping[Key, Linear]) -> dict[Key, Linear]:
        """The remainders of indices by the step of their counters: where these begin."""
        found: dict[Key, Linear] = {}
        for key, form in indices.items():
            start, modulus = self._without_counters(state, form)
            below = Linear((), modulus - 1) - start
            if modulus and state.known.proves(start) and state.known.proves(below):
                found[*key, "start", modulus] = start
        return found

    def _remainder(self, state: State, form: Linear) -> _Axis | None:
        """The ids, and what the rest of the index is a multiple of: counters are where they begin
        and so many steps on."""
        form, modulus = self._without_counters(state, form)
        alike = self.digits.alike(form)
        for atom, factor in (form - alike).terms:
            if atom not in self.ids:
                modulus = gcd(modulus, factor)
        return _Axis(self._ids_in(form), (form.constant, form.constant), modulus, alike)

    def _without_counters(self, state: State, form: Linear) -> tuple[Linear, int]:
        """With where they begin in the place of counters, and what the difference is a multiple of:
        0 where there is none."""
        modulus = 0
        counters = self._counters(state) if len(form.terms) > len(self._ids_in(form)) else {}
        for _ in range(_MOST_COUNTERS):
            counter = next((t for t in form.terms if t[0] in counters), None)
            if counter is None:
                break
            atom, factor = counter
            lower, step = counters[atom]
            form, modulus = form.replaced(atom, lower), gcd(modulus, factor * step)
        return form, modulus

    def _counters(self, state: State) -> dict[int, tuple[Linear, int]]:
        """The atoms of counters, with the form of where they begin and the number of a step."""
        found: dict[int, tuple[Linear, int]] = {}
        for counter in self.steady:
            form, start = (state.forms.get(v) for v in (counter.value, counter.start))
            step = counter.step_in(state)
            if form is None or start is None or not step:
                continue
            if len(form.terms) == 1 and form.terms[0][1] == 1 and not form.constant:
                found[form.terms[0][0]] = (start, step)
        return found

    def _axis(self, state: State, form: Linear) -> _Axis | None:
        for terms in self._candidates(state, form):
            rest = form - Linear(terms)
            alike = self.digits.alike(rest)
            low, high = state.known.range(rest - alike, 3)
            if -_FAR < low <= high < _FAR:
                return _Axis(terms, (low, high), 0, alike)
        return None

    def _candidates(self, state: State, form: Linear) -> Iterable[Terms]:
        """The ids in a form, or in what one of its unknowns is known to begin with."""
        mine = self._ids_in(form)
        if mine:
            yield mine
            return
        for atom, factor in form.terms:
            for fact in state.known.facts:
                if fact.coefficient(atom) == 1:
                    start = Linear(((atom, 1),)) - fact
                    if terms := self._ids_in(start.scaled(factor)):
                        yield terms

    def _ids_in(self, form: Linear) -> Terms:
        return tuple(t for t in form.terms if t[0] in self.ids)


def _joined(a: _Axis, b: _Axis) -> _Axis | None:
    """What is alike in each of both may differ: by multiples of its factors."""
    modulus = gcd(a.modulus, b.modulus, *(factor for _, factor in (a.alike - b.alike).terms))
    if _modulo(a.terms, modulus) != _modulo(b.terms, modulus):
        return None
    rest = (min(a.rest[0], b.rest[0]), max(a.rest[1], b.rest[1]))
    return _Axis(_modulo(a.terms, modulus), rest, modulus, a.alike)


def _modulo(terms: Terms, modulus: int) -> Terms:
    """What multiples of the modulus leave of a sum."""
    return tuple((a, f) for a, f in terms if f % modulus) if modulus else terms


@dataclass(frozen=True, slots=True)
class Owned:
    """Pointers of arrays of which every element belongs to one lane, and of those of which it
    belongs to one group; and the ranges that tell them."""

    by_lanes: set[Value]
    by_groups: set[Value]
    known: Ranges


def owned(
    kernel: Operation, *, several: bool = True, grid: Sequence[object] = ()
) -> tuple[set[Value], Ranges]:
    """The pointers of arrays of single lanes, and the ranges that tell them. ``several``: whether
    there may be more than one group; ``grid``: groups along each axis, where they are numbers."""
    found = ownership(kernel, several=several, grid=grid)
    return found.by_lanes, found.known


def ownership(
    kernel: Operation, *, several: bool = True, grid: Sequence[object] = ()
) -> Owned:  # fmt: skip
    """Whose the elements of arrays are."""
    views = {o.result: o.operands[0] for o in kernel.walk() if o.name == "tile.view"}
    seen = _Seen(views, list(steady_values(kernel)), Digits(kernel))
    found = Owned(set(), set(), ranges(kernel, seen.access))
    _own(found, seen, kernel, several, grid)
    if any(seen.centres[p] for p in seen.axes.keys() - found.by_lanes):
        seen = _Seen(views, seen.steady, Digits(kernel), centres=seen.centres, fold=True)
        ranges(kernel, seen.access)
        _own(found, seen, kernel, several, grid)
    return found


def _own(
    found: Owned, seen: _Seen, kernel: Operation, several: bool, grid: Sequence[object]
) -> None:
    group = kernel.integers("group")
    extents: dict[Id, int] = {("lane", axis): n for axis, n in enumerate(group)}
    extents.update((("group", axis), n) for axis, n in enumerate(grid) if isinstance(n, int))
    rank = max(1, cast("int", kernel.attributes["grid_rank"]))
    other = _used_otherwise(kernel, seen.pointers)
    for pointer, by_key in seen.axes.items():
        if pointer in other:
            continue
        axes = (*by_key.values(), *seen.remainders[pointer].values())
        told = _told(axes, seen.ids, extents, {i for i, _ in seen.one[pointer]})
        if several and ("group", -1) not in told and not told.issuperset(_axes("group", rank)):
            continue
        found.by_groups.add(pointer)
        if told.issuperset(i for i in _axes("lane", len(group)) if extents[i] > 1):
            found.by_lanes.add(pointer)


def _axes(of: str, rank: int) -> list[Id]:
    return [(of, axis) for axis in range(rank)]


def _used_otherwise(kernel: Operation, views: dict[Value, Value]) -> set[Value]:
    """Pointers whose views something but an access uses, or that have views of several shapes."""
    found = {
        views[v] for o in kernel.walk() if o.name not in ACCESSES for v in o.operands if v in views
    }
    pointers = list(views.values())
    return found | {p for p in pointers if pointers.count(p) > 1}


def _told(
    axes: Sequence[_Axis], ids: Mapping[int, Id], extents: Mapping[Id, int], known: Set[Id]
) -> set[Id]:
    """Ids that numbers tell. ``known``: ids that are the same in all accesses. What one number
    tells is taken out of the others, until nothing more is told."""
    told = {*known, *(i for i, n in extents.items() if n == 1)}
    while True:
        new = {i for axis in axes for i in _told_by(axis, ids, extents, told)} - told
        if not new:
            return told
        told |= new


def _told_by(
    axis: _Axis, ids: Mapping[int, Id], extents: Mapping[Id, int], told: Set[Id]
) -> Iterable[Id]:
    """The other ids that a number tells: each has a factor beyond all that the smaller ones add up
    to. Larger ones that it does not tell so are left out as multiples of a common divisor, or of
    the modulus, which all that is left has to be below."""
    rest = axis.rest[1] - axis.rest[0] + 1
    terms = sorted((abs(factor), ids[atom]) for atom, factor in axis.terms)
    terms = [(factor, i) for factor, i in terms if i not in told]
    for most in range(len(terms), 0, -1):
        modulus = gcd(axis.modulus, *(factor for factor, _ in terms[most:]))
        widths = [rest]  # of what is below each of them
        for factor, i in terms[:most]:
            widths.append(widths[-1] + factor * (extents.get(i, MOST_GROUPS) - 1))
        if modulus and modulus < widths[-1]:
            continue
        for (factor, i), width in zip(terms[most - 1 :: -1], widths[most - 1 :: -1], strict=True):
            if factor < width:
                break
            yield i
