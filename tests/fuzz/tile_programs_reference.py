"""What a generated tile program computes, in float64, with a bound of the rounding errors.

The body of a tile kernel is Python as it stands, and means what Python means: it is run by
Python itself on the values of this module. Each holds float64 (int64) elements and, for each, by
how much a result may differ from it, which follows from the dtypes. Knows nothing of our IR.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f64": np.dtype(np.float64),
    "i8": np.dtype(np.int8),
    "i32": np.dtype(np.int32),
    "u16": np.dtype(np.uint16),
    "bool": np.dtype(np.bool_),
}
UNIT = {"f32": 2.0**-23, "f16": 2.0**-11, "bf16": 2.0**-8, "f64": 2.0**-52}
"""The relative error of one operation; f32's is twice the least, for contracted ones."""

SUM = 2.0**-22
"""That of one term of a sum in f32: matrix units cut terms off and do not round them."""

FUNCTION = 2.0**-20
"""That of a function of f32."""

NARROW = ("f16", "bf16")


def is_float(dtype: str) -> bool:
    return dtype in UNIT


class Value:
    """A tile, or with no axes a number. ``wide``: has the bits of f32 whatever its dtype.

    ``open``: the axes that take the extent of what they meet; ``ones``: those of size 1 that
    stretch. ``summed``: was read of an array to be added to.
    """

    def __init__(self, value: Any, error: Any, dtype: str, wide: bool = False) -> None:
        self.value: Array = np.asarray(value)
        self.error: Array = np.broadcast_to(np.asarray(error, np.float64), self.value.shape)
        self.dtype, self.wide = dtype, wide
        self.open: tuple[bool, ...] = (False,) * self.value.ndim
        self.ones: tuple[bool, ...] = (False,) * self.value.ndim
        self.summed = False

    # --- shapes ------------------------------------------------------------------------------

    def like(self, value: Any, error: Any) -> Value:
        return self.flagged(Value(value, error, self.dtype, self.wide))

    def flagged(self, other: Value) -> Value:
        """With my open axes, where it has my shape."""
        if other.shape == self.shape:
            other.open, other.ones = self.open, self.ones
        return other

    def __getitem__(self, at: Any) -> Value:
        found = Value(self.value[_plain(at)], self.error[_plain(at)], self.dtype, self.wide)
        parts = list(at) if isinstance(at, tuple) else [at]  # pyright: ignore[reportUnknownArgumentType]
        if all(x is None or x == slice(None) for x in parts):
            rest = iter(zip(self.open, self.ones, strict=True))
            flags = [(False, True) if x is None else next(rest) for x in parts] + list(rest)
            found.open, found.ones = tuple(f[0] for f in flags), tuple(f[1] for f in flags)
        return found

    @property
    def T(self) -> Value:
        return self.mT

    @property
    def mT(self) -> Value:
        found = Value(
            np.swapaxes(self.value, -1, -2), np.swapaxes(self.error, -1, -2), self.dtype, self.wide
        )
        found.open = (*self.open[:-2], self.open[-1], self.open[-2])
        found.ones = (*self.ones[:-2], self.ones[-1], self.ones[-2])
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def cut(self, shape: tuple[int, ...], ones: tuple[bool, ...]) -> Value:
        """Its open axes at the extents of what it meets."""
        if not any(self.open) or len(shape) != len(self.shape):
            return self
        takes = [o and not one for o, one in zip(self.open, ones, strict=True)]
        box = tuple(slice(0, n if t else None) for t, n in zip(takes, shape, strict=True))
        found = Value(self.value[box], self.error[box], self.dtype, self.wide)
        found.open = tuple(o and not t for o, t in zip(self.open, takes, strict=True))
        found.ones = self.ones
        return found

    # --- dtypes ------------------------------------------------------------------------------

    def to(self, dtype: str) -> Value:
        if not is_float(dtype):
            return Value(self.value, 0, dtype)
        value = self.value.astype(np.float64)
        exact = self.dtype == dtype and not self.wide
        error = self.error + (0 if exact else _rounding(value, dtype))
        return self.flagged(Value(value, error, dtype))

    def operand(self, other: str) -> Value:
        """As a factor of a product beside one of a dtype."""
        if self.dtype == "f32" and other in NARROW:
            return self.to(other)
        return self.to(self.dtype) if self.wide else self

    def made(self, value: Any, error: Any, unit: float = 1.0) -> Value:
        """A result of my dtype: with the error of rounding it."""
        if not is_float(self.dtype):
            kind = DTYPES.get(self.dtype, np.dtype(np.int64))  # integers wrap
            return self.like(np.asarray(value).astype(kind).astype(np.int64), 0)
        narrow = "f32" if self.wide else self.dtype
        return self.like(value, error + unit * _rounding(value, narrow))

    # --- arithmetic --------------------------------------------------------------------------

    def met(self, other: Any) -> tuple[Value, Value]:
        """Both with one dtype and their extents agreed."""
        if not isinstance(other, Value):
            kind = np.float64 if is_float(self.dtype) else np.int64
            return self, Value(np.asarray(other, kind), 0, self.dtype, self.wide)
        a, b = self, other
        if len(a.shape) == len(b.shape):
            a, b = (
                a.cut(b.shape, tuple(x or y for x, y in zip(b.ones, b.open, strict=True))),
                b.cut(a.shape, tuple(x or y for x, y in zip(a.ones, a.open, strict=True))),
            )
            pairs = zip(a.open, a.ones, b.open, b.ones, strict=True)
            joint = tuple((ao or a1) and (bo or b1) and (ao or bo) for ao, a1, bo, b1 in pairs)
            one = tuple(x and y for x, y in zip(a.ones, b.ones, strict=True))
        else:
            big = a if a.shape else b
            joint, one = big.open, big.ones
        if a.dtype == b.dtype:
            dtype, wide = a.dtype, a.wide or b.wide
        else:
            assert "f32" in (a.dtype, b.dtype), (a.dtype, b.dtype)
            dtype, wide = "f32", False
        return _Met(a, dtype, wide, joint, one), _Met(b, dtype, wide, joint, one)

    def __add__(self, other: Any) -> Value:
        a, b = self.met(other)
        return a.made(a.value + b.value, a.error + b.error)

    def __iadd__(self, other: Value) -> Value:
        if not self.summed:
            return self + other
        total = self.as_sum() + other.as_sum() if is_float(self.dtype) else self + other
        total.summed, total.dtype = True, self.dtype
        return total

    def as_sum(self) -> Value:
        """As a term of a sum into an array, which is kept in f32."""
        return self.flagged(Value(self.value, self.error, "f32"))

    def __mod__(self, other: Any) -> Value:
        a, b = self.met(other)
        return a.made(np.mod(a.value, b.value), 0)

    def __sub__(self, other: Any) -> Value:
        a, b = self.met(other)
        return a.made(a.value - b.value, a.error + b.error)

    def __rsub__(self, other: Any) -> Value:
        a, b = self.met(other)
        return a.made(b.value - a.value, a.error + b.error)

    def __mul__(self, other: Any) -> Value:
        a, b = self.met(other)
        error = np.abs(a.value) * b.error + np.abs(b.value) * a.error + a.error * b.error
        return a.made(a.value * b.value, error)

    def __truediv__(self, other: Any) -> Value:
        a, b = self.met(other)
        with np.errstate(all="ignore"):
            value = a.value / b.value
            error = (a.error + np.abs(value) * b.error) / np.maximum(np.abs(b.value) - b.error, 0)
        return a.made(value, error)

    def __rtruediv__(self, other: Any) -> Value:
        return self.met(other)[1] / self

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Value:
        return self.like(-self.value, self.error)

    def __matmul__(self, other: Value) -> Value:
        a, b = self.operand(other.dtype), other.operand(self.dtype)
        assert a.dtype == b.dtype, (a.dtype, b.dtype)
        rows, columns = a.open[-2], b.open[-1]
        a, b = a.inner(b.shape[-2], -1), b.inner(a.shape[-1], -2)
        assert a.shape[-1] == b.shape[-2], (a.shape, b.shape)
        if not is_float(a.dtype):
            return Value(a.value.astype(np.int64) @ b.value.astype(np.int64), 0, "i32")
        x, y = np.abs(a.value), np.abs(b.value)
        error = x @ b.error + a.error @ y + a.error @ b.error
        unit = UNIT["f64"] if a.dtype == "f64" else SUM
        error = error + unit * (a.shape[-1] + 8) * (x @ y)
        found = Value(a.value @ b.value, error, a.dtype, a.dtype in NARROW)
        found.open = (*found.open[:-2], rows, columns)
        return found

    def inner(self, extent: int, axis: int) -> Value:
        """With so many elements along the axis of a contraction, where that was open."""
        if not self.open[axis]:
            return self
        box = (..., slice(0, extent)) if axis == -1 else (..., slice(0, extent), slice(None))
        return Value(self.value[box], self.error[box], self.dtype, self.wide)

    # --- of numbers and comparisons: exact values only ------------------------------------------

    def __index__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def _compared(self, other: Any, how: Any) -> Value:
        assert not is_float(self.dtype), "floats are not exact: do not branch on them"
        a, b = self.met(other)
        found = a.like(how(a.value, b.value), 0)
        found.dtype = "bool"
        return found

    def __eq__(self, other: object) -> bool:
        return bool(self._compared(other, np.equal))

    def __ne__(self, other: object) -> bool:
        return bool(self._compared(other, np.not_equal))

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> Value:
        return self._compared(other, np.less)

    def __le__(self, other: Any) -> Value:
        return self._compared(other, np.less_equal)

    def __gt__(self, other: Any) -> Value:
        return self._compared(other, np.greater)

    def __ge__(self, other: Any) -> Value:
        return self._compared(other, np.greater_equal)


