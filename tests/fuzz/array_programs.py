"""Random programs of several statements over whole arrays, in the names that NumPy has.

    python -m tests.fuzz.array_programs --from 0 --count 200 [--target cuda | --as sm_90a]

A program has parameters of rank 1 to 5 in one or two dtypes, values that have a name and are used
several times, reductions over some axes, predicates, transposes, windows with steps, triangles,
arrays that are made, stored into and not returned, names that take other values, values that a loop
changes, and stores into parts of a result, with rows from an index array too. NumPy runs the same
operations. ``exact`` programs compute with small integers, so every order gives the same bits;
``kept`` programs only pick and place, and their elements are infinities, NaN, zeros of both signs
and the largest and least numbers of any dtype: those must come through bit for bit.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import tessera_lang as tessera
from tessera_lang.record import dataclass, field, replace
from tests import on_device

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16), "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2), "i8": np.dtype(np.int8), "u8": np.dtype(np.uint8),
    "i16": np.dtype(np.int16), "u16": np.dtype(np.uint16), "i32": np.dtype(np.int32),
    "u32": np.dtype(np.uint32), "i64": np.dtype(np.int64), "bool": np.dtype(np.bool_),
}  # fmt: skip
_EXACT = ("f32", "f32", "f64", "f16", "bf16", "i8", "u8", "i16", "u16", "i32", "i32", "u32", "i64")
_LARGEST = {"f16": 2**11, "bf16": 2**8, "f32": 2**24, "f64": 2**52}
"""Up to here a float has all integers."""
_NAMES = "abcd"
_MOST_ELEMENTS = 3_000  # of a parameter: the emulated GPU runs each thread block by itself


@dataclass(frozen=True, slots=True)
class Value:
    """An expression and what it is; floats are computed in f64. ``ones``: axes of one element
    that stretch, as they were written with ``None`` or ``keepdims``."""

    text: str
    array: Array
    dtype: str
    ones: frozenset[int] = frozenset()

    @property
    def rank(self) -> int:
        return self.array.ndim


@dataclass(frozen=True, slots=True)
class Program:
    seed: int
    source: str
    arguments: tuple[Array, ...]
    right: tuple[Array, ...]
    kept: bool


def is_float(dtype: str) -> bool:
    return dtype.startswith(("f", "bf"))


def summed(dtype: str) -> str:
    """The dtype of a sum: 8- and 16-bit integers are added in 32 bits."""
    if dtype in ("i8", "i16", "bool"):
        return "i32"
    return "u32" if dtype in ("u8", "u16") else dtype


def _working(dtype: str) -> np.dtype[Any]:
    return np.dtype(np.float64) if is_float(dtype) else DTYPES[dtype]


# --- what the operations mean ----------------------------------------------------------------


def largest(a: Array, b: Array) -> Array:
    """-0.0 is less than 0.0, and NaN wins."""
    found = np.maximum(a, b)
    if found.dtype.kind == "f":
        zeros = (a == 0) & (b == 0)
        found = np.where(zeros, np.where(np.signbit(a), b, a), found)
    return np.asarray(found)


def least(a: Array, b: Array) -> Array:
    found = np.minimum(a, b)
    if found.dtype.kind == "f":
        zeros = (a == 0) & (b == 0)
        found = np.where(zeros, np.where(np.signbit(a), a, b), found)
    return np.asarray(found)


def _folded(pair: Callable[[Array, Array], Array], x: Array, axes: Sequence[int]) -> Array:
    for axis in axes:
        parts = np.moveaxis(x, axis, 0)
        found = parts[0]
        for part in parts[1:]:
            found = pair(found, part)
        x = np.expand_dims(found, axis)
    return x


_PAIRS: dict[str, Callable[[Array, Array], Array]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "min": least, "max": largest,
}  # fmt: skip


# --- programs --------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Maker:
    """Makes one program; ``kept``: nothing is computed, only picked and placed."""

    seed: int
    kept: bool = False
    r: random.Random = field(default_factory=random.Random)
    numbers: np.random.Generator = field(default_factory=np.random.default_rng)
    dtype: str = "f32"
    dims: dict[str, int] = field(default_factory=dict[str, int])
    parameters: dict[str, tuple[str, Array]] = field(default_factory=dict[str, "tuple[str, Array]"])
    values: list[Value] = field(default_factory=list[Value])
    lines: list[str] = field(default_factory=list[str])
    again: set[str] = field(default_factory=set[str])  # names that have had another value
    made: list[str] = field(default_factory=list[str])  # arrays that are not returned

    def program(self) -> Program:
        r = self.r = random.Random(self.seed)
        self.numbers, more = np.random.default_rng(self.seed), random.Random(f"more {self.seed}")
        self.kept = r.random() < 0.4
        names = tuple(DTYPES) if self.kept else _EXACT
        self.dtype = r.choice([d for d in names if d != "bool"])
        self.dims = {n: r.choice([1, 2, 3, 4, 5, 7, 8, 16, 17, 33]) for n in "mnpq"}
        for name in "xyz"[: r.choice([1, 2, 3])]:
            rank = r.choice([1, 2, 2, 2, 3, 3, 4, 5])
            shape = tuple(r.choice("mnpq") for _ in range(rank))
            while math.prod(self.dims[d] for d in shape) > _MOST_ELEMENTS:
                shape = shape[1:]
            self._parameter(name, shape)
        for name in _NAMES[: r.choice([0, 1, 2, 3])]:
            made = self.of(r.choice([1, 2, 3]))
            if made.rank and made.text not in self.parameters:
                self.lines.append(f"{name} = {made.text}")
                self.values.append(replace(made, text=name))
            if more.random() < 0.3:
                self._private(f"t{name}")
            if more.random() < 0.15:
                self._named_again(more)
            if more.random() < 0.15:
                self._changed(f"u{name}")
        results = [self._result(i) for i in range(r.choice([1, 1, 2]))]
        given = ", ".join(f"{n}: {t}" for n, (t, _) in self.parameters.items())
        body = "\n    ".join([*self.lines, f"return {', '.join(v.text for v in results)}"])
        right = tuple(np.asarray(self._stored(v)) for v in results)
        return Program(
            self.seed, f"@op.kernel\ndef f({given}):\n    {body}\n",
            tuple(a for _, a in self.parameters.values()), right, self.kept,
        )  # fmt: skip

    def _stored(self, v: Value) -> Array:
        with np.errstate(all="ignore"):
            return v.array.astype(DTYPES[v.dtype])

    def _parameter(self, name: str, dims: Sequence[str]) -> None:
        shape = tuple(self.dims[d] for d in dims)
        array = self._elements(shape)
        self.parameters[name] = f"{self.dtype}[{', '.join(dims)}]", array
        self.values.append(Value(name, array.astype(_working(self.dtype)), self.dtype))

    def _elements(self, shape: tuple[int, ...]) -> Array:
        dtype = DTYPES[self.dtype]
        if not self.kept:
            low = 0 if self.dtype.startswith("u") else -3
            return np.asarray(self.numbers.integers(low, 4, shape)).astype(dtype)
        if not is_float(self.dtype):
            info = np.iinfo(dtype)
            chosen = [info.min, info.max, 0, 1, info.max - 1]
        else:
            top = float(ml_dtypes.finfo(dtype).max)
            small = float(ml_dtypes.finfo(dtype).smallest_subnormal)
            chosen = [0.0, -0.0, 1.0, -1.5, top, -top, small, -small]
            if self.dtype != "f8e4m3":
                chosen += [np.inf, -np.inf]
            if self.r.random() < 0.5:
                chosen.append(np.nan)
        return self.numbers.choice(np.array(chosen).astype(dtype), shape)

    # --- expressions --------------------------------------------------------------------------

    def of(self, depth: int) -> Value:
        """A value of the program's dtype, or of its sums' dtype."""
        if depth <= 0:
            return self._leaf()
        kinds = {"pair": 30, "one": 12, "reduce": 22, "where": 14, "shape": 14, "part": 12,
                 "triangle": 5, "gather": 7, "moved": 12, "sorted": 5, "reshaped": 4}  # fmt: skip
        if not self.kept:
            kinds |= {"product": 14, "scan": 7, "cast": 5, "place": 5, "einsum": 8, "named": 8}
        kind = self.r.choices(list(kinds), list(kinds.values()))[0]
        for _ in range(4):
            made = getattr(self, "_" + kind)(depth)
            if made is not None and self._is_exact(made):
                return made
        return self._leaf()

    def _is_exact(self, v: Value) -> bool:
        if self.kept or v.dtype not in _LARGEST or not v.array.size:
            return True
        # A named or a stored narrow float is rounded once, so all its integers are small.
        return bool(np.abs(v.array).max() < _LARGEST[v.dtype])

    def _leaf(self) -> Value:
        return self.r.choice(self.values)

    def _meets(self, a: Value, b: Value) -> tuple[Value, Value] | None:
        """Two values of one rank and shape, where new axes can do that."""
        if a.dtype != b.dtype:
            return None
        rank = max(a.rank, b.rank)
        if a.rank and b.rank:
            a, b = self._raised(a, rank), self._raised(b, rank)
            for axis, (n, k) in enumerate(zip(a.array.shape, b.array.shape, strict=True)):
                if (axis in a.ones) == (axis in b.ones) and n != k:
                    return None
                if n != k and not (n == 1 and axis in a.ones) and not (k == 1 and axis in b.ones):
                    return None
        return a, b

    def _raised(self, v: Value, rank: int) -> Value:
        while v.rank < rank:
            at = self.r.choice([0, v.rank])
            parts = [":"] * v.rank
            parts.insert(at, "None")
            ones = frozenset({at, *(i + (i >= at) for i in v.ones)})
            v = Value(f"{v.text}[{', '.join(parts)}]", np.expand_dims(v.array, at), v.dtype, ones)
        return v

    def _joined(self, text: str, array: Array, a: Value, b: Value) -> Value:
        ones = a.ones & b.ones if a.rank and b.rank else a.ones | b.ones
        return Value(text, np.asarray(array), a.dtype, ones)

    def _pair(self, depth: int) -> Value | None:
        a = self.of(depth - 1)
        names = ("min", "max") if self.kept else ("+", "-", "*", "min", "max")
        name = self.r.choice(names)
        if self.r.random() < 0.25:
            return self._with_literal(name, a)
        met = self._meets(a, self.of(depth - 1))
        if met is None:
            return None
        a, b = met
        with np.errstate(all="ignore"):
            found = _PAIRS[name](a.array, b.array)
        text = f"{name}({a.text}, {b.text})" if len(name) > 1 else f"({a.text} {name} {b.text})"
        return self._joined(text, found, a, b)

    def _with_literal(self, name: str, a: Value) -> Value:
        number = 1.0 if is_float(a.dtype) else 1
        one = np.asarray(number, a.array.dtype)
        with np.errstate(all="ignore"):
            found = _PAIRS[name](a.array, one)
        text = f"{name}({a.text}, {number})" if len(name) > 1 else f"({a.text} {name} {number})"
        return replace(a, text=text, array=np.asarray(found))

    def _one(self, depth: int) -> Value | None:
        a = self.of(depth - 1)
        signed = is_float(a.dtype) or a.dtype.startswith("i")
        name = self.r.choice(["-", "abs", "clamp"]) if signed else "clamp"
        with np.errstate(all="ignore"):
            if name == "-":
                return replace(a, text=f"(-{a.text})", array=np.negative(a.array))
            if name == "abs":
                return replace(a, text=f"abs({a.text})", array=np.abs(a.array))
        low, high = (0.0, 2.0) if is_float(a.dtype) else (0, 2)
        kind = a.array.dtype
        found = least(largest(a.array, np.asarray(low, kind)), np.asarray(high, kind))
        return replace(a, text=f"op.clamp({a.text}, {low}, {high})", array=found)

    def _condition(self, depth: int) -> Value:
        a = self.of(depth)
        kind = self.r.choice(["<", ">=", "==", "!="])
        number = 1.0 if is_float(a.dtype) else 1
        functions = {"<": np.less, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal}
        found = functions[kind](a.array, np.asarray(number, a.array.dtype))
        return Value(f"({a.text} {kind} {number})", np.asarray(found), "bool", a.ones)

    def _where(self, depth: int) -> Value | None:
        condition, b = self._condition(depth - 1), self.of(depth - 1)
        met = self._meets(replace(condition, dtype=b.dtype), b)
        if met is None:
            return None
        c, b = met
        if not c.rank:
            return None
        number = 2.0 if is_float(b.dtype) else 2
        found = np.where(c.array, b.array, np.asarray(number, b.array.dtype))
        return replace(
            self._joined(f"op.where({c.text}, {b.text}, {number})", found, c, b), dtype=b.dtype
        )

    def _axes(self, v: Value) -> tuple[str, tuple[int, ...]]:
        count = self.r.choice([1, 1, 2, v.rank])
        axes = tuple(sorted(self.r.sample(range(v.rank), min(count, v.rank))))
        if len(axes) == v.rank and self.r.random() < 0.6:
            return "", axes
        written = [a - v.rank if self.r.random() < 0.3 else a for a in axes]
        text = str(written[0]) if len(written) == 1 else f"({', '.join(map(str, written))})"
        return f", axis={text}", axes

    def _reduce(self, depth: int) -> Value | None:
        v = self.of(depth - 1)
        if not v.rank or not v.array.size:
            return None
        said, axes = self._axes(v)
        name = self.r.choice(["max", "min"] if self.kept else ["sum", "sum", "max", "min", "count"])
        keep = self.r.random() < 0.3
        dtype, text = v.dtype, v.text
        if name in ("max", "min"):
            found = _folded(largest if name == "max" else least, v.array, axes)
        elif name == "sum":
            dtype = summed(v.dtype)
            found = np.sum(v.array, axis=axes, dtype=_working(dtype), keepdims=True)
        else:
            name, text = "sum", f"({v.text} > {1.0 if is_float(v.dtype) else 1})"
            over = v.array > np.asarray(1, v.array.dtype)
            dtype, found = "i32", np.sum(over, axis=axes, dtype=np.int32, keepdims=True)
        ones = frozenset({*v.ones, *axes})
        if not keep:
            found = np.squeeze(found, axis=axes)
            left = [i for i in range(v.rank) if i not in axes]
            ones = frozenset(left.index(i) for i in v.ones if i in left)
        else:
            said += ", keepdims=True"
        return Value(f"op.{name}({text}{said})", np.asarray(found), dtype, ones)

    def _shape(self, depth: int) -> Value | None:
        v = self.of(depth - 1)
        if v.rank == 2 and self.r.random() < 0.5:
            order: tuple[int, ...] = (1, 0)
            text = f"{v.text}.T"
        elif v.rank >= 2:
            order = tuple(self.r.sample(range(v.rank), v.rank))
            text = f"op.transpose({v.text}, ({', '.join(map(str, order))}))"
        else:
            return None
        ones = frozenset(order.index(i) for i in v.ones)
        return Value(text, np.transpose(v.array, order), v.dtype, ones)

    def _part(self, depth: int) -> Value | None:
        """A window of a parameter, with steps; or one of its rows."""
        name = self.r.choice(self._arrays() + 2 * self.made)
        v = next(x for x in self.values if x.text == name)
        texts: list[str] = []
        parts: list[Any] = []
        for n in v.array.shape:
            kind = self.r.choice(["all", "all", "row", "from", "to", "inner", "step"])
            if kind == "row":
                i = self.r.randrange(n)
                texts.append(str(i))
                parts.append(i)
                continue
            a = self.r.randrange(1, n) if n > 1 and kind in ("from", "inner") else 0
            cut = n > a + 1 and kind in ("to", "inner")
            by = self.r.choice([2, 3]) if kind == "step" else 1
            texts.append(f"{a or ''}:{-1 if cut else ''}{f':{by}' if by > 1 else ''}")
            parts.append(slice(a, n - 1 if cut else n, by))
        return Value(f"{name}[{', '.join(texts)}]", np.asarray(v.array[tuple(parts)]), v.dtype)

    def _triangle(self, depth: int) -> Value | None:
        v = self.of(depth - 1)
        if v.rank != 2 or v.ones:
            return None
        name, k = self.r.choice(["tril", "triu"]), self.r.choice([-1, 0, 1])
        said = f", {k}" if k else ""
        return replace(v, text=f"op.{name}({v.text}{said})", array=getattr(np, name)(v.array, k))

    def _gather(self, depth: int) -> Value | None:
        """Rows of a parameter by an array of their numbers."""
        name = self.r.choice(self._arrays() + self.made)
        v = next(x for x in self.values if x.text == name)
        if not 1 <= v.rank <= 3:
            return None
        rows = self.numbers.integers(0, v.array.shape[0], self.r.choice([1, 3, 8, 20]))
        at = f"i{len(self.parameters)}"
        self.parameters[at] = f"i32[{len(rows)}]", rows.astype(np.int32)
        rest = ", :" * (v.rank - 1)
        return Value(f"{name}[{at}{rest}]", np.asarray(v.array[rows]), v.dtype)

    def _product(self, depth: int) -> Value | None:
        a, b = self.of(depth - 1), self.of(depth - 1)
        if a.dtype != b.dtype or not a.rank or not b.rank or a.ones or b.ones:
            return None
        if a.dtype not in ("f16", "bf16", "f32", "f64"):
            return None
        if a.array.shape[-1] != b.array.shape[-2 if b.rank > 1 else -1]:
            if b.rank != 2 or a.array.shape[-1] != b.array.shape[-1]:
                return None
            b = replace(b, text=f"({b.text}).T", array=b.array.T)
        with np.errstate(all="ignore"):
            try:
                found = np.matmul(a.array, b.array)
            except ValueError:
                return None
        if found.size and np.abs(a.array).max() * np.abs(b.array).max() > 2**14:
            return None
        return Value(f"({a.text} @ {b.text})", np.asarray(found), a.dtype)

    def _moved(self, depth: int) -> Value | None:
        """Elements along an axis at other places, or some of them several times."""
        v = self.of(depth - 1)
        if not v.rank or not v.array.size or v.ones:
            return None
        axis, r = self.r.randrange(v.rank), self.r
        n, name = v.array.shape[axis], r.choice(["roll", "repeat", "tile", "take", "flip"])
        if name == "flip":
            return replace(v, text=f"op.flip({v.text}, {axis})", array=np.flip(v.array, axis))
        if name == "roll":
            by = r.randrange(-3, 4)
            text = f"op.roll({v.text}, {by}, axis={axis})"
            return replace(v, text=text, array=np.roll(v.array, by, axis))
        if name == "take":
            at = [r.randrange(n) for _ in range(r.choice([1, 3, 4]))]
            text = f"op.take({v.text}, op.array({at}), axis={axis})"
            return replace(v, text=text, array=np.take(v.array, at, axis))
        count = r.choice([1, 2, 3])
        if v.array.size * count > _MOST_ELEMENTS:
            return None
        if name == "repeat":
            text = f"op.repeat({v.text}, {count}, axis={axis})"
            return replace(v, text=text, array=np.repeat(v.array, count, axis))
        counts = tuple(count if i == axis else 1 for i in range(v.rank))
        text = f"op.tile({v.text}, ({', '.join(map(str, counts))}{',' * (v.rank == 1)}))"
        return replace(v, text=text, array=np.tile(v.array, counts))

    def _sorted(self, depth: int) -> Value | None:
        """Lines in order: NaN last, and -0.0 before 0.0."""
        v = self.of(depth - 1)
        if not v.rank or not v.array.size or v.ones or v.dtype.startswith("f8"):
            return None
        axis, down = self.r.randrange(v.rank), self.r.random() < 0.3
        keys = v.array
        if keys.dtype.kind == "f":
            keys = np.where(np.isnan(keys), np.inf, keys).astype(np.float64)
            order = np.lexsort((~np.signbit(v.array), keys, np.isnan(v.array)), axis=axis)
        else:
            order = np.argsort(keys, axis=axis, kind="stable")
        found = np.take_along_axis(v.array, np.flip(order, axis) if down else order, axis)
        said = f", axis={axis}" + ", descending=True" * down
        return replace(v, text=f"op.sort({v.text}{said})", array=found)

    def _reshaped(self, depth: int) -> Value | None:
        """A parameter with its last axes in one, or with an axis more."""
        name = self.r.choice(self._arrays())
        v = next(x for x in self.values if x.text == name)
        shapes = [(-1,), (*v.array.shape[::-1],), (1, *v.array.shape[:-1], -1)]
        if v.rank > 1:
            shapes.append((*v.array.shape[:-2], -1))
        shape = self.r.choice(shapes)
        said = ", ".join(map(str, shape)) + "," * (len(shape) == 1)
        ones = frozenset(i for i, n in enumerate(shape) if n == 1)
        return Value(f"op.reshape({name}, ({said}))", v.array.reshape(shape), v.dtype, ones)

    def _named(self, depth: int) -> Value | None:
        """A name that stands for a short expression."""
        v = self.of(depth - 1)
        if v.dtype == "bool":
            return None
        name, a = self.r.choice(["square", "clip", "sign", "maximum", "count_nonzero"]), v.array
        low, high = (0.0, 2.0) if is_float(v.dtype) else (0, 2)
        if name == "clip":
            return replace(v, text=f"op.clip({v.text}, {low}, {high})", array=np.clip(a, low, high))
        if name == "maximum":
            found = np.maximum(a, np.asarray(high, a.dtype))
            return replace(v, text=f"op.maximum({v.text}, {high})", array=found)
        if name == "count_nonzero":
            if not v.rank:
                return None
            found = np.asarray(np.count_nonzero(a), np.int32)
            return Value(f"op.count_nonzero({v.text})", found, "i32")
        with np.errstate(all="ignore"):
            return replace(v, text=f"op.{name}({v.text})", array=np.asarray(getattr(np, name)(a)))

    def _einsum(self, depth: int) -> Value | None:
        a, b = self.of(depth - 1), self.of(depth - 1)
        good = all(1 <= v.rank <= 3 and not v.ones and v.array.size for v in (a, b))
        if not good or a.dtype != b.dtype or a.dtype == "bool" or a.dtype.startswith("f8"):
            return None
        r, left = self.r, "ijk"[: a.rank]
        sizes = dict(zip(left, a.array.shape, strict=True))
        right = ""
        for n in b.array.shape:
            same = [x for x in sizes if sizes[x] == n and x not in right]
            letter = r.choice(same) if same and r.random() < 0.8 else "lmn"[len(right)]
            sizes[letter] = n
            right += letter
        out = "".join(r.sample(sorted(sizes), r.randrange(len(sizes) + 1)))
        if math.prod(sizes.values()) > 20_000 or len(sizes) > 5:
            return None
        if np.abs(a.array).max() * np.abs(b.array).max() > 2**14:
            return None
        dtype = summed(a.dtype)
        letters = f"{left},{right}->{out}"
        found = np.einsum(letters, *(x.array.astype(_working(dtype)) for x in (a, b)))
        return Value(f'op.einsum("{letters}", {a.text}, {b.text})', np.asarray(found), dtype)

    def _scan(self, depth: int) -> Value | None:
        v = self.of(depth - 1)
        if not v.rank or v.ones:
            return None
        axis = self.r.randrange(v.rank)
        dtype = summed(v.dtype)
        found = np.cumsum(v.array, axis=axis, dtype=_working(dtype))
        return Value(f"op.cumsum({v.text}, axis={axis})", found, dtype)

    def _cast(self, depth: int) -> Value | None:
        v = self.of(depth - 1)
        to = self.r.choice(["f32", "i32", "f64", "i64"])
        if to == v.dtype or (v.array.size and np.abs(v.array.astype(np.float64)).max() >= 2**24):
            return None
        return replace(v, text=f"{to}({v.text})", array=v.array.astype(_working(to)), dtype=to)

    def _place(self, depth: int) -> Value | None:
        """Where the first of the greatest or least elements is."""
        v = self.of(depth - 1)
        if not v.rank or not v.array.size:
            return None
        name, axis = self.r.choice(["argmax", "argmin"]), self.r.randrange(v.rank)
        found = np.asarray(getattr(np, name)(v.array, axis=axis))
        return Value(f"i32(op.{name}({v.text}, axis={axis}))", found.astype(np.int32), "i32",
                     frozenset(i - (i > axis) for i in v.ones if i != axis))  # fmt: skip

    def _arrays(self) -> list[str]:
        """Parameters whose name still means them."""
        return [n for n in self.parameters if n in "xyz" and n not in self.again]

    def _named_again(self, more: random.Random) -> None:
        """A name, of a parameter too, takes another value; what was made of the old one stays."""
        names = [v.text for v in self.values if v.text[0] != "t"]
        names = [n for n in names if n not in "xyz" or len(self._arrays()) > 1]
        made = self.of(2)
        if names and made.rank:
            name = more.choice(names)
            self.values = [v for v in self.values if v.text != name]
            self.lines.append(f"{name} = {made.text}")
            self.values.append(replace(made, text=name))
            self.again.add(name)

    def _changed(self, name: str) -> None:
        """A whole value that a loop changes, element by element or from other elements; or two
        that take each other's."""
        v, r = self.of(1), self.r
        if not v.rank or not v.array.size or v.ones or v.dtype == "bool":
            return
        axis, rounds = r.randrange(v.rank), r.choice([1, 2, 3])
        kinds = ["flip", "swap", "roll"] + ["sum", "scan"] * (not self.kept)
        kind, array = r.choice(kinds), v.array
        if kind == "scan" and summed(v.dtype) != v.dtype:
            kind = "roll"
        line, step = {
            "flip": (f"{name} = op.flip({name}, {axis})", lambda a: np.flip(a, axis)),
            "swap": (f"{name}, o{name} = o{name}, {name}", lambda a: np.flip(a, axis)),
            "roll": (f"{name} = op.roll({name}, 1, axis={axis})", lambda a: np.roll(a, 1, axis)),
            "sum": (f"{name} = {name} + op.flip({name}, {axis})", lambda a: a + np.flip(a, axis)),
            "scan": (
                f"{name} = op.cumsum({name}, axis={axis})",
                lambda a: np.cumsum(a, axis, dtype=_working(v.dtype)),
            ),
        }[kind]
        for _ in range(rounds):
            array = step(array)
            if not self._is_exact(replace(v, array=array)):
                return
        if kind == "swap":
            self.lines.append(f"o{name} = op.flip({v.text}, {axis})")
        self.lines += [f"{name} = {v.text}", f"for _ in range({rounds}):", f"    {line}"]
        self.values.append(Value(name, array, v.dtype))

    # --- arrays that are made -----------------------------------------------------------------

    def _private(self, name: str) -> None:
        """An array that is made, stored into, and read by what follows; seldom it is returned."""
        v = self.of(self.r.choice([1, 2]))
        if not v.rank or not v.array.size or v.ones or not self._is_exact(v):
            return
        if v.rank in (2, 3) and self.r.random() < 0.5:
            self.values.append(self._assembled(v, name))
            return
        sizes = ", ".join(map(str, v.array.shape)) + "," * (v.rank == 1)
        made = self.r.choice(["empty", "zeros", "ones"])
        self.lines.append(f"{name} = op.{made}(({sizes}), {v.dtype})")
        if made == "empty" or self.r.random() < 0.5:
            self.lines.append(f"{name}[:] = {v.text}")
            array = v.array
        else:
            start = np.full(v.array.shape, made == "ones").astype(v.array.dtype)
            first = self.r.randrange(v.array.shape[0])
            self.lines.append(f"{name}[{first}:] = ({v.text})[{first}:]")
            array = np.concatenate((start[:first], v.array[first:]))
        if self.r.random() < 0.4:
            array = self._in_place(Value(name, array, v.dtype))
        self.values.append(Value(name, array, v.dtype))
        self.made.append(name)

    def _in_place(self, v: Value) -> Array:
        """A store of what needs other elements of the array: all as they were before."""
        kind, axis = self.r.choice(["flip", "shift", "scan"]), self.r.randrange(v.rank)
        array = v.array
        if kind == "flip" or self.kept or v.dtype == "bool":
            self.lines.append(f"{v.text}[:] = op.flip({v.text}, {axis})")
            return np.flip(array, axis)
        if kind == "scan" and summed(v.dtype) == v.dtype:
            found = np.cumsum(array, axis, dtype=_working(v.dtype))
            line = f"{v.text}[:] = op.cumsum({v.text}, axis={axis})"
        else:
            found = np.concatenate((array[:1], array[1:] - array[:-1]))
            line = f"{v.text}[1:] = {v.text}[1:] - {v.text}[:-1]"
        if not self._is_exact(replace(v, array=found)):
            return array
        self.lines.append(line)
        return found

    # --- results ------------------------------------------------------------------------------

    def _result(self, number: int) -> Value:
        """A value that is returned: as it is, or put together of parts of an array."""
        v = self.of(self.r.choice([1, 2, 3]))
        if v.rank in (2, 3) and v.array.size and self.r.random() < 0.35:
            return self._assembled(v, f"r{number}")
        return v

    def _assembled(self, v: Value, name: str) -> Value:
        r, n = self.r, v.array.shape[0]
        kind = r.choice(["step", "rows", "part"])
        by, first = (r.choice([2, 3]), r.choice([0, 1])) if kind == "step" else (1, r.randrange(4))
        length = n if kind == "rows" else first + by * n + r.choice([0, 2])
        array = np.zeros((length, *v.array.shape[1:]), v.array.dtype)
        rest = ", :" * (v.rank - 1)
        sizes = ", ".join(map(str, array.shape))
        self.lines.append(f"{name} = op.zeros(({sizes}), {v.dtype})")
        if kind == "rows":
            index = self.numbers.permutation(n).astype(np.int32)
            self.parameters[f"at{name}"] = f"i32[{n}]", index
            self.lines.append(f"{name}[at{name}{rest}] = {v.text}")
            array[index] = v.array
        else:
            last = first + by * n
            said = f"{first}:{last}" + (f":{by}" if by > 1 else "")
            self.lines.append(f"{name}[{said}{rest}] = {v.text}")
            array[first:last:by] = v.array
            if not self.kept and by == 1 and r.random() < 0.4:
                self.lines.append(f"{name}[{said}{rest}] += {v.text}")
                array[first:last] += v.array
        return Value(name, array, v.dtype)


