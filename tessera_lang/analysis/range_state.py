"""What the range analysis knows at a place, and what it gives.

Owns the values' linear forms and the result. Must not know operations.
"""

from __future__ import annotations

from typing import Literal, cast

from tessera_lang.analysis.linear import Interval, Knowledge, Linear
from tessera_lang.ir.core import Operation, Value
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import DType, integer_range


@dataclass(frozen=True, slots=True)
class Access:
    """What was found about one access: ``axis`` and the index range where it matters."""

    verdict: Literal["proved", "unknown", "outside"]
    axis: int = 0
    index: Interval = (0, 0)


@dataclass(slots=True)
class Ranges:
    """The result for one kernel.

    Bounds of integer values, a verdict per access, cells touched per buffer, and divisions
    and loops whose divisor or step is shown not to be 0.
    """

    values: dict[Value, Interval] = field(default_factory=dict[Value, Interval])
    accesses: dict[Operation, Access] = field(default_factory=dict[Operation, Access])
    touched: dict[Value, int] = field(default_factory=dict[Value, int])
    nonzero: set[Operation] = field(default_factory=set[Operation])

    def interval(self, value: Value) -> Interval:
        """Bounds of an integer value, over all places it is used in."""
        known = self.values.get(value)
        return known if known is not None else integer_range(cast("DType", value.type))


@dataclass(slots=True)
class State:
    """Values as linear forms, and the operations that define them, at a place of a kernel.

    ``sizes``: of each view, per axis. Nothing is recorded while ``recording`` is off. ``wrapped``:
    values that may have wrapped. ``equal``: what stands in the place of an atom. ``products``: (p, x, y) with p = x * y, all at least 1.
    """

    group: tuple[int, ...]
    grid_rank: int
    known: Knowledge = field(default_factory=Knowledge)
    forms: dict[Value, Linear] = field(default_factory=dict[Value, Linear])
    atoms: dict[object, int] = field(default_factory=dict[object, int])
    definitions: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    sizes: dict[Value, tuple[Linear, ...]] = field(default_factory=dict[Value, tuple[Linear, ...]])
    equal: dict[int, Linear] = field(default_factory=dict[int, Linear])
    wrapped: set[Value] = field(default_factory=set[Value])
    products: list[tuple[Linear, Linear, Linear]] = field(
        default_factory=list["tuple[Linear, Linear, Linear]"]
    )
    recording: bool = True
    result: Ranges = field(default_factory=Ranges)

    def atom(self, key: object, interval: Interval) -> Linear:
        """The atom of a key, with bounds that replace those it had."""
        found = self.atoms.get(key)
        if found is None:
            found = self.atoms[key] = self.known.atom(interval)
        else:
            self.known.bound(found, interval)
        return self.equal.get(found) or Linear(((found, 1),))

    def replace(self, atom: int, form: Linear) -> None:
        """Put what an atom equals in its place, for good."""
        low, high = self.known.intervals[atom]
        for key, old in self.forms.items():
            self.forms[key] = old.replaced(atom, form)
        for view, sizes in self.sizes.items():
            self.sizes[view] = tuple(size.replaced(atom, form) for size in sizes)
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
        if self.recording:
            self.result.values[value] = self.known.range(form)


def is_integer(value: Value) -> bool:
    """Whether a value has a range: integers and bools."""
    return isinstance(value.type, DType) and (value.type.is_integer or value.type.kind == "bool")
