"""Fragments of ``wgmma``: which registers of a tile go into which instruction.

Owns the queries from a register layout to blocks of the accumulator and to words of the left
operand. Must not know LLVM.
"""

from __future__ import annotations

import functools

from tessera_lang.analysis.resources.register_layouts import register_coordinates
from tessera_lang.ir.layout import RegisterLayout
from tessera_lang.record import dataclass
from tessera_lang.target.arch.isa_constants import WARP_GROUP
from tessera_lang.types.dtype import DType

_MOST_COLUMNS = 256


class NoFragment(ValueError):
    """The layout is none of ``wgmma``; the message says why."""


@dataclass(frozen=True, slots=True)
class Accumulator:
    """``columns`` of one instruction; where each block of ``columns / 2`` registers begins, and
    where each warp group begins, as (row, column)."""

    columns: int
    blocks: tuple[tuple[int, int], ...]
    groups: tuple[tuple[int, int], ...]

    @property
    def registers(self) -> int:
        """Of one block."""
        return self.columns // 2


@functools.lru_cache(maxsize=256)
def accumulator(layout: RegisterLayout) -> Accumulator:
    """The blocks of an accumulator. Raises NoFragment."""
    _check_lanes(layout, 2)
    at = register_coordinates(layout, 2)
    count = len(at)
    most = min(count, _MOST_COLUMNS // 2)
    fitting = (n for n in range(most, 3, -4) if count % n == 0 and _whole(at, n))
    block = next(fitting, 0)
    if not block:
        raise NoFragment("registers do not lie as an accumulator")
    return Accumulator(
        2 * block, tuple(_pair(at[i]) for i in range(0, count, block)), _groups(layout)
    )


def _whole(at: tuple[tuple[int, ...], ...], block: int) -> bool:
    """Whether every ``block`` registers are 64 rows by ``2 * block`` columns."""
    for number, place in enumerate(at):
        i = number % block
        row, column = at[number - i]
        if place != (row + 8 * (i >> 1 & 1), column + 8 * (i >> 2) + (i & 1)):
            return False
    return True


def _pair(at: tuple[int, ...]) -> tuple[int, int]:
    return at[0], at[1]


def _check_lanes(layout: RegisterLayout, word: int) -> None:
    """Eight rows of four lanes, each with ``word`` neighbours; four warps below each other."""
    for lane in range(32):
        if layout.coordinates(0, lane, 0, 2) != (lane >> 2, word * (lane & 3)):
            raise NoFragment("lanes do not lie as in a fragment")
    if layout.warp_count % WARP_GROUP:
        raise NoFragment("no whole warp groups hold the tile")
    for warp in range(layout.warp_count):
        row, column = layout.coordinates(0, 0, warp - warp % WARP_GROUP, 2)
        if layout.coordinates(0, 0, warp, 2) != (row + 16 * (warp % WARP_GROUP), column):
            raise NoFragment("warps do not lie as in a fragment")


def _groups(layout: RegisterLayout) -> tuple[tuple[int, int], ...]:
    return tuple(
        _pair(layout.coordinates(0, 0, warp, 2)) for warp in range(0, layout.warp_count, WARP_GROUP)
    )


@functools.lru_cache(maxsize=256)
def left_words(
    layout: RegisterLayout, dtype: DType, row: int, depth: int
) -> tuple[tuple[int, ...], ...]:
    """Registers of the left operand's words for the block of rows at ``row``.

    Four words of 32 bits an instruction, each the registers of its elements, lowest first;
    ``depth`` is the contraction. Raises NoFragment.
    """
    word = max(1, 4 // dtype.bytes)
    _check_lanes(layout, word)
    held = {at: number for number, at in reversed(list(enumerate(register_coordinates(layout, 2))))}
    out: list[tuple[int, ...]] = []
    try:
        for start in range(0, depth, 8 * word):
            for j in range(4):
                below, along = row + 8 * (j & 1), start + 4 * word * (j >> 1)
                out.append(tuple(held[below, along + i] for i in range(word)))
    except KeyError as missing:
        raise NoFragment("registers do not lie as a left operand") from missing
    return tuple(out)
