"""T0700 .. T0739: tile kernels as loops over tiles, and what may run at the same time."""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code("T0700", "not-in-tile-kernels", "A construct that tile kernels do not have yet."),
    Code(
        "T0701",
        "read-elsewhere-while-written",
        "An array is stored into and read at other places in one statement.",
    ),
    Code(
        "T0702",
        "written-before-use",
        "An array is written before a value that is made of it is computed.",
    ),
    Code("T0704", "sum-rounded-twice", "A sum into an array cannot be kept unrounded over a loop."),
    Code("T0705", "loops-in-order", "Several loops of a kernel run in order, in one group."),
    Code("T0706", "axis-in-order", "An axis of tiles is not proved to be independent."),
)

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
