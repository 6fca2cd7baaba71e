"""Expressions of lane functions -> Tile operations.

Owns what each expression becomes. Calls of builtins and functions are in ``calls.py``.
"""

from __future__ import annotations

import math

from tessera_lang.ir.core import BufferType, Value, ViewType
from tessera_lang.lower.ast_to_tile import access, calls, control, number_tables, operators
from tessera_lang.lower.ast_to_tile.context import Bound, Lowering, Unsupported
from tessera_lang.sema.side_tables import Builtin, Constant, Local
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import INDEX, DType, integer_range
from tessera_lang.types.type import Scalar, TupleType


def lower_expression(lowering: Lowering, node: ast.Expr) -> Bound:
    """The value of an expression, with the conversion it takes where it is used."""
    outer = lowering.builder.span
    lowering.builder.span = node.span
    try:
        wanted = lowering.frame.typed.coercions.get(node)
        known = _known(lowering, node)
        if known is not None:
            t = wanted if isinstance(wanted, Scalar) else lowering.type_of(node)
            if isinstance(t, Scalar):
                return _literal(lowering, known, t.dtype)
        value = _expression(lowering, node)
        if isinstance(wanted, Scalar) and isinstance(value, Value):
            if node in lowering.frame.typed.narrowed:
                _look_whether_it_fits(lowering, node, value, wanted.dtype)
            return lowering.builder.cast(value, wanted.dtype)
        return value
    finally:
        lowering.builder.span = outer


def _look_whether_it_fits(lowering: Lowering, node: ast.Expr, value: Value, dtype: DType) -> None:
    b = lowering.builder
    low, high = (b.index(n) for n in integer_range(dtype))
    fits = b.binary("and", b.cmp("ge", value, low), b.cmp("le", value, high))
    shown = f"`{lowering.text(node.span)}` does not fit `{dtype}`"
    b.assertion(fits, lowering.site("assert", node.span, "", shown=shown))


def _known(lowering: Lowering, node: ast.Expr) -> bool | int | float | None:
    """The number a node is at compile time."""
    match node:
        case ast.IntLit() | ast.FloatLit() | ast.BoolLit():
            return node.value
        case _:
            value = lowering.frame.typed.constants.get(node)
    if value is None and isinstance(node, (ast.Name, ast.Attribute)):
        symbol = lowering.frame.typed.symbols.get(node)
        if isinstance(symbol, Constant):
            value = symbol.value
        elif symbol == Builtin("inf"):
            value = math.inf
        elif symbol == Builtin("nan"):
            value = math.nan
    return value if isinstance(value, (int, float)) else None


def _literal(lowering: Lowering, value: bool | int | float, dtype: DType) -> Value:
    if isinstance(value, float) and not dtype.is_float:
        value = int(value)
    return lowering.builder.constant(value, dtype)


def _scalar(lowering: Lowering, node: ast.Expr) -> Value:
    value = lower_expression(lowering, node)
    if not isinstance(value, Value) or not isinstance(value.type, DType):
        raise Unsupported(node.span, "this value here")
    return value


def _expression(lowering: Lowering, node: ast.Expr) -> Bound:
    if lowering.hook is not None and (found := lowering.hook(lowering, node)) is not None:
        return found
    match node:
        case ast.Name():
            return _name(lowering, node)
        case ast.Unary():
            return _unary(lowering, node)
        case ast.Binary():
            return _binary(lowering, node)
        case ast.BoolOp():
            return _bool_op(lowering, node)
        case ast.Compare():
            return _compare(lowering, node)
        case ast.Conditional():
            return _conditional(lowering, node)
        case ast.Call():
            return calls.lower_call(lowering, node)
        case ast.Subscript():
            return _subscript(lowering, node)
        case ast.Attribute():
            return _attribute(lowering, node)
        case ast.TupleExpr():
            return tuple(lower_expression(lowering, item) for item in node.items)
        case _:
            raise Unsupported(node.span, "this kind of expression")


def _name(lowering: Lowering, node: ast.Name) -> Bound:
    symbol = lowering.frame.typed.symbols.get(node)
    if isinstance(symbol, Local) and symbol in lowering.frame.variables:
        return lowering.frame.variables[symbol]
    raise Unsupported(node.span, f"the name `{node.id}` as a value")


def _unary(lowering: Lowering, node: ast.Unary) -> Value:
    value, builder = _scalar(lowering, node.operand), lowering.builder
    match node.operator:
        case "-":
            return builder.unary("neg", value)
        case "+":
            return value
        case "~":
            return builder.unary("not", value)
        case "not":
            return builder.unary("not", operators.truth(lowering, value))


def _binary(lowering: Lowering, node: ast.Binary) -> Value:
    """A left-leaning chain is walked in a loop: it may be thousands long."""
    chain: list[ast.Binary] = [node]
    while isinstance(left := chain[-1].left, ast.Binary) and not _settled(lowering, left):
        chain.append(left)
    value = _scalar(lowering, chain[-1].left)
    for step in reversed(chain):
        right = _scalar(lowering, step.right)
        with lowering.builder.at(step.span):
            if step.operator == "**":
                value = calls.power(lowering, step.right, value, right, step.span)
            else:
                value = operators.combine(lowering, step.operator, value, right, step.span)
            value = lowering.builder.cast(value, lowering.dtype_of(step))
            wanted = lowering.frame.typed.coercions.get(step)
            if step is not node and isinstance(wanted, Scalar):
                value = lowering.builder.cast(value, wanted.dtype)
    return value


