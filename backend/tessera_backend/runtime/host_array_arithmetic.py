"""Arithmetic of host programs on whole arrays, by the language's rules, in NumPy.

Owns mixing of dtypes, shapes, and the values of operators and reductions. Must not know
where arrays live. Raises ``WorldFault`` in the user's words.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from tessera_backend.runtime import scalars
from tessera_backend.runtime.dtypes import TO_NUMPY, Array, from_numpy, is_array
from tessera_backend.runtime.rounding import once
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.evaluate.double import Double
from tessera_lang.target.host_world import Reduction, WorldFault, common_of, mixing_help
from tessera_lang.types.dtype import (
    BOOL,
    F32,
    F64,
    I32,
    U32,
    DType,
    dtype_with_number,
    float_of_integers,
    integer_range,
    mean_dtype,
)

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
MOST_POWER = 64


def dtype_of(array: Array) -> DType:
    found = from_numpy(array.dtype)
    assert found is not None
    return found


def convert(array: Array, dtype: DType) -> Array:
    """The cast of the language: integers wrap, floats to integers saturate, NaN gives 0."""
    source = dtype_of(array)
    target = TO_NUMPY[dtype.name]
    if dtype.kind == "bool":
        return cast("Array", array != 0)
    if source.is_float and dtype.is_integer:
        low, high = integer_range(dtype)
        wide = array.astype(np.float64)
        inside = np.clip(np.nan_to_num(np.trunc(wide), nan=0.0), low, high)
        result = np.where(wide >= float(high), 0, inside).astype(target)
        result[wide >= float(high)] = high
        return result
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.is_float and dtype.bits < 32:
            wide = once(array)
            if dtype.bits == 8:
                limit = dtype.largest
                wide = np.clip(wide, -limit, limit)
            return wide.astype(target)
        return array.astype(target)


def unary(operator: str, a: Array) -> Array:
    dtype = dtype_of(a)
    if operator == "+" and dtype != BOOL:
        return a.copy()
    with np.errstate(all="ignore"):
        if operator == "not" or operator == "~" and dtype == BOOL:
            return a == 0
        if dtype == BOOL:
            raise WorldFault(f"`{operator}` does not take an array of bool")
        if operator == "~":
            if not dtype.is_integer:
                raise WorldFault(f"`~` does not take an array of {dtype}")
            return ~a
        return -a if operator == "-" else np.abs(a)


def _as_operand(value: object, dtype: DType) -> Array:
    """A number as an array of one element of the other operand's type."""
    try:
        number = int(value) if isinstance(value, bool) and dtype != BOOL else value
        bits = scalars.encode(number, dtype, "operand")
    except TesseraError as error:
        wide = dtype_with_number(dtype, value) if isinstance(value, int | float) else None
        helps = () if wide is None else (f"convert the array first: `.to({wide})`",)
        raise WorldFault(
            f"{value!r} and an array of {dtype} do not mix", code="T0818", helps=helps
        ) from error
    data = bits.to_bytes(8, "little")[: dtype.bytes]
    return np.frombuffer(data, TO_NUMPY[dtype.name]).reshape(())


def _operands(
    operator: str, a: object, b: object, floats: DType = F32
) -> tuple[Array, Array, DType]:
    if operator == "/" and _whole(a, b) and _whole(b, a):
        a, b = (convert(x, F64) if is_array(x) else x for x in (a, b))
    if is_array(a) and is_array(b):
        left, right = dtype_of(a), dtype_of(b)
        if operator in _COMPARISONS and left.is_integer and right.is_integer:
            return a, b, left  # NumPy compares integers of any signs exactly
        common = common_of(operator, left, right)
        if common is None:
            raise WorldFault(f"arrays of {left} and {right} do not mix without a cast",
                             code="T0818", helps=mixing_help(left, right))  # fmt: skip
        _check_shapes(a.shape, b.shape)
        return convert(a, common), convert(b, common), common
    array = cast("Array", a if is_array(a) else b)
    dtype = dtype_of(array)
    other = b if array is a else a
    if operator in _COMPARISONS and isinstance(other, int) and not dtype.is_float:
        # Exact, whether the array could hold the number or not; bools are 0 and 1.
        number = np.asarray(other if dtype != BOOL or isinstance(other, bool) else int(other))
        return (array, number, dtype) if array is a else (number, array, dtype)
    if dtype == BOOL and operator in ("+", "-", "*", "/"):
        whole = isinstance(a, int) or isinstance(b, int)
        dtype = I32 if whole and operator != "/" else F32
    if dtype.is_integer and isinstance(other, float):
        dtype = float_of_integers(dtype, floats, isinstance(other, Double))
    number = _as_operand(other, dtype)
    wide = convert(array, dtype)
    return (wide, number, dtype) if array is a else (number, wide, dtype)


