"""Few iterations that each walk over much: groups share one iteration.

``for j: mean = sum(x[:, j]) / n; y[:, j] = x[:, j] - mean`` of 64 channels is 64 groups, each with
a million elements to go over, one after the other. Here it is loops one after the other: each long
reduction over the iterations and the parts of it (``split_reductions`` has the parts), what the
parts give together for each iteration, and at last what is stored, with the values of the
reductions read from memory and a grid over the iterations and the tiles of the store. The parts of
an iteration are combined in a fixed order. Owns the proof that an iteration may be taken apart,
and the loops. Must not know a machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import cast

from tessera_lang.ir.core import Operation, Program, Region, TileType, Value, ViewType
from tessera_lang.ir.definitions import ARRAY_WRITES, LEAVES, REPORTS, effect_of
from tessera_lang.ir.rewrite import clone_operation, replace_values
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.opt.schedule.parallel.independence import verdicts
from tessera_lang.opt.schedule.parallel.loop_nest_rewrites import (
    bounds_of,
    is_quiet,
    names_of,
    sunk,
)
from tessera_lang.opt.schedule.parallel.size_substitution import with_sizes
from tessera_lang.opt.schedule.parallel.split_reductions import (
    part_of,
    reduced_by,
    with_array,
    with_start,
)
from tessera_lang.opt.schedule.query.array_dependence import FOR, PARAMETER, accesses_in
from tessera_lang.opt.schedule.query.decision_context import Numbers
from tessera_lang.opt.schedule.query.def_use import arrays_of, definitions_of
from tessera_lang.opt.schedule.query.kernel_facts import Estimate, Facts, facts_of
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.tuned_constants import FEW_ITERATIONS, LONG_ITERATION, REDUCTION_PARTS
from tessera_lang.types.dtype import INDEX
from tessera_lang.types.shape import Dim


def split_iterations(
    program: Program,
    plan: LaunchPlan,
    numbers: Callable[[LaunchPlan], Callable[[Operation], Numbers]],
) -> tuple[Program, LaunchPlan]:
    """The kernel whose few long iterations are shared by groups; itself where it has none."""
    (kernel,) = program.operations
    for at, o in enumerate(kernel.regions[0].operations):
        found = _found(kernel, at, o, numbers(plan))
        if found is None:
            continue
        kernel, plan = _Split(found, plan, found.kernel).build()
        return replace(program, operations=(kernel,)), plan
    return program, plan


# --- which loop ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """``loop``, the operation ``at`` that place of a kernel, may be taken apart: it goes on
    ``trips`` times, which are ``dims`` along its axes, and ``long`` are its long reductions."""

    kernel: Operation
    at: int
    loop: Operation
    trips: int
    dims: tuple[Dim, ...]
    long: tuple[Operation, ...]


def _found(
    kernel: Operation, at: int, loop: Operation, numbers: Callable[[Operation], Numbers]
) -> _Found | None:
    if (
        loop.name != FOR
        or loop.results
        or not any(o.name == FOR for o in loop.regions[0].operations)
    ):
        return None
    if kernel.holds("tessera.schedule.dot"):
        return None
    opened = _steps_of_one(kernel, loop)
    if opened is None:
        return None
    kernel = opened
    loop = kernel.regions[0].operations[at]
    facts = facts_of(kernel)
    trips = Estimate(facts, {}).trips(loop)
    if not trips or trips >= FEW_ITERATIONS:
        return None
    long = _long(loop, facts)
    if not long:
        return None
    lowers, uppers, _ = bounds_of(loop)
    known_to_the_launch = numbers(kernel)
    dims = tuple(known_to_the_launch.dim(v) for v in uppers)
    known = [d for d in dims if d is not None]
    if len(known) < len(dims) or any(facts.constant(v) != 0 for v in lowers):
        return None
    if not _may_be_apart(kernel, loop, long):
        return None
    return _Found(kernel, at, loop, trips, tuple(known), long)


def _steps_of_one(kernel: Operation, loop: Operation) -> Operation | None:
    """The kernel whose loop goes on by one along each axis, as it does, or may where its steps are
    open; None where the program says otherwise."""
    made = definitions_of(kernel)
    ones: dict[str, int] = {}
    for step in bounds_of(loop)[2]:
        o = made.get(step)
        if o is not None and o.name == PARAMETER and "tile" not in kernel.attributes:
            ones[str(o.attributes["name"])] = 1
        elif o is None or o.name != "tile.constant" or o.attributes["value"] != 1:
            return None
    return with_sizes(kernel, ones) if ones else kernel


def _long(loop: Operation, facts: Facts) -> tuple[Operation, ...]:
    """The operations of an iteration that only reduce, of more than one group goes over soon."""
    return tuple(
        o for o in loop.regions[0].operations
        if o.name == FOR and _elements(o, facts) >= LONG_ITERATION and reduced_by(o)
    )  # fmt: skip


def _elements(loop: Operation, facts: Facts) -> int:
    """How many elements a nest of loops goes over, step by step or not; 0 where that is unknown."""
    estimate, (lowers, uppers, _) = Estimate(facts, {}), bounds_of(loop)
    sizes = [
        _apart(estimate.value(a), estimate.value(b)) for a, b in zip(lowers, uppers, strict=True)
    ]
    inner = [_elements(o, facts) for o in loop.regions[0].operations if o.name == FOR]
    return prod(sizes) * max(inner, default=1)


def _apart(lower: int | None, upper: int | None) -> int:
    return 0 if lower is None or upper is None else max(0, upper - lower)


def _may_be_apart(kernel: Operation, loop: Operation, long: Sequence[Operation]) -> bool:
    """Whether no iteration meets another, and each writes behind its reductions only."""
    for o in loop.walk():
        effect = effect_of(o)
        if o.name in LEAVES or o.name in REPORTS or o.name == "tile.while":
            return False
        if effect in ("write", "update") and o.name not in ARRAY_WRITES:
            return False
    arrays = arrays_of(kernel)
    operations = loop.regions[0].operations
    last = max(i for i, o in enumerate(operations) if any(o is x for x in long))
    before = operations[: last + 1]
    if any(a.writes for o in before for a in accesses_in(o, arrays)):
        return False
    if not all(is_quiet(o) for o in before):
        return False
    return all(v.grid for v in verdicts(loop, definitions_of(kernel), arrays))


# --- the loops ----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Split:
    found: _Found
    plan: LaunchPlan
    kernel: Operation
    known: dict[Value, Value] = field(default_factory=dict[Value, Value])
    """What a long reduction gives, and the view of where it is kept."""

    @property
    def loop(self) -> Operation:
        return self.found.loop

    def build(self) -> tuple[Operation, LaunchPlan]:
        b = ScheduleBuilder(self.loop.span)
        with b.region() as made:
            for reduction in self.found.long:
                self._reduction(b, reduction)
            self._rest(b)
        (region,) = self.kernel.regions
        at = self.found.at
        operations = (*region.operations[:at], *made.operations, *region.operations[at + 1 :])
        return replace(self.kernel, regions=(Region(region.arguments, operations),)), self.plan

    def _parts(self) -> int:
        """Parts of an iteration, so that all of them are about as many as those of one."""
        parts = 2
        while parts * self.found.trips < REDUCTION_PARTS:
            parts *= 2
        return min(parts, REDUCTION_PARTS)

    def _array(self, b: ScheduleBuilder, value: Value, name: str, parts: Sequence[int]) -> Value:
        """A view of memory for a value of each iteration, or of each part of it."""
        t = value.type
        own = t.sizes if isinstance(t, TileType) else ()
        more = (*parts, *own)
        self.kernel, self.plan, pointer = with_array(
            self.kernel, self.plan, name, value.element_dtype, (*self.found.dims, *more)
        )
        sizes = [*bounds_of(self.loop)[1], *(b.index(n) for n in more)]
        known = [d if isinstance(d, int) else None for d in self.found.dims]
        return b.view(pointer, sizes, shape=[*known, *more], mut=True, aligned=True, name=name)

    # --- a reduction ----------------------------------------------------------------------------

    def _reduction(self, b: ScheduleBuilder, loop: Operation) -> None:
        kinds = reduced_by(loop)
        assert kinds is not None
        count = self._parts()
        names = [v.name or "sum" for v in loop.results]
        parts = [
            self._array(b, v, f"parts_{n}", (count,))
            for v, n in zip(loop.results, names, strict=True)
        ]
        sums = [self._array(b, v, f"sum_{n}", ()) for v, n in zip(loop.results, names, strict=True)]
        axes = names_of(self.loop)
        with b.region(*((n, INDEX) for n in axes), ("part", INDEX)) as inner:
            *at, part = inner.arguments
            to = self._before(b, at, tuple(loop.uses()))
            found = part_of(b, clone_operation(loop, to), kinds, part, count)
            for value, view in zip(found, parts, strict=True):
                self._store(b, b.expand(value, 0) if _is_tile(value) else b.full(value, (1,)), view,
                            [*at, part])  # fmt: skip
            b.yield_()
        self._over(b, inner.region, [*axes, "part"], [b.index(count)])
        with b.region(*((n, INDEX) for n in axes)) as inner:
            at = list(inner.arguments)
            starts = loop.operands[3:]
            to = self._before(b, at, starts)
            for value, kind, start, view, kept in zip(
                loop.results, kinds, starts, parts, sums, strict=True
            ):
                tile = self._load(b, view, at, (count, *_sizes(value)))
                found_ = b.reduce(kind, tile, b.index(count), 0, hint=value.name)
                found_ = with_start(b, kind, to.get(start, start), found_, value.name)
                self._store(b, found_ if _is_tile(found_) else b.full(found_, (1,)), kept, at)
            b.yield_()
        self._over(b, inner.region, axes, [])
        for value, kept in zip(loop.results, sums, strict=True):
            self.known[value] = kept

    def _over(
        self, b: ScheduleBuilder, body: Region, axes: Sequence[str], more: Sequence[Value]
    ) -> None:
        """A loop over the iterations, and what more there is."""
        uppers = [*bounds_of(self.loop)[1], *more]
        zeros, ones = [b.index(0) for _ in uppers], [b.index(1) for _ in uppers]
        b.loops(zeros, uppers, ones, [], body, axes, attributes={"plain": True})

    def _before(
        self, b: ScheduleBuilder, at: Sequence[Value], wanted: Sequence[Value]
    ) -> dict[Value, Value]:
        """What makes these values in an iteration, done for the iteration ``at``."""
        (region,) = self.loop.regions
        to: dict[Value, Value] = dict(zip(region.arguments, at, strict=True))
        needed, kept = set(wanted), list[Operation]()
        for o in reversed(region.operations[:-1]):
            if any(v in needed for v in o.results):
                kept.append(o)
                if not any(v in self.known for v in o.results):
                    needed.update(o.uses())
        for o in reversed(kept):
            if any(v in self.known for v in o.results):
                to.update((v, self._read(b, v, at)) for v in o.results)
            else:
                b.append(clone_operation(o, to))
        return to

    # --- memory ---------------------------------------------------------------------------------

    def _read(self, b: ScheduleBuilder, value: Value, at: Sequence[Value]) -> Value:
        """The value of a reduction for an iteration."""
        view = self.known[value]
        if not _is_tile(value):
            return b.load(view, list(at), "proved", hint=value.name)
        return self._load(b, view, at, _sizes(value))

    def _load(
        self, b: ScheduleBuilder, view: Value, at: Sequence[Value], sizes: Sequence[int]
    ) -> Value:
        starts = [*at, *(b.index(0) for _ in sizes)]
        dims = range(len(at), len(starts))
        return b.load_tile(view, starts, [b.index(n) for n in sizes], sizes, dims=tuple(dims))

    def _store(self, b: ScheduleBuilder, tile: Value, view: Value, at: Sequence[Value]) -> None:
        """A tile along the last axes, from where ``at`` says on."""
        rank = len(cast("ViewType", view.type).shape)
        sizes = tile.tile_type.sizes
        starts = [*at, *(b.index(0) for _ in range(rank - len(at)))]
        b.store_tile(tile, view, starts, [b.index(n) for n in sizes],
                     dims=tuple(range(rank - len(sizes), rank)))  # fmt: skip

    # --- what is left ---------------------------------------------------------------------------

    def _rest(self, b: ScheduleBuilder) -> None:
        """The loop with the reductions read, over the tiles of what it stores too."""
        (region,) = self.loop.regions
        long = {id(o.results) for o in self.found.long}
        with b.region() as inner:
            to: dict[Value, Value] = {}
            at = region.arguments
            for o in region.operations:
                if id(o.results) in long and o.results:
                    to.update((v, self._read(b, v, at)) for v in o.results)
                else:
                    (made,) = replace_values((o,), to)
                    b.append(made)
        loop = replace(self.loop, regions=(Region(region.arguments, tuple(inner.operations)),))
        arrays = {**arrays_of(self.kernel), **{v: o.operands[0] for v, o in _views(b)}}
        while (made := sunk(loop, arrays)) is not None:
            loop = made
        b.append(loop)


def _views(b: ScheduleBuilder) -> list[tuple[Value, Operation]]:
    return [(o.result, o) for o in b.current.operations if o.name == "tile.view"]


def _is_tile(value: Value) -> bool:
    return isinstance(value.type, TileType)


def _sizes(value: Value) -> tuple[int, ...]:
    t = value.type
    return t.sizes if isinstance(t, TileType) else ()
