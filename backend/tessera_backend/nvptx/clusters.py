"""A number of each group of a cluster, combined: every group gets the same result.

Each group writes its number into the shared memory of all of them, then all meet, then each
combines what lies in its own memory in the order of the ranks. So nobody reads the memory of a
group that may have ended. Must not know what the numbers are.
"""

from __future__ import annotations

from tessera_backend.llvm.emitter import LaneEmitter, Rule
from tessera_backend.nvptx import words
from tessera_backend.nvptx.cells import base_of
from tessera_backend.nvptx.places import dialect_of
from tessera_backend.nvptx.roles import cluster_barrier
from tessera_backend.nvptx.tile_values import apply
from tessera_lang.ir.core import Operation
from tessera_lang.types.dtype import DType

_RANK = "@llvm.nvvm.read.ptx.sreg.cluster.ctarank"


def _cluster_reduce(e: LaneEmitter, op: Operation) -> None:
    value, buffer = op.operands
    dtype, size = value.type, max(dialect_of(e).cluster, 1)
    assert isinstance(dtype, DType)
    base = base_of(e, e.places[buffer].pointer)
    _write(e, base, e.operand(value), dtype, size)
    cluster_barrier(e, aligned=False)
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
    if op.attributes.get("again", False):
        cluster_barrier(e, aligned=False)


def _write(e: LaneEmitter, base: str, value: str, dtype: DType, size: int) -> None:
    """Lane i writes into the memory of group i, at the place of this group."""
    f = e.f
    e.module.declare(f"i32 {_RANK}()")
    rank = f.value(f"call i32 {_RANK}()")
    own = f.value(f"add i32 {base}, {f.value(f'mul i32 {rank}, {dtype.bytes}')}")
    lane = f.value(f"trunc i64 {e.dialect.lane_linear(e)} to i32")
    write, written = f.label("cluster.write"), f.label("cluster.written")
    f.branch_if(f.value(f"icmp ult i32 {lane}, {size}"), write, written)
    f.place(write)
    there = words.assembly(
        e, "mapa.shared::cluster.u32 $0, $1, $2;", [("i32", "r")],
        [(f"i32 {own}", "r"), (f"i32 {lane}", "r")],
    )  # fmt: skip
    cell = words.Cell("shared::cluster", "i32", there[0], 0)
    words.store(e, cell, [value], dtype)
    f.branch(written)
    f.place(written)


RULES: dict[str, Rule] = {"tile.cluster_reduce": _cluster_reduce}
"""What ``hopper.py`` adds."""
