"""How many registers of a lane a kernel of register tiles needs: an estimate from Tile IR.

Owns the walk over what is alive and the sizes of tiles in registers, by their layouts. What is
surely needed (tiles that are alive at once) and what is probably needed beside it (fragments,
addresses) are told apart: only the first is a reason to refuse. Must not know what assembles
the code, nor decide anything.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import gcd, prod

from tessera_lang.analysis.resources.register_layouts import WARP, canonical
from tessera_lang.ir.core import BufferType, Operation, Region, TileType, Value, ViewType
from tessera_lang.ir.definitions import (
    LANE_COPIES,
    LOOPS,
    SHARED_ALLOCATIONS,
)
from tessera_lang.ir.layout import RegisterLayout, SharedLayout
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.ir.tile.tile_ops import TILE_LEVEL_OPS
from tessera_lang.record import dataclass, field
from tessera_lang.target.tuned_constants import OTHER_REGISTERS

_NOT_ELEMENT_WISE = frozenset(d.name for d in TILE_LEVEL_OPS)
_MOVES = (
    "tile.splat", "tile.coordinate", "tile.expand_tile", "tile.load_tile", "tile.read_tile",
    "tile.slice_tile",
)  # fmt: skip
_FREE = {"tile.constant", "tile.view", "tile.splat", *SHARED_ALLOCATIONS}
_PLACE = 2  # registers of 32 bits of an index
_LINES = 5  # of the table of a refusal


@dataclass(frozen=True, slots=True)
class Pressure:
    """Registers of a lane at the place that needs most. ``tiles``: those of tiles; ``total``: with
    those for everything else; ``held``: the tiles, the greatest first; ``role``: where it is."""

    tiles: int
    total: int
    place: Operation | None
    held: tuple[Value, ...] = ()
    role: int = -1


def pressure(kernel: Operation) -> tuple[Pressure, ...]:
    """That of each role, or of the whole kernel where there are none."""
    walk = _Walk()
    walk.region(kernel.regions[0], frozenset())
    again = _Walk(places=walk.most)  # what is held there: noted once, not at each new height
    again.region(kernel.regions[0], frozenset())
    return tuple(again.found[r] for r in sorted(again.found, reverse=True))


def registers_of_tile(tile: TileType) -> int:
    """Registers of a lane that hold a tile."""
    if not isinstance(tile.layout, RegisterLayout):
        return 0
    return max(1, _different(tile.layout) * max(tile.dtype.bits, 16) // 32)


@functools.lru_cache(maxsize=1024)
def _different(layout: RegisterLayout) -> int:
    return prod(m.extent for m in canonical(layout).registers if m.axis is not None)


class _Live:
    """The values that are alive, with the registers they take."""

    def __init__(self, walk: _Walk, values: Iterable[Value]) -> None:
        self._walk = walk
        self.values: dict[Value, int] = {}
        self.tiles = self.total = 0
        for value in values:
            self.add(value)

    def add(self, value: Value) -> None:
        if value not in self.values:
            size = 0 if self._walk.is_part_of(value, self.values) else self._walk.size(value)
            self.values[value] = size
            self._count(value, size)

    def drop(self, value: Value) -> None:
        if value in self.values:
            self._count(value, -self.values.pop(value))

    def _count(self, value: Value, size: int) -> None:
        self.total += size
        if isinstance(value.type, TileType):
            self.tiles += size


@dataclass(slots=True)
class _Walk:
    """Backwards over a kernel. ``most``: the greatest need of each role and how many places were
    looked at before it; ``places``: where to note what is alive."""

    places: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    most: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    found: dict[int, Pressure] = field(default_factory=dict[int, Pressure])
    role: int = -1
    seen: int = 0
    definitions: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    places_of_lanes: set[Value] = field(default_factory=set[Value])

    def region(self, region: Region, after: frozenset[Value]) -> frozenset[Value]:
        """What is alive at the region's begin, given what is alive behind it."""
        for operation in region.operations:
            for result in operation.results:
                self.definitions[result] = operation
            if self._gives_places(operation):
                self.places_of_lanes.update(operation.results)
        live = _Live(self, after)
        for unit in reversed(list(_units(region.operations))):
            self._note(unit[0], live)
            made = {v: None for o in unit for v in o.results}
            for value in made:
                live.drop(value)
            inside = self._inside(unit[0], live) if len(unit) == 1 else frozenset[Value]()
            for value in (*(v for o in unit for v in o.operands if v not in made), *inside):
                live.add(value)
            self._note(unit[0], live)
        return frozenset(live.values)

    def _inside(self, operation: Operation, behind: _Live) -> frozenset[Value]:
        """What regions of an operation need of what is in front of it."""
        if not operation.regions:
            return frozenset()
        base = frozenset(behind.values)
        if operation.name in LOOPS:
            base |= _free_values(operation)
        needed: set[Value] = set()
        for number, region in enumerate(operation.regions):
            outer = self.role
            if operation.name == "tile.roles":
                self.role = number
            found = self.region(region, base)
            needed |= found - frozenset(region.arguments)
            self.role = outer
        return frozenset(needed)

    def _note(self, operation: Operation, live: _Live) -> None:
        self.seen += 1
        total = live.total + _beside(operation) + OTHER_REGISTERS
        known = self.most.get(self.role)
        if known is None or total > known[0]:
            self.most[self.role] = total, self.seen
        if self.places.get(self.role) == (total, self.seen):
            held = [v for v, n in live.values.items() if n and isinstance(v.type, TileType)]
            held.sort(key=lambda v: -live.values[v])
            self.found[self.role] = Pressure(live.tiles, total, operation, tuple(held), self.role)

    def is_part_of(self, value: Value, alive: Mapping[Value, int]) -> bool:
        """Whether the registers of a value are some of one that is alive."""
        definition = self.definitions.get(value)
        return (
            definition is not None
            and definition.name == "tile.slice_tile"
            and definition.operands[0] in alive
        )

    def size(self, value: Value) -> int:
        definition = self.definitions.get(value)
        name = definition.name if definition is not None else ""
        if name in _FREE:
            return 0
        if isinstance(value.type, TileType):
            if name == "tile.expand_tile" or self._is_of_places(definition):
                return 0  # the registers of what is expanded; a comparison is made where it is read
            if value in self.places_of_lanes:
                return _PLACE
            return registers_of_tile(value.type)
        return 0 if isinstance(value.type, ViewType | BufferType) or not name else 1

    def _gives_places(self, operation: Operation) -> bool:
        """Whether each element is the place of the lane and a number: they differ by constants,
        which stand in the instructions that read them."""
        if operation.name == "tile.coordinate":
            return True
        return operation.name in ("tile.add", "tile.sub") and all(
            v in self.places_of_lanes or self._is_splat(v) for v in operation.operands
        )

    def _is_of_places(self, definition: Operation | None) -> bool:
        """Whether elements compare their places with a number, or one a row."""
        return (
            definition is not None and definition.name == "tile.cmp"
            and any(v in self.places_of_lanes for v in definition.operands)
            and all(v in self.places_of_lanes or self._is_number(v) for v in definition.operands)
        )  # fmt: skip

    def _is_splat(self, value: Value) -> bool:
        definition = self.definitions.get(value)
        return definition is not None and definition.name == "tile.splat"

    def _is_number(self, value: Value) -> bool:
        definition = self.definitions.get(value)
        expanded = definition is not None and definition.name == "tile.expand_tile"
        return expanded or self._is_splat(value)


