"""A number of each group of a cluster, combined: every group gets the same result.

Each group sends its number into the shared memory of all of them; what is sent counts its bytes at
a transaction barrier there. Each waits for its own barrier and combines what lies in its own memory
in the order of the ranks: nobody reads the memory of a group that may have ended, and no fence
waits for what a lane has stored before. Where this is done again and again, two places take turns:
to send the next number but one, a group has the numbers of all for the next, so all of them have
read those before. Must not know what the numbers are.
"""

from __future__ import annotations

from tessera_backend.llvm import small_floats
from tessera_backend.llvm.emitter import LaneEmitter, Rule
from tessera_backend.llvm.types import bits_type
from tessera_backend.nvptx.hopper.mbarriers import number_of, wait_for
from tessera_backend.nvptx.tiles import words
from tessera_backend.nvptx.tiles.element_places import dialect_of
from tessera_backend.nvptx.tiles.elementwise import apply
from tessera_backend.nvptx.tiles.shared_addressing import base_of
from tessera_lang.ir.core import BarrierType, Operation
from tessera_lang.types.dtype import DType

_RANK = "@llvm.nvvm.read.ptx.sreg.cluster.ctarank"


def _cluster_reduce(e: LaneEmitter, op: Operation) -> None:
    value, buffer, barrier = op.operands
    dtype, size = value.dtype, max(dialect_of(e).cluster, 1)
    base, meeting = base_of(e, e.places[buffer].pointer), number_of(e, e.operand(barrier))
    parity = "0"
    if isinstance(barrier.type, BarrierType) and barrier.type.count > 1:
        base, meeting, parity = _turn(e, base, meeting, size * dtype.bytes)
    _send(e, base, meeting, e.operand(value), dtype, size)
    wait_for(e, meeting, parity)
    parts = [
        words.load(e, words.Cell("shared", "i32", base, i * dtype.bytes), dtype, 1)[0]
        for i in range(size)
    ]
    while len(parts) > 1:
        name = f"tile.{op.attributes['kind']}"
        paired = [
            apply(e, name, dtype, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)
        ]
        parts = paired + parts[len(parts) - len(parts) % 2 :]
    e.bind(op.result, parts[0])


def _turn(e: LaneEmitter, base: str, meeting: str, bytes_: int) -> tuple[str, str, str]:
    """Place and barrier of this time, of two, and the parity to wait for."""
    f = e.f
    slot = f.slot("i32", initial="0")
    times = f.value(f"load i32, ptr {slot}")
    f.line(f"store i32 {f.value(f'add i32 {times}, 1')}, ptr {slot}")
    odd = f.value(f"and i32 {times}, 1")
    base = f.value(f"add i32 {base}, {f.value(f'mul i32 {odd}, {bytes_}')}")
    meeting = f.value(f"add i32 {meeting}, {f.value(f'shl i32 {odd}, 3')}")
    return base, meeting, f.value(f"and i32 {f.value(f'lshr i32 {times}, 1')}, 1")


def _send(e: LaneEmitter, base: str, meeting: str, value: str, dtype: DType, size: int) -> None:
    """Lane i sends to group i, at the place of this group; the first one says how much comes."""
    f = e.f
    e.module.declare(f"i32 {_RANK}()")
    rank = f.value(f"call i32 {_RANK}()")
    own = f.value(f"add i32 {base}, {f.value(f'mul i32 {rank}, {dtype.bytes}')}")
    lane = f.value(f"trunc i64 {e.dialect.lane_linear(e)} to i32")
    expect = "@$2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
    first = f.value(f"icmp eq i32 {lane}, 0")
    given = [(f"i32 {meeting}", "r"), (f"i32 {size * dtype.bytes}", "r"), (f"i1 {first}", "b")]
    words.assembly(e, expect, (), given)
    send = (
        "{ .reg .b32 there, met; mapa.shared::cluster.u32 there, $0, $2; "
        "mapa.shared::cluster.u32 met, $1, $2; "
        f"@$4 st.async.shared::cluster.mbarrier::complete_tx::bytes.b{8 * dtype.bytes} "
        "[there], $3, [met]; }"
    )
    bits, kind = small_floats.as_bits(e, value, dtype), bits_type(dtype)
    given = [
        (f"i32 {own}", "r"), (f"i32 {meeting}", "r"), (f"i32 {lane}", "r"),
        (f"{kind} {bits}", "r" if kind == "i32" else "l"),
        (f"i1 {f.value(f'icmp ult i32 {lane}, {size}')}", "b"),
    ]  # fmt: skip
    words.assembly(e, send, (), given)


RULES: dict[str, Rule] = {"tile.cluster_reduce": _cluster_reduce}
"""What ``hopper.py`` adds."""
