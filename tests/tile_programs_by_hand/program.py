"""A program written by hand: its text, its arguments, what NumPy makes of them in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tessera_lang.record import dataclass

# Rounding of elements cancels in the mean, a wrong scale does not. The worst of all programs here
# is 0.07 % off, with a factor rounded to f8.
FACTOR = 2e-3
MANY = 1000  # elements, for a mean that says something
Array = np.ndarray[Any, np.dtype[Any]]
Numbers = dict[str, Array]
DTYPES: dict[str, Any] = {
    "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8,
    "u8": np.uint8, "i32": np.int32, "u32": np.uint32, "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2, "bool": np.bool_, "i64": np.int64, "f64": np.float64,
}  # fmt: skip


def of(**values: Any) -> dict[str, Any]:
    """Values by names that are words."""
    return values


def _none(r: np.random.Generator, sizes: dict[str, int]) -> Numbers:
    return {}


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """``parameters``: dtype and sizes of each, in order. ``right`` gives what is written, from
    the arguments in float64; what is returned is its ``result``. ``small`` and ``large`` are sizes:
    to run anywhere, and as in use. ``arguments``: those that are not any numbers. ``tolerance``: of
    the greatest value, for one element."""

    name: str
    products: int
    text: str
    parameters: dict[str, tuple[str, str]]
    right: Callable[[Numbers], Numbers]
    small: dict[str, int]
    large: dict[str, int]
    arguments: Callable[[np.random.Generator, dict[str, int]], Numbers] = _none
    tolerance: float = 1e-2

    def shape(self, name: str, sizes: dict[str, int]) -> tuple[int, ...]:
        return tuple(
            int(d) if d.isdigit() else int(eval(d, {}, sizes))  # `n+1` counts as a size
            for d in self.parameters[name][1].split()
        )

    def made(self, sizes: dict[str, int], seed: int = 1) -> Numbers:
        """The arguments."""
        r = np.random.default_rng(seed)
        given = self.arguments(r, sizes)
        found: Numbers = {}
        for name, (dtype, _) in self.parameters.items():
            shape = self.shape(name, sizes)
            if name in given:
                value = given[name]
            elif dtype in ("i8", "u8", "i32", "u32", "i64"):
                value = r.integers(-9 if dtype[0] == "i" else 0, 10, shape)
            else:
                value = r.uniform(-1, 1, shape)
            found[name] = np.ascontiguousarray(value).astype(DTYPES[dtype])
        return found

    def signature(self, sizes: dict[str, int]) -> str:
        return ", ".join(
            f"{name}: {dtype}[{', '.join(map(str, self.shape(name, sizes)))}]"
            for name, (dtype, _) in self.parameters.items()
        )

    def wrong(self, before: Numbers, after: Numbers) -> str:
        """Where a result differs by more than the tolerance."""
        exact = {
            n: a.astype(np.int64 if a.dtype.kind in "iu" else np.float64) for n, a in before.items()
        }
        with np.errstate(all="ignore"):
            wanted = self.right(exact)
        for name, value in wanted.items():
            got = np.asarray(after[name]).astype(np.float64)
            if got.shape != value.shape:
                return f"{name}: shape {got.shape}, and {value.shape} is right"
            scale = max(float(np.abs(value).max(initial=0)), 1e-30)
            off = ~(np.abs(got - value) <= self.tolerance * scale)
            if off.any():
                at = tuple(int(x) for x in np.argwhere(off)[0])
                return f"{name}: {off.sum()} of {off.size} wrong; {at}: {got[at]}, not {value[at]}"
            if value.size >= MANY and abs(by := factor(got, value) - 1) > FACTOR:
                return f"{name}: {100 * by:.2f} % off in the mean, if no element by too much"
        return ""


def factor(got: Array, value: Array) -> float:
    """What the right values times this number come closest to the results with."""
    squares = float((value * value).sum())
    return float((got * value).sum()) / squares if 0 < squares < np.inf else 1.0


def rows_softmax(s: Array) -> Array:
    """Softmax along the last axis; rows of -inf are 0."""
    top = s.max(axis=-1, keepdims=True)
    e = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = e.sum(axis=-1, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total > 0)
