"""Rules that make one Tile operation simpler: folding of constants, identities.

A rule gives a constant, another value that there is already, or nothing. No rule changes
the value of a float in any case: no ``x + 0.0``, no ``x - x``. Must not know regions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, cast

from tessera_lang.ir.core import Operation, Value
from tessera_lang.opt.tile import constant_evaluation
from tessera_lang.opt.tile.constant_evaluation import Number
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import BOOL, DType, integer_range


@dataclass(frozen=True, slots=True)
class Known:
    """A constant to put in the place of a result."""

    value: Number
    dtype: DType


Folded: TypeAlias = Known | Value | None
Constants: TypeAlias = Mapping[Value, Number]

_BINARY = (
    "add", "sub", "mul", "div", "floordiv", "mod", "min", "max", "and", "or", "xor", "shl", "shr",
)  # fmt: skip
_UNARY = ("neg", "not", "abs", "floor", "ceil", "trunc", "round")


def held(operation: Operation) -> Number:
    """The number of a ``tile.constant`` as its dtype holds it."""
    dtype = cast("DType", operation.result.type)
    value = cast("Number", operation.attributes["value"])
    if dtype.is_float:
        return constant_evaluation.literal(float(value), dtype)
    return bool(value) if dtype.kind == "bool" else constant_evaluation.wrap(int(value), dtype)


def fold(operation: Operation, constants: Constants) -> Folded:
    """What the only result of an operation is worth, where that is known; of scalars only."""
    if not isinstance(operation.result.type, DType):
        return None
    name = operation.name.removeprefix("tile.")
    rule = _RULES.get(name)
    return None if rule is None else rule(name, operation, constants)


def _dtype(value: Value) -> DType:
    return cast("DType", value.type)


def _binary(name: str, operation: Operation, constants: Constants) -> Folded:
    a, b = operation.operands
    dtype = _dtype(operation.result)
    x, y = constants.get(a), constants.get(b)
    if x is not None and y is not None:
        if name in ("floordiv", "mod") and y == 0:
            return None  # it reports at run time
        value = constant_evaluation.binary(name, x, y, dtype)
        return None if value is None else Known(value, dtype)
    if dtype.is_float:
        return _float_identity(name, a, b, x, y)
    return _integer_identity(name, operation, x, y)


def _float_identity(name: str, a: Value, b: Value, x: Number | None, y: Number | None) -> Folded:
    """Identities that keep every bit, signed zeros and NaN included."""
    if name in ("mul", "div") and y == 1.0:
        return a
    if name == "mul" and x == 1.0:
        return b
    if name == "sub" and y == 0 and str(float(y)) == "0.0":
        return a
    if name == "add" and y == 0 and str(float(y)) == "-0.0":
        return a
    return None


def _integer_identity(
    name: str, operation: Operation, x: Number | None, y: Number | None
) -> Folded:
    a, b = operation.operands
    dtype = _dtype(operation.result)
    ones = True if dtype.kind == "bool" else -1 if dtype.is_signed else integer_range(dtype)[1]
    if name in ("add", "or", "xor") and x == 0:
        return b
    if name in ("add", "sub", "or", "xor", "shl", "shr") and y == 0:
        return a
    if name == "mul" and 1 in (x, y):
        return b if x == 1 else a
    if name in ("mul", "and") and 0 in (x, y):
        return Known(False if dtype.kind == "bool" else 0, dtype)
    if name == "and" and ones in (x, y):
        return b if x == ones else a
    if name == "floordiv" and y == 1:
        return a
    if name == "mod" and y == 1:
        return Known(0, dtype)
    if a is b:
        return _same_operands(name, a, dtype)
    return None


def _same_operands(name: str, a: Value, dtype: DType) -> Folded:
    if name in ("and", "or", "min", "max"):
        return a
    if name in ("sub", "xor"):
        return Known(False if dtype.kind == "bool" else 0, dtype)
    return None


def _unary(name: str, operation: Operation, constants: Constants) -> Folded:
    (a,) = operation.operands
    x = constants.get(a)
    if x is None:
        return None
    value = constant_evaluation.unary(name, x, _dtype(a))
    return None if value is None else Known(value, _dtype(a))


def _compare(name: str, operation: Operation, constants: Constants) -> Folded:
    a, b = operation.operands
    predicate = cast("str", operation.attributes["predicate"])
    x, y = constants.get(a), constants.get(b)
    if x is not None and y is not None:
        return Known(constant_evaluation.compare(predicate, x, y), BOOL)
    if a is b and not _dtype(a).is_float:
        return Known(predicate in ("eq", "le", "ge"), BOOL)
    return None


def _select(name: str, operation: Operation, constants: Constants) -> Folded:
    condition, a, b = operation.operands
    known = constants.get(condition)
    if known is not None:
        return a if known else b
    return a if a is b else None


def _cast(name: str, operation: Operation, constants: Constants) -> Folded:
    (a,) = operation.operands
    target = _dtype(operation.result)
    if a.type == target:
        return a
    x = constants.get(a)
    if x is None:
        return None
    return Known(constant_evaluation.cast(x, _dtype(a), target), target)


def _bitcast(name: str, operation: Operation, constants: Constants) -> Folded:
    (a,) = operation.operands
    target = _dtype(operation.result)
    x = constants.get(a)
    if a.type == target or x is None:
        return a if a.type == target else None
    value = constant_evaluation.bitcast(x, _dtype(a), target)
    return None if value is None else Known(value, target)


_RULES: dict[str, Callable[[str, Operation, Constants], Folded]] = {
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(_UNARY, _unary),
    "cmp": _compare,
    "select": _select,
    "cast": _cast,
    "bitcast": _bitcast,
}
