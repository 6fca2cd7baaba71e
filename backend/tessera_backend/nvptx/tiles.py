"""The rules of the operations on register tiles and of copies, together.

Owns what ``kernel.py`` adds to a lane's rules. Must not know any rule.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_backend.llvm.emitter import Rule
from tessera_backend.nvptx import (
    copies,
    dot,
    gathers,
    tile_global,
    tile_reduce,
    tile_scan,
    tile_shared,
    tile_values,
)


def rules(of_a_lane: Mapping[str, Rule]) -> dict[str, Rule]:
    """``of_a_lane``: the rules of scalars, which element-wise work on tiles repeats."""
    return {
        **tile_values.with_tiles(of_a_lane),
        **tile_values.RULES,
        **tile_reduce.RULES,
        **tile_scan.RULES,
        **tile_global.RULES,
        **tile_shared.RULES,
        **dot.RULES,
        **copies.RULES,
        **gathers.RULES,
    }
