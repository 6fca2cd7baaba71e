"""Statements of tile kernels: assignments, buffers, stores, accumulations.

Owns what each statement becomes. Loops and conditions stand in ``control.py``; stores into
arrays in ``stores.py``. Must not know expressions beyond ``values``.
"""

from __future__ import annotations

from tessera_lang.diagnostics import Diagnostic, Label
from tessera_lang.ir.core import Value
from tessera_lang.ir.schedule.builder import dtype_of
from tessera_lang.lower.ast_to_schedule import (
    builtin_calls,
    control,
    early_exits,
    expressions,
    inline,
    node_builders,
    stores,
    values_before_writes,
)
from tessera_lang.lower.ast_to_schedule.axis_collapsing import with_merged_sums
from tessera_lang.lower.ast_to_schedule.kept_values import with_kept_values
from tessera_lang.lower.ast_to_schedule.state import Refused, State, register_dtype
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Axis,
    Filled,
    Held,
    Mapped,
    Node,
    Product,
    Read,
    Reduced,
    Scanned,
    Sorted,
    Staging,
    Window,
    is_whole,
    operands_of,
    with_operands,
)
from tessera_lang.lower.ast_to_tile import operators
from tessera_lang.lower.ast_to_tile.calls import power
from tessera_lang.lower.ast_to_tile.context import Bound, Unsupported, named
from tessera_lang.lower.ast_to_tile.expressions import lower_expression
from tessera_lang.lower.ast_to_tile.implicit_conversions import settled
from tessera_lang.record import replace
from tessera_lang.sema.side_tables import Builtin, Local
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DType
from tessera_lang.types.type import Scalar, Tensor, Tile


def lower_block(s: State, statements: tuple[ast.Stmt, ...]) -> None:
    """Statements in order; those behind an exit are never reached and give nothing."""
    around = s.later
    try:
        for i, statement in enumerate(statements):
            with s.b.at(statement.span):
                s.later = around | s.live.after.get(statement, frozenset())
                try:
                    if early_exits.may_leave(s.typed, statement, s.leaving[-1].loop):
                        _leave(s, statement, statements[i + 1 :])
                        return
                    _statement(s, statement)
                except Unsupported as fault:
                    report(s, fault)
                except Refused as refused:
                    s.low.sink.add(_used_in(statement, refused.diagnostic))
    finally:
        s.later = around


def _used_in(statement: ast.Stmt, found: Diagnostic) -> Diagnostic:
    """A refusal of a value that was assigned elsewhere, with the statement that uses it."""
    at = found.span
    if at is None or (statement.span.lo <= at.lo and at.hi <= statement.span.hi):
        return found
    return replace(found, labels=(*found.labels, Label(statement.span, "used here")))


def _leave(s: State, statement: ast.Stmt, rest: tuple[ast.Stmt, ...]) -> None:
    """An exit, or a statement that may be left by one, with what stands behind it."""
    if not isinstance(statement, ast.Break | ast.Continue | ast.Return):
        control.leave_from(s, statement, rest, lambda: _statement(s, statement), lower_block)
        return
    if isinstance(statement, ast.Return):
        _return(s, statement)
    early_exits.leave(statement, early_exits.of_function(s.leaving), s.low.frame, s.b)


def report(s: State, fault: Unsupported) -> None:
    helps = (fault.help_text,) if fault.help_text else ()
    message = f"tile kernels do not have {fault.what} yet"
    s.low.sink.add(Diagnostic("T0700", message, fault.span, "not supported", helps=helps))


def _statement(s: State, node: ast.Stmt) -> None:
    match node:
        case ast.ExprStmt():
            _expression(s, node)
        case ast.Assign() | ast.AugmentedAssign() if node in s.typed.in_order:
            store = s.typed.in_order[node]
            _assign(s, store.target, store.value)
        case ast.Assign():
            s.low.assigned_name = node.target.id if isinstance(node.target, ast.Name) else ""
            _assign(s, node.target, node.value)
        case ast.AnnotatedAssign():
            if node.value is not None:
                _assign(s, node.target, node.value)
        case ast.AugmentedAssign():
            _augmented(s, node)
        case ast.If():
            control.branch(s, node, lower_block)
        case ast.For():
            control.loop(s, node, lower_block)
        case ast.While():
            control.while_loop(s, node, lower_block)
        case ast.With():
            _with(s, node)
        case ast.Break() | ast.Continue() | ast.Return():
            raise ValueError("exits are taken by the block they stand in")
        case ast.Assert():
            _assert(s, node)
        case ast.Pass() | ast.ErrorStmt():
            pass
        case ast.Import() | ast.FromImport():
            raise Unsupported(node.span, "imports inside", "move the import to the top of the file")
        case ast.FunctionDef():
            help_text = "move the function to the top of the file"
            raise Unsupported(node.span, "functions inside", help_text)


