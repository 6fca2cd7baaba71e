"""Hover: what a name is, its type, where it lives, and its documentation."""

from __future__ import annotations

import re

from tessera_lang.evaluate.modules import kernel_level
from tessera_lang.record import dataclass
from tessera_lang.sema.side_tables import (
    Builtin,
    Constant,
    FunctionSymbol,
    ModuleSymbol,
    ModuleVariable,
    Symbol,
)
from tessera_lang.sema.signature import signature_of_annotations
from tessera_lang.source import Anchor, Span
from tessera_lang.syntax import ast
from tessera_lang.types.type import Buffer, Scalar, Tensor, Tile, Type
from tessera_lsp.ide.builtin_docs import (
    ARRAY_MEMBERS,
    CLAUSES,
    HEAD_WORDS,
    QUALIFIERS,
    help_of,
    help_of_keyword,
    signature_of,
)
from tessera_lsp.ide.completion import in_comment_or_string
from tessera_lsp.ide.document import Document
from tessera_lsp.ide.host_values import type_of_host
from tessera_lsp.ide.tree import Node, descend, walk
from tessera_lsp.ide.variables import Variable


@dataclass(frozen=True, slots=True)
class Hover:
    """Markdown and the range it speaks of."""

    markdown: str
    span: Span


def hover(document: Document, offset: int) -> Hover | None:
    """What to show at an offset."""
    nodes = descend(document.module, offset)
    function = next((n for n in nodes if isinstance(n, ast.FunctionDef)), None)
    for index in range(len(nodes) - 1, -1, -1):
        above = nodes[index - 1] if index else None
        found = hover_of(document, nodes[index], above, function, offset)
        if found is not None:
            return found
    return keyword(document, offset)


def code(text: str, more: str = "") -> str:
    block = f"```tessera\n{text}\n```"
    return f"{block}\n\n{more}" if more else block


def hover_of(
    document: Document,
    node: Node,
    above: Node | None,
    function: ast.FunctionDef | None,
    offset: int,
) -> Hover | None:
    match node:
        case ast.Name(span, name):
            return shown(of_name(document, node, name, function), span)
        case ast.Attribute(name=name, name_span=span) if span.lo <= offset <= span.hi:
            return shown(of_attribute(document, node, name, function), span)
        case ast.Parameter(name=name, name_span=span) if span.lo <= offset <= span.hi:
            variable = document.variables(function).get(name)
            return shown(of_variable(document, variable, function) if variable else None, span)
        case ast.Keyword(name=name, name_span=span) if span.lo <= offset <= span.hi:
            return shown(of_keyword_argument(document, above, name, function), span)
        case ast.FunctionDef(name_span=span) if span.lo <= offset <= span.hi:
            return shown(of_function(document, FunctionSymbol(node, document.path)), span)
        case ast.Clause(span, name) if offset <= span.lo + len(name) and name in CLAUSES:
            return shown(code(name, CLAUSES[name]), head(span, len(name)))
        case ast.TypeExpr(span, word) if word and offset <= span.lo + len(word):
            return shown(code(word, QUALIFIERS[word]), head(span, len(word)))
        case ast.IntLit(span, value, unit) if unit is not None:
            return shown(code(f"{value} bytes"), span)
        case ast.IntLit(span) | ast.FloatLit(span):
            t = document.type_of(node, function)
            text = document.file.text[span.lo : span.hi]
            return shown(code(f"{text}: {t}") if isinstance(t, Scalar) else None, span)
        case ast.ImportedName(span, name, alias):
            return shown(of_import(document, node, alias or name, above), span)
        case ast.FromImport(module=name, module_span=span) if span.lo <= offset <= span.hi:
            return shown(of_module(document, name), span)
        case _:
            return None


def shown(markdown: str | None, span: Span) -> Hover | None:
    return Hover(markdown, span) if markdown else None


def head(span: Span, length: int) -> Span:
    return Span(span.anchor, span.start, span.start + length)


# --- what each kind of name says -------------------------------------------------------------


def of_name(
    document: Document, node: ast.Name, name: str, function: ast.FunctionDef | None
) -> str | None:
    if (variable := document.variable(node, function)) is not None:
        return of_variable(document, variable, function, document.type_of(node, function))
    symbol = document.symbol(node, function)
    if symbol is None and name in HEAD_WORDS:
        return code(f"@{name}", HEAD_WORDS[name])
    if symbol is None:
        return code(name, help_of(name)) if help_of(name) else None
    return of_symbol(document, name, symbol)


