"""Reductions, scans, softmax and triangles as nodes.

Owns what those are made of that are no operation of the IR. Must not know how a node is evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule import node_builders
from tessera_lang.lower.ast_to_schedule.builtin_arguments import (
    argument,
    axes_of,
    axis_of,
    index_node,
    known,
    needed,
)
from tessera_lang.lower.ast_to_schedule.elementwise_builtins import apply_to_elements, power_of_e
from tessera_lang.lower.ast_to_schedule.state import State, register_dtype
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Axis,
    Filled,
    Iota,
    Node,
    Reduced,
    Scanned,
)
from tessera_lang.sema.side_tables import Builtin, TypedFunction
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.target.launch_plan import Condition
from tessera_lang.types.dtype import BOOL, F32, I32, INDEX, DType
from tessera_lang.types.shape import symbols_of

_KINDS = {"sum": "add", "prod": "mul", "mean": "add", "max": "max", "min": "min", "any": "any",
          "all": "all", "argmax": "argmax", "argmin": "argmin"}  # fmt: skip

KINDS = {"sum": "add", "prod": "mul", "mean": "add", "max": "max", "min": "min", "any": "any",
         "all": "all", "argmax": "argmax", "argmin": "argmin"}  # fmt: skip
"""Reductions that are one operation, or one and a division."""
_FAR = (1 << 63) - 1  # no place is there
DERIVED = ("var", "std", "norm", "logsumexp")
"""Those that are made of others."""


def reduced(s: State, kind: str, x: Node, axis: int, span: Span) -> Node:
    dtype = INDEX if kind in ("argmax", "argmin") else x.dtype
    axes = (*x.axes[:axis], *x.axes[axis + 1 :])
    return Reduced(kind, x, axis, dtype, axes, span)


def reduction(s: State, e: ast.Call, name: str) -> Node:
    """``op.sum(x, axis=, keepdims=)`` and its like."""
    x = s.node(needed(s, e, "x"))
    given = axes_of(s, e, len(x.axes))
    axes = tuple(range(len(x.axes))) if given is None else given
    dtype = register_dtype(s.typed.types.get(e)) or x.dtype
    if name in ("any", "all", "argmax", "argmin"):
        dtype = x.dtype if x.dtype.bits != 8 or not x.dtype.is_float else F32
        if dtype == BOOL and name.startswith("arg"):
            dtype = I32
    x = node_builders.cast(s, x, dtype)
    if e in s.typed.nonempty:
        count = s.b.number(1)
        for axis in axes:
            count = s.b.arithmetic("mul", count, x.axes[axis].extent)
        _has_elements(s, e, name, count)
    if name in ("argmax", "argmin") and len(axes) > 1:
        found = _first_place(s, name.removeprefix("arg"), x, e.span)
    elif name in DERIVED:
        found = _derived(s, e, name, x, axes)
    else:
        found = _along(s, KINDS[name], x, axes, e.span)
        found = _mean(s, found, x, axes, dtype) if name == "mean" else found
    return _stretched(s, found, axes) if known(s, argument(s, e, "keepdims")) is True else found


def _along(s: State, kind: str, x: Node, axes: Sequence[int], span: Span) -> Node:
    found = x
    for axis in reversed(axes):
        found = reduced(s, kind, found, axis, span)
    return found


def _stretched(s: State, row: Node, axes: Sequence[int]) -> Node:
    """What is left of a reduction, with axes of one element in the place of those reduced."""
    one = Axis(s.b.number(1), 1)
    shape = list(row.axes)
    for axis in axes:
        shape.insert(axis, one)
    places = [i for i in range(len(shape)) if i not in axes]
    return node_builders.with_axes(s, row, tuple(shape), places)


def _back(s: State, row: Node, axes: Sequence[int]) -> Node:
    """The same where it meets what was reduced: a single number fits every tile."""
    return _stretched(s, row, axes) if row.axes else row


def _derived(s: State, e: ast.Call, name: str, x: Node, axes: Sequence[int]) -> Node:
    dtype = x.dtype
    match name:
        case "logsumexp":
            return _log_sum_exp(s, e, x, axes)
        case "norm":
            squares = node_builders.mapped(s, "mul", (x, x), dtype)
            found = _along(s, "add", squares, axes, e.span)
        case _:
            found = _variance(s, x, axes, dtype, e)
    return found if name == "var" else node_builders.mapped(s, "sqrt", (found,), dtype)


def _first_place(s: State, kind: str, x: Node, span: Span) -> Node:
    """The number, in row-major order, of the first of the largest or smallest elements of all; of
    the first NaN where there is one."""
    axes = range(len(x.axes))
    best = _along(s, kind, x, axes, span)
    here = node_builders.compared(s, "eq", x, best)
    if x.dtype.is_float:
        nan = node_builders.compared(s, "ne", x, x)
        here = node_builders.mapped(s, "or", (here, nan), BOOL)
    place: Node = Iota(0, INDEX, x.axes)
    for axis in axes[1:]:
        extent = Filled(x.axes[axis].extent, INDEX, ())
        place = node_builders.mapped(s, "mul", (place, extent), INDEX)
        place = node_builders.mapped(s, "add", (place, Iota(axis, INDEX, x.axes)), INDEX)
    far = node_builders.constant(s, _FAR, INDEX)
    found = _along(s, "min", node_builders.select(s, here, place, far), axes, span)
    none = node_builders.compared(s, "eq", found, far)  # of no elements
    return node_builders.select(s, none, node_builders.constant(s, 0, INDEX), found)


def _log_sum_exp(s: State, e: ast.Call, x: Node, axes: Sequence[int]) -> Node:
    """``log(sum(exp(x)))``, with the largest element taken out before and put back after; where
    that is no number of its own (infinite), nothing is taken out."""
    dtype, span = x.dtype, e.span
    zero = node_builders.constant(s, 0, dtype)
    top = _along(s, "max", x, axes, span)
    size = node_builders.mapped(s, "abs", (top,), dtype)
    infinite = node_builders.compared(s, "eq", size, node_builders.constant(s, float("inf"), dtype))
    top = node_builders.select(s, infinite, zero, top)
    below = node_builders.mapped(s, "sub", (x, _back(s, top, axes)), dtype)
    second = s.typed.second.get(e)
    power = _exponential(s, below, second, span)
    total = _along(s, "add", power, axes, span)
    log = apply_to_elements(s, s.typed.calls[e], (total,), span)
    return node_builders.mapped(s, "add", (log, top), dtype, s.typed.types.get(e), span)


def _exponential(s: State, x: Node, instance: TypedFunction | None, span: Span) -> Node:
    """Of f64 by its function, of f32 as a power of two."""
    return power_of_e(s, x) if instance is None else apply_to_elements(s, instance, (x,), span)


def _has_elements(s: State, e: ast.Call, name: str, count: Value) -> None:
    """The launch sees to it where it knows how many there are, and the call is surely reached."""
    extent, always = s.typed.nonempty[e]
    if always and symbols_of(extent) <= s.low.symbols.keys():
        place = s.low.position(e.span)
        s.low.conditions.append(Condition(extent, ">=", 1, f"{extent} >= 1", place))
        return
    site = s.low.site("assert", e.span, name, shown=f"`op.{name}` of no elements")
    s.b.assertion(s.b.cmp("gt", count, s.b.number(0)), site)


def _mean(
    s: State, total: Node, x: Node, axes: Sequence[int], dtype: DType, less: float = 0
) -> Node:
    """The sum divided by the number of elements less a correction, which is not below 0."""
    count = s.b.number(1)
    for axis in axes:
        count = s.b.arithmetic("mul", count, x.axes[axis].extent)
    divisor: Node = Filled(s.b.cast(count, dtype), dtype, ())
    if less:
        correction = node_builders.constant(s, less, dtype)
        divisor = node_builders.mapped(s, "sub", (divisor, correction), dtype)
        zero = node_builders.constant(s, 0, dtype)
        divisor = node_builders.mapped(s, "max", (divisor, zero), dtype)
    return node_builders.mapped(s, "div", (total, divisor), dtype)


def _variance(s: State, x: Node, axes: Sequence[int], dtype: DType, e: ast.Call) -> Node:
    """The mean of the squared distances from the mean."""
    span = e.span
    given = argument(s, e, "correction") or argument(s, e, "ddof")
    less = known(s, given, 0)
    mean = _mean(s, _along(s, "add", x, axes, span), x, axes, dtype)
    distance = node_builders.mapped(s, "sub", (x, _back(s, mean, axes)), dtype)
    found = node_builders.mapped(s, "mul", (distance, distance), dtype)
    less = less if isinstance(less, int | float) else 0
    return _mean(s, _along(s, "add", found, axes, span), x, axes, dtype, less)


def scan(s: State, e: ast.Call) -> Node:
    """``op.cumsum(x, axis=, exclusive=, reverse=)`` and its like."""
    x = s.node(needed(s, e, "x"))
    symbol = s.typed.symbols.get(e.function)
    name = symbol.name if isinstance(symbol, Builtin) else "op.cumsum"
    kind = {"op.cumsum": "add", "op.cumprod": "mul"}.get(name, name[-3:])
    dtype = register_dtype(s.typed.types.get(e)) or x.dtype
    axis = axis_of(s, e, len(x.axes), 0) or 0
    inclusive = known(s, argument(s, e, "exclusive")) is not True
    reverse = known(s, argument(s, e, "reverse")) is True
    x = node_builders.cast(s, x, dtype)
    return Scanned(kind, x, axis, inclusive, dtype, x.axes, e.span, reverse)


def triangle(s: State, e: ast.Call) -> Node:
    """``op.tril(x, k)``: zeros right of the diagonal ``k``; ``op.triu``: zeros left of it."""
    x = s.node(needed(s, e, "x"))
    symbol = s.typed.symbols.get(e.function)
    lower = isinstance(symbol, Builtin) and symbol.name == "op.tril"
    rank = len(x.axes)
    rows: Node = Iota(rank - 2, INDEX, x.axes)
    columns: Node = Iota(rank - 1, INDEX, x.axes)
    given = argument(s, e, "k")
    if given is not None:
        rows = node_builders.mapped(s, "add", (rows, index_node(s, given)), INDEX)
    kept = node_builders.compared(s, "le" if lower else "ge", columns, rows)
    zero = node_builders.constant(s, 0, x.dtype)
    return node_builders.select(s, kept, x, zero, s.typed.types.get(e))


def softmax(s: State, e: ast.Call) -> Node:
    """A row with nothing valid in it, or with only -inf, is all zeros. Powers in f32 are the
    machine's: no x is above 0, and the sum of a row errs more."""
    x = s.node(needed(s, e, "x"))
    dtype = register_dtype(s.typed.types.get(e)) or x.dtype
    x = node_builders.cast(s, x, dtype)
    axis = axis_of(s, e, len(x.axes), -1)
    assert axis is not None

    def back(row: Node) -> Node:
        return _back(s, row, (axis,))

    zero, unit = node_builders.constant(s, 0, dtype), node_builders.constant(s, 1, dtype)
    top = reduced(s, "max", x, axis, e.span)
    none = node_builders.compared(s, "eq", top, node_builders.constant(s, float("-inf"), dtype))
    top = node_builders.select(s, none, zero, top)
    below = node_builders.mapped(s, "sub", (x, back(top)), dtype)
    power = _exponential(s, below, s.typed.calls.get(e), e.span)  # of f64
    total = reduced(s, "add", power, axis, e.span)
    empty = node_builders.compared(s, "eq", total, zero)
    total = node_builders.select(s, empty, unit, total)
    share = node_builders.mapped(s, "div", (unit, total), dtype)  # one division a row
    return node_builders.mapped(s, "mul", (power, back(share)), dtype, s.typed.types.get(e), e.span)


def causal(s: State, e: ast.Call) -> Node:
    """-inf right of the diagonal; ``row`` and ``column`` are those of the first element."""
    x = s.node(needed(s, e, "x"))
    rank = len(x.axes)
    rows: Node = Iota(rank - 2, INDEX, x.axes)
    columns: Node = Iota(rank - 1, INDEX, x.axes)
    for name in ("row", "offset"):
        given = argument(s, e, name)
        if given is not None:
            rows = node_builders.mapped(s, "add", (rows, index_node(s, given)), INDEX)
    given = argument(s, e, "column")
    if given is not None:
        columns = node_builders.mapped(s, "add", (columns, index_node(s, given)), INDEX)
    seen = node_builders.compared(s, "le", columns, rows)
    low = node_builders.constant(s, float("-inf"), x.dtype)
    return node_builders.select(s, seen, x, low, s.typed.types.get(e))
