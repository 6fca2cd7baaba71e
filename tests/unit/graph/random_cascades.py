"""Random functions of scores: reductions along both axes of a product, and of what they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tessera_lang.ir.core import Operation, TensorType, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.types.dtype import F64, I64

S, T, D, E = 70, 90, 16, 8
"""Rows and columns of scores (more than a tile has), what is contracted, and columns of values."""
_SHAPES = {"q": (S, D), "k": (T, D), "v": (T, E), "u": (S, E), "bias": (S, T)}


class _Maker:
    """``scores``, ``rows`` and ``columns``: values for each score, and for each along an axis."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.b = GraphBuilder(OPERATORS)
        self.given = {n: Value(TensorType(F64, s), n) for n, s in _SHAPES.items()}
        product = self.b.op("matmul", self.given["q"], self.b.swapped(self.given["k"]))
        self.scores = [self.b.times(product, 0.5)]
        self.lines: list[tuple[Value, int]] = []
        self.results: list[Value] = []

    def score(self) -> Value:
        n = len(self.scores)
        return self.scores[min(n - 1, int(n * np.sqrt(self.rng.random())))]

    def spread(self, line: Value, axis: int) -> Value:
        """A value for each row (axis 1 is gone) or column, for all scores."""
        shape = (S, 1) if axis == 1 else (1, T)
        return self.b.broadcast(self.b.reshape(line, shape), (S, T))


def _smooth(m: _Maker) -> None:
    name = ("tanh", "sigmoid", "sin", "softplus", "gelu")[int(m.rng.integers(5))]
    m.scores.append(m.b.op(name, m.score()))


def _exponential(m: _Maker) -> None:
    m.scores.append(m.b.op("exp", m.b.op("tanh", m.score())))


def _two(m: _Maker) -> None:
    name = ("add", "sub", "mul", "max")[int(m.rng.integers(4))]
    m.scores.append(m.b.op(name, m.score(), m.score()))


def _masked(m: _Maker) -> None:
    b = m.b
    rows, columns = (b.op("arange", shape=(str(n),), dtype=I64) for n in (S, T))
    seen = b.op("le", m.spread(columns, 0), b.plus(m.spread(rows, 1), int(m.rng.integers(0, 9))))
    value = m.score()
    m.scores.append(b.where(seen, value, b.zeros(value)))


def _biased(m: _Maker) -> None:
    m.scores.append(m.b.add(m.score(), m.given["bias"]))


def _reduced(m: _Maker) -> None:
    axis = 1 if m.rng.random() < 0.8 else 0
    name = ("sum", "mean", "reduce_max", "reduce_min", "logsumexp")[int(m.rng.integers(5))]
    found = m.b.op(name, m.score(), axes=(axis,), keepdims=False)
    if name == "sum":
        found = m.b.times(found, 1.0 / 64.0)
    m.lines.append((found, axis))


def _met(m: _Maker) -> None:
    if not m.lines:
        return
    line, axis = m.lines[int(m.rng.integers(len(m.lines)))]
    b, other = m.b, m.spread(line, axis)
    match int(m.rng.integers(4)):
        case 0:
            m.scores.append(b.sub(m.score(), other))
        case 1:
            m.scores.append(b.mul(m.score(), other))
        case 2:
            m.scores.append(b.div(m.score(), b.plus(b.mul(other, other), 1.0)))
        case _:
            m.scores.append(b.op("exp", b.op("min", b.sub(m.score(), other), b.like(other, 1.0))))


def _weights(m: _Maker) -> None:
    m.scores.append(m.b.op("softmax", m.score(), axis=1 if m.rng.random() < 0.8 else 0))


def _product(m: _Maker) -> None:
    value = m.score()
    if m.rng.random() < 0.7:
        m.results.append(m.b.op("matmul", value, m.given["v"]))
    else:
        m.results.append(m.b.op("matmul", m.b.swapped(value), m.given["u"]))


_STEPS: tuple[Callable[[_Maker], None], ...] = (
    _smooth, _exponential, _two, _masked, _biased, _reduced, _reduced, _met, _met, _weights,
    _product,
)  # fmt: skip


def random_cascade(seed: int, count: int) -> tuple[Operation, list[Any]]:
    """A function of Graph IR of about ``count`` steps that gives products and lines of scores, and
    arguments."""
    m = _Maker(seed)
    for _ in range(count):
        _STEPS[int(m.rng.integers(len(_STEPS)))](m)
    _product(m)
    results = list(dict.fromkeys((*m.results, *(line for line, _ in m.lines[-2:]))))
    function = m.b.function(f"cascade{seed}", list(m.given.values()), results)
    return function, [m.rng.uniform(-1.0, 1.0, s) for s in _SHAPES.values()]
