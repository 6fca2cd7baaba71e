"""Convolutions of a spread input as others of the input as it is: no zero between its elements is
multiplied, or stored.

Along an axis with ``spread`` c, the results at places z, z + c, z + 2c, ... meet every c-th place
of the weights (or none) and neighbours of the input: for each z they are a convolution of their
own.
Owns this rewrite. Must not know how convolutions are computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

from tessera_lang.ir.core import Attribute, Operation, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.convolutions import turned
from tessera_lang.ir.graph.rules import integer, integers

Attributes = Mapping[str, Attribute]


def without_spread(
    b: GraphBuilder, o: Operation, operands: Sequence[Value]
) -> Value | None:  # fmt: skip
    """What stands for a convolution; None where nothing is spread."""
    x, w = operands
    spread, stride = (integers(o.attributes, n) for n in ("spread", "stride"))
    if all(c == 1 for c in spread):
        return None
    of_weights = o.name == "graph.conv_weights"
    stepped = [of_weights and max(stride) > 1 or s > 1 for s in stride]
    x = _with_zeros(b, x, [c if s else 1 for c, s in zip(spread, stepped, strict=True)])
    left = tuple(1 if s else c for c, s in zip(spread, stepped, strict=True))
    attributes = {**o.attributes, "spread": left}
    if of_weights and max(left) > 1:
        return _exchanged(b, x, w, attributes)
    if of_weights:
        return b.op("conv_weights", x, w, **attributes)
    return _in_phases(b, x, w, attributes)


def _with_zeros(b: GraphBuilder, x: Value, spread: Sequence[int]) -> Value:
    """The input with zeros between its elements."""
    shape = cast("tuple[int, ...]", x.tensor_type.shape)
    for axis, c in enumerate(spread, 2):
        if c > 1:
            apart = b.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
            rank = len(shape) + 1
            after = tuple(c - 1 if i == axis + 1 else 0 for i in range(rank))
            apart = b.op("pad", apart, before=(0,) * rank, after=after, value=0.0)
            shape = (*shape[:axis], shape[axis] * c, *shape[axis + 1 :])
            x = b.reshape(apart, shape)
    return x


def _exchanged(b: GraphBuilder, x: Value, y: Value, a: Attributes) -> Value:
    """The gradient by the weights of a transposed convolution: that of the convolution, with the
    two operands exchanged."""
    places, groups = tuple(map(int, cast("tuple[str, ...]", a["size"]))), integer(a, "groups")
    dilation = integers(a, "dilation")
    before = tuple(
        d * (k - 1) - p for d, k, p in zip(dilation, places, integers(a, "before"), strict=True)
    )
    found = b.op("conv_weights", y, x, **{**a, "before": before, "stride": a["spread"],
                                          "spread": a["stride"]})  # fmt: skip
    return turned(b, found, groups)


def _in_phases(b: GraphBuilder, x: Value, w: Value, a: Attributes) -> Value:
    spread = integers(a, "spread")
    at = next((i for i, c in enumerate(spread) if c > 1), None)
    if at is None:
        return b.op("conv", x, w, **a)
    c = spread[at]
    size = int(cast("tuple[str, ...]", a["size"])[at])
    count = -(-size // c)
    parts = [_phase(b, x, w, a, at, z, count) for z in range(c)]
    axis = at + 2
    shape = cast("tuple[int, ...]", parts[0].tensor_type.shape)
    lines = [b.reshape(p, (*shape[: axis + 1], 1, *shape[axis + 1 :])) for p in parts]
    joined = b.op("concat", *lines, axis=axis + 1)
    whole = (*shape[:axis], count * c, *shape[axis + 1 :])
    found = b.reshape(joined, whole)
    stops = tuple(size if i == axis else n for i, n in enumerate(whole))
    if stops == whole:
        return found
    ones = (1,) * len(whole)
    return b.op("slice", found, starts=(0,) * len(whole), stops=stops, steps=ones)


def _phase(
    b: GraphBuilder, x: Value, w: Value, a: Attributes, at: int, z: int, count: int
) -> Value:  # fmt: skip
    """The results at places z, z + c, ... along the axis ``at``."""
    c, d, p = (integers(a, n)[at] for n in ("spread", "dilation", "before"))
    axis, sizes = at + 2, cast("tuple[int, ...]", w.tensor_type.shape)
    step = c // math.gcd(c, d)
    first = next((k for k in range(min(step, sizes[axis])) if (z + k * d - p) % c == 0), None)
    size = tuple(str(count) if i == at else n
                 for i, n in enumerate(cast("tuple[str, ...]", a["size"])))  # fmt: skip
    if first is None:
        front = (x.tensor_type.shape[0], w.tensor_type.shape[0])
        return b.full((*front, *map(int, size)), x.tensor_type.dtype, 0.0)
    whole = range(len(sizes))
    part = b.op(
        "slice", w, starts=tuple(first if i == axis else 0 for i in whole), stops=sizes,
        steps=tuple(step if i == axis else 1 for i in whole),
    )  # fmt: skip
    own = {
        **a, "size": size, "dilation": _with(a, "dilation", at, d * step // c),
        "before": _with(a, "before", at, -((z + first * d - p) // c)),
        "spread": _with(a, "spread", at, 1),
    }  # fmt: skip
    return _in_phases(b, x, part, own)


def _with(a: Attributes, name: str, at: int, value: int) -> tuple[int, ...]:
    return tuple(value if i == at else n for i, n in enumerate(integers(a, name)))
