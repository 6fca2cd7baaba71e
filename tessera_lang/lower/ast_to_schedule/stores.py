"""Stores into arrays, and accumulations.

Owns the loops over a place that has axes without a capacity, and what an expression may read of
the array it is stored into. Must not know how values are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule import node_builders, subscripts, values_before_writes
from tessera_lang.lower.ast_to_schedule.axis_collapsing import merged_store, with_merged_sums
from tessera_lang.lower.ast_to_schedule.iteration_axes import is_element_wise, opened
from tessera_lang.lower.ast_to_schedule.kept_values import with_kept_values
from tessera_lang.lower.ast_to_schedule.row_loops import Row, row_of
from tessera_lang.lower.ast_to_schedule.scatter_stores import scatter
from tessera_lang.lower.ast_to_schedule.state import Refused, State
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Axis,
    Mapped,
    Node,
    Part,
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
from tessera_lang.lower.ast_to_tile.context import Unsupported
from tessera_lang.record import replace
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, F32, I32, INDEX, DType

Emit = Callable[[Value, Value, list[Value], list[Value], list[int], list[int]], None]
"""Of a tile and a view of the array: the starts along its axes, the extents of the tile, and along
which axes and in which steps it lies."""
_KINDS = {"+": "add", "-": "add", "*": "mul"}


def store(s: State, target: ast.Subscript, value: Node) -> None:
    """``C[...] = value``."""
    place, inside = _place(s, target)
    _write(s, place, inside, value, target.span, _stores(s))


def fill(
    s: State, view: Value, value: Node, span: Span, axes: tuple[Axis, ...] | None = None
) -> None:
    """A whole array, or the elements of it that ``axes`` say."""
    place = subscripts.array(s, view, span)
    if axes is not None and len(axes) == len(place.axes):
        place = replace(place, axes=axes)
    _write(s, place, None, value, span, _stores(s))


def accumulate(s: State, node: ast.AugmentedAssign) -> None:
    """``C[...] += value``: a reduction over the loops that the place does not depend on."""
    assert isinstance(node.target, ast.Subscript)
    place, inside = _place(s, node.target)
    value = s.node(node.value)
    wide = accumulator(place.dtype)
    kind = _KINDS.get(node.operator)
    if kind is None:
        old: Node = node_builders.cast(s, place, wide)
        made = node_builders.combine(s, node.operator, old, value, wide, None, node.span)
        _write(s, place, inside, made, node.span, _stores(s))
        return
    value = node_builders.cast(s, value, wide)
    if node.operator == "-":
        value = node_builders.mapped(s, "neg", (value,), wide)
    b = s.b

    def emit(
        tile: Value, view: Value, starts: list[Value], extents: list[Value], dims: list[int],
        steps: list[int],
    ) -> None:  # fmt: skip
        b.accumulate(kind, tile, view, starts, extents, dims=dims, steps=steps)

    _write(s, place, inside, value, node.span, emit, wide)


def accumulator(dtype: DType) -> DType:
    """The dtype in which a sum over an array's elements is kept."""
    if dtype == BOOL or (dtype.is_integer and dtype.bits < 32):
        return I32
    return F32 if dtype.is_float and dtype.bits < 32 else dtype


def _stores(s: State) -> Emit:
    def emit(
        tile: Value, view: Value, starts: list[Value], extents: list[Value], dims: list[int],
        steps: list[int],
    ) -> None:  # fmt: skip
        s.b.store_tile(tile, view, starts, extents, dims=dims, steps=steps)

    return emit


def _place(s: State, target: ast.Subscript) -> tuple[Read, Value | None]:
    base = s.node(target.value)
    if not isinstance(base, Read):
        raise Unsupported(target.span, "a store into this")
    part, inside = subscripts.part_of_array(s, target, base, write=True)
    if not isinstance(part, Read):
        raise Unsupported(target.span, "new axes in a place that is written")
    return part, inside


