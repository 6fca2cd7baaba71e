"""Checked code in memory and its launches: the shadows, the orders, the record.

Must not know arguments, nor how a fault is shown.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Mapping, Sequence

import numpy as np

from tessera_backend.cpu.checked import shadow_words as w
from tessera_backend.cpu.checked.code import Facts, decode
from tessera_backend.cpu.checked.fault_records import CheckedFault
from tessera_backend.cpu.checked.lane_orders import Array, Order, group_order, lane_rows
from tessera_backend.cpu.checked.shadow_elision import OF_A_LANE, Root
from tessera_backend.cpu.interpreter.element_arithmetic import garbage
from tessera_backend.cpu.interpreter.serialized_kernel import ArrayLayout, array_at
from tessera_backend.cpu.thread_count import thread_count
from tessera_backend.cpu.thread_pool import CpuKernel
from tessera_lang.locks import free_lock
from tessera_lang.record import dataclass, replace
from tessera_lang.source import Span
from tessera_lang.target.backend import Artifact

Block = ctypes.Array[ctypes.c_int64]
MOST_WAITS = 1 << 20
"""Turns of a loop that waits for an atomic after which it is taken for endless."""
MOST_TURNS = 1 << 34
"""The same of any other loop."""


class _Shadows:
    """Memory for the shadows of one launch after the other, and the time of the process."""

    def __init__(self) -> None:
        self.lock = free_lock()
        self.now = w.TICK
        self._memory = np.zeros(0, np.int64)

    def take(self, words: int) -> int:
        """The address of so many words, which are of the past."""
        if len(self._memory) < words:
            self._memory = np.zeros(words + words // 2, np.int64)
        return int(self._memory.ctypes.data)


_shadows = _Shadows()


@dataclass(slots=True)
class _Extent:
    """The elements of an array: how far they lie before and behind its first one."""

    low: int
    high: int

    @property
    def cells(self) -> int:
        return self.high - self.low + 1


class CheckedKernel:
    """Raises ValueError, KeyError, TypeError or ElfError where the artifact is none."""

    def __init__(self, artifact: Artifact) -> None:
        self.plan = artifact.plan
        self.facts, code = decode(artifact.code)
        self._kernel = CpuKernel(replace(artifact, code=code))

    def launch(
        self, block: Block, axes: tuple[int, ...],
        layouts: Mapping[int, ArrayLayout], order: Order, seed: int,
    ) -> None:  # fmt: skip
        """Run all groups; the word behind the slots is ours. Raises CheckedFault."""
        groups = int(np.prod(axes))
        if groups <= 0:
            return
        with _shadows.lock:
            _Launch(self, block, axes, groups, layouts, order, seed).run()

    def run(self, blocks: Sequence[Block], axes: tuple[int, ...]) -> None:
        """By as many threads as there are blocks."""
        self._kernel.run_each(blocks, axes)

    def poison(
        self, block: Block, layouts: Mapping[int, ArrayLayout]
    ) -> None:  # fmt: skip
        """Results hold what nobody would write, before the first launch of a call."""
        if self.plan.launches_before:
            return
        for at, slot in enumerate(self.plan.slots):
            number = slot.parameter - len(self.plan.parameters)
            if slot.kind == "data" and 0 <= number < len(self.plan.results) and at in layouts:
                made = array_at(block[at], layouts[at])
                made[...] = 0 if self.plan.results[number].zeroed else garbage(made.dtype)


class _Launch:
    """One run in one order; the lock of the shadows is held."""

    def __init__(
        self, kernel: CheckedKernel, block: Block, axes: tuple[int, ...],
        groups: int, layouts: Mapping[int, ArrayLayout], order: Order, seed: int,
    ) -> None:  # fmt: skip
        self.kernel, self.block, self.axes, self.layouts = kernel, block, axes, layouts
        facts = kernel.facts
        self.rows = lane_rows(order, facts.lanes, seed)
        self.groups = group_order(order, groups, seed, waits=facts.waits)
        self.starts = np.zeros(groups, np.int64)
        self.released = np.zeros(groups, np.int64)
        self.orders: list[Array] = []  # of the lanes of each thread: last release, last acquire
        self.extents = [self._extent(r) for r in facts.roots]
        self.threads = min(thread_count(), groups) if _are_apart(facts) else 1

    def _extent(self, root: Root) -> _Extent:
        if root.local:
            return _Extent(0, max(1, int(np.prod(root.shape))) - 1)
        layout = self.layouts[root.argument]
        if 0 in layout.shape:
            return _Extent(0, 0)
        moves = [(n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True)]
        return _Extent(sum(min(0, m) for m in moves), sum(max(0, m) for m in moves))

    def run(self) -> None:
        cells = [x.cells for r, x in self._shadowed() for _ in r.kinds]
        first, threads = _shadows.take(sum(cells) * self.threads), range(self.threads)
        contexts: list[Block] = []
        for words in (self._words(first + 8 * t * sum(cells)) for t in threads):
            contexts.append((ctypes.c_int64 * len(words))(*words))
        at = len(self.kernel.plan.slots)
        blocks = [type(self.block).from_buffer_copy(self.block) for _ in contexts]
        for block, context in zip(blocks, contexts, strict=True):
            block[at] = ctypes.addressof(context)
        self.kernel.run(blocks, self.axes)
        _shadows.now = max(c[w.NOW] for c in contexts) + 2 * w.TICK
        records = [c[w.RECORD : w.RECORD + 5] for c in contexts if c[w.STOP]]
        if records:
            raise self._fault(min(records, key=lambda r: r[4]))

    def _shadowed(self) -> list[tuple[Root, _Extent]]:
        return list(zip(self.kernel.facts.roots, self.extents, strict=True))

    def _words(self, at: int) -> list[int]:
        """The words of a thread whose shadows begin at an address."""
        words = [0] * w.SHADOWS
        words[w.NOW] = words[w.LAUNCH] = _shadows.now
        words[w.ROWS], words[w.ROW_COUNT] = self.rows.ctypes.data, len(self.rows)
        words[w.GROUPS] = self.groups.ctypes.data
        words[w.STARTS], words[w.RELEASED] = self.starts.ctypes.data, self.released.ctypes.data
        lanes = self.kernel.facts.lanes
        self.orders.append(np.zeros(2 * lanes + 1, np.int64))
        first = int(self.orders[-1].ctypes.data) + 8  # before the lanes: the last release of any
        words[w.LANES_RELEASED], words[w.LANES_ACQUIRED] = first, first + 8 * lanes
        words[w.TURNS], words[w.WAITS] = MOST_TURNS, MOST_WAITS
        for root, extent in self._shadowed():
            for _ in root.kinds:
                words.append(at - 8 * extent.low)
                at += 8 * extent.cells
        return words

    # --- the record ---------------------------------------------------------------------------

    def _fault(self, record: Sequence[int]) -> CheckedFault:
        what, mine, old, cell, position = record
        case, number = what & ((1 << w.ROOT_SHIFT) - 1), what >> w.ROOT_SHIFT
        span, group = self._span(mine), int(self.groups[position])
        who = _who(mine, group)
        match case:
            case w.OVERFLOW:
                return CheckedFault(f"an index leaves {cell} bits", span, None, (f"in {who}",))
            case w.ENDLESS:
                return CheckedFault(
                    "a loop does not end: lanes are still in it after "
                    f"{MOST_WAITS} turns", span, None,
                    ("a lane waits for its whole group at barriers only; in a loop it waits for "
                     "lanes and groups before its own",), endless=True,
                )  # fmt: skip
            case w.MISMATCH:
                return CheckedFault(
                    f"{cell} of {self.kernel.facts.lanes} lanes of group {group} get to the "
                    "barrier", span, None, (f"lane {w.lane_of(mine)} does not",),
                )  # fmt: skip
            case _:
                return self._access(case, number, mine, old, cell, position)

    def _access(
        self, case: int, number: int, mine: int, old: int, cell: int, position: int
    ) -> CheckedFault:
        span = self._span(mine)
        who, place = _who(mine, int(self.groups[position])), self._place(number, cell)
        if case == w.UNWRITTEN:
            return CheckedFault(f"{who} reads {place}, which nobody has written", span)
        earlier = bisect_right(self.starts[: position + 1], old) - 1
        other, other_span = _who(old, int(self.groups[earlier])), self._span(old)
        if case == w.SCOPE:
            return CheckedFault(
                f"an atomic of the group's scope meets one of another group on {place}", span,
                other_span, (f"{who} and {other} update it", 'write `scope="device"`'),
            )  # fmt: skip
        does, was = _SENTENCES[case]
        same = earlier == position
        missing = "no barrier stands between them" if same else (
            "nothing orders different groups but atomics with `release` and `acquire`"
        )  # fmt: skip
        return CheckedFault(
            f"a race: {who} {does} {place}, which {was} {other}", span, other_span, (missing,)
        )

    def _span(self, word: int) -> Span | None:
        places, number = self.kernel.facts.places, w.operation_of(word)
        return places[number] if number < len(places) else None

    def _place(self, number: int, cell: int) -> str:
        root = self.kernel.facts.roots[number]
        if root.local:
            index = np.unravel_index(cell, root.shape) if root.shape else ()
            index = index[:-1] if root.argument == OF_A_LANE else index
        else:
            index = _index(self.layouts[root.argument], cell)
        return f"{root.name}[{', '.join(str(int(i)) for i in index)}]"


def _are_apart(facts: Facts) -> bool:
    """Whether nothing that is looked at belongs to more than one group."""
    return not facts.waits and all(root.local for root in facts.roots)


_SENTENCES = {
    w.READ_WRITTEN: ("reads", "was written by"), w.WRITE_WRITTEN: ("writes", "was written by"),
    w.WRITE_READ: ("writes", "was read by"),
    w.READ_UPDATED: ("reads", "was updated by an atomic of"),
    w.WRITE_UPDATED: ("writes", "was updated by an atomic of"),
    w.UPDATE_WRITTEN: ("updates", "was written by"), w.UPDATE_READ: ("updates", "was read by"),
}  # fmt: skip


def _who(word: int, group: int) -> str:
    lane = w.lane_of(word)
    return f"lane {lane} of group {group}" if lane != w.MANY else f"several lanes of group {group}"


def _index(layout: ArrayLayout, cell: int) -> tuple[int, ...]:
    """The indices of the element that lies so far behind the first one."""
    index, rest = [0] * len(layout.shape), cell
    for n, stride in zip(layout.shape, layout.strides, strict=True):
        rest -= min(0, (n - 1) * stride)
    for axis in sorted(range(len(index)), key=lambda a: -abs(layout.strides[a])):
        n, stride = layout.shape[axis], layout.strides[axis]
        steps = min(n - 1, rest // abs(stride)) if stride else 0
        rest -= steps * abs(stride)
        index[axis] = steps if stride >= 0 else n - 1 - steps
    return tuple(index)
