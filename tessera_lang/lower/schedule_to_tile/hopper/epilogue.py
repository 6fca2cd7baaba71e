"""The epilogue: results leave in subtiles of a few columns, through two small shared buffers.

Where a tensor map can show the array, by TMA: while one part is on its way the next is written.
Nobody waits for the last ones before the next tile begins; what is waited for is that a buffer
may be written again. Elsewhere (lines at no multiple of 16 bytes) by lanes: each warp writes
lines, its lanes neighbours. Owns the plan of the stores and their operations. Must not know
what is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tessera_lang.analysis.resources.register_layouts import canonical
from tessera_lang.ir.core import BufferType, Operation, Region, TileType, Value
from tessera_lang.ir.layout import Mode, RegisterLayout, digits
from tessera_lang.lower.schedule_to_tile.common.errors import NotHonoured
from tessera_lang.lower.schedule_to_tile.common.tensor_maps import Boxes, Maps
from tessera_lang.opt.schedule.query.copy_rules import (
    contiguous_axis,
    shared_layout,
)
from tessera_lang.opt.schedule.query.kernel_facts import Facts
from tessera_lang.opt.schedule.query.staging_rings import STORE_BUFFERS
from tessera_lang.opt.schedule.query.tile_access import TileAccess, access_of
from tessera_lang.record import dataclass, replace
from tessera_lang.target.arch.isa_constants import WARP, WARP_GROUP
from tessera_lang.types.dtype import INDEX

if TYPE_CHECKING:
    from tessera_lang.lower.schedule_to_tile.common.assign_layouts import Layouts
    from tessera_lang.lower.schedule_to_tile.common.body import Body
    from tessera_lang.lower.schedule_to_tile.common.shared_scratch import Scratch


@dataclass(frozen=True, slots=True, eq=False)
class Leaving:
    """One store. ``parts`` subtiles of ``columns``; ``steady``: the only one of its
    kernel, with an even number of parts, so that buffers alternate from tile to tile.
    ``groups``: warp groups that send their rows each on its own; 1: all together. Without
    ``boxes`` it is written by lanes."""

    access: TileAccess
    buffer: Value
    boxes: Boxes | None
    layout: RegisterLayout
    columns: int
    parts: int
    steady: bool
    groups: int


def stores_in_parts(
    facts: Facts, maps: Maps, scratch: Scratch, layouts: Layouts
) -> dict[Operation, Leaving]:
    """The stores that the schedule lets leave through buffers, with these. Warp groups go each its
    own way where they can for all stores: buffers are shared."""
    found = [o for o, _ in facts.stores if "columns" in o.attributes]
    parts_of = {o: _part_layout(layouts, o) for o in found}
    groups = layouts.engine.warps // WARP_GROUP
    if not all(
        _apart(layouts.of(o.operands[0]), access_of(o).tile.sizes[0], groups) for o in found
    ):
        groups = 1
    buffers: dict[tuple[BufferType, bool], Value] = {}
    out: dict[Operation, Leaving] = {}
    for store in found:
        access = access_of(store)
        width = _columns(store)
        rows, whole = access.tile.sizes[-2:]
        part = replace(access.tile, shape=(rows // groups, width))
        boxes = maps.boxes(access, part) if store.attributes["leaves"] == "tma" else None
        lines = shared_layout(part, contiguous_axis(access, facts))
        t = BufferType(part.dtype, (STORE_BUFFERS, rows, width), layout=lines)
        key = t, boxes is None
        if key not in buffers:
            name = f"{access.view.name or 'out'}.tiles"
            buffers[key] = scratch.allocate(t.dtype, t.shape, name, "stores", t.layout)
        parts = whole // width
        steady = len(found) == 1 and parts % STORE_BUFFERS == 0
        layout = parts_of[store]
        out[store] = Leaving(access, buffers[key], boxes, layout, width, parts, steady, groups)
    return out


def _apart(layout: RegisterLayout, rows: int, groups: int) -> bool:
    """Whether each warp group holds rows of its own, one block behind the other."""
    if rows % (8 * groups):
        return False
    block = rows // groups
    span = sum((m.extent - 1) * m.stride for m in (*layout.registers, *layout.lanes) if m.axis == 0)
    for warp in range(WARP_GROUP * groups):
        first = sum(
            d * m.stride
            for m, d in zip(layout.warps, digits(warp, layout.warps), strict=True) if m.axis == 0
        )  # fmt: skip
        if first // block != warp // WARP_GROUP or (first + span) // block != warp // WARP_GROUP:
            return False
    return True


def _columns(store: Operation) -> int:
    return store.integer("columns")


def _part_layout(layouts: Layouts, store: Operation) -> RegisterLayout:
    """The layout of a subtile. Raises NotHonoured where it is not whole registers of each lane."""
    value = store.operands[0]
    found = None
    if layouts.shape(value) == access_of(store).tile.sizes:
        found = sliced(layouts.of(value), 1, _columns(store))
    if found is None:
        reason = "the columns of a part are not registers of each lane"
        raise NotHonoured("subtile", reason, store.span)
    return found


def sliced(layout: RegisterLayout, axis: int, size: int) -> RegisterLayout | None:
    """The layout of the first ``size`` elements along an axis, where each lane holds its share of
    them in registers of its own; else None."""
    modes: list[Mode] = []
    for mode in layout.registers:
        if mode.axis != axis or mode.stride * mode.extent <= size:
            modes.append(mode)
        elif mode.stride < size:
            if size % mode.stride:
                return None
            modes.append(Mode(size // mode.stride, axis, mode.stride))
    for mode in (*layout.lanes, *layout.warps):
        if mode.axis == axis and mode.stride * mode.extent > size:
            return None
    return canonical(RegisterLayout(tuple(modes), layout.lanes, layout.warps))


def leave(body: Body, store: Operation, leaving: Leaving) -> None:
    """The operations of one store, by all warps of the role."""
    b = body.builder
    t = body.layouts.type_of(store.operands[0])
    assert t.layout is not None
    tile = body.demand(store.operands[0], t.layout)
    part_type = replace(t, shape=(t.sizes[0], leaving.columns), layout=leaving.layout)
    starts = body.scalars(leaving.access.starts)
    if leaving.boxes is None:
        body.write(leaving.access.view, store)
    for number in range(leaving.parts):
        column = number * leaving.columns
        if leaving.boxes is None:
            _write_lines(body, store, leaving, tile, part_type, number)
            continue
        part = tile if leaving.parts == 1 else _part(body, tile, part_type, column)
        again = STORE_BUFFERS - 1 if leaving.steady or number else 0
        _wait(body, again, leaving.groups > 1)
        _meet(body, leaving)
        slot = b.index(number % STORE_BUFFERS)
        zero = b.index(0)
        b.emit("tile.write_tile", (part, leaving.buffer, slot, zero, zero))
        b.emit("tile.fence_async")
        _meet(body, leaving)
        _send(body, leaving, starts, slot, column)


def _write_lines(
    body: Body, store: Operation, leaving: Leaving, tile: Value, part_type: TileType, number: int
) -> None:
    """One part, by lanes. Where it is written again, whoever read it has met the others since."""
    b, access = body.builder, leaving.access
    column = number * leaving.columns
    part = tile if leaving.parts == 1 else _part(body, tile, part_type, column)
    if number == 0:
        _meet(body, leaving)
    slot, zero = b.index(number % STORE_BUFFERS), b.index(0)
    b.emit("tile.write_tile", (part, leaving.buffer, slot, zero, zero))
    _meet(body, leaving)
    lines = replace(part_type, layout=_lines(part_type, body.engine.warps))
    read = b.emit("tile.read_tile", (leaving.buffer, slot, zero, zero), (lines,)).result
    starts, extents = body.scalars(access.starts), body.scalars(access.extents)
    along = access.dims[1]
    starts[along] = b.binary("add", starts[along], b.index(column * access.steps[1]))
    rest = b.binary("max", b.binary("sub", extents[1], b.index(column)), zero)
    extents[1] = b.binary("min", rest, b.index(leaving.columns))
    attributes = {
        "dims": access.dims, "steps": access.steps, "vector": access.tile.dtype.bytes,
        "whole": True,
    }  # fmt: skip
    view = body.scalar(access.view)
    b.emit("tile.store_tile", (read, view, *starts, *extents), (), attributes)


def _lines(part: TileType, warps: int) -> RegisterLayout:
    """Each warp holds lines, one behind the other, its lanes neighbours on each; warp groups
    hold rows as they do of any product."""
    rows, columns = part.sizes
    return canonical(RegisterLayout(
        (Mode(columns // WARP, 1, WARP), Mode(rows // warps, 0, 1)), (Mode(WARP, 1, 1),),
        (Mode(warps, 0, rows // warps),),
    ))  # fmt: skip


def _part(body: Body, tile: Value, part: TileType, column: int) -> Value:
    attributes = {"starts": (0, column)}
    return body.builder.emit("tile.slice_tile", (tile,), (part,), attributes).result


def _meet(body: Body, leaving: Leaving) -> None:
    """A barrier of those that share a buffer's rows."""
    if leaving.groups == 1:
        body.builder.barrier()
        return
    attributes = {"id": 0, "lanes": 32 * WARP_GROUP, "wait": True, "each": "warp_group"}
    body.builder.emit("tile.named_barrier", (), (), attributes)


