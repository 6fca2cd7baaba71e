"""Work in the epilogue, done subtile by subtile on a result that leaves in parts.

A store takes its tile apart in columns (``tile.slice_tile``); what computes the tile element by
element is as well done for each part when its iteration comes. So lanes hold what is read for one
part (a bias, a residual) beside the accumulators, not for all of them, and compute the next part
while the last one is on its way. What a part reads is read while the part before it is computed,
and for the first one before the loop whose result is waited for.

Tile IR to Tile IR. Owns which work can be taken apart and where its pieces stand. Must not know
what is computed, and must not know stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.analysis.resources.register_layouts import canonical
from tessera_lang.ir.core import Operation, Region, TileType, Value
from tessera_lang.ir.layout import RegisterLayout
from tessera_lang.ir.rewrite import replace_values
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.ir.tile.tile_ops import TILE_LEVEL_OPS
from tessera_lang.lower.schedule_to_tile.hopper.epilogue import sliced
from tessera_lang.record import dataclass, field, replace

_SLICE, _LOAD, _EXPAND = "tile.slice_tile", "tile.load_tile", "tile.expand_tile"
_SPLAT, _TRANSPOSE = "tile.splat", "tile.transpose_tile"
_NO_FUNCTION_OF_ELEMENTS = frozenset(o.name for o in TILE_LEVEL_OPS)
Users = Mapping[Value, Sequence[Operation]]


def work_by_parts(
    kernel: Operation, written: frozenset[Value], ahead: bool
) -> tuple[Operation, bool]:
    """The kernel with element-wise work at the parts it is for, itself where there is none; and
    whether something is read before a loop. ``written``: arrays, by their pointers, that it
    writes, of which no read is moved; ``ahead``: whether what the first part reads is held while
    the loop in front of it runs."""
    users: dict[Value, list[Operation]] = {}
    views: set[Value] = set()
    for o in kernel.walk():
        for v in o.operands:
            users.setdefault(v, []).append(o)
        if o.name == "tile.view" and o.operands[0] not in written:
            views.add(o.result)
    regions = _Regions(users, views, ahead)
    region = regions.region(kernel.regions[0])
    made = kernel if region is kernel.regions[0] else replace(kernel, regions=(region,))
    return made, regions.early


@dataclass(slots=True)
class _Regions:
    users: Users
    views: set[Value]
    ahead: bool
    early: bool = False

    def region(self, region: Region) -> Region:
        operations = tuple(self._inside(o) for o in region.operations)
        for source, slices in _taken_apart(operations, self.users).items():
            work = _Work(self.users, self.views, self.ahead, operations, source, slices)
            operations = work.done()
            self.early = self.early or work.early
        same = all(a is b for a, b in zip(operations, region.operations, strict=False))
        if same and len(operations) == len(region.operations):
            return region
        return replace(region, operations=operations)

    def _inside(self, o: Operation) -> Operation:
        regions = tuple(map(self.region, o.regions))
        same = all(a is b for a, b in zip(regions, o.regions, strict=True))
        return o if same else replace(o, regions=regions)


def _taken_apart(operations: Sequence[Operation], users: Users) -> dict[Value, list[Operation]]:
    """The tiles of a block that are only read by slices in it, all along one axis."""
    here = {v for o in operations for v in o.results}
    found: dict[Value, list[Operation]] = {}
    for o in operations:
        if o.name == _SLICE and o.operands[0] in here:
            found.setdefault(o.operands[0], []).append(o)
    return {
        source: slices for source, slices in found.items()
        if len(slices) == len(users[source]) > 1 and _axis(slices) is not None
    }  # fmt: skip


def _axis(slices: Sequence[Operation]) -> int | None:
    """The one axis along which equal parts are cut."""
    whole, parts = _tile(slices[0].operands[0]), [_tile(s.result) for s in slices]
    cut = [i for i, (n, p) in enumerate(zip(whole.sizes, parts[0].sizes, strict=True)) if n != p]
    equal = all(p.sizes == parts[0].sizes for p in parts)
    return cut[0] if len(cut) == 1 and equal else None


def _tile(value: Value) -> TileType:
    return value.tile_type


@dataclass(slots=True)
class _Work:
    """One tile of a block that leaves in parts. ``cut``: the axis of each value of the work along
    which it is cut; ``work``: its operations in order."""

    users: Users
    views: set[Value]
    ahead: bool
    operations: tuple[Operation, ...]
    source: Value
    slices: list[Operation]
    cut: dict[Value, int] = field(default_factory=dict[Value, int])
    work: list[Operation] = field(default_factory=list[Operation])
    made: dict[tuple[Value, int], Value] = field(default_factory=dict[tuple[Value, int], Value])
    early: bool = False

    def done(self) -> tuple[Operation, ...]:
        self._find()
        if not self.work:
            return self.operations
        moved = set(map(id, self.work))
        loads = [o for o in self.work if o.name == _LOAD]
        before = self._before_a_loop(loads)
        self.early = before is not None
        out: list[Operation] = []
        for i, o in enumerate(self.operations):
            if i == before:
                out += self._loads(loads, 0)
            if id(o) in moved:
                continue
            number = next((n for n, s in enumerate(self.slices) if s is o), None)
            if number is None:
                out.append(o)
                continue
            out += self._loads(loads, number) + self._loads(loads, number + 1)
            out += self._part(number)
        results = {s.result: self.made[self.source, n] for n, s in enumerate(self.slices)}
        return replace_values(tuple(out), results)

    # --- what can be taken apart --------------------------------------------------------------

    def _find(self) -> None:
        axis = _axis(self.slices)
        assert axis is not None
        wanted, whole = {self.source: axis}, set[Value]()
        inside = {id(s) for s in self.slices}
        first = next(i for i, o in enumerate(self.operations) if o is self.slices[0])
        for o in reversed(self.operations[:first]):
            if len(o.results) != 1 or o.result not in wanted or o.result in whole:
                continue
            at = wanted[o.result]
            if any(id(u) not in inside for u in self.users[o.result]):
                continue
            operands = self._operands(o, at)
            if operands is None or any(wanted.get(v, a) != a for v, a in operands.items()):
                continue
            inside.add(id(o))
            self.work.insert(0, o)
            self.cut[o.result] = at
            wanted |= operands
            whole |= {v for v in o.operands if isinstance(v.type, TileType) and v not in operands}
        self.cut |= wanted

    def _operands(self, o: Operation, axis: int) -> dict[Value, int] | None:
        """The tiles of which an operation needs the same part, and along which axis; None where
        it is no function of such parts."""
        result = _tile(o.result)
        if self._cut_type(result, axis) is None:
            return None
        tiles = [v for v in o.operands if isinstance(v.type, TileType)]
        if o.name == _LOAD:
            return {} if o.operands[0] in self.views and "ahead" not in o.attributes else None
        if o.name == _SPLAT:
            return {}
        if o.name == _EXPAND:
            new = o.integer("axis")
            found = {} if new == axis else {tiles[0]: axis - (new < axis)}
        elif o.name == _TRANSPOSE:
            permutation = o.integers("permutation")
            at = permutation[axis]
            found = {tiles[0]: at}
        elif _is_by_elements(o):
            found = dict.fromkeys(tiles, axis)
        else:
            return None
        return found if all(self._cut_type(_tile(v), a) for v, a in found.items()) else None

    def _size(self) -> int:
        axis = _axis(self.slices)
        assert axis is not None
        return _tile(self.slices[0].result).sizes[axis]

    def _start(self, number: int) -> int:
        starts, axis = self.slices[number].integers("starts"), _axis(self.slices)
        assert axis is not None
        return starts[axis]

    def _cut_type(self, t: TileType, axis: int) -> TileType | None:
        if not isinstance(t.layout, RegisterLayout):
            return None
        layout = sliced(t.layout, axis, self._size())
        if layout is None:
            return None
        return replace(t, shape=_with(t.sizes, axis, self._size()), layout=canonical(layout))

    # --- where the pieces stand ---------------------------------------------------------------

    def _before_a_loop(self, loads: Sequence[Operation]) -> int | None:
        """The place in front of the last loop before the parts, where what the first part reads
        can stand."""
        if not self.ahead or not loads:
            return None
        defined = {v: i for i, o in enumerate(self.operations) for v in o.results}
        first = next(i for i, o in enumerate(self.operations) if o is self.slices[0])
        loops = [i for i, o in enumerate(self.operations[:first]) if o.name == "tile.for"]
        known = max((defined.get(v, -1) for o in loads for v in o.operands), default=-1)
        return loops[-1] if loops and known < loops[-1] else None

    def _loads(self, loads: Sequence[Operation], number: int) -> list[Operation]:
        """What a part reads, unless it has been read."""
        if number >= len(self.slices):
            return []
        out: list[Operation] = []
        for o in loads:
            if (o.result, number) not in self.made:
                out += self._load(o, number)
        return out

    def _load(self, o: Operation, number: int) -> list[Operation]:
        axis, result = self.cut[o.result], _tile(o.result)
        t = self._cut_type(result, axis)
        dims, steps = o.integers("dims"), o.integers("steps")
        assert t is not None
        dim, step = dims[axis], steps[axis]
        rank = len(o.operands) - 1 - len(result.sizes)
        b = Builder(o.span)
        with b.region() as made:
            view, *at = o.operands
            column = b.index(self._start(number))
            moved = column if step == 1 else b.index(self._start(number) * step)
            at[dim] = b.binary("add", at[dim], moved)
            rest = b.binary("max", b.binary("sub", at[rank + axis], column), b.index(0))
            at[rank + axis] = b.binary("min", rest, b.index(self._size()))
            load = b.emit(_LOAD, (view, *at), (t,), o.attributes, (), (o.result.name,))
        self.made[o.result, number] = load.result
        return made.operations

    def _part(self, number: int) -> list[Operation]:
        """The work for one part; what is not part of the work is cut where it is needed."""
        out: list[Operation] = []
        for o in self.work:
            if o.name == _LOAD:
                continue
            operands = tuple(
                self._piece(v, number, out)
                if isinstance(v.type, TileType) and v in self.cut and self._is_cut(o, v) else v
                for v in o.operands
            )  # fmt: skip
            t = self._cut_type(_tile(o.result), self.cut[o.result])
            assert t is not None
            piece = self.made[o.result, number] = Value(t, o.result.name)
            out.append(replace(o, operands=operands, results=(piece,)))
        return out

    def _is_cut(self, o: Operation, value: Value) -> bool:
        found = self._operands(o, self.cut[o.result])
        return found is not None and value in found

    def _piece(self, value: Value, number: int, out: list[Operation]) -> Value:
        known = self.made.get((value, number))
        if known is not None:
            return known
        axis = self.cut[value]
        t = self._cut_type(_tile(value), axis)
        assert t is not None
        starts = _with((0,) * len(t.shape), axis, self._start(number))
        piece = self.made[value, number] = Value(t, value.name)
        out.append(Operation(_SLICE, (value,), (piece,), {"starts": starts}, (), None))
        return piece


def _is_by_elements(o: Operation) -> bool:
    """Whether an element of the result is made of those at the same place."""
    if o.name in _NO_FUNCTION_OF_ELEMENTS or o.regions or not TILE_OPS[o.name].pure:
        return False
    result, tiles = _tile(o.result), [v.type for v in o.operands if isinstance(v.type, TileType)]
    return all(t.sizes == result.sizes and t.layout == result.layout for t in tiles)


def _with(numbers: Sequence[int], axis: int, number: int) -> tuple[int, ...]:
    return tuple(number if i == axis else n for i, n in enumerate(numbers))
