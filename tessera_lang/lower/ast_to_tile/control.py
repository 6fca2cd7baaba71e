"""SSA construction over structured control flow: joins of ``if``, carried values of loops.

Variables assigned in an ``if`` become its results, those assigned in a loop its carried
values. Must not know expressions; statements come in through ``Lowering.block``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.definitions import is_pure
from tessera_lang.ir.tile.builder import RegionBuilder
from tessera_lang.lower.ast_to_tile.context import (
    Bound,
    Lowering,
    Unsupported,
    flat_types,
    flatten,
    is_scalar,
    rebuild,
    zero,
)
from tessera_lang.record import field_names
from tessera_lang.sema.side_tables import Local
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.target.tuned_constants import BRANCH_OPERATIONS
from tessera_lang.types.dtype import BOOL, DType


def nodes(root: object) -> Iterator[object]:
    """Every syntax node below (and with) ``root``, in no promised order; no recursion."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(cast("tuple[object, ...]", node))
        elif not isinstance(node, Span) and (names := field_names(node)):
            yield node
            stack.extend(getattr(node, n) for n in names if n != "span")


def _targets(target: ast.Expr) -> Iterator[ast.Expr]:
    if isinstance(target, ast.TupleExpr):
        for item in target.items:
            yield from _targets(item)
    else:
        yield target


def assigned(lowering: Lowering, statements: Sequence[ast.Stmt]) -> tuple[Local, ...]:
    """Variables that these statements may assign, in source order."""
    symbols = lowering.frame.typed.symbols
    found: dict[Local, None] = {}
    stack = list(reversed(statements))
    while stack:
        s = stack.pop()
        match s:
            case ast.Assign() | ast.AugmentedAssign() | ast.AnnotatedAssign() | ast.For():
                for target in _targets(s.target):
                    symbol = symbols.get(target)
                    if isinstance(symbol, Local):
                        found[symbol] = None
            case _:
                pass
        match s:
            case ast.If():
                stack.extend(reversed(s.body + s.orelse))
            case ast.For() | ast.While() | ast.With():
                stack.extend(reversed(s.body))
            case _:
                pass
    return tuple(found)


def _uses(lowering: Lowering, root: ast.Stmt) -> dict[Local, int]:
    """How often each variable is named in a function or a statement of it; counted once."""
    kept = lowering.frame.uses
    found = kept.get(root)
    if found is None:
        symbols, found = lowering.frame.typed.symbols, kept.setdefault(root, {})
        for n in nodes(root.body if isinstance(root, ast.FunctionDef) else root):
            symbol = symbols.get(n) if isinstance(n, ast.Name) else None
            if isinstance(symbol, Local):
                found[symbol] = found.get(symbol, 0) + 1
    return found


def _read_outside(lowering: Lowering, statement: ast.Stmt, local: Local) -> bool:
    everywhere = _uses(lowering, lowering.frame.typed.declaration)
    return everywhere.get(local, 0) > _uses(lowering, statement).get(local, 0)


def carried(lowering: Lowering, statement: ast.For | ast.While) -> tuple[Local, ...]:
    """Variables a loop carries. One first assigned inside it and read behind it begins as 0
    (sema has shown that the 0 is never read)."""
    variables = lowering.frame.variables
    body = (statement,) if isinstance(statement, ast.For) else statement.body
    chosen: list[Local] = []
    for local in assigned(lowering, body):
        if local not in variables and _read_outside(lowering, statement, local):
            start = zero(lowering.builder, lowering.frame.typed.variables[local])
            if start is not None:
                variables[local] = start
        if local in variables:
            if not is_scalar(variables[local]):
                raise Unsupported(statement.span, f"an array variable ({local.name}) set in a loop")
            chosen.append(local)
    return tuple(chosen)


def values_of(lowering: Lowering, locals_: Sequence[Local]) -> list[Value]:
    variables = lowering.frame.variables
    return [value for local in locals_ for value in flatten(variables[local])]


def hints(lowering: Lowering, locals_: Sequence[Local]) -> list[str]:
    variables = lowering.frame.variables
    return [local.name for local in locals_ for _ in flatten(variables[local])]


def bind(lowering: Lowering, locals_: Sequence[Local], values: Sequence[Value]) -> None:
    """Give each variable its values, in the structure it has."""
    variables, source = lowering.frame.variables, iter(values)
    for local in locals_:
        variables[local] = rebuild(variables[local], source)


def closed(builder: RegionBuilder, *tail: Operation) -> Region:
    return Region(builder.arguments, (*builder.operations, *tail))