# --- runs ------------------------------------------------------------------------------------


def program(seed: int) -> Program:
    return Maker(seed).program()


def differs(found: Array, right: Array) -> bool:
    """Whether bits differ; a NaN is any NaN."""
    if found.shape != right.shape or found.dtype != right.dtype:
        return True
    a, b = np.ascontiguousarray(found), np.ascontiguousarray(right)
    if a.dtype.kind not in "iub":
        wide, other = a.astype(np.float64), b.astype(np.float64)
        nans = np.isnan(wide) & np.isnan(other)
        return not (nans | ((wide == other) & (np.signbit(wide) == np.signbit(other)))).all()
    return not np.array_equal(a, b)


def _first(found: Array, right: Array) -> str:
    if found.shape != right.shape or found.dtype != right.dtype:
        return f"gives {found.dtype} {found.shape}, not {right.dtype} {right.shape}"
    for at in np.ndindex(right.shape):
        if differs(found[at], right[at]):
            return f"gives {found[at]} at {at}, not {right[at]}"
    return ""


def tried(seed: int, target: str = "cpu") -> tuple[str, str]:
    """What became of a program ("right", "wrong", "refused" by which codes, or "ours"), and what
    is to be said of it. A refusal in the user's words is no fault of the compiler."""
    made = program(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = tessera.compile(made.source, target=target)
            found = on_device.call(module.f, made.arguments, target)
    except tessera.TesseraError as error:
        codes = ",".join(sorted({d.code for d in error.diagnostics}))
        ours = any(d.code.startswith("T09") for d in error.diagnostics)
        return ("ours" if ours else f"refused {codes}"), f"{made.source}{error}"
    results = found if isinstance(found, tuple) else (found,)
    for a, b in zip(results, made.right, strict=True):
        a = np.asarray(a.numpy() if hasattr(a, "numpy") else a)
        # The language does not say which zero a sum of zeros is.
        if differs(a, b) and (made.kept or differs(a + a.dtype.type(0), b + b.dtype.type(0))):
            return "wrong", f"{made.source}{_first(a, b)}"
    return "right", ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after them")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--as", default="", dest="arch")
    parser.add_argument("--refused", action="store_true", help="print what was refused, too")
    given = parser.parse_args()
    os.environ["TESSERA_ARCH_AS"] = given.arch
    counts: Counter[str] = Counter()
    end = time.monotonic() + given.seconds
    for seed in range(given.first, given.first + given.count):
        if time.monotonic() > end:
            break
        try:
            what, said = tried(seed, given.target)
        except Exception as error:
            what, said = "failed", f"{program(seed).source}{type(error).__name__}: {error}"
        counts[what] += 1
        if what in ("wrong", "ours", "failed") or (given.refused and what != "right"):
            print(f"seed {seed}, {what}: {said}", flush=True)
    print(dict(counts.most_common()))
    return int(any(counts[x] for x in ("wrong", "ours", "failed")))


if __name__ == "__main__":
    sys.exit(main())
