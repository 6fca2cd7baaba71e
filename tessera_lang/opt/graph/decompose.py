"""Rewrites of Graph IR that make reductions visible: operators that hold several become those.

``softmax``, ``logsumexp``, ``mean``, ``any`` and ``all`` of what a product computes become maxima,
sums and element-wise operators, so that each may be one of a cascade. The transpose of a product is
the product of the transposes in the other order. ``sum(y * (a @ b.mT))`` along the last axis is
``sum(a * (y @ b))`` where that product is there already.
Owns these rules. Must not know how reductions are fused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operators import OPERATORS, is_operator, operator_of
from tessera_lang.ir.graph.regions import function_of
from tessera_lang.ir.graph.rules import integer, integers
from tessera_lang.opt.graph.dead_code import without_unused
from tessera_lang.opt.graph.spread_convolutions import without_spread
from tessera_lang.record import dataclass, replace
from tessera_lang.types.dtype import F32

Rule = Callable[[GraphBuilder, Operation, Sequence[Value]], "Value | None"]
"""What stands for an operation of these operands, which are rewritten already; None: itself."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rule and the operators that it is tried for; ``of_products``: only where the first operand
    is made of a product, element by element."""

    name: str
    operators: tuple[str, ...]
    of_products: bool
    made: Rule


def decompose(
    function: Operation, rewrites: Sequence[Rewrite] = (), applied: list[str] | None = None
) -> Operation:  # fmt: skip
    """The same function, rewritten by ``rewrites`` or all there are; sizes are numbers.
    ``applied`` gets the name of each rule that was used, each time."""
    (body,) = function.regions
    rules = rewrites or REWRITES
    builder = GraphBuilder(OPERATORS)
    new: dict[Value, Value] = {v: v for v in body.arguments}
    large = set[Value]()  # made of products, element by element
    for operation in body.operations[:-1]:
        builder.span = operation.span
        operands = [new[v] for v in operation.operands]
        if not is_operator(operation):
            operation = _in_regions(operation, rewrites, applied)
            new.update(zip(operation.results, builder.repeated(operation, operands), strict=True))
            continue
        new[operation.result] = _rewritten(builder, operation, operands, rules, large, applied)
        if operation.name == "graph.matmul" or (
            operation.result.tensor_type.rank and keeps_elements(operation)
            and any(v in large for v in operation.operands)
        ):  # fmt: skip
            large.add(operation.result)
    results = [new[v] for v in body.terminator.operands]
    name = str(function.attributes["sym_name"])
    made = builder.function(name, body.arguments, results, function.strings("parameters"))
    return without_unused(made)


def _in_regions(
    operation: Operation, rewrites: Sequence[Rewrite], applied: list[str] | None
) -> Operation:  # fmt: skip
    """An operation whose regions are rewritten."""
    if not operation.regions:
        return operation
    made = (decompose(function_of(r), rewrites, applied).regions[0] for r in operation.regions)
    return replace(operation, regions=tuple(made))


def keeps_elements(operation: Operation) -> bool:
    """Whether each element of a result is made of one element of each operand."""
    row = operator_of(operation)
    return row.elementwise or row.name in ("broadcast", "transpose", "softmax")


def _rewritten(
    b: GraphBuilder, operation: Operation, operands: Sequence[Value], rules: Sequence[Rewrite],
    large: set[Value], applied: list[str] | None,
) -> Value:  # fmt: skip
    name = operation.name.removeprefix("graph.")
    for rule in rules:
        if name not in rule.operators or (rule.of_products and operation.operands[0] not in large):
            continue
        made = rule.made(b, operation, operands)
        if made is not None:
            if applied is not None:
                applied.append(rule.name)
            return made
    return b.add_operation(operation, operands)


def _transposed_product(
    b: GraphBuilder, operation: Operation, operands: Sequence[Value]
) -> Value | None:  # fmt: skip
    made = b.origin(operands[0])
    if made is None or not _swaps(operation) or made.name != "graph.matmul":
        return None
    left, right = made.operands
    tile = made.attributes.get("tile")
    said = {"tile": (tile[1], tile[0], *tile[2:])} if isinstance(tile, tuple) else {}
    return b.op("matmul", b.swapped(right), b.swapped(left), **said)


def _reshaped_reduction(
    b: GraphBuilder, operation: Operation, operands: Sequence[Value]
) -> Value | None:  # fmt: skip
    made = b.origin(operands[0])
    if made is None or made.name not in _KEEP or made.attributes["keepdims"] is not True:
        return None
    given = {**made.attributes, "keepdims": False}
    found = b.op(made.name.removeprefix("graph."), *made.operands, **given)
    return b.reshape(found, operation.result.tensor_type.shape)


def _without_kept_axes(
    b: GraphBuilder, operation: Operation, operands: Sequence[Value]
) -> Value | None:  # fmt: skip
    if not operation.attributes["keepdims"]:
        return None
    axes, name = integers(operation.attributes, "axes"), operation.name.removeprefix("graph.")
    found = b.op(name, operands[0], axes=axes, keepdims=False)
    return b.reshape(found, operation.result.tensor_type.shape)


def _swaps(operation: Operation) -> bool:
    axes = operation.integers("axes")
    rank = len(axes)
    return rank > 1 and axes == (*range(rank - 2), rank - 1, rank - 2)


def _softmax(b: GraphBuilder, o: Operation, operands: Sequence[Value]) -> Value:
    (given,) = operands
    axis, a = integer(o.attributes, "axis"), _wide(b, given)
    _, weights, total = _weights(b, a, axis)
    zero, one = b.zeros(total), b.like(total, 1.0)
    inverse = b.where(b.op("eq", total, zero), zero, b.div(one, total))
    found = b.mul(weights, _along(b, inverse, a, axis))
    return b.cast(found, given.tensor_type.dtype)


def _logsumexp(b: GraphBuilder, o: Operation, operands: Sequence[Value]) -> Value:
    (given,) = operands
    (axis,) = integers(o.attributes, "axes")
    top, _, total = _weights(b, _wide(b, given), axis)
    found = b.cast(b.add(top, b.op("log", total)), given.tensor_type.dtype)
    return b.reshape(found, o.result.tensor_type.shape)


def _weights(b: GraphBuilder, a: Value, axis: int) -> tuple[Value, Value, Value]:
    """What exponents are relative to, the exponentials, and their sum: rows of -inf have sum 0."""
    top = b.op("reduce_max", a, axes=(axis,), keepdims=False)
    infinite = b.op("eq", b.op("abs", top), b.like(top, math.inf))
    top = b.where(infinite, b.zeros(top), top)
    weights = b.op("exp", b.sub(a, _along(b, top, a, axis)))
    return top, weights, b.sum(weights, (axis,))


def _along(b: GraphBuilder, value: Value, of: Value, axis: int) -> Value:
    """A result along an axis that it lacks, as long as another value's."""
    shape = of.tensor_type.shape
    kept = tuple(1 if i == axis else n for i, n in enumerate(shape))
    return b.broadcast(b.reshape(value, kept), shape)


