"""T0890 to T0893: the CPU target."""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code("T0890", "cpu-not-lowered", "The CPU target cannot execute an operation of the kernel."),
    Code("T0891", "unknown-cpu", "`--arch` names no CPU that code can be made for."),
    Code("T0893", "cpu-divergent-barrier", "Not every lane of a group gets to a barrier."),
)

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
