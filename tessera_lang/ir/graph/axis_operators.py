"""Operators along axes: products, reductions, scans and what moves elements.

Owns their rows. Must not know other operators beyond those that their gradients are made of.
"""

from __future__ import annotations

import math
from typing import cast

from tessera_lang.ir.core import Operation, TensorType, Value
from tessera_lang.ir.graph import rules
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operator import (
    Attributes,
    DTypeRule,
    Gradient,
    NoGradient,
    OperandError,
    Operator,
    Refused,
    Shape,
    Sharding,
    Tolerance,
    Types,
)
from tessera_lang.ir.graph.rules import axis_in, integer, integers
from tessera_lang.ir.tile.op_definition import AttributeDef
from tessera_lang.types.dtype import I64

_AXIS, _AXES = AttributeDef("axis", "int"), AttributeDef("axes", "ints")
_KEEPDIMS = AttributeDef("keepdims", "bool")
_SHAPE = AttributeDef("shape", "strs")
_COUNTED = NoGradient("it is a number of elements")
_PLACES = NoGradient("its result is no number that changes with the operands")
_F4, _F44, _I4, _B4 = (
    "!graph.tensor<f32, [4]>", "!graph.tensor<f32, [4, 4]>", "!graph.tensor<i32, [4]>",
    "!graph.tensor<i1, [4]>",
)  # fmt: skip

# --- products --------------------------------------------------------------------------------


def _product_shape(name: str, types: Types, attributes: Attributes) -> Shape:
    a, b = types
    if a.rank < 2 or b.rank != a.rank:
        raise OperandError(f"`{name}` of {a} and {b}: both have two axes, and the same in front")
    if a.shape[-1] != b.shape[-2]:
        raise OperandError(
            f"`{name}` of {a} and {b}: axis {a.rank - 1} of the left has size {a.shape[-1]}, axis"
            f" {a.rank - 2} of the right {b.shape[-2]}"
        )
    if a.shape[:-2] != b.shape[:-2]:
        raise OperandError(f"`{name}` of {a} and {b}: their axes in front differ")
    return (*a.shape[:-1], b.shape[-1])


