"""Runs a plain function of the program in a graph's world, and gives the graph.

Owns which calls become operators. Must not know what operators mean, or how a graph is run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

from tessera_grammar.array_function_names import ARRAY_NAMES, NETWORK_NAMES

from tessera_lang.evaluate import einsum_expansion as sums
from tessera_lang.evaluate.annotations import bind_sizes
from tessera_lang.evaluate.arguments import Arguments, bind
from tessera_lang.evaluate.assigned_names import assigned, returns
from tessera_lang.evaluate.builtin_protocol import Host as BuiltinHost
from tessera_lang.evaluate.expansion_texts import DERIVED, text_of
from tessera_lang.evaluate.fault import HostFault, fault, located
from tessera_lang.evaluate.host import Host, Left, Outcome, Returned, room_for_calls
from tessera_lang.evaluate.host_array_functions import HOST_NAMES
from tessera_lang.evaluate.library_functions import of_graphs
from tessera_lang.evaluate.lists_of_numbers import with_arrays
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
from tessera_lang.ir.core import TensorType
from tessera_lang.lower.ast_to_graph.array_functions import FUNCTIONS_OF_ARRAYS, chosen, product
from tessera_lang.lower.ast_to_graph.control_flow import (
    GraphRange,
    branch,
    either_of,
    loop,
)
from tessera_lang.lower.ast_to_graph.counted_loops import (
    ATTEMPTS,
    over_data,
    over_known,
    places_of,
)
from tessera_lang.lower.ast_to_graph.custom_gradients import CustomGradient, Run
from tessera_lang.lower.ast_to_graph.integer_operands import of_numbers_in_a_row
from tessera_lang.lower.ast_to_graph.kernel_calls import launched, type_of
from tessera_lang.lower.ast_to_graph.leaves import is_value, leaves
from tessera_lang.lower.ast_to_graph.loop_counters import Counter
from tessera_lang.lower.ast_to_graph.values import (
    GraphArray,
    GraphNumber,
    is_double,
    is_number,
    not_here,
)
from tessera_lang.lower.ast_to_graph.world import GraphWorld
from tessera_lang.record import replace
from tessera_lang.sema.tile.whole_array_bodies import directive_of
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.syntax.substitute import substituted
from tessera_lang.target.host_world import Index
from tessera_lang.types.dtype import BOOL, F32, F64, DType


class TracingHost(Host):
    """Evaluates the body of a function whose arrays are values of a graph."""

    world: GraphWorld

    def __init__(self, world: GraphWorld, host: Host) -> None:
        """``host``: the evaluator that calls the function."""
        super().__init__(world, host.modules.library, host.path)
        self.modules = host.modules
        self.custom: frozenset[object] = (
            host.custom if isinstance(host, TracingHost) else frozenset()
        )
        """Functions that are being traced with a gradient of their own."""

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

    def as_operand(self, value: object, span: Span) -> object:
        """Lists of known numbers are arrays of the world that runs; what the function computes is
        stacked."""
        if not isinstance(value, tuple | list) or not value:
            return cast("object", value)
        given = cast("tuple[object, ...]", value)
        if not self.world.is_own(given):
            with located(span):
                return self._of_the_base("a list beside an array", super().as_operand, given, span)
        items = [self.as_operand(v, span) for v in given]
        if all(map(is_number, items)):
            return of_numbers_in_a_row(self.world, items)
        stack = ast.Attribute(span, ast.Name(span, "op"), "stack", span)
        call = ast.Call(span, stack, (ast.Name(span, "items"),))
        return self.value(call, Scope("", {"items": items}))

    def chosen(self, array: object, items: tuple[object, ...], span: Span) -> object:
        self.world.builder.span = span
        with located(span):
            if any(isinstance(i, Counter) for i in items):
                return self.world.read(array, cast("tuple[Index, ...]", items))
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
        if function.name != "op.array":
            arguments = with_arrays(cast("BuiltinHost", self), function.name, arguments)
        arguments, floats = in_64_bits(self.world, function.name, arguments)
        made = self._of_the_graph(function, arguments, scope)
        if floats is not None and not isinstance(made, GraphNumber):
            made = of_numbers_again(self.world, made, floats)
        # As of other numbers: what is computed of elements of f64 stays so.
        if isinstance(made, GraphNumber) and any(map(is_double, given)):
            return GraphNumber(made.value, made.value.tensor_type.dtype == F64)
        return made

    def branch_on(self, condition: object, s: ast.If, scope: Scope) -> Outcome:
        if not isinstance(condition, GraphNumber):
            return super().branch_on(condition, s, scope)
        names = list(dict.fromkeys(assigned((*s.body, *s.orelse))))
        return branch(self.world, s, condition, scope, names, partial(self.block, scope=scope))

    def block(self, body: tuple[ast.Stmt, ...], scope: Scope) -> Outcome:
        """What follows a branch on data that returns is a part of both sides."""
        for at, s in enumerate(body):
            if isinstance(s, ast.If) and returns((s,)):
                condition = self.value(s.test, scope)
                if isinstance(condition, GraphNumber):
                    run = partial(self.block, scope=scope)
                    return branch(self.world, s, condition, scope, (), run, body[at + 1 :])
                outcome = self.branch_on(condition, s, scope)
            else:
                outcome = self.statement(s, scope)
            if outcome is not None:
                return outcome
        return None

    def _chain(self, e: ast.Expr, scope: Scope) -> object:
        """``and`` and ``or`` of conditions on data: both sides are computed."""
        chain = cast("ast.BoolOp", e)
        value: object = None
        for at, item in enumerate(chain.values):
            value = self.value(item, scope)
            if isinstance(value, GraphNumber) and value.type.dtype == BOOL:
                others = [self.value(x, scope) for x in chain.values[at + 1 :]]
                if all(isinstance(v, bool | GraphNumber) for v in others):
                    return either_of(self.world, chain.operator, (value, *others))
            if self.truth(value, item.span) != (chain.operator == "and"):
                return value
        return value

    def _unary(self, e: ast.Expr, scope: Scope) -> object:
        if cast("ast.Unary", e).operator == "not":
            value = self.value(cast("ast.Unary", e).operand, scope)
            if isinstance(value, GraphNumber) and value.type.dtype == BOOL:
                return GraphNumber(self.world.builder.op("not", value.value), double=False)
        return super()._unary(e, scope)

    def loop_while(self, s: ast.While, scope: Scope) -> Outcome:
        """Step by step as long as the condition is known."""
        while not isinstance(condition := self.value(s.test, scope), GraphNumber):
            if not self.truth(condition, s.test.span):
                return None
            outcome = self.block(s.body, scope)
            if outcome is Left.BREAK:
                return None
            if isinstance(outcome, Returned):
                return outcome
        loop(self.world, s, scope, list(assigned(s.body)), partial(self.value, s.test, scope),
             partial(self.block, s.body, scope))  # fmt: skip
        return None

    def loop_through(self, values: object, s: ast.For, scope: Scope) -> Outcome:
        names = list(assigned(s.body))
        assign = partial(self.assign, s.target, scope=scope)
        run = partial(self.block, s.body, scope)
        if isinstance(values, GraphRange):
            over_data(self.world, s, values, scope, names, assign, run)
            return None
        places = places_of(self.world, values)
        if places is None:
            return super().loop_through(values, s, scope)
        for number, item in enumerate(self.iterate(values, s.iterable.span)):
            left = places[number:]
            tried = number < ATTEMPTS
            if tried and over_known(self.world, s, values, left, scope, names, assign, run):
                return None
            assign(item)
            outcome = run()
            if outcome is Left.BREAK:
                break
            if isinstance(outcome, Returned):
                return outcome
        return None

    def compare_once(
        self, operator: ast.CompareOperator, a: object, b: object, span: Span
    ) -> object:
        several = any(not self.world.is_array(v) and self.world.is_own(v) for v in (a, b))
        if several and not (operator in ("in", "not in") and self.world.is_array(a)):
            with located(span):
                raise not_here("a comparison of several values that the function computes")
        return super().compare_once(operator, a, b, span)

    def _of_the_graph(
        self, function: BuiltinFunction, arguments: Arguments, scope: Scope
    ) -> object:
        """What a function of the language gives of values of the graph."""
        head, _, name = function.name.partition(".")
        given = (*arguments.values, *arguments.keywords.values())
        of_number = head == "math" and isinstance(given[0], GraphNumber)
        if (head == "op" or of_number) and name in FUNCTIONS_OF_ARRAYS:
            parameters, needed, build = FUNCTIONS_OF_ARRAYS[name]
            bound = bind(arguments, function.name, tuple(parameters.split()), needed)
            with located(arguments.call.span):
                return build(self.world, {k: v for k, v in bound.items() if v is not None})
        if head == "op" and name in NETWORK_NAMES:
            return of_graphs(name)(cast("BuiltinHost", self), arguments, scope.path)
        if function.name == "op.einsum":
            return self._einsum(arguments)
        if head == "op" and name in DERIVED and function.name not in HOST_NAMES:
            return self._derived(name, arguments)
        if function.name == "range" and not arguments.keywords and len(arguments.values) < 4:
            start, stop, step, *_ = (*arguments.values, 1, 1)
            if len(arguments.values) == 1:
                start, stop = 0, start
            if any(isinstance(v, Counter) for v in (start, stop, step)):
                with located(arguments.call.span):
                    raise not_here("a range of the number of a step")
            return GraphRange(start, stop, step)
        if function.name in ("int", "float", "str") and arguments.values:
            with located(arguments.call.span):
                return self._as_number(function.name, arguments.values[0])
        if function.name in ONE_CALL_KERNELS and function.name not in _OF_THE_WORLD:
            with located(arguments.call.span):
                raise not_here(f"`{function.name}`")
        return super().builtin_call(function, arguments, scope)

    def launched(
        self, kernel: Kernel, arguments: tuple[object, ...], constants: dict[str, object],
        span: Span,
    ) -> object:  # fmt: skip
        self.world.builder.span = span
        declaration = kernel.declaration
        rule = self._rule_of(declaration, arguments)
        if rule is None:
            found = self._as_function(kernel, arguments, constants)
            return self._call_of(kernel, arguments, constants) if found is None else found
        names = [p.name for p in declaration.parameters]

        def run(world: GraphWorld, values: dict[str, object]) -> object:
            inside = TracingHost(world, self)
            world.builder.span = span
            return inside._call_of(kernel, tuple(values[n] for n in names), constants)

        values = dict(zip(names, arguments, strict=True))
        return self._with_rule(declaration, values, run, rule, span, True)

    def _call_of(
        self, kernel: Kernel, arguments: tuple[object, ...], constants: dict[str, object]
    ) -> object:
        effects = self.modules.library.effects
        reference, groups = kernel.reference, kernel.groups
        return launched(self.world, effects, reference, arguments, constants, groups)

    def run_function(
        self, function: HostFunction, values: dict[str, object], call: ast.Call
    ) -> object:
        rule = self._rule_of(function.declaration, tuple(values.values()))
        if rule is None:
            return super().run_function(function, values, call)
        names = [p.name for p in function.declaration.parameters]
        others = {n: v for n, v in values.items() if n not in names}

        def run(world: GraphWorld, own: dict[str, object]) -> object:
            inside = TracingHost(world, self)
            inside.custom = self.custom | {function.declaration}
            return inside.run_function(function, {**others, **own}, call)

        own = {n: values[n] for n in names}
        return self._with_rule(function.declaration, own, run, rule, call.span, False)

    def _rule_of(self, declaration: object, arguments: tuple[object, ...]) -> HostFunction | None:
        """The gradient that the program gives for a function, where it may be asked for."""
        wanted = self.world.differentiates and declaration not in self.custom
        if not wanted or not any(map(self.world.is_own, arguments)):
            return None
        return self.modules.gradient_of(declaration)

    def _with_rule(
        self, declaration: ast.FunctionDef | ast.Lambda, values: dict[str, object], run: Run,
        rule: HostFunction, span: Span, is_kernel: bool,
    ) -> object:  # fmt: skip
        def run_rule(world: GraphWorld, given: dict[str, object]) -> object:
            inside = TracingHost(world, self)
            # What the gradient itself calls of the function has no gradient of its own.
            inside.custom = self.custom | {declaration}
            return inside.run_function(rule, given, ast.Call(span, ast.Name(span, rule.name), ()))

        name = declaration.name if isinstance(declaration, ast.FunctionDef) else "a function"
        one = CustomGradient(self.world, name, values, run, rule, run_rule, span, is_kernel)
        return one.result()

    def _as_function(
        self, kernel: Kernel, arguments: tuple[object, ...], constants: dict[str, object]
    ) -> object:
        """What a tile kernel of whole arrays gives, where its gradient may be asked for: its body
        as that of a plain function. None of other kernels."""
        own = any(map(self.world.is_own, arguments))
        if not own or not self.world.differentiates or kernel.level != "tile":
            return None
        declaration = kernel.declaration
        plain = replace(
            declaration, decorators=(), returns=None,
            body=tuple(s for s in declaration.body if not directive_of(s)),
        )  # fmt: skip
        function = HostFunction(plain, kernel.scope)
        names = [p.name for p in declaration.parameters]
        given = dict(zip(names, arguments, strict=True))
        values = {**self._in_brackets(declaration, given, kernel.scope), **constants, **given}
        if any(p.name not in values for p in declaration.brackets):
            return None
        span = declaration.name_span
        call = ast.Call(span, ast.Name(span, declaration.name), ())
        try:
            bind_sizes(self.world, self.value, function, values, span)
            found = super().run_function(function, values, call)
        except HostFault:
            return None
        wanted = self._types_of(kernel, arguments, constants)
        made = leaves(found, is_value)
        return found if [cast("GraphArray", v).type for v in made] == wanted else None

    def _in_brackets(
        self, declaration: ast.FunctionDef, given: dict[str, object], scope: Scope
    ) -> dict[str, object]:
        """Compile-time values that a call does not say: dtypes of arguments, and defaults."""
        found: dict[str, object] = {}
        for one in declaration.brackets:
            typed = [
                given[p.name] for p in declaration.parameters
                if p.annotation is not None and isinstance(p.annotation.base, ast.Name)
                and p.annotation.base.id == one.name and self.world.is_array(given.get(p.name))
            ]  # fmt: skip
            if typed:
                found[one.name] = self.world.dtype(typed[0])
            elif one.default is not None:
                found[one.name] = self.value(one.default, scope)
        return found

    def _types_of(
        self, kernel: Kernel, arguments: tuple[object, ...], constants: dict[str, object]
    ) -> list[TensorType] | None:
        """The types of what a kernel returns; None of one that writes."""
        given = [type_of(self.world, a) for a in arguments]
        effects = self.modules.library.effects(kernel.reference, given, constants, kernel.groups)
        if effects is None or effects.writes:
            return None
        return [TensorType(dtype, shape) for dtype, shape in effects.results]

    def _in_memory(self, function: BuiltinFunction, arguments: Arguments, scope: Scope) -> object:
        """What is made of known numbers by stores, in the world that runs."""
        call = super().builtin_call
        with located(arguments.call.span):
            return self._of_the_base(f"`{function.name}`", call, function, arguments, scope)

    def _of_the_base(self, what: str, make: Callable[..., object], *given: object) -> object:
        """What ``make`` gives in the world that runs. Raises WorldFault where there is none."""
        world = self.world
        if (base := world.base()) is None:
            raise not_here(f"{what} without a run")
        try:
            self.world = cast("GraphWorld", base)
            return make(*given)
        finally:
            self.world = world

    def _as_number(self, name: str, value: object) -> object:
        if name == "float" and isinstance(value, GraphNumber):
            return GraphNumber(self.world.builder.cast(value.value, F64), value.double)
        raise not_here(f"`{name}` of what the function computes")

    def _derived(self, name: str, arguments: Arguments) -> object:
        one = ARRAY_NAMES[name]
        parameters = tuple(one.parameters.split())
        bound = bind(arguments, f"op.{name}", parameters, one.required)
        given = {n: v for n, v in bound.items() if v is not None or n in parameters[: one.required]}
        first = next(iter(given.values()), None)
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


def traced(
    tracer: TracingHost, function: HostFunction | Derivative, values: dict[str, object],
    call: ast.Call,
) -> object:  # fmt: skip
    """What a function gives, of parameters that are values of the graph. Raises HostFault."""
    if isinstance(function, Derivative):
        return tracer.modules.library.differentiated(tracer, function, values, call, None)
    with room_for_calls():
        return tracer.run_function(function, values, call)
