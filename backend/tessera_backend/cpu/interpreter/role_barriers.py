"""Rules of barriers between roles and groups: named ones, those of a cluster, transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera_backend.cpu.interpreter.access_history import Memory, box_of
from tessera_backend.cpu.interpreter.accesses import take
from tessera_backend.cpu.interpreter.barrier_state import Meeting, Slot
from tessera_backend.cpu.interpreter.element_arithmetic import combined
from tessera_backend.cpu.interpreter.faults import AsynchronousFault, Unsupported
from tessera_backend.cpu.interpreter.happens_before import AccessRecord, Key, learn
from tessera_backend.cpu.interpreter.layouts import WARPS
from tessera_backend.cpu.interpreter.strand import Group, Rule, Strand
from tessera_backend.cpu.interpreter.warp_group_order import noted_slot
from tessera_lang.ir.core import Operation
from tessera_lang.target.arch.isa_constants import WARP


def _everything(s: Strand) -> dict[Key, int]:
    """What others know behind a barrier that all lanes of a strand come to."""
    told = s.clock.told(None)
    for more in s.clock.learned.values():
        learn(told, more)
    learn(told, s.clock.ended)
    told[s.clock.key] = s.clock.time + 1
    return told


def _named_barrier(s: Strand, o: Operation) -> Sequence[Any]:
    number, lanes = o.integer("id"), o.integer("lanes")
    own = s.warps * WARP
    if o.attributes.get("each") == "warp_group" and s.warps > WARPS:
        if lanes != WARPS * WARP:
            raise Unsupported("a named barrier of warp groups of several roles", o)
        s.clock.barrier(whole=False)
        return ()
    if lanes == own:
        s.meet(o)
        return ()
    meeting: Meeting = s.group.named.setdefault(number, Meeting(lanes))
    if meeting.lanes != lanes:
        raise AsynchronousFault(f"barrier {number} is of {meeting.lanes} lanes elsewhere", o)
    s.note("named", o, number, lanes, bool(o.attributes["wait"]))
    turn = meeting.arrive(o, own, _everything(s))
    if o.attributes["wait"]:
        s.wait(lambda: meeting.turn > turn, o)
        s.clock.learn(meeting.told, None)
    s.clock.barrier()
    return ()


def _ordered_barrier(s: Strand, o: Operation) -> Sequence[Any]:
    """Orders nothing: all warp groups of a role are one strand. ``warp_group_order`` asks whether
    they get stuck."""
    s.note("turn", o, str(o.attributes["step"]))
    return ()


def meet_cluster(s: Strand, o: Operation) -> None:
    """All lanes of all groups of the cluster."""
    s.note("cluster", o)
    meeting: Meeting = s.group.meeting
    turn = meeting.arrive(o, s.warps * WARP, _everything(s))
    s.wait(lambda: meeting.turn > turn, o)
    s.clock.learn(meeting.told, None)
    s.clock.barrier()


def _cluster_barrier(s: Strand, o: Operation) -> Sequence[Any]:
    meet_cluster(s, o)
    return ()


def _cluster_rank(s: Strand, o: Operation) -> Sequence[Any]:
    return (np.int64(s.group.rank),)


def _role_warp(s: Strand, o: Operation) -> Sequence[Any]:
    if s.leader is None and s.warps > 1:
        raise Unsupported("tile.role_warp outside of tile.once", o)
    return (np.int64(WARPS * (s.leader or 0)),)


def _cluster_reduce(s: Strand, o: Operation) -> Sequence[Any]:
    """With two places for each group they take turns: what was read is not written before all
    groups have met once more."""
    value, kind, groups = s.values[o.operands[0]], str(o.attributes["kind"]), len(s.group.peers)
    own: Memory = s.values[o.operands[1]]
    first = groups * (s.group.meeting.turn % (own.data.size // groups))
    for peer in s.group.peers:
        there = _of(s, peer, o, o.operands[1])
        _element(s, o, there, first + s.group.rank, "write")
        there.data[first + s.group.rank] = value
    meet_cluster(s, o)
    parts: list[Any] = []
    for i in range(first, first + groups):
        _element(s, o, own, i, "read")
        parts.append(own.data[i])
    while len(parts) > 1:
        paired = [combined(kind, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = paired + parts[len(parts) - len(parts) % 2 :]
    return (own.data.dtype.type(parts[0]),)


def _of(s: Strand, peer: Group, o: Operation, value: Any) -> Any:
    """What a group of the cluster has under a name."""
    if peer is not s.group:
        if peer.ended:
            raise AsynchronousFault(f"{o.name} reaches group {peer.number}, which has ended", o)
        if s.clock.knows(peer.key, s.leader) < 1:
            raise AsynchronousFault(
                f"{o.name} reaches group {peer.number}, which may not have begun", o
            )
        peer.reached[s.clock.key] = s.clock.time, o
    return peer.values[value]


def _element(s: Strand, o: Operation, memory: Memory, at: int, kind: Any) -> None:
    assert memory.history is not None
    lanes = ("cluster", s.clock.key, kind)
    access = AccessRecord(kind, o, s.clock, box_of((at,), (1,)), memory.frame, lanes=lanes)
    if kind == "write":
        take(s, memory, access)
    memory.history.add(access)


# --- transaction barriers -----------------------------------------------------------------------


def _alloc(s: Strand, o: Operation) -> Sequence[Any]:
    t, arrivals, name = o.result.barrier_type, o.integer("arrivals"), o.attributes["name"]
    key = ("barrier", s.group.number, name)
    return ([Slot((*key, i), arrivals) for i in range(t.count)],)


def slot_of(s: Strand, o: Operation, group: Group, at: int = 0) -> Slot:
    """The barrier that an operation names, with its slot behind it, of a group."""
    return _of(s, group, o, o.operands[at])[s.number(o.operands[at + 1])]


def _wait(s: Strand, o: Operation) -> Sequence[Any]:
    slot, phase = slot_of(s, o, s.group), s.number(o.operands[2])
    s.note("wait", o, *noted_slot(slot, phase))
    s.wait(lambda: slot.passed(phase), o)
    s.clock.learn(slot.told, s.leader)
    return ()


def _expect(s: Strand, o: Operation) -> Sequence[Any]:
    size = o.integer("bytes")
    slot = slot_of(s, o, s.group)
    s.note("arrive", o, *noted_slot(slot, 1, size))
    slot.expect(size)
    slot.arrive(o, s.clock.told(0 if s.leader is None else s.leader))
    return ()


def _arrive(s: Strand, o: Operation) -> Sequence[Any]:
    there = s.group.peers if o.attributes["across"] == "cluster" else [s.group]
    for peer in there:
        s.note("arrive", o, *noted_slot(slot_of(s, o, peer), 1, 0))
        for _ in range(s.parts if s.leader is None else 1):
            slot_of(s, o, peer).arrive(o, s.clock.told(s.leader))
    return ()


RULES: dict[str, Rule] = {
    "tile.named_barrier": _named_barrier,
    "tile.ordered_barrier": _ordered_barrier,
    "tile.cluster_barrier": _cluster_barrier,
    "tile.cluster_rank": _cluster_rank,
    "tile.cluster_reduce": _cluster_reduce,
    "tile.role_warp": _role_warp,
    "tile.mbarrier.alloc": _alloc,
    "tile.mbarrier.wait": _wait,
    "tile.mbarrier.expect": _expect,
    "tile.mbarrier.arrive": _arrive,
}
