"""What integer expressions are worth, as sizes over names.

Owns the reading of an expression in the environment of a walk, and how environments meet behind
branches and loops. Must not know types of tiles beyond their axes.
"""

from __future__ import annotations

from tessera_lang.sema.bound_names import statements, targets
from tessera_lang.sema.inference_types import Term
from tessera_lang.sema.side_tables import Builtin, Local
from tessera_lang.sema.tile.context import TileContext, Value
from tessera_lang.sema.tile.size_normal_form import normal, too_long
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import INDEX
from tessera_lang.types.shape import Dim, DimOp, DimOperator, Sym, symbols_of
from tessera_lang.types.type import Scalar, Tensor, Tile, TileAxis, Weak

_ARITHMETIC: dict[str, DimOperator] = {"+": "+", "-": "-", "*": "*", "//": "//", "%": "%"}
_CALLS: dict[str, DimOperator] = {"min": "min", "max": "max", "ceil_div": "ceil_div"}


def dim_of(c: TileContext, e: ast.Expr) -> Dim:
    """An integer expression as a size; a fresh name where it depends on data."""
    found = _read(c, e)
    if found is None or too_long(found):
        if not _is_not_negative(c, e):
            return c.fresh(e, "value")
        value = c.fresh(e, "value", negative=False)
        if isinstance(value, Sym) and not _is_not_negative(c, e, wraps=False):
            c.kernel.wraps.add(value.name)
        return value
    return c.kernel.facts.resolve(found)


def _is_not_negative(c: TileContext, e: ast.Expr, *, wraps: bool = True) -> bool:
    """Whether an integer of which nothing else is known is at least 0; where it ``wraps``, unless
    it is too large for its dtype."""
    term = c.terms.get(e)
    if isinstance(term, Scalar) and term.dtype.kind == "uint":
        return True

    def part(x: ast.Expr) -> bool:
        dim = dim_of(c, x)
        sure = wraps or c.kernel.wraps.isdisjoint(symbols_of(dim))
        return sure and c.kernel.facts.not_negative(dim)

    match e:
        case ast.Call(function=ast.Name(id=name), arguments=parts) if not e.keywords:
            symbol = c.name_symbol(name)
            if symbol == Builtin("max"):
                return any(map(part, parts))
            return symbol in _KEEPING and bool(parts) and all(map(part, parts))
        case ast.Binary(operator="+" | "*", left=left, right=right):
            return wraps and part(left) and part(right)
        case ast.Binary(operator="%", right=right):
            return part(right)  # of the sign of the divisor; by 0 it is 0
        case ast.Binary(operator="//", left=left, right=right):
            return part(left) and part(right)
        case ast.Binary(operator=">>", left=left, right=right):
            by = c.try_value(right)
            return isinstance(by, int) and by > 0 and part(left)
        case ast.Conditional():
            return all(map(part, _chosen(c, e)))
        case _:
            return False


def _chosen(c: TileContext, e: ast.Conditional) -> tuple[ast.Expr, ...]:
    """What the expression may be: one where the condition is known."""
    known = c.try_value(e.test)
    if isinstance(known, bool):
        return (e.then if known else e.orelse,)
    return e.then, e.orelse


_KEEPING = (Builtin("min"), Builtin("index"), Builtin("i64"))


