"""Launches made of the parts of a kernel, and the memory that keeps values between them.

Owns the programs and plans of the launches. What is kept is an array like one that the kernel
returns, which no caller sees: written where the value is made, read in front of its use. Must not
know why a kernel is cut where it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import (
    Attribute,
    Operation,
    PointerType,
    Program,
    Region,
    TileType,
    Value,
)
from tessera_lang.ir.rewrite import clone_operation
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.record import dataclass, replace
from tessera_lang.target.arch.isa_constants import VECTOR_BYTES
from tessera_lang.target.launch_plan import LaunchPlan, ResultPlan, Slot
from tessera_lang.types.dtype import I64, INDEX, DType

_PER_ARGUMENT = ("parameters", "hints", "divisors")


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """Operations of the kernel by their numbers, and the values of others that they need."""

    operations: tuple[tuple[int, Operation], ...]
    taken: tuple[tuple[Value, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """The array of a value: the number among the results, and what it holds."""

    number: int
    dtype: DType
    shape: tuple[int, ...]


def launches(
    program: Program, kernel: Operation, plan: LaunchPlan, parts: Sequence[Launch]
) -> tuple[tuple[Program, LaunchPlan], ...]:
    """A program and a plan for each launch."""
    values = dict.fromkeys(v for part in parts for v, _ in part.taken)
    places = {v: _place(v, len(plan.results) + n) for n, v in enumerate(values)}
    kept = tuple(ResultPlan(p.dtype.name, p.shape, kept=True) for p in places.values())
    plan = replace(plan, results=(*plan.results, *kept))
    made: list[tuple[Program, LaunchPlan]] = []
    for number, part in enumerate(parts):
        one, own = _Part(kernel, plan, places, number).build(part)
        made.append((replace(program, operations=(one,)), own))
    return tuple(made)


def _place(value: Value, number: int) -> _Place:
    t = value.type
    dtype = value.element_dtype
    shape = t.shape if isinstance(t, TileType) else (1,)
    sizes = tuple(n for n in shape if isinstance(n, int))
    return _Place(number, I64 if dtype == INDEX else dtype, sizes)


@dataclass(slots=True, eq=False)
class _Part:
    """One launch in the making."""

    kernel: Operation
    plan: LaunchPlan
    places: dict[Value, _Place]
    number: int

    def build(self, part: Launch) -> tuple[Operation, LaunchPlan]:
        to: dict[Value, Value] = {}
        arguments = self.kernel.regions[0].arguments
        fresh = [to.setdefault(a, Value(a.type, a.name)) for a in arguments]
        pointers: dict[Value, Value] = {}
        out: list[Operation] = []
        taken = sorted(part.taken, key=lambda item: item[1])
        for i, operation in part.operations:
            while taken and taken[0][1] < i:
                out += self._read(taken.pop(0)[0], pointers, to)
            made = clone_operation(operation, to)
            out.append(made)
            for value in operation.results:
                if value in self.places:
                    out += self._written(value, to[value], pointers, operation)
        out.append(clone_operation(self.kernel.regions[0].terminator, to))
        return self._kernel(fresh, pointers, out)

    # --- kept values --------------------------------------------------------------------------

    def _view(self, b: ScheduleBuilder, value: Value, pointers: dict[Value, Value]) -> Value:
        place = self.places[value]
        if value not in pointers:
            pointers[value] = Value(PointerType(place.dtype, "global"), f"kept_{value.name}")
        sizes = [b.index(n) for n in place.shape]
        return b.view(
            pointers[value], sizes, shape=place.shape, mut=True, aligned=True,
            name=value.name or "kept",
        )  # fmt: skip

    def _written(
        self, value: Value, made: Value, pointers: dict[Value, Value], operation: Operation
    ) -> tuple[Operation, ...]:
        place = self.places[value]
        b = ScheduleBuilder(operation.span)
        with b.region() as inner:
            view = self._view(b, value, pointers)
            tile = b.cast(made, place.dtype)
            if not isinstance(tile.type, TileType):
                tile = b.full(tile, (1,))
            zeros = [b.index(0) for _ in place.shape]
            b.store_tile(tile, view, zeros, [b.index(n) for n in place.shape])
        return tuple(inner.operations)

    def _read(
        self, value: Value, pointers: dict[Value, Value], to: dict[Value, Value]
    ) -> tuple[Operation, ...]:
        place, t = self.places[value], value.type
        b = ScheduleBuilder()
        with b.region() as inner:
            view = self._view(b, value, pointers)
            zeros = [b.index(0) for _ in place.shape]
            if isinstance(t, TileType):
                sizes = [b.index(n) for n in place.shape]
                found = b.load_tile(view, zeros, sizes, place.shape, hint=value.name)
                to[value] = b.cast(found, t.dtype)
            else:
                loaded = b.load(view, zeros, "proved", hint=value.name)
                to[value] = b.cast(loaded, value.dtype)
        return tuple(inner.operations)

    # --- the kernel ---------------------------------------------------------------------------

    def _kernel(
        self, arguments: Sequence[Value], pointers: dict[Value, Value], out: list[Operation]
    ) -> tuple[Operation, LaunchPlan]:
        """The first launch keeps all arguments of the call, so that it looks like one."""
        used = {v for o in out for v in o.uses()}
        keep = [
            i for i, (a, slot) in enumerate(zip(arguments, self.plan.slots, strict=True))
            if a in used or (self.number == 0 and slot.kind in ("data", "scalar"))
        ]  # fmt: skip
        more = list(pointers.items())
        attributes = dict(self.kernel.attributes)
        rows = (("kept_" + (v.name or str(n)) for n, (v, _) in enumerate(more)), [0] * len(more),
                [VECTOR_BYTES] * len(more))  # fmt: skip
        for name, row in zip(_PER_ARGUMENT, rows, strict=True):
            if name in attributes:
                before = attributes[name]
                assert isinstance(before, tuple)
                made: Attribute = (*(before[i] for i in keep), *row)
                attributes[name] = made
        own = [*(arguments[i] for i in keep), *(p for _, p in more)]
        first = len(self.plan.parameters)
        slots = [self.plan.slots[i] for i in keep]
        slots += [
            Slot("data", first + self.places[v].number, dtype=self.places[v].dtype.name)
            for v, _ in more
        ]
        plan = replace(self.plan, slots=tuple(slots), launches_before=self.number)
        attributes["sym_name"] = plan.entry
        region = Region(tuple(own), tuple(out))
        return replace(self.kernel, attributes=attributes, regions=(region,)), plan