def _write(
    s: State, place: Read, inside: Value | None, value: Node, span: Span, emit: Emit,
    dtype: DType | None = None,
) -> None:  # fmt: skip
    view, wanted = place.view, dtype or place.dtype
    if not view.view_type.mut:
        raise Unsupported(span, f"a store into `{view.name}`, which is not `mut`")
    (value,) = values_before_writes.save(s, (view,), span, s.later, (value,))
    value = node_builders.cast(s, value, wanted)
    if not place.axes:
        _write_element(s, place, inside, value, emit)
    else:
        _write_axes(s, place, value, wanted, span, emit, dtype is not None)
    s.wrote(view, span)


def _write_element(s: State, place: Read, inside: Value | None, value: Node, emit: Emit) -> None:
    """One element: a tile of one, whose extent is 0 where the place is outside."""
    b, last = s.b, len(place.starts) - 1
    scalar = node_builders.scalar_of(s, value)
    extent = b.number(1)
    starts = list(place.starts)
    if inside is not None:
        extent = b.select(inside, extent, b.number(0))
        starts = [b.select(inside, v, b.number(0)) for v in starts]
    emit(b.full(scalar, (1,)), place.view, starts, [extent], [last], [1])


def _write_axes(
    s: State, place: Read, value: Node, dtype: DType, span: Span, emit: Emit, sums: bool
) -> None:
    """Whole where every axis has a capacity; else loops over those that have none."""
    b = s.b
    axes = tuple(_axis(place, value, i) for i in range(len(place.axes)))
    if all(b.known(a.extent) == 1 for a in axes) and not _has_products(value):
        # One element: a step of its own would also be that of the axes which a sum goes along.
        axes = tuple(replace(a, capacity=1) for a in axes)

    inside = False

    def root_of(found: Node) -> Node:
        return Mapped(lambda v, w: v[0], (found,), dtype, axes, span)

    if not any(n is not None for n in place.numbers):
        starts = [place.starts[dim] for dim in place.dims]
        given = axes
        axes, value = opened(
            s, axes, starts, value, lambda found: _other_read(root_of(found), place) is not None
        )
        # A part that the program's own loop takes is cut further: those loops are in order.
        inside = any(
            a is not b and not s.b.is_of_kernel(start)
            for a, b, start in zip(axes, given, starts, strict=True)
        )
    root = root_of(value)
    if any(a.capacity is None for a in axes):
        root = _without_own_reads(s, root, place, span)
        (root,) = with_kept_values(s, (root,), span)
    if any(n is not None for n in place.numbers):
        s.computed(root, lambda found: scatter(s, place, found, span))
        return
    s.computed(root, lambda found: _write_nest(s, place, found, emit, inside, sums))


def _write_nest(s: State, place: Read, root: Node, emit: Emit, plain: bool, sums: bool) -> None:
    """``sums``: what is there is added to."""
    b, windows = s.b, _windows(s, root.axes)
    if any(w is None for w in windows):
        row = row_of(s, place, root)
        if row is not None and _write_rows(s, place, row, emit):
            return
        root = with_merged_sums(s, root)
        if not sums:
            place, root = merged_store(s, place, root)
            windows = _windows(s, root.axes)

    def body(found: Windows) -> None:
        tile = s.demand(root, found)
        starts = list(place.starts)
        for dim, step, w in zip(place.dims, place.steps, found, strict=True):
            starts[dim] = b.add(starts[dim], b.arithmetic("mul", w.start, b.number(step)))
        order = sorted(range(len(place.dims)), key=lambda i: place.dims[i])
        tile = s.demand.permute(tile, order)
        extents = [found[i].extent for i in order]
        dims = [place.dims[i] for i in order]
        emit(tile, place.view, starts, extents, dims, [place.steps[i] for i in order])

    s.nests.over(root, windows, body, element_wise=is_element_wise(root), plain=plain)


