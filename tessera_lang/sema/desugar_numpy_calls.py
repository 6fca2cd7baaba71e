"""Calls as NumPy has them in the language's own words: other names, and keyword arguments.

Owns the names and keywords that mean what the language says otherwise. Must not know types, nor
which arguments a function takes.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.evaluate.expansion_texts import OF_ELEMENTS
from tessera_lang.evaluate.foreign_names import OTHER_SPELLINGS, SAME
from tessera_lang.record import replace
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.syntax.substitute import as_array, substituted

_OF_MATH = frozenset(("arctan2", *OTHER_SPELLINGS))
_KEYWORDS: dict[str, dict[str, str]] = {
    "clip": {"a_min": "min", "a_max": "max"}, "full": {"fill_value": "value"},
    "full_like": {"fill_value": "value"}, "eye": {"N": "n", "M": "m"},
}  # fmt: skip
"""Parameters by NumPy's names."""
_NO_CHANGE: dict[str, tuple[str, ...]] = {
    "kind": ("stable", "mergesort", "quicksort", "heapsort"), "order": ("C",),
    "method": ("linear",), "interpolation": ("linear",),
}  # fmt: skip
"""Words that ask for what is done anyway: every sort is stable, as each `kind` allows."""
_CHOOSING = {
    "kind": ("sort", "argsort"), "order": ("zeros", "ones", "empty", "full", "ravel", "reshape"),
    "method": ("quantile", "percentile"), "interpolation": ("quantile", "percentile"),
}  # fmt: skip
OF_VECTORS = ("isin", "searchsorted", "digitize", "interp", "average", "trapezoid", "cross")
"""Functions of vectors, which may be written as lists."""
_CONVERTED = ("sum", "prod", "mean", "cumsum", "cumprod", "var", "std")
_NEUTRAL = {"sum": "op.where(where, x, 0)", "prod": "op.where(where, x, 1)", "any": "x & where",
            "all": "x | ~where", "max": "op.where(where, x, initial)",
            "min": "op.where(where, x, initial)"}  # fmt: skip
_BEGUN = {"sum": "call + initial", "prod": "call * initial", "max": "op.maximum(call, initial)",
          "min": "op.minimum(call, initial)"}  # fmt: skip

_STORED = OF_ELEMENTS | {"cumsum", "cumprod"}
"""What may be stored by ``out=``: results that have the shape of what they are made of."""

BY_PLACE: dict[str, tuple[str, ...]] = {
    "norm": ("x", "ord", "axis", "keepdims"),
    "nan_to_num": ("x", "copy", "nan", "posinf", "neginf"),
    "searchsorted": ("a", "v", "side"), "digitize": ("x", "bins", "right"),
}  # fmt: skip
"""Parameters as NumPy orders them, of functions that have others in these places: what stands
there is given by name."""

KEYWORDS_OF_NUMPY = frozenset((
    "dtype", "where", "out", "initial", "endpoint", *(n for new in _KEYWORDS.values() for n in new),
    *_NO_CHANGE,
))  # fmt: skip
"""Words in front of `=` that something is said otherwise for."""


def named_again(e: ast.Attribute) -> ast.Attribute:
    """``op.arctan2`` as ``op.atan2``, and ``math.arctan2`` likewise."""
    if not isinstance(e.value, ast.Name) or e.name not in SAME:
        return e
    module = e.value.id
    if module == "op" or module == "math" and e.name in _OF_MATH:
        return replace(e, name=SAME[e.name])
    return e


def in_own_words(e: ast.Call) -> ast.Expr:
    """A call of ``op`` without keywords that only NumPy has; itself where there are none."""
    f = e.function
    if not isinstance(f, ast.Attribute):
        return e
    new = named_again(f)
    if new is not f:
        e, f = replace(e, function=new), new
    if not isinstance(f.value, ast.Name) or f.value.id != "op":
        return e
    if f.name == "round":
        return _rounded(e)
    if f.name in OF_VECTORS:
        e = _with_arrays(e)
    e = _by_name(e, f.name)
    if not e.keywords:
        return e
    e = _renamed(e, f.name)
    if f.name in ("searchsorted", "digitize"):
        return _on_a_side(e, f)
    if f.name == "linspace":
        return _without_end(e)
    return _reduced(e, f.name)