def _whole(value: object, other: object) -> bool:
    """Whether an operand of `/` is an integer, whose quotients are f64; a number beside an array
    of integers may have a point."""
    if is_array(value):
        return dtype_of(value).is_integer
    return isinstance(value, int) or (isinstance(value, float) and is_array(other))


def _check_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    last = zip(reversed(a), reversed(b), strict=False)
    if not all(m == n or 1 in (m, n) for m, n in last):
        raise WorldFault(f"arrays of shapes {a} and {b} do not fit together", code="T0834",
                         helps=say_axes(a, b))  # fmt: skip


def say_axes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[str, ...]:
    """What to write where arrays of unequal rank do not fit along their last axes."""
    if len(a) == len(b):
        return ()
    return ("arrays line up along their last axes, as in NumPy: say where an axis is missing, as in"
            " `v[:, None]`",)  # fmt: skip


def fits_into(value: tuple[int, ...], place: tuple[int, ...]) -> bool:
    """Whether an array of one shape is stored into a place of another: along the last axes, of one
    element where it is stretched, as in NumPy."""
    ones = len(value) - len(place)
    if any(n != 1 for n in value[: max(0, ones)]):
        return False
    last = zip(reversed(value), reversed(place), strict=False)
    return all(m in (n, 1) for m, n in last)


def binary(operator: str, a: object, b: object, floats: DType = F32) -> Array:
    """``a operator b``, element by element. ``floats``: what floats are that nothing gives a
    dtype."""
    if operator == "**" and isinstance(b, int) and is_array(a) and dtype_of(a).is_integer:
        return _whole_power(a, b)
    x, y, dtype = _operands(operator, a, b, floats)
    if is_array(a) and is_array(b):
        _check_shapes(a.shape, b.shape)
    narrow = dtype.is_float and dtype.bits < 32
    if narrow:
        x, y = x.astype(np.float32), y.astype(np.float32)
    with np.errstate(all="ignore"):
        result = _apply(operator, x, y, dtype)
    if narrow and result.dtype != np.bool_:
        return convert(result, dtype)
    return result


def _whole_power(a: Array, exponent: int) -> Array:
    """A power of integers, which wraps; as in kernels the exponent is one that products give."""
    if not 0 <= exponent <= MOST_POWER:
        raise WorldFault(
            f"`**` of integers takes an exponent from 0 to {MOST_POWER}", code="T0209",
            helps=(f"convert the array first: `x.to(f64) ** {exponent}`",),
        )  # fmt: skip
    with np.errstate(all="ignore"):
        return np.asarray(np.power(a, a.dtype.type(exponent)))


def _apply(operator: str, x: Array, y: Array, dtype: DType) -> Array:
    functions: dict[str, Any] = {
        "+": np.add, "-": np.subtract, "*": np.multiply, "==": np.equal, "!=": np.not_equal,
        "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
        "min": np.minimum, "max": np.maximum, "&": np.bitwise_and, "|": np.bitwise_or,
        "^": np.bitwise_xor, "and": np.logical_and, "or": np.logical_or,
    }  # fmt: skip
    if operator in functions:
        if (
            dtype == BOOL
            and operator in ("+", "-", "*")
            or (dtype.is_float and operator in ("&", "|", "^"))
        ):
            raise WorldFault(f"`{operator}` does not take arrays of {dtype}")
        return cast("Array", np.asarray(functions[operator](x, y)))
    if operator == "**" and dtype != BOOL:
        if dtype.is_integer and np.any(y < 0):
            raise WorldFault(
                "`**` of integers takes no exponent below 0",
                code="T0209",
                helps=("write the base as a float: `2.0 ** i`, `x.to(f64) ** i`",),
            )
        return np.asarray(np.power(x, y))
    if operator == "/":
        if not dtype.is_float:
            raise WorldFault(f"`/` does not take arrays of {dtype}",
                             helps=("write `//`, or convert: x.to(f32)",))  # fmt: skip
        return np.asarray(np.true_divide(x, y))
    if operator in ("//", "%"):
        return _divide(operator, x, y, dtype)
    if operator in ("<<", ">>") and dtype.is_integer:
        return _shift(operator, x, y, dtype)
    raise WorldFault(f"`{operator}` does not take arrays of {dtype}")


