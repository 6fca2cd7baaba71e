"""Control flow on data, as regions of a graph: branches and loops that a number decides which the
function computes.

A region is traced with a builder of its own; what it reads of the function becomes operands. Owns
which variables it gives. Must not know how an expression is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, cast

from tessera_lang.evaluate.fault import fault
from tessera_lang.evaluate.host import Outcome, Returned
from tessera_lang.evaluate.value import Scope
from tessera_lang.ir.core import Operation, Region, TensorType, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.ir.graph.regions import IF, WHILE
from tessera_lang.lower.ast_to_graph.values import (
    GraphArray,
    GraphNumber,
    is_double,
    is_number,
    number_dtype,
)
from tessera_lang.opt.graph.dead_code import without_unused
from tessera_lang.record import dataclass
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, F64, I64, DType

if TYPE_CHECKING:
    from tessera_lang.lower.ast_to_graph.world import GraphWorld

_COUNTER, _RESULT = "the counter of a loop", "what is returned"


@dataclass(frozen=True, slots=True)
class GraphRange:
    """A range whose limits the function computes."""

    description: ClassVar[str] = "a range"
    start: object
    stop: object
    step: object


@contextmanager
def _building(world: GraphWorld, builder: GraphBuilder) -> Generator[None]:
    outer, world.builder = world.builder, builder
    builder.span = outer.span
    try:
        yield
    finally:
        world.builder = outer


# --- regions ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Part:
    """What a region was traced to: of these arguments, it gives these results."""

    builder: GraphBuilder
    arguments: list[Value]
    results: list[Value]

    def read(self) -> list[Value]:
        """What it needs of the function around."""
        made = {v: o for o in self.builder.operations for v in o.results}
        found, left = dict[Value, None](), list(self.results)
        seen = set(self.arguments)
        while left:
            value = left.pop()
            if value in seen:
                continue
            seen.add(value)
            operation = made.get(value)
            if operation is None:
                found[value] = None
            else:
                left.extend(operation.operands)
        return list(found)

    def region(self, captured: Sequence[Value], constants: dict[Value, Operation]) -> Region:
        """It alone, which takes what is captured behind its arguments."""
        builder = GraphBuilder(OPERATORS)
        new = {v: Value(v.type, v.name) for v in (*self.arguments, *captured)}
        given = list(new.values())
        for value, operation in constants.items():
            new[value] = builder.add_operation(operation, ())
        for o in self.builder.operations:
            if all(v in new for v in o.operands):
                builder.span = o.span
                operands = [new[v] for v in o.operands]
                new.update(zip(o.results, builder.repeated(o, operands), strict=True))
        made = builder.function("region", given, [new[v] for v in self.results])
        return without_unused(made).regions[0]


def _regions(outer: GraphBuilder, parts: Sequence[_Part]) -> tuple[list[Value], tuple[Region, ...]]:
    """What parts need of the function around, and they as regions."""
    read = dict.fromkeys(v for p in parts for v in p.read())
    constants = {v: o for v in read if (o := outer.origin(v)) and o.name == "graph.full"}
    captured = [v for v in read if v not in constants]
    return captured, tuple(p.region(captured, constants) for p in parts)


# --- variables -------------------------------------------------------------------------------


@contextmanager
def _nothing_else_changes(scope: Scope, span: Span) -> Generator[None]:
    """Refuses stores into arrays, and changes of lists: they are no variables. Raises HostFault."""
    arrays: list[tuple[GraphArray, Value]] = []
    lists: list[tuple[object, list[object]]] = []
    around: Scope | None = scope
    values = list[object](scope.given)
    while around is not None:
        values += around.values.values()
        around = around.parent
    for value in values:
        _collect(value, arrays, lists, 4)
    yield
    if any(a.value is not before for a, before in arrays):
        raise fault("T0760", "a store into an array where data decide is not possible in a graph",
                    span, helps=("choose for each element: `x = op.where(condition, new, x)`",)
                    )  # fmt: skip
    if any(_items(v) != before for v, before in lists):
        raise fault("T0760", "a list that changes where data decide is not possible in a graph",
                    span, helps=("keep arrays of a known shape",))  # fmt: skip


def _items(value: object) -> list[object]:
    items = cast("dict[object, object]", value).values() if isinstance(value, dict) else value
    return [id(v) for v in cast("Iterable[object]", items)]


def _collect(
    value: object, arrays: list[tuple[GraphArray, Value]],
    lists: list[tuple[object, list[object]]], depth: int,
) -> None:  # fmt: skip
    if isinstance(value, GraphArray):
        arrays.append((value, value.value))
    elif isinstance(value, list | tuple | dict) and depth:
        if not isinstance(value, tuple):
            lists.append((cast("object", value), _items(cast("object", value))))
        items = cast("dict[object, object]", value)
        inner = items.values() if isinstance(value, dict) else items
        for item in cast("Iterable[object]", inner):
            _collect(item, arrays, lists, depth - 1)


def _dtype(number: object) -> DType:
    if isinstance(number, GraphNumber):
        return number.type.dtype
    return BOOL if isinstance(number, bool) else I64 if isinstance(number, int) else F64


def _is_carried(world: GraphWorld, value: object) -> bool:
    return is_number(value) or world.is_array(value)


def _left(outcome: Outcome, s: ast.Stmt) -> None:
    """Raises HostFault where statements leave what a region computes."""
    if outcome is None:
        return
    word = getattr(outcome, "word", "return")
    helps = {
        "return": "give a variable a value in both branches, and return it behind them",
        "break": "put the condition into the `while`: `while not found and k < n:`",
        "continue": "put the rest of the loop under the opposite condition",
    }
    raise fault("T0760", f"`{word}` where data decide is not possible in a graph", s.span,
                helps=(helps[word],))  # fmt: skip


def _as_number(world: GraphWorld, value: object, dtype: DType) -> Value:
    return world.builder.cast(world.lifted(value), dtype)


def _as_truth(world: GraphWorld, value: object) -> Value:
    found = world.lifted(value)
    if found.tensor_type.dtype == BOOL:
        return found
    return world.builder.op("ne", found, world.builder.zeros(found))


def either_of(world: GraphWorld, operator: str, values: Sequence[object]) -> GraphNumber:
    """Conditions, joined by ``and`` or ``or``."""
    found, *others = (_as_truth(world, v) for v in values)
    for other in others:
        found = world.builder.op(operator, found, other)
    return GraphNumber(found, double=False)


# --- branches --------------------------------------------------------------------------------


def branch(
    world: GraphWorld, s: ast.If, condition: object, scope: Scope, names: Sequence[str],
    run: Callable[[tuple[ast.Stmt, ...]], Outcome], rest: tuple[ast.Stmt, ...] | None = None,
) -> Outcome:  # fmt: skip
    """Variables behind a branch: those that both sides give. ``rest``: of a branch that returns,
    what follows it. Raises HostFault."""
    returns = rest is not None
    bodies = [(*side, *(rest or ())) for side in (s.body, s.orelse)]
    before = dict(scope.values)
    builders = [GraphBuilder(OPERATORS), GraphBuilder(OPERATORS)]
    sides: list[dict[str, object]] = []
    for builder, body in zip(builders, bodies, strict=True):
        with _nothing_else_changes(scope, s.span), _building(world, builder):
            outcome = run(body)
            if not returns:
                _left(outcome, s)
            elif not isinstance(outcome, Returned):
                raise fault("T0760", "one side of a condition on data returns, and the other does"
                            " not", s.span, helps=("return a value on both sides",))  # fmt: skip
            else:
                scope.values.update(_returned(outcome.value))
        sides.append(dict(scope.values))
        scope.values.clear()
        scope.values.update(before)
    results: list[tuple[Value, Value]] = []
    made: list[tuple[str, bool | None]] = []
    if returns:
        names = [n for n in sides[0] if n.startswith(_RESULT)]
        if names != [n for n in sides[1] if n.startswith(_RESULT)]:
            raise fault("T0760", "the sides of a condition on data return other numbers of values",
                        s.span)  # fmt: skip
    for name in names:
        if name in sides[0] and name in sides[1] and sides[0][name] is not sides[1][name]:
            values = sides[0][name], sides[1][name]
            pair, double = _both(world, name, values, builders, s)
            made.append((name, double))
            results.append(pair)
    parts = [_Part(b, [], [r[i] for r in results]) for i, b in enumerate(builders)]
    world.builder.span = s.span
    captured, regions = _regions(world.builder, parts)
    types = [a.tensor_type for a, _ in results]
    truth = _as_truth(world, condition)
    found = world.builder.operation(IF, (truth, *captured), types, {}, regions)
    for (name, double), value in zip(made, found, strict=True):
        scope.values[name] = GraphArray(value) if double is None else GraphNumber(value, double)
    if not returns:
        return None
    same = {n: v for n, v in sides[0].items() if n.startswith(_RESULT)}
    given = [scope.values.pop(n, v) for n, v in same.items()]
    return Returned(given[0] if _RESULT in same else tuple(given))


def _returned(value: object) -> dict[str, object]:
    """What a side returns, under names of its own."""
    if not isinstance(value, tuple):
        return {_RESULT: value}
    items = cast("tuple[object, ...]", value)
    return {f"{_RESULT} {i}": v for i, v in enumerate(items)}


def _both(
    world: GraphWorld, name: str, values: tuple[object, object], builders: Sequence[GraphBuilder],
    s: ast.Stmt,
) -> tuple[tuple[Value, Value], bool | None]:  # fmt: skip
    """What two sides give a variable, as values of one type; None: an array, else whether a number
    is one of f64. Raises HostFault."""
    numbers = all(map(is_number, values))
    if not numbers and not all(world.is_array(v) and not is_number(v) for v in values):
        raise fault("T0760", f"`{name}` is no array or number on both sides of a condition on data",
                    s.span, helps=("give it an array or a number on both sides",))  # fmt: skip
    dtype = number_dtype(*map(_dtype, values)) if numbers else F64
    found: list[Value] = []
    for value, builder in zip(values, builders, strict=True):
        with _building(world, builder):
            found.append(_as_number(world, value, dtype) if numbers else world.lifted(value))
    one, other = found
    if one.type != other.type:
        raise fault("T0834", f"`{name}` is {one.type} where the condition holds, and {other.type}"
                    " where it does not", s.span)  # fmt: skip
    return (one, other), any(map(is_double, values)) if numbers else None


# --- loops -----------------------------------------------------------------------------------


def loop(
    world: GraphWorld, s: ast.Stmt, scope: Scope, names: Sequence[str],
    test: Callable[[], object], body: Callable[[], Outcome],
) -> None:  # fmt: skip
    """Variables behind a loop that goes on while data say so. Raises HostFault."""
    before = dict(scope.values)
    carried = [n for n in dict.fromkeys(names) if n in before and _is_carried(world, before[n])]
    types = [TensorType(_dtype(before[n]), ()) if is_number(before[n])
             else world.lifted(before[n]).tensor_type for n in carried]  # fmt: skip
    double = {n for n in carried if is_double(before[n])}
    while True:
        wider = list(types)
        parts = _traced(world, s, scope, carried, wider, double, test, body)
        scope.values.clear()
        scope.values.update(before)
        if parts is not None:
            break
        types = wider
    world.builder.span = s.span
    captured, regions = _regions(world.builder, parts)
    first = [_as_number(world, before[n], t.dtype) if is_number(before[n])
             else world.lifted(before[n]) for n, t in zip(carried, types, strict=True)]  # fmt: skip
    found = world.builder.operation(
        WHILE, (*first, *captured), types, {"carried": len(carried)}, regions
    )
    for name, value in zip(carried, found, strict=True):
        number = is_number(before[name])
        scope.values[name] = GraphNumber(value, name in double) if number else GraphArray(value)


def _traced(
    world: GraphWorld, s: ast.Stmt, scope: Scope, carried: Sequence[str],
    types: list[TensorType], double: set[str], test: Callable[[], object],
    body: Callable[[], Outcome],
) -> list[_Part] | None:  # fmt: skip
    """The condition and the body. None where numbers are to have other ``types`` or are to be
    ``double``, which are changed then."""
    numbers = {n for n in carried if is_number(scope.values[n])}
    parts: list[_Part] = []
    started = dict(scope.values)
    arguments = [Value(t, n if n.isidentifier() else "i")
                 for n, t in zip(carried, types, strict=True)]  # fmt: skip
    for run in (test, body):
        scope.values.update(started)
        for n, v in zip(carried, arguments, strict=True):
            scope.values[n] = GraphNumber(v, n in double) if n in numbers else GraphArray(v)
        part = _Part(GraphBuilder(OPERATORS), arguments, [])
        with _nothing_else_changes(scope, s.span), _building(world, part.builder):
            found = run()
            if run is test:
                part.results.append(_as_truth(world, found))
            else:
                _left(cast("Outcome", found), s)
        parts.append(part)
    same = True
    with _building(world, parts[1].builder):
        for i, name in enumerate(carried):
            value = scope.values[name]
            if name in numbers and is_number(value):
                wanted = number_dtype(types[i].dtype, _dtype(value))
                wider = is_double(value) and name not in double
                same = same and wanted == types[i].dtype and not wider
                types[i] = TensorType(wanted, ())
                double.update({name} if wider else ())
                parts[1].results.append(_as_number(world, value, wanted))
                continue
            if not world.is_array(value) or world.lifted(value).type != types[i]:
                now = world.lifted(value).type if world.is_array(value) else "no array"
                raise fault("T0834", f"`{name}` is {types[i]} before the loop, and {now} behind a"
                            " step of it: what a loop carries keeps its type", s.span)  # fmt: skip
            parts[1].results.append(world.lifted(value))
    _check_others(world, started, scope, carried, s)
    return parts if same else None


def _check_others(
    world: GraphWorld, started: dict[str, object], scope: Scope, carried: Sequence[str], s: ast.Stmt
) -> None:  # fmt: skip
    for name, value in started.items():
        if name not in carried and scope.values.get(name) is not value:
            raise fault("T0760", f"`{name}` is no array or number, and a loop that goes on while"
                        " data say so changes it", s.span)  # fmt: skip


def over_range(
    world: GraphWorld, s: ast.For, values: GraphRange, scope: Scope, names: Sequence[str],
    operate: Callable[[ast.BinaryOperator, object, object], object],
    run: Callable[[], Outcome],
) -> None:  # fmt: skip
    """A loop over a range whose limits data decide. Raises HostFault."""
    if not isinstance(s.target, ast.Name) or not isinstance(values.step, int) or not values.step:
        raise fault("T0760", "a range of data has one variable, and a step that is known and not 0",
                    s.span)  # fmt: skip
    target, word = s.target.id, "gt" if values.step < 0 else "lt"
    if any(_dtype(v) != I64 for v in (values.start, values.stop)):
        raise fault("T0760", "the limits of a range are whole numbers", s.iterable.span)
    scope.values[_COUNTER] = values.start

    def test() -> object:
        sides = (world.lifted(v) for v in (scope.values[_COUNTER], values.stop))
        return GraphNumber(world.builder.op(word, *sides), double=False)

    def body() -> Outcome:
        scope.values[target] = scope.values[_COUNTER]
        outcome = run()
        scope.values[_COUNTER] = operate("+", scope.values[_COUNTER], values.step)
        return outcome

    loop(world, s, scope, (*names, target, _COUNTER), test, body)
    del scope.values[_COUNTER]
