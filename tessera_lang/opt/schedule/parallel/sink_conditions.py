"""A condition around a loop becomes one inside of it, so that the loop's iterations are groups.

``if c: for i: A`` is ``for i: if c: A`` where the loop carries nothing and what stands beside it in
the condition only computes numbers; an ``else`` becomes a loop of its own. Must not know what a
loop does.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.opt.schedule.parallel.loop_nest_rewrites import joined, with_region
from tessera_lang.opt.schedule.query.array_dependence import FOR
from tessera_lang.record import replace
from tessera_lang.types.dtype import BOOL


def sink_all_conditions(program: Program) -> Program:
    """The program without conditions around the loops of its kernel, where that is the same."""
    return with_region(program, sink_conditions(program.operations[0].regions[0]))


def sink_conditions(region: Region) -> Region:
    """The region of a kernel without conditions around its loops, where that is the same."""
    out: list[Operation] = []
    for operation in region.operations:
        out += _sunk(operation)
    return Region(region.arguments, tuple(out))


def _sunk(operation: Operation) -> list[Operation]:
    if operation.name != "tile.if" or operation.results:
        return [operation]
    sides = [_side(sink_conditions(r)) for r in operation.regions]
    if any(s is None for s in sides) or not any(s and s[1] for s in sides):
        return [operation]
    out: list[Operation] = []
    condition = operation.operands[0]
    for number, side in enumerate(sides):
        assert side is not None
        numbers, loops = side
        out += numbers
        if number == 1 and loops:
            opposite = Value(BOOL)
            out.append(Operation("tile.not", (condition,), (opposite,), {}, (), operation.span))
            condition = opposite
        out += [_inside(loop, condition, operation) for loop in loops]
    return out


def _side(region: Region) -> tuple[list[Operation], list[Operation]] | None:
    """The numbers that a side computes, and its loops; None where there is something else."""
    numbers: list[Operation] = []
    loops: list[Operation] = []
    for operation in region.operations:
        if operation.name == FOR and not operation.results:
            loops.append(joined(operation))
        elif operation.name in TILE_OPS and TILE_OPS[operation.name].pure:
            numbers.append(operation)
        elif operation is region.terminator and operation.name == "tile.yield":
            continue
        else:
            return None
    return numbers, loops


def _inside(loop: Operation, condition: Value, around: Operation) -> Operation:
    """The loop, whose body runs where the condition holds."""
    (region,) = loop.regions
    end = region.terminator
    nothing = Region((), (replace(end, operands=()),))
    test = Operation(
        "tile.if", (condition,), (), {}, (Region((), region.operations), nothing), around.span
    )
    return replace(loop, regions=(Region(region.arguments, (test, end)),))
