"""Reports of what went wrong in a lane, written in place without a call.

The record is 8 words of 64 bits at the address in the plan's ``fault`` slot: state (0 free,
else the number of the site + 1), axis, index, bound, group, lane. The first lane to exchange
the state owns the record; the others go on.
"""

from __future__ import annotations

from tessera_backend.llvm.emitter import LaneEmitter
from tessera_lang.ir.core import Operation
from tessera_lang.record import replace
from tessera_lang.target.launch_plan import LaunchPlan, Slot


def unlikely(e: LaneEmitter) -> str:
    """Suffix of a branch whose first way is cold."""
    weights = e.module.metadata('!{!"branch_weights", i32 1, i32 1048575}')
    return f", !prof {weights}"


def site_of(op: Operation) -> int:
    site = op.attributes.get("site", -1)
    return site if isinstance(site, int) else -1


def reporting_plan(plan: LaunchPlan, kernel: Operation) -> LaunchPlan:
    """The plan with slots for the record and for printed lines at its end, where there are
    operations that may report or print.

    Known only behind the passes, which prove sites away: so the backend adds it.
    """
    added: list[Slot] = []
    has_fault = any(slot.kind == "fault" for slot in plan.slots)
    if not has_fault and any(site_of(op) >= 0 for op in kernel.walk()):
        added.append(Slot("fault"))
    if kernel.holds("tile.print"):
        added.append(Slot("print"))
    return replace(plan, slots=(*plan.slots, *added)) if added else plan


def report(e: LaneEmitter, site: int, axis: str, index: str, bound: str) -> None:
    """Fills the record unless it is taken; the block written goes on behind it."""
    if site < 0 or not e.fault:
        return
    f = e.f
    pointer = e.dialect.pointer_type("global")
    record = f.value(f"inttoptr i64 {e.fault} to {pointer}")
    pair = f.value(
        f"cmpxchg {pointer} {record}, i64 0, i64 {site + 1} "
        f"{e.dialect.syncscope('device')}monotonic monotonic, align 8"
    )
    first = f.value(f"extractvalue {{ i64, i1 }} {pair}, 1")
    write, done = f.label("fault.write"), f.label("fault.done")
    f.branch_if(first, write, done)
    f.place(write)
    fields = (axis, index, bound, e.dialect.group_linear(e), e.dialect.lane_linear(e))
    for number, field in enumerate(fields, 1):
        address = f.value(f"getelementptr inbounds i64, {pointer} {record}, i64 {number}")
        f.line(f"store i64 {field}, {pointer} {address}, align 8")
    f.place(done)


def report_if(
    e: LaneEmitter, condition: str, op: Operation, *, axis: str, index: str, bound: str
) -> None:
    """A cold branch to a report where ``condition`` holds."""
    site = site_of(op)
    if site < 0 or not e.fault:
        return
    cold, go_on = e.f.label("fault"), e.f.label("go_on")
    e.f.branch_if(condition, cold, go_on, unlikely(e))
    e.f.place(cold)
    report(e, site, axis, index, bound)
    e.f.place(go_on)
