"""Arrays that tiles run across: copies whose lines lie along the tiles, made once.

A tile ``x[z, i:i+64, p:p+64, c]`` of an array whose last axis is that of ``c`` takes one element of
each line. A product that reads such elements several times reads them from a copy ``[z, c, i, p]``,
whose tiles are matrices for copy engines and whole lines for lanes; a result that is stored so is
made in such an array and brought to its place in whole lines. Both are loops like those that a user
would write, over arrays of the call: launches of their own behind ``cut_launches``.

Owns which arrays are laid anew, the order of their axes, and the loops. Must not know a machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Attribute, Operation, PointerType, Program, Region, Value, ViewType
from tessera_lang.ir.definitions import COPIES
from tessera_lang.ir.rewrite import Replacement, rewrite_operation
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.opt.schedule.query.copy_rules import array_name, is_result
from tessera_lang.opt.schedule.query.def_use import arrays_of
from tessera_lang.opt.schedule.query.kernel_facts import (
    FOR,
    LOAD,
    STORE,
    Estimate,
    Facts,
    Load,
    facts_of,
)
from tessera_lang.opt.schedule.query.repack_profitability import reads
from tessera_lang.opt.schedule.query.tile_access import TileAccess, access_of
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.arch.isa_constants import LINE_BYTES, SECTOR_BYTES, VECTOR_BYTES
from tessera_lang.target.launch_plan import LaunchPlan, ResultPlan, Slot
from tessera_lang.target.tuned_constants import PHASE_ELEMENTS, REPACK_READS
from tessera_lang.types.dtype import INDEX
from tessera_lang.types.shape import Dim, Sym

_FEW = 8
"""Elements of a line that are one class of sizes with a single one: squares of a copy would hold
mostly what is not there."""


def lay_anew(
    program: Program, plan: LaunchPlan, remarks: list[Diagnostic]
) -> tuple[Program, LaunchPlan]:
    """The kernel that reads and stores such arrays along their lines; itself where none is one."""
    (kernel,) = program.operations
    facts = facts_of(kernel)
    if not facts.dots:
        return program, plan
    found = [a for a in _candidates(facts, plan) if _pays(a, facts)]
    if not found:
        return program, plan
    for array in found:
        remarks.append(_said(array, facts))
    kernel, plan = _Work(kernel, plan, facts).run(found)
    return replace(program, operations=(kernel,)), plan


@dataclass(frozen=True, slots=True, eq=False)
class _Array:
    """``accesses``: all that reads or writes it; ``order``: its axes in the order of the copy."""

    made: Operation
    accesses: tuple[Operation, ...]
    order: tuple[int, ...]
    dims: tuple[Dim, ...]

    @property
    def view(self) -> Value:
        return self.made.result

    @property
    def is_read(self) -> bool:
        return self.accesses[0].name == LOAD


# --- which arrays ------------------------------------------------------------------------------


def _candidates(facts: Facts, plan: LaunchPlan) -> list[_Array]:
    """Arrays of the call, seen one way, all of whose tiles run across their lines the same way."""
    arrays = arrays_of(facts.kernel)
    found: list[_Array] = []
    for made in facts.kernel.regions[0].operations:
        if made.name != "tile.view" or not made.result.view_type.contiguous:
            continue
        if [v for v, pointer in arrays.items() if pointer is made.operands[0]] != [made.result]:
            continue
        accesses = tuple(facts.users.get(made.result, ()))
        order = _order(made.result, accesses)
        dims = dims_of(made, facts, plan)
        if order is not None and dims is not None and _is_whole(made, accesses, facts, plan):
            found.append(_Array(made, accesses, order, dims))
    return found


def _order(view: Value, accesses: Sequence[Operation]) -> tuple[int, ...] | None:
    """The axes of the array with those of the tiles last; None where tiles are no matrices across
    its lines, or differ."""
    if not accesses or {o.name for o in accesses} not in ({LOAD}, {STORE}):
        return None
    last = len(view.view_type.shape) - 1
    orders: set[tuple[int, ...]] = set()
    for operation in accesses:
        access = access_of(operation)
        wide = [d for d, n in zip(access.dims, access.tile.shape, strict=True) if n != 1]
        plain = all(v.type == INDEX for v in access.starts) and set(access.steps) <= {1}
        if not plain or len(wide) != 2 or wide != sorted(wide) or last in wide:
            return None
        orders.add((*(d for d in range(last + 1) if d not in wide), *wide))
    return orders.pop() if len(orders) == 1 else None


def _is_whole(
    made: Operation, accesses: Sequence[Operation], facts: Facts, plan: LaunchPlan
) -> bool:
    """Whether a copy is as good as the array: it is only read, or it is a result all of whose
    elements are written."""
    if accesses[0].name == LOAD:
        return True
    pointer = facts.argument_numbers(made.result)[0]
    names = facts.kernel.strings("parameters")
    if pointer < 0 or not is_result(names[pointer]):
        return False
    number = plan.slots[pointer].parameter - len(plan.parameters)
    around = dict(facts.stores)
    return not plan.results[number].zeroed and any(
        _covers(access_of(o), around[o], facts) for o in accesses
    )


def _covers(access: TileAccess, inside: Sequence[Operation], facts: Facts) -> bool:
    """Whether the tiles of a store are all of the array: along each axis it begins at the variable
    of a loop over the axis, in steps of a tile."""
    if any(o.name != FOR for o in inside):
        return False
    sizes = facts.definitions[access.view].operands[1:]
    variables: dict[Value, tuple[Value, Value, Value]] = {}
    for loop in inside:
        n = len(loop.strings("axes"))
        for i, variable in enumerate(loop.regions[0].arguments[:n]):
            variables[variable] = loop.operands[i], loop.operands[n + i], loop.operands[2 * n + i]
    if len(set(access.starts)) < len(access.starts):
        return False
    wide = dict(zip(access.dims, access.tile.shape, strict=True))
    for dim, start in enumerate(access.starts):
        lower, upper, step = variables.get(start, (start, start, start))
        if start not in variables or facts.constant(lower) != 0 or upper is not sizes[dim]:
            return False
        if facts.constant(step) != wide.get(dim, 1):
            return False
    return all(
        facts.constant(e) == n or _is_clipped(e, n, sizes[d], access.starts[d], facts)
        for e, n, d in zip(access.extents, access.tile.shape, access.dims, strict=True)
    )


def _is_clipped(
    extent: Value, capacity: int | str, size: Value, start: Value, facts: Facts
) -> bool:
    """Whether an extent is ``min(capacity, size - start)``."""
    made = facts.definitions.get(extent)
    if made is None or made.name != "tile.min":
        return False
    rest = [v for v in made.operands if facts.constant(v) != capacity]
    gap = facts.definitions.get(rest[0]) if len(rest) == 1 else None
    if gap is None or gap.name != "tile.sub":
        return False
    return gap.operands[0] is size and gap.operands[1] is start


def dims_of(made: Operation, facts: Facts, plan: LaunchPlan) -> tuple[Dim, ...] | None:
    """The sizes of an array as the launch knows them."""
    found: list[Dim] = []
    for value in made.operands[1:]:
        known = facts.constant(value)
        place = facts.arguments.index(value) if value in facts.arguments else -1
        slot = plan.slots[place] if 0 <= place < len(plan.slots) else None
        if known is not None:
            found.append(known)
        elif slot is not None and slot.kind == "symbol":
            found.append(Sym(slot.symbol))
        elif slot is not None and slot.kind == "size" and slot.parameter < len(plan.parameters):
            found.append(Sym(f"{plan.parameters[slot.parameter].name}.shape[{slot.axis}]"))
        else:
            return None
    return tuple(found)


# --- whether it pays -----------------------------------------------------------------------------


def _pays(array: _Array, facts: Facts) -> bool:
    """Whether lines are longer than what memory gives at once, and there is more to move than a
    launch is worth: of what is read, where products read it several times."""
    estimate, elements = Estimate(facts, {}), 1
    sizes = [estimate.value(v) for v in array.made.operands[1:]]
    for size in sizes:
        elements *= size or 0
    line = sizes[-1] or 0
    is_long = line > _FEW and line * array.view.view_type.dtype.bytes >= SECTOR_BYTES
    if elements < PHASE_ELEMENTS or not is_long:
        return False
    if not array.is_read:
        return True
    loads = {x.operation: x for x in facts.loads}
    of_products = {p.load.operation for d in facts.dots for p in (d.a, d.b) if p.load is not None}
    read: list[Load] = [loads[o] for o in array.accesses if o in of_products]
    return sum(reads(x, facts) for x in read) >= REPACK_READS


def _said(array: _Array, facts: Facts) -> Diagnostic:
    name = array_name(facts, array.view)
    axes = ", ".join(map(str, array.order))
    does = "read from a copy" if array.is_read else "made in an array"
    return Diagnostic(
        "T0743",
        f"`{name}` is {does} with its axes in the order {axes}: its tiles run across its lines",
        array.accesses[0].span, severity="note",
    )  # fmt: skip


# --- the copies ----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Work:
    kernel: Operation
    plan: LaunchPlan
    facts: Facts
    pointers: list[Value] = field(default_factory=list[Value])

    def run(self, arrays: Sequence[_Array]) -> tuple[Operation, LaunchPlan]:
        views: dict[Value, Value] = {}
        before: dict[Operation, tuple[Operation, ...]] = {}
        behind: list[Operation] = []
        for array in arrays:
            b = ScheduleBuilder(array.accesses[0].span)
            with b.region() as inner:
                views[array.view] = self._view(b, array)
            first = list(inner.operations)
            with b.region() as inner:
                self._moved(b, array, views[array.view])
            (first if array.is_read else behind).extend(inner.operations)
            before[array.made] = tuple(first)
        kernel = rewrite_operation(self.kernel, lambda o: self._step(o, arrays, views))
        region = kernel.regions[0]
        operations: list[Operation] = []
        for o in region.operations[:-1]:
            operations += (o, *before.get(o, ()))
        body = Region(
            (*region.arguments, *self.pointers),
            (*operations, *behind, region.terminator),
        )
        attributes = with_arguments(self.kernel, self.pointers)
        return replace(kernel, regions=(body,), attributes=attributes), self.plan

    def _view(self, b: ScheduleBuilder, array: _Array) -> Value:
        """A view of memory of the call, with the sizes of the array in the other order."""
        t, name = array.view.view_type, array.view.name or "array"
        dims = tuple(array.dims[d] for d in array.order)
        number = len(self.plan.parameters) + len(self.plan.results)
        kept = ResultPlan(t.dtype.name, dims, kept=True)
        slot = Slot("data", number, dtype=t.dtype.name)
        plan = self.plan
        self.plan = replace(plan, results=(*plan.results, kept), slots=(*plan.slots, slot))
        pointer = Value(PointerType(t.dtype, "global"), f"laid_{name}")
        self.pointers.append(pointer)
        sizes = [array.made.operands[1 + d] for d in array.order]
        shape = [t.shape[d] for d in array.order]
        return b.view(pointer, sizes, shape=shape, mut=True, aligned=True, name=f"{name}_laid")

    def _moved(self, b: ScheduleBuilder, array: _Array, laid: Value) -> None:
        """The loop that brings all elements from the one to the other, in squares of the axes
        along which they lie."""
        rank, (*_, line) = len(array.order), array.order
        last, sizes = rank - 1, array.made.operands[1:]
        width = self._width(array)
        others = [d for d in array.order if d not in (line, last)]
        axes = [*others, line, last]
        one, zero, wide = b.index(1), b.index(0), b.index(width)
        with b.region(*((f"d{d}", INDEX) for d in axes)) as body:
            at = dict(zip(axes, body.arguments, strict=True))
            extents = [self._extent(b, sizes[d], at[d], width) for d in (line, last)]
            starts = [at[d] for d in range(rank)]
            places = [array.order.index(d) for d in (line, last)]
            laid_starts = [at[d] for d in array.order]
            if array.is_read:
                tile = b.load_tile(array.view, starts, extents, (width, width), dims=(line, last))
                turned = b.transpose(tile, (1, 0))
                b.store_tile(turned, laid, laid_starts, extents[::-1], dims=places[::-1])
            else:
                tile = b.load_tile(
                    laid, laid_starts, extents[::-1], (width, width), dims=places[::-1]
                )
                turned = b.transpose(tile, (1, 0))
                b.store_tile(turned, array.view, starts, extents, dims=(line, last))
            b.yield_()
        steps = [one] * len(others) + [wide, wide]
        names = [f"d{d}" for d in axes]
        b.loops([zero] * rank, [sizes[d] for d in axes], steps, [], body.region, names)

    def _width(self, array: _Array) -> int:
        """Elements of a line of the cache, in each of the two arrays."""
        return max(8, LINE_BYTES // array.view.view_type.dtype.bytes)

    def _extent(self, b: ScheduleBuilder, size: Value, at: Value, width: int) -> Value:
        divisors = self.kernel.integers("divisors")
        if size in self.facts.arguments:
            place = self.facts.arguments.index(size)
            if place < len(divisors) and divisors[place] % width == 0:
                return b.index(width)
        known = self.facts.constant(size)
        if known is not None and known % width == 0:
            return b.index(width)
        return b.binary("min", b.index(width), b.binary("sub", size, at))

    def _step(
        self, o: Operation, arrays: Sequence[_Array], views: Mapping[Value, Value]
    ) -> Replacement | Operation | None:
        """An access of the array that is laid anew, as one of the copy."""
        array = next((a for a in arrays if a.view in o.operands), None)
        if array is None or o.name not in COPIES:
            return None
        access = access_of(o)
        at = next(i for i, v in enumerate(o.operands) if isinstance(v.type, ViewType))
        starts = [access.starts[d] for d in array.order]
        operands = (*o.operands[:at], views[array.view], *starts, *access.extents)
        dims = tuple(array.order.index(d) for d in access.dims)
        return replace(o, operands=operands, attributes={**o.attributes, "dims": dims})


def with_arguments(kernel: Operation, more: Sequence[Value]) -> dict[str, Attribute]:
    attributes = dict(kernel.attributes)
    rows = (
        ("parameters", [v.name for v in more]),
        ("hints", [0] * len(more)),
        ("divisors", [VECTOR_BYTES] * len(more)),
    )
    for key, row in rows:
        before = attributes.get(key)
        if isinstance(before, tuple):
            made: Attribute = (*before, *row)
            attributes[key] = made
    return attributes
