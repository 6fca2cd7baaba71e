"""Calls of the language's own functions in lanes.

Owns their types: ids, atomics, barriers, mathematics, casts. Must not know functions that
programs define.
"""

from __future__ import annotations

from tessera_lang.sema import builtins
from tessera_lang.sema.argument_binding import Bound, bind_builtin
from tessera_lang.sema.atomics import infer_atomic
from tessera_lang.sema.context import Context, text_of
from tessera_lang.sema.conversion_hints import float_beside, float_for
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Open, Term, Unknown
from tessera_lang.sema.literals import is_silent, misfit, settle, settle_default
from tessera_lang.sema.operators import (
    Operand,
    literal_as_float,
    meet,
    not_numbers,
    silent,
    size_as_float,
)
from tessera_lang.sema.printing import infer_print
from tessera_lang.sema.shared import infer_alloc
from tessera_lang.sema.slice_reductions import infer_reduction
from tessera_lang.sema.unsupported import builtin_problem
from tessera_lang.sema.warps import infer_warp
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, DTYPES, F32, INDEX, DType
from tessera_lang.types.type import (
    ERROR,
    NONE,
    Buffer,
    Scalar,
    Tensor,
    Tile,
    TupleType,
    Weak,
)


def failed(c: Context) -> Term:
    """The type of a call whose fault is reported (here or by the structure check)."""
    return ERROR if c.final else Unknown()


def infer_builtin(c: Context, e: ast.Call, name: str) -> Term:
    """A call of the builtin ``name``."""
    problem = builtin_problem(name, e.function.span)
    reduces = name in builtins.LANE_REDUCTIONS
    info = (builtins.TILE_FUNCTIONS if reduces else builtins.FUNCTIONS).get(name)
    if problem is not None or info is None:
        return c.add(problem) if problem is not None else failed(c)
    # The structure check reports a wrong count; here it only stops the typing.
    bound = bind_builtin(e, info, lambda _: None)
    if bound is None:
        for argument in e.arguments:
            c.infer(argument)
        return failed(c)
    if e.keywords and c.final:
        c.typed.arguments[e] = tuple(bound.get(p) for p in info.parameters)
    return infer_reduction(c, e, name, bound) if reduces else _typed(c, e, name, bound)


def _typed(c: Context, e: ast.Call, name: str, bound: Bound) -> Term:
    if name in DTYPES:
        return cast(c, e, bound["x"], DTYPES[name])
    if name in builtins.PLAIN_IDS:
        return Scalar(INDEX)
    if name in builtins.AXIS_IDS:
        return _axis_id(c, name, bound["axis"])
    if name.startswith("atomic_"):
        return infer_atomic(c, e, name.removeprefix("atomic_"), bound)
    if name.startswith("warp_") and name not in builtins.PLAIN_IDS:
        return infer_warp(c, e, name, bound)
    if name in builtins.FLOAT_MATH or name == "math.fma":
        return _float_math(c, e, name, bound)
    match name:
        case "tbarrier":
            return NONE
        case "fast.exp" | "fast.exp2":
            return _fast(c, e, name, bound)
        case "fast.machine":
            c.infer(bound["kind"])
            one_of(c, bound["kind"], builtins.APPROXIMATIONS, "a function of the machine")
            return _fast(c, e, name, {"x": bound["x"], "exact": bound["exact"]})
        case "print":
            return infer_print(c, e)
        case "tfence":
            scope = bound.get("scope")
            if scope is not None:
                c.infer(scope)
                one_of(c, scope, builtins.SCOPES, "a scope")
            return NONE
        case "tshared.alloc" | "tlocal.alloc":
            return infer_alloc(c, e, name, bound["shape"], bound["dtype"])
        case "abs":
            return _absolute(c, bound["x"], e)
        case "min" | "max":
            return _extreme(c, e, name)
        case "ceil_div":
            return _ceil_div(c, e, bound["a"], bound["b"])
        case "bitcast":
            return _bitcast(c, bound["x"], bound["dtype"])
        case "len":
            return _length(c, e, bound["x"])
        case "range":
            return c.report("T0118", "`range` stands only in `for k in range(...)`", e.span)
        case _:
            return c.report("T0114", f"not built yet: `{name}` in lanes", e.span)


