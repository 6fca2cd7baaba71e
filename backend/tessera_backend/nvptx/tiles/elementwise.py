"""Register tiles as values: element-wise work, splats, coordinates, and what moves no data.

A tile is a tuple of operands, one a register of its layout; registers that hold copies share
one. Must not know memory, shuffles or the matrix units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tessera_backend.llvm.emitter import LaneEmitter, Rule
from tessera_backend.llvm.types import register_type
from tessera_backend.nvptx.tiles.element_places import bases, plus
from tessera_lang.analysis.resources.register_layouts import register_coordinates, registers_at
from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.definitions import ELEMENT_WISE
from tessera_lang.ir.layout import RegisterLayout
from tessera_lang.types.dtype import BF16, F16, F32, I32, INDEX, DType

Coordinates = tuple[int, ...]


def tile_type(value: Value) -> TileType:
    """The type of a tile value."""
    if not isinstance(value.type, TileType):
        raise TypeError(f"a tile was expected, not {value.type}")
    return value.type


def layout_of(t: TileType) -> RegisterLayout:
    if t.layout is None:
        raise TypeError("a tile in registers has a layout")
    return t.layout


def places_of(t: TileType) -> tuple[Coordinates, ...]:
    """What each register of a tile adds to the lane's coordinates."""
    return register_coordinates(layout_of(t), len(t.shape))


def held_at(e: LaneEmitter, value: Value) -> dict[Coordinates, str]:
    """The operands of a tile by their registers' coordinates."""
    t = tile_type(value)
    parts = e.tiles[value]
    return {at: parts[i] for at, i in registers_at(layout_of(t), len(t.shape)).items()}


def bind_at(e: LaneEmitter, value: Value, operand: Callable[[Coordinates], str]) -> None:
    """``value`` is the tile whose registers ``operand`` gives by their coordinates."""
    made: dict[Coordinates, str] = {}
    out: list[str] = []
    for at in places_of(tile_type(value)):
        if at not in made:
            made[at] = operand(at)
        out.append(made[at])
    e.tiles[value] = tuple(out)


# --- element by element -----------------------------------------------------------------------


def _element(value: Value) -> DType:
    t = value.type
    if isinstance(t, TileType):
        return t.dtype
    if isinstance(t, DType):
        return t
    raise TypeError(f"a scalar or a tile was expected, not {t}")


def each_element(scalar: Rule) -> Rule:
    """The rule of a lane's operation for tiles too: once for every distinct register."""

    def rule(e: LaneEmitter, op: Operation) -> None:
        if not isinstance(op.result.type, TileType):
            scalar(e, op)
            return
        e.tiles[op.result] = _mapped(e, op, scalar, op.result.type)

    return rule


def _mapped(e: LaneEmitter, op: Operation, scalar: Rule, t: TileType) -> tuple[str, ...]:
    count = len(places_of(t))
    columns = [
        e.tiles[v] if isinstance(v.type, TileType) else (e.operand(v),) * count for v in op.operands
    ]
    arguments = tuple(Value(_element(v)) for v in op.operands)
    one = Operation(op.name, arguments, (Value(t.dtype),), op.attributes, (), op.span)
    made: dict[tuple[str, ...], str] = {}
    out: list[str] = []
    for parts in zip(*columns, strict=True):
        if parts not in made:
            for argument, part in zip(arguments, parts, strict=True):
                e.bind(argument, part)
            scalar(e, one)
            made[parts] = e.operand(one.result)
        out.append(made[parts])
    return tuple(out)


def apply(e: LaneEmitter, name: str, dtype: DType, *operands: str) -> str:
    """One element of a lane's operation whose operands and result have one dtype."""
    arguments = tuple(Value(dtype) for _ in operands)
    for argument, operand in zip(arguments, operands, strict=True):
        e.bind(argument, operand)
    op = Operation(name, arguments, (Value(dtype),), {"site": -1})
    e.emit(op)
    return e.operand(op.result)


_PREDICATES = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}


def _cmp(scalar: Rule) -> Rule:
    """A place beside a number that is near: one subtraction for each number, and then the
    registers of the place are constants."""
    general = each_element(scalar)

    def rule(e: LaneEmitter, op: Operation) -> None:
        found = e.coordinates.get(op.operands[0]) if op.attributes.get("near") else None
        if found is None:
            general(e, op)
            return
        base, steps = found
        predicate = _PREDICATES[str(op.attributes["predicate"])]
        pairs = list(zip(steps, e.tiles[op.operands[1]], strict=True))
        away: dict[str, str] = {}
        made: dict[tuple[int, str], str] = {}
        for step, other in pairs:
            if other not in away:
                away[other] = e.f.value(f"sub i32 {base}, {other}")
            if (step, other) not in made:
                made[step, other] = e.f.value(f"icmp {predicate} i32 {away[other]}, {-step}")
        e.tiles[op.result] = tuple(made[pair] for pair in pairs)

    return rule


