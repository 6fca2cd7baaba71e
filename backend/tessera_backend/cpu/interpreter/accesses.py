"""Rules of tiles in memory: loads, stores, shared buffers, and the lanes that touch what.

Owns how an access of lanes is noted. Must not know what is asynchronous.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from tessera_backend.cpu.interpreter.access_history import Box, Memory, box_of
from tessera_backend.cpu.interpreter.element_arithmetic import Array, garbage, numpy_type
from tessera_backend.cpu.interpreter.faults import AsynchronousFault
from tessera_backend.cpu.interpreter.happens_before import AccessRecord, Owners
from tessera_backend.cpu.interpreter.layouts import warp_groups
from tessera_backend.cpu.interpreter.strand import Rule, Strand
from tessera_lang.analysis.resources.register_layouts import held_elements
from tessera_lang.ir.core import Operation, TileType
from tessera_lang.ir.layout import SharedLayout
from tessera_lang.record import dataclass


def touch(
    s: Strand, o: Operation, memory: Memory, kind: Any, box: Box, lanes: object,
    owners: Owners | None = None,
) -> AccessRecord | None:  # fmt: skip
    """Note an access of the strand's lanes. Raises AsynchronousFault where it meets another."""
    if memory.history is None:
        return None
    access = AccessRecord(
        kind, o, s.clock, box, memory.frame, lanes=lanes, leader=s.leader, owners=owners
    )
    if kind == "write":
        take(s, memory, access)
    memory.history.add(access)
    return access


def take(s: Strand, memory: Memory, access: AccessRecord) -> None:
    """A buffer is written: others with some of its bytes lose what they hold."""
    if memory.space == "global":
        return
    for other in _buffers(s, memory):
        history = other.history
        if other is memory or history is None or not other.overlaps(memory):
            continue
        if history.reads or history.writes:
            history.look_at_all(access)
            history.forget()
            other.poison()


def _buffers(s: Strand, memory: Memory) -> list[Memory]:
    """Those of the group that the buffer is of, which may be another of the cluster."""
    return next(g.buffers for g in s.group.peers if memory in g.buffers)


@dataclass(frozen=True, slots=True)
class Part:
    """The part of an array that a tile with an extent is of: its place, extents and axes."""

    at: tuple[Any, ...]
    box: Box
    extents: tuple[int, ...]
    dims: tuple[int, ...]

    @property
    def empty(self) -> bool:
        return not all(self.extents)


def part_of(s: Strand, o: Operation, first: int, rank: int, memory: Memory) -> Part:
    """By the starts and extents that are operands from ``first``."""
    numbers = s.numbers(o.operands[first:])
    axes = memory.data.ndim
    starts, extents = numbers[:axes], [max(0, n) for n in numbers[axes:][:rank]]
    dims, steps = (cast("tuple[int, ...]", o.attributes[a]) for a in ("dims", "steps"))
    at: list[Any] = list(starts)
    counts, by = [1] * axes, [1] * axes
    for d, e, k in zip(dims, extents, steps, strict=True):
        last = starts[d] + (e - 1) * k
        if all(extents) and not (starts[d] >= 0 and last < memory.data.shape[d]):
            raise AsynchronousFault(f"{o.name} begins or ends outside of the array", o)
        at[d] = slice(starts[d], last + 1, k)
        counts[d], by[d] = e, k
    if not all(extents):
        at = [slice(0, 0) if i in dims else 0 for i in range(axes)]
        counts = [0] * axes
    return Part(tuple(at), box_of(starts, counts, by), tuple(extents), tuple(dims))


def taken(memory: Memory, part: Part, shape: Sequence[int]) -> Array:
    """The elements of a part, in a tile that has zeros beyond it."""
    out = np.zeros(shape, memory.data.dtype)
    if not part.empty:
        kept = sorted(part.dims)
        found = np.transpose(memory.data[part.at], [kept.index(d) for d in part.dims])
        out[tuple(slice(0, e) for e in part.extents)] = found
    return out


def check_vector(o: Operation, memory: Memory, part: Part) -> None:
    """Pieces of ``vector`` bytes are aligned where the operation says so."""
    vector, size = o.integer("vector", 1), memory.data.itemsize
    if part.empty or vector <= size:
        return
    strides = memory.data.strides
    unit = next(d for d in part.dims if strides[d] == size)
    right = part.at[unit].start * size % vector == 0
    for axis, stride in enumerate(strides):
        many = isinstance(part.at[axis], slice) or part.at[axis]
        right = right and (axis == unit or not many or stride % vector == 0)
    if o.attributes.get("whole"):
        right = right and part.extents[part.dims.index(unit)] * size % vector == 0
    if not right:
        raise AsynchronousFault(f"{o.name} says {vector} bytes are aligned, and they are not", o)


