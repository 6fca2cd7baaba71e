"""Values of expressions that are known at compile time.

Owns which expressions are constant and what they are worth: shapes of groups, budgets,
module constants, compile-time parameters, defaults. Must not know names' meanings (the
caller looks them up), arrays or statements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import cast

from tessera_lang.evaluate import arithmetic
from tessera_lang.evaluate.arithmetic import ArithmeticFault
from tessera_lang.evaluate.number_functions import NUMBERS_TAKEN, function_of_numbers
from tessera_lang.record import dataclass
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DTYPES, DType


class NotConstant(Exception):
    """An expression without a compile-time value: which part, and why."""

    def __init__(self, expression: ast.Expr, reason: str) -> None:
        self.expression = expression
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A function of the language that may stand in a constant expression."""

    name: str
    description = "a function"


BUILTIN_CONSTANTS: dict[str, object] = {
    **DTYPES,
    "inf": math.inf,
    "nan": math.nan,
    **{name: Intrinsic(name) for name in ("min", "max", "abs", "ceil_div", "len")},
}
"""Names of the language with a constant value; any of them may be shadowed."""


def math_function(name: str) -> Intrinsic | None:
    """``math.name`` of known numbers."""
    return Intrinsic(f"math.{name}") if name in NUMBERS_TAKEN else None


def assigned_parts(target: ast.Expr, value: ast.Expr) -> Iterator[tuple[ast.Name, ast.Expr]]:
    """Each name of ``a, b = 1.0, 2.0`` with the expression of its value; ``a = 1.0`` has one."""
    if isinstance(target, ast.Name):
        yield target, value
    elif isinstance(target, (ast.TupleExpr, ast.ListExpr)):
        given = value.items if isinstance(value, ast.TupleExpr) else None
        if given is not None and len(given) != len(target.items):
            return
        for i, item in enumerate(target.items):
            place = ast.Subscript(value.span, value, (ast.IntLit(value.span, i),))
            yield from assigned_parts(item, place if given is None else given[i])


Lookup = Callable[[ast.Name], object]
AttributeLookup = Callable[[ast.Attribute], object]


def evaluate_constant(
    expression: ast.Expr, lookup: Lookup, attribute: AttributeLookup | None = None
) -> object:
    """The value of ``expression``: int, float, bool, str, None, DType, or a tuple of these.

    ``lookup`` gives the value of a name; it raises NotConstant where the name has a value
    at run time only, and LookupError where it does not know the name, which then is looked
    up in ``BUILTIN_CONSTANTS``. ``attribute`` does the same for ``module.name``. Raises
    NotConstant; an integer that fits neither i64 nor u64 is none.
    """
    value = _Constant(lookup, attribute).value(expression)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise NotConstant(expression, "the value does not fit in 64 bits")
    return value


