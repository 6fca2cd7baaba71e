"""T0760 .. T0779: graphs of plain functions, and their gradients (``lower.ast_to_graph``)."""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code("T0760", "not-in-graphs", "A construct that graphs of plain functions do not have."),
    Code("T0761", "no-gradient", "A gradient that there is not."),
    Code("T0762", "memory-budget", "A memory budget that no order of kernels keeps."),
    Code("T0763", "gives-nan", "NaN where `--check-nan` looks for the first one."),
)

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