def _wide(b: GraphBuilder, value: Value) -> Value:
    """Floats in the dtype in which sums of them are kept: rounded once, at the end."""
    dtype = value.tensor_type.dtype
    return b.cast(value, F32) if dtype.is_float and dtype.bits < 32 else value


def _mean(b: GraphBuilder, o: Operation, operands: Sequence[Value]) -> Value | None:
    (given,) = operands
    a = _wide(b, given)
    axes = integers(o.attributes, "axes")
    shape = [int(str(a.tensor_type.shape[i])) for i in axes]
    total = b.sum(a, axes, keepdims=o.attributes["keepdims"] is True)
    if not math.prod(shape) or not a.tensor_type.dtype.is_float:
        return None
    return b.cast(b.times(total, 1.0 / math.prod(shape)), o.result.tensor_type.dtype)


def _any(b: GraphBuilder, o: Operation, operands: Sequence[Value]) -> Value | None:
    """Whether the greatest of 1 where a condition holds, and 0 elsewhere, is 1; of `all` the
    least."""
    (asked,) = operands
    axes = integers(o.attributes, "axes")
    if len(axes) != 1 or asked.tensor_type.dtype.bits != 1 or 0 in asked.tensor_type.shape:
        return None
    zero = b.broadcast(b.full((), F32, 0.0), asked.tensor_type.shape)
    name = "reduce_max" if o.name == "graph.any" else "reduce_min"
    found = b.op(name, b.where(asked, b.like(zero, 1.0), zero), axes=axes, keepdims=False)
    return b.reshape(b.op("gt", found, b.zeros(found)), o.result.tensor_type.shape)


_REDUCED = ("sum", "reduce_max", "reduce_min")
"""Those that are one operation whether they keep their axes or not."""
_KEEP = tuple(f"graph.{n}" for n in (*_REDUCED, "mean", "prod", "any", "all", "logsumexp"))


def _moved_sum(b: GraphBuilder, o: Operation, operands: Sequence[Value]) -> Value | None:
    """``sum(y * (a @ b.mT), -1)`` by a product ``y @ b`` that there is: the sum over the columns
    of two factors is the sum over what the product contracts."""
    (a,) = operands
    rank = a.tensor_type.rank
    made = b.origin(a)
    if integers(o.attributes, "axes") != (rank - 1,) or made is None or made.name != "graph.mul":
        return None
    for weights, other in (made.operands, made.operands[::-1]):
        product = b.origin(other)
        if product is None or product.name != "graph.matmul":
            continue
        left, right = product.operands
        there = b.known("matmul", weights, b.swapped(right))
        if there is not None and there.type == left.type:
            both = b.mul(_wide(b, left), _wide(b, there))
            found = b.sum(both, (rank - 1,), o.attributes["keepdims"] is True)
            return b.cast(found, o.result.tensor_type.dtype)
    return None


REWRITES: tuple[Rewrite, ...] = (
    Rewrite("softmax in parts", ("softmax",), True, _softmax),
    Rewrite("logsumexp in parts", ("logsumexp",), True, _logsumexp),
    Rewrite("mean as a sum", ("mean",), True, _mean),
    Rewrite("conditions as numbers", ("any", "all"), True, _any),
    Rewrite("convolution in phases", ("conv", "conv_weights"), False, without_spread),
    Rewrite("product of transposes", ("transpose",), False, _transposed_product),
    Rewrite("reduction without its axes, reshaped", ("reshape",), False, _reshaped_reduction),
    Rewrite("sum behind another product", ("sum",), False, _moved_sum),
    Rewrite("reduction of a product without its axes", _REDUCED, True, _without_kept_axes),
)
"""In this order: the first that gives something is taken."""
