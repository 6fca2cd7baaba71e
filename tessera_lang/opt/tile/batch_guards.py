"""The pass ``batch_guards``: guards of indices from memory, for some turns of a loop at once.

A loop that reads indices and then the elements they name waits for each element before the next
guard. It becomes a loop over batches: the indices of all turns of a batch, one test, and behind it
the turns without guards, or else as they were; what is left over is done turn by turn. Must not
know what a loop computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tessera_lang.analysis.range_access import ACCESSES
from tessera_lang.ir.core import BufferType, Operation, Program, Region, Value, ViewType
from tessera_lang.ir.rewrite import Replacement, clone_operation, rewrite_program
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.opt.passes import Pass
from tessera_lang.record import dataclass, field, replace
from tessera_lang.types.dtype import BOOL, INDEX, DType

TURNS = 4
MOST_OPERATIONS = 32
"""Of a loop's body: there will be nine copies of it."""
_NEAR = 1 << 62
_LARGEST_STEP = 1 << 32


def batch_guards(program: Program) -> Program:
    """Loops whose guards all wait for indices from memory, in batches."""
    if not any(_is_guarded(o) for o in program.walk()):
        return program
    definitions = {v: o for o in program.walk() for v in o.results}

    def step(operation: Operation) -> Replacement | None:
        if operation.name != "tile.for":
            return None
        body = _body(operation, definitions)
        return None if body is None else _Batches(operation, body, definitions).made()

    return rewrite_program(program, step)


def _is_guarded(operation: Operation) -> bool:
    return operation.name in ACCESSES and operation.attributes["bounds"] == "guarded"


@dataclass(frozen=True, slots=True)
class _Body:
    """Operations of a turn: ``ahead`` give the indices of ``accesses``, ``rest`` are all others."""

    ahead: tuple[Operation, ...]
    rest: tuple[Operation, ...]
    accesses: tuple[Operation, ...]
    step: int


def _body(loop: Operation, definitions: Mapping[Value, Operation]) -> _Body | None:
    """What a loop does in a turn; None where it is not to be done in batches."""
    (region,) = loop.regions
    *operations, end = region.operations
    by = definitions.get(loop.operands[2])
    step = by.attributes["value"] if by is not None and by.name == "tile.constant" else 0
    if region.arguments[0].type != INDEX or not isinstance(step, int):
        return None
    if end.name != "tile.yield" or not 0 < step <= _LARGEST_STEP:
        return None
    guarded = tuple(o for o in operations if _is_guarded(o))
    if not guarded or len(operations) > MOST_OPERATIONS or not all(map(_plain, operations)):
        return None
    writes = any(TILE_OPS[o.name].effect in ("write", "update") for o in operations)
    ahead, loaded = _ahead(region, operations, writes)
    wanted: set[Value] = set()
    for access in guarded:
        indices = access.operands[ACCESSES[access.name] + 1 :]
        if not all(v in ahead or not _within(v, region, operations) for v in indices):
            return None
        if loaded.isdisjoint(indices):
            return None
        wanted.update(indices)
    first: list[Operation] = []
    for operation in reversed(operations):
        if not wanted.isdisjoint(operation.results):
            first.append(operation)
            wanted.update(operation.operands)
    rest = tuple(o for o in operations if o not in first)
    return _Body(tuple(reversed(first)), rest, guarded, step)


def _plain(operation: Operation) -> bool:
    effect = TILE_OPS[operation.name].effect
    scalars = all(isinstance(v.type, DType) for v in operation.results)
    return scalars and effect in ("none", "fault", "read", "write", "update")


def _within(value: Value, region: Region, operations: Sequence[Operation]) -> bool:
    return value in region.arguments or any(value in o.results for o in operations)


def _ahead(
    region: Region, operations: Sequence[Operation], writes: bool
) -> tuple[set[Value], set[Value]]:
    """Values of a turn that need nothing of the turn before, and those of them that come from
    memory."""
    counter, *carried = region.arguments
    late = {*carried, *(v for o in operations for v in o.results)}
    ahead, loaded = {counter}, set[Value]()
    for operation in operations:
        quiet = TILE_OPS[operation.name].pure or operation.attributes.get("site") == -1
        if operation.name == "tile.load":
            quiet = not _is_guarded(operation) and (not writes or _constant(operation.operands[0]))
        elif operation.name in ACCESSES:
            quiet = False
        if quiet and late.isdisjoint(operation.operands):
            late.difference_update(operation.results)
            ahead.update(operation.results)
            if operation.name == "tile.load" or not loaded.isdisjoint(operation.operands):
                loaded.update(operation.results)
    return ahead, loaded


def _constant(array: Value) -> bool:
    """Whether nobody writes to an array while the kernel runs."""
    return isinstance(array.type, ViewType) and not array.type.mut


