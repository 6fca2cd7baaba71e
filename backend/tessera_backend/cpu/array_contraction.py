"""Arrays of a lane that need no place for each lane of a group.

An array that a lane fills and reads within one lane loop is dead when the next lane begins, so all
lanes use the same few bytes, which LLVM keeps in registers where it knows the indices. Arrays of
which something is read that may be from before stay: each lane has its own part there, side by
side with those of its neighbours. Must not know LLVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from tessera_backend.cpu.group_plan import Control, GroupPlan, Node, Piece
from tessera_lang.ir.core import BufferType, Operation, Region, Value
from tessera_lang.ir.definitions import LEAVES

_MOST_ELEMENTS = 64  # more hardly stay in registers, and straight code of all of them is long

Element = tuple[int, ...]


def find_own_arrays(plan: GroupPlan) -> frozenset[Value]:
    """The arrays for which all lanes may use the same memory."""
    found = {
        op.result
        for op in plan.kernel.walk()
        if op.name == "tile.local.alloc" and isinstance(kind := op.result.type, BufferType)
        if prod(kind.shape[:-1]) <= _MOST_ELEMENTS
    }
    users: dict[Value, set[int]] = {value: set() for value in found}
    pieces = list(_pieces(plan.root.regions[0]))
    inside = 0
    for number, piece in enumerate(pieces):
        for op in piece.operations:
            for inner in op.walk():
                for value in found.intersection(inner.operands):
                    users[value].add(number)
                    inside += 1
    everywhere = sum(v in found for op in plan.kernel.walk() for v in op.operands)
    if inside != everywhere:
        return frozenset()
    single = {value: numbers.pop() for value, numbers in users.items() if len(numbers) == 1}
    return frozenset(
        value for value, number in single.items() if _Filled(plan, value).before(pieces[number])
    )


def _pieces(nodes: Sequence[Node]) -> Iterator[Piece]:
    for node in nodes:
        if isinstance(node, Piece):
            yield node
        elif isinstance(node, Control):
            for inner in node.regions:
                yield from _pieces(inner)


class _Filled:
    """Whether a lane writes each element of an array before it reads it."""

    def __init__(self, plan: GroupPlan, array: Value) -> None:
        self._constant = plan.strides.constant
        self._array = array
        self._steps: dict[Value, range] = {}  # of the loops around
        self._pending: list[tuple[set[Value], set[Element]]] = []  # written behind these loops
        self._good = True

    def before(self, piece: Piece) -> bool:
        self._operations(piece.operations, set(), set())
        return self._good

    def _operations(
        self, operations: Sequence[Operation], written: set[Element], same: set[tuple[Value, ...]]
    ) -> None:
        """``written``: elements that surely are; ``same``: indices that were written in this step
        of the loops around."""
        for op in operations:
            if op.name == "tile.for":
                self._loop(op, written, same)
            elif op.regions:
                for region in op.regions:
                    self._aside(region, set(written), set(same))
            elif self._array in op.operands:
                self._access(op, written, same)

    def _aside(self, region: Region, written: set[Element], same: set[tuple[Value, ...]]) -> None:
        """A region that may not run, or not to its end."""
        pending, self._pending = self._pending, []
        self._operations(region.operations, written, same)
        self._pending = pending

    def _loop(self, op: Operation, written: set[Element], same: set[tuple[Value, ...]]) -> None:
        region = op.regions[0]
        variable = region.arguments[0]
        steps = self._range(op)
        if steps is None:
            self._aside(region, set(written), set(same))
            return
        self._steps[variable] = steps
        if not steps or any(inner.name in LEAVES for inner in op.walk()):
            self._aside(region, set(written), set(same))
        else:
            self._operations(region.operations, written, set(same))
        del self._steps[variable]
        for variables, elements in self._pending:
            variables.discard(variable)
            if not variables:
                written |= elements
        self._pending = [kept for kept in self._pending if kept[0]]

    def _range(self, op: Operation) -> range | None:
        lower, upper, step = map(self._constant, op.operands[:3])
        if lower is None or upper is None or step is None or step <= 0:
            return None
        return range(lower, upper, step)

    def _access(self, op: Operation, written: set[Element], same: set[tuple[Value, ...]]) -> None:
        load = op.name == "tile.load"
        indices = op.operands[1 if load else 2 :][:-1]
        elements = self._elements(indices) if load or op.name == "tile.store" else None
        if elements is None:
            self._good = False
        elif load:
            self._good = self._good and (indices in same or elements <= written)
        else:
            same.add(indices)
            variables = self._steps.keys() & set(indices)
            if variables:
                self._pending.append((variables, elements))
            else:
                written |= elements

    def _elements(self, indices: Sequence[Value]) -> set[Element] | None:
        """The elements that an access meets, in all steps of the loops around it."""
        axes: list[Sequence[int]] = []
        for number, index in enumerate(indices):
            value = self._constant(index)
            axis = self._steps.get(index) if value is None else (value,)
            if axis is None or (value is None and index in indices[:number]):
                return None
            axes.append(axis)
        return set(product(*axes))
