"""``op.einsum(subscripts, a, b, c)``: sums over letters, put together of what tiles have.

Owns what is refused: letters that do not fit the operands, sizes that differ, dtypes that do not
multiply. Must not know how the sum is put together (``evaluate/einsum_expansion.py``).
"""

from __future__ import annotations

import re

from tessera_lang.evaluate import einsum_expansion as sums
from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.context import text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Term, Unknown
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.operators import Operand
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.expand_builtins import expand
from tessera_lang.sema.tile.operators import is_narrow, settle_together, value_of_operand
from tessera_lang.sema.tile.products import PAIRS
from tessera_lang.sema.tile.shapes import agree
from tessera_lang.sema.tile.size_normal_form import described
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, F32, DType, cast_to_meet, widens_to
from tessera_lang.types.type import ERROR, Tile, TileAxis


def einsum(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """The type of an Einstein sum, which stands for an expression from now on."""
    given = [bound[n] for n in sums.NAMES if n in bound]
    if "c" in bound and "b" not in bound:
        return c.report("T0105", "`op.einsum` takes its operands in order", e.span)
    operands = [value_of_operand(c, Operand(x, c.infer(x))) for x in given]
    c.infer(bound["subscripts"])
    text = c.try_value(bound["subscripts"])
    for o in operands:
        if not isinstance(o.term, Tile):
            return o.term if is_silent(o.term) else c.report(
                "T0207", f"`op.einsum` takes tiles and arrays, not `{text_of(o.term)}`", o.e.span
            )  # fmt: skip
    if not settle_together(c, operands):
        return Unknown()
    if not isinstance(text, str):
        return c.report("T0207", "the letters of `op.einsum` are a string known at compile time",
                        bound["subscripts"].span,
                        helps=('write `op.einsum("ij,jk->ik", a, b)`',))  # fmt: skip
    try:
        letters, result = sums.parsed(text, len(operands))
    except sums.BadSubscripts as fault:
        return c.report("T0207", f"`op.einsum`: {fault}", bound["subscripts"].span)
    tiles = [o.term for o in operands if isinstance(o.term, Tile)]
    dtype = _fitting(c, operands, tiles, letters)
    if dtype is None:
        return ERROR if c.final else Unknown()
    rules = _rules(dtype, len(tiles), "precision" if "precision" in bound else "")
    names = [n for n in (*sums.NAMES, "precision") if n in bound]
    made = sums.expression(letters, result, rules)
    if rules.factor and is_narrow(dtype):
        made = f"op.cast({made}, {dtype})"
    for n, tile in zip(sums.NAMES, tiles, strict=False):
        if tile.dtype != dtype:
            made = re.sub(rf"\b{n}\b", f"op.cast({n}, {dtype})", made)
    return expand(c, e, made, {n: bound[n] for n in names if n in _words(made)})


def _words(text: str) -> set[str]:
    return {x.id for x in _names(text)}


def _names(text: str) -> list[ast.Name]:
    from tessera_lang.sema.bound_names import expressions
    from tessera_lang.syntax.substitute import parsed

    return [x for x in expressions(parsed(text)) if isinstance(x, ast.Name)]


def _rules(dtype: DType, count: int, precision: str) -> sums.Rules:
    """Narrow floats are multiplied in f32 where there is no product of matrices; 8- and 16-bit
    integers in 32 bits."""
    factor = ""
    if dtype.is_integer and dtype.bits < 32:
        factor = "i32" if dtype.kind == "int" else "u32"
    elif is_narrow(dtype) and count > 1:
        factor = "f32"
    return sums.Rules((dtype, dtype) in PAIRS, dtype.is_integer, factor, precision)


def _fitting(
    c: TileContext, operands: list[Operand], tiles: list[Tile], letters: tuple[str, ...]
) -> DType | None:
    """The dtype of operands that fit their letters; None where they do not (reported)."""
    seen: dict[str, tuple[TileAxis, str]] = {}
    met, beside = _floats_beside(tiles)
    for o, tile, own in zip(operands, tiles, letters, strict=True):
        if len(own) != len(tile.axes):
            c.report("T0604", f"`op.einsum`: `{source_of(o.e)}` has {len(tile.axes)} axes and"
                     f" {len(own)} letters, `{own}`", o.e.span)  # fmt: skip
            return None
        if tile.dtype == BOOL or tile.dtype not in (met, beside):
            what = f"`{tile.dtype}`" if tile.dtype == BOOL else f"`{met}` and `{tile.dtype}`"
            first, to = cast_to_meet(met, tile.dtype)
            first = first and tiles[0].dtype == met
            if tile.dtype == BOOL:
                first, to = False, F32 if tiles[0].dtype == BOOL else tiles[0].dtype
            told = source_of(operands[0].e if first else o.e)
            c.report("T0206", f"`op.einsum` takes numbers of one dtype, not {what}", o.e.span,
                     helps=(f"convert it: `{told}.to({to})`",))  # fmt: skip
            return None
        for letter, axis in zip(own, tile.axes, strict=True):
            before = seen.setdefault(letter, (axis, source_of(o.e)))
            if not agree(c, before[0].extent, axis.extent, o.e.span):
                shown = [
                    "?" if x is None else described(c.kernel.facts.resolve(x))
                    for x in (before[0].extent, axis.extent)
                ]
                c.report(
                    "T0601", f"`op.einsum`: the axes `{letter}` of `{before[1]}` and of"
                    f" `{source_of(o.e)}` differ: {shown[0]} and {shown[1]}", o.e.span,
                )  # fmt: skip
                return None
    return met


def _floats_beside(tiles: list[Tile]) -> tuple[DType, DType]:
    """The dtype in which operands meet, and that of integers among them which become it by
    themselves, itself where there are none."""
    floats = next((t.dtype for t in tiles if t.dtype.is_float), tiles[0].dtype)
    integers = (t.dtype for t in tiles if t.dtype.is_integer and widens_to(t.dtype, floats))
    return floats, next(integers, floats)
