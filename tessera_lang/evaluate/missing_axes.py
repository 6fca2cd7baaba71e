"""Where an array of fewer axes gets the missing ones, so that it meets one of more axes.

Owns the choice and the fix: the axes that a reduction took away, else those whose sizes fit. Must
not know types or worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import TypeVar, cast

from tessera_lang.diagnostics import Edit, Fix
from tessera_lang.evaluate.fault import HostFault
from tessera_lang.record import replace
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.target.host_world import World

T = TypeVar("T")
_REDUCTIONS = frozenset(
    "sum max min mean prod var std any all argmax argmin norm median quantile percentile".split()
)
_MOST_SHOWN = 3
_SAY = "say where the missing axes are:"


def missing_axes(
    few: ast.Expr, sizes: Sequence[T], wanted: Sequence[T], fits: Callable[[T, T], bool],
    made: ast.Expr | None = None,
) -> tuple[list[tuple[str, str]], tuple[Fix, ...]]:  # fmt: skip
    """Subscripts that bring ``few`` to the rank of what it meets, each with what it does, and the
    fix where there is one only. ``made``: the expression that a name was given."""
    rank, own = len(wanted), len(sizes)
    places = [
        places for places in reversed([*combinations(range(rank), own)])
        if all(fits(sizes[i], wanted[at]) for i, at in enumerate(places))
    ]  # fmt: skip
    gone = reduced_axes(made or few, rank, rank - own)
    if gone is not None:
        left = tuple(axis for axis in range(rank) if axis not in gone)
        places = [left] if left in places else places
    found = [(_subscript(at, rank), _repeated(at, rank)) for at in places[:_MOST_SHOWN]]
    if len(places) != 1:
        return found, ()
    simple = isinstance(few, (ast.Name, ast.Call, ast.Subscript, ast.Attribute))
    before, after = ("", "") if simple else ("(", ")")
    start = Span(few.span.anchor, few.span.start, few.span.start)
    end = Span(few.span.anchor, few.span.end, few.span.end)
    edits = (*((Edit(start, before),) if before else ()), Edit(end, f"{after}{found[0][0]}"))
    return found, (Fix(f"write `{found[0][0]}` behind it", edits, "unsafe"),)


def _subscript(places: tuple[int, ...], rank: int) -> str:
    return f"[{', '.join(':' if axis in places else 'None' for axis in range(rank))}]"


def _repeated(places: tuple[int, ...], rank: int) -> str:
    gone = [str(axis) for axis in range(rank) if axis not in places]
    return f"the same along {'axis' if len(gone) == 1 else 'axes'} {' and '.join(gone)}"


def described(text: str, found: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The help; ``text``: what stands in front of a subscript."""
    if not found:
        return ()
    if len(found) == 1:
        return (f"{_SAY} `{text}{found[0][0]}`",)
    forms = ", or ".join(f"`{text}{form}`, {does}" for form, does in found)
    return (f"{_SAY} {forms}",)


def reduced_axes(
    e: ast.Expr, rank: int, count: int, of: Callable[[ast.Expr], bool] | None = None
) -> frozenset[int] | None:
    """The axes that an expression takes away from an array of ``rank`` axes by reductions,
    where that is written and they are ``count``; ``of``: whether it is of
    this that the axes are taken."""
    for call in _calls(e):
        f = call.function
        name = f.name if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""
        if of is not None and not any(map(of, call.arguments[:1])):
            continue
        if name not in _REDUCTIONS or any(k.name == "keepdims" for k in call.keywords):
            continue
        at = 2 if name in ("quantile", "percentile") else 1
        axis = next((k.value for k in call.keywords if k.name == "axis"), None)
        if axis is None and len(call.arguments) > at:
            axis = call.arguments[at]
        items = axis.items if isinstance(axis, ast.TupleExpr) else (axis,)
        numbers = [n for n in map(_number, items) if n is not None and -rank <= n < rank]
        gone = frozenset(n % rank for n in numbers)
        if len(numbers) == len(items) and len(gone) == count:
            return gone
    return None


def _calls(e: ast.Expr) -> Iterator[ast.Call]:
    """The calls whose shape an expression has: through operators, and functions of each element."""
    todo = [e]
    while todo:
        match todo.pop():
            case ast.Call() as call:
                yield call
                todo.extend(call.arguments[:1])
            case ast.Binary() as both:
                todo += [both.right, both.left]
            case ast.Unary() as one:
                todo.append(one.operand)
            case _:
                pass


def says_axes(e: ast.Expr) -> bool:
    """Whether an operand is written with new axes, `x[:, None]`: then one of fewer axes stands
    along the last ones, as in NumPy."""
    match e:
        case ast.Subscript():
            return any(isinstance(i, ast.NoneLit) for i in e.items)
        case ast.Unary():
            return says_axes(e.operand)
        case ast.Binary():
            return e.operator != "@" and (says_axes(e.left) or says_axes(e.right))
        case ast.Compare():
            return any(map(says_axes, (e.first, *e.rest)))
        case _:
            return False


def _number(e: ast.Expr | None) -> int | None:
    if isinstance(e, ast.IntLit):
        return e.value
    if isinstance(e, ast.Unary) and e.operator == "-" and isinstance(e.operand, ast.IntLit):
        return -e.operand.value
    return None


def with_missing_axes(
    error: HostFault, world: World, sides: tuple[tuple[ast.Expr, object], tuple[ast.Expr, object]]
) -> HostFault:
    """The fault of two arrays that do not fit together, with the axes that one of them lacks."""
    if error.diagnostics[0].code != "T0834" or not all(world.is_array(v) for _, v in sides):
        return error
    shapes = [world.shape(v) for _, v in sides]
    a, b = (cast("tuple[object, ...]", s) if isinstance(s, tuple) else None for s in shapes)
    if a is None or b is None or len(a) == len(b):
        return error
    low = 0 if len(a) < len(b) else 1
    few, (own, wanted) = sides[low][0], ((a, b) if low == 0 else (b, a))
    found, fixes = missing_axes(few, own, wanted, _host_sizes_fit)
    text = few.id if isinstance(few, ast.Name) else ""
    where = "" if text else f" behind the {('left', 'right')[low]} operand"
    helps = tuple(f"{h}{where}" for h in described(text, found))
    return HostFault((replace(error.diagnostics[0], helps=helps, fixes=fixes),))


def _host_sizes_fit(x: object, y: object) -> bool:
    return not (isinstance(x, int) and isinstance(y, int)) or x in (y, 1) or y == 1
