"""Expressions of tile kernels -> nodes.

Owns names, operators, conversions, and which expressions are left to the lanes' own rules.
Slices stand in ``subscripts.py``, functions in ``builtin_calls.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

from tessera_lang.ir.core import Value, ViewType
from tessera_lang.lower.ast_to_schedule import builtin_calls, node_builders, subscripts
from tessera_lang.lower.ast_to_schedule.builtin_arguments import known
from tessera_lang.lower.ast_to_schedule.elementwise_builtins import apply_to_elements
from tessera_lang.lower.ast_to_schedule.state import State, register_dtype
from tessera_lang.lower.ast_to_schedule.value_nodes import Filled, Node, Permuted, Read
from tessera_lang.lower.ast_to_tile.context import Bound, Lowering, Unsupported
from tessera_lang.lower.ast_to_tile.expressions import lower_expression
from tessera_lang.record import replace
from tessera_lang.sema.side_tables import Builtin, Local
from tessera_lang.syntax import ast
from tessera_lang.target.tuned_constants import UNROLLED_POWER
from tessera_lang.types.dtype import BOOL, F32, F64, DType
from tessera_lang.types.type import Scalar, Tensor, Tile, TupleType

PREDICATES = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_UNARY = {"-": "neg", "~": "not", "not": "not"}


def hook(s: State) -> Callable[[Lowering, ast.Expr], Bound | None]:
    """What the lanes' expressions ask first: whether an expression is one of tiles."""

    def look(lowering: Lowering, e: ast.Expr) -> Bound | None:
        t = s.typed.types.get(e)
        if isinstance(t, Tile):
            if t.axes:
                raise Unsupported(e.span, "a tile in a place of numbers")
            return node_builders.scalar_of(s, node_of(s, e))
        if isinstance(e, ast.Name) and e in s.typed.stands:
            return node_builders.scalar_of(s, _argument(s, e))
        if isinstance(t, Tensor) and not t.shape and e in s.typed.coercions:
            return node_builders.scalar_of(s, node_of(s, e))
        if isinstance(e, ast.Call) and is_tile_call(s, e):
            found = builtin_calls.call(s, e)
            return node_builders.scalar_of(s, found) if found is not None else ()
        if isinstance(e, ast.Binary) and e.operator == "@":  # of two vectors
            return node_builders.scalar_of(s, _binary(s, e))
        if _is_one_of_several(e, s):
            return node_builders.scalar_of(s, _one_of_several(s, e))
        if isinstance(e, ast.Subscript):
            base = s.typed.types.get(e.value)
            alone = not e.items or s.view(e.value) is None
            if isinstance(base, Tile) or (isinstance(base, Tensor) and alone):
                return node_builders.scalar_of(s, subscripts.subscript(s, e))
            if isinstance(e.value, ast.Attribute) and e.value.name == "shape":
                return subscripts.size(s, e.value.value, e.items[0])
        if isinstance(e, ast.Name) and isinstance(t, Scalar):
            symbol = s.typed.symbols.get(e)
            if isinstance(symbol, Local) and symbol in s.tiles:
                return node_builders.scalar_of(s, s.tiles[symbol])
        return None

    return look


def is_tile_call(s: State, e: ast.Call) -> bool:
    """Whether a call takes or gives tiles, or is one of a function of tiles."""
    symbol = s.typed.symbols.get(e.function)
    if isinstance(symbol, Builtin) and symbol.name.startswith(("op.", "tile.", "schedule.")):
        return True
    if e in s.typed.expanded:
        return True
    given = [*e.arguments, *(k.value for k in e.keywords)]
    if isinstance(e.function, ast.Attribute) and symbol == Builtin("to"):
        given.append(e.function.value)
    types = [s.typed.types.get(a) for a in given]
    return any(isinstance(t, Tensor | Tile) for t in types)


def evaluate(s: State, e: ast.Expr) -> Node | Bound:
    """A node for what is a tile or an array, else the lanes' value."""
    t = s.typed.types.get(e)
    if isinstance(t, Tensor | Tile) or isinstance(s.typed.coercions.get(e), Tile):
        return node_of(s, e)
    return lower_expression(s.low, e)


