"""T04: memory and barriers, and what lane kernels do not have yet."""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code(
        "T0401",
        "divergent-barrier",
        "A barrier stands where some lanes of the group may be missing.",
    ),
    Code("T0402", "index-always-outside", "An index is outside its array whenever it is used."),
    Code(
        "T0403",
        "divergent-warp-operation",
        "A warp operation stands where some lanes of the group may be missing.",
    ),
    Code("T0490", "not-in-lane-kernels", "A construct that lane kernels do not have yet."),
)

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
