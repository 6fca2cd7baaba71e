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
from tessera_lang.evaluate.value import HostFunction, Scope
from tessera_lang.ir.core import Operation, Region, TensorType, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.ir.graph.regions import IF, WHILE
from tessera_lang.lower.ast_to_graph.loop_counters import Frame, inside
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

_RESULT = "what is returned"


@dataclass(frozen=True, slots=True)
class GraphRange:
    """A range whose limits the function computes."""

    description: ClassVar[str] = "a range"
    start: object
    stop: object
    step: object


# --- regions ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Part:
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


def regions_of(
    outer: GraphBuilder, parts: Sequence[Part]
) -> tuple[list[Value], tuple[Region, ...]]:
    """What parts need of the function around, and they as regions."""
    read = dict.fromkeys(v for p in parts for v in p.read())
    constants = {v: o for v in read if (o := outer.origin(v)) and o.name == "graph.full"}
    captured = [v for v in read if v not in constants]
    return captured, tuple(p.region(captured, constants) for p in parts)


# --- variables -------------------------------------------------------------------------------


class Held:
    """The arrays, lists and dicts that a scope and those around it reach, as they are now: none of
    them is a variable that a region gives. ``exempt``: lists that may change."""

    def __init__(self, scope: Scope, exempt: Sequence[object] = ()) -> None:
        self._exempt = {id(v) for v in exempt}
        self._arrays: list[tuple[GraphArray, Value]] = []
        self._lists: list[tuple[list[object] | dict[object, object], list[object]]] = []
        self._seen = set[int]()
        self._keep: list[object] = []
        self._collect_scope(scope)

    def _collect_scope(self, scope: Scope | None) -> None:
        while scope is not None and id(scope) not in self._seen:
            self._seen.add(id(scope))
            for value in (*scope.given, *scope.values.values()):
                self._collect(value)
            scope = scope.parent

    def _collect(self, value: object) -> None:
        if isinstance(value, GraphArray):
            self._arrays.append((value, value.value))
        elif isinstance(value, HostFunction):
            self._collect_scope(value.scope)
        elif isinstance(value, list | tuple | dict) and id(cast("object", value)) not in self._seen:
            self._keep.append(cast("object", value))
            self._seen.add(id(cast("object", value)))
            if isinstance(value, list):
                found = cast("list[object]", value)
                self._lists.append((found, list(found)))
            elif isinstance(value, dict):
                pairs = cast("dict[object, object]", value)
                self._lists.append((pairs, [x for pair in pairs.items() for x in pair]))
            items = cast("dict[object, object]", value)
            for item in cast(
                "Iterable[object]", items.values() if isinstance(value, dict) else items
            ):
                self._collect(item)

    def check(self, span: Span) -> None:
        """Raises HostFault where one of them has changed."""
        if any(a.value is not before for a, before in self._arrays):
            raise fault("T0760", "a store into an array where data decide is not possible in a"
                        " graph", span,
                        helps=("choose for each element: `x = op.where(condition, new, x)`",)
                        )  # fmt: skip
        for kept, before in self._lists:
            if id(kept) not in self._exempt and _items(kept) != list(map(id, before)):
                raise fault("T0760", "a list that changes where data decide is not possible in a"
                            " graph", span, helps=("keep arrays of a known shape",))  # fmt: skip

    def restore(self) -> None:
        """As they were."""
        for array, before in self._arrays:
            if array.value is not before:
                array.store(before)
        for kept, before in self._lists:
            if isinstance(kept, list):
                kept[:] = before
            else:
                kept.clear()
                kept.update(zip(before[::2], before[1::2], strict=True))


def _items(value: list[object] | dict[object, object]) -> list[int]:
    if isinstance(value, dict):
        return [id(x) for pair in value.items() for x in pair]
    return [id(v) for v in value]


@contextmanager
def _nothing_else_changes(scope: Scope, span: Span) -> Generator[None]:
    """Refuses stores into arrays, and changes of lists: they are no variables. Raises HostFault."""
    held = Held(scope)
    yield
    held.check(span)


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
        with _nothing_else_changes(scope, s.span), inside(world, Frame(builder)):
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
    parts = [Part(b, [], [r[i] for r in results]) for i, b in enumerate(builders)]
    world.builder.span = s.span
    captured, regions = regions_of(world.builder, parts)
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
        with inside(world, Frame(builder)):
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
    captured, regions = regions_of(world.builder, parts)
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
) -> list[Part] | None:  # fmt: skip
    """The condition and the body. None where numbers are to have other ``types`` or are to be
    ``double``, which are changed then."""
    numbers = {n for n in carried if is_number(scope.values[n])}
    parts: list[Part] = []
    started = dict(scope.values)
    arguments = [Value(t, n if n.isidentifier() else "i")
                 for n, t in zip(carried, types, strict=True)]  # fmt: skip
    for run in (test, body):
        scope.values.update(started)
        for n, v in zip(carried, arguments, strict=True):
            scope.values[n] = GraphNumber(v, n in double) if n in numbers else GraphArray(v)
        part = Part(GraphBuilder(OPERATORS), arguments, [])
        with _nothing_else_changes(scope, s.span), inside(world, Frame(part.builder, {*arguments})):
            found = run()
            if run is test:
                part.results.append(_as_truth(world, found))
            else:
                _left(cast("Outcome", found), s)
        parts.append(part)
    same = True
    with inside(world, Frame(parts[1].builder, {*arguments})):
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
