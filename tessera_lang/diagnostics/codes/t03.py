"""T03: shapes, sizes and the geometry of kernels (``sema``)."""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code("T0301", "index-count", "An array is indexed with the wrong number of indices."),
    Code("T0302", "index-outside", "A constant index is outside a constant size."),
    Code("T0303", "bad-size", "An expression cannot stand as a size."),
    Code("T0304", "bad-group", "The group or grid of a kernel is missing or outside the limits."),
    Code("T0305", "bad-budget", "The budget of shared memory is no size in bytes."),
    Code("T0306", "sizes-differ", "Sizes that must be equal are not, or are not known to be."),
    Code("T0307", "wrong-rank", "An array has the wrong number of axes."),
    Code("T0308", "grid-twice", "The grid of a kernel is said twice."),
    Code("T0309", "shared-shape", "The shape of shared memory is not known at compile time."),
    Code(
        "T0310", "bare-buffer-room",
        "A bare shared buffer has no budget or no room, or there are two.",
    ),
    Code("T0311", "bad-axis", "An axis is not known at compile time or does not exist."),
    Code("T0312", "unbound-size", "A size is used in arithmetic and never bound by a shape."),
    Code("T0313", "bad-condition", "A `where` condition is of nothing that a launch knows."),
    Code("T0314", "bad-registers", "The number of registers of a lane is outside the limits."),
    Code("T0315", "own-array-room", "The arrays of a lane take more memory than it has."),
    Code("T0316", "kernel-too-large", "The functions that a kernel calls make too much code."),
    Code("T0317", "warps-alike", "All warps of a group store the same (a warning)."),
)  # fmt: skip

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
