"""Roles of warps in NVPTX: ``tile.roles``, ``tile.once``, barriers of parts and of clusters.

Roles are one chain of branches on the warp's number, which a shuffle has made uniform, so that
ptxas sees that whole warps go one way. Must not know what runs in a role.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tessera_backend.llvm.emitter import LaneEmitter, Rule
from tessera_backend.nvptx.lanes.target_hooks import WARP, NvptxDialect, Role
from tessera_lang.ir.core import Operation
from tessera_lang.record import replace
from tessera_lang.target.arch.isa_constants import WARP_GROUP

_BEGUN = "tile.cluster_begun"  # not of the IR: on its way to the emitter
_FIRST_NAMED = 8  # hardware barriers: 0 the group's, 1 to 7 the roles', 8 to 15 named ones


def dialect_of(e: LaneEmitter) -> NvptxDialect:
    if not isinstance(e.dialect, NvptxDialect):
        raise TypeError("emitted for another target")
    return e.dialect


def intrinsic(e: LaneEmitter, name: str, *operands: tuple[str, str], result: str = "void") -> str:
    """A call of ``llvm.nvvm.<name>`` that stays where it is; the operand of its result."""
    types = ", ".join(kind for kind, _ in operands)
    given = ", ".join(f"{kind} {value}" for kind, value in operands)
    e.module.declare(f"{result} @llvm.nvvm.{name}({types}) #1")
    call = f"call {result} @llvm.nvvm.{name}({given})"
    if result == "void":
        e.f.line(call)
        return ""
    return e.f.value(call)


def immediates(e: LaneEmitter, name: str, *numbers: tuple[str, int]) -> None:
    """A call of an intrinsic whose operands are all immediates."""
    types = ", ".join(f"{kind} immarg" for kind, _ in numbers)
    given = ", ".join(f"{kind} {value}" for kind, value in numbers)
    e.module.declare(f"void @llvm.nvvm.{name}({types}) #1")
    e.f.line(f"call void @llvm.nvvm.{name}({given})")


def warp_number(e: LaneEmitter) -> str:
    """The warp's number in the group (i32), the same in all of its lanes for all to see."""
    linear = e.f.value(f"trunc i64 {e.dialect.lane_linear(e)} to i32")
    own = e.f.value(f"lshr i32 {linear}, 5")
    return intrinsic(
        e, "shfl.sync.idx.i32", ("i32", "-1"), ("i32", own), ("i32", "0"), ("i32", "31"),
        result="i32",
    )  # fmt: skip