@dataclass(slots=True)
class _Batches:
    loop: Operation
    body: _Body
    definitions: Mapping[Value, Operation]
    out: list[Operation] = field(default_factory=list[Operation])

    def made(self) -> Replacement:
        loop, (region,) = self.loop, self.loop.regions
        lower, upper, step, *starts = loop.operands
        stop = self._stop(lower, upper)
        by = self._index(TURNS * self.body.step)
        before = self.out
        counter = Value(INDEX, region.arguments[0].name)
        follows, *carried = (Value(v.type, v.name) for v in (lower, *region.arguments[1:]))
        inside = self._turns(counter, carried, by)
        main = Operation(
            "tile.for", (lower, stop, by, lower, *starts),
            tuple(Value(v.type, v.name) for v in (follows, *carried)), loop.attributes,
            (Region((counter, follows, *carried), inside),), loop.span,
        )  # fmt: skip
        then = replace(loop, operands=(main.results[0], upper, step, *main.results[1:]))
        return Replacement((*before, main, then), then.results)

    def _stop(self, lower: Value, upper: Value) -> Value:
        """Below it all turns of a batch are below ``upper``; ``lower`` where that could wrap."""
        early = self._do("sub", INDEX, upper, self._index((TURNS - 1) * self.body.step))
        least = self._do("cmp", BOOL, self._index(-_NEAR), upper, predicate="le")
        most = self._do("cmp", BOOL, upper, self._index(_NEAR), predicate="le")
        return self._do("select", INDEX, self._do("and", BOOL, least, most), early, lower)

    def _turns(self, counter: Value, carried: Sequence[Value], by: Value) -> tuple[Operation, ...]:
        """A batch: the indices, the test, and the turns in two versions."""
        self.out = []
        argument = self.loop.regions[0].arguments[0]
        known: list[dict[Value, Value]] = []
        for turn in range(TURNS):
            ahead = self._index(turn * self.body.step)
            own = {argument: self._do("add", INDEX, counter, ahead) if turn else counter}
            self.out += [clone_operation(o, own) for o in self.body.ahead]
            known.append(own)
        test = self._all_inside(known)
        sides = tuple(self._side(known, carried, proved) for proved in (True, False))
        results = tuple(Value(v.type, v.name) for v in carried)
        self.out.append(Operation("tile.if", (test,), results, {}, sides, self.loop.span))
        follows = self._do("add", INDEX, counter, by)
        return (*self.out, Operation("tile.yield", (follows, *results)))

    def _all_inside(self, known: Sequence[Mapping[Value, Value]]) -> Value:
        tests: dict[tuple[Value, Value], None] = {}
        for access in self.body.accesses:
            at = ACCESSES[access.name]
            array, indices = access.operands[at], access.operands[at + 1 :]
            axes = cast("tuple[int, ...]", access.attributes.get("open", range(len(indices))))
            for axis in axes:
                size = self._size(array, axis)
                tests.update(((own.get(indices[axis], indices[axis]), size), None) for own in known)
        zero, holds = self._index(0), None
        for index, size in tests:
            for pair, predicate in (((zero, index), "le"), ((index, size), "lt")):
                one = self._do("cmp", BOOL, *pair, predicate=predicate)
                holds = one if holds is None else self._do("and", BOOL, holds, one)
        assert holds is not None
        return holds

    def _size(self, array: Value, axis: int) -> Value:
        assert isinstance(array.type, (BufferType, ViewType))
        extent = array.type.shape[axis]
        if extent is not None:
            return self._index(extent)
        return self.definitions[array].operands[1 + axis]

    def _side(
        self, known: Sequence[Mapping[Value, Value]], carried: Sequence[Value], proved: bool
    ) -> Region:
        """All turns of a batch, one behind the other."""
        region, out = self.loop.regions[0], list[Operation]()
        values = tuple(carried)
        for one in known:
            own = {**one, **dict(zip(region.arguments[1:], values, strict=True))}
            for operation in self.body.rest:
                made = clone_operation(operation, own)
                if proved and operation in self.body.accesses:
                    attributes = {k: v for k, v in made.attributes.items() if k != "open"}
                    attributes.update(bounds="proved", site=-1)
                    made = replace(made, attributes=attributes)
                out.append(made)
            values = tuple(own.get(v, v) for v in region.terminator.operands)
        return Region((), (*out, Operation("tile.yield", values)))

    def _index(self, value: int) -> Value:
        return self._do("constant", INDEX, value=value)

    def _do(self, name: str, dtype: DType, *operands: Value, **attributes: int | str) -> Value:
        made = Value(dtype)
        self.out.append(Operation(f"tile.{name}", operands, (made,), attributes))
        return made


BATCH_GUARDS = Pass("batch_guards", "tile", "tile", batch_guards)
