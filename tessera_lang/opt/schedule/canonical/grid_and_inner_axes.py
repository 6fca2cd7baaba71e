"""A loop some of whose axes are groups becomes two: the groups, and inside them the other axes.

The axes that are groups are independent, so their order among the others says nothing. Must not
know machines.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Attribute, Operation, Program
from tessera_lang.opt.schedule.query.decision_context import Context, rewrites
from tessera_lang.opt.schedule.query.kernel_facts import FOR, kernel_of
from tessera_lang.record import replace


@rewrites
def split_grid_loop(program: Program, context: Context) -> Program:
    """The program without mixed loops; on a CPU they do not matter."""
    return program if context.machine.target == "cpu" else separate(program)


def separate(program: Program) -> Program:
    """The program without mixed loops at the top of its kernel; itself where it has none."""
    kernel = kernel_of(program)
    region = kernel.regions[0]
    operations = tuple(_separated(o) for o in region.operations)
    if all(a is b for a, b in zip(operations, region.operations, strict=True)):
        return program
    whole = replace(kernel, regions=(replace(region, operations=operations),))
    return replace(program, operations=(whole,))


def _separated(loop: Operation) -> Operation:
    mapping = loop.strings("mapping")
    spread = [i for i, how in enumerate(mapping) if how == "grid"]
    rest = [i for i, how in enumerate(mapping) if how != "grid"]
    if loop.name != FOR or not spread or not rest or loop.results:
        return loop
    inner = _part(loop, rest, loop.regions[0].operations)
    return _part(loop, spread, (inner, Operation("tile.yield", span=loop.span)))


def _part(loop: Operation, axes: Sequence[int], operations: tuple[Operation, ...]) -> Operation:
    """A loop over some of the axes."""
    count = len(loop.strings("axes"))
    attributes: dict[str, Attribute] = dict(loop.attributes)
    for name in ("axes", "mapping"):
        held = loop.strings(name)
        attributes[name] = tuple(held[axis] for axis in axes)
    region = loop.regions[0]
    return replace(
        loop,
        operands=tuple(loop.operands[part * count + axis] for part in range(3) for axis in axes),
        attributes=attributes,
        regions=(
            replace(
                region,
                arguments=tuple(region.arguments[axis] for axis in axes),
                operations=operations,
            ),
        ),
    )
