"""``op.median``, ``quantile`` and ``percentile``: elements of sorted lines, and what lies between.

Owns the expression that each stands for. Must not know how lines are sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from math import floor

from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.context import text_of
from tessera_lang.sema.conversion_hints import mean_for
from tessera_lang.sema.inference_types import Term
from tessera_lang.sema.literals import is_silent, settle
from tessera_lang.sema.operators import Operand
from tessera_lang.sema.tile.array_creation import ask, of_the_call, told
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.expand_builtins import expand
from tessera_lang.sema.tile.operators import is_waiting, make_float, value_of_operand
from tessera_lang.sema.tile.reductions import (
    axes_argument,
    axis_argument,
    flag_argument,
    in_one_axis,
)
from tessera_lang.sema.tile.size_normal_form import normal
from tessera_lang.syntax import ast
from tessera_lang.syntax.substitute import substituted
from tessera_lang.types.dtype import BOOL, F64, DType
from tessera_lang.types.shape import Dim, DimOp, symbols_of
from tessera_lang.types.type import Tile


class _Line:
    """Places of a sorted line in an expression over it, ``s``."""

    def __init__(self, tile: Tile, axis: int, whole: bool, keepdims: bool, dtype: DType) -> None:
        self.axis = axis
        self._before, self._behind = "", ""
        if not whole:
            self._before = ":, " * axis
            self._behind = ", :" * (len(tile.axes) - axis - 1)
        self._keepdims = keepdims
        self._number = not keepdims and (whole or len(tile.axes) == 1)
        self._new = ", None" * (len(tile.axes) - 1) if whole and keepdims else ""
        self._dtype = dtype
        self._cast = not tile.dtype.is_float

    def at(self, place: str) -> str:
        one = f"{place}:{place} + 1" if self._keepdims else place
        found = f"s[{self._before}{one}{self._behind}]"
        found = f"{found}[:{self._new}]" if self._new else found
        return f"op.cast({found}, {self._dtype})" if self._cast else found

    def between(self, place: float) -> str:
        """What stands at a place that may lie between two, linearly from the nearer one."""
        low = floor(place)
        share = place - low
        if share == 0.0:
            return self.at(str(low))
        a, b = self.at(str(low)), self.at(str(low + 1))
        if share < 0.5:
            return f"({a} + ({b} - {a}) * {share!r})"
        return f"({b} - ({b} - {a}) * {1.0 - share!r})"

    def joined(self, texts: list[str]) -> str:
        """Several of them along a new axis in front."""
        together = ", ".join(texts)
        return f"op.array([{together}])" if self._number else f"op.stack(({together},), axis=0)"

    def or_nan(self, text: str, last: str) -> str:
        """NaN where one is in the line: it stands last."""
        if self._cast:
            return text
        end = self.at(last)
        return f"op.where({end} == {end}, {text}, {end})"


def _of_several(c: TileContext, e: ast.Call, name: str, bound: Bound) -> Term | None:
    """``axis=(0, 2)``: what is written of one axis that holds the elements of these; None of one
    axis, and of all."""
    given = bound.get("axis")
    if not isinstance(given, ast.TupleExpr):
        return None
    x = value_of_operand(c, Operand(bound["x"], c.infer(bound["x"]))).term
    if not isinstance(x, Tile):
        return x if is_silent(x) else None
    rank = len(x.axes)
    axes = axes_argument(c, given, rank, name)
    if axes is None:
        return c.nothing()
    keepdims = flag_argument(c, bound, "keepdims", name)
    shares = "" if name == "op.median" else ", q"
    form, end = in_one_axis(rank, axes)
    text = f"{name}({form}{shares}, axis={end})"
    if len(axes) == rank:
        text = f"{name}(x{shares}, keepdims={keepdims})"
    elif keepdims:
        several = isinstance(bound.get("q"), (ast.TupleExpr, ast.ListExpr))
        items = [":"] * several + ["None" if k in axes else ":" for k in range(rank)]
        text = f"{text}[{', '.join(items)}]"
    return expand(c, e, text, {n: bound[n] for n in ("x", "q") if n in bound})


def _sorted(
    c: TileContext, e: ast.Call, name: str, bound: Bound
) -> tuple[_Line, ast.Expr, Dim] | Term:
    """The lines of a call, the expression that sorts them, and how long they are."""
    keepdims = flag_argument(c, bound, "keepdims", name)
    o = value_of_operand(c, Operand(bound["x"], c.infer(bound["x"])))
    tile = o.term
    if not isinstance(tile, Tile):
        return tile if is_silent(tile) else c.report(
            "T0207", f"`{name}` takes tiles and arrays, not `{text_of(tile)}`", o.e.span
        )  # fmt: skip
    if is_waiting(tile):
        make_float(c, tile)
        return c.nothing()
    if tile.dtype == BOOL:
        return c.report("T0207", f"`{name}` takes numbers, not bools", o.e.span)
    given, rank = bound.get("axis"), len(tile.axes)
    whole = given is None or isinstance(given, ast.NoneLit)
    axis = 0 if whole else axis_argument(c, given, rank, name)
    if axis is None or not rank:
        return c.nothing()
    text = "op.sort(op.ravel(x), axis=0)" if whole and rank > 1 else f"op.sort(x, axis={axis})"
    length: Dim | None = tile.axes[axis].extent
    if whole:
        length = 1
        for a in tile.axes:
            length = None if a.extent is None or length is None else DimOp("*", length, a.extent)
        length = None if length is None else normal(length)
    if length is None:
        return c.nothing()
    if c.kernel.facts.value(length) == 0:
        return c.report("T0311", f"`{name}` of no elements", e.span)
    return (
        _Line(tile, axis, whole, keepdims, mean_for(c, tile.dtype)),
        _made(c, e, text, bound["x"]),
        length,
    )


def _made(c: TileContext, e: ast.Call, text: str, x: ast.Expr) -> ast.Expr:
    """The sorting call, one tree in every walk."""
    found = c.kernel.expanded.get(x_key := e.function)
    if found is None or found[0] != text:
        made = substituted(text, {"x": x}, e.span, lambda _, given: given)
        found = c.kernel.expanded[x_key] = text, made
    return found[1]


def median(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.median(x, axis=None, keepdims=False)``: of an even number the mean of two."""
    several = _of_several(c, e, "op.median", bound)
    if several is not None:
        return several
    found = _sorted(c, e, "op.median", bound)
    if not isinstance(found, tuple):
        return found
    line, made, length = found
    count = c.kernel.facts.value(length)
    if count is None and all(n in c.kernel.origins for n in symbols_of(length)):
        ask(c, bound["x"], length, "`op.median`")
        return c.nothing()
    if count is None:
        n = f"x.shape[{line.axis}]"
        a, b = line.at(f"({n} - 1) // 2"), line.at(f"{n} // 2")
        text = line.or_nan(f"0.5 * ({a} + {b})", f"{n} - 1")
        return expand(c, e, text, {"s": made, "x": bound["x"]})
    a, b = line.at(str((count - 1) // 2)), line.at(str(count // 2))
    middle = a if count % 2 else f"0.5 * ({a} + {b})"
    return expand(c, e, line.or_nan(middle, str(count - 1)), {"s": made})


def _quantile(scale: float) -> Callable[[TileContext, ast.Call, Bound], Term]:
    name = "op.quantile" if scale == 1.0 else "op.percentile"

    def quantile(c: TileContext, e: ast.Call, bound: Bound) -> Term:
        """``op.quantile(x, q, axis=None, keepdims=False)``; of several ``q`` a new axis in
        front."""
        if (of := _of_several(c, e, name, bound)) is not None:
            return of
        q = bound["q"]
        several = isinstance(q, (ast.TupleExpr, ast.ListExpr))
        shares = [_share(c, name, item, scale) for item in (q.items if several else (q,))]
        known = [x for x in shares if x is not None]
        if len(known) < len(shares) or not known:
            c.infer(bound["x"])
            return c.nothing()
        found = _sorted(c, e, name, bound)
        if not isinstance(found, tuple):
            return found
        line, made, length = found
        count = c.kernel.facts.value(length)
        if count is None:
            ask(c, bound["x"], length, f"`{name}`")
            return c.nothing()
        last = count - 1
        texts = [line.or_nan(line.between(min(x * last, float(last))), str(last)) for x in known]
        return expand(c, e, line.joined(texts) if several else texts[0], {"s": made})

    return quantile


def _share(c: TileContext, name: str, e: ast.Expr, scale: float) -> float | None:
    """``q``, from 0 to 1; None where it is wrong (reported)."""
    term, value = c.infer(e), c.try_value(e)
    settle(c, e, term, F64)
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else -1.0
    if 0 <= number <= scale:
        return number / scale
    if not is_silent(term):
        c.report("T0311", f"`q` of `{name}` is a number from 0 to {scale:g} that is known at"
                 " compile time", e.span,
                 helps=told(of_the_call(c, None, e, "float")))  # fmt: skip
    return None


TYPES: dict[str, Callable[[TileContext, ast.Call, Bound], Term]] = {
    "op.median": median, "op.quantile": _quantile(1.0), "op.percentile": _quantile(100.0),
}  # fmt: skip
