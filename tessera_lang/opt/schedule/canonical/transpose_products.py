"""Products of few rows as their transposes, so that the many columns feed the matrix unit.

A matrix unit that takes 64 rows at a time does ``(b.T @ a.T).T`` for a product of few rows: what
is wide becomes its rows, what is few its columns, of which it takes as few as 8. The floor of
such a product is the bytes of the wide operand over the rate of main memory; with 16 rows in
tiles of 64 it would compute four times as much and move the small operand four times as often.

Owns the choice and the rewriting: accumulators are carried transposed through loops, conditions
and element-wise work, and stores write them with their axes exchanged, so no data is moved.
General for every product of two loads; must not know how products are lowered.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Program, Region, TileType, Value
from tessera_lang.ir.definitions import (
    ARRAY_WRITES,
    BOXES,
    ENDS,
    LOOPS,
)
from tessera_lang.ir.rewrite import substitute
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.parallel.dead_code import tidy
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    rewrites,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    TRANSPOSE,
    Dot,
    Estimate,
    Facts,
    facts_of,
    kernel_of,
    open_names,
)
from tessera_lang.opt.schedule.query.unit_legality import (
    has_matrix_dtype,
    is_better_swapped,
    needs_first,
)
from tessera_lang.record import replace
from tessera_lang.target.tuned_constants import FEW_ROWS

_MANY = 1 << 30
_FULL = PREFIX + "full"
_STORES = BOXES & ARRAY_WRITES


@rewrites
def swap_operands(program: Program, context: Context) -> Program:
    if not context.machine.has("wgmma"):
        return program
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    chosen = [d for d in facts.dots if _gains(d, facts)]
    if not chosen or len(chosen) != len(facts.dots):
        return program
    made = swapped(program, chosen)
    return with_kernel(made, with_decisions(kernel_of(made), {"swap": True}))


def swapped(program: Program, dots: Sequence[Dot]) -> Program:
    """The program with the transposes of these products, which are those of its facts."""
    made = _Swapper(facts_of(kernel_of(program)), dots).kernel()
    return tidy(with_kernel(program, made))


def _gains(dot: Dot, facts: Facts) -> bool:
    """Whether the rows of a product are few and its columns many. Rows and columns may be open:
    then the hints of the launch say how many there probably are."""
    if dot.a.load is None or not has_matrix_dtype(dot):
        return False
    if any(len(_tile(v).shape) != 2 for v in dot.operation.operands[:2]):
        return False
    if is_better_swapped(dot, facts):
        return all(isinstance(n, str) or n % 64 == 0 for n in dot.shape[:2])
    if dot.b.load is None or needs_first(dot, facts):
        return False
    rows = needed(dot.a.load.extents[1 if dot.a.swapped else 0], dot.shape[0], facts)
    columns = needed(dot.b.load.extents[0 if dot.b.swapped else 1], dot.shape[1], facts)
    if rows is None or columns is None or rows > FEW_ROWS:
        return False
    named = isinstance(dot.shape[0], str)
    fits = named or (int(dot.shape[0]) in (8, 16, 32, 48))
    wide = isinstance(dot.shape[1], str) or int(dot.shape[1]) % 64 == 0
    return fits and wide and columns >= 64


def needed(extent: Value, size: int | str, facts: Facts) -> int | None:
    """How many elements of an axis there probably are at most: of all tiles together where the
    size is open, else of one; None where the launch does not tell."""
    if isinstance(size, int):
        return size
    return Estimate(facts, dict.fromkeys(open_names(facts.kernel), _MANY)).value(extent)


def _tile(value: Value) -> TileType:
    return value.tile_type


def _is_matrix(value: Value) -> bool:
    return isinstance(value.type, TileType) and len(value.type.shape) == 2


def _flipped_type(value: Value) -> TileType:
    t = _tile(value)
    return replace(t, shape=(t.shape[1], t.shape[0]))


class _Swapper:
    """``self._flipped[v]`` is the transpose of ``v``, at hand wherever ``v`` is."""

    def __init__(self, facts: Facts, chosen: Sequence[Dot]) -> None:
        self._facts = facts
        self._chosen = {id(d.operation.results) for d in chosen}
        self._flipped: dict[Value, Value] = {}
        self._equal: dict[Value, Value] = {}  # what stands in for a value
        self._carried = _reached(facts, chosen)

    def kernel(self) -> Operation:
        kernel = self._facts.kernel
        (region,) = kernel.regions
        operations = self._operations(region.operations)
        return replace(kernel, regions=(Region(region.arguments, operations),))

    def _operations(self, operations: Sequence[Operation]) -> tuple[Operation, ...]:
        out: list[Operation] = []
        for operation in operations:
            self._operation(operation, out)
        return tuple(out)

    def _operation(self, operation: Operation, out: list[Operation]) -> None:
        operation = self._reading(operation)
        if id(operation.results) in self._chosen and operation.name == DOT:
            self._product(operation, out)
        elif operation.regions:
            self._nested(operation, out)
        elif operation.name in _STORES and operation.operands[0] in self._flipped:
            out.append(self._stored(operation))
        elif self._is_element_wise(operation):
            self._element_wise(operation, out)
        elif operation.name == TRANSPOSE and operation.attributes["permutation"] == (1, 0):
            self._transposed(operation, out)
        else:
            out.append(operation)

    def _reading(self, operation: Operation) -> Operation:
        operands = substitute(operation.operands, self._equal)
        same = operands is operation.operands
        return operation if same else replace(operation, operands=operands)

    def _transposed(self, operation: Operation, out: list[Operation]) -> None:
        """A transpose has its operand as its transpose, and is that of its operand."""
        source = operation.operands[0]
        if source in self._flipped:
            self._equal[operation.result] = self._flipped[source]
        else:
            self._flipped[operation.result] = source
            out.append(operation)

    # --- what is made ----------------------------------------------------------------------

    def _other(self, value: Value, out: list[Operation]) -> Value:
        """The transpose of a value, made where it is not at hand."""
        if value not in self._flipped:
            definition = self._facts.definitions.get(value)
            result = Value(_flipped_type(value), value.name)
            if definition is not None and definition.name == _FULL:
                out.append(replace(definition, results=(result,)))
            else:
                out.append(_transpose(value, result))
            self._flipped[value] = result
        return self._flipped[value]

    def _from_other(self, value: Value, other: Value, out: list[Operation]) -> None:
        """``value`` as the transpose of ``other``; dropped later where nobody reads it."""
        self._flipped[value] = other
        out.append(_transpose(other, value))

    def _product(self, dot: Operation, out: list[Operation]) -> None:
        a, b, accumulator = dot.operands
        operands = (self._other(b, out), self._other(a, out), self._other(accumulator, out))
        result = Value(_flipped_type(dot.result), dot.result.name)
        out.append(replace(dot, operands=operands, results=(result,)))
        self._from_other(dot.result, result, out)

    def _is_element_wise(self, operation: Operation) -> bool:
        if not operation.name.startswith("tile.") or len(operation.results) != 1:
            return False
        tiles = [v for v in operation.operands if isinstance(v.type, TileType)]
        if not _is_matrix(operation.result) or not tiles:
            return False
        return any(v in self._flipped and not self._is_load(v) for v in tiles)

    def _is_load(self, value: Value) -> bool:
        """Whether a transpose is only that of what a product reads from memory."""
        at = self._facts.definitions.get(value)
        while at is not None and at.name == TRANSPOSE:
            at = self._facts.definitions.get(at.operands[0])
        return at is not None and at.name == PREFIX + "load"

    def _element_wise(self, operation: Operation, out: list[Operation]) -> None:
        operands = tuple(
            self._other(v, out) if isinstance(v.type, TileType) else v for v in operation.operands
        )
        result = Value(_flipped_type(operation.result), operation.result.name)
        out.append(replace(operation, operands=operands, results=(result,)))
        self._from_other(operation.result, result, out)

    def _stored(self, store: Operation) -> Operation:
        tile, view, *rest = store.operands
        starts, extents = rest[:-2], rest[-2:]
        attributes = dict(store.attributes)
        for name in ("dims", "steps"):
            held = store.integers(name)
            if held:
                attributes[name] = (held[1], held[0])
        operands = (self._flipped[tile], view, *starts, extents[1], extents[0])
        return replace(store, operands=operands, attributes=attributes)

    # --- regions ---------------------------------------------------------------------------

    def _nested(self, operation: Operation, out: list[Operation]) -> None:
        places = [i for i, v in enumerate(operation.results) if v in self._carried]
        operands = operation.operands
        first = len(operands) - len(operation.results)
        if places and operation.name in LOOPS:
            wanted = {first + i for i in places}
            operands = tuple(
                self._other(v, out) if i in wanted else v for i, v in enumerate(operands)
            )
        outside = dict(self._flipped)
        regions: list[Region] = []
        for region in operation.regions:
            regions.append(self._region(operation, region, places))
            self._flipped = dict(outside)
        results = list(operation.results)
        for i in places:
            results[i] = Value(_flipped_type(results[i]), results[i].name)
        out.append(
            replace(operation, operands=operands, results=tuple(results), regions=tuple(regions))
        )
        for i in places:
            self._from_other(operation.results[i], results[i], out)

    def _region(self, operation: Operation, region: Region, places: Sequence[int]) -> Region:
        arguments = list(region.arguments)
        head: list[Operation] = []
        if operation.name in LOOPS:
            first = len(arguments) - len(operation.results)
            for i in places:
                value = arguments[first + i]
                arguments[first + i] = Value(_flipped_type(value), value.name)
                self._from_other(value, arguments[first + i], head)
        body = [*head, *self._operations(region.operations[:-1])]
        end = self._reading(region.terminator)
        if places and end.name in ENDS:
            skip = 1 if end.name == "tile.condition" else 0
            wanted = {skip + i for i in places}
            operands = tuple(
                self._other(v, body) if i in wanted else v for i, v in enumerate(end.operands)
            )
            end = replace(end, operands=operands)
        return Region(tuple(arguments), (*body, end))


def _transpose(value: Value, result: Value) -> Operation:
    return Operation(TRANSPOSE, (value,), (result,), {"permutation": (1, 0)})


def _reached(facts: Facts, chosen: Sequence[Dot]) -> set[Value]:
    """Results of loops and conditions that an accumulator comes from, or that carry one on."""
    places: dict[Value, tuple[Operation, int]] = {}
    for operation in facts.kernel.walk():
        if operation.name in LOOPS:
            for region in operation.regions:
                first = len(region.arguments) - len(operation.results)
                for i, _ in enumerate(operation.results):
                    places[region.arguments[first + i]] = (operation, i)
    found: set[Value] = set()
    waiting, seen = [d.operation.operands[2] for d in chosen], set[Value]()
    while waiting:
        value = waiting.pop()
        if value in seen or not _is_matrix(value):
            continue
        seen.add(value)
        definition = facts.definitions.get(value)
        if value in places:
            waiting += _carried(*places[value], found)
        elif definition is not None and definition.regions:
            waiting += _carried(definition, definition.results.index(value), found)
        elif definition is not None and definition.name.startswith("tile."):
            waiting += definition.operands
    return found


def _carried(operation: Operation, place: int, found: set[Value]) -> list[Value]:
    """What a place of a loop or condition may hold; the place is noted."""
    if not all(r.terminator.name in ENDS for r in operation.regions):
        return []
    found.add(operation.results[place])
    held = [operation.operands[len(operation.operands) - len(operation.results) + place]]
    held = held if operation.name in LOOPS else []
    for region in operation.regions:
        skip = 1 if region.terminator.name == "tile.condition" else 0
        held.append(region.terminator.operands[skip + place])
    return held