def _by_name(e: ast.Call, name: str) -> ast.Call:
    """``op.norm(x, 1)`` as ``op.norm(x, ord=1)``: an argument means what it means in NumPy."""
    order = BY_PLACE.get(name, ())
    kept = 1 if name in ("norm", "nan_to_num") else 2
    more = e.arguments[kept:]
    if order and len(e.arguments) <= len(order):
        named = (ast.Keyword(a.span, n, a.span, a)
                 for n, a in zip(order[kept:], more, strict=False))  # fmt: skip
        found = tuple(k for k in (*named, *e.keywords) if not _is_default(name, k))
        keywords = tuple(_order_of_norm(k) for k in found) if name == "norm" else found
        if more or keywords != e.keywords:
            return replace(e, arguments=e.arguments[:kept], keywords=keywords)
    return e


def _is_default(name: str, k: ast.Keyword) -> bool:
    """``copy=True`` of ``op.nan_to_num``, which is done anyway."""
    return name == "nan_to_num" and k.name == "copy" and (
        isinstance(k.value, ast.BoolLit) and k.value.value
    )  # fmt: skip


def _order_of_norm(k: ast.Keyword) -> ast.Keyword:
    """The infinities of ``ord=`` as words, which a kernel knows when it is compiled."""
    sign, e = "", k.value
    if isinstance(e, ast.Unary) and e.operator == "-":
        sign, e = "-", e.operand
    of_module = isinstance(e, ast.Attribute) and isinstance(e.value, ast.Name) and (
        e.value.id in ("op", "math")
    )  # fmt: skip
    name = e.id if isinstance(e, ast.Name) else e.name if isinstance(e, ast.Attribute) else ""
    if k.name != "ord" or name != "inf" or not (of_module or isinstance(e, ast.Name)):
        return k
    return replace(k, value=ast.StringLit(k.value.span, f"{sign}inf"))


def stored_result(s: ast.ExprStmt, e: ast.Call) -> ast.Stmt:
    """``op.add(a, b, out=c)`` as ``c[:] = op.add(a, b)``, where nothing else takes the result. Of
    functions of each element alone, whose results stretch to ``c`` in NumPy too."""
    f = e.function
    out = next((k.value for k in e.keywords if k.name == "out"), None)
    if not (isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and f.value.id == "op"):
        return s
    name = named_again(f).name
    if name not in _STORED or not isinstance(out, (ast.Name, ast.Subscript)):
        return s
    target = out
    if isinstance(out, ast.Name):
        whole = ast.SliceExpr(out.span, None, None, None)
        target = ast.Subscript(out.span, out, (whole,))
    call = replace(e, keywords=tuple(k for k in e.keywords if k.name != "out"))
    return ast.Assign(s.span, target, call)


def _with_arrays(e: ast.Call) -> ast.Call:
    """Lists that are written where vectors stand: ``op.isin(x, [1, 3])``."""

    def vector(a: ast.Expr) -> ast.Expr:
        return as_array(a) if isinstance(a, ast.ListExpr) else a

    given = tuple(map(vector, e.arguments))
    named = tuple(replace(k, value=vector(k.value)) for k in e.keywords)
    lists = [a for a in (*e.arguments, *(k.value for k in e.keywords))
             if isinstance(a, ast.ListExpr)]  # fmt: skip
    return replace(e, arguments=given, keywords=named) if lists else e


def _on_a_side(e: ast.Call, f: ast.Attribute) -> ast.Expr:
    """``searchsorted(a, v, side="right")`` counts as ``digitize(v, a)`` does, and the other way."""
    given = {k.name: k.value for k in e.keywords}
    side, right = given.get("side"), given.get("right")
    turned = isinstance(right, ast.BoolLit) and right.value
    if isinstance(side, ast.StringLit) and side.value in ("left", "right"):
        turned = side.value == "right"
    elif not isinstance(right, ast.BoolLit):
        return e
    kept = tuple(k for k in e.keywords if k.name not in ("side", "right"))
    if not turned:
        return replace(e, keywords=kept)
    names = ("a", "v") if f.name == "searchsorted" else ("x", "bins")
    left = {k.name: k.value for k in kept}
    values = (*e.arguments, *(left.pop(n) for n in names[len(e.arguments) :] if n in left))
    if left or len(values) != 2:
        return e
    other = "digitize" if f.name == "searchsorted" else "searchsorted"
    return replace(e, function=replace(f, name=other), arguments=values[::-1], keywords=())


