"""``op.sum(x[x > 0.0])``: reductions of what a tile of bools chooses.

Owns the expression that each stands for: elements that are not chosen count as what changes
nothing. Must not know how a reduction is typed.
"""

from __future__ import annotations

from tessera_lang.sema.inference_types import Term
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.expand_builtins import expand
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, DType, integer_range
from tessera_lang.types.type import Tensor, Tile

_TEXTS = {
    "op.sum": "op.sum(op.where(m, x, 0))",
    "op.prod": "op.prod(op.where(m, x, 1))",
    "op.any": "op.any(m & x)",
    "op.all": "op.all(~m | x)",
    "op.mean": "op.sum(op.where(m, x, 0)) / op.sum(m)",
    "op.count_nonzero": "op.sum(m & (x != 0))",
    "len": "op.sum(m)",
}
_SPREAD = "op.sum(op.where(m, op.square(x - op.sum(op.where(m, x, 0)) / op.sum(m)), 0)) / op.sum(m)"
_FLOATS = {"op.var": _SPREAD, "op.std": f"op.sqrt({_SPREAD})"}


def masked_reduction(c: TileContext, e: ast.Call, name: str) -> Term | None:
    """The type of such a call; None: it is none."""
    if name not in (*_TEXTS, *_FLOATS, "op.max", "op.min"):
        return None
    x = e.arguments[0] if e.arguments else None
    along = _along_first(c, e, name)
    if along is None:
        return None
    if not isinstance(x, ast.Subscript) or len(x.items) != 1:
        return None
    mask = x.items[0]
    if isinstance(mask, (ast.SliceExpr, ast.NoneLit)):
        return None
    base, chosen = c.infer(x.value), c.infer(mask)
    if not isinstance(base, (Tile, Tensor)) or not isinstance(chosen, (Tile, Tensor)):
        return None
    if chosen.dtype != BOOL:
        return None
    rank, own = (len(t.shape if isinstance(t, Tensor) else t.axes) for t in (base, chosen))
    text = _text(name, base.dtype) if own <= rank else None
    if text is None or (along and (own, rank) != (1, 2)):
        return None
    given = {"x": x.value, "m": mask}
    if own < rank:
        more = ", ".join([":"] * own + ["None"] * (rank - own))
        wide = f"op.broadcast_to(m[{more}], x.shape)"
        text = text.replace("(m", f"({wide}").replace("~m", f"~{wide}")
    if along:
        text = _with_axis(text)
    return expand(c, e, text, given)


def _along_first(c: TileContext, e: ast.Call, name: str) -> bool | None:
    """Whether the reduction goes along axis 0; None where it has other arguments."""
    given = [*e.arguments[1:], *(k.value for k in e.keywords if k.name == "axis")]
    if name == "len" or len(given) != len(e.arguments) - 1 + len(e.keywords) or len(given) > 1:
        return None if len(e.arguments) != 1 or e.keywords else False
    if not given:
        return False
    zero = isinstance(given[0], ast.IntLit) and given[0].value == 0
    return True if zero else None


def _with_axis(text: str) -> str:
    """Each reduction along axis 0; of means in the middle an axis of one element is left."""
    made, depth, opened = list[str](), 0, list[int]()
    i = 0
    while i < len(text):
        name = next((n for n in _REDUCTIONS if text.startswith(f"{n}(", i)), "")
        if name:
            made.append(f"{name}(")
            i += len(name) + 1
            opened.append(depth)
            depth += 1
            continue
        ch = text[i]
        depth += (ch == "(") - (ch == ")")
        if ch == ")" and opened and opened[-1] == depth:
            opened.pop()
            made.append(", axis=0")
        made.append(ch)
        i += 1
    return "".join(made)


_REDUCTIONS = ("op.sum", "op.prod", "op.any", "op.all", "op.max", "op.min")


def _text(name: str, dtype: DType) -> str | None:
    if name in _FLOATS:
        return _FLOATS[name] if dtype.is_float else None
    if name not in ("op.max", "op.min"):
        return _TEXTS.get(name)
    if dtype.is_float:
        return f"{name}(op.where(m, x, {'-' if name == 'op.max' else ''}op.inf))"
    if not dtype.is_integer:
        return None
    low, high = integer_range(dtype)
    return f"{name}(op.where(m, x, {low if name == 'op.max' else high}))"