class _Constant:
    def __init__(self, lookup: Lookup, attribute: AttributeLookup | None) -> None:
        self._lookup = lookup
        self._attribute = attribute

    def value(self, e: ast.Expr) -> object:
        try:
            return self._value(e)
        except ArithmeticFault as fault:
            raise NotConstant(e, fault.reason) from None

    def _value(self, e: ast.Expr) -> object:
        match e:
            case ast.IntLit() | ast.FloatLit() | ast.StringLit() | ast.BoolLit():
                return e.value
            case ast.NoneLit():
                return None
            case ast.Name():
                return self._name(e)
            case ast.Attribute():
                return self._member(e)
            case ast.TupleExpr():
                return tuple(self.value(item) for item in e.items)
            case ast.Unary():
                return arithmetic.unary(e.operator, self.value(e.operand))
            case ast.Binary():
                return self._binary(e)
            case ast.BoolOp():
                return self._chain(e)
            case ast.Compare():
                return self._compare(e)
            case ast.Conditional():
                return self.value(e.then if arithmetic.truth(self.value(e.test)) else e.orelse)
            case ast.Call():
                return self._call(e)
            case ast.Subscript():
                return self._subscript(e)
            case _:
                raise NotConstant(e, "this is no compile-time expression")

    def _name(self, e: ast.Name) -> object:
        try:
            return self._lookup(e)
        except LookupError:
            if e.id in BUILTIN_CONSTANTS:
                return BUILTIN_CONSTANTS[e.id]
        raise NotConstant(e, f"`{e.id}` is not known at compile time")

    def _member(self, e: ast.Attribute) -> object:
        if self._attribute is not None:
            try:
                return self._attribute(e)
            except LookupError:
                pass
        raise NotConstant(e, f"`.{e.name}` is not known at compile time")

    def _binary(self, e: ast.Binary) -> object:
        chain: list[ast.Binary] = []
        left: ast.Expr = e
        while isinstance(left, ast.Binary):
            chain.append(left)
            left = left.left
        value = self.value(left)
        for node in reversed(chain):
            right = self.value(node.right)
            try:
                value = arithmetic.binary(node.operator, value, right)
            except ArithmeticFault as fault:
                raise NotConstant(node, fault.reason) from None
        return value

    def _chain(self, e: ast.BoolOp) -> object:
        value: object = e.operator == "and"
        for item in e.values:
            value = self.value(item)
            if arithmetic.truth(value) != (e.operator == "and"):
                return value
        return value

    def _compare(self, e: ast.Compare) -> bool:
        left = self.value(e.first)
        for operator, item in zip(e.operators, e.rest, strict=True):
            right = self.value(item)
            if not arithmetic.compare(operator, left, right):
                return False
            left = right
        return True

    def _call(self, e: ast.Call) -> object:
        function = self.value(e.function)
        if not isinstance(function, (Intrinsic, DType)):
            raise NotConstant(e, "a call of this has no compile-time value")
        if e.keywords:
            raise NotConstant(e, f"`{function.name}` takes no keyword arguments")
        values = tuple(self.value(a) for a in e.arguments)
        return apply_intrinsic(function, values)

    def _subscript(self, e: ast.Subscript) -> object:
        value = self.value(e.value)
        if not isinstance(value, (tuple, str)) or len(e.items) != 1:
            raise NotConstant(e, f"{arithmetic.kind_of(cast('object', value))} has no items")
        sequence = cast("tuple[object, ...]", value)
        index = self.value(e.items[0])
        if not isinstance(index, int) or isinstance(index, bool):
            raise NotConstant(e.items[0], "an index is an integer")
        try:
            return sequence[index]
        except IndexError:
            raise NotConstant(e, f"no item {index} among {len(sequence)}") from None


def apply_intrinsic(function: Intrinsic | DType, values: tuple[object, ...]) -> object:
    """A call of ``min max abs ceil_div len``, of a function of `math` or of a dtype. Raises
    ArithmeticFault."""
    if function.name.startswith("math."):
        return function_of_numbers(function.name.removeprefix("math."), values)
    expected = {"abs": 1, "ceil_div": 2, "len": 1}.get(
        function.name, 1 if isinstance(function, DType) else 0
    )
    if expected and len(values) != expected:
        raise ArithmeticFault(
            f"`{function.name}` takes {expected} argument{'s' * (expected > 1)}, not {len(values)}"
        )
    if isinstance(function, DType):
        return arithmetic.convert(values[0], function)
    match function.name:
        case "abs":
            return arithmetic.absolute(values[0])
        case "len":
            if not isinstance(values[0], (tuple, str)):
                raise ArithmeticFault(f"{arithmetic.kind_of(values[0])} has no length")
            return len(cast("tuple[object, ...]", values[0]))
        case "ceil_div":
            return arithmetic.ceil_div(values[0], values[1])
        case _:
            if len(values) < 2:
                raise ArithmeticFault(f"`{function.name}` takes two or more numbers here")
            return arithmetic.extreme(function.name, values)
