"""Where each shared buffer begins: buffers that are never in use at once share bytes.

A buffer is in use from the first operation that names it to the last, loops as a whole, and
copies until they are waited for. Where one takes the bytes of another, a barrier stands between
the last use of the one and the first of the other (operations with scratch begin with one).
Owns ``offset`` of allocations and these barriers. Must not know what buffers are for.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.ir.definitions import BARRIERS, LOOPS
from tessera_lang.opt.tile.shared_allocation import buffer_alignment, buffer_bytes
from tessera_lang.record import dataclass, replace
from tessera_lang.target.arch.isa_constants import LINE_BYTES

_ALLOCATION = "tile.shared.alloc"


@dataclass(slots=True, eq=False)
class _Use:
    """An allocation with the positions of its first and last use, and its place."""

    allocation: Operation
    first: int
    last: int
    bytes: int
    offset: int = -1

    @property
    def end(self) -> int:
        return self.offset + self.bytes

    def meets(self, other: _Use) -> bool:
        """Whether both are in use at some time."""
        return self.first <= other.last and other.first <= self.last

    def shares(self, other: _Use) -> bool:
        """Whether both have some byte."""
        return self.offset < other.end and other.offset < self.end


def has_roles(kernel: Operation) -> bool:
    """Whether its warps are split into producers and consumers."""
    return any(o.name == "tile.roles" for o in kernel.regions[0].operations)


def plan_memory(program: Program) -> Program:
    """The program with a place for each buffer, and the barriers that make reuse safe. Buffers of
    roles are in use all the time: they lie one behind the other."""
    (kernel,) = program.operations
    if has_roles(kernel):
        return program
    made = _planned(kernel)
    return program if made is kernel else replace(program, operations=(made,))


def _planned(kernel: Operation) -> Operation:
    region = kernel.regions[0]
    allocations = [o for o in region.operations if o.name == _ALLOCATION]
    if len(allocations) < 2:
        return kernel
    rest = tuple(o for o in region.operations if o.name != _ALLOCATION)
    frame = _Frame(rest, {o.result: o for o in allocations})
    placed = {
        use.allocation: replace(
            use.allocation, attributes={**use.allocation.attributes, "offset": use.offset}
        )
        for use in frame.uses
    }
    kept = tuple(placed[o] for o in allocations if o in placed)
    made = Region(region.arguments, (*kept, *frame.rebuilt()))
    return replace(kernel, regions=(made,))


class _Frame:
    """The list of operations between which lifetimes are told apart: the innermost one that
    holds every use. ``around`` are the operations and region numbers down to it."""

    def __init__(self, operations: tuple[Operation, ...], buffers: dict[Value, Operation]) -> None:
        self.buffers = buffers
        self.around: list[tuple[tuple[Operation, ...], int, int]] = []
        self.cyclic = False
        while (inside := self._only_user(operations)) is not None:
            number, side = inside
            self.around.append((operations, number, side))
            holder = operations[number]
            self.cyclic = self.cyclic or holder.name in LOOPS
            operations = holder.regions[side].operations
        self.operations = operations
        self.uses = self._lifetimes()
        _place(self.uses)

    def _only_user(self, operations: Sequence[Operation]) -> tuple[int, int] | None:
        """The one operation, and its region, that holds all uses."""
        users = [i for i, o in enumerate(operations) if self._names(o)]
        if len(users) != 1:
            return None
        holder = operations[users[0]]
        sides = [i for i, r in enumerate(holder.regions) if any(map(self._names, r.operations))]
        if len(sides) != 1 or any(v in self.buffers for v in holder.operands):
            return None
        return users[0], sides[0]

    def _names(self, operation: Operation) -> bool:
        return any(v in self.buffers for o in operation.walk() for v in o.operands)

    def _lifetimes(self) -> list[_Use]:
        found: dict[Value, _Use] = {}
        waits = [i for i, o in enumerate(self.operations)
                 if o.holds("tile.memcpy.wait")]  # fmt: skip
        for i, operation in enumerate(self.operations):
            for inner in operation.walk():
                for value in inner.operands:
                    allocation = self.buffers.get(value)
                    if allocation is None:
                        continue
                    last = i
                    if inner.name == "tile.memcpy.async":
                        last = next((w for w in waits if w >= i), len(self.operations))
                    t = value.buffer_type
                    use = found.setdefault(value, _Use(allocation, i, i, buffer_bytes(t)))
                    use.last = max(use.last, last)
                    # Other groups write it when they like; or it is small, and spares a barrier.
                    if inner.name == "tile.cluster_reduce" or inner.attributes.get("fresh"):
                        use.first, use.last = 0, len(self.operations)
        return list(found.values())

    # --- barriers -------------------------------------------------------------------------------

    def rebuilt(self) -> tuple[Operation, ...]:
        """The operations of the kernel with the barriers that reuse asks for."""
        before: set[int] = set()
        for a in self.uses:
            for b in self.uses:
                if a is not b and a.shares(b) and a.last < b.first:
                    if not self._ordered(range(a.last + 1, b.first), b.first):
                        before.add(b.first)
                    if self.cyclic and not self._ordered_around(b, a, before):
                        before.add(0)
        out: list[Operation] = []
        for i, operation in enumerate(self.operations):
            if i in before:
                out.append(Operation("tile.barrier", span=operation.span))
            out.append(operation)
        made = tuple(out)
        for operations, number, side in reversed(self.around):
            holder = operations[number]
            regions = list(holder.regions)
            regions[side] = replace(regions[side], operations=made)
            holder = replace(holder, regions=tuple(regions))
            made = (*operations[:number], holder, *operations[number + 1 :])
        return made

    def _ordered(self, between: range, first: int) -> bool:
        """Whether a barrier stands among these operations or begins the first use."""
        begins = self.operations[first]
        if begins.name in BARRIERS and not begins.attributes.get("fresh"):
            return True
        return any(self.operations[i].name == "tile.barrier" for i in between)

    def _ordered_around(self, last: _Use, first: _Use, before: set[int]) -> bool:
        """Whether the next iteration meets a barrier before it writes ``first`` again."""
        behind = range(last.last + 1, len(self.operations))
        added = 0 in before or any(i in before for i in (*behind, *range(first.first + 1)))
        return added or self._ordered(behind, first.first) or self._ordered(
            range(first.first), first.first
        )  # fmt: skip


def _place(uses: list[_Use]) -> None:
    """First fit, the greatest first."""
    placed: list[_Use] = []
    for use in sorted(uses, key=lambda u: -u.bytes):
        step = max(LINE_BYTES, buffer_alignment(use.allocation))
        met = [p for p in placed if p.meets(use)]
        for start in sorted({0, *(p.end for p in met)}):
            use.offset = -(-start // step) * step
            if not any(use.shares(p) for p in met):
                break
        placed.append(use)
