"""Uniformity: what is the same in every lane of a group, and where lanes may part.

A value is constant, uniform (the same in all lanes that compute it together) or varying. A
place is divergent where some lanes of the group may be absent: under a varying condition,
behind an exit taken under one, in a loop that lanes leave at different times. ``continue``
parts lanes only until the next iteration. Must not know passes, syntax or targets.

The walk is repeated until nothing changes: levels and divergent loops only ever rise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from math import prod
from operator import eq, ge, gt, le, lt, ne
from typing import cast

from tessera_lang.analysis.ranges.integer_ranges import ACCESSES
from tessera_lang.analysis.uniformity.uniform_shared_reads import settled_reads
from tessera_lang.ir.core import Operation, Region, Value, ViewType
from tessera_lang.ir.definitions import (
    GROUP_IDS,
    LANE_IDS,
    LOOPS,
    PER_LANE,
    WRITES,
)
from tessera_lang.ir.tile.ops import WARP_OPS
from tessera_lang.record import dataclass, field, replace


class Level(IntEnum):
    CONSTANT = 0
    UNIFORM = 1
    VARYING = 2


@dataclass(frozen=True, slots=True)
class Cause:
    """Why lanes may have parted: at ``operation``, because of ``value`` where one is known.

    ``exit`` is the ``break``, ``return`` ... that took some of them away.
    """

    operation: Operation
    value: Value | None
    exit: Operation | None = None


@dataclass(slots=True)
class Uniformity:
    """The result for one kernel.

    ``reasons``: for a varying value the value it got that from; a source has none.
    ``divergent``: operations at which lanes may be absent, each with the cause.
    ``split_loops``: loops that lanes may leave at different times.
    ``written``: arrays that the kernel stores to or updates.
    """

    levels: dict[Value, Level] = field(default_factory=dict[Value, Level])
    reasons: dict[Value, Value] = field(default_factory=dict[Value, Value])
    divergent: dict[Operation, Cause] = field(default_factory=dict[Operation, Cause])
    split_loops: dict[Operation, Cause] = field(default_factory=dict[Operation, Cause])
    definitions: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    written: frozenset[Value] = frozenset()

    def level(self, value: Value) -> Level:
        return self.levels.get(value, Level.CONSTANT)

    def is_uniform(self, value: Value) -> bool:
        """Whether all lanes that compute the value together get the same one."""
        return self.level(value) < Level.VARYING

    def origin(self, value: Value) -> Value:
        """The source that makes a varying value vary."""
        seen: set[Value] = set()
        while value in self.reasons and value not in seen:
            seen.add(value)
            value = self.reasons[value]
        return value


@dataclass(slots=True)
class _Target:
    """What an exit may leave: the kernel, a scope or a loop. ``depth``: causes at entry."""

    operation: Operation
    depth: int
    leaves: list[tuple[Sequence[Value], bool]] = field(
        default_factory=list[tuple[Sequence[Value], bool]]
    )
    back: list[tuple[Sequence[Value], bool]] = field(
        default_factory=list[tuple[Sequence[Value], bool]]
    )


@dataclass(slots=True)
class _Walk:
    written: frozenset[Value]
    lanes: tuple[int, ...]
    result: Uniformity = field(default_factory=Uniformity)
    causes: list[Cause] = field(default_factory=list[Cause])
    targets: list[_Target] = field(default_factory=list[_Target])
    pending: list[tuple[Operation, Cause]] = field(default_factory=list[tuple[Operation, Cause]])
    aliases: dict[Value, Value] = field(default_factory=dict[Value, Value])
    settled: frozenset[Operation] = frozenset()
    changed: bool = True

    # --- levels -----------------------------------------------------------------------------

    def raise_to(self, value: Value, level: Level, reason: Value | None = None) -> None:
        if level > self.result.level(value):
            self.result.levels[value] = level
            self.changed = True
            if level is Level.VARYING and reason is not None and reason is not value:
                self.result.reasons[value] = reason

    def join(self, value: Value, sources: Sequence[Value], least: Level = Level.CONSTANT) -> None:
        """``value`` is made of ``sources``: at least as varying as each of them."""
        self.raise_to(value, least)
        for source in sources:
            self.raise_to(value, self.result.level(source), source)

    # --- regions ----------------------------------------------------------------------------

    def block(self, region: Region) -> None:
        depth, waiting = len(self.causes), len(self.pending)
        for operation in region.operations:
            if len(self.pending) > waiting and len(self.causes) == depth:
                self.causes.append(self.pending[-1][1])
            for value in operation.results:
                self.result.definitions[value] = operation
            if self.causes and operation not in self.result.divergent:
                self.result.divergent[operation] = self.causes[-1]
                self.changed = True
            _RULES.get(operation.name, _plain)(self, operation)
        del self.causes[depth:]

    def under(self, cause: Cause | None, region: Region) -> None:
        """A region, run where lanes part for ``cause`` (None: where they do not)."""
        if cause is not None:
            self.causes.append(cause)
        self.block(region)
        if cause is not None:
            self.causes.pop()

    def parted(self, target: _Target) -> Cause | None:
        """Why not all lanes that entered ``target`` are here."""
        return self.causes[-1] if len(self.causes) > target.depth else None

    def innermost(self, *names: str) -> _Target:
        return next(t for t in reversed(self.targets) if t.operation.name in names)

    def exit_to(self, operation: Operation, target: _Target, ends_loop: bool) -> None:
        """``operation`` takes lanes to the end of ``target``; loops on the way are left."""
        for inner in reversed(self.targets):
            if inner is target and not ends_loop:
                break
            cause = self.parted(inner)
            if cause is not None and inner.operation.name in LOOPS:
                self.split(inner.operation, replace(cause, exit=operation))
            if inner is target:
                break
        cause = self.parted(target)
        if cause is not None:
            self.pending.append((target.operation, replace(cause, exit=operation)))

    def split(self, loop: Operation, cause: Cause) -> None:
        if loop not in self.result.split_loops:
            self.result.split_loops[loop] = cause
            self.changed = True

    def done(self, target: _Target) -> None:
        """The end of a target: exits to it have come together again."""
        self.targets.pop()
        self.pending = [p for p in self.pending if p[0] is not target.operation]


def _plain(walk: _Walk, operation: Operation) -> None:
    name = operation.name
    if len(operation.results) != 1:
        for value in operation.results:
            walk.join(value, operation.operands)
        return
    (value,) = operation.results
    if name in LANE_IDS:
        axis = cast("int", operation.attributes.get("axis", -1))
        extent = prod(walk.lanes) if axis < 0 else walk.lanes[axis : axis + 1] or (1,)
        one = extent == 1 or extent == (1,)
        walk.raise_to(value, Level.CONSTANT if one else Level.VARYING)
    elif name in WARP_OPS:
        own = name in PER_LANE
        most = 1 if own else 32  # the others give a warp one value
        walk.raise_to(value, Level.VARYING if prod(walk.lanes) > most else Level.UNIFORM)
    elif name in GROUP_IDS:
        walk.raise_to(value, Level.UNIFORM)
    elif name == "tile.load" and operation.attributes.get("uniform", False):
        walk.join(value, operation.operands[1:], Level.UNIFORM)
    elif name == "tile.load" and isinstance(operation.operands[0].type, ViewType):
        written = operation.operands[0] in walk.written
        walk.join(value, operation.operands[1:], Level.VARYING if written else Level.UNIFORM)
    elif operation in walk.settled and operation not in walk.result.divergent:
        walk.join(value, operation.operands[1:], Level.UNIFORM)
    elif name in ACCESSES:
        walk.raise_to(value, Level.VARYING)
    else:
        walk.join(value, operation.operands)


# --- control ------------------------------------------------------------------------------


def _merge(walk: _Walk, result: Value, sources: Sequence[Value], cause: Cause | None) -> None:
    """A value that is one of ``sources``; which one may depend on the lane for ``cause``."""
    walk.join(result, sources)
    if cause is not None and any(s is not sources[0] for s in sources):
        walk.raise_to(result, Level.VARYING, cause.value)


_COMPARED = {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}


def _decided(walk: _Walk, condition: Value) -> bool | None:
    """A condition that is a constant, or compares two of them (how many lanes a group has)."""
    found = walk.result.definitions.get(condition)
    if found is None or found.name != "tile.cmp":
        held = _number(walk, condition)
        return None if held is None else bool(held)
    a, b = (_number(walk, v) for v in found.operands)
    if a is None or b is None:
        return None
    return bool(_COMPARED[cast("str", found.attributes["predicate"])](a, b))


def _number(walk: _Walk, value: Value) -> int | None:
    found = walk.result.definitions.get(value)
    held = found.attributes["value"] if found and found.name == "tile.constant" else None
    return held if isinstance(held, int) else None


def _if(walk: _Walk, operation: Operation) -> None:
    (condition,) = operation.operands
    varying = not walk.result.is_uniform(condition)
    cause = Cause(operation, condition) if varying else None
    for region in operation.regions:
        walk.under(cause, region)
    taken = _decided(walk, condition)
    yielded = [
        r.terminator.operands for k, r in enumerate(operation.regions)
        if r.terminator.name == "tile.yield" and taken in (None, k == 0)
    ]  # fmt: skip
    for i, result in enumerate(operation.results):
        _merge(walk, result, [values[i] for values in yielded], cause)


def _loop(
    walk: _Walk,
    operation: Operation,
    arguments: Sequence[Value],
    starts: Sequence[Value],
    body: Callable[[_Target], None],
) -> None:
    """The body, then what the carried values and the results are made of."""
    target = _Target(operation, len(walk.causes))
    walk.targets.append(target)
    cause = walk.result.split_loops.get(operation)
    if cause is not None:
        walk.causes.append(cause)
        body(target)
        walk.causes.pop()
    else:
        body(target)
    walk.done(target)
    parted = next((True for _, apart in target.back if apart), False)
    for i, argument in enumerate(arguments):
        back = [walk.aliases.get(values[i], values[i]) for values, _ in target.back]
        walk.join(argument, [starts[i], *back])
        if parted and any(value is not back[0] for value in back):
            walk.raise_to(argument, Level.VARYING, _branch_value(walk, target))
    cause = walk.result.split_loops.get(operation)
    for i, result in enumerate(operation.results):
        back = [walk.aliases.get(values[i], values[i]) for values, _ in target.back]
        left = [walk.aliases.get(values[i], values[i]) for values, _ in target.leaves]
        walk.join(result, [arguments[i], *left])
        invariant = all(value is arguments[i] for value in (*back, *left))
        if cause is not None and not invariant:
            walk.raise_to(result, Level.VARYING, cause.value)


def _branch_value(walk: _Walk, target: _Target) -> Value | None:
    """The condition that parted the lanes of a loop's iteration."""
    for region in target.operation.regions:
        for operation in region.operations:
            for inner in operation.walk():
                if inner.name == "tile.continue" and inner in walk.result.divergent:
                    return walk.result.divergent[inner].value
    return None


