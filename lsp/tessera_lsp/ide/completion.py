"""Completion: names in scope, members behind a dot, decorators and clauses, modules.

Works on the text before the cursor, so that a line that does not parse is no hindrance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from tessera_grammar.keywords import BUILTINS, KEYWORDS

from tessera_lang.diagnostics import Edit
from tessera_lang.driver.modules import standard_modules
from tessera_lang.record import dataclass
from tessera_lang.sema.builtins import FUNCTIONS, MEMBERS, TOP_LEVEL, is_built, later
from tessera_lang.sema.heads import kernel_decorator
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.side_tables import Constant, FunctionSymbol, ModuleSymbol, Symbol
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lsp.ide import auto_import, snippets
from tessera_lsp.ide.builtin_docs import (
    ARRAY_MEMBERS,
    CLAUSES,
    HEAD_WORDS,
    QUALIFIERS,
    UNITS,
    help_of,
    help_of_keyword,
    signature_of,
)
from tessera_lsp.ide.calls import called
from tessera_lsp.ide.document import Document
from tessera_lsp.ide.tree import descend

Kind = Literal["keyword", "function", "variable", "module", "type", "member", "constant", "snippet"]
LIMIT = 300
_TAIL = re.compile(r"((?:[A-Za-z_]\w*\.)*)([A-Za-z_]\w*)?$")
_NUMBER = re.compile(r"(?<![\w.])\d[\w.]*$")
_NEW_NAME = re.compile(r"\b(?:def|as|for|lambda)\s+\w*$")
_IMPORT = re.compile(r"^\s*(?:from|import)\s+(?:[\w.]+(?:\s+as\s+\w+)?\s*,\s*)*([\w.]*)$")
_FROM = re.compile(r"^\s*from\s+([\w.]+)\s+import\s+(?:.*[,\s(])?(\w*)$")
_HEAD = re.compile(r"^\s*@\s*(\w*)$")
_CLAUSES = re.compile(r"^\s*@\s*\w+(?:\s+\w+\s*(?:\[.*\]|\(.*\)))*\s+\w*$")
_ANNOTATION = re.compile(r"^\s*(?:def\b.*[\[(,]\s*)?\w+\s*:\s*(?:(?:mut|const)\s+)?\w*$")
_HEADER = re.compile(r"^\s*(?:if|elif|else|for|while|with)\b")


@dataclass(frozen=True, slots=True)
class Completion:
    """``insert``: what is written where that is not the label, with places to fill in; ``more``:
    an edit elsewhere, of the import from ``source`` that the name needs."""

    label: str
    kind: Kind
    detail: str = ""
    documentation: str = ""
    insert: str = ""
    more: Edit | None = None
    source: str = ""


def completions(document: Document, offset: int) -> tuple[Completion, ...]:
    """What may stand at an offset, at most 200 entries."""
    line = line_before(document, offset)
    if in_comment_or_string(line) or in_long_string(document, offset):
        return ()
    if (m := _FROM.match(line)) is not None:
        found = document.module_scope(m.group(1))
        return () if found is None else of_symbols(found.names, found)
    if (m := _IMPORT.match(line)) is not None:
        return modules(document, m.group(1))
    if (m := _NUMBER.search(line)) is not None:
        return listed(UNITS, "keyword") if m.group().endswith("_") else ()
    if _NEW_NAME.search(line):
        return ()
    if _HEAD.match(line):
        return listed(HEAD_WORDS, "keyword")
    if _CLAUSES.match(line):
        return tuple(
            Completion(n, "keyword", documentation=t, insert=snippets.CLAUSES.get(n, ""))
            for n, t in CLAUSES.items() if not re.search(rf"\b{n}\b\s*[\[(]", line)
        )  # fmt: skip
    m = _TAIL.search(line)
    assert m is not None
    if m.group(1):
        return members(document, m.group(1).rstrip("."), offset)
    if line[: m.start()].endswith("."):  # behind a call or an index
        return listed(ARRAY_MEMBERS, "member")
    found = (*keyword_arguments(document, offset), *everything(document, offset))
    if _ANNOTATION.match(line) and not _HEADER.match(line):
        found = (*listed(QUALIFIERS), *sorted(found, key=lambda c: c.kind != "type"))
    if len(found) > LIMIT and m.group(2):
        found = tuple(c for c in found if c.label.lower().startswith(m.group(2)[0].lower()))
    if (word := m.group(2)) and len(word) > 1:
        found = (*found[: LIMIT - auto_import.MOST], *not_imported(document, word, found))
    elif not line[: m.start()].strip():
        found = (*found[: LIMIT - 10], *pieces(line))
    return found[:LIMIT]


def not_imported(
    document: Document, word: str, found: tuple[Completion, ...]
) -> tuple[Completion, ...]:
    """Names that an import would bring, behind all others."""
    modules = tuple(m for m in module_names(document) if m != "std")
    known = {c.label for c in found}
    names = auto_import.importable(document, word, modules, known)
    return tuple(
        Completion(i.name, "function" if i.is_function else "constant", more=i.edit,
                   source=i.module, documentation=f"Imported from `{i.module}`.")
        for i in names
    )  # fmt: skip


def pieces(line: str) -> tuple[Completion, ...]:
    """Snippets that may begin in a line."""
    words = snippets.TOP if not line[:1].isspace() else snippets.INSIDE
    return tuple(
        Completion(label, "snippet", detail, f"```tessera\n{without_places(text)}\n```", text)
        for label, (detail, text) in words.items()
    )


def without_places(text: str) -> str:
    """A snippet as it is before anything is filled in."""
    usual = {m[1]: m[2] for m in re.finditer(r"\$\{(\d+):([^}]*)\}", text)}
    return re.sub(r"\$\{(\d+):[^}]*\}|\$(\d+)", lambda m: usual.get(m[1] or m[2], ""), text)


def line_before(document: Document, offset: int) -> str:
    file = document.file
    line, column = file.position(offset)
    return file.line_text(line)[:column]


def in_comment_or_string(line: str) -> bool:
    """Whether a line ends inside a comment or a one-line string."""
    quote, escaped = "", False
    for c in line:
        if escaped:
            escaped = False
        elif quote:
            escaped = c == "\\"
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c == "#":
            return True
    return bool(quote)


def in_long_string(document: Document, offset: int) -> bool:
    """Whether an offset lies in a string of several lines."""
    nodes = descend(document.module, offset)
    return (
        bool(nodes)
        and isinstance(nodes[-1], ast.StringLit)
        and (nodes[-1].span.lo < offset < nodes[-1].span.hi)
    )


def listed(words: dict[str, str], kind: Kind = "keyword") -> tuple[Completion, ...]:
    return tuple(Completion(n, kind, documentation=t) for n, t in words.items())


def modules(document: Document, typed: str) -> tuple[Completion, ...]:
    """The standard library's modules, and the files beside this one. What is inserted
    replaces the last word only, so that what was typed before its dot is left out."""
    before = typed[: typed.rfind(".") + 1]
    return tuple(
        Completion(n.removeprefix(before), "module")
        for n in module_names(document)
        if n.startswith(before)
    )


def module_names(document: Document) -> list[str]:
    """Every module that can be imported here."""
    names = ["std", *(f"std.{n}" for n in standard_modules())]
    folder = Path(document.path).parent
    if not document.path.startswith("<") and folder.is_dir():
        names += sorted(
            p.stem
            for p in folder.glob("*.tessera")
            if p.stem.isidentifier() and p.name != Path(document.path).name
        )
    return names


def of_symbols(names: dict[str, Symbol], scope: ModuleScope) -> tuple[Completion, ...]:
    """The names of a module that are its own, private ones last."""
    own = [
        of_symbol(n, s)
        for n, s in names.items()
        if not isinstance(s, FunctionSymbol) or s.module == scope.path
    ]
    return tuple(sorted(own, key=lambda c: c.label.startswith("_")))


def of_symbol(name: str, symbol: Symbol) -> Completion:
    match symbol:
        case FunctionSymbol():
            d = symbol.declaration
            parameters = ", ".join(p.name for p in d.parameters)
            return Completion(name, "function", f"({parameters})", d.docstring or "")
        case ModuleSymbol():
            return Completion(name, "module", documentation=help_of(symbol.name))
        case Constant():
            return Completion(name, "constant", f"= {symbol.value}"[:60])
        case _:
            return Completion(name, "variable")


def members(document: Document, dotted: str, offset: int) -> tuple[Completion, ...]:
    """What may follow ``dotted.``."""
    scope = document.scope
    head, *rest = dotted.split(".")
    if head in document.variables(document.function_at(offset)):
        return listed(ARRAY_MEMBERS, "member")
    symbol = scope.lookup(head)
    for name in rest:
        symbol = scope.member(symbol, name) if isinstance(symbol, ModuleSymbol) else None
    if not isinstance(symbol, ModuleSymbol):
        return listed(ARRAY_MEMBERS, "member")
    if symbol.path is not None:
        found = scope.scope_named(symbol.name)
        return () if found is None else of_symbols(found.names, found)
    if symbol.name == "std":
        return tuple(Completion(n, "module") for n in standard_modules())
    names = scope.members(symbol) or MEMBERS.get(symbol.name, ())
    known = (f"{symbol.name}.{n}" for n in names)
    function = document.function_at(offset)
    if function is not None and kernel_decorator(function) is not None:  # lanes have no tiles
        known = (n for n in known if n in FUNCTIONS or later(n) is None)
    constants = {n: s for n in names if isinstance(s := scope.member(symbol, n), Constant)}
    labels = ((n.rpartition(".")[2], n) for n in known)
    return (
        *(of_builtin(label, n) for label, n in labels if label not in constants and is_built(n)),
        *(of_number(n, s) for n, s in constants.items()),
    )


def of_number(name: str, constant: Constant) -> Completion:
    """``math.pi``: a number that every program has."""
    return Completion(name, "constant", f"= {constant.value}", "A compile-time constant.")


def of_builtin(label: str, full: str) -> Completion:
    kind = BUILTINS[full].kind if full in BUILTINS else "function"
    known: dict[str, Kind] = {"dtype": "type", "module": "module", "constant": "constant"}
    shown = known.get(kind, "function")
    detail = signature_of(full) if shown == "function" else ""
    return Completion(label, shown, detail.removeprefix(full), help_of(full))


def everything(document: Document, offset: int) -> tuple[Completion, ...]:
    """Locals first, then the file's names, the language's, keywords."""
    found: dict[str, Completion] = {}
    text = document.file.text
    for name, v in document.variables(document.function_at(offset)).items():
        written = as_written(text, v.annotation.span) if v.annotation is not None else v.kind
        found[name] = Completion(name, "variable", written)
    for name, symbol in document.scope.names.items():
        found.setdefault(name, of_symbol(name, symbol))
    for name in TOP_LEVEL:
        if later(name) is None:
            found.setdefault(name, of_builtin(name, name))
    return in_order(found.values())


def keyword_arguments(document: Document, offset: int) -> tuple[Completion, ...]:
    """Parameters of the call around an offset that have no argument, where one begins."""
    call = called(document, offset)
    if call is None or not call.begins:
        return ()
    return tuple(
        Completion(f"{name}=", "variable", written if written != f"{name}=" else "", call.label)
        for name, written in call.parameters
        if name not in call.given and name.isidentifier()
    )


def as_written(text: str, span: Span) -> str:
    return text[span.lo : span.hi]


def in_order(found: Iterable[Completion]) -> tuple[Completion, ...]:
    names = {c.label: c for c in found}
    for word in KEYWORDS:
        names.setdefault(word, Completion(word, "keyword", "", help_of_keyword(word) or ""))
    return tuple(names.values())
