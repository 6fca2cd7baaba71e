"""Numbers of Tile IR in NumPy: element types, poison, and the operations on elements.

Every operation is done as docs/ir.md says, on scalars and arrays alike. Must not know tiles,
layouts or memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import ml_dtypes
import numpy as np

from tessera_lang.ir.core import IRType, Operation, TileType, Value
from tessera_lang.types.dtype import DTYPES, DType

Array = np.ndarray[Any, Any]

_PACKAGE = "ml_dtypes."
_NUMPY: dict[str, Any] = {
    name: getattr(ml_dtypes, d.numpy.removeprefix(_PACKAGE))
    if d.numpy.startswith(_PACKAGE)
    else np.dtype(d.numpy).type
    for name, d in DTYPES.items()
}


def numpy_type(dtype: DType) -> Any:
    return _NUMPY[dtype.name]


def element_type(t: IRType) -> Any:
    """The NumPy type of a scalar, or of the elements of a tile."""
    kind = t.dtype if isinstance(t, TileType) else t
    assert isinstance(kind, DType)
    return numpy_type(kind)


def is_array(value: object) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray)


def strided(data: Array, sizes: Sequence[int], strides: Sequence[int]) -> Array:
    """A view of an array by sizes and strides in bytes; NumPy knows no strides of some dtypes."""
    plain = data.view(f"V{data.itemsize}")
    return np.lib.stride_tricks.as_strided(plain, sizes, strides).view(data.dtype)


def garbage(dtype: Any) -> Any:
    """What stands where nothing is promised."""
    kind = np.dtype(dtype)
    if kind == np.bool_:
        return True
    if kind.kind in "iu":
        return kind.type(77)
    return kind.type(np.nan)


def _extreme(of: Callable[..., Any], a: Any, b: Any, zero: Callable[..., Any]) -> Any:
    """NumPy takes either of two zeros; here -0.0 is less than 0.0."""
    found: Any = of(a, b)
    if found.dtype.kind in "iub":
        return found
    zeros = np.logical_and(a == 0, b == 0)
    if not np.any(zeros):
        return found
    negative = zero(np.signbit(a), np.signbit(b))
    return np.where(zeros, np.where(negative, -0.0, 0.0).astype(found.dtype), found)


def _greater(a: Any, b: Any) -> Any:
    return _extreme(np.maximum, a, b, np.logical_and)


def _lesser(a: Any, b: Any) -> Any:
    return _extreme(np.minimum, a, b, np.logical_or)


_FOLD = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
_REDUCE: dict[str, Callable[..., Any]] = {**_FOLD, "max": _greater, "min": _lesser}


def combined(kind: str, a: Any, b: Any) -> Any:
    """Two numbers, or arrays, reduced to one."""
    return _REDUCE[kind](a, b)


def identity(kind: str, dtype: Any) -> Any:
    kind_of: Any = np.dtype(dtype)
    if kind in ("add", "any"):
        return kind_of.type(0)
    if kind in ("mul", "all"):
        return kind_of.type(1)
    if kind_of.kind in "iu":
        limits = np.iinfo(kind_of)
        return kind_of.type(limits.min if kind == "max" else limits.max)
    return kind_of.type(-np.inf if kind == "max" else np.inf)


def reduced(data: Array, axis: int, kind: str) -> Array:
    """A reduction as the language means it."""
    if kind in ("any", "all"):
        return np.asarray(getattr(data, kind)(axis=axis))
    if kind in ("argmax", "argmin"):
        if data.shape[axis] == 0:
            return np.zeros(data.shape[:axis] + data.shape[axis + 1 :], np.int64)
        wide = data.astype(np.float64) if data.dtype.kind not in "iub" else data
        return np.asarray(getattr(np, kind)(wide, axis=axis)).astype(np.int64)
    if data.shape[axis] == 1:
        return data.take(0, axis)  # nothing is added to it, so -0.0 stays
    step: Any = _FOLD[kind]
    found = step.reduce(data, axis=axis, dtype=data.dtype, initial=identity(kind, data.dtype))
    found = np.asarray(found).astype(data.dtype)
    if kind in ("max", "min") and data.dtype.kind not in "iub" and np.any(found == 0):
        preferred = ((data == 0) & (np.signbit(data) == (kind == "min"))).any(axis=axis)
        sign = np.where(preferred == (kind == "min"), -0.0, 0.0).astype(data.dtype)
        found = np.where(found == 0, sign, found)
    return found


def scanned(data: Array, axis: int, kind: str, inclusive: bool) -> Array:
    out = data.copy()
    rows = np.moveaxis(out, axis, 0)
    for i in range(1, len(rows)):
        rows[i] = _REDUCE[kind](rows[i - 1], rows[i])
    if not inclusive:
        rows[1:] = rows[:-1].copy()
        rows[:1] = identity(kind, out.dtype)
    return out


def scalar_operation(o: Operation, kind: str, v: Sequence[Any]) -> Any:
    """One element-wise operation; the result may be wider than its type."""
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return simple(*v)
    rule = _RULES.get(kind)
    if rule is None:
        raise AssertionError(f"no {o.name} at this level")
    return rule(o, *v)


def _cast(o: Operation, x: Any) -> Any:
    return cast_to(x, dtype_of(o.operands[0]), dtype_of(o.result))


def _bitcast(o: Operation, x: Any) -> Any:
    return np.asarray(x).view(numpy_type(dtype_of(o.result)))


def _cmp(o: Operation, a: Any, b: Any) -> Any:
    return _COMPARE[str(o.attributes["predicate"])](a, b)


def _select(o: Operation, condition: Any, a: Any, b: Any) -> Any:
    where: Any = np.where
    return where(condition, a, b)


def _not(o: Operation, x: Any) -> Any:
    data: Array = np.asarray(x)
    return np.invert(data)


def _floordiv(o: Operation, x: Any, y: Any) -> Any:
    a, b = np.asarray(x), np.asarray(y)
    if a.dtype.kind in "iu":
        safe = np.where(b == 0, b.dtype.type(1), b)
        return np.where(b == 0, a.dtype.type(0), a // safe)
    return np.floor(a / b)


def _mod(o: Operation, x: Any, y: Any) -> Any:
    a, b = np.asarray(x), np.asarray(y)
    if a.dtype.kind in "iu":
        safe = np.where(b == 0, b.dtype.type(1), b)
        return np.where(b == 0, a.dtype.type(0), a % safe)
    return a - np.floor(a / b) * b


def _shl(o: Operation, x: Any, y: Any) -> Any:
    a, n, far = _shifted(x, y)
    return np.where(far, a.dtype.type(0), a << n)


def _shr(o: Operation, x: Any, y: Any) -> Any:
    a, n, far = _shifted(x, y)
    sign = np.where(a < 0, a.dtype.type(-1), 0) if a.dtype.kind == "i" else 0
    return np.where(far, sign, a >> n)


def _shifted(x: Any, y: Any) -> tuple[Array, Array, Array]:
    a, n = np.asarray(x), np.asarray(y)
    far = (n < 0) | (n >= a.dtype.itemsize * 8)
    return a, np.where(far, 0, n).astype(a.dtype), far


def _fma(o: Operation, *v: Any) -> Any:
    a, b, c = (np.asarray(x) for x in v)
    if a.dtype == np.float64:
        return (a.astype(np.longdouble) * b + c).astype(np.float64)
    return (a.astype(np.float64) * b + c).astype(a.dtype)


def _approx(a: Any, exact: Any) -> Any:
    return exact


_RULES: dict[str, Callable[..., Any]] = {
    "floordiv": _floordiv, "mod": _mod, "shl": _shl, "shr": _shr, "fma": _fma,
    "cast": _cast, "bitcast": _bitcast, "cmp": _cmp, "select": _select, "not": _not,
}  # fmt: skip
_SIMPLE: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": np.true_divide,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "neg": operator.neg,
    "min": _lesser, "max": _greater, "abs": np.abs, "sqrt": np.sqrt, "exp2": np.exp2,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.round,
    "approx": _approx,
}  # fmt: skip
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge,
}  # fmt: skip


def dtype_of(value: Value) -> DType:
    t = value.type
    dtype = t.dtype if isinstance(t, TileType) else t
    assert isinstance(dtype, DType)
    return dtype


def cast_to(data: Any, source: DType, target: DType) -> Any:
    """Floats to integers saturate; f8 saturates to its largest finite value."""
    data, to = np.asarray(data), numpy_type(target)
    if target.kind == "bool":
        return data != 0
    if source.is_float and target.is_integer:
        limits = np.iinfo(to)
        wide = np.trunc(
            np.nan_to_num(data.astype(np.float64), nan=0.0, posinf=2.0**70, neginf=-(2.0**70))
        )
        low, high = wide <= limits.min, wide >= limits.max
        middle = np.where(low | high, 0, wide).astype(to)
        return np.where(low, to(limits.min), np.where(high, to(limits.max), middle))
    if target.is_float8:
        most = target.largest
        return np.clip(data.astype(np.float32), -most, most).astype(to)
    if source.is_float and source.bits < 32 and target.is_float and target.bits < 32:
        return data.astype(np.float32).astype(to)
    return data.astype(to)


def without_low_bits(data: Array) -> Array:
    """f32 as the matrix units take it for ``tf32``: the lower 13 bits are dropped."""
    bits = np.ascontiguousarray(data, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    return bits.view(np.float32)
