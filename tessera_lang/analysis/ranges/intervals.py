"""Interval arithmetic with the meaning of Tile's integer operations.

Each function gives bounds of the mathematical result; the caller widens to the whole type
where these do not fit, because then the operation may wrap. Must not know the IR.
"""

from __future__ import annotations

from tessera_lang.analysis.ranges.linear import Interval
from tessera_lang.types.dtype import DType, integer_range


def fits(dtype: DType, interval: Interval) -> bool:
    low, high = integer_range(dtype)
    return low <= interval[0] and interval[1] <= high


def multiply(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def floor_divide(a: Interval, b: Interval) -> Interval:
    """With ``x // 0 == 0``."""
    if b[0] >= 1 or b[1] <= -1:
        corners = [x // y for x in a for y in b]
        return min(corners), max(corners)
    most = max(abs(a[0]), abs(a[1]))
    return (0 if a[0] >= 0 and b[0] >= 0 else -most), most


def modulo(a: Interval, b: Interval) -> Interval:
    """The sign of the divisor, as in Python; with ``x % 0 == 0``."""
    low, high = min(b[0] + 1, 0), max(b[1] - 1, 0)
    if b[0] >= 1 and a[0] >= 0:
        high = min(high, a[1])
    return low, high


def bit_and(a: Interval, b: Interval) -> Interval | None:
    """None where nothing better than the type is known."""
    if a[0] >= 0 and b[0] >= 0:
        return 0, min(a[1], b[1])
    if a[0] >= 0 or b[0] >= 0:
        return 0, a[1] if a[0] >= 0 else b[1]
    return None


def bit_or(a: Interval, b: Interval) -> Interval | None:
    """Also for exclusive or."""
    if a[0] < 0 or b[0] < 0:
        return None
    return 0, (1 << max(a[1].bit_length(), b[1].bit_length())) - 1


def shift_left(a: Interval, count: Interval, bits: int) -> Interval | None:
    if count[0] < 0 or count[1] >= bits:
        return None
    return multiply(a, (1 << count[0], 1 << count[1]))


def shift_right(a: Interval, count: Interval, bits: int) -> Interval:
    """A negative count, or one of ``bits`` or more, gives 0 or -1."""
    low, high = (0, bits) if count[0] < 0 else (min(count[0], bits), min(count[1], bits))
    corners = [x >> c for x in a for c in (low, high)]
    return min(corners), max(corners)


def absolute(a: Interval) -> Interval:
    if a[0] >= 0:
        return a
    return (0 if a[1] >= 0 else -a[1]), max(-a[0], a[1])