def _send(body: Body, leaving: Leaving, starts: Sequence[Value], slot: Value, column: int) -> None:
    """The boxes of the part that begins at a column. Lines of the array are rows of the tile, or
    its columns where it is the transpose of what is stored."""
    b, boxes = body.builder, leaving.boxes
    assert boxes is not None
    rows, columns = leaving.access.dims
    with b.region() as region:
        first = _first_row(body, leaving)
        for box in boxes.boxes:
            by_rows = boxes.layout.major == 1
            down, across = (box.line, box.panel) if by_rows else (box.panel, box.line)
            row = b.binary("add", first, b.index(down)) if down else first
            at = list(starts)
            at[rows] = b.binary("add", starts[rows], row)
            at[columns] = b.binary("add", starts[columns], b.index(column + across))
            where = (slot, row, b.index(across))
            b.emit("tma.store", (leaving.buffer, boxes.map, *where, *(at[d] for d in boxes.axes)))
        b.emit("tma.commit")
        b.yield_()
    _once(body, region.region, leaving.groups > 1)


def _first_row(body: Body, leaving: Leaving) -> Value:
    """The first of the rows that whoever sends is to send."""
    b = body.builder
    if leaving.groups == 1:
        return b.index(0)
    group = b.binary("floordiv", b.emit("tile.role_warp", (), (INDEX,)).result, b.index(WARP_GROUP))
    return b.binary("mul", group, b.index(leaving.access.tile.sizes[0] // leaving.groups))


def all_gone(body: Body, leaving: Iterable[Leaving]) -> None:
    """Before a role ends its buffers have been read."""
    sent = [x for x in leaving if x.boxes is not None]
    if sent:
        _wait(body, 0, any(x.groups > 1 for x in sent))


def _wait(body: Body, pending: int, each: bool) -> None:
    b = body.builder
    with b.region() as region:
        b.emit("tma.wait", (), (), {"pending": pending})
        b.yield_()
    _once(body, region.region, each)


def _once(body: Body, region: Region, each: bool) -> None:
    attributes = {"each": "warp_group"} if each else {}
    body.builder.emit("tile.once", (), (), attributes, (region,))
