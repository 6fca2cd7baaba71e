"""Which power of two divides a number of a kernel: where tiles begin.

Owns the arithmetic of divisors over constants, sizes of the launch and variables of loops. Must
not know what needs them.
"""

from __future__ import annotations

from math import gcd

from tessera_lang.ir.core import Operation, Value
from tessera_lang.opt.schedule.query.kernel_facts import FOR, Facts
from tessera_lang.types.dtype import INDEX, DType

_ALL = 1 << 20  # divides 0, as far as anybody asks


def divisor_of(value: Value, facts: Facts) -> int:
    """A power of two that surely divides a number; 1 where nothing is known. Integers that wrap
    keep it."""
    if not isinstance(value.type, DType) or value.type.is_float:
        return 1
    number = _number(value, facts)
    if number is not None:
        return min(number & -number, _ALL) if number else _ALL
    operation = facts.definitions.get(value)
    if operation is None:
        return _argument(value, facts) or _variable(value, facts)
    if operation.name in ("tile.add", "tile.sub", "tile.min", "tile.max"):
        return gcd(*(divisor_of(v, facts) for v in operation.operands))
    if operation.name == "tile.select":
        return gcd(*(divisor_of(v, facts) for v in operation.operands[1:]))
    if operation.name == "tile.cast":
        return divisor_of(operation.operands[0], facts)
    if operation.name == "tile.mul":
        a, b = (divisor_of(v, facts) for v in operation.operands)
        return min(a * b, _ALL)
    if operation.name == "tile.floordiv":
        whole, by = divisor_of(operation.operands[0], facts), _number(operation.operands[1], facts)
        return whole // abs(by) if by and whole % abs(by) == 0 else 1
    return 1


def _number(value: Value, facts: Facts) -> int | None:
    """The number a value is, where it is a constant or divides constants; a head of ``c // H``
    elements begins at multiples of that. None where it is neither."""
    number, made = facts.constant(value), facts.definitions.get(value)
    if number is not None or made is None or made.name not in ("tile.floordiv", "tile.mul"):
        return number
    if value.type != INDEX:
        return None  # may wrap
    a, b = (_number(v, facts) for v in made.operands)
    if a is None or b is None or (made.name == "tile.floordiv" and not b):
        return None
    return a * b if made.name == "tile.mul" else a // b


def _argument(value: Value, facts: Facts) -> int:
    """Of an argument of the kernel; 0 for other values."""
    if value not in facts.arguments:
        return 0
    divisors, place = facts.kernel.integers("divisors"), facts.arguments.index(value)
    return divisors[place] if place < len(divisors) else 1


def _variable(value: Value, facts: Facts) -> int:
    """Of the variable of a loop: what divides where it begins, and its steps."""
    for loop, _ in facts.loops:
        for region in loop.regions:
            if value in region.arguments:
                return _of_loop(loop, region.arguments.index(value), facts)
    return 1


def _carried(loop: Operation, place: int, first: int, facts: Facts) -> int:
    """Of a number that a loop carries: what divides it at first, where each iteration only adds
    what it divides too."""
    last = loop.regions[-1].terminator
    inner = loop.regions[-1].arguments
    at = len(inner) - (len(loop.operands) - first) + place
    if last.name != "tile.yield" or loop.holds("tile.continue"):
        return 1
    if loop.name == "tile.while" and not _hands_on(loop):
        return 1
    steps = _steps(last.operands[place], inner[at], facts)
    return 1 if steps is None else gcd(divisor_of(loop.operands[first + place], facts), *steps)


def _steps(value: Value, carried: Value, facts: Facts) -> list[int] | None:
    """By which numbers a value is more or less than what is carried, whichever way it is made;
    None where it is made otherwise."""
    if value is carried:
        return []
    made = facts.definitions.get(value)
    if made is None:
        return None
    if made.name == "tile.if":
        at, found = made.results.index(value), list[int]()
        for region in made.regions:
            steps = _steps(region.terminator.operands[at], carried, facts)
            if region.terminator.name != "tile.yield" or steps is None:
                return None
            found += steps
        return found
    if made.name not in ("tile.add", "tile.sub"):
        return None
    before, number = made.operands
    known = facts.constant(number)
    if known is None and made.name == "tile.add":
        before, known = number, facts.constant(before)
    steps = None if known is None else _steps(before, carried, facts)
    return None if steps is None or known is None else [*steps, abs(known)]


def _hands_on(loop: Operation) -> bool:
    """Whether the condition of a ``while`` hands on what it is given."""
    head = loop.regions[0]
    return head.terminator.operands[1:] == head.arguments


def _of_loop(loop: Operation, place: int, facts: Facts) -> int:
    axes = len(loop.strings("axes")) if loop.name == FOR else 0
    if loop.name == "tile.for":
        axes = 1
    if place >= axes:
        return _carried(loop, place - axes, 3 * axes, facts)
    lower, step = loop.operands[place], loop.operands[2 * axes + place]
    return gcd(divisor_of(lower, facts), divisor_of(step, facts))
