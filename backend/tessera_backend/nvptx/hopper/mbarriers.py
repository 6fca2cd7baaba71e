"""Transaction barriers in NVPTX: ``tile.mbarrier.*``.

Waiting is a loop around ``try_wait``, which sleeps in hardware. Arriving across a cluster takes
the plain form of the instruction: the one with a release at the cluster's scope costs a fence of
the whole device each time. Must not know what a barrier guards.
"""

from __future__ import annotations

from tessera_backend.llvm.emitter import LaneEmitter, Rule
from tessera_backend.nvptx.hopper.roles import (
    WARP_GROUP,
    begin_in_cluster,
    dialect_of,
    intrinsic,
)
from tessera_backend.nvptx.lanes.target_hooks import WARP
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import ALLOCATIONS
from tessera_lang.ir.tile.tile_ops import HOPPER

_BYTES = 8
_WAITING = frozenset(d.name for d in HOPPER) - {"tile.cluster_rank", *ALLOCATIONS}


def initialise(e: LaneEmitter, kernel: Operation) -> None:
    """Barriers of the kernel, by its first lane, before anything else runs."""
    dialect, f = dialect_of(e), e.f
    found = [op for op in kernel.regions[0].operations if op.name == "tile.mbarrier.alloc"]
    if not found:
        return
    first, ready = f.label("barriers"), f.label("barriers.ready")
    f.branch_if(f.value(f"icmp eq i64 {dialect.lane_linear(e)}, 0"), first, ready)
    f.place(first)
    for op in found:
        t = op.result.barrier_type
        base = dialect.shared_pointer(e, op)
        for slot in range(t.count):
            at = f.value(f"getelementptr inbounds i8, ptr addrspace(3) {base}, i32 {slot * _BYTES}")
            count = ("i32", str(op.attributes["arrivals"]))
            intrinsic(e, "mbarrier.init.shared", ("ptr addrspace(3)", at), count)
    intrinsic(e, "fence.mbarrier_init.release.cluster")
    f.place(ready)
    if dialect.cluster > 1:
        begin_in_cluster(e, kernel, _WAITING)
    else:
        dialect.barrier(e)


def _alloc(e: LaneEmitter, op: Operation) -> None:
    e.bind(op.result, dialect_of(e).shared_pointer(e, op))


def barrier_at(e: LaneEmitter, barrier: Value, slot: Value) -> str:
    """Address (``ptr addrspace(3)``) of one barrier."""
    base, known = e.operand(barrier), e.constant(slot)
    step = f"getelementptr inbounds i8, ptr addrspace(3) {base}, i32"
    if known is not None:
        return e.f.value(f"{step} {known * _BYTES}")
    number = e.f.value(f"trunc i64 {e.operand(slot)} to i32")
    return e.f.value(f"{step} {e.f.value(f'shl nuw nsw i32 {number}, 3')}")


def number_of(e: LaneEmitter, pointer: str) -> str:
    """A shared pointer as an i32 address."""
    return e.f.value(f"ptrtoint ptr addrspace(3) {pointer} to i32")


def _by_lanes(e: LaneEmitter, condition: str) -> str:
    """Opens a block for the lanes with the condition; the label to place behind it."""
    then, join = e.f.label("arrive"), e.f.label("arrived")
    e.f.branch_if(condition, then, join)
    e.f.place(then)
    return join


def _expect(e: LaneEmitter, op: Operation) -> None:
    dialect = dialect_of(e)
    at = barrier_at(e, op.operands[0], op.operands[1])
    join = ""
    if not dialect.role.single:
        join = _by_lanes(e, e.f.value(f"icmp eq i64 {dialect.lane_linear(e)}, 0"))
    intrinsic(
        e, "mbarrier.arrive.expect.tx.scope.cta.space.cta",
        ("ptr addrspace(3)", at), ("i32", str(op.attributes["bytes"])), result="i64",
    )  # fmt: skip
    if join:
        e.f.place(join)


def _lane_of_group(e: LaneEmitter) -> str:
    """Number of the lane (i32) in its warp group, or in a role that has fewer warps."""
    role = dialect_of(e).role
    lane = e.f.value(f"trunc i64 {e.dialect.lane_linear(e)} to i32")
    if role.warps <= WARP_GROUP:
        return lane
    return e.f.value(f"and i32 {lane}, {WARP_GROUP * WARP - 1}")


def _arrive(e: LaneEmitter, op: Operation) -> None:
    dialect = dialect_of(e)
    at = number_of(e, barrier_at(e, op.operands[0], op.operands[1]))
    across = op.attributes["across"] == "cluster" and dialect.cluster > 1
    if dialect.role.single:
        for rank in range(dialect.cluster if across else 1):
            _arrive_at(e, at, str(rank) if across else "")
        return
    lane = _lane_of_group(e)
    limit = dialect.cluster if across else 1
    join = _by_lanes(e, e.f.value(f"icmp ult i32 {lane}, {limit}"))
    _arrive_at(e, at, lane if across else "")
    e.f.place(join)


def _arrive_at(e: LaneEmitter, at: str, rank: str) -> None:
    """One arrival at this group's barrier, or at that of the group with a rank."""
    if not rank:
        text = "mbarrier.arrive.shared::cta.b64 _, [$0];"
        e.f.line(f'call void asm sideeffect "{text}", "r,~{{memory}}"(i32 {at}) #1')
        return
    text = (
        "{ .reg .b32 there; mapa.shared::cluster.u32 there, $0, $1; "
        "mbarrier.arrive.shared::cluster.b64 _, [there]; }"
    )
    e.f.line(f'call void asm sideeffect "{text}", "r,r,~{{memory}}"(i32 {at}, i32 {rank}) #1')


def _copied(e: LaneEmitter, op: Operation) -> None:
    """The hardware arrives for the lane when its copies are done."""
    at = number_of(e, barrier_at(e, op.operands[0], op.operands[1]))
    text = "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0];"
    e.f.line(f'call void asm sideeffect "{text}", "r,~{{memory}}"(i32 {at}) #1')


def _wait(e: LaneEmitter, op: Operation) -> None:
    at = number_of(e, barrier_at(e, op.operands[0], op.operands[1]))
    phase = e.f.value(f"trunc i64 {e.operand(op.operands[2])} to i32")
    wait_for(e, at, e.f.value(f"and i32 {phase}, 1"))


def wait_for(e: LaneEmitter, at: str, parity: str) -> None:
    """Until the phase of this parity of the barrier at an address is complete."""
    text = (
        "{\\0A.reg .pred done;\\0AWAIT:\\0A"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\\0A"
        "@done bra DONE;\\0Abra WAIT;\\0ADONE:\\0A}"
    )
    e.f.line(f'call void asm sideeffect "{text}", "r,r,~{{memory}}"(i32 {at}, i32 {parity}) #1')


RULES: dict[str, Rule] = {
    "tile.mbarrier.alloc": _alloc,
    "tile.mbarrier.expect": _expect,
    "tile.mbarrier.arrive": _arrive,
    "tile.memcpy.arrive": _copied,
    "tile.mbarrier.wait": _wait,
}
