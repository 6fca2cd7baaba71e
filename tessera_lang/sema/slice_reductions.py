"""Reductions of arrays and slices in lanes: ``op.max(x[r, 0:8])``.

Owns their types, and which sums are wide. Must not know how lanes share the work.
"""

from __future__ import annotations

from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.context import Context, text_of
from tessera_lang.sema.conversion_hints import mean_for
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.indexing import index
from tessera_lang.sema.inference_types import OpenBuffer, Term, Unknown
from tessera_lang.sema.literals import is_silent, settle
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, F32, I32, INDEX, U32, DType
from tessera_lang.types.type import ERROR, Buffer, Scalar, Tensor

_WIDE = ("sum", "prod", "mean", "var")
_CLOSED = ("+", "-", "*", "/")


def infer_reduction(c: Context, e: ast.Call, name: str, bound: Bound) -> Term:
    """``op.sum(x[i, a:b])``: one number, of all elements of an array or a slice of one."""
    kind, x = name.removeprefix("op."), bound["x"]
    base, axes = _operand(c, name, x)
    if base is None:
        return ERROR if c.final else Unknown()
    given = bound.get("axis")
    if (kept := bound.get("keepdims")) is not None:
        return c.report(
            "T0106", f"`{name}` in lanes has no parameter `keepdims`", kept.span,
            "lanes have no arrays as values",
        )  # fmt: skip
    for key in ("correction", "ddof"):
        if key in bound and not _is_zero(c, bound[key]):
            return c.report(
                "T0106", f"`{name}` in lanes has no parameter `{key}`", bound[key].span,
                "the squares are divided by their number",
                helps=(f"of `n` elements write `{name}({source_of(x)}) * n /"
                       f" (n - {source_of(bound[key])})`",),
            )  # fmt: skip
    if given is not None and not isinstance(given, ast.NoneLit):
        if not _only_axis(c, name, given, axes):
            return ERROR if c.final else Unknown()
    elif kind in ("argmax", "argmin") and axes > 1:
        return c.report(
            "T0105", f"`{name}` in lanes looks along one axis, and this has {axes}", x.span,
            helps=("give an index for the other axes: `x[i, :]`",),
        )  # fmt: skip
    dtype = result_dtype(c, kind, base.dtype, x)
    if dtype is None:
        return ERROR if c.final else Unknown()
    if kind in _WIDE and dtype.is_float and dtype.bits < 32:
        c.wide_calls[e] = dtype
        return Scalar(F32)
    return Scalar(dtype)


def _is_zero(c: Context, e: ast.Expr) -> bool:
    settle(c, e, c.infer(e), INDEX)
    return c.try_value(e) == 0


def _operand(c: Context, name: str, x: ast.Expr) -> tuple[Tensor | Buffer | None, int]:
    """The array, and how many of its axes are reduced; None where it is none (reported)."""
    sliced = isinstance(x, ast.Subscript)
    term = c.infer(x.value if isinstance(x, ast.Subscript) else x)
    if is_silent(term) or isinstance(term, OpenBuffer):
        return None, 0
    if not isinstance(term, (Tensor, Buffer)):
        if sliced:
            term = c.infer(x)
        _refuse_operand(c, name, x, term)
        return None, 0
    rank = len(term.shape)
    if not isinstance(x, ast.Subscript):
        c.note(x, term)
        return term, rank
    return term, _axes(c, name, x, term)


def _axes(c: Context, name: str, x: ast.Subscript, base: Tensor | Buffer) -> int:
    rank, given = len(base.shape), len(x.items)
    for item in x.items:
        if isinstance(item, ast.SliceExpr):
            _bounds(c, item)
        elif not isinstance(item, ast.NoneLit):
            index(c, item)
    if given > rank or any(isinstance(i, ast.NoneLit) for i in x.items):
        c.report(
            "T0301", f"`{source_of(x.value)}` has {rank} {'axis' if rank == 1 else 'axes'} and is"
            f" indexed with {given}", x.span, f"this is `{base}`",
        )  # fmt: skip
        return rank
    indices = sum(not isinstance(i, ast.SliceExpr) for i in x.items)
    if indices == rank:
        _refuse_operand(c, name, x, Scalar(base.dtype))
    for axis, item in enumerate(x.items):
        size, value = base.shape[axis], c.try_value(item)
        if isinstance(size, int) and isinstance(value, int) and not -size <= value < size:
            c.report(
                "T0302", f"index {value} is outside axis {axis} of `{source_of(x.value)}`",
                item.span, f"the axis has {size} elements",
            )  # fmt: skip
    return rank - indices


