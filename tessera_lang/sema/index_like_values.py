"""Counts in lanes: ids, sizes, what loops count between them, places, and what is computed of them.

Owns what is plain from an expression and from what its variables take. They are so small that
rounding them changes no more than the operation of floats that they meet. Must not know where a
value goes.
"""

from __future__ import annotations

from tessera_lang.sema import builtins
from tessera_lang.sema.bound_names import statements, targets
from tessera_lang.sema.context import Context
from tessera_lang.sema.fits_narrow_index import fits_by_range
from tessera_lang.sema.name_values import named_symbol
from tessera_lang.sema.side_tables import Builtin, FunctionSymbol, Local
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, F32, F64, I32, INDEX, DType
from tessera_lang.types.type import Buffer, Scalar, Tensor

MOST_DEPTH = 24
_COUNTING = frozenset(("+", "-", "*", "//", "%"))
_IDS = frozenset((*builtins.PLAIN_IDS, *builtins.AXIS_IDS, "op.argmax", "op.argmin", "len"))
_OF_COUNTS = frozenset(("min", "max", "abs", "ceil_div", "index", "warp_sum", "warp_max",
                        "warp_min", "warp_shuffle"))  # fmt: skip


def is_lane_count(c: Context, e: ast.Expr) -> bool:
    """Whether an integer expression is made of counts and literals, and of no data."""
    return _is(c, e, frozenset(), MOST_DEPTH)


def lane_count_fits(c: Context, e: ast.Expr, dtype: DType) -> bool:
    """Whether a count goes where a number of ``dtype`` is wanted. Floats hold it; of integers of
    32 bits and more the run looks whether it fits, into narrower ones goes what always does."""
    if dtype in (F32, F64):
        return is_lane_count(c, e)
    if fits_by_range(c, e, dtype):
        return True
    if not dtype.is_integer or dtype.bits < 32 or not is_lane_count(c, e):
        return False
    if c.final:
        c.typed.narrowed[e] = None
    return True


def _is(c: Context, e: ast.Expr, seen: frozenset[str], depth: int) -> bool:
    """``seen``: variables that are looked at, which do not decide their own values."""
    if depth == 0:
        return False
    value = c.try_value(e)
    if value is not None:
        return isinstance(value, int) and not isinstance(value, bool)

    def all_are(*parts: ast.Expr) -> bool:
        return all(_is(c, x, seen, depth - 1) for x in parts)

    match e:
        case ast.IntLit():
            return True
        case ast.Name():
            return _name(c, e.id, seen, depth)
        case ast.Unary(operator="-" | "+"):
            return all_are(e.operand)
        case ast.Binary():
            return e.operator in _COUNTING and all_are(e.left, e.right)
        case ast.Conditional():
            return all_are(e.then, e.orelse)
        case ast.Subscript(value=ast.Attribute(name="shape")):
            return True
        case ast.Attribute(name="size" | "ndim"):
            return True
        case ast.Call():
            return _call(c, e, seen, depth)
        case _:
            return False


def _call(c: Context, e: ast.Call, seen: frozenset[str], depth: int) -> bool:
    f = e.function
    if isinstance(f, ast.Attribute) and f.name == "to" and e.arguments:
        dtype = c.try_value(e.arguments[0])
        return _cast(c, f.value, getattr(dtype, "name", ""), seen, depth)
    symbol = named_symbol(c, f)
    if isinstance(symbol, FunctionSymbol):
        whole = c.infer(e) == Scalar(INDEX)
        return whole and all(_is(c, a, seen, depth - 1) for a in e.arguments)
    if not isinstance(symbol, Builtin):
        return False
    if symbol.name in _IDS:
        return True
    if symbol.name == "op.sum" and e.arguments:
        return _is_of_bools(c, e.arguments[0])
    if symbol.name in ("i32", "index") and len(e.arguments) == 1:
        return _cast(c, e.arguments[0], symbol.name, seen, depth)
    return symbol.name in _OF_COUNTS and all(_is(c, a, seen, depth - 1) for a in e.arguments)


def _is_of_bools(c: Context, x: ast.Expr) -> bool:
    summed = c.infer(x.value if isinstance(x, ast.Subscript) else x)
    return isinstance(summed, (Tensor, Buffer)) and summed.dtype == BOOL


def _cast(c: Context, x: ast.Expr, dtype: str, seen: frozenset[str], depth: int) -> bool:
    """A count in another dtype; or a float in i32, which floats hold again."""
    if dtype not in ("i32", "index"):
        return False
    term = c.infer(x)
    if dtype == "i32" and isinstance(term, Scalar) and term.dtype.is_float:
        return True
    return _is(c, x, seen, depth - 1)


def _name(c: Context, name: str, seen: frozenset[str], depth: int) -> bool:
    """Whether all that a variable takes are counts; a size is one, and a parameter of ``index``."""
    variable = c.variables.get(name)
    if variable is None or name in seen:
        return variable is not None
    local: Local = variable.local
    if local.kind == "size":
        return True
    if local.kind == "parameter" and variable.type != Scalar(INDEX):
        return False
    if variable.type not in (None, Scalar(INDEX), Scalar(I32)):
        return False
    if c.taken is None:
        c.taken = _values(c.declaration)
    inner = seen | {name}
    return all(v is not None and _is(c, v, inner, depth - 1) for v in c.taken.get(name, ()))


def _values(declaration: ast.FunctionDef) -> dict[str, list[ast.Expr | None]]:
    """What each variable takes; None where that is no expression of its own."""
    found: dict[str, list[ast.Expr | None]] = {}
    for s in statements(declaration.body):
        names = [t for t in targets(s) if isinstance(t, ast.Name)]
        for t in names:
            found.setdefault(t.id, []).extend(_taken(s, t))
    return found


def _taken(s: ast.Stmt, target: ast.Name) -> list[ast.Expr | None]:
    match s:
        case ast.Assign() if s.target is target:
            return [s.value]
        case ast.Assign(target=ast.TupleExpr(items=names), value=ast.TupleExpr(items=values)):
            pairs = zip(names, values, strict=False)
            return [v for t, v in pairs if t is target] or [None]
        case ast.AnnotatedAssign() if s.value is not None:
            return [s.value]
        case ast.AugmentedAssign() if s.operator in _COUNTING:
            return [s.value]
        case ast.For(iterable=ast.Call(function=ast.Name(id="range"), arguments=bounds)):
            return list(bounds)
        case _:
            return [None]
