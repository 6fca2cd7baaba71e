"""Random graphs of all operators of the table over float64, by a seed: of several results, which
stay finite, and in which no choice is near a tie.

Each step is evaluated when it is made: what is not finite, large, or of no use to a comparison is
not taken up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tessera_lang.ir.core import Operation, TensorType, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.types.dtype import F64, I64
from tests.unit.graph import reference

_SIZES = ((1, 2, 3, 4), (1, 3, 5, 17), (2, 7, 40, 70))
"""Of axes, by the kind of graph: a tile has room for all of the first two."""
_MOST = (64, 600, 6000)
_LARGEST = 30.0
_CURVES = ("tanh", "sin", "cos", "sigmoid", "softplus", "gelu", "silu", "erf", "atan", "asinh",
           "neg", "abs", "relu", "exp2", "expm1")  # fmt: skip
_ABOVE = ("log", "log2", "log10", "sqrt", "rsqrt", "log1p")
"""Of what is greater than 0."""
_WITHIN = ("asin", "acos", "atanh", "tan", "sinh", "cosh", "exp")
"""Of what lies between -0.9 and 0.9."""
_STEPS_OF = ("floor", "ceil", "trunc", "round")
_PAIRS = ("add", "sub", "mul", "max", "min", "atan2")
_COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")


class _Graph:
    """Appends operators to values that there are, and keeps what each value is."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([500, seed])
        self.builder = GraphBuilder(OPERATORS)
        self.kind = seed % len(_SIZES)
        self.parameters: list[Value] = []
        self.known: dict[Value, Any] = {}
        self.evaluated = 0
        for i in range(int(self.rng.integers(1, 4))):
            shape = [int(self.rng.choice(_SIZES[self.kind])) for _ in range(self.number(1, 3))]
            while np.prod(shape) > _MOST[self.kind]:
                shape.pop()
            self.parameters.append(Value(TensorType(F64, tuple(shape)), f"x{i}"))
            self.known[self.parameters[-1]] = self.rng.uniform(-1.5, 1.5, shape)
        self.values = list(self.parameters)

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def one_of(self, names: tuple[str, ...]) -> str:
        return names[int(self.rng.integers(len(names)))]

    def flag(self) -> bool:
        return bool(self.rng.random() < 0.5)

    def pick(self) -> Value:
        """A value, late ones more often."""
        n = len(self.values)
        return self.values[min(n - 1, int(n * np.sqrt(self.rng.random())))]

    def axis(self, value: Value) -> int:
        return self.number(0, value.tensor_type.rank - 1)

    def shape(self, value: Value) -> tuple[int, ...]:
        return tuple(int(str(n)) for n in value.tensor_type.shape)

    def like(self, value: Value) -> Value:
        """A value of the same shape: one that there is, or one made of another."""
        same = [v for v in self.values if v.type == value.type]
        if len(same) > 1 and self.rng.random() < 0.7:
            return same[int(self.rng.integers(len(same)))]
        other, b = self.pick(), self.builder
        if other.tensor_type.rank == value.tensor_type.rank and self.flag():
            pairs = zip(self.shape(other), self.shape(value), strict=True)
            axes = tuple(i for i, (m, n) in enumerate(pairs) if m != n)
            mean = b.op("mean", other, axes=axes, keepdims=True) if axes else other
            return b.op("broadcast", mean, shape=tuple(map(str, self.shape(value))))
        mean = b.op("mean", other, axes=tuple(range(other.tensor_type.rank)), keepdims=False)
        return b.broadcast(mean, value.tensor_type.shape)

    def odd(self, value: Value) -> Value:
        """A value, moved away from numbers at which a function steps."""
        return self.builder.plus(value, float(self.rng.uniform(0.05, 0.45)))

    def untied(self, value: Value) -> Value:
        """A value whose elements along all axes differ by more than rounding."""
        b, shape = self.builder, self.shape(value)
        line = b.op("arange", shape=(str(int(np.prod(shape))),), dtype=F64)
        wave = b.op("sin", b.times(b.plus(line, 1.0), 1.2345))
        return b.add(value, b.times(b.reshape(wave, shape), 0.173))

    def accepted(self, value: Value) -> bool:
        """Whether a value may be used: evaluates what was built since."""
        new = self.builder.operations[self.evaluated :]
        self.evaluated = len(self.builder.operations)
        with np.errstate(all="ignore"):
            for o in new:
                self.known[o.result] = reference.evaluate(o, [self.known[v] for v in o.operands])
        found = self.known[value]
        small = 0 < found.size <= _MOST[self.kind] and value.tensor_type.rank > 0
        return small and bool(np.all(np.abs(found) <= _LARGEST))


