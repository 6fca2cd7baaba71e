"""Accumulations become carried tiles: the old content is read once, the sum rounded once.

Owns the replacement of ``accumulate``: around the loops whose variables its place does not
depend on, one load before, a tile carried through, one store after. Must not know why a loop
stands where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tessera_lang.diagnostics import Diagnostic, Label
from tessera_lang.ir.core import Operation, Program, Region, TileType, Value
from tessera_lang.ir.definitions import (
    ENDS,
    LOOP_EXITS,
    LOOPS,
    is_pure,
)
from tessera_lang.ir.rewrite import clone_operation
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.array_dependence import (
    ACCUMULATE,
    FOR,
    LOAD,
    MemoryAccess,
    Nest,
    access_of,
    depends,
)
from tessera_lang.opt.schedule.query.def_use import (
    arrays_of,
    definitions_of,
    users_of,
    values_inside,
)
from tessera_lang.record import dataclass, field, replace

DOT, FULL, STORE = PREFIX + "dot", PREFIX + "full", PREFIX + "store"


def privatize(program: Program, remarks: list[Diagnostic]) -> Program:
    """``program`` without an ``accumulate``."""
    (kernel,) = program.operations
    if not kernel.holds(ACCUMULATE):
        return program
    work = _Work(
        definitions_of(kernel),
        arrays_of(kernel),
        {v: len(u) for v, u in users_of(kernel).items()},
        remarks,
    )
    region = kernel.regions[0]
    made = Region(region.arguments, tuple(work.block(region.operations, ())))
    return replace(program, operations=(replace(kernel, regions=(made,)),))


@dataclass(slots=True)
class _Work:
    definitions: Mapping[Value, Operation]
    arrays: Mapping[Value, Value]
    uses: Mapping[Value, int]
    remarks: list[Diagnostic]
    gone: set[Operation] = field(default_factory=set[Operation])

    def block(
        self, operations: Sequence[Operation], around: tuple[Operation, ...]
    ) -> list[Operation]:
        """Operations in order; each accumulation is carried around the outermost loop it can."""
        out: list[Operation] = []
        for o in operations:
            if o in self.gone:
                continue
            if o.name == ACCUMULATE:
                out.extend(self._alone(o, around))
                continue
            groups = self._groups(o) if o.name in LOOPS else []
            if groups:
                out.extend(self._carried(o, groups, around))
            elif o.regions:
                out.append(self._inside(o, around))
            else:
                out.append(o)
        return out

    def _inside(self, o: Operation, around: tuple[Operation, ...]) -> Operation:
        deeper = (*around, o) if o.name in LOOPS else around
        regions = tuple(
            Region(r.arguments, tuple(self.block(r.operations, deeper))) for r in o.regions
        )
        return replace(o, regions=regions)

    # --- which sums a loop carries ------------------------------------------------------------

    def _groups(self, loop: Operation) -> list[list[Operation]]:
        """Accumulations inside a loop whose places do not depend on anything in it, by place."""
        inside = values_inside(loop)
        found: list[list[Operation]] = []
        others: list[MemoryAccess] = []
        for o in loop.walk():
            access = access_of(o, self.arrays)
            if access is None:
                continue
            numbers = _numbers(o) if o.name == ACCUMULATE else ()
            if o.name != ACCUMULATE or any(self._depends(v, inside) for v in numbers):
                others.append(access)
                continue
            group = next((g for g in found if _same_place(g[0], o, self)), None)
            if group is None:
                found.append([o])
            else:
                group.append(o)
        touched = [a.array for a in others]
        places = [access_of(g[0], self.arrays) for g in found]
        nest = Nest(loop, self.definitions)
        return [
            g
            for g, place in zip(found, places, strict=True)
            if place is not None
            and not any(place.array is t for t in touched)
            and all(p is place or (p is not None and nest.elsewhere(place, p)) for p in places)
        ]

    def _depends(self, value: Value, inside: frozenset[Value]) -> bool:
        """Whether a number comes from inside by more than arithmetic on what is outside."""
        if value not in inside:
            return False
        o = self.definitions.get(value)
        if o is None or o.regions or not is_pure(o):
            return True
        return any(self._depends(v, inside) for v in o.operands)

    # --- replacement ----------------------------------------------------------------------------

    def _numbers_outside(
        self, o: Operation, inside: frozenset[Value], out: list[Operation]
    ) -> dict[Value, Value]:
        """The place of an accumulation, computed again in front of a loop."""
        to: dict[Value, Value] = {}

        def bring(value: Value) -> None:
            if value not in inside or value in to:
                return
            definition = self.definitions[value]
            for operand in definition.operands:
                bring(operand)
            out.append(clone_operation(definition, to))

        for value in _numbers(o):
            bring(value)
        return to

    def _carried(
        self, loop: Operation, groups: list[list[Operation]], around: tuple[Operation, ...]
    ) -> list[Operation]:
        inside = values_inside(loop)
        out: list[Operation] = []
        after: list[Operation] = []
        for group in groups:
            self._check_rounding(group[0], around)
            to = self._numbers_outside(group[0], inside, out)
            start, first = self._begin(group[0], to)
            out.extend(first)
            thread = _Thread(group, self.definitions, self.uses)
            loop, end = thread.loop(loop, start)
            after.extend(self._end(group[0], end, to))
        out.append(self._inside(loop, around))
        out.extend(after)
        return out

    def _alone(self, o: Operation, around: tuple[Operation, ...]) -> list[Operation]:
        """One accumulation: read, combined, written."""
        self._check_rounding(o, around)
        start, out = self._begin(o, {})
        made, end = _combined(o, start, self.definitions, self.uses)
        return [*out, *made, *self._end(o, end, {})]

    def _begin(self, o: Operation, to: Mapping[Value, Value]) -> tuple[Value, list[Operation]]:
        """The old content in the dtype of the sum."""
        tile, view, *numbers = o.operands
        b = ScheduleBuilder(o.span)
        with b.region() as inner:
            attributes = {k: o.attributes[k] for k in ("dims", "steps")}
            old = TileType(view.view_type.dtype, tile.tile_type.shape)
            operands = (view, *(to.get(v, v) for v in numbers))
            loaded = b.emit(LOAD, operands, (old,), attributes, (), ("old",)).result
            value = b.cast(loaded, tile.tile_type.dtype)
        return value, list(inner.operations)

    def _end(self, o: Operation, value: Value, to: Mapping[Value, Value]) -> list[Operation]:
        _, view, *numbers = o.operands
        b = ScheduleBuilder(o.span)
        with b.region() as inner:
            rounded = b.cast(value, view.view_type.dtype)
            attributes = {k: o.attributes[k] for k in ("dims", "steps")}
            b.emit(STORE, (rounded, view, *(to.get(v, v) for v in numbers)), (), attributes)
        return list(inner.operations)

    def _check_rounding(self, o: Operation, around: tuple[Operation, ...]) -> None:
        """A sum that loops further out go on with is rounded at each of their iterations."""
        tile, view = o.operands[:2]
        if view.view_type.dtype == tile.tile_type.dtype:
            return
        for loop in around:
            if loop.attributes.get("mapping") and _all_grid(loop):
                continue
            if any(
                variable is None
                or not any(depends(v, (variable,), self.definitions) for v in _numbers(o))
                for variable in _own_variables(loop)
            ):
                name = view.name or "the array"
                self.remarks.append(
                    Diagnostic(
                        "T0704",
                        f"the sum into `{name}` cannot be kept in `{tile.tile_type.dtype}` over a"
                        " loop around it",
                        o.span,
                        "this is rounded more than once",
                        labels=(Label(loop.span, "over this loop"),) if loop.span else (),
                        helps=(
                            "sum into a tile made by `op.zeros` in front of the loop, and store it"
                            " behind the loop; a loop over parts of the place goes outside of it",
                        ),
                    )
                )
                return


def _all_grid(loop: Operation) -> bool:
    return set(cast("tuple[str, ...]", loop.attributes["mapping"])) == {"grid"}


def _own_variables(loop: Operation) -> tuple[Value | None, ...]:
    """The variables of a loop; None for one that has none."""
    if loop.name != FOR:
        return (None,)
    return loop.regions[0].arguments[: len(cast("tuple[str, ...]", loop.attributes["axes"]))]


def _numbers(o: Operation) -> tuple[Value, ...]:
    return o.operands[2:]


def _same_place(a: Operation, b: Operation, work: _Work) -> bool:
    """Whether two accumulations are of one kind into the same elements."""
    if a.operands[0].type != b.operands[0].type:
        return False
    if any(a.attributes[k] != b.attributes[k] for k in ("dims", "steps", "kind")):
        return False
    same_array = work.arrays[a.operands[1]] is work.arrays[b.operands[1]]
    return same_array and all(
        _same(x, y, work.definitions) for x, y in zip(_numbers(a), _numbers(b), strict=True)
    )


def _same(a: Value, b: Value, definitions: Mapping[Value, Operation]) -> bool:
    """Whether two numbers are computed in the same way from the same."""
    if a is b:
        return True
    x, y = definitions.get(a), definitions.get(b)
    if x is None or y is None or x.name != y.name or x.attributes != y.attributes:
        return False
    if x.regions or not is_pure(x) or len(x.operands) != len(y.operands):
        return False
    return all(_same(p, q, definitions) for p, q in zip(x.operands, y.operands, strict=True))


def _combined(
    o: Operation, sum_: Value, definitions: Mapping[Value, Operation], uses: Mapping[Value, int]
) -> tuple[list[Operation], Value]:
    """``sum op= tile``: a product that starts at 0 starts at the sum instead."""
    tile, kind = o.operands[0], str(o.attributes["kind"])
    made = definitions.get(tile)
    if kind == "add" and made is not None and made.name == DOT and uses.get(tile, 0) == 1:
        zero = definitions.get(made.operands[2])
        if zero is not None and zero.name == FULL and _is_zero(zero, definitions):
            result = Value(sum_.type, "acc")
            operands = (*made.operands[:2], sum_)
            return [replace(made, operands=operands, results=(result,))], result
    result = Value(sum_.type, "acc")
    return [Operation(f"tile.{kind}", (sum_, tile), (result,), {}, (), o.span)], result


def _is_zero(full: Operation, definitions: Mapping[Value, Operation]) -> bool:
    number = definitions.get(full.operands[0])
    return (
        number is not None
        and number.name == "tile.constant"
        and not isinstance(number.attributes["value"], str)
        and number.attributes["value"] == 0
    )


@dataclass(slots=True)
class _Thread:
    """Carries one sum through loops and conditions to its accumulations."""

    group: list[Operation]
    definitions: Mapping[Value, Operation]
    uses: Mapping[Value, int]

    def loop(self, loop: Operation, start: Value) -> tuple[Operation, Value]:
        """The loop with the sum among what it carries, and the sum at its end."""
        regions: list[Region] = []
        for region in loop.regions:
            own = Value(start.type, "acc")
            operations, end = self._block(region.operations, own, True)
            last = operations[-1]
            if last.name in ENDS:
                operations[-1] = replace(last, operands=(*last.operands, end))
            regions.append(Region((*region.arguments, own), tuple(operations)))
        result = Value(start.type, "acc")
        made = replace(
            loop, operands=(*loop.operands, start), results=(*loop.results, result),
            regions=tuple(regions),
        )  # fmt: skip
        return made, result

    def _block(
        self, operations: Sequence[Operation], sum_: Value, in_loop: bool
    ) -> tuple[list[Operation], Value]:
        out: list[Operation] = []
        for o in operations:
            if any(o is x for x in self.group):
                made, sum_ = _combined(o, sum_, self.definitions, self.uses)
                out.extend(made)
            elif o.name in LOOP_EXITS and in_loop:
                out.append(replace(o, operands=(*o.operands, sum_)))
            elif o.name in LOOPS and self._has(o):
                made_loop, sum_ = self.loop(o, sum_)
                out.append(made_loop)
            elif o.name == "tile.if" and (self._has(o) or (in_loop and _exits(o))):
                made_if, sum_ = self._if(o, sum_, in_loop)
                out.append(made_if)
            else:
                out.append(o)
        return out, sum_

    def _has(self, o: Operation) -> bool:
        return any(inner is x for inner in o.walk() for x in self.group)

    def _if(self, o: Operation, sum_: Value, in_loop: bool) -> tuple[Operation, Value]:
        regions: list[Region] = []
        falls = False
        for region in o.regions:
            operations, end = self._block(region.operations, sum_, in_loop)
            last = operations[-1]
            if last.name == "tile.yield":
                falls = True
                operations[-1] = replace(last, operands=(*last.operands, end))
            regions.append(Region(region.arguments, tuple(operations)))
        if not falls:
            return replace(o, regions=tuple(regions)), sum_
        result = Value(sum_.type, "acc")
        made = replace(o, results=(*o.results, result), regions=tuple(regions))
        return made, result


def _exits(o: Operation) -> bool:
    """Whether an exit of the loop around stands in a condition."""
    for region in o.regions:
        for inner in region.operations:
            if inner.name in LOOP_EXITS:
                return True
            if inner.name == "tile.if" and _exits(inner):
                return True
    return False
