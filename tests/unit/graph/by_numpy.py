"""The text of kernels that graphs become, run by NumPy in float64: what a kernel says, whatever the
compiler makes of it. A tile at the end of an axis has the elements that there are."""

from __future__ import annotations

import itertools
import math as _math
import re
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.graph_to_kernels.clusters import NAME, GraphKernel
from tessera_lang.lower.graph_to_kernels.fusion import plan_of
from tessera_lang.target.machine import Machine
from tests.unit.graph import reference


class Tile(np.ndarray[Any, Any]):
    """An array with the methods of one of the language."""

    def to(self, dtype: Any) -> Tile:
        return _tile(self.astype(dtype.kind))


def _tile(value: Any) -> Tile:
    return np.asarray(value).view(Tile)


class _DType:
    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __call__(self, value: Any) -> Any:
        return _tile(np.asarray(value).astype(self.kind))


_DTYPES = {
    **dict.fromkeys(("f64", "f32", "f16", "bf16"), _DType(np.float64)),
    **dict.fromkeys(("i64", "i32"), _DType(np.int64)), "bool": _DType(np.bool_),
}  # fmt: skip


def _extreme(f: Any) -> Any:
    return lambda *values: f(*values) if len(values) == 2 else max(*values)


def _tile_range(*ends: int, step: Any) -> Iterator[Any]:
    steps = step if isinstance(step, tuple) else (step,) * len(ends)
    loops = [range(0, int(n), s) for n, s in zip(ends, steps, strict=True)]
    yield from (at[0] if len(at) == 1 else at for at in itertools.product(*loops))


def _softmax(a: Any, axis: int) -> Any:
    top = np.max(a, axis, keepdims=True)
    e = np.exp(a - np.where(np.isinf(top), 0.0, top))
    total = np.sum(e, axis, keepdims=True)
    return e / np.where(total == 0.0, 1.0, total)


def _scan(f: Any) -> Any:
    return lambda a, axis, exclusive, reverse: _tile(
        reference.scanned(f, a, axis, exclusive, reverse)
    )


def _ordered(f: Any) -> Any:
    return lambda a, axis, descending: _tile(reference.ordered(f, a, axis, descending))


def _of(f: Any) -> Any:
    return lambda *a, **k: _tile(f(*a, **k))


_SAME = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan",
         "sinh", "cosh", "tanh", "floor", "ceil", "trunc", "round", "abs", "where", "sum", "mean",
         "prod", "max", "min", "any", "all", "argmax", "argmin", "take_along_axis", "transpose",
         "reshape", "broadcast_to", "pad", "flip", "take", "arange")  # fmt: skip
_OTHER = {f"a{n}": f"arc{n}" for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}
_OP = SimpleNamespace(
    **{n: _of(getattr(np, n)) for n in _SAME},
    **{n: _of(getattr(np, other)) for n, other in _OTHER.items()},
    atan2=_of(np.arctan2), rsqrt=_of(lambda a: 1.0 / np.sqrt(a)), erf=_of(reference.erf),
    sigmoid=_of(lambda a: 1.0 / (1.0 + np.exp(-a))), softplus=_of(lambda a: np.logaddexp(a, 0.0)),
    gelu=_of(lambda a: 0.5 * a * (1.0 + reference.erf(a * np.sqrt(0.5)))),
    silu=_of(lambda a: a / (1.0 + np.exp(-a))), relu=_of(lambda a: np.maximum(a, 0.0)),
    full=lambda shape, value, dtype: _tile(np.full(shape, value, dtype.kind)),
    empty=lambda shape, dtype: _tile(np.full(shape, np.nan, dtype.kind)),
    softmax=_of(_softmax),
    logsumexp=lambda a, axis, keepdims=False: _tile(reference.logsumexp(a, axis, keepdims)),
    cumsum=_scan(np.cumsum), cumprod=_scan(np.cumprod),
    sort=_ordered(np.sort), argsort=_ordered(np.argsort),
    concat=_of(np.concatenate), tile_range=_tile_range,
)  # fmt: skip
_NAMES: dict[str, Any] = {
    **_DTYPES, "op": _OP, "inf": _math.inf, "max": _extreme(np.maximum), "least": min,
    "min": _extreme(np.minimum), "fast": _OP, "range": range,
    "math": SimpleNamespace(fma=lambda a, b, c: a * b + c),
}  # fmt: skip


def _text(kernel: GraphKernel) -> str:
    """As Python runs it: places and sums of rows have as many as there are."""
    text = kernel.source.replace("@op.kernel\n", "")
    text = re.sub(r"schedule\.tile\(.*\)", "pass", text)
    text = re.sub(rf"def {NAME}\(.*\):", f"def {NAME}({', '.join(_parameters(kernel))}):", text)
    loop = re.search(r"for .* in op\.tile_range\((.*), step=\(?(?:1, )*(\d+)\)?\):", text)
    if loop is not None and loop[2] != "1":
        rows = f"least({loop[2]}, {loop[1].split(', ')[-1]} - i)"
        text = text.replace(f"op.full(({loop[2]},", f"op.full(({rows},")
        text = text.replace(f"(i + op.arange({loop[2]}))", f"(i + op.arange({rows}))")
    end = re.search(r"for j in range\((.*), (\d+)\):", text)
    if end is not None:
        limit = re.search(r"n?\d+(?=\)*$)", end[1])
        assert limit is not None, end[1]
        text = text.replace(
            f"(j + op.arange({end[2]}))", f"(j + op.arange(least({end[2]}, {limit[0]} - j)))"
        )
    return text


def _parameters(kernel: GraphKernel) -> list[str]:
    return [p.strip() for p in re.findall(r"(\w+): \w+", kernel.source.split("\n")[1])]


def launched(kernel: GraphKernel, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """What a kernel returns."""
    names = dict(_NAMES)
    head = kernel.source.split("\n")[1]
    sizes = re.findall(r"\w+: \w+(\[[^\]]*\])?", head)
    for text, value in zip(sizes, arguments, strict=True):
        for name, n in zip(text.strip("[]").split(", "), np.shape(value), strict=False):
            assert names.setdefault(name, n) == n, (name, n)
    exec(compile(_text(kernel), "<kernel>", "exec"), names)
    with np.errstate(all="ignore"):
        found = names[NAME](*(_tile(v) for v in arguments))
    return found if isinstance(found, tuple) else (found,)


def run(
    function: Operation, inputs: Sequence[Any], tile: tuple[int, ...] = (),
    machine: Machine | None = None,
) -> list[Any]:  # fmt: skip
    """The results of a function of Graph IR, by its kernels."""
    (body,) = function.regions
    values: dict[Value, Any] = dict(zip(body.arguments, inputs, strict=True))
    for kernel in plan_of(function, (), tile, machine).kernels:
        given = [values[v] if isinstance(v, Value) else v for v in kernel.arguments]
        made = launched(kernel, given)
        for v, found in zip(kernel.results, made, strict=True):
            assert np.shape(found) == v.tensor_type.shape, kernel.source
            values[v] = np.asarray(found)
    return [values[v] for v in body.terminator.operands]
