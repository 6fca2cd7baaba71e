"""``op.sort``, ``argsort``, ``topk`` as nodes: integers in the order of the elements are sorted.

A key is an integer that is less where the element is; where places are asked for, one of 32 bits
has the upper half of an i64, and the place the lower one, so that no two are equal and equal
elements stay in order. Of keys of 64 bits the places are sorted beside them.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule import node_builders
from tessera_lang.lower.ast_to_schedule.builtin_arguments import argument, axis_of, known, needed
from tessera_lang.lower.ast_to_schedule.state import State
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Axis,
    Iota,
    Mapped,
    Node,
    Part,
    Sorted,
)
from tessera_lang.sema.side_tables import Builtin
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, F32, F64, I32, I64, INDEX, U32, U64, DType

_HALF = 32
_PLACES = (1 << _HALF) - 1


def _function(s: State, x: Node, dtype: DType, function: Callable[[Value], Value]) -> Node:
    return Mapped(lambda v, w: function(v[0]), (x,), dtype, x.axes, s.b.span)


def _bits(s: State, x: Node, dtype: DType) -> Node:
    return _function(s, x, dtype, lambda v: s.b.bitcast(v, dtype))


def _greatest(dtype: DType) -> int:
    return (1 << (dtype.bits - 1)) - 1


def _turned(s: State, bits: Node) -> Node:
    """Of negative numbers the bits but the sign changed: those of floats become integers in their
    order, and these the bits again."""
    zero = node_builders.constant(s, 0, bits.dtype)
    most = node_builders.constant(s, _greatest(bits.dtype), bits.dtype)
    other = node_builders.mapped(s, "xor", (bits, most), bits.dtype)
    below = node_builders.compared(s, "lt", bits, zero)
    return node_builders.select(s, below, other, bits)


def _of_sign(s: State, bits: Node) -> Node:
    """The sign bit changed: unsigned numbers as signed ones, and back."""
    sign = node_builders.constant(s, -_greatest(bits.dtype) - 1, bits.dtype)
    return node_builders.mapped(s, "xor", (bits, sign), bits.dtype)


def _keys(s: State, x: Node, zeros: bool) -> Node:
    """i32 or i64; a NaN is above all, and with ``zeros`` -0.0 is 0.0."""
    dtype = x.dtype
    if dtype in (U32, U64):
        return _of_sign(s, _bits(s, x, I32 if dtype == U32 else I64))
    if not dtype.is_float:
        return node_builders.cast(s, x, I64 if dtype.bits == 64 or dtype == INDEX else I32)
    wide, whole = (F64, I64) if dtype == F64 else (F32, I32)
    x = node_builders.cast(s, x, wide)
    nan = node_builders.compared(s, "ne", x, x)
    x = node_builders.select(s, nan, node_builders.constant(s, float("nan"), wide), x)
    if zeros:
        x = node_builders.mapped(s, "add", (x, node_builders.constant(s, 0, wide)), wide)
    key = _turned(s, _bits(s, x, whole))
    most = node_builders.constant(s, _greatest(whole), whole)
    return node_builders.select(s, nan, most, key)


def _elements(s: State, key: Node, dtype: DType) -> Node:
    """The elements that keys stand for; what is above infinity is NaN."""
    if dtype in (U32, U64):
        return _bits(s, _of_sign(s, key), dtype)
    if dtype == BOOL:
        return node_builders.compared(s, "ne", key, node_builders.constant(s, 0, key.dtype))
    if not dtype.is_float:
        return node_builders.cast(s, key, dtype)
    wide = F64 if dtype == F64 else F32
    most = node_builders.constant(s, _greatest(key.dtype), key.dtype)
    is_nan = node_builders.compared(s, "eq", key, most)
    found = _bits(s, _turned(s, key), wide)
    nan = node_builders.constant(s, float("nan"), wide)
    return node_builders.cast(s, node_builders.select(s, is_nan, nan, found), dtype)


def _reversed(s: State, key: Node) -> Node:
    """Keys in the other order."""
    ones = node_builders.constant(s, -1, key.dtype)
    return node_builders.mapped(s, "xor", (key, ones), key.dtype)


def _lines(s: State, e: ast.Call, x: Node, axis: int) -> Node:
    """The node with room for whole lines along an axis."""
    own, room = x.axes[axis], s.typed.lines.get(e)
    if own.capacity is not None or room is None:
        return x
    axes = (*x.axes[:axis], Axis(own.extent, room), *x.axes[axis + 1 :])
    return Mapped(lambda v, w: v[0], (x,), x.dtype, axes, s.b.span)


def _sorted(s: State, key: Node, axis: int, e: ast.Call) -> Node:
    return Sorted(key, axis, key.dtype, key.axes, e.span)


def _keys_and_places(s: State, e: ast.Call, x: Node, axis: int, down: bool) -> tuple[Node, Node]:
    """Keys in order, in the other order than the elements where ``down``, and their places."""
    key = _keys(s, x, True)
    key = _reversed(s, key) if down else key
    if key.dtype == I64:
        places = Sorted(key, axis, I32, key.axes, e.span, True)
        return _sorted(s, key, axis, e), node_builders.cast(s, places, INDEX)
    packed = _sorted(s, _packed(s, key, axis), axis, e)
    by = node_builders.constant(s, _HALF, I64)
    high = node_builders.mapped(s, "shr", (packed, by), I64)
    return node_builders.cast(s, high, I32), _places(s, packed)


def _packed(s: State, key: Node, axis: int) -> Node:
    """Keys of 32 bits, and behind them the place."""
    wide = node_builders.cast(s, key, I64)
    by = node_builders.constant(s, _HALF, I64)
    high = node_builders.mapped(s, "shl", (wide, by), I64)
    place = node_builders.cast(s, Iota(axis, INDEX, key.axes), I64)
    return node_builders.mapped(s, "or", (high, place), I64)


def _places(s: State, packed: Node) -> Node:
    low = node_builders.constant(s, _PLACES, I64)
    return node_builders.cast(s, node_builders.mapped(s, "and", (packed, low), I64), INDEX)


def sort(s: State, e: ast.Call) -> Node:
    """``op.sort`` and ``op.argsort``, along an axis."""
    x, axis = _operand(s, e)
    down = _is_down(s, e, "descending")
    if s.typed.symbols.get(e.function) == Builtin("op.argsort"):
        return _keys_and_places(s, e, x, axis, down)[1]
    key = _keys(s, x, False)
    key = _sorted(s, _reversed(s, key) if down else key, axis, e)
    return _elements(s, _reversed(s, key) if down else key, x.dtype)


def _is_down(s: State, e: ast.Call, name: str) -> bool:
    given = argument(s, e, name)
    return (known(s, given) is True) if given is not None else name == "largest"


def _operand(s: State, e: ast.Call) -> tuple[Node, int]:
    """The lines to be sorted, and the axis."""
    x = s.node(needed(s, e, "x"))
    axis = axis_of(s, e, len(x.axes), -1) or 0
    return _lines(s, e, x, axis), axis


def topk(s: State, e: ast.Call) -> tuple[Node, Node]:
    """The first elements in order, and their places."""
    x, axis = _operand(s, e)
    down = _is_down(s, e, "largest")
    keys, places = _keys_and_places(s, e, x, axis, down)
    count = known(s, needed(s, e, "k"))
    assert isinstance(count, int)
    here = keys.axes[axis]
    room = min(count, here.capacity or count)
    extent = s.b.arithmetic("min", here.extent, s.b.number(count))
    axes = (*keys.axes[:axis], Axis(extent, room), *keys.axes[axis + 1 :])
    zeros = (s.b.number(0),) * len(axes)
    first, at = (Part(x, zeros, tuple(range(len(axes))), x.dtype, axes) for x in (keys, places))
    return _elements(s, _reversed(s, first) if down else first, x.dtype), at


def several(s: State, e: ast.Call) -> tuple[Node, ...] | None:
    """What a builtin gives that has several results; None for others."""
    symbol = s.typed.symbols.get(e.function)
    return topk(s, e) if symbol == Builtin("op.topk") else None
