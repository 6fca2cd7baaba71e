"""Positions in rings of buffers, as ordinary values of a kernel: slot and phase, carried along.

``thread`` gives every loop and condition that holds loads of a ring two more values, so that
the role that fills the ring and the role that empties it walk through the same slots, whatever
control flow lies around. The result is Schedule IR again.

Owns the rewriting and the record of what each region uses. Must not know barriers or roles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.definitions import ENDS, LOOPS
from tessera_lang.lower.schedule_to_tile.common.errors import NotTiled
from tessera_lang.lower.schedule_to_tile.hopper.inflight_accumulators import Chain
from tessera_lang.opt.schedule.query.kernel_facts import Load
from tessera_lang.opt.schedule.query.staging_rings import Ring
from tessera_lang.record import dataclass, replace
from tessera_lang.types.dtype import BOOL, INDEX


class RingUse:
    """A ring at one place of the threaded kernel: most have one, loads of the same ring may
    stand at several. ``number`` is the ring's.

    ``slot`` and ``phase`` are those that its loads use; ``next`` what follows. ``first`` and
    ``last`` are the results of the loads between which the ring is filled; ``end`` is the
    terminator of their region, ``region`` the operations of it.
    """

    slot: Value
    phase: Value
    next: tuple[Value, Value]
    end: Operation
    region: tuple[Operation, ...]

    def __init__(self, ring: Ring, number: int, loads: Sequence[Load]) -> None:
        self.ring = ring
        self.number = number
        self.loads = tuple(loads)

    @property
    def stages(self) -> int:
        return self.ring.stages

    @property
    def results(self) -> tuple[Value, ...]:
        return tuple(x.operation.result for x in self.loads)

    @property
    def first(self) -> Value:
        return self.results[0]

    @property
    def last(self) -> Value:
        return self.results[-1]


class Iterations:
    """A chain with its place in the threaded kernel. ``iteration`` is 0 in the first iteration of
    the loop, then 1; ``after`` is 0 behind a loop that had none. ``slots``: by the number of a late
    ring, its slot behind the loop."""

    loop: Operation
    iteration: Value
    after: Value
    slots: dict[int, Value]

    def __init__(self, chain: Chain) -> None:
        self.chain = chain


Waits = tuple[tuple[int, Value, Value], ...]
"""Numbers and positions of rings."""


@dataclass(frozen=True, slots=True, eq=False)
class Threaded:
    """The kernel with positions. The grid carries those of all rings. ``turns``: by a number that
    is made before a ring's turn, the rings that have to be empty then."""

    kernel: Operation
    grid: Operation
    uses: tuple[RingUse, ...]
    iterations: tuple[Iterations, ...]
    turns: Mapping[Value, Waits]


def thread(
    kernel: Operation, grid: Operation, rings: Sequence[Ring], chains: Sequence[Chain],
    begins: Mapping[Operation, Mapping[int, Sequence[int]]],
) -> Threaded:  # fmt: skip
    """``begins``: the operations before which rings have their turn, with the rings whose bytes
    those take."""
    uses = tuple(
        RingUse(ring, i, loads)
        for i, ring in enumerate(rings) for loads in (ring.loads, *ring.others)
    )  # fmt: skip
    threader = _Threader(uses, tuple(Iterations(c) for c in chains), begins)
    (body,) = kernel.regions
    if not any(o is grid for o in body.operations):
        raise NotTiled("the loop whose iterations are groups stands inside another", grid.span)
    operations: list[Operation] = []
    made = grid
    for operation in body.operations:
        if operation is grid:
            line, made = threader.grid(grid)
            operations += line
        operations.append(made if operation is grid else operation)
    whole = replace(kernel, regions=(Region(body.arguments, tuple(operations)),))
    return Threaded(whole, made, uses, threader.iterations, threader.turns)


State = dict[int, tuple[Value, Value]]


