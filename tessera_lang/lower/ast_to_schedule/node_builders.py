"""Operations on nodes: casts, element-wise operations, products, axes.

Owns the axes and the dtype of a result. Must not know syntax.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Value
from tessera_lang.ir.schedule.builder import dtype_of
from tessera_lang.lower.ast_to_schedule.axis_collapsing import with_merged_sums
from tessera_lang.lower.ast_to_schedule.kept_values import with_kept_values
from tessera_lang.lower.ast_to_schedule.state import State, register_dtype
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Axis,
    Filled,
    Mapped,
    Node,
    Part,
    Permuted,
    Product,
    Read,
    Reduced,
    Windows,
)
from tessera_lang.lower.ast_to_tile.operators import MIRRORED
from tessera_lang.record import replace
from tessera_lang.source import Span
from tessera_lang.types.dtype import BOOL, F32, I32, I64, U64, DType, common_dtype
from tessera_lang.types.type import Tensor, Tile, TileAxis, Type

OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floordiv", "%": "mod", "&": "and",
    "|": "or", "^": "xor", "<<": "shl", ">>": "shr",
}  # fmt: skip


def scalar_of(s: State, node: Node) -> Value:
    """The number that a node of rank 0 is."""
    if isinstance(node, Filled):
        return node.value

    def compute(node: Node) -> Value:
        s.nests.name_alone(node)
        return s.demand(node, ())

    (node,) = with_kept_values(s, (node,))
    return s.computed(with_merged_sums(s, node), compute)


def converted(s: State, node: Node, wanted: Type | None) -> Node:
    dtype = register_dtype(wanted)
    return node if dtype is None or isinstance(wanted, Tensor) else cast(s, node, dtype)


def cast(s: State, node: Node, dtype: DType) -> Node:
    if node.dtype == dtype:
        return node
    if isinstance(node, Filled):
        return Filled(s.b.cast(node.value, dtype), dtype, node.axes)
    if isinstance(node, Mapped) and node.rounded and dtype.is_float and dtype.bits <= 16:
        node = replace(node, function=node.rounded)
    b = s.b
    return Mapped(lambda v, w: b.cast(v[0], dtype), (node,), dtype, node.axes, b.span, "cast")


def axes_of(s: State, operands: Sequence[Node], t: Type | None) -> tuple[Axis, ...]:
    """The axes of an element-wise result: of each the operand's that says most."""
    rank = max((len(n.axes) for n in operands), default=0)
    shown = t.axes if isinstance(t, Tile) and len(t.axes) == rank else (None,) * rank
    return tuple(_axis(s, [n.axes for n in operands], rank, i, shown[i]) for i in range(rank))


def _axis(
    s: State, operands: Sequence[tuple[Axis, ...]], rank: int, i: int, t: TileAxis | None
) -> Axis:
    found = [axes[i - rank + len(axes)] for axes in operands if len(axes) >= rank - i]
    stretched = [a for a in found if a.capacity != 1] or found
    room = [a.capacity for a in stretched if a.capacity is not None]
    capacity = min(room) if room else None
    if capacity is not None and t is not None and t.capacity is not None:
        capacity = t.capacity
    # An extent that is the whole capacity may be all that is known of a tile made open.
    clipped = [a for a in stretched if s.b.known(a.extent) is None]
    sure = [a for a in clipped if a.extent not in s.b.carried]
    empty = [a for a in stretched if s.b.known(a.extent) == 0]
    return Axis((empty or sure or clipped or stretched)[0].extent, capacity)


def mapped(
    s: State, name: str, operands: Sequence[Node], dtype: DType, t: Type | None = None,
    span: Span | None = None,
) -> Node:  # fmt: skip
    """An operation of the builder on equal tiles."""
    b = s.b
    kind = "add" if name == "add" else ""
    axes = axes_of(s, operands, t)
    site = -1
    if name in ("floordiv", "mod") and dtype.is_integer:
        assert span is not None
        site = s.low.site("division", span, f"`{name}`")

    def apply(v: tuple[Value, ...], windows: Windows) -> Value:
        if site < 0:
            return b.unary(name, v[0]) if len(v) == 1 else b.binary(name, v[0], v[1])
        by = v[1]
        if windows:  # what lies beyond the extent is no division by zero
            by = b.mask(by, b.constant(1, dtype), [w.extent for w in windows])
        return b.binary(name, v[0], by, site)

    return Mapped(apply, tuple(operands), dtype, axes, span, kind)


def select(s: State, condition: Node, a: Node, b: Node, t: Type | None = None) -> Node:
    axes = axes_of(s, (condition, a, b), t)
    builder = s.b
    return Mapped(
        lambda v, w: builder.select(v[0], v[1], v[2]),
        (condition, a, b),
        a.dtype,
        axes,
        builder.span,
    )


