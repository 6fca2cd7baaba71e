"""Assignments: to variables, elements, tuples of these.

Owns plain, augmented and declaring assignment. Must not know control flow.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Label
from tessera_lang.sema.atomics import writable
from tessera_lang.sema.context import Context, text_of
from tessera_lang.sema.conversion_hints import cast_fix
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.fits_narrow_index import fits_by_range
from tessera_lang.sema.inference_types import BareBuffer, Open, OpenBuffer, Term, Unknown
from tessera_lang.sema.literals import give, is_silent, settle_default
from tessera_lang.sema.name_values import module_of, variable_term
from tessera_lang.sema.narrow_sums import adds_to_itself
from tessera_lang.sema.operators import Operand, operate
from tessera_lang.sema.shared import stored
from tessera_lang.sema.signature import dtype_lookup, unknown_type
from tessera_lang.sema.slice_reductions import wide_dtype
from tessera_lang.sema.variables import bind_variable, keeps_type
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import INDEX
from tessera_lang.types.type import (
    Buffer,
    Scalar,
    Tensor,
    TupleType,
    Type,
)


def assign(c: Context, s: ast.Assign) -> None:
    if isinstance(s.target, ast.TupleExpr):
        _unpack(c, s, s.target)
        return
    if _is_bare(c, s.value) and isinstance(s.target, ast.Name):
        _bind_bare(c, s.target, s.value)
        return
    if isinstance(s.value, ast.TupleExpr):
        term = settled_tuple(c, s.value)
    else:
        term = c.infer(s.value)
    _assign_one(c, s.target, s.value, term, s.span)


def _is_bare(c: Context, e: ast.Expr) -> bool:
    return (
        isinstance(e, ast.Attribute)
        and e.name == "alloc"
        and (module := module_of(c, e.value)) is not None
        and module.name == "tshared"
    )


def _bind_bare(c: Context, target: ast.Name, value: ast.Expr) -> None:
    variable = c.variables[target.id]
    if variable.bare is None:
        if not c.is_kernel:
            c.report(
                "T0114", "not built yet: bare `tshared.alloc` in a function called from a kernel",
                value.span, helps=("write `tshared.alloc(shape, dtype)`",),
            )  # fmt: skip
            return
        if c.bare and value not in c.bare:
            first = next(iter(c.bare.values()))
            c.report(
                "T0310", "a kernel has at most one bare `tshared.alloc`", value.span,
                labels=(Label(first.span, "the first is here"),),
                helps=("write `tshared.alloc(shape, dtype)`",),
            )  # fmt: skip
            return
        variable.bare = c.bare[value] = BareBuffer(value.span, target.id)
        variable.since = target.span
    c.note(value, c.infer(value))
    c.note(target, c.infer(target))


def _unpack(c: Context, s: ast.Assign, target: ast.TupleExpr) -> None:
    if isinstance(s.value, ast.TupleExpr):
        if len(s.value.items) == len(target.items):
            terms = [c.infer(item) for item in s.value.items]
            for t, item, term in zip(target.items, s.value.items, terms, strict=True):
                _assign_one(c, t, item, term, s.span)
        else:
            c.report(
                "T0212", f"{len(s.value.items)} values for {len(target.items)} names",
                s.span,
            )  # fmt: skip
        return
    term = c.infer(s.value)
    if isinstance(term, TupleType) and len(term.items) == len(target.items):
        for t, item in zip(target.items, term.items, strict=True):
            _assign_one(c, t, None, item, s.span)
        return
    if not is_silent(term):
        count = len(term.items) if isinstance(term, TupleType) else 1
        c.report("T0212", f"{count} value{'' if count == 1 else 's'} for"
                 f" {len(target.items)} names", s.span)  # fmt: skip


def _assign_one(
    c: Context, target: ast.Expr, value: ast.Expr | None, term: Term, span: Span
) -> None:
    """One target; ``value`` is absent for an item of an unpacked tuple."""
    match target:
        case ast.Name():
            _assign_name(c, target, value, term)
        case ast.Subscript():
            _store(c, target, value, term)
        case _:
            _bad_target(c, target)


def _bad_target(c: Context, target: ast.Expr) -> None:
    if not isinstance(target, ast.ErrorExpr):
        c.report(
            "T0118", "lanes assign to variables and to elements of arrays", target.span,
            helps=("write `name = ...` or `x[i] = ...`",),
        )  # fmt: skip


def _assign_name(c: Context, target: ast.Name, value: ast.Expr | None, term: Term) -> None:
    variable = c.variables.get(target.id)
    if variable is None:
        return  # a compile-time parameter: the structure check says so
    bind_variable(c, variable, value, term, target.span)
    if variable.cell is not None and adds_to_itself(target, value):
        variable.accumulates = target.span
    if c.final:
        c.typed.symbols[target] = variable.local
    c.note(target, variable_term(c, variable))


def declare(c: Context, s: ast.AnnotatedAssign) -> None:
    term = c.infer(s.value) if s.value is not None else None
    if not isinstance(s.target, ast.Name):
        c.report("T0118", "only a variable is declared with a type", s.target.span)
        return
    if s.target.id not in c.variables:
        return  # a compile-time parameter: the structure check says so
    v = c.variables[s.target.id]
    lookup = dtype_lookup(c.scope, c.compile_time)
    dtype = lookup(s.annotation.base.id) if isinstance(s.annotation.base, ast.Name) else None
    if dtype is None:
        c.add(unknown_type(s.annotation))
        return
    if s.annotation.shape is not None or s.annotation.qualifier:
        c.report("T0114", "not built yet: arrays private to a lane", s.annotation.span)
        return
    if v.type is not None and v.type != Scalar(dtype):
        keeps_type(c, v, s.value, Scalar(dtype), v.type, s.annotation.span)
        return
    if v.type is None:
        v.type, v.cell, v.declared, v.since = Scalar(dtype), None, True, s.annotation.span
        c.cells.changed = True
    if s.value is not None and term is not None:
        bind_variable(c, v, s.value, term, s.target.span)
    if c.final:
        c.typed.symbols[s.target] = v.local
    c.note(s.target, Scalar(dtype))


def _store(c: Context, target: ast.Subscript, value: ast.Expr | None, term: Term) -> None:
    """``x[i] = value``."""
    place = c.infer(target)
    base = c.infer(target.value)
    _bare(c, target, value, term)
    if isinstance(base, (Tensor, Buffer)):
        writable(c, target, base)
    elif not is_silent(base) and not isinstance(base, OpenBuffer) and not is_silent(place):
        c.report("T0213", f"`{text_of(base)}` cannot be stored to", target.span)
        return
    if isinstance(place, Scalar):
        _give_stored(c, target, value, term, place)


def _bare(c: Context, target: ast.Subscript, value: ast.Expr | None, term: Term) -> None:
    if isinstance(target.value, ast.Name):
        variable = c.variables.get(target.value.id)
        if variable is not None and variable.bare is not None:
            stored(c, variable.bare, term, value.span if value is not None else target.span)


def _give_stored(
    c: Context, target: ast.Subscript, value: ast.Expr | None, term: Term, place: Scalar
) -> None:
    if value is None:
        good = term == place or is_silent(term)
    else:
        good = give(c, value, term, place.dtype)
        if not good and term == Scalar(INDEX) and fits_by_range(c, value, place.dtype):
            c.coerce(value, place.dtype)
            good = True
        if not good and wide_dtype(c, value) == place.dtype:
            c.coerce(value, place.dtype)
            good = True
    if good:
        return
    at = value if value is not None else target
    scalar = isinstance(term, Scalar)
    bare = c.variables.get(target.value.id) if isinstance(target.value, ast.Name) else None
    if bare is not None and bare.bare is not None and scalar:
        return  # reported with both stores
    c.report(
        "T0208", f"`{source_of(target)}` holds `{place}`, not `{text_of(term)}`", at.span,
        f"this is `{text_of(term)}`",
        helps=(f"convert it: `{place}({source_of(at)})`",) if scalar else (),
        fixes=(cast_fix(at, place.dtype),) if scalar and value is not None else (),
    )  # fmt: skip


def assign_augmented(c: Context, s: ast.AugmentedAssign) -> None:
    if not isinstance(s.target, (ast.Name, ast.Subscript)):
        _bad_target(c, s.target)
        return
    value = c.infer(s.value)
    target = c.infer(s.target)
    a, b = Operand(s.target, target), Operand(s.value, value)
    if isinstance(s.target, ast.Subscript):
        _bare(c, s.target, s.value, value)
        base = c.infer(s.target.value)
        if isinstance(base, (Tensor, Buffer)):
            writable(c, s.target, base)
    c.places[s.target] = s
    kept = _keeps_dtype(c, s, target, value)
    result = target if kept else operate(c, s.operator, s.operator_span, a, b)
    if c.final:
        c.typed.coercions.pop(s.target, None)
    if isinstance(s.target, ast.Name):
        variable = c.variables.get(s.target.id)
        if variable is None:
            return
        if s.operator in ("+", "-", "*"):
            variable.accumulates = s.span
        if isinstance(result, Scalar) and isinstance(target, Scalar) and result != target:
            keeps_type(c, variable, s.value, result, target)
    elif isinstance(result, Scalar) and isinstance(target, Scalar) and result != target:
        if wide_dtype(c, s.value) == target.dtype:
            return
        c.report(
            "T0208", f"`{source_of(s.target)}` holds `{target}`, not `{result}`", s.value.span,
            f"this is `{text_of(value)}`",
            helps=(f"convert it: `{target}({source_of(s.value)})`",),
            fixes=(cast_fix(s.value, target.dtype),),
        )  # fmt: skip


def _keeps_dtype(c: Context, s: ast.AugmentedAssign, target: Term, value: Term) -> bool:
    """Whether a count goes into what holds narrower integers: ``x[i] += k``."""
    if value != Scalar(INDEX) or not isinstance(target, Scalar) or target.dtype == INDEX:
        return False
    whole = target.dtype.is_integer and s.operator in ("+", "-", "*")
    if not whole or not c.narrows(s.value, target.dtype):
        return False
    c.coerce(s.value, target.dtype)
    return True


def settled_tuple(c: Context, e: ast.TupleExpr, wanted: Term | None = None) -> Term:
    """A tuple as a value: its literals meet nothing else, but the numbers of ``wanted``."""
    to = wanted.items if isinstance(wanted, TupleType) else ()
    terms = [
        _item(c, item, to[i] if len(to) == len(e.items) else None) for i, item in enumerate(e.items)
    ]
    if any(isinstance(t, (Open, Unknown, OpenBuffer)) for t in terms):
        return Unknown()
    term = TupleType(tuple(t for t in terms if not isinstance(t, (Open, Unknown, OpenBuffer))))
    c.note(e, term)
    return term


def _item(c: Context, e: ast.Expr, wanted: Type | None) -> Term:
    term = c.infer(e)
    if isinstance(wanted, Scalar) and give(c, e, term, wanted.dtype):
        return term if is_silent(term) else wanted
    return settle_default(c, e, term)
