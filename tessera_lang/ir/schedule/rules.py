"""Type rules of the Schedule operations, by the name the table gives them.

Owns which types go together. Must not know where an operation stands, but for the kernel's own
rule: it refuses what has no meaning at this level (lanes, barriers, layouts).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from tessera_lang.ir.core import (
    Operation,
    PointerType,
    TileType,
    Value,
    VerifyError,
    ViewType,
)
from tessera_lang.ir.schedule.ops import MAPPINGS, PREFIX, SCHEDULE_OPS
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.ir.tile.rules import RULES, types_of
from tessera_lang.record import replace
from tessera_lang.types.dtype import BOOL, F32, I8, I32, INDEX, U8, U32, DType

Rule = Callable[[Operation], None]

SHARED_WITH_TILE = frozenset(
    name
    for name, definition in TILE_OPS.items()
    if definition.rule
    in (
        "constant", "same", "compare", "select", "cast", "bitcast", "view", "if", "while",
        "scope", "exit", "assert", "print",
    )
) | {"tile.load"}  # fmt: skip
"""Operations of Tile IR that a schedule kernel may hold."""


def _require(holds: bool, message: str, operation: Operation) -> None:
    if not holds:
        raise VerifyError(message, operation)


def _tile(value: Value, operation: Operation) -> TileType:
    if not isinstance(value.type, TileType):
        raise VerifyError("takes and gives tiles", operation)
    _require(value.type.layout is None, "tiles of this level have no layout", operation)
    for n in value.type.shape:
        holds = isinstance(n, str) or n > 0
        _require(holds, "a tile has at least one element along each axis", operation)
    return value.type


def _numbers(values: Sequence[Value], operation: Operation) -> None:
    holds = all(v.type == INDEX for v in values)
    _require(holds, "starts, extents and bounds are index", operation)


def _ints(operation: Operation, name: str) -> tuple[int, ...]:
    return cast("tuple[int, ...]", operation.attributes[name])


def _axis(operation: Operation, rank: int) -> int:
    axis = cast("int", operation.attributes["axis"])
    _require(0 <= axis < rank, f"axis {axis} of {rank}", operation)
    return axis


# --- structure -------------------------------------------------------------------------------


def _kernel(operation: Operation) -> None:
    attributes, region = operation.attributes, operation.regions[0]
    count = len(region.arguments)
    names = cast("tuple[str, ...]", attributes["parameters"])
    _require(len(names) == count, "names one parameter per argument of its region", operation)
    for name in ("hints", "divisors"):
        if name in attributes:
            holds = len(_ints(operation, name)) == count
            _require(holds, f"has one of {name} per argument of its region", operation)
    for value in region.arguments:
        holds = isinstance(value.type, DType | PointerType)
        _require(holds, "takes pointers and scalars", operation)
    for inner in operation.walk():
        known = inner.name.startswith(PREFIX) or inner.name in SHARED_WITH_TILE
        _require(known, "has no meaning in a schedule", inner)


def _for(operation: Operation) -> None:
    axes = operation.strings("axes")
    mapping = operation.strings("mapping")
    count, operands = len(axes), operation.operands
    _require(count > 0, "has at least one axis", operation)
    _require(len(mapping) == count, "says for every axis how it is mapped", operation)
    holds = all(word in MAPPINGS for word in mapping)
    _require(holds, f"maps an axis to one of {', '.join(MAPPINGS)}", operation)
    promised = operation.strings("independent")
    holds = all(name in axes for name in promised)
    _require(holds, "promises independence of its own axes", operation)
    _require(len(operands) >= 3 * count, "has bounds and a step for each axis", operation)
    _numbers(operands[: 3 * count], operation)
    types = types_of(operands[3 * count :])
    holds = types_of(operation.regions[0].arguments) == (INDEX,) * count + types
    _require(holds, "the body takes the variables and what is carried", operation)
    _require(types_of(operation.results) == types, "gives what is carried", operation)
    if "grid" in mapping:
        _require(not types, "iterations that carry a value are no grid", operation)


# --- memory ----------------------------------------------------------------------------------


def _place(operation: Operation, view: Value, tile: TileType, numbers: Sequence[Value]) -> None:
    """What a tile and its place in a view have in common."""
    if not isinstance(view.type, ViewType):
        raise VerifyError("reads and writes a view", operation)
    axes, rank = len(view.type.shape), len(tile.shape)
    _require(view.type.dtype == tile.dtype, "tile and view have one dtype", operation)
    dims = _ints(operation, "dims")
    holds = len(dims) == rank == len(set(dims)) and all(0 <= d < axes for d in dims)
    _require(holds, "each axis of the tile runs along an axis of its own", operation)
    holds = len(numbers) == axes + rank
    _require(holds, f"takes {axes} starts and {rank} extents", operation)
    if "steps" in operation.attributes:
        steps = _ints(operation, "steps")
        _require(len(steps) == rank and 0 not in steps, "has a step for each axis", operation)


def _load(operation: Operation) -> None:
    view, *numbers = operation.operands
    _place(operation, view, _tile(operation.result, operation), numbers)
    _numbers(numbers, operation)


def _store(operation: Operation) -> None:
    tile, view, *numbers = operation.operands
    t = _tile(tile, operation)
    if operation.name == f"{PREFIX}accumulate" and isinstance(view.type, ViewType):
        # What is summed may be wider than what it is rounded to.
        t = TileType(view.type.dtype, t.shape)
    _place(operation, view, t, numbers)
    _numbers(numbers, operation)
    holds = isinstance(view.type, ViewType) and view.type.mut
    _require(holds, "writes a view that is not mut", operation)


def _gather(operation: Operation) -> None:
    view, *numbers = operation.operands
    _rows(operation, view, _tile(operation.result, operation), numbers)


def _scatter(operation: Operation) -> None:
    tile, view, *numbers = operation.operands
    _rows(operation, view, _tile(tile, operation), numbers)
    holds = isinstance(view.type, ViewType) and view.type.mut
    _require(holds, "writes a view that is not mut", operation)


def _rows(operation: Operation, view: Value, t: TileType, numbers: Sequence[Value]) -> None:
    """A place of which one start may be a tile of numbers."""
    _place(operation, view, t, numbers)
    dims = _ints(operation, "dims")
    for axis, value in enumerate(numbers):
        if isinstance(value.type, TileType):
            holds = axis in dims and value.type == TileType(INDEX, (t.shape[dims.index(axis)],))
            _require(holds, "takes one place for each element along an axis", operation)
        else:
            _require(value.type == INDEX, "starts and extents are index", operation)


# --- tiles -----------------------------------------------------------------------------------


def _same(operation: Operation) -> None:
    t = _tile(operation.result, operation)
    _require(operation.operands[0].type == t, "gives a tile of the same type", operation)
    if "axis" in operation.attributes:
        _axis(operation, len(t.shape))


def _sort(operation: Operation) -> None:
    tile, extent = operation.operands
    t = _tile(tile, operation)
    _axis(operation, len(t.shape))
    _numbers((extent,), operation)
    _require(t.dtype.is_integer, "sorts integers", operation)
    given = replace(t, dtype=I32) if operation.attributes.get("places") else t
    _require(operation.result.type == given, "gives a tile like its operand", operation)


def _full(operation: Operation) -> None:
    holds = operation.operands[0].type == _tile(operation.result, operation).dtype
    _require(holds, "repeats an element", operation)


def _iota(operation: Operation) -> None:
    t = _tile(operation.result, operation)
    _axis(operation, len(t.shape))
    _require(t.dtype in (INDEX, I32), "gives index or i32", operation)


def _reduce(operation: Operation) -> None:
    tile, extent = operation.operands
    t, kind = _tile(tile, operation), operation.attributes["kind"]
    _numbers((extent,), operation)
    axis = _axis(operation, len(t.shape))
    if kind in ("any", "all"):
        _require(t.dtype == BOOL, "takes bools", operation)
    elif t.dtype == BOOL:
        raise VerifyError("takes numbers", operation)
    dtype = INDEX if kind in ("argmax", "argmin") else t.dtype
    shape = (*t.shape[:axis], *t.shape[axis + 1 :])
    expected = TileType(dtype, shape) if shape else dtype
    _require(operation.result.type == expected, "gives the tile without that axis", operation)


def _expand(operation: Operation) -> None:
    t, result = _tile(operation.operands[0], operation), _tile(operation.result, operation)
    axis = _axis(operation, len(result.shape))
    expected = TileType(t.dtype, (*t.shape[:axis], 1, *t.shape[axis:]))
    _require(result == expected, "gives one more axis, of size 1", operation)


def _broadcast(operation: Operation) -> None:
    t, result = _tile(operation.operands[0], operation), _tile(operation.result, operation)
    holds = t.dtype == result.dtype and len(t.shape) == len(result.shape)
    _require(holds, "keeps rank and dtype", operation)
    holds = all(a in (1, b) for a, b in zip(t.shape, result.shape, strict=True))
    _require(holds, "stretches axes of size 1 only", operation)


def _transpose(operation: Operation) -> None:
    t, result = _tile(operation.operands[0], operation), _tile(operation.result, operation)
    order = _ints(operation, "permutation")
    _require(sorted(order) == list(range(len(t.shape))), "is no permutation", operation)
    expected = TileType(t.dtype, tuple(t.shape[axis] for axis in order))
    _require(result == expected, "gives the axes in that order", operation)


def _mask(operation: Operation) -> None:
    tile, fill, *extents = operation.operands
    t = _tile(tile, operation)
    _require(operation.result.type == t, "gives a tile of the same type", operation)
    _require(fill.type == t.dtype, "fills with an element", operation)
    _require(len(extents) == len(t.shape), "takes an extent for each axis", operation)
    _numbers(extents, operation)


def _part(operation: Operation, whole: TileType, part: TileType) -> None:
    holds = whole.dtype == part.dtype and len(whole.shape) == len(part.shape)
    _require(holds, "part and whole have one rank and dtype", operation)
    for a, b in zip(part.shape, whole.shape, strict=True):
        holds = isinstance(a, str) or isinstance(b, str) or a <= b
        _require(holds, "a part is no larger than the whole", operation)


def _extract(operation: Operation) -> None:
    tile, *starts = operation.operands
    t = _tile(tile, operation)
    _part(operation, t, _tile(operation.result, operation))
    _require(len(starts) == len(t.shape), "takes a start for each axis", operation)
    _numbers(starts, operation)


def _insert(operation: Operation) -> None:
    tile, part, *numbers = operation.operands
    t = _tile(tile, operation)
    _part(operation, t, _tile(part, operation))
    _require(operation.result.type == t, "gives a tile of the same type", operation)
    _require(len(numbers) == 2 * len(t.shape), "takes starts and extents", operation)
    _numbers(numbers, operation)


def _dot(operation: Operation) -> None:
    a, b, accumulator = (_tile(v, operation) for v in operation.operands)
    _require(operation.result.type == accumulator, "gives what it adds to", operation)
    holds = len(a.shape) == len(b.shape) == len(accumulator.shape) >= 2
    _require(holds, "operands have one rank, at least 2", operation)
    *batch, m, k = a.shape
    holds = b.shape == (*batch, k, b.shape[-1]) and accumulator.shape == (*batch, m, b.shape[-1])
    _require(holds, "multiplies [..., m, k] and [..., k, n]", operation)
    f8 = a.dtype.is_float8 and b.dtype.is_float8
    same = a.dtype == b.dtype or f8 or {a.dtype, b.dtype} == {I8, U8}
    holds = same and accumulator.dtype.name == a.dtype.product
    _require(holds, f"has no product of {a.dtype} and {b.dtype}", operation)
    if operation.attributes["precision"] != "exact":
        _require(a.dtype == F32, "another precision than exact is one of f32", operation)


def _combine(operation: Operation) -> None:
    counters, parts, *numbers = operation.operands[:6]
    tiles = operation.operands[6:]
    _require(counters.type == PointerType(U32, "global"), "counts in u32", operation)
    _numbers(numbers, operation)
    for value in tiles:
        holds = parts.type == PointerType(_tile(value, operation).dtype, "global")
        _require(holds, "keeps parts of one dtype", operation)
    holds = types_of(operation.regions[0].arguments) == types_of(tiles)
    _require(holds, "its region takes the sums", operation)


SCHEDULE_RULES: dict[str, Rule] = {
    "schedule_kernel": _kernel, "schedule_for": _for, "index": RULES["index"],
    "schedule_load": _load, "schedule_store": _store, "schedule_same": _same,
    "schedule_sort": _sort, "schedule_full": _full, "schedule_iota": _iota,
    "schedule_reduce": _reduce,
    "schedule_expand": _expand, "schedule_broadcast": _broadcast,
    "schedule_transpose": _transpose, "schedule_mask": _mask, "schedule_extract": _extract,
    "schedule_insert": _insert, "schedule_gather": _gather,
    "schedule_scatter": _scatter, "schedule_dot": _dot,
    "schedule_combine": _combine,
}  # fmt: skip
assert set(SCHEDULE_RULES) == {d.rule for d in SCHEDULE_OPS.values()}