def _read(c: TileContext, e: ast.Expr) -> Dim | None:
    value = c.try_value(e)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match e:
        case ast.Name():
            return _name(c, e)
        case ast.Binary(operator="+" | "-" | "*" | "//" | "%" as operator) if _exact(c, e):
            left, right = _read(c, e.left), _read(c, e.right)
            if left is None or right is None:
                return None
            if operator in ("//", "%") and not (isinstance(right, int) and right > 0):
                return None
            return normal(DimOp(_ARITHMETIC[operator], left, right))
        case ast.Unary(operator="-", operand=operand):
            inner = _read(c, operand)
            signed = isinstance(t := c.terms.get(e), Scalar) and t.dtype.is_signed
            if inner is None or not (_exact(c, e) or signed and follows(c, inner)):
                return None
            return normal(DimOp("-", 0, inner))
        case ast.Call() | ast.Subscript() if e in c.kernel.expanded:
            return _read(c, c.kernel.expanded[e][1])
        case ast.Conditional() if len(chosen := _chosen(c, e)) == 1:
            return _read(c, chosen[0])
        case ast.Call():
            return _call(c, e)
        case ast.Subscript(value=ast.Attribute(name="shape", value=base), items=(item,)):
            return shape_item(c, base, item)
        case ast.Subscript(value=ast.Name() as base):
            return _element(c, base, e.items)
        case _:
            return None


def length_of(c: TileContext, e: ast.Expr) -> Dim:
    """As ``dim_of``; of a minimum of integers whose arithmetic may wrap, which itself does not, the
    parts are read, too: one of them may say the most that it is."""
    found = dim_of(c, e)
    match e:
        case ast.Call(function=ast.Name(id=name), arguments=(left, right)) if not e.keywords:
            if c.name_symbol(name) == Builtin("min") and _is_integer(c, e) and not _exact(c, e):
                return c.kernel.facts.resolve(
                    normal(DimOp("min", dim_of(c, left), dim_of(c, right)))
                )
        case _:
            pass
    return found


def _is_integer(c: TileContext, e: ast.Expr) -> bool:
    term = c.terms.get(e)
    return isinstance(term, Scalar) and term.dtype.is_integer


def _exact(c: TileContext, e: ast.Expr) -> bool:
    """Whether arithmetic does not wrap: on ``index``."""
    term = c.terms.get(e)
    return isinstance(term, Weak) or term == Scalar(INDEX)


def _element(c: TileContext, base: ast.Name, items: tuple[ast.Expr, ...]) -> Dim | None:
    """``starts[i]``: an element of an array of integers. Of one that the kernel does not write it
    is the same in a round of the loops around, wherever it is read."""
    array, root = c.terms.get(base), c.variables.get(base.id)
    if not isinstance(array, Tensor) or len(items) != len(array.shape) or root is None:
        return None
    if not array.dtype.is_integer or root.local.kind != "parameter":
        return None
    places = [_read(c, item) for item in items]
    key: object = items[0]
    if not (array.mut or c.inlined or base.id in c.aliases or None in places):
        key = ("element", root.local, tuple(places), tuple(loop.statement for loop in c.loops))
    found = c.fresh(key, c.full(base.id), negative=array.dtype.is_signed)
    if isinstance(found, Sym):
        c.kernel.elements.add(found.name)
    return found


def _name(c: TileContext, e: ast.Name) -> Dim | None:
    if e in c.kernel.stands:
        return _read(c, c.kernel.stands[e])
    symbol = c.name_symbol(e.id)
    if not isinstance(symbol, Local):
        return None
    if symbol.kind == "size":
        return c.typed.sizes.get(symbol)
    value = c.env.get(e.id)
    return None if isinstance(value, tuple) else value


def _call(c: TileContext, e: ast.Call) -> Dim | None:
    symbol = c.name_symbol(e.function.id) if isinstance(e.function, ast.Name) else None
    if not isinstance(symbol, Builtin) or e.keywords:
        return None
    if symbol.name in _CALLS and len(e.arguments) == 2 and _exact(c, e):
        left, right = _read(c, e.arguments[0]), _read(c, e.arguments[1])
        if symbol.name != "ceil_div" and (left is None) != (right is None):
            # The side that is known still bounds the result.
            left = dim_of(c, e.arguments[0]) if left is None else left
            right = dim_of(c, e.arguments[1]) if right is None else right
        if left is None or right is None or (symbol.name == "ceil_div" and right == 0):
            return None
        return normal(DimOp(_CALLS[symbol.name], left, right))
    if symbol.name in ("index", "i64") and len(e.arguments) == 1:
        return _read(c, e.arguments[0]) if _is_integer(c, e.arguments[0]) else None
    return None


