"""Types of warp operations: reductions, shuffles, votes.

Must not know how lanes exchange values, nor where a warp operation may stand.
"""

from __future__ import annotations

from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.context import Context, text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.indexing import index
from tessera_lang.sema.inference_types import Open, Term
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.operators import Operand, not_numbers
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, INDEX, U32
from tessera_lang.types.type import Scalar, Weak


def infer_warp(c: Context, e: ast.Call, name: str, bound: Bound) -> Term:
    """``warp_sum(v)``, ``warp_shuffle(v, lane)``, ``warp_any(b)`` and their like."""
    match name:
        case "warp_shuffle":
            return _shuffle(c, bound["value"], bound["lane"])
        case "warp_any" | "warp_all" | "warp_ballot":
            return _condition(c, name, bound["condition"])
        case "warp_match":
            return _match(c, bound["value"])
        case _:
            return _number(c, bound["value"], bools=False)


def _number(c: Context, x: ast.Expr, *, bools: bool) -> Term:
    """The operand keeps its type."""
    term = c.infer(x)
    if is_silent(term):
        return term
    if not isinstance(term, (Scalar, Weak, Open)) or (term == Scalar(BOOL) and not bools):
        return not_numbers(c, x.span, Operand(x, term))
    return term


def _shuffle(c: Context, x: ast.Expr, lane: ast.Expr) -> Term:
    index(c, lane)
    if c.final:
        kind = c.typed.types.get(lane)
        if isinstance(kind, Scalar) and kind.dtype.is_integer and kind.dtype != INDEX:
            c.coerce(lane, INDEX)
    return _number(c, x, bools=True)


def _match(c: Context, x: ast.Expr) -> Term:
    term = _number(c, x, bools=True)
    if isinstance(term, Scalar) and term.dtype.is_float:
        return c.report(
            "T0207", f"`warp_match` takes an integer or a bool, not `{text_of(term)}`", x.span,
            helps=(f"compare the bits: `bitcast({source_of(x)}, u{term.dtype.bits})`",),
        )  # fmt: skip
    return Scalar(U32)


def _condition(c: Context, name: str, x: ast.Expr) -> Term:
    result = Scalar(U32 if name == "warp_ballot" else BOOL)
    term = c.infer(x)
    if is_silent(term) or term == Scalar(BOOL):
        return result
    return c.report(
        "T0207", f"`{name}` takes a condition, not `{text_of(term)}`", x.span,
        helps=(f"compare it: `{source_of(x)} != 0`",),
    )  # fmt: skip
