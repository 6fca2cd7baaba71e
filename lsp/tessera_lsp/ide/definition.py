"""Go to definition: of a variable, a function, an imported name or module."""

from __future__ import annotations

from tessera_lang.record import dataclass
from tessera_lang.sema.side_tables import (
    Constant,
    FunctionSymbol,
    Local,
    ModuleSymbol,
    ModuleVariable,
    Symbol,
)
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lsp.ide.document import Document
from tessera_lsp.ide.tree import Node, descend


@dataclass(frozen=True, slots=True)
class Target:
    """A place in a file; without a span the start of the file."""

    path: str
    span: Span | None


def definition(document: Document, offset: int) -> Target | None:
    """Where the name at an offset is defined."""
    nodes = descend(document.module, offset)
    function = next((n for n in nodes if isinstance(n, ast.FunctionDef)), None)
    for index in range(len(nodes) - 1, -1, -1):
        match nodes[index]:
            case ast.Name() as node:
                if (local := document.variable(node, function)) is not None:
                    return Target(document.path, local.span)
                return target_of(document.symbol(node, function))
            case ast.Attribute(name_span=span) as node if span.lo <= offset <= span.hi:
                return target_of(document.symbol(node, function))
            case ast.Keyword(name_span=span, name=name) if span.lo <= offset <= span.hi:
                return parameter(document, nodes[index - 1], name, function)
            case ast.FunctionDef(name_span=span) | ast.Parameter(name_span=span) if (
                span.lo <= offset <= span.hi
            ):
                return Target(document.path, span)
            case (ast.ImportedName() | ast.FromImport()) as node:
                return imported(document, node, nodes)
            case _:
                continue
    return None


def target_of(symbol: Symbol | None) -> Target | None:
    match symbol:
        case FunctionSymbol():
            return Target(symbol.module, symbol.declaration.name_span)
        case (
            Local(span=Span() as span)
            | Constant(span=Span() as span)
            | ModuleVariable(span=Span() as span)
        ):
            return Target(span.file, span)
        case ModuleSymbol(path=str() as path):
            return Target(path, None)
        case _:
            return None


def type_definition(document: Document, offset: int) -> Target | None:
    """Where the type of the name at an offset is written: its annotation, that of the result of
    the function whose call it is, or the parameter whose shape binds a size."""
    nodes = descend(document.module, offset)
    function = next((n for n in nodes if isinstance(n, ast.FunctionDef)), None)
    for node in reversed(nodes):
        match node:
            case ast.Parameter(annotation=ast.TypeExpr(span)):
                return Target(document.path, span)
            case ast.Name() if (local := document.variable(node, function)) is not None:
                if local.annotation is not None:
                    return Target(document.path, local.annotation.span)
                if local.kind == "size":
                    return Target(document.path, local.span)
                return _type_of_call(document, local.span, function)
            case ast.Name(span=span):
                symbol = document.symbol(node, function)
                if isinstance(symbol, ModuleVariable) and symbol.span is not None:
                    span = symbol.span
                return _of_result(symbol) or _type_of_call(document, span, None)
            case ast.Attribute(name_span=span) if span.lo <= offset <= span.hi:
                return _of_result(document.symbol(node, function))
            case _:
                continue
    return None


def _of_result(symbol: Symbol | None) -> Target | None:
    """The type that a function says its result has."""
    if not isinstance(symbol, FunctionSymbol) or symbol.declaration.returns is None:
        return None
    return Target(symbol.module, symbol.declaration.returns.span)


def _type_of_call(document: Document, at: Span, function: ast.FunctionDef | None) -> Target | None:
    """The type of what is assigned to the name at a place, where it is a call's."""
    if at.file != document.path:
        return None
    for node in reversed(descend(document.module, at.lo)):
        if isinstance(node, ast.AnnotatedAssign):
            return Target(document.path, node.annotation.span)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            return _of_result(document.symbol(node.value.function, function))
    return None


def parameter(
    document: Document, call: Node, name: str, function: ast.FunctionDef | None
) -> Target | None:
    """The parameter that ``name=`` of a call gives."""
    symbol = document.symbol(call.function, function) if isinstance(call, ast.Call) else None
    if not isinstance(symbol, FunctionSymbol):
        return None
    d = symbol.declaration
    for p in (*d.brackets, *d.parameters):
        if p.name == name:
            return Target(symbol.module, p.name_span)
    return None


def imported(
    document: Document, node: ast.ImportedName | ast.FromImport, nodes: tuple[object, ...]
) -> Target | None:
    """From a name in an import to what it imports."""
    if isinstance(node, ast.FromImport):
        found = document.module_scope(node.module)
        return None if found is None else Target(found.path, None)
    if any(isinstance(n, ast.FromImport) for n in nodes):
        return target_of(document.scope.names.get(node.alias or node.name))
    found = document.module_scope(node.name)
    return None if found is None else Target(found.path, None)
