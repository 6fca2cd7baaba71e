"""One Schedule operation as Tile operations, where neither memory nor products are concerned.

Owns element-wise work, reductions, masks, shapes and parts of tiles. Must not know what a
machine has.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tessera_lang.analysis.resources.register_layouts import (
    canonical,
    reduce_scratch,
    scan_scratch,
    transposed,
)
from tessera_lang.ir.core import IRType, Operation, TileType, Value, ViewType
from tessera_lang.ir.definitions import effect_of
from tessera_lang.ir.layout import RegisterLayout
from tessera_lang.lower.schedule_to_tile.common.errors import NotTiled
from tessera_lang.lower.schedule_to_tile.common.value_map import Lowered
from tessera_lang.opt.schedule.query.scalar_facts import (
    Facts,
    is_tile,
)
from tessera_lang.opt.schedule.query.tile_access import TileAccess, access_of
from tessera_lang.record import replace
from tessera_lang.types.dtype import BOOL, I32, DType, integer_range

_PREFIX = "tessera.schedule."


def lower_single(body: Lowered, operation: Operation) -> None:
    """Raises NotTiled for what has no form with register tiles."""
    name = operation.name.removeprefix(_PREFIX)
    lower = _BY_NAME.get(name)
    if lower is not None:
        lower(body, operation)
    elif operation.name.startswith(_PREFIX):
        raise NotTiled(f"{name} is not lowered", operation.span)
    elif operation.results and is_tile(operation.results[0]):
        _elementwise(body, operation)
    else:
        _scalar(body, operation)


# --- scalars and element-wise work ------------------------------------------------------------


def _scalar(body: Lowered, operation: Operation) -> None:
    """A scalar operation, a view, a fault check: the same on Tile IR."""
    writes = effect_of(operation) == "write"
    if writes:
        body.write(operation.operands[1], operation)
    if writes or operation.name == "tile.print":
        _by_one(body, operation)
        return
    if operation.name == "tile.load" and isinstance(operation.operands[0].type, ViewType):
        body.read(operation.operands[0], operation)
    made = body.builder.emit(
        operation.name, body.scalars(operation.operands), [v.type for v in operation.results],
        operation.attributes, (), [v.name for v in operation.results],
    )  # fmt: skip
    for value, result in zip(operation.results, made.results, strict=True):
        body.bind(value, result)


def _by_one(body: Lowered, operation: Operation) -> None:
    """What one lane does for all."""
    builder = body.builder
    first = builder.cmp("eq", builder.lane_linear(), builder.index(0))
    with builder.region() as then:
        builder.emit(operation.name, body.scalars(operation.operands), (), operation.attributes)
        builder.yield_()
    with builder.region() as otherwise:
        builder.yield_()
    builder.if_(first, then.region, otherwise.region)


def _elementwise(body: Lowered, operation: Operation) -> None:
    t = body.layouts.type_of(operation.result)
    assert t.layout is not None
    operands = [
        body.demand(v, t.layout) if is_tile(v) else body.scalar(v) for v in operation.operands
    ]
    made = body.builder.emit(
        operation.name, operands, (t,), operation.attributes, (), (operation.result.name,)
    )
    body.bind(operation.result, made.result)


def _full(body: Lowered, operation: Operation) -> None:
    body.bind(operation.result, splat(body, body.scalar(operation.operands[0]), operation.result))


def splat(body: Lowered, scalar: Value, like: Value) -> Value:
    """``scalar`` in every element of a tile of the type a Schedule value has."""
    t = body.layouts.type_of(like)
    return body.builder.emit("tile.splat", (scalar,), (replace(t, dtype=scalar.dtype),)).result


def _iota(body: Lowered, operation: Operation) -> None:
    t = body.layouts.type_of(operation.result)
    attributes = {"axis": operation.attributes["axis"]}
    made = body.builder.emit("tile.coordinate", (), (t,), attributes, (), (operation.result.name,))
    body.bind(operation.result, made.result)


def _pass(body: Lowered, operation: Operation) -> None:
    body.bind(operation.result, body.tile(operation.operands[0]))


# --- masks and reductions ---------------------------------------------------------------------


def masked(
    body: Lowered, tile: Value, fill: Value, extents: Sequence[tuple[int, Value | int]]
) -> Value:
    """``tile`` with ``fill`` beyond the extents, given as (axis, number) where they can be less."""
    t = tile.tile_type
    if not extents:
        return tile
    builder = body.builder
    inside: Value | None = None
    for axis, extent in extents:
        number = (
            builder.constant(extent, I32) if isinstance(extent, int) else builder.cast(extent, I32)
        )
        counted = replace(t, dtype=I32)
        at = builder.emit("tile.coordinate", (), (counted,), {"axis": axis}).result
        bound = builder.emit("tile.splat", (number,), (counted,)).result
        truth = replace(t, dtype=BOOL)
        less = builder.emit(
            "tile.cmp", (at, bound), (truth,), {"predicate": "lt", "near": True}
        ).result
        both = () if inside is None else (inside, less)
        inside = builder.emit("tile.and", both, (truth,)).result if both else less
    assert inside is not None
    filled = builder.emit("tile.splat", (fill,), (t,)).result
    return builder.emit("tile.select", (inside, tile, filled), (t,)).result


def _mask(body: Lowered, operation: Operation) -> None:
    value, fill, *extents = operation.operands
    shape = body.layouts.shape(operation.result)
    open_: list[tuple[int, Value | int]] = [
        (axis, body.scalar(extent))
        for axis, extent in enumerate(extents)
        if not body.facts.is_full(extent, shape[axis])
    ]
    layout = body.layouts.of(operation.result)
    made = masked(body, body.demand(value, layout), body.scalar(fill), open_)
    body.bind(operation.result, made)


def _identity(kind: str, dtype: DType) -> bool | float:
    """What leaves a reduction as it is."""
    match kind:
        case "any" | "all":
            return kind == "all"
        case "mul":
            return 1
        case "max" | "argmax" | "min" | "argmin":
            low = kind.endswith("max")
            if dtype.is_float:
                return _least(dtype) if low else -_least(dtype)
            return integer_range(dtype)[not low]
        case _:
            return 0


def _least(dtype: DType) -> float:
    return -inf if dtype.infinite else -dtype.largest


def _reduce(body: Lowered, operation: Operation) -> None:
    value, extent = operation.operands
    kind, axis = str(operation.attributes["kind"]), operation.integer("axis")
    tile = body.tile(value)
    t = tile.tile_type
    assert t.layout is not None
    done = kind == "add" and _is_zero_beyond(body.facts, value, axis, extent)
    if not done and not body.facts.is_full(extent, t.sizes[axis]):
        fill = body.builder.constant(_identity(kind, t.dtype), t.dtype)
        tile = masked(body, tile, fill, [(axis, body.scalar(extent))])
    made = _reduced(body, tile, kind, axis, operation.result.type)
    groups = operation.attributes.get("across", 1)
    if isinstance(groups, int) and groups > 1:
        made = _across_groups(body, made, operation, groups)
    if is_tile(operation.result):
        made = body.convert(made, body.layouts.of(operation.result))
    body.bind(operation.result, made)


def _is_zero_beyond(facts: Facts, value: Value, axis: int, extent: Value) -> bool:
    """Whether a tile surely has zeros behind so many elements of an axis, as loads give them."""
    made = facts.operation(value)
    match made.name if made is not None else "":
        case "tessera.schedule.load" if made is not None:
            access = access_of(made)
            return axis < len(access.extents) and access.extents[axis] is extent
        case "tile.cast" | "tile.mul" if made is not None:
            return all(_is_zero_beyond(facts, v, axis, extent) for v in made.operands)
        case _:
            return False


def _reduced(body: Lowered, tile: Value, kind: str, axis: int, result: IRType) -> Value:
    t = tile.tile_type
    assert t.layout is not None
    rest = t.sizes[:axis] + t.sizes[axis + 1 :]
    dtype = result.dtype if isinstance(result, TileType) else result
    assert isinstance(dtype, DType)
    to: IRType = dtype
    if rest:
        to = TileType(dtype, rest, canonical(t.layout.without_axis(axis)))
    operands = (tile, *body.scratch.double_buffered(reduce_scratch(t, axis, kind)))
    return body.builder.emit(
        "tile.reduce_tile", operands, (to,), {"kind": kind, "axis": axis}
    ).result


def _across_groups(body: Lowered, value: Value, operation: Operation, groups: int) -> Value:
    """The results of all groups of the cluster, each for its part of the axis."""
    times = 2 if body.repeats(operation) else 1
    buffer = body.scratch.allocate(
        value.dtype, (times * groups,), "cluster", "results of a cluster"
    )
    attributes = {"kind": operation.attributes["kind"]}
    operands = (value, buffer, body.scratch.barriers(times, "met"))
    return body.builder.emit("tile.cluster_reduce", operands, (value.dtype,), attributes).result


def _scan(body: Lowered, operation: Operation) -> None:
    t = body.layouts.type_of(operation.result)
    axis = operation.integer("axis")
    assert t.layout is not None
    tile = body.demand(operation.operands[0], t.layout)
    operands = (tile, *body.scratch.buffer(scan_scratch(t, axis)))
    made = body.builder.emit("tile.scan_tile", operands, (t,), operation.attributes)
    body.bind(operation.result, made.result)


def _sort(body: Lowered, operation: Operation) -> None:
    del body
    raise NotTiled("lines are sorted in shared memory, by all lanes of a group", operation.span)


# --- shapes -----------------------------------------------------------------------------------


def _expand(body: Lowered, operation: Operation) -> None:
    uses = body.facts.used_by(operation.result)
    if uses and all(u.name == _PREFIX + "broadcast" for u in uses):
        return  # taken together with each of them
    axis = operation.integer("axis")
    t = body.layouts.type_of(operation.result)
    body.bind(operation.result, _expanded(body, operation.operands[0], axis, t))


def _expanded(body: Lowered, value: Value, axis: int, to: TileType) -> Value:
    assert to.layout is not None
    tile = body.demand(value, canonical(to.layout.without_axis(axis)))
    return body.builder.emit("tile.expand_tile", (tile,), (to,), {"axis": axis}).result


def _broadcast(body: Lowered, operation: Operation) -> None:
    t = body.layouts.type_of(operation.result)
    source = body.facts.operation(operation.operands[0])
    small, big = operation.operands[0].tile_type, operation.result.tile_type
    stretched = [i for i, (n, m) in enumerate(zip(small.sizes, big.sizes, strict=True)) if n != m]
    if source is not None and source.name == _PREFIX + "expand":
        axis = source.attributes["axis"]
        if stretched in ([], [axis]) and isinstance(axis, int):
            body.bind(operation.result, _expanded(body, source.operands[0], axis, t))
            return
    assert t.layout is not None
    if (made := body.generated(operation.result, t.layout)) is not None:
        body.bind(operation.result, made)
        return
    if source is not None and source.name == _PREFIX + "expand":
        body.bind(operation.operands[0], _materialised(body, source))
    body.bind(operation.result, _stretched(body, operation.operands[0], stretched, t))


def _materialised(body: Lowered, expand: Operation) -> Value:
    axis = expand.integer("axis")
    return _expanded(body, expand.operands[0], axis, body.layouts.type_of(expand.result))


def _stretched(body: Lowered, value: Value, axes: Sequence[int], to: TileType) -> Value:
    """Axes of one element are taken away, then put in again with their size."""
    tile = body.tile(value)
    assert to.layout is not None
    for axis in reversed(axes):
        tile = _without(body, tile, axis)
    if not isinstance(tile.type, TileType):  # no axis is left
        return body.builder.emit("tile.splat", (tile,), (to,)).result
    shape, layouts = to.sizes, [to.layout]
    for axis in reversed(axes):
        layouts.append(canonical(layouts[-1].without_axis(axis)))
    tile = body.convert(tile, layouts[-1])
    for i, axis in enumerate(axes):
        layout = layouts[len(axes) - 1 - i]
        kept = [n for j, n in enumerate(shape) if j <= axis or j not in axes]
        t = TileType(to.dtype, tuple(kept), layout)
        tile = body.builder.emit("tile.expand_tile", (tile,), (t,), {"axis": axis}).result
    return tile


def _without(body: Lowered, tile: Value, axis: int) -> Value:
    """An axis that holds one element (and padding) is taken away."""
    t = tile.tile_type
    kind = "any" if t.dtype == BOOL else "add"
    if t.sizes[axis] > 1:
        fill = body.builder.constant(_identity(kind, t.dtype), t.dtype)
        tile = masked(body, tile, fill, [(axis, 1)])
    return _reduced(body, tile, kind, axis, t.dtype)


def _transpose(body: Lowered, operation: Operation) -> None:
    permutation = operation.integers("permutation")
    t = body.layouts.type_of(operation.result)
    assert t.layout is not None
    inverse = tuple(permutation.index(i) for i in range(len(permutation)))
    tile = body.demand(operation.operands[0], canonical(transposed(t.layout, inverse)))
    attributes = {"permutation": permutation}
    made = body.builder.emit("tile.transpose_tile", (tile,), (t,), attributes)
    body.bind(operation.result, made.result)


# --- parts ------------------------------------------------------------------------------------


def _room(
    whole: TileType, capacity: Sequence[int], part: Sequence[int], of: Sequence[int]
) -> tuple[int, ...]:
    """Sizes of a buffer in which a padded part fits wherever the true one may begin."""
    return tuple(
        max(n, c - p + q) for n, c, p, q in zip(whole.sizes, capacity, of, part, strict=True)
    )


def _extract(body: Lowered, operation: Operation) -> None:
    value, *starts = operation.operands
    t, whole = body.layouts.type_of(operation.result), body.layouts.type_of(value)
    assert t.layout is not None
    small, big = operation.result.tile_type, value.tile_type
    room = _room(whole, big.sizes, t.sizes, small.sizes)
    if operation.attributes.get("past"):  # it begins at the end of the tile at most
        room = tuple(max(r, c + q) for r, c, q in zip(room, big.sizes, t.sizes, strict=True))
    buffer = body.scratch.shared(t.dtype, room, "parts", "parts of tiles taken at run-time places")
    body.through(buffer, body.tile(value))
    made = body.builder.emit("tile.read_tile", (buffer, *body.scalars(starts)), (t,))
    body.bind(operation.result, made.result)


def _insert(body: Lowered, operation: Operation) -> None:
    value, part, *numbers = operation.operands
    t = body.layouts.type_of(operation.result)
    small, big = part.tile_type, value.tile_type
    assert t.layout is not None
    rank = len(small.shape)
    if len(big.shape) != rank:
        raise NotTiled("a part of another rank is inserted", operation.span)
    piece = body.layouts.type_of(part)
    starts, extents = body.scalars(numbers[:rank]), numbers[rank:]
    room = _room(t, big.sizes, piece.sizes, small.sizes)
    buffer = body.scratch.shared(t.dtype, room, "parts", "parts of tiles put at run-time places")
    builder = body.builder
    body.through(buffer, body.demand(value, t.layout))
    old = builder.emit("tile.read_tile", (buffer, *starts), (piece,)).result
    new = _inside(body, body.tile(part), old, extents)
    builder.emit("tile.write_tile", (new, buffer, *starts))
    builder.barrier()  # between the part's writes and the reads of the whole
    zeros = [builder.index(0) for _ in room]
    body.bind(operation.result, builder.emit("tile.read_tile", (buffer, *zeros), (t,)).result)


def _inside(body: Lowered, part: Value, old: Value, extents: Sequence[Value]) -> Value:
    """``part`` within its extents, ``old`` beyond."""
    t, builder = part.tile_type, body.builder
    made = part
    for axis, extent in enumerate(extents):
        if body.facts.is_full(extent, t.sizes[axis]):
            continue
        counted, truth = replace(t, dtype=I32), replace(t, dtype=BOOL)
        at = builder.emit("tile.coordinate", (), (counted,), {"axis": axis}).result
        bound = builder.cast(body.scalar(extent), I32)
        limit = builder.emit("tile.splat", (bound,), (counted,)).result
        less = builder.emit(
            "tile.cmp", (at, limit), (truth,), {"predicate": "lt", "near": True}
        ).result
        made = builder.emit("tile.select", (less, made, old), (t,)).result
    return made


def _gather(body: Lowered, operation: Operation) -> None:
    access = access_of(operation)
    t = body.layouts.type_of(operation.result)
    body.read(access.view, operation)
    operands = _rows(body, access, t)
    made = body.builder.emit("tile.gather_tile", operands, (t,), {"dims": access.dims})
    body.bind(operation.result, made.result)


def _scatter(body: Lowered, operation: Operation) -> None:
    access = access_of(operation)
    tile = body.demand(operation.operands[0], body.layouts.memory_layout(operation))
    operands = _rows(body, access, tile.tile_type)
    body.write(access.view, operation)
    body.builder.emit("tile.scatter_tile", (tile, *operands), (), {"dims": access.dims})


def _rows(body: Lowered, access: TileAccess, t: TileType) -> list[Value]:
    """View, starts and extents of a gather or scatter; numbers lie as the rows they are of."""
    assert t.layout is not None
    operands = [body.scalar(access.view)]
    for axis, start in enumerate(access.starts):
        if not is_tile(start):
            operands.append(body.scalar(start))
            continue
        along = _only(t.layout, len(t.shape), access.dims.index(axis))
        operands.append(body.demand(start, along))
    return [*operands, *body.scalars(access.extents)]


def _only(layout: RegisterLayout, rank: int, axis: int) -> RegisterLayout:
    for other in reversed(range(rank)):
        if other != axis:
            layout = layout.without_axis(other)
    return canonical(layout)


def _parameter(body: Lowered, operation: Operation) -> None:
    raise NotTiled(f"the size {operation.attributes['name']} was not chosen", operation.span)


def _accumulate(body: Lowered, operation: Operation) -> None:
    raise NotTiled("an accumulation into memory was not made a carried tile", operation.span)


_BY_NAME = {
    "full": _full, "iota": _iota, "prefetch": _pass, "mask": _mask, "reduce": _reduce,
    "scan": _scan, "sort": _sort, "expand": _expand, "broadcast": _broadcast,
    "transpose": _transpose,
    "extract": _extract, "insert": _insert, "gather": _gather, "scatter": _scatter,
    "parameter": _parameter, "accumulate": _accumulate,
}  # fmt: skip