def _free_values(loop: Operation) -> frozenset[Value]:
    """What a loop reads of what is in front of it: alive until its end."""
    made: set[Value] = set()
    read: set[Value] = set()

    def walk(region: Region) -> None:
        made.update(region.arguments)
        for operation in region.operations:
            made.update(operation.results)
            read.update(operation.operands)
            for inner in operation.regions:
                walk(inner)

    for region in loop.regions:
        walk(region)
    return frozenset(read - made)


def _units(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    """Operations that are done register by register as one; others each by itself."""
    run: list[Operation] = []
    made: set[Value] = set()
    for operation in operations:
        if _element_wise(operation) and (not run or _alike(operation, run[0])):
            run.append(operation)
            made.update(operation.results)
            continue
        if operation.name == "tile.reduce_tile" and operation.operands[0] in made:
            yield [*run, operation]  # a lane adds up its elements as they are computed
            run, made = [], set()
            continue
        if _stands_before(operation) and not any(v in made for v in operation.operands):
            yield [operation]
            continue
        if run:
            yield run
        run, made = [], set()
        if _element_wise(operation):
            run, made = [operation], set(operation.results)
        else:
            yield [operation]
    if run:
        yield run


def _element_wise(operation: Operation) -> bool:
    if operation.name in _NOT_ELEMENT_WISE or operation.regions or len(operation.results) != 1:
        return False
    return isinstance(operation.result.type, TileType)


def _alike(a: Operation, b: Operation) -> bool:
    x, y = a.result.type, b.result.type
    return isinstance(x, TileType) and isinstance(y, TileType) and x.layout == y.layout


def _stands_before(operation: Operation) -> bool:
    if operation.name in _MOVES:
        return True
    definition = TILE_OPS.get(operation.name)
    scalar = not any(isinstance(v.type, TileType) for v in operation.results)
    return scalar and not operation.regions and definition is not None and definition.pure


# --- beside the tiles ------------------------------------------------------------------------


def _beside(operation: Operation) -> int:
    """Registers that an operation needs for itself."""
    if operation.name == "tile.dot":
        return _fragments(operation)
    if operation.name in LANE_COPIES:
        return 3 * _pieces(operation)
    return 0


def _fragments(dot: Operation) -> int:
    """What a product holds of operands in memory: one step of the matrix units, or those terms
    of multiply-adds that are read at once: where lines of the contraction are read, all terms of
    one operand, and of the other one line and the next."""
    tile = dot.result.tile_type
    assert isinstance(tile.layout, RegisterLayout)
    held = canonical(tile.layout)
    sides: list[tuple[int, int, int]] = []
    for operand, along in zip(dot.operands[:2], (1, 0), strict=True):
        t = operand.type
        if isinstance(t, BufferType):
            count = prod(m.extent for m in held.registers if m.axis == 1 - along)
            major = (t.layout or SharedLayout()).major
            by_lines = (along == 1) == (major == 1)
            deep = t.shape[len(t.shape) - 2 + along]
            sides.append((count, gcd(deep, 16 // t.dtype.bytes) if by_lines else 1, t.dtype.bits))
    steps = max((s for _, s, _ in sides), default=1)
    alone = all(bits >= 32 for *_, bits in sides) and dot.attributes["precision"] == "exact"
    if not alone or steps == 1:
        return sum(max(1, count * s * bits // 32) for count, s, bits in sides)
    outer = next(i for i, (_, s, _) in enumerate(sides) if s > 1)
    return sum(
        min(count, 2 if i == outer else count) * steps * bits // 32
        for i, (count, _, bits) in enumerate(sides)
    )


def _pieces(copy: Operation) -> int:
    """Vectors that a lane copies, if there are 128 of them."""
    buffer = copy.operands[1].buffer_type
    sizes = buffer.shape[-2:]
    vector = copy.integer("vector")
    return -(-prod(sizes) * buffer.dtype.bytes // (vector * 4 * WARP))


def table(found: Pressure) -> tuple[str, ...]:
    """Who takes how much, for the user: the greatest first."""
    lines: list[str] = []
    for value in found.held[:_LINES]:
        t = value.tile_type
        sizes = " x ".join(map(str, t.shape))
        name = f"`{value.name}`, " if value.name else ""
        lines.append(f"{name}a tile of {sizes} {t.dtype} = {registers_of_tile(t)} registers")
    rest = len(found.held) - len(lines)
    return (*lines, f"and {rest} more") if rest > 0 else tuple(lines)
