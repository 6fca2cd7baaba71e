"""``x[rows, columns]``: the elements whose places stand side by side in several tiles.

Owns what such a subscript stands for. Must not know how a tile of places is read.
"""

from __future__ import annotations

from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Term
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.expand_builtins import expand
from tessera_lang.sema.tile.symbolic import dim_of
from tessera_lang.syntax import ast
from tessera_lang.types.type import Scalar, Tensor, Tile


def side_by_side(
    c: TileContext, e: ast.Subscript, base: Tensor | Tile, terms: list[Term], target: bool
) -> Term | None:
    """The type of a subscript with several tiles of places; None where it has at most one."""
    tiles = [i for i, t in enumerate(terms) if isinstance(t, Tile) and t.axes]
    if len(tiles) < 2:
        return None
    given = {"x": e.value, **{f"i{k}": item for k, item in enumerate(e.items)}}
    several = not c.in_tile_loop  # axes: they are gone through one behind the other
    good = all(_is_place(i, t, several) for i, t in zip(e.items, terms, strict=True))
    if good and isinstance(base, Tensor) and not target:
        ranks = {len(t.axes): i for i, t in enumerate(terms) if isinstance(t, Tile) and t.axes}
        if len(ranks) > 1:
            few, many = min(ranks), max(ranks)
            text = source_of(e.items[ranks[few]])
            axes = ", ".join(["None"] * (many - few) + [":"] * few)
            return c.report(
                "T0604", f"places that stand side by side have one rank, not {few} and {many} axes",
                e.items[ranks[few]].span,
                helps=(f"say where the missing axes are: `{text}[{axes}]`",),
            )  # fmt: skip
        return expand(c, e, _of_array(base, len(e.items)), given)
    a, b = (source_of(e.items[i]) for i in tiles[:2])
    if target:
        return c.report(
            "T0215", "elements at places of several tiles are not written here",
            e.items[tiles[1]].span, helps=_one_by_one(e),
        )  # fmt: skip
    what = "read" if isinstance(base, Tensor) else "taken of a tile"
    return c.report(
        "T0215", f"elements at places of several tiles are not {what} here", e.items[tiles[1]].span,
        notes=("of an array that a kernel reads each index is a tile of integers with one axis or"
               " a number", "of a computed tile the first index is `op.arange` of all its rows"),
        helps=(f"of an array of one axis take `flat[({a}) * columns + {b}]`",)
        if isinstance(base, Tensor) else
        ("store it into an array first, `t = op.empty(shape, f32)` and `t[:, :] = ...`, and take"
         " the elements of that",),
    )  # fmt: skip


def _one_by_one(e: ast.Subscript) -> tuple[str, ...]:
    """What writes elements at places that stand side by side."""
    name, items = source_of(e.value), [source_of(item) for item in e.items]
    counts = [
        source_of(x.arguments[0]) for x in e.items
        if isinstance(x, ast.Call) and source_of(x.function) == "op.arange"
        and len(x.arguments) == 1 and not x.keywords
    ]  # fmt: skip
    named = [x for x in e.items if isinstance(x, ast.Name)]
    if len(named) + len(counts) < len(items) or not named:
        return ("give the places names, and write one element after the other in a loop:"
                f" `for i in range(len(rows)): {name}[rows[i], columns[i]] = ...`",)  # fmt: skip
    length = counts[0] if counts else f"len({source_of(named[0])})"
    places = ", ".join(
        f"{t}[i]" if x in named else "i" for x, t in zip(e.items, items, strict=True)
    )
    helps = [f"write one after the other: `for i in range({length}): {name}[{places}] = ...`"]
    if len(items) == 2 and e.items[1] in named and counts:
        columns = f"op.arange({name}.shape[1])[None, :]"
        helps.append(f"or choose them: `{name}[{columns} == {items[1]}[:, None]] = ...`")
    return tuple(helps)


def beside_numbers(
    c: TileContext, e: ast.Subscript, base: Tensor, terms: list[Term]
) -> Term | None:
    """``x[2, places]`` where the places have several axes; None where it is something else."""
    tiles = [t for t in terms if isinstance(t, Tile)]
    if len(tiles) != 1 or len(tiles[0].axes) < 2 or len(terms) < 2 or c.in_tile_loop:
        return None
    if not all(_is_place(i, t, several=True) for i, t in zip(e.items, terms, strict=True)):
        return None
    given = {"x": e.value, **{f"i{k}": item for k, item in enumerate(e.items)}}
    return expand(c, e, _of_array(base, len(e.items)), given)


def _is_place(item: ast.Expr, term: Term, several: bool = False) -> bool:
    if isinstance(item, ast.SliceExpr | ast.NoneLit):
        return False
    if isinstance(term, Tile):
        return term.dtype.is_integer and (several or len(term.axes) == 1)
    if isinstance(term, Tensor):
        return term.dtype.is_integer and (several or len(term.shape) == 1)
    return isinstance(term, Scalar)


def _of_array(base: Tensor, count: int) -> str:
    """Rows of the array with its first axes as one; where a place is outside there is none."""
    rest = "".join(f", x.shape[{axis}]" for axis in range(count, len(base.shape)))
    inside = " & ".join(f"(i{k} >= 0) & (i{k} < x.shape[{k}])" for k in range(count))
    place = "i0"
    for k in range(1, count):
        place = f"({place}) * x.shape[{k}] + i{k}"
    return f"op.reshape(x, (-1{rest},))[op.where({inside}, {place}, -1)]"


def of_each_row(c: TileContext, e: ast.Subscript, base: Tile, target: bool) -> Term | None:
    """``t[op.arange(m), places]`` of a tile with ``m`` rows, which need not be made: its type; None
    where it is something else."""
    if target or len(e.items) != 2 or len(base.axes) != 2 or not isinstance(e.items[0], ast.Call):
        return None
    rows, places = e.items[0], e.items[1]
    named = isinstance(rows.function, ast.Attribute) and source_of(rows.function) == "op.arange"
    if not named or len(rows.arguments) != 1 or rows.keywords:
        return None
    if isinstance(places, ast.SliceExpr | ast.NoneLit):
        return None
    c.infer(rows.arguments[0])
    extent, count = base.axes[0].extent, dim_of(c, rows.arguments[0])
    if extent is None or c.kernel.facts.resolve(extent) != c.kernel.facts.resolve(count):
        return None
    term = c.infer(places)
    if is_silent(term):
        return term
    if not isinstance(term, Tensor | Tile) or not _is_place(places, term):
        return None
    found = "op.sum(op.where(op.arange(x.shape[1])[None, :] == i1[:, None], x, 0), axis=1)"
    return expand(c, e, found, {"x": e.value, "i1": places})