def node_of(s: State, e: ast.Expr) -> Node:
    """An expression as a node, converted to what it is used as; a number has rank 0."""
    wanted = s.typed.coercions.get(e)
    t = s.typed.types.get(e)
    if not isinstance(t, Tensor | Tile):
        value = lower_expression(s.low, e)
        if not isinstance(value, Value) or not isinstance(value.type, DType):
            raise Unsupported(e.span, "this value in an expression of tiles")
        return node_builders.converted(s, Filled(value, value.type, ()), wanted)
    with s.b.at(e.span):
        return node_builders.converted(s, _node(s, e), wanted)


# --- expressions -----------------------------------------------------------------------------


def _node(s: State, e: ast.Expr) -> Node:
    match e:
        case ast.Name():
            return _name(s, e)
        case ast.Binary():
            return _binary(s, e)
        case ast.Unary():
            return _unary(s, e)
        case ast.Compare():
            return _compare(s, e)
        case ast.BoolOp():
            return _bool_op(s, e)
        case ast.Conditional():
            return _conditional(s, e)
        case ast.Subscript() if _is_one_of_several(e, s):
            return _one_of_several(s, e)
        case ast.Subscript() | ast.TupleExpr() | ast.ListExpr() if e in s.typed.expanded:
            return builtin_calls.expanded(s, e)
        case ast.Subscript():
            return subscripts.subscript(s, e)
        case ast.Attribute():
            return _attribute(s, e)
        case ast.Call():
            found = builtin_calls.call(s, e)
            if found is None:
                raise Unsupported(e.span, "a call without a value here")
            return found
        case _:
            raise Unsupported(e.span, "this kind of expression of tiles")


def _is_one_of_several(e: ast.Expr, s: State) -> TypeGuard[ast.Subscript]:
    """``op.topk(x, k)[1]``: one of the values that a call of tiles gives."""
    if not (isinstance(e, ast.Subscript) and isinstance(e.value, ast.Call)):
        return False
    return isinstance(s.typed.types.get(e.value), TupleType) and is_tile_call(s, e.value)


def _one_of_several(s: State, e: ast.Subscript) -> Node:
    assert isinstance(e.value, ast.Call)
    found = builtin_calls.results(s, e.value)
    place = known(s, e.items[0])
    if found is None or not isinstance(place, int):
        raise Unsupported(e.span, "one of these values", "give them names: `a, b = ...`")
    return found[place]


def _argument(s: State, e: ast.Name) -> Node:
    """What a name stands for in the expression of a call, evaluated once."""
    given = s.typed.stands[e]
    if given not in s.given:
        s.given[given] = node_of(s, given)
    return s.given[given]


def _name(s: State, e: ast.Name) -> Node:
    if e in s.typed.stands:
        return _argument(s, e)
    symbol = s.typed.symbols.get(e)
    if isinstance(symbol, Local):
        if symbol in s.tiles:
            return _as_it_is_now(s, symbol, e)
        value = s.low.frame.variables.get(symbol, s.own.get(symbol))
        if isinstance(value, Value) and isinstance(value.type, ViewType):
            return subscripts.array(s, value, e.span, s.typed.coercions.get(e))
        if isinstance(value, Value) and isinstance(value.type, DType):
            return Filled(value, value.type, ())
    raise Unsupported(
        e.span, f"`{e.id}` behind a loop that alone sets it to a whole value",
        f"begin with a value of its shape in front of the loop: `{e.id} = op.zeros_like(x)`",
    )  # fmt: skip


def _as_it_is_now(s: State, symbol: Local, e: ast.Name) -> Node:
    """What a variable holds; an array that it names is what it is where it is read."""
    node = s.tiles[symbol]
    return _read_now(s, node) if isinstance(s.typed.types.get(e), Tensor) else node


def _read_now(s: State, node: Node) -> Node:
    if isinstance(node, Permuted):
        return replace(node, operand=_read_now(s, node.operand))
    return replace(node, version=s.version(node.view)) if isinstance(node, Read) else node