PAIRS = {F16: "half", BF16: "bfloat"}


def _cast(scalar: Rule) -> Rule:
    """f32 to 16-bit floats two by two, for which the machine has one instruction."""
    general = each_element(scalar)

    def rule(e: LaneEmitter, op: Operation) -> None:
        to = op.result.type
        if not isinstance(to, TileType) or to.dtype not in PAIRS:
            general(e, op)
            return
        parts = e.tiles[op.operands[0]]
        if _element(op.operands[0]) != F32 or len(set(parts)) < len(parts) or len(parts) % 2:
            general(e, op)
            return
        e.tiles[op.result] = _narrowed_pairs(e, parts, to.dtype)

    return rule


def _narrowed_pairs(e: LaneEmitter, parts: Sequence[str], dtype: DType) -> tuple[str, ...]:
    f, kind, register = e.f, PAIRS[dtype], register_type(dtype)
    out: list[str] = []
    for low, high in zip(parts[::2], parts[1::2], strict=True):
        pair = f.value(f"insertelement <2 x float> poison, float {low}, i32 0")
        pair = f.value(f"insertelement <2 x float> {pair}, float {high}, i32 1")
        short = f.value(f"fptrunc <2 x float> {pair} to <2 x {kind}>")
        if register != kind:
            short = f.value(f"bitcast <2 x {kind}> {short} to <2 x {register}>")
        out += [f.value(f"extractelement <2 x {register}> {short}, i32 {i}") for i in (0, 1)]
    return tuple(out)


# --- made of nothing --------------------------------------------------------------------------


def _splat(e: LaneEmitter, op: Operation) -> None:
    count = len(places_of(tile_type(op.result)))
    e.tiles[op.result] = (e.operand(op.operands[0]),) * count


def _coordinate(e: LaneEmitter, op: Operation) -> None:
    t, axis = tile_type(op.result), op.integer("axis")
    base = bases(e, layout_of(t), len(t.shape))[axis]
    known: dict[int, str] = {}

    def at(coordinates: Coordinates) -> str:
        step = coordinates[axis]
        if step not in known:
            narrow = plus(e, base, step)
            wide = t.dtype == INDEX and bool(base)
            known[step] = e.f.value(f"zext nneg i32 {narrow} to i64") if wide else narrow
        return known[step]

    bind_at(e, op.result, at)
    if t.dtype == I32:
        e.coordinates[op.result] = base or "0", tuple(at[axis] for at in places_of(t))


# --- no data moves ----------------------------------------------------------------------------


def _expand(e: LaneEmitter, op: Operation) -> None:
    axis = op.integer("axis")
    held = held_at(e, op.operands[0])
    bind_at(e, op.result, lambda at: held[(*at[:axis], *at[axis + 1 :])])


def _transpose(e: LaneEmitter, op: Operation) -> None:
    permutation = op.integers("permutation")
    held = held_at(e, op.operands[0])

    def at(coordinates: Coordinates) -> str:
        old = [0] * len(coordinates)
        for new, axis in enumerate(permutation):
            old[axis] = coordinates[new]
        return held[tuple(old)]

    bind_at(e, op.result, at)


def _slice(e: LaneEmitter, op: Operation) -> None:
    starts = op.integers("starts")
    held = held_at(e, op.operands[0])
    bind_at(
        e, op.result, lambda at: held[tuple(c + s for c, s in zip(at, starts, strict=True))]
    )  # fmt: skip


def _join(e: LaneEmitter, op: Operation) -> None:
    axis = op.integer("axis")
    whole: dict[Coordinates, str] = {}
    first = 0
    for value in op.operands:
        for at, operand in held_at(e, value).items():
            whole[(*at[:axis], at[axis] + first, *at[axis + 1 :])] = operand
        first += tile_type(value).sizes[axis]
    bind_at(e, op.result, whole.__getitem__)


RULES: dict[str, Rule] = {
    "tile.splat": _splat,
    "tile.coordinate": _coordinate,
    "tile.expand_tile": _expand,
    "tile.transpose_tile": _transpose,
    "tile.slice_tile": _slice,
    "tile.join_tiles": _join,
}


def with_tiles(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """The rules of a lane's element-wise operations, for tiles too."""
    found = {name: each_element(rules[name]) for name in ELEMENT_WISE}
    more = {"tile.cast": _cast(rules["tile.cast"]), "tile.cmp": _cmp(rules["tile.cmp"])}
    return {**found, **more}
