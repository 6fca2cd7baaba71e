"""T05: resources of a group."""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code("T0501", "shared-over-budget", "Shared buffers take more than `shared(...)` allows."),
    Code("T0502", "shared-over-limit", "Shared buffers take more than the target has."),
)

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