def _binary(s: State, e: ast.Binary) -> Node:
    """A left-leaning chain is walked in a loop: it may be thousands long."""
    chain: list[ast.Binary] = [e]
    while isinstance(left := chain[-1].left, ast.Binary) and isinstance(
        s.typed.types.get(left), Tile | Tensor
    ):
        chain.append(left)
    value = node_of(s, chain[-1].left)
    for step in reversed(chain):
        with s.b.at(step.span):
            value = _combine(s, step, value, node_of(s, step.right))
        if step is not e:
            value = node_builders.converted(s, value, s.typed.coercions.get(step))
    return value


def _combine(s: State, e: ast.Binary, a: Node, b: Node) -> Node:
    t = s.typed.types.get(e)
    if e.operator == "@":
        return node_builders.product(s, a, b, "exact", e.span)
    if e.operator == "**":
        return _power(s, e, a, b)
    return node_builders.combine(s, e.operator, a, b, register_dtype(t) or a.dtype, t, e.span)


def _power(s: State, e: ast.Binary, a: Node, b: Node) -> Node:
    instance = s.typed.second.get(e.right)
    if instance is not None:
        dtype = register_dtype(instance.parameter_types[0]) or F32
        t = s.typed.types.get(e)
        given = [node_builders.cast(s, x, dtype) for x in (a, b)]
        made = apply_to_elements(s, instance, given, e.span, t)
        return node_builders.cast(s, made, register_dtype(t) or dtype)
    exponent = known(s, e.right)
    if exponent == 0.5:
        dtype = F64 if a.dtype == F64 else F32
        root = node_builders.mapped(
            s, "sqrt", (node_builders.cast(s, a, dtype),), dtype, None, e.span
        )
        return node_builders.cast(s, root, register_dtype(s.typed.types.get(e)) or dtype)
    whole = isinstance(exponent, int | float) and float(exponent).is_integer()
    power = int(exponent) if isinstance(exponent, int | float) and whole else -1
    if not 0 <= power <= UNROLLED_POWER:
        help_text = f"an integer from 0 to {UNROLLED_POWER} may stand there"
        raise Unsupported(e.span, "`**` with this exponent", help_text)
    result: Node | None = None
    for bit in bin(power)[2:]:
        if result is not None:
            result = node_builders.mapped(s, "mul", (result, result), a.dtype)
        if bit == "1":
            result = a if result is None else node_builders.mapped(s, "mul", (result, a), a.dtype)
    return Filled(s.b.constant(1, a.dtype), a.dtype, a.axes) if result is None else result


def _unary(s: State, e: ast.Unary) -> Node:
    value = node_of(s, e.operand)
    if e.operator == "+":
        return value
    return node_builders.mapped(
        s, _UNARY[e.operator], (value,), value.dtype, s.typed.types.get(e), e.span
    )


def _compare(s: State, e: ast.Compare) -> Node:
    left = node_of(s, e.first)
    found: Node | None = None
    for operator, item in zip(e.operators, e.rest, strict=True):
        right = node_of(s, item)
        step = node_builders.compared(s, PREDICATES[operator], left, right)
        found = step if found is None else node_builders.mapped(s, "and", (found, step), BOOL)
        left = right
    assert found is not None
    return found


def _bool_op(s: State, e: ast.BoolOp) -> Node:
    found = node_of(s, e.values[0])
    for item in e.values[1:]:
        found = node_builders.mapped(s, e.operator, (found, node_of(s, item)), BOOL)
    return found


def _conditional(s: State, e: ast.Conditional) -> Node:
    chosen = s.typed.constants.get(e.test)
    if chosen is not None:
        return node_of(s, e.then if chosen else e.orelse)
    t = s.typed.types.get(e)
    dtype = register_dtype(t)
    test, a, b = node_of(s, e.test), node_of(s, e.then), node_of(s, e.orelse)
    if dtype is not None:
        a, b = node_builders.cast(s, a, dtype), node_builders.cast(s, b, dtype)
    return node_builders.select(s, test, a, b, t)


def _attribute(s: State, e: ast.Attribute) -> Node:
    if e.name in ("T", "mT"):
        value = node_of(s, e.value)
        rank = len(value.axes)
        order = (*range(rank - 2), rank - 1, rank - 2)
        return node_builders.permuted(value, order)
    raise Unsupported(e.span, f"`.{e.name}` of a tile")
