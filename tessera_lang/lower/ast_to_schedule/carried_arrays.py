"""Whole values that a loop changes: each is an array of the call, written at the end of a round.

Owns which array holds a variable, and in which order new values are stored: what needs the old
value of another variable is computed before that is overwritten. Must not know how a loop is built.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule import node_builders, stores
from tessera_lang.lower.ast_to_schedule.state import State
from tessera_lang.lower.ast_to_schedule.value_nodes import Axis, Node, Read, replaced, walk
from tessera_lang.lower.ast_to_tile.context import Unsupported
from tessera_lang.record import replace
from tessera_lang.sema.side_tables import Local
from tessera_lang.sema.tile.facts import Facts
from tessera_lang.source import Span
from tessera_lang.types.dtype import DType
from tessera_lang.types.shape import Dim, symbols_of
from tessera_lang.types.type import TileAxis


def enter(s: State, local: Local, dtype: DType, shown: Sequence[TileAxis], span: Span) -> bool:
    """Store what a variable holds at the head of a loop; False where no array can hold it.
    ``shown``: its axes, of which one may have no room where the value at the head has."""
    kept = s.keep(node_builders.cast(s, s.tiles[local], dtype), span, local.name)
    if kept is None:
        return False
    for node in [n for n in walk(kept) if isinstance(n, Read)]:
        axes = tuple(
            a if b.capacity is not None else Axis(a.extent, None)
            for a, b in zip(node.axes, shown, strict=True)
        )
        kept = replaced(kept, node, replace(node, axes=axes))
        if kept is not node and not isinstance(kept, Read):
            kept = replace(kept, axes=axes)
    s.carried[local] = s.tiles[local] = kept
    return True


def rebind(s: State, local: Local) -> None:
    """The variable is what its array holds now."""
    s.tiles[local] = _now(s, s.tiles[local])


def leave(s: State, locals_: Sequence[Local], span: Span) -> None:
    """Store the values of the variables at the end of a round."""
    arrays = {x: _view(s.carried[x]) for x in locals_ if x in s.carried}
    for local, view in arrays.items():
        others = set(arrays.values()) - {view}
        if any(isinstance(n, Read) and n.view in others for n in walk(s.tiles[local])):
            kept = s.keep(s.tiles[local], span)
            if kept is None:
                raise _refused(local, span)
            s.tiles[local] = kept
    for local, view in arrays.items():
        node, kept = s.tiles[local], _now(s, s.carried[local])
        if not _fits(s, node, kept):
            raise _refused(local, span)
        if not _is_as_it_was(node, kept):
            with s.b.at(span):
                dtype = view.view_type.dtype
                part = None if _is_whole(s, kept) else kept.axes
                stores.fill(s, view, node_builders.cast(s, node, dtype), span, part)
        s.tiles[local] = _now(s, kept)


def _refused(local: Local, span: Span) -> Unsupported:
    what = f"`{local.name}`, a whole value whose sizes are not the same in each round of a loop"
    return Unsupported(span, what, "give the values of other sizes a name of their own")


def _fits(s: State, node: Node, kept: Node) -> bool:
    """Whether a value has the sizes of the array, of which one that is a number says less."""
    if s.private is None or len(node.axes) != len(kept.axes):
        return False
    for a, b in zip(node.axes, kept.axes, strict=True):
        dim = s.private.dim(a.extent)
        if a.extent is not b.extent and (
            dim is None or not _agree(s, dim, s.private.dim(b.extent))
        ):
            return False
    return True


def _is_whole(s: State, kept: Node) -> bool:
    """Whether a variable has the size of its array in every round of the loops around."""
    return s.private is not None and all(s.private.dim(a.extent) is not None for a in kept.axes)


def _agree(s: State, dim: Dim, other: Dim | None) -> bool:
    """Whether two sizes are one, or the launch looks that they are."""
    info = s.typed.tile
    pairs = (
        () if info is None else ((a.left, a.right) for a in info.agreements if a.operator == "==")
    )
    if dim == other:
        return True
    if other is not None and _always_equal(dim, other):
        return True
    return any({dim, other} == set(pair) for pair in pairs)


def _always_equal(dim: Dim, other: Dim) -> bool:
    """Whether two sizes are equal whatever the sizes of the arrays are."""
    least = dict.fromkeys((*symbols_of(dim), *symbols_of(other)), 0)
    return Facts(least=least).equals(dim, other)


def _read(kept: Node) -> Read:
    (found,) = (n for n in walk(kept) if isinstance(n, Read))
    return found


def _view(kept: Node) -> Value:
    return _read(kept).view


def _now(s: State, kept: Node) -> Node:
    old = _read(kept)
    return replaced(kept, old, replace(old, version=s.version(old.view)))


def _is_as_it_was(node: Node, kept: Node) -> bool:
    """Whether a value is what the array holds."""
    a, b = ([n for n in walk(x) if isinstance(n, Read)] for x in (node, kept))
    return node is kept or (
        isinstance(node, Read) and isinstance(kept, Read)
        and replace(a[0], axes=b[0].axes, span=None) == replace(b[0], span=None)
    )  # fmt: skip
