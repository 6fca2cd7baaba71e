"""Expressions of a kernel's head: the grid, and the facts behind ``where``.

Owns their reading as sizes. Must not know how a launch computes them.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Label
from tessera_lang.sema.context import Context
from tessera_lang.sema.parameters import Parameters
from tessera_lang.sema.sizes import BadSize, read_size
from tessera_lang.sema.typed import Local
from tessera_lang.syntax import ast
from tessera_lang.types.shape import Dim
from tessera_lang.types.type import Tensor

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def head_size(c: Context, e: ast.Expr) -> Dim:
    """An expression over sizes, shapes and compile-time values. Raises BadSize."""

    def name(n: ast.Name) -> Dim | None:
        symbol = c.name_symbol(n.id)
        if isinstance(symbol, Local):
            if symbol.kind == "size":
                return c.typed.sizes[symbol]
            if symbol.kind == "parameter":
                raise BadSize(n.span, f"`{n.id}` is known only to the lanes: a grid and a condition"
                                      " are made of sizes and compile-time values")  # fmt: skip
            return None
        value = getattr(symbol, "value", None)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def item(s: ast.Subscript) -> Dim | None:
        if not (isinstance(s.value, ast.Attribute) and s.value.name == "shape"):
            return None
        array = s.value.value
        variable = c.variables.get(array.id) if isinstance(array, ast.Name) else None
        axis = s.items[0] if len(s.items) == 1 else None
        if variable is None or not isinstance(variable.type, Tensor):
            return None
        position = axis_of(axis)
        shape = variable.type.shape
        if position is None or not -len(shape) <= position < len(shape):
            return None
        return shape[position]

    return read_size(e, name, item)


def axis_of(e: ast.Expr | None) -> int | None:
    """A literal axis, maybe negative."""
    match e:
        case ast.IntLit():
            return e.value
        case ast.Unary(operator="-", operand=ast.IntLit(value=value)):
            return -value
        case _:
            return None


def read_grid(
    c: Context, grid: tuple[ast.Expr, ...], parameters: Parameters
) -> tuple[Dim, ...] | None:
    """``grid[...]`` as sizes."""
    if parameters.binds_grid:
        bound = next(local for local in parameters.sizes if local.name == "grid_groups")
        c.report(
            "T0308", "the grid is said twice", grid[0].span,
            labels=(Label(bound.span, "`grid_groups` in a shape says it too"),)
            if bound.span else (),
        )  # fmt: skip
        return None
    dims: list[Dim] = []
    for e in grid:
        try:
            dims.append(head_size(c, e))
        except BadSize as bad:
            c.report("T0303", bad.reason, bad.span)
            return None
    return tuple(dims)


def check_conditions(c: Context) -> tuple[ast.Expr, ...]:
    """The ``where`` clauses: comparisons of sizes, ``and`` taken apart."""
    flat: list[ast.Expr] = []
    for e in c.declaration.where:
        flat.extend(_conjuncts(e))
    for e in flat:
        if not isinstance(e, ast.Compare) or any(o not in _COMPARISONS for o in e.operators):
            c.report(
                "T0313", "a `where` condition compares sizes", e.span,
                helps=("write `where n % 4 == 0`",),
            )  # fmt: skip
            continue
        for part in (e.first, *e.rest):
            try:
                head_size(c, part)
            except BadSize as bad:
                c.report("T0313", bad.reason, bad.span)
        c.infer(e)
    return tuple(flat)


def _conjuncts(e: ast.Expr) -> tuple[ast.Expr, ...]:
    if isinstance(e, ast.BoolOp) and e.operator == "and":
        return tuple(x for v in e.values for x in _conjuncts(v))
    return (e,)