def _owners(s: Strand, t: Any, part: Part) -> Owners | None:
    """The warp groups of the elements of an array's box, its axes in order."""
    if s.parts == 1 or t.layout is None:
        return None

    def found() -> Array:
        groups = warp_groups(t.layout, t.sizes)[tuple(slice(0, e) for e in part.extents)]
        groups = np.transpose(groups, [part.dims.index(d) for d in sorted(part.dims)])
        sizes = iter(groups.shape)
        return groups.reshape([next(sizes) if isinstance(a, slice) else 1 for a in part.at])

    return found


def _load_tile(s: Strand, o: Operation) -> Sequence[Any]:
    memory: Memory = s.values[o.operands[0]]
    t = o.result.tile_type
    part = part_of(s, o, 1, len(t.shape), memory)
    check_vector(o, memory, part)
    lanes = ("view", str(t.layout), part.box, part.dims)
    touch(s, o, memory, "read", part.box, lanes, _owners(s, t, part))
    return (taken(memory, part, t.sizes),)


def _store_tile(s: Strand, o: Operation) -> Sequence[Any]:
    tile, memory = s.get(o.operands[:2])
    t = o.operands[0].tile_type
    part = part_of(s, o, 2, tile.ndim, memory)
    check_vector(o, memory, part)
    lanes = ("view", str(t.layout), part.box, part.dims)
    touch(s, o, memory, "write", part.box, lanes, _owners(s, t, part))
    if not part.empty:
        inside = tile[tuple(slice(0, e) for e in part.extents)]
        kept = sorted(part.dims)
        memory.data[part.at] = np.transpose(inside, [part.dims.index(d) for d in kept])
    return ()


def _kept(s: Strand, o: Operation, kind: Any) -> tuple[Memory, slice]:
    """The place of registers as they are: each lane touches what is its own."""
    memory: Memory = s.values[o.operands[1]]
    start, t = s.number(o.operands[2]), o.operands[0].tile_type
    assert t.layout is not None
    count = held_elements(t)
    if start < 0 or start + count > memory.data.shape[0] or start * t.dtype.bytes % 16:
        raise AsynchronousFault(f"{o.name} begins or ends where it must not", o)
    touch(s, o, memory, kind, box_of((start,), (count,)), ("kept", str(t.layout), start))
    return memory, slice(start, start + int(np.prod(t.sizes)))


def _put_down(s: Strand, o: Operation) -> Sequence[Any]:
    memory, place = _kept(s, o, "write")
    memory.data[place] = s.values[o.operands[0]].reshape(-1)
    return ()


def _take_up(s: Strand, o: Operation) -> Sequence[Any]:
    memory, place = _kept(s, o, "read")
    tile = s.values[o.operands[0]]
    return ((tile + memory.data[place].reshape(tile.shape)).astype(tile.dtype),)


def _gather_tile(s: Strand, o: Operation) -> Sequence[Any]:
    memory, *numbers = s.get(o.operands)
    t = o.result.tile_type
    return (gathered(s, o, memory, numbers, t.sizes),)


def _scatter_tile(s: Strand, o: Operation) -> Sequence[Any]:
    """As a store of rows; no two of them may be one."""
    tile, memory, *numbers = s.get(o.operands)
    extents, places = _places(o, memory, numbers)
    if not all(extents):
        return ()
    inside = _inside(memory, places)
    count = int(inside.sum())
    written = np.zeros(memory.data.shape, np.int64)
    np.add.at(written, tuple(p[inside] for p in places), 1)
    if int((written > 0).sum()) != count:
        raise AsynchronousFault(f"{o.name} writes an element twice", o)
    touch(s, o, memory, "write", _box(places), ("scatter", s.anew()))
    within = tile[tuple(slice(0, e) for e in extents)]
    memory.data[tuple(p[inside] for p in places)] = within[inside]
    return ()


def gathered(
    s: Strand, o: Operation, memory: Memory, numbers: Sequence[Any], shape: Sequence[int]
) -> Array:
    """Rows with numbers (starts, then extents), with zeros beyond."""
    extents, places = _places(o, memory, numbers)
    out = np.zeros(shape, memory.data.dtype)
    if all(extents):
        inside = _inside(memory, places)
        found = np.zeros(extents, memory.data.dtype)
        found[inside] = memory.data[tuple(p[inside] for p in places)]
        out[tuple(slice(0, e) for e in extents)] = found
        touch(s, o, memory, "read", _box(places), ("gather", s.anew()))
    return out


