"""Products by multiply-adds of lanes: how warps and lanes share an accumulator.

Owns the layout. Both operands are read from buffers. Must not know who fills them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.analysis.resources.register_layouts import canonical
from tessera_lang.ir.core import Operation
from tessera_lang.ir.layout import Mode, RegisterLayout
from tessera_lang.lower.schedule_to_tile.common.dot_layouts import Product
from tessera_lang.lower.schedule_to_tile.common.errors import NotTiled
from tessera_lang.opt.schedule.query.warp_grids import FMA_COLUMNS, fma_lanes
from tessera_lang.record import replace
from tessera_lang.target.arch.isa_constants import WARP


def by_multiply_adds(dot: Operation, warps: int, apart: bool = False) -> Product:
    """A product of which each lane holds some neighbours, as the schedule shares it; ``apart``:
    lanes read lines of the second factor along the contraction, which neighbours hold then."""
    t = dot.result.tile_type
    across = fma_lanes(t.sizes[1])
    rows, columns = warp_grid(dot)
    copies = warps // (rows * columns)

    def accumulator(shape: tuple[int, ...]) -> RegisterLayout:
        return with_copies(multiply_add_layout(shape, rows, columns, across, apart), copies)

    wide = FMA_COLUMNS * across
    return Product("fma", (WARP // across * rows, wide * columns, 4), accumulator)


def warp_grid(dot: Operation) -> tuple[int, int]:
    """How many warps share the rows, and the columns, of a product."""
    said = dot.integers("warp_grid")
    if len(said) != 2:
        raise NotTiled("the schedule does not say how warps share a product", dot.span)
    return said[0], said[1]


def multiply_add_layout(
    shape: Sequence[int], rows: int, columns: int, across: int, apart: bool = False
) -> RegisterLayout:
    """An accumulator for multiply-adds: four neighbours a lane, ``across`` lanes along a row; where
    columns lie ``apart``, neighbours are of neighbouring lanes. Of lines that are swizzled by
    their number, so many one after the other lie in banks of their own, every fourth do not."""
    m, n, down = shape[0] // rows, shape[1] // columns, 32 // across
    wide = 4 * across
    registers = (Mode(4, 1, 1), Mode(n // wide, 1, wide), Mode(m // down, 0, down))
    lanes = (Mode(across, 1, 4), Mode(down, 0, 1))
    if apart:
        registers = (Mode(n // across, 1, across), registers[-1])
        lanes = (Mode(across, 1, 1), Mode(down, 0, 1))
    return canonical(RegisterLayout(registers, lanes, (Mode(rows, 0, m), Mode(columns, 1, n))))


def with_copies(layout: RegisterLayout, copies: int) -> RegisterLayout:
    """The layout for so many times as many warps, which hold the same."""
    return canonical(replace(layout, warps=(*layout.warps, Mode(copies, None))))
