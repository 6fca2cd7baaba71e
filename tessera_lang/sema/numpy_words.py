"""What NumPy has beside functions, in the language's own words: methods of its operators
(``op.add.reduce(x)``), dtypes by Python's names, ``op.r_``, ``op.c_``, ``op.mgrid`` and ``x.flat``.

Owns these words. Must not know types, nor which names a program has.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tessera_lang.record import replace
from tessera_lang.sema.tree_transforms import copied, unwritten
from tessera_lang.source import Span
from tessera_lang.syntax import ast

OTHER_WORDS = (
    r"\.\s*(?:reduce|accumulate|outer|flat|r_|c_|mgrid|ogrid)\b|,\s*(?:int|float|bool)\s*[,)]"
    r"|\b(?:to|astype)\s*\(\s*(?:int|float|bool)\s*\)"
)
"""What a text has that one of these words is in."""
_REDUCED = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min",
            "logical_and": "all", "logical_or": "any"}  # fmt: skip
_ACCUMULATED = {"add": "cumsum", "multiply": "cumprod", "maximum": "cummax", "minimum": "cummin"}
_DTYPES = {"int": "i64", "float": "f64", "bool": "bool"}
"""What NumPy takes these for."""
_DTYPE_AT = {
    "zeros": 1, "ones": 1, "empty": 1, "array": 1, "full": 2, "astype": 1, "zeros_like": 1,
    "ones_like": 1, "empty_like": 1, "full_like": 2, "eye": 3, "identity": 1,
}  # fmt: skip


def of_numpy(e: Any, names: Collection[str]) -> ast.Expr | None:
    """An expression in other words; None where it is none of these. ``names``: those that the
    program gives a value."""
    if isinstance(e, ast.Call):
        return _method_of_operator(e) or _with_dtype(e, names)
    if isinstance(e, ast.Attribute) and e.name == "flat" and _is_value(e.value, names):
        return _call(e.span, "ravel", e.value)
    if isinstance(e, ast.Subscript) and isinstance(e.value, ast.Attribute) and _of_op(e.value):
        return _joined(e, e.value.name) or _grid(e, e.value.name)
    return None


def unpacked_quantiles(s: ast.Assign, target: ast.TupleExpr, call: ast.Call) -> ast.Assign:
    """``low, high = op.percentile(x, [5, 95])`` as one call for each name."""
    f = call.function
    if not isinstance(f, ast.Attribute) or f.name not in ("percentile", "quantile"):
        return s
    if not _of_op(f) or len(call.arguments) != 2:
        return s
    x, q = call.arguments
    if not isinstance(q, (ast.ListExpr, ast.TupleExpr)) or len(q.items) != len(target.items):
        return s
    each = tuple(replace(call, function=copied(f), arguments=(copied(x), item)) for item in q.items)
    return replace(s, value=ast.TupleExpr(call.span, each))


def _is_value(e: ast.Expr, names: Collection[str]) -> bool:
    while isinstance(e, ast.Attribute):
        e = e.value
    return e.id in names if isinstance(e, ast.Name) else not isinstance(e, ast.ErrorExpr)


def _of_op(e: ast.Attribute) -> bool:
    return isinstance(e.value, ast.Name) and e.value.id == "op"


def _call(span: Span, name: str, *given: ast.Expr) -> ast.Call:
    op = unwritten(span, "op")
    return ast.Call(span, ast.Attribute(span, op, name, op.span), given)


def _method_of_operator(e: ast.Call) -> ast.Expr | None:
    """Without ``axis=`` along the first, as in NumPy."""
    f = e.function
    if not isinstance(f, ast.Attribute) or not isinstance(f.value, ast.Attribute):
        return None
    of = f.value
    if not _of_op(of):
        return None
    new = {"reduce": _REDUCED, "accumulate": _ACCUMULATED}.get(f.name, {}).get(of.name)
    if new is not None:
        op = _call(e.span, new).function
        given = e.arguments
        if len(given) == 1 and not any(k.name == "axis" for k in e.keywords):
            given = (*given, ast.IntLit(e.span, 0))
        return replace(e, function=op, arguments=given)
    if f.name == "outer" and len(e.arguments) == 2 and not e.keywords:
        return _outer(e, of)
    return None


def _outer(e: ast.Call, of: ast.Attribute) -> ast.Expr:
    """Of vectors: a shape that others do not have refuses them."""
    span, one = e.span, ast.IntLit(e.span, 1)
    a, b = e.arguments
    left, right = (ast.Call(span, unwritten(span, "len"), (copied(x),)) for x in (a, b))
    column = _call(span, "reshape", a, ast.TupleExpr(span, (left, one)))
    row = _call(span, "reshape", b, ast.TupleExpr(span, (replace(one), right)))
    return ast.Call(span, of, (column, row))


def _with_dtype(e: ast.Call, names: Collection[str]) -> ast.Expr | None:
    """``dtype=int`` and ``x.astype(float)``: NumPy's integers and floats have 64 bits."""
    f = e.function
    if not isinstance(f, ast.Attribute):
        return None
    name, of_op = f.name, _of_op(f)
    given, keywords = list(e.arguments), list(e.keywords)
    at = _DTYPE_AT.get(name) if of_op else 0 if name in ("astype", "to") else None
    changed = False
    if at is not None and at < len(given) and (new := _dtype(given[at], names)) is not None:
        given[at], changed = new, True
    for i, k in enumerate(keywords):
        new = _dtype(k.value, names) if k.name == "dtype" else None
        if new is not None:
            keywords[i], changed = replace(k, value=new), True
    return replace(e, arguments=tuple(given), keywords=tuple(keywords)) if changed else None