def shape_item(c: TileContext, base: ast.Expr, item: ast.Expr) -> Dim | None:
    """``x.shape[i]``."""
    term = c.terms.get(base)
    value = c.try_value(item)
    if not isinstance(value, int):
        return None
    dims = shape_dims(term)
    if dims is None or not -len(dims) <= value < len(dims):
        return None
    return dims[value]


def shape_dims(term: Term | None) -> tuple[Dim | None, ...] | None:
    if isinstance(term, Tensor):
        return term.shape
    if isinstance(term, Tile):
        return tuple(a.extent for a in term.axes)
    return None


# --- environments --------------------------------------------------------------------------


def set_scalar(c: TileContext, name: str, dim: Dim) -> None:
    """A variable takes a value; whether it may ever be negative is remembered."""
    if name not in c.negative and not c.kernel.facts.not_negative(dim):
        c.negative.add(name)
        c.kernel.changed = True
    c.env[name] = dim
    is_worth(c, name, dim)


def is_worth(c: TileContext, name: str, dim: Dim) -> None:
    """Write down that a variable is what a name in extents stands for, where it stays so."""
    if not c.final or not isinstance(dim, Sym) or "@" not in dim.name:
        return
    found = [t for s in statements(c.declaration.body) for t in targets(s)]
    if sum(isinstance(t, ast.Name) and t.id == name for t in found) == 1:
        c.typed.worth.setdefault(dim.name, c.variables[name].local)


def head_value(c: TileContext, statement: ast.Stmt, name: str, loop: tuple[str, ...]) -> Dim:
    """A variable that a loop changes, at the begin of a round; ``loop``: its variables."""
    return c.fresh(statement, c.full(name), negative=name in c.negative, inside=loop)


def not_negative_where(c: TileContext, test: ast.Expr, holds: bool) -> list[str]:
    """Names that a test, where it holds or does not, says are at least 0."""
    match test:
        case ast.Unary(operator="not", operand=inner):
            return not_negative_where(c, inner, not holds)
        case ast.BoolOp(operator=operator, values=values) if (operator == "and") == holds:
            return [n for v in values for n in not_negative_where(c, v, holds)]
        case ast.Compare(first=left, operators=(operator,), rest=(right,)):
            if not holds:
                operator = _OPPOSITE.get(operator, "")
            for name, other, least in ((left, right, _LEAST), (right, left, _MOST)):
                bound = c.try_value(other)
                if not isinstance(name, ast.Name) or not isinstance(bound, int):
                    continue
                value, more = c.env.get(name.id), least.get(operator)
                if isinstance(value, tuple) or value is None or more is None:
                    continue
                if bound + more >= 0:
                    return [] if c.kernel.facts.not_negative(value) else [name.id]
            return []
        case _:
            return []


def told_where(c: TileContext, test: ast.Expr, holds: bool) -> list[Dim]:
    """Differences of names and numbers that a test, where it holds or does not, says are at least
    0: ``p >= 64`` gives ``p - 64``."""
    match test:
        case ast.Unary(operator="not", operand=inner):
            return told_where(c, inner, not holds)
        case ast.BoolOp(operator=operator, values=values) if (operator == "and") == holds:
            return [d for v in values for d in told_where(c, v, holds)]
        case ast.Compare(first=first, operators=operators, rest=rest):
            if not holds and len(operators) > 1:
                return []
            found: list[Dim] = []
            for a, operator, b in zip((first, *rest), operators, rest, strict=False):
                operator = operator if holds else _OPPOSITE.get(operator, "")
                x, y = _plain(c, a), _plain(c, b)
                if x is None or y is None:
                    continue
                above, below = DimOp("-", x, y), DimOp("-", y, x)
                if operator in _LEAST:
                    found.append(DimOp("-", above, _LEAST[operator]))
                if operator in _MOST:
                    found.append(DimOp("-", below, _MOST[operator]))
                if operator == "!=":  # of one that is never less it is more
                    found += [
                        DimOp("-", d, 1) for d in (above, below) if c.kernel.facts.not_negative(d)
                    ]
            return found
        case _:
            return []