def _bounds(c: Context, item: ast.SliceExpr) -> None:
    for at in (item.lower, item.upper):
        if at is not None:
            index(c, at)
    if item.step is not None:
        index(c, item.step)
        step = c.try_value(item.step)
        if type(step) is not int or step < 1:
            c.report(
                "T0606", "the step of a slice is a positive number known at compile time",
                item.step.span, helps=("or write a loop: `for k in range(start, stop, step):`",),
            )  # fmt: skip


def _refuse_operand(c: Context, name: str, x: ast.Expr, term: Term) -> None:
    if is_silent(term):
        return
    helps = ("reduce a slice: `op.max(x[i, 0:8])`",)
    if isinstance(term, Scalar):
        helps = (
            "numbers of several lanes meet in `warp_sum` and `group_sum`, `..._max`, `..._min`",
            *helps,
        )
    c.report(
        "T0207", f"`{name}` in lanes takes an array or a slice of one, not `{text_of(term)}`",
        x.span, helps=helps,
    )  # fmt: skip


def _only_axis(c: Context, name: str, e: ast.Expr, axes: int) -> bool:
    """``axis=`` names an axis; there may be no other, since lanes have no arrays as values."""
    settle(c, e, c.infer(e), INDEX)
    value = c.try_value(e)
    if not isinstance(value, int) or isinstance(value, bool):
        c.report("T0311", f"the axis of `{name}` must be known at compile time", e.span)
        return False
    if not -axes <= value < axes:
        c.report("T0311", f"`{name}` has no axis {value}: this has {axes}", e.span)
        return False
    if axes > 1:
        c.report(
            "T0311", f"`{name}` in lanes gives one number: of {axes} axes it cannot leave any",
            e.span, helps=("give an index for the axes that stay, and write a loop over it",
                           "or write a tile kernel, `@op.kernel`"),
        )  # fmt: skip
        return False
    return True


def result_dtype(c: Context, kind: str, dtype: DType, x: ast.Expr) -> DType | None:
    """What a reduction of ``dtype`` gives; None where it takes none such (reported)."""
    if kind in ("any", "all"):
        if dtype != BOOL:
            c.report(
                "T0207", f"`op.{kind}` takes bools, not `{dtype}`", x.span,
                helps=(f"compare: `{source_of(x)} != 0`",),
            )  # fmt: skip
            return None
        return BOOL
    if kind in ("argmax", "argmin"):
        return INDEX
    if kind in ("sum", "prod"):
        if dtype == BOOL or (dtype.kind == "int" and dtype.bits < 32):
            return I32
        return U32 if dtype.kind == "uint" and dtype.bits < 32 else dtype
    if kind in ("mean", "var"):
        return mean_for(c, dtype)
    if dtype == BOOL:
        c.report("T0206", f"`op.{kind}` takes numbers, not bools", x.span,
                 helps=("use `op.any` or `op.all`",))  # fmt: skip
        return None
    return dtype


def wide_dtype(c: Context, e: ast.Expr) -> DType | None:
    """The float of fewer than 32 bits that a wide value, an f32 for now, belongs to: it may be
    stored there without a cast."""
    match e:
        case ast.Call():
            return c.wide_calls.get(e)
        case ast.Unary(operator="-" | "+"):
            return wide_dtype(c, e.operand)
        case ast.Binary() if e.operator in _CLOSED:
            a, b = wide_dtype(c, e.left), wide_dtype(c, e.right)
            if a is not None and b is not None:
                return a if a == b else None
            other = e.right if b is None else e.left
            return a or b if c.is_known(other) else None
        case _:
            return None
