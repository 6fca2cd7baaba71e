"""Where a name occurs: references, what is written and what is read, renaming.

Owns which occurrences are of one thing. Names that a lambda or a comprehension binds are left out.
Must not know LSP.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tessera_grammar.keywords import KEYWORDS

from tessera_lang.diagnostics import Edit, TesseraError
from tessera_lang.driver.modules import standard_library
from tessera_lang.record import dataclass
from tessera_lang.sema.side_tables import Constant, FunctionSymbol, ModuleVariable, Symbol
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lsp.ide.document import Document
from tessera_lsp.ide.tree import Node, children, names_written, targets, walk

Thing = tuple[str, ast.FunctionDef | None, str]
"""What a name means: the file of its declaration, the function of a local, the name there."""


class NotRenamed(Exception):
    """Why a name keeps its name."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """``name``: as it is written here; an import may give another. ``writes``: it is declared or
    assigned."""

    thing: Thing
    span: Span
    name: str
    writes: bool


def occurrences(document: Document) -> Iterator[Occurrence]:
    """Every name of a file that is declared in some file of Tessera."""
    for statement in document.module.body:
        function = statement if isinstance(statement, ast.FunctionDef) else None
        written = _written(statement)
        if function is not None:
            thing = (document.path, None, function.name)
            yield Occurrence(thing, function.name_span, function.name, True)
        pending: list[tuple[Node, frozenset[str], Node | None]] = [(statement, frozenset(), None)]
        while pending:
            node, bound, above = pending.pop()
            bound |= _binds(node)
            found = _of_node(document, node, above, function, bound)
            if found is not None:
                thing, span, name = found
                yield Occurrence(thing, span, name, node in written)
            pending.extend((c, bound, node) for c in children(node))


def _binds(node: Node) -> frozenset[str]:
    match node:
        case ast.Lambda(parameters=parameters):
            return frozenset(p.name for p in parameters)
        case ast.Comprehension(target=target):
            return frozenset(n.id for n in (target, *walk(target)) if isinstance(n, ast.Name))
        case _:
            return frozenset()


def _written(statement: ast.Stmt) -> set[Node]:
    """The names of a statement, and parameters, that are given a value."""
    found: set[Node] = {n for _, target in targets(statement) for n in names_written(target)}
    return found | {n for n in walk(statement) if isinstance(n, ast.Parameter)}


def _of_node(
    document: Document, node: Node, above: Node | None, function: ast.FunctionDef | None,
    bound: frozenset[str],
) -> tuple[Thing, Span, str] | None:  # fmt: skip
    match node:
        case ast.Name(span, name) if name not in bound:
            if name in document.variables(function):
                return (document.path, function, name), span, name
            return _with(_thing(document, document.symbol(node, function)), span, name)
        case ast.Attribute(name=name, name_span=span):
            return _with(_thing(document, document.symbol(node, function)), span, name)
        case ast.Parameter(name=name, name_span=span) if not isinstance(above, ast.Lambda):
            return (document.path, function, name), span, name
        case ast.Keyword(name=name, name_span=span) if isinstance(above, ast.Call):
            symbol = document.symbol(above.function, function)
            if not isinstance(symbol, FunctionSymbol):
                return None
            return (symbol.module, symbol.declaration, name), span, name
        case ast.ImportedName(span, name, alias) if isinstance(above, ast.FromImport):
            thing = _thing(document, document.scope.names.get(alias or name))
            return _with(thing, Span(span.anchor, span.start, span.start + len(name)), name)
        case _:
            return None


def _with(thing: Thing | None, span: Span, name: str) -> tuple[Thing, Span, str] | None:
    return None if thing is None else (thing, span, name)


def _thing(document: Document, symbol: Symbol | None) -> Thing | None:
    match symbol:
        case FunctionSymbol():
            return symbol.module, None, symbol.declaration.name
        case Constant(span=Span() as span) | ModuleVariable(span=Span() as span):
            try:
                text = document.session.source(span.file).text
            except TesseraError:
                return None
            return span.file, None, text[span.lo : span.hi]
        case _:
            return None


def at(document: Document, offset: int) -> Occurrence | None:
    """The name at an offset."""
    touching = (o for o in occurrences(document) if o.span.lo <= offset <= o.span.hi)
    return next(touching, None)


def references(document: Document, thing: Thing, files: Iterable[str]) -> Iterator[Occurrence]:
    """Every occurrence of a thing in a file and in others, by file."""
    wanted = thing[2]
    for path in dict.fromkeys((document.path, thing[0], *files)):
        other = document if path == document.path else Document(document.session, path)
        try:
            if wanted in other.file.text:  # where it has another name it is imported by its own
                yield from (o for o in occurrences(other) if o.thing == thing)
        except (TesseraError, RecursionError):
            continue


def declares(document: Document, o: Occurrence) -> bool:
    """Whether an occurrence is the one that declares its thing."""
    path, function, name = o.thing
    if o.span.file != path or not o.writes:
        return False
    own = document if path == document.path else Document(document.session, path)
    span: Span | None = None
    if function is not None:
        variable = own.variables(function).get(name)
        span = None if variable is None else variable.span
    else:
        match own.scope.names.get(name):
            case FunctionSymbol(declaration=d):
                span = d.name_span
            case Constant(span=at) | ModuleVariable(span=at):
                span = at
            case _:
                pass
    return span is not None and span.lo == o.span.lo


def prepared(document: Document, offset: int) -> Occurrence:
    """The name at an offset, which can be renamed. Raises NotRenamed."""
    found = at(document, offset)
    if found is None:
        raise NotRenamed("here is no name that a file of yours declares")
    path, _, name = found.thing
    library = standard_library()
    if path.startswith("<") and path != document.path or library and path.startswith(library):
        raise NotRenamed(f"`{name}` belongs to the standard library")
    if found.name != name:
        raise NotRenamed(f"`{found.name}` is a name that an import gives: rename it there by hand")
    return found


def renamed(document: Document, offset: int, new: str, files: Iterable[str]) -> list[Edit]:
    """The edits that give the name at an offset another name. Raises NotRenamed."""
    thing = prepared(document, offset).thing
    if not new.isidentifier() or new in KEYWORDS:
        raise NotRenamed(f"`{new}` is no name")
    found = [o for o in references(document, thing, files) if o.name == thing[2]]
    for path in {o.span.file for o in found}:
        _check_free(Document(document.session, path), thing, new, found)
    return [Edit(o.span, new) for o in found]


def _check_free(document: Document, thing: Thing, new: str, found: list[Occurrence]) -> None:
    """Raises NotRenamed where the new name means something already."""
    own = [o for o in found if o.span.file == document.path]
    _, function, _ = thing
    if function is None and new in document.scope.names:
        raise NotRenamed(f"`{new}` is declared in {document.path} already")
    for statement in document.module.body:
        inside = [o for o in own if statement.span.lo <= o.span.lo <= statement.span.hi]
        if not inside or function is not None and statement is not function:
            continue
        names = {n.id for n in walk(statement) if isinstance(n, ast.Name)}
        names |= {p.name for p in walk(statement) if isinstance(p, ast.Parameter)}
        if new in names:
            raise NotRenamed(f"`{new}` is used where `{thing[2]}` is")
