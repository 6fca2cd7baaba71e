"""Calls in tile kernels -> nodes: makers, functions of elements, reductions, softmax, products.

Owns what each builtin of tiles means. Plain functions of the program are inlined by
``inline.py``. Must not know statements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tessera_lang.ir.core import TileType, Value
from tessera_lang.lower.ast_to_schedule import inline, node_operations, slices
from tessera_lang.lower.ast_to_schedule.elementwise_calls import NotSpread, Spread
from tessera_lang.lower.ast_to_schedule.state import State, register_dtype
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Axis,
    Filled,
    Iota,
    Mapped,
    Node,
    Read,
    Reduced,
    Scanned,
    Staging,
    Windows,
)
from tessera_lang.lower.ast_to_tile.calls import apply_function
from tessera_lang.lower.ast_to_tile.context import Unsupported
from tessera_lang.opt.schedule.query.scalar_facts import is_positive_zero
from tessera_lang.record import replace
from tessera_lang.sema.builtins import TILE_FUNCTIONS
from tessera_lang.sema.typed import Builtin, TypedFunction
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.target.plan import Condition
from tessera_lang.types.dtype import BOOL, DTYPES, F32, INDEX, DType
from tessera_lang.types.shape import symbols_of
from tessera_lang.types.type import Scalar, Tensor, Tile, TupleType, Type

_NATIVE = {"op.sqrt": "sqrt", "op.floor": "floor", "op.ceil": "ceil", "op.round": "round",
           "op.trunc": "trunc", "op.abs": "abs", "abs": "abs", "math.sqrt": "sqrt",
           "math.floor": "floor", "math.ceil": "ceil", "math.round": "round",
           "math.trunc": "trunc", "fast.exp2": "exp2"}  # fmt: skip
_LOG2_E = math.log2(math.e)
_KINDS = {"sum": "add", "prod": "mul", "mean": "add", "max": "max", "min": "min", "any": "any",
          "all": "all", "argmax": "argmax", "argmin": "argmin"}  # fmt: skip


def call(s: State, e: ast.Call) -> Node | None:
    """The node of a call; None where it has no value."""
    symbol = s.typed.symbols.get(e.function)
    instance = s.typed.calls.get(e)
    if instance is not None and not isinstance(symbol, Builtin):
        if _is_of_elements(s, e, instance):
            return _of_elements(s, e, instance)
        found = inline.function(s, e, instance)
        if isinstance(found, tuple):
            raise Unsupported(e.span, "several results as one value", "write `a, b = ...`")
        return found
    if not isinstance(symbol, Builtin):
        raise Unsupported(e.span, "this call")
    name = symbol.name
    if name in _TABLE:
        return _TABLE[name](s, e)
    if instance is not None:
        return _element_function(s, e, instance)
    if name == "to" and isinstance(e.function, ast.Attribute):
        return _cast(s, e, e.function.value)
    if name in DTYPES:
        return _cast(s, e, e.arguments[0])
    if name in ("min", "max"):
        return _extreme(s, e, name)
    if name == "math.fma":
        return _fma(s, e)
    if name == "bitcast":
        return _bits(s, e)
    if name == "fast.exp":
        return _fast_exp(s, e)
    if name in _NATIVE:
        return _native(s, e, _NATIVE[name])
    if name.startswith("op.") and name.removeprefix("op.") in (*_KINDS, "var"):
        return _reduction(s, e, name.removeprefix("op."))
    if name.startswith("schedule."):
        return None
    raise Unsupported(e.span, f"`{name}`")


def results(s: State, e: ast.Call) -> tuple[Node, ...] | None:
    """What a function of tiles gives that returns several values; None for other calls."""
    instance = s.typed.calls.get(e)
    if instance is None or not isinstance(instance.returns, TupleType):
        return None
    given = [s.typed.types.get(a) for a in e.arguments]
    if not any(isinstance(t, Tensor | Tile) for t in (*instance.returns.items, *given)):
        return None
    found = inline.function(s, e, instance)
    return found if isinstance(found, tuple) else None


def argument(s: State, e: ast.Call, name: str) -> ast.Expr | None:
    """The argument of a builtin for one of its parameters."""
    symbol = s.typed.symbols.get(e.function)
    given = s.typed.arguments.get(e)
    if isinstance(symbol, Builtin) and given is not None and symbol.name in TILE_FUNCTIONS:
        names = TILE_FUNCTIONS[symbol.name].parameters
        if name in names and names.index(name) < len(given):
            return given[names.index(name)]
        return None
    keyword = next((k.value for k in e.keywords if k.name == name), None)
    return keyword or (e.arguments[0] if name in ("x", "a") and e.arguments else None)


def needed(s: State, e: ast.Call, name: str) -> ast.Expr:
    found = argument(s, e, name)
    if found is None:
        raise Unsupported(e.span, f"this call without `{name}`")
    return found


def known(s: State, e: ast.Expr | None, default: object = None) -> object:
    """A value that is known at compile time."""
    if e is None:
        return default
    if e in s.typed.constants:
        return s.typed.constants[e]
    if isinstance(e, ast.IntLit | ast.FloatLit | ast.StringLit | ast.BoolLit):
        return e.value
    if isinstance(e, ast.Unary) and e.operator == "-":
        inner = known(s, e.operand)
        return -inner if isinstance(inner, int | float) else default
    return default


def axis_of(s: State, e: ast.Call, rank: int, default: int | None) -> int | None:
    given = argument(s, e, "axis")
    value = known(s, given, default) if given is not None else default
    return value % rank if isinstance(value, int) else None


# --- makers ----------------------------------------------------------------------------------


def _axes(s: State, e: ast.Call) -> tuple[Axis, ...]:
    t = s.typed.types.get(e)
    if not isinstance(t, Tile):
        raise Unsupported(e.span, "an array made here")
    return tuple(s.axis(a) for a in t.axes)


def _filled(number: float) -> Callable[[State, ast.Call], Node]:
    def make(s: State, e: ast.Call) -> Node:
        dtype = register_dtype(s.typed.types.get(e))
        assert dtype is not None
        return Filled(s.b.constant(number, dtype), dtype, _axes(s, e))

    return make


def _full(s: State, e: ast.Call) -> Node:
    dtype = register_dtype(s.typed.types.get(e))
    assert dtype is not None
    value = node_operations.scalar_of(s, s.node(needed(s, e, "value")))
    return Filled(s.b.cast(value, dtype), dtype, _axes(s, e))


def _arange(s: State, e: ast.Call) -> Node:
    axes = _axes(s, e)
    first, stop = argument(s, e, "start"), argument(s, e, "stop")
    step = argument(s, e, "step")
    dtype = register_dtype(s.typed.types.get(e)) or INDEX
    made: Node = Iota(0, INDEX, axes)
    if step is not None:
        made = node_operations.mapped(s, "mul", (made, _index(s, step)), INDEX)
    if stop is not None and first is not None:
        made = node_operations.mapped(s, "add", (made, _index(s, first)), INDEX)
    return node_operations.cast(s, made, dtype)


def _index(s: State, e: ast.Expr) -> Node:
    return Filled(slices.number(s, e), INDEX, ())


def _iota(s: State, e: ast.Call) -> Node:
    axes = _axes(s, e)
    axis = axis_of(s, e, len(axes), 0)
    dtype = register_dtype(s.typed.types.get(e)) or INDEX
    return node_operations.cast(s, Iota(axis or 0, INDEX, axes), dtype)


def _shared(s: State, e: ast.Call) -> Node:
    dtype = register_dtype(s.typed.types.get(e))
    assert dtype is not None
    return Filled(s.b.constant(0, dtype), dtype, _axes(s, e))


# --- of each element -------------------------------------------------------------------------


def _cast(s: State, e: ast.Call, x: ast.Expr) -> Node:
    dtype = register_dtype(s.typed.types.get(e))
    assert dtype is not None
    return node_operations.cast(s, s.node(x), dtype)


def _cast_call(s: State, e: ast.Call) -> Node:
    return _cast(s, e, needed(s, e, "x"))


def _native(s: State, e: ast.Call, name: str) -> Node:
    x = s.node(needed(s, e, "x"))
    return node_operations.mapped(s, name, (x,), x.dtype, s.typed.types.get(e), e.span)


def _bits(s: State, e: ast.Call) -> Node:
    """The bits of each element as another dtype."""
    x, t, b = s.node(e.arguments[0]), s.typed.types.get(e), s.b
    dtype = register_dtype(t) or x.dtype
    return Mapped(lambda v, w: b.bitcast(v[0], dtype), (x,), dtype, x.axes, e.span)


def _fma(s: State, e: ast.Call) -> Node:
    t, b = s.typed.types.get(e), s.b
    given = [s.node(a) for a in e.arguments]
    dtype = register_dtype(t) or given[0].dtype
    given = [node_operations.cast(s, x, dtype) for x in given]
    axes = node_operations.axes_of(s, given, t)
    return Mapped(lambda v, w: b.fma(v[0], v[1], v[2]), tuple(given), dtype, axes, e.span)


def _fast_exp(s: State, e: ast.Call) -> Node:
    """e to the power of x, by a power of two in f32: the error grows with the magnitude of x."""
    x = s.node(needed(s, e, "x"))
    wide = node_operations.cast(s, x, F32)
    power = _power_of_e(s, wide, s.typed.types.get(e), e.span)
    return node_operations.cast(s, power, x.dtype)


def _power_of_e(s: State, x: Node, t: Type | None = None, span: Span | None = None) -> Node:
    scaled = node_operations.mapped(s, "mul", (x, node_operations.constant(s, _LOG2_E, F32)), F32)
    return node_operations.mapped(s, "exp2", (scaled,), F32, t, span)


def _extreme(s: State, e: ast.Call, name: str) -> Node:
    dtype = register_dtype(s.typed.types.get(e))
    operands = [s.node(a) for a in e.arguments]
    found = operands[0] if dtype is None else node_operations.cast(s, operands[0], dtype)
    for operand in operands[1:]:
        other = node_operations.cast(s, operand, found.dtype)
        found = node_operations.mapped(s, name, (found, other), found.dtype)
    return found


def _where(s: State, e: ast.Call) -> Node:
    t = s.typed.types.get(e)
    condition, a, b = (s.node(needed(s, e, n)) for n in ("condition", "a", "b"))
    dtype = register_dtype(t) or a.dtype
    return node_operations.select(
        s, condition, node_operations.cast(s, a, dtype), node_operations.cast(s, b, dtype), t
    )


def _clamp(s: State, e: ast.Call) -> Node:
    x, low, high = (s.node(needed(s, e, n)) for n in ("x", "low", "high"))
    dtype = register_dtype(s.typed.types.get(e)) or x.dtype
    x, low, high = (node_operations.cast(s, n, dtype) for n in (x, low, high))
    above = node_operations.mapped(s, "max", (x, low), dtype)
    return node_operations.mapped(s, "min", (above, high), dtype)


def _relu(s: State, e: ast.Call) -> Node:
    x = s.node(needed(s, e, "x"))
    return node_operations.mapped(s, "max", (x, node_operations.constant(s, 0, x.dtype)), x.dtype)


def _element_function(s: State, e: ast.Call, instance: TypedFunction) -> Node:
    """A function of ``std.math`` for one number, of every element."""
    x = s.node(needed(s, e, "x"))
    t = s.typed.types.get(e)
    parameter = register_dtype(instance.parameter_types[0]) or F32
    x = node_operations.cast(s, x, parameter)
    result = apply_to_elements(s, instance, (x,), e.span)
    if e in s.typed.rounded:
        shorter = apply_to_elements(s, s.typed.rounded[e], (x,), e.span)
        result = replace(result, rounded=shorter.function)
    return node_operations.cast(s, result, register_dtype(t) or result.dtype)


def _is_of_elements(s: State, e: ast.Call, instance: TypedFunction) -> bool:
    """Whether a function of numbers is called with tiles."""
    numbers = all(isinstance(t, Scalar) for t in instance.parameter_types)
    given = [s.typed.types.get(a) for a in e.arguments]
    return numbers and any(isinstance(t, Tensor | Tile) for t in given)


def _of_elements(s: State, e: ast.Call, instance: TypedFunction) -> Node:
    """A function of numbers, of the elements of tiles that meet."""
    t = s.typed.types.get(e)
    kinds = [register_dtype(kind) or F32 for kind in instance.parameter_types]
    given = [node_operations.cast(s, s.node(a), d) for a, d in zip(e.arguments, kinds, strict=True)]
    result = apply_to_elements(s, instance, given, e.span, t)
    return node_operations.cast(s, result, register_dtype(t) or result.dtype)


def apply_to_elements(
    s: State, instance: TypedFunction, given: Sequence[Node], span: Span, t: Type | None = None
) -> Mapped:
    dtype = register_dtype(instance.returns) or given[0].dtype

    def apply(v: tuple[Value, ...], windows: Windows) -> Value:
        b = s.b
        shape = next((x.type.shape for x in v if isinstance(x.type, TileType)), None)
        if shape is None:
            found = apply_function(s.low, instance, v)
            return b.cast(found, dtype) if isinstance(found, Value) else v[0]
        with b.region(*(("x", x.dtype) for x in given)) as one:
            found = apply_function(s.low, instance, one.arguments)
        if not isinstance(found, Value):
            raise Unsupported(span, "a function of several results of a tile")
        try:
            (made,) = Spread(b, shape).apply(one.region, v, (found,))
        except NotSpread as fault:
            raise Unsupported(span, f"`{fault}` in a function of each element") from None
        return b.cast(made, dtype)

    return Mapped(apply, tuple(given), dtype, node_operations.axes_of(s, given, t), span)


# --- reductions ------------------------------------------------------------------------------


def reduced(s: State, kind: str, x: Node, axis: int, span: Span) -> Node:
    dtype = INDEX if kind in ("argmax", "argmin") else x.dtype
    axes = (*x.axes[:axis], *x.axes[axis + 1 :])
    return Reduced(kind, x, axis, dtype, axes, span)


def _reduction(s: State, e: ast.Call, name: str) -> Node:
    x = s.node(needed(s, e, "x"))
    own = x.dtype
    axis = axis_of(s, e, len(x.axes), None)
    dtype = register_dtype(s.typed.types.get(e)) or x.dtype
    if name in ("any", "all", "argmax", "argmin"):
        dtype = x.dtype if x.dtype.bits != 8 or not x.dtype.is_float else F32
    x = node_operations.cast(s, x, dtype)
    axes = range(len(x.axes)) if axis is None else (axis,)
    if e in s.typed.nonempty:
        _has_elements(s, e, name, x.axes[axis or 0].extent)
    if name == "var":
        return _variance(s, x, list(axes), dtype, e.span)
    found = x
    for at in reversed(axes):
        found = reduced(s, _KINDS[name], found, at, e.span)
    if name in ("max", "min") and own.is_float8 and own.infinite and dtype != own:
        return node_operations.picked(s, found, own)
    return _mean(s, found, x, list(axes), dtype) if name == "mean" else found


def _has_elements(s: State, e: ast.Call, name: str, count: Value) -> None:
    """The launch sees to it where it knows how many there are, and the call is surely reached."""
    extent, always = s.typed.nonempty[e]
    if always and symbols_of(extent) <= s.low.symbols.keys():
        place = s.low.position(e.span)
        s.low.conditions.append(Condition(extent, ">=", 1, f"{extent} >= 1", place))
        return
    site = s.low.site("assert", e.span, name, shown=f"`op.{name}` of no elements")
    s.b.assertion(s.b.cmp("gt", count, s.b.number(0)), site)


def _mean(s: State, total: Node, x: Node, axes: list[int], dtype: DType) -> Node:
    count = s.b.number(1)
    for axis in axes:
        count = s.b.arithmetic("mul", count, x.axes[axis].extent)
    divisor = Filled(s.b.cast(count, dtype), dtype, ())
    return node_operations.mapped(s, "div", (total, divisor), dtype)


def _variance(s: State, x: Node, axes: list[int], dtype: DType, span: Span) -> Node:
    """The mean of the squared distances from the mean."""
    total: Node = x
    for at in reversed(axes):
        total = reduced(s, "add", total, at, span)
    mean = _mean(s, total, x, axes, dtype)
    for at in axes if mean.axes else ():  # a single number fits every tile
        one = Axis(s.b.number(1), 1)
        shape = (*mean.axes[:at], one, *mean.axes[at:])
        mean = node_operations.with_axes(s, mean, shape, [i for i in range(len(shape)) if i != at])
    distance = node_operations.mapped(s, "sub", (x, mean), dtype)
    found = node_operations.mapped(s, "mul", (distance, distance), dtype)
    for at in reversed(axes):
        found = reduced(s, "add", found, at, span)
    return _mean(s, found, x, axes, dtype)


def _cumsum(s: State, e: ast.Call) -> Node:
    x = s.node(needed(s, e, "x"))
    dtype = register_dtype(s.typed.types.get(e)) or x.dtype
    axis = axis_of(s, e, len(x.axes), 0)
    x = node_operations.cast(s, x, dtype)
    return Scanned("add", x, axis or 0, True, dtype, x.axes, e.span)


def _softmax(s: State, e: ast.Call) -> Node:
    """A row with nothing valid in it, or with only -inf, is all zeros. Powers in f32 are the
    machine's: no x is above 0, and the sum of a row errs more."""
    x = s.node(needed(s, e, "x"))
    dtype = register_dtype(s.typed.types.get(e)) or x.dtype
    x = node_operations.cast(s, x, dtype)
    axis = axis_of(s, e, len(x.axes), -1)
    assert axis is not None
    rest = [i for i in range(len(x.axes)) if i != axis]
    one = Axis(s.b.number(1), 1)

    def back(row: Node) -> Node:
        if not row.axes:
            return row  # a single number fits every tile
        shape = (*row.axes[:axis], one, *row.axes[axis:])
        return node_operations.with_axes(s, row, shape, rest)

    zero, unit = node_operations.constant(s, 0, dtype), node_operations.constant(s, 1, dtype)
    top = reduced(s, "max", x, axis, e.span)
    none = node_operations.compared(s, "eq", top, node_operations.constant(s, float("-inf"), dtype))
    top = node_operations.select(s, none, zero, top)
    below = node_operations.mapped(s, "sub", (x, back(top)), dtype)
    exponential = s.typed.calls.get(e)  # of f64
    power = (
        _power_of_e(s, below)
        if exponential is None
        else apply_to_elements(s, exponential, (below,), e.span)
    )
    total = reduced(s, "add", power, axis, e.span)
    empty = node_operations.compared(s, "eq", total, zero)
    total = node_operations.select(s, empty, unit, total)
    share = node_operations.mapped(s, "div", (unit, total), dtype)  # one division a row
    return node_operations.mapped(
        s, "mul", (power, back(share)), dtype, s.typed.types.get(e), e.span
    )


