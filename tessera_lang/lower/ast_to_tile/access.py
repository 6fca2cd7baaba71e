"""Elements of arrays and buffers: places, loads, stores, and their fault sites.

Every access starts guarded; ``opt.tile.prove_bounds`` drops the guards that it can.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import BufferType, Value, ViewType
from tessera_lang.ir.tile.builder import element_type
from tessera_lang.lower.ast_to_tile.context import Lowering, SiteKind, Unsupported
from tessera_lang.record import dataclass
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import INDEX, DType


@dataclass(frozen=True, slots=True)
class Place:
    """One element: the array and an index per axis, evaluated once."""

    array: Value
    indices: tuple[Value, ...]
    span: Span


def dtype_of(place: Place) -> DType:
    return element_type(place.array)


def place_of(lowering: Lowering, node: ast.Expr) -> Place:
    """The element that ``x[i, j]`` names."""
    if not isinstance(node, ast.Subscript):
        raise Unsupported(node.span, "a place that is no element", "name an element: `x[i]`")
    array = lowering.expression(lowering, node.value)
    if not isinstance(array, Value) or not isinstance(array.type, (ViewType, BufferType)):
        raise Unsupported(node.span, "elements of this value")
    if len(node.items) != rank_of(array):
        raise Unsupported(node.span, "an index that leaves axes over")
    indices = [index_of(lowering, array, axis, item) for axis, item in enumerate(node.items)]
    return element(lowering, array, indices, node.span)


def element(lowering: Lowering, array: Value, indices: Sequence[Value], span: Span) -> Place:
    """The element at these indices; of what each lane has of its own, that of this lane."""
    t = array.array_type
    lane = (lowering.builder.lane_linear(),) if len(indices) < len(t.shape) else ()
    return Place(array, (*indices, *lane), span)


def rank_of(array: Value) -> int:
    """The axes that the source knows: not that of the lanes, of what each has of its own."""
    t = array.array_type
    return len(t.shape) - (t.space == "local")


def size_of(lowering: Lowering, array: Value, axis: int) -> Value:
    """The size of an axis as a value."""
    if isinstance(array.type, BufferType):
        return lowering.builder.index(array.type.shape[axis])
    return lowering.sizes[array][axis]


def index_of(lowering: Lowering, array: Value, axis: int, item: ast.Expr) -> Value:
    """What stands in a bracket for an axis, as an index."""
    if isinstance(item, ast.SliceExpr):
        raise Unsupported(item.span, "slices")
    builder = lowering.builder
    match item:
        case ast.Unary(operator="-", operand=ast.IntLit(value=count)) if count > 0:
            # Only a literal negative index counts from the end.
            size = size_of(lowering, array, axis)
            return builder.binary("sub", size, builder.index(count))
        case _:
            value = lowering.expression(lowering, item)
    if not isinstance(value, Value) or not isinstance(value.type, DType):
        raise Unsupported(item.span, "an index of this type")
    return builder.cast(value, INDEX)


def site(lowering: Lowering, kind: SiteKind, place: Place) -> int:
    return lowering.site(kind, place.span, place.array.name)


def load(lowering: Lowering, place: Place) -> Value:
    number = site(lowering, "read", place)
    with lowering.builder.at(place.span):
        return lowering.builder.load(place.array, place.indices, site=number)


def store(lowering: Lowering, place: Place, value: Value) -> None:
    value = lowering.builder.cast(value, dtype_of(place))
    number = site(lowering, "write", place)
    with lowering.builder.at(place.span):
        lowering.builder.store(value, place.array, place.indices, site=number)
