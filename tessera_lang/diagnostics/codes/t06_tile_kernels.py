"""T06: tile kernels (``sema.tile``)."""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code(
        "T0601", "extents-differ",
        "Two extents that must be equal are not, or cannot be proved to be.",
    ),
    Code(
        "T0603", "capacities-differ",
        "Two tiles that meet have room for different numbers of elements.",
    ),
    Code(
        "T0604", "ranks-differ",
        "Tiles of different ranks meet, or a tile has the wrong number of axes.",
    ),
    Code("T0605", "slice-start", "A slice may start or stop below 0."),
    Code("T0606", "bad-step", "A step or a promise of a loop or slice is not as it must be."),
    Code(
        "T0607", "not-here",
        "A function of lanes is called in a tile kernel, or a statement stands as a value.",
    ),
    Code("T0608", "tile-shape", "The shape of a tile is not known when the kernel is compiled."),
    Code("T0609", "not-a-buffer", "A value is stored into, or a buffer gets a second name."),
    Code("T0610", "bad-directive", "There is no such directive, or it does not take this value."),
    Code("T0611", "directive-place", "A directive stands where it says nothing."),
    Code("T0612", "directive-twice", "A directive is said twice."),
    Code(
        "T0613", "bad-result",
        "What a tile kernel returns has no shape that the caller can compute.",
    ),
    Code("T0614", "tile-axes", "`schedule.tile` says more sizes than the kernel has axes."),
    Code("T0615", "never-used", "A value is computed and never used."),
    Code("T0620", "no-product", "There is no product of these dtypes."),
    Code("T0621", "read-while-summed", "An array is read or written while it is summed into."),
    Code("T0622", "no-accumulation", "An operator cannot accumulate over a loop."),
    Code("T0623", "reduced-axis", "A reduction lines up with the axis that it took away."),
    Code(
        "T0624", "places-below-0",
        "A tile kernel takes or stores elements at computed places below 0 (a warning).",
    ),
    Code("T0650", "size-needed", "A size that fixes the shape of a tile is not known."),
)  # fmt: skip

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