def one_of(c: Context, e: ast.Expr, allowed: tuple[str, ...], what: str) -> str | None:
    """A string known at compile time, of a few."""
    value = c.try_value(e)
    if isinstance(value, str) and value in allowed:
        return value
    shown = ", ".join(f'"{a}"' for a in allowed)
    c.report("T0207", f"{what} is one of {shown}", e.span)
    return None


def _axis_id(c: Context, name: str, axis: ast.Expr) -> Term:
    term = c.infer(axis)
    if isinstance(term, Weak):
        settle(c, axis, term, INDEX)
    value = c.try_value(axis)
    if is_silent(term):
        return Scalar(INDEX)
    rank = len(c.group) if name == "tile_id" and c.group else 3
    if not isinstance(value, int) or isinstance(value, bool):
        c.report("T0311", f"the axis of `{name}` must be known at compile time", axis.span)
    elif not 0 <= value < rank:
        least = "" if rank == 1 else f" to {rank - 1}"
        c.report("T0311", f"`{name}` has no axis {value}", axis.span, f"the axes are 0{least}")
    return Scalar(INDEX)


def cast(c: Context, e: ast.Call, x: ast.Expr, dtype: DType) -> Term:
    """``f32(x)``, ``x.to(f32)``."""
    term = c.infer(x)
    if is_silent(term):
        return Scalar(dtype)
    match term:
        case Weak():
            value = c.try_value(x)
            fits = value is None or misfit(value, dtype) is None
            settle(c, x, term, dtype) if fits else settle_default(c, x, term)
        case Open() if term.cell.root().wide:  # made of a size: as exact as what is asked for
            c.cells.fix(term.cell, dtype, e.span)
        case Scalar() | Open():
            pass
        case _:
            return c.report("T0206", f"`{text_of(term)}` cannot be converted to `{dtype}`", x.span)
    return Scalar(dtype)


def _float_math(c: Context, e: ast.Call, name: str, bound: Bound) -> Term:
    operands = [Operand(x, c.infer(x)) for x in bound.values()]
    if any(is_silent(o.term) for o in operands):
        return silent(*operands)
    if len(operands) == 1 and operands[0].term == Scalar(INDEX) and c.is_size(operands[0].e):
        return size_as_float(c, e, operands[0].e)
    converted: list[ast.Expr] = []  # integers
    for i, o in enumerate(operands):
        if isinstance(o.term, Scalar) and not o.term.dtype.is_float:
            floats = float_beside(c, o.term.dtype) if o.term.dtype.is_integer else None
            if floats is not None and name not in builtins.FAST_MATH:
                operands[i] = Operand(o.e, Scalar(floats))
                converted.append(o.e)
                continue
            return c.report(
                "T0207", f"`{name}` takes floats, not `{o.term}`", o.e.span,
                helps=(f"convert it: `{float_for(c, o.term.dtype)}({source_of(o.e)})`",),
            )  # fmt: skip
    result = _meet_all(c, e, operands)
    if isinstance(result, Scalar):
        for x in converted:
            c.coerce(x, result.dtype)
    if isinstance(result, Weak):
        found = literal_as_float(c, e, operands[0]) if c.shared.counts else Scalar(F32)
        if isinstance(found, Scalar):
            for o in operands:
                settle(c, o.e, o.term, found.dtype)
        return found
    return result


def _fast(c: Context, e: ast.Call, name: str, bound: Bound) -> Term:
    """The machine approximates in f32; narrower floats go through it."""
    term = _float_math(c, e, name, bound)
    least = 32 if name == "fast.machine" else 16
    if isinstance(term, Scalar) and not least <= term.dtype.bits <= 32:
        allowed = "f32" if name == "fast.machine" else "f16, bf16 and f32"
        return c.report("T0207", f"`{name}` takes {allowed}, not `{term}`", e.span)
    return term


def _meet_all(c: Context, e: ast.Call, operands: list[Operand]) -> Term:
    """The type in which all operands meet: typed ones first, then literals."""
    ordered = sorted(operands, key=lambda o: not isinstance(o.term, Scalar))
    first = ordered[0]
    result = first.term
    for o in ordered[1:]:
        result = meet(c, e.span, Operand(first.e, result), o)
        if is_silent(result):
            return result
    if isinstance(result, Scalar):
        for o in operands:
            if isinstance(o.term, Scalar) and o.term != result:
                c.coerce(o.e, result.dtype)
            elif c.final and o.e in c.typed.coercions and o.term == result:
                del c.typed.coercions[o.e]
    return result


