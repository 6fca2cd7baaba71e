"""Type rules of the operations on register tiles and of the copies, by the table's names.

A tile has a layout on a GPU and none on the CPU; where one tile of an operation has one, all
have. Must not know where an operation stands, nor what a target can do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tessera_lang.ir.core import (
    BufferType,
    Operation,
    TileType,
    Value,
    VerifyError,
    ViewType,
)
from tessera_lang.ir.layout import Mode, RegisterLayout
from tessera_lang.types.dtype import BOOL, I32, INDEX, DType

Rule = Callable[[Operation], None]

WARP = 32


def _require(holds: bool, message: str, operation: Operation) -> None:
    if not holds:
        raise VerifyError(message, operation)


def tile_of(value: Value, operation: Operation) -> TileType:
    """The type of a value that is a tile with known sizes."""
    t = value.type
    if not isinstance(t, TileType):
        raise VerifyError("takes and gives tiles", operation)
    if not all(isinstance(n, int) and n > 0 for n in t.shape):
        raise VerifyError("the sizes of a tile are positive numbers", operation)
    if t.layout is not None:
        _covered(t.layout, t.sizes, operation)
    return t


def _covered(layout: RegisterLayout, sizes: Sequence[int], operation: Operation) -> None:
    """Lanes make a warp, and the modes of every axis cover it, each element once."""
    _require(prod(m.extent for m in layout.lanes) == WARP, "32 lanes hold a tile", operation)
    modes = [m for m in (*layout.registers, *layout.lanes, *layout.warps) if m.extent > 1]
    for m in modes:
        inside = m.axis is None or 0 <= m.axis < len(sizes)
        _require(inside, f"the layout names an axis that is not there: {m}", operation)
    for axis, size in enumerate(sizes):
        reached = 1
        for m in sorted((m for m in modes if m.axis == axis), key=lambda m: m.stride):
            _require(m.stride == reached, f"the layout does not cover axis {axis}", operation)
            reached *= m.extent
        _require(reached == size, f"the layout does not cover axis {axis}", operation)


def _axis(operation: Operation, rank: int) -> int:
    axis = operation.integer("axis")
    _require(0 <= axis < rank, f"has no axis {axis}", operation)
    return axis


def _indices(values: Sequence[Value], operation: Operation) -> None:
    for value in values:
        _require(value.type == INDEX, "starts and extents are index", operation)


def _alike(a: TileType, b: TileType, operation: Operation) -> None:
    """Both have layouts, or neither."""
    same = (a.layout is None) == (b.layout is None)
    _require(same, "layouts are given for all tiles or for none", operation)


def _scratch(operation: Operation, first: int) -> None:
    for value in operation.operands[first:]:
        holds = isinstance(value.type, BufferType) and value.type.space == "shared"
        _require(holds, "scratch is a shared buffer", operation)
    _require(len(operation.operands) <= first + 1, "takes one scratch buffer", operation)


# --- values ----------------------------------------------------------------------------------


def _splat(operation: Operation) -> None:
    result = tile_of(operation.result, operation)
    _require(operation.operands[0].type == result.dtype, "spreads a scalar", operation)


def _coordinate(operation: Operation) -> None:
    result = tile_of(operation.result, operation)
    _axis(operation, len(result.shape))
    _require(result.dtype in (I32, INDEX), "gives i32 or index", operation)


_LOGIC = ("any", "all")
_ARGUMENTS = ("argmax", "argmin")


def _reduce(operation: Operation) -> None:
    tile = tile_of(operation.operands[0], operation)
    kind, axis = operation.attributes["kind"], _axis(operation, len(tile.shape))
    _scratch(operation, 1)
    if kind in _LOGIC:
        _require(tile.dtype == BOOL, "takes bools", operation)
    else:
        _require(tile.dtype != BOOL, "takes numbers", operation)
    shape = (*tile.shape[:axis], *tile.shape[axis + 1 :])
    result = operation.result.type
    dtype = result.dtype if isinstance(result, TileType) else result
    right = dtype in (I32, INDEX) if kind in _ARGUMENTS else dtype == tile.dtype
    _require(right, "gives the dtype of the tile, or i32 or index for a place", operation)
    if not shape:
        _require(isinstance(result, DType), "a tile of one axis gives a scalar", operation)
        return
    made = tile_of(operation.result, operation)
    _alike(tile, made, operation)
    _require(made.shape == shape, "gives the tile without the axis", operation)
    wanted = None if tile.layout is None else tile.layout.without_axis(axis)
    _require(same_layout(made.layout, wanted), "the layout is that without the axis", operation)


def _scan(operation: Operation) -> None:
    tile = tile_of(operation.operands[0], operation)
    _axis(operation, len(tile.shape))
    _scratch(operation, 1)
    _require(operation.result.type == tile, "gives a tile of the same type", operation)
    _require(tile.dtype != BOOL, "takes numbers", operation)


def _expand(operation: Operation) -> None:
    tile, result = (tile_of(v, operation) for v in (operation.operands[0], operation.result))
    axis = _axis(operation, len(result.shape))
    _alike(tile, result, operation)
    shape = (*result.shape[:axis], *result.shape[axis + 1 :])
    right = tile.shape == shape and tile.dtype == result.dtype
    _require(right, "gives the same tile with one more axis", operation)
    if result.layout is not None:
        without = result.layout.without_axis(axis)
        right = same_layout(without, tile.layout)
        _require(right, "the layout without the axis is the operand's", operation)


def _transpose(operation: Operation) -> None:
    source, result = operation.operands[0].type, operation.result.type
    permutation = operation.integers("permutation")
    if isinstance(source, BufferType):
        raise VerifyError("a buffer is transposed by its layout", operation)
    tile, made = tile_of(operation.operands[0], operation), tile_of(operation.result, operation)
    rank = len(tile.shape)
    _require(sorted(permutation) == list(range(rank)), "permutes all axes", operation)
    right = tuple(tile.shape[i] for i in permutation) == made.shape and tile.dtype == made.dtype
    _require(right, f"{source} permuted is not {result}", operation)
    _alike(tile, made, operation)
    if tile.layout is not None and made.layout is not None:
        right = same_layout(_renamed(tile.layout, permutation), made.layout)
        _require(right, "the layout has its modes renamed", operation)


def _renamed(layout: RegisterLayout, permutation: Sequence[int]) -> RegisterLayout:
    to = {old: new for new, old in enumerate(permutation)}

    def part(modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
        return tuple(m if m.axis is None else Mode(m.extent, to[m.axis], m.stride) for m in modes)

    return RegisterLayout(part(layout.registers), part(layout.lanes), part(layout.warps))


def same_layout(a: RegisterLayout | None, b: RegisterLayout | None) -> bool:
    """Whether two layouts put the same elements into the same registers and lanes."""
    if a is None or b is None:
        return a is b
    return all(
        _short(x) == _short(y)
        for x, y in ((a.registers, b.registers), (a.lanes, b.lanes), (a.warps, b.warps))
    )


def _short(modes: Sequence[Mode]) -> list[Mode]:
    """Modes without those of one value, neighbours merged."""
    out: list[Mode] = []
    for m in modes:
        if m.extent == 1:
            continue
        last = out[-1] if out else None
        if last is not None and last.axis == m.axis:
            if m.axis is None or m.stride == last.extent * last.stride:
                out[-1] = Mode(last.extent * m.extent, last.axis, last.stride)
                continue
        out.append(m)
    return out


def _convert(operation: Operation) -> None:
    tile, result = (tile_of(v, operation) for v in (operation.operands[0], operation.result))
    right = tile.shape == result.shape and tile.dtype == result.dtype
    _require(right, "changes nothing but the layout", operation)
    _alike(tile, result, operation)
    _scratch(operation, 1)


def _slice(operation: Operation) -> None:
    tile, result = (tile_of(v, operation) for v in (operation.operands[0], operation.result))
    starts = operation.integers("starts")
    _alike(tile, result, operation)
    right = len(starts) == len(tile.shape) == len(result.shape) and tile.dtype == result.dtype
    _require(right, "takes a start for each axis", operation)
    for start, part, whole in zip(starts, result.sizes, tile.sizes, strict=True):
        _require(0 <= start <= whole - part, "the part lies inside the tile", operation)
    _same_lanes(tile, result, operation)


def _same_lanes(a: TileType, b: TileType, operation: Operation) -> None:
    if a.layout is None or b.layout is None:
        return
    same = _short(a.layout.lanes) == _short(b.layout.lanes)
    same = same and _short(a.layout.warps) == _short(b.layout.warps)
    _require(same, "the parts are whole registers: lanes and warps stay", operation)


def _join(operation: Operation) -> None:
    result = tile_of(operation.result, operation)
    axis = _axis(operation, len(result.shape))
    total = 0
    for value in operation.operands:
        part = tile_of(value, operation)
        _alike(part, result, operation)
        right = len(part.shape) == len(result.shape) and part.dtype == result.dtype
        _require(right, "the parts have the rank and the dtype of the whole", operation)
        others = (s for i, s in enumerate(zip(part.shape, result.shape, strict=True)) if i != axis)
        _require(all(a == b for a, b in others), "the parts agree on other axes", operation)
        total += part.sizes[axis]
        _same_lanes(part, result, operation)
    _require(total == result.sizes[axis], "the parts make up the axis", operation)


# --- memory ----------------------------------------------------------------------------------


def _view(value: Value, operation: Operation) -> ViewType:
    if not isinstance(value.type, ViewType):
        raise VerifyError("reads and writes a view", operation)
    return value.type


def _dims(operation: Operation, rank: int, view: ViewType, steps: bool = True) -> None:
    dims = operation.integers("dims")
    right = len(dims) == rank and len(set(dims)) == rank
    _require(right, "names one axis of the view for each axis of the tile", operation)
    inside = all(0 <= d < len(view.shape) for d in dims)
    _require(inside, "the axes of `dims` are axes of the view", operation)
    if steps:
        given = operation.integers("steps")
        right = len(given) == rank and all(s > 0 for s in given)
        _require(right, "has a positive step for each axis of the tile", operation)


def _load(operation: Operation) -> None:
    view, tile = _view(operation.operands[0], operation), tile_of(operation.result, operation)
    numbers = operation.operands[1:]
    _require(view.dtype == tile.dtype, "view and tile have one dtype", operation)
    _dims(operation, len(tile.shape), view)
    expected = len(view.shape) + len(tile.shape)
    _require(len(numbers) == expected, f"takes {expected} starts and extents", operation)
    _indices(numbers, operation)


def _store(operation: Operation) -> None:
    tile, view = tile_of(operation.operands[0], operation), _view(operation.operands[1], operation)
    numbers = operation.operands[2:]
    _require(view.dtype == tile.dtype, "view and tile have one dtype", operation)
    _require(view.mut, "writes a view that is not mut", operation)
    _dims(operation, len(tile.shape), view)
    expected = len(view.shape) + len(tile.shape)
    _require(len(numbers) == expected, f"takes {expected} starts and extents", operation)
    _indices(numbers, operation)


def _put_down(operation: Operation) -> None:
    tile, view = tile_of(operation.operands[0], operation), _view(operation.operands[1], operation)
    _require(view.dtype == tile.dtype, "view and tile have one dtype", operation)
    right = view.contiguous and view.aligned and len(view.shape) == 1
    _require(right, "goes to an aligned row of elements", operation)
    _require(tile.dtype.bytes >= 4, "has registers of its own for each element", operation)
    _require(view.mut, "writes a view that is not mut", operation)
    _indices(operation.operands[2:], operation)


def _take_up(operation: Operation) -> None:
    _put_down(operation)
    right = operation.result.type == operation.operands[0].type
    _require(right, "gives what it adds to", operation)


def _gather(operation: Operation) -> None:
    view, tile = _view(operation.operands[0], operation), tile_of(operation.result, operation)
    _rows(operation, view, tile, operation.operands[1:])


def _scatter(operation: Operation) -> None:
    tile, view = tile_of(operation.operands[0], operation), _view(operation.operands[1], operation)
    _rows(operation, view, tile, operation.operands[2:])
    _require(view.mut, "writes a view that is not mut", operation)


def _rows(operation: Operation, view: ViewType, tile: TileType, numbers: Sequence[Value]) -> None:
    """A place of which one start may be a tile of numbers."""
    rank = len(view.shape)
    _require(view.dtype == tile.dtype, "view and tile have one dtype", operation)
    _dims(operation, len(tile.shape), view, steps=False)
    expected = rank + len(tile.shape)
    _require(len(numbers) == expected, f"takes {expected} starts and extents", operation)
    dims = operation.integers("dims")
    for axis, value in enumerate(numbers):
        if not isinstance(value.type, TileType):
            _indices([value], operation)
            continue
        holds = axis < rank and axis in dims and value.type.dtype in (I32, INDEX)
        _require(holds, "a start of several rows is a tile of i32 or index", operation)
        rows = tile_of(value, operation)
        along = dims.index(axis)
        right = rows.shape == (tile.shape[along],)
        _require(right, "there is one row for each element of the axis", operation)
        _alike(rows, tile, operation)
        wanted = None if tile.layout is None else _only(tile.layout, len(tile.shape), along)
        right = same_layout(rows.layout, wanted)
        _require(right, "the rows have the layout of their axis", operation)


def _only(layout: RegisterLayout, rank: int, axis: int) -> RegisterLayout:
    """The layout without all axes but one."""
    for other in reversed(range(rank)):
        if other != axis:
            layout = layout.without_axis(other)
    return layout


def _buffer(value: Value, operation: Operation) -> BufferType:
    if not isinstance(value.type, BufferType):
        raise VerifyError("reads and writes a shared buffer", operation)
    return value.type


def _in_buffer(
    tile: TileType, buffer: BufferType, starts: Sequence[Value], operation: Operation
) -> None:
    _require(buffer.dtype == tile.dtype, "buffer and tile have one dtype", operation)
    rank = len(buffer.shape)
    _require(len(starts) == rank, f"takes {rank} starts, one an axis of the buffer", operation)
    _indices(starts, operation)
    last = buffer.shape[rank - len(tile.shape) :]
    fits = len(tile.shape) <= rank
    fits = fits and all(a <= b for a, b in zip(tile.sizes, last, strict=True))
    _require(fits, "the tile fits into the last axes of the buffer", operation)


def _read(operation: Operation) -> None:
    buffer, starts = _buffer(operation.operands[0], operation), operation.operands[1:]
    _in_buffer(tile_of(operation.result, operation), buffer, starts, operation)


def _write(operation: Operation) -> None:
    value, buffer, *starts = operation.operands
    _in_buffer(tile_of(value, operation), _buffer(buffer, operation), starts, operation)


def _memcpy(operation: Operation) -> None:
    view, buffer = (
        _view(operation.operands[0], operation),
        _buffer(operation.operands[1], operation),
    )
    numbers = operation.operands[2:]
    rank = len(operation.integers("dims"))
    _require(rank in (1, 2) and rank <= len(buffer.shape), "copies a row or a matrix", operation)
    _require(view.dtype == buffer.dtype, "view and buffer have one dtype", operation)
    _dims(operation, rank, view)
    expected = len(view.shape) + rank + len(buffer.shape)
    _require(len(numbers) == expected, f"takes {expected} starts and extents", operation)
    _indices(numbers, operation)
    vector = operation.integer("vector")
    right = vector % view.dtype.bytes == 0
    _require(right, "whole elements move together", operation)


def _memcpy_gather(operation: Operation) -> None:
    view, buffer = (
        _view(operation.operands[0], operation),
        _buffer(operation.operands[1], operation),
    )
    numbers, dims = operation.operands[2:], operation.integers("dims")
    axes, rank = len(view.shape), len(buffer.shape)
    _require(len(dims) == 2 <= rank, "copies a matrix", operation)
    _require(view.dtype == buffer.dtype, "view and buffer have one dtype", operation)
    _dims(operation, 2, view, steps=False)
    expected = axes + 2 + rank
    _require(len(numbers) == expected, f"takes {expected} starts and extents", operation)
    rows = [i for i, v in enumerate(numbers) if isinstance(v.type, TileType)]
    _require(len(rows) == 1 and rows[0] in dims, "one start is a tile of rows", operation)
    taken = tile_of(numbers[rows[0]], operation)
    right = taken.dtype in (I32, INDEX) and taken.shape == (
        buffer.shape[rank - 2 + dims.index(rows[0])],
    )
    _require(right, "there is one row for each element of the axis", operation)
    _indices([v for i, v in enumerate(numbers) if i not in rows], operation)


# --- products --------------------------------------------------------------------------------


def _dot(operation: Operation) -> None:
    a, b, accumulator, *starts = operation.operands
    made = tile_of(accumulator, operation)
    _require(operation.result.type == made, "gives what it adds to", operation)
    x, y = (_operand(v, operation) for v in (a, b))
    count = sum(len(v.type.shape) for v in (a, b) if isinstance(v.type, BufferType))
    _require(len(starts) == count, f"takes {count} starts of its buffers", operation)
    _indices(starts, operation)
    rank = len(made.shape)
    _require(rank >= 2, "multiplies matrices", operation)
    right = x.dtype.product == made.dtype.name and _alike_dtypes(x.dtype, y.dtype)
    _require(right, f"no product of {x.dtype} and {y.dtype} in {made.dtype}", operation)
    m, n = made.sizes[-2:]
    fits = len(x.shape) >= 2 and len(y.shape) >= 2
    _require(fits, "multiplies matrices", operation)
    right = _size(x, -2) >= m and _size(y, -1) >= n
    _require(right, "the operands reach over the rows and columns", operation)
    if isinstance(a.type, TileType) and isinstance(b.type, TileType):
        _require(_size(x, -1) == _size(y, -2), "the contractions differ", operation)


def _alike_dtypes(a: DType, b: DType) -> bool:
    return a == b or (a.bits == b.bits == 8 and a.is_float == b.is_float)


def _operand(value: Value, operation: Operation) -> TileType | BufferType:
    if isinstance(value.type, BufferType):
        return value.type
    return tile_of(value, operation)


def _size(t: TileType | BufferType, axis: int) -> int:
    size = t.shape[axis]
    assert isinstance(size, int)
    return size


RULES: dict[str, Rule] = {
    "splat": _splat, "coordinate": _coordinate, "reduce_tile": _reduce, "scan_tile": _scan,
    "expand_tile": _expand, "transpose_tile": _transpose, "convert": _convert,
    "slice_tile": _slice, "join_tiles": _join, "load_tile": _load, "store_tile": _store,
    "put_down": _put_down, "take_up": _take_up, "gather_tile": _gather, "scatter_tile": _scatter,
    "read_tile": _read, "write_tile": _write, "dot": _dot,
    "memcpy_async": _memcpy, "memcpy_gather": _memcpy_gather,
}  # fmt: skip
