"""Values that are needed behind a write of what they are made of: stored into an array before it.

Owns which variables these are. A value is one of the time when it got its name, as in NumPy, and is
computed where it is used: a write of an array in between would change it. Slices that have names
are values too; other names of arrays are not. Must not know how a value is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule.liveness import stored
from tessera_lang.lower.ast_to_schedule.state import State
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Node,
    Part,
    Permuted,
    Read,
    replaced_in,
    walk,
)
from tessera_lang.sema.side_tables import Local
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.type import Tensor


def save(
    s: State, views: Collection[Value], span: Span, later: Collection[Local],
    beside: Sequence[Node] = (),
) -> list[Node]:  # fmt: skip
    """Store the variables ``later`` that are made of these arrays, which are about to be written.
    ``beside``: values that are computed now; they read there too what is stored."""
    found = list(beside)
    for local in [x for x in s.tiles if x in later]:
        node = s.tiles[local]
        if _names_array(s, local, node) or not needs_memory(s, node, views):
            continue
        kept = s.keep(node, span, local.name)
        if kept is None:
            continue  # refused where it is used
        names = [x for x in s.tiles if x in later]
        made = replaced_in([*found, *(s.tiles[x] for x in names)], node, kept)
        found = made[: len(found)]
        s.tiles.update(zip(names, made[len(found) :], strict=True))
        s.bound_in[local] = s.b.current
    return found


def save_before(s: State, body: tuple[ast.Stmt, ...], span: Span, needed: frozenset[Local]) -> None:
    """Store what is needed of arrays that a loop or the sides of a condition write. ``needed``:
    variables that are read in the loop or behind it."""
    views = [view for view, _ in written_by(s, body)]
    if views:
        save(s, views, span, s.later | needed)


def will_write(s: State, body: tuple[ast.Stmt, ...]) -> None:
    """What a loop writes is no longer what it was before it, from its first iteration on."""
    for view, span in written_by(s, body):
        s.wrote(view, span)


def written_by(s: State, body: tuple[ast.Stmt, ...]) -> list[tuple[Value, Span]]:
    """Arrays that statements write into, and where."""
    found = [(s.array(target), target.span) for target in stored(s.typed, body)]
    return [(view, span) for view, span in found if view is not None]


def needs_memory(s: State, node: Node, views: Collection[Value]) -> bool:
    """Whether a value is computed of one of these arrays as they are now."""
    reads = [n for n in walk(node) if isinstance(n, Read)]
    written = {_array(s, v) for v in views}
    return any(_array(s, r.view) in written for r in reads) and all(
        r.version == s.version(r.view) for r in reads
    )


def _array(s: State, view: Value) -> Value:
    return s.seen.get(view, (view, ()))[0]


def _names_array(s: State, local: Local, node: Node) -> bool:
    """Whether a variable is an array of the call, or a part of one, by another name."""
    while isinstance(node, Permuted | Part):
        node = node.operand
    if not isinstance(node, Read):
        return False
    return any(isinstance(f.typed.variables.get(local), Tensor) for f in s.frames)
