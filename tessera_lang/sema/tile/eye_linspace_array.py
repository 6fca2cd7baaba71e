"""``op.eye``, ``linspace``, ``array`` and ``arange``: numbers that are written down or counted.

Owns their types. Must not know how elements are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite

from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.context import text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Open, Term, Unknown
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.tile.array_creation import (
    MOST_CAPACITY,
    capacities,
    counted,
    dtype_argument,
    empty_axis,
)
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.expand_builtins import expand
from tessera_lang.sema.tile.operators import give_tile, is_waiting, open_dtype
from tessera_lang.sema.tile.reductions import index_argument
from tessera_lang.syntax import ast
from tessera_lang.target.arange_count import arange_count
from tessera_lang.types.dtype import F32, F64, I32, DType, common_dtype
from tessera_lang.types.type import Scalar, Tile, TileAxis, Weak

MOST_ITEMS = 64
"""Numbers of an ``op.array``: each is one comparison for each element."""


def eye(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.eye(n, m, k, dtype)``: ones on a diagonal, of the floats that it meets."""
    room: list[int] = []
    for name in ("n", "m"):
        if name in bound and not isinstance(bound[name], ast.NoneLit):
            found = capacities(c, bound[name], "`op.eye`")
            if found is None:
                return c.nothing()
            if len(found) != 1:
                return c.report("T0205", f"`op.eye` takes one size as `{name}`", bound[name].span)
            room.append(found[0])
    if "k" in bound and not is_silent(c.infer(bound["k"])):
        index_argument(c, bound["k"])
    dtype, wide = _floats(c, e, dtype_argument(c, bound.get("dtype")))
    return Tile(dtype, tuple(_axis(n) for n in (room * 2)[:2]), wide)


def _axis(n: int) -> TileAxis:
    return TileAxis(n, n) if n else empty_axis()


def _floats(c: TileContext, e: ast.Call, dtype: DType | None) -> tuple[DType, bool]:
    """The dtype of numbers that no typed value is among: that of the floats which they meet."""
    return (dtype, False) if dtype is not None else open_dtype(c, e, F32, literal=True)


