"""Operands and attributes for every operator of Graph IR, of random shapes and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tessera_lang.ir.core import TensorType
from tessera_lang.ir.graph import rules
from tessera_lang.ir.graph.operator import Operator
from tessera_lang.types.dtype import BOOL, F64, I64, DType

Sample = tuple[list[tuple[Any, TensorType]], dict[str, Any]]

_DOMAINS = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "pow"), (0.3, 2.0)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-0.8, 0.8)),
    "acosh": (1.2, 3.0), "log1p": (-0.5, 2.0), "tan": (-1.0, 1.0),
}  # fmt: skip


def array(rng: Any, shape: tuple[int, ...], dtype: DType = F64, low: float = -2.0,
          high: float = 2.0) -> tuple[Any, TensorType]:  # fmt: skip
    """Random elements: of distinct magnitudes for floats, so that no comparison is near a tie."""
    if dtype == BOOL:
        value: Any = rng.random(shape) < 0.5
    elif dtype.is_float:
        value = rng.uniform(low, high, shape)
    else:
        value = rng.integers(int(low), int(high), shape)
    return value, TensorType(dtype, shape)


def _sizes(rng: Any, rank: int) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(2, 5, rank))


def sample_of(row: Operator, rng: Any) -> Sample:
    """Operands that the operator takes, and attributes."""
    shape = _sizes(rng, int(rng.integers(1, 4)))
    if row.name in _OF_AXES:
        return _OF_AXES[row.name](rng, shape)
    if row.shape is rules.reduced_shape or row.name == "logsumexp":
        return _reduced(row, rng, shape)
    if row.name in ("sort", "argsort"):
        return [array(rng, shape)], {"axis": len(shape) - 1, "descending": bool(rng.random() < 0.5)}
    if row.shape in (rules.without_axis, rules.along_axis):
        attributes: dict[str, Any] = {"axis": int(rng.integers(len(shape)))}
        if row.name.startswith("cum"):
            attributes["exclusive"], attributes["reverse"] = map(bool, rng.random(2) < 0.5)
        return [array(rng, shape)], attributes
    if row.name == "where":
        return [array(rng, shape, BOOL), array(rng, shape), array(rng, shape)], {}
    if row.name == "cast":
        return [array(rng, shape)], {"dtype": F64}
    dtype = I64 if row.dtype is rules.whole_or_bool else F64
    low, high = _DOMAINS.get(row.name, (-2.0, 2.0))
    operands = [array(rng, shape, dtype, low, high) for _ in row.operands]
    if row.name in ("mod", "floordiv"):
        operands[1] = array(rng, shape, F64, 0.7, 2.0)
    return operands, {}


def _reduced(row: Operator, rng: Any, shape: tuple[int, ...]) -> Sample:
    count = 1 if row.name == "logsumexp" else int(rng.integers(1, len(shape) + 1))
    axes = tuple(sorted(int(a) for a in rng.permutation(len(shape))[:count]))
    dtype = BOOL if row.dtype is rules.bools else F64
    return [array(rng, shape, dtype)], {"axes": axes, "keepdims": bool(rng.random() < 0.5)}


def _matmul(rng: Any, shape: tuple[int, ...]) -> Sample:
    m, n, k = _sizes(rng, 3)
    front = shape[:-1]
    return [array(rng, (*front, m, k)), array(rng, (*front, k, n))], {}


def _slice(rng: Any, shape: tuple[int, ...]) -> Sample:
    starts = tuple(int(rng.integers(n)) for n in shape)
    stops = tuple(int(rng.integers(s + 1, n + 1)) for s, n in zip(starts, shape, strict=True))
    steps = tuple(int(s) for s in rng.integers(1, 4, len(shape)))
    return [array(rng, shape)], {"starts": starts, "stops": stops, "steps": steps}


def _pad(rng: Any, shape: tuple[int, ...]) -> Sample:
    before, after = (tuple(int(n) for n in rng.integers(0, 3, len(shape))) for _ in range(2))
    return [array(rng, shape)], {"before": before, "after": after, "value": 0.5}


def _broadcast(rng: Any, shape: tuple[int, ...]) -> Sample:
    few = tuple(1 if rng.random() < 0.5 else n for n in shape)
    return [array(rng, few)], {"shape": rules.shape_attribute(shape)}


def _take(rng: Any, shape: tuple[int, ...]) -> Sample:
    axis = int(rng.integers(len(shape)))
    places = array(rng, (5,), I64, 0, shape[axis])
    return [array(rng, shape), places], {"axis": axis}


def _take_along(rng: Any, shape: tuple[int, ...]) -> Sample:
    axis = int(rng.integers(len(shape)))
    wanted = tuple(6 if i == axis else n for i, n in enumerate(shape))
    return [array(rng, shape), array(rng, wanted, I64, 0, shape[axis])], {"axis": axis}


def _concat(rng: Any, shape: tuple[int, ...]) -> Sample:
    axis = int(rng.integers(len(shape)))
    parts = [
        array(rng, tuple(int(rng.integers(1, 4)) if i == axis else n for i, n in enumerate(shape)))
        for _ in range(3)
    ]
    return parts, {"axis": axis}


def convolution(rng: Any, of_weights: bool, rank: int, groups: int) -> Sample:
    """Of few places, some of which meet nothing."""
    batch, co, ci = (int(n) for n in rng.integers(1, 3, 3))
    sizes, places, out = (tuple(int(n) for n in rng.integers(1, m, rank)) for m in (5, 3, 4))
    attributes: dict[str, Any] = {
        n: tuple(int(k) for k in rng.integers(1, 4, rank)) for n in ("stride", "dilation", "spread")
    }
    if rng.random() < 0.5:
        attributes["spread"] = (1,) * rank
    attributes["before"] = tuple(int(n) for n in rng.integers(-1, 3, rank))
    attributes["size"] = rules.shape_attribute(places if of_weights else out)
    attributes["groups"] = groups
    x = array(rng, (batch, groups * ci, *sizes))
    if of_weights:
        return [x, array(rng, (batch, groups * co, *out))], attributes
    return [x, array(rng, (groups * co, ci, *places))], attributes


_OF_AXES: dict[str, Callable[[Any, tuple[int, ...]], Sample]] = {
    "matmul": _matmul, "slice": _slice, "pad": _pad, "broadcast": _broadcast, "take": _take,
    "concat": _concat, "take_along": _take_along,
    "conv": lambda rng, s: convolution(rng, False, len(s), int(rng.integers(1, 4))),
    "conv_weights": lambda rng, s: convolution(rng, True, len(s), int(rng.integers(1, 4))),
    "transpose": lambda rng, s: (
        [array(rng, s)], {"axes": tuple(int(a) for a in rng.permutation(len(s)))}),
    "reshape": lambda rng, s: (
        [array(rng, s)], {"shape": rules.shape_attribute((*s[:1], int(np.prod(s[1:]))))}),
    "flip": lambda rng, s: ([array(rng, s)], {"axes": tuple(range(0, len(s), 2))}),
    "scatter_add": lambda rng, s: (
        [array(rng, (6,), I64, 0, 4), array(rng, (6, 3))], {"shape": ("4",)}),
    "full": lambda rng, s: ([], {"shape": rules.shape_attribute(s), "dtype": F64, "value": 1.5}),
    "size": lambda rng, s: ([array(rng, s)], {"axis": len(s) - 1}),
    "arange": lambda rng, s: ([], {"shape": ("7",), "dtype": I64}),
}  # fmt: skip
