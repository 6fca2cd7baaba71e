"""The remainder of a number that is hardly outside a range, without division.

Where ranges show that ``a`` lies between ``-b`` and ``2 * b``, ``a % b`` is ``a``, or ``a + b``
below 0, or ``a - b`` from ``b`` on: a neighbour on a ring. A multiple of ``b`` in ``a`` is taken
off first, so that ``(i + n - 1) % n`` is ``i - 1`` but at the border. Needs ranges; gives the same
bits. Must not know targets.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.analysis import ranges
from tessera_lang.analysis.ranges.state import Wrap
from tessera_lang.analysis.uniformity.lane_uniformity import uniformity
from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.ir.rewrite import Replacement, rewrite_program
from tessera_lang.types.dtype import BOOL, INDEX


def near_range_remainders(program: Program) -> Program:
    """Each remainder of which ranges show this becomes comparisons; others stay.

    An index that differs between lanes becomes an ``if`` or two, of which a target may know one
    side for all lanes of a group; other numbers are selected.
    """
    found: dict[Value, Wrap] = {}
    branches: set[Value] = set()
    for kernel in program.operations:
        if _has_division(kernel):  # the ranges of a whole kernel are dear
            wraps = ranges(kernel, wanted={"remainders"}).wraps
            uniform = uniformity(kernel)
            found.update(wraps)
            branches.update(v for v in wraps if v.type == INDEX and not uniform.is_uniform(v))

    def step(operation: Operation) -> Replacement | None:
        wrap = found.get(operation.result) if operation.name == "tile.mod" else None
        choose = _if if wrap is not None and operation.result in branches else _select
        return None if wrap is None else _wrapped(operation, wrap, choose)

    return rewrite_program(program, step) if found else program


def _has_division(kernel: Operation) -> bool:
    """Whether some remainder is by a number that is not known as a power of two."""
    cheap = {
        op.result
        for op in kernel.walk()
        if op.name == "tile.constant"
        and isinstance(value := op.attributes["value"], int)
        and value > 0
        and value & (value - 1) == 0
    }
    return any(op.name == "tile.mod" and op.operands[1] not in cheap for op in kernel.walk())


Choose = Callable[[list[Operation], Value, Operation, Value], Value]
"""Adds what gives the result of an operation where a condition holds, else another value."""


def _wrapped(operation: Operation, wrap: Wrap, choose: Choose) -> Replacement:
    a, b = operation.operands
    out: list[Operation] = []

    def made(name: str, *operands: Value) -> Value:
        result = Value(a.type, operation.result.name)
        out.append(Operation(name, operands, (result,)))
        return result

    if wrap.multiple:
        a = made("tile.sub" if wrap.multiple > 0 else "tile.add", a, b)
    found = a
    if wrap.below:
        zero = Value(a.type)
        out.append(Operation("tile.constant", (), (zero,), {"value": 0}))
        condition = _compared(out, "lt", a, zero)
        found = choose(out, condition, Operation("tile.add", (a, b), (Value(a.type),)), found)
    if wrap.above:
        condition = _compared(out, "ge", a, b)
        found = choose(out, condition, Operation("tile.sub", (a, b), (Value(a.type),)), found)
    return Replacement(tuple(out), (found,))


def _compared(out: list[Operation], predicate: str, a: Value, bound: Value) -> Value:
    condition = Value(BOOL)
    out.append(Operation("tile.cmp", (a, bound), (condition,), {"predicate": predicate}))
    return condition


def _if(out: list[Operation], condition: Value, moved: Operation, other: Value) -> Value:
    result = Value(other.type)
    then = Region((), (moved, Operation("tile.yield", (moved.result,))))
    sides = then, Region((), (Operation("tile.yield", (other,)),))
    out.append(Operation("tile.if", (condition,), (result,), regions=sides))
    return result


def _select(out: list[Operation], condition: Value, moved: Operation, other: Value) -> Value:
    result = Value(other.type)
    out += moved, Operation("tile.select", (condition, moved.result, other), (result,))
    return result
