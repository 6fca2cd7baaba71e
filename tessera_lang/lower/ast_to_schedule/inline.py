"""Plain functions of the program in place of their calls: parameters may be tiles and arrays.

Owns how arguments are bound. Must not know statements: those come in through the state.
"""

from __future__ import annotations

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule import control, node_builders
from tessera_lang.lower.ast_to_schedule.early_exits import clear, leaving_of_function, of_function
from tessera_lang.lower.ast_to_schedule.if_conversion import is_whole
from tessera_lang.lower.ast_to_schedule.state import State
from tessera_lang.lower.ast_to_schedule.value_nodes import Node
from tessera_lang.lower.ast_to_tile.calls import apply_function, decided, default_of, returns_last
from tessera_lang.lower.ast_to_tile.context import Frame, Unsupported
from tessera_lang.lower.ast_to_tile.implicit_conversions import settled
from tessera_lang.lower.ast_to_tile.launch_conditions import require
from tessera_lang.lower.ast_to_tile.sizes import size_value
from tessera_lang.sema.side_tables import Local, TypedFunction
from tessera_lang.syntax import ast
from tessera_lang.types.type import NONE, Tensor, Tile, TupleType, Type

Results = Node | tuple[Node, ...] | None


def function(s: State, e: ast.Call, instance: TypedFunction) -> Results:
    """The value of a call, or several; None where it has none."""
    body = decided(instance, instance.body)
    inner = Frame(instance, "direct")
    given = s.typed.arguments.get(e, e.arguments)
    types = dict(zip(instance.parameters, instance.parameter_types, strict=True))
    by_name = {local.name: local for local in instance.parameters}
    tiled = False
    for parameter, passed in zip(instance.declaration.parameters, given, strict=True):
        local = by_name.get(parameter.name)
        if local is None:
            continue  # compile-time: its uses are constants
        t = types[local]
        if passed is None:
            inner.variables[local] = default_of(s.low, parameter, t)
            continue
        node = s.evaluate(passed)
        if isinstance(node, Value | tuple):
            inner.variables[local] = settled(s.low, node, t)
        else:
            tiled = tiled or isinstance(t, Tensor | Tile)
            s.tiles[local] = node
    for local, dim in instance.sizes.items():
        inner.variables[local] = size_value(s.low, dim)
    if not tiled and not isinstance(instance.returns, Tile | Tensor):
        arguments = [inner.variables[p] for p in instance.parameters]
        numbers = [v for v in arguments if isinstance(v, Value)]
        if len(numbers) == len(arguments):
            found = apply_function(s.low, instance, numbers)
            return None if isinstance(found, tuple) else node_builders.number(found)
    return _run(s, inner, body)


def _run(s: State, inner: Frame, body: tuple[ast.Stmt, ...]) -> Results:
    outer, s.low.frame = s.low.frame, inner
    s.frames.append(inner)
    leaving = leaving_of_function(inner.typed, body)
    clear(leaving.skipped, inner, s.b)
    s.leaving.append(leaving)
    try:
        require(s.low, inner.typed)
        if returns_last(body):
            return _one_way(s, inner, body)
        leaving.values = _begin(s, inner.typed)
        s.block(body)
        found = tuple(_kept(s, inner, value) for value in leaving.values)
        return found if isinstance(inner.typed.returns, TupleType) else found[0] if found else None
    finally:
        s.leaving.pop()
        s.frames.pop()
        s.low.frame = outer


def _one_way(s: State, inner: Frame, body: tuple[ast.Stmt, ...]) -> Results:
    """The value of a function that is left at its end."""
    tail = body[-1] if body and isinstance(body[-1], ast.Return) else None
    s.block(body[:-1] if tail is not None else body)
    if tail is None or tail.value is None or isinstance(tail.value, ast.NoneLit):
        return None
    returns = inner.typed.returns
    if isinstance(tail.value, ast.TupleExpr) and isinstance(returns, TupleType):
        parts = zip(tail.value.items, returns.items, strict=True)
        return tuple(_result(s, item, t) for item, t in parts)
    found = s.evaluate(tail.value)
    if isinstance(found, tuple):
        raise Unsupported(tail.span, "this as a result of a function of tiles")
    if isinstance(found, Value):
        return node_builders.number(found)
    return node_builders.converted(s, found, returns)


# --- several ways out ------------------------------------------------------------------------


def _types(typed: TypedFunction) -> tuple[Type, ...]:
    """What a function gives: one type a result."""
    returns = typed.returns
    if returns is None or returns == NONE:
        return ()
    return returns.items if isinstance(returns, TupleType) else (returns,)


def _begin(s: State, typed: TypedFunction) -> tuple[Local, ...]:
    """Variables for what a function gives, whichever way it is left."""
    span = typed.declaration.name_span
    found: list[Local] = []
    for t in _types(typed):
        value = Local("result", "variable", None)
        control.begin(s, value, t, span)
        found.append(value)
    return tuple(found)


def _kept(s: State, inner: Frame, value: Local) -> Node:
    """What a variable of ``_begin`` holds where the function has been left."""
    node = s.tiles.get(value)
    if node is not None:
        return node
    number = inner.variables.get(value)
    if not isinstance(number, Value):
        what = "a whole-tensor value that is returned from inside of a loop"
        raise Unsupported(inner.typed.declaration.name_span, what, "store it into an array")
    return node_builders.number(number)


def _result(s: State, e: ast.Expr, t: Type) -> Node:
    """One of several results, computed in the function."""
    found = s.evaluate(e)
    if isinstance(found, tuple):
        raise Unsupported(e.span, "a tuple in a tuple of tiles")
    if isinstance(found, Value):
        return node_builders.number(settled_number(s, found, t))
    return node_builders.converted(s, found, t)


def settled_number(s: State, value: Value, t: Type) -> Value:
    found = settled(s.low, value, t)
    assert isinstance(found, Value)
    return found


def give_back(s: State, e: ast.Expr) -> None:
    """``return e`` in a function with several ways out: what it gives is kept in variables."""
    values, types = of_function(s.leaving)[0].values, _types(s.typed)
    items = e.items if isinstance(e, ast.TupleExpr) else (e,)
    if len(items) != len(values):
        raise Unsupported(e.span, "several results as one value", "write `return a, b`")
    for value, found, t in zip(values, [s.evaluate(item) for item in items], types, strict=True):
        if isinstance(found, tuple):
            raise Unsupported(e.span, "a tuple in a tuple of tiles")
        if isinstance(found, Value) and not isinstance(t, Tile):
            s.low.frame.variables[value] = settled(s.low, found, t)
            continue
        node = node_builders.converted(
            s, node_builders.number(found) if isinstance(found, Value) else found, t
        )
        if is_whole(node):
            s.tiles[value] = node
        elif isinstance(t, Tile | Tensor):
            s.tiles[value] = s.held(node, e.span)
        else:
            s.low.frame.variables[value] = settled(s.low, node_builders.scalar_of(s, node), t)
