"""A call of ``grad(f)``: the graph of ``f``, its gradient, and what runs it.

Owns how parameters and results that hold several arrays become those of a graph. Must not know how
a gradient is made (``opt/graph``), nor how kernels are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import cast

from tessera_lang.evaluate.abstract_world import SymbolicArray, SymbolicWorld
from tessera_lang.evaluate.arithmetic import kind_of
from tessera_lang.evaluate.fault import fault, located
from tessera_lang.evaluate.host import Host
from tessera_lang.evaluate.value import Derivative, Unknown
from tessera_lang.ir.core import Operation, Program, Region, TensorType, Value
from tessera_lang.ir.graph.builder import hashed
from tessera_lang.ir.graph.custom import without_gradients
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.lower.ast_to_graph.leaves import graph_of, is_value, leaves, matched, rebuilt
from tessera_lang.lower.ast_to_graph.tracing import TracingHost, traced
from tessera_lang.lower.ast_to_graph.values import GraphArray, GraphNumber, NotKnown, is_double
from tessera_lang.lower.ast_to_graph.world import GraphWorld
from tessera_lang.lower.graph_to_kernels.clusters import GraphKernel
from tessera_lang.lower.graph_to_kernels.fusion import plan_of
from tessera_lang.lower.graph_to_kernels.run import NumberKind, begin_kernels, run_kernels
from tessera_lang.opt.graph.decompose import decompose
from tessera_lang.opt.graph.differentiate import GradientError, gradient_of
from tessera_lang.opt.graph.push_forward import tangent_of
from tessera_lang.record import dataclass, field
from tessera_lang.syntax import ast
from tessera_lang.target.machine import Machine
from tessera_lang.types.dtype import F64


@dataclass(slots=True, eq=False)
class Differentiated:
    """The gradient of a graph, and its kernels where they have been asked for. ``before``: the
    graph before reductions were made visible; ``numbers``: parameters that are numbers;
    ``machine``: of a target, and ``target``: what the kernels are for; ``budget``: bytes that a
    call may have in memory, 0 where nothing says it."""

    function: Operation
    before: Operation
    machine: Callable[[str], Machine | None]
    kernels: tuple[GraphKernel, ...] | None = None
    numbers: frozenset[Value] = frozenset()
    target: str = ""
    budget: int = 0


Watch = Callable[[Differentiated, GraphKernel, list[object]], None]
"""Is told of each kernel that was launched, and of its arguments."""


@dataclass(slots=True, eq=False)
class Graphs:
    """What is made of graphs. ``prepare`` verifies and simplifies a program of Graph IR;
    ``machine`` of a target, by which fused loops are judged. A call records its function anew, as
    the function may read what has changed since; what follows from an equal graph is ``known``.
    ``budget``: bytes of functions that say none, 0 without a limit."""

    prepare: Callable[[Program], Program]
    machine: Callable[[str], Machine | None] = lambda target: None
    known: dict[object, Differentiated] = field(default_factory=dict[object, Differentiated])
    watch: Watch | None = None
    budget: int = 0


MOST_GRAPHS = 1024  # that are kept
_COMPILE_TIME = ("int", "float", "bool", "str", "dtype")


class _Parameters:
    """The leaves of the arguments as parameters of a graph."""

    def __init__(self, host: Host, world: GraphWorld) -> None:
        self._host = host
        self._world = world
        self.named: list[tuple[str, Value]] = []
        self.given: list[object] = []
        self.of: dict[str, list[int]] = {}

    def is_leaf(self, value: object) -> bool:
        """Whether an argument, or a part of one, is a value of the graph."""
        if isinstance(value, Unknown):
            return value.kind == "float"
        return isinstance(value, float) or self._host.world.is_array(value)

    def add(self, name: str, value: object) -> object:
        """An argument in the graph's world. Raises NotKnown."""
        places = self.of[name] = list[int]()

        def leaf(part: object) -> object:
            places.append(len(self.named))
            made = Value(self._type(part), name if not places[1:] else f"{name}{len(places)}")
            self.named.append((name, made))
            self.given.append(part)
            return GraphNumber(made, is_double(part)) if is_number(part) else GraphArray(
                made, is_given=True)  # fmt: skip

        return rebuilt(value, self.is_leaf, leaf)

    def _type(self, part: object) -> TensorType:
        if is_number(part) and not isinstance(part, GraphNumber):
            return TensorType(F64, ())
        if is_value(part):
            return cast("GraphArray", part).type
        return self._world.type_of(part)


