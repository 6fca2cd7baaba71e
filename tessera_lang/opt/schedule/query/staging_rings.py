"""Which staged loads share a ring of buffers, and what shared memory a schedule takes.

A *ring* belongs to the region its loads stand in: those of it that products read first which do
not wait for each other are filled together and freed together, unless a loop that moves tiles
stands between them: it is gone through with the ring half full. Both the depth of pipelines and
the lowering ask here. Must not decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Attribute, Operation, Region, TileType, Value
from tessera_lang.opt.schedule.query.computed_operands import written_buffers
from tessera_lang.opt.schedule.query.copy_rules import (
    array_name,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    SCATTER,
    Facts,
    Load,
)
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.record import dataclass
from tessera_lang.source import Span

SLOT_BARRIERS = 16
STORE_BUFFERS = 2
PLAIN_STAGES = 2  # of tiles that go through registers: one is read while the next is written
STORE_LINES = (128, 64, 32)  # bytes of a line of a subtile, the best first


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """``around``: the operation whose region holds the loads; ``loop``: whether that region
    runs more than once a tile. ``others``: the same loads at other places, which go on with
    the same buffers."""

    loads: tuple[Load, ...]
    around: Operation
    loop: Operation | None
    others: tuple[tuple[Load, ...], ...] = ()

    @property
    def stages(self) -> int:
        found = self.loads[0].operation.attributes.get("stages", 1)
        return int(found) if isinstance(found, int) else 1

    @property
    def results(self) -> tuple[Value, ...]:
        return tuple(x.operation.result for x in self.loads)

    @property
    def everywhere(self) -> tuple[Load, ...]:
        """The loads at all places."""
        return (*self.loads, *(x for place in self.others for x in place))

    @property
    def bytes(self) -> int:
        """Bytes of one stage."""
        return 0 if self.reread is not None else sum(tile_bytes(x.tile) for x in self.loads)

    @property
    def said(self) -> int | None:
        """The number that its loads say."""
        found = self.loads[0].operation.attributes.get("ring")
        return found if isinstance(found, int) else None

    @property
    def reread(self) -> int | None:
        """What the ring says whose places this one reads a second time, and frees."""
        found = self.loads[0].operation.integers("reread")
        return found[0] if found else None


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
    return _is_staged(load.operation)


def _is_staged(operation: Operation) -> bool:
    return operation.attributes.get("stage") == "shared"


def holds_staged(operation: Operation) -> bool:
    """Whether a tile that is staged in shared memory is read in an operation."""
    return any(map(_is_staged, operation.walk()))


def rings_of(facts: Facts) -> tuple[Ring, ...]:
    """The rings in the order of their first loads. Loads with the same attribute ``ring`` are
    of one, in whatever region they stand."""
    keys: dict[tuple[object, ...], dict[int, list[Load]]] = {}
    first, stretches, regions = _first_products(facts), _stretches(facts), _regions(facts)
    for load in facts.reads:
        if is_staged(load):
            around = regions[id(load.operation)]
            said = load.operation.attributes.get("ring")
            kept = bool(load.operation.attributes.get("kept"))  # once, in one buffer
            place = stretches[id(load.operation)]
            own = (around, first.get(load.operation.result, -1), place, kept)
            key = (said,) if said is not None else own
            keys.setdefault(key, {}).setdefault(around, []).append(load)
    return tuple(_ring([tuple(loads) for loads in places.values()], facts)
                 for places in keys.values())  # fmt: skip


def ring_marks(facts: Facts) -> dict[Operation, dict[str, Attribute]]:
    """For each staged load what says its ring, wherever copies of it are going to stand."""
    rings = rings_of(facts)
    numbers = {r.said: i for i, r in enumerate(rings)}
    out: dict[Operation, dict[str, Attribute]] = {}
    for number, ring in enumerate(rings):
        for load in ring.everywhere:
            marks = out[load.operation] = {"ring": number}
            if ring.reread is not None:
                _, place = load.operation.integers("reread")
                marks["reread"] = (numbers[ring.reread], place)
    return out


def _regions(facts: Facts) -> dict[int, int]:
    """For each operation the region it stands in: both sides of a condition are two."""
    regions = [r for o in facts.kernel.walk() for r in o.regions]
    return {id(o): id(r) for r in regions for o in r.operations}


def _ring(places: Sequence[tuple[Load, ...]], facts: Facts) -> Ring:
    main = max(places, key=lambda loads: len(loads[0].inside))
    others = tuple(loads for loads in places if loads is not main)
    return Ring(main, _around(main[0], facts), main[0].loop, others)


def _around(load: Load, facts: Facts) -> Operation:
    return load.inside[-1] if load.inside else facts.kernel


def _first_products(facts: Facts) -> dict[Value, int]:
    """How many products the first one that reads a load waits for in a row."""
    levels: dict[int, int] = {}
    _find_levels(facts.kernel.regions[0], {}, levels)
    out: dict[Value, int] = {}
    for dot in facts.dots:
        for operand in (dot.a, dot.b):
            if operand.load is not None:
                out.setdefault(operand.load.operation.result, levels[id(dot.operation)])
    return out


def _find_levels(region: Region, behind: dict[Value, int], levels: dict[int, int]) -> None:
    for operation in region.operations:
        level = max((behind.get(v, 0) for v in operation.operands), default=0)
        if operation.name == DOT:
            levels[id(operation)] = level
        for inner in operation.regions:
            _find_levels(inner, behind, levels)
        more = operation.holds(DOT)
        behind.update(dict.fromkeys(operation.results, level + more))


def _stretches(facts: Facts) -> dict[int, int]:
    """For each load, behind how many operations of its region it stands that move tiles."""
    out: dict[int, int] = {}
    waiting = [facts.kernel.regions[0]]
    while waiting:
        passed = 0
        for operation in waiting.pop().operations:
            out[id(operation)] = passed
            passed += bool(operation.regions) and holds_staged(operation)
            waiting += operation.regions
    return out


def subtile_columns(tile: TileType) -> int:
    """Columns of a subtile of a store: a line of 128, 64 or 32 bytes; 0 where the tile has none. A
    tile that is one line of 32 bytes wide leaves by lanes as fast."""
    if len(tile.sizes) < 2 or tile.sizes[-1] * tile.dtype.bytes == STORE_LINES[-1]:
        return 0
    lines = (line // tile.dtype.bytes for line in STORE_LINES)
    return next((n for n in lines if tile.sizes[-1] % n == 0), 0)


def shared_use(facts: Facts) -> list[SharedUse]:
    """What the staged loads and the stores of a schedule take, in order."""
    uses = [
        SharedUse(
            f"`{array_name(facts, load.view)}`: {ring.stages} x {_sizes(load.tile)}",
            tile_bytes(load.tile), ring.stages, load.operation.span,
        )
        for ring in rings_of(facts) if ring.reread is None for load in ring.loads
    ]  # fmt: skip
    uses += _computed(facts)
    seen: set[TileType] = set()
    columns = facts.kernel.attributes.get("subtile", 0)
    for store, _ in facts.stores:
        tile = access_of(store).tile
        if store.name == SCATTER or not columns or tile in seen or not subtile_columns(tile):
            continue
        seen.add(tile)
        rows, width = tile.sizes[-2], subtile_columns(tile)
        name = array_name(facts, store.operands[1])
        uses.append(
            SharedUse(f"stores to `{name}`: {STORE_BUFFERS} x {rows} x {width} {tile.dtype}",
                      rows * width * tile.dtype.bytes, STORE_BUFFERS, store.span)
        )  # fmt: skip
    slots = sum(r.stages for r in rings_of(facts) if r.reread is None)
    if slots:
        uses.append(SharedUse("barriers", SLOT_BARRIERS, slots, None))
    return uses


def _computed(facts: Facts) -> list[SharedUse]:
    """The operands of products that are computed and written to shared memory."""
    return [
        SharedUse(f"a computed operand: {_sizes(x.tile)}", tile_bytes(x.tile), x.stages, x.dot.span)
        for x in written_buffers(facts)
    ]


def _sizes(tile: TileType) -> str:
    return f"{' x '.join(map(str, tile.sizes))} {tile.dtype}"
