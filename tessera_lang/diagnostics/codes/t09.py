"""T09: faults of ours. None of these is the user's; each asks for a report."""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code("T0901", "pass-failed", "A pass of the compiler failed or broke a rule of the IR."),
    Code("T0902", "internal-error", "The compiler met a state that it does not expect."),
    Code("T0903", "broken-installation", "A part of the installation is missing or damaged."),
    Code("T0904", "asynchronous-fault", "Code run with `--as` breaks the asynchronous model."),
)

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