def is_number(value: object) -> bool:
    """Whether a leaf is a number, not an array."""
    return isinstance(value, float | Unknown | GraphNumber)


def differentiated(
    host: Host, derivative: Derivative, values: dict[str, object], call: ast.Call,
    cotangent: object, graphs: Graphs,
) -> object:  # fmt: skip
    """What ``grad(f)`` gives for the parameters of ``f``. Raises HostFault."""
    world = GraphWorld(host.world)
    world.differentiates = bool(derivative.wrt) or keeps_gradients(host.world)
    parameters = _Parameters(host, world)
    try:
        inside = {n: _inside(parameters, derivative, n, v) for n, v in values.items()}
        result = traced(TracingHost(world, host), derivative.function, inside, call)
        result = rebuilt(result, lambda v: _is_result(world, v), lambda v: _lifted(world, v))
        if isinstance(result, Unknown):
            return Unknown()
        with located(call.span):
            return _gradient(host, derivative, parameters, world, result, values, call, cotangent,
                             graphs)  # fmt: skip
    except NotKnown:
        return Unknown()


def _inside(
    parameters: _Parameters, derivative: Derivative, name: str, value: object
) -> object:  # fmt: skip
    """A parameter in the graph's world; what the compiler has to know stays as it is."""
    declaration = derivative.innermost.declaration
    own = {p.name: p for p in declaration.parameters}
    if name not in own:
        return value
    annotation = own[name].annotation
    base = annotation.base if annotation is not None and annotation.shape is None else None
    if isinstance(base, ast.Name) and base.id in _COMPILE_TIME:
        return value
    if isinstance(value, Unknown) and value.kind != "float":
        raise NotKnown
    return parameters.add(name, value)


def _is_result(world: GraphWorld, value: object) -> bool:
    return world.is_array(value) or isinstance(value, float)


def _lifted(world: GraphWorld, value: object) -> object:
    if is_value(value):
        return value
    made = world.lifted(value)
    return GraphNumber(made, is_double(value)) if isinstance(value, float) else GraphArray(made)


def _gradient(
    host: Host, derivative: Derivative, parameters: _Parameters, world: GraphWorld,
    result: object, values: dict[str, object], call: ast.Call, cotangent: object,
    graphs: Graphs,
) -> object:  # fmt: skip
    found = leaves(result, is_value)
    wrt = [i for name in derivative.wrt for i in parameters.of.get(name, ())]
    _check_wrt(derivative, parameters, call)
    if derivative.forward:
        moved = zip(derivative.wrt, cast("tuple[object, ...]", cotangent), strict=True)
        tangents = [
            x for n, t in moved for x in matched(values[n], t, parameters.is_leaf)
        ]  # fmt: skip
        return _tangent(host, derivative, parameters, world, result, wrt, call, tangents, graphs)
    if cotangent is not None:
        cotangent = tuple(matched(result, cotangent, is_value))
    seeds = _seeds(host, world, derivative, found, call, cotangent)
    function = graph_of(world, derivative.innermost.name, parameters.named, result)
    shown = [*(found if derivative.with_value else ()), *(parameters.given[i] for i in wrt)]
    numbers: list[NumberKind] = [_number_kind(v) for v in shown]
    inputs = [*parameters.given, *(outer for outer, _ in world.captured), *(seeds or ())]
    of = function, tuple(wrt), derivative.with_value, seeds is not None
    keeps, budget = keeps_gradients(host.world), _budget_of(host, derivative, graphs, call)
    of_graph = _differentiated(graphs, *of, keeps, inputs, call, budget=budget)
    made = iter(execute(host, of_graph, inputs, numbers, graphs.watch))
    value = rebuilt(result, is_value, lambda _: next(made)) if derivative.with_value else None
    gradients = tuple(
        rebuilt(values[name], parameters.is_leaf, lambda _: next(made)) for name in derivative.wrt
    )
    if not derivative.wrt:
        return value
    given = gradients[0] if derivative.single else gradients
    return (value, given) if derivative.with_value else given


