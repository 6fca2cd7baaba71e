"""Which axes of a store are an iteration space: those of a value that is made element by element
need no room in registers, whatever the program takes of them.

An axis taken whole, or by numbers, has a capacity as soon as another is sliced. A value that
reduces, multiplies or scans needs it; one that does not is computed in any parts, and a part that
fills one group is enough. Owns that choice. Must not know machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule.demand_driven_evaluation import AnyWindow
from tessera_lang.lower.ast_to_schedule.state import State
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Axis,
    Held,
    Node,
    OpenWindow,
    Product,
    Read,
    Reduced,
    Scanned,
    Sorted,
    operands_of,
    walk,
    with_operands,
)
from tessera_lang.record import replace
from tessera_lang.target.tuned_constants import ELEMENT_ALONE, ELEMENT_HELD

Axes = tuple[Axis, ...]


def is_element_wise(node: Node) -> bool:
    """Whether each element of a node is made of single elements of what it reads."""
    return not any(isinstance(n, Product | Reduced | Scanned | Sorted) for n in walk(node))


def _is_of_open_products(node: Node) -> bool:
    """Whether a node is made element by element of products of whole arrays, which are computed in
    any parts, too: what meets them gives them no room."""
    found = [n for n in walk(node) if isinstance(n, Product | Reduced | Scanned | Sorted)]
    return all(
        isinstance(n, Product) and all(a.capacity is None for a in n.axes) for n in found
    )  # fmt: skip


def opened(
    s: State, axes: Axes, starts: Sequence[Value], value: Node, refused: Callable[[Node], bool]
) -> tuple[Axes, Node]:
    """The axes of a place, some without their capacity, and the value for them. ``starts``: where
    the place begins along each.

    ``refused``: whether a value must be there before any of it is stored, as it reads the place.
    """
    same = [
        i for i in _largest_first(axes)
        if s.b.is_of_kernel(axes[i].extent) and s.b.is_of_kernel(starts[i])
    ]  # fmt: skip
    most = _most(s, axes, bool(same))
    if most is None or not (is_element_wise(value) or _is_of_open_products(value)):
        return axes, value
    found = as_bound(s, value)
    if refused(found):
        return axes, value
    kept = _held_axes(s, found, len(axes))
    made = list(axes)
    # First those that are one part in all iterations: their loop is one with the loops around.
    for i in (*same, *(i for i in _largest_first(axes) if i not in same)):
        if i not in same and prod(a.capacity or 1 for a in made) <= most:
            break
        if i not in kept:
            made[i] = replace(made[i], capacity=None)
    return tuple(made), found


def _most(s: State, axes: Axes, same: bool) -> int | None:
    """Elements that the axes which keep their capacities may have; None: all keep it.

    In a loop the program says how the work is divided: what a group holds well stays a tile.
    ``same``: some axes are one part in all iterations.
    """
    total = prod(a.capacity or 1 for a in axes)
    if any(a.capacity is None for a in axes):
        most = 1 if s.b.in_kernel_body else ELEMENT_ALONE
        return most if same or total > most else None
    most = ELEMENT_ALONE if s.b.in_kernel_body else ELEMENT_HELD
    return most if total > most else None


def _largest_first(axes: Axes) -> Sequence[int]:
    sizes = [a.capacity or 0 for a in axes]
    return sorted((i for i, n in enumerate(sizes) if n > 1), key=lambda i: -sizes[i])


def as_bound(s: State, node: Node) -> Node:
    """The value with what variables stand for, where that may be read now as well as before: it
    is element-wise, its arrays are as they were, and nobody needs the tile so far."""
    made: dict[int, Node] = {}

    def visit(n: Node) -> Node:
        if id(n) not in made:
            made[id(n)] = _visited(n)
        return made[id(n)]

    def _visited(n: Node) -> Node:
        if isinstance(n, Held):
            return visit(n.made_of) if n.made_of is not None and _may_move(s, n) else n
        parts = [visit(x) for x in operands_of(n)]
        same = all(a is b for a, b in zip(parts, operands_of(n), strict=True))
        return n if same else with_operands(n, parts)

    return visit(node)


def _may_move(s: State, held: Held) -> bool:
    root = held.made_of
    assert root is not None
    if held.used or held.region is not s.b.current:
        return False
    if not (is_element_wise(root) or _is_of_open_products(root)):
        return False
    reads = [n for n in walk(root) if isinstance(n, Read)]
    return all(n.version == s.version(n.view) and n.staging is None for n in reads)


def _held_axes(s: State, root: Node, rank: int) -> frozenset[int]:
    """Axes of a value that run along a tile which was computed before."""
    kept: set[int] = set()
    seen: set[tuple[int, tuple[object, ...]]] = set()

    def visit(node: Node, windows: Sequence[AnyWindow]) -> None:
        key = id(node), tuple(windows)
        if key in seen:
            return
        seen.add(key)
        if isinstance(node, Held):
            kept.update(
                int(w.name) for w, a in zip(windows, node.axes, strict=True)
                if isinstance(w, OpenWindow) and w.name and a.capacity != 1
            )  # fmt: skip
            return
        for operand, inner in zip(operands_of(node), s.demand.below(node, windows), strict=True):
            visit(operand, inner)

    visit(root, [OpenWindow(str(i)) for i in range(rank)])
    return frozenset(kept)
