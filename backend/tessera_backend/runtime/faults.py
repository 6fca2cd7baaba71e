"""Faults that kernels report: where they are written and how they become errors.

Each kernel of a device has a record of its own in one block of pinned memory, so that the
record says which kernel it was; a look at all of them is one comparison. Must not know
arguments.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from typing import Any

from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_lang.diagnostics.diagnostic import Diagnostic, TesseraError
from tessera_lang.locks import free_lock
from tessera_lang.target.launch_plan import FaultSite, LaunchPlan

WORDS = 8
"""64-bit words of a record: site + 1 (0 = free), axis, index, bound, group, lane, two unused."""
_RECORDS = 16


class FaultSlot:
    """One kernel's record: its address, and the flags of all records beside it."""

    __slots__ = ("address", "block", "flags", "quiet")

    def __init__(self, block: _Block, index: int) -> None:
        self.block = block
        self.address = block.pointer + 8 * WORDS * index
        self.flags = block.flags
        self.quiet = block.quiet


class _Block:
    """Records of some kernels in memory that a device writes and we read."""

    def __init__(self, pointer: int, words: memoryview) -> None:
        self.pointer = pointer
        self.words = words
        self.plans: list[LaunchPlan] = []
        self.flags = words[::WORDS]
        self.quiet = memoryview(bytes(8 * _RECORDS)).cast("q")


class Faults:
    """The records of one device."""

    def __init__(self, allocate: Callable[[int], Any], settle: Callable[[], None]) -> None:
        self._allocate = allocate
        self._settle = settle
        self._blocks: list[_Block] = []
        self._kept: list[Any] = []
        self._lock = free_lock()

    def slot(self, plan: LaunchPlan) -> FaultSlot:
        """A record for a kernel, for the life of the process: code in flight may write it."""
        with self._lock:
            if not self._blocks or len(self._blocks[-1].plans) == _RECORDS:
                memory = self._allocate(8 * WORDS * _RECORDS)
                self._kept.append(memory)
                self._blocks.append(_Block(memory.pointer, memory.view().cast("q")))
            block = self._blocks[-1]
            block.plans.append(plan)
            return FaultSlot(block, len(block.plans) - 1)

    def take(self) -> list[Diagnostic]:
        """The faults reported so far; their records are free again.

        Waits for the device where there is one: a lane claims a record before it writes the other
        words, and lanes that fault behind a look would claim a freed record once more.
        """
        if all(block.flags == block.quiet for block in self._blocks):
            return []
        self._settle()
        found: list[Diagnostic] = []
        with self._lock:
            for block in self._blocks:
                if block.flags == block.quiet:
                    continue
                for index, plan in enumerate(block.plans):
                    words = block.words[index * WORDS : (index + 1) * WORDS]
                    if words[0]:
                        found.append(fault_diagnostic(plan, words.tolist()))
                        # The claim goes last: a lane of another stream that sees it free may write.
                        for at in range(WORDS - 1, -1, -1):
                            words[at] = 0
        return found

    def report(self) -> None:
        """Raise what was reported, once. Does nothing where nothing was."""
        found = self.take()
        if found:
            raise error(*found)


_devices: dict[int, Faults] = {}
_devices_lock = free_lock()


def cuda_faults(ordinal: int) -> Faults:
    """The records of a CUDA device, made on first use."""
    with _devices_lock:
        if ordinal not in _devices:
            from tessera_backend.device.driver import device
            from tessera_backend.device.memory import PinnedMemory

            target = device(ordinal)
            if not _devices:
                atexit.register(_at_exit)
            _devices[ordinal] = Faults(lambda size: PinnedMemory(target, size), target.synchronize)
        return _devices[ordinal]


def report_all() -> None:
    """Raise the faults that every device has reported so far."""
    found = [d for ordinal in sorted(_devices) for d in _devices[ordinal].take()]
    if found:
        raise error(*found)


def synchronize_all() -> None:
    """Wait for every device that has run a kernel, and raise what was reported."""
    from tessera_backend.device.driver import device

    for ordinal in sorted(_devices):
        device(ordinal).synchronize()
    report_all()


def _at_exit() -> None:
    """Wait for the devices and show faults that nothing after them would have shown."""
    import sys

    from tessera_backend.device.driver import device

    for ordinal in sorted(_devices):
        try:
            device(ordinal).synchronize()
            _devices[ordinal].report()
        except TesseraError as failure:
            print(failure, file=sys.stderr)


# --- words to sentences --------------------------------------------------------------------

DONE = {
    "read": "reads outside of `{what}`; the read gave 0",
    "write": "writes outside of `{what}`; the write was skipped",
    "atomic": "updates an element outside of `{what}`; it was skipped",
    "division": "divides by zero ({what}); the result was 0",
    "step": "has a `range` with a step of 0 ({what}); the loop did not run",
    "assert": "fails an assertion: {what}",
}
"""What became of it, by the kind of its site."""


def _outside(axis: int, index: int, bound: int) -> str:
    """``bound`` below 0: a condition on the places of a slice was false, and names none."""
    if bound < 0:
        return "a place in the brackets is outside of its axis"
    if bound == 0:
        return f"index {index} along axis {axis}, which has no element"
    return f"index {index} along axis {axis}, where 0 to {bound - 1} are inside"


def fault_diagnostic(plan: LaunchPlan, words: Sequence[int]) -> Diagnostic:
    """The diagnostic of one record."""
    state, axis, index, bound, group, lane = words[:6]
    number = state - 1
    where = f"in group {group}, lane {lane}"
    if not 0 <= number < len(plan.sites):
        return diagnostic("T0845", f"`{plan.kernel}` reported a fault {where}")
    site: FaultSite = plan.sites[number]
    notes = [where]
    if site.kind in ("read", "write", "atomic"):
        notes.insert(0, _outside(axis, index, bound))
    return diagnostic(
        "T0845", f"`{plan.kernel}` " + DONE[site.kind].format(what=site.what),
        (site.file, site.line, site.column), notes=tuple(notes),
    )  # fmt: skip