class _Met(Value):
    """An operand: what is made of it and of the other has these flags."""

    def __init__(
        self, v: Value, dtype: str, wide: bool, open: tuple[bool, ...], ones: tuple[bool, ...]
    ) -> None:
        super().__init__(v.value, v.error, dtype, wide)
        self.joint = (open, ones)

    def like(self, value: Any, error: Any) -> Value:
        found = Value(value, error, self.dtype, self.wide)
        if len(found.shape) == len(self.joint[0]):
            found.open, found.ones = self.joint
        return found


def _plain(at: Any) -> Any:
    """An index with the values of ours in it as numbers."""
    if isinstance(at, tuple):
        return tuple(_plain(x) for x in at)  # pyright: ignore[reportUnknownVariableType]
    if isinstance(at, Value):
        return at.value.astype(np.int64) if at.shape else int(at.value)
    if isinstance(at, slice):
        ends = (at.start, at.stop, at.step)
        return slice(*(int(x) if isinstance(x, Value) else x for x in ends))
    return at


def _rounding(value: Array, dtype: str) -> Any:
    tiny = 2.0**-25 if dtype == "f16" else 1e-38 if dtype != "f64" else 0.0
    return UNIT[dtype] * np.abs(value) + tiny


class Tensor(Value):
    """An array in memory: it has a dtype, and what is stored is rounded to it."""

    def __init__(self, value: Array, dtype: str, written: bool = True) -> None:
        super().__init__(value.astype(np.float64 if is_float(dtype) else np.int64), 0, dtype)
        self.value = self.value.copy()
        self.error = np.full(self.value.shape, 0.0 if written else np.inf)
        self.owed = np.zeros(self.value.shape, bool)

    def __getitem__(self, at: Any) -> Value:
        where = _plain(at)
        read = Value(self.value[where].copy(), self.error[where].copy(), self.dtype)
        read.summed = True
        return read

    def __setitem__(self, at: Any, given: Any) -> None:
        where = _plain(at)
        v = given if isinstance(given, Value) else Value(given, 0, self.dtype)
        v = v.cut(self.value[where].shape, (False,) * len(v.shape))
        if v.shape:
            assert v.shape == self.value[where].shape, (v.shape, self.value[where].shape)
        stored = v if v.summed else v.to(self.dtype)
        self.value[where], self.error[where] = stored.value, stored.error
        self.owed[where] = v.summed

    def finished(self) -> None:
        """Sums are rounded, once."""
        if is_float(self.dtype):
            self.error += np.where(self.owed, _rounding(self.value, self.dtype), 0)