def _curve(g: _Graph) -> Value:
    return g.builder.op(g.one_of(_CURVES), g.pick())


def _of_domain(g: _Graph) -> Value:
    b, a = g.builder, g.pick()
    if g.rng.random() < 0.1:
        return b.op("acosh", b.plus(b.op("abs", a), 1.25))
    if g.flag():
        return b.op(g.one_of(_ABOVE), b.plus(b.mul(a, a), 0.3))
    return b.op(g.one_of(_WITHIN), b.times(b.op("sin", a), 0.875))


def _pair(g: _Graph) -> Value:
    a = g.pick()
    name, other = g.one_of(_PAIRS), g.like(a)
    if name == "atan2":  # of two zeros there is no gradient
        other = g.builder.plus(g.builder.mul(other, other), 0.5)
    return g.builder.op(name, a, other)


def _quotient(g: _Graph) -> Value:
    a, b = g.pick(), g.builder
    divisor = b.plus(b.op("exp", b.op("tanh", g.like(a))), 0.5)
    match g.number(0, 3):
        case 0:
            return b.op("mod", g.odd(a), divisor)
        case 1:
            return b.op("floordiv", g.odd(a), divisor)
        case 2:
            return b.op("pow", divisor, b.op("tanh", a))
        case _:
            return b.div(a, divisor)


def _stepped(g: _Graph) -> Value:
    b, a = g.builder, g.odd(g.pick())
    if g.flag():
        return b.add(b.op(g.one_of(_STEPS_OF), a), b.times(a, 0.5))
    return b.add(b.cast(b.cast(b.times(a, 3.0), I64), F64), a)


def _condition(g: _Graph, a: Value) -> Value:
    b = g.builder
    word = g.one_of(_COMPARED)
    found = b.op(word, g.odd(a), b.like(a, 0.0))
    if g.flag():
        found = b.op(g.one_of(("and", "or", "xor")), found, b.op("gt", g.odd(g.like(a)),
                                                                  b.like(a, 0.5)))  # fmt: skip
    return b.op("not", found) if g.rng.random() < 0.3 else found


def _choice(g: _Graph) -> Value:
    a, b = g.pick(), g.builder
    seen = _condition(g, a)
    if g.rng.random() < 0.3:
        axes = (g.axis(a),)
        some = b.op(g.one_of(("any", "all")), seen, axes=axes, keepdims=True)
        seen = b.broadcast(some, a.tensor_type.shape)
    return b.where(seen, g.like(a), b.op("tanh", a))


def _product(g: _Graph) -> Value | None:
    a, b = g.pick(), g.builder
    if a.tensor_type.rank < 2:
        return None
    scores = b.times(b.op("matmul", a, b.swapped(g.like(a))), 0.25)
    if g.flag():
        return scores
    weights = b.op("softmax", scores, axis=scores.tensor_type.rank - 1)
    return b.op("matmul", weights, g.like(a))


def _reduced(g: _Graph) -> Value | None:
    a, b = g.pick(), g.builder
    rank = a.tensor_type.rank
    name = g.one_of(("sum", "mean", "reduce_max", "reduce_min", "prod", "logsumexp"))
    axes = (g.axis(a),)
    if rank > 1 and name != "logsumexp" and g.rng.random() < 0.2:
        axes = tuple(sorted({g.axis(a), g.axis(a)}))
    given = g.untied(a) if name.startswith("reduce") else a
    found = b.op(name, given, axes=axes, keepdims=True)
    if g.flag():
        return b.broadcast(found, a.tensor_type.shape)
    return b.op(name, given, axes=axes, keepdims=False) if rank > len(axes) else found


def _along(g: _Graph) -> Value:
    a = g.pick()
    if g.flag():
        return g.builder.op("softmax", a, axis=g.axis(a))
    return g.builder.op(g.one_of(("cumsum", "cumprod")), a, axis=g.axis(a), exclusive=g.flag(),
                        reverse=g.flag())  # fmt: skip