def _expression(s: State, node: ast.ExprStmt) -> None:
    value = node.value
    if isinstance(value, ast.StringLit):
        return
    if isinstance(value, ast.Call):
        symbol = s.typed.symbols.get(value.function)
        if symbol == Builtin("op.prefetch"):
            _prefetch(s, value)
            return
        if isinstance(symbol, Builtin) and symbol.name.startswith("schedule."):
            return  # a directive: it stands in TileInfo
        if expressions.is_tile_call(s, value):
            builtin_calls.call(s, value)
            return
    lower_expression(s.low, value)


def _assert(s: State, node: ast.Assert) -> None:
    if s.typed.constants.get(node.test) is True:
        return
    condition = control.truth(s, node.test)
    text = node.message.value if isinstance(node.message, ast.StringLit) else ""
    what = text or s.low.text(node.test.span)
    s.b.assertion(condition, s.low.site("assert", node.span, what, shown=what))


def _with(s: State, node: ast.With) -> None:
    """``with schedule.pipeline(double_buffer=True)``: the depth of what is staged inside."""
    call = node.context
    symbol = s.typed.symbols.get(call.function) if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or symbol != Builtin("schedule.pipeline"):
        raise Unsupported(node.span, "`with` this")
    double = builtin_calls.known(s, builtin_calls.argument(s, call, "double_buffer"))
    stages = builtin_calls.known(s, builtin_calls.argument(s, call, "stages"))
    before = s.stages, s.double_buffer
    s.double_buffer = bool(double) if double is not None else None
    s.stages = int(stages) if isinstance(stages, int) else 2 if double else 1
    try:
        lower_block(s, node.body)
    finally:
        s.stages, s.double_buffer = before


# --- variables -------------------------------------------------------------------------------


def _sizes_of_value(s: State, e: ast.Expr) -> tuple[Value, ...]:
    """What ``x.shape`` of a tile is unpacked into; nothing of another expression."""
    if not isinstance(e, ast.Attribute) or e.name != "shape":
        return ()
    if not isinstance(s.typed.types.get(e.value), Tile):
        return ()
    return tuple(axis.extent for axis in s.node(e.value).axes)


def _assign(s: State, target: ast.Expr, value: ast.Expr) -> None:
    if isinstance(target, ast.TupleExpr):
        value = s.typed.expanded.get(value, value)  # sizes that a part of a shape says
        items = value.items if isinstance(value, ast.TupleExpr) else None
        if items is None:
            several = builtin_calls.results(s, value) if isinstance(value, ast.Call) else None
            if several is not None:
                for item, part in zip(target.items, [settle(s, x) for x in several], strict=True):
                    _store_or_bind(s, item, part)
                return
            found = _sizes_of_value(s, value) or lower_expression(s.low, value)
            if isinstance(found, Value) or len(found) != len(target.items):
                raise Unsupported(target.span, "unpacking of this value")
            for item, part in zip(target.items, found, strict=True):
                bind(s, item, part)
            return
        pairs = [
            (t, item) for t, item in zip(target.items, items, strict=True)
            if not (isinstance(t, ast.Name) and _makes_array(s, t, item))
        ]  # fmt: skip
        made = [s.evaluate(item) for _, item in pairs]
        made = [x if isinstance(x, Value | tuple) else settle(s, x) for x in made]
        views = [_written(s, t) for t, _ in pairs]
        for i, part in enumerate(made):  # NumPy computes all of them before it stores one
            if not isinstance(part, Value | tuple) and values_before_writes.needs_memory(
                s, part, [v for v in views[:i] if v is not None]
            ):
                made[i] = s.keep(part, value.span) or part
        for (t, _), part in zip(pairs, made, strict=True):
            _store_or_bind(s, t, part)
        return
    if isinstance(target, ast.Name) and _makes_array(s, target, value):
        return
    _store_or_bind(s, target, s.evaluate(value))


