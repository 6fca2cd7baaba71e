"""Runs a plain function of the program in a graph's world, and gives the graph.

Owns which calls become operators. Must not know what operators mean, or how a graph is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from tessera_grammar.array_function_names import ARRAY_NAMES

from tessera_lang.evaluate import einsum_expansion as sums
from tessera_lang.evaluate.arguments import Arguments, bind
from tessera_lang.evaluate.expansion_texts import DERIVED, text_of
from tessera_lang.evaluate.fault import fault, located
from tessera_lang.evaluate.host import Host, room_for_calls
from tessera_lang.evaluate.host_array_functions import HOST_NAMES
from tessera_lang.evaluate.one_call_kernels import (
    ONE_CALL_KERNELS,
    in_64_bits,
    of_numbers_again,
)
from tessera_lang.evaluate.value import (
    BuiltinFunction,
    Derivative,
    HostFunction,
    Kernel,
    Scope,
)
from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.ast_to_graph.array_functions import FUNCTIONS_OF_ARRAYS, chosen, product
from tessera_lang.lower.ast_to_graph.kernel_calls import launched
from tessera_lang.lower.ast_to_graph.values import GraphArray, GraphNumber, is_double, not_here
from tessera_lang.lower.ast_to_graph.world import GraphWorld
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.syntax.substitute import substituted
from tessera_lang.types.dtype import F32, F64, DType

Leaf = Callable[[object], object]


class TracingHost(Host):
    """Evaluates the body of a function whose arrays are values of a graph."""

    world: GraphWorld

    def __init__(self, world: GraphWorld, host: Host) -> None:
        """``host``: the evaluator that calls the function."""
        super().__init__(world, host.modules.library, host.path)
        self.modules = host.modules

    def operate(
        self, operator: ast.BinaryOperator, a: object, b: object, span: Span,
        operands: tuple[ast.Expr, ast.Expr] | None = None,
    ) -> object:  # fmt: skip
        self.world.builder.span = span
        return super().operate(operator, a, b, span, operands)

    def product(
        self, a: object, b: object, span: Span, operands: tuple[ast.Expr, ast.Expr] | None
    ) -> object:
        with located(span):
            return product(self.world, a, b)

    def chosen(self, array: object, items: tuple[object, ...], span: Span) -> object:
        self.world.builder.span = span
        with located(span):
            return chosen(self.world, array, items)

    def builtin_call(
        self, function: BuiltinFunction, arguments: Arguments, scope: Scope
    ) -> object:  # fmt: skip
        given = (*arguments.values, *arguments.keywords.values())
        self.world.builder.span = arguments.call.span
        if not any(map(self.world.is_own, given)) and function.name != "op.where":
            if function.name == "op.array":
                return self._in_memory(function, arguments, scope)
            return super().builtin_call(function, arguments, scope)
        arguments, floats = in_64_bits(self.world, function.name, arguments)
        made = self._of_the_graph(function, arguments, scope)
        if floats is not None and not isinstance(made, GraphNumber):
            made = of_numbers_again(self.world, made, floats)
        # As of other numbers: what is computed of elements of f64 stays so.
        if isinstance(made, GraphNumber) and any(map(is_double, given)):
            return GraphNumber(made.value, made.value.tensor_type.dtype == F64)
        return made

    def _of_the_graph(
        self, function: BuiltinFunction, arguments: Arguments, scope: Scope
    ) -> object:
        """What a function of the language gives of values of the graph."""
        head, _, name = function.name.partition(".")
        of_number = head == "math" and isinstance(arguments.values[0], GraphNumber)
        if (head == "op" or of_number) and name in FUNCTIONS_OF_ARRAYS:
            parameters, needed, build = FUNCTIONS_OF_ARRAYS[name]
            bound = bind(arguments, function.name, tuple(parameters.split()), needed)
            with located(arguments.call.span):
                return build(self.world, {k: v for k, v in bound.items() if v is not None})
        if function.name == "op.einsum":
            return self._einsum(arguments)
        if head == "op" and name in DERIVED and function.name not in HOST_NAMES:
            return self._derived(name, arguments)
        if function.name in ("int", "float", "str"):
            with located(arguments.call.span):
                return self._as_number(function.name, arguments.values[0])
        if function.name in ONE_CALL_KERNELS and function.name not in _OF_THE_WORLD:
            with located(arguments.call.span):
                raise not_here(f"`{function.name}`")
        return super().builtin_call(function, arguments, scope)

    def launched(
        self, kernel: Kernel, arguments: tuple[object, ...], constants: dict[str, object]
    ) -> object:
        effects = self.modules.library.effects
        reference, groups = kernel.reference, kernel.groups
        return launched(self.world, effects, reference, arguments, constants, groups)

    def _in_memory(self, function: BuiltinFunction, arguments: Arguments, scope: Scope) -> object:
        """What is made of known numbers by stores, in the world that runs."""
        world = self.world
        if (base := world.base()) is None:
            with located(arguments.call.span):
                raise not_here(f"`{function.name}` without a run")
        try:
            self.world = cast("GraphWorld", base)
            return super().builtin_call(function, arguments, scope)
        finally:
            self.world = world

    def _as_number(self, name: str, value: object) -> object:
        if name == "float" and isinstance(value, GraphNumber):
            return GraphNumber(self.world.builder.cast(value.value, F64), value.double)
        raise not_here(f"`{name}` of what the function computes")

    def _derived(self, name: str, arguments: Arguments) -> object:
        one = ARRAY_NAMES[name]
        bound = bind(arguments, f"op.{name}", tuple(one.parameters.split()), one.required)
        given = {n: v for n, v in bound.items() if v is not None}
        first = next(iter(given.values()))
        dtype = self.world.dtype(first) if self.world.is_array(first) else F32
        ranks = {n: self._rank(v) for n, v in given.items()}
        text = text_of(name, given, cast("DType", dtype), ranks)
        if not text:
            with located(arguments.call.span):
                raise not_here(f"`op.{name}` of so many axes")
        return self._text(text, given, arguments.call.span)

    def _rank(self, value: object) -> int:
        if isinstance(value, tuple | list):
            items = cast("tuple[object, ...]", value)
            return self._rank(items[0]) if items else 1
        shape = self.world.shape(value) if self.world.is_array(value) else ()
        return len(cast("tuple[object, ...]", shape)) if isinstance(shape, tuple) else 0

    def _text(self, text: str, given: Mapping[str, object], span: Span) -> object:
        e = substituted(text, {}, span, lambda _, argument: argument)
        return self.value(e, Scope("", dict(given)))

    def _einsum(self, arguments: Arguments) -> object:
        letters, *arrays = arguments.values
        span = arguments.call.span
        if arguments.keywords or not isinstance(letters, str) or len(arrays) > len(sums.NAMES):
            raise fault("T0804", "`op.einsum` takes letters and one to three arrays here", span)
        try:
            operands, result = sums.parsed(letters, len(arrays))
        except sums.BadSubscripts as error:
            raise fault("T0804", f"`op.einsum`: {error}", span) from None
        text = sums.expression(operands, result, sums.Rules())
        return self._text(text, dict(zip(sums.NAMES, arrays, strict=False)), span)


_OF_THE_WORLD = (
    "op.sum", "op.mean", "op.max", "op.min", "op.any", "op.all", "op.argmax", "op.argmin",
    "op.reshape", "op.cast", "op.contiguous", "op.zeros_like", "op.ones_like", "op.full_like",
    "op.empty_like", "op.full", "op.abs", "op.zeros", "op.ones", "op.empty", "op.arange",
    *HOST_NAMES,
)  # fmt: skip
"""What the evaluator says by methods of its world."""


def leaves(value: object, is_leaf: Callable[[object], bool]) -> list[object]:
    """What stands in a value: itself, or the items of tuples, lists and dicts, in order."""
    if is_leaf(value):
        return [value]
    if isinstance(value, tuple | list):
        return [x for item in cast("tuple[object, ...]", value) for x in leaves(item, is_leaf)]
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).values()
        return [x for item in items for x in leaves(item, is_leaf)]
    return []


def rebuilt(value: object, is_leaf: Callable[[object], bool], leaf: Leaf) -> object:
    """A value with others in the place of its leaves; all else stays."""
    if is_leaf(value):
        return leaf(value)
    if isinstance(value, tuple):
        return tuple(rebuilt(v, is_leaf, leaf) for v in cast("tuple[object, ...]", value))
    if isinstance(value, list):
        return [rebuilt(v, is_leaf, leaf) for v in cast("list[object]", value)]
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value).items()
        return {k: rebuilt(v, is_leaf, leaf) for k, v in pairs}
    return value


def is_value(value: object) -> bool:
    """Whether a graph computes a value."""
    return isinstance(value, GraphArray | GraphNumber)


def traced(
    tracer: TracingHost, function: HostFunction | Derivative, values: dict[str, object],
    call: ast.Call,
) -> object:  # fmt: skip
    """What a function gives, of parameters that are values of the graph. Raises HostFault."""
    if isinstance(function, Derivative):
        return tracer.modules.library.differentiated(tracer, function, values, call, None)
    with room_for_calls():
        return tracer.run_function(function, values, call)


def graph_of(
    world: GraphWorld, name: str, parameters: list[tuple[str, Value]], result: object
) -> Operation:
    """The function of Graph IR. What is captured stands behind the parameters."""
    given = [*(v for _, v in parameters), *(v for _, v in world.captured)]
    names = [*(n for n, _ in parameters), *(v.name for _, v in world.captured)]
    results = [cast("GraphArray", v).value for v in leaves(result, is_value)]
    return world.builder.function(name, given, results, names)
