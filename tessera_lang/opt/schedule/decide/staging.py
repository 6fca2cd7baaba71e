"""Which loads are staged in shared memory, and what moves them there.

A load is staged where a product by matrix units reads it, or where the user says so by a
prefetch. What moves it follows from the facts of the launch; the remark says why it is not the
best copy of the machine. Must not know depths or roles.
"""

from __future__ import annotations

from tessera_lang.ir.core import Attribute, Operation, Program, TileType, Value
from tessera_lang.opt.schedule.decide.warp_roles import split_reason
from tessera_lang.opt.schedule.query.computed_tile_source import feeds
from tessera_lang.opt.schedule.query.copy_rules import (
    array_name,
    async_reason,
    pitch_reason,
    tma_reason,
)
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    decides,
    overruled,
    said_by_user,
    with_attributes,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    GATHER,
    PREFETCH,
    Facts,
    Load,
    facts_of,
    kernel_of,
)
from tessera_lang.opt.schedule.query.producer_lane_copies import (
    gathers_of,
    is_transposed,
    lanes_reason,
)
from tessera_lang.opt.schedule.query.repack_profitability import repacked_copy, turned_copy
from tessera_lang.opt.schedule.query.staging_rings import tile_bytes
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.target.launch_plan import COPY_ALIGNMENT
from tessera_lang.target.tuned_constants import STAGED_BYTES