def _renamed(e: ast.Call, name: str) -> ast.Call:
    new = _KEYWORDS.get(name, {})
    kept = tuple(
        replace(k, name=new.get(k.name, k.name)) for k in e.keywords if not _says_nothing(name, k)
    )
    return replace(e, keywords=kept)


def _says_nothing(name: str, k: ast.Keyword) -> bool:
    words = _NO_CHANGE.get(k.name, ()) if name in _CHOOSING.get(k.name, ()) else ()
    return isinstance(k.value, ast.StringLit) and k.value.value in words


def _reduced(e: ast.Call, name: str) -> ast.Expr:
    """``dtype=``, ``where=`` and ``initial=`` of reductions, as operations in front and behind."""
    given = {k.name: k.value for k in e.keywords}
    if not e.arguments and "x" in given:
        kept = tuple(k for k in e.keywords if k.name != "x")
        e = replace(e, arguments=(given.pop("x"),), keywords=kept)
    if not e.arguments:
        return e
    x, done = e.arguments[0], set[str]()
    if "dtype" in given and name in _CONVERTED:
        x = _text("op.astype(x, dtype)", {"x": x, "dtype": given["dtype"]}, e.span)
        done.add("dtype")
    if "where" in given and name in _NEUTRAL and ("initial" in given or name not in ("max", "min")):
        x = _text(_NEUTRAL[name], {"x": x, **given}, e.span)
        done.add("where")
    begun = "initial" in given and name in _BEGUN
    if begun:
        done.add("initial")
    if not done:
        return e
    kept = tuple(k for k in e.keywords if k.name not in done)
    call = replace(e, arguments=(x, *e.arguments[1:]), keywords=kept)
    if not begun:
        return call
    return _text(_BEGUN[name], {"call": call, "initial": given["initial"]}, e.span)


def with_decimals(node: object) -> object:
    """``round(x[0], 2)`` of a tile kernel, as ``op.round``."""
    if isinstance(node, ast.Call) and isinstance(node.function, ast.Name):
        return _rounded(node) if node.function.id == "round" else node
    return node


def _rounded(e: ast.Call) -> ast.Expr:
    """``op.round(x, 2)``: hundredths, and ``op.round(x, -1)``: tens, as NumPy computes them."""
    given = {k.name: k.value for k in e.keywords}
    last = e.arguments[1] if len(e.arguments) == 2 else given.get("decimals")
    down = isinstance(last, ast.Unary) and last.operator == "-"
    digits = last.operand if isinstance(last, ast.Unary) and down else last
    if not e.arguments or not isinstance(digits, ast.IntLit) or digits.value > 15:
        return e
    function, x = e.function, e.arguments[0]
    if digits.value == 0:
        return ast.Call(e.span, function, (x,))
    power = [ast.FloatLit(digits.span, 10.0**digits.value) for _ in range(2)]
    there, back = ("/", "*") if down else ("*", "/")
    scaled = ast.Binary(e.span, there, e.span, x, power[0])
    return ast.Binary(e.span, back, e.span, ast.Call(e.span, function, (scaled,)), power[1])


def _without_end(e: ast.Call) -> ast.Expr:
    """``op.linspace(a, b, n, endpoint=False)``: all but the last of one more."""
    given = {k.name: k.value for k in e.keywords}
    last = given.get("endpoint")
    if not isinstance(last, ast.BoolLit):
        return e
    kept = tuple(k for k in e.keywords if k.name != "endpoint")
    if last.value:
        return replace(e, keywords=kept)
    place = next((i for i, k in enumerate(kept) if k.name == "num"), -1)
    one = ast.IntLit(e.span, 1)
    if place >= 0:
        more = replace(kept[place], value=ast.Binary(e.span, "+", e.span, kept[place].value, one))
        call = replace(e, keywords=(*kept[:place], more, *kept[place + 1 :]))
    elif len(e.arguments) > 2:
        start, stop, count, *rest = e.arguments
        count = ast.Binary(e.span, "+", e.span, count, one)
        call = replace(e, arguments=(start, stop, count, *rest), keywords=kept)
    else:
        return e
    end = ast.Unary(e.span, "-", ast.IntLit(e.span, 1))
    return ast.Subscript(e.span, call, (ast.SliceExpr(e.span, None, end, None),))


def _text(text: str, given: Mapping[str, ast.Expr], span: Span) -> ast.Expr:
    return substituted(text, given, span, lambda _, argument: argument)
