"""Which layout every tile value of a kernel has.

Products fix the layouts of their accumulators; accesses to memory wish for wide pieces along
the axis of stride 1. Values that meet element by element should have one layout: the edges
between them are taken in order of the bytes a change of layout there would move (loops count),
and an edge is left open only where both of its ends are fixed differently. Values with fewer
axes (what a reduction gives, what is expanded) follow the greater ones. So changes of layout end
up where they are cheap. Whatever is left open is right all the same: users demand the layout
they need, and ``Body`` converts.

Owns the choice. Must not know how operations are lowered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import gcd, prod
from typing import Protocol

from tessera_lang.analysis.resources.register_layouts import (
    blocked,
    canonical,
    transposed,
    vector_width,
)
from tessera_lang.ir.core import Operation, Region, TileType, Value
from tessera_lang.ir.definitions import ARRAY_READS, ARRAY_WRITES, LOOPS
from tessera_lang.ir.layout import RegisterLayout
from tessera_lang.lower.schedule_to_tile.common.axis_equivalence import Axes, exits_to
from tessera_lang.lower.schedule_to_tile.common.dot_layouts import Product
from tessera_lang.lower.schedule_to_tile.common.errors import NotTiled
from tessera_lang.opt.schedule.query.operand_loads import operand_of
from tessera_lang.opt.schedule.query.scalar_facts import (
    FOR,
    Facts,
    axes_of,
    is_tile,
)
from tessera_lang.opt.schedule.query.tile_access import TileAccess, access_of
from tessera_lang.record import dataclass
from tessera_lang.target.arch.isa_constants import SECTOR_BYTES
from tessera_lang.target.tuned_constants import LOOP_TIMES, SMALL_ACCESS

_PREFIX = "tessera.schedule."
_ACCESSES = ARRAY_READS | ARRAY_WRITES


@dataclass(frozen=True, slots=True)
class _Edge:
    """Two values that should have one layout; ``permutation`` gives the axes of ``b`` in ``a``."""

    weight: int
    a: Value
    b: Value
    permutation: tuple[int, ...] = ()

    def onward(self, layout: RegisterLayout, from_a: bool) -> RegisterLayout:
        if not self.permutation:
            return layout
        if from_a:
            return canonical(transposed(layout, self.permutation))
        inverse = tuple(self.permutation.index(i) for i in range(len(self.permutation)))
        return canonical(transposed(layout, inverse))


class Choosing(Protocol):
    """What the choice asks an engine; ``engine.py`` says what each means."""

    warps: int

    def product(self, dot: Operation) -> Product | None: ...
    def fragments(self, value: Value) -> bool: ...
    def in_registers(self, load: Operation) -> bool: ...


class Layouts:
    """The layouts of one kernel, or of one role of it; made once, then asked."""

    def __init__(
        self, kernel: Operation, facts: Facts, engine: Choosing, *, direct: bool = False,
        vectorize: int = 0, exact: bool = False,
    ) -> None:  # fmt: skip
        """``direct``: memory is accessed in whatever layout a value has, without scratch.
        ``vectorize``: elements of a vector access, 0 for as many as there can be. ``exact``: sizes
        stay as they are, where whole tiles are written to buffers."""
        self.facts = facts
        self.engine = engine
        self.direct = direct
        self.vectorize = vectorize
        self.exact = exact
        self.axes = Axes(kernel, exact)
        self._layouts: dict[Value, RegisterLayout] = {}
        self._products: dict[Operation, Product] = {}
        self._fixed: set[Value] = set()
        self._same: dict[Value, Value] = {}
        self._edges: list[_Edge] = []
        self._slices: list[tuple[int, Value, Value, int]] = []
        self._accesses: dict[Value, list[Operation]] = defaultdict(list)
        self._values: list[Value] = []
        self._collect(kernel.regions[0])
        self._fix_sizes()
        self._anchor_products()
        _Components(self).solve()

    # --- answers --------------------------------------------------------------------------------

    def of(self, value: Value) -> RegisterLayout:
        return self._layouts[self._node(value)]

    def shape(self, value: Value) -> tuple[int, ...]:
        """The padded sizes."""
        return self.axes.padded(value)

    def type_of(self, value: Value) -> TileType:
        """The type of the register tile a Schedule value becomes."""
        t = value.tile_type
        return TileType(t.dtype, self.shape(value), self.of(value))

    def product(self, dot: Operation) -> Product:
        return self._products[dot]

    def memory_layout(self, operation: Operation) -> RegisterLayout:
        """The layout in which a load or a store goes to memory."""
        value = operation.results[0] if operation.results else operation.operands[0]
        own = self.of(value)
        access = access_of(operation)
        if self.direct or value in self._fixed or self._serves(own, value, access):
            return own
        best = self._blocked(value, access)
        return best if self._serves(best, value, access) else own

    # --- what there is ------------------------------------------------------------------------

    def _node(self, value: Value) -> Value:
        while (up := self._same.get(value)) is not None:
            value = up
        return value

    def _add(self, value: Value) -> None:
        if is_tile(value):
            self._values.append(value)

    def _collect(self, region: Region) -> None:
        for value in region.arguments:
            self._add(value)
        for operation in region.operations:
            if operation.results and not self.engine.in_registers(operation):
                continue
            for value in operation.results:
                self._add(value)
            if operation.name in _ACCESSES:
                held = operation.results[0] if operation.results else operation.operands[0]
                self._accesses[held].append(operation)
            self._relate(operation)
            for nested in operation.regions:
                self._collect(nested)

    def _weight(self, value: Value, operation: Operation) -> int:
        t = value.tile_type
        depth = 0
        up = self.facts.parent(operation)
        while up is not None:
            depth += up.name in LOOPS
            up = self.facts.parent(up)
        return prod(t.sizes) * t.dtype.bytes * LOOP_TIMES**depth

    def _edge(self, a: Value, b: Value, by: Operation, permutation: tuple[int, ...] = ()) -> None:
        if is_tile(a) and is_tile(b):
            self._edges.append(_Edge(self._weight(b, by), a, b, permutation))

    def _relate(self, operation: Operation) -> None:
        name = operation.name.removeprefix(_PREFIX)
        match name:
            case "for" | "tile.while" | "tile.if" | "tile.scope":
                self._control(operation)
            case "combine":
                for total, part in zip(operation.regions[0].arguments, operation.operands[6:],
                                       strict=True):  # fmt: skip
                    self._same[total] = part
            case "transpose":
                permutation = operation.integers("permutation")
                self._edge(operation.operands[0], operation.result, operation, permutation)
            case "reduce":
                axis = operation.integer("axis")
                self._slice(operation.operands[0], operation.result, axis, operation)
            case "broadcast":
                self._broadcast(operation)
            case "dot":
                self._edge(operation.operands[2], operation.result, operation)
            case "gather" | "scatter":
                self._rows(operation)
            case "load" | "store" | "extract" | "full" | "iota" | "expand":
                pass
            case "insert":
                self._edge(operation.operands[0], operation.result, operation)
            case _:
                for value in operation.operands if operation.results else ():
                    self._edge(value, operation.results[0], operation)

    def _broadcast(self, operation: Operation) -> None:
        """An ``expand`` before it is taken together with it."""
        source = self.facts.operation(operation.operands[0])
        if source is not None and source.name == _PREFIX + "expand":
            axis = source.integer("axis")
            big, small = operation.result.tile_type, source.operands[0].type
            # Where another axis is stretched too, the small tile has one element of it.
            if (
                isinstance(small, TileType)
                and small.sizes == big.sizes[:axis] + big.sizes[axis + 1 :]
            ):
                self._slice(operation.result, source.operands[0], axis, operation)

    def _slice(self, big: Value, small: Value, axis: int, by: Operation) -> None:
        if is_tile(small):
            self._slices.append((self._weight(big, by), big, small, axis))

    def _rows(self, operation: Operation) -> None:
        """The numbers of a gather or scatter lie as the rows they are of."""
        *_, tile = (*operation.operands[:1], *operation.results)
        dims = operation.integers("dims")
        if len(dims) == 2:
            for dim, value in enumerate(access_of(operation).starts):
                if is_tile(value):
                    self._slice(tile, value, 1 - dims.index(dim), operation)

    def _control(self, operation: Operation) -> None:
        loop = operation.name in LOOPS
        skipped = 3 * axes_of(operation) if operation.name == FOR else 0
        for region in operation.regions:
            if loop:
                arguments = region.arguments[skipped // 3 :]
                for value, result in zip(arguments, operation.results, strict=True):
                    if is_tile(value):
                        self._same[value] = result
            for inner in exits_to(operation, region):
                values = inner.operands[inner.name == "tile.condition" :]
                for value, result in zip(values, operation.results, strict=True):
                    self._edge(value, result, inner)
        if loop:
            for value, result in zip(operation.operands[skipped:], operation.results, strict=True):
                self._edge(value, result, operation)

    # --- sizes ----------------------------------------------------------------------------------

    def _fix_sizes(self) -> None:
        for operation in self.facts.kernel.walk():
            if operation.name == _PREFIX + "dot":
                self._pad_product(operation)
        for value, operations in self._accesses.items():
            for operation in () if self.exact else operations:
                self._grow(value, access_of(operation))

    def _pad_product(self, dot: Operation) -> None:
        a, b, _ = dot.operands
        if any(isinstance(v.type, TileType) and len(v.type.shape) != 2 for v in dot.operands):
            raise NotTiled(
                "a product of tiles of more than two axes", dot.span,
                "take one matrix at a time: a loop with step 1 over the first axis, and `a[i, :, :]"
                " @ b[i, :, :]` in it",
            )  # fmt: skip
        product = self.engine.product(dot)
        if product is None:
            raise NotTiled("no unit of the machine computes this product", dot.span)
        self._products[dot] = product
        m, n, k = product.multiples
        for value, axis, multiple in ((a, 0, m), (a, 1, k), (b, 0, k), (b, 1, n)):
            self.axes.require(value, axis, multiple, hard=True)

    def _grow(self, value: Value, access: TileAccess) -> None:
        """Sizes that lanes and warps can be spread over."""
        t = value.tile_type
        order, vector = self._order(value, access), self._vector(value, access)
        multiples = [1] * len(t.shape)
        if order:
            multiples[order[0]] = vector
        for count, axes in ((32, order), (self.engine.warps, tuple(reversed(order)))):
            for axis in axes:
                wanted = -(-t.sizes[axis] // multiples[axis])
                taken = gcd(count, 1 << (wanted - 1).bit_length())
                multiples[axis] *= taken
                count //= taken
        for axis, multiple in enumerate(multiples):
            if multiple > 1 and not self.axes.is_hard(value, axis):
                self.axes.require(value, axis, multiple)

    def _order(self, value: Value, access: TileAccess) -> tuple[int, ...]:
        """Axes, fastest first: the one of stride 1, then the others from the last."""
        rank = len(value.type.shape)  # type: ignore[union-attr]
        unit = self.facts.tile_unit_axis(access)
        rest = [axis for axis in reversed(range(rank)) if axis != unit]
        return tuple(rest) if unit is None else (unit, *rest)

    def _vector(self, value: Value, access: TileAccess) -> int:
        """Elements of one access of a lane."""
        t = value.tile_type
        if self.facts.tile_unit_axis(access) is None:
            return 1
        held = self.facts.vector_bytes(access) // t.dtype.bytes
        if self.vectorize:
            return max(1, min(held, self.vectorize))
        lanes = 32 * self.engine.warps
        while held > 1 and prod(t.sizes) < held * lanes:
            held //= 2
        return max(1, held)

    def _blocked(self, value: Value, access: TileAccess, beside: bool = False) -> RegisterLayout:
        order, vector = self._order(value, access), self._vector(value, access)
        return blocked(self.shape(value), vector, self.engine.warps, order, beside)

    def _repeated(self, values: Sequence[Value], layout: RegisterLayout) -> int:
        """Registers of the tiles with an axis less that are spread over these values; what is
        reduced along an axis had better not meet across warps."""
        registers = 0
        for _, big, small, axis in self._slices:
            if self._node(big) not in values:
                continue
            source = self.facts.operation(small)
            if source is not None and source.name == _PREFIX + "reduce":
                return 0
            registers += canonical(layout.without_axis(axis)).register_count
        return registers

    def _serves(self, layout: RegisterLayout, value: Value, access: TileAccess) -> bool:
        """Whether accesses in this layout fill sectors with pieces that are wide enough."""
        t = value.tile_type
        axis = self.facts.tile_unit_axis(access)
        bytes_ = t.dtype.bytes
        if axis is None or len(t.shape) < 2 or prod(t.sizes) * bytes_ <= SMALL_ACCESS:
            return True
        best = self._vector(value, access)
        vector = vector_width(layout, axis, len(t.shape), best)
        run = vector
        for mode in layout.lanes:
            if mode.axis == axis and mode.stride == run:
                run *= mode.extent
        wide = vector * bytes_ >= min(8, best * bytes_)
        return wide and run * bytes_ >= min(SECTOR_BYTES, t.sizes[axis] * bytes_)

    # --- anchors --------------------------------------------------------------------------------

    def _anchor_products(self) -> None:
        for dot, product in self._products.items():
            value = self._node(dot.result)
            layout = canonical(product.accumulator(self.shape(dot.result)))
            if value in self._layouts and self._layouts[value] != layout:
                continue
            self._layouts[value] = layout
        for dot, product in self._products.items():
            for value, make in zip(dot.operands, (product.left, product.right), strict=False):
                if make is not None and self.engine.fragments(value):
                    self._anchor_operand(value, canonical(make(self.shape(value))))

    def _anchor_operand(self, value: Value, layout: RegisterLayout) -> None:
        """A load that goes to registers as its product takes it."""
        operand = operand_of(self.facts, value)
        node = self._node(value)
        if operand.load is None or node in self._layouts:
            return
        self._layouts[node] = layout
        self._fixed.add(operand.load.result)

    def wish(self, values: Sequence[Value]) -> tuple[Value, RegisterLayout]:
        """The layout that suits the greatest access to one of the values; else row-major."""
        best: tuple[tuple[int, int], Value, TileAccess] | None = None
        for value in values:
            for operation in self._accesses.get(value, ()):
                access = access_of(operation)
                # Of equal ones the narrowest: in its layout neighbouring lanes fill lines, and
                # the wider ones do too.
                weight = (self._weight(value, operation), -self._vector(value, access))
                if best is None or weight > best[0]:
                    best = (weight, value, access)
        if best is not None:
            _, value, access = best
            layouts = [self._blocked(value, access, beside) for beside in (False, True)]
            return value, min(layouts, key=lambda layout: self._repeated(values, layout))
        value = max(values, key=lambda v: prod(self.shape(v)))
        return value, blocked(self.shape(value), 1, self.engine.warps)


class _Components:
    """Values joined by the edges taken so far."""

    def __init__(self, layouts: Layouts) -> None:
        self.owner = layouts
        self.nodes: list[Value] = []
        self.members: dict[Value, list[Value]] = {}
        self.root: dict[Value, Value] = {}
        self.taken: dict[Value, list[tuple[_Edge, bool]]] = defaultdict(list)
        for value in layouts._values:  # pyright: ignore[reportPrivateUsage]
            node = layouts._node(value)  # pyright: ignore[reportPrivateUsage]
            if node not in self.root:
                self.root[node] = node
                self.members[node] = [node]
                self.nodes.append(node)

    @property
    def layouts(self) -> dict[Value, RegisterLayout]:
        return self.owner._layouts  # pyright: ignore[reportPrivateUsage]

    def solve(self) -> None:
        edges = self.owner._edges  # pyright: ignore[reportPrivateUsage]
        for edge in sorted(edges, key=lambda e: -e.weight):
            self._take(edge)
        self._follow()

    def _take(self, edge: _Edge) -> None:
        node = self.owner._node  # pyright: ignore[reportPrivateUsage]
        a, b = node(edge.a), node(edge.b)
        if a not in self.root or b not in self.root:
            return
        if self.root[a] is self.root[b] or (a in self.layouts and b in self.layouts):
            return
        self.taken[a].append((edge, True))
        self.taken[b].append((edge, False))
        known = a if a in self.layouts else b if b in self.layouts else None
        self._join(a, b)
        if known is not None:
            self._spread(known)

    def _join(self, a: Value, b: Value) -> None:
        keep, gone = self.root[a], self.root[b]
        for value in self.members.pop(gone):
            self.root[value] = keep
            self.members[keep].append(value)

    def _spread(self, start: Value) -> None:
        """Give every value that is joined with ``start`` its layout."""
        node = self.owner._node  # pyright: ignore[reportPrivateUsage]
        waiting = [start]
        while waiting:
            value = waiting.pop()
            for edge, from_a in self.taken[value]:
                other = node(edge.b if from_a else edge.a)
                if other not in self.layouts:
                    self.layouts[other] = edge.onward(self.layouts[value], from_a)
                    waiting.append(other)

    def _follow(self) -> None:
        """Layouts for what no product fixed: the greatest values first."""
        slices = self.owner._slices  # pyright: ignore[reportPrivateUsage]
        ordered = sorted(slices, key=lambda s: -s[0])
        self._from_greater(ordered)
        shape = self.owner.shape
        open_ = [m for m in self.members.values() if m[0] not in self.layouts]
        for group in sorted(open_, key=lambda m: -max(prod(shape(v)) for v in m)):
            if group[0] in self.layouts:
                continue
            value, layout = self.owner.wish(group)
            self.layouts[self.owner._node(value)] = layout  # pyright: ignore[reportPrivateUsage]
            self._spread(self.owner._node(value))  # pyright: ignore[reportPrivateUsage]
            self._from_greater(ordered)

    def _from_greater(self, slices: Sequence[tuple[int, Value, Value, int]]) -> None:
        """What is one axis less than a value with a layout takes the layout without it; the
        greatest ``slices`` come first."""
        node = self.owner._node  # pyright: ignore[reportPrivateUsage]
        changed = True
        while changed:
            changed = False
            for _, big, small, axis in slices:
                a, b = node(big), node(small)
                if a in self.layouts and b in self.root and b not in self.layouts:
                    self.layouts[b] = canonical(self.layouts[a].without_axis(axis))
                    self._spread(b)
                    changed = True