class Buffer(Value):
    """``op.shared``: takes the extent of what is stored into all of it."""

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        super().__init__(np.zeros(shape), 0, dtype)

    def __setitem__(self, at: Any, given: Value) -> None:
        assert at == slice(None)
        stored = given.to(self.dtype)
        self.value, self.error = stored.value, stored.error


# --- functions -----------------------------------------------------------------------------------


def _function(f: Any, slope: Any) -> Any:
    """A function of each element; ``slope``: the most it changes by, at a value."""

    def apply(x: Value) -> Value:
        with np.errstate(all="ignore"):
            value = f(x.value)
            error = slope(x.value, value) * x.error
        error = np.where(x.error == 0, 0, error)
        return x.made(value, error + FUNCTION * np.abs(value) + 1e-30)

    return apply


def _exp(x: Value) -> Value:
    with np.errstate(all="ignore"):
        value = np.exp(x.value)
        error = value * np.expm1(np.minimum(x.error, 50)) + value * FUNCTION * (1 + np.abs(x.value))
    error = np.where(np.isneginf(x.value), 0, error)
    return x.made(value, error + 1e-30)


def _relu(x: Value) -> Value:
    return x.like(np.maximum(x.value, 0), x.error)


def _extreme(f: Any) -> Any:
    def apply(a: Any, b: Any) -> Any:
        if not isinstance(a, Value) and not isinstance(b, Value):
            return int(f(a, b))
        x, y = a.met(b) if isinstance(a, Value) else tuple(reversed(b.met(a)))
        return x.like(f(x.value, y.value), np.maximum(x.error, y.error))

    return apply


