"""Products: ``a @ b``, ``op.matmul``, ``tile.mma_sync``.

Owns which dtypes multiply, the agreement of the inner axes, and the result. Must not know how a
product is computed.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Label
from tessera_lang.record import replace
from tessera_lang.sema.context import text_of
from tessera_lang.sema.inference_types import Term, Unknown
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.operators import Operand, conversions, mixed, silent
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.operators import (
    counts_as_floats,
    is_narrow,
    is_waiting,
    settle_tile,
    value_of_operand,
)
from tessera_lang.sema.tile.shapes import Side, broadcast, is_walked, meet_axes
from tessera_lang.sema.tile.subscripts import takes_parts
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, DTYPES, F32, I8, I32, I64, INDEX, DType, common_dtype
from tessera_lang.types.type import ERROR, Scalar, Tile, TileAxis

_MULTIPLIED = [d for d in DTYPES.values() if d.product and (d == I8 or not d.is_integer)]
PAIRS = tuple(
    (p, q) for p in _MULTIPLIED for q in _MULTIPLIED if p == q or (p.is_float8 and q.is_float8)
)
"""The dtypes of floats and of i8 that a product takes; f32 is also rounded to the other's."""


def product(
    c: TileContext, span: Span, a: Operand, b: Operand, precision: ast.Expr | None = None
) -> Term:
    """``a @ b`` over the last axis of ``a`` and the last but one of ``b``, or the only one of a
    vector; axes in front are stacks of matrices, as in NumPy. ``precision``: where another than
    exact is asked for, which f32 alone has."""
    takes_parts(c)
    if is_silent(a.term) or is_silent(b.term):
        return silent(a, b)
    a, b = counts_as_floats(c, [value_of_operand(c, a), value_of_operand(c, b)])
    if not isinstance(a.term, Tile) or not isinstance(b.term, Tile):
        wrong = b if isinstance(a.term, Tile) else a
        return c.report(
            "T0206", f"a product takes tiles or arrays, not `{text_of(wrong.term)}`", wrong.e.span,
            helps=("write `*` to multiply by a number",),
        )  # fmt: skip
    axes = _axes(c, span, a, b)
    if axes is None:
        return ERROR if c.final else Unknown()
    if is_waiting(a.term) or is_waiting(b.term):
        return _waiting(c, span, a.term, b.term)
    dtypes = _dtypes(c, span, a, b, a.term, b.term)
    if dtypes is None:
        return ERROR if c.final else Unknown()
    if precision is not None and dtypes != (F32, F32):
        return c.report(
            "T0207", "another precision than \"exact\" is one of products of f32, and this is one"
            f" of {dtypes[0]}", precision.span, helps=("leave `precision` out",),
        )  # fmt: skip
    for o, dtype in zip((a, b), dtypes, strict=True):
        assert isinstance(o.term, Tile)
        if o.term.wide or o.term.dtype != dtype:
            c.convert(o.e, Tile(dtype, o.term.axes))
    c.products += 1
    return _result(dtypes[0], dtypes[1], axes)


def _result(a: DType, b: DType, axes: tuple[TileAxis, ...]) -> Term:
    """Of two vectors it is a number, unless that is wide."""
    if a.is_integer or a == BOOL or a != b:
        dtype = BOOL if a == BOOL else DTYPES[a.product]
        return Tile(dtype, axes) if axes else Scalar(dtype)
    wide = is_narrow(a)
    return Tile(a, axes, wide=wide) if axes or wide else Scalar(a)


def _waiting(c: TileContext, span: Span, a: Tile, b: Tile) -> Term:
    for one, other in ((a, b), (b, a)):
        if is_waiting(one) and not is_waiting(other):
            settle_tile(c, one, other.dtype, False, span)
    return Unknown()


def _axes(c: TileContext, span: Span, a: Operand, b: Operand) -> tuple[TileAxis, ...] | None:
    assert isinstance(a.term, Tile) and isinstance(b.term, Tile)
    x, y = a.term.axes, b.term.axes
    if not x or not y:
        c.report("T0604", "a product takes operands of one axis or more", (b if x else a).e.span,
                 "this has none", helps=("write `*` to multiply by a number",))  # fmt: skip
        return None
    left, right = Side(a.e, x), Side(b.e, y)
    inner = meet_axes(c, span, (left, len(x) - 1), (right, max(len(y) - 2, 0)), "a product")
    if inner is None:
        return None
    if len(y) == 1:  # a sum over the rows of what stands left
        is_walked(c, a.term, len(x) - 1)
        return x[:-1]
    if len(x) == 1:
        return (*y[:-2], y[-1])
    if len(x) == 2 and len(y) == 2:
        return x[0], y[1]
    rank = max(len(x), len(y))
    one = TileAxis(1, 1)
    stacks = [Side(o.e, (*(one,) * (rank - len(t)), *t[:-2])) for o, t in ((a, x), (b, y))]
    batch = broadcast(c, span, stacks[0], stacks[1], "a product")
    return None if batch is None else (*batch, x[-2], y[-1])


def _dtypes(
    c: TileContext, span: Span, a: Operand, b: Operand, x: Tile, y: Tile
) -> tuple[DType, DType] | None:
    p, q = x.dtype, y.dtype
    if p == F32 and is_narrow(q):
        p = q
    elif q == F32 and is_narrow(p):
        q = p
    if (p, q) in PAIRS:
        return p, q
    met = _met(p, q)
    if met is not None:
        return met, met
    one, other = (Operand(o.e, Scalar(t.dtype)) for o, t in ((a, x), (b, y)))
    shown = ", ".join(f"`{m} @ {n}`" for m, n in PAIRS)
    notes = (f"the products are {shown}, and those of two integers",)
    if p.is_float == q.is_float:
        mixed(c, span, one, other, notes)
        return None
    helps, fixes = conversions(c, one, other)
    c.report(
        "T0620", f"there is no product of `{p}` and `{q}`", span,
        labels=(Label(a.e.span, f"this is `{p}`"), Label(b.e.span, f"this is `{q}`")),
        notes=notes, helps=helps, fixes=fixes,
    )  # fmt: skip
    return None


def _met(p: DType, q: DType) -> DType | None:
    """The dtype in which factors meet that have no product of their own: of integers as under
    `*`, with room for sums in at least 32 bits; of integers and floats the floats, where these
    have all of them; of bools they are numbers beside numbers."""
    if BOOL in (p, q):
        other = q if p == BOOL else p
        return other if other == BOOL or other.product else _met(other, other)
    common = common_dtype(p, q)
    if common is None or common.is_float and p.is_float == q.is_float:
        return None
    if common.is_float:  # integers beside floats, which have all of them
        return common
    return I64 if common == INDEX else I32 if common.bits < 32 else common


def transposed(tile: Tile) -> Tile:
    """The last two axes changed over."""
    return replace(tile, axes=(*tile.axes[:-2], tile.axes[-1], tile.axes[-2]))