def _causal(s: State, e: ast.Call) -> Node:
    """-inf right of the diagonal; ``row`` and ``column`` are those of the first element."""
    x = s.node(needed(s, e, "x"))
    rank = len(x.axes)
    rows: Node = Iota(rank - 2, INDEX, x.axes)
    columns: Node = Iota(rank - 1, INDEX, x.axes)
    for name in ("row", "offset"):
        given = argument(s, e, name)
        if given is not None:
            rows = node_operations.mapped(s, "add", (rows, _index(s, given)), INDEX)
    given = argument(s, e, "column")
    if given is not None:
        columns = node_operations.mapped(s, "add", (columns, _index(s, given)), INDEX)
    seen = node_operations.compared(s, "le", columns, rows)
    low = node_operations.constant(s, float("-inf"), x.dtype)
    return node_operations.select(s, seen, x, low, s.typed.types.get(e))


def _window(s: State, e: ast.Call) -> Node:
    """Places of an array that need not be there: those outside give ``fill``."""
    base = s.node(needed(s, e, "x"))
    if not isinstance(base, Read):
        raise Unsupported(e.span, "a window of this value")
    given = needed(s, e, "start")
    items = given.items if isinstance(given, ast.TupleExpr) else (given,)
    t = s.typed.types.get(e)
    assert isinstance(t, Tile)
    axes = tuple(s.axis(a) for a in t.axes)
    numbers: list[Node | None] = [None] * len(base.starts)
    inside: Node | None = None
    for i, item in enumerate(items):
        start = Filled(slices.number(s, item), INDEX, ())
        places = node_operations.mapped(s, "add", (Iota(0, INDEX, (axes[i],)), start), INDEX)
        numbers[base.dims[i]] = places
        size = Filled(base.axes[i].extent, INDEX, ())
        low = node_operations.compared(s, "ge", places, node_operations.constant(s, 0, INDEX))
        here = node_operations.mapped(
            s, "and", (low, node_operations.compared(s, "lt", places, size)), BOOL
        )
        one = Axis(s.b.number(1), 1)
        shape = tuple(a if j == i else one for j, a in enumerate(axes))
        shaped = node_operations.with_axes(s, here, shape, [i])
        inside = (
            shaped if inside is None else node_operations.mapped(s, "and", (inside, shaped), BOOL)
        )
    read = replace(base, axes=axes, numbers=tuple(numbers), span=e.span)
    fill = argument(s, e, "fill")
    if fill is None or is_positive_zero(known(s, fill)) or inside is None:
        return read
    value = node_operations.cast(s, s.node(fill), base.dtype)
    return node_operations.select(s, inside, read, value)


