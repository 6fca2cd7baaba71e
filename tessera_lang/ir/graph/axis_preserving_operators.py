"""Operators of Graph IR along one axis that keep it: softmax, scans and sorting.

Owns their rows. Must not know other operators beyond those that their gradients are made of.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.graph import rules
from tessera_lang.ir.graph.axis_operators import kept
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operator import (
    Attributes,
    Gradient,
    NoGradient,
    OperandError,
    Operator,
    Refused,
    Shape,
    Types,
)
from tessera_lang.ir.graph.rules import axis_in, integer, integers
from tessera_lang.ir.tile.op_definition import AttributeDef

_AXIS, _AXES = AttributeDef("axis", "int"), AttributeDef("axes", "ints")
_KEEPDIMS = AttributeDef("keepdims", "bool")
_F4, _F44, _I4 = "!graph.tensor<f32, [4]>", "!graph.tensor<f32, [4, 4]>", "!graph.tensor<i32, [4]>"
_NO_AXIS = Refused((_F4,), "there is no axis 1", {"axes": (1,), "keepdims": False})
_NO_ONE_AXIS = Refused((_F4,), "there is no axis 1", {"axis": 1})
_PLACES = NoGradient("its result is no number that changes with the operands")


def _of_softmax(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    y, axis = o.result, integer(o.attributes, "axis")
    total = b.sum(b.mul(ct, y), (axis,), keepdims=True)
    return (b.mul(y, b.sub(ct, b.broadcast(total, y.tensor_type.shape))),)


def _of_logsumexp(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    a = o.operands[0]
    (axis,) = integers(o.attributes, "axes")
    weights = b.op("softmax", a, axis=axis)
    return (b.mul(kept(b, o, ct), weights),)


def _one_axis(name: str, types: Types, attributes: Attributes) -> Shape:
    if len(integers(attributes, "axes")) != 1:
        raise OperandError(f"`{name}` goes along one axis")
    return rules.reduced_shape(name, types, attributes)


def _of_cumsum(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    other = o.attributes["reverse"] is False
    at = integer(o.attributes, "axis")
    exclusive = o.attributes["exclusive"]
    return (b.op("cumsum", ct, axis=at, exclusive=exclusive, reverse=other),)


def _of_cumprod(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    """The sum of what comes behind an element, divided by it. Of the first 0 of a line it is the
    sum with 1 in its place, and behind that nothing changes any product."""
    x, y = o.operands[0], o.result
    at, reverse = integer(o.attributes, "axis"), o.attributes["reverse"] is True
    zero, one = b.zeros(x), b.like(x, 1.0)
    is_zero = b.op("eq", x, zero)
    before = b.op("cumsum", b.where(is_zero, one, zero), axis=at, exclusive=True, reverse=reverse)
    none = b.op("eq", before, zero)
    first = b.op("and", is_zero, none)
    without = b.op("cumprod", b.where(first, one, x), **o.attributes)

    def behind(products: Value) -> Value:
        return b.op("cumsum", b.mul(ct, products), axis=at, exclusive=o.attributes["exclusive"],
                    reverse=not reverse)  # fmt: skip

    quotient = b.div(behind(y), b.where(is_zero, one, x))
    return (b.where(first, behind(without), b.where(none, quotient, zero)),)


def _scan(name: str, gradient: Gradient | NoGradient) -> Operator:
    return Operator(
        name, ("a",),
        (_AXIS, AttributeDef("exclusive", "bool"), AttributeDef("reverse", "bool")),
        rules.along_axis, rules.floats,
        (Refused((_F4,), "there is no axis 1",
                 {"axis": 1, "exclusive": False, "reverse": False}),),
        f"scanned(np.{name}, a, axis, exclusive, reverse)",
        f"op.{name}({{a}}, axis={{axis}}, exclusive={{exclusive}}, reverse={{reverse}})", gradient,
        rules.per_result(1.0), rules.whole_along("axis"), "sum", False,
    )  # fmt: skip


SOFTMAX: tuple[Operator, ...] = (
    Operator(
        "softmax", ("a",), (_AXIS,), rules.along_axis, rules.floats,
        (_NO_ONE_AXIS, Refused((_I4,), "takes floats", {"axis": 0})), "softmax(a, axis)",
        "op.softmax({a}, axis={axis})", _of_softmax, rules.per_result(14.0),
        rules.whole_along("axis"), "few ulp", False,
    ),
    Operator(
        "logsumexp", ("a",), (_AXES, _KEEPDIMS), _one_axis, rules.floats,
        (_NO_AXIS, Refused((_F44,), "along one axis", {"axes": (0, 1), "keepdims": False})),
        "logsumexp(a, axes, keepdims)", "op.logsumexp({a}, axis={axis_of}, keepdims={keepdims})",
        _of_logsumexp, rules.per_operand(12.0), rules.whole_axes_removed, "few ulp", False,
    ),
    _scan("cumsum", _of_cumsum),
    _scan("cumprod", _of_cumprod),
)  # fmt: skip


# --- order -----------------------------------------------------------------------------------

_DESCENDING = AttributeDef("descending", "bool")
_NO_LINE = Refused((_F4,), "there is no axis 1", {"axis": 1, "descending": False})


def _of_sort(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    """To where each element came from: the places of the places in order."""
    axis = integer(o.attributes, "axis")
    places = b.op("argsort", o.operands[0], **o.attributes)
    back = b.op("argsort", places, axis=axis, descending=False)
    return (b.op("take_along", ct, back, axis=axis),)


def _along_places(name: str, types: Types, attributes: Attributes) -> Shape:
    a, places = types
    axis = axis_in(name, integer(attributes, "axis"), a)
    rest = zip(a.shape, places.shape, strict=False)
    if places.rank != a.rank or any(i != axis and m != n for i, (m, n) in enumerate(rest)):
        says = f"other sizes than along axis {axis} differ"
        raise OperandError(f"`{name}` of {a} and {places}: {says}")
    return places.shape


def _of_take_along(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value | None, ...]:
    """To each element the sum over those that were taken from its place."""
    a, places = o.operands
    axis, shape = integer(o.attributes, "axis"), a.tensor_type.shape
    taken, rank = places.tensor_type.shape, len(shape)
    order = (*(i for i in range(rank) if i != axis), axis)
    front = tuple(shape[i] for i in order[:-1])
    n, m = shape[axis], taken[axis]
    line = b.op("arange", shape=(str(n),), dtype=places.tensor_type.dtype)
    wide = (*front, n, m)

    def along(value: Value) -> Value:
        moved = b.reshape(b.transpose(value, order), (*front, 1, m))
        return b.broadcast(moved, wide)

    own = b.broadcast(b.reshape(line, (*(1 for _ in front), n, 1)), wide)
    chosen = b.where(
        b.op("eq", along(places), own), along(ct), b.full(wide, ct.tensor_type.dtype, 0)
    )
    summed = b.sum(chosen, (rank,))
    return b.transpose(summed, tuple(order.index(i) for i in range(rank))), None


ORDER: tuple[Operator, ...] = (
    Operator(
        "sort", ("a",), (_AXIS, _DESCENDING), rules.along_axis, rules.numbers, (_NO_LINE,),
        "ordered(np.sort, a, axis, descending)",
        "op.sort({a}, axis={axis}, descending={descending})", _of_sort, rules.per_result(30.0),
        rules.whole_along("axis"), "exact", False,
    ),
    Operator(
        "argsort", ("a",), (_AXIS, _DESCENDING), rules.along_axis, rules.place_dtype, (_NO_LINE,),
        "ordered(np.argsort, a, axis, descending)",
        "op.argsort({a}, axis={axis}, descending={descending}).to(i64)", _PLACES,
        rules.per_result(30.0), rules.whole_along("axis"), "exact", False,
    ),
    Operator(
        "take_along", ("a", "places"), (_AXIS,), _along_places, rules.of_places(1),
        (Refused((_F44, _I4), "other sizes than along axis 0 differ", {"axis": 0}),),
        "np.take_along_axis(a, places, axis)", "op.take_along_axis({a}, {places}, axis={axis})",
        _of_take_along, rules.MOVES, rules.whole_along("axis"), "exact", False,
    ),
)  # fmt: skip