def branch(
    lowering: Lowering,
    condition: Value,
    then: Callable[[], None],
    otherwise: Callable[[], None],
    span: Span,
) -> None:
    """An ``if`` statement. Where one side leaves, the other goes on behind the ``if``."""
    builder, frame = lowering.builder, lowering.frame
    before = dict(frame.variables)
    with builder.region() as first:
        then()
    after_first = frame.variables
    frame.variables = dict(before)
    with builder.region() as second:
        otherwise()
    after_second = frame.variables
    empty = Region((), (Operation("tile.yield", span=span),))
    if first.terminated:
        builder.if_(condition, closed(first), empty)
        builder.current.operations.extend(second.operations)
    elif second.terminated:
        builder.if_(condition, empty, closed(second))
        builder.current.operations.extend(first.operations)
        frame.variables = after_first
    else:
        frame.variables = _join(
            lowering, condition, (first, after_first), (second, after_second), span
        )


def _join(
    lowering: Lowering,
    condition: Value,
    first: tuple[RegionBuilder, dict[Local, Bound]],
    second: tuple[RegionBuilder, dict[Local, Bound]],
    span: Span,
) -> dict[Local, Bound]:
    """Emit the ``if`` and give the variables behind it: those set on both sides."""
    joined: dict[Local, Bound] = {}
    left: list[Value] = []
    right: list[Value] = []
    names: list[str] = []
    differing: list[Local] = []
    for local, a in first[1].items():
        if local not in second[1]:
            continue
        b = second[1][local]
        joined[local] = a
        if list(flatten(a)) != list(flatten(b)):
            if not (is_scalar(a) and is_scalar(b)):
                raise Unsupported(span, f"an array variable ({local.name}) chosen by a condition")
            differing.append(local)
            left.extend(flatten(a))
            right.extend(flatten(b))
            names.extend(local.name for _ in flatten(a))
    then = closed(first[0], Operation("tile.yield", tuple(left), span=span))
    other = closed(second[0], Operation("tile.yield", tuple(right), span=span))
    results = iter(lowering.builder.if_(condition, then, other, names))
    for local in differing:
        joined[local] = rebuild(joined[local], results)
    return joined


def is_cheap(operations: Sequence[Operation]) -> bool:
    """Whether operations may run unasked: few, and nothing happens but their values."""
    return len(operations) <= BRANCH_OPERATIONS and all(is_pure(o) for o in operations)


def choose(
    lowering: Lowering, condition: Value, then: Callable[[], Value], otherwise: Callable[[], Value]
) -> Value:
    """A value by a condition: ``tile.select`` where both sides are cheap, else ``tile.if``."""
    builder = lowering.builder
    with builder.region() as first:
        a = then()
    with builder.region() as second:
        b = otherwise()
    if is_cheap(first.operations) and is_cheap(second.operations):
        builder.current.operations.extend((*first.operations, *second.operations))
        return builder.select(condition, a, b)
    then_region = closed(first, Operation("tile.yield", (a,), span=builder.span))
    other_region = closed(second, Operation("tile.yield", (b,), span=builder.span))
    (result,) = builder.if_(condition, then_region, other_region)
    return result


def short_circuit(
    lowering: Lowering, operator: str, left: Value, right: Callable[[], Value]
) -> Value:
    """``and`` and ``or`` of bools; the right side runs only where it is asked for."""
    builder = lowering.builder
    with builder.region() as inner:
        b = right()
    if is_cheap(inner.operations):
        builder.current.operations.extend(inner.operations)
        return builder.binary(operator, left, b)
    asked = closed(inner, Operation("tile.yield", (b,), span=builder.span))
    with builder.region() as known:
        builder.yield_(builder.constant(operator == "or", BOOL))
    regions = (asked, known.region) if operator == "and" else (known.region, asked)
    (result,) = builder.if_(left, *regions)
    return result


def never_reached(lowering: Lowering) -> None:
    """End a region behind a loop that is left by exits of the lane or function only."""
    builder, frame = lowering.builder, lowering.frame
    if frame.depth:
        builder.continue_(*values_of(lowering, lowering.loops[-1]))
    elif frame.style == "scope":
        leave_nothing(lowering)
    elif frame.style == "kernel":
        builder.return_()


def leave_nothing(lowering: Lowering) -> None:
    """The end of a function without a result, or one that is never reached."""
    builder = lowering.builder
    types = flat_types(lowering.frame.typed.returns)
    builder.leave(*(builder.constant(0, t) for t in types if isinstance(t, DType)))
