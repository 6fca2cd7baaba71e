"""Dead code of Graph IR: every operator is pure, so what nothing uses goes."""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.record import replace


def remove_dead_code(program: Program) -> Program:
    """Without the operations that no result needs; the program itself where all are needed."""
    functions = tuple(map(without_unused, program.operations))
    same = all(a is b for a, b in zip(functions, program.operations, strict=True))
    return program if same else replace(program, operations=functions)


def without_unused(function: Operation) -> Operation:
    """A function without the operations that no result needs."""
    (body,) = function.regions
    needed = set[Value](body.terminator.operands)
    kept: list[Operation] = []
    for operation in reversed(body.operations[:-1]):
        if needed.intersection(operation.results):
            needed.update(operation.operands)
            kept.append(operation)
    if len(kept) + 1 == len(body.operations):
        return function
    region = Region(body.arguments, (*reversed(kept), body.terminator))
    return replace(function, regions=(region,))
