"""Types of expressions in tile kernels.

Owns which construct is one on tiles; what has only numbers is typed as in lanes. Must not know
statements.
"""

from __future__ import annotations

from functools import partial

from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.evaluate.foreign_names import helps_for_member
from tessera_lang.record import replace
from tessera_lang.sema import expressions as lanes
from tessera_lang.sema.context import text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Open, Term, Unknown
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.name_values import DTYPE, MODULE, named_symbol
from tessera_lang.sema.operators import Operand, operate, silent
from tessera_lang.sema.side_tables import Builtin, Local
from tessera_lang.sema.tile import true_division
from tessera_lang.sema.tile.binary_operators import operate_tiles
from tessera_lang.sema.tile.calls import call
from tessera_lang.sema.tile.context import TileContext, variable_type
from tessera_lang.sema.tile.expand_builtins import argument_of, expand
from tessera_lang.sema.tile.fits_narrow_index import counts, narrows
from tessera_lang.sema.tile.operators import (
    Mixed,
    compare_tiles,
    is_tiled,
    is_waiting,
    mix,
    result_of,
    value_of_operand,
)
from tessera_lang.sema.tile.products import product
from tessera_lang.sema.tile.subscripts import subscript
from tessera_lang.sema.tile.symbolic import dim_of, shape_dims, told_where
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, INDEX
from tessera_lang.types.type import (
    ERROR,
    FunctionType,
    Scalar,
    Tensor,
    Tile,
    TupleType,
    Weak,
)


def infer(c: TileContext, e: ast.Expr) -> Term:
    """The type of an expression; once for each statement that holds it."""
    place, c.place = c.place, False
    found = c.terms.get(e)
    if found is not None:
        return found
    return c.note(e, _binary(c, e, place) if isinstance(e, ast.Binary) else _infer(c, e))


def attach(c: TileContext) -> None:
    c.infer = partial(infer, c)
    c.worth, c.counts, c.fits = dim_of, counts, narrows


def _infer(c: TileContext, e: ast.Expr) -> Term:
    match e:
        case ast.Name():
            return _name(c, e)
        case ast.Unary():
            return _unary(c, e)
        case ast.Compare():
            return _compare(c, e)
        case ast.BoolOp():
            return _bool_op(c, e)
        case ast.Conditional():
            return _conditional(c, e)
        case ast.Subscript():
            return _subscript(c, e)
        case ast.Attribute():
            return _attribute(c, e)
        case ast.Call():
            return call(c, e)
        case ast.FString() | ast.ListExpr() | ast.DictExpr() | ast.Comprehension() | ast.Lambda():
            return _refused(c, e)
        case _:
            return lanes.infer_once(c, e)


_REFUSED: dict[type, tuple[str, str]] = {
    ast.FString: ("an f-string", "kernels have no text"),
    ast.ListExpr: ("a list", "use a tuple, or a tile: `op.zeros(shape, dtype)`"),
    ast.DictExpr: ("a dict", "use an array"),
    ast.Comprehension: ("a list comprehension", "write a loop"),
    ast.Lambda: ("a lambda", "write a plain function and call it"),
}


def _refused(c: TileContext, e: ast.Expr) -> Term:
    what, instead = _REFUSED[type(e)]
    if isinstance(e, ast.ListExpr) and e.items:
        instead = f"of numbers write `op.array({source_of(e)})`"
    return c.report("T0118", f"{what} cannot stand in a tile kernel", e.span, helps=(instead,))


def _name(c: TileContext, e: ast.Name) -> Term:
    given = argument_of(c, e)
    if given is not None:
        return given
    term = lanes.infer_once(c, e)
    symbol = c.name_symbol(e.id)
    if isinstance(symbol, Local) and isinstance(term, Tile):
        return variable_type(c, c.variables[e.id], term)
    if isinstance(symbol, Builtin) and symbol.name.startswith("op."):
        return FunctionType(symbol.name, "builtin")
    return term


# --- operators -----------------------------------------------------------------------------


def _binary(c: TileContext, e: ast.Binary, place: bool) -> Term:
    """``place``: a bound of a slice, which does not wrap: integers are ``index`` in it."""
    chain: list[ast.Binary] = []
    left: ast.Expr = e
    while isinstance(left, ast.Binary):
        chain.append(left)
        left = left.left
    term = c.infer(left)
    for node in reversed(chain):
        c.place = place
        right = c.infer(node.right)
        if place:
            term, right = _as_index(c, node.left, term), _as_index(c, node.right, right)
        a, b = Operand(node.left, term), Operand(node.right, right)
        if node.operator == "@":
            term = product(c, node.operator_span, a, b)
        elif is_tiled(term) or is_tiled(right):
            term = operate_tiles(c, node.operator, node.operator_span, a, b)
        elif node.operator == "/" and not place and true_division.are_integers([a, b]):
            term = true_division.of_numbers(c, node, [a, b])
        else:
            term = operate(c, node.operator, node.operator_span, a, b)
            lanes.mark_known(c, node, term, node.left, node.right)
        c.note(node, term)
    return term


