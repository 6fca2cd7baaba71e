"""Calls in tile kernels -> nodes: makers, functions of elements, reductions, softmax, products.

Owns what each builtin of tiles means. Plain functions of the program are inlined by
``inline.py``. Must not know statements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule import (
    array_manipulation,
    concatenation,
    eye_linspace_array,
    inline,
    node_builders,
    sort_calls,
    subscripts,
)
from tessera_lang.lower.ast_to_schedule.builtin_arguments import (
    argument,
    axis_of,
    index_node,
    known,
    needed,
)
from tessera_lang.lower.ast_to_schedule.elementwise_builtins import (
    apply_to_elements,
    or_quick_power,
    power_of_e,
)
from tessera_lang.lower.ast_to_schedule.reduction_calls import (
    DERIVED,
    KINDS,
    causal,
    reduction,
    scan,
    softmax,
    triangle,
)
from tessera_lang.lower.ast_to_schedule.state import State, register_dtype
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Axis,
    Filled,
    Iota,
    Mapped,
    Node,
    Read,
    Staging,
)
from tessera_lang.lower.ast_to_tile.context import Unsupported
from tessera_lang.opt.schedule.query.scalar_facts import is_positive_zero
from tessera_lang.record import replace
from tessera_lang.sema.side_tables import Builtin, TypedFunction
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, DTYPES, F32, I32, INDEX
from tessera_lang.types.type import Scalar, Tensor, Tile, TileAxis, TupleType

_NATIVE = {"op.sqrt": "sqrt", "op.floor": "floor", "op.ceil": "ceil", "op.round": "round",
           "op.trunc": "trunc", "op.abs": "abs", "abs": "abs", "math.sqrt": "sqrt",
           "math.floor": "floor", "math.ceil": "ceil", "math.round": "round",
           "math.trunc": "trunc", "fast.exp2": "exp2"}  # fmt: skip


def call(s: State, e: ast.Call) -> Node | None:
    """The node of a call; None where it has no value."""
    if e in s.typed.expanded:
        return expanded(s, e)
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
        return _extreme(s, e, name, e.arguments)
    if name == "math.fma":
        return _fma(s, e)
    if name == "ceil_div":
        return _ceil_div(s, e)
    if name == "bitcast":
        return _bits(s, e)
    if name == "fast.exp":
        return _fast_exp(s, e)
    if name in _NATIVE:
        return _native(s, e, _NATIVE[name])
    if name.startswith("schedule."):
        return None
    raise Unsupported(e.span, f"`{name}`")


def expanded(s: State, e: ast.Expr) -> Node:
    """The expression that a call or a subscript stands for."""
    outer, s.given = s.given, {}
    try:
        return s.node(s.typed.expanded[e])
    finally:
        s.given = outer


def results(s: State, e: ast.Call) -> tuple[Node, ...] | None:
    """What a function of tiles gives that returns several values; None for other calls."""
    made = sort_calls.several(s, e)
    if made is not None:
        return made
    instance = s.typed.calls.get(e)
    if instance is None or not isinstance(instance.returns, TupleType):
        return None
    given = [s.typed.types.get(a) for a in e.arguments]
    if not any(isinstance(t, Tensor | Tile) for t in (*instance.returns.items, *given)):
        return None
    found = inline.function(s, e, instance)
    return found if isinstance(found, tuple) else None


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
    value = node_builders.scalar_of(s, s.node(needed(s, e, "value")))
    return Filled(s.b.cast(value, dtype), dtype, _axes(s, e))


def _arange(s: State, e: ast.Call) -> Node:
    axes = _axes(s, e)
    first, stop = argument(s, e, "start"), argument(s, e, "stop")
    step = argument(s, e, "step")
    dtype = register_dtype(s.typed.types.get(e)) or INDEX
    made: Node = Iota(0, INDEX, axes)
    if step is not None:
        made = node_builders.mapped(s, "mul", (made, index_node(s, step)), INDEX)
    if stop is not None and first is not None:
        made = node_builders.mapped(s, "add", (made, index_node(s, first)), INDEX)
    return node_builders.cast(s, made, dtype)


def _iota(s: State, e: ast.Call) -> Node:
    axes = _axes(s, e)
    axis = axis_of(s, e, len(axes), 0)
    dtype = register_dtype(s.typed.types.get(e)) or INDEX
    return node_builders.cast(s, Iota(axis or 0, INDEX, axes), dtype)


def _shared(s: State, e: ast.Call) -> Node:
    dtype = register_dtype(s.typed.types.get(e))
    assert dtype is not None
    return Filled(s.b.constant(0, dtype), dtype, _axes(s, e))


# --- of each element -------------------------------------------------------------------------


def _cast(s: State, e: ast.Call, x: ast.Expr) -> Node:
    dtype = register_dtype(s.typed.types.get(e))
    assert dtype is not None
    return node_builders.cast(s, s.node(x), dtype)


def _cast_call(s: State, e: ast.Call) -> Node:
    return _cast(s, e, needed(s, e, "x"))


def _native(s: State, e: ast.Call, name: str) -> Node:
    x = s.node(needed(s, e, "x"))
    return node_builders.mapped(s, name, (x,), x.dtype, s.typed.types.get(e), e.span)


def _bits(s: State, e: ast.Call) -> Node:
    """The bits of each element as another dtype."""
    x, t, b = s.node(e.arguments[0]), s.typed.types.get(e), s.b
    dtype = register_dtype(t) or x.dtype
    return Mapped(lambda v, w: b.bitcast(v[0], dtype), (x,), dtype, x.axes, e.span)


def _fma(s: State, e: ast.Call) -> Node:
    t, b = s.typed.types.get(e), s.b
    given = [s.node(a) for a in e.arguments]
    dtype = register_dtype(t) or given[0].dtype
    given = [node_builders.cast(s, x, dtype) for x in given]
    axes = node_builders.axes_of(s, given, t)
    return Mapped(lambda v, w: b.fma(v[0], v[1], v[2]), tuple(given), dtype, axes, e.span)


def _fast_exp(s: State, e: ast.Call) -> Node:
    """e to the power of x, by a power of two in f32: the error grows with the magnitude of x."""
    x = s.node(needed(s, e, "x"))
    wide = node_builders.cast(s, x, F32)
    power = power_of_e(s, wide, s.typed.types.get(e), e.span)
    return node_builders.cast(s, power, x.dtype)


def _greater(s: State, e: ast.Call) -> Node:
    return _extreme(s, e, "max", (needed(s, e, "a"), needed(s, e, "b")))


def _lesser(s: State, e: ast.Call) -> Node:
    return _extreme(s, e, "min", (needed(s, e, "a"), needed(s, e, "b")))


def _extreme(s: State, e: ast.Call, name: str, given: Sequence[ast.Expr]) -> Node:
    dtype = register_dtype(s.typed.types.get(e))
    operands = [s.node(a) for a in given]
    found = operands[0] if dtype is None else node_builders.cast(s, operands[0], dtype)
    for operand in operands[1:]:
        other = node_builders.cast(s, operand, found.dtype)
        found = node_builders.mapped(s, name, (found, other), found.dtype)
    return found


def _ceil_div(s: State, e: ast.Call) -> Node:
    """The quotient, and one more where something is left; by 0 it is 0, and reported."""
    t = s.typed.types.get(e)
    dtype = register_dtype(t) or I32
    a, b = (node_builders.cast(s, s.node(x), dtype) for x in e.arguments)
    zero = node_builders.constant(s, 0, dtype)
    quotient = node_builders.mapped(s, "floordiv", (a, b), dtype, t, e.span)
    whole = node_builders.mapped(s, "mul", (quotient, b), dtype)
    left = node_builders.compared(s, "ne", a, whole)
    divides = node_builders.compared(s, "ne", b, zero)
    more = node_builders.mapped(s, "and", (left, divides), BOOL)
    return node_builders.mapped(s, "add", (quotient, node_builders.cast(s, more, dtype)), dtype, t)


def _where(s: State, e: ast.Call) -> Node:
    t = s.typed.types.get(e)
    condition, a, b = (s.node(needed(s, e, n)) for n in ("condition", "a", "b"))
    dtype = register_dtype(t) or a.dtype
    return node_builders.select(
        s, condition, node_builders.cast(s, a, dtype), node_builders.cast(s, b, dtype), t
    )


def _clamp(s: State, e: ast.Call) -> Node:
    x, low, high = (s.node(needed(s, e, n)) for n in ("x", "low", "high"))
    dtype = register_dtype(s.typed.types.get(e)) or x.dtype
    x, low, high = (node_builders.cast(s, n, dtype) for n in (x, low, high))
    above = node_builders.mapped(s, "max", (x, low), dtype)
    return node_builders.mapped(s, "min", (above, high), dtype)


def _relu(s: State, e: ast.Call) -> Node:
    x = s.node(needed(s, e, "x"))
    return node_builders.mapped(s, "max", (x, node_builders.constant(s, 0, x.dtype)), x.dtype)


def _element_function(s: State, e: ast.Call, instance: TypedFunction) -> Node:
    """A function of ``std.math`` for one number, of every element."""
    x = s.node(needed(s, e, "x"))
    t = s.typed.types.get(e)
    parameter = register_dtype(instance.parameter_types[0]) or F32
    x = node_builders.cast(s, x, parameter)
    result = apply_to_elements(s, instance, (x,), e.span)
    symbol = s.typed.symbols.get(e.function)
    name = symbol.name if isinstance(symbol, Builtin) else ""
    if parameter == F32 and name.partition(".")[2] in ("exp", "exp2"):
        result = or_quick_power(s, result, name.endswith("exp"))
    if e in s.typed.rounded:
        shorter = apply_to_elements(s, s.typed.rounded[e], (x,), e.span)
        result = replace(result, rounded=shorter.function)
    return node_builders.cast(s, result, register_dtype(t) or result.dtype)


def _is_of_elements(s: State, e: ast.Call, instance: TypedFunction) -> bool:
    """Whether a function of numbers is called with tiles."""
    numbers = all(isinstance(t, Scalar) for t in instance.parameter_types)
    given = [s.typed.types.get(a) for a in e.arguments]
    return numbers and any(isinstance(t, Tensor | Tile) for t in given)


def _of_elements(s: State, e: ast.Call, instance: TypedFunction) -> Node:
    """A function of numbers, of the elements of tiles that meet."""
    t = s.typed.types.get(e)
    kinds = [register_dtype(kind) or F32 for kind in instance.parameter_types]
    given = [node_builders.cast(s, s.node(a), d) for a, d in zip(e.arguments, kinds, strict=True)]
    result = apply_to_elements(s, instance, given, e.span, t)
    return node_builders.cast(s, result, register_dtype(t) or result.dtype)


# --- windows, products and staging -----------------------------------------------------------


def _window(s: State, e: ast.Call) -> Node:
    """Places of an array that need not be there: those outside give ``fill``."""
    base = s.node(needed(s, e, "x"))
    if not isinstance(base, Read):
        kept = s.keep(base, e.span)
        if not isinstance(kept, Read):
            raise Unsupported(e.span, "a window of this value", "store it into an array first")
        base = kept
    given = needed(s, e, "start")
    items = given.items if isinstance(given, ast.TupleExpr) else (given,)
    t = s.typed.types.get(e)
    assert isinstance(t, Tile)
    lengths = needed(s, e, "length")
    wanted = lengths.items if isinstance(lengths, ast.TupleExpr) else (lengths,) * len(items)
    axes = tuple(_window_axis(s, a, n) for a, n in zip(t.axes, wanted, strict=True))
    numbers: list[Node | None] = [*(base.numbers or (None,) * len(base.starts))]
    rooms: list[Value | None] = [*(base.rooms or (None,) * len(axes))]
    inside: Node | None = None
    for i, item in enumerate(items):
        start = subscripts.number(s, item)
        places = node_builders.mapped(
            s, "add", (Iota(0, INDEX, (axes[i],)), Filled(start, INDEX, ())), INDEX
        )
        size = rooms[i] or base.axes[i].extent
        low = node_builders.compared(s, "ge", places, node_builders.constant(s, 0, INDEX))
        high = node_builders.compared(s, "lt", places, Filled(size, INDEX, ()))
        here = node_builders.mapped(s, "and", (low, high), BOOL)
        if s.b.known(start) == 0 and axes[i].capacity == base.axes[i].capacity:
            rooms[i] = size  # the axis as it is, and behind it nothing
        elif numbers[base.dims[i]] is not None:
            raise Unsupported(e.span, "a window of rows that a tile chooses")
        else:
            numbers[base.dims[i]] = _places(s, base, i, places, here)
            rooms[i] = None
        one = Axis(s.b.number(1), 1)
        shape = tuple(a if j == i else one for j, a in enumerate(axes))
        shaped = node_builders.with_axes(s, here, shape, [i])
        inside = (
            shaped if inside is None else node_builders.mapped(s, "and", (inside, shaped), BOOL)
        )
    gathers = any(n is not None for n in numbers)
    read = replace(
        base, axes=axes, numbers=tuple(numbers) if gathers else (), span=e.span,
        rooms=tuple(rooms) if any(rooms) else (),
    )  # fmt: skip
    fill = argument(s, e, "fill")
    if fill is None or is_positive_zero(known(s, fill)) or inside is None:
        return read
    value = node_builders.cast(s, s.node(fill), base.dtype)
    return node_builders.select(s, inside, read, value)


def _window_axis(s: State, axis: TileAxis, length: ast.Expr) -> Axis:
    """``length`` is asked where the run alone knows it: none is negative, or more than fits."""
    found = s.dim(axis.extent)
    if found is not None or axis.capacity is None:
        return s.axis(axis)
    b = s.b
    most = b.arithmetic("min", subscripts.number(s, length), b.number(axis.capacity))
    return Axis(b.arithmetic("max", b.number(0), most), axis.capacity)


def _places(s: State, base: Read, axis: int, places: Node, here: Node) -> Node:
    """Places of a part of an array as places of the array, those outside of the part as -1."""
    dim, step = base.dims[axis], base.steps[axis]
    whole = base.axes[axis].extent is s.low.sizes[base.view][dim]
    if whole and step == 1 and s.b.known(base.starts[dim]) == 0:
        return places  # what is outside of the array is seen where it is read
    stepped = node_builders.mapped(
        s, "mul", (places, node_builders.constant(s, step, INDEX)), INDEX
    )
    first = Filled(base.starts[dim], INDEX, ())
    moved = node_builders.mapped(s, "add", (stepped, first), INDEX)
    return node_builders.select(s, here, moved, node_builders.constant(s, -1, INDEX))


def _matmul(s: State, e: ast.Call) -> Node:
    a, b = s.node(needed(s, e, "a")), s.node(needed(s, e, "b"))
    precision = known(s, argument(s, e, "precision"), "exact")
    return node_builders.product(s, a, b, str(precision), e.span)


def _prefetch(s: State, e: ast.Call) -> Node:
    """The array itself; what is read of it under this name is staged."""
    x = s.node(needed(s, e, "x"))
    if not isinstance(x, Read):
        return x
    return replace(x, staging=Staging(s.double_buffer))


def _reduction(s: State, e: ast.Call) -> Node:
    symbol = s.typed.symbols.get(e.function)
    assert isinstance(symbol, Builtin)
    return reduction(s, e, symbol.name.removeprefix("op."))


def _transpose(s: State, e: ast.Call) -> Node:
    x = s.node(needed(s, e, "x"))
    rank, given = len(x.axes), argument(s, e, "axes")
    if given is None or isinstance(given, ast.NoneLit):
        return node_builders.permuted(x, tuple(reversed(range(rank))))
    items = given.items if isinstance(given, ast.TupleExpr) else (given,)
    axes = [known(s, item) for item in items]
    return node_builders.permuted(x, tuple(a % rank for a in axes if isinstance(a, int)))


_TABLE: dict[str, Callable[[State, ast.Call], Node | None]] = {
    **{f"op.{n}{end}": _filled(v) for n, v in (("zeros", 0), ("ones", 1), ("empty", 0))
       for end in ("", "_like")},
    "op.full": _full, "op.full_like": _full, "op.arange": _arange, "op.iota": _iota,
    "op.shared": _shared, "op.cast": _cast_call, "op.where": _where, "op.clamp": _clamp,
    "op.relu": _relu, "op.maximum": _greater, "op.minimum": _lesser, "op.cumsum": scan,
    "op.cumprod": scan, "op.cummax": scan, "op.cummin": scan,
    "op.softmax": softmax, "op.causal": causal,
    "op.tril": triangle, "op.triu": triangle,
    "op.concat": concatenation.joined, "op.stack": concatenation.joined, **eye_linspace_array.CALLS,
    "op.transpose": _transpose,
    **{f"op.{n}": _reduction for n in (*KINDS, *DERIVED)},
    **array_manipulation.CALLS, "op.sort": sort_calls.sort, "op.argsort": sort_calls.sort,
     "op.window": _window, "op.matmul": _matmul, "tile.mma_sync": _matmul,
    "schedule.prefetch": _prefetch, "op.barrier": lambda s, e: None,
}  # fmt: skip
