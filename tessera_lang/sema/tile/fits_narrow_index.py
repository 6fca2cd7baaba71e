"""Bounds of values of ``index``: whether all of them fit a narrower type.

Owns what is plain from an expression: places, counts, sizes and what is computed from them. A bound
that sizes decide is one for the launch to check. Must not know where a value goes.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from tessera_lang.sema.bound_names import statements, targets
from tessera_lang.sema.inference_types import Term
from tessera_lang.sema.name_values import named_symbol
from tessera_lang.sema.side_tables import Builtin
from tessera_lang.sema.tile.context import Bounds, TileContext
from tessera_lang.sema.tile.launch_promises import promise
from tessera_lang.sema.tile.symbolic import dim_of, shape_dims
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, F32, F64, I32, I64, INDEX, DType, integer_range
from tessera_lang.types.shape import Dim, DimOp, Sym, symbols_of
from tessera_lang.types.type import Scalar, Tensor, Tile, Weak

MOST_DEPTH = 24
_TALLIES = (I32, I64)
"""What counts may be beside ``index``: sums of bools, and floats that were cast to an integer."""
MOST_VALUES = 8
"""Of a variable that takes more values nothing is said: the values may be made of each other, and
each comparison of bounds goes through all that they are made of."""

_KEPT = (
    "op.transpose", "op.reshape", "op.ravel", "op.roll", "op.flip", "op.expand_dims", "op.squeeze",
    "op.broadcast_to", "op.sort", "op.take", "op.repeat", "op.tile", "op.moveaxis", "op.swapaxes",
    "op.max", "op.min", "op.copy", "op.tril", "op.triu", "op.diagonal", "op.take_along_axis",
    "index",
)  # fmt: skip
"""Functions that give elements of their first argument, or 0 where there is none."""


def narrows(c: TileContext, e: ast.Expr, dtype: DType) -> bool:
    """Whether an expression of ``index`` fits an integer type of its place: always, or for the
    sizes that the launch lets pass, which is written down then."""
    if dtype in (F32, F64):
        return is_count(c, e)
    if not dtype.is_integer or dtype == INDEX:
        return False
    low, high = integer_range(dtype)
    if (low, high) == integer_range(INDEX):
        return True
    found = bounds_of(c, e)
    if found is None:
        return False
    facts = c.kernel.facts
    least, most = facts.simplify(found[0]), facts.simplify(found[1])
    above = facts.not_negative(DimOp("-", least, low))
    below = facts.not_negative(DimOp("-", high, most))
    known = [d for d, fits in ((least, above), (most, below)) if not fits and isinstance(d, int)]
    if known or (dtype.bits < 32 and not (above and below)):
        return False
    outside = DimOp("-", low, least), DimOp("-", most, high)
    for fits, beyond in zip((above, below), outside, strict=True):
        if not fits and facts.not_negative(DimOp("-", beyond, 1)):
            return False  # for no size, or for empty arrays alone
    if not above:
        promise(c, low, least, e.span, "<=")
    if not below:
        promise(c, most, high, e.span, "<=")
    return True


def is_count(c: TileContext, e: ast.Expr) -> bool:
    """Whether an expression of ``index`` is made of sizes, places and what loops count: these are
    so small that rounding them changes no more than the operation of floats that they meet."""
    return bounds_of(c, e, data=False) is not None


def learn_bounds(c: TileContext, target: ast.Name, value: ast.Expr | None, term: Term) -> None:
    """A variable takes a value. Its bounds are those of all values that it takes, each of which is
    known without those of the variable itself."""
    found: dict[bool, Bounds | None] = {True: None, False: None}
    if value is not None and (isinstance(term, Weak) or _is_index(term)):
        found = {data: bounds_of(c, value, data=data) for data in found}
    elif value is not None and isinstance(term, (Scalar, Tile)) and term.dtype in _TALLIES:
        found[False] = bounds_of(c, value, data=False)
    _learn(c, target, found)


def learn_places(c: TileContext, e: ast.Expr, target: ast.Expr) -> None:
    """The places that ``op.topk`` gives."""
    if isinstance(e, ast.Call) and e.arguments and isinstance(target, ast.Name):
        bounds = _places(c, shape_dims(c.terms.get(e.arguments[0])))
        _learn(c, target, {True: bounds, False: bounds})


def _learn(c: TileContext, target: ast.Name, found: dict[bool, Bounds | None]) -> None:
    if target.id in {p.name for p in c.declaration.parameters}:
        return  # which has a value of the caller, too
    places = _reaching(c.declaration, target)
    for data, bounds in found.items():
        c.kernel.bounds[(target, c.instance, data)] = bounds
        c.bounds.pop((target.id, data), None)
        if len(places) <= MOST_VALUES:
            parts = [c.kernel.bounds.get((t, c.instance, data)) for t in places]
            joined = _either(c, parts)
            if joined is not None:
                c.bounds[(target.id, data)] = joined


def _reaching(function: ast.FunctionDef, target: ast.Name) -> list[ast.Name]:
    """The assignments whose values what follows ``target`` may see, up to the next one. One that is
    no part of a loop or a branch ends those before it, and is not seen by what stands before it."""
    found: list[ast.Name] = []
    passed = False
    for whole in function.body:
        made = [t for s in statements((whole,)) for t in targets(s)]
        here = [t for t in made if isinstance(t, ast.Name) and t.id == target.id]
        alone = not isinstance(whole, (ast.If, ast.For, ast.While, ast.With))
        if any(t is target for t in here):
            passed = True
        elif alone and passed and here:
            break
        found = here if alone and here else [*found, *here]
    return found


def _is_index(term: Term | None) -> bool:
    return isinstance(term, (Scalar, Tile)) and term.dtype == INDEX


def bounds_of(
    c: TileContext, e: ast.Expr, depth: int = MOST_DEPTH, *, data: bool = True
) -> Bounds | None:
    """Least and greatest value, made of sizes; None where nothing says them. ``data``: numbers of
    narrower types, which may be anything, are taken too."""
    if depth == 0:
        return None
    value = c.try_value(e)
    if isinstance(value, int) and not isinstance(value, bool):
        return value, value
    if e in c.kernel.expanded:
        return bounds_of(c, c.kernel.expanded[e][1], depth - 1, data=data)
    if isinstance(e, ast.Name) and e in c.kernel.stands:
        return bounds_of(c, c.kernel.stands[e], depth - 1, data=data)
    term = c.terms.get(e)
    if isinstance(term, (Scalar, Tile, Tensor)) and term.dtype != INDEX:
        if term.dtype in _TALLIES and not isinstance(term, Tensor):
            found = _of_tally(c, e, depth - 1)
            if found is not None or not data:
                return found
        return integer_range(term.dtype) if data and term.dtype.is_integer else None
    if not isinstance(term, Tile):
        found = _of_dim(c, dim_of(c, e), depth, data)
        if found is not None:
            return found
    if isinstance(e, ast.Name):
        return c.bounds.get((e.id, data))
    return _of_expression(c, e, depth - 1, data)


def _of_tally(c: TileContext, e: ast.Expr, depth: int) -> Bounds | None:
    """Bounds of sums of bools, which are counts though they are numbers, of floats that were cast,
    which floats hold again, and of what is made of them."""
    match e:
        case ast.Call() if _is_cast_float(c, e):
            return integer_range(INDEX)
        case ast.Name():
            return c.bounds.get((e.id, False))
        case ast.Call():
            return _of_call(c, e, depth, False)
        case _:
            return _of_expression(c, e, depth, False)


def _is_cast_float(c: TileContext, e: ast.Call) -> bool:
    """Whether a call casts a float: ``op.floor(x).to(i32)``, ``i32(x)``, ``op.cast(x, i32)``."""
    symbol = named_symbol(c, e.function)
    if isinstance(e.function, ast.Attribute) and e.function.name == "to":
        x: ast.Expr | None = e.function.value
    elif symbol in (Builtin("i32"), Builtin("i64"), Builtin("op.cast"), Builtin("op.astype")):
        x = e.arguments[0] if e.arguments else None
    else:
        return False
    term = c.terms.get(x) if x is not None else None
    return isinstance(term, (Scalar, Tile, Tensor)) and term.dtype.is_float


def _of_expression(c: TileContext, e: ast.Expr, depth: int, data: bool) -> Bounds | None:
    bounds = partial(bounds_of, c, depth=depth, data=data)
    match e:
        case ast.Binary(operator="+" | "-" | "*" | "//" | "%" as operator):
            a, b = bounds(e.left), bounds(e.right)
            return None if b is None else _computed(c, operator, a, b)
        case ast.Binary(operator="&" | "|" | "^" | "<<" | ">>" as operator):
            return _of_bits(c, operator, bounds(e.left), bounds(e.right))
        case ast.Binary(operator="**"):
            a, n = bounds(e.left), c.try_value(e.right)
            found = a
            for _ in range(n - 1 if isinstance(n, int) and 1 <= n <= 8 else 0):
                found = None if a is None or found is None else _computed(c, "*", found, a)
            return found if isinstance(n, int) and 1 <= n <= 8 else None
        case ast.Unary(operator="-" | "~" as operator):
            a, least = bounds(e.operand), 0 if operator == "-" else -1
            return None if a is None else _computed(c, "-", (least, least), a)
        case ast.Conditional():
            return _either(c, [bounds(x) for x in (e.then, e.orelse)])
        case ast.Subscript() if isinstance(c.terms.get(e.value), Tile):
            return _either(c, [(0, 0), bounds(e.value)])
        case ast.Attribute(name="T" | "mT"):
            return bounds(e.value)
        case ast.Call(function=ast.Attribute(name="to", value=x)):
            return bounds(x)
        case ast.Call():
            return _of_call(c, e, depth, data)
        case _:
            return None


def _of_call(c: TileContext, e: ast.Call, depth: int, data: bool) -> Bounds | None:
    bounds = partial(bounds_of, c, depth=depth, data=data)
    symbol = named_symbol(c, e.function)
    if not isinstance(symbol, Builtin) or not (e.arguments or symbol.name == "op.where"):
        return None
    term = c.terms.get(e)
    match symbol.name:
        case "op.arange":
            return _of_arange(c, e)
        case "op.iota" if isinstance(term, Tile):
            return 0, max((a.capacity or 1 for a in term.axes), default=1) - 1
        case "op.argmax" | "op.argmin":  # at least 0, and no further than all elements
            return _places(c, shape_dims(c.terms.get(e.arguments[0])))
        case "op.argsort" if isinstance(term, Tile):
            return _places(c, shape_dims(term))
        case "op.where":
            given = {k.name: k.value for k in e.keywords}
            sides = (*e.arguments[1:], *(given[n] for n in ("a", "b") if n in given))
            return _either(c, [bounds(x) for x in sides])
        case "op.maximum" | "op.minimum" | "op.clamp" | "min" | "max" as name:
            if e.keywords:
                return None
            which = {"op.maximum": "max", "max": "max", "op.clamp": ""}.get(name, "min")
            return _either(c, [bounds(x) for x in e.arguments], which)
        case "op.sum" | "op.cumsum" | "op.trace":
            return _of_sum(c, e.arguments[0], depth, data)
        case "op.cummax" | "op.cummin" if not any(k.name == "exclusive" for k in e.keywords):
            return bounds(e.arguments[0])
        case "op.abs":
            found = bounds(e.arguments[0])
            return None if found is None else _either(
                c, [(0, 0), found, _computed(c, "-", (0, 0), found)], "max")  # fmt: skip
        case "op.concat" | "op.stack" if isinstance(e.arguments[0], ast.TupleExpr | ast.ListExpr):
            return _either(c, [bounds(x) for x in e.arguments[0].items])
        case name if name in _KEPT:
            return _either(c, [(0, 0), bounds(e.arguments[0])])
        case _:
            return None


def _of_sum(c: TileContext, e: ast.Expr, depth: int, data: bool) -> Bounds | None:
    """Bounds of sums of some elements of an array of bools or counts."""
    summed = c.terms.get(e)
    if not isinstance(summed, (Tile, Tensor)):
        return None
    found = (0, 1) if summed.dtype == BOOL else bounds_of(c, e, depth, data=data)
    elements = _places(c, shape_dims(summed))
    if found is None or elements is None:
        return None
    low, high = (c.kernel.facts.simplify(d) for d in found)
    if c.kernel.facts.not_negative(low):
        low = 0
    elif not isinstance(low, int):
        return None
    if not c.kernel.facts.not_negative(high):
        return None
    return DimOp("*", elements[1], low), DimOp("*", elements[1], high)


def _of_arange(c: TileContext, e: ast.Call) -> Bounds | None:
    numbers = [c.kernel.facts.value(dim_of(c, a)) for a in e.arguments]
    known = [n for n in numbers if n is not None]
    if len(known) != len(numbers) or any(k.name != "dtype" for k in e.keywords):
        return None
    if not 1 <= len(known) <= 3 or 0 in known[2:]:
        return None
    count = range(*known)
    return min(count, default=0), max(count, default=0)


def _places(c: TileContext, dims: tuple[Dim | None, ...] | None) -> Bounds | None:
    most: Dim = 1
    for dim in dims or ():
        found = None if dim is None else _of_dim(c, dim, MOST_DEPTH, False)
        if found is None:
            return None
        most = DimOp("*", most, found[1])
    return None if dims is None else (0, most)


# --- of sizes ------------------------------------------------------------------------------


def bounds_of_size(c: TileContext, dim: Dim) -> Bounds | None:
    """Bounds of what names in extents make."""
    return _of_dim(c, dim, MOST_DEPTH, False)


def _of_dim(c: TileContext, dim: Dim, depth: int, data: bool) -> Bounds | None:
    """Bounds of what names in extents make, by those of sizes."""
    dim = c.kernel.facts.resolve(dim)
    if isinstance(dim, int):
        return dim, dim
    if depth == 0:
        return None
    if isinstance(dim, Sym):
        return _of_name(c, dim, depth - 1, data)
    a, b = (_of_dim(c, side, depth - 1, data) for side in (dim.left, dim.right))
    if dim.operator in ("min", "max"):
        return _either(c, [a, b], dim.operator)
    if dim.operator == "ceil_div" or b is None:
        return None
    return _computed(c, dim.operator, a, b)


def _of_name(c: TileContext, dim: Sym, depth: int, data: bool) -> Bounds | None:
    if dim.name in c.kernel.origins:
        return dim, dim
    found = c.kernel.facts.ranges.get(dim.name)
    if found is not None:
        if found.lower is None or found.last is None:
            return None
        low, high = (_of_dim(c, bound, depth, data) for bound in (found.lower, found.last))
        return None if low is None or high is None else (low[0], high[1])
    dtype = c.kernel.numbers.get(dim.name)
    return integer_range(dtype) if dtype is not None and dtype != INDEX and data else None


def _computed(c: TileContext, operator: str, a: Bounds | None, b: Bounds) -> Bounds | None:
    facts = c.kernel.facts
    if operator == "%" and facts.less(0, b[0]):
        return 0, DimOp("-", b[1], 1)
    if a is None:
        return None
    positive = facts.not_negative(a[0])
    match operator:
        case "+":
            return DimOp("+", a[0], b[0]), DimOp("+", a[1], b[1])
        case "-":
            return DimOp("-", a[0], b[1]), DimOp("-", a[1], b[0])
        case "*" if positive and facts.not_negative(b[0]):
            return DimOp("*", a[0], b[0]), DimOp("*", a[1], b[1])
        case "*":
            numbers = [facts.value(d) for d in (*a, *b)]
            known = [n for n in numbers if n is not None]
            if len(known) < 4:
                return None
            products = [x * y for x in known[:2] for y in known[2:]]
            return min(products), max(products)
        case "//" if positive and facts.less(0, b[0]):
            return 0, a[1]
        case _:
            return None


def _of_bits(c: TileContext, operator: str, a: Bounds | None, b: Bounds | None) -> Bounds | None:
    """Bounds of bits: of numbers that are not negative, but for one side of `&`."""
    facts = c.kernel.facts
    sides = [x for x in (a, b) if x is not None and facts.not_negative(x[0])]
    if operator == "&":
        return (0, _least_of(c, [x[1] for x in sides])) if sides else None
    if a is None or b is None or b not in sides:
        return None
    if operator == "<<":
        most = facts.value(b[1])
        return None if most is None or most > 62 else _computed(c, "*", a, (1, 1 << most))
    if operator == ">>" and a not in sides:
        return _either(c, [a, (0, 0)])
    if a not in sides:
        return None
    return 0, a[1] if operator == ">>" else DimOp("+", a[1], b[1])


def _least_of(c: TileContext, dims: list[Dim]) -> Dim:
    found = dims[0]
    for dim in dims[1:]:
        found = _extreme(c, "min", found, dim)
    return found


def _either(c: TileContext, found: list[Bounds | None], which: str = "") -> Bounds | None:
    """Bounds of one of several, or of their ``min`` or ``max``."""
    known = [f for f in found if f is not None]
    if len(known) < len(found) or not known:
        return None
    low, high = known[0]
    for least, most in known[1:]:
        low = _extreme(c, "max" if which == "max" else "min", low, least)
        high = _extreme(c, "min" if which == "min" else "max", high, most)
    return low, high


def _extreme(c: TileContext, which: Literal["min", "max"], a: Dim, b: Dim) -> Dim:
    for x, y in ((a, b), (b, a)):
        if c.kernel.facts.not_negative(DimOp("-", y, x)):
            return x if which == "min" else y
    return DimOp(which, a, b)


def counts(c: TileContext, name: str) -> bool:
    """Whether a name in extents is a size, or what a loop counts between sizes."""
    if name in c.kernel.origins:
        return True
    found = c.kernel.facts.ranges.get(name)
    if found is None or found.lower is None or found.last is None:
        return False
    names = symbols_of(found.lower) | symbols_of(found.last)
    return name not in names and all(counts(c, n) for n in names)
