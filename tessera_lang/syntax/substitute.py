"""An expression with arguments in the place of its names.

Owns the copy of a tree at another place of the text. Must not know what names mean.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

from tessera_lang.record import field_names
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.syntax.parser import parse_expression

Place = Callable[[str, ast.Expr], ast.Expr]
"""What stands for a parameter that is used several times, given its name and the argument."""


@cache
def parsed(text: str) -> ast.Expr:
    found, problems = parse_expression(text)
    assert found is not None, problems
    return found


def as_array(e: ast.Expr) -> ast.Expr:
    """``op.array(e)``."""
    return ast.Call(e.span, ast.Attribute(e.span, ast.Name(e.span, "op"), "array", e.span), (e,))


def substituted(
    text: str, arguments: Mapping[str, ast.Expr], span: Span, several: Place
) -> ast.Expr:
    """The expression of a text, every node new and at ``span``, but for the arguments, which stay
    where they are. ``op.inf`` is an infinite number."""
    root = parsed(text)
    uses = Counter(n.id for n in _nodes(root) if isinstance(n, ast.Name) and n.id in arguments)

    def copy(node: Any) -> Any:
        if isinstance(node, tuple):
            return tuple(copy(x) for x in cast("tuple[Any, ...]", node))
        if isinstance(node, Span):
            return span
        if isinstance(node, ast.Name) and node.id in arguments:
            given = arguments[node.id]
            return given if uses[node.id] == 1 else several(node.id, given)
        if isinstance(node, ast.Attribute) and node.name == "inf":
            return ast.FloatLit(span, math.inf)
        names = field_names(node)
        return type(node)(*(copy(getattr(node, n)) for n in names)) if names else node

    return copy(root)


def _nodes(node: Any) -> list[Any]:
    if isinstance(node, tuple):
        return [x for part in cast("tuple[Any, ...]", node) for x in _nodes(part)]
    names = () if isinstance(node, Span) else field_names(node)
    return [node, *(x for n in names for x in _nodes(getattr(node, n)))] if names else []
