"""Integer ranges: what each index can be, and which accesses are surely in bounds.

One walk over a kernel. A value is a linear expression over atoms (``linear.py``) with
facts from guards, loops and ids; what could wrap becomes an atom with the whole range of
its type, so a bound is never too narrow. Loops run to a fixpoint with widening. Must not
know passes, syntax or targets.

Premises: a size of an array is in 0 .. 2**48, a grid has at most 2**48 groups, and what
``tile.assume`` says; a launch has seen to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from itertools import count
from math import prod
from typing import cast

from tessera_lang.analysis.ranges.accesses import (
    ACCESSES,
    check_access,
    see_view,
    touch_whole,
)
from tessera_lang.analysis.ranges.linear import Interval, Linear, join, within
from tessera_lang.analysis.ranges.near_range_remainders import see_remainder
from tessera_lang.analysis.ranges.operation_rules import apply_rule, assume, divides_something
from tessera_lang.analysis.ranges.premises import see_premise
from tessera_lang.analysis.ranges.reads_again import reads_again
from tessera_lang.analysis.ranges.state import (
    EVERYTHING,
    BoundsVerdict,
    Ranges,
    Reads,
    State,
    Wanted,
    is_integer,
)
from tessera_lang.ir.core import Operation, Region, Value, ViewType
from tessera_lang.ir.definitions import LEAVES
from tessera_lang.record import dataclass, field
from tessera_lang.target.launch_plan import LARGEST_SIZE, SMALL_BYTES, SMALL_LANES, SMALL_SIZE
from tessera_lang.types.dtype import DType, integer_range

__all__ = ["ACCESSES", "ZERO_REPORTS", "BoundsVerdict", "Ranges", "ranges"]

ZERO_REPORTS = {"tile.floordiv": 1, "tile.mod": 1, "tile.for": 2}
"""Operations that report an operand of 0, with its position."""

_LEVELS = (-1, 0, 1, 31, 127, 1023, 65535, (1 << 31) - 1, LARGEST_SIZE)
_FAR = (0, (1 << 31) - 1, LARGEST_SIZE)
"""Bounds that widening stops at: first near ones, then few, then the limit of the type."""
_NEAR_ROUNDS, _FAR_ROUNDS, _MOST_ROUNDS = 4, 8, 40
_PATIENCE = 2000
"""Passes over bodies of loops before what still grows goes to the limit of its type at once."""


@dataclass(slots=True)
class _Loop:
    """A loop being run: what comes back to its head, and what leaves by ``break``."""

    arguments: tuple[Value, ...]
    starts: tuple[Linear | None, ...]
    above: set[int] = field(default_factory=set[int])  # arguments shown never below start
    below: set[int] = field(default_factory=set[int])
    back: list[list[Interval]] = field(default_factory=list[list[Interval]])
    left: list[list[Interval]] = field(default_factory=list[list[Interval]])
    failed_above: set[int] = field(default_factory=set[int])
    failed_below: set[int] = field(default_factory=set[int])


@dataclass(frozen=True, slots=True)
class _Settled:
    """What held at a loop's head when it was run last. A loop around it only ever learns less, so
    the next run goes on from here: from the start, nests would double the work with each loop."""

    bounds: dict[int, Interval]
    above: frozenset[int]
    below: frozenset[int]


_Snapshot = list[tuple[Linear | None, Interval]]


@dataclass(slots=True)
class _Walk(State):
    """The walk over regions: which loop and which scope an exit belongs to."""

    loops: list[_Loop] = field(default_factory=list[_Loop])
    leaves: list[list[_Snapshot]] = field(default_factory=list[list[_Snapshot]])
    settled: dict[Operation, _Settled] = field(default_factory=dict[Operation, _Settled])
    passes: int = 0
    again: dict[Operation, object] = field(default_factory=dict[Operation, object])
    observe: Callable[[State, Operation], None] | None = None

    def block(self, region: Region) -> None:
        for operation in region.operations:
            for value in operation.results:
                self.definitions[value] = operation
            rule = _CONTROL.get(operation.name)
            if rule is not None:
                rule(self, operation)
            elif operation.name in ACCESSES:
                check_access(self, operation)
                if operation in self.again:
                    self.define(operation.result, self._read_again(operation))
                if self.observe is not None and self.recording:
                    self.observe(self, operation)
            elif operation.name == "tile.view":
                see_view(self, operation)
            elif operation.name == "tile.assume":
                see_premise(self, operation)
            else:
                apply_rule(self, operation)
                touch_whole(self, operation)
            if self.recording and operation.name in ZERO_REPORTS:
                self._zero(operation)

    def _read_again(self, operation: Operation) -> Linear:
        """One atom for all reads of an element of which this one is taken to give the number."""
        array, *indices = operation.operands
        element = (self.again[operation], array, *map(self.form, indices))
        return self.atom(element, integer_range(cast("DType", operation.result.type)))

    def _zero(self, operation: Operation) -> None:
        value = operation.operands[ZERO_REPORTS[operation.name]]
        if is_integer(value):
            low, high = self.range(value)
            if low > 0 or high < 0 or divides_something(self, self.form(value)):
                self.result.nonzero.add(operation)
                if operation.name == "tile.mod" and "remainders" in self.wanted:
                    see_remainder(self, operation)


# --- control ------------------------------------------------------------------------------

_Side = tuple[_Snapshot, tuple[Linear, ...]]


def _snapshot(walk: _Walk, values: tuple[Value, ...]) -> _Snapshot:
    """Forms and bounds of values at this place; floats have none."""
    return [(walk.form(v), walk.range(v)) if is_integer(v) else (None, (0, 0)) for v in values]


def _side(walk: _Walk, region: Region, condition: Value, truth: bool) -> _Side | None:
    """Run one side of an ``if``; None where it exits."""
    mark, products = len(walk.known.facts), len(walk.products)
    assume(walk, condition, truth)
    walk.block(region)
    side: _Side | None = None
    if region.terminator.name not in LEAVES:
        values = _snapshot(walk, region.terminator.operands)
        side = (values, tuple(walk.known.facts[mark:]))
    del walk.known.facts[mark:], walk.products[products:]
    return side


def _if(walk: _Walk, operation: Operation) -> None:
    (condition,) = operation.operands
    then = _side(walk, operation.regions[0], condition, True)
    other = _side(walk, operation.regions[1], condition, False)
    if then is None or other is None:
        assume(walk, condition, other is None)
        remaining = then or other
        for value, item in zip(operation.results, remaining[0] if remaining else (), strict=False):
            if item[0] is not None:
                walk.define(value, item[0])
        return
    for i, value in enumerate(operation.results):
        a, b = then[0][i], other[0][i]
        if a[0] is None or b[0] is None:
            continue
        if a[0] == b[0]:
            walk.define(value, a[0])
            continue
        form = walk.atom(value, join((a[1], b[1])))
        walk.known.split(form.terms[0][0], ((a[0], then[1]), (b[0], other[1])))
        walk.define(value, form)


def _run_loop(
    walk: _Walk,
    operation: Operation,
    arguments: tuple[Value, ...],
    starts: tuple[Value, ...],
    body: Callable[[], None],
) -> _Loop:
    """Run a loop's body to a fixpoint of its arguments' bounds, then once for the record."""
    integers = [i for i, v in enumerate(arguments) if is_integer(v)]
    forms = tuple(walk.form(v) if is_integer(v) else None for v in starts)
    bounds = {i: walk.range(starts[i]) for i in integers}
    symbolic = {i for i in integers if (f := forms[i]) is not None and f.terms}
    loop = _Loop(arguments, forms, set(symbolic), set(symbolic))
    before = walk.settled.get(operation)
    if before is not None:
        bounds = {i: join((interval, before.bounds[i])) for i, interval in bounds.items()}
        loop.above &= before.above
        loop.below &= before.below
    walk.loops.append(loop)
    if before is None or not walk.recording:
        _settle(walk, operation, loop, bounds, body)
    if walk.recording:  # in a loop around it the last run, of which nothing grew, was this one
        _iterate(walk, loop, bounds, body)
    walk.loops.pop()
    return loop


def _settle(
    walk: _Walk, operation: Operation, loop: _Loop, bounds: dict[int, Interval],
    body: Callable[[], None],
) -> None:  # fmt: skip
    """Run a body until its bounds and invariants hold from one iteration to the next."""
    recording, walk.recording = walk.recording, False
    # It ends: bounds reach limits, invariants run out.
    for round_number in count(0 if walk.passes < _PATIENCE else _FAR_ROUNDS):
        _iterate(walk, loop, bounds, body)
        grown = _grow(loop, bounds, round_number)
        if not grown and not _drop(loop):
            break
        if round_number > _MOST_ROUNDS:
            _give_up(loop, bounds)
    walk.recording = recording
    kept = _Settled(dict(bounds), frozenset(loop.above), frozenset(loop.below))
    walk.settled[operation] = kept


def _iterate(
    walk: _Walk, loop: _Loop, bounds: dict[int, Interval], body: Callable[[], None]
) -> None:
    """One pass over the body with these bounds and the invariants still believed."""
    walk.passes += 1
    loop.back.clear()
    loop.left.clear()
    loop.failed_above.clear()
    loop.failed_below.clear()
    mark, products = len(walk.known.facts), len(walk.products)
    for i, interval in bounds.items():
        form = walk.atom(loop.arguments[i], interval)
        walk.define(loop.arguments[i], form)
        start = loop.starts[i]
        if start is not None and i in loop.above:
            walk.known.holds(form - start)
        if start is not None and i in loop.below:
            walk.known.holds(start - form)
    body()
    del walk.known.facts[mark:], walk.products[products:]


def _grow(loop: _Loop, bounds: dict[int, Interval], round_number: int) -> bool:
    """Widen the bounds by what came back; whether anything grew."""
    grown = False
    for i, (low, high) in list(bounds.items()):
        if not loop.back:
            break
        limits = integer_range(cast("DType", loop.arguments[i].type))
        # Where a condition cannot hold, what follows from it may be beyond the type.
        new = within(join([values[i] for values in loop.back] + [(low, high)]), limits)
        if new == (low, high):
            continue
        grown = True
        near, far = round_number < _NEAR_ROUNDS, round_number < _FAR_ROUNDS
        levels = _LEVELS if near else _FAR if far else ()
        bounds[i] = new if round_number == 0 else _widened((low, high), new, limits, levels)
    return grown


def _widened(old: Interval, new: Interval, limits: Interval, levels: tuple[int, ...]) -> Interval:
    """Each side that grew goes to the next level, or to the limit of the type."""
    low, high = new
    if new[0] < old[0]:
        low = max((-v for v in levels if -v <= new[0]), default=limits[0])
    if new[1] > old[1]:
        high = min((v for v in levels if v >= new[1]), default=limits[1])
    return within((low, high), limits)


def _give_up(loop: _Loop, bounds: dict[int, Interval]) -> None:
    """Nothing is believed any more: values that variables hand on come round one by one."""
    loop.above.clear()
    loop.below.clear()
    for i in bounds:
        bounds[i] = integer_range(cast("DType", loop.arguments[i].type))


def _drop(loop: _Loop) -> bool:
    """Give up invariants that did not hold; whether any was."""
    before = len(loop.above) + len(loop.below)
    loop.above -= loop.failed_above
    loop.below -= loop.failed_below
    return len(loop.above) + len(loop.below) != before


def _body(walk: _Walk, region: Region) -> None:
    walk.block(region)
    if region.terminator.name == "tile.yield":
        _next(walk, region.terminator)


def _for(walk: _Walk, operation: Operation) -> None:
    lower, upper, step = (walk.form(v) for v in operation.operands[:3])
    region = operation.regions[0]
    counter = region.arguments[0]

    def body() -> None:
        low, high = walk.known.range(lower), walk.known.range(upper)
        by = walk.known.range(step)
        mark = len(walk.known.facts)
        if by[0] >= 1:
            last = _last(low, high[1] - 1, by)
            form = walk.atom(counter, (low[0], max(low[0], last)))
            walk.known.holds(form - lower)
            walk.known.holds((upper - form).shifted(-1))
            if by[0] == by[1] > 1:
                _whole_steps(walk, form, lower, upper, by[0])
        elif by[1] <= -1:
            last = -_last((-low[1], -low[0]), -high[0] - 1, (-by[1], -by[0]))
            form = walk.atom(counter, (min(low[1], last), low[1]))
            walk.known.holds(lower - form)
            walk.known.holds((form - upper).shifted(-1))
        else:
            form = walk.atom(counter, join((low, high)))
        walk.define(counter, form)
        _body(walk, region)
        del walk.known.facts[mark:]

    starts = operation.operands[3:]
    loop = _run_loop(walk, operation, region.arguments[1:], starts, body)
    for i, value in enumerate(operation.results):
        if not is_integer(value):
            continue
        last = walk.known.intervals[walk.atoms[loop.arguments[i]]]
        form = walk.atom(value, join([last, *(left[i] for left in loop.left)]))
        start = loop.starts[i]
        if not loop.left and start is not None:
            if i in loop.above:
                walk.known.holds(form - start)
            if i in loop.below:
                walk.known.holds(start - form)
        walk.define(value, form)


def _last(start: Interval, most: int, step: Interval) -> int:
    """The last number that a counter may be: where it begins is one number, and so is its step, it
    is so many steps on."""
    if start[0] == start[1] and step[0] == step[1]:
        return start[0] + (most - start[0]) // step[0] * step[0]
    return most


def _whole_steps(walk: _Walk, counter: Linear, lower: Linear, upper: Linear, step: int) -> None:
    """What is left to the end counts in whole steps: of ``upper - lower`` what is no multiple of
    the step is rounded down."""
    room = (upper - lower).shifted(-1)
    multiple = Linear(tuple(term for term in room.terms if term[1] % step == 0))
    if room.terms:
        rest = walk.known.range(room - multiple, 2)[1] // step * step
        walk.known.holds((lower + multiple - counter).shifted(rest))


def _while(walk: _Walk, operation: Operation) -> None:
    head, body_region = operation.regions

    def body() -> None:
        walk.block(head)
        condition, *values = head.terminator.operands
        mark = len(walk.known.facts)
        assume(walk, condition, False)
        walk.loops[-1].left.append([item[1] for item in _snapshot(walk, tuple(values))])
        del walk.known.facts[mark:]
        assume(walk, condition, True)
        for argument, value in zip(body_region.arguments, values, strict=True):
            if is_integer(value):
                walk.define(argument, walk.form(value))
        _body(walk, body_region)

    loop = _run_loop(walk, operation, head.arguments, operation.operands, body)
    for i, value in enumerate(operation.results):
        if is_integer(value):
            form = walk.atom(value, join(left[i] for left in loop.left))
            walk.define(value, form)


def _scope(walk: _Walk, operation: Operation) -> None:
    walk.leaves.append([])
    mark, products = len(walk.known.facts), len(walk.products)
    walk.block(operation.regions[0])
    leaves = walk.leaves.pop()
    if len(leaves) != 1:
        del walk.known.facts[mark:], walk.products[products:]
    for i, value in enumerate(operation.results):
        if not is_integer(value) or not leaves:
            continue
        form = leaves[0][i][0]
        if len(leaves) > 1 or form is None:
            form = walk.atom(value, join(leaf[i][1] for leaf in leaves))
        walk.define(value, form)


def _leave(walk: _Walk, operation: Operation) -> None:
    walk.leaves[-1].append(_snapshot(walk, operation.operands))


def _next(walk: _Walk, operation: Operation) -> None:
    """``continue``, or the ``yield`` of a loop body."""
    loop = walk.loops[-1]
    loop.back.append([item[1] for item in _snapshot(walk, operation.operands)])
    for i in sorted(loop.above | loop.below):
        start, value = loop.starts[i], walk.form(operation.operands[i])
        if start is None:
            continue
        if i in loop.above and not walk.known.proves(value - start):
            loop.failed_above.add(i)
        if i in loop.below and not walk.known.proves(start - value):
            loop.failed_below.add(i)


def _break(walk: _Walk, operation: Operation) -> None:
    loop = walk.loops[-1]
    loop.left.append([item[1] for item in _snapshot(walk, operation.operands)])


def _nothing(walk: _Walk, operation: Operation) -> None:
    pass


_CONTROL: dict[str, Callable[[_Walk, Operation], None]] = {
    "tile.if": _if,
    "tile.for": _for,
    "tile.while": _while,
    "tile.scope": _scope,
    "tile.leave": _leave,
    "tile.continue": _next,
    "tile.break": _break,
    "tile.return": _nothing,
    "tile.condition": _nothing,
    "tile.yield": _nothing,
}


def ranges(
    kernel: Operation, observe: Callable[[State, Operation], None] | None = None,
    wanted: Set[Wanted] = EVERYTHING, reads: Reads = "apart",
) -> Ranges:  # fmt: skip
    """Ranges of one ``tile.kernel``. ``observe`` is called at each access, with what is known.
    ``reads``: a pass may not build on other than those apart, as the code reads twice."""
    group, rank = kernel.integers("group"), cast("int", kernel.attributes["grid_rank"])
    walk = _Walk(group, rank, observe=observe, wanted=wanted, reads=reads)
    walk.again = reads_again(kernel, reads)
    if kernel.attributes.get("small"):
        walk.largest_size, walk.most_groups = SMALL_SIZE, (SMALL_LANES - 1) // prod(group)
        walk.most_elements = SMALL_BYTES - 1
    region = kernel.regions[0]
    told = kernel.integers("sizes")
    sizes = dict.fromkeys(region.arguments[i] for i in told)
    for operation in region.operations:
        if operation.name == "tile.view":
            rank = len(cast("ViewType", operation.result.type).shape)
            sizes.update(dict.fromkeys(operation.operands[1 : 1 + rank]))
    for argument in region.arguments:
        if argument in sizes:
            walk.define(argument, walk.atom(argument, (0, walk.largest_size)))
    walk.block(region)
    return walk.result