def _written(s: State, target: ast.Expr) -> Value | None:
    """The array that an assignment stores into."""
    if isinstance(target, ast.Subscript) and isinstance(s.typed.types.get(target.value), Tensor):
        return s.array(target.value)
    return None


_MAKERS = ("zeros", "ones", "empty", "full", "copy")
"""What fills an array that is made; one that begins with another value holds that."""


def _makes_array(s: State, target: ast.Name, value: ast.Expr) -> bool:
    """``y = op.empty(...)`` of an array that the kernel returns, or that nobody else sees."""
    symbol = s.typed.symbols.get(target)
    if not isinstance(symbol, Local):
        return False
    view = s.result_of.get(symbol)
    if view is None and s.typed.made.get(symbol) is False:
        view = s.own[symbol] = _private(s, symbol)
    if view is None:
        return False
    s.low.frame.variables[symbol] = view
    made = s.typed.symbols.get(value.function) if isinstance(value, ast.Call) else None
    filled = made.name.removeprefix("op.") if isinstance(made, Builtin) else ""
    if not isinstance(made, Builtin) or filled.removesuffix("_like") not in _MAKERS:
        stores.fill(s, view, s.node(value), value.span)
        return True
    assert isinstance(value, ast.Call)
    if made.name.startswith("op.zeros") and symbol in s.result_of:
        # Zeros of the runtime, which no loop of this kernel has to come behind.
        s.zeroed |= {next(i for i, v in enumerate(s.results) if v is view)}
    elif not made.name.startswith("op.empty"):
        stores.fill(s, view, _fill_of(s, value, made.name, view), value.span)
    return True


def _private(s: State, symbol: Local) -> Value:
    t = s.typed.variables[symbol]
    assert isinstance(t, Tensor) and s.private is not None
    sizes = [s.dim(dim) for dim in t.shape]
    known = [n for n in sizes if n is not None]
    assert len(known) == len(sizes)
    return s.private.make(symbol.name, t.dtype, t.shape, known)


def _fill_of(s: State, call: ast.Call, name: str, view: Value) -> Node:
    dtype = dtype_of(view)
    if name == "op.copy":
        return s.node(builtin_calls.needed(s, call, "x"))
    if name.startswith("op.full"):
        given = s.node(builtin_calls.needed(s, call, "value"))
        return node_builders.cast(s, given, dtype)
    return node_builders.constant(s, int(not name.startswith("op.zeros")), dtype)


def _store_or_bind(s: State, target: ast.Expr, value: Node | Bound) -> None:
    if isinstance(target, ast.Subscript):
        if isinstance(value, tuple):
            raise Unsupported(target.span, "tuples as elements")
        node = node_builders.number(value) if isinstance(value, Value) else value
        if isinstance(s.typed.types.get(target.value), Tensor):
            stores.store(s, target, node)
        else:
            _store_in_buffer(s, target, node)
    else:
        bind(s, target, value)


def bind(s: State, target: ast.Expr, value: Node | Bound) -> None:
    symbol = s.typed.symbols.get(target)
    if symbol is None:
        return  # the size that it is anyway
    if not isinstance(symbol, Local):
        raise Unsupported(target.span, "an assignment to this")
    t = s.typed.variables.get(symbol)
    if isinstance(value, Value | tuple):
        if isinstance(t, Tile):
            value = node_builders.number(value) if isinstance(value, Value) else value
        else:
            value = settled(s.low, value, t)
            if isinstance(value, Value):
                value = named(s.b, value, symbol.name)
            s.low.frame.variables[symbol] = value
            s.tiles.pop(symbol, None)
            return
    if isinstance(value, tuple):
        raise Unsupported(target.span, "a tuple with tiles")
    dtype = register_dtype(t)
    if isinstance(t, Scalar | Tile) and dtype is not None:
        value = node_builders.cast(s, value, dtype)
    s.bound_in[symbol] = s.b.current
    if isinstance(t, Tensor):
        s.tiles[symbol] = value
        return
    bound, value = value, settle(s, value)
    if isinstance(t, Scalar):
        scalar = node_builders.scalar_of(s, value)
        s.low.frame.variables[symbol] = named(s.b, scalar, symbol.name)
        return
    if isinstance(value, Held):
        held = named(s.b, value.value, symbol.name)
        value = Held(held, value.dtype, value.axes, _made_of(s, bound), s.b.current)
    s.tiles[symbol] = value


