"""T04, part: lanes that meet in memory."""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code(
        "T0410",
        "shared-memory-race",
        "Two lanes touch one element between two barriers, and one of them writes.",
    ),
    Code("T0411", "unwritten-shared-memory", "A lane reads shared memory that nobody wrote."),
    Code(
        "T0412",
        "shared-memory-not-proved",
        "What lanes do in shared memory is neither proved nor refuted.",
    ),
    Code("T0413", "same-value-written", "Several lanes write one value to one element."),
    Code(
        "T0414",
        "array-race",
        "Two lanes touch one element of an array in any order, and one of them writes.",
    ),
    Code(
        "T0415",
        "wait-for-later-lanes",
        "A lane waits in a loop for what only later lanes or groups do.",
    ),
    Code(
        "T0416",
        "checked-in-launches",
        "Lanes do not meet in small launches that were run; other sizes are not proved.",
    ),
)

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
