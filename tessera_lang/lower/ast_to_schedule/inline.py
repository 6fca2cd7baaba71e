"""Plain functions of the program in place of their calls: parameters may be tiles and arrays.

Owns how arguments are bound. Must not know statements: those come in through the state.
"""

from __future__ import annotations

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule import combine, control
from tessera_lang.lower.ast_to_schedule.exits import clear, leaving_of_function
from tessera_lang.lower.ast_to_schedule.nodes import Node
from tessera_lang.lower.ast_to_schedule.state import State
from tessera_lang.lower.calls import apply_function, decided, default_of, returns_last
from tessera_lang.lower.context import Frame, Unsupported
from tessera_lang.lower.sizes import size_value
from tessera_lang.lower.statements import settled
from tessera_lang.sema.typed import Local, TypedFunction
from tessera_lang.syntax import ast
from tessera_lang.types.type import Scalar, Tensor, Tile, TupleType, Type

Results = Node | tuple[Node, ...] | None


def function(s: State, e: ast.Call, instance: TypedFunction) -> Results:
    """The value of a call, or several; None where it has none."""
    body = decided(instance, instance.declaration.body)
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
            return None if isinstance(found, tuple) else combine.number(found)
    if not returns_last(body) and not isinstance(instance.returns, Tile | Scalar):
        help_text = "give the function one `return`, as its last statement"
        raise Unsupported(e.span, f"`{instance.declaration.name}` with several ways out", help_text)
    return _run(s, inner, body)


def _run(s: State, inner: Frame, body: tuple[ast.Stmt, ...]) -> Results:
    outer, s.low.frame = s.low.frame, inner
    s.frames.append(inner)
    value = Local("result", "variable", None)
    leaving = leaving_of_function(inner.typed, body, None)
    clear(leaving.skipped, inner, s.b)
    if not returns_last(body):
        leaving.value = value
        control.begin(s, value, inner.typed.returns, inner.typed.declaration.name_span)
    s.leaving.append(leaving)
    try:
        if leaving.value is not None:
            s.block(body)
            found = s.tiles.get(value) or inner.variables[value]
        else:
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
            return combine.number(found)
        assert not isinstance(found, tuple)
        return combine.converted(s, found, inner.typed.returns)
    finally:
        s.leaving.pop()
        s.frames.pop()
        s.low.frame = outer


def _result(s: State, e: ast.Expr, t: Type) -> Node:
    """One of several results, computed in the function."""
    found = s.evaluate(e)
    if isinstance(found, tuple):
        raise Unsupported(e.span, "a tuple in a tuple of tiles")
    if isinstance(found, Value):
        return combine.number(settled_number(s, found, t))
    return combine.converted(s, found, t)


def settled_number(s: State, value: Value, t: Type) -> Value:
    found = settled(s.low, value, t)
    assert isinstance(found, Value)
    return found


def give_back(s: State, e: ast.Expr) -> None:
    """``return e`` in a function with several ways out: what it gives is kept in a variable."""
    value = s.leaving[-1].value
    assert value is not None
    found = s.evaluate(e)
    if isinstance(found, tuple):
        raise Unsupported(e.span, "several results of a function of tiles")
    if isinstance(found, Value) and not isinstance(s.typed.returns, Tile):
        s.low.frame.variables[value] = settled(s.low, found, s.typed.returns)
        return
    node = combine.number(found) if isinstance(found, Value) else found
    s.tiles[value] = s.held(combine.converted(s, node, s.typed.returns), e.span)