def _dtype(e: ast.Expr, names: Collection[str]) -> ast.Expr | None:
    if not isinstance(e, ast.Name) or e.id not in _DTYPES or e.id in names:
        return None
    return replace(e, id=_DTYPES[e.id]) if e.id != "bool" else None


def _joined(e: ast.Subscript, name: str) -> ast.Expr | None:
    """``op.r_[x, 1.0]`` and ``op.c_[a, b]``."""
    if name not in ("r_", "c_"):
        return None
    parts = tuple(_counted(i) if isinstance(i, ast.SliceExpr) else _vector(i) for i in e.items)
    if any(p is None for p in parts):
        return None
    function = "hstack" if name == "r_" else "column_stack"
    known = tuple(p for p in parts if p is not None)
    return _call(e.span, function, ast.TupleExpr(e.span, known))


def _vector(e: ast.Expr) -> ast.Expr:
    """A number that is written as a vector of one element."""
    if not isinstance(e, (ast.IntLit, ast.FloatLit)):
        return e
    return _call(e.span, "array", ast.ListExpr(e.span, (e,)))


def _counted(e: ast.SliceExpr) -> ast.Expr | None:
    if e.upper is None:
        return None
    parts = (e.lower or ast.IntLit(e.span, 0), e.upper, *((e.step,) if e.step else ()))
    return _call(e.span, "arange", *parts)


def _grid(e: ast.Subscript, name: str) -> ast.Expr | None:
    """``op.mgrid[:m, :n]`` and ``op.ogrid[:m, :n]``: the places along each of two axes."""
    if name not in ("mgrid", "ogrid") or len(e.items) != 2:
        return None
    counts = [_counted(i) if isinstance(i, ast.SliceExpr) else None for i in e.items]
    if counts[0] is None or counts[1] is None:
        return None
    span = e.span
    whole, new = ast.SliceExpr(span, None, None, None), ast.NoneLit(span)
    rows = ast.Subscript(span, counts[0], (whole, new))
    columns = ast.Subscript(span, counts[1], (copied(new), copied(whole)))
    if name == "ogrid":
        return ast.TupleExpr(span, (rows, columns))
    zero = ast.IntLit(span, 0)
    pairs = ((rows, columns), (columns, rows))
    return ast.TupleExpr(span, tuple(
        ast.Binary(span, "+", span, copied(a), ast.Binary(span, "*", span, copied(b), copied(zero)))
        for a, b in pairs))  # fmt: skip
