"""Values that would be computed anew for each of their uses: stored into an array of the call once.

Owns which these are. A value is worth an array where computing it takes more steps than there are
elements to read: it holds a product, or a sum over more axes than any array below it has, as one
over all pairs of points. What is used by several reductions, or by several results, is computed for
each of them otherwise, inside their loops. Must not know how a value is stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.lower.ast_to_schedule.state import State
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Axis,
    Mapped,
    Node,
    Part,
    Permuted,
    Product,
    Read,
    Reduced,
    Scanned,
    Sorted,
    operands_of,
    replaced_in,
    walk,
)
from tessera_lang.record import dataclass, field
from tessera_lang.sema.side_tables import Local, TensorArgument
from tessera_lang.source import Span
from tessera_lang.target.tuned_constants import MOST_KEPT, MOST_KEPT_SUMS
from tessera_lang.types.shape import Sym, evaluate_dim
from tessera_lang.types.type import Tensor

Labels = tuple[int, ...]
"""Which loop goes along each axis of a node; 0 where it has one element."""


def with_kept_values(s: State, roots: Sequence[Node], span: Span | None = None) -> list[Node]:
    """The values, in which what is used again is read from an array that it is stored into now.
    Variables that are needed later read it there too."""
    found, refused = list(roots), set[int]()
    if s.tile_loops or s.private is None:
        return found
    while (again := _used_again(s, found, refused)) is not None:
        at = span or s.typed.declaration.name_span
        kept = s.keep(again, at, room=()) if _is_small(s, again) else None
        if kept is None:
            refused.add(id(again))
            continue
        later = _later(s)
        others = [s.tiles[x] for x in later]
        if s.keeping:  # what is just being stored is read by all others, once it is stored
            found = replaced_in(found, again, kept)
            others = replaced_in(others, again, kept, s.keeping)
        else:
            made = replaced_in([*found, *others], again, kept)
            found, others = made[: len(found)], made[len(found) :]
        s.tiles.update(zip(later, others, strict=True))
    return found


def _later(s: State) -> list[Local]:
    """Variables of values that what follows needs, bound where control is now: what is stored
    here is there whenever they are used."""
    here = s.b.current
    return [x for x in s.tiles if x in s.later and s.bound_in.get(x) is here]


def _used_again(s: State, own: Sequence[Node], refused: set[int]) -> Node | None:
    """What is computed for several reductions or roots: each goes over its axes for itself. Of
    parts that hold each other the largest, but first what is used outside of it too."""
    if not any(_is_heavy(s, root) for root in own):
        return None
    roots = [*own, *(s.tiles[x] for x in _later(s))]
    below = {id(x) for root in own for x in walk(root)}
    again = [
        n for n in _of_several(roots, len(own), s.keeping)
        if id(n) in below and id(n) not in refused and _is_open(n) and _is_heavy(s, n)
    ]  # fmt: skip
    below_others = _only_below(roots, {id(n) for n in again})
    free = [n for n in again if id(n) not in below_others]
    parts = {id(n): {id(x) for x in walk(n)} for n in free}
    return next(
        (n for n in free if not any(x is not n and id(x) in parts[id(n)] for x in free)), None
    )


def _is_open(node: Node) -> bool:
    return any(a.capacity is None for a in node.axes)


def _of_several(roots: Sequence[Node], own: int, keeping: set[int]) -> list[Node]:
    """Nodes that are used in several reductions or roots, of which the first ``own`` are computed
    now; what is just being stored is not computed again for the others."""
    places: dict[int, set[int]] = {}
    order: list[Node] = []
    seen: set[tuple[int, int, bool]] = set()
    waiting = [(root, -number, number > own) for number, root in enumerate(roots, 1)]
    while waiting:
        node, inside, later = waiting.pop()
        if (id(node), inside, later) in seen or (later and id(node) in keeping):
            continue
        seen.add((id(node), inside, later))
        if id(node) not in places:
            order.append(node)
        places.setdefault(id(node), set()).add(inside)
        within = id(node) if isinstance(node, Reduced | Scanned | Sorted | Product) else inside
        waiting.extend((x, within, later) for x in operands_of(node))
    return [n for n in order if len(places[id(n)]) > 1]


def _only_below(roots: Sequence[Node], among: set[int]) -> set[int]:
    """Nodes of which every use is one by the same other node ``among`` these: they have it as a
    dominator in the graph of operands. By Cooper, Harvey and Kennedy, in one walk, as the graph has
    no cycles."""
    order = _users_first(roots)
    nearest: dict[int, int] = {}  # the immediate dominator; 0: the program, which uses roots
    depth = {0: 0}
    users: dict[int, list[int]] = {id(root): [0] for root in roots}
    found: set[int] = set()
    for node in order:
        own, (at, *rest) = id(node), users[id(node)]
        for other in rest:
            while at != other:
                if depth[at] >= depth[other]:
                    at = nearest[at]
                else:
                    other = nearest[other]
        nearest[own], depth[own] = at, depth[at] + 1
        if at in among or at in found:
            found.add(own)
        for x in operands_of(node):
            users.setdefault(id(x), []).append(own)
    return found


def _users_first(roots: Sequence[Node]) -> list[Node]:
    """Every node once, behind all that use it."""
    seen: set[int] = set()
    left: list[Node] = []  # each behind its operands
    waiting: list[tuple[Node, bool]] = [(root, False) for root in roots]
    while waiting:
        node, done = waiting.pop()
        if done:
            left.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            waiting.append((node, True))
            waiting.extend((x, False) for x in operands_of(node))
    return left[::-1]


# --- what takes more steps than it reads -----------------------------------------------------


def _is_heavy(s: State, node: Node) -> bool:
    parts = list(walk(node))
    if any(isinstance(n, Product) for n in parts):
        return True
    return any(isinstance(n, Reduced) and _Steps(s).more_than_read(n) for n in parts)


@dataclass(slots=True)
class _Steps:
    """The loops that compute a reduction, each a number. ``reads``: the most of them that go over
    one array."""

    s: State
    loops: set[int] = field(default_factory=set[int])
    reads: int = 0
    seen: set[tuple[int, Labels]] = field(default_factory=set["tuple[int, Labels]"])
    of: dict[int, int] = field(default_factory=dict[int, int])

    def more_than_read(self, node: Reduced) -> bool:
        self._visit(node, tuple(self._loop(a, -i) for i, a in enumerate(node.axes, 1)))
        return len(self.loops) > self.reads

    def _loop(self, axis: Axis, key: int) -> int:
        """The loop over an axis that begins at a node, 0 for one element."""
        if axis.capacity == 1 or self.s.b.known(axis.extent) == 1:
            return 0
        return self.of.setdefault(key, len(self.of) + 1)

    def _visit(self, node: Node, labels: Labels) -> None:
        if (id(node), labels) in self.seen:
            return
        self.seen.add((id(node), labels))
        self.loops.update(x for x in labels if x)
        match node:
            case Read():
                self.reads = max(self.reads, len({x for x in labels if x}))
            case Reduced():
                own = self._loop(node.operand.axes[node.along], id(node))
                self._visit(node.operand, (*labels[: node.along], own, *labels[node.along :]))
            case Permuted():
                turned = sorted(range(len(labels)), key=lambda i: node.order[i])
                self._visit(node.operand, tuple([labels[i] for i in turned]))
            case Part():
                self._visit(
                    node.operand, tuple([0 if a is None else labels[a] for a in node.along])
                )
            case Mapped() | Scanned() | Sorted():
                for x in operands_of(node):
                    mine = labels[len(labels) - len(x.axes) :]
                    self._visit(x, tuple([
                        0 if a.capacity == 1 else n for a, n in zip(x.axes, mine, strict=True)
                    ]))  # fmt: skip
            case _:
                pass


# --- room ------------------------------------------------------------------------------------


def _is_small(s: State, node: Node) -> bool:
    """Whether the array that would hold a value is no larger than is reasonable, for arguments of
    about the sizes that the code is made for."""
    known: dict[str, int] = {}
    for argument, t in zip(s.typed.signature[::-1], s.typed.parameter_types[::-1], strict=False):
        if isinstance(argument, TensorArgument) and isinstance(t, Tensor):
            for dim, hint in zip(t.shape, argument.hints, strict=False):
                if isinstance(dim, Sym) and hint:
                    known[dim.name] = hint
    total = node.dtype.bytes
    for axis in node.axes:
        dim = s.private.dim(axis.extent) if s.private is not None else None
        try:
            total *= 1 if dim is None else evaluate_dim(dim, known)
        except (KeyError, ZeroDivisionError):
            continue
    product = any(isinstance(n, Product) for n in walk(node))
    return total <= (MOST_KEPT if product else MOST_KEPT_SUMS)
