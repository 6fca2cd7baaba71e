"""What the machine asks of layouts: which warp group holds an element, where a box lies.

Register layouts are evaluated for all elements at once. Must not know accesses.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from tessera_backend.cpu.interpreter.element_arithmetic import Array
from tessera_lang.ir.core import BufferType
from tessera_lang.ir.layout import Mode, RegisterLayout, size_of

WARPS = 4
"""Warps of a warp group."""


@functools.lru_cache(512)
def warp_groups(layout: RegisterLayout, shape: tuple[int, ...]) -> Array:
    """For each element of a tile the warp group that holds it, -1 where several do."""
    rank = len(shape)
    registers, lanes = (_moves(m, rank) for m in (layout.registers, layout.lanes))
    warps = _moves(layout.warps, rank)
    out = np.full(shape, -2, np.int64)
    for first in range(0, len(warps), WARPS):
        part = warps[first : first + WARPS]
        places = (registers[:, None, None] + lanes[:, None] + part).reshape(-1, rank)
        at = tuple(places.T)
        before = out[at]
        out[at] = np.where(before == -2, first // WARPS, -1)
    return out


def _moves(modes: Sequence[Mode], rank: int) -> Array:
    """For each number of a register, lane or warp what it adds to each coordinate."""
    number = np.arange(size_of(modes))
    out = np.zeros((len(number), rank), np.int64)
    for mode in modes:
        number, digit = np.divmod(number, mode.extent)
        if mode.axis is not None:
            out[:, mode.axis] += digit * mode.stride
    return out


def along_major(buffer: BufferType) -> bool:
    """Whether the last axis of a buffer's matrix is the contiguous one."""
    return buffer.layout is None or buffer.layout.major == 1


def as_matrix(box: Array, buffer: BufferType) -> Array:
    """A box, whose last axis is contiguous, as the part of the buffer's matrix it becomes."""
    flat = box.reshape(-1, box.shape[-1])
    return flat if along_major(buffer) else flat.T


def as_lines(part: Array, buffer: BufferType, box: Sequence[int]) -> Array:
    """The inverse of ``as_matrix``."""
    flat = part if along_major(buffer) else part.T
    return flat.reshape(tuple(box))
