"""The backward slice of the staged loads: the part of a kernel that the producer role runs.

Owns the backward slice from the starts and the surroundings of the staged loads, and the
reasons why it cannot run ahead of the rest. The slice is a set of operations; the lowering
walks the body with it. Must not know roles or barriers.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.definitions import ENDS, LEAVES
from tessera_lang.opt.schedule.query.backward_slices import Slice, completed, need_control
from tessera_lang.opt.schedule.query.kernel_facts import Facts
from tessera_lang.opt.schedule.query.producer_lane_copies import (
    any_by_lanes,
    is_by_lanes,
    is_written,
    tile_reason,
)
from tessera_lang.opt.schedule.query.staging_rings import is_staged

_EXITS = {"tile.scope", *LEAVES} - {"tile.return"}  # which ends the kernel


def producer_slice(facts: Facts, further: Sequence[Value] = ()) -> Slice:
    """What the staged loads need, to a fixed point; ``reason`` where it cannot run ahead.
    ``further`` values are needed too."""
    out = _sliced(facts, further)
    out.reason = _reason(facts, out)
    return out


def moved_by_lanes(facts: Facts) -> bool:
    """Whether all lanes of the moving role run its part: they bring tiles, or what says where
    tiles lie is computed of others."""
    if any_by_lanes(facts):
        return True
    staged = {x.operation.result for x in facts.reads if is_staged(x)}
    out = _sliced(facts)
    return any(
        out.has(o) and not o.regions and not any(v in staged for v in o.results)
        and any(isinstance(v.type, TileType) for v in (*o.operands, *o.results))
        for o in facts.kernel.walk()
    )  # fmt: skip


def _sliced(facts: Facts, further: Sequence[Value] = ()) -> Slice:
    out = Slice()
    out.values.update(further)
    for read in facts.reads:
        if is_staged(read):
            out.operations.add(id(read.operation))
            for around in read.inside:
                need_control(around, out)
            out.values.update(read.starts)
            out.values.update(read.extents if is_by_lanes(read) else ())
            out.values.add(read.view)
    completed(out, facts)
    return out


def producer_reason(facts: Facts) -> str:
    """Why what the staged loads need cannot be run by a role of its own; empty where it can."""
    return producer_slice(facts).reason


def _reason(facts: Facts, out: Slice) -> str:
    staged = {x.operation.result: None for x in facts.reads if is_staged(x)}
    for operation in facts.kernel.walk():
        if operation.name in _EXITS:
            return "it leaves a loop from inside"
        if id(operation) not in out.operations or operation.regions:
            continue
        reason = tile_reason(operation, facts) if operation.results[0] not in staged else ""
        if reason:
            return reason
        if operation.name == "tile.load" and is_written(operation, facts):
            return "where a staged tile lies is read from an array that this kernel writes"
    for value in (v for v in staged if v in out.values):
        return f"where a staged tile lies depends on `{value.name or 'a tile'}`"
    for value in staged:
        if any(_hands_over(u, value) for u in facts.users.get(value, ())):
            return "a staged tile is carried into the next iteration"
    return ""


def _hands_over(operation: Operation, value: Value) -> bool:
    return operation.name in ENDS or (bool(operation.regions) and value in operation.operands)
