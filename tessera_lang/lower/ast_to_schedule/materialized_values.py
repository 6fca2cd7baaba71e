"""Values that cannot be computed where they are used: stored into an array of the call first.

Owns when that is possible, and what is read instead. A scan along an axis that is cut into tiles,
of which something but the element at the same place is used, is such a value; so is one that is
stored into an array of which it needs other elements. Must not know syntax.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule import (
    extent_upper_bounds,
    node_builders,
    stores,
    subscripts,
)
from tessera_lang.lower.ast_to_schedule.state import State
from tessera_lang.lower.ast_to_schedule.value_nodes import Node
from tessera_lang.record import replace
from tessera_lang.source import Span
from tessera_lang.types.dtype import I64, INDEX


def keep(
    s: State, node: Node, span: Span, name: str, room: Sequence[Value] | None = None
) -> Node | None:
    """The same value, read from a scratch array that it is stored into now; None where no sizes of
    the launch are known that its own never pass, or where a loop over tiles is around: its
    iterations would share the array, and so run in order. ``room``: such sizes, where a loop
    changes its own; none: only its own will do."""
    if s.private is None or s.tile_loops:
        return None
    sizes = [a.extent for a in node.axes]
    if room and any(s.private.dim(n) is None for n in sizes):
        sizes = list(room)
    if room is None:
        sizes = [extent_upper_bounds.room(s, node, i) or n for i, n in enumerate(sizes)]
    dims = [s.private.dim(n) for n in sizes]
    known = [d for d in dims if d is not None]
    if len(known) < len(dims) or not dims:
        return None
    if id(node) in s.keeping:
        return None  # it is no more computed there than it was
    dtype = I64 if node.dtype == INDEX else node.dtype
    view = s.private.make(name, dtype, known, sizes)
    with s.b.at(span):
        s.keeping.add(id(node))
        stores.fill(s, view, node, span, node.axes)
        s.keeping.discard(id(node))
        read = replace(subscripts.array(s, view, span), axes=node.axes)
        return node_builders.cast(s, read, node.dtype)
