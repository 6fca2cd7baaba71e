"""Where the memory that no caller sees lies: one block a call, filled with zeros in few goes.

A call of a plain function runs its steps one after the other, so what one step needs may lie
where an earlier step's memory was. Must not know steps, devices or arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.record import dataclass

ALIGNMENT = 256
_TOGETHER = 8 << 20
"""Zeros written at once, long before some are read, should still be in the cache then."""


@dataclass(frozen=True, slots=True)
class Need:
    """Memory in use from step ``born`` to step ``last``; ``zeroed`` before step ``born``."""

    base: int
    size: int
    zeroed: bool
    born: int
    last: int


@dataclass(frozen=True, slots=True)
class Arena:
    """``offsets`` by base; ``fills`` are (step, offset, bytes): zeros before that step."""

    size: int
    offsets: dict[int, int]
    fills: tuple[tuple[int, int, int], ...]


def arena_of(needs: Sequence[Need]) -> Arena:
    """A place for each need, so that no two in use at the same step overlap."""
    blocks = [*_zeroed(needs), *([n] for n in needs if not n.zeroed)]
    blocks.sort(key=lambda block: block[0].born)
    taken: list[tuple[int, int, int, int]] = []
    offsets: dict[int, int] = {}
    fills: list[tuple[int, int, int]] = []
    for block in blocks:
        born, last = block[0].born, max(n.last for n in block)
        size = sum(_padded(n.size) for n in block)
        start = _lowest(taken, size, born, last)
        taken.append((start, start + size, born, last))
        if block[0].zeroed and size:
            fills.append((born, start, size))
        for need in block:
            offsets[need.base] = start
            start += _padded(need.size)
    return Arena(max((end for _, end, _, _ in taken), default=0), offsets, tuple(fills))


def _zeroed(needs: Sequence[Need]) -> list[list[Need]]:
    """What is zeroed, in runs that are filled together before their first step."""
    runs: list[list[Need]] = []
    room = 0
    for need in sorted((n for n in needs if n.zeroed), key=lambda n: n.born):
        size = _padded(need.size)
        if not runs or size > room:
            runs.append([])
            room = _TOGETHER
        runs[-1].append(need)
        room -= size
    return runs


def _lowest(taken: Sequence[tuple[int, int, int, int]], size: int, born: int, last: int) -> int:
    """The lowest offset where ``size`` bytes are free through these steps."""
    at = 0
    for start, end, first, until in sorted(taken):
        if first <= last and born <= until and start < at + size:
            at = max(at, end)
    return at


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