def _places(o: Operation, memory: Memory, numbers: Sequence[Any]) -> tuple[list[int], list[Array]]:
    """The extents of a tile of rows, and of each element its place along each axis."""
    dims = o.integers("dims")
    axes = memory.data.ndim
    extents = [max(0, int(n)) for n in numbers[axes:]]
    places: list[Array] = []
    for d, start in enumerate(numbers[:axes]):
        along = np.zeros(extents, np.int64)
        if d in dims:
            axis = dims.index(d)
            steps = np.arange(extents[axis])
            row = start[: extents[axis]] if np.ndim(start) else int(start) + steps
            along += row.reshape([-1 if i == axis else 1 for i in range(len(extents))])
        else:
            along += int(start)
        places.append(along)
    return extents, places


def _inside(memory: Memory, places: Sequence[Array]) -> Array:
    shape = memory.data.shape
    return np.logical_and.reduce([(p >= 0) & (p < n) for p, n in zip(places, shape, strict=True)])


def _box(places: Sequence[Array]) -> Any:
    lows = [int(p.min()) for p in places]
    return box_of(lows, [int(p.max()) + 1 - low for p, low in zip(places, lows, strict=True)])


# --- shared buffers ----------------------------------------------------------------------------


def buffer(o: Operation) -> Memory:
    """A buffer as it is when a group begins: poison."""
    t = o.result.buffer_type
    dtype = numpy_type(t.dtype)
    memory = Memory(np.full(t.shape, garbage(dtype), dtype), space="shared")
    memory.name = str(o.attributes.get("name", ""))
    offset = o.attributes.get("offset")
    if isinstance(offset, int):
        size = (t.layout or SharedLayout()).bytes(t.shape, t.dtype.bytes)
        memory.place = (offset, offset + size)
    return memory


def _shared_alloc(s: Strand, o: Operation) -> Sequence[Any]:
    made = buffer(o)
    s.group.buffers.append(made)
    return (made,)


def place_in(o: Operation, starts: Sequence[int], shape: Sequence[int], memory: Memory) -> Any:
    """The part of a buffer at some starts, as an index and as a box."""
    outer = len(starts) - len(shape)
    counts = (*(1,) * outer, *shape)
    for a, n, size in zip(starts, counts, memory.data.shape, strict=True):
        if not 0 <= a <= size - n:
            raise AsynchronousFault(f"{o.name} begins or ends outside of its buffer", o)
    at = (*starts[:outer], *(slice(a, a + n) for a, n in zip(starts[outer:], shape, strict=True)))
    return at, box_of(starts, counts)


def _buffer_owners(s: Strand, t: TileType, rank: int) -> Owners | None:
    layout = t.layout
    if s.parts == 1 or layout is None:
        return None
    shape = (*(1,) * (rank - len(t.shape)), *t.sizes)
    return lambda: warp_groups(layout, t.sizes).reshape(shape)


def _read_tile(s: Strand, o: Operation) -> Sequence[Any]:
    memory: Memory = s.values[o.operands[0]]
    t = o.result.tile_type
    at, box = place_in(o, s.numbers(o.operands[1:]), t.sizes, memory)
    owners = _buffer_owners(s, t, memory.data.ndim)
    touch(s, o, memory, "read", box, ("buffer", id(memory), str(t.layout), box), owners)
    return (memory.data[at].copy(),)


def _write_tile(s: Strand, o: Operation) -> Sequence[Any]:
    tile, memory = s.get(o.operands[:2])
    t = o.operands[0].tile_type
    at, box = place_in(o, s.numbers(o.operands[2:]), t.sizes, memory)
    owners = _buffer_owners(s, t, memory.data.ndim)
    touch(s, o, memory, "write", box, ("buffer", id(memory), str(t.layout), box), owners)
    memory.data[at] = tile
    return ()


RULES: dict[str, Rule] = {
    "tile.load_tile": _load_tile,
    "tile.store_tile": _store_tile,
    "tile.put_down": _put_down,
    "tile.take_up": _take_up,
    "tile.gather_tile": _gather_tile,
    "tile.scatter_tile": _scatter_tile,
    "tile.shared.alloc": _shared_alloc,
    "tile.read_tile": _read_tile,
    "tile.write_tile": _write_tile,
}
