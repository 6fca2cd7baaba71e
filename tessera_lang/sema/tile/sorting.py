"""``op.sort``, ``argsort``, ``topk``: their types, and what of an axis must be known.

Owns the limits: lines that a group holds. Must not know how they are sorted.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.record import replace
from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.context import text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Term
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.operators import Operand
from tessera_lang.sema.tile.array_creation import ask
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.operators import is_waiting, value_of_operand
from tessera_lang.sema.tile.reductions import axis_argument, flag_argument, index_argument
from tessera_lang.sema.tile.size_normal_form import normal
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, I32, INDEX
from tessera_lang.types.shape import DimOp
from tessera_lang.types.type import Tile, TileAxis, TupleType

MOST_SORTED = 8192
"""Elements of a line: a group holds it whole, on every target."""


def _lines(c: TileContext, e: ast.Call, name: str, bound: Bound) -> tuple[Tile, int] | Term:
    """What is sorted, with room for whole lines, and along which axis."""
    o = value_of_operand(c, Operand(bound["x"], c.infer(bound["x"])))
    if not isinstance(o.term, Tile):
        return o.term if is_silent(o.term) else c.report(
            "T0207", f"`{name}` takes tiles and arrays, not `{text_of(o.term)}`", o.e.span
        )  # fmt: skip
    tile, rank = o.term, len(o.term.axes)
    if not rank:
        return c.report("T0604", f"`{name}` takes a tile with an axis", o.e.span)
    given = bound.get("axis")
    axis = rank - 1 if given is None else axis_argument(c, given, rank, name)
    if is_waiting(tile) and axis is not None and name == "op.sort":
        return tile, axis  # of the dtype that the lines meet
    if axis is None or is_waiting(tile):
        return c.nothing()
    if tile.dtype.is_float8:
        return c.report("T0207", f"`{name}` takes floats of 16 bits and more, not `{tile.dtype}`",
                        o.e.span, helps=(f"convert it: `{source_of(o.e)}.to(f16)`",))  # fmt: skip
    own = tile.axes[axis]
    if own.capacity is None and own.extent is not None:
        value = c.kernel.facts.value(own.extent)
        if value is None:
            ask(c, bound["x"], own.extent, f"`{name}`")
            return c.nothing()
        own = TileAxis(max(1, value), own.extent)
        tile = replace(tile, axes=(*tile.axes[:axis], own, *tile.axes[axis + 1 :]))
    if own.capacity is not None and own.capacity > MOST_SORTED:
        return c.report(
            "T0608", f"`{name}` along an axis of {own.capacity} elements", e.span,
            f"at most {MOST_SORTED}: a group holds a line",
            helps=_in_library(name, tile, e),
        )  # fmt: skip
    if c.final and own.capacity is not None:
        c.typed.lines[e] = own.capacity
    return tile, axis


def sort(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.sort(x, axis=-1, descending=False)``."""
    flag_argument(c, bound, "descending", "op.sort")
    found = _lines(c, e, "op.sort", bound)
    return found[0] if isinstance(found, tuple) else found


def _in_library(name: str, tile: Tile, e: ast.Call) -> tuple[str, ...]:
    """What the library has for an axis that is too much for a group."""
    of_rows = name == "op.topk"
    if of_rows and tile.dtype.bits == 64 and not tile.dtype.is_float:
        return ("write `import std.sort` and call `std.sort.argsort` of each line in the host"
                " program",)  # fmt: skip
    found = "std.topk.topk" if of_rows else f"std.sort.{name.removeprefix('op.')}"
    given = (*map(source_of, e.arguments),
             *(f"{k.name}={source_of(k.value)}" for k in e.keywords))  # fmt: skip
    arguments = ", ".join(given) if of_rows else source_of(e.arguments[0]) if e.arguments else "x"
    one = "" if of_rows or len(tile.axes) == 1 else ", of one line"
    module = found.rpartition(".")[0]
    return (f"write `import {module}` and call `{found}({arguments})` in the host program{one}",)


def argsort(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.argsort(x, axis=-1, descending=False)``: places, of index."""
    flag_argument(c, bound, "descending", "op.argsort")
    found = _lines(c, e, "op.argsort", bound)
    if not isinstance(found, tuple):
        return found
    x, own = bound["x"], c.infer(bound["x"])
    if isinstance(own, Tile) and own.dtype == INDEX and c.narrows(x, I32):
        c.convert(x, replace(own, dtype=I32))  # places again
    return replace(found[0], dtype=INDEX, wide=False)


def topk(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``values, places = op.topk(x, k, axis=-1, largest=True)``."""
    flag_argument(c, bound, "largest", "op.topk")
    found = _lines(c, e, "op.topk", bound)
    count = None
    if not is_silent(c.infer(bound["k"])):
        index_argument(c, bound["k"])
        count = c.try_value(bound["k"])
        if not isinstance(count, int) or count < 1:
            return c.report("T0311", "`k` of `op.topk` is a number of at least 1 that is known at"
                            " compile time", bound["k"].span)  # fmt: skip
    if not isinstance(found, tuple) or not isinstance(count, int):
        return found if not isinstance(found, tuple) else c.nothing()
    tile, axis = found
    if tile.dtype == BOOL:
        return c.report("T0206", "`op.topk` takes numbers, not bools", bound["x"].span)
    own = tile.axes[axis]
    facts = c.kernel.facts
    length = own.capacity if own.extent is None else facts.value(own.extent) or own.capacity
    if length is not None and count > length:
        return c.report(
            "T0207", f"`op.topk` takes {count} elements of an axis of {length}", bound["k"].span,
            helps=(f"`k` is from 1 to {length}",),
        )  # fmt: skip
    extent = own.extent if own.extent is None else facts.simplify(
        normal(DimOp("min", own.extent, count)))  # fmt: skip
    room = count if own.capacity is None else min(count, own.capacity)
    axes = (*tile.axes[:axis], TileAxis(room, extent), *tile.axes[axis + 1 :])
    values = replace(tile, axes=axes)
    return TupleType((values, Tile(INDEX, axes)))


TYPES: dict[str, Callable[[TileContext, ast.Call, Bound], Term]] = {
    "op.sort": sort, "op.argsort": argsort, "op.topk": topk,
}  # fmt: skip