def _made_of(s: State, bound: Node) -> Node | None:
    """What a variable of a tile stands for in this region, where that is known."""
    if not isinstance(bound, Held):
        return bound
    return bound.made_of if bound.region is s.b.current else None


def settle(s: State, node: Node) -> Node:
    """A value as a variable keeps it: computed, where it has a capacity; what it needs of such
    parts is computed too, so that it is what it was when it was bound."""
    return _settled(s, node, {})


def _settled(s: State, node: Node, known: dict[int, Node]) -> Node:
    """A node that is read twice stays one node."""
    found = known.get(id(node))
    if found is None:
        found = known[id(node)] = _settled_now(s, node, known)
    return found


def _settled_now(s: State, node: Node, known: dict[int, Node]) -> Node:
    if isinstance(node, Held | Filled):
        return node
    if is_whole(node):
        (node,) = with_kept_values(s, (node,))
        return s.computed(node, lambda x: _held_alone(s, x))
    if isinstance(node, Read):
        return node
    changed = False
    parts: list[Node] = []
    for operand in operands_of(node):
        part = operand
        if isinstance(operand, Reduced | Scanned | Sorted | Product) and is_whole(operand):
            part = s.computed(with_merged_sums(s, operand), lambda x: _held_alone(s, x))
        elif not isinstance(operand, Held | Filled | Read):
            part = _settled(s, operand, known)
        changed = changed or part is not operand
        parts.append(part)
    return with_operands(node, parts) if changed else node


def _held_alone(s: State, node: Node) -> Node:
    s.nests.name_alone(node)
    return s.demand.held(node)


def _augmented(s: State, node: ast.AugmentedAssign) -> None:
    target = node.target
    if isinstance(target, ast.Subscript) and isinstance(s.typed.types.get(target.value), Tensor):
        stores.accumulate(s, node)
        return
    symbol = s.typed.symbols.get(target)
    t = s.typed.variables.get(symbol) if isinstance(symbol, Local) else None
    if isinstance(target, ast.Subscript):
        old = s.node(target)
        dtype = register_dtype(s.typed.types.get(target)) or old.dtype
        right = s.node(node.value)
        made = node_builders.combine(s, node.operator, old, right, dtype, None, node.span)
        _store_in_buffer(s, target, made)
        return
    if isinstance(t, Tile):
        old = s.node(target)
        dtype = register_dtype(t) or old.dtype
        right = s.node(node.value)
        bind(s, target, node_builders.combine(s, node.operator, old, right, dtype, t, node.span))
        return
    number = lower_expression(s.low, target)
    other = lower_expression(s.low, node.value)
    if not isinstance(number, Value) or not isinstance(other, Value):
        raise Unsupported(node.span, "this assignment")
    if node.operator == "**":
        bind(s, target, power(s.low, node.value, number, other, node.span))
    else:
        bind(s, target, operators.combine(s.low, node.operator, number, other, node.span))


# --- buffers ---------------------------------------------------------------------------------


def _prefetch(s: State, call: ast.Call) -> None:
    buffer = builtin_calls.needed(s, call, "buffer")
    value = s.node(builtin_calls.needed(s, call, "value"))
    if isinstance(value, Read):
        value = replace(value, staging=Staging(s.double_buffer, True))
    _whole_store(s, buffer, value)


def _buffer(s: State, e: ast.Expr) -> tuple[Local, Node]:
    symbol = s.typed.symbols.get(e)
    if not isinstance(symbol, Local) or symbol not in s.tiles:
        raise Unsupported(e.span, "a store into this")
    return symbol, s.tiles[symbol]


def _store_in_buffer(s: State, target: ast.Subscript, value: Node) -> None:
    from tessera_lang.lower.ast_to_schedule.liveness import is_whole_store

    if is_whole_store(s.typed, target):
        _whole_store(s, target.value, value)
    else:
        _part_store(s, target, value)


