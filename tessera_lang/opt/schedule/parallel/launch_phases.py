"""Loops of one kernel that depend on each other: each becomes a launch of its own, with its grid.

Owns which operations at the top of a kernel run in which launch, and what one launch leaves for
those behind it. A loop whose iterations are independent runs alone; what stands between two of
them runs in one group. Numbers, and reads of what is not written meanwhile, are computed again
where they are used; other values are kept in memory. The order of the launches is all that orders
them. Must not know a machine, nor how launches are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import cast

from tessera_lang.diagnostics import Diagnostic, Label
from tessera_lang.ir.core import Operation, Program, TileType, Value, ViewType
from tessera_lang.ir.definitions import (
    ARRAY_WRITES,
    LOOPS,
    effect_of,
)
from tessera_lang.opt.schedule.parallel.independence import verdicts
from tessera_lang.opt.schedule.parallel.launch_outlining import Launch, launches
from tessera_lang.opt.schedule.parallel.split_reductions import in_parts, reduced_by
from tessera_lang.opt.schedule.query.array_dependence import ACCUMULATE, FOR, accesses_in
from tessera_lang.opt.schedule.query.def_use import arrays_of, definitions_of
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.tuned_constants import PHASE_ELEMENTS
from tessera_lang.types.dtype import DType


def split_reductions(program: Program, plan: LaunchPlan) -> tuple[Program, LaunchPlan]:
    """The kernel whose long reductions are a parallel loop over parts and a short reduction of
    what these give; itself where there are none."""
    body = _Body(program.operations[0])
    if not body.long_reductions:
        return program, plan
    kernel, plan = in_parts(body.kernel, plan, body.long_reductions)
    return replace(program, operations=(kernel,)), plan


def cut_launches(
    program: Program, plan: LaunchPlan, remarks: list[Diagnostic]
) -> tuple[tuple[Program, LaunchPlan], ...]:
    """The launches of a kernel, in order; the kernel itself where it is one."""
    body = _Body(program.operations[0])
    try:
        units = body.units() if body.can_be_cut else []
    except _NotKept as fault:
        remarks.append(_in_one_group(fault, body))
        return ((program, plan),)
    if len(units) < 2:
        remarks.extend(body.in_order())
        return ((program, plan),)
    return launches(program, body.kernel, plan, [body.launch(u, units) for u in units])


class _NotKept(Exception):
    """A value that a later launch needs and that memory cannot keep."""

    def __init__(self, value: Value, made: Operation, used: Operation) -> None:
        self.value, self.made, self.used = value, made, used
        super().__init__(value.name)


def _in_one_group(fault: _NotKept, body: _Body) -> Diagnostic:
    name = f"`{fault.value.name}`" if fault.value.name else "a value"
    labels = (Label(fault.used.span, "needed here"),) if fault.used.span is not None else ()
    place = fault.made.span or body.kernel.span
    return Diagnostic(
        "T0705",
        f"this kernel runs in one group: {name} would have to be kept from one of its loops to"
        " another, and its size is not known",
        place, "made here" if fault.made.span is not None else "", severity="warning",
        labels=labels if fault.made.span is not None else (),
        helps=("store it into an array, or take it in tiles of a size that is known",),
    )  # fmt: skip


@dataclass(slots=True, eq=False)
class _Unit:
    """Operations that run in one launch for what they do: ``grid`` one loop, else in order."""

    members: list[int]
    grid: bool


@dataclass(slots=True, eq=False)
class _Body:
    """The operations at the top of a kernel, by number."""

    kernel: Operation
    operations: tuple[Operation, ...] = ()
    made: dict[Value, int] = field(default_factory=dict[Value, int])
    needs: list[dict[Value, int]] = field(default_factory=list[dict[Value, int]])
    reads: list[frozenset[Value]] = field(default_factory=list[frozenset[Value]])
    writes: list[frozenset[Value]] = field(default_factory=list[frozenset[Value]])
    spread: frozenset[int] = frozenset()
    elements: dict[Value, int] = field(default_factory=dict[Value, int])
    """Of the arrays that the kernel's views show, where hints say; 0 for others."""

    def __post_init__(self) -> None:
        arrays, definitions = arrays_of(self.kernel), definitions_of(self.kernel)
        self.operations = self.kernel.regions[0].operations[:-1]
        self.elements = self._elements()
        self.made = {v: i for i, o in enumerate(self.operations) for v in o.results}
        for i, o in enumerate(self.operations):
            used = [v for v in o.uses() if v in self.made]
            self.needs.append({v: self.made[v] for v in used if self.made[v] != i})
            found = accesses_in(o, arrays)
            self.writes.append(frozenset(a.array for a in found if a.writes))
            plain = [a for a in found if not a.writes or a.operation.name == ACCUMULATE]
            self.reads.append(frozenset(a.array for a in plain))
        self.spread = frozenset(
            i for i, o in enumerate(self.operations)
            if o.name == FOR and self.writes[i] and not o.results
            and any(v.grid for v in verdicts(o, definitions, arrays))
        )  # fmt: skip

    @property
    def can_be_cut(self) -> bool:
        """Whether anything is spread, and all writes are of kinds that are known here."""
        return bool(self.spread) and not any(
            effect_of(o) in ("write", "update") and o.name not in ARRAY_WRITES
            for o in self.kernel.walk()
        )

    def in_order(self) -> list[Diagnostic]:
        """Said where several loops write and none of them is spread."""
        writing = [o for o, w in zip(self.operations, self.writes, strict=True) if w]
        places = [o.span for o in writing if o.span is not None]
        loops = any(o.name == FOR for o in writing)
        if self.spread or len(writing) < 2 or not places or not loops:
            return []
        return [Diagnostic(
            "T0705",
            "this kernel runs in one group: several of its statements write, one after the other,"
            " and the iterations of no loop are known to be independent",
            places[0], "first this", severity="warning",
            labels=tuple(Label(span, "then this") for span in places[1:]),
            helps=("carry nothing from one iteration to the next, or store what is carried first",),
        )]  # fmt: skip

    @property
    def long_reductions(self) -> list[Operation]:
        """Loops that only reduce, of more than one group walks over in the time of a launch."""
        return [
            o for i, o in enumerate(self.operations)
            if not self.writes[i] and self._walked(i) >= PHASE_ELEMENTS and reduced_by(o)
        ]  # fmt: skip

    # --- which operations run together --------------------------------------------------------

    def units(self) -> list[_Unit]:
        """The launches, in order."""
        once = {i for i, w in enumerate(self.writes) if w or self._is_watched(i)}
        while True:
            units = self._grouped(once)
            more = {i for unit in units for i in self._to_be_kept(unit, units, once)}
            if more <= once:
                return units
            once |= more

    def _grouped(self, once: set[int]) -> list[_Unit]:
        units: list[_Unit] = []
        for i in sorted(once):
            if i in self.spread or not units or units[-1].grid:
                units.append(_Unit([i], i in self.spread))
            else:
                units[-1].members.append(i)
        for i, o in enumerate(self.operations):  # what only reports stands with what follows it
            if i not in once and not o.results:
                behind = (u for u in units if u.members[-1] > i)
                next(behind, units[-1]).members.append(i)
        for unit in units:
            unit.members.sort()
        return units

    def _is_watched(self, i: int) -> bool:
        """Whether an operation is done for what it says of memory, or to whoever reads it."""
        operation = self.operations[i]
        says = operation.holds("tile.print")
        return says or (not operation.results and bool(self.reads[i]))

    def _to_be_kept(self, unit: _Unit, units: Sequence[_Unit], once: set[int]) -> list[int]:
        """Operations whose values this launch needs and cannot, or should not, compute again."""
        found: list[int] = []
        stack, seen = list(unit.members), set(unit.members)
        while stack:
            user = stack.pop()
            for value, i in self.needs[user].items():
                if i in unit.members:
                    continue
                again = i not in once and self._as_it_was(i, unit, units)
                if not again or (self._is_long(i, unit) and self._has_room(i)):
                    if not has_room(value):
                        raise _NotKept(value, self.operations[i], self.operations[user])
                    found.append(i)
                elif i not in seen:
                    seen.add(i)
                    stack.append(i)
        return found

    def _as_it_was(self, i: int, unit: _Unit, units: Sequence[_Unit]) -> bool:
        """Whether an operation gives in a launch what it gave where it stands."""
        read = self.reads[i]
        if not read:
            return True
        before = units[: next(n for n, u in enumerate(units) if u is unit)]
        writers = [w for u in before for w in u.members if w > i]
        writers += unit.members if unit.grid else []
        return not any(read & self.writes[w] for w in writers)

    def _is_long(self, i: int, unit: _Unit) -> bool:
        """Whether each group of a grid would walk over more memory for it than a launch of its
        own is worth."""
        loops = any(o.name in LOOPS for o in self.operations[i].walk())
        return unit.grid and loops and self._walked(i) >= PHASE_ELEMENTS

    def _walked(self, i: int) -> int:
        """Elements of the largest array that an operation reads; 0 where hints do not say."""
        return max((self.elements.get(array, 0) for array in self.reads[i]), default=0)

    def _elements(self) -> dict[Value, int]:
        hints = cast("tuple[int, ...]", self.kernel.attributes.get("hints", ()))
        sizes = dict(zip(self.kernel.regions[0].arguments, hints, strict=False))
        found: dict[Value, int] = {}
        for o in self.operations:
            if o.name == "tile.constant" and isinstance(n := o.attributes["value"], int):
                sizes[o.result] = n
            elif o.name == "tile.mul":  # the size of axes that are one
                sizes[o.result] = prod(sizes.get(v, 0) for v in o.operands)
        for o in self.operations:
            if o.name == "tile.view":
                shape = o.operands[1 : 1 + len(cast("ViewType", o.result.type).shape)]
                count = prod(sizes.get(v, 0) for v in shape)
                found[o.operands[0]] = max(found.get(o.operands[0], 0), count)
        return found

    def _has_room(self, i: int) -> bool:
        return all(has_room(v) for v in self.operations[i].results)

    # --- what a launch consists of ------------------------------------------------------------

    def launch(self, unit: _Unit, units: Sequence[_Unit]) -> Launch:
        """The operations of a launch, what it takes from those before and leaves for others."""
        owner = {i: u for u in units for i in u.members}
        own, taken = set(unit.members), dict[Value, int]()
        stack = list(unit.members)
        while stack:
            for value, i in self.needs[stack.pop()].items():
                if i in owner and owner[i] is not unit:
                    taken[value] = i
                elif i not in own:
                    own.add(i)
                    stack.append(i)
        return Launch(
            tuple((i, self.operations[i]) for i in sorted(own)),
            tuple(sorted(taken.items(), key=lambda item: item[1])),
        )


def has_room(value: Value) -> bool:
    """Whether memory can keep a value."""
    t = value.type
    if isinstance(t, TileType):
        return all(isinstance(n, int) for n in t.shape)
    return isinstance(t, DType)
