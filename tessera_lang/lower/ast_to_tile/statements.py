"""Statements of lane functions -> Tile operations.

Owns what each statement becomes. Must not know expressions: those come in through
``Lowering.expression``.
"""

from __future__ import annotations

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_tile import access, calls, control, operators
from tessera_lang.lower.ast_to_tile.context import Bound, Lowering, Unsupported, flatten, named
from tessera_lang.lower.ast_to_tile.implicit_conversions import settled
from tessera_lang.sema.side_tables import Builtin, Local
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import INDEX, U64, DType
from tessera_lang.types.type import Scalar


def lower_block(lowering: Lowering, statements: tuple[ast.Stmt, ...]) -> None:
    """Statements in order; those behind an exit are never reached and give nothing."""
    for statement in statements:
        if lowering.builder.terminated:
            return
        with lowering.builder.at(statement.span):
            try:
                _statement(lowering, statement)
            except Unsupported as fault:
                lowering.report(fault)


def _statement(lowering: Lowering, s: ast.Stmt) -> None:
    match s:
        case ast.ExprStmt():
            if not isinstance(s.value, ast.StringLit):
                lowering.expression(lowering, s.value)
        case ast.Assign():
            _assign(lowering, s.target, _assigned(lowering, s.target, s.value))
        case ast.AnnotatedAssign():
            if s.value is not None:
                _assign(lowering, s.target, lowering.expression(lowering, s.value))
        case ast.AugmentedAssign():
            _augmented(lowering, s)
        case ast.If():
            _if(lowering, s)
        case ast.Assert():
            _assert(lowering, s)
        case ast.For():
            _for(lowering, s)
        case ast.While():
            _while(lowering, s)
        case ast.Break():
            lowering.builder.break_(*control.values_of(lowering, lowering.loops[-1]))
        case ast.Continue():
            lowering.builder.continue_(*control.values_of(lowering, lowering.loops[-1]))
        case ast.Return():
            _return(lowering, s)
        case ast.Pass() | ast.ErrorStmt():
            pass
        case ast.With():
            raise Unsupported(s.span, "`with`")
        case ast.Import() | ast.FromImport():
            raise Unsupported(s.span, "imports inside", "move the import to the top of the file")
        case ast.FunctionDef():
            help_text = "move the function to the top of the file"
            raise Unsupported(s.span, "functions inside", help_text)


# --- assignment ---------------------------------------------------------------------------


def _assigned(lowering: Lowering, target: ast.Expr, value: ast.Expr) -> Bound:
    """The value for a target, whose name what it allocates has."""
    if isinstance(target, ast.TupleExpr) and isinstance(value, ast.TupleExpr):
        if len(target.items) == len(value.items):
            pairs = zip(target.items, value.items, strict=True)
            return tuple(_assigned(lowering, t, v) for t, v in pairs)
    lowering.assigned_name = target.id if isinstance(target, ast.Name) else ""
    return lowering.expression(lowering, value)


def _assign(lowering: Lowering, target: ast.Expr, value: Bound) -> None:
    if isinstance(target, ast.TupleExpr):
        if isinstance(value, Value) or len(value) != len(target.items):
            raise Unsupported(target.span, "unpacking of this value")
        for item, part in zip(target.items, value, strict=True):
            _assign(lowering, item, part)
    elif isinstance(target, ast.Subscript):
        if not isinstance(value, Value):
            raise Unsupported(target.span, "tuples as elements")
        place = access.place_of(lowering, target)
        access.store(lowering, place, value)
    else:
        _set(lowering, target, value)


def _set(lowering: Lowering, target: ast.Expr, value: Bound) -> None:
    symbol = lowering.frame.typed.symbols.get(target)
    if symbol is None:
        return  # the size that it is anyway
    if not isinstance(symbol, Local):
        raise Unsupported(target.span, "an assignment to this")
    value = settled(lowering, value, lowering.frame.typed.variables.get(symbol))
    if isinstance(value, Value):
        value = named(lowering.builder, value, symbol.name)
    lowering.frame.variables[symbol] = value


def _augmented(lowering: Lowering, s: ast.AugmentedAssign) -> None:
    """The place is found once, then read, then the right side is evaluated (as in Python)."""
    if isinstance(s.target, ast.Subscript):
        place = access.place_of(lowering, s.target)
        old = access.load(lowering, place)
        new = _combined(lowering, s, old)
        access.store(lowering, place, lowering.builder.cast(new, access.dtype_of(place)))
        return
    old = lowering.expression(lowering, s.target)
    if not isinstance(old, Value):
        raise Unsupported(s.span, "this assignment")
    _set(lowering, s.target, _combined(lowering, s, old))


def _combined(lowering: Lowering, s: ast.AugmentedAssign, old: Value) -> Value:
    right = _number(lowering, s.value)
    if s.operator == "**":
        return calls.power(lowering, s.value, old, right, s.span)
    return operators.combine(lowering, s.operator, old, right, s.span)


def _number(lowering: Lowering, node: ast.Expr) -> Value:
    value = lowering.expression(lowering, node)
    if not isinstance(value, Value) or not isinstance(value.type, DType):
        raise Unsupported(node.span, "this value here")
    return value


def counted(lowering: Lowering, node: ast.Expr) -> Value:
    """A number of ``range``; a u64 of 2**63 and more, which no counter holds, is a fault."""
    value, b = _number(lowering, node), lowering.builder
    typed = lowering.frame.typed
    if typed.types.get(node) == Scalar(U64) and node not in typed.constants:
        shown = f"`{lowering.text(node.span)}` is too large for `range`"
        at = b.cast(value, INDEX)
        b.assertion(
            b.cmp("ge", at, b.index(0)), lowering.site("assert", node.span, "", shown=shown)
        )
    return value


