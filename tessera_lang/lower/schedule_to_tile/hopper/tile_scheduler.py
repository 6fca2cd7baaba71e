"""The tile scheduler: which tiles of the grid a group takes, one after the other or just one.

Owns the arithmetic of the walk: numbers of tiles along the axes, clusters as neighbours along
one axis. A tile's number counts clusters; it is below 2^32. Must not know what is done for a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.schedule_to_tile.common.tile_order import heaviest_first, places
from tessera_lang.opt.schedule.query.scalar_facts import axes_of
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import INDEX, U32


@dataclass(frozen=True, slots=True)
class Cluster:
    """``size`` groups that are neighbours along ``axis`` of the grid."""

    axis: int = 0
    size: int = 1


@dataclass(slots=True, eq=False)
class Walk:
    """The tiles of a grid. ``lowers`` and ``steps`` are values of Tile IR, one an axis;
    ``counts`` the tiles along each axis (u32), along the cluster's axis the clusters. Where a
    group is not ``persistent`` there are as many groups as tiles, and each has one. ``heaviest``:
    the axis along which tiles differ, and whether the last of them are the heaviest."""

    builder: Builder
    lowers: Sequence[Value]
    steps: Sequence[Value]
    counts: Sequence[Value]
    cluster: Cluster
    rank: Value | None
    group_rows: int
    persistent: bool = True
    heaviest: tuple[int, ...] = ()

    def first(self) -> Value:
        """The first tile of this group's cluster."""
        return self._in_clusters(self.builder.group_linear())

    def step(self) -> Value:
        return self._in_clusters(self.builder.group_count())

    def _in_clusters(self, number: Value) -> Value:
        if self.cluster.size == 1:
            return number
        return self.builder.binary("floordiv", number, self.builder.index(self.cluster.size))

    def total(self) -> Value:
        total = self.counts[0]
        for count in self.counts[1:]:
            total = self.builder.binary("mul", total, count)
        return self.builder.cast(total, INDEX)

    def variables(self, tile: Value) -> list[Value]:
        """The variables of the grid's loop for a tile: where it starts along each axis."""
        b = self.builder
        out: list[Value] = []
        for axis, number in enumerate(self._numbers(b.cast(tile, U32))):
            wide = b.cast(number, INDEX)
            if axis == self.cluster.axis and self.rank is not None:
                wide = b.binary("mul", wide, b.index(self.cluster.size))
                wide = b.binary("add", wide, self.rank)
            moved = b.binary("mul", wide, self.steps[axis])
            out.append(b.binary("add", self.lowers[axis], moved))
        return out

    def _numbers(self, tile: Value) -> list[Value]:
        """The number of a tile along each axis."""
        b = self.builder
        if self.heaviest:
            axis, descending = self.heaviest
            one = b.constant(1, U32) if descending else None
            return heaviest_first(b, tile, self.counts, axis, one)
        height = b.constant(self.group_rows, U32) if self.group_rows > 1 else None
        return places(b, tile, self.counts, height)


def walk_of(
    builder: Builder, grid: Operation, scalar: Callable[[Value], Value], cluster: Cluster,
    group_rows: int, persistent: bool = True, heaviest: tuple[int, ...] = (),
) -> Walk:  # fmt: skip
    """The walk over a grid whose bounds are known by now; ``scalar`` gives their values."""
    axes = axes_of(grid)
    bounds = [scalar(v) for v in grid.operands[: 3 * axes]]
    lowers, uppers, steps = (bounds[i * axes : (i + 1) * axes] for i in range(3))
    counts: list[Value] = []
    for axis in range(axes):
        span = builder.binary("sub", uppers[axis], lowers[axis])
        by = steps[axis]
        if axis == cluster.axis and cluster.size > 1:
            by = builder.binary("mul", by, builder.index(cluster.size))
        up = builder.binary("add", span, builder.binary("sub", by, builder.index(1)))
        count = builder.binary("max", builder.binary("floordiv", up, by), builder.index(0))
        counts.append(builder.cast(count, U32))
    rank = None
    if cluster.size > 1:
        rank = builder.emit("tile.cluster_rank", (), (INDEX,), names=("rank",)).result
    return Walk(builder, lowers, steps, counts, cluster, rank, group_rows, persistent, heaviest)


def over_tiles(
    walk: Walk, carried: Sequence[Value],
    body: Callable[[Sequence[Value], Sequence[Value]], Sequence[Value]],
) -> tuple[Value, ...]:  # fmt: skip
    """``body(variables, carried)`` for every tile of this group; gives what is carried on."""
    b = walk.builder
    if not walk.persistent:
        return tuple(body(walk.variables(walk.first()), carried))
    arguments = [("tile", INDEX), *((v.name, v.type) for v in carried)]
    with b.region(*arguments) as region:
        tile, *inner = region.arguments
        b.yield_(*body(walk.variables(tile), inner))
    return b.for_(walk.first(), walk.total(), walk.step(), carried, region.region)
