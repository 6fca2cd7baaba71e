"""Loops over axes without a capacity: of a result, of a contraction, of a reduction.

Owns the order of the loops, the names of their steps (``$0``, ``$1`` the rows and columns of the
result, then contractions), and what is computed before a loop because it does not depend on it.
Must not know syntax.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tessera_lang.ir.core import Attribute, Value
from tessera_lang.lower.ast_to_schedule.demand_driven_evaluation import (
    AnyWindow,
    Demand,
    sizes_of,
    whole_scan,
)
from tessera_lang.lower.ast_to_schedule.emitter import Emitter
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Axis,
    Filled,
    Held,
    Iota,
    Mapped,
    Names,
    Node,
    OpenWindow,
    Product,
    Read,
    Reduced,
    Scanned,
    Sorted,
    Window,
    Windows,
    operands_of,
    walk,
)
from tessera_lang.target.tuned_constants import ELEMENT_ALONE
from tessera_lang.types.dtype import BOOL, INDEX, DType, integer_range

Body = Callable[[Windows], None]
Scans = list[tuple[Scanned, tuple[AnyWindow, ...]]]
_HINTS = {"$0": "i", "$1": "j", "$2": "k"}


class Nests:
    """Opens loops for a ``Demand``, to which it gives its two callbacks."""

    def __init__(self, b: Emitter, stale: Callable[[Read], None]) -> None:
        self.b = b
        self.names = Names()
        self.plain = False
        self.demand = Demand(b, self._stream, self._contract, stale)

    # --- names ----------------------------------------------------------------------------------

    def name(self, root: Node, labels: Sequence[str | int], first: int | None = None) -> None:
        """Name the open sizes of everything below a result whose axes have these labels; ``first``:
        the number of the first that is new."""
        self.names = Names(count=min(len(labels), 2) if first is None else first)
        later: list[Node] = []
        self._name(root, labels, later)
        while later:
            node = later.pop(0)
            along = self._inner_axis(node)
            label = self._found(*along, set()) or f"${self.names.count}"
            if label == f"${self.names.count}":
                self.names.count += 1
            self._name_inner(node, label, later)

    def name_alone(self, node: Node) -> None:
        """The same for a node that is computed as a whole: what it goes over has sizes of its own,
        no rows and columns of a result."""
        self.name(node, [""] * len(node.axes), 2)

    def _name(self, node: Node, labels: Sequence[str | int], later: list[Node]) -> None:
        given = id(node), tuple(labels)
        if given in self.names.given:
            return
        self.names.given.add(given)
        for i, label in enumerate(labels):
            if isinstance(label, str) and label:
                self.names.of.setdefault((id(node), i), label)
        self.names.kept.append(node)
        if isinstance(node, Product | Reduced | Scanned):
            later.append(node)
            return
        marked = [OpenWindow(str(x)) for x in labels]
        for operand, inner in zip(operands_of(node), self.demand.below(node, marked), strict=True):
            self._name(operand, _labels(inner), later)

    def _inner_axis(self, node: Node) -> tuple[Node, int]:
        if isinstance(node, Product):
            return node.a, len(node.a.axes) - 1
        assert isinstance(node, Reduced | Scanned)
        return node.operand, node.along

    def _found(self, node: Node, axis: int, seen: set[tuple[int, int]]) -> str | None:
        """The label of an axis, or of one that lies along it further down."""
        known = self.names.of.get((id(node), axis))
        if known is not None or isinstance(node, Product | Reduced | Scanned):
            return known
        if (id(node), axis) in seen:
            return None
        seen.add((id(node), axis))
        marks = [OpenWindow("here" if i == axis else "") for i in range(len(node.axes))]
        for operand, inner in zip(operands_of(node), self.demand.below(node, marks), strict=True):
            for i, w in enumerate(inner):
                if isinstance(w, OpenWindow) and w.name == "here":
                    found = self._found(operand, i, seen)
                    if found is not None:
                        return found
        return None

    def _name_inner(self, node: Node, label: str, later: list[Node]) -> None:
        marks = [OpenWindow(self.names.of.get((id(node), i), "")) for i in range(len(node.axes))]
        self.names.of[(id(node), -1)] = label
        for operand, inner in zip(operands_of(node), self.demand.below(node, marks), strict=True):
            labels = [
                label if isinstance(w, OpenWindow) and w.name == "inner" else x
                for w, x in zip(inner, _labels(inner), strict=True)
            ]
            self._name(operand, labels, later)

    def _step_of(self, node: Node) -> str:
        return self.names.of.get((id(node), -1), f"${self.names.count}")

    # --- results --------------------------------------------------------------------------------

    def over(
        self, root: Node, axes: Sequence[Window | None], body: Body, *, element_wise: bool = False,
        plain: bool = False,
    ) -> None:  # fmt: skip
        """``body`` for windows that cover a result; None stands for an axis to be cut. Axes other
        than rows and columns are cut into single elements, unless the result is made
        ``element_wise`` and there may be few elements along the last two. ``plain``: nobody
        expects these loops to be spread over groups."""
        rank = len(axes)
        windows: list[AnyWindow] = [
            OpenWindow(str(i)) if w is None else w for i, w in enumerate(axes)
        ]
        rows = self._rows_and_columns(root, windows)
        labels: list[str | int] = [f"${rows.index(i)}" if i in rows else 1 for i in range(rank)]
        if element_wise and not self._fill_a_group(root.axes[-2:]):
            labels[: rank - 2] = [f"$b{i}" for i in range(rank - 2)]
        self.name(root, [x if axes[i] is None else "" for i, x in enumerate(labels)])
        self.names.count = max(self.names.count, min(rank, 2))
        self.plain = plain
        self._nest(root, windows, labels, body)

    def _rows_and_columns(self, root: Node, windows: Sequence[AnyWindow]) -> tuple[int, ...]:
        """The axes of a result that tiles have: the last two, or those along which the products
        below have their rows and columns. ``op.einsum("bhst,bthd->bshd", p, v)`` has `s` and `d`;
        tiles of `h` and `d` would make each product one row high."""
        rank = len(windows)
        last = tuple(range(max(rank - 2, 0), rank))
        if rank < 3:
            return last
        found: list[tuple[int, ...]] = []
        seen: set[tuple[int, tuple[str | int, ...]]] = set()

        def visit(node: Node, around: Sequence[AnyWindow]) -> None:
            key = id(node), tuple(_labels(around))
            if key in seen:
                return
            seen.add(key)
            if isinstance(node, Product):
                names = [w.name if isinstance(w, OpenWindow) else "" for w in around[-2:]]
                if all(n.isdigit() for n in names) and names[0] != names[1]:
                    found.append(tuple(sorted(map(int, names))))
                return
            for operand, inner in zip(
                operands_of(node), self.demand.below(node, around), strict=True
            ):
                visit(operand, inner)

        visit(root, windows)
        return last if not found or last in found else found[0]

    def _fill_a_group(self, axes: Sequence[Axis]) -> bool:
        sizes = [self.b.known(a.extent) for a in axes]
        return None not in sizes and prod(n or 0 for n in sizes) >= ELEMENT_ALONE

    def _nest(
        self, root: Node, windows: list[AnyWindow], labels: Sequence[str | int], body: Body
    ) -> None:
        """Loops over what is still open: first the axes that some sum needs alone."""
        opened = [i for i, w in enumerate(windows) if isinstance(w, OpenWindow)]
        self.hoist(root, windows)
        if not opened:
            body(tuple(w for w in windows if isinstance(w, Window)))
            return
        all_names = frozenset(str(i) for i in opened)
        partial = self._partial(root, windows, all_names, set())
        scanned = [i for i in opened if scans_along(self.demand, root, marked(windows, str(i)))]
        if scanned and len(opened) == 1:
            self._along_scan(root, windows, opened[0], labels[opened[0]], body)
            return
        free = [i for i in opened if i not in scanned]
        if not free:
            found = [
                node for i in opened
                for node, _ in scans_along(self.demand, root, marked(windows, str(i)))
            ]  # fmt: skip
            raise whole_scan(_innermost(found))
        first = [i for i in free if str(i) in partial] or free
        b = self.b
        sizes: list[int | str] = [labels[i] for i in first]
        steps = [b.size(s) for s in sizes]
        extents = [root.axes[i].extent for i in first]
        hints = [_HINTS.get(str(s), f"b{i}") for i, s in zip(first, sizes, strict=True)]
        with b.region(*((h, INDEX) for h in hints)) as inside:
            for i, at, size, extent in zip(first, inside.arguments, sizes, extents, strict=True):
                windows[i] = Window(at, size, b.room(extent, at, b.size(size)))
            self._nest(root, windows, labels, body)
            b.yield_()
        attributes: dict[str, Attribute] = {"plain": True} if self.plain else {}
        b.loops(
            [b.number(0)] * len(first), extents, steps, (), inside.region, hints,
            attributes=attributes,
        )  # fmt: skip

    def _along_scan(
        self, root: Node, windows: list[AnyWindow], axis: int, size: str | int, body: Body
    ) -> None:
        """A loop, part after part, along the axis of one or several scans."""
        b, extent = self.b, root.axes[axis].extent
        scans = scans_along(self.demand, root, marked(windows, str(axis)))
        hint, step = _HINTS.get(str(size), "b"), b.size(size)
        start = self._before_scans(scans, True)
        backwards = {node.reverse for node, _ in scans}
        if len(backwards) > 1:
            raise whole_scan(scans[0][0])
        with b.region((hint, INDEX), *(("before", v.type) for v in start)) as inside:
            at, *before = inside.arguments
            if backwards == {True}:
                last = b.arithmetic("sub", b.arithmetic("add", extent, step), b.number(1))
                parts = b.arithmetic("floordiv", last, step)
                last = b.arithmetic("mul", b.arithmetic("sub", parts, b.number(1)), step)
                at = b.arithmetic("sub", last, at)
            windows[axis] = part = Window(at, size, b.room(extent, at, step))
            self._enter_scans(scans, before, part)
            self._nest(root, windows, (), body)
            b.yield_(*self._leave_scans(scans))
        names = ["before"] * len(start)
        b.loops([b.number(0)], [extent], [step], start, inside.region, [hint], names=names)

    def _before_scans(self, scans: Scans, backwards: bool = False) -> list[Value]:
        """What stands before the first element: -0.0 changes no float that is added to it.
        ``backwards``: the loop may go from the last part to the first."""
        made: list[Value] = []
        for node, windows in scans:
            if node.reverse and not backwards:
                raise whole_scan(node)
            others = [w for i, w in enumerate(windows) if i != node.along]
            if any(isinstance(w, OpenWindow) for w in others):
                raise whole_scan(node)
            sizes = sizes_of([w for w in others if isinstance(w, Window)])
            neutral = identity(self.b, node.kind, node.dtype)
            if node.kind == "add" and node.dtype.is_float:
                neutral = self.b.constant(-0.0, node.dtype)
            made.append(self.demand.stretch(neutral, sizes))
        return made

    def _enter_scans(self, scans: Scans, before: Sequence[Value], part: Window) -> None:
        for (node, windows), value in zip(scans, before, strict=True):
            now = tuple(w if isinstance(w, Window) else part for w in windows)
            self.demand.before[id(node)] = now, value

    def _leave_scans(self, scans: Scans) -> list[Value]:
        found = [self.demand.scanned_so_far(node) for node, _ in scans]
        for node, _ in scans:
            del self.demand.before[id(node)]
        return found

    def _partial(
        self, node: Node, windows: Sequence[AnyWindow], opened: frozenset[str], seen: set[int]
    ) -> frozenset[str]:
        """Open axes that a sum or a product below needs, where it does not need all of them."""
        if isinstance(node, Held | Filled | Iota):
            return frozenset()
        found: frozenset[str] = frozenset()
        if isinstance(node, Reduced | Product | Scanned | Sorted):
            needs = frozenset(w.name for w in windows if isinstance(w, OpenWindow)) & opened
            if needs and needs != opened:
                found = needs
        key = hash((id(node), tuple(w for w in windows if isinstance(w, OpenWindow))))
        if key in seen:
            return found
        seen.add(key)
        for operand, inner in zip(operands_of(node), self.demand.below(node, windows), strict=True):
            found |= self._partial(operand, inner, opened, seen)
        return found

    def hoist(self, node: Node, windows: Sequence[AnyWindow]) -> None:
        """Compute what no open axis is needed for."""
        self._hoist(node, windows, set())

    def _hoist(
        self, node: Node, windows: Sequence[AnyWindow],
        seen: set[tuple[int, tuple[AnyWindow, ...]]],
    ) -> None:  # fmt: skip
        at = id(node), tuple(windows)
        if isinstance(node, Held | Filled | Iota) or at in seen:
            return
        seen.add(at)
        known = tuple(w for w in windows if isinstance(w, Window))
        if len(known) == len(windows):
            if _has_sums(node) or not any(isinstance(w.size, str) for w in known):
                self.demand(node, known)
            return
        for operand, inner in zip(operands_of(node), self.demand.below(node, windows), strict=True):
            if not any(isinstance(w, OpenWindow) for w in inner) and not _has_sums(operand):
                continue  # a row that is read where it is needed
            self._hoist(operand, inner, seen)

    # --- sums -----------------------------------------------------------------------------------

    def _contract(self, node: Product, windows: Windows, start: Value) -> Value:
        """``start + a @ b`` over the whole contraction, a step at a time."""
        b, name = self.b, self._step_of(node)
        for operand, inner in zip((node.a, node.b), self.demand.below(node, windows), strict=True):
            self.hoist(operand, inner)
        extent = node.a.axes[-1].extent
        step = b.size(name)
        hint = "k" if name == "$2" else f"k{name[1:]}"
        scans = [
            x for operand, inner in
            zip((node.a, node.b), self.demand.below(node, windows), strict=True)
            for x in scans_along(self.demand, operand, marked(inner, "inner"))
        ]  # fmt: skip
        for i, (scan, _) in enumerate(scans):
            if any(scan is other for other, _ in scans[:i]):
                raise whole_scan(scan)  # a row of one factor and a column of the other need it
        given = [start, *self._before_scans(scans)]
        with b.region((hint, INDEX), *(("acc", v.type) for v in given)) as inside:
            at, acc, *before = inside.arguments
            window = Window(at, name, b.room(extent, at, step))
            self._enter_scans(scans, before, window)
            b.yield_(self.demand.dot(node, windows, window, acc), *self._leave_scans(scans))
        attributes: dict[str, Attribute] = {}
        if node.stages is not None:
            attributes["pipeline_stages"] = node.stages
        result, *_ = b.loops(
            [b.number(0)], [extent], [step], given, inside.region, [hint],
            names=["acc"] * len(given), attributes=attributes,
        )  # fmt: skip
        return result

    def _stream(self, node: Reduced, windows: Windows) -> Value:
        """A reduction over chunks of an axis."""
        b, name = self.b, self._step_of(node)
        (inner,) = self.demand.below(node, windows)
        self.hoist(node.operand, inner)
        extent, step = node.operand.axes[node.along].extent, b.size(name)
        sizes = sizes_of(windows)
        start = [self.demand.stretch(v, sizes) for v in self._start(node)]
        count, scans = len(start), scans_along(self.demand, node.operand, marked(inner, "inner"))
        start += self._before_scans(scans)
        hint = f"c{name[1:]}"
        with b.region((hint, INDEX), *(("part", v.type) for v in start)) as inside:
            at, *before = inside.arguments
            window = Window(at, name, b.room(extent, at, step))
            chunk = tuple(window if isinstance(w, OpenWindow) else w for w in inner)
            self._enter_scans(scans, before[count:], window)
            value = self.demand(node.operand, chunk)
            made = self._combine(node, value, window, before[:count], sizes)
            b.yield_(*made, *self._leave_scans(scans))
        result, *_ = b.loops(
            [b.number(0)], [extent], [step], start, inside.region, [hint],
            names=["part"] * len(start),
        )  # fmt: skip
        return result

    def _start(self, node: Reduced) -> list[Value]:
        """The identity; of ``argmax`` the place, then the value it has."""
        if node.kind in ("argmax", "argmin"):
            best = identity(self.b, node.kind[3:], node.operand.dtype)
            return [self.b.constant(0, INDEX), best]
        return [identity(self.b, node.kind, node.operand.dtype)]

    def _combine(
        self, node: Reduced, value: Value, window: Window, before: Sequence[Value],
        sizes: tuple[int | str, ...],
    ) -> list[Value]:  # fmt: skip
        b, along = self.b, node.along
        if node.kind not in ("argmax", "argmin"):
            part = b.reduce(node.kind, value, window.extent, along)
            name = {"any": "or", "all": "and"}.get(node.kind, node.kind)
            return [b.binary(name, before[0], part)]
        kind = node.kind[3:]
        place = b.reduce(node.kind, value, window.extent, along)
        best = b.reduce(kind, value, window.extent, along)
        place = b.binary("add", place, self.demand.stretch(window.start, sizes))
        better = b.cmp("gt" if kind == "max" else "lt", best, before[1])
        if node.operand.dtype.is_float:  # the first NaN wins
            first = b.binary("and", b.cmp("ne", best, best), b.cmp("eq", before[1], before[1]))
            better = b.binary("or", better, first)
        return [b.select(better, place, before[0]), b.select(better, best, before[1])]


def marked(windows: Sequence[AnyWindow], name: str) -> tuple[AnyWindow, ...]:
    """The windows with the open axis of a name as the one whose scans are looked for."""
    return tuple(
        OpenWindow("scan") if isinstance(w, OpenWindow) and w.name == name else w for w in windows
    )


def scans_along(demand: Demand, node: Node, windows: tuple[AnyWindow, ...]) -> Scans:
    """The scans below a node that run along its marked axis, each once, with their windows; those
    inside of another come first."""
    found: Scans = []
    seen: set[tuple[int, tuple[AnyWindow, ...]]] = set()

    def visit(node: Node, windows: tuple[AnyWindow, ...]) -> None:
        marks = OpenWindow("scan") in windows
        if not marks or isinstance(node, Held | Filled | Iota) or (id(node), windows) in seen:
            return
        seen.add((id(node), windows))
        if isinstance(node, Scanned) and windows[node.along] == OpenWindow("scan"):
            visit(node.operand, windows)
            if node.axes[node.along].capacity is None:
                if any(node is x for x, _ in found):
                    raise whole_scan(node)  # along two axes of what is made of it
                found.append((node, windows))
            return
        for operand, inner in zip(operands_of(node), demand.below(node, windows), strict=True):
            visit(operand, inner)

    visit(node, windows)
    return found


def _innermost(scans: list[Scanned]) -> Scanned:
    """One that is made of none of the others."""
    below = {id(n): {id(x) for x in walk(n.operand)} for n in scans}
    return next(n for n in scans if not any(id(x) in below[id(n)] for x in scans))


def identity(b: Emitter, kind: str, dtype: DType) -> Value:
    """What a reduction starts with."""
    match kind:
        case "add":
            return b.constant(0, dtype)
        case "mul":
            return b.constant(1, dtype)
        case "any" | "all":
            return b.constant(kind == "all", BOOL)
        case _:
            if dtype.is_float:
                return b.constant(float("-inf" if kind == "max" else "inf"), dtype)
            low, high = integer_range(dtype)
            return b.constant(low if kind == "max" else high, dtype)


def _labels(windows: Sequence[AnyWindow]) -> list[str | int]:
    return [w.name if isinstance(w, OpenWindow) else "" for w in windows]


def _has_sums(node: Node) -> bool:
    return any(isinstance(x, Product | Reduced | Scanned | Sorted) for x in walk(node))


__all__ = ["Mapped", "Nests", "identity"]