# --- control ------------------------------------------------------------------------------


def _if(lowering: Lowering, s: ast.If) -> None:
    known = lowering.frame.typed.constants.get(s.test)
    if known is not None:
        lowering.block(lowering, s.body if known else s.orelse)
        return
    condition = operators.truth(lowering, _number(lowering, s.test))
    with lowering.builder.at(s.test.span):
        control.branch(
            lowering,
            condition,
            lambda: lowering.block(lowering, s.body),
            lambda: lowering.block(lowering, s.orelse),
            s.span,
        )


def _assert(lowering: Lowering, s: ast.Assert) -> None:
    if lowering.frame.typed.constants.get(s.test) is True:
        return
    condition = operators.truth(lowering, _number(lowering, s.test))
    text = s.message.value if isinstance(s.message, ast.StringLit) else ""
    what = text or lowering.text(s.test.span)
    lowering.builder.assertion(condition, lowering.site("assert", s.span, what, shown=what))


def _range(lowering: Lowering, s: ast.For, dtype: DType) -> tuple[Value, Value, Value, int]:
    """Lower, upper, step, and the site that reports a step of 0."""
    call = s.iterable
    symbols = lowering.frame.typed.symbols
    if not (isinstance(call, ast.Call) and symbols.get(call.function) == Builtin("range")):
        raise Unsupported(s.iterable.span, "loops over anything but `range(...)`")
    if call.keywords:
        raise Unsupported(s.iterable.span, "keywords of `range`")
    builder = lowering.builder
    given = [builder.cast(counted(lowering, a), dtype) for a in call.arguments]
    lower = given[0] if len(given) > 1 else builder.constant(0, dtype)
    upper = given[1] if len(given) > 1 else given[0]
    step = given[2] if len(given) > 2 else builder.constant(1, dtype)
    site = -1
    if len(given) > 2 and not operators.constant_of(lowering, step):
        site = lowering.site("step", call.arguments[2].span, "step of range")
    return lower, upper, step, site


def _for(lowering: Lowering, s: ast.For) -> None:
    builder, frame = lowering.builder, lowering.frame
    counter = frame.typed.symbols.get(s.target)
    if not isinstance(counter, Local):
        raise Unsupported(s.target.span, "this loop variable")
    t = frame.typed.variables.get(counter)
    dtype = t.dtype if isinstance(t, Scalar) else INDEX
    lower, upper, step, site = _range(lowering, s, dtype)
    locals_ = control.carried(lowering, s)
    names = control.hints(lowering, locals_)
    start = control.values_of(lowering, locals_)
    before = dict(frame.variables)
    arguments = [(n, v.type) for n, v in zip(names, start, strict=True)]
    with builder.region((counter.name, dtype), *arguments) as body:
        control.bind(lowering, locals_, body.arguments[1:])
        frame.variables[counter] = body.arguments[0]
        _body(lowering, locals_, s.body)
    frame.variables = before
    with builder.at(s.iterable.span):
        results = builder.for_(lower, upper, step, start, body.region, site, names)
    control.bind(lowering, locals_, results)


def _body(lowering: Lowering, locals_: tuple[Local, ...], body: tuple[ast.Stmt, ...]) -> None:
    lowering.loops.append(locals_)
    lowering.frame.depth += 1
    lowering.block(lowering, body)
    lowering.frame.depth -= 1
    lowering.loops.pop()
    if not lowering.builder.terminated:
        lowering.builder.yield_(*control.values_of(lowering, locals_))


def _breaks(statements: tuple[ast.Stmt, ...]) -> bool:
    for s in statements:
        match s:
            case ast.Break():
                return True
            case ast.If():
                if _breaks(s.body) or _breaks(s.orelse):
                    return True
            case _:
                pass
    return False


def _while(lowering: Lowering, s: ast.While) -> None:
    builder, frame = lowering.builder, lowering.frame
    if frame.typed.constants.get(s.test) is False:
        return
    locals_ = control.carried(lowering, s)
    names = control.hints(lowering, locals_)
    start = control.values_of(lowering, locals_)
    before = dict(frame.variables)
    arguments = [(n, v.type) for n, v in zip(names, start, strict=True)]
    with builder.region(*arguments) as head:
        control.bind(lowering, locals_, head.arguments)
        test = operators.truth(lowering, _number(lowering, s.test))
        builder.condition(test, *head.arguments)
    with builder.region(*arguments) as body:
        control.bind(lowering, locals_, body.arguments)
        _body(lowering, locals_, s.body)
    frame.variables = before
    with builder.at(s.test.span):
        results = builder.while_(start, head.region, body.region, names)
    control.bind(lowering, locals_, results)
    if frame.typed.constants.get(s.test) and not _breaks(s.body):
        control.never_reached(lowering)


def _return(lowering: Lowering, s: ast.Return) -> None:
    frame = lowering.frame
    if frame.style == "kernel":
        if s.value is not None and not isinstance(s.value, ast.NoneLit):
            raise Unsupported(s.span, "results", "write to a `mut` parameter")
        lowering.builder.return_()
        return
    value: Bound = ()
    if s.value is not None and not isinstance(s.value, ast.NoneLit):
        value = settled(lowering, lowering.expression(lowering, s.value), frame.typed.returns)
    if frame.style == "direct":
        frame.result = value
        return
    lowering.builder.leave(*flatten(value))
