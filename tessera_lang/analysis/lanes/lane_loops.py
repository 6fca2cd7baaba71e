"""Loops in a walk for all lanes of a group at once.

A loop whose bounds are known, and not long, runs as it would. Any other runs for any iteration
and the one after it. Must not know what is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import lcm

from tessera_lang.analysis.lanes.lane_forms import Form, Mask, Space
from tessera_lang.analysis.lanes.lane_state import LaneWalk, Target, exact_within
from tessera_lang.analysis.lanes.shared_access_log import Log
from tessera_lang.analysis.ranges.linear import Linear
from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.types.dtype import DType

UNCERTAIN_ROUNDS = 72  # of a loop that may end at any: enough for 64 halvings or doublings
LOOP_STEPS = 6000  # operations of a loop that is run round by round
_FAR = 1 << 40
_MOST_ROUNDS = 1 << 56  # no loop has run as often yet
MOST_RESIDUES = 6  # of a counter that are looked at one by one


def _iteration(walk: LaneWalk, target: Target, start: Mask, region: Region) -> None:
    """The body once; afterwards the lanes of the next iteration are in the mask, and
    ``target.back`` has what they carry."""
    target.back.clear()
    target.back_barriers.clear()
    walk.mask = start
    walk.block(region)
    if walk.mask.may:
        forms = tuple(walk.rules.form(v) for v in region.terminator.operands)
        target.back.append((walk.mask, forms))
        target.back_barriers.append(walk.memory.barriers)
    target.paused = 0
    walk.memory.join_ways(target.back_ways)
    target.back_ways.clear()
    may = 0
    for mask, _ in target.back:
        may |= mask.may
    walk.mask = Mask(start.must & may & ~walk.gone(), may)


def _carry(walk: LaneWalk, target: Target, arguments: Sequence[Value]) -> None:
    for i, value in enumerate(arguments):
        walk.rules.forms[value] = walk.merge(value, [(m, f[i]) for m, f in target.back])


def _end(walk: LaneWalk, target: Target, before: Mask, results: Sequence[Value]) -> None:
    """After a loop: who left it, with what."""
    walk.targets.pop()
    walk.memory.join_ways(target.left_ways)
    may = 0
    for mask, _ in target.left:
        may |= mask.may
    walk.mask = Mask(before.must & may & ~walk.gone(), may)
    for i, value in enumerate(results):
        walk.rules.forms[value] = walk.merge(value, [(m, f[i]) for m, f in target.left])


def run_for(walk: LaneWalk, operation: Operation) -> None:
    matters = walk.relevant(operation)
    if not matters and not (walk.thorough and any(_is_integer(v) for v in operation.results)):
        walk.havoc(operation.results)
        return
    lower, upper, step = (walk.rules.form(v) for v in operation.operands[:3])
    space = walk.space
    target, before = Target(operation), walk.mask
    walk.targets.append(target)
    arguments = operation.regions[0].arguments[1:]
    for argument, value in zip(arguments, operation.operands[3:], strict=True):
        walk.rules.forms[argument] = walk.rules.form(value)
    by = step.constant if isinstance(step, Linear) and not step.terms else 0
    if by and isinstance(lower, Linear) and isinstance(upper, Linear):
        trips = _trips(space, upper - lower, by) if space.known(upper - lower) else None
        if trips is not None and _is_short(operation, max(trips)):
            _known_for(walk, target, lower, by, trips)
            _end(walk, target, before, operation.results)
            return
    if not matters:
        walk.targets.pop()
        walk.havoc(operation.results)
        return
    _any_for(walk, target, lower, upper, by)
    _end(walk, target, before, ())
    walk.mask = Mask(before.must & ~walk.gone(), before.may)
    walk.havoc(operation.results)


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, DType) and value.type.is_integer


def _trips(space: Space, distance: Linear, by: int) -> list[int]:
    return [max(0, -(-d // by)) for d in space.split(distance)[1]]


def _is_short(loop: Operation, trips: int) -> bool:
    """Whether a loop can be run round by round; one that may be left early costs more."""
    inside = list(loop.walk())
    if trips > UNCERTAIN_ROUNDS and any(o.name in ("tile.break", "tile.leave") for o in inside):
        return False
    return trips * len(inside) <= LOOP_STEPS


def _known_for(walk: LaneWalk, target: Target, lower: Linear, by: int, trips: list[int]) -> None:
    region = target.operation.regions[0]
    arguments = region.arguments[1:]
    for j in range(max(trips) + 1):
        lanes = sum(1 << i for i, n in enumerate(trips) if n > j) if j >= min(trips) else -1
        here = walk.mask
        over = Mask(here.must & ~lanes, here.may & ~lanes)
        if over.may:
            target.left.append((over, tuple(walk.rules.form(a) for a in arguments)))
        start = Mask(here.must & lanes, here.may & lanes)
        if not start.may:
            break
        walk.rules.forms[region.arguments[0]] = lower.shifted(j * by)
        _iteration(walk, target, start, region)
        _carry(walk, target, arguments)


def _any_for(walk: LaneWalk, target: Target, lower: Form, upper: Form, by: int) -> None:
    """Any iteration, then the next one; or, where lanes do not wait for each other in it,
    then any later one."""
    operation, space = target.operation, walk.space
    region = operation.regions[0]
    counter = region.arguments[0]
    uniform = walk.rules.uniformity.is_uniform(counter)
    interval = walk.rules.ranges.interval(counter)
    if by > 0 and isinstance(lower, Linear):
        start = space.range(lower)[1]
        interval = interval[0], max(interval[0], min(interval[1], start + by * _MOST_ROUNDS))
    first: Form = None
    if uniform:
        first = space.symbol(None, interval)
    elif by and isinstance(lower, Linear):
        first = lower + space.symbol(None, (0, _FAR)).scaled(by)
    mark, before = len(walk.facts), walk.mask

    def begin(form: Form) -> None:
        walk.rules.forms[counter] = form
        if isinstance(form, Linear) and by:
            for bound, sign, off in ((lower, 1, 0), (upper, -1, 1)):
                if isinstance(bound, Linear):
                    shifted = (form - bound).scaled(sign if by > 0 else -sign)
                    walk.facts.append(shifted.shifted(-off))

    def second(first: Form, waited: bool) -> Form:
        if not isinstance(first, Linear) or not by:
            return walk.rules.unknown(counter)
        far = Linear((), 1) if waited else space.symbol(None, (1, _FAR))
        return first + far.scaled(by)

    entry = walk.memory.way()
    logs: list[Log] = []

    def run(one: Form) -> bool:
        walk.memory.log = {}
        walk.memory.join(entry[0])
        walk.mask = before
        waited = _twice(
            walk, target, region.arguments[1:],
            (lambda: begin(one), lambda w: begin(second(one, w))), region,
        )  # fmt: skip
        logs.append(walk.memory.log)
        del walk.facts[mark:]
        return waited

    asked = uniform and walk.thorough
    all_wait = [run(one) for one in (_by_residue(space, operation, interval) if asked else [])]
    if not all_wait or not all(all_wait):
        run(first)  # past an iteration that does not wait, one meets more than the next
    walk.memory.join(*logs[:-1])


def _by_residue(space: Space, loop: Operation, interval: tuple[int, int]) -> list[Linear]:
    """A counter that is any number, once for each remainder that the loop asks for, in order: of
    ``k % 2`` it is then known in which iterations it is what. Empty where it asks for none."""
    modulus = 1
    numbers: dict[Value, int] = {}
    for o in loop.walk():
        held = o.attributes.get("value") if o.name == "tile.constant" else None
        if isinstance(held, int):
            numbers[o.result] = held
    for o in loop.walk():
        number = numbers.get(o.operands[-1], 0) if o.operands else 0
        if o.name == "tile.and":
            number = number + 1 if number & (number + 1) == 0 else 0
        elif o.name != "tile.mod":
            continue
        if 1 < number <= MOST_RESIDUES and lcm(modulus, number) <= MOST_RESIDUES:
            modulus = lcm(modulus, number)
    low, high = interval
    if modulus == 1 or high - low < 2 * modulus:
        return []
    found: list[Linear] = []
    for rest in range(modulus):
        least, most = -(-(low - rest) // modulus), (high - rest) // modulus
        found.append(space.symbol(None, (least, most)).scaled(modulus).shifted(rest))
    return found


_Begin = tuple[Callable[[], None], Callable[[bool], None]]


def _twice(
    walk: LaneWalk, target: Target, carried: Sequence[Value], begin: _Begin, region: Region,
    head: Callable[[], None] = lambda: None,
) -> bool:  # fmt: skip
    """Two iterations after any number of others; whether lanes wait for each other in the first,
    on every way that comes to the second."""
    memory, before = walk.memory, walk.mask
    entry, written = memory.copied_log(), memory.surely_written()
    passed = memory.barriers
    mark = len(walk.facts)
    walk.havoc(carried)
    begin[0]()
    head()
    _iteration(walk, target, walk.mask, region)
    waited = min(target.back_barriers, default=passed) > passed
    if walk.mask.may:
        walk.mask = before
        after_one = memory.copied_log()
        if waited:
            _carry(walk, target, carried)
        else:
            walk.havoc(carried)
        del walk.facts[mark:]
        begin[1](waited)
        head()
        _iteration(walk, target, walk.mask, region)
        memory.join(after_one)
    del walk.facts[mark:]
    memory.join(entry)
    memory.keep_sure(written)
    memory.barriers = passed
    target.left.append((before, ()))
    return waited


def run_while(walk: LaneWalk, operation: Operation) -> None:
    if not walk.relevant(operation):
        walk.havoc(operation.results)
        return
    head, body = operation.regions
    target, before = Target(operation), walk.mask
    walk.targets.append(target)
    for argument, value in zip(head.arguments, operation.operands, strict=True):
        walk.rules.forms[argument] = walk.rules.form(value)
    exits: list[Log] = []
    seen: list[tuple[Form, ...]] = []
    sure = walk.memory.surely_written()
    begun = walk.steps
    while walk.mask.may:
        state = _state(walk, head.arguments)
        long = walk.steps - begun > LOOP_STEPS or len(target.left_ways) > UNCERTAIN_ROUNDS
        if long or (seen and _needs_any(walk, seen, state)):
            _any_while(walk, target, before)
            walk.memory.join(*exits)
            walk.memory.keep_sure(sure)
            _end(walk, target, before, ())
            walk.mask = Mask(before.must & ~walk.gone(), before.may)
            walk.havoc(operation.results)
            return
        if seen.count(state) > 1:
            break  # the one after it, too, has been run from the same state
        condition, values = _head(walk, head)
        leaving = walk.mask.without(condition)
        if leaving.may:
            target.left.append((leaving, tuple(walk.rules.form(v) for v in values)))
            if condition.both(walk.mask).may:
                exits.append(walk.memory.copied_log())
        if seen or not exact_within(condition, walk.mask):
            seen.append(state)
        start = walk.mask.both(condition)
        if not start.may:
            break
        _enter(walk, operation)
        mark = len(walk.facts)
        if seen:
            walk.assume(head.terminator.operands[0], True)
        if seen and walk.rules.uniformity.is_uniform(head.terminator.operands[0]):
            start = Mask(walk.mask.must & start.may, start.may)
        _iteration(walk, target, start, body)
        del walk.facts[mark:]
        _carry(walk, target, head.arguments)
    walk.memory.join(*exits)
    if seen:
        walk.memory.keep_sure(sure)
    _end(walk, target, before, operation.results)


def _state(walk: LaneWalk, arguments: Sequence[Value]) -> tuple[Form, ...]:
    """The integers that a loop carries."""
    return tuple(
        walk.rules.form(a) for a in arguments if isinstance(a.type, DType) and not a.type.is_float
    )


def _needs_any(walk: LaneWalk, seen: list[tuple[Form, ...]], state: tuple[Form, ...]) -> bool:
    """Whether going on one by one leads nowhere: unknowns, steps of one size, too many."""
    if len(seen) >= UNCERTAIN_ROUNDS:
        return True
    known = (
        walk.space.known(f) or f == s or (isinstance(f, Mask) and f.exact)
        for f, s in zip(state, seen[0], strict=True)
    )  # fmt: skip
    if not all(known):
        return True
    if len(seen) < 2 or state in seen:
        return False
    a, b = seen[-2:]
    for x, y, z in zip(a, b, state, strict=True):
        if isinstance(x, Linear) and isinstance(y, Linear) and isinstance(z, Linear):
            if y - x == z - y and y != x:
                return True
    return False


def _head(walk: LaneWalk, head: Region) -> tuple[Mask, tuple[Value, ...]]:
    walk.block(head)
    condition, *values = head.terminator.operands
    return walk.rules.mask(condition), tuple(values)


def _enter(walk: LaneWalk, operation: Operation) -> None:
    """The values that the head hands to the body."""
    head, body = operation.regions
    for argument, value in zip(body.arguments, head.terminator.operands[1:], strict=True):
        walk.rules.forms[argument] = walk.rules.form(value)


def _any_while(walk: LaneWalk, target: Target, before: Mask) -> None:
    operation = target.operation
    head, body = operation.regions
    walk.mask = Mask(before.must & ~walk.gone(), before.may)

    def enter() -> None:
        condition, _ = _head(walk, head)
        walk.mask = Mask(walk.mask.must, walk.mask.may & condition.may)
        _enter(walk, operation)
        walk.assume(head.terminator.operands[0], True)

    _twice(walk, target, head.arguments, (lambda: None, lambda waited: None), body, enter)
    # The head runs once more than the body.
    entry = walk.memory.copied_log()
    walk.mask = before
    _head(walk, head)
    walk.memory.join(entry)
