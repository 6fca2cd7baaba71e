"""Integers in graphs where floats or other integers are meant.

Owns in which floats functions take integers, which array lists of numbers are, and comparisons of
integers that have no dtype in common. Must not know how arguments are evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tessera_lang.ir.core import Attribute, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.lower.ast_to_graph.values import GraphArray, is_double
from tessera_lang.types.dtype import BOOL, F64, I64, U64, DType, float_of_integers, integer_range


class _World(Protocol):
    """What is needed of a ``GraphWorld``."""

    builder: GraphBuilder
    floats: DType

    def lifted(self, array: object) -> Value: ...
    def stretched(self, *values: Value) -> tuple[Value, ...]: ...
    def op(self, name: str, *operands: Value, **attributes: Attribute) -> Value: ...


def in_floats(w: _World, value: Value) -> Value:
    """Integers as the floats that they become by themselves; anything else as it is."""
    dtype = value.tensor_type.dtype
    if not dtype.is_integer or dtype == BOOL:
        return value
    return w.builder.cast(value, float_of_integers(dtype, w.floats))


def of_numbers_in_a_row(w: _World, numbers: Sequence[object]) -> GraphArray:
    """An array of one axis of numbers, some of which the function computes."""
    values = [w.lifted(n) for n in numbers]
    dtypes = {v.tensor_type.dtype for v in values}
    common = F64 if F64 in dtypes else BOOL if dtypes == {BOOL} else I64
    parts = [w.builder.reshape(w.builder.cast(v, common), (1,)) for v in values]
    made = w.builder.op("concat", *parts, axis=0)
    if common != F64 or any(map(is_double, numbers)):
        return GraphArray(made)
    return GraphArray(w.builder.cast(made, w.floats), made)


def compared_exactly(w: _World, name: str, a: object, b: object) -> Value | None:
    """``a name b`` of integers, one of which the dtype of the other does not hold; None where a
    comparison in one dtype is right."""
    if isinstance(a, int | float):
        return None if isinstance(b, int | float) else compared_exactly(w, _turned(name), b, a)
    x = w.lifted(a)
    if not _is_integer(x):
        return None
    if isinstance(b, int | float):
        return _with_known(w, name, x, b)
    y = w.lifted(b)
    if not _is_integer(y):
        return None
    left, right = x.tensor_type.dtype, y.tensor_type.dtype
    if right == U64 and left.is_signed:
        return compared_exactly(w, _turned(name), b, a)
    if left == U64 and right.is_signed:
        x, y = w.stretched(x, y)
        below = w.op("lt", y, w.builder.zeros(y))
        other = w.op(name, x, w.builder.cast(y, U64))
        if name in ("ne", "gt", "ge"):
            return w.op("or", other, below)
        return w.op("and", other, w.op("not", below))
    # A number that the function computes, of 64 bits, beside an array of fewer.
    if x.tensor_type.rank and y.tensor_type.rank or left == right or U64 in (left, right):
        return None
    x, y = w.stretched(x, y)
    return w.op(name, w.builder.cast(x, I64), w.builder.cast(y, I64))


def _turned(name: str) -> str:
    """The comparison of the operands the other way around."""
    return {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(name, name)


def _with_known(w: _World, name: str, x: Value, number: float) -> Value | None:
    """``x name number`` where the number lies outside of all 64 bits that ``x`` may have."""
    if isinstance(number, bool) or not isinstance(number, int):
        return None
    least, most = integer_range(U64 if x.tensor_type.dtype == U64 else I64)
    if least <= number <= most:
        return None
    holds = name in (("ne", "gt", "ge") if number < least else ("ne", "lt", "le"))
    return w.op("eq" if holds else "ne", x, x)


def _is_integer(x: Value) -> bool:
    return x.tensor_type.dtype.is_integer and x.tensor_type.dtype != BOOL