def _whole_store(s: State, e: ast.Expr, value: Node) -> None:
    """The buffer has the value's extent; what the value does not cover counts as 0."""
    symbol, old = _buffer(s, e)
    room = tuple(a.capacity or 1 for a in old.axes)
    value = node_builders.cast(s, value, old.dtype)
    zero = s.b.number(0)
    axes: list[Axis] = []
    windows: list[Window] = []
    short = False
    own = value.axes[len(value.axes) - len(room) :] if value.axes else ()
    for i, n in enumerate(room):
        j = i - len(room) + len(own)
        if j < 0 or (own[j].capacity == 1 and n != 1):
            axes.append(Axis(s.b.number(n), n))
            windows.append(s.demand.one() if j >= 0 else Window(zero, n, s.b.number(n)))
            continue
        size = n if own[j].capacity is None else min(n, own[j].capacity or n)
        short = short or size < n
        axes.append(Axis(own[j].extent, n))
        windows.append(Window(zero, size, own[j].extent))
    if own:
        s.nests.name_alone(value)
    tile = s.demand(value, tuple(windows[len(room) - len(own) :]))
    if short:
        empty = s.b.full(s.b.constant(0, old.dtype), room)
        tile = s.demand.stretch(tile, tuple(w.size for w in windows))
        tile = s.b.insert(empty, tile, [zero] * len(room), [w.extent for w in windows])
    else:
        tile = s.demand.stretch(tile, room)
    s.tiles[symbol] = Held(named(s.b, tile, symbol.name), old.dtype, tuple(axes))


def _part_store(s: State, target: ast.Subscript, value: Node) -> None:
    """A store into a part: what was not there is 0 from now on, and the extent is the capacity."""
    from tessera_lang.lower.ast_to_schedule.subscripts import part_of_tile

    symbol, old = _buffer(s, target.value)
    room = tuple(a.capacity or 1 for a in old.axes)
    whole = tuple(Axis(s.b.number(n), n) for n in room)
    tile = s.demand(old, s.demand.whole(old))
    full = all(s.b.known(a.extent) == n for a, n in zip(old.axes, room, strict=True))
    if not full:
        tile = s.b.mask(tile, s.b.constant(0, old.dtype), [a.extent for a in old.axes])
    place = part_of_tile(s, target, Held(tile, old.dtype, whole))
    part = node_builders.cast(s, value, old.dtype)
    made = Mapped(lambda v, w: v[0], (part,), old.dtype, place.axes, target.span)
    found = s.demand(made, s.demand.whole(made))
    found, starts, extents = _as_part(s, place, found, len(room))
    tile = s.b.insert(tile, found, starts, extents)
    s.tiles[symbol] = Held(named(s.b, tile, symbol.name), old.dtype, whole)


def _as_part(
    s: State, place: Node, value: Value, rank: int
) -> tuple[Value, list[Value], list[Value]]:
    """A value with an axis for each of the buffer's: starts and extents."""
    from tessera_lang.lower.ast_to_schedule.value_nodes import Part

    assert isinstance(place, Part)
    one = s.b.number(1)
    if isinstance(value.type, DType):
        value = s.b.full(value, (1,) * rank)
    else:
        for axis, along in enumerate(place.along):
            if along is None:
                value = s.b.expand(value, axis)
    extents = [one if a is None else place.axes[a].extent for a in place.along]
    return value, list(place.starts), extents


# --- results ---------------------------------------------------------------------------------


def _return(s: State, node: ast.Return) -> None:
    """Store what is returned into the kernel's results; arrays made here are there already."""
    if node.value is None or isinstance(node.value, ast.NoneLit):
        return
    if len(s.frames) > 1:
        inline.give_back(s, node.value)
        return
    items = node.value.items if isinstance(node.value, ast.TupleExpr) else (node.value,)
    left = [
        (item, view) for item, view in zip(items, s.results, strict=True)
        if not (isinstance(x := s.typed.symbols.get(item), Local) and s.result_of.get(x) is view)
    ]  # fmt: skip
    made: dict[ast.Expr, Node] = {}
    behind = s.later
    # Numbers are computed at once, and what is kept for them the others read.
    for item, _ in sorted(left, key=lambda one: not _is_number(s, one[0])):
        s.later = behind.union(*(s.live.uses(x) for x, _ in left if x is not item))
        made[item] = _result(s, item)
    s.later = behind
    found = [made[item] for item, _ in left]
    if len(found) > 1:
        found = with_kept_values(s, found, node.span)
    for (item, view), value in zip(left, found, strict=True):
        stores.fill(s, view, value, item.span)


def _is_number(s: State, item: ast.Expr) -> bool:
    t = s.typed.types.get(item)
    return not isinstance(t, Tensor) and not (isinstance(t, Tile) and t.axes)


def _result(s: State, item: ast.Expr) -> Node:
    found = s.evaluate(item)
    if isinstance(found, tuple):
        raise Unsupported(item.span, "this as a result")
    return node_builders.number(found) if isinstance(found, Value) else found
