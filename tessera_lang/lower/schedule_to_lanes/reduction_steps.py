"""One reduction, taken apart, and the steps that all of its forms share.

Must not know how elements are dealt out.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.schedule_to_lanes.element_loops import know
from tessera_lang.lower.schedule_to_lanes.elements import element
from tessera_lang.lower.schedule_to_lanes.state import Index, Lowering
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import BOOL, INDEX, DType, integer_range

_COMBINE = {"add": "add", "mul": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


def identity(s: Lowering, kind: str, dtype: DType) -> Value:
    """What changes nothing; the result of a reduction of nothing."""
    if kind in ("any", "all"):
        return s.b.constant(kind == "all", BOOL)
    if kind in ("add", "mul"):
        return s.b.constant(0 if kind == "add" else 1, dtype)
    lowest = kind == "max"
    if dtype.kind == "bool":
        return s.b.constant(not lowest, dtype)
    if dtype.is_float:
        far = float("inf") if dtype.infinite else dtype.largest
        return s.b.constant(-far if lowest else far, dtype)
    low, high = integer_range(dtype)
    return s.b.constant(low if lowest else high, dtype)


def combined(s: Lowering, kind: str, a: Value, b: Value) -> Value:
    return s.b.binary(_COMBINE[kind], a, b)


@dataclass(slots=True)
class Reduction:
    """One operation: ``extent`` along ``axis`` of ``value``; ``others``: capacity and extents of
    the axes that stay; ``dtype``: in which it is done."""

    op: Operation
    value: Value
    kind: str
    axis: int
    size: int
    extent: int | Value
    sizes: list[int]
    extents: list[int | Value]
    dtype: DType

    def at(self, outer: Index, along_axis: Value) -> Index:
        return (*outer[: self.axis], along_axis, *outer[self.axis :])


def result_index(s: Lowering, outer: Index, scalar: bool) -> Index:
    return (s.index(0),) if scalar else outer


def element_at(s: Lowering, r: Reduction, index: Index) -> Value:
    return s.b.cast(element(s, r.value, index), r.dtype)


def in_order(s: Lowering, r: Reduction, outer: Index) -> Value:
    upper = s.bound(r.extent)
    with s.b.region(("i", INDEX), ("total", r.dtype)) as body, s.inside():
        at, total = body.arguments
        know(s, at, r.size, r.extent)
        s.b.yield_(combined(s, r.kind, total, element_at(s, r, r.at(outer, at))))
    first = identity(s, r.kind, r.dtype)
    return s.b.for_(s.index(0), upper, s.index(1), (first,), body.region)[0]
