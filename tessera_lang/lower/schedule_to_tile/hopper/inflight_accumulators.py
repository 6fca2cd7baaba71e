"""Products that may stay in flight: only the next iteration reads their accumulator.

Such a product may be in flight while the next one is issued: its buffers are freed one iteration
later, and nobody waits for it before the loop is done. Owns the test. Must not know barriers.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import PERMUTES
from tessera_lang.opt.schedule.query.kernel_facts import FOR, Dot, Facts
from tessera_lang.opt.schedule.query.scalar_facts import is_positive_zero
from tessera_lang.opt.schedule.query.staging_rings import Ring
from tessera_lang.opt.schedule.query.unit_legality import REGISTERS, said_places
from tessera_lang.record import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """A loop with such products. ``zero``: whether all of their accumulators begin as zeros;
    ``late``: numbers of the rings that only they read, which are freed one iteration later."""

    loop: Operation
    dots: tuple[Operation, ...]
    zero: tuple[bool, ...]
    late: tuple[int, ...]


def chains_of(facts: Facts, rings: Sequence[Ring]) -> tuple[Chain, ...]:
    by_loop: dict[int, list[Dot]] = {}
    loops: dict[int, Operation] = {}
    for dot in facts.dots:
        loop = dot.inside[-1] if dot.inside else None
        if loop is None or loop.name != FOR or not any(_stands_in(r, loop) for r in rings):
            continue
        if _is_chained(dot, loop, facts):
            by_loop.setdefault(id(loop), []).append(dot)
            loops[id(loop)] = loop
    out: list[Chain] = []
    for key, dots in by_loop.items():
        loop = loops[key]
        operations = tuple(d.operation for d in dots)
        late = tuple(
            i for i, ring in enumerate(rings)
            if ring.around is loop and not ring.others and ring.stages > 1
            and _only_read_by(ring, operations, facts)
        )  # fmt: skip
        zero = tuple(is_zero(_start(d, loop), facts) for d in dots)
        out.append(Chain(loop, operations, zero, late))
    return tuple(out)


def _stands_in(ring: Ring, loop: Operation) -> bool:
    """Whether a ring goes one step in each iteration of a loop."""
    return any(x.inside and x.inside[-1] is loop for x in ring.everywhere)


def _is_chained(dot: Dot, loop: Operation, facts: Facts) -> bool:
    accumulator, result = dot.operation.operands[2], dot.operation.result
    if dot.operation.attributes.get("unit") != "wgmma":
        return False
    if REGISTERS in said_places(dot):
        return False
    if accumulator not in loop.regions[0].arguments[_axes(loop) :]:
        return False
    if facts.users.get(accumulator) != [dot.operation]:
        return False
    users = facts.users.get(result, [])
    end = loop.regions[0].terminator
    return len(users) == 1 and users[0] is end and end.operands[_carried(dot, loop)] is result


def _axes(loop: Operation) -> int:
    return len(loop.strings("axes"))


def _carried(dot: Dot, loop: Operation) -> int:
    return loop.regions[0].arguments.index(dot.operation.operands[2]) - _axes(loop)


def _start(dot: Dot, loop: Operation) -> Value:
    return loop.operands[3 * _axes(loop) + _carried(dot, loop)]


def is_zero(value: Value, facts: Facts) -> bool:
    """Whether a tile is zeros, by how it was made."""
    made = facts.definitions.get(value)
    if made is None or not made.name.endswith("schedule.full"):
        return False
    scalar = facts.definitions.get(made.operands[0])
    if scalar is None or scalar.name != "tile.constant":
        return False
    return is_positive_zero(scalar.attributes["value"])


def _only_read_by(ring: Ring, dots: Sequence[Operation], facts: Facts) -> bool:
    return all(_read_by(x.operation.result, dots, facts) for x in ring.loads)


def _read_by(value: Value, dots: Sequence[Operation], facts: Facts) -> bool:
    for user in facts.users.get(value, ()):
        if user.name in PERMUTES:
            if not _read_by(user.result, dots, facts):
                return False
        elif not any(user is d for d in dots):
            return False
    return True