def _settled(lowering: Lowering, node: ast.Binary) -> bool:
    """Whether it is no step of a chain: a known number, or what tiles make of two vectors."""
    return node.operator == "@" or _known(lowering, node) is not None


def _bool_op(lowering: Lowering, node: ast.BoolOp) -> Value:
    """From the left, ``(a and b) and c``, so that a long chain does not nest."""
    result = operators.truth(lowering, _scalar(lowering, node.values[0]))
    for item in node.values[1:]:

        def right(item: ast.Expr = item) -> Value:
            return operators.truth(lowering, _scalar(lowering, item))

        result = control.short_circuit(lowering, node.operator, result, right)
    return result


def _compare(lowering: Lowering, node: ast.Compare) -> Value:
    """A chain evaluates each operand once, and stops at the first step that fails."""
    first = _compared(lowering, node.first)
    return _compare_chain(lowering, node, 0, first)


def _compared(lowering: Lowering, node: ast.Expr) -> Value:
    """An operand of comparisons. A count is a float beside floats alone: beside integers, in the
    other step of a chain, it is compared exactly."""
    typed = lowering.frame.typed
    wanted, own = typed.coercions.get(node), typed.types.get(node)
    if isinstance(wanted, Scalar) and wanted.dtype.is_float and own == Scalar(INDEX):
        if _known(lowering, node) is None:
            with lowering.builder.at(node.span):
                value = _expression(lowering, node)
            if isinstance(value, Value):
                return value
    return _scalar(lowering, node)


def _compare_chain(lowering: Lowering, node: ast.Compare, at: int, left: Value) -> Value:
    right = _compared(lowering, node.rest[at])
    step = operators.compare(lowering, node.operators[at], left, right, node.span)
    if at + 1 == len(node.rest):
        return step
    return control.short_circuit(
        lowering, "and", step, lambda: _compare_chain(lowering, node, at + 1, right)
    )


def _conditional(lowering: Lowering, node: ast.Conditional) -> Bound:
    test = _known(lowering, node.test)
    if test is not None:  # of a compiled choice either side may be an array
        return lower_expression(lowering, node.then if test else node.orelse)
    condition = operators.truth(lowering, _scalar(lowering, node.test))
    dtype = lowering.dtype_of(node)
    builder = lowering.builder
    return control.choose(
        lowering,
        condition,
        lambda: builder.cast(_scalar(lowering, node.then), dtype),
        lambda: builder.cast(_scalar(lowering, node.orelse), dtype),
    )


def _subscript(lowering: Lowering, node: ast.Subscript) -> Bound:
    if isinstance(node.value, ast.Attribute) and node.value.name == "shape":
        return _shape(lowering, node.value, node)
    numbers = lowering.frame.typed.tables.get(node)
    if numbers is not None:
        return number_tables.load(lowering, node, numbers)
    if isinstance(lowering.type_of(node.value), TupleType):
        return _item(lowering, node)
    return access.load(lowering, access.place_of(lowering, node))


def _item(lowering: Lowering, node: ast.Subscript) -> Bound:
    items = lower_expression(lowering, node.value)
    at = _axis(lowering, node.items[0])
    if at is None or isinstance(items, Value):
        raise Unsupported(node.span, "this item of a tuple")
    return items[at]


def _shape(lowering: Lowering, attribute: ast.Attribute, node: ast.Subscript) -> Value:
    array = lower_expression(lowering, attribute.value)
    axis = _axis(lowering, node.items[0])
    if axis is None or not isinstance(array, Value):
        raise Unsupported(node.span, "this axis of a shape")
    if not isinstance(array.type, (ViewType, BufferType)):
        raise Unsupported(node.span, "the shape of this value")
    return access.size_of(lowering, array, axis % access.rank_of(array))


def _axis(lowering: Lowering, item: ast.Expr) -> int | None:
    if isinstance(item, ast.Unary) and item.operator == "-":
        inner = _known(lowering, item.operand)
        return -inner if isinstance(inner, int) else None
    value = _known(lowering, item)
    return value if isinstance(value, int) else None


def _attribute(lowering: Lowering, node: ast.Attribute) -> Bound:
    if lowering.frame.typed.symbols.get(node) == Builtin("tshared.alloc"):
        return calls.allocate(lowering, node, "shared")
    made = lowering.frame.typed.expanded.get(node)
    if made is not None:
        return lower_expression(lowering, made)
    if node.name == "shape":
        array = lower_expression(lowering, node.value)
        if isinstance(array, Value) and isinstance(array.type, (ViewType, BufferType)):
            return tuple(
                access.size_of(lowering, array, axis) for axis in range(access.rank_of(array))
            )
    raise Unsupported(node.span, f"`.{node.name}` of this value")
