"""Arrays and shared buffers, and what was done to which part of them.

Owns boxes, the record of accesses of one array or buffer, and the look for two that meet.
Whether something orders them is asked of ``happens_before.py``. Must not know operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from tessera_backend.cpu.interpreter.element_arithmetic import Array, garbage, strided
from tessera_backend.cpu.interpreter.happens_before import AccessRecord, Interval, meet
from tessera_lang.record import dataclass, field

Box = tuple[Interval, ...]
Frame = tuple[int, ...]
"""Strides of the array in which the numbers of a box count, 0 along an axis of one element."""


def box_of(starts: Sequence[int], extents: Sequence[int], steps: Sequence[int] = ()) -> Box:
    """``extents`` elements along each axis from ``starts``."""
    by = steps or (1,) * len(starts)
    return tuple(
        (s, s + (n - 1) * k + 1 if n > 0 else s, k)
        for s, n, k in zip(starts, extents, by, strict=True)
    )


def common(a: Box, b: Box) -> Box | None:
    """What two boxes share, as if both had every element between their ends."""
    out: list[Interval] = []
    for (a_low, a_high, a_step), (b_low, b_high, b_step) in zip(a, b, strict=True):
        low = a_low if a_low > b_low else b_low  # every access is asked with all before it
        high = a_high if a_high < b_high else b_high
        if low >= high or (a_step == b_step and (a_low - b_low) % a_step):
            return None
        out.append((low, high, max(a_step, b_step)))
    return tuple(out)


def covers(a: Box, b: Box) -> bool:
    """Whether ``a`` has all that ``b`` has."""
    for (a_low, a_high, a_step), (b_low, b_high, b_step) in zip(a, b, strict=True):
        if a_low > b_low or a_high < b_high:
            return False
        if a_step != 1 and (a_step != b_step or (a_low - b_low) % a_step):
            return False
    return True


@dataclass(slots=True, eq=False)
class History:
    """The accesses of one array or buffer that later ones may meet."""

    reads: list[AccessRecord] = field(default_factory=list[AccessRecord])
    writes: list[AccessRecord] = field(default_factory=list[AccessRecord])

    def add(self, access: AccessRecord) -> None:
        """Note an access. Raises AsynchronousFault where it meets one that nothing orders."""
        if any(high <= low for low, high, _ in access.box):
            return
        self.look(access)
        mine = self.writes if access.kind == "write" else self.reads
        if access.kind == "write":
            self.reads[:] = _kept(self.reads, access, every=True)
        mine[:] = _kept(mine, access, every=access.kind == "write")
        mine.append(access)

    def look(self, access: AccessRecord) -> None:
        """Raise where an access meets an earlier one that nothing orders."""
        earlier: Iterable[AccessRecord] = self.writes
        if access.kind == "write":
            earlier = (*self.writes, *self.reads)
        for old in earlier:
            if old.frame != access.frame:  # seen in other shapes: any of it may be met
                meet(old, access, None)
            elif (shared := common(old.box, access.box)) is not None:
                meet(old, access, shared)

    def look_at_all(self, access: AccessRecord) -> None:
        """The same where every part is met: another buffer's bytes are taken."""
        for old in (*self.writes, *self.reads):
            meet(old, access, None)

    def forget(self) -> None:
        self.reads.clear()
        self.writes.clear()


def _kept(accesses: list[AccessRecord], new: AccessRecord, *, every: bool) -> list[AccessRecord]:
    """Those that a later access may still meet behind ``new``."""
    return [
        a for a in accesses
        if a.frame != new.frame or not covers(new.box, a.box)
        or not (every or a.is_like(new))
    ]  # fmt: skip


@dataclass(slots=True, eq=False)
class Memory:
    """An array or a buffer; views of an array share its history. ``place``: its bytes in the
    shared memory of the group; ``history`` is None where nobody can write it."""

    data: Array
    history: History | None = field(default_factory=History)
    place: tuple[int, int] = (0, 0)
    name: str = ""
    space: Literal["global", "shared"] = "global"

    @property
    def frame(self) -> Frame:
        shape, strides = self.data.shape, self.data.strides
        return tuple(s if n > 1 else 0 for n, s in zip(shape, strides, strict=True))

    def view(self, sizes: Sequence[int], strides: Sequence[int]) -> Memory:
        steps = [s * self.data.itemsize for s in strides]
        seen = strided(self.data, sizes, steps)
        return Memory(seen, self.history, name=self.name)

    def overlaps(self, other: Memory) -> bool:
        """Whether two buffers share bytes of the group's shared memory."""
        return self.place[0] < other.place[1] and other.place[0] < self.place[1]

    def poison(self, place: Any = ...) -> None:
        self.data[place] = garbage(self.data.dtype)
