"""Tiles that the lanes of the producer role copy, where no copy engine can.

Gathered rows, arrays whose lines do not begin where the copy engine needs it, and operands that
have to lie along another axis than their array: the lanes read them and write them into the
ring. Owns which of them the lanes can bring, and how they lie. Must not know roles or barriers.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation
from tessera_lang.ir.definitions import ARRAY_READS
from tessera_lang.ir.layout import SharedLayout
from tessera_lang.opt.schedule.query.backward_slices import Slice, completed
from tessera_lang.opt.schedule.query.copy_rules import (
    begin_reason,
    contiguous_axis,
    extent_reason,
    shared_layout,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    GATHER,
    Facts,
    Load,
    Operand,
    read_behind,
)
from tessera_lang.opt.schedule.query.tile_access import access_of


def is_by_lanes(read: Load) -> bool:
    """Whether a staged tile is brought by lanes where the kernel has roles."""
    attributes = read.operation.attributes
    return attributes.get("stage") == "shared" and attributes.get("copy") != "tma"


def any_by_lanes(facts: Facts) -> bool:
    return any(is_by_lanes(x) for x in facts.reads)


def lanes_reason(read: Load, facts: Facts) -> str:
    """Why lanes that run ahead cannot bring a tile; empty where they can."""
    if is_written(read.operation, facts):
        return "this kernel also writes that array"
    if lanes_layout(read, facts) is None:
        return "its lines have no place in shared memory that a product reads"
    needs = Slice(values={read.view, *read.starts, *read.extents})
    completed(needs, facts)
    for operation in facts.kernel.walk():
        if needs.has(operation) and not operation.regions:
            reason = tile_reason(operation, facts)
            if reason:
                return reason
    return ""


def tile_reason(operation: Operation, facts: Facts) -> str:
    """Why the moving role cannot run an operation that says where a tile lies."""
    if operation.name == DOT:
        return "where a staged tile lies depends on a product"
    if operation.name in ARRAY_READS and is_written(operation, facts):
        return "where a staged tile lies is read from an array that this kernel writes"
    return ""


def is_written(read: Operation, facts: Facts) -> bool:
    """Whether the kernel writes the array that an operation reads."""
    pointer = facts.definitions[read.operands[0]].operands[0]
    written = (facts.definitions[o.operands[1]].operands[0] for o, _ in facts.stores)
    return any(w is pointer for w in written)


# --- how they lie ----------------------------------------------------------------------------


def lanes_layout(read: Load, facts: Facts) -> SharedLayout | None:
    """How a tile that lanes bring lies in shared memory: along the contraction where a product
    asks for it, else along the array's lines if they fit, else along the other axis."""
    rank = len(read.tile.shape)
    if rank < 2 or any(n != 1 for n in read.tile.sizes[:-2]):
        return None
    wanted = wanted_axes(read, facts)
    if wanted:
        return shared_layout(read.tile, rank + next(iter(wanted))) if len(wanted) == 1 else None
    axis = contiguous_axis(access_of(read.operation), facts)
    order = dict.fromkeys((axis, rank - 1, rank - 2))
    found = (shared_layout(read.tile, a) for a in order)
    return next((x for x in found if x is not None), None)


def wanted_axes(read: Load, facts: Facts) -> dict[int, None]:
    """The axes of a tile (-1 or -2) along which products of the asynchronous unit need it to be
    contiguous."""
    out: dict[int, None] = {}
    for dot in facts.dots:
        for operand, contraction in ((dot.a, -1), (dot.b, -2)):
            if _is(read, operand) and read.tile.dtype.bits != 16:
                out[-3 - contraction if operand.swapped else contraction] = None
    return out


def is_transposed(read: Load, facts: Facts) -> bool:
    """Whether a second operand of the asynchronous unit lies along another axis than its array:
    no copy engine moves it so. A first one is read to registers instead."""
    axis = contiguous_axis(access_of(read.operation), facts) - len(read.tile.shape)
    seconds = (d.b for d in facts.dots if d.operation.attributes.get("unit") == "wgmma")
    return (
        any(_is(read, b) for b in seconds) and read.tile.dtype .bits != 16
        and axis not in wanted_axes(read, facts)
    )  # fmt: skip


def ends_early(read: Load, facts: Facts) -> bool:
    """Whether a tile may end before its array does, which no copy engine is told, or begins where
    none can."""
    access = access_of(read.operation)
    axis = contiguous_axis(access, facts)
    begins = axis >= 0 and bool(begin_reason(access, axis, facts, ""))
    return begins or bool(extent_reason(access, facts, ""))


def _is(read: Load, operand: Operand) -> bool:
    return operand.load is not None and operand.load.operation is read.operation


def gathers_of(facts: Facts) -> list[Load]:
    """The gathers that products read, through what moves no data."""
    found: dict[int, None] = {}
    for dot in facts.dots:
        for operand in (dot.a, dot.b):
            read = read_behind(operand.value, facts)
            if read is not None:
                found[id(read.operation)] = None
    return [x for x in facts.reads if x.operation.name == GATHER and id(x.operation) in found]