def compared(s: State, predicate: str, a: Node, b: Node, t: Type | None = None) -> Node:
    builder = s.b
    if a.dtype != b.dtype:
        common = common_dtype(a.dtype, b.dtype)
        if common is None and a.dtype.is_integer and b.dtype.is_integer:
            if U64 in (a.dtype, b.dtype):
                return _compared_with_u64(s, predicate, a, b)
            common = I64
        if common is None:
            raise ValueError(f"{a.dtype} compared with {b.dtype}")
        a, b = cast(s, a, common), cast(s, b, common)
    axes = axes_of(s, (a, b), t)
    return Mapped(lambda v, w: builder.cmp(predicate, v[0], v[1]), (a, b), BOOL, axes, builder.span)


def _compared_with_u64(s: State, predicate: str, a: Node, b: Node) -> Node:
    """A signed integer and one of u64: a negative one is below all, else both are u64."""
    if a.dtype == U64:
        return _compared_with_u64(s, MIRRORED[predicate], b, a)
    negative = compared(s, "lt", a, constant(s, 0, a.dtype))
    known = constant(s, predicate in ("ne", "lt", "le"), BOOL)
    return select(s, negative, known, compared(s, predicate, cast(s, a, U64), b))


def number(value: Value) -> Filled:
    """A number of the program as a node."""
    return Filled(value, dtype_of(value), ())


def constant(s: State, value: float, dtype: DType) -> Filled:
    return Filled(s.b.constant(value, dtype), dtype, ())


def combine(
    s: State, operator: str, a: Node, b: Node, dtype: DType, t: Type | None, span: Span
) -> Node:
    """``a operator b`` in a dtype."""
    if operator == "@":
        return product(s, a, b, "exact", span)
    operands = (cast(s, a, dtype), cast(s, b, dtype))
    return mapped(s, OPERATORS[operator], operands, dtype, t, span)


def product(s: State, a: Node, b: Node, precision: str, span: Span) -> Node:
    """``a @ b``; with a vector it is a sum of products of elements, which read each once. Of bools
    an element is true where a pair is."""
    if a.dtype == BOOL:
        pairs = product(s, cast(s, a, I32), cast(s, b, I32), precision, span)
        return compared(s, "ne", pairs, constant(s, 0, I32))
    narrow = a.dtype.is_float and a.dtype.bits < 32
    dtype = F32 if narrow else I32 if a.dtype.bits == 8 else a.dtype
    if 1 in (len(a.axes), len(b.axes)):
        return _with_vector(s, cast(s, a, dtype), cast(s, b, dtype), dtype, span)
    one = Axis(s.b.number(1), 1)
    rank = max(len(a.axes), len(b.axes))
    a, b = (
        x if len(x.axes) == rank
        else with_axes(s, x, ((one,) * (rank - len(x.axes)) + x.axes),
                       tuple(range(rank - len(x.axes), rank)))
        for x in (a, b)
    )  # fmt: skip
    stacks = a.axes[:-2], b.axes[:-2]
    rank = max(map(len, stacks))
    batch = (_axis(s, stacks, rank, i, None) for i in range(rank))
    axes = (*batch, a.axes[-2], b.axes[-1])
    return Product(a, b, dtype, axes, precision, s.stages, span)


def _with_vector(s: State, a: Node, b: Node, dtype: DType, span: Span) -> Node:
    """The products along the contraction, and their sum."""
    one = Axis(s.b.number(1), 1)
    along = len(a.axes) - 1
    if len(a.axes) == 1 and len(b.axes) > 1:
        along = len(b.axes) - 2
        a = with_axes(s, a, (*a.axes, one), (0,))
    products = mapped(s, "mul", (a, b), dtype, None, span)
    axes = tuple(x for i, x in enumerate(products.axes) if i != along)
    return Reduced("add", products, along, dtype, axes, span)


def permuted(value: Node, order: tuple[int, ...]) -> Node:
    axes = tuple(value.axes[i] for i in order)
    if isinstance(value, Read):
        dims, steps = (tuple(row[i] for i in order) for row in (value.dims, value.steps))
        rooms = tuple(value.rooms[i] for i in order) if value.rooms else ()
        return replace(value, dims=dims, steps=steps, axes=axes, rooms=rooms)
    return Permuted(value, order, value.dtype, axes)


def with_axes(s: State, node: Node, axes: tuple[Axis, ...], places: Sequence[int]) -> Node:
    """The node with further axes of size 1; ``places`` are where its own ones go."""
    zeros = (s.b.number(0),) * len(node.axes)
    return Part(node, zeros, tuple(places), node.dtype, axes)


def without(s: State, node: Node, axis: int) -> Node:
    """The node without an axis of size 1."""
    zeros = (s.b.number(0),) * len(node.axes)
    along = tuple(None if i == axis else i - (i > axis) for i in range(len(node.axes)))
    axes = tuple(a for i, a in enumerate(node.axes) if i != axis)
    return Part(node, zeros, along, node.dtype, axes)
