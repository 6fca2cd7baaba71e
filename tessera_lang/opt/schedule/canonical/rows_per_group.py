"""Short rows of neighbouring iterations become one tile: a group takes several rows.

An iteration that works on one row of some hundred elements is work for a warp, and of groups of one
warp a multiprocessor holds too few to keep its loads on their way. So one iteration does what
several did: each tile of a row gets an axis of rows in front, each number of a row becomes a tile
of them, and everything else is as it was. Each row is reduced by one warp, as before.

Owns which loops are so, how many rows, and the rewriting. Must not know layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tessera_lang.ir.core import Operation, Program, TileType, Value
from tessera_lang.ir.definitions import ELEMENT_WISE, GENERATES
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.alignment import divisor_of
from tessera_lang.opt.schedule.query.backward_slices import depends_on
from tessera_lang.opt.schedule.query.decision_context import Context, rewrites, with_kernel
from tessera_lang.opt.schedule.query.kernel_facts import (
    LOAD,
    MASK,
    REDUCE,
    STORE,
    Estimate,
    Facts,
    facts_of,
    kernel_of,
    open_names,
)
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.tuned_constants import (
    GROUP_BYTES,
    GROUP_ROWS,
    GROUPS_WANTED,
    LONGEST_SHORT_ROW,
)
from tessera_lang.types.dtype import INDEX

_FULL = PREFIX + "full"


@rewrites
def take_rows(program: Program, context: Context) -> Program:
    """The program with several rows an iteration; itself where rows are long, few, or no rows."""
    kernel, machine = kernel_of(program), context.machine
    said = any(o.endswith("=user") for o in kernel.strings("origins"))
    if machine.target == "cpu" or said or open_names(kernel):
        return program
    facts = facts_of(kernel)
    grid = facts.grid
    if grid is None or facts.dots or len(facts.loops) != 1 or grid.results:
        return program
    rows = _Rows.of(facts, grid)
    if rows is None:
        return program
    count, trips = rows.count(), Estimate(facts, {}).trips(grid)
    while trips is not None and count > 1 and trips < machine.units * GROUPS_WANTED * count:
        count //= 2
    if count < 2 or trips is None:
        return program
    return with_kernel(program, rows.taken(count))


@dataclass(slots=True, eq=False)
class _Rows:
    """``variable``: of the loop's last axis, the number of a row; ``own``: values that differ from
    row to row."""

    facts: Facts
    grid: Operation
    variable: Value
    own: frozenset[Value]
    made: dict[Value, Value] = field(default_factory=dict[Value, Value])

    @staticmethod
    def of(facts: Facts, grid: Operation) -> _Rows | None:
        """None where iterations are no rows: other operations, other tiles than lines of an array,
        or another use of the number than to say which row it is."""
        axes = len(grid.strings("axes"))
        lower, step = grid.operands[axes - 1], grid.operands[3 * axes - 1]
        if facts.constant(lower) != 0 or facts.constant(step) != 1:
            return None
        variable = grid.regions[0].arguments[axes - 1]
        own: set[Value] = set()
        body = grid.regions[0].operations[:-1]
        for o in body:
            if o.regions or not _is_taken(o, variable, own, facts):
                return None
            if _begins(o, variable) or any(v in own for v in o.operands):
                own.update(o.results)
        return _Rows(facts, grid, variable, frozenset(own)) if _has_rows(body, own) else None

    def count(self) -> int:
        """Rows of a group: as many as its lanes hold at once."""
        held = max(
            v.type.sizes[0] * v.type.dtype.bytes for v in self.own if isinstance(v.type, TileType)
        )
        most = max(1, min(GROUP_ROWS, GROUP_BYTES // held))
        return 1 << most.bit_length() - 1

    # --- the rewriting --------------------------------------------------------------------------

    def taken(self, count: int) -> Operation:
        grid, axes = self.grid, len(self.grid.strings("axes"))
        region = grid.regions[0]
        b = ScheduleBuilder(grid.span)
        with b.region() as made:
            upper = grid.operands[2 * axes - 1]
            known = self.facts.constant(upper)
            divides = divisor_of(upper, self.facts) if known is None else known
            there = b.index(count)
            if divides % count:
                there = b.binary("min", there, b.binary("sub", upper, self.variable))
            for o in region.operations[:-1]:
                self._operation(b, o, count, there)
            b.append(region.operations[-1])
        body = replace(region, operations=made.region.operations)
        step = Operation("tile.constant", (), (Value(INDEX, "rows"),), {"value": count})
        operands = (*grid.operands[: 3 * axes - 1], step.result)
        loop = replace(grid, operands=operands, regions=(body,))
        kernel = self.facts.kernel
        operations: list[Operation] = []
        for o in kernel.regions[0].operations:
            operations += (step, loop) if o is grid else (o,)
        whole = replace(kernel.regions[0], operations=tuple(operations))
        return replace(kernel, regions=(whole,))

    def _operation(self, b: ScheduleBuilder, o: Operation, count: int, there: Value) -> None:
        if o.name == STORE:
            self._store(b, o, count, there)
            return
        if not any(v in self.own for v in o.results):
            b.append(o)
            return
        (before,) = o.results
        if o.name == LOAD:
            self.made[before] = self._load(b, o, count, there)
        elif o.name == REDUCE:
            tile = self.made[o.operands[0]]
            self.made[before] = b.reduce(str(o.attributes["kind"]), tile, o.operands[1], 1)
        elif o.name == _FULL:
            self.made[before] = self._wide(b, o.operands[0], (count, *before.tile_type.shape))
        elif o.name == MASK:
            extents = (b.index(count), *o.operands[2:])
            self.made[before] = b.mask(self.made[o.operands[0]], o.operands[1], extents)
        else:
            shape = before.type.shape if isinstance(before.type, TileType) else ()
            operands = tuple(self._wide(b, v, (count, *shape)) for v in o.operands)
            dtype = before.type.dtype if isinstance(before.type, TileType) else before.type
            result = Value(TileType(dtype, (count, *shape)), before.name)  # type: ignore[arg-type]
            b.append(replace(o, operands=operands, results=(result,)))
            self.made[before] = result

    def _wide(self, b: ScheduleBuilder, value: Value, shape: tuple[int | str, ...]) -> Value:
        """A value of a row, or of all of them, as a tile of rows."""
        made = self.made.get(value, value)
        if not isinstance(made.type, TileType):
            return b.full(made, shape)
        if value not in self.own:
            made = b.expand(made, 0)
        while len(made.tile_type.shape) < len(shape):
            made = b.expand(made, len(made.tile_type.shape))
        return b.broadcast(made, shape)

    def _load(self, b: ScheduleBuilder, o: Operation, count: int, there: Value) -> Value:
        access = access_of(o)
        row = access.starts.index(self.variable)
        return b.load_tile(
            access.view, access.starts, (there, *access.extents), (count, *access.tile.shape),
            dims=(row, *access.dims), steps=(1, *access.steps), hint=o.result.name,
            filled=bool(o.attributes.get("filled")),
        )  # fmt: skip

    def _store(self, b: ScheduleBuilder, o: Operation, count: int, there: Value) -> None:
        access = access_of(o)
        row = access.starts.index(self.variable)
        if row in access.dims:  # one element of each row
            number = self.facts.definitions[o.operands[0]].operands[0]
            tile, extents, dims = self._wide(b, number, (count,)), (there,), (row,)
            steps: tuple[int, ...] = (1,)
        else:
            tile = self._wide(b, o.operands[0], (count, *access.tile.shape))
            extents, dims = (there, *access.extents), (row, *access.dims)
            steps = (1, *access.steps)
        b.store_tile(tile, access.view, access.starts, extents, dims=dims, steps=steps)


def _begins(o: Operation, variable: Value) -> bool:
    """Whether an operation reads the row."""
    return o.name == LOAD and variable in access_of(o).starts


def _has_rows(body: tuple[Operation, ...], own: set[Value]) -> bool:
    """Whether rows are reduced, all of one length, and no line is longer than a short one."""
    tiles = [v.type for v in own if isinstance(v.type, TileType)]
    lengths = {t.shape[0] for t in tiles if t.shape != (1,)}
    reduced = any(o.name == REDUCE and o.operands[0] in own for o in body)
    return reduced and len(lengths) == 1 and all(
        isinstance(n, int) and n * t.dtype.bytes <= LONGEST_SHORT_ROW
        for t in tiles for n in t.shape
    )  # fmt: skip


def _is_taken(o: Operation, variable: Value, own: set[Value], facts: Facts) -> bool:
    """Whether an operation is one that several rows can have at once."""
    tiles = [v.type for v in (*o.operands, *o.results) if isinstance(v.type, TileType)]
    if any(len(t.shape) != 1 for t in tiles):
        return False
    known = _TAKEN.get(o.name)
    if known is not None:
        return known(o, variable, own, facts)
    if variable in o.operands or depends_on(list(o.operands), variable, facts):
        return o.name in ELEMENT_WISE and not o.attributes.get("site") and (
            variable not in o.operands and _same_kind(o, own)
        )  # fmt: skip
    return o.name in ELEMENT_WISE or o.name in GENERATES or o.name == "tile.constant"


def _same_kind(o: Operation, own: set[Value]) -> bool:
    """Whether an operation on elements has operands of one kind, all tiles or all numbers, and is
    of rows, not of the places where they are."""
    kinds = {isinstance(v.type, TileType) for v in (*o.operands, *o.results)}
    return len(kinds) == 1 and any(v in own for v in o.operands)


def _is_line(o: Operation, variable: Value, own: set[Value], facts: Facts) -> bool:
    """A load or store of a row: its number is one start, before the axis along the row."""
    access = access_of(o)
    plain = set(o.attributes) <= {"dims", "steps", "filled"}
    others = [v for v in (*access.starts, *access.extents) if v is not variable]
    if not plain or any(v in own or depends_on([v], variable, facts) for v in others):
        return False
    if variable not in access.starts:
        return o.name == LOAD
    row = access.starts.index(variable)
    if access.starts.count(variable) != 1:
        return False
    if row in access.dims:
        made = facts.definitions.get(o.operands[0]) if o.name == STORE else None
        single = access.tile.shape == (1,) and facts.constant(access.extents[0]) == 1
        return single and made is not None and made.name == _FULL
    return all(row < d for d in access.dims)


def _is_reduced(o: Operation, variable: Value, own: set[Value], facts: Facts) -> bool:
    return o.operands[1] not in own and not depends_on([o.operands[1]], variable, facts) and (
        o.attributes["kind"] not in ("argmax", "argmin") and "across" not in o.attributes
    )  # fmt: skip


def _is_masked(o: Operation, variable: Value, own: set[Value], facts: Facts) -> bool:
    rest = o.operands[1:]
    return not any(v in own or depends_on([v], variable, facts) for v in rest)


def _is_full(o: Operation, variable: Value, own: set[Value], facts: Facts) -> bool:
    (number,) = o.operands
    return number in own or not depends_on([number], variable, facts)


_Test = Callable[[Operation, Value, set[Value], Facts], bool]
_TAKEN: Mapping[str, _Test] = {
    LOAD: _is_line, STORE: _is_line, REDUCE: _is_reduced, MASK: _is_masked, _FULL: _is_full,
}  # fmt: skip
