"""Rules of shape, dtype, work and sharding that operators of Graph IR share.

Owns the words in which operands are refused. Must not know single operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from tessera_lang.ir.core import TensorType
from tessera_lang.ir.graph.operator import (
    Attributes,
    DTypeRule,
    OperandError,
    Shape,
    Sharding,
    ShardingRule,
    Types,
    Work,
)
from tessera_lang.types.dtype import BOOL, I32, I64, U32, DType, mean_dtype
from tessera_lang.types.shape import Dim, dim_of_text, dim_op

# --- attributes ------------------------------------------------------------------------------


def integers(attributes: Attributes, name: str) -> tuple[int, ...]:
    return cast("tuple[int, ...]", attributes[name])


def integer(attributes: Attributes, name: str) -> int:
    return cast("int", attributes[name])


def flag(attributes: Attributes, name: str) -> bool:
    return attributes[name] is True


def shape_attribute(shape: Shape) -> tuple[str, ...]:
    """A shape as an attribute."""
    return tuple(map(str, shape))


def shape_of_attribute(attributes: Attributes, name: str = "shape") -> Shape:
    return tuple(dim_of_text(text) for text in cast("tuple[str, ...]", attributes[name]))


def axis_in(name: str, axis: int, t: TensorType) -> int:
    """An axis of a tensor. Raises OperandError."""
    if not 0 <= axis < t.rank:
        raise OperandError(f"`{name}`: there is no axis {axis} in {t}")
    return axis


def product_of(shape: Shape) -> Dim:
    """The number of elements; the same for shapes that differ in the order of their sizes."""
    known = math.prod(n for n in shape if isinstance(n, int))
    total: Dim = known
    for size in sorted((n for n in shape if not isinstance(n, int)), key=str):
        total = dim_op("*", total, size)
    return total


# --- shapes ----------------------------------------------------------------------------------


def same_shapes(name: str, types: Types, attributes: Attributes) -> Shape:
    """Operands of one shape."""
    first = types[0]
    for other in types[1:]:
        if other.rank != first.rank:
            raise OperandError(
                f"`{name}` of {first} and {other}: one has {first.rank} axes, the other"
                f" {other.rank}"
            )
        for axis, (m, n) in enumerate(zip(first.shape, other.shape, strict=True)):
            if m != n:
                raise OperandError(
                    f"`{name}` of {first} and {other}: along axis {axis} one has size {m}, the"
                    f" other {n}"
                )
    return first.shape


def reduced_shape(name: str, types: Types, attributes: Attributes) -> Shape:
    """Without ``axes``, or with one element along them where ``keepdims``."""
    axes = [axis_in(name, axis, types[0]) for axis in integers(attributes, "axes")]
    if len(set(axes)) != len(axes) or not axes:
        raise OperandError(f"`{name}` reduces each of its axes once, and these are {axes}")
    if flag(attributes, "keepdims"):
        return tuple(1 if i in axes else n for i, n in enumerate(types[0].shape))
    return tuple(n for i, n in enumerate(types[0].shape) if i not in axes)


def without_axis(name: str, types: Types, attributes: Attributes) -> Shape:
    axis = axis_in(name, integer(attributes, "axis"), types[0])
    return (*types[0].shape[:axis], *types[0].shape[axis + 1 :])


def along_axis(name: str, types: Types, attributes: Attributes) -> Shape:
    """The shape of the operand, which has the axis."""
    axis_in(name, integer(attributes, "axis"), types[0])
    return types[0].shape


def given_shape(name: str, types: Types, attributes: Attributes) -> Shape:
    return shape_of_attribute(attributes)


# --- dtypes ----------------------------------------------------------------------------------


def _one_dtype(name: str, types: Types) -> DType:
    for other in types[1:]:
        if other.dtype != types[0].dtype:
            raise OperandError(f"`{name}` of {types[0]} and {other}: the dtypes differ")
    return types[0].dtype


def _among(kinds: Sequence[str], what: str) -> DTypeRule:
    def rule(name: str, types: Types, attributes: Attributes) -> DType:
        dtype = _one_dtype(name, types)
        if dtype.kind not in kinds:
            raise OperandError(f"`{name}` takes {what}, not {types[0]}")
        return dtype

    return rule


any_dtype = _among(("float", "int", "uint", "index", "bool"), "any dtype")
floats = _among(("float",), "floats")
numbers = _among(("float", "int", "uint", "index"), "numbers")
whole_or_bool = _among(("int", "uint", "index", "bool"), "integers or bools")
bools = _among(("bool",), "bools")


def to_bool(of: DTypeRule) -> DTypeRule:
    """Bools, of operands that another rule takes."""

    def rule(name: str, types: Types, attributes: Attributes) -> DType:
        of(name, types, attributes)
        return BOOL

    return rule


def chosen_dtype(name: str, types: Types, attributes: Attributes) -> DType:
    """``where``: a bool, then two of one dtype."""
    if types[0].dtype != BOOL:
        raise OperandError(f"`{name}` chooses by bools, not by {types[0]}")
    return _one_dtype(name, types[1:])


def given_dtype(name: str, types: Types, attributes: Attributes) -> DType:
    return cast("DType", attributes["dtype"])


def sum_dtype(name: str, types: Types, attributes: Attributes) -> DType:
    """Sums of integers of fewer than 32 bits, and of bools, have 32."""
    dtype = types[0].dtype
    if dtype.is_float or dtype.bits >= 32 or dtype.kind == "index":
        return dtype
    return U32 if dtype.kind == "uint" else I32


def average_dtype(name: str, types: Types, attributes: Attributes) -> DType:
    return mean_dtype(types[0].dtype)


def product_dtype(name: str, types: Types, attributes: Attributes) -> DType:
    dtype = _one_dtype(name, types)
    if dtype.is_float:
        return dtype
    if dtype.name == "i8":
        return I32
    raise OperandError(f"`{name}` multiplies floats or i8, not {types[0]}")


def place_dtype(name: str, types: Types, attributes: Attributes) -> DType:
    numbers(name, types, attributes)
    return I64


def of_places(at: int) -> DTypeRule:
    """The dtype of the other operand; operand ``at`` holds places."""

    def rule(name: str, types: Types, attributes: Attributes) -> DType:
        if types[at].dtype.kind not in ("int", "uint", "index"):
            raise OperandError(f"`{name}` takes places that are integers, not {types[at]}")
        return types[1 - at].dtype

    return rule


# --- work ------------------------------------------------------------------------------------


def per_result(operations: float) -> Work:
    """So many operations for each element of the result."""
    return lambda operands, result: operations * math.prod(result)


def per_operand(operations: float) -> Work:
    """So many operations for each element of the first operand."""
    return lambda operands, result: operations * math.prod(operands[0])


def product_work(operands: tuple[tuple[int, ...], ...], result: tuple[int, ...]) -> float:
    """A multiplication and an addition for each term of each element."""
    return 2.0 * math.prod(result) * operands[0][-1]


MOVES = per_result(0.0)
"""Copies, or no work at all."""

# --- sharding --------------------------------------------------------------------------------


def _factors(rank: int) -> tuple[str | None, ...]:
    return tuple(f"i{axis}" for axis in range(rank))


def pointwise(types: Types, attributes: Attributes, result: TensorType) -> Sharding:
    """Every axis may be split, on all operands alike."""
    factors = _factors(result.rank)
    return Sharding((factors,) * len(types), factors, {})


def joined_by(how: str) -> ShardingRule:
    """Every axis may be split; parts of those that are reduced are joined."""

    def rule(types: Types, attributes: Attributes, result: TensorType) -> Sharding:
        factors = _factors(types[0].rank)
        axes = integers(attributes, "axes")
        keeps = flag(attributes, "keepdims")
        left = tuple(
            None if i in axes else f for i, f in enumerate(factors) if keeps or i not in axes
        )
        return Sharding((factors,), left, {f"i{axis}": how for axis in axes})

    return rule


def whole_along(*names: str) -> ShardingRule:
    """Every axis may be split but those of the attributes: the result has all axes."""

    def rule(types: Types, attributes: Attributes, result: TensorType) -> Sharding:
        whole = set[int]()
        for name in names:
            found = attributes[name]
            whole |= set(cast("tuple[int, ...]", found if isinstance(found, tuple) else (found,)))
        factors = tuple(None if i in whole else f for i, f in enumerate(_factors(result.rank)))
        return Sharding((factors,) * len(types), factors, {})

    return rule


def whole_axes_removed(types: Types, attributes: Attributes, result: TensorType) -> Sharding:
    """Every axis may be split but ``axes`` or ``axis``, which the result lacks or has once."""
    found = attributes.get("axes", (attributes.get("axis"),))
    axes = cast("tuple[int, ...]", found)
    keeps = attributes.get("keepdims") is True
    factors = tuple(None if i in axes else f for i, f in enumerate(_factors(types[0].rank)))
    left = tuple(f for i, f in enumerate(factors) if keeps or i not in axes)
    return Sharding((factors,), left, {})


def contraction(types: Types, attributes: Attributes, result: TensorType) -> Sharding:
    batch = tuple(f"b{axis}" for axis in range(result.rank - 2))
    return Sharding(((*batch, "i", "k"), (*batch, "k", "j")), (*batch, "i", "j"), {"k": "sum"})


def permuted(types: Types, attributes: Attributes, result: TensorType) -> Sharding:
    factors = _factors(result.rank)
    return Sharding((factors,), tuple(factors[a] for a in integers(attributes, "axes")), {})


def unchanged_axes(types: Types, attributes: Attributes, result: TensorType) -> Sharding:
    """Axes of one size on both sides may be split: of a broadcast, a slice, a pad."""
    factors = tuple(
        f if m == n else None
        for f, m, n in zip(_factors(result.rank), types[0].shape, result.shape, strict=True)
    )
    return Sharding((factors,), factors, {})


def made(types: Types, attributes: Attributes, result: TensorType) -> Sharding:
    """Made of nothing: each device makes all of it."""
    return Sharding((), (None,) * result.rank, {})
