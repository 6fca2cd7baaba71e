"""T0740 .. T0799: what a schedule makes of a machine (``opt.schedule``, ``lower``)."""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code("T0740", "shared-memory-of-schedule", "A schedule needs more shared memory than it has."),
    Code("T0741", "registers-of-schedule", "A schedule needs more registers than a lane has."),
    Code("T0742", "directive-not-honoured", "A directive of the schedule cannot be honoured."),
    Code("T0743", "copy-chosen", "Why a tile is not moved by the best copy of the machine."),
    Code("T0744", "unit-chosen", "Why a product is not done by the best unit of the machine."),
    Code("T0745", "not-specialised", "Why a kernel is not split into roles."),
    Code("T0747", "not-lowered-to-tiles", "Why a kernel has no form with tiles in registers."),
    Code("T0750", "one-group", "A kernel runs in one group, though its loops take long."),
    Code("T0749", "contraction-split", "Whether a contraction is split over groups."),
    Code("T0748", "dependent-products", "Whether products that depend on each other overlap."),
)  # fmt: skip

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
