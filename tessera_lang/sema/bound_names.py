"""Which names a function binds: its variables, as in Python.

Owns the collection of assigned and written names. Must not know their types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from tessera_lang.source import Span
from tessera_lang.syntax import ast

VariableKind = Literal["variable", "loop"]


def statements(body: tuple[ast.Stmt, ...]) -> Iterator[ast.Stmt]:
    """All statements of a function in source order, without nested functions' bodies."""
    for s in body:
        yield s
        match s:
            case ast.If():
                yield from statements(s.body)
                yield from statements(s.orelse)
            case ast.For() | ast.While() | ast.With():
                yield from statements(s.body)
            case _:
                pass


def targets(s: ast.Stmt) -> Iterator[ast.Expr]:
    """Single targets of one statement."""
    match s:
        case ast.Assign() | ast.For():
            yield from _flat(s.target)
        case ast.AugmentedAssign() | ast.AnnotatedAssign():
            yield s.target
        case ast.With() if s.target is not None:
            yield from _flat(s.target)
        case _:
            pass


def _flat(target: ast.Expr) -> Iterator[ast.Expr]:
    if isinstance(target, (ast.TupleExpr, ast.ListExpr)):
        for item in target.items:
            yield from _flat(item)
    else:
        yield target


def assigned_names(function: ast.FunctionDef) -> dict[str, tuple[Span, VariableKind]]:
    """Names assigned in the body, with the place and manner of the first assignment."""
    found: dict[str, tuple[Span, VariableKind]] = {}
    for s in statements(function.body):
        for target in targets(s):
            if isinstance(target, ast.Name) and target.id not in found:
                found[target.id] = target.span, "loop" if isinstance(s, ast.For) else "variable"
        if isinstance(s, ast.FunctionDef) and s.name not in found:
            found[s.name] = s.name_span, "variable"
    return found


def written_names(function: ast.FunctionDef) -> dict[str, Span]:
    """Arrays whose elements the body stores to or changes by atomics."""
    found: dict[str, Span] = {}
    for s in statements(function.body):
        for target in targets(s):
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                found.setdefault(target.value.id, target.span)
        for call in _calls(s):
            if not isinstance(call.function, ast.Name) or not call.arguments:
                continue
            name, place = call.function.id, call.arguments[0]
            if name.startswith("atomic_") and name != "atomic_load":
                if isinstance(place, ast.Subscript) and isinstance(place.value, ast.Name):
                    found.setdefault(place.value.id, place.span)
    return found


def _calls(s: ast.Stmt) -> Iterator[ast.Call]:
    """Calls in a statement's own expressions where an atomic may stand."""
    match s:
        case ast.ExprStmt() | ast.Assign() | ast.AugmentedAssign():
            roots: tuple[ast.Expr, ...] = (s.value,)
        case ast.AnnotatedAssign() | ast.Return() if s.value is not None:
            roots = (s.value,)
        case ast.If() | ast.While():
            roots = (s.test,)
        case _:
            roots = ()
    for root in roots:
        for e in expressions(root):
            if isinstance(e, ast.Call):
                yield e


_CHILDREN: dict[type[ast.Expr], Callable[[Any], tuple[ast.Expr, ...]]] = {
    ast.TupleExpr: lambda e: e.items,
    ast.ListExpr: lambda e: e.items,
    ast.DictExpr: lambda e: (*e.keys, *e.values),
    ast.Unary: lambda e: (e.operand,),
    ast.Binary: lambda e: (e.left, e.right),
    ast.BoolOp: lambda e: e.values,
    ast.Compare: lambda e: (e.first, *e.rest),
    ast.Conditional: lambda e: (e.test, e.then, e.orelse),
    ast.Call: lambda e: (e.function, *e.arguments, *(k.value for k in e.keywords)),
    ast.Attribute: lambda e: (e.value,),
    ast.Subscript: lambda e: (e.value, *e.items),
    ast.SliceExpr: lambda e: tuple(x for x in (e.lower, e.upper, e.step) if x is not None),
    ast.FString: lambda e: tuple(p.value for p in e.parts if isinstance(p, ast.FormattedValue)),
}
"""By kind: most expressions are names and numbers, which have none."""


def children(e: ast.Expr) -> tuple[ast.Expr, ...]:
    """Direct parts of an expression, in source order; none of a lambda or comprehension."""
    parts = _CHILDREN.get(type(e))
    return () if parts is None else parts(e)


def expressions(root: ast.Expr) -> Iterator[ast.Expr]:
    """An expression and its parts in source order, without recursion."""
    todo = [root]
    while todo:
        e = todo.pop()
        yield e
        if parts := children(e):
            todo.extend(reversed(parts))


def statement_expressions(s: ast.Stmt) -> tuple[ast.Expr, ...]:
    """A statement's own expressions in source order; plain target names are no reads."""
    match s:
        case ast.ExprStmt():
            return (s.value,)
        case ast.Assign():
            return (*_places(s.target), s.value)
        case ast.AnnotatedAssign():
            value = (s.value,) if s.value is not None else ()
            return (*(s.annotation.shape or ()), *value)
        case ast.AugmentedAssign():
            return (s.target, s.value)
        case ast.If() | ast.While():
            return (s.test,)
        case ast.For():
            return (s.iterable,)
        case ast.With():
            return (s.context,)
        case ast.Return():
            return (s.value,) if s.value is not None else ()
        case ast.Assert():
            return (s.test, s.message) if s.message is not None else (s.test,)
        case _:
            return ()


def _places(target: ast.Expr) -> tuple[ast.Expr, ...]:
    if isinstance(target, ast.Name):
        return ()
    if isinstance(target, (ast.TupleExpr, ast.ListExpr)):
        return tuple(x for t in target.items for x in _places(t))
    return (target,)