@decides
def stage(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    if context.machine.target == "cpu":
        return with_kernel(program, _without_padding(kernel, context))
    written = {id(_pointer_of(facts, o.operands[1])) for o, _ in facts.stores}
    decisions: dict[Operation, dict[str, Attribute]] = {}
    for load in facts.loads:
        moved = {} if _is_operand(load, facts) else _moved_ahead(load, facts, context)
        if moved:
            decisions[load.operation] = {"stage": "shared", **moved}
        elif _wants_shared(load, facts):
            if id(_pointer_of(facts, load.view)) in written:
                name = array_name(facts, load.view)
                context.note("T0743", f"a tile of `{name}` is not moved ahead: this kernel also"
                             " writes that array", load.operation.span)  # fmt: skip
                decisions[load.operation] = {"stage": "shared", "copy": "plain"}
                continue
            decisions[load.operation] = {"stage": "shared", **_copy(load, facts, context)}
        else:
            decisions[load.operation] = {"stage": "registers"}
    decisions.update(_gathers(facts, context))
    if kernel.attributes.get("use_shared_memory") is False:
        for load in (x for x in facts.loads if _is_second(x, facts)):
            context.note("T0742", "`schedule.use_shared_memory(False)` is not honoured for the tile"
                         f" of `{array_name(facts, load.view)}`: a second factor gets to the lanes"
                         " of a matrix unit by shared memory", load.operation.span)  # fmt: skip
    return with_kernel(program, _without_padding(with_attributes(kernel, decisions), context))


def _gathers(facts: Facts, context: Context) -> dict[Operation, dict[str, Attribute]]:
    """Gathers that products read, or that what they read is computed from, where a role of its
    own can bring them ahead."""
    decisions: dict[Operation, dict[str, Attribute]] = {}
    if split_reason(facts, context.machine):
        return decisions
    direct = gathers_of(facts)
    gathers = (x for x in facts.reads if x.operation.name == GATHER)
    for read in (x for x in gathers if x in direct or _is_worth_it(x, facts)):
        name, span = array_name(facts, read.view), read.operation.span
        reason = lanes_reason(read, facts)
        if reason:
            context.note("T0743", f"rows of `{name}` are not gathered ahead: {reason}", span)
        else:
            why = tma_reason(access_of(read.operation), facts, name)
            context.note("T0743", f"not TMA: {why}; lanes bring them", span)
            decisions[read.operation] = {"stage": "shared", "copy": "plain"}
    return decisions


def _pointer_of(facts: Facts, view: Value) -> Value:
    return facts.definitions[view].operands[0]


def _wants_shared(load: Load, facts: Facts) -> bool:
    if facts.kernel.attributes.get("use_shared_memory") is False:
        return _is_second(load, facts)
    if _is_operand(load, facts):
        return True
    users = facts.users.get(load.operation.result, [])
    return any(u.name == PREFETCH for u in users) and load.loop is not None


def _moved_ahead(load: Load, facts: Facts, context: Context) -> dict[str, Attribute]:
    """What moves a load ahead that an operand of a product is computed from; empty where it is
    not moved."""
    if split_reason(facts, context.machine) or not _is_worth_it(load, facts):
        return {}
    if facts.kernel.attributes.get("async_copy") is False:
        return {}
    name, span = array_name(facts, load.view), load.operation.span
    reason = tma_reason(access_of(load.operation), facts, name)
    apart = lanes_reason(load, facts)
    if not reason and not apart:
        return {"copy": "tma"}
    if not apart:
        copied = _from_a_copy(load, facts, context, reason)
        if copied:
            return copied
    apart = apart or async_reason(load, facts, name)
    if apart:
        context.note("T0743", f"a tile of `{name}` is not brought ahead: {apart}", span)
        return {}
    context.note("T0743", f"not TMA: {reason}; lanes bring it", span)
    return {"copy": "async"}


def _from_a_copy(
    load: Load, facts: Facts, context: Context, reason: str
) -> dict[str, Attribute]:  # fmt: skip
    """What moves a tile from a copy of its array that is made before the launch; empty where none
    is. ``reason``: why the copy engine does not take it from the array itself."""
    better = repacked_copy(load, facts, context.machine)
    if better is None:
        return {}
    name, span = array_name(facts, load.view), load.operation.span
    if better.lines >= 0:
        reason = reason or async_reason(load, facts, name)
        context.note("T0743", f"`{name}` is copied once before the launch, with lines along its"
                     f" axis {better.lines}: {reason}", span)  # fmt: skip
        return {"copy": better.copy, "repack": True, "lines": better.lines}
    reason = reason or pitch_reason(access_of(load.operation), facts, name)
    context.note("T0743", f"`{name}` is copied once before the launch, to lines that begin at"
                 f" multiples of {COPY_ALIGNMENT} bytes: {reason}", span)  # fmt: skip
    return {"copy": better.copy, "repack": True}


def _is_worth_it(read: Load, facts: Facts) -> bool:
    """Whether a tile is a matrix of some size that an operand of a product is computed from in
    every iteration."""
    return read.loop is not None and tile_bytes(read.tile) >= STAGED_BYTES and feeds(read, facts)


def _is_operand(load: Load, facts: Facts) -> bool:
    return any(_reads(load, x.load) for dot in facts.dots for x in (dot.a, dot.b))


def _is_second(load: Load, facts: Facts) -> bool:
    """Whether a matrix unit takes a tile as a second factor."""
    return any(_reads(load, dot.b.load) for dot in facts.dots if _unit(dot.operation) != "fma")


def _reads(load: Load, operand: Load | None) -> bool:
    return operand is not None and operand.operation is load.operation


def _unit(dot: Operation) -> object:
    return dot.attributes.get("unit", "fma")


def _copy(load: Load, facts: Facts, context: Context) -> dict[str, Attribute]:
    name = array_name(facts, load.view)
    machine, span = context.machine, load.operation.span
    if facts.kernel.attributes.get("async_copy") is False:
        return {"copy": "plain"}
    if machine.has_roles and is_transposed(load, facts):
        why = f"the contraction of `{name}` is not contiguous"
        context.note("T0743", f"not TMA: {why}, and products of {load.tile.dtype} need it; lanes"
                     " transpose it", span)  # fmt: skip
        return {"copy": "plain"}
    turned = turned_copy(load, facts) if _is_turned(load) else None
    if turned is not None:
        context.note("T0743", f"`{name}` is copied once before the launch, with lines along its"
                     f" axis {turned.lines}: lanes read vectors along it", span)  # fmt: skip
        return {"copy": turned.copy, "repack": True, "lines": turned.lines}
    reason = ""
    if machine.has_roles:
        reason = tma_reason(access_of(load.operation), facts, name)
        if not reason:
            return {"copy": "tma"}
    copied = _from_a_copy(load, facts, context, reason)
    if copied:
        return copied
    if reason:
        context.note("T0743", f"not TMA: {reason}", span)
    if machine.has("cp_async"):
        reason = async_reason(load, facts, name)
        if not reason:
            return {"copy": "async"}
    context.note("T0743", f"not asynchronous: {reason or 'the machine has no such copies'}", span)
    return {"copy": "plain"}


def _is_turned(load: Load) -> bool:
    """Whether the axes of a tile are those of the array in another order."""
    dims = load.operation.integers("dims")
    return tuple(sorted(dims)) != dims


def _without_padding(kernel: Operation, context: Context) -> Operation:
    """Padding of a buffer that the hardware swizzles has nothing to do, nor has one that breaks
    the pieces of a copy."""
    padding = kernel.attributes.get("padding")
    if not padding or not said_by_user(kernel, "padding"):
        return kernel
    staged = [o for o in kernel.walk() if o.attributes.get("stage") == "shared"]
    if not staged:
        return overruled(kernel, "padding", 0, context, "no tile is staged in shared memory")
    assert isinstance(padding, int)
    types = [o.result.type for o in staged if o.attributes.get("copy") in ("tma", "async")]
    whole = all(isinstance(t, TileType) and padding * t.dtype.bytes % 16 == 0 for t in types)
    if types and (context.machine.has_roles or not whole):
        reason = "asynchronous copies need lines of 16 bytes, so a swizzle avoids the conflicts"
        return overruled(kernel, "padding", 0, context, reason)
    return kernel