def _sum(x: Value, axis: int | None = None) -> Value:
    count = x.value.size if axis is None else x.shape[axis]
    size = np.abs(x.value).sum(axis=axis)
    error = x.error.sum(axis=axis) + SUM * (count + 2) * size
    if not is_float(x.dtype):
        return Value(x.value.sum(axis=axis), 0, "i32")
    return _without(x, axis, Value(x.value.sum(axis=axis), error, x.dtype, x.dtype in NARROW))


def _mean(x: Value, axis: int | None = None) -> Value:
    return _sum(x, axis) / float(x.value.size if axis is None else x.shape[axis])


def _peak(f: Any, empty: float) -> Any:
    def apply(x: Value, axis: int | None = None) -> Value:
        value = f(x.value, axis=axis, initial=empty)
        error = np.max(x.error, axis=axis, initial=0)
        return _without(x, axis, Value(value, error, x.dtype, x.dtype in NARROW))

    return apply


def _without(x: Value, axis: int | None, found: Value) -> Value:
    if axis is not None:
        axis %= len(x.shape)
        found.open = (*x.open[:axis], *x.open[axis + 1 :])
        found.ones = (*x.ones[:axis], *x.ones[axis + 1 :])
    return found


def _where(condition: Value, a: Any, b: Any) -> Value:
    big = a if isinstance(a, Value) else b
    x, y = big.met(b if big is a else a)
    x, y = (x, y) if big is a else (y, x)
    pick = condition.cut(x.shape or y.shape, (False,) * len(condition.shape)).value
    return big.met(0.0)[0].like(np.where(pick, x.value, y.value), np.where(pick, x.error, y.error))


def _opened(value: Value) -> Value:
    value.open = (True,) * len(value.shape)
    return value


def _full(shape: Any, value: float, dtype: str) -> Value:
    shape = shape if isinstance(shape, tuple) else (shape,)
    kind = np.float64 if is_float(dtype) else np.int64
    return _opened(Value(np.full(shape, value, kind), 0, dtype))


def _tile_range(*ends: int, step: Any) -> Iterator[Any]:
    steps = step if isinstance(step, tuple) else (step,) * len(ends)
    loops = [range(0, int(n), s) for n, s in zip(ends, steps, strict=True)]
    for at in itertools.product(*loops):
        yield at[0] if len(at) == 1 else at


def _softmax(x: Value, axis: int = -1) -> Value:
    top = x.value.max(axis=axis, keepdims=True, initial=-np.inf)
    e = _exp(Value(x.value - top, x.error * 2 + UNIT["f32"] * np.abs(x.value), "f32"))
    total = _sum(e, axis)
    again = Value(np.expand_dims(total.value, axis), np.expand_dims(total.error, axis), "f32")
    r = e / again
    return Value(r.value, r.error, x.dtype, x.dtype in NARROW)


