"""Expressions of a kernel's head: the grid, and the facts behind ``where``.

Owns their reading as sizes. Must not know how a launch computes them.
"""

from __future__ import annotations

from typing import cast

from tessera_lang.diagnostics.diagnostic import Label
from tessera_lang.sema.bound_names import expressions
from tessera_lang.sema.context import Context
from tessera_lang.sema.kernel_clauses import MOST_AXES
from tessera_lang.sema.parameters import Parameters
from tessera_lang.sema.side_tables import Constant, Local
from tessera_lang.sema.sizes import BadSize, read_size
from tessera_lang.syntax import ast
from tessera_lang.syntax.dump import source_text
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
            found = _constant_sizes(c, e) or (head_size(c, e),)
        except BadSize as bad:
            c.report("T0303", bad.reason, bad.span)
            return None
        for dim in found:
            if isinstance(dim, int) and dim < 0:
                c.report("T0304", f"a grid cannot have {dim} groups along an axis", e.span)
        dims.extend(found)
    if len(dims) > MOST_AXES:
        c.report("T0304", f"a grid has 1 to {MOST_AXES} axes, not {len(dims)}", grid[0].span)
    return tuple(dims)


def _constant_sizes(c: Context, e: ast.Expr) -> tuple[int, ...]:
    """The numbers of a constant of the module that is a tuple of them: ``grid[GRID]``."""
    symbol = c.name_symbol(e.id) if isinstance(e, ast.Name) else None
    value: object = symbol.value if isinstance(symbol, Constant) else None
    if not isinstance(value, tuple):
        return ()
    numbers = cast("tuple[object, ...]", value)
    found = tuple(n for n in numbers if type(n) is int)
    return found if len(found) == len(numbers) else ()


def check_conditions(c: Context) -> tuple[ast.Expr, ...]:
    """The ``where`` clauses that the launch decides, whose every comparison is one of sizes or is
    known. One that is known to be false for this signature is reported with what it speaks of."""
    left: list[ast.Expr] = []
    for e in c.declaration.where:
        if not _check(c, e):
            continue
        c.infer(e)
        known = decided(c, e)
        if known is False:
            c.report(
                "T0838", f"`{c.declaration.name}` requires this, and here it does not hold", e.span,
                notes=_values(c, e),
            )  # fmt: skip
        elif known is None:
            left.append(e)
    return tuple(left)


def _check(c: Context, e: ast.Expr) -> bool:
    """Whether a condition is made of what a launch knows; reports what is not."""
    match e:
        case ast.BoolOp():
            good = [_check(c, v) for v in e.values]
            return all(good)
        case ast.Unary(operator="not"):
            return _check(c, e.operand)
        case _:
            pass
    if _truth(c, e) is not None:
        return True
    if not isinstance(e, ast.Compare) or any(o not in _COMPARISONS for o in e.operators):
        c.report(
            "T0313", "a `where` condition compares sizes, or is known at compile time", e.span,
            helps=("write `where n % 4 == 0` or `where x.dtype == f32`; `and`, `or`, `not` join",),
        )  # fmt: skip
        return False
    good = True
    for part in (e.first, *e.rest):
        try:
            head_size(c, part)
        except BadSize as bad:
            c.report("T0313", bad.reason, bad.span)
            good = False
    return good


def _truth(c: Context, e: ast.Expr) -> bool | None:
    """What a condition is at compile time: of dtypes, ranks, compile-time values."""
    if not isinstance(e, (ast.Compare, ast.Name, ast.Attribute, ast.BoolLit)):
        return None
    if isinstance(e, ast.Compare) and not all(_is_known(c, x) for x in (e.first, *e.rest)):
        return None
    c.infer(e)
    value = c.try_value(e)
    return value if isinstance(value, bool) else None


def _is_known(c: Context, e: ast.Expr) -> bool:
    """Whether it is no size of this call; sizes meet as sizes, whatever literals say of types."""
    match e:
        case ast.Attribute(name="dtype" | "ndim"):
            return True
        case ast.Name():
            return not isinstance(c.name_symbol(e.id), Local)
        case ast.IntLit() | ast.FloatLit() | ast.BoolLit() | ast.StringLit():
            return True
        case ast.TupleExpr():
            return all(_is_known(c, x) for x in e.items)
        case ast.Unary():
            return _is_known(c, e.operand)
        case ast.Binary():
            return _is_known(c, e.left) and _is_known(c, e.right)
        case _:
            return False


def decided(c: Context, e: ast.Expr) -> bool | None:
    """The truth of a condition where the signature decides it."""
    match e:
        case ast.BoolOp():
            found = [decided(c, v) for v in e.values]
            ends = e.operator == "or"
            if ends in found:
                return ends
            return None if None in found else not ends
        case ast.Unary(operator="not"):
            inner = decided(c, e.operand)
            return None if inner is None else not inner
        case _:
            return _truth(c, e)


def _values(c: Context, e: ast.Expr) -> tuple[str, ...]:
    """What the names of a condition are worth, each once."""
    found: dict[str, str] = {}
    for part in expressions(e):
        if isinstance(part, ast.Attribute) and part.name in ("dtype", "ndim"):
            found.setdefault(source_text(part), str(c.try_value(part)))
        elif isinstance(part, ast.Name) and part.id in c.compile_time:
            found.setdefault(part.id, str(c.compile_time[part.id].value))
    return tuple(f"`{name}` is `{value}`" for name, value in found.items())