def _of_matmul(g: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    a, b = o.operands
    return g.op("matmul", ct, g.swapped(b)), g.op("matmul", g.swapped(a), ct)


PRODUCTS: tuple[Operator, ...] = (
    Operator(
        "matmul", ("a", "b"), (AttributeDef("tile", "ints", optional=True),), _product_shape,
        rules.product_dtype,
        (Refused((_F44, "!graph.tensor<f32, [5, 4]>"), "axis 1 of the left has size 4, axis 0"),
         Refused((_F4, _F4), "both have two axes"),
         Refused((_F44, "!graph.tensor<f64, [4, 4]>"), "dtypes differ")),
        "a @ b", "{a} @ {b}", _of_matmul, rules.product_work, rules.contraction, "sum", False,
    ),
)  # fmt: skip

# --- reductions ------------------------------------------------------------------------------

_NO_AXIS = Refused((_F4,), "there is no axis 1", {"axes": (1,), "keepdims": False})
_NO_ONE_AXIS = Refused((_F4,), "there is no axis 1", {"axis": 1})


def _reduction(
    name: str, reference: str, gradient: Gradient | NoGradient, dtype: DTypeRule,
    joined: str | None, tolerance: Tolerance = "sum", cast_to: bool = False, work: float = 1.0,
) -> Operator:  # fmt: skip
    source = f"op.{name.removeprefix('reduce_')}({{a}}, axis={{axes}}, keepdims={{keepdims}})"
    return Operator(
        name, ("a",), (_AXES, _KEEPDIMS), rules.reduced_shape, dtype, (_NO_AXIS,), reference,
        f"{source}.to({{dtype}})" if cast_to else source, gradient, rules.per_operand(work),
        rules.joined_by(joined) if joined else rules.whole_axes_removed, tolerance, False,
    )  # fmt: skip


def kept(b: GraphBuilder, o: Operation, value: Value) -> Value:
    """A value of the result's shape, stretched to the operand's."""
    source = o.operands[0].tensor_type
    axes = integers(o.attributes, "axes")
    with_axes = tuple(1 if i in axes else n for i, n in enumerate(source.shape))
    return b.broadcast(b.reshape(value, with_axes), source.shape)


def _of_sum(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value | None, ...]:
    dtype = o.operands[0].tensor_type.dtype
    return (b.cast(kept(b, o, ct), dtype) if dtype.is_float else None,)


def _of_mean(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value | None, ...]:
    (found,) = _of_sum(b, o, ct)
    if found is None:
        return (None,)
    ones = b.like(o.operands[0], 1.0)  # their sum is the count, whatever the sizes are
    count = b.sum(ones, integers(o.attributes, "axes"))
    return (b.div(found, kept(b, o, count)),)


def _of_greatest(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    """To the elements that are chosen, in equal parts."""
    a = o.operands[0]
    axes, dtype = integers(o.attributes, "axes"), a.tensor_type.dtype
    chosen = b.cast(b.op("eq", a, kept(b, o, o.result)), dtype)
    count = b.sum(chosen, axes)
    return (b.div(b.mul(kept(b, o, ct), chosen), kept(b, o, count)),)


def _of_prod(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    """The product of the others, which needs no division: those before times those behind."""
    a = o.operands[0]
    shape, axes = a.tensor_type.shape, integers(o.attributes, "axes")
    others = [i for i in range(len(shape)) if i not in axes]
    order = (*others, *axes)
    moved = b.transpose(a, order)
    line = rules.product_of(tuple(shape[i] for i in axes))
    flat = b.reshape(moved, (*(shape[i] for i in others), line))
    at = len(others)
    before = b.op("cumprod", flat, axis=at, exclusive=True, reverse=False)
    behind = b.op("cumprod", flat, axis=at, exclusive=True, reverse=True)
    rest = b.reshape(b.mul(before, behind), moved.tensor_type.shape)
    back = b.transpose(rest, tuple(order.index(i) for i in range(len(shape))))
    return (b.mul(kept(b, o, ct), back),)


def _place(name: str) -> Operator:
    return Operator(
        name, ("a",), (_AXIS,), rules.without_axis, rules.place_dtype, (_NO_ONE_AXIS,),
        f"np.{name}(a, axis)", f"op.{name}({{a}}, axis={{axis}}).to(i64)", _PLACES,
        rules.per_operand(1.0), rules.whole_axes_removed, "exact", False,
    )  # fmt: skip


_OVER = "axis=axes, keepdims=keepdims)"
REDUCTIONS: tuple[Operator, ...] = (
    _reduction("sum", f"np.sum(a, {_OVER}", _of_sum, rules.sum_dtype, "sum", cast_to=True),
    _reduction("mean", f"np.mean(a, {_OVER}", _of_mean, rules.average_dtype, None),
    _reduction("prod", f"np.prod(a, {_OVER}", _of_prod, rules.floats, "prod"),
    _reduction("reduce_max", f"np.max(a, {_OVER}", _of_greatest, rules.numbers, "max", "exact"),
    _reduction("reduce_min", f"np.min(a, {_OVER}", _of_greatest, rules.numbers, "min", "exact"),
    _reduction("any", f"np.any(a, {_OVER}", _PLACES, rules.bools, "any", "exact"),
    _reduction("all", f"np.all(a, {_OVER}", _PLACES, rules.bools, "all", "exact"),
    _place("argmax"), _place("argmin"),
)  # fmt: skip


# --- moves -----------------------------------------------------------------------------------


def _permuted(name: str, types: Types, attributes: Attributes) -> Shape:
    axes = integers(attributes, "axes")
    if sorted(axes) != list(range(types[0].rank)):
        raise OperandError(f"`{name}` of {types[0]} names each axis once, and these are {axes}")
    return tuple(types[0].shape[a] for a in axes)


def _of_transpose(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    axes = integers(o.attributes, "axes")
    return (b.transpose(ct, tuple(axes.index(i) for i in range(len(axes)))),)


def _reshaped(name: str, types: Types, attributes: Attributes) -> Shape:
    shape = rules.shape_of_attribute(attributes)
    have, want = rules.product_of(types[0].shape), rules.product_of(shape)
    if have != want:
        raise OperandError(f"`{name}`: {types[0]} has {have} elements, and the new shape {want}")
    return shape


def _stretched(name: str, types: Types, attributes: Attributes) -> Shape:
    shape = rules.shape_of_attribute(attributes)
    fits = len(shape) == types[0].rank and all(
        m in (1, n) for m, n in zip(types[0].shape, shape, strict=False)
    )
    if not fits:
        wanted = f"({', '.join(map(str, shape))})"
        raise OperandError(f"`{name}`: {types[0]} does not stretch to {wanted}")
    return shape


def _of_broadcast(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    before, after = o.operands[0].tensor_type.shape, o.result.tensor_type.shape
    axes = [i for i, (m, n) in enumerate(zip(before, after, strict=True)) if m != n]
    return (b.sum(ct, axes, keepdims=True),)


def _prefix_splits(types: Types, attributes: Attributes, result: TensorType) -> Sharding:
    """Axes in front that are the same on both sides may be split."""
    same = 0
    for m, n in zip(types[0].shape, result.shape, strict=False):
        if m != n:
            break
        same += 1
    front = tuple(f"i{axis}" for axis in range(same))
    behind = (None,) * (types[0].rank - same), (None,) * (result.rank - same)
    return Sharding(((*front, *behind[0]),), (*front, *behind[1]), {})


def _joined_shape(name: str, types: Types, attributes: Attributes) -> Shape:
    axis = axis_in(name, integer(attributes, "axis"), types[0])
    first = types[0]
    total = first.shape[axis]
    for other in types[1:]:
        rest = zip(first.shape, other.shape, strict=False)
        fits = other.rank == first.rank and all(
            i == axis or m == n for i, (m, n) in enumerate(rest)
        )
        if not fits:
            raise OperandError(
                f"`{name}` of {first} and {other} along axis {axis}: other sizes differ"
            )
        total = rules.dim_op("+", total, other.shape[axis])
    return (*first.shape[:axis], total, *first.shape[axis + 1 :])


def _of_concat(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    axis = integer(o.attributes, "axis")
    at, parts = 0, list[Value]()
    for operand in o.operands:
        size = operand.tensor_type.shape[axis]
        if not isinstance(size, int):
            raise OperandError("the gradient of `concat` needs sizes that are numbers")
        parts.append(part_along(b, ct, axis, at, at + size))
        at += size
    return tuple(parts)


def part_along(b: GraphBuilder, value: Value, axis: int, start: int, stop: int) -> Value:
    """A slice along one axis; the other sizes are numbers."""
    shape = cast("tuple[int, ...]", value.tensor_type.shape)
    starts = tuple(start if i == axis else 0 for i in range(len(shape)))
    stops = tuple(stop if i == axis else n for i, n in enumerate(shape))
    return b.op("slice", value, starts=starts, stops=stops, steps=(1,) * len(shape))


def _sliced(name: str, types: Types, attributes: Attributes) -> Shape:
    limits = [integers(attributes, n) for n in ("starts", "stops", "steps")]
    if any(len(numbers) != types[0].rank for numbers in limits):
        raise OperandError(f"`{name}` of {types[0]} has a start, a stop and a step for each axis")
    sizes: list[int] = []
    for axis, (start, stop, step, n) in enumerate(zip(*limits, types[0].shape, strict=True)):
        if not isinstance(n, int) or not 0 <= start <= stop <= n or step < 1:
            raise OperandError(
                f"`{name}` of {types[0]}: {start}:{stop}:{step} along axis {axis} is not inside"
            )
        sizes.append(-(-(stop - start) // step))
    return tuple(sizes)


def _of_slice(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    """Zeros between the elements where there are steps, and zeros around them."""
    starts, steps = integers(o.attributes, "starts"), integers(o.attributes, "steps")
    value = ct
    for axis, step in enumerate(steps):
        shape = cast("tuple[int, ...]", value.tensor_type.shape)
        if step == 1 or not shape[axis]:
            continue
        apart = b.reshape(value, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
        zeros = (0,) * (len(shape) + 1)
        after = tuple(step - 1 if i == axis + 1 else 0 for i in range(len(shape) + 1))
        apart = b.op("pad", apart, before=zeros, after=after, value=0.0)
        value = b.reshape(apart, (*shape[:axis], shape[axis] * step, *shape[axis + 1 :]))
        value = part_along(b, value, axis, 0, (shape[axis] - 1) * step + 1)
    wanted = cast("tuple[int, ...]", o.operands[0].tensor_type.shape)
    have = cast("tuple[int, ...]", value.tensor_type.shape)
    after = tuple(n - s - m for n, s, m in zip(wanted, starts, have, strict=True))
    if not any(starts) and not any(after):
        return (value,)
    return (b.op("pad", value, before=starts, after=after, value=0.0),)


def _padded(name: str, types: Types, attributes: Attributes) -> Shape:
    before, after = integers(attributes, "before"), integers(attributes, "after")
    if len(before) != types[0].rank or len(after) != types[0].rank:
        raise OperandError(f"`{name}` of {types[0]} has two widths for each axis")
    if min((*before, *after), default=0) < 0:
        raise OperandError(f"`{name}`: widths are at least 0")
    added = zip(types[0].shape, before, after, strict=True)
    return tuple(rules.dim_op("+", n, p + q) for n, p, q in added)


def _of_pad(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    starts = integers(o.attributes, "before")
    shape = cast("tuple[int, ...]", o.operands[0].tensor_type.shape)
    stops = tuple(s + n for s, n in zip(starts, shape, strict=True))
    return (b.op("slice", ct, starts=starts, stops=stops, steps=(1,) * len(shape)),)


def _flipped(name: str, types: Types, attributes: Attributes) -> Shape:
    for axis in integers(attributes, "axes"):
        axis_in(name, axis, types[0])
    return types[0].shape


def _taken(name: str, types: Types, attributes: Attributes) -> Shape:
    axis = axis_in(name, integer(attributes, "axis"), types[0])
    if types[1].rank != 1:
        raise OperandError(f"`{name}` takes a row of places, not {types[1]}")
    return (*types[0].shape[:axis], *types[1].shape, *types[0].shape[axis + 1 :])


def _of_take(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value | None, ...]:
    table, places = o.operands
    axis, shape = integer(o.attributes, "axis"), table.tensor_type.shape
    order = (axis, *(i for i in range(len(shape)) if i != axis))
    rows = b.transpose(ct, order)
    rest = rules.product_of(tuple(shape[i] for i in order[1:]))
    flat = b.reshape(rows, (places.tensor_type.shape[0], rest))
    size = rules.shape_attribute((shape[axis],))
    summed = b.op("scatter_add", places, flat, shape=size)
    back = b.reshape(summed, (shape[axis], *(shape[i] for i in order[1:])))
    return b.transpose(back, tuple(order.index(i) for i in range(len(shape)))), None


def _take_sharding(types: Types, attributes: Attributes, result: TensorType) -> Sharding:
    axis = integer(attributes, "axis")
    factors = tuple(None if i == axis else f"i{i}" for i in range(types[0].rank))
    found = tuple("p" if i == axis else f for i, f in enumerate(factors))
    return Sharding((factors, ("p",)), found, {})


def _scattered(name: str, types: Types, attributes: Attributes) -> Shape:
    places, updates = types
    if places.rank != 1 or updates.rank != 2 or places.shape[0] != updates.shape[0]:
        raise OperandError(f"`{name}` of {places} and {updates}: a place for each row")
    return (*rules.shape_of_attribute(attributes), updates.shape[1])


def _of_scatter(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value | None, ...]:
    return None, b.op("take", ct, o.operands[0], axis=0)


def _numbers_of(name: str, types: Types, attributes: Attributes) -> Shape:
    shape = rules.shape_of_attribute(attributes)
    if len(shape) != 1:
        raise OperandError(f"`{name}` counts along one axis")
    return shape


def _no_axes(name: str, types: Types, attributes: Attributes) -> Shape:
    axis_in(name, integer(attributes, "axis"), types[0])
    return ()


def _constant(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    return ()


_DTYPE = AttributeDef("dtype", "dtype")
_F3D = "!graph.tensor<f32, [2, 3, 4]>"
_SLICE = tuple(AttributeDef(n, "ints") for n in ("starts", "stops", "steps"))
_MOVES: Tolerance = "exact"
MOVES: tuple[Operator, ...] = (
    Operator(
        "transpose", ("a",), (_AXES,), _permuted, rules.any_dtype,
        (Refused((_F44,), "names each axis once", {"axes": (0, 0)}),), "np.transpose(a, axes)",
        "op.transpose({a}, {axes})", _of_transpose, rules.MOVES, rules.permuted, _MOVES, False,
    ),
    Operator(
        "reshape", ("a",), (_SHAPE,), _reshaped, rules.any_dtype,
        (Refused((_F44,), "has 16 elements", {"shape": ("3", "5")}),), "np.reshape(a, shape)",
        "op.reshape({a}, {shape})", lambda b, o, ct: (
            b.reshape(ct, o.operands[0].tensor_type.shape),), rules.MOVES, _prefix_splits, _MOVES,
        False,
    ),
    Operator(
        "broadcast", ("a",), (_SHAPE,), _stretched, rules.any_dtype,
        (Refused((_F44,), "does not stretch to (4, 5)", {"shape": ("4", "5")}),),
        "np.broadcast_to(a, shape)", "op.broadcast_to({a}, {shape})", _of_broadcast, rules.MOVES,
        rules.unchanged_axes, _MOVES, False,
    ),
    Operator(
        "concat", ("parts...",), (_AXIS,), _joined_shape, rules.any_dtype,
        (Refused((_F44, _F3D), "other sizes differ", {"axis": 0}),), "np.concatenate(parts, axis)",
        "op.concat(({parts},), axis={axis})", _of_concat, rules.MOVES, rules.whole_along("axis"),
        _MOVES, False,
    ),
    Operator(
        "slice", ("a",), _SLICE, _sliced, rules.any_dtype,
        (Refused((_F4,), "is not inside", {"starts": (0,), "stops": (5,), "steps": (1,)}),),
        "a[tuple(map(slice, starts, stops, steps))]", "{a}[{index}]", _of_slice, rules.MOVES,
        rules.unchanged_axes, _MOVES, False,
    ),
    Operator(
        "pad", ("a",),
        (AttributeDef("before", "ints"), AttributeDef("after", "ints"),
         AttributeDef("value", "scalar")), _padded, rules.floats,
        (Refused((_F44,), "two widths for each axis",
                 {"before": (1,), "after": (1,), "value": 0.0}),),
        "np.pad(a, tuple(zip(before, after)), constant_values=value)",
        "op.pad({a}, {widths}, constant_values={value})", _of_pad, rules.MOVES,
        rules.unchanged_axes, _MOVES, False,
    ),
    Operator(
        "flip", ("a",), (_AXES,), _flipped, rules.any_dtype,
        (Refused((_F4,), "there is no axis 1", {"axes": (1,)}),), "np.flip(a, axes)",
        "op.flip({a}, axis={axes})",
        lambda b, o, ct: (b.op("flip", ct, axes=o.attributes["axes"]),), rules.MOVES,
        rules.whole_along("axes"), _MOVES, False,
    ),
    Operator(
        "take", ("a", "places"), (_AXIS,), _taken, rules.of_places(1),
        (Refused((_F44, _F4), "places that are integers", {"axis": 0}),
         Refused((_F44, "!graph.tensor<i64, [2, 2]>"), "a row of places", {"axis": 0})),
        "np.take(a, places, axis)", "op.take({a}, {places}, axis={axis})", _of_take, rules.MOVES,
        _take_sharding, _MOVES, False,
    ),
    Operator(
        "scatter_add", ("places", "updates"), (_SHAPE,), _scattered, rules.of_places(0),
        (Refused((_I4, _F4), "a place for each row", {"shape": ("9",)}),),
        "scattered(places, updates, shape)",
        "(op.arange({length})[:, None] == {places}[None, :]).to({dtype}) @ {updates}", _of_scatter,
        lambda operands, result: math.prod(operands[1]),
        lambda types, attributes, result: Sharding((("p",), ("p", "j")), (None, "j"),
                                                   {"p": "sum"}), "sum", False,
    ),
    Operator(
        "full", (), (_SHAPE, _DTYPE, AttributeDef("value", "scalar")), rules.given_shape,
        rules.given_dtype, (Refused((_F4,), "takes nothing, not 1 operands"),),
        "np.full(shape, value)", "op.full({shape}, {value}, dtype={dtype})", _constant,
        rules.MOVES, rules.made, _MOVES, True,
    ),
    Operator(
        "size", ("a",), (_AXIS,), _no_axes, lambda name, types, attributes: I64,
        (_NO_ONE_AXIS,), "a.shape[axis]", "{a}.shape[{axis}]", _COUNTED, rules.MOVES,
        lambda types, attributes, result: Sharding(((None,) * types[0].rank,), (), {}), _MOVES,
        False,
    ),
    Operator(
        "arange", (), (_SHAPE, _DTYPE), _numbers_of, rules.given_dtype,
        (Refused((), "counts along one axis", {"shape": ("2", "2")}),), "np.arange(shape[0])",
        "op.arange({length}).to({dtype})", _constant, rules.MOVES, rules.made, _MOVES, False,
    ),
)  # fmt: skip