def _body(walk: _Walk, target: _Target, region: Region) -> None:
    walk.block(region)
    if region.terminator.name == "tile.yield":
        apart = any(t is target.operation for t, _ in walk.pending)
        target.back.append((region.terminator.operands, apart))


def _for(walk: _Walk, operation: Operation) -> None:
    region = operation.regions[0]
    counter = region.arguments[0]
    lower, upper, step = operation.operands[:3]
    walk.join(counter, (lower, step), Level.UNIFORM)
    for bound in (lower, upper, step):
        if not walk.result.is_uniform(bound):
            walk.split(operation, Cause(operation, bound))

    def body(target: _Target) -> None:
        _body(walk, target, region)

    _loop(walk, operation, region.arguments[1:], operation.operands[3:], body)


def _while(walk: _Walk, operation: Operation) -> None:
    head, rest = operation.regions

    def body(target: _Target) -> None:
        walk.block(head)
        condition, *values = head.terminator.operands
        for argument, value in zip(rest.arguments, values, strict=True):
            walk.join(argument, (value,))
            if value in head.arguments:
                walk.aliases[argument] = value
        target.leaves.append((values, False))
        if not walk.result.is_uniform(condition):
            walk.split(operation, Cause(operation, condition))
        _body(walk, target, rest)

    _loop(walk, operation, head.arguments, operation.operands, body)


