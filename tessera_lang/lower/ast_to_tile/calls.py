"""Calls in lane functions: builtins by a table, casts, atomics, and inlined functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tessera_lang.ir.core import BufferType, Operation, Value
from tessera_lang.lower.ast_to_tile import (
    access,
    control,
    operators,
    printing,
    slice_reductions,
    warps,
)
from tessera_lang.lower.ast_to_tile.builtin_arguments import argument, needed, scalar
from tessera_lang.lower.ast_to_tile.context import (
    Bound,
    Frame,
    Lowering,
    Unsupported,
    flat_types,
    rebuild,
)
from tessera_lang.lower.ast_to_tile.implicit_conversions import settled
from tessera_lang.lower.ast_to_tile.launch_conditions import require
from tessera_lang.lower.ast_to_tile.sizes import size_value
from tessera_lang.sema.side_tables import Builtin, TypedFunction
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.target.arch.isa_constants import WARP
from tessera_lang.types.dtype import DTYPES, F32, DType, common_dtype
from tessera_lang.types.type import Buffer, Scalar, TupleType, Type

_MATH = {"sqrt", "floor", "ceil", "trunc", "round"}


def lower_call(lowering: Lowering, node: ast.Call) -> Bound:
    """The value of a call; an empty tuple where it has none."""
    instance = lowering.frame.typed.calls.get(node)
    if instance is not None:
        return _inline(lowering, node, instance)
    symbol = lowering.frame.typed.symbols.get(node.function)
    if symbol == Builtin("to") and isinstance(node.function, ast.Attribute):
        return lowering.builder.cast(scalar(lowering, node.function.value), lowering.dtype_of(node))
    if isinstance(symbol, Builtin):
        return _builtin(lowering, node, symbol.name)
    raise Unsupported(node.span, "this call")


def _word(lowering: Lowering, node: ast.Expr | None, default: str) -> str:
    """A string argument that is known at compile time."""
    if node is None:
        return default
    known = lowering.frame.typed.constants.get(node)
    value = node.value if isinstance(node, ast.StringLit) else known
    if not isinstance(value, str):
        raise Unsupported(node.span, "a word that is not known at compile time")
    return value


# --- builtins -----------------------------------------------------------------------------


def _builtin(lowering: Lowering, node: ast.Call, name: str) -> Bound:
    if name in _TABLE:
        return _TABLE[name](lowering, node)
    if name in DTYPES:
        return lowering.builder.cast(scalar(lowering, node.arguments[0]), DTYPES[name])
    if name.startswith("atomic_"):
        return _atomic(lowering, node, name.removeprefix("atomic_"))
    if name.startswith("math.") and name.removeprefix("math.") in _MATH:
        operand = scalar(lowering, node.arguments[0])
        return lowering.builder.unary(name.removeprefix("math."), operand)
    raise Unsupported(node.span, f"`{name}`")


def _lanes(lowering: Lowering) -> int:
    return math.prod(lowering.group)


def _axis(lowering: Lowering, node: ast.Call) -> int:
    item = needed(node, 0, "axis")
    value = item.value if isinstance(item, ast.IntLit) else lowering.frame.typed.constants.get(item)
    if not isinstance(value, int):
        raise Unsupported(item.span, "an axis that is not known at compile time")
    return value


def _grid_linear(lowering: Lowering, node: ast.Call) -> Value:
    builder = lowering.builder
    first = builder.binary("mul", builder.group_linear(), builder.index(_lanes(lowering)))
    return builder.binary("add", first, builder.lane_linear())


def _grid_count(lowering: Lowering, node: ast.Call) -> Value:
    builder = lowering.builder
    return builder.binary("mul", builder.group_count(), builder.index(_lanes(lowering)))


def _warp(lowering: Lowering, operation: str) -> Value:
    builder = lowering.builder
    return builder.binary(operation, builder.lane_linear(), builder.index(WARP))


def _barrier(lowering: Lowering, node: ast.Call) -> Bound:
    lowering.builder.barrier()
    return ()


def _fence(lowering: Lowering, node: ast.Call) -> Bound:
    lowering.builder.fence(_word(lowering, argument(node, 0, "scope"), "device"))
    return ()


def _extreme(name: str) -> Callable[[Lowering, ast.Call], Value]:
    def lower(lowering: Lowering, node: ast.Call) -> Value:
        values = [scalar(lowering, a) for a in node.arguments]
        result = values[0]
        for value in values[1:]:
            a, b = _meet(lowering, node, result, value)
            result = lowering.builder.binary(name, a, b)
        return lowering.builder.cast(result, lowering.dtype_of(node))

    return lower


def _meet(lowering: Lowering, node: ast.Call, a: Value, b: Value) -> tuple[Value, Value]:
    common = common_dtype(operators.dtype_of(a), operators.dtype_of(b))
    if common is None:
        raise Unsupported(node.span, f"this call with {a.type} and {b.type}")
    return lowering.builder.cast(a, common), lowering.builder.cast(b, common)


def _ceil_div(lowering: Lowering, node: ast.Call) -> Value:
    """``-(-a // b)``, and without the negations' overflow: ``a // b + (a % b != 0)``."""
    builder = lowering.builder
    a, b = _meet(
        lowering, node, scalar(lowering, node.arguments[0]), scalar(lowering, node.arguments[1])
    )
    site = -1
    if not operators.constant_of(lowering, b):
        site = lowering.site("division", node.span, "ceil_div")
    quotient = builder.binary("floordiv", a, b, site)
    # The site of the division reports a zero; the remainder need not do it again.
    rest = builder.binary("mod", a, b, -1)
    dtype = operators.dtype_of(a)
    some = builder.cmp("ne", rest, builder.constant(0, dtype))
    return builder.binary("add", quotient, builder.cast(some, dtype))


def _select(lowering: Lowering, node: ast.Call) -> Value:
    """Both sides are evaluated, as a call's arguments are."""
    condition = operators.truth(lowering, scalar(lowering, needed(node, 0, "condition")))
    a = scalar(lowering, needed(node, 1, "a"))
    b = scalar(lowering, needed(node, 2, "b"))
    a, b = _meet(lowering, node, a, b)
    return lowering.builder.select(condition, a, b)


def _bitcast(lowering: Lowering, node: ast.Call) -> Value:
    return lowering.builder.bitcast(scalar(lowering, needed(node, 0, "x")), lowering.dtype_of(node))


def _fma(lowering: Lowering, node: ast.Call) -> Value:
    dtype = lowering.dtype_of(node)
    a, b, c = (lowering.builder.cast(scalar(lowering, x), dtype) for x in node.arguments)
    return lowering.builder.fma(a, b, c)


def _fast_exp(lowering: Lowering, node: ast.Call) -> Value:
    """By the machine's power of 2, in f32."""
    b = lowering.builder
    x = b.cast(scalar(lowering, needed(node, 0, "x")), F32)
    power = b.unary("exp2", b.binary("mul", x, b.constant(1 / math.log(2), F32)))
    return b.cast(power, lowering.dtype_of(node))


def _machine(lowering: Lowering, node: ast.Call) -> Value:
    kind = _word(lowering, argument(node, 0, "kind"), "")
    a, exact = (scalar(lowering, needed(node, i + 1, n)) for i, n in enumerate(("x", "exact")))
    return lowering.builder.approx(kind, a, exact)


def _len(lowering: Lowering, node: ast.Call) -> Value:
    array = lowering.expression(lowering, node.arguments[0])
    if not isinstance(array, Value) or isinstance(array.type, DType):
        raise Unsupported(node.span, "`len` of this value")
    return access.size_of(lowering, array, 0)


_TABLE: dict[str, Callable[[Lowering, ast.Call], Bound]] = {
    "tile_linear_id": lambda low, _: low.builder.lane_linear(),
    "tile_id": lambda low, node: low.builder.lane_index(_axis(low, node)),
    "group_linear_id": lambda low, _: low.builder.group_linear(),
    "group_id": lambda low, node: low.builder.group_index(_axis(low, node)),
    "group_count": lambda low, node: low.builder.group_count(_axis(low, node)),
    "group_tile_count": lambda low, _: low.builder.index(_lanes(low)),
    "grid_tile_linear_id": _grid_linear,
    "grid_tile_count": _grid_count,
    "lane_id": lambda low, _: _warp(low, "mod"),
    "warp_id": lambda low, _: _warp(low, "floordiv"),
    "tbarrier": _barrier,
    "tfence": _fence,
    "tshared.alloc": lambda low, node: allocate(low, node, "shared"),
    "tlocal.alloc": lambda low, node: allocate(low, node, "local"),
    "warp_sum": warps.reduction("add"),
    "warp_max": warps.reduction("max"),
    "warp_min": warps.reduction("min"),
    "warp_shuffle": warps.shuffle,
    "warp_any": warps.vote("any"),
    "warp_all": warps.vote("all"),
    "warp_ballot": warps.ballot,
    "warp_match": warps.match,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "abs": lambda low, node: low.builder.unary("abs", scalar(low, node.arguments[0])),
    "ceil_div": _ceil_div,
    "select": _select,
    "bitcast": _bitcast,
    "math.fma": _fma,
    "print": printing.lower_print,
    "fast.exp": _fast_exp,
    "fast.exp2": lambda low, node: low.builder.unary("exp2", scalar(low, needed(node, 0, "x"))),
    "fast.machine": _machine,
    "len": _len,
    **{f"op.{n}": slice_reductions.reduction(n) for n in slice_reductions.NAMES},
}


def allocate(lowering: Lowering, node: ast.Expr, name: str) -> Value:
    """A buffer of the group, one for each call that is inlined; all stand at the top. What each
    lane has of its own is a buffer with an axis more, of the lanes."""
    t = lowering.type_of(node)
    if not isinstance(t, Buffer):
        raise Unsupported(node.span, "this allocation")
    name = lowering.assigned_name or name
    # Tables stand there too, with what indexes them.
    taken = {o.attributes["name"] for o in lowering.allocations if "name" in o.attributes}
    again = sum(1 for other in taken if str(other).partition(".")[0] == name)
    lanes = (_lanes(lowering),) if t.space == "local" else ()
    kind = BufferType(t.dtype, (*t.shape, *lanes), t.space)
    value = Value(kind, f"{name}.{again + 1}" if again else name)
    lowering.allocations.append(
        Operation(f"tile.{t.space}.alloc", (), (value,), {"name": value.name}, (), node.span)
    )
    return value


# --- atomics ------------------------------------------------------------------------------


def _atomic(lowering: Lowering, node: ast.Call, kind: str) -> Bound:
    names = {"cas": ("expected", "desired"), "load": ()}.get(kind, ("value",))
    place = access.place_of(lowering, needed(node, 0, "place"))
    dtype = access.dtype_of(place)
    builder = lowering.builder
    values = [
        builder.cast(scalar(lowering, needed(node, 1 + i, name)), dtype)
        for i, name in enumerate(names)
    ]
    rest = 1 + len(names)
    scope = _word(lowering, argument(node, rest, "scope"), "device")
    order = _word(lowering, argument(node, rest + 1, "order"), "relaxed")
    site = access.site(lowering, "atomic", place)
    builder.span = place.span
    array, indices = place.array, place.indices
    match kind:
        case "cas":
            return builder.atomic_cas(
                values[0], values[1], array, indices, scope=scope, order=order, site=site
            )
        case "load":
            return builder.atomic_load(array, indices, scope=scope, order=order, site=site)
        case "store":
            builder.atomic_store(values[0], array, indices, scope=scope, order=order, site=site)
            return ()
        case _:
            return builder.atomic(
                kind, values[0], array, indices, scope=scope, order=order, site=site
            )


# --- functions ----------------------------------------------------------------------------


def _inline(lowering: Lowering, node: ast.Call, instance: TypedFunction) -> Bound:
    """The body of a function in place of its call."""
    body = decided(instance, instance.declaration.body)
    inner = Frame(instance, "direct" if returns_last(body) else "scope")
    bind_parameters(lowering, node, inner)
    return _run(lowering, instance, inner, body)


def apply_function(
    lowering: Lowering, instance: TypedFunction, arguments: Sequence[Value]
) -> Bound:
    """A function of numbers in place of its call, with the values of its parameters."""
    body = decided(instance, instance.declaration.body)
    inner = Frame(instance, "direct" if returns_last(body) else "scope")
    inner.variables.update(zip(instance.parameters, arguments, strict=True))
    return _run(lowering, instance, inner, body)


def power(lowering: Lowering, exponent: ast.Expr, a: Value, b: Value, span: Span) -> Value:
    """``a ** b``; sema has written down the function at the exponent where it is no product."""
    instance = lowering.frame.typed.second.get(exponent)
    if instance is None:
        return operators.combine(lowering, "**", a, b, span)
    given = [
        lowering.builder.cast(x, t.dtype)
        for x, t in zip((a, b), instance.parameter_types, strict=True) if isinstance(t, Scalar)
    ]  # fmt: skip
    made = apply_function(lowering, instance, given)
    assert isinstance(made, Value)
    return made


def _run(
    lowering: Lowering, instance: TypedFunction, inner: Frame, body: tuple[ast.Stmt, ...]
) -> Bound:
    """A body whose only ``return`` stands last goes in directly; any other becomes a
    ``tile.scope`` that ``tile.leave`` ends."""
    outer, lowering.frame = lowering.frame, inner
    try:
        require(lowering, instance)
        if inner.style == "direct":
            lowering.block(lowering, body)
            return inner.result
        with lowering.builder.region() as region:
            lowering.block(lowering, body)
            if not lowering.builder.terminated:
                control.leave_nothing(lowering)
        values = lowering.builder.scope(region.region, flat_types(instance.returns))
        return rebuild(_shape(instance.returns, values), iter(values))
    finally:
        lowering.frame = outer


def _shape(t: Type | None, values: tuple[Value, ...]) -> Bound:
    """Placeholders in the structure of a result type."""
    if isinstance(t, TupleType):
        return tuple(_shape(item, values) for item in t.items)
    return values[0] if values else ()


def decided(instance: TypedFunction, body: tuple[ast.Stmt, ...]) -> tuple[ast.Stmt, ...]:
    """The statements of a body, those of an ``if`` that is known in its place."""
    found: list[ast.Stmt] = []
    for s in body:
        known = instance.constants.get(s.test) if isinstance(s, ast.If) else None
        if known is not None and isinstance(s, ast.If):
            found.extend(decided(instance, s.body if known else s.orelse))
        else:
            found.append(s)
        if found and isinstance(found[-1], ast.Return):
            break
    return tuple(found)


def returns_last(body: tuple[ast.Stmt, ...]) -> bool:
    returns = sum(1 for n in control.nodes(body) if isinstance(n, ast.Return))
    return returns == 0 or (returns == 1 and isinstance(body[-1], ast.Return))


def bind_parameters(lowering: Lowering, node: ast.Call, inner: Frame) -> None:
    """Arguments in order, then the sizes that the callee's shapes name."""
    instance = inner.typed
    given = lowering.frame.typed.arguments.get(node, node.arguments)
    types = dict(zip(instance.parameters, instance.parameter_types, strict=True))
    by_name = {local.name: local for local in instance.parameters}
    for parameter, passed in zip(instance.declaration.parameters, given, strict=True):
        local = by_name.get(parameter.name)
        if local is None:
            continue  # compile-time: its uses are constants
        if passed is not None:
            value = lowering.expression(lowering, passed)
        else:
            value = default_of(lowering, parameter, types[local])
        inner.variables[local] = settled(lowering, value, types[local])
    for local, dim in instance.sizes.items():
        inner.variables[local] = size_value(lowering, dim)


def default_of(lowering: Lowering, parameter: ast.Parameter, t: Type) -> Bound:
    """The default of a run-time parameter: a literal number."""
    node, sign = parameter.default, 1
    if isinstance(node, ast.Unary) and node.operator == "-":
        node, sign = node.operand, -1
    if isinstance(node, (ast.IntLit, ast.FloatLit, ast.BoolLit)) and isinstance(t, Scalar):
        return lowering.builder.constant(sign * node.value, t.dtype)
    raise Unsupported(parameter.span, "a default that is no number for a run-time parameter")
