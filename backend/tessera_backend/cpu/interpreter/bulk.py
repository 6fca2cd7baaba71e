"""Rules of copies of boxes (TMA): loads that complete bytes on barriers, stores in groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera_backend.cpu.interpreter.access_history import Box, Memory, box_of
from tessera_backend.cpu.interpreter.accesses import take
from tessera_backend.cpu.interpreter.async_copies import pending_of
from tessera_backend.cpu.interpreter.element_arithmetic import Array, combined
from tessera_backend.cpu.interpreter.faults import AsynchronousFault
from tessera_backend.cpu.interpreter.happens_before import AccessRecord
from tessera_backend.cpu.interpreter.layouts import along_major, as_lines, as_matrix
from tessera_backend.cpu.interpreter.pending import Agent
from tessera_backend.cpu.interpreter.role_barriers import slot_of
from tessera_backend.cpu.interpreter.strand import Group, Rule, Strand
from tessera_backend.cpu.interpreter.warp_group_order import noted_slot
from tessera_lang.ir.core import Operation
from tessera_lang.record import dataclass

_NEVER = 1 << 62
_CHUNK = 16  # bytes


@dataclass(slots=True, eq=False)
class Map:
    """An array seen through a tensor map: ``axes`` are its axes in the order of the box."""

    memory: Memory
    axes: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def array(self) -> Array:
        return np.transpose(self.memory.data, self.axes)

    def check(self, o: Operation, at: Sequence[int]) -> None:
        """The engine stops at a box that begins in the middle of 16 bytes of a line."""
        if at[-1] * self.array.dtype.itemsize % _CHUNK:
            raise AsynchronousFault(
                f"{o.name} begins at element {at[-1]} of a line, no multiple of 16 bytes", o
            )

    def read(self, at: Sequence[int]) -> Array:
        out = np.zeros(self.box, self.array.dtype)
        inside, part = self._both(at)
        out[part] = self.array[inside]
        return out

    def write(self, at: Sequence[int], box: Array, kind: str = "") -> None:
        inside, part = self._both(at)
        seen = self.array
        seen[inside] = combined(kind, seen[inside], box[part]) if kind else box[part]

    def place(self, at: Sequence[int]) -> Box:
        """What of the array a box at some coordinates holds, its axes as the array's."""
        inside, _ = self._both(at)
        out: list[Any] = [None] * len(self.axes)
        for axis, part in zip(self.axes, inside, strict=True):
            out[axis] = (part.start, part.stop, 1)
        return tuple(out)

    def _both(self, at: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        inside: list[slice] = []
        part: list[slice] = []
        for start, n, size in zip(at, self.box, self.array.shape, strict=True):
            low, high = min(max(0, start), size), max(0, min(size, start + n))
            high = max(low, high)
            inside.append(slice(low, high))
            part.append(slice(low - start, high - start) if high > low else slice(0, 0))
        return tuple(inside), tuple(part)


def _elected(s: Strand, o: Operation) -> int:
    if s.leader is None:
        raise AsynchronousFault(f"{o.name} is issued by every lane", o)
    return s.leader


def _load(s: Strand, o: Operation) -> Sequence[Any]:
    _elected(s, o)
    target = o.operands[1].buffer_type
    rank = len(target.shape)
    places = s.numbers(o.operands[4:])
    where, at = places[:rank], places[rank:]
    m: Map = s.values[o.operands[0]]
    m.check(o, at)
    mask = o.integer("multicast", 0)
    there = [p for i, p in enumerate(s.group.peers) if mask >> i & 1] if mask else [s.group]
    if m.memory.history is not None:
        key = slot_of(s, o, s.group, 2)
        m.memory.history.add(AccessRecord(
            "read", o, s.clock, m.place(at), m.memory.frame, leader=s.leader, agent=key.key,
            count=key.open, proxy="async",
        ))  # fmt: skip
    box = as_matrix(m.read(at), target)
    for peer in there:
        _issue(s, o, peer, box, where)
    return ()


def _issue(s: Strand, o: Operation, peer: Group, box: Array, where: Sequence[int]) -> None:
    slot = slot_of(s, o, peer, 2)
    memory: Memory = peer.values[o.operands[1]]
    at, place = _matrix_at(o, where, box.shape, memory)
    access = AccessRecord(
        "write", o, s.clock, place, memory.frame, leader=s.leader, agent=slot.key,
        count=slot.open, proxy="async",
    )  # fmt: skip
    take(s, memory, access)
    if memory.history is not None:
        memory.history.add(access)
    memory.poison(at)

    def land() -> None:
        if peer.ended:
            raise AsynchronousFault(f"{o.name} lands in group {peer.number}, which has ended", o)
        memory.data[at] = box
        slot.land(box.nbytes)

    s.note("land", o, *noted_slot(slot, box.nbytes))
    s.group.scheduler.late.append(land)


def _matrix_at(
    o: Operation, where: Sequence[int], shape: Sequence[int], memory: Memory
) -> tuple[Any, Box]:
    counts = (*(1,) * (len(where) - 2), *shape)
    for a, n, size in zip(where, counts, memory.data.shape, strict=True):
        if not 0 <= a <= size - n:
            raise AsynchronousFault(f"{o.name} begins or ends outside of its buffer", o)
    inner = (slice(a, a + n) for a, n in zip(where[-2:], shape, strict=True))
    return (*where[:-2], *inner), box_of(where, counts)


def _store(s: Strand, o: Operation) -> Sequence[Any]:
    leader = _elected(s, o)
    source = o.operands[0].buffer_type
    rank = len(source.shape)
    places = s.numbers(o.operands[2:])
    where, coordinates = places[:rank], places[rank:]
    memory: Memory = s.values[o.operands[0]]
    m: Map = s.values[o.operands[1]]
    m.check(o, coordinates)
    width, lines = m.box[-1], int(np.prod(m.box[:-1]))
    shape = (lines, width) if along_major(source) else (width, lines)
    at, place = _matrix_at(o, where, shape, memory)
    stores = s.stores.setdefault(leader, Agent(("store", *s.clock.key, leader)))
    if memory.history is not None:
        memory.history.add(AccessRecord(
            "read", o, s.clock, place, memory.frame, leader=leader, agent=stores.key,
            count=stores.count, owners=leader, proxy="async",
        ))  # fmt: skip
    kind = str(o.attributes.get("kind", ""))
    _note_written(s, o, m, coordinates, bool(kind))
    stores.issue(o, lambda: m.write(coordinates, as_lines(memory.data[at], source, m.box), kind))
    return ()


def _note_written(
    s: Strand, o: Operation, m: Map, coordinates: Sequence[int], reduces: bool
) -> None:
    """Nobody of this launch may count on what a store writes: no wait says that it is there."""
    if m.memory.history is not None:
        agent = ("into memory", reduces, 0 if reduces else s.anew(), s.clock.key)
        m.memory.history.add(AccessRecord(
            "write", o, s.clock, m.place(coordinates), m.memory.frame, leader=s.leader,
            agent=agent, count=-1 if reduces else _NEVER, owners=s.leader, proxy="async",
        ))  # fmt: skip


def _commit(s: Strand, o: Operation) -> Sequence[Any]:
    leader = _elected(s, o)
    s.stores.setdefault(leader, Agent(("store", *s.clock.key, leader))).commit()
    return ()


def _wait(s: Strand, o: Operation) -> Sequence[Any]:
    leader = _elected(s, o)
    stores = s.stores.setdefault(leader, Agent(("store", *s.clock.key, leader)))
    stores.wait(pending_of(o))
    s.clock.learn({stores.key: stores.done}, leader)
    return ()


RULES: dict[str, Rule] = {
    "tma.load": _load,
    "tma.store": _store,
    "tma.reduce": _store,
    "tma.commit": _commit,
    "tma.wait": _wait,
}
