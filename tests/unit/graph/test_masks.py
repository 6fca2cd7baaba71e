"""Tiles that a mask hides whole are not computed, and no others are left out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tessera_lang.ir.core import Operation, TensorType, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.lower.graph_to_kernels.fusion import plan_of
from tessera_lang.opt.graph.dead_code import without_unused
from tessera_lang.opt.graph.differentiate import gradient_of
from tessera_lang.types.dtype import F64, I64
from tests.unit.graph import cascades, on_cpu, reference

S, T, D = 290, 330, 8
"""Rows and columns: several tiles of both."""
_WORDS = ("lt", "le", "gt", "ge", "eq", "ne")


class _Conditions:
    """Random conditions on places."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.b = GraphBuilder(OPERATORS)
        rows, columns = (self.b.op("arange", shape=(str(n),), dtype=I64) for n in (S, T))
        self.rows = self.b.broadcast(self.b.reshape(rows, (S, 1)), (S, T))
        self.columns = self.b.broadcast(self.b.reshape(columns, (1, T)), (S, T))

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def line(self) -> Value:
        """A place times a number, and a number."""
        place = self.rows if self.rng.random() < 0.5 else self.columns
        if self.rng.random() < 0.3:
            place = self.b.op("neg", place)
        if self.rng.random() < 0.4:
            place = self.b.mul(place, self.b.like(place, self.number(-2, 3)))
        return self.b.plus(place, self.number(-150, 150))

    def comparison(self) -> Value:
        word = _WORDS[self.number(0, len(_WORDS) - 1)]
        if self.rng.random() < 0.6:
            return self.b.op(word, self.rows, self.b.plus(self.columns, self.number(-200, 200)))
        return self.b.op(word, self.line(), self.line())

    def condition(self, depth: int = 2) -> Value:
        match self.number(0, 4) if depth else 0:
            case 1:
                return self.b.op("and", self.condition(depth - 1), self.condition(depth - 1))
            case 2:
                return self.b.op("or", self.condition(depth - 1), self.condition(depth - 1))
            case 3:
                return self.b.op("not", self.condition(depth - 1))
            case 4:
                made = self.b.like(self.value, 0.0)
                kept = self.b.where(self.condition(depth - 1), self.b.plus(made, 1.0), made)
                return self.b.op("gt" if self.rng.random() < 0.7 else "eq", kept, made)
            case _:
                return self.comparison()

    value: Value


def _masked(seed: int, each_row: bool = False) -> tuple[Operation, Operation]:
    """Attention, or a sum of products, of scores of which a condition hides some; and the
    condition. ``each_row``: the first drawn by which each row sees something, and
    a tile of 64 rows and places nothing."""
    c = _Conditions(seed)
    b = c.b
    q, k, v = (Value(TensorType(F64, s), n) for n, s in
               (("q", (S, D)), ("k", (T, D)), ("v", (T, D))))  # fmt: skip
    c.value = scores = b.times(b.op("matmul", q, b.swapped(k)), 0.5)
    seen = c.condition()
    while each_row and not _of_use(_seen(b, [q, k, v], seen)):
        seen = c.condition()
    if seed % 3 == 0:
        weights = b.where(seen, b.op("sigmoid", scores), b.zeros(scores))
    elif seed % 3 == 1:
        weights = b.op("softmax", b.where(seen, scores, b.like(scores, -np.inf)), axis=1)
    else:
        hidden = b.where(seen, b.zeros(scores), b.like(scores, -np.inf))
        weights = b.op("softmax", b.add(scores, hidden), axis=1)
    found = b.op("matmul", weights, v)
    return b.function("f", [q, k, v], [found]), b.function("g", [q, k, v], [seen])


def _seen(b: GraphBuilder, parameters: list[Value], seen: Value) -> Any:
    return reference.run(without_unused(b.function("g", parameters, [seen])), _inputs())[0]


def _of_use(seen: Any) -> bool:
    tiles = seen[: S - S % 64, : T - T % 64].reshape(S // 64, 64, T // 64, 64)
    return bool(seen.any(axis=1).all() and not tiles.any(axis=(1, 3)).all())


def _inputs() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1.0, 1.0, s) for s in ((S, D), (T, D), (T, D))]


def _places(source: str) -> tuple[Callable[[int], tuple[int, int]], int, int]:
    """Where the loop of a kernel begins and ends for a tile of rows; rows and steps of tiles."""
    found = re.search(r"for j in range\((.*), (\d+)\):", source)
    rows = re.search(r"tile_range\(.*step=(\d+)\)", source)
    assert found and rows
    text = re.sub(r"n\d+", str(T), f"({found[1]})")
    words: dict[str, Any] = {"min": min, "max": max, "__builtins__": {}}
    return lambda i: eval(text, {**words, "i": i}), int(rows[1]), int(found[2])


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sample(18)
def test_a_loop_goes_along_what_counts(seed: int) -> None:
    function, condition = _masked(seed)
    (seen,) = reference.run(condition, _inputs())
    (kernel,) = (k for k in plan_of(cascades.prepared(function), ()).kernels
                 if "for j in" in k.source)  # fmt: skip
    places, rows, steps = _places(kernel.source)
    for i in range(0, S, rows):
        begin, end = places(i)
        assert begin % steps == 0 and begin >= 0
        columns = np.flatnonzero(seen[i : i + rows].any(axis=0))
        inside = columns[(columns < begin) | (columns >= end)]
        assert not inside.size, (i, begin, end)


@pytest.mark.parametrize("word", ["ge", "lt"])
def test_a_triangle_is_half(word: str) -> None:
    c = _Conditions(0)
    b = c.b
    q, k, v = (Value(TensorType(F64, (n, D)), x) for x, n in (("q", S), ("k", T), ("v", T)))
    scores = b.op("matmul", q, b.swapped(k))
    masked = b.where(b.op(word, c.rows, c.columns), scores, b.like(scores, -np.inf))
    function = b.function("f", [q, k, v], [b.op("matmul", b.op("softmax", masked, axis=1), v)])
    (kernel,) = plan_of(cascades.prepared(function), ()).kernels
    places, rows, steps = _places(kernel.source)
    assert rows == steps
    for i in range(0, S, rows):
        begin, end = (0, min(T, i + rows)) if word == "ge" else (i, T)
        assert places(i) == (begin, end)


@pytest.mark.parametrize("seed", range(36))
@pytest.mark.sample(1)
def test_masked_loops_give_what_operators_give(seed: int) -> None:
    """Rows of which nothing is seen are 0."""
    function, condition = _masked(seed)
    inputs = _inputs()
    (found,) = on_cpu.run(cascades.prepared(function), inputs)
    (wanted,), (seen,) = (reference.run(f, inputs) for f in (function, condition))
    wanted = np.where(seen.any(axis=1)[:, None], wanted, 0.0)
    np.testing.assert_allclose(found, wanted, atol=1e-11)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.slow
def test_gradients_of_masked_loops(seed: int) -> None:
    function, _ = _masked(seed, each_row=True)
    function = gradient_of(function, range(3), seeded=True)
    inputs = [*_inputs(), np.random.default_rng(1).uniform(-1.0, 1.0, (S, D))]
    found = on_cpu.run(cascades.prepared(function), inputs)
    for a, b in zip(found, reference.run(function, inputs), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10 * max(1.0, float(np.abs(b).max())))
