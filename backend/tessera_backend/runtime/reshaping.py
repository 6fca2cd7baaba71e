"""Shapes of arrays that already lie somewhere. Must not know memory or launches."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tessera_backend.runtime.dlpack import row_major


def reshaped(
    shape: Sequence[int], strides: Sequence[int], wanted: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The strides with which the same elements, in the same order, have another shape of as many;
    None where only a copy can have it."""
    if not math.prod(wanted):
        return row_major(wanted)
    blocks = _without_gaps(shape, strides)
    found: list[int] = []
    size, step = blocks.pop()
    for n in reversed(wanted):
        while size == 1 and blocks and n != 1:
            size, step = blocks.pop()
        if size % n:
            return None
        found.append(step)
        size, step = size // n, step * n
    return tuple(reversed(found))


def _without_gaps(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Axes that are one, joined: how many elements, and how far apart they lie."""
    joined: list[tuple[int, int]] = [(1, 1)]
    for n, stride in zip(shape, strides, strict=True):
        if n == 1:
            continue
        size, step = joined[-1]
        if step == n * stride:
            joined[-1] = (size * n, stride)
        else:
            joined.append((n, stride))
    return joined