def _as_index(c: TileContext, e: ast.Expr, term: Term) -> Term:
    if not isinstance(term, Scalar) or not term.dtype.is_integer or term.dtype == INDEX:
        return term
    c.coerce(e, INDEX)
    return Scalar(INDEX)


def _unary(c: TileContext, e: ast.Unary) -> Term:
    term = c.infer(e.operand)
    if not is_tiled(term):
        return lanes.infer_once(c, e)
    o = value_of_operand(c, Operand(e.operand, term))
    tile = o.term
    assert isinstance(tile, Tile)
    if e.operator == "not":
        return c.report(
            "T0205", "`not` takes one bool, not a tile", e.span,
            helps=("write `~` for each element",),
        )  # fmt: skip
    if is_waiting(tile):
        return tile
    if (tile.dtype == BOOL) != (e.operator == "~") and not (
        e.operator == "~" and tile.dtype.is_integer
    ):
        return c.report(
            "T0206", f"`{e.operator}` does not go with `{tile.dtype}`", e.span,
            f"this is `{tile}`",
        )  # fmt: skip
    return tile


def _compare(c: TileContext, e: ast.Compare) -> Term:
    terms = [c.infer(x) for x in (e.first, *e.rest)]
    second = e.rest[0]
    if c.final and any(is_silent(t) for t in terms):
        return ERROR  # said where it comes from; a bool has no axes to index
    waits = [t for t in terms if isinstance(t, Unknown)]
    if waits:  # it may be a tile, and then so is what is compared
        return Unknown(tuple(cell for t in waits for cell in t.cells))
    if not any(is_tiled(t) for t in terms):
        return lanes.infer_once(c, e)
    if len(e.rest) > 1:
        return c.report(
            "T0205", "a chain of comparisons takes single values, not tiles", e.span,
            helps=("write `(a < b) & (b < c)`",),
        )  # fmt: skip
    a, b = Operand(e.first, terms[0]), Operand(second, terms[1])
    return compare_tiles(c, e.operators[0], e.span, a, b)


def _bool_op(c: TileContext, e: ast.BoolOp) -> Term:
    terms = [c.infer(v) for v in e.values]
    if not any(is_tiled(t) for t in terms):
        return lanes.infer_once(c, e)
    sign = "&" if e.operator == "and" else "|"
    return c.report(
        "T0205", f"`{e.operator}` takes single bools, not tiles", e.span,
        helps=(f"write `(a) {sign} (b)` for each element",),
    )  # fmt: skip


def require_bool(c: TileContext, e: ast.Expr, term: Term) -> None:
    """A condition decides for the whole kernel: one bool."""
    if is_tiled(term):
        c.report(
            "T0205", "a condition is one `bool`, not a tile", e.span, f"this is `{text_of(term)}`",
            helps=("choose for each element with `op.where(condition, a, b)`",
                   "or ask for all of them: `op.all(...)`, `op.any(...)`"),
        )  # fmt: skip
        return
    lanes.require_bool(c, e, term)


def _conditional(c: TileContext, e: ast.Conditional) -> Term:
    require_bool(c, e.test, c.infer(e.test))
    test = c.try_value(e.test)
    if test is not None:
        taken = e.then if test else e.orelse
        term = c.infer(taken)
        lanes.mark_known(c, e, term, taken)
        return term
    a, b = (Operand(x, _side(c, e, x)) for x in (e.then, e.orelse))
    if is_silent(a.term) or is_silent(b.term):
        return silent(a, b)
    if not is_tiled(a.term) and not is_tiled(b.term):
        return lanes.infer_once(c, e)
    found = mix(c, e.span, [a, b], "`if ... else`")
    return result_of(c, found) if isinstance(found, Mixed) else found


def _side(c: TileContext, e: ast.Conditional, side: ast.Expr) -> Term:
    """What one side is. A number is computed only where it is chosen: there the condition says
    what is at least 0."""
    if not _is_number(c, side):
        return c.infer(side)
    around = c.told
    c.told = (*around, *told_where(c, e.test, side is e.then))
    term = c.infer(side)
    c.told = around
    return term


