"""The rules of the operations on register tiles and of copies, together.

Owns what ``kernel.py`` adds to a lane's rules. Must not know any rule.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_backend.llvm.emitter import Rule
from tessera_backend.nvptx.tiles import (
    async_copies,
    async_gathers,
    dot,
    elementwise,
    global_memory,
    reciprocal_division,
    reductions,
    scans,
    shared_memory,
)


def rules(of_a_lane: Mapping[str, Rule]) -> dict[str, Rule]:
    """``of_a_lane``: the rules of scalars, which element-wise work on tiles repeats."""
    on_tiles = elementwise.with_tiles(of_a_lane)
    return {
        **on_tiles,
        "tile.div": reciprocal_division.by_rows(on_tiles["tile.div"]),
        **elementwise.RULES,
        **reductions.RULES,
        **scans.RULES,
        **global_memory.RULES,
        **shared_memory.RULES,
        **dot.RULES,
        **async_copies.RULES,
        **async_gathers.RULES,
    }
