"""Types and names of parameters, shown in the text where nobody wrote them.

Types are those of the first instance that was checked; of a function that is checked for what its
calls give, the hint says so. Must not know LSP.
"""

from __future__ import annotations

from tessera_lang.record import dataclass
from tessera_lang.sema.side_tables import FunctionSymbol
from tessera_lang.syntax import ast
from tessera_lsp.ide.document import Document
from tessera_lsp.ide.host_values import given_once, type_of_host
from tessera_lsp.ide.hover import place_of
from tessera_lsp.ide.tree import walk

_LITERALS = (
    ast.IntLit, ast.FloatLit, ast.BoolLit, ast.NoneLit, ast.StringLit, ast.TupleExpr, ast.Unary,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hint:
    """A text that is shown at an offset, behind the name that it is the type of or before an
    argument."""

    offset: int
    label: str
    is_type: bool
    tooltip: str = ""


def hints(document: Document, start: int, end: int) -> list[Hint]:
    """The hints between two offsets, in order."""
    found: list[Hint] = []
    for statement in document.module.body:
        if statement.span.hi < start or statement.span.lo > end:
            continue
        function = statement if isinstance(statement, ast.FunctionDef) else None
        if function is not None:
            found += _types(document, function)
        found += _parameters(document, statement, function)
    found += _of_host(document)
    inside = [h for h in found if start <= h.offset <= end]
    return sorted(inside, key=lambda h: h.offset)


def _of_host(document: Document) -> list[Hint]:
    """The types of arrays, and of what is made of them, at the top level."""
    found: list[Hint] = []
    for name, statement in given_once(document.module):
        t = type_of_host(document, name.id)
        if "[" in t and not isinstance(statement.value, ast.ListExpr):
            note = "a variable of the host program"
            found.append(Hint(name.span.hi, f": {t}", True, note))
    return found


def _types(document: Document, function: ast.FunctionDef) -> list[Hint]:
    """The type of each local behind the first place that gives it a value."""
    instances = document.instances_of(function)
    if not instances:
        return []
    types = {local.name: t for local, t in instances[0].variables.items()}
    seen = {p.name for p in (*function.brackets, *function.parameters)}
    note = ""
    if any(p.annotation is None for p in function.parameters) or function.brackets:
        given = ", ".join(
            f"{local.name}: {t}" for local, t in
            zip(instances[0].parameters, instances[0].parameter_types, strict=False)
        )  # fmt: skip
        note = f"as checked for a call with {given}" if given else ""
    found: list[Hint] = []
    for node in walk(function):
        match node:
            case ast.Assign(target=target) | ast.For(target=target):
                items = target.items if isinstance(target, ast.TupleExpr) else (target,)
            case ast.AnnotatedAssign(target=ast.Name(id=name)):
                seen.add(name)
                continue
            case _:
                continue
        for item in items:
            if not isinstance(item, ast.Name) or item.id in seen or item.id not in types:
                continue
            seen.add(item.id)
            t = types[item.id]
            text = "; ".join(x for x in (place_of(t), note) if x)
            label = f": {t} (of a call)" if note else f": {t}"
            found.append(Hint(item.span.hi, label, True, text))
    return found


def _parameters(
    document: Document, statement: ast.Stmt, function: ast.FunctionDef | None
) -> list[Hint]:
    """The parameter before an argument that is a number, a string or a tuple."""
    found: list[Hint] = []
    for node in (statement, *walk(statement)):
        if not isinstance(node, ast.Call):
            continue
        symbol = document.symbol(node.function, function)
        if not isinstance(symbol, FunctionSymbol):
            continue
        for p, argument in zip(symbol.declaration.parameters, node.arguments, strict=False):
            if isinstance(argument, _LITERALS):
                found.append(Hint(argument.span.lo, f"{p.name}=", False))
    return found