def _extreme(c: Context, e: ast.Call, name: str) -> Term:
    operands = [Operand(x, c.infer(x)) for x in e.arguments]
    if any(is_silent(o.term) for o in operands):
        return silent(*operands)
    if len(operands) == 1:
        if isinstance(operands[0].term, (Tensor, Buffer, TupleType)):
            return c.report(
                "T0105", f"`{name}` takes 2 or more numbers, not an array", e.span,
                helps=(f"write `op.{name}({source_of(e.arguments[0])})`",),
            )  # fmt: skip
        return c.report("T0105", f"`{name}` takes 2 or more numbers, not 1", e.span)
    for o in operands:
        if not isinstance(o.term, (Scalar, Weak, Open)) or o.term == Scalar(BOOL):
            return not_numbers(c, e.span, o)
    result = _meet_all(c, e, operands)
    if isinstance(result, Weak) and all(x in c.known for x in e.arguments):
        c.known.add(e)
    return result


def _absolute(c: Context, x: ast.Expr, e: ast.Call) -> Term:
    term = c.infer(x)
    if is_silent(term):
        return term
    if not isinstance(term, (Scalar, Weak, Open)) or term == Scalar(BOOL):
        return not_numbers(c, e.span, Operand(x, term))
    if isinstance(term, Weak) and x in c.known:
        c.known.add(e)
    return term


def _ceil_div(c: Context, e: ast.Call, a: ast.Expr, b: ast.Expr) -> Term:
    x, y = Operand(a, c.infer(a)), Operand(b, c.infer(b))
    if is_silent(x.term) or is_silent(y.term):
        return silent(x, y)
    for o in (x, y):
        if isinstance(o.term, (Tensor, Tile)):
            return c.report(
                "T0207", f"`ceil_div` takes integers, not `{text_of(o.term)}`", o.e.span,
                helps=("give it elements: `ceil_div(a[i], b)`",),
            )  # fmt: skip
        if isinstance(o.term, Scalar) and not o.term.dtype.is_integer or o.term == Weak("float"):
            return c.report(
                "T0207", f"`ceil_div` takes integers, not `{text_of(o.term)}`", o.e.span
            )
    result = meet(c, e.span, x, y)
    if c.try_value(b) == 0:
        return c.report("T0223", "`ceil_div` by 0", b.span, "this is always 0")
    if isinstance(result, Weak) or result == Scalar(INDEX):
        if a in c.known and b in c.known:
            c.known.add(e)
    return result


def _bitcast(c: Context, x: ast.Expr, dtype: ast.Expr) -> Term:
    term, _ = c.infer(x), c.infer(dtype)
    target = c.try_value(dtype)
    if not isinstance(target, DType):
        return c.report("T0218", "the second argument of `bitcast` is a dtype", dtype.span)
    if isinstance(term, Weak):
        same = DTYPES["f32" if term.kind == "float" else "i64"]
        if same.bits != target.bits and term.kind == "int":
            same = DTYPES.get(f"i{target.bits}", same)
        term = settle(c, x, term, same)
    if is_silent(term) or isinstance(term, Open):
        return Scalar(target)
    if not isinstance(term, Scalar):
        return not_numbers(c, x.span, Operand(x, term))
    if term.dtype.bits != target.bits or BOOL in (term.dtype, target):
        return c.report(
            "T0220", f"`bitcast` keeps the bits: `{term}` has {term.dtype.bits}, `{target}` has"
            f" {target.bits}", x.span,
        )  # fmt: skip
    return Scalar(target)


def _length(c: Context, e: ast.Call, x: ast.Expr) -> Term:
    term = c.infer(x)
    if is_silent(term):
        return term
    if isinstance(term, (Tensor, Buffer)) and term.shape:
        size = term.shape[0]
        if isinstance(size, int):
            c.set_value(e, size)
        return Scalar(INDEX)
    if isinstance(term, TupleType):
        c.set_value(e, len(term.items))
        return Weak("int")
    return c.report("T0207", f"`len` takes an array, not `{text_of(term)}`", x.span)
