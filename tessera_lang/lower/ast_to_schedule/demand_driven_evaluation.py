"""Evaluates nodes, window by window: each is asked for the part that somebody needs.

Owns how nodes become operations, and that nothing is computed twice where one value can be seen.
Loops over axes without a capacity are opened in ``axis_loops.py``. Must not know syntax.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.ir.core import TileType, Value
from tessera_lang.ir.schedule.builder import Size, tile_type
from tessera_lang.lower.ast_to_schedule.emitter import Emitter, Key
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Filled,
    Held,
    Iota,
    Mapped,
    Node,
    OpenWindow,
    Part,
    Permuted,
    Product,
    Read,
    Reduced,
    Scanned,
    Sorted,
    Window,
    Windows,
    walk,
)
from tessera_lang.lower.ast_to_tile.context import Unsupported
from tessera_lang.record import dataclass, field
from tessera_lang.source import Span
from tessera_lang.types.dtype import BOOL, INDEX, DType, integer_range

AnyWindow = Window | OpenWindow


def sizes_of(windows: Sequence[Window]) -> tuple[Size, ...]:
    return tuple(w.size for w in windows)


def _key(windows: Sequence[Window]) -> Key:
    return tuple(x for w in windows for x in (w.start, w.size, w.extent))


MOST_PARTS = 50_000
"""Parts that a kernel computes: what has no capacity is computed as often as it is used."""


def _too_large(node: Node) -> TesseraError:
    return TesseraError((Diagnostic(
        "T0316", f"the kernel computes more than {MOST_PARTS} parts of tiles",
        getattr(node, "span", None), "this is one of them, again",
        notes=("a tile without a capacity is computed part by part, as often as it is used",),
        helps=("store it into an array, or give it a capacity: `x[i, 0:4096]`",),
    ),))  # fmt: skip


@dataclass(slots=True)
class Demand:
    """``stream``: reduces along an axis without a capacity; ``contract``: multiplies along one."""

    b: Emitter
    stream: Callable[[Reduced, Windows], Value]
    contract: Callable[[Product, Windows, Value], Value]
    stale: Callable[[Read], None]
    clean: dict[Value, frozenset[int]] = field(default_factory=dict[Value, frozenset[int]])
    before: dict[int, tuple[Windows, Value]] = field(
        default_factory=lambda: dict[int, "tuple[Windows, Value]"]()
    )  # of a scan: its part that a loop is at, and what stands before it
    kept: list[Node] = field(default_factory=list[Node])  # so that an id stays one node's

    # --- windows ------------------------------------------------------------------------------

    def whole(self, node: Node) -> Windows:
        """All of a node whose axes have capacities."""
        made: list[Window] = []
        for axis in node.axes:
            if axis.capacity is None:
                raise ValueError("an axis without a capacity has no tile")
            made.append(Window(self.b.number(0), axis.capacity, axis.extent))
        return tuple(made)

    def one(self) -> Window:
        return Window(self.b.number(0), 1, self.b.number(1))

    def below(self, node: Node, windows: Sequence[AnyWindow]) -> list[tuple[AnyWindow, ...]]:
        """The windows of each operand; an axis that a node sums over is open."""
        match node:
            case Mapped():
                return [self._aligned(x, windows) for x in node.operands]
            case Permuted():
                asked = {axis: windows[i] for i, axis in enumerate(node.order)}
                return [tuple(asked[i] for i in range(len(windows)))]
            case Part():
                return [self._of_part(node, windows)]
            case Reduced():
                inner = self.along(node.operand, node.along)
                return [(*windows[: node.along], inner, *windows[node.along :])]
            case Scanned() | Sorted():
                inner = self.along(node.operand, node.along)
                return [(*windows[: node.along], inner, *windows[node.along + 1 :])]
            case Product():
                *batch, m, n = windows
                k = self.along(node.a, len(node.a.axes) - 1)
                a = (*batch, m, k)[-len(node.a.axes) :]
                return [a, (*batch, k, n)[-len(node.b.axes) :]]
            case Read():
                return [
                    (windows[node.dims.index(axis)],)
                    for axis, n in enumerate(node.numbers)
                    if n is not None
                ]
            case Held() | Filled() | Iota():
                return []

    def along(self, node: Node, axis: int) -> AnyWindow:
        """All of an axis where it has a capacity, else an open window."""
        a = node.axes[axis]
        if a.capacity is None:
            return OpenWindow("inner")
        return Window(self.b.number(0), a.capacity, a.extent)

    def _aligned(self, node: Node, windows: Sequence[AnyWindow]) -> tuple[AnyWindow, ...]:
        rank = len(node.axes)
        mine = list(windows[len(windows) - rank :]) if rank else []
        for i, axis in enumerate(node.axes):
            w = mine[i]
            if axis.capacity == 1 and (
                isinstance(w, OpenWindow) or w.size != 1 or self.b.known(w.start) != 0
            ):
                mine[i] = self.one()
        return tuple(mine)

    def _of_part(self, node: Part, windows: Sequence[AnyWindow]) -> tuple[AnyWindow, ...]:
        made: list[AnyWindow] = []
        for start, axis in zip(node.starts, node.along, strict=True):
            if axis is None:
                made.append(Window(start, 1, self.b.number(1)))
                continue
            w = windows[axis]
            if isinstance(w, Window):
                w = Window(self.b.add(start, w.start), w.size, w.extent)
            made.append(w)
        return tuple(made)

    # --- evaluation -----------------------------------------------------------------------------

    def __call__(self, node: Node, windows: Windows) -> Value:
        """The part of a node as a tile of the sizes of the windows; a scalar for rank 0."""
        key: Key = (id(node), *_key(windows))
        found = self.b.recall(key)
        if found is None:
            self.kept.append(node)
            if len(self.kept) > MOST_PARTS:
                raise _too_large(node)
            with self.b.at(getattr(node, "span", None)):
                found = self._evaluate(node, windows)
            self.b.remember(key, found)
        return found

    def held(self, node: Node) -> Held:
        """A node with capacities, computed now."""
        if isinstance(node, Held):
            return node
        return Held(self(node, self.whole(node)), node.dtype, node.axes)

    def _evaluate(self, node: Node, windows: Windows) -> Value:
        match node:
            case Held():
                return self._held(node, windows)
            case Read():
                return self._read(node, windows)
            case Filled():
                sizes = sizes_of(windows)
                return self.b.full(node.value, sizes) if sizes else node.value
            case Iota():
                return self._iota(node, windows)
            case Mapped():
                return self._mapped(node, windows)
            case Product():
                start = self.zeros(node.dtype, windows)
                return self.product(node, windows, start)
            case Reduced():
                return self._reduced(node, windows)
            case Scanned():
                return self._scanned(node, windows)
            case Sorted():
                return self._sorted(node, windows)
            case Permuted():
                (inner,) = self.below(node, windows)
                return self.permute(self(node.operand, _windows(inner)), node.order)
            case Part():
                return self._part(node, windows)

    def zeros(self, dtype: DType, windows: Windows) -> Value:
        value = self.b.full(self.b.constant(0, dtype), sizes_of(windows))
        self.clean[value] = frozenset(range(len(windows)))
        return value

    def _held(self, node: Held, windows: Windows) -> Value:
        node.used = True
        if all(
            self.b.known(w.start) == 0 and w.size == a.capacity
            for w, a in zip(windows, node.axes, strict=True)
        ):
            return node.value
        for w, a in zip(windows, node.axes, strict=True):
            if not isinstance(w.size, int) or a.capacity is None or w.size > a.capacity:
                raise ValueError("a tile is asked for more than it has room for")
        starts = [w.start for w in windows]
        past = any(self.b.known(w.start) is None and w.size != 1 for w in windows)
        return self.b.extract(node.value, starts, sizes_of(windows), past=past)

    def _read(self, node: Read, windows: Windows) -> Value:
        self.stale(node)
        b, starts = self.b, list(node.starts)
        gathers = [n is not None for n in node.numbers] or [False] * len(starts)
        numbers: list[Value] = list(starts)
        for dim, step, w in zip(node.dims, node.steps, windows, strict=True):
            if gathers[dim]:
                place = node.numbers[dim]
                assert place is not None
                numbers[dim] = b.cast(self(place, (w,)), INDEX)
                continue
            offset = b.arithmetic("mul", w.start, b.number(step))
            numbers[dim] = b.add(starts[dim], offset)
            if any(gathers) and step != 1:
                numbers[dim] = self.places(numbers[dim], step, w.size)
        order = sorted(range(len(node.dims)), key=lambda i: node.dims[i])
        dims = [node.dims[i] for i in order]
        if not order:  # of an array of rank 0, which is always there
            return b.load(node.view, numbers, hint=node.view.name)
        shape = [windows[i].size for i in order]
        extents = [self._there(node, i, windows[i]) for i in order]
        if node.inside is not None:
            extents[0] = b.chosen(node.inside, extents[0], b.number(0))
        name, filled = node.view.name, node.inside is not None or bool(node.rooms)
        if any(gathers):
            tile = b.gather(node.view, numbers, extents, shape, dims=dims, hint=name, filled=filled)
        else:
            steps = [node.steps[i] for i in order]
            tile = b.load_tile(
                node.view, numbers, extents, shape, dims=dims, steps=steps, hint=name,
                filled=filled,
            )  # fmt: skip
        self.clean[tile] = frozenset(range(len(shape)))
        if node.staging is not None:
            staged = b.prefetch(
                tile, double_buffer=node.staging.double_buffer,
                asynchronous=node.staging.asynchronous,
            )  # fmt: skip
            self.clean[staged] = self.clean[tile]
            tile = staged
        return self.permute(tile, [order.index(i) for i in range(len(order))])

    def places(self, start: Value, step: int, size: Size) -> Value:
        """Every so many elements, as the numbers of rows."""
        b, shape = self.b, (size,)
        moved = b.binary("mul", b.iota(shape, 0), b.full(b.number(step), shape))
        return b.binary("add", moved, b.full(start, shape))

    def _there(self, node: Read, axis: int, window: Window) -> Value:
        """How much of a window of an axis there is in the array."""
        b, room = self.b, node.rooms[axis] if node.rooms else None
        if room is None:
            return window.extent
        if b.known(window.start) == 0 and b.known(window.extent) == node.axes[axis].capacity:
            return room
        left = b.arithmetic("max", b.number(0), b.arithmetic("sub", room, window.start))
        return b.arithmetic("min", window.extent, left)

    def _iota(self, node: Iota, windows: Windows) -> Value:
        b, start = self.b, windows[node.along].start
        tile = b.iota(sizes_of(windows), node.along)
        if b.known(start) != 0:
            tile = b.binary("add", tile, b.full(start, sizes_of(windows)))
        return b.cast(tile, node.dtype)

    def _mapped(self, node: Mapped, windows: Windows) -> Value:
        if node.kind == "add":
            fused = self._multiply_add(node, windows)
            if fused is not None:
                return fused
        operands: list[Value] = []
        for operand, inner in zip(node.operands, self.below(node, windows), strict=True):
            value = self(operand, _windows(inner))
            operands.append(self.stretch(value, sizes_of(windows)))
        result = node.function(tuple(operands), windows)
        if node.kind == "cast" and operands[0] in self.clean:
            self.clean[result] = self.clean[operands[0]]
        return result

    def _multiply_add(self, node: Mapped, windows: Windows) -> Value | None:
        """``acc + a @ b`` adds to ``acc``, where that needs no memory."""
        for i in (1, 0):
            product, other = node.operands[i], node.operands[1 - i]
            if not isinstance(product, Product) or product.dtype != node.dtype:
                continue
            full = len(product.axes) == len(node.axes) == len(other.axes)
            if not full or any(isinstance(n, Read | Product) for n in walk(other)):
                continue
            if other.dtype != node.dtype:
                continue
            inner = self.below(node, windows)
            if sizes_of(_windows(inner[i])) != sizes_of(windows):
                continue  # one row or column of a product that stands in each
            start = self.stretch(self(other, _windows(inner[1 - i])), sizes_of(windows))
            return self.product(product, _windows(inner[i]), start)
        return None

    def stretch(self, value: Value, sizes: tuple[Size, ...]) -> Value:
        """A scalar repeated, missing axes put in front, axes of size 1 stretched."""
        if not sizes:
            return value
        if not isinstance(value.type, TileType):
            return self.b.full(value, sizes)
        while len(tile_type(value).shape) < len(sizes):
            value = self.b.expand(value, 0)
        return self.b.broadcast(value, sizes)

    def permute(self, value: Value, order: Sequence[int]) -> Value:
        if list(order) == list(range(len(order))):
            return value
        made = self.b.transpose(value, order)
        if value in self.clean:
            kept = self.clean[value]
            self.clean[made] = frozenset(i for i, axis in enumerate(order) if axis in kept)
        return made

    # --- several elements -----------------------------------------------------------------------

    def product(self, node: Product, windows: Windows, start: Value) -> Value:
        """``start + a @ b``."""
        a, b = node.a.axes[-1], node.b.axes[-2]
        room = [c for c in (a.capacity, b.capacity) if c is not None]
        if not room:
            return self.contract(node, windows, start)
        extent = a.extent if self.b.known(a.extent) is not None else b.extent
        return self.dot(node, windows, Window(self.b.number(0), min(room), extent), start)

    def dot(self, node: Product, windows: Windows, k: Window, start: Value) -> Value:
        """One step of a product, over the window ``k`` of the contraction."""
        *batch, m, n = windows
        a = self._operand(node.a, (*batch, m, k), -1, k)
        b = self._operand(node.b, (*batch, k, n), -2, k)
        return self.b.dot(a, b, start, node.precision)

    def _operand(self, node: Node, windows: Windows, along: int, k: Window) -> Value:
        inner = _windows(self._aligned(node, windows))
        value = self.masked(self(node, inner), len(inner) + along, k)
        sizes = sizes_of(windows)
        if tile_type(value).shape != sizes:
            value = self.stretch(value, sizes)
        return value

    def masked(self, value: Value, axis: int, window: Window) -> Value:
        """0 beyond the extent along an axis, where that is not known to be so."""
        if axis in self.clean.get(value, frozenset()) or self.b.known(window.extent) == window.size:
            return value
        t = tile_type(value)
        extents = [self.b.size(n) for n in t.shape]
        extents[axis] = window.extent
        made = self.b.mask(value, self.b.constant(0, t.dtype), extents)
        self.clean[made] = self.clean.get(value, frozenset()) | {axis}
        return made

    def _reduced(self, node: Reduced, windows: Windows) -> Value:
        (inner,) = self.below(node, windows)
        window = inner[node.along]
        if isinstance(window, OpenWindow):
            return self.stream(node, windows)
        value = self(node.operand, _windows(inner))
        return self.b.reduce(node.kind, value, window.extent, node.along)

    def _scanned(self, node: Scanned, windows: Windows) -> Value:
        (inner,) = self.below(node, windows)
        if isinstance(inner[node.along], OpenWindow):
            return self._scanned_part(node, windows)
        lines = _windows(inner)
        if self._is_whole(node, lines, windows):
            return self._scan(node, lines)
        if isinstance(windows[node.along].size, str):
            raise whole_scan(node)
        return self._of_lines(node, lines, windows)

    def _is_whole(self, node: Scanned | Sorted, lines: Windows, windows: Windows) -> bool:
        asked = windows[node.along]
        return self.b.known(asked.start) == 0 and asked.size == lines[node.along].size

    def _of_lines(self, node: Scanned | Sorted, lines: Windows, windows: Windows) -> Value:
        """A part of what needs whole lines."""
        value, asked = self(node, lines), windows[node.along]
        zero = self.b.number(0)
        starts = [asked.start if i == node.along else zero for i in range(len(windows))]
        sizes = [asked.size if i == node.along else w.size for i, w in enumerate(windows)]
        past = self.b.known(asked.start) is None and asked.size != 1
        return self.b.extract(value, starts, sizes, past=past)

    def _scan(self, node: Scanned, windows: Windows) -> Value:
        value = self(node.operand, windows)
        if node.reverse:  # it begins with what is beyond the extent
            value = self._neutral_beyond(node, value, windows)
        return self.b.scan(node.kind, value, node.along, node.inclusive, node.reverse)

    def _neutral_beyond(self, node: Scanned, value: Value, windows: Windows) -> Value:
        extents = [self.b.size(n) for n in tile_type(value).shape]
        extents[node.along] = windows[node.along].extent
        return self.b.mask(value, self.b.constant(_neutral(node), node.dtype), extents)

    def _scanned_part(self, node: Scanned, windows: Windows) -> Value:
        """What a loop along the axis is at: its own scan, after all that stands before."""
        at, before = self.before.get(id(node), ((), None))
        if before is None or _key(at) != _key(windows):
            raise whole_scan(node)
        made = self._scan(node, windows)
        if isinstance(before.type, TileType):
            before = self.b.expand(before, node.along)
        return self.b.binary(node.kind, self.stretch(before, sizes_of(windows)), made)

    def scanned_so_far(self, node: Scanned) -> Value:
        """What stands before the next part of a scan."""
        windows, before = self.before[id(node)]
        value = self(node.operand, windows)
        total = self.b.reduce(node.kind, value, windows[node.along].extent, node.along)
        return self.b.binary(node.kind, before, total)

    def _sorted(self, node: Sorted, windows: Windows) -> Value:
        """Whole lines; of a part of them, that part."""
        (inner,) = self.below(node, windows)
        lines = _windows(inner)
        if self._is_whole(node, lines, windows):
            value = self(node.operand, lines)
            return self.b.sort(value, lines[node.along].extent, node.along, node.places)
        if isinstance(windows[node.along].size, str):
            assert node.span is not None
            raise Unsupported(node.span, "a part of a sorted axis",
                              "store what is sorted into an array first")  # fmt: skip
        return self._of_lines(node, lines, windows)

    def _part(self, node: Part, windows: Windows) -> Value:
        (inner,) = self.below(node, windows)
        value = self(node.operand, _windows(inner))
        for axis in reversed(range(len(node.along))):
            if node.along[axis] is None:
                value = self.drop(value, axis)
        if not isinstance(value.type, TileType) and windows:
            return self.b.full(value, (1,) * len(windows))
        for axis in range(len(windows)):
            if axis not in node.along:
                value = self.b.expand(value, axis)
        return value

    def drop(self, value: Value, axis: int) -> Value:
        """The tile without an axis of size 1."""
        kind = "any" if tile_type(value).dtype == BOOL else "max"
        return self.b.reduce(kind, value, self.b.number(1), axis)


class NeedsMemory(Unsupported):
    """A value that is not computed where it is used, but can be read there from an array."""

    def __init__(self, node: Node, span: Span, what: str, help_text: str) -> None:
        self.node = node
        super().__init__(span, what, help_text)


def whole_scan(node: Scanned) -> NeedsMemory:
    assert node.span is not None
    places = ", ".join(":" * len(node.axes))
    return NeedsMemory(
        node, node.span, "this use of a scan along an axis without a capacity",
        f"store it into an array first: `y[{places}] = op.cumsum(x, axis={node.along})`",
    )  # fmt: skip


def _neutral(node: Scanned) -> int | float:
    """What a scan may begin with."""
    if node.kind in ("max", "min"):
        dtype, lowest = node.dtype, node.kind == "max"
        if dtype.is_float:
            return float("-inf" if lowest else "inf")
        return integer_range(dtype)[0 if lowest else 1]
    return 1 if node.kind == "mul" else -0.0 if node.dtype.is_float else 0


def _windows(found: Sequence[AnyWindow]) -> Windows:
    made = tuple(w for w in found if isinstance(w, Window))
    if len(made) != len(found):
        raise ValueError("a window is still open")
    return made
