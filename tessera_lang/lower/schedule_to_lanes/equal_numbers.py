"""Which numbers of a Schedule program are equal, and which are sizes of the launch.

Owns the keys of values (equal keys, equal numbers) and the ``Dim`` of what is computed from sizes.
The facts are the program, the plan's names of sizes, and the conditions that the launch checks.
Must not know tiles.
"""

from __future__ import annotations

from collections.abc import Hashable

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import COMMUTATIVE
from tessera_lang.lower.schedule_to_lanes.def_use import Source
from tessera_lang.target.array_facts import size_in_bucket
from tessera_lang.target.launch_plan import LaunchPlan, Slot
from tessera_lang.types.shape import (
    Dim,
    DimOp,
    DimOperator,
    Sym,
    dim_op,
    evaluate_dim,
    symbols_of,
)

_DIM_OPERATORS: dict[str, DimOperator] = {
    "tile.add": "+", "tile.sub": "-", "tile.mul": "*", "tile.floordiv": "//", "tile.mod": "%",
    "tile.min": "min", "tile.max": "max",
}  # fmt: skip
_PURE = (*_DIM_OPERATORS, "tile.cast", "tile.select", "tile.cmp")


class Numbers:
    """Keys and sizes of the scalars of one kernel."""

    def __init__(self, source: Source, plan: LaunchPlan) -> None:
        self._source = source
        self._keys: dict[Value, Hashable] = {}
        self._same: dict[Dim, Dim] = {}
        self._sizes: dict[Value, Dim] = {}
        self._compiled_for = _known_sizes(plan)
        for condition in plan.conditions:
            if condition.comparison == "==" and not condition.others:
                self._join(condition.left, condition.right)
        arguments = source.kernel.regions[0].arguments
        for argument, slot in zip(arguments, plan.slots, strict=False):
            dim = _dim_of_slot(slot, plan)
            if dim is not None:
                self._sizes[argument] = dim

    # --- sizes ------------------------------------------------------------------------------

    def _join(self, a: Dim, b: Dim) -> None:
        a, b = self._canonical(a), self._canonical(b)
        if a == b:
            return
        if not isinstance(a, Sym):
            a, b = b, a
        if isinstance(a, Sym) and a.name not in symbols_of(b):  # `n == min(n, 1)` replaces nothing
            self._same[a] = b

    def _canonical(self, dim: Dim) -> Dim:
        while dim in self._same:
            dim = self._same[dim]
        if isinstance(dim, DimOp):
            return dim_op(dim.operator, self._canonical(dim.left), self._canonical(dim.right))
        return dim

    def dim(self, value: Value) -> Dim | None:
        """A number as a size of the launch; None where it is not made of sizes."""
        if value in self._sizes:
            return self._sizes[value]
        op = self._source.definition.get(value)
        if op is None:
            return None
        if op.name == "tile.constant":
            held = op.attributes["value"]
            return held if isinstance(held, int) and not isinstance(held, bool) else None
        operator = _DIM_OPERATORS.get(op.name)
        if operator is None:
            return None
        left, right = (self.dim(v) for v in op.operands)
        if left is None or right is None:
            return None
        if operator in ("//", "%") and not (isinstance(right, int) and right > 0):
            return None
        return dim_op(operator, left, right)

    def number(self, value: Value) -> int | None:
        """What a number is in every launch of this code; None where that differs."""
        dim = self.dim(value)
        if dim is None or not symbols_of(dim) <= self._compiled_for.keys():
            return None
        try:
            return evaluate_dim(dim, self._compiled_for)
        except ZeroDivisionError:
            return None

    # --- keys -------------------------------------------------------------------------------

    def constant(self, value: Value) -> int | None:
        """The value of an integer constant."""
        op = self._source.definition.get(value)
        if op is None or op.name != "tile.constant":
            return None
        held = op.attributes["value"]
        return held if isinstance(held, int) else None

    def key(self, value: Value | int) -> Hashable:
        """Equal for numbers that are equal wherever both are there."""
        if isinstance(value, int):
            return value
        if value not in self._keys:
            self._keys[value] = self._find(value)
        return self._keys[value]

    def _find(self, value: Value) -> Hashable:
        if value in self._sizes:
            known = self._canonical(self._sizes[value])
            return known if isinstance(known, int) else ("size", known)
        op = self._source.definition.get(value)
        if op is None:
            return ("value", id(value))
        if op.name == "tile.constant":
            held = op.attributes["value"]
            whole = isinstance(held, int) and not isinstance(held, bool)
            return held if whole else ("constant", value.type, repr(held))
        if op.name not in _PURE:
            return ("value", id(value))
        return self._pure(op)

    def _pure(self, op: Operation) -> Hashable:
        keys = [self.key(v) for v in op.operands]
        if op.name in COMMUTATIVE:
            keys.sort(key=repr)
        predicate = op.attributes.get("predicate")
        return (op.name, op.result.type, predicate, *keys)


def _dim_of_slot(slot: Slot, plan: LaunchPlan) -> Dim | None:
    if slot.kind == "symbol":
        return Sym(slot.symbol)
    if slot.kind != "size":
        return None
    if slot.parameter >= len(plan.parameters):
        number = slot.parameter - len(plan.parameters)
        return plan.results[number].dims[slot.axis] if number < len(plan.results) else None
    parameter = plan.parameters[slot.parameter]
    if parameter.dims:
        return parameter.dims[slot.axis]
    return Sym(f"{parameter.name}.shape[{slot.axis}]")


def _known_sizes(plan: LaunchPlan) -> dict[str, int]:
    """The sizes that a kernel is compiled for, by their names."""
    known: dict[str, int] = {}
    for p in plan.parameters:
        for axis, size in enumerate(p.sizes):
            bound = p.buckets[axis] if p.buckets else None
            if size is None and bound is not None:
                size = size_in_bucket(bound, p.divisors[axis] if p.divisors else 1)
            dim = p.dims[axis] if p.dims else Sym(f"{p.name}.shape[{axis}]")
            if size is not None and isinstance(dim, Sym):
                known[dim.name] = size
    return known
