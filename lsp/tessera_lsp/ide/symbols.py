"""The outline of a file: kernels, functions, constants."""

from __future__ import annotations

from typing import Literal

from tessera_lang.record import dataclass
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lsp.ide.document import Document


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    kind: Literal["kernel", "function", "variable"]
    detail: str
    span: Span
    name_span: Span


def is_kernel(d: ast.FunctionDef) -> bool:
    """Whether a decorator makes it a kernel of any level."""
    for decorator in d.decorators:
        match decorator.value:
            case ast.Name(id="kernel") | ast.Attribute(name="kernel"):
                return True
            case _:
                continue
    return False


def outline(document: Document) -> tuple[Entry, ...]:
    """Entries in the order of the file."""
    entries: list[Entry] = []
    text = document.file.text
    seen: set[str] = set()
    for statement in document.module.body:
        match statement:
            case ast.FunctionDef(name=name) if name:  # a client refuses an entry without one
                parameters = ", ".join(p.name for p in statement.parameters)
                kind = "kernel" if is_kernel(statement) else "function"
                entries.append(
                    Entry(
                        statement.name, kind, f"({parameters})", statement.span, statement.name_span
                    )
                )
            case ast.Assign(target=ast.Name(id=name) as target) if name not in seen:
                seen.add(name)
                value = text[statement.value.span.lo : statement.value.span.hi]
                entries.append(Entry(name, "variable", value[:60], statement.span, target.span))
            case _:
                continue
    return tuple(entries)