class _Threader:
    def __init__(
        self, uses: Sequence[RingUse], iterations: tuple[Iterations, ...],
        begins: Mapping[Operation, Mapping[int, Sequence[int]]],
    ) -> None:  # fmt: skip
        self.uses = uses
        self.iterations = iterations
        self.turns: dict[Value, Waits] = {}
        self._begins = begins
        self._by_load = {v: u for u in uses for v in u.results}

    def grid(self, grid: Operation) -> tuple[list[Operation], Operation]:
        """The first positions, and the grid that carries them."""
        line = _Line()
        zero = line.constant(0)
        state: State = {u.number: (zero, zero) for u in self.uses}
        return line.operations, self._nested(grid, list(state), state)

    def inside(self, operation: Operation) -> list[int]:
        """The rings whose loads stand somewhere inside an operation, in order."""
        found = {
            self._by_load[v].number for o in operation.walk() for v in o.results
            if v in self._by_load
        }  # fmt: skip
        return sorted(found)

    def _region(
        self, region: Region, state: State, rings: Sequence[int], arguments: Sequence[Value],
        iteration: Sequence[Operation],
    ) -> Region:  # fmt: skip
        """``region`` whose terminator also hands over the positions of ``rings``, and what the
        last of ``iteration`` gives."""
        here: list[RingUse] = []
        out: list[Operation] = []
        for operation in region.operations[:-1]:
            nested = self.inside(operation) if operation.regions else []
            if nested:
                out += _go_on([u for u in here if u.number in nested], state)
                out += self._turn(operation, state)
                out += self._around(operation, nested, state)
                continue
            self._note(operation, state, here, out)
            out.append(operation)
        out += _go_on(here, state)
        end = region.terminator
        if end.name not in ENDS:
            raise NotTiled("control flow leaves the middle of a pipeline", end.span)
        counted = tuple(v for o in iteration[-1:] for v in o.results)
        operands = (*end.operands, *_positions(state, rings), *counted)
        made = (*out, *iteration, replace(end, operands=operands))
        for use in here:
            use.end, use.region = made[-1], made
        return Region((*region.arguments, *arguments), made)

    def _turn(self, operation: Operation, state: State) -> list[Operation]:
        """What stands before an operation with which rings have their turn: their positions, as
        they are when the rings before are empty."""
        line = _Line()
        for number, others in self._begins.get(operation, {}).items():
            slot, phase = state[number]
            turned = line.binary("tile.add", slot, line.constant(0))
            self.turns[turned] = tuple((n, *state[n]) for n in others)
            state[number] = turned, phase
        return line.operations

    def _note(
        self, operation: Operation, state: State, here: list[RingUse], out: list[Operation]
    ) -> None:
        use = next((self._by_load[v] for v in operation.results if v in self._by_load), None)
        if use is not None and use not in here:
            out += _go_on([u for u in here if u.number == use.number], state)
            use.slot, use.phase = state[use.number]
            here.append(use)

    def _around(self, operation: Operation, rings: list[int], state: State) -> list[Operation]:
        """An operation with loads of rings inside, and what has to stand before it."""
        iterations = next((t for t in self.iterations if t.chain.loop is operation), None)
        line = _Line()
        start = line.constant(0) if iterations is not None else None
        made = self._nested(operation, rings, state, iterations, start)
        return [*line.operations, made]

    def _nested(
        self, operation: Operation, rings: list[int], state: State, iterations: Iterations | None =
        None, start: Value | None = None,
    ) -> Operation:  # fmt: skip
        loop = operation.name in LOOPS
        if not loop and operation.name != "tile.if":
            raise NotTiled(f"{operation.name} around a staged tile", operation.span)
        given = _positions(state, rings)
        given = (*given, start) if start is not None else given
        regions: list[Region] = []
        for region in operation.regions:
            inner = dict(state)
            arguments: tuple[Value, ...] = ()
            iteration = _Line()
            if loop:
                arguments = tuple(Value(v.type, v.name) for v in given)
                for i, ring in enumerate(rings):
                    inner[ring] = (arguments[2 * i], arguments[2 * i + 1])
            if iterations is not None:
                iterations.iteration = next(reversed(arguments))
                iteration.constant(1)
            regions.append(self._region(region, inner, rings, arguments, iteration.operations))
        results = tuple(Value(v.type, v.name) for v in given)
        for i, ring in enumerate(rings):
            state[ring] = (results[2 * i], results[2 * i + 1])
        made = replace(
            operation, operands=(*operation.operands, *given) if loop else operation.operands,
            results=(*operation.results, *results), regions=tuple(regions),
        )  # fmt: skip
        if iterations is not None:
            iterations.loop, iterations.after = made, results[-1]
            iterations.slots = {r: state[r][0] for r in iterations.chain.late}
        return made


def _positions(state: State, rings: Sequence[int]) -> tuple[Value, ...]:
    return tuple(v for ring in rings for v in state[ring])


def _go_on(uses: Sequence[RingUse], state: State) -> list[Operation]:
    """The operations behind which the next position of each ring is known, if it was not."""
    out: list[Operation] = []
    for use in uses:
        if state[use.number] == (use.slot, use.phase):
            out += _advance(use)
            state[use.number] = use.next
    return out


def _advance(use: RingUse) -> list[Operation]:
    """The operations that give the next slot and its phase."""
    made = _Line()
    one = made.constant(1)
    other = made.binary("tile.xor", use.phase, one)
    if use.stages == 1:
        use.next = (use.slot, other)
        return made.operations
    following = made.binary("tile.add", use.slot, one)
    wraps = Value(BOOL)
    compared = (following, made.constant(use.stages))
    made.operations.append(Operation("tile.cmp", compared, (wraps,), {"predicate": "eq"}))
    slot = made.select(wraps, made.constant(0), following)
    use.next = (slot, made.select(wraps, other, use.phase))
    return made.operations


class _Line:
    """Scalar operations in a row."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def constant(self, value: int) -> Value:
        return self._emit("tile.constant", (), {"value": value})

    def binary(self, name: str, a: Value, b: Value) -> Value:
        return self._emit(name, (a, b), {})

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        return self._emit("tile.select", (condition, a, b), {})

    def _emit(self, name: str, operands: tuple[Value, ...], attributes: dict[str, int]) -> Value:
        result = Value(INDEX)
        self.operations.append(Operation(name, operands, (result,), attributes))
        return result
