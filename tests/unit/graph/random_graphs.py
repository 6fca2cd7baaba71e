"""Random graphs over float64, by a seed: functions of one to three arrays that give a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tessera_lang.ir.core import Operation, TensorType, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.types.dtype import F64, I64

_SMOOTH = ("tanh", "sin", "cos", "sigmoid", "softplus", "gelu", "silu", "erf", "atan", "asinh",
           "neg")  # fmt: skip
Step = Callable[["_Maker"], "Value | None"]


class _Maker:
    """Appends operators to values that there are."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder = GraphBuilder(OPERATORS)
        self.parameters: list[Value] = []
        self.inputs: list[Any] = []
        for i in range(int(self.rng.integers(1, 4))):
            shape = tuple(int(n) for n in self.rng.integers(1, 5, int(self.rng.integers(1, 4))))
            self.parameters.append(Value(TensorType(F64, shape), f"x{i}"))
            self.inputs.append(self.rng.uniform(-1.5, 1.5, shape))
        self.values = list(self.parameters)

    def pick(self) -> Value:
        """A value, late ones more often."""
        n = len(self.values)
        return self.values[min(n - 1, int(n * np.sqrt(self.rng.random())))]

    def shape(self, value: Value) -> tuple[int, ...]:
        return tuple(int(str(n)) for n in value.tensor_type.shape)

    def axis(self, value: Value) -> int:
        return int(self.rng.integers(value.tensor_type.rank))

    def like(self, value: Value) -> Value:
        """A value of the same shape: one that there is, or one made of another."""
        same = [v for v in self.values if v.type == value.type]
        if len(same) > 1 and self.rng.random() < 0.7:
            return same[int(self.rng.integers(len(same)))]
        other, b = self.pick(), self.builder
        mean = b.op("mean", other, axes=tuple(range(other.tensor_type.rank)), keepdims=False)
        return b.broadcast(mean, value.tensor_type.shape)


def _smooth(m: _Maker) -> Value:
    return m.builder.op(_SMOOTH[int(m.rng.integers(len(_SMOOTH)))], m.pick())


def _two(m: _Maker) -> Value:
    a = m.pick()
    names = ("add", "sub", "mul", "max", "min", "atan2")
    return m.builder.op(names[int(m.rng.integers(len(names)))], a, m.like(a))


def _quotient(m: _Maker) -> Value:
    a, b = m.pick(), m.builder
    return b.div(a, b.plus(b.op("exp", b.op("tanh", m.like(a))), 0.5))


def _choice(m: _Maker) -> Value:
    a, b = m.pick(), m.builder
    return b.where(b.op("lt", a, b.like(a, float(m.rng.uniform(-0.5, 0.5)))), m.like(a),
                   b.op("tanh", a))  # fmt: skip


def _product(m: _Maker) -> Value | None:
    a = m.pick()
    if a.tensor_type.rank < 2:
        return None
    right = m.builder.swapped(m.like(a))
    return m.builder.op("tanh", m.builder.op("matmul", a, right))


def _reduced(m: _Maker) -> Value | None:
    a = m.pick()
    if a.tensor_type.rank < 2:
        return None
    names = ("sum", "mean", "reduce_max", "reduce_min", "prod", "logsumexp")
    name = names[int(m.rng.integers(len(names)))]
    keep = bool(m.rng.random() < 0.5)
    found = m.builder.op(name, a, axes=(m.axis(a),), keepdims=keep)
    return m.builder.broadcast(found, a.tensor_type.shape) if keep else found


def _along(m: _Maker) -> Value:
    a = m.pick()
    if m.rng.random() < 0.5:
        return m.builder.op("softmax", a, axis=m.axis(a))
    flags = m.rng.random(2) < 0.5
    return m.builder.op("cumsum", a, axis=m.axis(a), exclusive=bool(flags[0]),
                        reverse=bool(flags[1]))  # fmt: skip


def _moved(m: _Maker) -> Value:
    a, b = m.pick(), m.builder
    shape, rank = m.shape(a), a.tensor_type.rank
    match int(m.rng.integers(6)):
        case 0:
            return b.transpose(a, tuple(int(i) for i in m.rng.permutation(rank)))
        case 1:
            return b.reshape(a, (int(np.prod(shape)),))
        case 2:
            return b.op("flip", a, axes=(m.axis(a),))
        case 3:
            pads = m.rng.integers(0, 2, (2, rank))
            before, after = (tuple(int(n) for n in row) for row in pads)
            return b.op("pad", a, before=before, after=after, value=0.25)
        case 4:
            starts = tuple(int(m.rng.integers(n)) for n in shape)
            steps = tuple(int(n) for n in m.rng.integers(1, 3, rank))
            return b.op("slice", a, starts=starts, stops=shape, steps=steps)
        case _:
            return b.op("concat", a, m.like(a), axis=m.axis(a))


def _taken(m: _Maker) -> Value:
    a, b = m.pick(), m.builder
    axis = m.axis(a)
    n = m.shape(a)[axis]
    places = b.op("mod", b.op("arange", shape=("3",), dtype=I64), b.full((3,), I64, n))
    return b.op("take", a, places, axis=axis)


_STEPS: tuple[Step, ...] = (_smooth, _two, _two, _quotient, _choice, _product, _reduced, _along,
                            _moved, _taken)  # fmt: skip


def random_graph(seed: int, count: int) -> tuple[Operation, list[Any]]:
    """A function of Graph IR of about ``count`` steps, and arguments."""
    m = _Maker(seed)
    while len(m.values) < len(m.parameters) + count:
        made = _STEPS[int(m.rng.integers(len(_STEPS)))](m)
        if made is not None and np.prod(m.shape(made)) <= 64 and made.tensor_type.rank:
            m.values.append(made)
    b = m.builder
    results = [b.op("mean", b.op("tanh", v), axes=tuple(range(v.tensor_type.rank)), keepdims=False)
               for v in (*m.parameters, *m.values[-3:])]  # fmt: skip
    total = results[0]
    for value in results[1:]:
        total = b.add(total, value)
    return b.function(f"graph{seed}", m.parameters, [total]), m.inputs
