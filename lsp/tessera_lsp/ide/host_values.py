"""What is known of the variables of the host program, as a check leaves them at its end.

Must not know LSP.
"""

from __future__ import annotations

from typing import cast

from tessera_lang.evaluate.abstract_world import SymbolicArray
from tessera_lang.evaluate.value import Unknown
from tessera_lang.syntax import ast
from tessera_lsp.ide.document import Document
from tessera_lsp.ide.tree import names_written, targets

_LONGEST = 40


def type_of_host(document: Document, name: str) -> str:
    """The type of a top-level variable in words; empty where it is not known."""
    values = document.session.host_values.get(document.path, {})
    return described(values[name]) if name in values else ""


def described(value: object) -> str:
    """A value's type: `f32[9, ?]`, `int`, `(f32[4], int)`; empty where nothing is known."""
    match value:
        case SymbolicArray():
            return str(value)
        case Unknown(kind=kind):
            return "" if kind == "any" else kind
        case bool() | int() | float() | str():
            return type(value).__name__
        case tuple() | list():
            known = cast("tuple[object, ...] | list[object]", value)
            inside, is_tuple = ", ".join(described(v) or "?" for v in known), type(known) is tuple
            if len(inside) > _LONGEST:
                return f"a {'tuple' if is_tuple else 'list'} of {len(known)}"
            return f"({inside})" if is_tuple else f"[{inside}]"
        case _:
            return ""


def given_once(module: ast.Module) -> list[tuple[ast.Name, ast.Assign]]:
    """The top-level variables that one statement gives a value, so that the type at the end is the
    one there."""
    seen: dict[str, list[ast.Name]] = {}
    first: dict[str, ast.Assign] = {}
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef):
            continue
        for node, target in targets(statement):
            for n in names_written(target):
                seen.setdefault(n.id, []).append(n)
                if isinstance(node, ast.Assign) and node is statement:
                    first.setdefault(n.id, node)
    return [(n[0], first[name]) for name, n in seen.items() if len(n) == 1 and name in first]
