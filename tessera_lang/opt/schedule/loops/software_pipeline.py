"""Software pipelining of dependent products: the last of an iteration runs beside the next one.

``for t: E(t); L(t)`` becomes ``E(0); for t from 1: E(t) and L(t - 1); L(last)``, where ``L`` holds
the last products of an iteration and ``E`` all they need. Both are there at once, so an
asynchronous unit has one product to do while lanes work on the result of the other. Nothing is
computed in another order than before, and no result changes. Loops that go on where the one before
ends are one pipeline: the last ``L`` of one runs beside the first ``E`` of the next. Owns the
decision and the rewriting; what may run ahead is ``pipeline_partition.py``'s, which loops go
together ``pipeline_sequences.py``'s. Must not know how products are lowered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import dropwhile

from tessera_lang.ir.core import Operation, Program, TileType, Value
from tessera_lang.ir.rewrite import Replacement, clone_operations, rewrite_operation
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.opt.schedule.cost.split_k_cost import parts_of
from tessera_lang.opt.schedule.loops.late_reads import with_late_reads
from tessera_lang.opt.schedule.loops.loads_ahead import loads_ahead
from tessera_lang.opt.schedule.loops.pipeline_partition import (
    Divided,
    divided,
    is_rounding,
)
from tessera_lang.opt.schedule.loops.pipeline_sequences import sequences
from tessera_lang.opt.schedule.query.accumulator_registers import side_by_side
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    rewrites,
    with_attributes,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    FOR,
    STORE,
    Estimate,
    Facts,
    facts_of,
    is_grid,
    kernel_of,
)
from tessera_lang.opt.schedule.query.staging_rings import ring_marks
from tessera_lang.opt.schedule.query.unit_legality import through_shared
from tessera_lang.record import replace
from tessera_lang.target.arch.isa_constants import LANE_REGISTERS
from tessera_lang.target.tuned_constants import BETWEEN_REGISTERS, ORDERED_GROUPS
from tessera_lang.types.dtype import INDEX


@rewrites
def overlap(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    if "roles" not in kernel.attributes or parts_of(kernel) > 1:
        return program  # groups that share a contraction take its loop apart themselves
    facts = facts_of(kernel)
    kernel, facts = _with_late_reads(kernel, facts, context)
    chains, waiting = _chains(facts, context)
    for loop, reason in waiting:
        context.note("T0748", f"the products of this loop wait for each other: {reason}",
                     loop.span)  # fmt: skip
    for first, *others in chains:
        context.note("T0748", "the products of this loop overlap: the last of an iteration "
                     "runs beside the work of the next iteration", first.loop.span)  # fmt: skip
        for parts in others:
            context.note("T0748", "the products of this loop overlap with those of the loop before "
                         "it, and with each other", parts.loop.span)  # fmt: skip
    if not chains:
        return program
    made = _rewritten(kernel, facts, chains)
    groups = kernel.integers("roles")[1] // 4
    if "pingpong" not in context.refusals and _take_turns(chains, groups):
        made = with_decisions(made, {"pingpong": True})
    return with_kernel(program, made)


def _take_turns(chains: Sequence[tuple[Divided, ...]], groups: int) -> bool:
    """Whether warp groups issue their products one after the other."""
    loops = [p.loop.regions[0].operations for chain in chains for p in chain]
    most = max(sum(o.name == DOT for o in body) for body in loops)
    return groups in ORDERED_GROUPS and most >= ORDERED_GROUPS[groups]


def _from_first(chain: tuple[Divided, ...], alone: set[int]) -> tuple[Divided, ...]:
    """A sequence of loops from the first one on that overlaps by itself."""
    return tuple(dropwhile(lambda p: id(p.loop.results) not in alone, chain))


def _chains(
    facts: Facts, context: Context
) -> tuple[list[tuple[Divided, ...]], list[tuple[Operation, str]]]:
    """The loops that overlap, those together that are one pipeline; and those whose products wait
    for each other, with the reason."""
    found: list[Divided] = []
    alone: set[int] = set()
    waiting: list[tuple[Operation, str]] = []
    for loop in _loops(facts):
        trips = Estimate(facts, {}).trips(loop)
        made = divided(loop, facts)
        reason = made if isinstance(made, str) else _reason(made, facts)
        if context.relief and not reason:
            reason = "with two iterations alive at once lanes had too few registers"
        # A second prologue and end would be longer than what a few iterations do.
        few = trips is not None and trips < 2
        if not few and not (loop.attributes.get("remainder") and not reason):
            alone.add(id(loop.results))
            if reason:
                waiting.append((loop, reason))
        if not isinstance(made, str) and not reason:
            found.append(made)
    chains = [_from_first(c, alone) for c in sequences(found, facts)]
    return [c for c in chains if c], waiting


def _loops(facts: Facts) -> list[Operation]:
    """The loops with one axis inside the grid."""
    return [
        o for o, _ in facts.loops
        if o.name == FOR and not is_grid(o) and len(o.strings("axes")) == 1
    ]  # fmt: skip


def _with_late_reads(
    kernel: Operation, facts: Facts, context: Context
) -> tuple[Operation, Facts]:  # fmt: skip
    """The kernel whose late products read tiles by loads of their own, where that lets one of its
    loops overlap."""
    other = None if context.relief else with_late_reads(kernel, facts)
    if other is None:
        return kernel, facts
    changed = facts_of(other)
    chains, _ = _chains(changed, context)
    bodies = [p.loop.regions[0].operations for chain in chains for p in chain]
    if any("reread" in o.attributes for body in bodies for o in body):
        return other, changed
    return kernel, facts


def _reason(parts: Divided, facts: Facts) -> str:
    """Why the parts of a loop are not worth running side by side, or do not fit."""
    here = {id(o) for o in (*parts.early, *parts.late)}
    dots = [d for d in facts.dots if id(d.operation) in here]
    if any(d.operation.attributes.get("unit") != "wgmma" for d in dots):
        return "lanes do them, and nothing else beside"
    if any(through_shared(d, x, facts) for d in dots for x in (d.a, d.b)):
        return "an operand of theirs is computed and goes through shared memory"
    groups = facts.kernel.integers("roles")[1] // 4
    held = side_by_side(dots, facts, groups) + _held(parts, facts, groups)
    most = facts.kernel.integers("registers")[1] or LANE_REGISTERS
    spare = BETWEEN_REGISTERS.get(groups, BETWEEN_REGISTERS[1])
    if held + spare > most:
        return f"what both hold takes {held} registers of {most}, and {spare} are needed besides"
    return ""


def _held(parts: Divided, facts: Facts, groups: int) -> int:
    """Registers of a lane for what waits an iteration; first operands are counted with their
    products."""
    lefts = {d.a.value for d in facts.dots}
    total = 0
    for value in parts.crossing:
        if isinstance(value.type, TileType) and value not in lefts:
            size = 1
            for n in value.type.sizes:
                size *= n
            total += -(-size // (128 * groups)) if len(value.type.sizes) > 1 else 2
    return total


def _rewritten(kernel: Operation, facts: Facts, chains: Sequence[tuple[Divided, ...]]) -> Operation:
    """The kernel with these sequences of loops rewritten. Loads of one ring stay together
    wherever their copies stand."""
    marks = ring_marks(facts)
    chain_of = {id(p.loop.results): chain for chain in chains for p in chain}
    met: dict[int, Operation] = {}

    def step(operation: Operation) -> Replacement | None:
        chain = chain_of.get(id(operation.results)) if operation.name == FOR else None
        if chain is None:
            return None
        met[id(operation.results)] = operation
        if operation.results is not chain[-1].loop.results:  # it moves to where the last stands
            return Replacement((), operation.operands[3:])
        made = _skewed([_again(p, met[id(p.loop.results)]) for p in chain])
        return Replacement(made, made[-1].results)

    return rewrite_operation(with_attributes(kernel, marks), step)


def _again(parts: Divided, loop: Operation) -> Divided:
    """The same parts of the same loop after attributes were added to its operations."""
    before, after = parts.loop.regions[0].operations, loop.regions[0].operations
    now = {id(x): y for x, y in zip(before, after, strict=True)}

    def those(operations: Sequence[Operation]) -> tuple[Operation, ...]:
        return tuple(now[id(o)] for o in operations)

    return replace(
        parts, loop=loop, early=those(parts.early), late=those(parts.late), both=those(parts.both)
    )


def _skewed(chain: Sequence[Divided]) -> tuple[Operation, ...]:
    """The operations in place of a sequence of loops; the last has its results."""
    last = chain[-1]
    start = chain[0].loop.operands[3:]
    b = ScheduleBuilder(last.loop.span)
    with b.region() as made:
        conditions = [b.cmp("lt", p.loop.operands[0], p.loop.operands[1]) for p in chain]
        runs = reduce(lambda x, y: b.binary("or", x, y), conditions)
        with b.region() as then:
            state = _prologue(b, chain, 0, start)
            now, following = state[: -len(chain)], state[-len(chain) :]
            for parts, lower in zip(chain, following, strict=True):
                _, upper, step, *_ = parts.loop.operands
                now = _loop(b, parts, (lower, upper, step), now)
            late = _Late(last, now)
            _add(b, clone_operations((*last.both, *last.late), late.to))
            ends = last.loop.regions[0].terminator.operands
            pairs = zip(ends, last.late_carried, now, strict=False)
            b.yield_(*(late.of(end) if is_late else kept for end, is_late, kept in pairs))
        with b.region() as otherwise:
            b.yield_(*start)
        hints = [v.name for v in last.loop.results]
        b.emit("tile.if", (runs,), [v.type for v in last.loop.results], None,
               (then.region, otherwise.region), hints)  # fmt: skip
        b.yield_()
    return made.region.operations[:-1]


def _prologue(
    b: ScheduleBuilder, chain: Sequence[Divided], place: int, start: Sequence[Value]
) -> tuple[Value, ...]:
    """The early part of the very first iteration, which is that of the first loop that has one:
    carried values, what crosses, the number of the iteration, and where each loop begins."""
    parts = chain[place]
    if place == len(chain) - 1:
        return _first(b, chain, place, start)
    lower, upper = parts.loop.operands[:2]
    with b.region() as then:
        here = _first(b, chain, place, start)
        b.yield_(*here)
    with b.region() as otherwise:
        b.yield_(*_prologue(b, chain, place + 1, start))
    hints = [v.name for v in here]
    made = b.emit("tile.if", (b.cmp("lt", lower, upper),), [v.type for v in here], None,
                  (then.region, otherwise.region), hints)  # fmt: skip
    return made.results


def _first(
    b: ScheduleBuilder, chain: Sequence[Divided], place: int, start: Sequence[Value]
) -> tuple[Value, ...]:
    """The prologue, where all loops before ``place`` have no iteration."""
    parts = chain[place]
    lower, _, step, *_ = parts.loop.operands
    first = _Iteration(parts, lower, start)
    _add(b, clone_operations(parts.early, first.to))
    begins = [p.loop.operands[1 if i < place else 0] for i, p in enumerate(chain)]
    begins[place] = b.binary("add", lower, step)
    return (*first.carried_on(start), *first.crossing(), lower, *begins)


def _loop(
    b: ScheduleBuilder, parts: Divided, bounds: tuple[Value, Value, Value], given: Sequence[Value]
) -> tuple[Value, ...]:
    """The loop over the iterations but the first: carried values, what crosses, and the iteration
    before."""
    loop, early = parts.loop, loads_ahead(parts)
    lower, upper, step = bounds
    count = len(given)
    if early.loads:
        given = (*given, *early.first(b, lower, upper))
    names = [v.name for v in (*parts.carried, *parts.crossing, parts.variable)]
    names += [x.result.name for x in early.loads]
    arguments = [(n, v.type) for n, v in zip(names, given, strict=True)]
    with b.region((parts.variable.name, INDEX), *arguments) as inner:
        variable, *now = inner.arguments
        iteration, late = _Iteration(parts, variable, now[:count]), _Late(parts, now[:count])
        iteration.to.update(zip((x.result for x in early.loads), now[count:], strict=True))
        there = {id(x) for x in early.loads}
        ahead, behind = _in_two([o for o in parts.early if id(o) not in there])
        behind, roundings = _lefts_last(behind, parts)
        _add(b, clone_operations(ahead, iteration.to))
        _add(b, clone_operations((*parts.both, *parts.late), late.to))
        _add(b, clone_operations(behind, iteration.to))
        following: list[Value] = []
        if early.loads:
            following = early.read(b, early.following(b, variable, upper, step))
        _add(b, clone_operations(roundings, iteration.to))
        ends = loop.regions[0].terminator.operands
        next_ = [late.of(end) if is_late else iteration.of(end)
                 for end, is_late in zip(ends, parts.late_carried, strict=True)]  # fmt: skip
        b.yield_(*next_, *iteration.crossing(), variable, *following)
    made = b.append(Operation(
        FOR, (*bounds, *given), tuple(Value(v.type, n) for n, v in zip(names, given, strict=True)),
        loop.attributes, (inner.region,), loop.span,
    ))  # fmt: skip
    return made.results[:count]


def _in_two(early: Sequence[Operation]) -> tuple[list[Operation], list[Operation]]:
    """The first products of the early part with what they need, and the rest: what waits for
    one, and what is only read there, which lives as short as it can."""
    waiting: set[Value] = set()
    first: list[Operation] = []
    for operation in early:
        waits = any(v in waiting for v in operation.uses())
        if waits or operation.name == DOT:
            waiting.update(operation.results)
        if not waits:
            first.append(operation)
    needed: set[Value] = set()
    ahead: set[int] = set()
    for operation in reversed(first):
        if operation.name == DOT or not operation.results or needed & set(operation.results):
            needed.update(operation.uses())
            ahead.add(id(operation))
    return [o for o in early if id(o) in ahead], [o for o in early if id(o) not in ahead]


def _lefts_last(
    operations: Sequence[Operation], parts: Divided
) -> tuple[list[Operation], list[Operation]]:  # fmt: skip
    """The operations, and those that come last: they round what late products take from registers,
    which changes when these are done, and store it."""
    lefts = {o.operands[0] for o in parts.late if o.name == DOT}
    read: set[Value] = set()
    first: list[Operation] = []
    last: list[Operation] = []
    for operation in reversed(operations):
        results = operation.results
        if operation.name == STORE and operation.operands[0] in lefts:
            last.append(operation)
            continue
        if is_rounding(operation) and results[0] in lefts and results[0] not in read:
            last.append(operation)
            lefts.add(operation.operands[0])
            continue
        first.append(operation)
        read.update(operation.uses())
    return first[::-1], last[::-1]


def _add(b: ScheduleBuilder, operations: Sequence[Operation]) -> None:
    for operation in operations:
        b.append(operation)


class _Iteration:
    """The early part of one iteration: ``to`` says what its values are."""

    def __init__(self, parts: Divided, variable: Value, carried: Sequence[Value]) -> None:
        self._parts = parts
        pairs = zip(parts.carried, carried, parts.late_carried, strict=False)
        self.to: dict[Value, Value] = {v: x for v, x, late in pairs if not late}
        self.to[parts.variable] = variable

    def of(self, value: Value) -> Value:
        return self.to.get(value, value)

    def crossing(self) -> list[Value]:
        return [self.of(v) for v in self._parts.crossing]

    def carried_on(self, start: Sequence[Value]) -> list[Value]:
        """The carried values behind the first early part: those of the late one as they began."""
        ends = self._parts.loop.regions[0].terminator.operands
        pairs = zip(ends, start, self._parts.late_carried, strict=True)
        return [x if late else self.of(end) for end, x, late in pairs]


class _Late:
    """The late part of the iteration before: ``now`` are carried values, what crossed, its
    number."""

    def __init__(self, parts: Divided, now: Sequence[Value]) -> None:
        count = len(parts.carried)
        pairs = zip(parts.carried, now, parts.late_carried, strict=False)
        self.to: dict[Value, Value] = {v: x for v, x, late in pairs if late}
        self.to.update(zip(parts.crossing, now[count:-1], strict=True))
        self.to[parts.variable] = now[-1]

    def of(self, value: Value) -> Value:
        return self.to.get(value, value)