def _windows(s: State, axes: Sequence[Axis]) -> list[Window | None]:
    zero = s.b.number(0)
    return [None if a.capacity is None else Window(zero, a.capacity, a.extent) for a in axes]


def _has_products(value: Node) -> bool:
    return any(isinstance(n, Product) for n in walk(value))


def _write_rows(s: State, place: Read, row: Row, emit: Emit) -> bool:
    """A loop over the rows of a place; False where the value is not made of rows."""
    b, last = s.b, len(place.axes) - 1
    outer = place.axes[:last] if row.stored else place.axes
    names = ["i" if n == 1 else f"b{i}" for i, n in enumerate(range(len(outer), 0, -1))]
    with b.region(*((name, INDEX) for name in names)) as inside:
        at, windows = inside.arguments, row.windows()
        value = row.value(at)
        if value is None:
            return False
        tile, extents = s.demand(value, windows), [w.extent for w in windows]
        if not windows:
            tile, extents = b.full(tile, (1,)), [b.number(1)]
        starts = [b.add(start, i) for start, i in zip(place.starts, at, strict=False)]
        emit(tile, place.view, [*starts, *place.starts[len(at) :]], extents, [last], [1])
        b.yield_()
    zeros, ones = [b.number(0)] * len(outer), [b.number(1)] * len(outer)
    b.loops(zeros, [a.extent for a in outer], ones, (), inside.region, names)
    return True


def _axis(place: Read, value: Node, i: int) -> Axis:
    """Room for a place: its own, or that of the value that is stored."""
    axis = place.axes[i]
    j = i - len(place.axes) + len(value.axes)
    own = value.axes[j].capacity if j >= 0 else None
    if axis.capacity is not None and own is not None and own != 1:
        return Axis(axis.extent, min(axis.capacity, own))
    if axis.capacity is not None or own is None or own == 1:
        return axis
    return Axis(axis.extent, own)


def _without_own_reads(s: State, root: Node, place: Read, span: Span) -> Node:
    """Inside the loops over a result only the element that is written may be read of it: a value
    that needs others is computed as a whole first, as in NumPy."""
    found = _other_read(root, place)
    if found is None:
        return root
    sizes = s.low.sizes[place.view]
    kept = s.keep(root, span, room=[sizes[dim] for dim in place.dims])
    if kept is not None:
        return kept
    name = place.view.name
    raise Refused(
        Diagnostic(
            "T0701",
            f"`{name}` is read at other places than those that are written",
            found.span or span,
            f"this needs all of `{name}` as it was before the store",
            helps=(f"store the result into another array, then copy it into `{name}`",),
        )
    )


def _other_read(root: Node, place: Read) -> Read | None:
    """A read of the array that is written, of another element than the one that is written."""
    for node, aligned in _reads(root, True, set()):
        if node.view is not place.view:
            continue
        same = (
            aligned
            and node.starts == place.starts
            and node.dims == place.dims
            and node.steps == place.steps
            and not any(n is not None for n in node.numbers)
        )
        if not same:
            return node
    return None


def _reads(
    node: Node, aligned: bool, seen: set[tuple[int, bool]]
) -> Sequence[tuple[Read, bool]]:  # fmt: skip
    """Reads below a node that were not seen, and whether each is of the element that is asked
    for."""
    if (id(node), aligned) in seen:
        return []
    seen.add((id(node), aligned))
    if isinstance(node, Read):
        inner = [r for n in node.numbers if n is not None for r in _reads(n, False, seen)]
        return [(node, aligned), *inner]
    keeps = aligned and not isinstance(node, Product | Reduced | Scanned | Sorted | Part)
    if isinstance(node, Mapped):
        rank = len(node.axes)
        return [
            r
            for operand in node.operands
            for r in _reads(operand, keeps and len(operand.axes) == rank, seen)
        ]
    if not isinstance(node, Product | Reduced | Scanned | Sorted | Part):
        keeps = False if operands_of(node) else keeps
    return [r for operand in operands_of(node) for r in _reads(operand, keeps, seen)]
