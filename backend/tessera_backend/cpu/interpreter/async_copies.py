"""Rules of copies by lanes that complete later (``cp.async``), and of barriers of one strand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera_backend.cpu.interpreter.access_history import Memory
from tessera_backend.cpu.interpreter.accesses import (
    check_vector,
    gathered,
    part_of,
    place_in,
    take,
    taken,
    touch,
)
from tessera_backend.cpu.interpreter.element_arithmetic import Array
from tessera_backend.cpu.interpreter.faults import AsynchronousFault
from tessera_backend.cpu.interpreter.happens_before import AccessRecord
from tessera_backend.cpu.interpreter.role_barriers import slot_of
from tessera_backend.cpu.interpreter.strand import Rule, Strand
from tessera_backend.cpu.interpreter.warp_group_order import noted_slot
from tessera_lang.ir.core import Operation
from tessera_lang.target.arch.isa_constants import WARP


def _memcpy_async(s: Strand, o: Operation) -> Sequence[Any]:
    view, target = s.get(o.operands[:2])
    dims: Any = o.attributes["dims"]
    rank = len(dims)
    shape = target.data.shape[target.data.ndim - rank :]
    part = part_of(s, o, 2, rank, view)
    vector = o.attributes["vector"]
    if not isinstance(vector, int) or vector < max(4, view.data.itemsize):
        raise AsynchronousFault(f"{o.name} copies pieces of {vector} bytes", o)
    check_vector(o, view, part)
    starts = s.numbers(o.operands[2 + view.data.ndim + rank :])
    at, box = place_in(o, starts, shape, target)
    touch(s, o, view, "read", part.box, ("view", "copy", part.box, part.dims))
    access = AccessRecord(
        "write", o, s.clock, box, target.frame, ("copy", s.anew()), s.leader,
        s.copies.key, s.copies.count,
    )  # fmt: skip
    _write(s, target, access)
    _copy(s, target, access, at, taken(view, part, shape))
    return ()


def _copy(s: Strand, target: Memory, access: AccessRecord, at: Any, found: Array) -> None:
    target.poison(at)

    def fill() -> None:
        target.data[at] = found

    def land() -> None:
        """For the lanes that copied it is there; for others it is behind the next barrier."""
        fill()
        access.agent, access.time = None, s.clock.time

    s.copies.copy(access, fill, land)


def _memcpy_gather(s: Strand, o: Operation) -> Sequence[Any]:
    view, target, *numbers = s.get(o.operands)
    axes = view.data.ndim
    shape = target.data.shape[-2:]
    at, box = place_in(o, [int(n) for n in numbers[axes + 2 :]], shape, target)
    found = gathered(s, o, view, numbers[: axes + 2], shape)
    access = AccessRecord(
        "write", o, s.clock, box, target.frame, ("copy", s.anew()), s.leader,
        s.copies.key, s.copies.count,
    )  # fmt: skip
    _write(s, target, access)
    _copy(s, target, access, at, found)
    return ()


def _memcpy_arrive(s: Strand, o: Operation) -> Sequence[Any]:
    """Each lane arrives when its copies are done: they run on the agent of the barrier's slot."""
    slot = slot_of(s, o, s.group, 0)
    copies = s.copies.taken()
    for late in copies:
        assert late.access is not None
        late.access.agent, late.access.count = slot.key, slot.open

    def land() -> None:
        for late in copies:
            assert late.fill is not None
            late.fill()
        for _ in range(s.warps * WARP):
            slot.arrive(o, {})

    s.note("arrive", o, *noted_slot(slot, s.warps * WARP // s.parts, 0))
    s.group.scheduler.late.append(land)
    return ()


def _write(s: Strand, target: Memory, access: AccessRecord) -> None:
    take(s, target, access)
    if target.history is not None:
        target.history.add(access)


def _commit(s: Strand, o: Operation) -> Sequence[Any]:
    s.copies.commit()
    return ()


def pending_of(o: Operation) -> int:
    return o.integer("pending")


def _wait(s: Strand, o: Operation) -> Sequence[Any]:
    s.copies.wait(pending_of(o))
    return ()


def _barrier(s: Strand, o: Operation) -> Sequence[Any]:
    s.meet(o)
    return ()


RULES: dict[str, Rule] = {
    "tile.memcpy.async": _memcpy_async,
    "tile.memcpy.gather": _memcpy_gather,
    "tile.memcpy.arrive": _memcpy_arrive,
    "tile.memcpy.commit": _commit,
    "tile.memcpy.wait": _wait,
    "tile.barrier": _barrier,
}
