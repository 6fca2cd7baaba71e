"""Semantic tokens: what each name is, for colours that the text alone cannot give."""

from __future__ import annotations

from tessera_lang.record import dataclass, field
from tessera_lang.sema.side_tables import (
    Builtin,
    Constant,
    FunctionSymbol,
    ModuleSymbol,
    Symbol,
    TypedFunction,
)
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DTYPES
from tessera_lang.types.type import Buffer, Tensor, Type
from tessera_lsp.ide.document import Document
from tessera_lsp.ide.symbols import is_kernel
from tessera_lsp.ide.tree import Node, dotted_name, walk
from tessera_lsp.ide.variables import Variable

TYPES: tuple[str, ...] = (
    "namespace", "type", "parameter", "variable", "function", "keyword", "decorator", "property",
)  # fmt: skip
MODIFIERS: tuple[str, ...] = (
    "declaration", "readonly", "defaultLibrary", "kernel", "shared", "mutable",
)  # fmt: skip


Look = tuple[str, tuple[str, ...]]  # type and modifiers


@dataclass(frozen=True, slots=True)
class Token:
    """A name of ``length`` characters at an absolute ``offset``."""

    offset: int
    length: int
    type: str
    modifiers: tuple[str, ...] = ()


@dataclass(slots=True)
class Kept:
    """Tokens of a statement and what they follow from besides its tree."""

    instances: tuple[TypedFunction, ...]
    looks: dict[tuple[str, ...], Look | None] = field(
        default_factory=dict[tuple[str, ...], "Look | None"]
    )
    tokens: list[tuple[Span, int, Look]] = field(default_factory=list[tuple[Span, int, Look]])

    def holds(self, document: Document, instances: tuple[TypedFunction, ...]) -> bool:
        if len(instances) != len(self.instances) or any(
            a is not b for a, b in zip(instances, self.instances, strict=True)
        ):
            return False
        return all(look_of(document.resolve(n)) == look for n, look in self.looks.items())


def tokens(document: Document) -> tuple[Token, ...]:
    """All tokens of a file in order, none overlapping."""
    found: list[Token] = []
    kept = document.memory.tokens
    for statement in document.module.body:
        function = statement if isinstance(statement, ast.FunctionDef) else None
        instances = tuple(document.instances_of(function))
        known = kept.get(statement)
        if not isinstance(known, Kept) or not known.holds(document, instances):
            known = _Statement(document, statement, function, instances).tokens()
        kept[statement] = known
        found.extend(Token(span.lo, length, *look) for span, length, look in known.tokens)
    document.memory.keep_only(document.module)
    return ordered(found)


def ordered(found: list[Token]) -> tuple[Token, ...]:
    """Sorted by place; of two at one place the first found stays."""
    out: list[Token] = []
    end = 0
    for token in sorted(found, key=lambda t: t.offset):
        if token.length > 0 and token.offset >= end:
            out.append(token)
            end = token.offset + token.length
    return tuple(out)


class _Statement:
    """Finds the tokens of one top-level statement."""

    def __init__(
        self, document: Document, top: ast.Stmt, function: ast.FunctionDef | None,
        instances: tuple[TypedFunction, ...],
    ) -> None:  # fmt: skip
        self.document = document
        self.top = top
        self.variables = document.variables(function)
        self.types: dict[str, Type] = {}
        for instance in reversed(instances):
            self.types |= {local.name: t for local, t in instance.variables.items()}
            self.types |= {
                local.name: t
                for local, t in zip(instance.parameters, instance.parameter_types, strict=False)
            }
        self.kept = Kept(instances)

    def tokens(self) -> Kept:
        for node in (self.top, *walk(self.top)):
            self.add(node)
        return self.kept

    def put(self, span: Span, look: Look | None, length: int | None = None) -> None:
        if look is not None and span.end > span.start:  # else the text does not have it
            self.kept.tokens.append(
                (span, span.end - span.start if length is None else length, look)
            )

    def add(self, node: Node) -> None:
        match node:
            case ast.Name(span, name):
                self.put(span, self.of_name(node, span, name))
            case ast.Attribute(name_span=span):
                self.put(span, self.of_outer(node) or ("property", ()))
            case ast.FunctionDef(name_span=span):
                self.put(span, ("function", ("declaration", *kernel_of(node))))
            case ast.Parameter(name=name, name_span=span):
                self.put(span, self.of_variable(self.variables.get(name), "declaration"))
            case ast.Keyword(name_span=span):
                self.put(span, ("parameter", ()))
            case ast.Decorator(value=ast.Name(span=span)):
                self.put(span, ("decorator", ()))
            case ast.Clause(span, name):
                self.put(span, ("keyword", ()), len(name))
            case ast.TypeExpr(span, qualifier) if qualifier:
                self.put(span, ("keyword", ()), len(qualifier))
            case _:
                pass

    def of_name(self, node: ast.Name, span: Span, name: str) -> Look | None:
        variable = self.variables.get(name)
        if variable is None:
            return self.of_outer(node)
        return self.of_variable(variable, *(("declaration",) if span == variable.span else ()))

    def of_outer(self, node: ast.Name | ast.Attribute) -> Look | None:
        """A name from outside of the function."""
        names = dotted_name(node)
        if names is None or names[0] in self.variables:
            return None
        if names not in self.kept.looks:
            self.kept.looks[names] = look_of(self.document.resolve(names))
        return self.kept.looks[names]

    def of_variable(self, variable: Variable | None, *modifiers: str) -> Look:
        if variable is None:  # of a lambda, or a name given twice
            return "parameter", modifiers
        if variable.kind in ("size", "compile-time parameter"):
            return "parameter", (*modifiers, "readonly")
        kind = "parameter" if variable.kind == "parameter" else "variable"
        annotation = variable.annotation
        match self.types.get(variable.name):
            case Buffer():
                return kind, (*modifiers, "shared")
            case Tensor(mut=True):
                return kind, (*modifiers, "mutable")
            case None if annotation is not None and annotation.qualifier == "mut":
                return kind, (*modifiers, "mutable")
            case _:
                return kind, modifiers


def kernel_of(declaration: ast.FunctionDef) -> tuple[str, ...]:
    return ("kernel",) if is_kernel(declaration) else ()


def look_of(symbol: Symbol | None) -> Look | None:
    match symbol:
        case Builtin(full) if full in DTYPES:
            return "type", ("defaultLibrary",)
        case Builtin():
            return "function", ("defaultLibrary",)
        case FunctionSymbol(declaration=declaration):
            return "function", kernel_of(declaration)
        case ModuleSymbol():
            return "namespace", ()
        case Constant():
            return "variable", ("readonly",)
        case None:
            return None
        case _:
            return "variable", ()
