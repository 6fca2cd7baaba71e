"""What lanes compute while products are on their way: before the wait that it could slip behind.

The registers that a product of this iteration reads are filled for the next one behind a wait.
Where numbers for the next iteration are read before it, what these are read behind is computed
before it, too: else they would be read when all products are done. Owns which operations fill such
registers, and which values stand for all that is computed before. Must not know how a wait is
emitted.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.opt.schedule.loops.pipeline_partition import is_rounding
from tessera_lang.opt.schedule.query.kernel_facts import FOR, LOAD, Facts
from tessera_lang.record import dataclass, field


@dataclass(slots=True, eq=False)
class Refilling:
    """The operations of a region that round carried first operands of products, and its end.
    ``reads``: lanes read numbers for the next iteration there."""

    end: Operation
    reads: bool
    roundings: list[Operation] = field(default_factory=list[Operation])


def refills(facts: Facts) -> dict[int, Refilling]:
    """By the identity of each operation that fills, for the next iteration, the registers a product
    of this one reads: those of its region."""
    out: dict[int, Refilling] = {}
    by_end: dict[int, Refilling] = {}
    for dot in facts.dots:
        loop = dot.inside[-1] if dot.inside else None
        if loop is None or loop.name != FOR or dot.a.value not in loop.regions[0].arguments:
            continue
        arguments, end = loop.regions[0].arguments, loop.regions[0].terminator
        place = arguments.index(dot.a.value) - (len(arguments) - len(end.operands))
        at = facts.definitions.get(end.operands[place])
        while at is not None and is_rounding(at):
            refilling = out[id(at)] = by_end.setdefault(id(end), Refilling(end, _reads(end, facts)))
            refilling.roundings.append(at)
            at = facts.definitions.get(at.operands[0])
    return out


def _reads(end: Operation, facts: Facts) -> bool:
    """Whether a region hands on what lanes have read from memory."""
    made = (facts.definitions.get(v) for v in end.operands)
    return any(o is not None and o.name == LOAD for o in made)


def last_made(values: Sequence[Value], facts: Facts) -> list[Value]:
    """Those of which no other is made, through what stands beside them."""
    needed: set[Value] = set()
    for value in values:
        asked = [value]
        while asked:
            made = facts.definitions.get(asked.pop())
            if made is None or made.regions:
                continue
            new = [v for v in made.operands if v not in needed]
            needed.update(new)
            asked += new
    return [v for v in values if v not in needed]
