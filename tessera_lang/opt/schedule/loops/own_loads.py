"""Tiles that both parts of a software pipeline read: each part brings its own, in half of the ring.

The late part of an iteration runs beside the early part of the next, whose tile is another one. A
load of its own for the late part lets each be freed when its part is done; the places of the ring
are divided between both. Owns the rewriting; whether the parts fit beside each other is
``software_pipeline``'s. Must not know a machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import IN_PLACE, PERMUTES
from tessera_lang.ir.rewrite import Replacement, clone_operations, rewrite_operation
from tessera_lang.opt.schedule.loops.pipeline_partition import BOTH_READ, divided, last_products
from tessera_lang.opt.schedule.query.kernel_facts import DOT, FOR, Facts, is_grid
from tessera_lang.opt.schedule.query.staging_rings import Ring, rings_of, tile_bytes
from tessera_lang.record import replace

_FEWEST = 2  # places of a ring in which one is read while the next is filled


def with_own_loads(kernel: Operation, facts: Facts) -> Operation | None:
    """The kernel in whose loops the last products of an iteration read loads of their own; None
    where none need them, or their rings have too few places."""
    found: dict[int, tuple[int, ...]] = {}  # the loads of a loop that both parts read
    for loop, _ in facts.loops:
        if loop.name == FOR and not is_grid(loop) and len(loop.strings("axes")) == 1:
            if divided(loop, facts) == BOTH_READ:
                found[id(loop.results)] = _read_by_both(loop)
    shared = {i for loads in found.values() for i in loads}
    rings = rings_of(facts)
    places: dict[int, dict[str, int]] = {}  # for each load: its stages and its ring
    for number, ring in enumerate(rings):
        here = [x for x in ring.everywhere if id(x.operation) in shared]
        if not here:
            continue
        stages = _stages(ring, shared)
        if stages < _FEWEST or any(id(x.loop.results) not in found if x.loop else True
                                   for x in ring.everywhere):  # fmt: skip
            return None
        for x in ring.everywhere:
            places[id(x.operation)] = {"stages": stages, "ring": number}
    if not shared or shared - set(places):
        return None

    def step(operation: Operation) -> Replacement | None:
        loads = found.get(id(operation.results)) if operation.name == FOR else None
        if loads is None:
            return None
        made = _Loop(operation, frozenset(loads), places, len(rings)).made()
        return Replacement((made,), made.results)

    return rewrite_operation(kernel, step)


def _stages(ring: Ring, shared: set[int]) -> int:
    """How many places both rings have in the room of one."""
    more = sum(tile_bytes(x.tile) for x in ring.loads if id(x.operation) in shared)
    return ring.stages * ring.bytes // (ring.bytes + more)


def _read_by_both(loop: Operation) -> tuple[int, ...]:
    """The staged loads of a loop's body that its last products read and others too."""
    body, late = loop.regions[0].operations, last_products(loop)
    made = {v: o for o in body for v in o.results}
    readers: dict[int, set[bool]] = {}
    for o in body:
        for value in o.operands if o.name == DOT else ():
            chain = _chain(value, made)
            if chain:
                readers.setdefault(id(chain[0]), set()).add(id(o) in late)
    return tuple(i for i, kinds in readers.items() if len(kinds) > 1)


def _chain(value: Value, made: Mapping[Value, Operation]) -> tuple[Operation, ...]:
    """A staged load and what turns its tile on the way to a value; () where there is none."""
    found: list[Operation] = []
    while value in made:
        o = made[value]
        found.insert(0, o)
        if o.attributes.get("stage") == "shared":
            return tuple(found)
        if o.name not in PERMUTES | IN_PLACE:
            return ()
        value = o.operands[0]
    return ()


class _Loop:
    """A loop whose last products get loads of their own; ``rings``: how many there are before."""

    def __init__(
        self, loop: Operation, loads: frozenset[int], places: Mapping[int, Mapping[str, int]],
        rings: int,
    ) -> None:  # fmt: skip
        self.loop, self.loads, self.places, self.rings = loop, loads, places, rings
        self.body = loop.regions[0].operations
        self.defined = {v: o for o in self.body for v in o.results}
        self.own: dict[Value, Value] = {}

    def made(self) -> Operation:
        late, out = last_products(self.loop), list[Operation]()
        for o in self.body:
            if id(o) in late:
                for value in o.operands:
                    out += self._brought(value)
                o = replace(o, operands=tuple(self.own.get(v, v) for v in o.operands))
            out.append(self._placed(o))
        region = replace(self.loop.regions[0], operations=tuple(out))
        return replace(self.loop, regions=(region,))

    def _brought(self, value: Value) -> Sequence[Operation]:
        """The operations that make a late product's own tile of a shared one, where it has none."""
        chain = _chain(value, self.defined)
        if not chain or id(chain[0]) not in self.loads or value in self.own:
            return ()
        left = [o for o in chain if o.result not in self.own]
        return [self._again(o) for o in left]

    def _again(self, o: Operation) -> Operation:
        (made,) = clone_operations((o,), self.own)
        placed = self.places.get(id(o))
        if placed is None:
            return made
        more = {"stages": placed["stages"], "ring": self.rings + placed["ring"]}
        return replace(made, attributes={**made.attributes, **more})

    def _placed(self, o: Operation) -> Operation:
        placed = self.places.get(id(o))
        return o if placed is None else replace(o, attributes={**o.attributes, **placed})
