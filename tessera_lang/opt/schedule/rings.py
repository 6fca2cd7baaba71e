"""Which staged loads share a ring of buffers, and what shared memory a schedule takes.

A *ring* belongs to the region its loads stand in: those of it that one product reads first are
filled together and freed together. Both the depth of pipelines and the lowering ask here.
Must not decide anything.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.opt.schedule.copies import access_of, array_name
from tessera_lang.opt.schedule.facts import Facts, Load
from tessera_lang.opt.schedule.units import through_shared
from tessera_lang.record import dataclass
from tessera_lang.source import Span

SLOT_BARRIERS = 16
STORE_BUFFERS = 2
_LINE = 128  # bytes of a line of a subtile


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """``around``: the operation whose region holds the loads; ``loop``: whether that region
    runs more than once a tile."""

    loads: tuple[Load, ...]
    around: Operation
    loop: Operation | None

    @property
    def stages(self) -> int:
        found = self.loads[0].operation.attributes.get("stages", 1)
        return int(found) if isinstance(found, int) else 1

    @property
    def bytes(self) -> int:
        """Bytes of one stage."""
        return sum(tile_bytes(x.tile) for x in self.loads)


@dataclass(frozen=True, slots=True)
class SharedUse:
    """What takes shared memory: a text for the user, bytes of a stage, and how many stages."""

    what: str
    bytes: int
    stages: int
    span: Span | None

    @property
    def total(self) -> int:
        return self.bytes * self.stages


def tile_bytes(tile: TileType) -> int:
    product = tile.dtype.bytes
    for n in tile.sizes:
        product *= n
    return product


def is_staged(load: Load) -> bool:
    return load.operation.attributes.get("stage") == "shared"


def rings_of(facts: Facts) -> tuple[Ring, ...]:
    """The rings in the order of their first loads."""
    keys: dict[tuple[int, int], list[Load]] = {}
    first = _first_products(facts)
    for load in facts.loads:
        if is_staged(load):
            around = load.inside[-1] if load.inside else facts.kernel
            key = (id(around), first.get(load.operation.result, -1))
            keys.setdefault(key, []).append(load)
    return tuple(
        Ring(tuple(loads), loads[0].inside[-1] if loads[0].inside else facts.kernel, loads[0].loop)
        for loads in keys.values()
    )


def _first_products(facts: Facts) -> dict[Value, int]:
    """The number of the first product that reads a load."""
    out: dict[Value, int] = {}
    for i, dot in enumerate(facts.dots):
        for operand in (dot.a, dot.b):
            if operand.load is not None:
                out.setdefault(operand.load.operation.result, i)
    return out


def subtile_columns(tile: TileType) -> int:
    """Columns of a subtile of a store: a line of 128 bytes; 0 where the tile has no such."""
    if len(tile.sizes) < 2:
        return 0
    columns = _LINE // tile.dtype.bytes
    return columns if tile.sizes[-1] % columns == 0 else 0


def shared_use(facts: Facts) -> list[SharedUse]:
    """What the staged loads and the stores of a schedule take, in order."""
    uses = [
        SharedUse(
            f"`{array_name(facts, load.view)}`: {ring.stages} x {_sizes(load.tile)}",
            tile_bytes(load.tile), ring.stages, load.operation.span,
        )
        for ring in rings_of(facts) for load in ring.loads
    ]  # fmt: skip
    uses += _computed(facts)
    seen: set[TileType] = set()
    columns = facts.kernel.attributes.get("subtile", 0)
    for store, _ in facts.stores:
        tile = access_of(store).tile
        if not columns or tile in seen or not subtile_columns(tile):
            continue
        seen.add(tile)
        rows, width = tile.sizes[-2], subtile_columns(tile)
        name = array_name(facts, store.operands[1])
        uses.append(
            SharedUse(f"stores to `{name}`: {STORE_BUFFERS} x {rows} x {width} {tile.dtype}",
                      rows * _LINE, STORE_BUFFERS, store.span)
        )  # fmt: skip
    slots = sum(r.stages for r in rings_of(facts))
    if slots:
        uses.append(SharedUse("barriers", SLOT_BARRIERS, slots, None))
    return uses


def _computed(facts: Facts) -> list[SharedUse]:
    """The operands of products that are computed and written to shared memory."""
    out: list[SharedUse] = []
    for dot in facts.dots:
        for operand in (dot.a, dot.b):
            t = operand.value.type
            assert isinstance(t, TileType)
            if dot.operation.attributes.get("unit") == "wgmma" and through_shared(dot, operand):
                text = f"a computed operand: {_sizes(t)}"
                out.append(SharedUse(text, tile_bytes(t), 1, dot.operation.span))
    return out


def _sizes(tile: TileType) -> str:
    return f"{' x '.join(map(str, tile.sizes))} {tile.dtype}"
