"""Products whose lanes multiply and add: how their factors lie, and what fills a multiprocessor.

Owns the questions that the choice of roles and the copies of factors share. Must not decide.
"""

from __future__ import annotations

from tessera_lang.ir.core import TileType
from tessera_lang.opt.schedule.query.kernel_facts import Dot, Facts, Operand
from tessera_lang.opt.schedule.query.unit_legality import (
    consumer_groups,
    contiguous_along,
    element_bits,
)
from tessera_lang.opt.schedule.query.warp_grids import FMA_WARP_COLUMNS
from tessera_lang.target.tuned_constants import MANY_SUMS, ROLE_SUMS


def lanes_line(operand: Operand, facts: Facts) -> int:
    """The axis of a tile, loaded with its axes turned round, that lanes read vectors along to
    multiply and add: of a first factor the contraction, of a second one the columns. -1 where the
    array lies so, or the tile as the array."""
    if operand.load is None:
        return -1
    dims, rank = operand.load.operation.integers("dims"), len(operand.load.tile.shape)
    turned = operand.swapped != (dims != tuple(sorted(dims)))
    if not turned or contiguous_along(operand, -1, facts):
        return -1
    return rank - 2 if operand.swapped else rank - 1


def may_be_plain(dot: Dot) -> bool:
    """The same, however the tiles lie."""
    unit = dot.operation.attributes.get("unit")
    loads = dot.a.load is not None and dot.b.load is not None
    t = dot.operation.result.type
    even = isinstance(t, TileType) and len(t.shape) == 2 and t.sizes[1] % FMA_WARP_COLUMNS == 0
    return unit == "fma" and loads and even and element_bits(dot) == 32


def fills(dot: Dot) -> bool:
    """Whether the sums of lanes fill the registers of a multiprocessor, so that no other group
    runs beside and hides what its lanes do besides multiplying."""
    m, n, _ = (int(s) for s in dot.shape)
    return consumer_groups(m) > 1 and m * n >= ROLE_SUMS


def flow_warps(facts: Facts) -> int:
    """Warps of a group that all do the same: more for large products."""
    largest = max(int(d.shape[0]) * int(d.shape[1]) for d in facts.dots)
    return 8 if largest >= MANY_SUMS else 4
