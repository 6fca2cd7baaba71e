"""T0130 to T0139: finding and importing files (the driver)."""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code("T0130", "module-not-found", "An import names a module that is not there."),
    Code("T0131", "import-cycle", "Files import each other in a circle."),
    Code("T0132", "import-outside-roots", "An import leads out of the folders it may use."),
)

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
