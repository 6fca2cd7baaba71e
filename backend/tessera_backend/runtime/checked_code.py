"""Code of checked mode: its argument blocks, its findings, and what a run of it says.

Must not know arguments, nor how accesses are looked at.
"""

from __future__ import annotations

import ctypes
from collections import Counter

from tessera_backend.cpu.checked.faults import CheckedFault, NotChecked
from tessera_backend.cpu.checked.kernel import CheckedKernel
from tessera_backend.runtime.arrays import HOST
from tessera_backend.runtime.binding import Bound
from tessera_backend.runtime.code import Frame
from tessera_backend.runtime.faults import WORDS, fault_diagnostic
from tessera_backend.runtime.printing import Line, line_text, show_lines
from tessera_backend.runtime.report import diagnostic, error, source_of
from tessera_lang.diagnostics.diagnostic import Diagnostic, Label
from tessera_lang.record import replace
from tessera_lang.target.backend import Artifact

_launches: Counter[str] = Counter()
"""How often each kernel was run in checked mode in this process."""
_LOOKED_AT = (
    "looked at, for these arguments: races in shared and global memory, shared memory read before "
    "it is written, barriers, scopes of atomics, indices of 64 bits, loops without an end",
    "not looked at: other arguments, the order in which atomics come, kernels that become products "
    "or tiles of the CPU",
)


class CheckedCode:
    """A kernel as Tile IR; a launch returns when it has run."""

    def __init__(self, artifact: Artifact) -> None:
        self.plan = artifact.plan
        self.device = HOST
        self.flags = self.quiet = None
        try:
            self._kernel = CheckedKernel(artifact)
        except (ValueError, KeyError, TypeError) as fault:
            raise error(diagnostic(
                "T0849", f"the code of `{artifact.plan.kernel}` cannot be loaded: {fault}",
                helps=("`tesserac cache clear` empties the cache",),
            )) from fault  # fmt: skip

    def frame(self, bound: Bound) -> Frame:
        block = (ctypes.c_int64 * max(1, len(self.plan.slots)))(*bound.values)
        arrays = {**bound.arrays, **bound.maps}
        spaces = dict(s for s in (bound.workspace, bound.scratch) if s is not None)
        lines: list[Line] = []

        def printed(number: int, group: int, lane: int, words: list[int]) -> None:
            lines.append((group, lane, line_text(self.plan.prints[number], words)))

        def fire(_: int) -> None:
            _launches[self.plan.kernel] += 1
            try:
                reports = self._kernel.check(list(block), bound.axes, arrays, spaces, printed)
            except CheckedFault as fault:
                raise error(self._shown(fault)) from fault
            except NotChecked as fault:
                raise error(diagnostic(
                    "T0853", f"checked mode cannot run `{self.plan.kernel}`: {fault}"
                )) from fault  # fmt: skip
            finally:
                show_lines(lines)
                lines.clear()
            if reports:
                raise error(fault_diagnostic(self.plan, [*reports[0], *[0] * (WORDS - 6)]))

        return block, fire

    def report(self) -> None:
        """Faults are raised by the launch that has them."""

    def _shown(self, fault: CheckedFault) -> Diagnostic:
        found = self._kernel.places(fault.operation, fault.other)
        span, other = (
            s if s is not None and source_of(s.file) is not None else None for s in found
        )
        labels = (Label(other, "the other access"),) if other is not None else ()
        made = diagnostic("T0853", f"`{self.plan.kernel}`: {fault.message}", notes=fault.details)
        return replace(made, span=span, labels=labels)


def checked_report() -> tuple[str, ...]:
    """What a checked run has looked at, and what not."""
    if not _launches:
        return ("checked: no kernel ran in checked mode",)
    kernels = ", ".join(f"`{name}` {count}x" for name, count in sorted(_launches.items()))
    return (f"checked: {kernels}", *_LOOKED_AT)
