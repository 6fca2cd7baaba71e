"""Products by multiply-adds of lanes: how warps and lanes share an accumulator.

Owns the layout. Both operands are read from buffers. Must not know who fills them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.analysis.resources.tile_layouts import canonical
from tessera_lang.ir.layout import Mode, RegisterLayout
from tessera_lang.lower.schedule_to_tile.common.dot_layouts import Product
from tessera_lang.record import replace


def by_multiply_adds(m: int, n: int, warps: int) -> Product:
    """A product of m x n: the least work of each warp, then the least padding and traffic."""
    across = min(8, power_from(-(-n // 4)))  # lanes along a row
    down = 32 // across
    best: tuple[tuple[float, ...], int, int] | None = None
    for rows in divisors(warps):
        for columns in divisors(warps // rows):
            whole = up(m, down * rows) * up(n, 4 * across * columns)
            cost = (whole / (rows * columns), float(whole), m / rows + n / columns)
            if best is None or cost < best[0]:
                best = (cost, rows, columns)
    assert best is not None
    _, rows, columns = best
    copies = warps // (rows * columns)

    def accumulator(shape: tuple[int, ...]) -> RegisterLayout:
        return with_copies(multiply_add_layout(shape, rows, columns, across), copies)

    return Product("fma", (down * rows, 4 * across * columns, 4), accumulator)


def multiply_add_layout(
    shape: Sequence[int], rows: int, columns: int, across: int
) -> RegisterLayout:
    """An accumulator for multiply-adds: four neighbours a lane, ``across`` lanes along a row."""
    m, n, down = shape[0] // rows, shape[1] // columns, 32 // across
    wide = 4 * across
    registers = (Mode(4, 1, 1), Mode(n // wide, 1, wide), Mode(m // down, 0, down))
    lanes = (Mode(across, 1, 4), Mode(down, 0, 1))
    return canonical(RegisterLayout(registers, lanes, (Mode(rows, 0, m), Mode(columns, 1, n))))


def with_copies(layout: RegisterLayout, copies: int) -> RegisterLayout:
    """The layout for so many times as many warps, which hold the same."""
    return canonical(replace(layout, warps=(*layout.warps, Mode(copies, None))))


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def power_from(n: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(0, n - 1).bit_length()