def _ordered(g: _Graph) -> Value:
    b, a = g.builder, g.untied(g.pick())
    axis = g.axis(a)
    match g.number(0, 2):
        case 0:
            return b.op("sort", a, axis=a.tensor_type.rank - 1, descending=g.flag())
        case 1:
            last = a.tensor_type.rank - 1
            places = b.op("argsort", a, axis=last, descending=g.flag())
            return b.op("take_along", g.like(a), places, axis=last)
        case _:
            places = b.op(g.one_of(("argmax", "argmin")), a, axis=axis)
            one = tuple(1 if i == axis else n for i, n in enumerate(g.shape(a)))
            places = b.reshape(places, one)
            return b.op("take_along", g.like(a), places, axis=axis)


def _moved(g: _Graph) -> Value:
    a, b = g.pick(), g.builder
    shape, rank = g.shape(a), a.tensor_type.rank
    match g.number(0, 6):
        case 0:
            return b.transpose(a, tuple(int(i) for i in g.rng.permutation(rank)))
        case 1:
            at = g.number(0, rank - 1)
            if at == rank - 1:
                flat = (int(np.prod(shape)),)
                return b.reshape(a, (*shape[:-1], 1, shape[-1]) if rank < 3 else flat)
            return b.reshape(a, (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]))
        case 2:
            return b.op("flip", a, axes=(g.axis(a),))
        case 3:
            before, after = (tuple(int(n) for n in row) for row in g.rng.integers(0, 2, (2, rank)))
            return b.op("pad", a, before=before, after=after, value=0.25)
        case 4:
            starts = tuple(g.number(0, n - 1) for n in shape)
            steps = tuple(g.number(1, 2) for _ in shape)
            return b.op("slice", a, starts=starts, stops=shape, steps=steps)
        case 5:
            wide = b.broadcast(b.full((), F64, g.rng.uniform(-1.0, 1.0)), shape)
            return b.op("concat", a, wide, g.like(a), axis=g.axis(a))
        case _:
            return b.op("concat", a, g.like(a), axis=g.axis(a))


def _taken(g: _Graph) -> Value:
    a, b = g.pick(), g.builder
    axis = g.axis(a)
    places = b.op("arange", shape=(str(g.number(1, 5)),), dtype=I64)
    places = b.op("mod", b.mul(places, b.like(places, g.number(1, 7))),
                  b.like(places, g.shape(a)[axis]))  # fmt: skip
    if a.tensor_type.rank != 2 or g.flag():
        return b.op("take", a, places, axis=axis)
    rows = b.op("arange", shape=(str(g.shape(a)[0]),), dtype=I64)
    count = b.op("mod", rows, b.like(rows, g.number(1, 4)))
    return b.op("scatter_add", count, a, shape=("4",))


_STEPS: tuple[Callable[[_Graph], Value | None], ...] = (
    _curve, _of_domain, _pair, _pair, _quotient, _stepped, _choice, _product, _product, _reduced,
    _reduced, _along, _ordered, _moved, _taken,
)  # fmt: skip


def random_operators(seed: int, low: int = 20, high: int = 60) -> tuple[Operation, list[Any]]:
    """A function of Graph IR of ``low`` to ``high`` operators that some result needs (a few more
    where the last step has several), of up to four results, and its arguments."""
    g = _Graph(seed)
    count = g.number(low, high - 6)
    results: list[Value] = []
    while (used := _count(g, results)) < count:
        for _ in range(400):
            made = _STEPS[int(g.rng.integers(len(_STEPS)))](g)
            if made is not None and made not in g.values and g.accepted(made):
                g.values.append(made)
                break
        else:
            raise AssertionError(f"graph {seed} does not grow beyond {used} operators")
        results = g.values[-4:]
    function = g.builder.function(f"graph{seed}", g.parameters, list(dict.fromkeys(results)))
    return function, [g.known[p] for p in g.parameters]


def _count(g: _Graph, results: list[Value]) -> int:
    """Operators that results need, but for numbers."""
    found, left = set[Value](), list(results)
    while left:
        value = left.pop()
        operation = g.builder.origin(value)
        if value not in found and operation is not None:
            found.add(value)
            left.extend(operation.operands)
    return sum(g.builder.number_of(v) is None for v in found)
