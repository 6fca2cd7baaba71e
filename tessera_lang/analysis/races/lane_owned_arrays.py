"""Arrays of which every element belongs to one lane of the grid: no two lanes meet there.

Every access of such an array has, along some axes, an index ``P + e``: ``P`` is one and the same
sum of multiples of lane and group ids in all of them, and ``e`` so small that the ids can be told
from the sum, digit by digit; or ``e`` is a multiple of a number that the sum is below, as in
`range(t, n, 128)`; or a guard lets one lane only come there. Sound: what is not understood belongs
to nobody. Must not know passes, syntax or targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import TypeAlias, cast

from tessera_lang.analysis.ranges.accesses import ACCESSES
from tessera_lang.analysis.ranges.integer_ranges import ranges
from tessera_lang.analysis.ranges.linear import Interval, Linear
from tessera_lang.analysis.ranges.state import Ranges, State, is_integer
from tessera_lang.ir.core import Operation, Value
from tessera_lang.record import dataclass, field

Id: TypeAlias = "tuple[str, int]"
Terms: TypeAlias = tuple[tuple[int, int], ...]
_MOST_COUNTERS = 8  # in one index
_FAR = 1 << 40  # what is added to the ids; more tells nothing


@dataclass(slots=True)
class _Axis:
    """The ids in the index of all accesses along one axis, and what else there is: ``rest``, and
    any multiple of ``modulus``."""

    terms: Terms
    rest: Interval
    modulus: int = 0


@dataclass(slots=True)
class _Seen:
    """``axes`` of each pointer, and the same by remainders: None where accesses differ, or nothing
    is known. ``one``: ids that guards hold to one number in all accesses. ``loops``: those whose
    counters are looked at."""

    pointers: dict[Value, Value]
    loops: Sequence[Operation]
    ids: dict[int, Id] = field(default_factory=dict[int, Id])
    axes: dict[Value, list[_Axis | None]] = field(default_factory=dict[Value, "list[_Axis | None]"])
    remainders: dict[Value, list[_Axis | None]] = field(
        default_factory=dict[Value, "list[_Axis | None]"]
    )
    one: dict[Value, set[tuple[Id, int]]] = field(
        default_factory=dict[Value, "set[tuple[Id, int]]"]
    )

    def access(self, state: State, o: Operation) -> None:
        at = ACCESSES[o.name]
        pointer = self.pointers.get(o.operands[at])
        if pointer is None:
            return
        for key, atom in state.atoms.items():
            if isinstance(key, tuple) and key[0] in ("lane", "group"):
                self.ids[atom] = cast("Id", key)
        held = {
            (i, low) for atom, i in self.ids.items()
            for low, high in [state.known.range(Linear(((atom, 1),)))] if low == high
        }  # fmt: skip
        self.one[pointer] = self.one.get(pointer, held) & held
        indices = o.operands[at + 1 :]
        for axes, of in ((self.axes, self._axis), (self.remainders, self._remainder)):
            found = [of(state, v) for v in indices]
            before = axes.get(pointer)
            if before is None:
                axes[pointer] = found
            elif len(before) != len(found):
                axes[pointer] = []
            else:
                axes[pointer] = [_joined(a, b) for a, b in zip(before, found, strict=True)]

    def _remainder(self, state: State, index: Value) -> _Axis | None:
        """The ids, and what the rest of the index is a multiple of: counters are where they begin
        and so many steps on."""
        if not is_integer(index):
            return None
        form, modulus = state.form(index), 0
        counters = self._counters(state) if len(form.terms) > len(self._ids_in(form)) else {}
        for _ in range(_MOST_COUNTERS):
            counter = next((t for t in form.terms if t[0] in counters), None)
            if counter is None:
                break
            atom, factor = counter
            lower, step = counters[atom]
            form, modulus = form.replaced(atom, lower), gcd(modulus, factor * step)
        for atom, factor in form.terms:
            if atom not in self.ids:
                modulus = gcd(modulus, factor)
        return _Axis(self._ids_in(form), (form.constant, form.constant), modulus)

    def _counters(self, state: State) -> dict[int, tuple[Linear, int]]:
        """The atoms of counters, with the form of where they begin and the number of a step."""
        found: dict[int, tuple[Linear, int]] = {}
        for loop in self.loops:
            form = state.forms.get(loop.regions[0].arguments[0])
            lower, step = (state.forms.get(v) for v in (loop.operands[0], loop.operands[2]))
            if form is None or lower is None or step is None or step.terms:
                continue
            if len(form.terms) == 1 and form.terms[0][1] == 1 and not form.constant:
                found[form.terms[0][0]] = (lower, step.constant)
        return found

    def _axis(self, state: State, index: Value) -> _Axis | None:
        if not is_integer(index):
            return None
        form = state.form(index)
        for terms in self._candidates(state, form):
            low, high = state.known.range(form - Linear(terms), 3)
            if -_FAR < low <= high < _FAR:
                return _Axis(terms, (low, high))
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


def _joined(a: _Axis | None, b: _Axis | None) -> _Axis | None:
    if a is None or b is None:
        return None
    modulus = gcd(a.modulus, b.modulus)
    if _modulo(a.terms, modulus) != _modulo(b.terms, modulus):
        return None
    rest = (min(a.rest[0], b.rest[0]), max(a.rest[1], b.rest[1]))
    return _Axis(_modulo(a.terms, modulus), rest, modulus)


def _modulo(terms: Terms, modulus: int) -> Terms:
    """What multiples of the modulus leave of a sum."""
    return tuple((a, f) for a, f in terms if f % modulus) if modulus else terms


def owned(
    kernel: Operation, *, several: bool = True, grid: Sequence[object] = ()
) -> tuple[set[Value], Ranges]:
    """The pointers of such arrays, and the ranges that tell them. ``several``: whether there may be
    more than one group; ``grid``: groups along each axis, where they are numbers."""
    views = {o.result: o.operands[0] for o in kernel.walk() if o.name == "tile.view"}
    seen = _Seen(views, [o for o in kernel.walk() if o.name == "tile.for"])
    known = ranges(kernel, seen.access)
    group = kernel.integers("group")
    extents: dict[Id, int] = {("lane", axis): n for axis, n in enumerate(group)}
    extents.update((("group", axis), n) for axis, n in enumerate(grid) if isinstance(n, int))
    rank = cast("int", kernel.attributes["grid_rank"])
    other = _used_otherwise(kernel, views)
    found: set[Value] = set()
    for pointer, axes in seen.axes.items():
        axes = (*axes, *seen.remainders[pointer])
        told = _told(axes, seen.ids, extents) | {i for i, _ in seen.one[pointer]}
        if pointer not in other and _are_told(told, group, rank, several):
            found.add(pointer)
    return found, known


def _used_otherwise(kernel: Operation, views: dict[Value, Value]) -> set[Value]:
    """Pointers whose views something but an access uses, or that have views of several shapes."""
    found = {
        views[v] for o in kernel.walk() if o.name not in ACCESSES for v in o.operands if v in views
    }
    pointers = list(views.values())
    return found | {p for p in pointers if pointers.count(p) > 1}


def _told(
    axes: Iterable[_Axis | None], ids: Mapping[int, Id], extents: Mapping[Id, int]
) -> set[Id]:
    """Ids that an index tells: each has a factor beyond all that the smaller ones add up to, which
    in remainders is less than the modulus."""
    told: set[Id] = set()
    for axis in axes:
        if axis is None:
            continue
        width = axis.rest[1] - axis.rest[0] + 1
        for atom, factor in sorted(axis.terms, key=lambda t: abs(t[1])):
            extent = extents.get(ids[atom])
            if abs(factor) < width or (axis.modulus and extent is None):
                break
            width += abs(factor) * ((extent or 1) - 1)
            if 0 < axis.modulus < width:
                break
            told.add(ids[atom])
            if extent is None:
                break
    return told


def _are_told(told: set[Id], group: tuple[int, ...], rank: int, several: bool) -> bool:
    lanes = all(("lane", axis) in told for axis, n in enumerate(group) if n > 1)
    return lanes and (
        not several
        or ("group", -1) in told
        or all(("group", axis) in told for axis in range(max(1, rank)))
    )
