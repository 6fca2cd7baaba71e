"""What the range analysis knows at a place, and what it gives.

Owns the values' linear forms and the result. Must not know operations.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Literal, TypeAlias, cast

from tessera_lang.analysis.ranges.linear import Interval, Knowledge, Linear, join
from tessera_lang.ir.core import Operation, Value
from tessera_lang.record import dataclass, field
from tessera_lang.target.launch_plan import LARGEST_SIZE
from tessera_lang.types.dtype import DType, integer_range

MOST_GROUPS = 1 << 48


@dataclass(frozen=True, slots=True)
class BoundsVerdict:
    """What was found about one access: ``axis`` and the index range where it matters, and all axes
    whose index is not proved to be inside."""

    verdict: Literal["proved", "unknown", "outside"]
    axis: int = 0
    index: Interval = (0, 0)
    open: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Wrap:
    """A remainder of a number that is less than the divisor outside, with ``multiple`` times the
    divisor (-1, 0 or 1) taken off; ``below`` 0 and ``above`` the divisor: whether it may be."""

    multiple: int
    below: bool
    above: bool


Reads: TypeAlias = Literal["apart", "steady", "alike"]
"""Which reads of one element are taken to give one number: none; those between which nothing can
change it, if lanes do not race; or all."""
Wanted: TypeAlias = Literal["values", "verdicts", "indices", "touched", "remainders"]
EVERYTHING: Set[Wanted] = {"values", "verdicts", "indices", "touched", "remainders"}
"""What is read of the result; the rest is not worked out, and so not there. ``indices``: the
index range of an access that is not proved to be inside."""


@dataclass(slots=True)
class Ranges:
    """The result for one kernel.

    Bounds of integer values, a verdict per access, cells touched per buffer, divisions and loops
    whose divisor or step is shown not to be 0, and remainders that need no division.
    """

    values: dict[Value, Interval] = field(default_factory=dict[Value, Interval])
    accesses: dict[Operation, BoundsVerdict] = field(default_factory=dict[Operation, BoundsVerdict])
    touched: dict[Value, int] = field(default_factory=dict[Value, int])
    nonzero: set[Operation] = field(default_factory=set[Operation])
    wraps: dict[Value, Wrap] = field(default_factory=dict[Value, Wrap])
    remainders: set[Operation] = field(default_factory=set[Operation])
    """Those that were looked at, whatever was found."""

    def interval(self, value: Value) -> Interval:
        """Bounds of an integer value, over all places it is used in."""
        known = self.values.get(value)
        return known if known is not None else integer_range(cast("DType", value.type))


@dataclass(slots=True)
class State:
    """Values as linear forms, and the operations that define them, at a place of a kernel.

    ``sizes``: of each view, per axis. Nothing is recorded while ``recording`` is off. ``wrapped``:
    values that may have wrapped. ``equal``: what stands in the place of an atom. ``products``:
    (p, x, y) where p is at most x * y, neither of them negative; scoped as facts are. ``factors``:
    all factors of such a p, sorted. ``volumes``: the sizes of each array of several axes, and the
    factors of each size that is a product.
    """

    group: tuple[int, ...]
    grid_rank: int
    known: Knowledge = field(default_factory=Knowledge)
    forms: dict[Value, Linear] = field(default_factory=dict[Value, Linear])
    atoms: dict[object, int] = field(default_factory=dict[object, int])
    definitions: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    sizes: dict[Value, tuple[Linear, ...]] = field(default_factory=dict[Value, tuple[Linear, ...]])
    equal: dict[int, Linear] = field(default_factory=dict[int, Linear])
    largest_size: int = LARGEST_SIZE
    most_groups: int = MOST_GROUPS
    wrapped: set[Value] = field(default_factory=set[Value])
    products: list[tuple[Linear, Linear, Linear]] = field(
        default_factory=list["tuple[Linear, Linear, Linear]"]
    )
    factors: dict[Linear, tuple[Linear, ...]] = field(
        default_factory=dict["Linear", "tuple[Linear, ...]"]
    )
    volumes: list[tuple[Linear, ...]] = field(default_factory=list["tuple[Linear, ...]"])
    most_elements: int = LARGEST_SIZE
    recording: bool = True
    wanted: Set[Wanted] = field(default_factory=lambda: EVERYTHING)
    reads: Reads = "apart"
    result: Ranges = field(default_factory=Ranges)

    def atom(self, key: object, interval: Interval) -> Linear:
        """The atom of a key. A value's gets bounds that replace those it had; what several values
        may be, a tuple, keeps to the wider ones, and what is better here holds here."""
        found = self.atoms.get(key)
        if found is None:
            found = self.atoms[key] = self.known.atom(interval)
        elif isinstance(key, tuple):
            self._also(found, interval)
        else:
            self.known.bound(found, interval)
        return self.equal.get(found) or Linear(((found, 1),))

    def _also(self, atom: int, interval: Interval) -> None:
        low, high = join((self.known.intervals[atom], interval))
        self.known.bound(atom, (low, high))
        form = Linear(((atom, 1),))
        if interval[0] > low:
            self.known.holds_once(form.shifted(-interval[0]))
        if interval[1] < high:
            self.known.holds_once(form.scaled(-1).shifted(interval[1]))

    def replace(self, atom: int, form: Linear) -> None:
        """Put what an atom equals in its place, for good."""
        low, high = self.known.intervals[atom]
        for key, old in self.forms.items():
            self.forms[key] = old.replaced(atom, form)

        def put(forms: tuple[Linear, ...]) -> tuple[Linear, ...]:
            return tuple(old.replaced(atom, form) for old in forms)

        for view, sizes in self.sizes.items():
            self.sizes[view] = put(sizes)
        self.volumes = [put(sizes) for sizes in self.volumes]
        self.products = [(put((p,))[0], put((x,))[0], put((y,))[0]) for p, x, y in self.products]
        self.factors = {p.replaced(atom, form): put(f) for p, f in self.factors.items()}
        self.known.replace(atom, form)
        for other, old in self.equal.items():
            self.equal[other] = old.replaced(atom, form)
        self.equal[atom] = form
        self.known.holds(form.shifted(-low))
        self.known.holds(form.scaled(-1).shifted(high))

    def form(self, value: Value) -> Linear:
        """A value as a linear expression; unknown ones range over their type."""
        found = self.forms.get(value)
        if found is None:
            found = self.atom(value, integer_range(cast("DType", value.type)))
            self.forms[value] = found
        return found

    def range(self, value: Value) -> Interval:
        return self.known.range(self.form(value))

    def define(self, value: Value, form: Linear) -> None:
        self.forms[value] = form
        if self.recording and "values" in self.wanted:
            self.result.values[value] = self.known.range(form)


def is_integer(value: Value) -> bool:
    """Whether a value has a range: integers and bools."""
    return isinstance(value.type, DType) and (value.type.is_integer or value.type.kind == "bool")