def linspace(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.linspace(start, stop, num, dtype)``: ``num`` numbers, both ends among them; of the dtype
    of the ends, or of the floats that literals meet."""
    ends = [c.infer(bound[name]) for name in ("start", "stop")]
    typed = [t.dtype for t in ends if isinstance(t, Scalar) and t.dtype.is_float]
    given = dtype_argument(c, bound.get("dtype"))
    if given is None and typed:
        given = F64 if F64 in typed else F32
    if given is None and any(isinstance(t, Unknown) for t in ends):
        return Unknown()
    dtype, wide = _floats(c, e, given)
    if not dtype.is_float:
        return c.report("T0207", f"`op.linspace` makes floats, not `{dtype}`",
                        bound["dtype"].span)  # fmt: skip
    compute = F64 if dtype == F64 else F32
    waiting = dtype.name.startswith("?")
    for name, term in zip(("start", "stop"), ends, strict=True):
        if waiting and isinstance(term, (Weak, Open)):
            continue
        if not give_tile(c, bound[name], term, compute, False) or isinstance(term, Tile):
            return c.report(
                "T0207", f"`op.linspace` goes between numbers of `{compute}`", bound[name].span,
                f"this is `{text_of(term)}`",
                helps=(f"write `{compute}({source_of(bound[name])})`",),
            )  # fmt: skip
    room = capacities(c, bound["num"], "`op.linspace`")
    return c.nothing() if room is None else Tile(dtype, (_axis(room[0]),), wide)


def items_of(e: ast.Expr) -> tuple[tuple[int, ...], tuple[ast.Expr, ...]] | None:
    """Shape and numbers, row by row, of nested lists; None where the rows are not alike."""
    if not isinstance(e, (ast.ListExpr, ast.TupleExpr)):
        return (), (e,)
    parts = [items_of(item) for item in e.items]
    if not parts:
        return (0,), ()
    if any(p is None or p[0] != (parts[0] or ((),))[0] for p in parts):
        return None
    known = [p for p in parts if p is not None]
    return (len(known), *known[0][0]), tuple(x for p in known for x in p[1])


def array(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.array([1.0, 2.0], dtype=)``: a few numbers, which may be computed. Literals with a
    point among them, and no typed number, are of the dtype of the floats that they meet."""
    dtype = dtype_argument(c, bound.get("dtype"))
    found = items_of(bound["items"])
    span = bound["items"].span
    if found is None or not found[0]:
        return c.report("T0207", "`op.array` takes numbers in a list, or lists of equal lengths",
                        span, helps=("write `op.array([1.0, 2.0])`",))  # fmt: skip
    shape, items = found
    if len(items) > MOST_ITEMS:
        return c.report("T0608", f"`op.array` of {len(items)} numbers", span,
                        f"at most {MOST_ITEMS}", helps=("pass them as an array",))  # fmt: skip
    terms = [c.infer(item) for item in items]
    if any(is_silent(t) for t in terms):
        return next(t for t in terms if is_silent(t))
    kind, wide = dtype or (_common(terms) if items else F32), False
    if dtype is None and kind == F32 and not any(isinstance(t, Scalar) for t in terms):
        kind, wide = _floats(c, e, None)
    elif dtype is None and kind == I32 and all(isinstance(t, Weak) for t in terms):
        kind, wide = open_dtype(c, e, I32, literal=True)
    if kind is None:
        return c.report("T0206", "`op.array` takes numbers of one dtype", span,
                        helps=("give it one: `dtype=f32`",))  # fmt: skip
    tile = Tile(kind, tuple(_axis(n) for n in shape), wide)
    if is_waiting(tile) and all(isinstance(t, (Weak, Open)) for t in terms):
        return tile
    for item, term in zip(items, terms, strict=True):
        number = isinstance(term, (Weak, Open, Scalar))
        if not number or not give_tile(c, item, term, kind, False):
            return c.report("T0208", f"an array of `{kind}` does not hold `{text_of(term)}`",
                            item.span, helps=(f"convert it: `{kind}({source_of(item)})`",)
                            if number else ("join tiles with `op.stack`",))  # fmt: skip
    return tile


def _common(terms: Sequence[Term]) -> DType | None:
    """The dtype of numbers; of literals alone f32 or i32."""
    found: DType | None = None
    for term in terms:
        if isinstance(term, Scalar):
            found = term.dtype if found is None else common_dtype(found, term.dtype)
            if found is None:
                return None
    if found is not None:
        return found
    kinds = {t.kind for t in terms if isinstance(t, Weak)}
    return F32 if "float" in kinds or any(isinstance(t, Open) for t in terms) else I32


def arange(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.arange(start, stop, step)`` of integers; of floats as many as NumPy makes, counted by
    integers."""
    terms = {n: c.infer(bound[n]) for n in ("start", "stop", "step") if n in bound}
    dtype = dtype_argument(c, bound.get("dtype"))
    floats = [n for n, t in terms.items() if isinstance(t, Weak) and t.kind == "float"
              or isinstance(t, Scalar) and t.dtype.is_float]  # fmt: skip
    if not floats:
        return counted(c, e, "op.arange", bound)
    numbers = {"start": 0.0, "step": 1.0}
    for name in terms:
        value = c.try_value(bound[name])
        if isinstance(value, bool) or not isinstance(value, int | float):
            return _uncounted(c, bound, floats[0])
        numbers[name] = float(value)
    start, stop, step = numbers["start"], numbers["stop"], numbers["step"]
    if step == 0.0 or not all(map(isfinite, numbers.values())) or dtype and not dtype.is_float:
        return _uncounted(c, bound, floats[0])
    count = arange_count(start, stop, step, F64)
    if count > MOST_CAPACITY:
        return c.report("T0608", f"`op.arange` of {count} elements", e.span)
    places = f"op.arange({count})" if dtype is None else f"op.cast(op.arange({count}), {dtype})"
    begin = f"{start!r} + " if start else ""
    return expand(c, e, f"{begin}{(start + step) - start!r} * {places}", {})


def _uncounted(c: TileContext, bound: Bound, name: str) -> Term:
    start = source_of(bound["start"]) if "start" in bound else "0"
    start = "" if start in ("0", "0.0") else f"{start} + "
    step = f"{source_of(bound['step'])} * " if "step" in bound else ""
    return c.report(
        "T0215", "`op.arange` counts in integers", bound[name].span,
        "floats are counted where they are known when the kernel is compiled",
        helps=(f"compute from them: `{start}{step}op.arange(count)`",),
    )  # fmt: skip


TYPES: dict[str, Callable[[TileContext, ast.Call, Bound], Term]] = {
    "op.eye": eye, "op.linspace": linspace, "op.array": array, "op.arange": arange,
}  # fmt: skip
