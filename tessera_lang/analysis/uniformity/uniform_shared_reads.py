"""Reads of shared memory that no write meets: between the barriers around them nobody writes the
buffer, so that all lanes that read one cell there get one value.

All lanes of a group pass the same barriers in the same order (elsewhere that is an error), so two
lanes that nothing orders have come from one barrier, or from the start, each on a way without
another. Ways are those of the structured program, whatever its conditions are. Must not know
indices or levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tessera_lang.ir.core import BufferType, Operation, Region, Value
from tessera_lang.ir.definitions import LEAVES
from tessera_lang.record import dataclass, field

_MOST_WORK = 2_000_000
"""Starts times operations; beyond it no read is called settled."""


def settled_reads(kernel: Operation) -> frozenset[Operation]:
    """Loads of one ``tile.kernel`` from shared memory that meet no write."""
    flow = _Flow()
    for o in kernel.nested("tile.constant"):
        held = o.attributes["value"]
        if isinstance(held, int):
            flow.numbers[o.result] = held
    flow.arguments = frozenset(kernel.regions[0].arguments)
    start = flow.region(kernel.regions[0], None)
    reads = {o for o in flow.next if o.name == "tile.load" and any(_buffers(o))}
    starts = [start, *(o for o in flow.next if o.name == "tile.barrier")]
    parts = any(isinstance(v.type, BufferType) for o in flow.next if any(_buffers(o))
                for v in o.results)  # fmt: skip
    if not reads or parts or len(starts) * len(flow.next) > _MOST_WORK:
        return frozenset()
    disturbed: set[Operation] = set()
    for at in starts:
        for met in _ways(flow, at):
            written = {b for o in met if o not in reads for b in _buffers(o)}
            disturbed.update(o for o in met if o in reads and o.operands[0] in written)
    return frozenset(reads - disturbed)


def _buffers(operation: Operation) -> Iterator[Value]:
    """What an operation that is no load may write: every buffer it is given."""
    return (v for v in operation.operands if isinstance(v.type, BufferType))


def _ways(flow: _Flow, start: Operation | None) -> Iterator[list[Operation]]:
    """What lanes may come to from ``start`` before another barrier, together: at the end of a
    counted loop that they are in, all go on with it or all leave it."""
    end = flow.ends.get(start) if start is not None else None
    if end is None:
        yield list(_reached(flow, start))
        return
    both = flow.next[end]
    for one in both:
        flow.next[end] = [one]
        yield list(_reached(flow, start))
    flow.next[end] = both


def _reached(flow: _Flow, start: Operation | None) -> Iterator[Operation]:
    """What a lane may come to from ``start`` before another barrier."""
    waiting, seen = list(flow.after(start)), set[Operation]()
    if start is not None and start.name != "tile.barrier":
        waiting.append(start)
    while waiting:
        operation = waiting.pop()
        if operation in seen:
            continue
        seen.add(operation)
        yield operation
        if operation.name != "tile.barrier":
            waiting.extend(flow.next[operation])


@dataclass(slots=True)
class _Flow:
    """Which operations a lane may come to next. ``ends``: for a barrier that every iteration of a
    loop has, where that has as many as numbers and arguments of the kernel say, the end of its
    body."""

    next: dict[Operation, list[Operation]] = field(default_factory=dict[Operation, list[Operation]])
    loops: list[tuple[Operation | None, Operation | None, list[Operation]]] = field(
        default_factory=list["tuple[Operation | None, Operation | None, list[Operation]]"]
    )
    numbers: dict[Value, int] = field(default_factory=dict[Value, int])
    arguments: frozenset[Value] = frozenset()
    ends: dict[Operation, Operation] = field(default_factory=dict[Operation, Operation])
    scopes: list[Operation | None] = field(default_factory=list["Operation | None"])

    def _surely_runs(self, loop: Operation) -> bool:
        """Whether a loop has at least one iteration, by numbers that are written out."""
        low, high, step = (self.numbers.get(v) for v in loop.operands[:3])
        return low is not None and high is not None and bool(step) and bool(range(low, high, step))

    def _note_ends(self, loop: Operation) -> None:
        known = all(v in self.numbers or v in self.arguments for v in loop.operands[:3])
        if known and not any(o.name in LEAVES for o in loop.walk()):
            (region,) = loop.regions
            for o in region.operations:
                if o.name == "tile.barrier":
                    self.ends[o] = region.terminator

    def after(self, operation: Operation | None) -> Sequence[Operation]:
        return self.next.get(operation, ()) if operation is not None else ()

    def region(self, region: Region, after: Operation | None) -> Operation | None:
        """Its operations, which go on at ``after``; the first of them."""
        following: Operation | None = after
        for operation in reversed(region.operations):
            targets = self._targets(operation, following)
            self.next[operation] = [t for t in targets if t is not None]
            following = operation
        return following

    def _targets(self, o: Operation, after: Operation | None) -> list[Operation | None]:
        match o.name:
            case "tile.if":
                return [after, *(self.region(r, after) for r in o.regions)]
            case "tile.for" if self._surely_runs(o):
                ends: list[Operation] = [o.regions[0].terminator]
                self.loops.append((o, after, ends))
                first = self.region(o.regions[0], None)
                self.loops.pop()
                for end in ends:
                    self.next[end] = [t for t in (first, after) if t is not None]
                self._note_ends(o)
                return [first]
            case "tile.for":
                self.loops.append((o, after, []))
                first = self.region(o.regions[0], o)
                self.loops.pop()
                self.next[o.regions[0].terminator] = [t for t in (first, after) if t is not None]
                self._note_ends(o)
                return [first, after]
            case "tile.while":
                self.loops.append((o, after, []))
                first = self.region(o.regions[0], self.region(o.regions[1], o))
                self.loops.pop()
                if after is not None:
                    self.next[o.regions[0].terminator].append(after)
                return [first]
            case "tile.scope":
                self.scopes.append(after)
                first = self.region(o.regions[0], after)
                self.scopes.pop()
                return [first]
            case "tile.break":
                return [self.loops[-1][1]]
            case "tile.continue":
                self.loops[-1][2].append(o)
                return [self.loops[-1][0]]
            case "tile.leave":
                return [self.scopes[-1]]
            case "tile.return":
                return []
            case _:
                return [after]
