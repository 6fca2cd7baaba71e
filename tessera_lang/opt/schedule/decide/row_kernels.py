"""Kernels without products: how many warps hold their tiles, and rows that several groups share.

What limits such a kernel is memory: a lane holds as many elements as keep loads in flight and
leave registers for two or more groups a multiprocessor, and a tile that has more elements than
the lanes of one group should hold is shared by the groups of a cluster, each with its part of
the axis; reductions then meet across the cluster. Read once, written once: main memory sees each
element twice at most.

Owns the estimate and the rewriting. Must not know how a cluster is lowered.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tessera_lang.ir.core import Operation, Program, Region, TileType, Value
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.context import (
    Context,
    decides,
    rewrites,
    said_by_user,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.query.copy_rules import access_of, pitch_reason
from tessera_lang.opt.schedule.query.invariant_loads import bound_by_cache, bytes_of, is_shared
from tessera_lang.opt.schedule.query.kernel_facts import LOAD, STORE, Facts, facts_of, kernel_of
from tessera_lang.opt.schedule.tuning import (
    ASSEMBLER_GROUPS,
    BUSY_ROW_BYTES,
    BUSY_SHARE,
    KEPT_WARPS,
    LANE_BYTES,
    PART_BYTES,
    PART_REGISTERS,
    PART_WARPS,
    ROW_BYTES,
    ROW_OPERATIONS,
    ROW_RATE,
    WIDE_PART_REGISTERS,
)
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.arch.isa import CLUSTER_GROUPS, LIMIT_REGISTERS, REGISTER_UNIT, WARP
from tessera_lang.target.machine import Machine
from tessera_lang.types.dtype import INDEX

MOST_WARPS = 16
_ADDRESS = 2
"""Registers of a lane for each access, and for its place in the grid: addresses have 64 bits."""
_FULL, _IOTA, _REDUCE, _MASK = (PREFIX + n for n in ("full", "iota", "reduce", "mask"))
_SHARED_KINDS = ("add", "mul", "max", "min")


def row_warps(facts: Facts, machine: Machine) -> int:
    """The warps of a group, so that a lane's share of the largest tile stays small."""
    held = held_bytes(facts.kernel)
    warps = 1 if _reduces(facts) else 4
    accesses = [x.operation for x in facts.loads] + [o for o, _ in facts.stores]
    narrow = any(pitch_reason(access_of(o), facts, "") for o in accesses)
    most, lane = MOST_WARPS, LANE_BYTES
    if is_shared(facts.kernel):
        most, lane = KEPT_WARPS if bound_by_cache(facts, machine) else PART_WARPS, 2 * LANE_BYTES
    elif _reduces(facts) and _fits_full(facts, machine):
        lane //= 2
    lane = min(lane, LANE_BYTES // 2) if narrow else lane
    while warps < most and held > WARP * warps * lane:
        warps *= 2
    return warps


def _fits_full(facts: Facts, machine: Machine) -> bool:
    """Whether there are registers for as many lanes as a multiprocessor can have, if each holds
    half of what it might: its part of the row as it is computed in, and of what else is loaded."""
    half = LANE_BYTES // 2
    lanes = -(-held_bytes(facts.kernel) // half)
    others = sum(sorted(map(bytes_of, facts.loads))[:-1]) / max(1, lanes)
    accesses = len(facts.loads) + len(facts.stores)
    needed = (half + others) / 4 + _ADDRESS * (1 + accesses)
    return -(-needed // REGISTER_UNIT) * REGISTER_UNIT <= machine.registers // (
        WARP * machine.warps
    )


@decides
def limit_registers(program: Program, context: Context) -> Program:
    """Of large groups that share rows, as many are together as what they load leaves room for."""
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    if not is_shared(kernel) or facts.dots or "registers" in kernel.attributes:
        return program
    groups, lanes = groups_together(facts, context), WARP * _warps(kernel)
    if groups > ASSEMBLER_GROUPS:
        return program
    each = context.machine.registers // (groups * lanes)
    registers = min(LIMIT_REGISTERS, each // REGISTER_UNIT * REGISTER_UNIT)
    return with_kernel(program, with_decisions(kernel, {"registers": (registers,)}))


def groups_together(facts: Facts, context: Context) -> int:
    """How many groups the registers of a multiprocessor hold: of each a row as it is computed in,
    and what else it loads."""
    others = sum(sorted(map(bytes_of, facts.loads))[:-1])
    wide = any(x.tile.dtype.bytes >= 4 for x in facts.loads)
    lanes = WARP * _warps(facts.kernel)
    held = (held_bytes(facts.kernel) + others) // 4 + (
        WIDE_PART_REGISTERS if wide else PART_REGISTERS
    ) * lanes
    return max(1, context.machine.registers // held)


def _warps(kernel: Operation) -> int:
    warps = kernel.attributes.get("warps", 1)
    assert isinstance(warps, int)
    return warps


def held_bytes(kernel: Operation) -> int:
    """What the largest tile takes in registers. Coordinates and numbers that are stretched take
    none, nor what is computed from these alone, where there is something else: a register of a
    lane differs from the next by a constant."""
    known: set[Value] = set()
    held: list[TileType] = []
    for o in kernel.walk():
        tiles = [v for v in o.operands if isinstance(v.type, TileType)]
        made = o.name in (_IOTA, _FULL) or (bool(tiles) and o.name.startswith("tile."))
        if made and not o.regions and known.issuperset(tiles):
            known.update(o.results)
        else:
            held += [v.type for v in o.results if isinstance(v.type, TileType)]
    return max(map(_register_bytes, held or _tiles(kernel)), default=0)


def _tiles(kernel: Operation) -> list[TileType]:
    values = [v for o in kernel.walk() for v in o.results]
    return [v.type for v in values if isinstance(v.type, TileType)]


def _register_bytes(t: TileType) -> int:
    return prod(t.sizes) * max(4, t.dtype.bytes)


def _reduces(facts: Facts) -> bool:
    return any(o.name == _REDUCE for o in facts.kernel.walk())


# --- several groups for one row --------------------------------------------------------------


@rewrites
def split_rows(program: Program, context: Context) -> Program:
    """Rows that are too long for the registers of one group, over a cluster of groups."""
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    if not context.machine.has("cluster") or facts.dots or facts.grid is None:
        return program
    if any(said_by_user(kernel, name) for name in ("cluster", "persistent", "warps")):
        return program
    held = held_bytes(kernel)
    most = BUSY_ROW_BYTES if _business(facts) > BUSY_SHARE else ROW_BYTES
    if held <= most or not _reduces(facts):
        return program
    groups = 1
    while groups < CLUSTER_GROUPS and held > groups * PART_BYTES:
        groups *= 2
    size = _row_of(facts, facts.grid)
    if size is None:
        return program
    part = -(-size // (groups * WARP)) * WARP
    made = _Splitter(facts, facts.grid, groups, part).kernel()
    made = with_decisions(made, {"cluster": (groups,)})
    return with_kernel(program, made)


def _business(facts: Facts) -> float:
    """The time that tiles are computed for, over the time that they are moved for."""
    done = sum(
        prod(t.sizes)
        for o in facts.kernel.walk()
        if o.name.startswith("tile.") and not o.regions
        for t in (v.type for v in o.results)
        if isinstance(t, TileType)
    )
    tiles = [x.tile for x in facts.loads]
    tiles += [t for o, _ in facts.stores for t in (o.operands[0].type,) if isinstance(t, TileType)]
    moved = sum(prod(t.sizes) * t.dtype.bytes for t in tiles)
    return (done / ROW_OPERATIONS) / (moved / ROW_RATE) if moved else 0.0


def _row_of(facts: Facts, grid: Operation) -> int | None:
    """The size of the one axis that all tiles have, where every operation on them can be done
    part by part; None where that is not so."""
    sizes = {t.shape for t in _tiles(facts.kernel)}
    if len(sizes) != 1:
        return None
    (shape,) = sizes
    top = facts.kernel.regions[0].operations
    body = grid.regions[0].operations
    if len(shape) != 1 or any(o.regions for o in top if o is not grid):
        return None
    if any(_has_tile(o) for o in top) or not all(map(_is_local, body)):
        return None
    return int(shape[0])


def _has_tile(operation: Operation) -> bool:
    return any(isinstance(v.type, TileType) for v in (*operation.operands, *operation.results))


def _is_local(operation: Operation) -> bool:
    """Whether an operation does the same to a part of a row as to the whole. A condition or loop
    does where it computes numbers alone, which are the same for all parts."""
    inside = [x for region in operation.regions for o in region.operations for x in o.walk()]
    if inside:
        local = all(_is_local(x) for x in inside if not x.regions)
        return local and not any(map(_has_tile, (operation, *inside)))
    if operation.name == _REDUCE:
        t = operation.result.type
        kind = operation.attributes["kind"] in _SHARED_KINDS
        return kind and not isinstance(t, TileType) and getattr(t, "bits", 0) >= 32
    if operation.name in (LOAD, STORE):
        return True
    if operation.name in ("tile.store", "tile.assert", "tile.print"):
        return False
    if operation.name.startswith("tile.atomic"):
        return False
    if operation.name.startswith(PREFIX):
        return operation.name in (_FULL, _IOTA, _MASK)
    return True


@dataclass(slots=True, eq=False)
class _Splitter:
    """Writes the kernel in which the grid has a further, fastest axis: the parts of a row."""

    facts: Facts
    grid: Operation
    groups: int
    part: int
    to: dict[Value, Value] = field(default_factory=dict[Value, Value])
    out: list[Operation] = field(default_factory=list[Operation])

    def kernel(self) -> Operation:
        kernel = self.facts.kernel
        region = kernel.regions[0]
        operations: list[Operation] = []
        for o in region.operations:
            operations += self._loop(o) if o is self.grid else [o]
        return replace(kernel, regions=(replace(region, operations=tuple(operations)),))

    def _loop(self, loop: Operation) -> list[Operation]:
        names, mapping = loop.attributes["axes"], loop.attributes["mapping"]
        assert isinstance(names, tuple)
        assert isinstance(mapping, tuple)
        axes = len(names)
        zero, step, end = (self._constant(n) for n in (0, self.part, self.part * self.groups))
        before, self.out = self.out, []
        bounds = [loop.operands[i * axes : (i + 1) * axes] for i in range(3)]
        start = Value(INDEX, "part")
        region = loop.regions[0]
        for o in region.operations:
            self._operation(o, start)
        body = Region((*region.arguments, start), tuple(self.out))
        operands = (*bounds[0], zero, *bounds[1], end, *bounds[2], step)
        attributes = {**loop.attributes, "axes": (*names, "part"), "mapping": (*mapping, "grid")}
        return [*before, replace(loop, operands=operands, attributes=attributes, regions=(body,))]

    # --- numbers ------------------------------------------------------------------------------

    def _emit(self, name: str, *operands: Value) -> Value:
        made = Value(INDEX)
        self.out.append(Operation(name, operands, (made,), {}, (), self.grid.span))
        return made

    def _constant(self, number: int) -> Value:
        made = Value(INDEX)
        attributes = {"value": number}
        self.out.append(Operation("tile.constant", (), (made,), attributes, (), self.grid.span))
        return made

    def _extent(self, extent: Value, start: Value) -> Value:
        """How many elements of an extent lie in this part."""
        rest = self._emit("tile.sub", self._value(extent), start)
        size, zero = self._constant(self.part), self._constant(0)
        return self._emit("tile.max", zero, self._emit("tile.min", size, rest))

    # --- operations -----------------------------------------------------------------------------

    def _value(self, value: Value) -> Value:
        return self.to.get(value, value)

    def _result(self, value: Value) -> Value:
        t = value.type
        if not isinstance(t, TileType):
            return value
        return self.to.setdefault(value, Value(replace(t, shape=(self.part,)), value.name))

    def _operation(self, o: Operation, start: Value) -> None:
        if not _has_tile(o):
            self.out.append(o)
            return
        operands = list(map(self._value, o.operands))
        attributes = o.attributes
        if o.name in (LOAD, STORE):
            operands = self._access(o, operands, start)
        elif o.name in (_REDUCE, _MASK):
            operands[-1] = self._extent(operands[-1], start)
            if o.name == _REDUCE:
                attributes = {**attributes, "across": self.groups}
        results = tuple(map(self._result, o.results))
        made = replace(o, operands=tuple(operands), results=results, attributes=attributes)
        self.out.append(made)
        if o.name == _IOTA:
            self._moved(o, made, start)

    def _access(self, o: Operation, operands: Sequence[Value], start: Value) -> list[Value]:
        first = 1 if o.name == STORE else 0
        dims, steps = o.attributes["dims"], o.attributes.get("steps", (1,))
        assert isinstance(dims, tuple)
        assert isinstance(steps, tuple)
        (dim,), (step,) = dims, steps
        assert isinstance(dim, int)
        assert isinstance(step, int)
        made = list(operands)
        distance = start if step == 1 else self._emit("tile.mul", start, self._constant(step))
        at = first + 1 + dim
        made[at] = self._emit("tile.add", made[at], distance)
        made[-1] = self._extent(made[-1], start)
        return made

    def _moved(self, o: Operation, iota: Operation, start: Value) -> None:
        """Coordinates in the whole row."""
        t = iota.result.type
        assert isinstance(t, TileType)
        number = start
        if t.dtype != INDEX:
            number = Value(t.dtype)
            self.out.append(Operation("tile.cast", (start,), (number,), {}, (), o.span))
        spread, total = Value(t), Value(t)
        self.out.append(Operation(_FULL, (number,), (spread,), {}, (), o.span))
        operands = (iota.result, spread)
        self.out.append(Operation("tile.add", operands, (total,), {}, (), o.span))
        self.to[o.result] = total
