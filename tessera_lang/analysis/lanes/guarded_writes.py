"""Cells that lanes write under a condition, and reads under the same condition or a stronger one.

`if i < n: s[t] = x[i]` writes cell ``t`` if ``n - i - 1`` is at least 0. So does a read by another
lane find it written if what is known of that lane says so: it may be one more to the left, or have
the axes of its tile exchanged. Must not know the IR, nor which conditions there are.
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera_lang.analysis.lanes.lane_forms import Space, Terms
from tessera_lang.analysis.ranges.linear import Linear
from tessera_lang.record import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Guarded:
    """One write: what is at least 0 in a lane that does it, and the cell of each lane that may."""

    facts: tuple[Linear, ...]
    cells: tuple[tuple[int, int], ...]


def are_written(
    space: Space, written: Iterable[Guarded], facts: Iterable[Linear],
    accesses: Iterable[tuple[int, int]],
) -> bool:  # fmt: skip
    """Whether all ``accesses``, each a lane and its cell, are of cells that a lane has written
    whose conditions hold if ``facts`` do in the one that reads."""
    known: dict[Terms, list[tuple[int, ...]]] = {}
    for fact in dict.fromkeys(facts):
        terms, numbers = space.split(fact)
        known.setdefault(terms, []).append(numbers)

    def holds(terms: Terms, number: int, lane: int) -> bool:
        if space.range(Linear(terms, number))[0] >= 0:
            return True
        return any(numbers[lane] <= number for numbers in known.get(terms, ()))

    left = set(accesses)
    for write in written:
        parts = [space.split(fact) for fact in dict.fromkeys(write.facts)]
        by: dict[int, list[int]] = {}
        for lane, cell in write.cells:
            by.setdefault(cell, []).append(lane)
        left = {
            (lane, cell) for lane, cell in left
            if not any(
                all(holds(terms, numbers[writer], lane) for terms, numbers in parts)
                for writer in by.get(cell, ())
            )
        }  # fmt: skip
        if not left:
            return True
    return not left
