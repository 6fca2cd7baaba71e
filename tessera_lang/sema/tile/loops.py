"""Loops: ``op.tile_range``, ``range``, ``while``; what a name is worth around them.

Owns loop variables and their ranges, and the values of changed variables at the begin of a
round. Must not know which loops are spread over a grid.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.sema.bound_names import statements, targets
from tessera_lang.sema.indexing import counts_in_floats, index
from tessera_lang.sema.inference_types import Term
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.name_values import named_symbol, variable_term
from tessera_lang.sema.side_tables import Builtin
from tessera_lang.sema.tile.context import Loop, TileContext, Value
from tessera_lang.sema.tile.facts import Range
from tessera_lang.sema.tile.reductions import index_argument
from tessera_lang.sema.tile.size_normal_form import normal, substitute
from tessera_lang.sema.tile.subscripts import holds_whole
from tessera_lang.sema.tile.symbolic import dim_of, head_value, join, owner_of, told_where
from tessera_lang.sema.variables import bind_variable
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import INDEX
from tessera_lang.types.shape import Dim, DimOp, Sym, symbols_of
from tessera_lang.types.type import ERROR, Opaque, Scalar, Tile, TileAxis

Block = Callable[[TileContext, tuple[ast.Stmt, ...]], None]


def for_loop(c: TileContext, s: ast.For, block: Block) -> None:
    symbol = named_symbol(c, s.iterable.function) if isinstance(s.iterable, ast.Call) else None
    if not isinstance(s.iterable, ast.Call) or symbol not in (
        Builtin("range"), Builtin("op.tile_range"),
    ):  # fmt: skip
        return  # the structure check says what a loop takes
    if c.final:
        c.typed.symbols[s.iterable.function] = symbol
    c.note(s.iterable, Opaque("range"))
    names = target_names(s.target)
    term: Term = Scalar(INDEX)
    if symbol == Builtin("range"):
        term = ERROR if counts_in_floats(c, s.iterable) else term
        ranges = None if term is ERROR else _range(c, s.iterable)
    else:
        ranges = _tile_range(c, s.iterable, names)
    if ranges is None or len(ranges) != len(names):
        if ranges is not None:
            c.report(
                "T0212", f"{len(ranges)} axes for {len(names)} names", s.target.span,
                helps=("write one name for each axis; one axis may have a start too:"
                       " `for i in op.tile_range(start, stop, step=64):`",),
            )  # fmt: skip
        ranges = [Range(0, None)] * len(names)
    _body(c, s, names, (ranges, term), block)


def target_names(target: ast.Expr) -> list[ast.Name]:
    items = target.items if isinstance(target, ast.TupleExpr) else (target,)
    return [t for t in items if isinstance(t, ast.Name)]


def _bound(c: TileContext, e: ast.Expr) -> Dim | None:
    """A bound or step as a size; None where it is no integer (reported)."""
    term = c.infer(e)
    if is_silent(term):
        return None
    if isinstance(term, Tile):
        c.report("T0215", f"a bound is an integer, not `{term}`", e.span)
        return None
    index_argument(c, e)
    return dim_of(c, e)


def _range(c: TileContext, e: ast.Call) -> list[Range] | None:
    bounds = [_bound(c, a) for a in e.arguments]
    if not 1 <= len(bounds) <= 3 or e.keywords or any(b is None for b in bounds):
        return None
    known = [b for b in bounds if b is not None]
    start, stop = (0, known[0]) if len(known) == 1 else (known[0], known[1])
    step = c.kernel.facts.value(known[2]) if len(known) == 3 else 1
    if step == 0:
        c.report("T0221", "a `range` with step 0 never moves", e.arguments[2].span)
        return None
    if step is None:
        if c.kernel.facts.less(0, known[2]):
            return [Range(start, normal(DimOp("-", stop, 1)))]
        return [Range(None, None)]
    if step > 0:
        return [Range(start, normal(DimOp("-", stop, 1)), step, start)]
    return [Range(normal(DimOp("+", stop, 1)), start, -step, start)]


def _tile_range(c: TileContext, e: ast.Call, names: list[ast.Name]) -> list[Range] | None:
    stops = [_bound(c, a) for a in e.arguments]
    given = {k.name: k.value for k in e.keywords}
    for k in e.keywords:
        if k.name not in ("step", "independent"):
            c.report("T0106", f"`op.tile_range` has no parameter `{k.name}`", k.name_span,
                     helps=("it has `step` and `independent`",))  # fmt: skip
    if c.final:
        c.typed.arguments[e] = (given.get("step"), given.get("independent"))
    starts: list[Dim | None] = [0] * len(stops)
    if len(names) == 1 and len(stops) == 2:  # one axis, from a start on
        starts, stops = stops[:1], stops[1:]
    steps = _steps(c, given.get("step"), len(stops))
    _independent(c, given.get("independent"), [n.id for n in names])
    if steps is None or any(b is None for b in (*starts, *stops)):
        return None
    return [
        Range(start, normal(DimOp("-", stop, 1)), step, start)
        for start, stop, step in zip(starts, stops, steps, strict=True)
        if start is not None and stop is not None
    ]


def _steps(c: TileContext, e: ast.Expr | None, count: int) -> list[int] | None:
    if e is None:
        return [1] * count
    items = e.items if isinstance(e, ast.TupleExpr) else (e,)
    values: list[int] = []
    for item in items:
        if is_silent(c.infer(item)):
            return None
        index(c, item)
        value = c.try_value(item)
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            c.report(
                "T0606", "a step of `op.tile_range` is a positive number known at compile time",
                item.span,
                helps=("make it a compile-time parameter, as in `step: int = 64`",),
            )  # fmt: skip
            return None
        values.append(value)
    if isinstance(e, ast.TupleExpr):
        c.infer(e)
        c.set_value(e, tuple(values))
        if len(values) != count:
            c.report("T0606", f"{len(values)} steps for {count} axes", e.span)
            return None
        return values
    return values * count


def _independent(c: TileContext, e: ast.Expr | None, names: list[str]) -> None:
    if e is None:
        return
    items = e.items if isinstance(e, ast.TupleExpr) else (e,)
    for item in items:
        c.infer(item)
        value = item.value if isinstance(item, ast.StringLit) else c.try_value(item)
        if not isinstance(value, str) or value not in names:
            shown = ", ".join(f'"{n}"' for n in names)
            c.report("T0606", f"`independent` names axes of the loop: {shown}", item.span,
                     helps=(f'write `independent=("{names[0]}",)`',) if names else ())  # fmt: skip
            return
    c.infer(e)
    named = (i.value if isinstance(i, ast.StringLit) else c.try_value(i) for i in items)
    c.set_value(e, tuple(named))


# --- what changes in a loop ----------------------------------------------------------------


def changed_names(c: TileContext, body: tuple[ast.Stmt, ...]) -> list[str]:
    """Names that a body binds, and buffers that it stores into, in order of first sight."""
    found: dict[str, None] = {}
    for s in statements(body):
        for t in targets(s):
            if isinstance(t, ast.Name):
                found.setdefault(t.id)
            elif isinstance(t, ast.Subscript) and isinstance(t.value, ast.Name):
                found.setdefault(t.value.id)
        if isinstance(s, ast.ExprStmt) and isinstance(s.value, ast.Call) and s.value.arguments:
            first = s.value.arguments[0]
            if named_symbol(c, s.value.function) == Builtin("op.prefetch") and isinstance(
                first, ast.Name
            ):
                found.setdefault(first.id)
    return list(found)


def _enter(c: TileContext, s: ast.For | ast.While) -> list[str]:
    """Put in what changed names are worth at the begin of a round."""
    changed = [n for n in changed_names(c, s.body) if n in c.env]
    for name in changed:
        value = c.env[name]
        if isinstance(value, tuple):
            holds_whole(c, value)
            c.env[name] = c.heads.get((s, name), value)
        else:
            c.env[name] = head_value(c, s, name, _names(c, s))
    return changed


def _names(c: TileContext, s: ast.For | ast.While) -> tuple[str, ...]:
    """The variables of a loop, as names in extents."""
    if isinstance(s, ast.For):
        return tuple(c.full(n.id) for n in target_names(s.target))
    return (f"{c.prefix}while@{s.span.start}",)


def _leave(
    c: TileContext, s: ast.For | ast.While, before: dict[str, Value], head: dict[str, Value],
    changed: list[str], variable: tuple[str, Range] | None, loop: Loop,
) -> None:  # fmt: skip
    """Compare the end of a round with its begin, and join with no round at all."""
    _end_of_round(c, s, head, loop)
    for name in changed:
        start, at, end = before[name], head[name], c.env.get(name)
        if not isinstance(start, tuple) or not isinstance(at, tuple) or not isinstance(end, tuple):
            continue
        if not len(start) == len(at) == len(end) or not _is_one(name, before, head, c.env):
            continue
        axes = tuple(
            _head_axis(c, (s, i), name, parts, variable, _names(c, s))
            for i, parts in enumerate(zip(start, at, end, strict=True))
        )
        if axes != at:
            c.heads[(s, name)] = axes
            c.kernel.changed = True
    c.env = join(c, (s, "after"), before, c.env)
    for i, found in enumerate(loop.breaks):
        c.env = join(c, (s, "break", i), c.env, found)
    c.left = False


def _is_one(name: str, *environments: dict[str, Value]) -> bool:
    return len({owner_of(env, name) for env in environments}) == 1


def _end_of_round(
    c: TileContext, s: ast.For | ast.While, head: dict[str, Value], loop: Loop
) -> None:
    """What names are worth at the end of a round, whichever way it comes there."""
    ends = loop.nexts if c.left else [c.env, *loop.nexts]
    c.env = ends[0] if ends else dict(head)
    for i, found in enumerate(ends[1:]):
        c.env = join(c, (s, "next", i), c.env, found)


def _head_axis(
    c: TileContext, key: object, name: str, parts: tuple[TileAxis, TileAxis, TileAxis],
    variable: tuple[str, Range] | None, loop: tuple[str, ...],
) -> TileAxis:  # fmt: skip
    """The extent of a tile at the begin of a round: the same in all, one that follows the loop
    variable, or known to the run only."""
    start, at, end = parts
    facts = c.kernel.facts
    if start.extent is None or at.extent is None or end.extent is None:
        return at
    first, last = facts.resolve(start.extent), facts.resolve(end.extent)
    if facts.equals(first, last) or c.is_open(first) or c.is_open(last):
        was_two = isinstance(at.extent, Sym) and at.extent.name in c.kernel.kept
        return TileAxis(at.capacity, first) if was_two else at
    if isinstance(at.extent, Sym) and at.extent.name in c.kernel.one_size:
        return TileAxis(at.capacity, first)
    if any("@" in n for n in symbols_of(at.extent)):
        return at
    if variable is not None and variable[1].lower is not None:
        full, found = variable
        lower, step = variable[1].lower, found.step
        guess = substitute(last, lambda n: DimOp("-", Sym(full), step) if n == full else None)
        zero = substitute(guess, lambda n: lower if n == full else None)
        stale = any("@" in n for n in symbols_of(guess))
        if not stale and facts.equals(zero, first):
            return at if facts.equals(guess, at.extent) else TileAxis(at.capacity, guess)
    carried = c.fresh(key, c.full(name), negative=False, inside=loop)
    assert isinstance(carried, Sym)
    c.kernel.kept[carried.name] = (first, last)
    return TileAxis(at.capacity, carried)


def _body(
    c: TileContext, s: ast.For, names: list[ast.Name], over: tuple[list[Range], Term], block: Block
) -> None:
    ranges, term = over
    before = dict(c.env)
    changed = _enter(c, s)
    head = dict(c.env)
    for name, found in zip(names, ranges, strict=True):
        _loop_variable(c, name, found, term)
    over_tiles = isinstance(s.iterable, ast.Call) and (
        named_symbol(c, s.iterable.function) == Builtin("op.tile_range")
    )
    c.loops.append(Loop(s, _names(c, s), over_tiles))
    block(c, s.body)
    loop = c.loops.pop()
    single = (c.full(names[0].id), ranges[0]) if len(names) == 1 else None
    _leave(c, s, before, head, changed, single, loop)
    for name in names:
        c.env[name.id] = c.fresh((s, "last"), c.full(name.id))


def _loop_variable(c: TileContext, name: ast.Name, found: Range, term: Term) -> None:
    v = c.variables.get(name.id)
    if v is None:
        return
    bind_variable(c, v, None, term, name.span)
    if c.final:
        c.typed.symbols[name] = v.local
    c.note(name, variable_term(c, v))
    full = c.full(name.id)
    c.kernel.facts.ranges.pop(full, None)  # the latest is the innermost
    c.kernel.facts.ranges[full] = found
    c.env[name.id] = Sym(full)


def while_loop(
    c: TileContext, s: ast.While, block: Block, require: Callable[[ast.Expr, Term], None]
) -> None:
    before = dict(c.env)
    changed = _enter(c, s)
    head = dict(c.env)
    require(s.test, c.infer(s.test))
    c.loops.append(Loop(s, _names(c, s)))
    around, c.told = c.told, (*c.told, *told_where(c, s.test, True))
    block(c, s.body)
    c.told = around
    _leave(c, s, before, head, changed, None, c.loops.pop())
