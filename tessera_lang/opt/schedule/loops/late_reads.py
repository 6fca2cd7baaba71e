"""Tiles that both parts of a software pipeline read: the late part reads them where they lie.

The late part of an iteration runs beside the early part of the next, whose tile is another one. A
load of its own says that the late part reads what the early part brought an iteration before; then
the place in the ring is freed there. Owns the rewriting; whether the parts fit beside each other is
``software_pipeline``'s. Must not know a machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.ir.core import Attribute, Operation, Value
from tessera_lang.ir.definitions import IN_PLACE, PERMUTES
from tessera_lang.ir.rewrite import Replacement, clone_operations, rewrite_operation
from tessera_lang.opt.schedule.loops.pipeline_partition import BOTH_READ, divided, last_products
from tessera_lang.opt.schedule.query.kernel_facts import DOT, FOR, Facts, is_grid
from tessera_lang.opt.schedule.query.staging_rings import rings_of
from tessera_lang.record import replace

_FEWEST = 3  # places of a ring of which two are read while the next is filled


def with_late_reads(kernel: Operation, facts: Facts) -> Operation | None:
    """The kernel in whose loops the last products of an iteration read tiles that earlier ones read
    by loads of their own; None where none need them, or their rings have too few places."""
    found: dict[int, tuple[int, ...]] = {}  # the loads of a loop that both parts read
    for loop, _ in facts.loops:
        if loop.name == FOR and not is_grid(loop) and len(loop.strings("axes")) == 1:
            if divided(loop, facts) == BOTH_READ:
                found[id(loop.results)] = _read_by_both(loop)
    shared = {i for loads in found.values() for i in loads}
    rings = rings_of(facts)
    marks: dict[int, tuple[int, int]] = {}  # the ring of each load, and its place there
    for number, ring in enumerate(rings):
        if not any(id(x.operation) in shared for x in ring.everywhere):
            continue
        loops = (x.loop for x in ring.everywhere)
        if ring.stages < _FEWEST or any(o is None or id(o.results) not in found for o in loops):
            return None
        for loads in (ring.loads, *ring.others):
            marks.update({id(x.operation): (number, i) for i, x in enumerate(loads)})
    if not shared or shared - set(marks):
        return None

    def step(operation: Operation) -> Replacement | None:
        loads = found.get(id(operation.results)) if operation.name == FOR else None
        if loads is None:
            return None
        made = _Loop(operation, frozenset(loads), marks, len(rings)).made()
        return Replacement((made,), made.results)

    return rewrite_operation(kernel, step)


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
        self, loop: Operation, loads: frozenset[int], marks: Mapping[int, tuple[int, int]],
        rings: int,
    ) -> None:  # fmt: skip
        self.loop, self.loads, self.marks, self.rings = loop, loads, marks, rings
        self.body = loop.regions[0].operations
        self.defined = {v: o for o in self.body for v in o.results}
        self.own: dict[Value, Value] = {}

    def made(self) -> Operation:
        late, out = last_products(self.loop), list[Operation]()
        for o in self.body:
            if id(o) in late:
                for value in o.operands:
                    out += self._read_again(value)
                o = replace(o, operands=tuple(self.own.get(v, v) for v in o.operands))
            mark = self.marks.get(id(o))
            out.append(o if mark is None else _with(o, ring=mark[0]))
        region = replace(self.loop.regions[0], operations=tuple(out))
        return replace(self.loop, regions=(region,))

    def _read_again(self, value: Value) -> Sequence[Operation]:
        """The operations that make a late product's own tile of a shared one, where it has none."""
        chain = _chain(value, self.defined)
        if not chain or id(chain[0]) not in self.loads or value in self.own:
            return ()
        left = [o for o in chain if o.result not in self.own]
        return [self._again(o) for o in left]

    def _again(self, o: Operation) -> Operation:
        (made,) = clone_operations((o,), self.own)
        mark = self.marks.get(id(o))
        return made if mark is None else _with(made, ring=self.rings + mark[0], reread=mark)


def _with(o: Operation, **more: Attribute) -> Operation:
    return replace(o, attributes={**o.attributes, **more})
