"""Shapes made of shapes: ``x.shape[:2]`` and ``(2,) + x.shape`` as tuples of sizes.

Owns the tuple that such an argument stands for. Must not know what takes a shape.
"""

from __future__ import annotations

from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.inference_types import Term
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.shapes import agree
from tessera_lang.sema.tree_transforms import copied
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import INDEX
from tessera_lang.types.type import Scalar, Tensor, Tile, TileAxis, TupleType

_SHAPES = ("shape", "start", "length", "repetitions")
"""Parameters that are tuples of sizes."""


def with_tuples(c: TileContext, bound: Bound) -> Bound:
    """Arguments, those that are made of shapes as tuples of sizes."""
    return {n: _tuple(c, e) if n in _SHAPES else e for n, e in bound.items()}


def unpacked(c: TileContext, e: ast.Expr) -> ast.Expr:
    """What is assigned to several names: of ``x.shape[:2]`` its sizes."""
    made = _tuple(c, e)
    if made is not e and isinstance(made, ast.TupleExpr):
        c.note(e, TupleType((Scalar(INDEX),) * len(made.items)))
        if c.final:
            c.typed.expanded[e] = made
    return made


def elements_of(c: TileContext, e: ast.Expr, term: Term, count: int) -> ast.TupleExpr | None:
    """What the names of ``a, b = x`` get of an array or a tile that has a name: its first
    ``count`` parts; None of anything else."""
    axes = term.shape if isinstance(term, Tensor) else term.axes if isinstance(term, Tile) else ()
    if not axes or not isinstance(e, (ast.Name, ast.Subscript)):
        return None
    size = axes[0].extent if isinstance(axes[0], TileAxis) else axes[0]
    if size is None or not agree(c, size, count, e.span):
        return None
    text = f"{count} parts"
    found = c.kernel.expanded.get(e)
    if found is None or found[0] != text:
        parts = tuple(
            ast.Subscript(e.span, copied(e), (ast.IntLit(e.span, i),)) for i in range(count)
        )
        found = c.kernel.expanded[e] = text, ast.TupleExpr(e.span, parts)
    made = found[1]
    assert isinstance(made, ast.TupleExpr)
    if c.final:
        c.typed.expanded[e] = made
    return made


def _tuple(c: TileContext, e: ast.Expr) -> ast.Expr:
    """The tuple that an argument stands for, one tree in every walk; any other as it is."""
    if not isinstance(e, (ast.Binary, ast.Subscript)):
        return e
    items = _items(c, e)
    if items is None:
        return e
    text = f"a shape of {len(items)}"
    found = c.kernel.expanded.get(e)
    if found is None or found[0] != text:
        found = c.kernel.expanded[e] = text, ast.TupleExpr(e.span, tuple(items))
    return found[1]


def _items(c: TileContext, e: ast.Expr) -> list[ast.Expr] | None:
    """The sizes of a tuple that is known to be one."""
    match e:
        case ast.TupleExpr():
            return list(e.items)
        case ast.Binary(operator="+"):
            left, right = _items(c, e.left), _items(c, e.right)
            return None if left is None or right is None else left + right
        case ast.Attribute(name="shape"):
            base = c.infer(e.value)
            if not isinstance(base, (Tensor, Tile)):
                return None
            rank = len(base.shape) if isinstance(base, Tensor) else len(base.axes)
            return [ast.Subscript(e.span, e, (ast.IntLit(e.span, i),)) for i in range(rank)]
        case ast.Subscript(items=(ast.SliceExpr() as part,)):
            items = _items(c, e.value)
            given = [at for at in (part.lower, part.upper, part.step) if at is not None]
            known: dict[ast.Expr | None, int | None] = {at: _number(c, at) for at in given}
            if items is None or None in known.values() or known.get(part.step) == 0:
                return None
            return items[slice(*(known.get(at) for at in (part.lower, part.upper, part.step)))]
        case _:
            return None


def _number(c: TileContext, e: ast.Expr) -> int | None:
    """A bound of a slice that is known at compile time."""
    c.infer(e)
    value = c.try_value(e)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