def _scope(walk: _Walk, operation: Operation) -> None:
    target = _Target(operation, len(walk.causes))
    walk.targets.append(target)
    walk.block(operation.regions[0])
    apart = [cause for t, cause in walk.pending if t is operation]
    walk.done(target)
    for i, result in enumerate(operation.results):
        sources = [values[i] for values, _ in target.leaves]
        if sources:
            _merge(walk, result, sources, apart[0] if apart else None)


def _continue(walk: _Walk, operation: Operation) -> None:
    target = walk.innermost(*LOOPS)
    apart = walk.parted(target) is not None
    target.back.append((operation.operands, apart))
    walk.exit_to(operation, target, ends_loop=False)


def _break(walk: _Walk, operation: Operation) -> None:
    target = walk.innermost(*LOOPS)
    target.leaves.append((operation.operands, walk.parted(target) is not None))
    walk.exit_to(operation, target, ends_loop=True)


def _leave(walk: _Walk, operation: Operation) -> None:
    target = walk.innermost("tile.scope")
    target.leaves.append((operation.operands, walk.parted(target) is not None))
    walk.exit_to(operation, target, ends_loop=True)


def _return(walk: _Walk, operation: Operation) -> None:
    walk.exit_to(operation, walk.targets[0], ends_loop=True)


def _nothing(walk: _Walk, operation: Operation) -> None:
    pass


_RULES: dict[str, Callable[[_Walk, Operation], None]] = {
    "tile.if": _if,
    "tile.for": _for,
    "tile.while": _while,
    "tile.scope": _scope,
    "tile.continue": _continue,
    "tile.break": _break,
    "tile.leave": _leave,
    "tile.return": _return,
    "tile.yield": _nothing,
    "tile.condition": _nothing,
}


def _written(kernel: Operation) -> frozenset[Value]:
    """Arrays that the kernel stores to or updates."""
    return frozenset(
        o.operands[ACCESSES[o.name]]
        for o in kernel.walk()
        if o.name in ACCESSES and o.name in WRITES
    )


def uniformity(kernel: Operation) -> Uniformity:
    """Uniformity of one ``tile.kernel``."""
    region = kernel.regions[0]
    walk = _Walk(_written(kernel), kernel.integers("group"))
    walk.settled = settled_reads(kernel)
    walk.result.written = walk.written
    for argument in region.arguments:
        walk.result.levels[argument] = Level.UNIFORM
    while walk.changed:
        walk.changed = False
        walk.pending.clear()
        walk.targets = [_Target(kernel, 0)]
        walk.block(region)
    return walk.result