OP = SimpleNamespace(
    tile_range=_tile_range,
    zeros=lambda shape, dtype: _full(shape, 0, dtype),
    full=_full,
    shared=Buffer,
    empty=lambda shape, dtype: Tensor(np.zeros(shape), dtype, written=False),
    barrier=lambda: None,
    matmul=lambda a, b: a @ b,
    exp=_exp,
    tanh=_function(np.tanh, lambda x, y: 1.0),
    sigmoid=_function(lambda x: 1 / (1 + np.exp(-x)), lambda x, y: 0.25),
    silu=_function(lambda x: x / (1 + np.exp(-x)), lambda x, y: 1.2),
    sqrt=_function(np.sqrt, lambda x, y: 1.0),
    relu=_relu,
    abs=lambda x: x.like(np.abs(x.value), x.error),
    sum=_sum,
    mean=_mean,
    max=_peak(np.max, -np.inf),
    min=_peak(np.min, np.inf),
    softmax=_softmax,
    where=_where,
    arange=lambda n: _opened(Value(np.arange(n), 0, "index")),
    iota=lambda shape, axis: _opened(Value(np.indices(shape)[axis], 0, "index")),
)


def _prefetch(buffer: Buffer, value: Value) -> None:
    buffer[:] = value


OP.prefetch = _prefetch

NAMES: dict[str, Any] = {
    "op": OP,
    "max": _extreme(np.maximum),
    "min": _extreme(np.minimum),
    "inf": np.inf,
    "range": lambda *ends: range(*(int(x) for x in ends)),
    **{name: name for name in DTYPES},
    **{name: getattr(OP, name) for name in ("exp", "tanh", "sqrt", "sigmoid", "abs")},
}


def evaluated(
    body: Sequence[str], arrays: dict[str, tuple[Array, str]], numbers: dict[str, Any]
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """The arrays after a body has run on them, and what it returned."""
    tensors = {name: Tensor(array, dtype) for name, (array, dtype) in arrays.items()}
    inside = "\n".join("    " + line for line in body if "schedule." not in line)
    text = f"def kernel():\n{inside or '    pass'}\n"
    names = {**NAMES, **tensors, **numbers}
    exec(compile(text, "<generated>", "exec"), names)
    returned = names["kernel"]()
    found = list(returned) if isinstance(returned, tuple) else [returned]
    results = [r if isinstance(r, Tensor) else _result(r) for r in found if r is not None]
    for tensor in (*tensors.values(), *results):
        tensor.finished()
    return tensors, results


def _result(value: Value) -> Tensor:
    made = Tensor(value.value, value.dtype)
    made.error = np.array(value.to(value.dtype).error)
    return made


def wrong(tensor: Tensor, found: Array) -> str:
    """Where an array differs by more than rounding explains."""
    if found.shape != tensor.shape:
        return f"the shape is {found.shape}, and {tensor.shape} is right"
    if not found.size:
        return ""
    if not is_float(tensor.dtype):
        off = found.astype(np.int64) != tensor.value.astype(np.int64)
        off &= np.isfinite(tensor.error)
    else:
        got = found.astype(np.float64)
        with np.errstate(all="ignore"):
            near = np.abs(got - tensor.value) <= 2 * tensor.error + 1e-30
            # What may be rounded to more than the dtype holds is infinite there.
            most = float(ml_dtypes.finfo(found.dtype).max)
            near |= np.isinf(got) & (tensor.value * np.sign(got) + 2 * tensor.error >= most)
        off = ~(near | (got == tensor.value) | (np.isnan(got) & np.isnan(tensor.value)))
        off &= np.isfinite(tensor.error)
    if not off.any():
        return ""
    at = tuple(int(x) for x in np.argwhere(off)[0])
    bound = f" within {2 * float(tensor.error[at]):.3g}" if is_float(tensor.dtype) else ""
    right = float(tensor.value[at])
    return (
        f"{int(off.sum())} of {off.size} are wrong: {at} is {found[at]}, "
        f"and {right:.8g}{bound} is right"
    )
