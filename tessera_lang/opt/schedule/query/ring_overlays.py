"""Which rings are filled one after the other, and places in shared memory that they take in turn.

The tiles of loops that follow each other, or of which one runs, are never in use at once: their
rings may have the same bytes, if the role that fills them waits until the ring before is empty.
Owns the order of rings and their places. Must not know barriers, and must not decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tessera_lang.ir.core import Operation, Region
from tessera_lang.ir.definitions import LOOPS
from tessera_lang.opt.schedule.query.kernel_facts import Facts
from tessera_lang.opt.schedule.query.staging_rings import Ring, rings_of, tile_bytes
from tessera_lang.record import dataclass
from tessera_lang.target.arch.isa_constants import SWIZZLE_LINES, SWIZZLES

STEP = SWIZZLES[0] * SWIZZLE_LINES
"""Bytes of which the place of a staged tile is a multiple: what a swizzle repeats after."""


@dataclass(frozen=True, slots=True)
class Turn:
    """When a ring is in use: the first and the last of the statements of a tile that hold its
    loads, as numbers, and the operation of the first."""

    first: int
    last: int
    begins: Operation

    def meets(self, other: Turn) -> bool:
        """Whether both are in use at some time."""
        return self.first <= other.last and other.first <= self.last


def turns_of(rings: Sequence[Ring], facts: Facts) -> dict[int, Turn]:
    """The turns of rings by their numbers; those that are in use all the time have none."""
    if facts.grid is None:
        return {}
    said = {r.said: i for i, r in enumerate(rings)}
    numbers = {
        x.operation: i if r.reread is None else said[r.reread]
        for i, r in enumerate(rings) for x in r.everywhere
    }  # fmt: skip
    always = {i for i, r in enumerate(rings) if r.loop is None}
    region = facts.grid.regions[0]
    while (inner := _only(region, numbers, always)) is not None:
        region = inner
    found: dict[int, Turn] = {}
    for at, (operation, direct) in enumerate(_statements(region)):
        for number in _held(operation, numbers):
            if direct:
                always.add(number)
            known = found.get(number)
            begins = known.begins if known is not None else operation
            found[number] = Turn(known.first if known is not None else at, at, begins)
    return {n: turn for n, turn in found.items() if n not in always}


def _only(region: Region, numbers: Mapping[Operation, int], always: set[int]) -> Region | None:
    """The region of the one loop of a region that has rings, where the region itself has none."""
    holders = [o for o in region.operations if _held(o, numbers) - always]
    if len(holders) != 1 or holders[0].name not in LOOPS or len(holders[0].regions) != 1:
        return None
    inside = holders[0].regions[0]
    nested = [o for o in inside.operations if o.regions and _held(o, numbers) - always]
    return inside if nested else None


def _statements(region: Region) -> Iterator[tuple[Operation, bool]]:
    """What runs one after the other in a region, those of both sides of conditions too; and whether
    it is a load of the region itself."""
    for operation in region.operations:
        if operation.name == "tile.if":
            for side in operation.regions:
                yield from _statements(side)
        else:
            yield operation, not operation.regions


def _held(operation: Operation, numbers: Mapping[Operation, int]) -> set[int]:
    return {numbers[o] for o in operation.walk() if o in numbers}


def places(sizes: Mapping[int, int], turns: Mapping[int, Turn]) -> tuple[int, dict[int, int]]:
    """Bytes that rings of these sizes take, and where those that have a turn begin: first fit, the
    greatest first. The others follow."""
    begins: dict[int, int] = {}
    for number in sorted(turns, key=lambda n: -sizes[n]):
        met = [n for n in begins if turns[n].meets(turns[number])]
        for start in sorted({0, *(begins[n] + sizes[n] for n in met)}):
            end = start + sizes[number]
            if not any(start < begins[n] + sizes[n] and begins[n] < end for n in met):
                begins[number] = start
                break
    total = max((begins[n] + sizes[n] for n in begins), default=0)
    return total + sum(sizes[n] for n in sizes if n not in turns), begins


def overlaid(
    sizes: Mapping[int, int], turns: Mapping[int, Turn], begins: Mapping[int, int]
) -> dict[int, tuple[int, ...]]:
    """For each ring with a turn the others that have some of its bytes."""
    return {
        n: tuple(
            m for m in turns
            if m != n and begins[m] < begins[n] + sizes[n] and begins[n] < begins[m] + sizes[m]
        )
        for n in turns
    }  # fmt: skip


def in_turn(facts: Facts) -> bool:
    """Whether rings take places in turn, as was decided."""
    return bool(facts.kernel.attributes.get("turns"))


def ring_bytes(ring: Ring, stages: int) -> int:
    """About the bytes of a ring's buffers, each at a multiple of what a swizzle asks for."""
    loads = ring.loads if ring.reread is None else ()
    return sum(-(-tile_bytes(x.tile) * stages // STEP) * STEP for x in loads)


def saved_bytes(facts: Facts) -> int:
    """Bytes that are spared where rings take places in turn."""
    if not in_turn(facts):
        return 0
    rings = rings_of(facts)
    sizes = {i: ring_bytes(r, r.stages) for i, r in enumerate(rings)}
    return sum(sizes.values()) - places(sizes, turns_of(rings, facts))[0]