def _divide(operator: str, x: Array, y: Array, dtype: DType) -> Array:
    if dtype == BOOL:
        raise WorldFault(f"`{operator}` does not take arrays of bool")
    if not dtype.is_float and bool(np.any(y == 0)):
        raise WorldFault("an element is divided by zero")
    function = np.floor_divide if operator == "//" else np.remainder
    return np.asarray(function(x, y))


def _shift(operator: str, x: Array, y: Array, dtype: DType) -> Array:
    x, y = np.broadcast_arrays(x, y)
    outside = (y < 0) | (y >= dtype.bits)
    count = np.where(outside, 0, y).astype(x.dtype)
    if operator == "<<":
        return np.where(outside, 0, x << count).astype(x.dtype)
    gone = np.where(x < 0, -1, 0).astype(x.dtype) if dtype.is_signed else np.zeros_like(x)
    return np.where(outside, gone, x >> count).astype(x.dtype)


# --- reductions ----------------------------------------------------------------------------


def reduce(kind: Reduction, a: Array, axis: int | None, floats: DType = F32) -> object:
    """A number, or an array without the axis. Sums of narrow types are wide; ``floats``: what
    floats are that nothing gives a dtype, in which means of integers are."""
    if axis is not None and not -a.ndim <= axis < a.ndim:
        raise WorldFault(f"there is no axis {axis} in an array of {a.ndim} axes", code="T0807")
    dtype = dtype_of(a)
    with np.errstate(all="ignore"):
        result = _reduced(kind, a, axis, dtype, floats)
    if axis is None or a.ndim == 1:
        found = np.asarray(result)[()]
        rounded = kind == "mean" and _mean_dtype(dtype, floats) != F64
        return scalars.plain(found) if rounded else scalars.of_array(found)
    return np.asarray(result)


def _mean_dtype(dtype: DType, floats: DType) -> DType:
    return mean_dtype(dtype) if dtype.is_float else float_of_integers(dtype, floats)


def _reduced(
    kind: Reduction, a: Array, axis: int | None, dtype: DType, floats: DType
) -> Any:  # fmt: skip
    match kind:
        case "all":
            return np.all(a != 0, axis)
        case "any":
            return np.any(a != 0, axis)
        case "argmin" | "argmax":
            if a.size == 0:
                raise WorldFault(f"an array without elements has no {kind}")
            values = a.astype(np.float32) if dtype.is_float and dtype.bits < 32 else a
            return (np.argmin if kind == "argmin" else np.argmax)(values, axis)
        case "sum":
            wide = wide_dtype(dtype)
            total = np.sum(a.astype(TO_NUMPY[wide.name], copy=False), axis,
                           dtype=TO_NUMPY[wide.name])  # fmt: skip
            if axis is not None and a.ndim > 1 and dtype.is_float and wide != dtype:
                return convert(np.asarray(total), dtype)
            return total
        case "mean":
            values = a.astype(np.float64)
            mean = np.sum(values, axis) / (a.size if axis is None else a.shape[axis])
            if axis is not None and a.ndim > 1:
                return convert(np.asarray(mean), _mean_dtype(dtype, floats))
            return mean
        case "min" | "max":
            return _extreme(kind, a, axis, dtype)


def wide_dtype(dtype: DType) -> DType:
    """The type that sums of a dtype are made in."""
    if dtype.is_float:
        return F32 if dtype.bits < 32 else dtype
    if dtype.bits < 32:
        return I32 if dtype.is_signed or dtype.kind == "bool" else U32
    return dtype


def _extreme(kind: Reduction, a: Array, axis: int | None, dtype: DType) -> Any:
    values = a.astype(np.float32) if dtype.is_float and dtype.bits < 32 else a
    function = np.min if kind == "min" else np.max
    if dtype == BOOL:
        return function(values, axis, initial=kind == "min")
    if dtype.is_float:
        initial: Any = np.inf if kind == "min" else -np.inf
    else:
        low, high = integer_range(dtype)
        initial = values.dtype.type(high if kind == "min" else low)
    result = function(values, axis, initial=initial)
    narrow = dtype.is_float and dtype.bits < 32
    return convert(np.asarray(result), dtype) if narrow and np.ndim(result) else result
