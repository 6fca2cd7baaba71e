"""Arrays that each lane has of its own: registers, where every index is known.

They are stack slots, which LLVM turns into registers once the loops that walk them are unrolled.
What is indexed by a number that is known only at run time stays in local memory: right, and slow.
"""

from __future__ import annotations

from math import prod

from tessera_backend.llvm.emitter import LaneEmitter
from tessera_backend.llvm.types import memory_type
from tessera_lang.analysis.lanes.shared_access_log import BUFFER_AT
from tessera_lang.ir.core import BufferType, Operation
from tessera_lang.target.arch.isa_constants import VECTOR_BYTES
from tessera_lang.target.tuned_constants import OWN_CELLS


def own_memory(e: LaneEmitter, op: Operation) -> str:
    """A slot for the lane's part of a ``tile.local.alloc``. It begins as zeros, so that a cell
    that is read before it is written has some value, the same each time."""
    t = op.result.type
    if not isinstance(t, BufferType):
        raise TypeError("what a lane has of its own is a buffer")
    cells = prod(t.shape[:-1])
    pointer = e.f.slot(f"[{cells} x {memory_type(t.dtype)}]", VECTOR_BYTES)
    e.module.declare("void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)")
    e.f.line(
        f"call void @llvm.memset.p0.i64(ptr align {VECTOR_BYTES} {pointer}, i8 0, "
        f"i64 {cells * t.dtype.bytes}, i1 false)"
    )
    return pointer


def unrolled(e: LaneEmitter, op: Operation) -> str:
    """Metadata that unrolls a loop of few turns, known in number, by which such an array is
    walked."""
    lower, upper, step = [e.constant(v) for v in op.operands[:3]]
    if lower is None or upper is None or not step:
        return ""
    if len(range(lower, upper, step)) > OWN_CELLS or not _walks_own(op):
        return ""
    full = e.module.metadata('!{!"llvm.loop.unroll.full"}')
    return ", !llvm.loop " + e.module.distinct("!{{self}, " + full + "}")


def _walks_own(loop: Operation) -> bool:
    """Whether an index of an array of the lane depends on the turn of the loop."""
    turn = set(loop.regions[0].arguments)
    for op in loop.walk():
        if op is loop:
            continue
        at = BUFFER_AT.get(op.name)
        if at is not None:
            t = op.operands[at].type
            own = isinstance(t, BufferType) and t.space == "local"
            if own and not turn.isdisjoint(op.operands[at + 1 : -1]):
                return True
        if not turn.isdisjoint(op.operands):
            turn.update(op.results)
            turn.update(a for region in op.regions for a in region.arguments)
    return False
