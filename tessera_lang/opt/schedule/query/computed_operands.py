"""Operands of products that lanes compute and write to shared memory, and which share a buffer.

A loop begins and ends with no product on its way, and all warps meet before an operand is written.
So what is written in loops that follow or exclude each other may have the same buffer, as the parts
that one loop is taken into; what a loop writes has a place of its own beside what one around it
does. Owns these groups. Must not know how operands are written.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, TileType
from tessera_lang.ir.definitions import LOOPS
from tessera_lang.ir.layout import SharedLayout
from tessera_lang.opt.schedule.query.kernel_facts import FOR, Dot, Facts, Operand, is_grid
from tessera_lang.opt.schedule.query.unit_legality import computed_layout, through_shared
from tessera_lang.record import dataclass, field

Place = tuple[int, bool]
"""The ``id`` of a product, and whether it is the second operand."""


@dataclass(slots=True, eq=False)
class WrittenBuffer:
    """A buffer of one or two tiles, and the operands that are written there."""

    tile: TileType
    layout: SharedLayout | None
    stages: int
    dot: Operation
    places: list[Place] = field(default_factory=list[Place])
    loops: list[tuple[Operation, ...]] = field(default_factory=list[tuple[Operation, ...]])


def written_buffers(facts: Facts) -> list[WrittenBuffer]:
    """The buffers of a kernel for computed operands, in the order of their first products."""
    found: list[WrittenBuffer] = []
    for dot in facts.dots:
        if dot.operation.attributes.get("unit") != "wgmma":
            continue
        for operand in (dot.a, dot.b):
            if through_shared(dot, operand, facts):
                _enter(dot, operand, facts, found)
    return found


def _enter(dot: Dot, operand: Operand, facts: Facts, found: list[WrittenBuffer]) -> None:
    tile, layout = operand.value.tile_type, computed_layout(dot, operand, facts)
    stages, loops = written_stages(dot, operand, facts), _loops(dot)
    for buffer in found:
        same = (buffer.tile.dtype, buffer.tile.sizes, buffer.layout, buffer.stages)
        if same == (tile.dtype, tile.sizes, layout, stages) and not any(
            _meet(loops, other) for other in buffer.loops
        ):
            break
    else:
        buffer = WrittenBuffer(tile, layout, stages, dot.operation)
        found.append(buffer)
    buffer.places.append((id(dot.operation), operand is dot.b))
    buffer.loops.append(loops)


def _loops(dot: Dot) -> tuple[Operation, ...]:
    return tuple(o for o in dot.inside if o.name in LOOPS and not is_grid(o))


def _meet(a: tuple[Operation, ...], b: tuple[Operation, ...]) -> bool:
    """Whether products of these loops may be on their way at once."""
    shared = min(len(a), len(b))
    return all(x is y for x, y in zip(a[:shared], b[:shared], strict=True))


def written_stages(dot: Dot, operand: Operand, facts: Facts) -> int:
    """Buffers of a computed operand: in a loop, lanes write the next one while the asynchronous
    unit reads this one; one where it is written once, or stays in registers."""
    in_loop = bool(dot.inside) and dot.inside[-1].name == FOR
    return 2 if in_loop and through_shared(dot, operand, facts) else 1