def follows(c: TileContext, dim: Dim) -> bool:
    """Whether a number is at least 0 where the branches around are taken."""
    return any(c.kernel.facts.follows(dim, d) for d in c.told)


def _plain(c: TileContext, e: ast.Expr) -> Dim | None:
    """What a name, a number or an index is worth; None of other numbers that are computed, which
    may wrap."""
    value = c.try_value(e)
    if value is not None:  # another literal has its type from what it is compared with
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if not isinstance(e, ast.Name) and c.infer(e) == Scalar(INDEX):
        return dim_of(c, e)
    worth = _name(c, e) if isinstance(e, ast.Name) else None
    if worth is None:
        return None
    return worth if c.kernel.wraps.isdisjoint(symbols_of(worth)) else None


_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "!=": "==", "==": "!="}
_LEAST = {">=": 0, ">": 1, "==": 0}  # from `v >= bound`: v is at least bound + this
_MOST = {"<=": 0, "<": 1, "==": 0}  # the same of `bound <= v`


def join(
    c: TileContext, key: object, first: dict[str, Value], second: dict[str, Value]
) -> dict[str, Value]:
    """The environment behind two ways."""
    joined: dict[str, Value] = {}
    for name in first:
        if name not in second:
            joined[name] = first[name]
            continue
        same = owner_of(first, name) == owner_of(second, name)
        joined[name] = _joined(c, key, name, first[name], second[name]) if same else first[name]
    for name in second:
        joined.setdefault(name, second[name])
    return joined


OWNER = "#"


def owner_of(env: dict[str, Value], name: str) -> object:
    """Which of several variables of a name has its value: what begins anew is another one, and
    behind two ways with different ones nobody needs either."""
    return env.get(name + OWNER, 0)


def _joined(c: TileContext, key: object, name: str, a: Value, b: Value) -> Value:
    if isinstance(a, tuple) and isinstance(b, tuple):
        if len(a) != len(b):
            return a
        return tuple(
            join_axis(c, (key, i), c.full(name), x, y)
            for i, (x, y) in enumerate(zip(a, b, strict=True))
        )
    if isinstance(a, tuple) or isinstance(b, tuple):
        return a
    if c.kernel.facts.equals(a, b):
        return a
    return c.fresh(key, c.full(name), negative=name in c.negative)


def join_axis(c: TileContext, key: object, hint: str, a: TileAxis, b: TileAxis) -> TileAxis:
    """One axis of a tile behind two ways: its extent may be known to the run only."""
    if a.extent is None or b.extent is None or c.kernel.facts.equals(a.extent, b.extent):
        return a
    x, y = c.kernel.facts.resolve(a.extent), c.kernel.facts.resolve(b.extent)
    for open_one, other in ((x, y), (y, x)):
        if isinstance(open_one, Sym) and c.is_open(open_one) and not c.is_open(other):
            if symbols_of(other) & c_loops(c) <= c.kernel.scopes[open_one.name]:
                c.kernel.facts.learn(open_one.name, other)
                return TileAxis(a.capacity, other)
    if c.is_open(x) and c.is_open(y) and isinstance(x, Sym):
        c.kernel.facts.learn(x.name, y)
        return b
    return TileAxis(a.capacity, c.fresh(key, hint, negative=False))


def c_loops(c: TileContext) -> frozenset[str]:
    """Names of all loop variables that have been seen."""
    return frozenset(c.kernel.facts.ranges)
