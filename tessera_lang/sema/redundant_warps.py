"""Which lanes a kernel tells apart by the ids that it asks for.

Owns the warning of a kernel whose warps all write the same. Must not know ranges of indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tessera_lang.diagnostics.diagnostic import Edit, Fix
from tessera_lang.sema.bound_names import statements, targets
from tessera_lang.sema.context import Context
from tessera_lang.sema.side_tables import Builtin, TypedFunction
from tessera_lang.syntax import ast
from tessera_lang.target.arch.isa_constants import WARP
from tessera_lang.types.type import Tensor

_TELL_WARPS_APART = (
    Builtin("warp_id"), Builtin("tile_id"), Builtin("tile_linear_id"),
    Builtin("grid_tile_linear_id"),
)  # fmt: skip


def warn_of_equal_warps(c: Context) -> None:
    """Of a kernel that asks for the lane of a warp only, and has several warps that store."""
    lanes = prod(c.group) if c.group else 0
    uses = [e for e, s in c.typed.symbols.items() if s == Builtin("lane_id")]
    if lanes <= WARP or not uses or not _stores(c):
        return
    if any(s in _TELL_WARPS_APART for f in _functions(c.typed) for s in f.symbols.values()):
        return
    uses.sort(key=lambda e: e.span.lo)
    edits = tuple(Edit(e.span, "tile_linear_id") for e in uses)
    warps = -(-lanes // WARP)
    c.report(
        "T0317", f"the {warps} warps of a group all store the same", uses[0].span,
        f"this counts the {WARP} lanes of a warp, and the group has {lanes}",
        helps=("write `tile_linear_id()` for the lanes of the group",),
        fixes=(Fix("write `tile_linear_id`", edits, "unsafe"),), warning=True,
    )  # fmt: skip


def _stores(c: Context) -> bool:
    """Whether the kernel itself writes an element of an array."""
    return any(
        isinstance(t, ast.Subscript) and isinstance(c.typed.types.get(t.value), Tensor)
        for s in statements(c.declaration.body)
        for t in targets(s)
    )


def _functions(typed: TypedFunction) -> Iterator[TypedFunction]:
    """An instance and those that it calls."""
    yield typed
    for inner in typed.calls.values():
        yield from _functions(inner)
