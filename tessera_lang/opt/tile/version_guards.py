"""The pass ``version_guards``: guards that one test decides, ahead of loops and of neighbours.

A group of accesses becomes an ``if``: where the test holds they are ``proved``, on the other side
everything is as it was, guard by guard, so what is reported stays the same. A loop that is inside
up to some iteration becomes two, one behind the other. Must not know what makes a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessera_lang.analysis import ranges
from tessera_lang.analysis.guards.bounds_conditions import Sum
from tessera_lang.analysis.guards.guard_groups import Group, GroupFinder, is_guarded
from tessera_lang.analysis.guards.hoistable_values import KernelValues
from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.ir.rewrite import clone_operation, clone_region, replace_values
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.tuned_constants import COPIED_OPERATIONS
from tessera_lang.types.dtype import BOOL, INDEX, DType


def version_guards(program: Program) -> Program:
    """Kernels in which groups of guarded accesses are in two versions, chosen by one test."""
    operations = tuple(_kernel(kernel) for kernel in program.operations)
    if all(a is b for a, b in zip(operations, program.operations, strict=True)):
        return program
    return replace(program, operations=operations)


def _kernel(kernel: Operation) -> Operation:
    if kernel.name != "tile.kernel" or not any(is_guarded(o) for o in kernel.walk()):
        return kernel
    known = ranges(kernel, wanted={"values"})
    versions = _Versions(GroupFinder(KernelValues(kernel, known)))
    operations = versions.block(kernel.regions[0].operations, frozenset())
    if versions.left == COPIED_OPERATIONS:
        return kernel
    body = replace(kernel.regions[0], operations=operations)
    return replace(kernel, regions=(_without_unread(body, set()),))


@dataclass(slots=True)
class _Versions:
    finder: GroupFinder
    left: int = COPIED_OPERATIONS

    def block(
        self, operations: Sequence[Operation], settled: frozenset[Operation]
    ) -> tuple[Operation, ...]:
        """A block with its groups in two versions; ``settled`` accesses are inside already."""
        out: list[Operation] = []
        renamed: dict[Value, Value] = {}
        at = 0
        for group in self.finder.groups(operations, settled):
            part = operations[group.start : group.stop]
            given = _read_behind(part, operations[group.stop :])
            size = sum(1 for o in part for _ in o.walk())
            if given is None or size > self.left:
                continue
            self.left -= size
            given += tuple(v for o in part for v in o.results if v not in given and _is_whole(v))
            out += (self._plain(o, settled) for o in operations[at : group.start])
            if group.bounds:
                out += self._split(group, part[0], settled)
                given = part[0].results
            else:
                out += self._two(group, part, given, settled)
            renamed.update(zip(given, out[-1].results, strict=True))
            at = group.stop
        out += (self._plain(o, settled) for o in operations[at:])
        return replace_values(tuple(out), renamed)

    def _plain(self, operation: Operation, settled: frozenset[Operation]) -> Operation:
        """An operation of no group: what it holds may have some."""
        regions = tuple(
            replace(region, operations=self.block(region.operations, settled))
            for region in operation.regions
        )
        return replace(_marked(operation, settled), regions=regions) if regions else (
            _marked(operation, settled)
        )  # fmt: skip

    def _two(
        self, group: Group, part: Sequence[Operation], given: tuple[Value, ...],
        settled: frozenset[Operation],
    ) -> list[Operation]:  # fmt: skip
        """The test and both versions of a group, which define values of their own."""
        test = _Test()
        condition = test.all(group)
        end = Operation("tile.yield", given)
        inside = self.block((*part, end), settled | group.accesses)
        one = self._plain if group.together else _marked
        outside = tuple(one(o, settled) for o in (*part, end))
        sides = tuple(clone_region(Region((), side)) for side in (inside, outside))
        made = tuple(Value(v.type, v.name) for v in given)
        return [*test.out, Operation("tile.if", (condition,), made, {}, sides, part[0].span)]

    def _split(
        self, group: Group, loop: Operation, settled: frozenset[Operation]
    ) -> list[Operation]:
        """The iterations of a loop that are inside, then all others."""
        lower, upper, step, *carried = loop.operands
        test = _Test()
        end = test.end(group, lower, upper)
        (region,) = loop.regions
        body = self.block(region.operations, settled | group.accesses)
        first = _loop((lower, end, step, *carried), loop, replace(region, operations=body))
        start = test.iteration(lower, end, step, self.finder.values.known.interval(step)[0])
        again = self._plain(loop, settled) if group.together else _marked(loop, settled)
        then = _loop((start, upper, step, *first.results), again, again.regions[0])
        return [*test.out[: test.ended], first, *test.out[test.ended :], then]


def _is_whole(value: Value) -> bool:
    """Whether tests further on may be about a value, though no operation reads it there: an index
    that is a sum is taken apart."""
    return isinstance(value.type, DType) and (value.type.is_integer or value.type == BOOL)


def _without_unread(region: Region, read: set[Value]) -> Region:
    """A block whose conditions give no more numbers than what ``read`` says, and what is read
    behind them within it, which ``read`` is told."""
    kept: list[Operation] = []
    for operation in reversed(region.operations):
        if operation.name == "tile.if":
            at = [i for i, v in enumerate(operation.results) if v in read or not _is_whole(v)]
            operation = _giving(operation, at)
        if operation.regions:
            inner = tuple(_without_unread(r, read) for r in operation.regions)
            operation = replace(operation, regions=inner)
        read.update(operation.operands)
        kept.append(operation)
    return replace(region, operations=tuple(reversed(kept)))


def _giving(condition: Operation, at: list[int]) -> Operation:
    """An ``if`` that gives these of its results only."""
    if len(at) == len(condition.results):
        return condition
    sides: list[Region] = []
    for region in condition.regions:
        *body, end = region.operations
        end = replace(end, operands=tuple(end.operands[i] for i in at))
        sides.append(replace(region, operations=(*body, end)))
    results = tuple(condition.results[i] for i in at)
    return replace(condition, results=results, regions=tuple(sides))


def _loop(operands: Sequence[Value], like: Operation, region: Region) -> Operation:
    """A loop with values of its own."""
    made = tuple(Value(v.type, v.name) for v in like.results)
    body = clone_region(region)
    return replace(like, operands=tuple(operands), results=made, regions=(body,))


def _marked(operation: Operation, settled: frozenset[Operation]) -> Operation:
    """An operation whose settled accesses are ``proved``."""
    if operation in settled:
        attributes = {k: v for k, v in operation.attributes.items() if k != "open"}
        return replace(operation, attributes={**attributes, "bounds": "proved", "site": -1})
    if not operation.regions or settled.isdisjoint(operation.walk()):
        return operation
    return replace(operation, regions=tuple(
        replace(r, operations=tuple(_marked(o, settled) for o in r.operations))
        for r in operation.regions
    ))  # fmt: skip


def _read_behind(
    part: Iterable[Operation], behind: Iterable[Operation]
) -> tuple[Value, ...] | None:  # fmt: skip
    """Values of operations that later ones read; None where one cannot be handed on."""
    read = {v for o in behind for inner in o.walk() for v in inner.operands}
    found = tuple(v for o in part for v in o.results if v in read)
    return found if all(isinstance(v.type, DType) for v in found) else None


@dataclass(slots=True)
class _Test:
    """The operations of a test."""

    out: list[Operation] = field(default_factory=list[Operation])
    ended: int = 0
    moved: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def all(self, group: Group) -> Value:
        """Whether all sums of a group are at least 0."""
        self.out += (clone_operation(o, self.moved) for o in group.moved)
        holds: Value | None = None
        for one in group.tests:
            found = self._holds(one)
            holds = found if holds is None else self._do("and", BOOL, holds, found)
        return self._do("constant", BOOL, value=True) if holds is None else holds

    def end(self, group: Group, lower: Value, upper: Value) -> Value:
        """Where the counter of a loop is no longer surely inside."""
        condition = self.all(group)
        end = upper
        for bound in group.bounds:
            most = self._sum(list(bound.most.terms), bound.most.constant)
            if bound.factor > 1:
                most = self._do("floordiv", INDEX, most, self._constant(bound.factor), site=-1)
            end = self._do("min", INDEX, end, self._do("add", INDEX, most, self._constant(1)))
        end = self._do("select", INDEX, condition, self._do("max", INDEX, end, lower), lower)
        self.ended = len(self.out)
        return end

    def iteration(self, lower: Value, end: Value, step: Value, by: int) -> Value:
        """The first counter that is not below an end."""
        if by == 1:
            return end
        room = self._do("sub", INDEX, end, lower)
        up = self._do("add", INDEX, room, self._constant(by - 1))
        iterations = self._do("floordiv", INDEX, up, step, site=-1)
        return self._do("add", INDEX, lower, self._do("mul", INDEX, iterations, step))

    def _holds(self, one: Sum) -> Value:
        """What is taken away, compared with what is there."""
        more = [(v, c) for v, c in one.terms if c > 0]
        less = [(v, -c) for v, c in one.terms if c < 0]
        there, away = max(one.constant, 0), max(-one.constant, 0)
        predicate = "le"
        if not more:
            there, away = one.constant, 0
        elif not less:
            there, away = 0, -one.constant
        elif away:
            predicate, away = "lt", away - 1
        operands = self._sum(less, away), self._sum(more, there)
        return self._do("cmp", BOOL, *operands, predicate=predicate)

    def _sum(self, terms: list[tuple[Value, int]], constant: int) -> Value:
        total: Value | None = None
        for value, factor in terms:
            term = self.moved.get(value, value)
            if factor != 1:
                term = self._do("mul", INDEX, term, self._constant(factor))
            total = term if total is None else self._do("add", INDEX, total, term)
        if total is None:
            return self._constant(constant)
        return self._do("add", INDEX, total, self._constant(constant)) if constant else total

    def _constant(self, value: int) -> Value:
        return self._do("constant", INDEX, value=value)

    def _do(self, name: str, dtype: DType, *operands: Value, **attributes: int | str) -> Value:
        made = Value(dtype)
        self.out.append(Operation(f"tile.{name}", operands, (made,), attributes))
        return made
