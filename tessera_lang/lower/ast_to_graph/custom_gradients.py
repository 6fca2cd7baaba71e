"""Functions and kernels whose gradient the program gives (``@gradient(f)``), in a graph.

Such a function is one operation, which has what it computes and what its gradients are. Owns how
parameters, results and gradients that hold several arrays become those of the operation. Must not
know how a gradient is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from tessera_lang.evaluate.fault import fault, located
from tessera_lang.evaluate.value import HostFunction
from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.graph.builder import RETURN
from tessera_lang.ir.graph.custom import WITH_GRADIENT
from tessera_lang.lower.ast_to_graph.leaves import is_value, leaves, rebuilt
from tessera_lang.lower.ast_to_graph.values import GraphArray, GraphNumber, not_here
from tessera_lang.lower.ast_to_graph.world import GraphWorld
from tessera_lang.record import dataclass, field
from tessera_lang.source import Span

Run = Callable[[GraphWorld, "dict[str, object]"], object]
"""Runs something in a world, of parameters by name."""
RESULT, COTANGENT = "result", "cotangent"


@dataclass(slots=True, eq=False)
class _Part:
    """One of the two things that the operation has: its world, and what it has of the others."""

    world: GraphWorld
    values: list[Value] = field(default_factory=list[Value])
    arrays: list[GraphArray | None] = field(default_factory=lambda: list["GraphArray | None"]())

    def inside(self, like: object, is_given: bool = True) -> object:
        """A new value of the type of another."""
        of = self.world.outer
        assert isinstance(of, GraphWorld)
        value = Value(of.lifted(like).tensor_type, f"a{len(self.values)}")
        self.values.append(value)
        if isinstance(like, GraphNumber):
            self.arrays.append(None)
            return GraphNumber(value, like.double)
        given = is_given or not isinstance(like, GraphArray) or like.root.is_given
        array = GraphArray(value, is_given=given)
        self.arrays.append(array)
        return array

    def region(self, order: Sequence[Value], results: Sequence[Value]) -> Region:
        operations = self.world.builder.operations
        return Region(tuple(order), (*operations, Operation(RETURN, tuple(results))))


@dataclass(slots=True, eq=False)
class CustomGradient:
    """A call of a function with a gradient of its own. ``values``: its arguments by parameter;
    ``run`` computes it, and ``rule`` is the gradient, run by ``run_rule``."""

    world: GraphWorld
    name: str
    values: Mapping[str, object]
    run: Run
    rule: HostFunction
    run_rule: Run
    span: Span
    is_kernel: bool = False

    def _is_leaf(self, value: object) -> bool:
        return self.world.is_array(value)

    def result(self) -> object:
        """What the function gives. Raises HostFault."""
        with located(self.span):
            return self._result()

    def _result(self) -> object:
        given = [x for v in self.values.values() for x in leaves(v, self._is_leaf)]
        computed = _Part(GraphWorld(self.world))
        own = {
            n: rebuilt(v, self._is_leaf, lambda x: computed.inside(x, not self.is_kernel))
            for n, v in self.values.items()
        }
        found = rebuilt(
            self.run(computed.world, own), computed.world.is_array,
            lambda v: v if is_value(v) else GraphArray(computed.world.lifted(v)),
        )  # fmt: skip
        written = [
            i for i, (a, v) in enumerate(zip(computed.arrays, computed.values, strict=True))
            if a is not None and a.value is not v
        ]  # fmt: skip
        self._check_written(given, written)
        outs = [cast("GraphArray", v).value for v in leaves(found, is_value)]
        outs += [cast("GraphArray", computed.arrays[i]).value for i in written]
        shown = self._shown(found, [computed.arrays[i] for i in written])
        results = iter(self._operation(given, computed, outs, shown))
        made = rebuilt(found, is_value, lambda v: _like(v, next(results)))
        for i, value in zip(written, results, strict=True):
            cast("GraphArray", given[i]).store(value)
        return made

    def _check_written(self, given: Sequence[object], written: Sequence[int]) -> None:
        for i in written:
            array = cast("GraphArray", given[i])
            others = [v for j, v in enumerate(given) if j != i and isinstance(v, GraphArray)]
            if array.root.is_value or any(v.root is array.root for v in others):
                raise not_here(f"`{self.name}` writing an array that shares memory")

    def _shown(self, found: object, written: Sequence[GraphArray | None]) -> object:
        """What the rule sees as the result: of a kernel also the arrays that it writes."""
        if not self.is_kernel:
            return found
        several = cast("tuple[object, ...]", found) if isinstance(found, tuple) else (found,)
        both = (*(v for v in several if v is not None), *written)
        return both[0] if len(both) == 1 else both

    def _operation(
        self, given: Sequence[object], computed: _Part, outs: Sequence[Value], shown: object
    ) -> tuple[Value, ...]:  # fmt: skip
        """The results of the operation."""
        rule = _Part(GraphWorld(self.world))
        rule.world.differentiates = True
        own: dict[str, object] = {
            n: rebuilt(v, self._is_leaf, rule.inside) for n, v in self.values.items()
        }
        count = len(rule.values)
        lifted = {v: _like(s, Value(v.tensor_type)) for s in leaves(shown, is_value)
                  for v in (cast("GraphArray", s).value,)}  # fmt: skip
        result = rebuilt(shown, is_value, lambda s: lifted[cast("GraphArray", s).value])
        slopes = {v: Value(v.tensor_type, "ct") for v in outs if v.tensor_type.dtype.is_float}
        cotangent = rebuilt(shown, is_value, lambda s: _slope(s, slopes))
        gradients = self._gradients(rule, own, result, cotangent)
        captured = [v for part in (computed, rule) for _, v in part.world.captured]
        outside = [a for part in (computed, rule) for a, _ in part.world.captured]
        stand_ins = [Value(v.tensor_type) for v in captured]
        split = len(computed.world.captured)
        first = (*computed.values, *captured[:split], *stand_ins[split:])
        seen = [cast("GraphArray", lifted[v]).value if v in lifted else Value(v.tensor_type)
                for v in outs]  # fmt: skip
        second = (*rule.values[:count], *stand_ins[:split], *captured[split:], *seen,
                  *(slopes[v] for v in outs if v in slopes))  # fmt: skip
        regions = computed.region(first, outs), rule.region(second, list(gradients.values()))
        operands = [self.world.lifted(x) for x in (*given, *outside)]
        types = [v.tensor_type for v in outs]
        of = {"of": tuple(gradients)}
        self.world.builder.span = self.span
        return self.world.builder.operation(WITH_GRADIENT, operands, types, of, regions)

    # --- the rule ------------------------------------------------------------------------

    def _gradients(
        self, rule: _Part, own: dict[str, object], result: object, cotangent: object
    ) -> dict[int, Value]:  # fmt: skip
        """The gradients that the program gives, by the number of the leaf."""
        offered = {**own, RESULT: result, COTANGENT: cotangent}
        declared = self.rule.declaration.parameters
        for p in declared:
            if p.name not in offered:
                helps = (f"it may take {', '.join(f'`{n}`' for n in offered)}",)
                message = f"the gradient of `{self.name}` has a parameter `{p.name}`"
                raise fault("T0761", message, p.span, helps=helps)
        found = self.run_rule(rule.world, {p.name: offered[p.name] for p in declared})
        several: tuple[object, ...] = (found,)
        if isinstance(found, tuple):
            several = cast("tuple[object, ...]", found)
        if len(self.values) == 1 and len(several) != 1:
            several = (cast("object", found),)
        if len(several) != len(self.values):
            raise self._wrong(f"gives {len(several)} gradients, and `{self.name}` has"
                              f" {len(self.values)} parameters")  # fmt: skip
        gradients: dict[int, Value] = {}
        at = 0
        for (name, value), gradient in zip(own.items(), several, strict=True):
            of = leaves(value, is_value)
            if gradient is not None and of:
                self._add(rule.world, name, of, gradient, at, gradients)
            at += len(of)
        return gradients

    def _add(
        self, world: GraphWorld, name: str, of: Sequence[object], gradient: object, at: int,
        gradients: dict[int, Value],
    ) -> None:  # fmt: skip
        given = leaves(gradient, lambda v: world.is_array(v) or isinstance(v, float | int | None))
        if len(given) != len(of):
            raise self._wrong(f"gives {len(given)} gradients of the {len(of)} arrays of `{name}`")
        for i, (like, one) in enumerate(zip(of, given, strict=True)):
            t = cast("GraphArray", like).type
            if one is None or not t.dtype.is_float:
                continue
            value = world.lifted(one)
            if value.tensor_type.shape != t.shape and value.tensor_type.rank:
                raise self._wrong(f"gives a gradient {value.tensor_type} of `{name}`, which is {t}")
            value = world.builder.cast(value, t.dtype)
            gradients[at + i] = world.builder.broadcast(value, t.shape) if t.rank else value

    def _wrong(self, text: str) -> Exception:
        helps = ("give a tuple with the gradient of each parameter, `None` for none",)
        span = self.rule.declaration.span
        return fault("T0761", f"`{self.rule.name}` {text}", span, helps=helps)


def _like(old: object, value: Value) -> object:
    return GraphNumber(value, old.double) if isinstance(old, GraphNumber) else GraphArray(value)


def _slope(old: object, slopes: Mapping[Value, Value]) -> object:
    """The gradient of a result; None of what is no float."""
    value = slopes.get(cast("GraphArray", old).value)
    return None if value is None else _like(old, value)
