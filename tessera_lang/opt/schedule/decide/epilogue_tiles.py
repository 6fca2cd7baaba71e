"""How a result leaves: in columns that fit two small buffers, by the copy engine
where it can.

Owns the width of a subtile. Stores whose array a tensor map cannot show are written by lanes,
line by line; the remark says why. Must not know how they are lowered.
"""

from __future__ import annotations

from tessera_lang.ir.core import Program
from tessera_lang.opt.schedule.query.context import (
    Context,
    decides,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.query.copy_rules import (
    access_of,
    array_name,
    contiguous_axis,
    tma_reason,
)
from tessera_lang.opt.schedule.query.kernel_facts import STORE, facts_of, kernel_of
from tessera_lang.opt.schedule.query.staging_rings import subtile_columns


@decides
def subtile(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    if "roles" not in kernel.attributes:
        return program
    facts = facts_of(kernel)
    widths: list[int] = []
    for store, _ in facts.stores:
        access = access_of(store)
        if store.name != STORE or len(access.tile.shape) < 2:
            continue
        name = array_name(facts, access.view)
        reason = tma_reason(access, facts, name)
        if not reason and not subtile_columns(access.tile):
            reason = f"{access.tile.sizes[-1]} columns of `{name}` are no multiple of 64 bytes"
        if reason:
            context.note("T0743", f"not stored by TMA: {reason}", store.span)
        if reason and contiguous_axis(access, facts) != len(access.tile.shape) - 1:
            continue
        if not subtile_columns(access.tile):
            continue
        widths.append(subtile_columns(access.tile))
    if not widths:
        return program
    return with_kernel(program, with_decisions(kernel, {"subtile": min(widths)}))
