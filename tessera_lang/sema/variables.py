"""Variables: one keeps one type, an open one takes the first it meets.

Owns the binding of a value to a variable. Must not know statements.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Fix, Label
from tessera_lang.sema.context import Context, Variable, text_of
from tessera_lang.sema.conversion_hints import cast_fix
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Open, OpenBuffer, Term, Unknown
from tessera_lang.sema.literals import give
from tessera_lang.sema.name_values import variable_term
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.type import (
    Buffer,
    ErrorType,
    FunctionType,
    Scalar,
    Tensor,
    TupleType,
    Weak,
)


def bind_variable(c: Context, v: Variable, value: ast.Expr | None, term: Term, span: Span) -> None:
    """Give a variable a value; one variable keeps one type."""
    if isinstance(term, (OpenBuffer, Unknown, ErrorType)):
        return
    if v.cell is None and v.type is None and v.bare is None:
        _first(c, v, value, term, span)
        return
    current = variable_term(c, v)
    at = value.span if value is not None else span
    if isinstance(current, Open):
        match term:
            case Scalar():
                c.cells.fix(current.cell, term.dtype, at)
            case Open():
                c.cells.unify(current.cell, term.cell)
            case Weak():
                c.cells.widen(current.cell, term.kind)
            case _:
                pass
    if value is not None and isinstance(current, Scalar):
        if not give(c, value, term, current.dtype):
            keeps_type(c, v, value, term, current)
    elif not isinstance(current, (Open, Unknown, ErrorType)) and current != term:
        keeps_type(c, v, value, term, current, span)
    elif isinstance(current, (Tensor, Buffer)) and v.since != at:
        c.report(
            "T0203", f"`{v.local.name}` names an array and cannot name another", at,
            labels=(Label(v.since, "first here"),) if v.since else (),
            helps=("use a new name",),
        )  # fmt: skip


def _first(c: Context, v: Variable, value: ast.Expr | None, term: Term, span: Span) -> None:
    match term:
        case Weak():
            v.cell = c.cells.new(term.kind)
            v.literal = v.literal or span
            c.cells.changed = True
        case Open():
            v.cell = term.cell
        case TupleType() if not all(isinstance(t, Scalar) for t in term.items):
            names = ", ".join("abcdefgh"[: len(term.items)])
            c.report("T0118", f"one variable cannot hold several tiles, `{text_of(term)}`",
                     value.span if value else span,
                     helps=(f"give each a name: `{names} = ...`",))  # fmt: skip
        case Scalar() | Tensor() | Buffer() | TupleType():
            v.type = term
            v.since = value.span if value is not None else span
            c.cells.changed = True
        case FunctionType():
            name = source_of(value) if value is not None else v.local.name
            help_text = f"call it: `{name}()`" if value is not None else ""
            c.report("T0216", f"`{name}` is a function, not a value",
                     value.span if value else span, helps=(help_text,))  # fmt: skip
        case _:
            c.report("T0118", f"a variable in lanes cannot hold `{text_of(term)}`",
                     value.span if value else span)  # fmt: skip


def keeps_type(
    c: Context, v: Variable, value: ast.Expr | None, term: Term, current: Term,
    span: Span | None = None,
) -> None:  # fmt: skip
    """B64: two types, both places, and what to do."""
    name = v.local.name
    if v.cell is not None and isinstance(current, Scalar):
        met = v.cell.root().met
        labels = (
            *((Label(v.literal, f"`{name}` starts as a literal"),) if v.literal else ()),
            *((Label(met, f"and meets `{current}` here"),) if met else ()),
        )
    else:
        text = f"`{name}` is `{text_of(current)}` since here"
        labels = (Label(v.since, text),) if v.since else ()
    helps: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    if isinstance(term, Scalar) and isinstance(current, Scalar):
        helps = (
            f"declare the type where it starts: `{name}: {term} = ...`",
            f"or convert the value: `{current}({source_of(value) if value else name})`",
        )
        if value is not None:
            fixes = (cast_fix(value, current.dtype),)
    if isinstance(current, Tensor) and v.local.kind == "parameter":
        helps = (
            f"`{name}` is an array of the call, on some way to a use behind this: give the value a"
            f" name of its own, which may begin with it (`value = {name}`)",
        )
    at = value.span if value is not None else span
    c.report(
        "T0203", f"`{name}` is `{text_of(current)}` and cannot take `{text_of(term)}`: a variable"
        " keeps one type", at, f"this is `{text_of(term)}`", labels=labels, helps=helps,
        fixes=fixes,
    )  # fmt: skip
