"""Loops and conditions of tile kernels: what they carry and join.

Owns SSA construction for variables that hold tiles: the value is carried, and beside it the
extents where an iteration may change them. Must not know what statements mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from tessera_lang.ir.core import Attribute, IRType, Operation, Value
from tessera_lang.ir.schedule.builder import dtype_of
from tessera_lang.lower.ast_to_schedule import carried_arrays, early_exits, if_conversion
from tessera_lang.lower.ast_to_schedule.early_exits import Leaving
from tessera_lang.lower.ast_to_schedule.liveness import assigned
from tessera_lang.lower.ast_to_schedule.state import State, register_dtype
from tessera_lang.lower.ast_to_schedule.subscripts import number
from tessera_lang.lower.ast_to_schedule.value_nodes import Axis, Filled, Held, Node
from tessera_lang.lower.ast_to_schedule.values_before_writes import save_before, will_write
from tessera_lang.lower.ast_to_tile import operators
from tessera_lang.lower.ast_to_tile.context import Bound, Unsupported, flatten, rebuild, zero
from tessera_lang.lower.ast_to_tile.control import closed
from tessera_lang.lower.ast_to_tile.expressions import lower_expression
from tessera_lang.lower.ast_to_tile.statements import counted
from tessera_lang.record import dataclass
from tessera_lang.sema.side_tables import Builtin, Local
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.target.array_facts import WHOLE_AXIS
from tessera_lang.types.dtype import BOOL, INDEX, U64, DType
from tessera_lang.types.type import Scalar, Tile, Type

Block = Callable[[State, tuple[ast.Stmt, ...]], None]


def truth(s: State, node: ast.Expr) -> Value:
    value = lower_expression(s.low, node)
    if not isinstance(value, Value) or not isinstance(value.type, DType):
        raise Unsupported(node.span, "this value as a condition")
    return operators.truth(s.low, value)


# --- what a variable holds, as values ---------------------------------------------------------


@dataclass(slots=True)
class Snapshot:
    variables: dict[Local, Bound]
    tiles: dict[Local, Node]


def snapshot(s: State) -> Snapshot:
    return Snapshot(dict(s.low.frame.variables), dict(s.tiles))


def restore(s: State, before: Snapshot) -> None:
    s.low.frame.variables = dict(before.variables)
    s.tiles = dict(before.tiles)


def _begin(s: State, local: Local, span: Span) -> bool:
    """Give a variable a value where it has none yet; False for one that is an array."""
    return begin(s, local, s.typed.variables.get(local), span)


def begin(s: State, local: Local, t: Type | None, span: Span) -> bool:
    """The same of a variable of type ``t``."""
    if local not in s.tiles and local not in s.low.frame.variables:
        if isinstance(t, Tile):
            dtype = register_dtype(t)
            assert dtype is not None
            room = [a.capacity for a in t.axes]
            if any(n is None for n in room):
                return False
            axes = tuple(Axis(s.b.number(n or 1), n) for n in room)
            s.tiles[local] = Filled(s.b.constant(0, dtype), dtype, axes)
        elif t is not None:
            start = zero(s.b, t)
            if start is None:
                return False
            s.low.frame.variables[local] = start
        else:
            return False
    if local in s.tiles:
        node = s.tiles[local]
        shown = t.axes if isinstance(t, Tile) else ()
        if any(a.capacity is None for a in (*node.axes, *shown)):
            dtype = register_dtype(t)
            if isinstance(t, Tile) and dtype and carried_arrays.enter(s, local, dtype, shown, span):
                return True
            what = f"`{local.name}`, a whole-tensor value, changed in a loop or condition"
            raise Unsupported(
                span, what, "store it into an array, or loop over `range`; a loop over tiles hands"
                f" on tiles of at most {WHOLE_AXIS} elements along an axis",
            )  # fmt: skip
        s.tiles[local] = s.demand.held(node)
        return True
    return all(isinstance(v.type, DType) for v in flatten(s.low.frame.variables[local]))


def _values(s: State, local: Local, extents: bool) -> list[Value]:
    if local in s.tiles:
        node = s.tiles[local]
        if if_conversion.is_whole(node):
            return []
        held = node if isinstance(node, Held) else s.demand.held(node)
        s.tiles[local] = held
        return [held.value, *(a.extent for a in held.axes)] if extents else [held.value]
    return list(flatten(s.low.frame.variables[local]))


def _rebind(s: State, local: Local, found: Iterator[Value], extents: bool) -> None:
    if local in s.tiles:
        node = s.tiles[local]
        if if_conversion.is_whole(node):
            carried_arrays.rebind(s, local)
            return
        value = next(found)
        axes = node.axes
        if extents:
            axes = tuple(Axis(next(found), a.capacity) for a in node.axes)
            s.b.carried.update(a.extent for a in axes)
        s.tiles[local] = Held(value, dtype_of(value), axes)
        return
    s.low.frame.variables[local] = rebuild(s.low.frame.variables[local], found)


def _gather(s: State, locals_: Sequence[Local], loose: frozenset[Local]) -> list[Value]:
    return [v for local in locals_ for v in _values(s, local, local in loose)]


def _bind_all(
    s: State, locals_: Sequence[Local], loose: frozenset[Local], found: Sequence[Value]
) -> None:
    rest = iter(found)
    for local in locals_:
        _rebind(s, local, rest, local in loose)


def _names(s: State, locals_: Sequence[Local], loose: frozenset[Local]) -> list[str]:
    names: list[str] = []
    for local in locals_:
        count = len(_values(s, local, local in loose))
        extra = [f"{local.name}_extent"] * (count - 1) if local in s.tiles else []
        names += [local.name, *extra][:count] if local in s.tiles else [local.name] * count
    return names


# --- conditions ------------------------------------------------------------------------------


def branch(s: State, node: ast.If, block: Block) -> None:
    known = early_exits.chosen(s.typed, node)
    if known is not None:
        block(s, known)
        return
    _branch(s, node.span, truth(s, node.test), (node.body, node.orelse), node, block)


def leave_from(
    s: State, node: ast.Stmt, rest: tuple[ast.Stmt, ...], lower: Callable[[], None], block: Block
) -> None:
    """A statement from which the loop or function may be left, and what stands behind it."""
    leaving = s.leaving[-1]
    if isinstance(node, ast.If):
        known = early_exits.chosen(s.typed, node)
        if known is not None:
            block(s, known + rest)
            return
        sides = early_exits.sides_of(s.typed, node, rest, leaving.loop)
        if sides is not None:
            last = rest[-1] if rest else node
            _branch(s, node.span, truth(s, node.test), sides, last, block)
            return
    lower()
    if rest:
        assert leaving.skipped is not None
        go_on = early_exits.unset(leaving.skipped, s.low.frame, s.b)
        _branch(s, node.span, go_on, (rest, ()), rest[-1], block)


def _branch(
    s: State, span: Span, condition: Value, sides: tuple[tuple[ast.Stmt, ...], ...],
    last: ast.Stmt, block: Block,
) -> None:  # fmt: skip
    """Both sides of a condition, behind which what follows ``last`` goes on."""
    leaving = s.leaving[-1]
    live = s.live.after.get(last, frozenset())
    if any(early_exits.may_leave(s.typed, x, leaving.loop) for side in sides for x in side):
        live |= leaving.needed
    changed = [x for x in assigned(s.typed, sides[0] + sides[1]) if x in live]
    candidates = (*changed, *_hidden(s))
    changed = [
        x for x in candidates if not if_conversion.is_whole(s.tiles.get(x)) and _begin(s, x, span)
    ]
    save_before(s, sides[0] + sides[1], span, live)
    before, writes = snapshot(s), dict(s.writes)
    with s.b.region() as first:
        block(s, sides[0])
        _settle(s, changed, span)
    then, written = snapshot(s), s.writes
    restore(s, before)
    s.writes = dict(writes)
    with s.b.region() as second:
        block(s, sides[1])
        _settle(s, changed, span)
    other = snapshot(s)
    s.joined_writes(writes, written)
    chosen = if_conversion.chosen(candidates, before.tiles, then.tiles, other.tiles)
    if chosen:
        if_conversion.bring_out(s, (first, second), span)
    _join(s, span, condition, changed, (first, then), (second, other))
    for local in chosen:
        s.tiles[local] = if_conversion.choose(
            s, condition, then.tiles.get(local), other.tiles.get(local)
        )
    changed += chosen
    for kept, now in ((before.variables, s.low.frame.variables), (before.tiles, s.tiles)):
        for local in kept:  # nobody reads what only one side has made of it
            if local not in changed:
                now[local] = kept[local]  # type: ignore[assignment]
    for local, value in list(s.low.frame.variables.items()):
        scalar = isinstance(value, Value) and isinstance(value.type, DType)
        if scalar and local not in before.variables and local not in changed:
            del s.low.frame.variables[local]  # it is known inside of the branch only


def _hidden(s: State) -> list[Local]:
    """Flags and values of what can be left from here."""
    return [x for leaving in early_exits.of_function(s.leaving) for x in leaving.hidden]


def _settle(s: State, locals_: Sequence[Local], span: Span) -> None:
    carried_arrays.leave(s, locals_, span)
    for local in locals_:
        if local in s.tiles and local not in s.carried:
            s.tiles[local] = s.held(s.tiles[local], span)


def _join(
    s: State, span: Span, condition: Value, changed: Sequence[Local],
    first: tuple[object, Snapshot], second: tuple[object, Snapshot],
) -> None:  # fmt: skip
    from tessera_lang.ir.tile.builder import RegionBuilder

    sides: list[tuple[list[Value], RegionBuilder]] = []
    differing: list[Local] = []
    loose: set[Local] = set()
    for local in changed:
        restore(s, first[1])
        a = _values(s, local, True)
        restore(s, second[1])
        b = _values(s, local, True)
        if a != b:
            differing.append(local)
            if local in s.tiles and a[1:] != b[1:]:
                loose.add(local)
    fixed = frozenset(loose)
    for builder, state in (first, second):
        restore(s, state)
        assert isinstance(builder, RegionBuilder)
        sides.append((_gather(s, differing, fixed), builder))
    names = _names(s, differing, fixed)
    regions = [closed(r, Operation("tile.yield", tuple(v), span=span)) for v, r in sides]
    found = s.b.if_(condition, regions[0], regions[1], names)
    restore(s, first[1])
    for value in found:
        s.b.defined_here(value)
    _bind_all(s, differing, fixed, found)


# --- loops -----------------------------------------------------------------------------------


def loop(s: State, node: ast.For, block: Block) -> None:
    symbol = s.typed.symbols.get(node.iterable.function) if isinstance(
        node.iterable, ast.Call) else None  # fmt: skip
    assert isinstance(node.iterable, ast.Call)
    around = dict(s.carried)
    save_before(s, node.body, node.span, _needed(s, node))
    if symbol == Builtin("op.tile_range"):
        s.tile_loops += 1
        _tile_range(s, node, node.iterable, block)
        s.tile_loops -= 1
    elif symbol == Builtin("range"):
        _range(s, node, node.iterable, block)
    else:
        raise Unsupported(node.iterable.span, "loops over anything but ranges")
    s.carried = around


def _variables(s: State, target: ast.Expr) -> list[Local]:
    items = target.items if isinstance(target, ast.TupleExpr) else (target,)
    found = [s.typed.symbols.get(item) for item in items]
    made = [x for x in found if isinstance(x, Local)]
    if len(made) != len(items):
        raise Unsupported(target.span, "this loop variable")
    return made


def _tile_range(s: State, node: ast.For, call: ast.Call, block: Block) -> None:
    variables = _variables(s, node.target)
    stops = [number(s, a) for a in call.arguments]
    lowers = [s.b.number(0)] * len(stops)
    if len(variables) == 1 and len(stops) == 2:
        lowers, stops = stops[:1], stops[1:]
    keywords = {k.name: k.value for k in call.keywords}
    step = s.typed.constants.get(keywords["step"]) if "step" in keywords else 1
    if isinstance(step, ast.Expr) or step is None:
        raise Unsupported(call.span, "a step that is not known at compile time")
    steps = list(step) if isinstance(step, tuple) else [step] * len(stops)  # type: ignore[arg-type]
    attributes: dict[str, Attribute] = {}
    if "independent" in keywords:
        named = s.typed.constants.get(keywords["independent"])
        words = cast("tuple[str, ...]", (named,) if isinstance(named, str) else named)
        attributes["independent"] = tuple(words)
    if s.stages is not None:
        attributes["pipeline_stages"] = s.stages
    widths = [s.b.number(int(n)) for n in steps]  # type: ignore[call-overload]
    if len(stops) == 1 and early_exits.breaks(s.typed, node.body):
        _counted(s, node, variables[0], (lowers[0], stops[0], widths[0]), call, block)
        return
    _emit(s, node, variables, (lowers, stops, widths), attributes, block)


def _range(s: State, node: ast.For, call: ast.Call, block: Block) -> None:
    (variable,) = _variables(s, node.target)
    given = list(call.arguments)
    for a in given:
        if s.typed.types.get(a) == Scalar(U64):
            counted(s.low, a)
    lower = number(s, given[0]) if len(given) > 1 else s.b.number(0)
    upper = number(s, given[1] if len(given) > 1 else given[0])
    step = number(s, given[2]) if len(given) > 2 else s.b.number(1)
    known = s.b.known(step)
    t = s.typed.variables.get(variable)
    index = not isinstance(t, Scalar) or t.dtype == INDEX
    if known is None or known <= 0 or not index or early_exits.breaks(s.typed, node.body):
        _counted(s, node, variable, (lower, upper, step), call, block)
        return
    attributes: dict[str, Attribute] = {"plain": True}
    if s.stages is not None:
        attributes["pipeline_stages"] = s.stages
    _emit(s, node, [variable], ([lower], [upper], [step]), attributes, block)


Bounds = tuple[list[Value], list[Value], list[Value]]


def _carried(s: State, node: ast.For | ast.While, own: Sequence[Local]) -> tuple[Local, ...]:
    """Variables an iteration takes from the one before, or leaves to what follows."""
    needed = _needed(s, node)
    found = [x for x in assigned(s.typed, node.body) if x in needed and x not in own]
    found += [x for x in own if x in s.live.after.get(node, frozenset())]
    if early_exits.returns(s.typed, node.body):
        found += _hidden(s)
    return tuple(x for x in dict.fromkeys(found) if _begin(s, x, node.span))


def _needed(s: State, node: ast.For | ast.While) -> frozenset[Local]:
    """Variables that are read at the head of a loop or behind it."""
    return s.live.head.get(node, frozenset()) | s.live.after.get(node, frozenset())


def _attempts(
    s: State, node: ast.For | ast.While, emit: Callable[[frozenset[Local]], frozenset[Local]]
) -> None:
    """Lower a body with the extents of tiles fixed; again with those carried that change. Where a
    loop around it is lowered again, it begins with what was found: else nests would double."""
    known = s.low.frame.loose
    loose = known.get(node, frozenset())
    while True:
        sites, items = len(s.low.sites), len(s.low.sink.items)
        before, writes = snapshot(s), dict(s.writes)
        arrays = len(s.private.plans) if s.private is not None else 0
        more = emit(loose)
        if more <= loose:
            return
        loose = known[node] = loose | more
        del s.low.sites[sites:]
        del s.low.sink.items[items:]
        restore(s, before)
        s.writes = writes
        if s.private is not None:
            s.private.forget(arrays)


def _changed(
    s: State, locals_: Sequence[Local], start: Mapping[Local, tuple[Axis, ...]]
) -> frozenset[Local]:
    """Tiles whose extents are not those they had at the head of the loop."""
    found: set[Local] = set()
    for local in locals_:
        if local in s.tiles and local in start:
            now = [a.extent for a in s.tiles[local].axes]
            if now != [a.extent for a in start[local]]:
                found.add(local)
    return frozenset(found)


def _heads(s: State, locals_: Sequence[Local]) -> dict[Local, tuple[Axis, ...]]:
    return {x: s.tiles[x].axes for x in locals_ if x in s.tiles}


def _emit(
    s: State, node: ast.For, variables: list[Local], bounds: Bounds,
    attributes: dict[str, Attribute], block: Block,
) -> None:  # fmt: skip
    lowers, uppers, steps = bounds
    leaving = early_exits.leaving_of_loop(s.typed, node.body, _needed(s, node))
    locals_ = (*_carried(s, node, variables), *_over(s, leaving))
    own = [x for x in variables if x in locals_]
    will_write(s, node.body)
    b = s.b

    def attempt(loose: frozenset[Local]) -> frozenset[Local]:
        names = _names(s, locals_, loose)
        start = _gather(s, locals_, loose)
        heads, before = _heads(s, locals_), snapshot(s)
        arguments: list[tuple[str, IRType]] = [(v.name, INDEX) for v in variables]
        arguments += [(n, v.type) for n, v in zip(names, start, strict=True)]
        with b.region(*arguments) as inside:
            at = inside.arguments[: len(variables)]
            _bind_all(s, locals_, loose, inside.arguments[len(variables) :])
            if loose:
                heads = {**heads, **{x: s.tiles[x].axes for x in loose}}
            for variable, value, lower, upper in zip(variables, at, lowers, uppers, strict=True):
                s.low.frame.variables[variable] = value
                s.below[value] = lower, upper
            _round(s, node, leaving, block)
            _settle(s, locals_, node.span)
            more = _changed(s, [x for x in locals_ if x not in loose], heads)
            for variable, value in zip(variables, at, strict=True):
                if variable in own:  # read behind the loop: as Python leaves it
                    s.low.frame.variables[variable] = value
            b.yield_(*_gather(s, locals_, loose))
        after = snapshot(s)
        restore(s, before)
        if more:
            return more | loose
        with b.at(node.iterable.span):
            found = b.loops(
                lowers, uppers, steps, start, inside.region, [v.name for v in variables],
                names=names, attributes=attributes,
            )  # fmt: skip
        for value in found:
            b.defined_here(value)
        _keep_shapes(s, locals_, after)
        _bind_all(s, locals_, loose, found)
        return loose

    _attempts(s, node, attempt)


def _over(s: State, leaving: Leaving) -> tuple[Local, ...]:
    """The flag that a loop is over, which it carries."""
    early_exits.clear(leaving.broken, s.low.frame, s.b)
    return () if leaving.broken is None else (leaving.broken,)


def _round(s: State, node: ast.For | ast.While, leaving: Leaving, block: Block) -> None:
    """The body of a loop, which does nothing once the loop is over."""
    s.leaving.append(leaving)
    early_exits.clear(leaving.skipped, s.low.frame, s.b)
    if leaving.broken is None:
        block(s, node.body)
    else:
        go_on = early_exits.unset(leaving.broken, s.low.frame, s.b)
        _branch(s, node.span, go_on, (node.body, ()), node.body[-1], block)
    s.leaving.pop()


def _keep_shapes(s: State, locals_: Sequence[Local], after: Snapshot) -> None:
    """A variable that got its first value in the loop has the form it has at the end."""
    for local in locals_:
        if local in after.tiles and local not in s.tiles:
            s.tiles[local] = after.tiles[local]


# --- loops with a condition --------------------------------------------------------------------


def while_loop(s: State, node: ast.While, block: Block) -> None:
    if s.typed.constants.get(node.test) is False:
        return
    around = dict(s.carried)
    save_before(s, node.body, node.span, _needed(s, node))
    _while(s, node, _carried(s, node, ()), lambda: truth(s, node.test), None, block)
    s.carried = around


def _counted(
    s: State, node: ast.For, variable: Local, bounds: tuple[Value, Value, Value], call: ast.Call,
    block: Block,
) -> None:  # fmt: skip
    """A range whose step is not known to be positive, or that may be left: a ``while``."""
    b, (lower, upper, step) = s.b, bounds
    t = s.typed.variables.get(variable)
    dtype = t.dtype if isinstance(t, Scalar) else INDEX
    known = b.known(step)
    if known is None:
        zero_step = b.cmp("ne", step, b.number(0))
        b.assertion(zero_step, s.low.site("step", call.span, "step of range"))
    counter = Local("at", "variable", None)
    s.low.frame.variables[counter] = lower
    locals_ = _carried(s, node, (variable,))
    if variable in locals_:
        locals_ = (*(x for x in locals_ if x is not variable), variable)

    def test() -> Value:
        at = s.low.frame.variables[counter]
        assert isinstance(at, Value)
        up, down = b.cmp("lt", at, upper), b.cmp("gt", at, upper)
        if known is not None:
            return up if known > 0 else down
        rising = b.cmp("gt", step, b.number(0))
        falling = b.binary("and", b.cmp("lt", step, b.number(0)), down)
        return b.binary("or", b.binary("and", rising, up), falling)

    def step_on() -> None:
        at = s.low.frame.variables[counter]
        assert isinstance(at, Value)
        s.low.frame.variables[variable] = b.cast(at, dtype)
        # The next place is known at once, so that ``continue`` may carry it.
        following = b.binary("add", at, step)
        if _may_wrap(s, call, known):  # then it is on the other side
            wraps = b.binary("xor", b.cmp("lt", following, at), b.cmp("lt", step, b.number(0)))
            following = b.select(wraps, upper, following)
        s.low.frame.variables[counter] = following

    _while(s, node, (counter, *locals_), test, step_on, block)


def _may_wrap(s: State, call: ast.Call, step: int | None) -> bool:
    """Whether a step behind the last place of a range may leave 64 bits."""
    wide = [t for a in call.arguments if isinstance(t := s.typed.types.get(a), Scalar)
            and t.dtype.bits == 64 and a not in s.typed.constants]  # fmt: skip
    return bool(wide) and (step is None or abs(step) >= 1 << 32)


def _while(
    s: State, node: ast.For | ast.While, locals_: tuple[Local, ...], test: Callable[[], Value],
    begin: Callable[[], None] | None, block: Block,
) -> None:  # fmt: skip
    """A loop that goes on while ``test`` holds and nothing has left it."""
    b = s.b
    will_write(s, node.body)
    leaving = early_exits.leaving_of_loop(s.typed, node.body, _needed(s, node))
    locals_ = (*locals_, *_over(s, leaving))

    def attempt(loose: frozenset[Local]) -> frozenset[Local]:
        names, start = _names(s, locals_, loose), _gather(s, locals_, loose)
        before = snapshot(s)
        arguments = [(n, v.type) for n, v in zip(names, start, strict=True)]
        with b.region(*arguments) as head:
            _bind_all(s, locals_, loose, head.arguments)
            b.condition(_goes_on(s, leaving, test), *head.arguments)
        with b.region(*arguments) as inside:
            _bind_all(s, locals_, loose, inside.arguments)
            heads = _heads(s, locals_)
            s.leaving.append(leaving)
            early_exits.clear(leaving.skipped, s.low.frame, b)
            if begin is not None:
                begin()
            block(s, node.body)
            s.leaving.pop()
            _settle(s, locals_, node.span)
            more = _changed(s, [x for x in locals_ if x not in loose], heads)
            b.yield_(*_gather(s, locals_, loose))
        restore(s, before)
        if more:
            return more | loose
        with b.at(node.span):
            found = b.while_(start, head.region, inside.region, names)
        for value in found:
            b.defined_here(value)
        _bind_all(s, locals_, loose, found)
        return loose

    _attempts(s, node, attempt)


def _goes_on(s: State, leaving: Leaving, test: Callable[[], Value]) -> Value:
    """Whether there is another round: the test is not asked once the loop is over."""
    if leaving.broken is None:
        return test()
    b = s.b
    go_on = early_exits.unset(leaving.broken, s.low.frame, b)
    with b.region() as asked:
        b.yield_(test())
    with b.region() as over:
        b.yield_(b.constant(False, BOOL))
    (found,) = b.if_(go_on, asked.region, over.region, ["goes_on"])
    b.defined_here(found)
    return found
