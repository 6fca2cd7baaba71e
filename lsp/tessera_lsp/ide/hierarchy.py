"""Who calls a function, and what it calls. Must not know LSP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tessera_lang.diagnostics import TesseraError
from tessera_lang.record import dataclass, field
from tessera_lang.sema.side_tables import FunctionSymbol
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lsp.ide import occurrences
from tessera_lsp.ide.document import Document
from tessera_lsp.ide.tree import walk


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A function; without a declaration the top level of its file."""

    path: str
    declaration: ast.FunctionDef | None


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """The other side of calls, and where they stand in the file of the caller."""

    item: Item
    places: list[Span] = field(default_factory=list[Span])


def item_at(document: Document, offset: int) -> Item | None:
    """The function that a name at an offset means."""
    found = occurrences.at(document, offset)
    if found is None or found.thing[1] is not None:
        return None
    return item_named(document, found.thing[0], found.thing[2])


def item_named(document: Document, path: str, name: str) -> Item | None:
    """A function of a file; the empty name is its top level."""
    own = document if path == document.path else Document(document.session, path)
    if not name:
        return Item(path, None)
    declarations = (f for f in own.module.functions if f.name == name)
    declaration = next(declarations, None)
    return None if declaration is None else Item(path, declaration)


def outgoing(document: Document, item: Item) -> list[Calls]:
    """What a function calls, in the order of the text. ``document``: of its file."""
    found: dict[ast.FunctionDef, Calls] = {}
    for place, symbol in _calls(document, item.declaration):
        known = found.setdefault(symbol.declaration, Calls(Item(symbol.module, symbol.declaration)))
        known.places.append(place)
    return list(found.values())


def incoming(document: Document, item: Item, files: Iterable[str]) -> list[Calls]:
    """Where a function is called, by file and function."""
    wanted = item.declaration
    if wanted is None:
        return []
    found: list[Calls] = []
    for path in dict.fromkeys((document.path, item.path, *files)):
        other = document if path == document.path else Document(document.session, path)
        try:
            if path != item.path and not _may_call(other, wanted):
                continue
            for function in (None, *other.module.functions):
                places = [p for p, s in _calls(other, function) if s.declaration is wanted]
                if places:
                    found.append(Calls(Item(path, function), places))
        except (TesseraError, RecursionError):
            continue
    return found


def _may_call(document: Document, wanted: ast.FunctionDef) -> bool:
    return wanted.name in document.file.text


def _calls(
    document: Document, function: ast.FunctionDef | None
) -> Iterator[tuple[Span, FunctionSymbol]]:
    """The calls of functions of files, in a function or at the top level."""
    body = (
        [s for s in document.module.body if not isinstance(s, ast.FunctionDef)]
        if function is None else [function]
    )  # fmt: skip
    for statement in body:
        for node in (statement, *walk(statement)):
            if not isinstance(node, ast.Call):
                continue
            called = node.function
            while isinstance(called, ast.Subscript):  # `kernel[(4,)](x)`
                called = called.value
            symbol = document.symbol(called, function)
            if isinstance(symbol, FunctionSymbol):
                span = called.name_span if isinstance(called, ast.Attribute) else called.span
                yield span, symbol
