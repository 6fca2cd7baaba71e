"""Trees of a program made anew: with nodes changed, or with values in the place of names.

Owns the walks over every kind of node. Must not know what is changed, nor why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeGuard, cast

from tessera_lang.record import field_names, replace
from tessera_lang.source import Span
from tessera_lang.syntax import ast


def is_call(e: ast.Expr, name: str) -> TypeGuard[ast.Call]:
    return (isinstance(e, ast.Call) and isinstance(e.function, ast.Name)
            and e.function.id == name and not e.keywords)  # fmt: skip


def free_name(name: str, names: set[str]) -> str:
    """A name that the function does not have."""
    free = next(n for i in range(len(names) + 1) if (n := f"{name}{i or ''}") not in names)
    names.add(free)
    return free


def unwritten(span: Span, name: str) -> ast.Name:
    """A name that the text does not have, at no character of it."""
    return ast.Name(Span(span.anchor, span.start, span.start), name)


def mapped(node: Any, change: Callable[[Any], Any]) -> Any:
    """The tree with nodes changed from below; the same node where nothing is."""
    if isinstance(node, tuple):
        parts = cast("tuple[Any, ...]", node)
        made = tuple(mapped(x, change) for x in parts)
        return parts if all(a is b for a, b in zip(made, parts, strict=True)) else made
    if isinstance(node, (Span, ast.ErrorStmt)) or not field_names(node):
        return node  # names of what cannot be read are what was seen, not values
    chain: list[ast.Binary] = []  # which may be longer than recursion goes
    while isinstance(node, ast.Binary):
        chain.append(node)
        node = node.left
    found = _changed(node, change)
    for binary in reversed(chain):
        right = mapped(binary.right, change)
        same = found is binary.left and right is binary.right
        found = binary if same else replace(binary, left=found, right=right)
    return found


def _changed(node: Any, change: Callable[[Any], Any]) -> Any:
    new: dict[str, Any] = {}
    for name in field_names(node):
        old = getattr(node, name)
        made = mapped(old, change)
        if made is not old:
            new[name] = made
    return change(replace(node, **new) if new else node)


def nodes(node: Any) -> Iterator[Any]:
    """All nodes of a tree, from the root on."""
    if isinstance(node, tuple):
        for part in cast("tuple[Any, ...]", node):
            yield from nodes(part)
    elif not isinstance(node, Span) and (names := field_names(node)):
        yield node
        for n in names:
            yield from nodes(getattr(node, n))


def copied(node: Any) -> Any:
    return with_values(node, {})


def with_values(node: Any, values: dict[str, ast.Expr]) -> Any:
    """A copy of a tree, every node of it new, with values in the place of names."""
    if isinstance(node, tuple):
        return tuple(with_values(x, values) for x in cast("tuple[Any, ...]", node))
    if isinstance(node, Span):
        return node
    if isinstance(node, ast.ErrorStmt):  # its names are what was seen, not values
        return ast.ErrorStmt(node.span, copied(node.names))
    chain: list[ast.Binary] = []
    while isinstance(node, ast.Binary):
        chain.append(node)
        node = node.left
    if isinstance(node, ast.Name) and node.id in values:
        found = with_values(values[node.id], {})
    else:
        names = field_names(node)
        found = (
            type(node)(*(with_values(getattr(node, n), values) for n in names)) if names else node
        )
    for b in reversed(chain):
        found = ast.Binary(b.span, b.operator, b.operator_span, found, with_values(b.right, values))
    return found