def of_symbol(document: Document, name: str, symbol: Symbol) -> str | None:
    match symbol:
        case FunctionSymbol():
            return of_function(document, symbol)
        case Builtin(full):
            return code(signature_of(full), help_of(full))
        case Constant():
            return code(f"{name} = {symbol.value}", "A compile-time constant.")
        case ModuleSymbol(full, path):
            return of_module(document, full) if path is not None else code(full, help_of(full))
        case ModuleVariable():
            t = type_of_host(document, name)
            return code(f"{name}: {t}" if t else name, "A variable of the host program.")
        case _:
            return None


def of_variable(
    document: Document, variable: Variable, function: ast.FunctionDef | None, t: Type | None = None
) -> str:
    """A local: its type and where it lives; as written where the function does not check."""
    name, kind = variable.name, variable.kind
    t = t or document.type_of_variable(name, function)
    if kind == "size":
        return code(f"{name}: index", "size: bound by the shape of the argument")
    if t is not None:
        place = place_of(t)
        return code(f"{name}: {t}", kind + (f"; {place}" if place else ""))
    if variable.annotation is not None:
        span = variable.annotation.span
        return code(f"{name}: {document.file.text[span.lo : span.hi]}", kind)
    return code(name, f"{kind}; {why_no_type(document, function)}")


def why_no_type(document: Document, function: ast.FunctionDef | None) -> str:
    """Why the types of a function's locals are not known."""
    if function is None:
        return "its type is not known"
    if any(isinstance(n, (ast.ErrorStmt, ast.ErrorExpr)) for n in walk(function)):
        return f"its type is not known: a line of `{function.name}` cannot be read"
    if kernel_level(function) and signature_of_annotations(function, document.scope) is not None:
        return f"its type is not known: `{function.name}` has an error"
    return "its type is known once the function is checked for a call"


def place_of(t: Type) -> str:
    """Where a value of this type lives."""
    match t:
        case Scalar():
            return "a register of the lane"
        case Buffer(dtype, shape):
            count = 1
            for n in shape:
                count *= n
            return f"shared memory of the group, {count * dtype.bytes} bytes"
        case Tile(buffer=True):
            return "a buffer of the group"
        case Tile():
            return "a tile of the group"
        case Tensor(mut=True):
            return "global memory, may be written"
        case Tensor(space="constant"):
            return "constant memory"
        case Tensor():
            return "global memory, read only"
        case _:
            return ""


def of_function(document: Document, symbol: FunctionSymbol) -> str:
    """The line that declares a function, decorators included, as written, and what it says."""
    d = symbol.declaration
    text = document.session.source(symbol.module).text
    lines = [text[x.span.lo : x.span.hi].strip() for x in d.decorators]
    lines.append(text[d.signature_span.lo : d.signature_span.hi].rstrip(": \n"))
    return code("\n".join(lines), (d.docstring or "").strip())


def of_attribute(
    document: Document, node: ast.Attribute, name: str, function: ast.FunctionDef | None
) -> str | None:
    if (symbol := document.symbol(node, function)) is not None:
        return of_symbol(document, name, symbol)
    if name not in ARRAY_MEMBERS:
        return None
    t = document.type_of(node, function)
    return code(f"{name}: {t}" if t is not None else name, ARRAY_MEMBERS[name])


def of_keyword_argument(
    document: Document, call: Node | None, name: str, function: ast.FunctionDef | None
) -> str | None:
    symbol = document.symbol(call.function, function) if isinstance(call, ast.Call) else None
    match symbol:
        case FunctionSymbol(declaration=d):
            text = document.session.source(symbol.module).text
            for p in (*d.brackets, *d.parameters):
                if p.name == name:
                    return code(text[p.span.lo : p.span.hi], f"parameter of `{d.name}`")
            return None
        case Builtin(full):
            return code(signature_of(full), f"`{name}` is a parameter of `{full}`.")
        case _:
            return None


def of_import(
    document: Document, node: ast.ImportedName, local: str, above: Node | None
) -> str | None:
    if not isinstance(above, ast.FromImport):
        return of_module(document, node.name)
    symbol = document.scope.names.get(local)
    return None if symbol is None else of_symbol(document, local, symbol)


def of_module(document: Document, name: str) -> str | None:
    found = document.module_scope(name)
    if found is None:
        return None
    return code(f"import {name}", (found.module.docstring or "").strip())


def keyword(document: Document, offset: int) -> Hover | None:
    """A reserved word: the tree has no nodes for them."""
    file = document.file
    line, column = file.position(offset)
    text = file.line_text(line)
    for m in re.finditer(r"[A-Za-z_]+", text):
        if m.start() <= column <= m.end() and not in_comment_or_string(text[: m.start()]):
            lo = offset - column + m.start()
            said = help_of_keyword(m.group())
            return shown(
                said and code(m.group(), said), Span(Anchor(file.path, lo), 0, len(m.group()))
            )
    return None
