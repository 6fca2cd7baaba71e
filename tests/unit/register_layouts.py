"""For tests: layouts of register tiles, by counting."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tessera_lang.analysis.resources.register_layouts import WARP
from tessera_lang.ir.layout import RegisterLayout


def is_bijection(layout: RegisterLayout, shape: Sequence[int]) -> bool:
    """Whether every element is held, and apart from copies held once."""
    rank = len(shape)
    free = 1
    for modes in (layout.registers, layout.lanes, layout.warps):
        free *= prod(m.extent for m in modes if m.axis is not None)
    seen = {
        layout.coordinates(r, lane, warp, rank)
        for r in range(layout.register_count)
        for lane in range(WARP)
        for warp in range(layout.warp_count)
    }
    inside = all(c < n for at in seen for c, n in zip(at, shape, strict=True))
    return inside and len(seen) == free == prod(shape)
