"""Code for a GPU on the CPU: its argument blocks, its faults, and what a run of it says.

Must not know arguments, nor what the machine looks at.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from math import prod

from tessera_backend.cpu.interpreter.faults import AsynchronousFault, shown
from tessera_backend.cpu.interpreter.serialized_kernel import AsynchronousKernel, Finding
from tessera_backend.runtime.arrays import HOST
from tessera_backend.runtime.bound_arguments import Bound
from tessera_backend.runtime.call_diagnostics import diagnostic, error, source_of
from tessera_backend.runtime.faults import WORDS, fault_diagnostic
from tessera_backend.runtime.loaded_code import Block, Frame
from tessera_lang.diagnostics.diagnostic import Diagnostic, Label
from tessera_lang.record import replace
from tessera_lang.target.backend import Artifact
from tessera_lang.target.launch_plan import LaunchPlan

SCOPE = (
    "looked at: every access of a group and its cluster to shared memory, and those of a group to "
    "the arrays it writes, for these arguments; completions come as late as they may",
    "not looked at: warps of a warp group apart from each other, groups of different clusters in "
    "global memory, the code that ptxas makes",
)
_OTHERS = "lane kernels, and tile kernels that become loops of lanes, run as on any CPU"

_launches: Counter[str] = Counter()
"""How often each kernel was run as Tile IR in this process."""


class AsynchronousCode:
    """A kernel as Tile IR for a GPU; a launch returns when it has run."""

    then: tuple[LaunchPlan, ...] = ()
    offsets: tuple[int, ...] = (0,)

    def __init__(self, artifact: Artifact) -> None:
        self.plan = artifact.plan
        self.device = HOST
        self.flags = self.quiet = None
        self.arch = artifact.options.arch_as
        try:
            self._kernel = AsynchronousKernel(artifact)
        except (ValueError, KeyError, TypeError) as fault:
            raise error(diagnostic(
                "T0849", f"the code of `{artifact.plan.kernel}` cannot be loaded: {fault}",
                helps=("`tesserac cache clear` empties the cache",),
            )) from fault  # fmt: skip

    @property
    def words(self) -> int:
        return max(1, len(self.plan.slots))

    def frame(self, bound: Bound, block: Block | None = None) -> Frame:
        values = (ctypes.c_int64 * self.words)() if block is None else block
        for at, value in enumerate(bound.slots.values):
            values[at] = value
        groups = prod(bound.axes)
        arrays = {**bound.slots.arrays, **bound.slots.maps}
        spaces = dict(s for s in (bound.memory.workspace, bound.memory.scratch) if s is not None)

        def fire(_: int) -> None:
            _launches[self.plan.kernel] += 1
            try:
                reports = self._kernel.launch(list(values), groups, arrays, spaces)
            except AsynchronousFault as fault:
                raise error(self._shown(self._kernel.finding(fault))) from fault
            if reports:
                raise error(fault_diagnostic(self.plan, [*reports[0], *[0] * (WORDS - 6)]))

        return values, fire

    def launches(self, bound: Bound, block: Block) -> None:
        """There is no machine code."""

    def report(self) -> None:
        """Faults are raised by the launch that has them."""

    def _shown(self, found: Finding) -> Diagnostic:
        operations = [o for o in (found.operation, found.other) if o is not None]
        notes = [f"the operation: {shown(o)}" for o in operations[:1]]
        notes += [f"and before it: {shown(o)}" for o in operations[1:]]
        labels: tuple[Label, ...] = ()
        other = found.other_span
        if other is not None and source_of(other.file) is not None:
            labels = (Label(other, "the other operation is of this"),)
        made = diagnostic(
            "T0904", f"`{self.plan.kernel}` as {self.arch}: {found.message}",
            notes=(*notes, *SCOPE),
        )  # fmt: skip
        span = found.span
        known = span is not None and source_of(span.file) is not None
        return replace(made, span=span if known else None, labels=labels)


def asynchronous_report(arch: str) -> tuple[str, ...]:
    """What a run as ``arch`` has looked at, and what not."""
    if not _launches:
        return (f"as {arch}: no kernel ran as Tile IR", _OTHERS)
    kernels = ", ".join(f"`{name}` {count}x" for name, count in sorted(_launches.items()))
    return (f"as {arch}: {kernels} ran as Tile IR, without a fault of the asynchronous model",
            *SCOPE, _OTHERS)  # fmt: skip
