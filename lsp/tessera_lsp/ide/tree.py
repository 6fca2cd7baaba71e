"""The tree of a file: what is below a node, what holds an offset, what is given a value.

Must not know names or types.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import cast

from tessera_lang.syntax import ast

Node = (
    ast.Expr | ast.Stmt | ast.Parameter | ast.TypeExpr | ast.Decorator | ast.Clause | ast.Keyword
    | ast.ImportedName
)  # fmt: skip


@cache
def _slots(kind: type) -> tuple[str, ...] | None:
    """The fields of a kind of node that can hold nodes; None for what is no node."""
    if kind.__module__ != ast.__name__:
        return None
    slots = cast("tuple[str, ...]", getattr(kind, "__slots__", ()))
    plain = ("span", "name_span", "operator_span", "signature_span", "module_span")
    return tuple(s for s in slots if s not in plain)


def children(node: object) -> Iterator[Node]:
    """The nodes directly below one, in order of the fields."""
    for slot in _slots(cast("type", type(node))) or ():
        value: object = getattr(node, slot)
        items = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
        for item in items:
            if _slots(type(item)) is not None:
                yield cast("Node", item)


def descend(module: ast.Module, offset: int) -> tuple[Node, ...]:
    """The nodes that hold an offset, outermost first; one that ends there counts last."""
    path: list[Node] = []
    below: object = module
    while True:
        touching = [c for c in children(below) if c.span.lo <= offset <= c.span.hi]
        if not touching:
            return tuple(path)
        below = next((c for c in touching if offset < c.span.hi), touching[-1])
        path.append(below)


def walk(node: object) -> Iterator[Node]:
    """All nodes below one; no recursion, since operator chains can be long."""
    stack = list(children(node))[::-1]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(list(children(node))[::-1])


def targets(node: Node) -> Iterator[tuple[Node, ast.Expr]]:
    """The statements of a node that give something a value, each with what gets it."""
    for n in (node, *walk(node)):
        match n:
            case (
                ast.Assign(target=target)
                | ast.AugmentedAssign(target=target)
                | ast.AnnotatedAssign(target=target)
                | ast.For(target=target)
                | ast.With(target=target)
            ) if target is not None:
                yield n, target
            case _:
                continue


def names_written(target: ast.Expr, elements: bool = True) -> Iterator[ast.Name]:
    """The names that a target gives a value; with ``elements`` those of which it gives elements
    one."""
    match target:
        case ast.Name():
            yield target
        case ast.TupleExpr(items=items):
            for item in items:
                yield from names_written(item, elements)
        case ast.Subscript(value=value) if elements:
            yield from names_written(value, elements)
        case _:
            return


def dotted_name(node: object) -> tuple[str, ...] | None:
    """``a.b.c`` as its words; None for what is no such chain."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.name)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else None
