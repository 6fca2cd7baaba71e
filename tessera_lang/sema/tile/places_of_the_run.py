"""Places by which a tile kernel takes or stores elements, and that only the run knows: those that
the text may bring below 0.

Owns when that is said. Must not know what is plain from the text (``places_below_0.py``).
"""

from __future__ import annotations

from tessera_lang.sema.bound_names import expressions, statement_expressions, statements, targets
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.places_below_0 import (
    Definitions,
    chosen,
    definitions,
    is_whole,
    least_of,
    parts_of,
)
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.fits_narrow_index import bounds_of
from tessera_lang.syntax import ast
from tessera_lang.types.type import Tensor, Tile


def check_places(c: TileContext) -> None:
    """A warning for each ``x[q - 1]`` of an array ``q``: a place below 0 does not count from the
    end in a kernel, and the run says nothing of it. None where the kernel compares what the places
    are made of, since then it may choose, and none where they are bounded or brought into range."""
    body = c.declaration.body
    values = definitions(c.declaration)
    stored = {t for s in statements(body) for t in targets(s)}
    roots = [e for s in statements(body) for e in statement_expressions(s)]
    compared = {
        n for root in roots for e in expressions(root) if isinstance(e, ast.Compare)
        for n in _names(e, values)
    }  # fmt: skip
    for root in roots:
        for e in expressions(root):
            for array, axis, item in chosen(e):
                own = _names(item, values)
                if _may_be_below_0(c, item, values) and not own & compared:
                    _warn(c, array, axis, item, e in stored)


def _names(e: ast.Expr, values: Definitions) -> set[str]:
    """The names that an expression is made of, and what these stand for."""
    return {part.id for part in parts_of(e, values) if isinstance(part, ast.Name)}


def _may_be_below_0(c: TileContext, item: ast.Expr, values: Definitions) -> bool:
    """Whether places are a difference that nothing shows to be at least 0."""
    least = least_of(item, values)
    e = _resolved(item, values)
    if least is not None or not isinstance(e, ast.Binary) or not _is_places(c, e):
        return False
    added, subtracted = _terms(e)
    if not subtracted:
        return False
    facts = c.kernel.facts
    found = bounds_of(c, e)
    if found is not None and facts.not_negative(facts.simplify(found[0])):
        return False
    counted = bounds_of(c, e, data=False)
    if counted is not None:  # of a part of a tile, `op.arange(n)[1:]`, the bounds are not its own
        return not any(isinstance(t, ast.Subscript) for t in added)
    return any(_is_places(c, t) for t in added)  # `n - 1 - q` counts from the end


def _resolved(e: ast.Expr, values: Definitions) -> ast.Expr:
    seen = set[str]()
    while True:
        if isinstance(e, ast.Name) and e.id not in seen:
            seen.add(e.id)
            value = values.get(e.id)
            if value is None:
                return e
            e = value
        elif isinstance(e, ast.Subscript) and all(map(is_whole, e.items)):
            e = e.value
        else:
            return e


def _terms(e: ast.Expr) -> tuple[list[ast.Expr], list[ast.Expr]]:
    """What a sum adds and what it subtracts."""
    if isinstance(e, ast.Binary) and e.operator in ("+", "-"):
        added, subtracted = _terms(e.left)
        more, less = _terms(e.right)
        return ([*added, *more], [*subtracted, *less]) if e.operator == "+" else (
            [*added, *less], [*subtracted, *more])  # fmt: skip
    if isinstance(e, ast.Unary) and e.operator == "-":
        return [], [e.operand]
    return [e], []


def _is_places(c: TileContext, e: ast.Expr) -> bool:
    term = c.terms.get(e) or c.typed.types.get(e)
    if term is None and isinstance(e, ast.Name) and e.id in c.variables:
        term = c.variables[e.id].type
    axes = term.axes if isinstance(term, Tile) else term.shape if isinstance(term, Tensor) else ()
    return bool(axes) and isinstance(term, (Tile, Tensor)) and (
        term.dtype.kind in ("int", "index"))  # fmt: skip


def _warn(c: TileContext, array: ast.Expr, axis: int, item: ast.Expr, is_stored: bool) -> None:
    text, name = source_of(item), source_of(array)
    text = f"({text})" if isinstance(item, ast.Binary) else text
    name = f"({name})" if isinstance(array, ast.Binary) else name
    effect = "a store there does nothing" if is_stored else "what is read there is 0"
    bounded = f"op.maximum({source_of(item)}, 0)"
    c.report(
        "T0624", f"`{source_of(item)}` may be below 0: {effect}", item.span,
        "in a kernel a computed place below 0 does not count from the end",
        helps=(f"to count from the end write `{text} % {name}.shape[{axis}]`",
               f"where none is below 0, `{bounded}` says so"),
        warning=True,
    )  # fmt: skip
