"""Neighbouring tiles of the grid become one, where a larger tile is done sooner than its parts.

A program that says tiles of 64 x 64 means their results, not that a multiprocessor has one warp
group at work: where iterations of the grid are neighbours along an axis of their tiles, and nothing
looks across that axis, one iteration does several of them. That holds where every tile with the
axis begins at the variable of the grid, or as far from it in each iteration, ends where the grid
does or is a window that has zeros past the edges of its array, and the variable has no other
use than to say so, or to number elements along the axis. Each row, or column, is then computed
by the same operations in the same order as before.

Owns which axes of the grid may be widened, by how much, and the rewriting; the prices are those of
the cost model. Sizes that are open, and kernels whose schedule the user says, stay as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from tessera_lang.analysis.ranges.linear import Linear
from tessera_lang.ir.core import Operation, Program, Region, TileType, Value, ViewType
from tessera_lang.ir.definitions import BOXES
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.canonical.squeeze_axes import Axes, Axis
from tessera_lang.opt.schedule.cost.cost_model import cycles
from tessera_lang.opt.schedule.cost.resource_estimate import all_dot_registers
from tessera_lang.opt.schedule.cost.split_k_cost import price_of
from tessera_lang.opt.schedule.cost.workload import store_bytes, work_of
from tessera_lang.opt.schedule.query.alignment import divisor_of
from tessera_lang.opt.schedule.query.backward_slices import depends_on
from tessera_lang.opt.schedule.query.computed_operands import written_stages
from tessera_lang.opt.schedule.query.decision_context import Context, rewrites, with_kernel
from tessera_lang.opt.schedule.query.index_forms import IndexForms
from tessera_lang.opt.schedule.query.kernel_facts import (
    MASK,
    Facts,
    facts_of,
    kernel_of,
    open_names,
)
from tessera_lang.opt.schedule.query.splittable_reductions import sums_of
from tessera_lang.opt.schedule.query.staging_rings import tile_bytes
from tessera_lang.opt.schedule.query.unit_legality import has_matrix_dtype
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.arch.isa_constants import UNIT_ROWS
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import (
    BETWEEN_REGISTERS,
    MANY_SUMS,
    PRODUCT_REGISTERS,
    WIDER_WORTH,
    WIDEST_TILE,
)
from tessera_lang.types.dtype import INDEX

_TIMES = (1, 2, 3, 4)


@rewrites
def widen(program: Program, context: Context) -> Program:
    """The program with the tiles that are done soonest; itself where those are its own."""
    kernel, machine = kernel_of(program), context.machine
    said = any(o.endswith("=user") for o in kernel.strings("origins"))
    if machine.target == "cpu" or not machine.has("mma") or context.relief or said:
        return program
    facts = facts_of(kernel)
    if facts.grid is None or not facts.dots or open_names(kernel):
        return program
    if len(facts.reads) > len(facts.loads):
        return program  # the model does not know what lanes gather
    known = _known_sizes(kernel, facts, context)
    best = program, _price(facts, machine) * WIDER_WORTH
    for made in _wider(program, facts, known):
        found = facts_of(kernel_of(made))
        if _fits(found, machine) and (price := _price(found, machine)) < best[1]:
            best = made, price
    if best[0] is not program:
        shapes = [d.shape for d in facts_of(kernel_of(best[0])).dots]
        sizes = ", ".join(" x ".join(map(str, shape[:2])) for shape in dict.fromkeys(shapes))
        message = f"neighbouring tiles are computed as one: its products are {sizes} large"
        context.note("T0748", message, facts.grid.span)
    return best[0]


def _known_sizes(kernel: Operation, facts: Facts, context: Context) -> dict[Value, int]:
    """The arguments of a kernel that are the same number in every launch of this code."""
    if context.numbers is None:
        return {}
    numbers = context.numbers(kernel)
    found = ((v, numbers.number(v)) for v in facts.arguments if v.type == INDEX)
    return {v: n for v, n in found if n is not None}


def _wider(program: Program, facts: Facts, known: Mapping[Value, int]) -> Iterator[Program]:
    """The program with several tiles as one, along each axis of the grid that has such tiles."""
    grid = facts.grid
    assert grid is not None
    kernel = kernel_of(program)
    axes = [i for i in range(len(grid.strings("axes"))) if _Axis.of(kernel, i, known) is not None]
    for times in itertools.product(_TIMES, repeat=len(axes)):
        made: Operation | None = kernel
        for axis, n in zip(axes, times, strict=True):
            found = _Axis.of(made, axis, known) if made is not None and n > 1 else None
            if n > 1:
                made = found.widened(n) if found is not None else None
        if made is not None and any(n > 1 for n in times):
            yield with_kernel(program, made)


def _price(facts: Facts, machine: Machine) -> float:
    """Cycles of a kernel; of lanes that multiply and add, with what they wait for factors."""
    price = price_of(facts, {}, machine, sums_of(facts).loop is not None)
    if any(map(has_matrix_dtype, facts.dots)):
        return price
    work = work_of(facts, {}, machine)
    products = tuple(replace(p, waits=True) for p in work.products)
    return max(price, cycles(replace(work, products=products), machine))


def _fits(facts: Facts, machine: Machine) -> bool:
    """Whether accumulators and two stages of what loops bring surely have room, and beside products
    of computed factors what lanes compute."""
    chained = any(x.load is None for dot in facts.dots for x in (dot.a, dot.b))
    between = BETWEEN_REGISTERS[2] if chained else 0
    if all_dot_registers(facts, {}, machine) + between > PRODUCT_REGISTERS:
        return False
    by_lanes = not any(map(has_matrix_dtype, facts.dots))
    if by_lanes and any(int(d.shape[0]) * int(d.shape[1]) > MANY_SUMS for d in facts.dots):
        return False  # their lanes hardly wait for factors, and have few registers left for them
    shared = 0 if by_lanes else store_bytes(facts, {})
    for load in facts.loads:
        shared += tile_bytes(load.tile) * (2 if load.loop else 1)
    for dot in facts.dots:
        asynchronous = machine.has("wgmma") and has_matrix_dtype(dot)
        shared += sum(
            tile_bytes(x.value.tile_type) * (written_stages(dot, x, facts) if asynchronous else 1)
            for x in (dot.a, dot.b) if x.load is None
        )  # fmt: skip
    return shared <= machine.shared_limit


class CarriedAxes(Axes):
    """Axes that meet, where a mask looks at none, and a product at the one it contracts alone."""

    def _mask(self, operation: Operation) -> None:
        self._same(operation.operands[0], operation.result)

    def _dot(self, operation: Operation) -> None:
        kept = set(self._kept)
        super()._dot(operation)
        a, b, accumulator = operation.operands
        rank = len(accumulator.tile_type.shape)
        self._kept = kept | {(a, rank - 1), (b, rank - 2)}

    def looks_at(self, axis: Axis) -> bool:
        return self.find(axis) in {self.find(a) for a in self._kept}


@dataclass(slots=True, eq=False)
class _Axis:
    """An axis of the grid whose variable says where tiles begin: ``tiles``, of ``size`` elements
    along ``axis``, up to ``upper``."""

    facts: Facts
    grid: Operation
    number: int
    size: int
    axes: CarriedAxes
    axis: Axis
    known: Mapping[Value, int]
    made: dict[Value, Value] = field(default_factory=dict[Value, Value])
    extent: Value = field(default_factory=lambda: Value(INDEX, "extent"))

    @property
    def variable(self) -> Value:
        return self.grid.regions[0].arguments[self.number]

    @property
    def upper(self) -> Value:
        return self.grid.operands[len(self.grid.strings("axes")) + self.number]

    @staticmethod
    def of(kernel: Operation, number: int, known: Mapping[Value, int]) -> _Axis | None:
        """That axis of the grid; None where its tiles cannot be taken together."""
        facts = facts_of(kernel)
        grid = facts.grid
        if grid is None or number >= len(grid.strings("axes")):
            return None
        n, variable = len(grid.strings("axes")), grid.regions[0].arguments[number]
        lower, step = grid.operands[number], facts.constant(grid.operands[2 * n + number])
        if step is None or step < 2 or facts.constant(lower) != 0:
            return None
        axes = CarriedAxes(kernel)
        for o in facts.users.get(variable, ()):
            if o.name in BOXES:
                at = _axis_at(o, variable)
                if at is not None:
                    found = _Axis(facts, grid, number, step, axes, axes.find(at), known)
                    return found if found.holds() else None
        return None

    # --- whether tiles may be larger -----------------------------------------------------------

    def holds(self) -> bool:
        if self.axes.looks_at(self.axis):
            return False
        members = [v for v in self._values() if self.along(v) is not None]
        if any(v.tile_type.shape[self.along(v) or 0] != self.size for v in members):
            return False
        if any(self._twice(v) for v in members):
            return False
        return all(self._fits(o) for o in self.facts.kernel.walk()) and self._only_begins()

    def _values(self) -> list[Value]:
        found = [v for o in self.facts.kernel.walk() for v in o.results]
        found += [v for o in self.facts.kernel.walk() for r in o.regions for v in r.arguments]
        return [v for v in found if isinstance(v.type, TileType)]

    def along(self, tile: Value) -> int | None:
        """The axis of a tile that is this one."""
        if not isinstance(tile.type, TileType):
            return None
        rank = len(tile.type.shape)
        return next((i for i in range(rank) if self.axes.find((tile, i)) == self.axis), None)

    def _twice(self, tile: Value) -> bool:
        rank = len(tile.tile_type.shape)
        return sum(self.axes.find((tile, i)) == self.axis for i in range(rank)) > 1

    def _fits(self, o: Operation) -> bool:
        """Whether an access of a tile with the axis begins and ends with the grid's."""
        at = self._extent_of(o)
        if at is None:
            return True
        if o.name != MASK and not self._begins(
            _start_of(o, self._tile(o), self.along(self._tile(o)) or 0)
        ):
            return False
        steps = o.integers("steps")
        if steps and steps[self.along(self._tile(o)) or 0] != 1:
            return False
        return self._is_all_there(o, at) or self._is_extent(o.operands[at])

    def _is_all_there(self, o: Operation, at: int) -> bool:
        """Whether a window is read past the edges of its array: it is whole everywhere."""
        return bool(o.attributes.get("outside")) and (
            self.facts.constant(o.operands[at]) == self.size
        )

    def _tile(self, o: Operation) -> Value:
        return o.results[0] if o.results else o.operands[0]

    def _extent_of(self, o: Operation) -> int | None:
        """The operand that says how much of the axis is there; None where there is none."""
        if o.name not in BOXES and o.name != MASK:
            return None
        axis = self.along(self._tile(o))
        if axis is None:
            return None
        if o.name == MASK:
            return 2 + axis
        at = next(i for i, v in enumerate(o.operands) if isinstance(v.type, ViewType))
        return at + 1 + len(o.operands[at].view_type.shape) + axis

    def _begins(self, start: Value) -> bool:
        """Whether a number is the variable, or as far from it in all iterations."""
        if start is self.variable:
            return True
        made = self.facts.definitions.get(start)
        if made is None or made.name not in ("tile.add", "tile.sub"):
            return False
        own = [v for v in made.operands if depends_on([v], self.variable, self.facts)]
        shifted = len(own) == 1 and (made.name == "tile.add" or own[0] is made.operands[0])
        return shifted and self._begins(own[0])

    def _is_extent(self, extent: Value) -> bool:
        """Whether as much is there as of the grid: a whole tile, up to its end, or, where an
        index is outside, nothing."""
        facts, made = self.facts, self.facts.definitions.get(extent)
        if facts.constant(extent) == self.size:
            return self._is_whole()
        if made is None:
            return False
        if made.name == "tile.select" and facts.constant(made.operands[2]) == 0:
            if depends_on([made.operands[0]], self.variable, facts):
                return False
            return self._is_extent(made.operands[1])
        return self._is_rest(made)

    def _is_whole(self) -> bool:
        """Whether the grid's axis surely is a number of tiles."""
        known = self.facts.constant(self.upper)
        if known is not None:
            return known % self.size == 0
        return divisor_of(self.upper, self.facts) % self.size == 0

    def _is_rest(self, made: Operation) -> bool:
        """Whether it is ``min(size, upper - variable)``, whatever way that is added up."""
        facts = self.facts
        if made.name != "tile.min":
            return False
        rest = [v for v in made.operands if facts.constant(v) != self.size]
        if len(rest) != 1:
            return False
        forms = IndexForms(facts.definitions)
        forms.outer.forms.update({v: Linear((), n) for v, n in self.known.items()})
        gap, upper, at = (forms.form(v, forms.outer) for v in (rest[0], self.upper, self.variable))
        return gap == upper - at

    def _only_begins(self) -> bool:
        """Whether the variable says where tiles begin, how much of them is there, and which
        numbers elements have, and nothing else."""
        return all(self._is_own(o, self.variable) for o in self.facts.users[self.variable])

    def _is_own(self, o: Operation, value: Value) -> bool:
        users = self.facts.users.get(o.results[0], []) if o.results else []
        if o.name in BOXES:
            at = _axis_at(o, value)
            return at is not None and self.axes.find(at) == self.axis
        if o.name == "tile.min":
            return self._is_rest(o) and self._ends(o)
        if o.name in ("tile.add", "tile.sub"):
            return all(self._is_own(u, o.result) for u in users)
        if o.name == PREFIX + "full" and value is self.variable:
            return self.along(o.result) is not None and all(
                self._counts(u, o.result) for u in users
            )
        return False

    def _ends(self, o: Operation) -> bool:
        """Whether all that reads a number are extents along the axis."""
        for user in self.facts.users.get(o.result, []):
            if user.name == "tile.select":
                if user.operands[0] is o.result or not self._ends(user):
                    return False
            elif self._extent_of(user) != (at := _place(user, o.result)) or at is None:
                return False
        return True

    def _counts(self, o: Operation, begin: Value) -> bool:
        """Whether an operation adds where a tile begins to the numbers of its elements."""
        if o.name != "tile.add":
            return False
        other = o.operands[1] if o.operands[0] is begin else o.operands[0]
        made = self.facts.definitions.get(other)
        if made is None or made.name != PREFIX + "iota":
            return False
        return made.integer("axis") == self.along(o.result)

    # --- larger tiles --------------------------------------------------------------------------

    def widened(self, times: int) -> Operation | None:
        """The kernel with so many tiles as one; None where the tile is too large."""
        size = self.size * times
        if size > WIDEST_TILE or (size > UNIT_ROWS and size % UNIT_ROWS):
            return None
        self.made, self.extent = {}, Value(INDEX, "extent")
        return self._operation(self.facts.kernel, size)[-1]

    def _new(self, value: Value, size: int) -> Value:
        axis = self.along(value)
        if axis is None or not isinstance(value.type, TileType):
            return value
        shape = (*value.type.shape[:axis], size, *value.type.shape[axis + 1 :])
        return self.made.setdefault(value, Value(replace(value.type, shape=shape), value.name))

    def _operation(self, o: Operation, size: int) -> list[Operation]:
        operands = [self.made.get(v, v) for v in o.operands]
        before: list[Operation] = []
        at = self._extent_of(o)
        if at is not None and self._is_all_there(o, at):
            whole = Operation("tile.constant", (), (Value(INDEX),), {"value": size})
            operands[at], before = whole.result, [whole]
        elif at is not None:
            operands[at], before = self._extent(o.operands[at])
        if o is self.grid:
            wide = Operation("tile.constant", (), (Value(INDEX),), {"value": size})
            before, n = [wide], len(o.strings("axes"))
            operands[2 * n + self.number] = wide.result
        regions = tuple(self._region(o, r, size) for r in o.regions)
        results = tuple(self._new(v, size) for v in o.results)
        return [*before, replace(o, operands=tuple(operands), results=results, regions=regions)]

    def _region(self, o: Operation, region: Region, size: int) -> Region:
        arguments = tuple(self._new(v, size) for v in region.arguments)
        operations: list[Operation] = self._ending(size) if o is self.grid else []
        for inner in region.operations:
            operations += self._operation(inner, size)
        return Region(arguments, tuple(operations))

    def _ending(self, size: int) -> list[Operation]:
        """What says how much of a tile is there."""
        wide = Value(INDEX)
        known, facts = self.facts.constant(self.upper), self.facts
        divides = divisor_of(self.upper, facts) if known is None else known
        if divides % size == 0:
            return [Operation("tile.constant", (), (self.extent,), {"value": size})]
        gap = Operation("tile.sub", (self.upper, self.variable), (Value(INDEX),))
        return [
            Operation("tile.constant", (), (wide,), {"value": size}),
            gap,
            Operation("tile.min", (wide, gap.result), (self.extent,)),
        ]

    def _extent(self, extent: Value) -> tuple[Value, list[Operation]]:
        made = self.facts.definitions.get(extent)
        if made is None or made.name != "tile.select":
            return self.extent, []
        inner, before = self._extent(made.operands[1])
        chosen = Operation("tile.select", (made.operands[0], inner, made.operands[2]),
                           (Value(INDEX),), dict(made.attributes))  # fmt: skip
        return chosen.result, [*before, chosen]


def _axis_at(o: Operation, variable: Value) -> Axis | None:
    """The axis of the tile of an access that begins at a variable; None where none does, or it is
    used for more."""
    at = next(i for i, v in enumerate(o.operands) if isinstance(v.type, ViewType))
    rank, dims = len(o.operands[at].view_type.shape), o.integers("dims")
    tile = o.results[0] if o.results else o.operands[0]
    places = [i for i, v in enumerate(o.operands) if v is variable]
    if len(places) != 1 or not at < places[0] <= at + rank:
        return None
    dim = places[0] - at - 1
    return (tile, dims.index(dim)) if dim in dims else None


def _start_of(o: Operation, tile: Value, axis: int) -> Value:
    at = next(i for i, v in enumerate(o.operands) if isinstance(v.type, ViewType))
    return o.operands[at + 1 + o.integers("dims")[axis]]


def _place(o: Operation, value: Value) -> int | None:
    found = [i for i, v in enumerate(o.operands) if v is value]
    return found[0] if len(found) == 1 else None
