"""Sizes written in programs: expressions of shapes, grids and conditions as ``Dim``.

Owns the reading of an expression as a size. Must not know how sizes are bound.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.shape import Dim, DimOperator, dim_op

MOST_TERMS = 64

NameSize = Callable[[ast.Name], Dim | None]
AttributeSize = Callable[[ast.Subscript], Dim | None]


class BadSize(Exception):
    """An expression that is no size."""

    def __init__(self, span: Span, reason: str) -> None:
        self.span = span
        self.reason = reason
        super().__init__(reason)


def read_size(e: ast.Expr, name: NameSize, item: AttributeSize = lambda _: None) -> Dim:
    """The size an expression says. ``name`` gives a name's size, ``item`` that of
    ``x.shape[i]``; None where they have none. Raises BadSize.
    """
    return _Reader(name, item).size(e)


class _Reader:
    def __init__(self, name: NameSize, item: AttributeSize) -> None:
        self._name = name
        self._item = item
        self._terms = 0

    def size(self, e: ast.Expr) -> Dim:
        found = self._read(e)
        if isinstance(found, int) and not -(1 << 63) <= found < 1 << 63:
            raise BadSize(e.span, "a size is an integer of 64 bits")
        return found

    def _read(self, e: ast.Expr) -> Dim:
        self._terms += 1
        if self._terms > MOST_TERMS:
            raise BadSize(e.span, f"a size has at most {MOST_TERMS} terms")
        match e:
            case ast.IntLit():
                return e.value
            case ast.Name():
                found = self._name(e)
                if found is None:
                    raise BadSize(e.span, f"`{e.id}` is no size")
                return found
            case ast.Unary(operator="-", operand=ast.IntLit(value=value)):
                return -value
            case ast.Binary(operator="+" | "-" | "*" | "//" | "%" as operator):
                return self._step(e, operator, e.left, e.right)
            case ast.Call(
                function=ast.Name(id="min" | "max" | "ceil_div" as called), arguments=(a, b)
            ):
                return self._step(e, called, a, b)
            case ast.Subscript():
                found = self._item(e)
                if found is not None:
                    return found
            case _:
                pass
        raise BadSize(e.span, "a size is made of names, integers, + - * // %, min, max, ceil_div")

    def _step(self, e: ast.Expr, operator: DimOperator, a: ast.Expr, b: ast.Expr) -> Dim:
        left, right = self.size(a), self.size(b)
        if right == 0 and operator in ("//", "%", "ceil_div"):
            raise BadSize(b.span, "a size divided by 0")
        return dim_op(operator, left, right)
