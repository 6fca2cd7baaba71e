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


def own_sizes(function: ast.FunctionDef, s: ast.Stmt) -> frozenset[ast.Name]:
    """Targets that are given what they are anyway: `n = x.shape[0]` or `n = len(x)`, and `m, n =
    x.shape`, of a parameter `x: f32[m, n]`; `n = x.size` where it has one axis."""
    if not isinstance(s, ast.Assign):
        return frozenset()
    target, value, place = s.target, s.value, 0
    if isinstance(value, ast.Call) and isinstance(value.function, ast.Name):
        is_length = value.function.id == "len" and len(value.arguments) == 1
        array = value.arguments[0] if is_length and not value.keywords else None
    elif isinstance(value, ast.Subscript) and len(value.items) == 1:
        array, item = _shape_of(value.value), value.items[0]
        place = item.value if isinstance(item, ast.IntLit) else -1
    elif isinstance(value, ast.Attribute) and value.name == "size":
        array = value.value
    else:
        array = _shape_of(value)
        target = target if isinstance(target, ast.TupleExpr) else ast.NoneLit(s.span)
    dims = next(
        (p.annotation.shape for p in function.parameters
         if isinstance(array, ast.Name) and p.name == array.id and p.annotation is not None), None
    )  # fmt: skip
    if isinstance(value, ast.Attribute) and value.name == "size" and len(dims or ()) != 1:
        return frozenset()
    if isinstance(target, ast.TupleExpr):
        pairs = zip(target.items, dims or (), strict=False)
    else:
        pairs = zip((target,), (dims or ())[place : place + 1] if place >= 0 else (), strict=False)
    return frozenset(
        t for t, dim in pairs
        if isinstance(t, ast.Name) and isinstance(dim, ast.Name) and t.id == dim.id
    )  # fmt: skip


def _shape_of(e: ast.Expr) -> ast.Expr | None:
    return e.value if isinstance(e, ast.Attribute) and e.name == "shape" else None