def _launched_registers(group: int, registers: int) -> int:
    """Registers of a lane at the launch: what ptxas may give each, in steps of eight."""
    return min(255, registers // group) // 8 * 8


def _roles(e: LaneEmitter, op: Operation) -> None:
    dialect, f = dialect_of(e), e.f
    whole = dialect.role
    join = f.label("roles.end")
    first = 0
    counts, registers = op.integers("warps"), op.integers("registers")
    for number, warps in enumerate(counts):
        then, other = f.label("role"), f.label("role.next")
        if number + 1 < len(op.regions):
            below = f.value(f"icmp ult i32 {dialect.warp_number}, {first + warps}")
            f.branch_if(below, then, other)
            f.place(then)
        dialect.role = Role(first, warps * WARP, 1 + number)
        base = op.integer("launched", 0) or _launched_registers(
            whole.lanes, dialect.arch.limits.registers
        )
        if registers[number] and registers[number] != base:
            way = "inc" if registers[number] > base else "dec"
            immediates(e, f"setmaxnreg.{way}.sync.aligned.u32", ("i32", registers[number]))
        _emit_region(e, op, number, join)
        if number + 1 < len(op.regions):
            f.place(other)
        first += warps
    dialect.role = whole
    f.place(join)


def _emit_region(e: LaneEmitter, op: Operation, number: int, join: str) -> None:
    region = op.regions[number]
    e.emit_all(region.operations[:-1])
    if e.f.open:
        e.f.branch(join)


def elected(e: LaneEmitter) -> str:
    """Whether this lane (i1) is the one that its warp elects."""
    pair = intrinsic(e, "elect.sync", ("i32", "-1"), result="{ i32, i1 }")
    return e.f.value(f"extractvalue {{ i32, i1 }} {pair}, 1")


def _once(e: LaneEmitter, op: Operation) -> None:
    dialect, f = dialect_of(e), e.f
    role = dialect.role
    if role.single:
        e.emit_all(op.regions[0].operations[:-1])
        return
    join = f.label("once.end")
    if role.warps > 1:
        warp = f.label("once.warp")
        f.branch_if(f.value(f"icmp eq i32 {_first_warp(e, op)}, 0"), warp, join)
        f.place(warp)
    lane = f.label("once")
    f.branch_if(elected(e), lane, join)
    f.place(lane)
    dialect.role = replace(role, single=True)
    _emit_region(e, op, 0, join)
    dialect.role = role
    f.place(join)


def _first_warp(e: LaneEmitter, op: Operation) -> str:
    """A number (i32) that is 0 in the first warp of the role, or of each of its warp groups."""
    number = dialect_of(e).role_warp(e)
    if op.attributes.get("each") != "warp_group":
        return number
    return e.f.value(f"and i32 {number}, {WARP_GROUP - 1}")


def _role_warp(e: LaneEmitter, op: Operation) -> None:
    e.bind(op.result, e.f.value(f"zext nneg i32 {dialect_of(e).role_warp(e)} to i64"))


def _named_barrier(e: LaneEmitter, op: Operation) -> None:
    number, lanes, wait = (op.attributes[name] for name in ("id", "lanes", "wait"))
    assert isinstance(number, int) and isinstance(lanes, int)
    dialect = dialect_of(e)
    place: int | str = _FIRST_NAMED + number
    if op.attributes.get("each") == "warp_group" and dialect.role.warps > WARP_GROUP:
        group = e.f.value(f"lshr i32 {dialect.role_warp(e)}, 2")
        place = e.f.value(f"add i32 {group}, {place}")
    dialect.named_barrier(e, place, lanes, wait=bool(wait))


def _ordered_barrier(e: LaneEmitter, op: Operation) -> None:
    """Each warp group has a barrier, at which it waits and the one before it arrives."""
    number, step = op.integer("id"), op.attributes["step"]
    dialect = dialect_of(e)
    groups = dialect.role.warps // WARP_GROUP
    if groups < 2:
        return
    first, lanes = _FIRST_NAMED + number, 2 * 32 * WARP_GROUP
    group = e.f.value(f"lshr i32 {dialect.role_warp(e)}, 2")
    last = e.f.value(f"icmp eq i32 {group}, {groups - 1}")
    own = e.f.value(f"add i32 {group}, {first}")
    if step == "wait":
        dialect.named_barrier(e, own, lanes, wait=True)
        return
    if step == "arrive":
        following = e.f.value(f"add i32 {own}, 1")
        place = e.f.value(f"select i1 {last}, i32 {first}, i32 {following}")
        dialect.named_barrier(e, place, lanes, wait=False)
        return
    give, given = e.f.label("order"), e.f.label("order.given")
    e.f.branch_if(last, give, given)
    e.f.place(give)
    dialect.named_barrier(e, first, lanes, wait=False)
    e.f.branch(given)
    e.f.place(given)


def begin_in_cluster(e: LaneEmitter, kernel: Operation, barriers: frozenset[str]) -> None:
    """This group has begun. That all of its cluster have is waited for before the first operation
    at the top that has one of ``barriers`` in it: until then loads are on their way."""
    intrinsic(e, "barrier.cluster.arrive.relaxed.aligned")
    operations = kernel.regions[0].operations
    first = next(o for o in operations if o.holds(barriers))
    before = e.grouped

    def grouped(given: Iterable[Operation]) -> Iterator[Operation]:
        for operation in before(given):
            if operation is first:
                yield Operation(_BEGUN)
            yield operation

    e.grouped = grouped


def _begun(e: LaneEmitter, op: Operation) -> None:
    intrinsic(e, "barrier.cluster.wait.aligned")


def _cluster_barrier(e: LaneEmitter, op: Operation) -> None:
    intrinsic(e, "barrier.cluster.arrive")
    intrinsic(e, "barrier.cluster.wait")


def _cluster_rank(e: LaneEmitter, op: Operation) -> None:
    name = "@llvm.nvvm.read.ptx.sreg.cluster.ctarank"
    e.module.declare(f"i32 {name}()")
    limit = max(dialect_of(e).cluster, 1)
    rank = e.f.value(f"call range(i32 0, {limit}) i32 {name}()")
    e.bind(op.result, e.f.value(f"zext nneg i32 {rank} to i64"))


RULES: dict[str, Rule] = {
    "tile.roles": _roles,
    "tile.once": _once,
    "tile.role_warp": _role_warp,
    "tile.named_barrier": _named_barrier,
    "tile.ordered_barrier": _ordered_barrier,
    _BEGUN: _begun,
    "tile.cluster_barrier": _cluster_barrier,
    "tile.cluster_rank": _cluster_rank,
}
