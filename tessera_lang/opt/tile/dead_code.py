"""Dead code elimination in Tile IR: operations, results, and values that loops carry in vain.

Marks values from the operations that do something (memory, barriers, faults, exits that
can be told apart) back to what they need, then rebuilds without the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.definitions import (
    BLOCKS,
    BUFFERS,
    LOOPS,
    TILE_LOADS,
    carried_from,
    is_pure,
)
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.record import dataclass, field, replace

_UNREAD = BUFFERS | TILE_LOADS
"""Operations on memory that an unused one does nothing to."""


class Removable:
    """Whether an operation does nothing but give its results, of each operation found once."""

    def __init__(self) -> None:
        self._known: dict[Operation, bool] = {}

    def __call__(self, operation: Operation) -> bool:
        if not operation.regions:
            return _is_removable(operation)
        known = self._known.get(operation)
        if known is None:
            known = self._known[operation] = self._with_regions(operation)
        return known

    def _with_regions(self, operation: Operation) -> bool:
        if operation.name == "tile.for" and operation.attributes["site"] != -1:
            return False
        if operation.name == "tile.for" or operation.name in BLOCKS:
            return all(
                self(inner) or inner.name in _quiet(operation)
                for region in operation.regions
                for inner in region.operations
            )
        return _is_removable(operation)


def _is_removable(operation: Operation) -> bool:
    if operation.name == "tile.load":
        return operation.attributes["bounds"] != "guarded"
    return operation.name in _UNREAD or is_pure(operation)


def _quiet(operation: Operation) -> tuple[str, ...]:
    """Terminators that stay inside the operation."""
    return ("tile.leave",) if operation.name == "tile.scope" else ("tile.yield",)


@dataclass(slots=True)
class _Marks:
    removable: Removable
    live: set[Value] = field(default_factory=set[Value])
    changed: bool = True

    def mark(self, values: Sequence[Value]) -> None:
        for value in values:
            if value not in self.live:
                self.live.add(value)
                self.changed = True

    def region(self, region: Region, enclosing: tuple[Operation, ...]) -> None:
        for operation in reversed(region.operations):
            self.operation(operation, enclosing)

    def operation(self, operation: Operation, enclosing: tuple[Operation, ...]) -> None:
        definition = TILE_OPS[operation.name]
        if definition.is_terminator:
            self._terminator(operation, enclosing)
            return
        if self.removable(operation) and not any(v in self.live for v in operation.results):
            return
        if operation.name in LOOPS:
            self._loop(operation)
        else:
            self.mark(operation.operands)
        for region in operation.regions:
            self.region(region, (*enclosing, operation))

    def _loop(self, operation: Operation) -> None:
        lead = carried_from(operation)
        self.mark(operation.operands[:lead])
        for i in _carried(operation, self.live):
            self.mark(
                (
                    operation.operands[lead + i],
                    operation.results[i],
                    *_arguments(operation, i),
                )
            )

    def _terminator(self, operation: Operation, enclosing: tuple[Operation, ...]) -> None:
        target = exit_target(operation, enclosing)
        if target is None:
            return
        operands = operation.operands
        if operation.name == "tile.condition":
            self.mark(operands[:1])
            operands = operands[1:]
        for value, result in zip(operands, target.results, strict=True):
            if result in self.live:
                self.mark((value,))


def _arguments(loop: Operation, i: int) -> list[Value]:
    """The arguments of a loop's regions that hold carried value ``i``."""
    lead = 1 if loop.name == "tile.for" else 0
    return [region.arguments[lead + i] for region in loop.regions]


def _carried(loop: Operation, live: set[Value]) -> list[int]:
    """Carried values that are read, in the loop or behind it."""
    return [
        i
        for i, result in enumerate(loop.results)
        if result in live or any(a in live for a in _arguments(loop, i))
    ]


def exit_target(operation: Operation, enclosing: tuple[Operation, ...]) -> Operation | None:
    """The operation whose results a terminator's values become."""
    match operation.name:
        case "tile.yield" | "tile.condition":
            return enclosing[-1] if enclosing else None
        case "tile.break" | "tile.continue":
            return next(o for o in reversed(enclosing) if o.name in LOOPS)
        case "tile.leave":
            return next(o for o in reversed(enclosing) if o.name == "tile.scope")
        case _:
            return None


@dataclass(slots=True)
class _Rebuild:
    removable: Removable
    live: set[Value]

    def region(self, region: Region, enclosing: tuple[Operation, ...]) -> Region:
        arguments = region.arguments
        parent = enclosing[-1] if enclosing else None
        if parent is not None and parent.name in LOOPS:
            lead = 1 if parent.name == "tile.for" else 0
            kept = _carried(parent, self.live)
            arguments = (*arguments[:lead], *(arguments[lead + i] for i in kept))
        out: list[Operation] = []
        same = len(arguments) == len(region.arguments)
        for operation in region.operations:
            made = self.operation(operation, enclosing)
            same = same and made is operation
            if made is not None:
                out.append(made)
        return region if same else Region(arguments, tuple(out))

    def operation(self, o: Operation, enclosing: tuple[Operation, ...]) -> Operation | None:
        if TILE_OPS[o.name].is_terminator:
            return self._terminator(o, enclosing)
        if self.removable(o) and not any(v in self.live for v in o.results):
            return None
        if not o.regions:
            return o
        regions = tuple(self.region(r, (*enclosing, o)) for r in o.regions)
        operands, results = o.operands, tuple(v for v in o.results if v in self.live)
        if o.name in LOOPS:
            lead, kept = carried_from(o), _carried(o, self.live)
            operands = (*operands[:lead], *(operands[lead + i] for i in kept))
            results = tuple(o.results[i] for i in kept)
        same = all(a is b for a, b in zip(regions, o.regions, strict=True))
        if same and len(operands) == len(o.operands) and len(results) == len(o.results):
            return o
        return replace(o, operands=operands, results=results, regions=regions)

    def _terminator(self, o: Operation, enclosing: tuple[Operation, ...]) -> Operation:
        target = exit_target(o, enclosing)
        if target is None or not o.operands:
            return o
        lead = 1 if o.name == "tile.condition" else 0
        kept = [i for i, result in enumerate(target.results) if self._kept(target, i, result)]
        operands = (*o.operands[:lead], *(o.operands[lead + i] for i in kept))
        return o if len(operands) == len(o.operands) else replace(o, operands=operands)

    def _kept(self, target: Operation, i: int, result: Value) -> bool:
        return result in self.live or (
            target.name in LOOPS and any(a in self.live for a in _arguments(target, i))
        )


def drop_unused(kernel: Operation) -> Operation:
    """A kernel without operations and carried values that nothing reads."""
    removable = Removable()
    marks = _Marks(removable)
    while marks.changed:
        marks.changed = False
        for region in kernel.regions:
            marks.region(region, ())
    rebuild = _Rebuild(removable, marks.live)
    regions = tuple(rebuild.region(region, ()) for region in kernel.regions)
    if all(a is b for a, b in zip(regions, kernel.regions, strict=True)):
        return kernel
    return replace(kernel, regions=regions)
