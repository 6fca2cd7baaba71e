"""Grows the capacities of tiles to what matrix units multiply: rows, columns and contractions.

The extent of a tile says how much of it counts, so a tile of 24 rows may be one of 64: loads
bring what lies behind (or zeros, where the array ends), results beyond the extent are not
stored. Only along a contraction what lies behind would count: there loads end where they did,
and give zeros; what is computed is masked. Axes that meet grow together.

Owns the sizes and the rewriting. Where the grown products have no room in registers, or an
operation needs a size as it is, the tiles stay. Must not know how products are lowered.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.ir.core import Operation, Program, Region, TileType, Value
from tessera_lang.ir.definitions import (
    ARRAY_READS,
    MOVES,
)
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.canonical.squeeze_axes import Axes, Axis
from tessera_lang.opt.schedule.parallel.dead_code import tidy
from tessera_lang.opt.schedule.query.accumulator_registers import accumulators, most_accumulators
from tessera_lang.opt.schedule.query.copy_rules import (
    is_clipped,
)
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    rewrites,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    LOAD,
    MASK,
    Facts,
    facts_of,
    kernel_of,
)
from tessera_lang.opt.schedule.query.tile_access import TileAccess, access_of
from tessera_lang.opt.schedule.query.unit_legality import consumer_groups, has_matrix_dtype
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.arch.isa_constants import STEP_BYTES
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import EASED
from tessera_lang.types.dtype import INDEX


@dataclass(frozen=True, slots=True)
class Multiples:
    """What rows and columns of a product are multiples of. ``narrow``: one less number of
    columns that is taken too."""

    rows: int
    columns: int
    narrow: int = 0

    def of_columns(self, size: int) -> int:
        return self.narrow if size == self.narrow else self.columns


WARP = Multiples(16, 8)
WARP_GROUP = Multiples(64, 16, 8)


@rewrites
def pad(program: Program, context: Context) -> Program:
    machine = context.machine
    if machine.target == "cpu" or not machine.has("mma"):
        return program
    for multiples in _choices(machine, context.relief):
        made = padded(program, multiples)
        if made is program or multiples is WARP:
            return made
        needed, most = _registers(made)
        if needed <= most:
            return made
        context.note("T0744", f"tiles do not grow to the multiples of wgmma: the products would "
                     f"need {needed} registers of each lane, and there are {most} for them",
                     kernel_of(program).span)  # fmt: skip
    return program


def _choices(machine: Machine, relief: int) -> tuple[Multiples, ...]:
    """The smaller ones alone where lanes had too few registers twice."""
    large = machine.has("wgmma") and relief < EASED
    return (WARP_GROUP, WARP) if large else (WARP,)


def _registers(program: Program) -> tuple[int, int]:
    """Registers of a lane that the products of warp groups take, and the most there are."""
    facts = facts_of(kernel_of(program))
    blocks = [int(d.shape[0]) // 64 for d in facts.dots]
    groups = min((consumer_groups(64 * n) for n in blocks), default=1)
    return accumulators(facts, groups), most_accumulators(groups)


def padded(program: Program, multiples: Multiples) -> Program:
    """The program with larger tiles; itself where none grows."""
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    if not any(has_matrix_dtype(d) for d in facts.dots):
        return program
    axes = _Growing(kernel)
    sizes = axes.sizes(facts, multiples)
    if not sizes:
        return program
    return tidy(with_kernel(program, _Rewriter(facts, axes, sizes).kernel()))


class _Growing(Axes):
    """Which axes have one size, and which of them must keep it."""

    def __init__(self, kernel: Operation) -> None:
        self._fixed: list[Axis] = []
        super().__init__(kernel)

    def sizes(self, facts: Facts, multiples: Multiples) -> dict[Axis, int]:
        """The classes that grow, with their sizes."""
        wanted: dict[Axis, int] = {}
        for dot in facts.dots:
            if not has_matrix_dtype(dot) or len(dot.operation.result.type.shape) != 2:  # type: ignore[union-attr]
                continue
            a, b, accumulator = dot.operation.operands
            t = a.tile_type
            columns = dot.shape[1]
            width = multiples.of_columns(columns) if isinstance(columns, int) else 1
            for axis, multiple in (((accumulator, 0), multiples.rows), ((b, 1), width),
                                   ((a, 1), STEP_BYTES // t.dtype.bytes)):  # fmt: skip
                found = self.find(axis)
                wanted[found] = max(wanted.get(found, 1), multiple)
        fixed = {self.find(a) for a in self._fixed}
        return {
            axis: grown
            for axis, multiple in wanted.items()
            if axis not in fixed and isinstance(size := _size(axis), int)
            and (grown := -(-size // multiple) * multiple) != size
        }  # fmt: skip

    def contracted(self, facts: Facts) -> set[Axis]:
        return {self.find((d.operation.operands[0], 1)) for d in facts.dots}

    def _relate(self, operation: Operation) -> None:
        match operation.name.removeprefix(PREFIX):
            case "gather" | "scatter":
                tile = operation.results[0] if operation.results else operation.operands[0]
                view, *rest = operation.operands[not operation.results :]
                dims = operation.integers("dims")
                for axis, value in enumerate(rest[: len(view.view_type.shape)]):
                    if isinstance(value.type, TileType):
                        self.unite((value, 0), (tile, dims.index(axis)))
            case "scan" | "sort":  # what is beyond comes last, or is the identity
                self._same(operation.operands[0], operation.result)
            case "extract" | "insert":
                for value in (*operation.operands, *operation.results):
                    self._fixed += [(value, i) for i in range(_rank(value))]
            case "expand":
                super()._relate(operation)
                axis = operation.integer("axis")
                self._fixed.append((operation.result, axis))
            case _:
                super()._relate(operation)

    def _broadcast(self, operation: Operation) -> None:
        super()._broadcast(operation)
        small, big = operation.operands[0], operation.result
        self._fixed += [
            (small, i) for i in range(_rank(small))
            if small.type.shape[i] != big.type.shape[i]  # type: ignore[union-attr]
        ]  # fmt: skip


def _rank(value: Value) -> int:
    return len(value.type.shape) if isinstance(value.type, TileType) else 0


def _size(axis: Axis) -> int | str:
    value, number = axis
    return value.tile_type.shape[number]


@dataclass(slots=True, eq=False)
class _Rewriter:
    facts: Facts
    axes: _Growing
    sizes: Mapping[Axis, int]
    _values: dict[Value, Value] = field(default_factory=dict[Value, Value])
    _exact: set[int] = field(default_factory=set[int])
    _contracted: set[Axis] = field(default_factory=set[Axis])

    def kernel(self) -> Operation:
        self._contracted = self.axes.contracted(self.facts) & set(self.sizes)
        self._exact = self._exact_loads()
        kernel = self.facts.kernel
        return replace(kernel, regions=tuple(self._region(r) for r in kernel.regions))

    def _region(self, region: Region) -> Region:
        arguments = tuple(self._new(v) for v in region.arguments)
        out: list[Operation] = []
        for operation in region.operations:
            self._operation(operation, out)
        return Region(arguments, tuple(out))

    def _grown(self, value: Value, axis: int) -> int | None:
        return self.sizes.get(self.axes.find((value, axis)))

    def _new(self, value: Value) -> Value:
        t = value.type
        if not isinstance(t, TileType):
            return value
        shape = tuple(self._grown(value, i) or n for i, n in enumerate(t.shape))
        if shape == t.shape:
            return value
        made = self._values[value] = Value(replace(t, shape=shape), value.name)
        return made

    def _operation(self, operation: Operation, out: list[Operation]) -> None:
        operands = tuple(self._values.get(v, v) for v in operation.operands)
        regions = tuple(self._region(r) for r in operation.regions)
        results = tuple(self._new(v) for v in operation.results)
        made = replace(operation, operands=operands, results=results, regions=regions)
        if operation.name == LOAD and id(operation.results) not in self._exact:
            made = self._widened(operation, made, out)
        elif operation.name == DOT and self._sums(operation.operands[0]) in self._contracted:
            made = self._masked(operation, made, out)
        out.append(made)

    def _sums(self, a: Value) -> Axis:
        return self.axes.find((a, _rank(a) - 1))

    # --- loads --------------------------------------------------------------------------------

    def _exact_loads(self) -> set[int]:
        """The loads that keep their extents: those with an end of their own, and those that
        products rely on for zeros behind the end of a contraction."""
        exact: set[int] = set()
        for load in self.facts.loads:
            access = access_of(load.operation)
            grown = [i for i in range(len(access.extents))
                     if self._grown(load.operation.result, i)]  # fmt: skip
            if not all(self._ends_with_array(access, i) for i in grown):
                exact.add(id(load.operation.results))
        for dot in self.facts.dots:
            if self._sums(dot.operation.operands[0]) in self._contracted:
                sources = (self._source(v) for v in dot.operation.operands[:2])
                exact.update(id(o.results) for o in sources if o is not None and o.name == LOAD)
        return exact

    def _ends_with_array(self, access: TileAccess, axis: int) -> bool:
        """Whether an extent is that of the capacity, cut where the array ends."""
        size = access.tile.shape[axis]
        extent, dim = access.extents[axis], access.dims[axis]
        if not isinstance(size, int):
            return False
        if self.facts.constant(extent) == size:
            return True
        sizes = self.facts.definitions[access.view].operands[1:]
        return is_clipped(self.facts, extent, size, sizes[dim], access.starts[dim])

    def _source(self, value: Value) -> Operation | None:
        """What an operand of a product comes from through moves that keep zeros."""
        at = self.facts.definitions.get(value)
        while at is not None and at.name in _MOVES:
            at = self.facts.definitions.get(at.operands[0])
        return at

    def _widened(self, old: Operation, made: Operation, out: list[Operation]) -> Operation:
        """The load with what lies behind its old capacity, as far as the array goes."""
        access, line = access_of(old), _Line(out, old)
        sizes = self.facts.definitions[access.view].operands[1:]
        extents = list(access.extents)
        for axis, dim in enumerate(access.dims):
            grown = self._grown(old.result, axis)
            if grown is not None:
                rest = line.binary("tile.sub", sizes[dim], access.starts[dim])
                clipped = line.binary("tile.min", line.constant(grown), rest)
                extents[axis] = line.binary("tile.max", line.constant(0), clipped)
        first = len(made.operands) - len(extents)
        return replace(made, operands=(*made.operands[:first], *extents))

    # --- products -----------------------------------------------------------------------------

    def _masked(self, old: Operation, made: Operation, out: list[Operation]) -> Operation:
        """The product with operands that are zero behind the old end of the contraction."""
        operands = list(made.operands)
        for number, axis in ((0, _rank(old.operands[0]) - 1), (1, _rank(old.operands[1]) - 2)):
            source = self._source(old.operands[number])
            if source is None or source.name not in _ZEROS:
                end = _size((old.operands[number], axis))
                assert isinstance(end, int)
                operands[number] = _Line(out, old).masked(operands[number], axis, end)
        return replace(made, operands=tuple(operands))


_MOVES = {"tile.cast", *MOVES} - {PREFIX + "broadcast"}
_ZEROS = {MASK, *ARRAY_READS}
"""What gives zeros behind an extent of its own."""


class _Line:
    """Operations put in front of one."""

    def __init__(self, out: list[Operation], place: Operation) -> None:
        self._out = out
        self._place = place

    def constant(self, value: int) -> Value:
        return self._emit("tile.constant", (), Value(INDEX), {"value": value})

    def binary(self, name: str, a: Value, b: Value) -> Value:
        return self._emit(name, (a, b), Value(INDEX), {})

    def masked(self, value: Value, axis: int, end: int) -> Value:
        """A tile with zeros from ``end`` on."""
        t = value.tile_type
        zero = 0.0 if t.dtype.is_float else 0
        fill = self._emit("tile.constant", (), Value(t.dtype), {"value": zero})
        extents = [self.constant(end if i == axis else n) for i, n in enumerate(t.sizes)]
        return self._emit(MASK, (value, fill, *extents), Value(t, value.name), {})

    def _emit(
        self, name: str, operands: tuple[Value, ...], result: Value,
        attributes: Mapping[str, int | float],
    ) -> Value:  # fmt: skip
        made = Operation(name, operands, (result,), dict(attributes), (), self._place.span)
        self._out.append(made)
        return result
