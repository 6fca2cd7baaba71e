"""What a schedule says of shared memory and has nothing to be said of.

Owns the remarks on directives about staged tiles where no tile is staged, or where another
swizzle serves than the one that was said. Must not know who moves tiles.
"""

from __future__ import annotations

from tessera_grammar.directives import attributes

from tessera_lang.ir.core import Attribute, Operation, Program
from tessera_lang.opt.schedule.query.copy_rules import contiguous_axis, shared_layout
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    decides,
    overruled,
    said_by_user,
    with_attributes,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import FOR, Facts, facts_of, kernel_of
from tessera_lang.opt.schedule.query.staging_rings import PLAIN_STAGES, is_staged
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.target.arch.isa_constants import VECTOR_BYTES

_OF_STAGED: dict[str, Attribute] = {name: p.off for name, p in attributes() if p.staged}
"""Directives about staged tiles, with the value that asks for nothing."""
_NONE = "no tile is staged in shared memory"


@decides
def settle_staging(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    if context.machine.target == "cpu":
        return program
    if not any(is_staged(x) for x in facts.reads):
        for name, nothing in _OF_STAGED.items():
            said = kernel.attributes.get(name, nothing)
            if said_by_user(kernel, name) and said != nothing:
                kernel = overruled(kernel, name, nothing, context, _NONE)
    else:
        kernel = _padded(kernel, facts, context)
        if said_by_user(kernel, "swizzle"):
            kernel = _swizzled(kernel, facts, context)
        kernel = _by_lanes(kernel, facts, context)
    if "roles" in kernel.attributes and said_by_user(kernel, "vectorize"):
        context.note("T0742", f"`schedule.vectorize({kernel.attributes['vectorize']})` is not"
                     " honoured: the copy engine moves the tiles", kernel.span)  # fmt: skip
    for loop in (o for o in kernel.walk() if o.name == FOR and "pipeline_stages" in o.attributes):
        if not any(o.attributes.get("stage") == "shared" for o in loop.walk()):
            reason = f"`schedule.pipeline` has nothing to do: {_NONE} under it"
            context.note("T0742", reason, loop.span)
    return with_kernel(program, kernel)


def _by_lanes(kernel: Operation, facts: Facts, context: Context) -> Operation:
    """Lanes that copy tiles themselves write one place while they read the other."""
    said = kernel.attributes.get("pipeline_stages")
    staged = [x for x in facts.reads if is_staged(x) and x.loop is not None]
    plain = bool(staged) and all(x.operation.attributes.get("copy") == "plain" for x in staged)
    if not plain or not said_by_user(kernel, "pipeline_stages") or not isinstance(said, int):
        return kernel
    if said <= PLAIN_STAGES or "roles" in kernel.attributes:
        return kernel
    reason = f"tiles that lanes copy themselves have {PLAIN_STAGES} places"
    kernel = overruled(kernel, "pipeline_stages", PLAIN_STAGES, context, reason)
    return with_attributes(kernel, {x.operation: {"stages": PLAIN_STAGES} for x in staged})


def _padded(kernel: Operation, facts: Facts, context: Context) -> Operation:
    said = kernel.attributes.get("padding")
    if not isinstance(said, int) or not said or not said_by_user(kernel, "padding"):
        return kernel
    for load in (x for x in facts.loads if is_staged(x)):
        if said * load.tile.dtype.bytes % VECTOR_BYTES:
            reason = f"lines that begin at multiples of {VECTOR_BYTES} bytes are swizzled instead"
            return overruled(kernel, "padding", 0, context, reason)
    return kernel


def _swizzled(kernel: Operation, facts: Facts, context: Context) -> Operation:
    """With roles the copy engine and the products settle the swizzle; elsewhere the one that
    was said is taken wherever the lines of a tile are multiples of it."""
    said = kernel.integer("swizzle")
    if kernel.attributes.get("padding"):
        return overruled(kernel, "swizzle", 0, context, "lines are padded")
    for load in (x for x in facts.loads if is_staged(x)):
        axis = contiguous_axis(access_of(load.operation), facts)
        layout = shared_layout(load.tile, axis)
        width = layout.swizzle if layout is not None else 0
        if "roles" in kernel.attributes and width != said:
            reason = f"the copies and products of this kernel take {width} bytes"
            return overruled(kernel, "swizzle", width, context, reason)
        if said and 0 <= axis < len(load.tile.shape):
            line = load.tile.sizes[axis] * load.tile.dtype.bytes
            if line % said:
                reason = f"lines of {line} bytes are no multiple of it"
                return overruled(kernel, "swizzle", said, context, reason)
    return kernel
