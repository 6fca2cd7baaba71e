"""Arrays that each lane has of its own: registers, where every index is known.

They are stack slots, which LLVM turns into registers once the loops that walk them are unrolled.
What is indexed by a number that is known only at run time stays in local memory: right, and slow.
"""

from __future__ import annotations

from math import prod

from tessera_backend.llvm.emitter import LaneEmitter
from tessera_backend.llvm.types import memory_type
from tessera_lang.analysis.shared_memory import BUFFER_AT
from tessera_lang.ir.core import BufferType, Operation

_ALIGNMENT = 16
_MOST_TRIPS = 64
"""Turns of a loop that is unrolled; an array with more cells would not fit into registers."""


def own_memory(e: LaneEmitter, op: Operation) -> str:
    """A slot for the lane's part of a ``tile.local.alloc``. It begins as zeros, so that a cell
    that is read before it is written has some value, the same each time."""
    t = op.result.type
    if not isinstance(t, BufferType):
        raise TypeError("what a lane has of its own is a buffer")
    cells = prod(t.shape[:-1])
    pointer = e.f.slot(f"[{cells} x {memory_type(t.dtype)}]", _ALIGNMENT)
    e.module.declare("void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)")
    e.f.line(
        f"call void @llvm.memset.p0.i64(ptr align {_ALIGNMENT} {pointer}, i8 0, "
        f"i64 {cells * t.dtype.bytes}, i1 false)"
    )
    return pointer


def unrolled(e: LaneEmitter, op: Operation) -> str:
    """Metadata that unrolls a loop of few turns, known in number, that uses such an array."""
    numbers = [e.constant(v) for v in op.operands[:3]]
    lower, upper, step = numbers
    if lower is None or upper is None or step is None or step == 0:
        return ""
    if len(range(lower, upper, step)) > _MOST_TRIPS or not any(map(_uses_own, op.walk())):
        return ""
    full = e.module.metadata('!{!"llvm.loop.unroll.full"}')
    return ", !llvm.loop " + e.module.distinct("!{{self}, " + full + "}")


def _uses_own(op: Operation) -> bool:
    at = BUFFER_AT.get(op.name)
    if at is None:
        return False
    t = op.operands[at].type
    return isinstance(t, BufferType) and t.space == "local"