# --- products and staging --------------------------------------------------------------------


def _matmul(s: State, e: ast.Call) -> Node:
    a, b = s.node(needed(s, e, "a")), s.node(needed(s, e, "b"))
    precision = known(s, argument(s, e, "precision"), "exact")
    return node_operations.product(s, a, b, str(precision), e.span)


def _prefetch(s: State, e: ast.Call) -> Node:
    """The array itself; what is read of it under this name is staged."""
    x = s.node(needed(s, e, "x"))
    if not isinstance(x, Read):
        return x
    return replace(x, staging=Staging(s.double_buffer))


_TABLE: dict[str, Callable[[State, ast.Call], Node | None]] = {
    **{f"op.{n}{end}": _filled(v) for n, v in (("zeros", 0), ("ones", 1), ("empty", 0))
       for end in ("", "_like")},
    "op.full": _full, "op.full_like": _full, "op.arange": _arange, "op.iota": _iota,
    "op.shared": _shared, "op.cast": _cast_call, "op.where": _where, "op.clamp": _clamp,
    "op.relu": _relu, "op.cumsum": _cumsum, "op.softmax": _softmax, "op.causal": _causal,
    "op.window": _window, "op.matmul": _matmul, "tile.mma_sync": _matmul,
    "schedule.prefetch": _prefetch, "op.barrier": lambda s, e: None,
}  # fmt: skip
