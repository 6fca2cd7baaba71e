"""The body of a kernel or of a role: Schedule operations, one after the other, as Tile operations.

``Body(builder, facts, layouts, engine, scratch)`` lowers any list of operations with
``lower(operations)``. ``bind(value, made)`` says what a Schedule value became, so whoever has
made a part himself (a product in a ring, a tile that another role has loaded) binds its
results and lets the body do the rest. ``tile(value)`` is the register tile of a value in the layout
chosen for it, ``scalar(value)`` a uniform number, ``demand(value, layout)`` the tile in a
layout that somebody needs. What depends on the machine goes through the ``Engine``.

Owns the walk, control flow and conversions between layouts; single operations stand in
``operations.py``. Must not know grids, rings or roles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tessera_lang.ir.core import IRType, Operation, Region, TileType, Value
from tessera_lang.ir.tile.builder import Builder, RegionBuilder
from tessera_lang.lower.schedule_to_tile.common import operations as single
from tessera_lang.lower.schedule_to_tile.common.assign_layouts import Layouts
from tessera_lang.lower.schedule_to_tile.common.errors import NotTiled
from tessera_lang.lower.schedule_to_tile.common.shared_scratch import Scratch
from tessera_lang.lower.schedule_to_tile.common.value_map import Lowered
from tessera_lang.opt.schedule.query.scalar_facts import Facts, axes_of

_EXITS = {"tile.break": "loop", "tile.continue": "loop", "tile.leave": "scope"}


Innermost = Callable[
    [tuple[Value, Value, Value], Sequence[Value], tuple[IRType, ...]], tuple[Value, ...]
]
"""Builds a loop of (bounds, carried values, their types) and gives what it hands on."""


class Doing(Protocol):
    """What the walk asks an engine; ``engine.py`` says what each does."""

    warps: int

    def load(self, body: Body, operation: Operation) -> None: ...
    def store(self, body: Body, operation: Operation) -> None: ...
    def dot(self, body: Body, operation: Operation) -> None: ...
    def loop(self, body: Body, operation: Operation) -> None: ...
    def combine(self, body: Body, operation: Operation) -> None: ...
    def before_control(self, body: Body, operation: Operation) -> None: ...
    def in_registers(self, load: Operation) -> bool: ...
    def repeats(self, operation: Operation) -> bool: ...


class Body(Lowered):
    """What has been lowered so far, and how to go on."""

    def __init__(
        self, builder: Builder, facts: Facts, layouts: Layouts, engine: Doing, scratch: Scratch
    ) -> None:
        super().__init__(builder, facts, layouts, scratch)
        self.engine = engine
        self._targets: list[tuple[str, tuple[IRType, ...]]] = []

    # --- the walk -----------------------------------------------------------------------------

    def lower(self, operations: Sequence[Operation]) -> None:
        """Every operation, the terminator too where it is one of control flow."""
        for operation in operations:
            with self.builder.at(operation.span):
                self.operation(operation)

    def operation(self, operation: Operation) -> None:
        match operation.name:
            case "tessera.schedule.for":
                self.engine.loop(self, operation)
            case "tessera.schedule.load":
                self.engine.load(self, operation)
            case "tessera.schedule.store":
                self.engine.store(self, operation)
            case "tessera.schedule.dot":
                self.engine.dot(self, operation)
            case "tessera.schedule.combine":
                self.engine.combine(self, operation)
            case "tile.if" | "tile.while" | "tile.scope":
                self._control(operation)
            case "tile.yield" | "tile.condition" | "tile.break" | "tile.continue" | "tile.leave":
                self._exit(operation)
            case "tile.return":
                pass
            case _:
                if not operation.results or self.engine.in_registers(operation):
                    single.lower_single(self, operation)

    # --- control flow -------------------------------------------------------------------------

    def region(self, region: Region, kind: str, types: tuple[IRType, ...]) -> Region:
        """A region whose exits of ``kind`` hand over values of ``types``."""
        arguments = [(v.name, self.type_of(v)) for v in region.arguments]
        with self.builder.region(*arguments) as made, self.target(kind, types):
            for value, argument in zip(region.arguments, made.arguments, strict=True):
                self.bind(value, argument)
            self.lower(region.operations)
        return made.region

    def target(self, kind: str, types: tuple[IRType, ...]) -> _Target:
        """What exits inside leave, while the block lasts: ``yield``, ``loop`` or ``scope``."""
        return _Target(self._targets, (kind, types))

    def _control(self, operation: Operation) -> None:
        types = tuple(self.type_of(v) for v in operation.results)
        operands = [
            self._as(v, t)
            for v, t in zip(operation.operands, self._taken(operation, types), strict=True)
        ]
        kind = {"tile.if": "yield", "tile.while": "loop", "tile.scope": "scope"}[operation.name]
        self.engine.before_control(self, operation)
        if kind == "loop":
            self.order.enter_loop([operation])
        before = self.order.held()
        regions: list[Region] = []
        after = [before] if kind == "loop" else []
        for region in operation.regions:
            self.order.restore(before)
            regions.append(self.region(region, kind, types))
            after.append(self.order.held())
        self.order.join(after)
        names = [v.name for v in operation.results]
        made = self.builder.emit(
            operation.name, operands, types, operation.attributes, regions, names
        )
        for value, result in zip(operation.results, made.results, strict=True):
            self.bind(value, result)

    def _taken(self, operation: Operation, types: tuple[IRType, ...]) -> tuple[IRType, ...]:
        if operation.name == "tile.while":
            return types
        return tuple(v.type for v in operation.operands)

    def _as(self, value: Value, t: IRType) -> Value:
        if isinstance(t, TileType) and t.layout is not None:
            return self.demand(value, t.layout)
        return self.scalar(value)

    def _exit(self, operation: Operation) -> None:
        types = self._types_of_exit(operation.name)
        values = list(operation.operands)
        given: list[Value] = []
        if operation.name == "tile.condition":
            given.append(self.scalar(values.pop(0)))
        given += [self._as(v, t) for v, t in zip(values, types, strict=True)]
        self.builder.emit(operation.name, given)

    def handed(self, terminator: Operation, types: tuple[IRType, ...]) -> list[Value]:
        """What a terminator hands over, as values of ``types``."""
        return [self._as(v, t) for v, t in zip(terminator.operands, types, strict=True)]

    def repeats(self, operation: Operation) -> bool:
        return self.engine.repeats(operation)

    def _types_of_exit(self, name: str) -> tuple[IRType, ...]:
        kind = _EXITS.get(name)
        for held, types in reversed(self._targets):
            if kind is None or held == kind:
                return types
        raise NotTiled(f"{name} leaves nothing")

    def plain_loop(self, operation: Operation, innermost: Innermost | None = None) -> None:
        """Loops one inside the other, in order; ``innermost`` builds the innermost one."""
        axes = axes_of(operation)
        self.order.enter_loop([operation])
        before = self.order.held()
        lower, upper, step = (operation.operands[i * axes : (i + 1) * axes] for i in range(3))
        carried = operation.operands[3 * axes :]
        types = tuple(self.type_of(v) for v in operation.results)
        start = [self._as(v, t) for v, t in zip(carried, types, strict=True)]
        bounds = list(
            zip(self.scalars(lower), self.scalars(upper), self.scalars(step), strict=True)
        )
        made = self._nest(operation, 0, bounds, start, types, innermost)
        self.order.join([before, self.order.held()])
        for value, result in zip(operation.results, made, strict=True):
            self.bind(value, result)

    def _nest(
        self, operation: Operation, axis: int, bounds: list[tuple[Value, Value, Value]],
        carried: Sequence[Value], types: tuple[IRType, ...], innermost: Innermost | None,
    ) -> tuple[Value, ...]:  # fmt: skip
        if innermost is not None and axis + 1 == len(bounds):
            return innermost(bounds[axis], carried, types)
        region = operation.regions[0]
        variable = region.arguments[axis]
        arguments = [(variable.name, variable.type)]
        arguments += [
            (v.name, t) for v, t in zip(region.arguments[len(bounds) :], types, strict=True)
        ]
        with self.builder.region(*arguments) as made:
            self.bind(variable, made.arguments[0])
            if axis + 1 < len(bounds):
                inner = self._nest(
                    operation, axis + 1, bounds, made.arguments[1:], types, innermost
                )
                self.builder.yield_(*inner)
            else:
                self._innermost(operation, len(bounds), made, types)
        return self.builder.for_(*bounds[axis], carried, made.region)

    def _innermost(
        self, operation: Operation, axes: int, made: RegionBuilder, types: tuple[IRType, ...]
    ) -> None:
        region = operation.regions[0]
        for value, argument in zip(region.arguments[axes:], made.arguments[1:], strict=True):
            self.bind(value, argument)
        with self.target("loop", types):
            self.lower(region.operations)


class _Target:
    """Keeps one more target of exits on the stack while its block lasts."""

    def __init__(
        self, stack: list[tuple[str, tuple[IRType, ...]]], held: tuple[str, tuple[IRType, ...]]
    ) -> None:
        self._stack, self._held = stack, held

    def __enter__(self) -> None:
        self._stack.append(self._held)

    def __exit__(self, *_: object) -> None:
        self._stack.pop()
