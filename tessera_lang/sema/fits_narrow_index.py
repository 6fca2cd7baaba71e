"""Small ranges of index values: whether one surely fits a narrower type.

Owns only what is plain from the expression itself: literals, ids with a known bound, and
sums of these. The real range analysis works on the IR.
"""

from __future__ import annotations

import math

from tessera_lang.sema.context import Context
from tessera_lang.sema.side_tables import Builtin
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DType, integer_range

Range = tuple[int, int]
MOST_DEPTH = 8


def fits_by_range(c: Context, e: ast.Expr, dtype: DType) -> bool:
    """Whether an index expression is proved to fit an integer type."""
    if not dtype.is_integer:
        return False
    found = _range(c, e, MOST_DEPTH)
    low, high = integer_range(dtype)
    return found is not None and low <= found[0] and found[1] <= high


def _range(c: Context, e: ast.Expr, depth: int) -> Range | None:
    if depth == 0:
        return None
    value = c.try_value(e)
    if isinstance(value, int) and not isinstance(value, bool):
        return value, value
    match e:
        case ast.Call(function=ast.Name(id=name)) if c.name_symbol(name) == Builtin(name):
            return _id_range(c, name, e)
        case ast.Binary(operator="+"):
            a, b = _range(c, e.left, depth - 1), _range(c, e.right, depth - 1)
            return None if a is None or b is None else (a[0] + b[0], a[1] + b[1])
        case ast.Binary(operator="%"):
            b = _range(c, e.right, depth - 1)
            return (0, b[1] - 1) if b is not None and b[0] > 0 else None
        case _:
            return None


def _id_range(c: Context, name: str, e: ast.Call) -> Range | None:
    lanes = math.prod(c.group) if c.group else 1024
    match name:
        case "tile_linear_id":
            return 0, lanes - 1
        case "group_tile_count":
            return lanes, lanes
        case "lane_id":
            return 0, 31
        case "warp_id":
            return 0, (lanes - 1) // 32
        case "tile_id":
            axis = c.try_value(e.arguments[0]) if e.arguments else None
            if isinstance(axis, int) and 0 <= axis < len(c.group):
                return 0, c.group[axis] - 1
            return 0, lanes - 1
        case _:
            return None
