"""Who touched which element, and whether something orders two touches.

Of each element are kept the last write, and the least and the greatest lane among the reads and
among the atomics since; that is enough to know whether any lane but one was among them. Times are
counted; a barrier of a group, a release and an acquire note theirs. Two touches of one group are
ordered by a barrier between them, two of different groups by a release of the first group that
comes before an acquire of the second. Must not know how lanes step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tessera_backend.cpu.checked.faults import CheckedFault
from tessera_lang.ir.core import Operation
from tessera_lang.record import dataclass

Array = np.ndarray[Any, np.dtype[Any]]
_MOST = np.iinfo(np.int64).max


class Clock:
    """Times of a launch, by group."""

    def __init__(self, groups: int) -> None:
        self.now = 1
        self.barrier = np.zeros(groups, np.int64)
        self.released = np.full(groups, -1, np.int64)
        self.acquired = np.full(groups, -1, np.int64)

    def meet(self, groups: Array) -> None:
        self.now += 1
        self.barrier[groups] = self.now

    def release(self, groups: Array) -> None:
        self.released[groups] = self.now
        self.now += 1

    def acquire(self, groups: Array) -> None:
        self.now += 1
        self.acquired[groups] = self.now


@dataclass(slots=True)
class Touch:
    """Lanes of the launch that touch cells by one operation at one time."""

    operation: Operation
    cells: Array
    lanes: Array


class _Crowd:
    """Lanes that touched each cell in a way that needs no order among them."""

    def __init__(self, cells: int) -> None:
        self._cells = cells
        self.empty = True

    def _begin(self) -> None:
        cells, self.empty = self._cells, False
        self.time = np.zeros(cells, np.int64)
        self.least = np.full(cells, _MOST)
        self.greatest = np.full(cells, -1, np.int64)
        self.operation = np.full(cells, -1, np.int32)

    def join(self, t: Touch, clock: Clock, width: int, number: int) -> None:
        """Those of one group that a barrier has put behind it are forgotten first."""
        if self.empty:
            self._begin()
        group = t.lanes // width
        low, high = self.least[t.cells] // width, self.greatest[t.cells] // width
        old = (low == group) & (high == group) & (self.time[t.cells] < clock.barrier[group])
        forgotten = t.cells[old]
        self.least[forgotten], self.greatest[forgotten] = _MOST, -1
        np.minimum.at(self.least, t.cells, t.lanes)
        np.maximum.at(self.greatest, t.cells, t.lanes)
        self.time[t.cells], self.operation[t.cells] = clock.now, number


class Shadow:
    """The shadow of one memory of ``cells`` elements. ``width``: lanes of a group; ``local``: an
    element belongs to one group, and nobody has written it at first."""

    def __init__(self, name: str, cells: int, width: int, local: bool) -> None:
        self.name = name
        self.width = width
        self.time = np.zeros(cells, np.int64)
        self.lane = np.full(cells, -1, np.int64)
        self.operation = np.full(cells, -1, np.int32)
        self.written = np.zeros(cells, np.bool_) if local else None
        self.reads = _Crowd(cells)
        self.atomics = _Crowd(cells)
        self.narrow = np.zeros(cells, np.bool_)  # an atomic of the group's scope was here
        self._operations: list[Operation] = []
        self._numbers: dict[Operation, int] = {}

    def read(self, t: Touch, clock: Clock) -> None:
        if self.written is not None:
            self._unwritten(t)
        self._against_write(t, clock, "reads")
        self._against(self.atomics, t, clock, "reads", "was updated by an atomic of")
        self.reads.join(t, clock, self.width, self._number(t.operation))

    def write(self, t: Touch, clock: Clock, same: Array) -> None:
        """``same``: where the cell holds already what is written, which does no harm."""
        rest = Touch(t.operation, t.cells[~same], t.lanes[~same])
        self._against_write(rest, clock, "writes")
        self._against(self.reads, rest, clock, "writes", "was read by")
        self._against(self.atomics, t, clock, "writes", "was updated by an atomic of")
        self.time[t.cells], self.lane[t.cells] = clock.now, t.lanes
        self.operation[t.cells] = self._number(t.operation)
        if self.written is not None:
            self.written[t.cells] = True

    def collide(self, t: Touch, differs: Array) -> None:
        """Lanes of one operation that wrote one cell with different values."""
        winners = self.lane[t.cells]
        wrong = (winners != t.lanes) & differs
        if wrong.any():
            at = int(np.argmax(wrong))
            self._fail(t, at, "writes", "is written by", int(winners[at]), t.operation)

    def atomic(self, t: Touch, clock: Clock, narrow: bool) -> None:
        if self.written is not None:
            self._unwritten(t)
        self._against_write(t, clock, "updates")
        self._against(self.reads, t, clock, "updates", "was read by")
        group, crowd = t.lanes // self.width, self.atomics
        self.atomics.join(t, clock, self.width, self._number(t.operation))
        low, high = crowd.least[t.cells], crowd.greatest[t.cells]
        other = np.where(low // self.width != group, low, high)
        if narrow:
            self.narrow[t.cells] = True
        wrong = self.narrow[t.cells] & (other // self.width != group)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise CheckedFault(
                f"an atomic of the group's scope meets one of another group on {self.cell(t, at)}",
                t.operation, None,
                (f"{self._who(t.lanes[at])} and {self._who(other[at])} update it",
                 'write `scope="device"`'),
            )  # fmt: skip

    # --- order ---------------------------------------------------------------------------------

    def _unwritten(self, t: Touch) -> None:
        assert self.written is not None
        wrong = ~self.written[t.cells]
        if wrong.any():
            at = int(np.argmax(wrong))
            raise CheckedFault(
                f"{self._who(t.lanes[at])} reads {self.cell(t, at)}, which nobody has written",
                t.operation,
            )

    def _against_write(self, t: Touch, clock: Clock, does: str) -> None:
        before, lane = self.time[t.cells], self.lane[t.cells]
        wrong = (lane >= 0) & (lane != t.lanes) & self._unordered(before, lane, t, clock)
        if wrong.any():
            at = int(np.argmax(wrong))
            by = self._operations[self.operation[t.cells[at]]]
            self._fail(t, at, does, "was written by", int(lane[at]), by)

    def _against(self, crowd: _Crowd, t: Touch, clock: Clock, does: str, was: str) -> None:
        if crowd.empty:
            return
        before = crowd.time[t.cells]
        for others in (crowd.least[t.cells], crowd.greatest[t.cells]):
            some = (others >= 0) & (others < _MOST)
            wrong = some & (others != t.lanes)
            if not wrong.any():
                continue
            wrong &= self._unordered(before, np.where(some, others, 0), t, clock)
            if wrong.any():
                at = int(np.argmax(wrong))
                by = self._operations[crowd.operation[t.cells[at]]]
                self._fail(t, at, does, was, int(others[at]), by)

    def _unordered(self, before: Array, lanes: Array, t: Touch, clock: Clock) -> Array:
        """Whether nothing stands between touches of ``lanes`` and those of ``t``."""
        mine, theirs = t.lanes // self.width, lanes // self.width
        released = clock.released[theirs]
        passed = (before <= released) & (released < clock.acquired[mine])
        return np.where(mine == theirs, before >= clock.barrier[mine], ~passed)

    # --- words ---------------------------------------------------------------------------------

    def _number(self, operation: Operation) -> int:
        number = self._numbers.get(operation)
        if number is None:
            number = self._numbers[operation] = len(self._operations)
            self._operations.append(operation)
        return number

    def _who(self, lane: Any) -> str:
        return f"lane {int(lane) % self.width} of group {int(lane) // self.width}"

    def cell(self, t: Touch, at: int) -> str:
        raise NotImplementedError

    def _fail(self, t: Touch, at: int, does: str, was: str, other: int, by: Operation) -> None:
        same = other // self.width == int(t.lanes[at]) // self.width
        missing = "no barrier stands between them" if same else (
            "nothing orders different groups but atomics with `release` and `acquire`"
        )  # fmt: skip
        raise CheckedFault(
            f"a race: {self._who(t.lanes[at])} {does} {self.cell(t, at)}, which {was} "
            f"{self._who(other)}", t.operation, by, (missing,),
        )  # fmt: skip


class ArrayShadow(Shadow):
    """Of an array or buffer of a shape; of buffers one for each group that steps with others."""

    def __init__(self, name: str, shape: tuple[int, ...], width: int, copies: int = 0) -> None:
        self.shape = shape
        self.cells = int(np.prod(shape))
        super().__init__(name, max(1, self.cells * max(1, copies)), width, copies > 0)

    def cell(self, t: Touch, at: int) -> str:
        cell = int(t.cells[at]) % max(1, self.cells)
        place = ", ".join(str(int(i)) for i in np.unravel_index(cell, self.shape))
        return f"{self.name}[{place}]"