def _tangent(
    host: Host, derivative: Derivative, parameters: _Parameters, world: GraphWorld,
    result: object, wrt: Sequence[int], call: ast.Call, tangents: Sequence[object],
    graphs: Graphs,
) -> object:  # fmt: skip
    """What a function gives, and how that changes when its parameters change by ``tangents``."""
    found = leaves(result, is_value)
    given, mine = _typed(host, world, derivative, tangents, call)
    wanted = [parameters.named[i][1].tensor_type for i in wrt]
    if mine != wanted:
        message = f"the tangents are {_listed(mine)}, and the parameters {_listed(wanted)}"
        raise fault("T0761", f"`{derivative.name}`: {message}", call.span)
    function = graph_of(world, derivative.innermost.name, parameters.named, result)
    moving = [v for v in found if cast("GraphArray", v).type.dtype.is_float]
    numbers: list[NumberKind] = [_number_kind(v) for v in (*found, *moving)]
    inputs = [*parameters.given, *(outer for outer, _ in world.captured), *given]
    keeps = keeps_gradients(host.world)
    made = _differentiated(graphs, function, tuple(wrt), True, True, keeps, inputs, call,
                           forward=True, budget=graphs.budget)  # fmt: skip
    values = iter(execute(host, made, inputs, numbers, graphs.watch))
    value = rebuilt(result, is_value, lambda _: next(values))
    return value, rebuilt(
        result, is_value,
        lambda v: next(values) if cast("GraphArray", v).type.dtype.is_float else None,
    )  # fmt: skip


def keeps_gradients(world: object) -> bool:
    """Whether gradients of what is computed in a world may be asked for."""
    return isinstance(world, GraphWorld) and world.differentiates


def _number_kind(value: object) -> NumberKind:
    """What a result is: an array, or a number, and whether that is computed of f64."""
    if not is_number(value):
        return "array"
    return "double" if is_double(value) else "number"


def _check_wrt(derivative: Derivative, parameters: _Parameters, call: ast.Call) -> None:
    for name in derivative.wrt:
        if not parameters.of.get(name):
            raise fault("T0761", f"`{name}` holds no floats, so there is no gradient of it",
                        call.span)  # fmt: skip


def _seeds(
    host: Host, world: GraphWorld, derivative: Derivative, results: list[object], call: ast.Call,
    cotangent: object,
) -> list[object] | None:  # fmt: skip
    """What stands for the gradients of the results; None where 1 does."""
    name = derivative.function.name
    types = [cast("GraphArray", v).type for v in results]
    if not derivative.wrt and cotangent is None:
        return None
    if cotangent is None:
        if len(types) == 1 and not types[0].rank and types[0].dtype.is_float:
            return None
        gives = f"{len(types)} values" if len(types) != 1 else f"an array {types[0]}"
        raise fault("T0761", f"`{name}` gives {gives}, and a gradient is one of a number",
                    call.span, helps=("give `cotangent=`, the gradient of what it gives",
                                      "give a number: `op.sum(y)`, `op.mean(y)`"))  # fmt: skip
    parts = cast("tuple[object, ...]", cotangent)
    given, mine = _typed(host, world, derivative, parts, call)
    if mine != types:
        raise fault(
            "T0761", f"`cotangent=` is {_listed(mine)}, and `{name}` gives {_listed(types)}",
            call.span,
        )  # fmt: skip
    return given


