"""What a loop of a kernel should count over, where it does not.

Owns the texts and the fix: a name that is a slip is replaced, and the arguments stay. Must not
know types.
"""

from __future__ import annotations

from itertools import pairwise

from tessera_lang.diagnostics import Edit, Fix
from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.sema.expression_text import source_of
from tessera_lang.syntax import ast

_ALSO = {
    "arange": "range", "prange": "range", "xrange": "range", "trange": "range",
    "static_range": "range",
    "ndrange": "op.tile_range",
}  # fmt: skip
"""Loops of other languages, by what stands for them."""


def loop_hint(s: ast.For, *, tiles: bool) -> tuple[tuple[str, ...], tuple[Fix, ...]]:
    """Help and fix for a loop that counts over something else; ``tiles``: in a tile kernel."""
    function = s.iterable.function if isinstance(s.iterable, ast.Call) else None
    if isinstance(function, (ast.Name, ast.Attribute)) and isinstance(s.iterable, ast.Call):
        written = function.id if isinstance(function, ast.Name) else function.name
        meant = _meant(written, s.iterable, tiles=tiles)
        if meant:
            fix = Fix(f"write `{meant}`", (Edit(function.span, meant),), "unsafe")
            return (f"did you mean `{meant}`?",), (fix,)
    return (_counted(s, tiles=tiles),), ()


def is_slip(call: ast.Call) -> bool:
    """Whether a loop of a tile kernel calls what no array comes of, and a range was meant."""
    function = call.function
    written = function.name if isinstance(function, ast.Attribute) else ""
    return written != "arange" and bool(_meant(written, call, tiles=True))


def _meant(written: str, call: ast.Call, *, tiles: bool) -> str:
    """The loop that a name stands for; empty where it is no slip of one."""
    own = {"range": "range", "tile_range": "op.tile_range"} if tiles else {"range": "range"}
    close = nearest(written, own)
    if written == "arange" and call.keywords:
        return ""
    meant = _ALSO.get(written) or (own[close] if close else "")
    if tiles and meant == "range" and (call.keywords or len(call.arguments) > 3):
        return "op.tile_range"
    return meant if tiles or meant == "range" else ""


def _counted(s: ast.For, *, tiles: bool) -> str:
    """What to write over an array or a number that stands where a range should."""
    over = s.iterable
    if isinstance(over, ast.Call) and not over.keywords and len(over.arguments) == 1:
        of_items = isinstance(over.function, ast.Name) and over.function.id == "enumerate"
        over = over.arguments[0] if of_items else over
    array = source_of(over)
    if isinstance(over, (ast.TupleExpr, ast.ListExpr)) and isinstance(s.target, ast.Name):
        found = _of_numbers(s.target.id, over, tiles=tiles)
        if found:
            return found
    number = isinstance(over, (ast.IntLit, ast.Binary, ast.Unary))
    if "..." in array:
        return "write `for k in range(n):`, of a count `n`"
    if number:
        name = s.target.id if isinstance(s.target, ast.Name) else "k"
        return f"write `for {name} in range({array}):`"
    if isinstance(over, (ast.Name, ast.Attribute, ast.Subscript)):
        size = f"{array}.shape[0]" if tiles else f"len({array})"
        known = f", or `range({array})` if it is a number" if isinstance(over, ast.Name) else ""
        return f"write `for k in range({size}):` and read `{array}[k]`{known}"
    return "write `for k in range(n):`, of a count `n`"


def _of_numbers(name: str, over: ast.TupleExpr | ast.ListExpr, *, tiles: bool) -> str:
    """A loop over numbers that are written out: those of a range, or one of an array in each
    round. Empty: there is none."""
    values = [_value(x) for x in over.items]
    whole = [v for v in values if isinstance(v, int)]
    if len(whole) == len(values) and len(whole) > 1:
        step = whole[1] - whole[0]
        if step and all(b - a == step for a, b in pairwise(whole)):
            start, stop = whole[0], whole[-1] + (1 if step > 0 else -1)
            by = f", {step}" if step != 1 else ""
            first = f"{start}, " if start or by else ""
            return f"write `for {name} in range({first}{stop}{by}):`"
    if not tiles or not values or any(v is None for v in values):
        return ""
    counter = "k" if name != "k" else "i"
    text = ", ".join(source_of(x) for x in over.items)
    return (
        f"write `values = op.array([{text}])` in front of it,"
        f" `for {counter} in range({len(values)}):`, and in it `{name} = values[{counter}]`"
    )


def _value(e: ast.Expr) -> float | None:
    if isinstance(e, ast.Unary) and e.operator == "-":
        value = _value(e.operand)
        return None if value is None else -value
    return e.value if isinstance(e, (ast.IntLit, ast.FloatLit)) else None
