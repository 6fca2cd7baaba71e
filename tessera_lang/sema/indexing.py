"""Elements of arrays and buffers: one integer an axis.

Owns the checks of indices. Must not know what an element is used for.
"""

from __future__ import annotations

from tessera_lang.evaluate.foreign_names import counted
from tessera_lang.sema.context import Context, text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Open, Term
from tessera_lang.sema.literals import is_silent, settle
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import INDEX
from tessera_lang.types.type import Buffer, Scalar, Tensor, Weak


def element(c: Context, e: ast.Subscript, base: Tensor | Buffer) -> Term:
    """An element of an array or buffer: one integer an axis."""
    if any(isinstance(item, ast.SliceExpr) for item in e.items):
        return c.report(
            "T0114", "not built yet: slices in lane kernels", e.span,
            helps=(
                "write a loop over the elements",
                f"or reduce it to a number: `op.sum({source_of(e)})`, `op.max`, `op.argmax`, ...",
            ),
        )  # fmt: skip
    rank = len(base.shape)
    if len(e.items) != rank:
        for item in e.items:
            index(c, item)
        given = len(e.items)
        helps = ("give all indices in one bracket: `x[i, j]`",) if given < rank else ()
        helps = helps if rank else (f"the element of rank 0 is `{source_of(e.value)}[()]`",)
        return c.report(
            "T0301", f"`{source_of(e.value)}` has {_count(rank, 'axis', 'axes')} and is indexed"
            f" with {_count(given, 'index', 'indices')}", e.span, f"this is `{base}`",
            helps=helps,
        )  # fmt: skip
    for axis, item in enumerate(e.items):
        index(c, item)
        size, value = base.shape[axis], c.try_value(item)
        if isinstance(size, int) and isinstance(value, int) and not -size <= value < size:
            c.report(
                "T0302", f"index {value} is outside axis {axis} of `{source_of(e.value)}`",
                item.span, f"the axis has {size} elements",
            )  # fmt: skip
    return Scalar(base.dtype)


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


def index(c: Context, e: ast.Expr) -> None:
    """An index, a bound or a count: any integer; an open variable stays open."""
    if isinstance(e, ast.SliceExpr):
        return
    term = c.infer(e)
    if is_silent(term):
        return
    if isinstance(term, Open):
        if term.cell.root().kind == "int":
            return
    elif isinstance(term, Weak) and term.kind == "int":
        settle(c, e, term, INDEX)
        return
    elif isinstance(term, Scalar) and term.dtype.is_integer:
        return
    helps = (f"convert it: `index({source_of(e)})`",) if isinstance(term, Scalar) else ()
    c.report("T0215", f"an index is an integer, not `{text_of(term)}`", e.span, helps=helps)


def counts_in_floats(c: Context, e: ast.Call) -> bool:
    """Reports a `range` over floats, once for all its arguments."""
    floats = False
    for argument in e.arguments:
        term = c.infer(argument)
        weak = isinstance(term, Weak) and term.kind == "float"
        floats = floats or weak or (isinstance(term, Scalar) and term.dtype.is_float)
    if floats:
        values = [c.try_value(a) for a in e.arguments]
        c.report("T0215", "`range` counts in integers", e.span, helps=(counted(values),))
    return floats
