"""Arguments of builtin calls, and what of them is known at compile time."""

from __future__ import annotations

from tessera_lang.lower.ast_to_schedule import subscripts
from tessera_lang.lower.ast_to_schedule.state import State
from tessera_lang.lower.ast_to_schedule.value_nodes import Axis, Filled, Node
from tessera_lang.lower.ast_to_tile.context import Unsupported
from tessera_lang.sema.builtins import TILE_FUNCTIONS
from tessera_lang.sema.side_tables import Builtin
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import INDEX
from tessera_lang.types.type import Tile


def argument(s: State, e: ast.Call, name: str) -> ast.Expr | None:
    """The argument of a builtin for one of its parameters."""
    symbol = s.typed.symbols.get(e.function)
    given = s.typed.arguments.get(e)
    if isinstance(symbol, Builtin) and given is not None and symbol.name in TILE_FUNCTIONS:
        names = TILE_FUNCTIONS[symbol.name].parameters
        if name in names and names.index(name) < len(given):
            return given[names.index(name)]
        return None
    keyword = next((k.value for k in e.keywords if k.name == name), None)
    return keyword or (e.arguments[0] if name in ("x", "a") and e.arguments else None)


def needed(s: State, e: ast.Call, name: str) -> ast.Expr:
    found = argument(s, e, name)
    if found is None:
        raise Unsupported(e.span, f"this call without `{name}`")
    return found


def known(s: State, e: ast.Expr | None, default: object = None) -> object:
    """A value that is known at compile time."""
    if e is None:
        return default
    if e in s.typed.constants:
        return s.typed.constants[e]
    if isinstance(e, ast.IntLit | ast.FloatLit | ast.StringLit | ast.BoolLit):
        return e.value
    if isinstance(e, ast.Unary) and e.operator == "-":
        inner = known(s, e.operand)
        return -inner if isinstance(inner, int | float) else default
    return default


def axis_of(s: State, e: ast.Call, rank: int, default: int | None) -> int | None:
    given = argument(s, e, "axis")
    value = known(s, given, default) if given is not None else default
    return value % rank if isinstance(value, int) else None


def axes_of(s: State, e: ast.Call, rank: int) -> tuple[int, ...] | None:
    """The axes that ``axis=`` names, in order; None where it names none."""
    given = argument(s, e, "axis")
    if given is None or isinstance(given, ast.NoneLit):
        return None
    items = given.items if isinstance(given, ast.TupleExpr) else (given,)
    found = [known(s, item) for item in items]
    return tuple(sorted(axis % rank for axis in found if isinstance(axis, int)))


def index_node(s: State, e: ast.Expr) -> Node:
    return Filled(subscripts.number(s, e), INDEX, ())


def axes_of_result(s: State, e: ast.Call) -> tuple[Axis, ...]:
    """The axes that the checker gave the tile that a call makes."""
    t = s.typed.types.get(e)
    if not isinstance(t, Tile):
        raise Unsupported(e.span, "this call as a number")
    return tuple(s.axis(a) for a in t.axes)
