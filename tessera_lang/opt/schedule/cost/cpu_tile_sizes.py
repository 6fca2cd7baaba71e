"""Sizes of tiles for a CPU, where the schedule leaves them open.

A product's tiles live in memory and are multiplied block by block (``tile.dot_into``): the tile of
the result and both factors together should stay in the second cache, and a panel of b as deep as
the contraction's tile in the first. Without a product a tile is a run of elements: long enough
that a group is worth starting, short enough that what is kept of it stays in the cache.
Must not know how a loop is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tessera_lang.ir.core import TileType
from tessera_lang.opt.schedule.query.kernel_facts import Estimate, Facts, covers
from tessera_lang.target.tuned_constants import (
    CPU_BLOCK,
    CPU_ELEMENTS,
    CPU_GROUPS,
    CPU_LEAST,
    CPU_RUN,
)


def cpu_tile_sizes(facts: Facts, names: Sequence[str], said: Mapping[str, int]) -> dict[str, int]:
    """A number for every open name; ``said`` ones stay."""
    sizes = dict(said)
    for name in names:
        if name not in sizes:
            part = _part(facts, name)
            if part:
                sizes[name] = part
    rest = CPU_ELEMENTS if not facts.dots else CPU_LEAST
    for name in () if facts.dots else _reduced(facts, names):
        if name not in sizes:
            sizes[name] = max(1, min(CPU_RUN, rest, _length(facts, name)))
        rest = max(1, rest // sizes[name])
    fixed = dict(sizes)
    order = _innermost_first(facts, names)
    _fill(facts, order, sizes, rest)
    sizes = _spread(facts, names, said, sizes)
    # What the grid's axes gave up, loops may have.
    kept = {n for n in sizes if n in fixed or _is_of_grid(facts, n)}
    sizes = {n: size for n, size in sizes.items() if n in kept}
    _fill(facts, order, sizes, rest)
    return sizes


def _fill(facts: Facts, order: Sequence[str], sizes: dict[str, int], rest: int) -> None:
    """Sizes for those of ``order`` that have none, until tiles have ``rest`` elements."""
    for name in order:
        if name not in sizes:
            used = _along(facts, sizes)
            sizes[name] = max(1, min(rest // max(1, used), CPU_RUN, _axis(facts, name)))


def _is_of_grid(facts: Facts, name: str) -> bool:
    """Whether the grid goes in steps of ``name``."""
    return facts.grid is not None and bool(covers(facts, facts.grid, name))


def _part(facts: Facts, name: str) -> int:
    """The size of a name that is a side of products, 0 where it is none."""
    wanted = [
        size
        for dot in facts.dots
        for side, size in zip(dot.shape, CPU_BLOCK, strict=True)
        if side == name
    ]
    return min(wanted, default=0)


def _reduced(facts: Facts, names: Sequence[str]) -> list[str]:
    """The names of last axes that are reduced, and nothing else: their elements lie side by side,
    and one lane takes in many of them at once where there are many."""
    found: dict[str, None] = {}
    for op in facts.kernel.walk():
        if op.name == "tessera.schedule.reduce":
            shape = cast("TileType", op.operands[0].type).shape
            if op.integer("axis") == len(shape) - 1 and isinstance(shape[-1], str):
                found[shape[-1]] = None
    kept = {n for store, _ in facts.stores for n in getattr(store.operands[0].type, "shape", ())}
    return [n for n in found if n in names and n not in kept]


def _length(facts: Facts, name: str) -> int:
    """A power of two that covers what loops with the step ``name`` go over, if it is known."""
    loops = [o for o in facts.kernel.walk() if facts.grid is None or o.name == facts.grid.name]
    found = [size for loop in loops for size in covers(facts, loop, name)]
    return max((CPU_RUN if size is None else size for size in found), default=CPU_RUN)


def _axis(facts: Facts, name: str) -> int:
    """A power of two that covers the axis of the grid whose step is ``name``, if it is known, and
    that of every other loop with this step: a sum over all of an array has it, and one result."""
    grid = facts.grid
    if grid is None or not covers(facts, grid, name):
        return CPU_RUN
    loops = [o for o in facts.kernel.walk() if o.name == grid.name]
    found = [size for loop in loops for size in covers(facts, loop, name)]
    return max(CPU_RUN if size is None else size for size in found)


def _along(facts: Facts, sizes: Mapping[str, int]) -> int:
    """Elements of the largest stored tile as far as its sizes are known, or of the largest one of
    several axes that a loop carries: a sum over all axes of an array has one for each axis."""
    stored = [store.operands[0].type for store, _ in facts.stores]
    loops = () if facts.dots else facts.kernel.walk()
    carried = [v.type for o in loops if o.regions for v in o.results]
    tiles = [t for t in stored if isinstance(t, TileType)]
    tiles += [t for t in carried if isinstance(t, TileType) and len(t.shape) > 1]
    most = 1
    for t in tiles:
        product = 1
        for n in t.shape:
            product *= sizes.get(n, 1) if isinstance(n, str) else n
        most = max(most, product)
    return most


def _innermost_first(facts: Facts, names: Sequence[str]) -> list[str]:
    """The open names, those of the last axis of a stored tile first."""
    order: list[str] = []
    for store, _ in facts.stores:
        t = store.operands[0].type
        if isinstance(t, TileType):
            order += [n for n in reversed(t.shape) if isinstance(n, str) and n not in order]
    return [*(n for n in order if n in names), *(n for n in reversed(names) if n not in order)]


def _spread(
    facts: Facts, names: Sequence[str], said: Mapping[str, int], sizes: dict[str, int]
) -> dict[str, int]:
    """Halves sizes of the grid's axes, rows first, while there are fewer groups than cores."""
    grid = facts.grid
    if grid is None:
        return sizes
    while True:
        tiles = Estimate(facts, sizes).trips(grid)
        if tiles is None or tiles >= CPU_GROUPS:
            return sizes
        for name in names:
            smaller = {**sizes, name: sizes[name] // 2}
            fewer = Estimate(facts, smaller).trips(grid)
            if (
                name not in said
                and smaller[name] >= CPU_LEAST
                and fewer is not None
                and fewer > tiles
            ):
                sizes = smaller
                break
        else:
            return sizes