def _typed(
    host: Host, world: GraphWorld, derivative: Derivative, parts: Sequence[object], call: ast.Call
) -> tuple[list[object], list[TensorType]]:
    """Cotangents or tangents, and their types. Raises HostFault, NotKnown."""
    given = [float(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in parts]
    if any(isinstance(v, Unknown) for v in given):
        raise NotKnown
    for v in given:
        if not (host.world.is_array(v) or is_number(v)):
            message = f"`{derivative.name}` takes arrays and floats here, not {kind_of(v)}"
            raise fault("T0761", message, call.span)
    return given, [TensorType(F64, ()) if is_number(v) else world.type_of(v) for v in given]


def _listed(types: list[TensorType]) -> str:
    return " and ".join(map(str, types)) or "nothing"


def _differentiated(
    graphs: Graphs, function: Operation, wrt: tuple[int, ...], with_results: bool, seeded: bool,
    keeps: bool, inputs: Sequence[object], call: ast.Call, forward: bool = False, budget: int = 0,
) -> Differentiated:  # fmt: skip
    """The gradient of a graph by the parameters of these numbers. ``keeps``: gradients that the
    program gives, for a gradient of this one. ``forward``: the tangents instead. Raises
    HostFault."""
    floats = tuple(isinstance(v, float) for v in inputs)
    key = graph_key(function), wrt, with_results, seeded, keeps, forward, floats, budget
    if key in graphs.known:
        return graphs.known[key]
    (function,) = graphs.prepare(Program("graph", (function,))).operations
    made = function
    try:
        if forward:
            made = tangent_of(function, wrt)
        elif wrt:
            made = gradient_of(function, wrt, seeded=seeded, with_results=with_results)
    except GradientError as error:
        raise fault("T0761", str(error), error.span or call.span,
                    helps=error.helps) from None  # fmt: skip
    made = made if keeps else without_gradients(made, OPERATORS)
    (made,) = graphs.prepare(Program("graph", (made,))).operations
    function = made
    if not _has_names(made):  # as in graphs of which only the types are asked
        (function,) = graphs.prepare(Program("graph", (decompose(made),))).operations
    if len(graphs.known) >= MOST_GRAPHS:
        graphs.known.clear()
    found = graphs.known[key] = Differentiated(function, made, graphs.machine, budget=budget)
    return found


def _has_names(function: Operation) -> bool:
    """Whether sizes of its parameters are names."""
    parameters = function.regions[0].arguments
    return any(not isinstance(n, int) for v in parameters for n in v.tensor_type.shape)


def _budget_of(host: Host, derivative: Derivative, graphs: Graphs, call: ast.Call) -> int:
    """Bytes that a call may have in memory, 0 without a limit. Raises HostFault of a part of a
    graph, whose values are among those of the whole."""
    if derivative.budget and isinstance(host.world, GraphWorld):
        message = f"`{derivative.name}` has a memory budget, and is part of another function here"
        raise fault("T0762", message, call.span,
                    helps=("say `memory_budget=` of the outermost function",))  # fmt: skip
    return derivative.budget or graphs.budget


def graph_key(function: Operation) -> object:
    """Equal for functions whose parameters have the same types and that do the same."""
    return _region_key(function.regions[0])


def _region_key(body: Region) -> object:
    numbers = {v: i for i, v in enumerate(body.arguments)}
    for o in body.operations[:-1]:
        numbers.update({v: len(numbers) + i for i, v in enumerate(o.results)})
    return (
        tuple(v.type for v in body.arguments),
        tuple((o.name, *(numbers[v] for v in o.operands), *hashed(o.attributes),
               *map(_region_key, o.regions)) for o in body.operations),
    )  # fmt: skip


def execute(
    host: Host, made: Differentiated, inputs: Sequence[object], numbers: Sequence[NumberKind],
    watch: Watch | None = None,
) -> list[object]:  # fmt: skip
    """The results of a graph in the world of an evaluator: ``numbers`` says which are numbers."""
    function = made.function
    results = function.regions[0].terminator.operands
    types = [v.tensor_type for v in results]
    if isinstance(host.world, GraphWorld):
        found: Iterator[Value] = iter(host.world.inlined(function, inputs))
        return [
            GraphArray(v) if n == "array" else GraphNumber(v, n == "double")
            for n, v in zip(numbers, found, strict=True)
        ]
    if isinstance(host.world, SymbolicWorld):
        return [
            Unknown("float")
            if n != "array"
            else SymbolicArray(t.dtype, cast("tuple[int, ...]", t.shape))
            for n, t in zip(numbers, types, strict=True)
        ]
    target = str(host.world.device(inputs[0] if inputs else None))
    if made.kernels is None or made.target != target:
        parameters = zip(function.regions[0].arguments, inputs, strict=True)
        made.numbers = frozenset(v for v, g in parameters if isinstance(g, float))
        made.target = target
        made.kernels = plan_of(
            function, made.numbers, machine=made.machine(target), budget=made.budget
        ).kernels
        given = dict(zip(function.regions[0].arguments, inputs, strict=True))
        begin_kernels(host, made.kernels, given)
    seen = None if watch is None else partial(watch, made)
    return run_kernels(host, function, inputs, numbers, made.kernels, seen)
