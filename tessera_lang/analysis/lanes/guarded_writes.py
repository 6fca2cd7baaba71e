"""Cells that lanes write under a condition, and reads under the same condition or a stronger one.

`if i < n: s[t] = x[i]` writes cell ``t`` if ``n - i - 1`` is at least 0. So does a read by another
lane find it written if what is known of that lane says so: it may be one more to the left, or have
the axes of its tile exchanged. Must not know the IR, nor which conditions there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from tessera_lang.analysis.lanes.lane_forms import Space, Terms
from tessera_lang.analysis.ranges.linear import Linear

Guard: TypeAlias = "frozenset[tuple[Terms, int]]"
"""What is at least 0 in one lane: unknowns that all lanes share, and a number."""
Guarded: TypeAlias = "tuple[int, Guard]"
"""A cell, and the guard under which it has been written."""


def guards_of(space: Space, facts: Iterable[Linear], lanes: Sequence[int]) -> list[Guard]:
    """The guard that facts are in each of some lanes."""
    parts = [space.split(fact) for fact in dict.fromkeys(facts)]
    return [frozenset((terms, numbers[lane]) for terms, numbers in parts) for lane in lanes]


def are_written(
    space: Space, written: Iterable[Guarded], facts: Iterable[Linear],
    accesses: Iterable[tuple[int, int]],
) -> bool:  # fmt: skip
    """Whether all ``accesses``, each a lane and its cell, are of cells that a guard which holds in
    that lane says are written."""
    by_cell: dict[int, list[Guard]] = {}
    for cell, guard in written:
        by_cell.setdefault(cell, []).append(guard)
    known: dict[Terms, list[tuple[int, ...]]] = {}
    for fact in dict.fromkeys(facts):
        terms, numbers = space.split(fact)
        known.setdefault(terms, []).append(numbers)

    def holds(terms: Terms, number: int, lane: int) -> bool:
        if space.range(Linear(terms, number))[0] >= 0:
            return True
        return any(numbers[lane] <= number for numbers in known.get(terms, ()))

    return all(
        any(all(holds(*part, lane) for part in guard) for guard in by_cell.get(cell, ()))
        for lane, cell in accesses
    )
