"""Compiled code on the CPU: its argument blocks, and faults raised at once.

Needs no LLVM. Must not know arguments.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from tessera_backend.cpu.elf import ElfError
from tessera_backend.cpu.features import baseline, missing
from tessera_backend.cpu.host_cpu import host_machine
from tessera_backend.cpu.interrupts import STOP
from tessera_backend.cpu.thread_pool import CpuKernel
from tessera_backend.runtime.arrays import HOST
from tessera_backend.runtime.bound_arguments import Bound
from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.caller_errors import show_to_caller
from tessera_backend.runtime.faults import WORDS, fault_diagnostic
from tessera_backend.runtime.loaded_code import Block, Frame
from tessera_backend.runtime.native_calls import MOST_BYTES, Counter, Launch, aligned_memory
from tessera_backend.runtime.printing import printing
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.target.backend import Artifact
from tessera_lang.target.launch_plan import PRINT_WORDS, LaunchPlan

C_PROTOTYPE = """\
/* Called by each thread of a launch. `slots`: the arguments above, 8 bytes each; `counter`: a
 * word that all threads share, 0 at first; `total`: number of groups, `gx`, `gy`, `gz` along
 * each axis (1 where there is none); `chunk`: groups taken at a time; `scratch`: {scratch} bytes
 * of the thread's own at a multiple of 64. */
void {entry}(const int64_t *slots, int64_t *counter, int64_t total, int64_t gx, int64_t gy,
             int64_t gz, int64_t chunk, void *scratch);"""


class HostCode:
    """A kernel in this process's memory; a launch returns when it has run. ``own_words``: of a
    block, between its slots and its fault record, that the code takes."""

    own_words = 0
    then: tuple[LaunchPlan, ...] = ()
    offsets: tuple[int, ...] = (0,)

    def __init__(self, artifact: Artifact) -> None:
        self.plan = artifact.plan
        self.device = HOST
        self.flags = self.quiet = None
        self._count = len(artifact.plan.slots) + self.own_words
        lacking = missing(host_machine(), artifact.needs)
        if lacking:
            raise error(diagnostic(
                "T0849", f"the code of `{artifact.plan.kernel}` is for {artifact.options.arch} and "
                f"needs {', '.join(lacking)}, which this processor lacks",
                helps=(f"compile it for this processor: {baseline()}",),
            ))  # fmt: skip
        try:
            self.load(artifact)
        except (ElfError, OSError, ValueError, KeyError, TypeError) as fault:
            raise error(diagnostic(
                "T0849", f"the code of `{artifact.plan.kernel}` cannot be loaded: {fault}",
                helps=("`tesserac cache clear` empties the cache; it is compiled again then",),
            )) from fault  # fmt: skip

    def load(self, artifact: Artifact) -> None:
        self._kernel = CpuKernel(artifact)

    def prepare(self, block: ctypes.Array[ctypes.c_int64], bound: Bound) -> Callable[[], None]:
        """What runs all groups on the values of a block, again and again."""
        return self._kernel.prepare(block, bound.axes)

    @property
    def words(self) -> int:
        # Behind the slots stands the fault record of the launches that use a block.
        return self._count + WORDS

    def frame(self, bound: Bound, block: Block | None = None) -> Frame:
        count, plan = self._count, self.plan
        block = (ctypes.c_int64 * self.words)() if block is None else block
        workspace = self._fill(block, bound)
        run = self.prepare(block, bound)

        def fire(_: int, keep: Any = workspace) -> None:
            run()
            if block[count]:
                words = block[count : count + WORDS]
                block[count : count + WORDS] = [0] * WORDS
                raise error(fault_diagnostic(plan, words))

        if bound.slots.print < 0:
            return block, fire
        words = (ctypes.c_int64 * PRINT_WORDS)()
        block[bound.slots.print] = ctypes.addressof(words)
        return block, printing(plan, memoryview(words).cast("B").cast("q"), fire, _no_wait)

    def _fill(self, block: Block, bound: Bound) -> Any:
        """What the layout decides; the memory that the block shows to."""
        for at, value in enumerate(bound.slots.values):
            block[at] = value
        if bound.slots.fault >= 0:
            block[bound.slots.fault] = ctypes.addressof(block) + 8 * self._count
        if bound.memory.workspace is None:
            return None
        slot, size = bound.memory.workspace
        workspace, block[slot] = aligned_memory(size)
        return workspace

    def launches(self, bound: Bound, block: Block) -> list[Launch] | None:
        """For machine code that launches itself; None where a launch prints, is no plain call, or
        needs much memory."""
        if bound.slots.print >= 0 or type(self) is not HostCode:
            return None
        if (bound.memory.workspace or (0, 0))[1] + self._kernel.scratch_bytes > MOST_BYTES:
            return None
        kernel, workspace, counter = self._kernel, self._fill(block, bound), Counter()
        scratch, begin = aligned_memory(kernel.scratch_bytes)
        x, y, z = (*bound.axes, 1, 1)[:3]
        start = ctypes.addressof(block)

        def complain() -> None:
            words = block[self._count : self._count + WORDS]
            block[self._count : self._count + WORDS] = [0] * WORDS
            if counter.word.value >= STOP:
                raise KeyboardInterrupt
            try:
                raise error(fault_diagnostic(self.plan, words))
            except TesseraError as failure:
                show_to_caller(failure)
                raise

        return [Launch(
            self._kernel.address, start, counter.address, (x, y, z), begin,
            start + 8 * self._count, ctypes.addressof(kernel.group_time), complain,
            keep=(block, workspace, scratch, counter, self),
        )]  # fmt: skip

    def report(self) -> None:
        """Faults are raised by the launch that has them."""


def _no_wait() -> None:
    """A launch on the CPU has ended when it returns."""
