"""``tile.dot``: the choice between the matrix units and multiply-adds, and the latter.

Multiply-adds: each lane holds some rows and columns of the accumulator and reads its rows of a
and its columns of b, as wide as they lie, for one step of the contraction after the other. Must
not know addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tessera_backend.llvm.cast import convert
from tessera_backend.llvm.emitter import LaneEmitter, NotLowered, Rule
from tessera_backend.llvm.types import register_type
from tessera_backend.nvptx.tiles import mma, words
from tessera_backend.nvptx.tiles.element_places import dialect_of
from tessera_backend.nvptx.tiles.elementwise import (
    Coordinates,
    apply,
    bind_at,
    held_at,
    layout_of,
    tile_type,
)
from tessera_backend.nvptx.tiles.shared_addressing import Start
from tessera_backend.nvptx.tiles.shared_memory import Memory, memory_of, reader
from tessera_lang.analysis.resources.register_layouts import canonical, registers_at
from tessera_lang.ir.core import BufferType, Operation, TileType, Value
from tessera_lang.ir.layout import Mode, RegisterLayout, SharedLayout
from tessera_lang.record import dataclass, replace
from tessera_lang.target.tuned_constants import FMA_HELD, FMA_LINES, LONG_RUN, PINNED, SHORT_RUN
from tessera_lang.types.dtype import DType

Values = dict[Coordinates, str]


@dataclass(frozen=True, slots=True)
class Side:
    """An operand: its value, dtype, axis of contraction, and its memory if it is a buffer."""

    value: Value
    dtype: DType
    along: int
    memory: Memory | None

    @property
    def depth(self) -> int:
        t = self.value.type
        assert isinstance(t, TileType | BufferType)
        size = t.shape[len(t.shape) - 2 + self.along]
        assert isinstance(size, int)
        if self.memory is None:
            return size
        first = self.memory.starts[len(t.shape) - 2 + self.along].at
        return size - first if isinstance(first, int) else size


def _sides(e: LaneEmitter, op: Operation) -> tuple[Side, Side]:
    a, b, _, *starts = op.operands
    found: list[Side] = []
    for value, along in ((a, 1), (b, 0)):
        t = value.type
        if isinstance(t, BufferType):
            own, starts = starts[: len(t.shape)], starts[len(t.shape) :]
            found.append(Side(value, t.dtype, along, memory_of(e, value, own)))
        else:
            found.append(Side(value, tile_type(value).dtype, along, None))
    return found[0], found[1]


def _dot(e: LaneEmitter, op: Operation) -> None:
    tile, precision = tile_type(op.result), str(op.attributes["precision"])
    layout = layout_of(tile)
    if len(tile.shape) != 2:
        raise NotLowered("tile.dot of more than two axes", str(tile.dtype), e.dialect.name)
    a, b = _sides(e, op)
    depth = min(s.depth for s in (a, b))
    unit = mma.unit_for(e, a.dtype, b.dtype, precision)
    blocks = mma.blocks_of(layout) if unit is not None else None
    accumulator = held_at(e, op.operands[2])
    if unit is not None and blocks is not None and depth % unit.depth == 0:
        left, right = (_fragments(e, side, layout) for side in (a, b))
        made = mma.multiply(
            e, unit, (left, a.dtype), (right, b.dtype), depth, accumulator, blocks
        )  # fmt: skip
    else:
        made = _multiply_add(e, op, (a, b), depth, accumulator)
    bind_at(e, op.result, made.__getitem__)


def _fragments(e: LaneEmitter, side: Side, layout: RegisterLayout) -> mma.Operand:
    wanted = mma.operand_layout(layout, side.dtype, 1 - side.along)
    if side.memory is not None:
        return mma.buffer_operand(e, side.memory, wanted, side.along)
    held = canonical(layout_of(tile_type(side.value)))
    if held.lanes != wanted.lanes or held.warps != wanted.warps:
        raise ValueError(f"an operand of `tile.dot` lies as {held}, not as {wanted}")
    return mma.tile_operand(e, side.value, side.along)


# --- multiply-adds ----------------------------------------------------------------------------


def _lane_layout(layout: RegisterLayout, side: Side, steps: int) -> RegisterLayout:
    """What a lane needs of an operand for ``steps`` of the contraction."""
    across = 1 - side.along
    rest = tuple(m for m in layout.registers if m.axis == across)
    return RegisterLayout(
        (Mode(steps, side.along, 1), *rest),
        mma.without(layout.lanes, side.along), mma.without(layout.warps, side.along),
    )  # fmt: skip


def _by_steps(side: Side) -> bool:
    """Whether neighbours in memory are neighbours of the contraction."""
    if side.memory is None:
        return False
    major = (side.memory.buffer.layout or SharedLayout()).major
    return (side.along == 1) == (major == 1)


def _registers(sides: Sequence[Side], layout: RegisterLayout, steps: int) -> int:
    """Registers of a lane for both operands of ``steps`` terms, those of one term where each is
    read when it is needed."""
    total = 0
    for side in sides:
        held = registers_at(_lane_layout(layout, side, 1), 2)
        terms = steps if _by_steps(side) else 1
        total += len(held) * terms * side.dtype.bytes // 4
    return total


def products_beside(kernel: Operation) -> dict[Operation, tuple[Operation, ...]]:
    """Of each product those of the same body, itself among them."""
    regions = (r for o in kernel.walk() for r in o.regions)
    bodies = (tuple(o for o in r.operations if o.name == "tile.dot") for r in regions)
    return {dot: body for body in bodies for dot in body}


def _body_work(e: LaneEmitter, op: Operation) -> int:
    """Multiply-adds of a lane in all products of a body that are made as this one is: together
    they are the code of one iteration, for which there is a cache."""
    total, own = 0, op.operands[0].type
    assert isinstance(own, TileType | BufferType)
    for dot in dialect_of(e).products_beside.get(op, (op,)):
        left, right = (v.type for v in dot.operands[:2])
        assert isinstance(left, TileType | BufferType) and isinstance(right, TileType | BufferType)
        if left.dtype == own.dtype:
            held = len(registers_at(layout_of(tile_type(dot.result)), 2))
            total += held * min(n for n in (left.shape[-1], right.shape[-2]) if isinstance(n, int))
    return total


def _multiply_add(
    e: LaneEmitter, op: Operation, sides: tuple[Side, Side], depth: int, accumulator: Values
) -> Values:
    (a, b), tile = sides, tile_type(op.result)
    layout = layout_of(tile)
    count = len(registers_at(layout, 2))
    steps = 1
    for side in (a, b):
        if _by_steps(side):
            steps = max(steps, gcd(depth, 16 // side.dtype.bytes))
    while steps > 1 and _registers((a, b), layout, steps) + count * a.dtype.bytes // 4 > FMA_HELD:
        steps //= 2
    dialect = dialect_of(e)
    most, longest = SHORT_RUN if dialect.short_turns else LONG_RUN
    run = max(depth * count, _body_work(e, op))
    if a.memory is None or b.memory is None:
        most = run
    elif depth * count > SHORT_RUN[1]:
        dialect.has_turns = True
    if run <= most or depth * count <= longest:
        return _pinned(e, _turn(e, a, b, (0, depth), steps, tile, accumulator), tile.dtype)
    turn = steps
    while depth % (2 * turn) == 0 and 2 * turn * count <= longest:
        turn *= 2
    return _loop(e, a, b, (depth, turn), steps, tile, accumulator)


def _pinned(e: LaneEmitter, made: Values, dtype: DType) -> Values:
    """The same values, made here: LLVM moves multiply-adds, one after the other, to where their
    results are stored under a condition, and all the reads of operands stay behind, alive."""
    kind = register_type(dtype)
    letter = {"float": "f", "double": "d"}.get(kind, "l" if kind == "i64" else "r")
    if kind not in ("float", "double", "i32", "i64"):
        return made
    out: Values = {}
    places = list(made)
    for i in range(0, len(places), PINNED):
        some = places[i : i + PINNED]
        inputs = [(f"{kind} {made[at]}", str(n)) for n, at in enumerate(some)]
        kept = words.assembly(e, "", [(kind, letter)] * len(some), inputs, effect=False,
                              memory=False)  # fmt: skip
        out.update(zip(some, kept, strict=True))
    return out


def _loop(
    e: LaneEmitter, a: Side, b: Side, extent: tuple[int, int], steps: int, tile: TileType,
    accumulator: Values,
) -> Values:  # fmt: skip
    """Turns of ``extent[1]`` steps until ``extent[0]``; the accumulator lies in slots."""
    f, kind = e.f, register_type(tile.dtype)
    depth, turn = extent
    slots = {at: f.slot(kind) for at in accumulator}
    variable = f.slot("i32")
    for at, operand in accumulator.items():
        f.line(f"store {kind} {operand}, ptr {slots[at]}")
    f.line(f"store i32 0, ptr {variable}")
    head, body, done = (f.label(x) for x in ("dot", "dot.body", "enddot"))
    f.place(head)
    at_step = f.value(f"load i32, ptr {variable}")
    f.branch_if(f.value(f"icmp ult i32 {at_step}, {depth}"), body, done)
    f.place(body)
    held = {at: f.value(f"load {kind}, ptr {slot}") for at, slot in slots.items()}
    moved = [_moved(e, side, at_step, turn) for side in (a, b)]
    made = _turn(e, moved[0], moved[1], (0, turn), steps, tile, held)
    for at, operand in made.items():
        f.line(f"store {kind} {operand}, ptr {slots[at]}")
    f.line(f"store i32 {f.value(f'add i32 {at_step}, {turn}')}, ptr {variable}")
    rolled = e.module.distinct('!{{self}, !{!"llvm.loop.unroll.disable"}}')
    f.branch(head, f", !llvm.loop {rolled}")
    f.place(done)
    return {at: f.value(f"load {kind}, ptr {slot}") for at, slot in slots.items()}


def _moved(e: LaneEmitter, side: Side, step: str, turn: int) -> Side:
    """The operand from a place of the contraction (i32) on."""
    assert side.memory is not None
    starts = list(side.memory.starts)
    axis = len(starts) - 2 + side.along
    first = starts[axis]
    place = step if first.at == 0 else e.f.value(f"add i32 {step}, {first.at}")
    divisor = turn & -turn
    if isinstance(first.at, int):
        divisor = min(divisor, first.at & -first.at or divisor)
    else:
        divisor = min(divisor, first.divisor)
    starts[axis] = Start(place, divisor)
    return replace(side, memory=replace(side.memory, starts=tuple(starts)))


def _turn(
    e: LaneEmitter, a: Side, b: Side, extent: tuple[int, int], steps: int, tile: TileType,
    accumulator: Values,
) -> Values:  # fmt: skip
    layout = layout_of(tile)
    made = dict(accumulator)
    left, right = (_operand(e, side, layout, steps) for side in (a, b))
    places = _in_turn(a, b, made, steps)
    for start in range(*extent, steps):
        x, y = left(start), right(start)
        wide_x = {at: convert(e, v, a.dtype, tile.dtype) for at, v in x.items()}
        wide_y = {at: convert(e, v, b.dtype, tile.dtype) for at, v in y.items()}
        for row, column, k in places:
            at = (row, column)
            made[at] = _fma(e, tile.dtype, wide_x[(row, k)], wide_y[(k, column)], made[at])
    return made


def _in_turn(a: Side, b: Side, made: Values, steps: int) -> list[tuple[int, int, int]]:
    """Rows, columns and steps of the multiply-adds of a turn. Every sum takes its terms in order;
    outermost is the axis whose lines are read with several steps at once, some of them together,
    so that the reads lie evenly between the multiply-adds and not all before the first. There and
    back again, each multiply-add has a factor of the one before: of three registers a lane reads
    two in a cycle, and keeps one."""
    if not _by_steps(a):
        places = [(row, column, k) for row, column in made for k in range(steps)]
        by_columns = _by_steps(b)
        return sorted(places, key=lambda at: (at[1], at[2], at[0]) if by_columns
                      else (at[2], at[0], at[1]))  # fmt: skip
    rows, columns = (sorted({at[axis] for at in made}) for axis in range(2))
    order: list[tuple[int, int, int]] = []
    for first in range(0, len(rows), FMA_LINES):
        lines = rows[first : first + FMA_LINES]
        for k in range(steps):
            for column in columns:
                order += [(row, column, k) for row in lines if (row, column) in made]
                lines.reverse()
            columns.reverse()
    return order


def _operand(e: LaneEmitter, side: Side, layout: RegisterLayout, steps: int) -> mma.Operand:
    wanted = _lane_layout(layout, side, steps)
    if side.memory is not None:
        source = reader(e, side.memory, wanted, 2)
        return lambda start: source.values((0, start) if side.along == 1 else (start, 0))
    held = canonical(layout_of(tile_type(side.value)))
    short = canonical(wanted)
    inside = all(m.axis != side.along for m in (*held.lanes, *held.warps))
    if held.lanes != short.lanes or held.warps != short.warps or not inside:
        raise ValueError(f"an operand of `tile.dot` lies as {held}, not as {short}")
    return mma.tile_operand(e, side.value, side.along)


def _fma(e: LaneEmitter, dtype: DType, a: str, b: str, c: str) -> str:
    if dtype.is_float:
        return e.call("fma", register_type(dtype), a, b, c)
    return apply(e, "tile.add", dtype, apply(e, "tile.mul", dtype, a, b), c)


RULES: dict[str, Rule] = {"tile.dot": _dot}