_TO_NUMBERS = tuple(f"op.{n}" for n in ("sum", "prod", "mean", "var", "std", "max", "min", "any",
                                        "all", "argmax", "argmin", "count_nonzero"))  # fmt: skip


def _is_number(c: TileContext, e: ast.Expr) -> bool:
    """Whether an expression is a number by its text: of literals and reductions of all elements."""
    match e:
        case ast.IntLit() | ast.FloatLit() | ast.BoolLit():
            return True
        case ast.Unary(operand=inner):
            return _is_number(c, inner)
        case ast.Binary(left=left, right=right):
            return e.operator != "@" and _is_number(c, left) and _is_number(c, right)
        case ast.Name():
            return isinstance(c.infer(e), Scalar | Weak | Open)
        case ast.Call(arguments=(_,), keywords=()):
            symbol = named_symbol(c, e.function)
            return isinstance(symbol, Builtin) and symbol.name in _TO_NUMBERS
        case _:
            return False


# --- subscripts and attributes -------------------------------------------------------------


def _subscript(c: TileContext, e: ast.Subscript) -> Term:
    base = c.infer(e.value)
    if isinstance(base, (Tensor, Tile)):
        found = subscript(c, e, base, target=False)
        waits = isinstance(base, Tile) and is_waiting(base) and isinstance(found, Scalar)
        # An element of a tile whose dtype is not known yet waits with it.
        return Tile(found.dtype, ()) if waits and isinstance(found, Scalar) else found
    term = lanes.infer_once(c, e)
    if isinstance(base, TupleType) and isinstance(e.value, ast.Attribute):
        _known_size(c, e, e.value)
    return term


def _known_size(c: TileContext, e: ast.Subscript, shape: ast.Attribute) -> None:
    """``A.shape[1]`` is a constant where the kernel is compiled for it."""
    value = c.try_value(e.items[0]) if len(e.items) == 1 else None
    dims = shape_dims(c.infer(shape.value))
    if shape.name != "shape" or dims is None or not isinstance(value, int):
        return
    if -len(dims) <= value < len(dims):
        dim = dims[value]
        known = None if dim is None or c.is_open(dim) else c.kernel.facts.value(dim)
        if known is not None:
            c.set_value(e, known)


def _attribute(c: TileContext, e: ast.Attribute) -> Term:
    base = c.infer(e.value)
    if base == MODULE or not isinstance(base, (Tile, Tensor)):
        if isinstance(base, (Scalar, Weak)) and e.name in ("T", "mT", "shape"):
            return c.report("T0213", f"`{text_of(base)}` has no `{e.name}`", e.name_span)
        return lanes.infer_once(c, e)
    rank = len(base.shape) if isinstance(base, Tensor) else len(base.axes)
    match e.name:
        case "shape":
            return TupleType((Scalar(INDEX),) * rank)
        case "dtype":
            if isinstance(base, Tile) and is_waiting(base):
                return Unknown()
            c.set_value(e, base.dtype)
            return DTYPE
        case "ndim":
            c.set_value(e, rank)
            return Weak("int")
        case "size" if rank:
            sizes = " * ".join(f"x{i}.shape[{i}]" for i in range(rank))
            return expand(c, e, sizes, {f"x{i}": e.value for i in range(rank)})
        case "T" | "mT":
            return _transposed(c, e, base, rank)
        case _:
            pass
    close = nearest(e.name, ("shape", "dtype", "ndim", "size", "to", "T", "mT"))
    return c.report(
        "T0213", f"`{text_of(base)}` has no attribute `{e.name}`", e.name_span,
        helps=helps_for_member(e.name, close),
    )  # fmt: skip


def _transposed(c: TileContext, e: ast.Attribute, base: Tensor | Tile, rank: int) -> Term:
    if rank < 2 or (e.name == "T" and rank != 2):
        helps = ("`.mT` swaps the last two axes of more",) if rank > 2 else (
            "write `v[:, None]` for a column",)  # fmt: skip
        return c.report(
            "T0604", f"`.{e.name}` is for two axes{' or more' if e.name == 'mT' else ''}",
            e.span, f"this has {rank}", helps=helps,
        )  # fmt: skip
    if isinstance(base, Tensor):
        shape = (*base.shape[:-2], base.shape[-1], base.shape[-2])
        return replace(base, shape=shape)
    axes = (*base.axes[:-2], base.axes[-1], base.axes[-2])
    return replace(base, axes=axes, buffer=False)
