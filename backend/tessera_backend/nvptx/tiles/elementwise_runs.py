"""Element-wise operations in a row: emitted register by register, not operation by operation.

A chain over a tile of 64 registers has 64 values of every step alive if each operation is done
for the whole tile first; ptxas keeps that order and spills. Done one register after the other, a
step is dead before the next register begins. Operations that need nothing of the chain move
before it. Owns the grouping and the rule of a group. Must not know single operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from tessera_backend.llvm.emitter import LaneEmitter, Rule
from tessera_backend.nvptx.tiles.elementwise import PAIRS, places_of, tile_type
from tessera_lang.ir.core import Operation, Region, TileType, Value
from tessera_lang.ir.definitions import ELEMENT_WISE
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.types.dtype import DType

RUN = "tile.run"
"""Not of the IR: a group of operations on their way to the emitter."""

_MOVING = (
    "tile.splat", "tile.coordinate", "tile.expand_tile", "tile.transpose_tile", "tile.load_tile",
    "tile.read_tile",
)  # fmt: skip


def grouped(operations: Iterable[Operation]) -> Iterator[Operation]:
    """The operations, those of a run as one."""
    run: list[Operation] = []
    made: set[Value] = set()
    rows: set[Value] = set()  # one number for many elements
    for operation in operations:
        if operation.name == "tile.expand_tile":
            rows.update(operation.results)
        if _belongs(operation, rows) and (not run or _alike(operation, run[0])):
            run.append(operation)
            made.update(operation.results)
            continue
        if _moves(operation) and not any(v in made for v in operation.operands):
            yield operation
            continue
        yield from _closed(run)
        run, made = [], set()
        if _belongs(operation, rows):
            run.append(operation)
            made.update(operation.results)
        else:
            yield operation
    yield from _closed(run)


def _closed(run: Sequence[Operation]) -> Sequence[Operation]:
    if len(run) < 2:
        return run
    return (Operation(RUN, regions=(Region((), tuple(run)),), span=run[0].span),)


def _belongs(operation: Operation, rows: Set[Value]) -> bool:
    if operation.name not in ELEMENT_WISE or not isinstance(operation.result.type, TileType):
        return False
    if operation.name == "tile.div" and operation.operands[1] in rows:
        return False  # all elements by one divisor together
    return operation.name != "tile.cast" or operation.result.type.dtype not in PAIRS


def _alike(a: Operation, b: Operation) -> bool:
    return places_of(tile_type(a.result)) == places_of(tile_type(b.result))


def _moves(operation: Operation) -> bool:
    """Whether an operation may stand before others that it needs nothing of."""
    if operation.name in _MOVING:
        return True
    scalar = all(isinstance(v.type, DType) for v in operation.results)
    definition = TILE_OPS.get(operation.name)
    return scalar and not operation.regions and definition is not None and definition.pure


def _element(value: Value) -> DType:
    t = value.type
    assert isinstance(t, TileType | DType)
    return t.dtype if isinstance(t, TileType) else t


def _run(e: LaneEmitter, group: Operation) -> None:
    run = group.regions[0].operations
    inside = {o.result for o in run}
    stand: dict[Value, Value] = {}
    for operation in run:
        for value in operation.operands:
            if isinstance(value.type, TileType):
                stand.setdefault(value, Value(_element(value)))
        stand[operation.result] = Value(_element(operation.result))
    outside = [v for v in stand if v not in inside]
    steps = [
        Operation(
            o.name, tuple(stand.get(v, v) for v in o.operands), (stand[o.result],), o.attributes,
            (), o.span,
        )
        for o in run
    ]  # fmt: skip
    columns: list[list[str]] = [[] for _ in run]
    known: dict[tuple[str, ...], list[str]] = {}
    for i in range(len(places_of(tile_type(run[0].result)))):
        parts = tuple(e.tiles[v][i] for v in outside)
        if parts not in known:
            for value, part in zip(outside, parts, strict=True):
                e.bind(stand[value], part)
            known[parts] = [_one(e, step) for step in steps]
        for column, part in zip(columns, known[parts], strict=True):
            column.append(part)
    for operation, column in zip(run, columns, strict=True):
        e.tiles[operation.result] = tuple(column)


def _one(e: LaneEmitter, step: Operation) -> str:
    e.emit(step)
    return e.operand(step.result)


RULES: Mapping[str, Rule] = {RUN: _run}
