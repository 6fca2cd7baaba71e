"""The shadow of an element and the words of a launch: how code and its caller see them.

A touch is a word: the time, the number of the operation and the lane. Times of all launches of a
process only grow, so that words of an earlier launch need not be cleared. Of an element are kept,
each only where the kernel needs it, the last write, the last read and the last atomic; where
several lanes read or updated it between the same barriers the lane is ``MANY``. Must not know
LLVM, nor how a fault is shown.
"""

from __future__ import annotations

from typing import Literal

LANE_BITS = 11
LANE_MASK = (1 << LANE_BITS) - 1
MANY = LANE_MASK
"""Instead of a lane: several of the group."""
NARROW = 1 << LANE_BITS
"""Beside the lane of an atomic: one of them had the scope of the group."""
OPERATION_SHIFT = 12
MOST_OPERATIONS = 1 << 12
"""Numbers of operations; the last stands for all that found none."""
TIME_SHIFT = OPERATION_SHIFT + 12
TICK = 1 << TIME_SHIFT

Kind = Literal["write", "read", "atomic"]
KINDS: tuple[Kind, ...] = ("write", "read", "atomic")

# Words of a launch, 8 bytes each.
NOW, BARRIER, BEGIN, LAUNCH = 0, 1, 2, 3
"""The time; that of the last barrier and of the begin of the running group, and of the launch."""
STOP, MAY_BE_A_RACE = 4, 2
"""Not 0: a fault is found; 2: a read of what nobody wrote so far, which somebody may write yet."""
ACQUIRED = 5  # not 0: the group has acquired what groups before it released
POSITION = 6  # how many groups ran before
ROW, ROWS, ROW_COUNT = 7, 8, 9  # the order of lanes until the next barrier; all orders
GROUPS = 10  # address of the number of the group at each position
STARTS, RELEASED = 11, 12  # addresses: by position, times of the begin and of the last release
TURNS, WAITS = 13, 14  # most turns of a `while`, and of one that waits for an atomic
LANES_RELEASED, LANES_ACQUIRED = 15, 22  # addresses: by lane, times of the last of each
RECORD = 16  # case and root, touch, earlier touch, element, position, a number
SHADOWS = 24  # addresses of the shadows, in the order of the roots and of their kinds
ROOT_SHIFT = 8

# Cases of a record.
(READ_WRITTEN, WRITE_WRITTEN, WRITE_READ, READ_UPDATED, WRITE_UPDATED, UPDATE_WRITTEN, UPDATE_READ,
 UNWRITTEN, SCOPE, OVERFLOW, ENDLESS, MISMATCH) = range(1, 13)  # fmt: skip


def lane_of(word: int) -> int:
    return word & LANE_MASK


def operation_of(word: int) -> int:
    return word >> OPERATION_SHIFT & (MOST_OPERATIONS - 1)
