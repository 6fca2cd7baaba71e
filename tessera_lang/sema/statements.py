"""Types of statements in lanes.

Owns assignment, variables, control flow and returns. Must not know how the type of an
expression is found.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Edit, Fix
from tessera_lang.sema.assignments import assign, assign_augmented, declare, settled_tuple
from tessera_lang.sema.bound_names import expressions
from tessera_lang.sema.context import Context, text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.expressions import require_bool
from tessera_lang.sema.indexing import counts_in_floats, index
from tessera_lang.sema.literals import settle, settle_default
from tessera_lang.sema.name_values import variable_term
from tessera_lang.sema.side_tables import Builtin
from tessera_lang.sema.unsupported import statement_problem
from tessera_lang.sema.variables import bind_variable
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import INDEX
from tessera_lang.types.type import (
    ERROR,
    NONE,
    FunctionType,
    Opaque,
    Scalar,
    TupleType,
)


def check_block(c: Context, body: tuple[ast.Stmt, ...]) -> None:
    """Type the statements of a block in order."""
    for statement in body:
        _statement(c, statement)
        if leaves(c, statement):
            return  # what follows is for other signatures


def leaves(c: Context, s: ast.Stmt) -> bool:
    """Whether a test known at compile time decides that control never passes this statement."""
    if not isinstance(s, ast.If) or not isinstance(test := c.try_value(s.test), bool):
        return False
    return any(
        isinstance(inner, ast.Return | ast.Break | ast.Continue) or leaves(c, inner)
        for inner in (s.body if test else s.orelse)
    )


def _statement(c: Context, s: ast.Stmt) -> None:
    match s:
        case ast.Assign():
            assign(c, s)
        case ast.AugmentedAssign():
            assign_augmented(c, s)
        case ast.AnnotatedAssign():
            declare(c, s)
        case ast.ExprStmt():
            expression_statement(c, s)
        case ast.If():
            _if(c, s)
        case ast.For():
            _for(c, s)
        case ast.While():
            require_bool(c, s.test, c.infer(s.test))
            check_block(c, s.body)
        case ast.Return():
            _return(c, s)
        case ast.Assert():
            check_assert(c, s)
        case ast.Break() | ast.Continue() | ast.Pass() | ast.ErrorStmt():
            pass
        case _:
            pass
    problem = statement_problem(s)
    if problem is not None:
        c.add(problem)


# --- control -------------------------------------------------------------------------------


def expression_statement(c: Context, s: ast.ExprStmt) -> None:
    """A statement of a value alone."""
    if isinstance(s.value, ast.StringLit):
        return  # a docstring
    for e in s.value.items if isinstance(s.value, ast.TupleExpr) else (s.value,):
        _effect(c, e)


def _effect(c: Context, e: ast.Expr) -> None:
    """A value that is not used: a call, or something without effect."""
    term = c.infer(e)
    if isinstance(e, ast.Call):
        return
    if isinstance(term, FunctionType):
        name = source_of(e)
        end = Span(e.span.anchor, e.span.end, e.span.end)
        c.report(
            "T0121", f"`{name}` is named here but not called", e.span,
            helps=(f"write `{name}()`",), fixes=(Fix("call it", (Edit(end, "()"),)),),
        )  # fmt: skip
    elif isinstance(term, (Opaque, TupleType)):
        c.report("T0121", f"this `{text_of(term)}` stands here for nothing", e.span)
    else:
        settle_default(c, e, term)
        if term != ERROR and not any(isinstance(part, ast.Call) for part in expressions(e)):
            _unused(c, e)


def _unused(c: Context, e: ast.Expr) -> None:
    """A number that is computed and dropped: mostly an assignment gone wrong."""
    helps = ("write `x = ...` to keep it",)
    inner = e.operand if isinstance(e, ast.Unary) else None
    if isinstance(e, ast.Compare):
        helps = ("`==` compares; write `=` to assign",)
    elif isinstance(inner, ast.Unary) and inner.operator in ("+", "-"):
        helps = (f"write `{source_of(inner.operand)} {inner.operator}= 1`",)
    c.report("T0121", "this value is not used", e.span, helps=helps, warning=True)


def _if(c: Context, s: ast.If) -> None:
    require_bool(c, s.test, c.infer(s.test))
    test = c.try_value(s.test)
    if test is None:
        check_block(c, s.body)
        check_block(c, s.orelse)
    else:
        check_block(c, s.body if test else s.orelse)


def _for(c: Context, s: ast.For) -> None:
    counts = _range(c, s.iterable)
    if isinstance(s.target, ast.Name) and s.target.id in c.variables:
        v = c.variables[s.target.id]
        bind_variable(c, v, None, Scalar(INDEX) if counts else ERROR, s.target.span)
        if c.final:
            c.typed.symbols[s.target] = v.local
        c.note(s.target, variable_term(c, v))
    check_block(c, s.body)


def _range(c: Context, e: ast.Expr) -> bool:
    """``range(...)``: bounds of any integer type, converted to index."""
    if not isinstance(e, ast.Call) or not isinstance(e.function, ast.Name):
        return False  # the structure check says what a loop takes
    symbol = c.name_symbol(e.function.id)
    if symbol != Builtin("range"):
        return False
    if c.final:
        c.typed.symbols[e.function] = Builtin("range")
    c.note(e, Opaque("range"))
    if counts_in_floats(c, e):
        return False
    for argument in e.arguments:
        index(c, argument)
        if c.final:
            kind = c.typed.types.get(argument)
            if isinstance(kind, Scalar) and kind.dtype.is_integer and kind.dtype != INDEX:
                c.coerce(argument, INDEX)
    if len(e.arguments) == 3 and c.try_value(e.arguments[2]) == 0:
        c.report("T0221", "a `range` with step 0 never moves", e.arguments[2].span)
    return 1 <= len(e.arguments) <= 3 and not e.keywords


def check_assert(c: Context, s: ast.Assert) -> None:
    """Checked in each lane; at once where it is known at compile time."""
    require_bool(c, s.test, c.infer(s.test))
    text = ""
    if isinstance(s.message, ast.StringLit):
        text = s.message.value
    elif s.message is not None:
        c.report(
            "T0114", "not built yet: text of `assert` in lanes that is no string literal",
            s.message.span, helps=("write the text itself: `assert x > 0, \"x is positive\"`",),
        )  # fmt: skip
    if c.try_value(s.test) is False and not isinstance(s.test, ast.BoolLit):
        c.report("T0224", text or "this never holds", s.test.span, "this is false")


def _return(c: Context, s: ast.Return) -> None:
    if s.value is None:
        return
    if c.is_kernel:
        c.infer(s.value)
        c.report(
            "T0212", "a lane kernel returns nothing", s.value.span,
            helps=("write the result to a `mut` parameter",),
        )  # fmt: skip
        return
    if isinstance(s.value, ast.TupleExpr):
        term = settled_tuple(c, s.value, c.returns.type)
    else:
        term = c.infer(s.value)
    if term == NONE:
        return
    bind_variable(c, c.returns, s.value, term, s.value.span)
    current = variable_term(c, c.returns)
    if isinstance(current, Scalar):
        settle(c, s.value, term, current.dtype)
