"""What is in memory while the kernels of a graph run one after the other.

Owns how long a value is there, in bytes. Must not know how kernels are chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.graph.regions import FOR, WHILE
from tessera_lang.lower.graph_to_kernels.clusters import GraphKernel
from tessera_lang.lower.graph_to_kernels.indexing_maps import sizes_of

_SHOWN = 6
"""Values that are named where there is not enough memory."""


def arrays(kernel: GraphKernel) -> tuple[Value, ...]:
    """The values of the graph that a kernel reads."""
    return tuple(v for v in kernel.arguments if isinstance(v, Value))


def bytes_of(value: Value) -> int:
    """What a value takes in memory."""
    return math.prod(sizes_of(value)) * max(8, value.tensor_type.dtype.bits) // 8


def values_text(values: Iterable[Value], makers: Mapping[Value, str]) -> str:
    """Values in words, the largest first. ``makers``: the operators that made them; others are
    arguments."""
    found = sorted(values, key=lambda v: -bytes_of(v))
    texts = [
        f"{v.tensor_type} of {f'`{makers[v]}`' if v in makers else 'an argument'}"
        f" ({bytes_of(v) / 1e6:.3g} MB)" for v in found[:_SHOWN]
    ]  # fmt: skip
    rest = f", and {len(found) - len(texts)} more" if len(found) > len(texts) else ""
    return f"{', '.join(texts)}{rest}"


def _bytes(values: Iterable[Value]) -> int:
    return sum(map(bytes_of, set(values)))


def peak_of(function: Operation, kernels: Sequence[GraphKernel]) -> int:
    """The most bytes that values of a call have at a time, but for its arguments: a result from
    the kernel on that gives it, others up to the last kernel that needs them."""
    (body,) = function.regions
    results = set(body.terminator.operands)
    last = {v: n for n, k in enumerate(kernels) for v in arrays(k) if v not in results}
    alive, peak = set[Value](), 0
    for number, kernel in enumerate(kernels):
        alive.update(kernel.results)
        peak = max(peak, _bytes(alive) + beside(kernel))
        alive = {v for v in alive if v in results or last.get(v, -1) > number}
    return peak


def beside(kernel: GraphKernel) -> int:
    """Bytes that a kernel needs beside what it takes and gives: those of regions, where what a loop
    carries is there before and behind a step."""
    inside = max((peak_of(r.function, r.kernels) for r in kernel.regions), default=0)
    return inside if kernel.operator in (WHILE, FOR) else max(0, inside - _bytes(kernel.results))
