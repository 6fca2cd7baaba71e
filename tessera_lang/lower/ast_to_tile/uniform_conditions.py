"""Conditions and trip counts that are the same in all lanes, computed as those of lane 0.

``if t < 64`` in a group of 64, ``for j in range(t, n, 64)`` where 64 divides n: what is behind them
is reached by all lanes, and as it is written no analysis of single values shows it. The condition
of lane 0 stands for that of all, and the loop counts as it does in lane 0; each lane adds its
difference. Only kernels change whose barriers would be refused otherwise. Must not know the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.analysis import check_barriers, ranges, uniformity
from tessera_lang.analysis.lanes.alike_conditions import alike_conditions
from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity
from tessera_lang.ir.core import Operation, Program, Region, Value, ViewType
from tessera_lang.ir.definitions import LANE_IDS, LOOP_EXITS, is_number
from tessera_lang.ir.rewrite import Replacement, rewrite_operation
from tessera_lang.ir.tile.ops import WARP_OPS
from tessera_lang.record import dataclass, field, replace
from tessera_lang.types.dtype import INDEX, DType

_ROUNDS = 6  # each makes at least one loop or condition the same in all lanes
_MOST = 64  # operations that are copied for one value


def settle_conditions(program: Program) -> Program:
    """The program with such conditions of lane 0, where a barrier asks for that."""
    (kernel,) = program.operations
    for _ in range(_ROUNDS) if kernel.holds(("tile.barrier", *WARP_OPS)) else ():
        uniform = uniformity(kernel)
        if not check_barriers(kernel, uniform):
            break
        found = alike_conditions(kernel, uniform, ranges(kernel)).decided
        step = _Step(uniform, set(found))
        kernel = rewrite_operation(kernel, step)
        if not step.changed:
            break
    return program if kernel is program.operations[0] else replace(program, operations=(kernel,))


class _NotCopied(Exception):
    """A number of lane 0 cannot be had: it is made of memory, or comes out of control flow."""


@dataclass(slots=True)
class _LaneZero:
    """Copies of what a value is made of, with 0 in the place of the lane. ``known``: values of
    lane 0 that are there; ``missing``: called for what no operation makes."""

    uniform: Uniformity
    missing: Callable[[Value], Value]
    known: dict[Value, Value] = field(default_factory=dict[Value, Value])
    made: list[Operation] = field(default_factory=list[Operation])

    def of(self, value: Value) -> Value:
        if value in self.known:
            return self.known[value]
        if self.uniform.is_uniform(value):
            return value
        operation = self.uniform.definitions.get(value)
        if operation is None:
            found = self.missing(value)
        elif operation.name in LANE_IDS:
            found = self._append(Operation("tile.constant", (), (Value(INDEX),), {"value": 0}))
        elif operation.regions or not self._may_copy(operation) or len(self.made) >= _MOST:
            raise _NotCopied
        else:
            operands = tuple(
                self.of(v) if isinstance(v.type, DType) else v for v in operation.operands
            )
            copied = Value(value.type, value.name)
            found = self._append(replace(operation, operands=operands, results=(copied,)))
        self.known[value] = found
        return found

    def _may_copy(self, operation: Operation) -> bool:
        """What only computes, and reads of arrays that nobody writes."""
        if is_number(operation):
            return True
        array = operation.operands[0] if operation.name == "tile.load" else None
        is_view = array is not None and isinstance(array.type, ViewType)
        return is_view and array not in self.uniform.written

    def _append(self, operation: Operation) -> Value:
        self.made.append(operation)
        return operation.result


def _nothing(value: Value) -> Value:
    raise _NotCopied


@dataclass(slots=True)
class _Step:
    """The operations to rewrite are known by their spans and results, as those within them may
    be rewritten before them."""

    uniform: Uniformity
    decided: set[Operation]
    changed: bool = False
    _known: dict[object, Operation] = field(default_factory=dict[object, Operation])

    def __post_init__(self) -> None:
        self._known = {_key(o): o for o in self.decided}

    def __call__(self, operation: Operation) -> Replacement | None:
        if not operation.regions or _key(operation) not in self._known:
            return None
        rule = {"tile.if": self._if, "tile.for": self._for, "tile.while": self._while}
        try:
            made = rule[operation.name](operation)
        except _NotCopied:
            return None
        self.changed = True
        return made

    def _if(self, operation: Operation) -> Replacement:
        zero = _LaneZero(self.uniform, _nothing)
        condition = zero.of(operation.operands[0])
        made = replace(operation, operands=(condition, *operation.operands[1:]))
        return Replacement((*zero.made, made), operation.results)

    def _for(self, operation: Operation) -> Replacement:
        """The counter of lane 0, to which each lane adds how far it begins behind it."""
        zero = _LaneZero(self.uniform, _nothing)
        bounds = tuple(zero.of(v) for v in operation.operands[:3])
        region = operation.regions[0]
        counter = region.arguments[0]
        apart = Operation("tile.sub", (operation.operands[0], bounds[0]), (Value(counter.type),))
        first = Value(counter.type, counter.name)
        own = Operation("tile.add", (first, apart.result), (counter,), span=operation.span)
        body = Region((first, *region.arguments[1:]), (own, *region.operations))
        made = replace(operation, operands=(*bounds, *operation.operands[3:]), regions=(body,))
        return Replacement((*zero.made, apart, made), operation.results)

    def _while(self, operation: Operation) -> Replacement:
        """The loop carries the numbers of lane 0 beside those that its condition is made of."""
        if any(o.name in LOOP_EXITS for o in operation.walk()):
            raise _NotCopied
        wanted: dict[Value, None] = {}
        while True:
            before = len(wanted)
            made = self._carrying(operation, wanted)
            if len(wanted) == before:
                return made

    def _carrying(self, operation: Operation, wanted: dict[Value, None]) -> Replacement:
        """With the carried ``wanted`` of lane 0, to which those are added that are missing."""
        head, body = operation.regions
        carried = tuple(wanted)

        def missing(value: Value) -> Value:
            if value not in head.arguments:
                raise _NotCopied
            wanted[value] = None
            return value

        before = _LaneZero(self.uniform, _nothing)
        starts = dict(zip(head.arguments, operation.operands, strict=True))
        begin = [before.of(starts[a]) for a in carried]
        mine = [Value(a.type, a.name) for a in carried]
        at_head = _LaneZero(self.uniform, missing, dict(zip(carried, mine, strict=True)))
        condition, *passed = head.terminator.operands
        end = replace(head.terminator, operands=(at_head.of(condition), *passed, *mine))
        new_head = Region((*head.arguments, *mine), (*head.operations[:-1], *at_head.made, end))

        inside = [Value(a.type, a.name) for a in carried]
        here = dict(zip(carried, inside, strict=True))
        known = {b: here[v] for b, v in zip(body.arguments, passed, strict=True) if v in here}
        names = dict(zip(body.arguments, passed, strict=True))

        def lacking(value: Value) -> Value:
            return missing(names.get(value, value))

        in_body = _LaneZero(self.uniform, lacking, known)
        back = dict(zip(head.arguments, body.terminator.operands, strict=True))
        ahead = [in_body.of(back[a]) for a in carried]
        again = replace(body.terminator, operands=(*body.terminator.operands, *ahead))
        new_body = Region((*body.arguments, *inside), (*body.operations[:-1], *in_body.made, again))
        results = tuple(Value(a.type, a.name) for a in carried)
        made = Operation(
            operation.name, (*operation.operands, *begin), (*operation.results, *results),
            operation.attributes, (new_head, new_body), operation.span,
        )  # fmt: skip
        return Replacement((*before.made, made), operation.results)


def _key(operation: Operation) -> object:
    """What stays as it is when what is within an operation is rewritten."""
    first: Sequence[Value] = operation.regions[0].arguments
    return operation.name, operation.operands, operation.results, first, operation.span
