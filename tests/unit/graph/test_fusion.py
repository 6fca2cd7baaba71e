"""Cascaded reductions: one loop each, and the results of the operators one after the other."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tessera_lang.ir.core import Operation, TensorType, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.lower.graph_to_kernels.fusion import plan_of
from tessera_lang.lower.graph_to_kernels.indexing_maps import sizes_of
from tessera_lang.opt.graph.decompose import decompose
from tessera_lang.opt.graph.differentiate import gradient_of
from tessera_lang.types.dtype import F64, I64
from tests.unit.graph import cascades, on_cpu, reference
from tests.unit.graph.random_cascades import random_cascade
from tests.unit.graph.random_graphs import random_graph

NAMES: list[str] = re.findall(r"def (\w+)", cascades.TEXT)
_SCORES = (cascades.SIZES["s"], cascades.SIZES["t"])
_TWO_LOOPS = ("centred", "of_columns", "means", "twice")
"""A sum over what an earlier result is subtracted from, a softmax along the other axis, and sums
that may leave the range of floats without a factor."""


def _arguments(function: Operation) -> list[Any]:
    rng = np.random.default_rng(0)
    made: list[Any] = []
    for value in function.regions[0].arguments:
        floats = value.tensor_type.dtype.is_float
        most = 1.0 if floats else float(cascades.SIZES["t"])
        found = rng.uniform(-1.0 if floats else 0.0, most, sizes_of(value))
        made.append(found if floats else found.astype(np.int64))
    return made


def _check(function: Operation, rtol: float) -> None:
    inputs = _arguments(function)
    found = on_cpu.run(function, inputs)
    for a, b in zip(found, reference.run(function, inputs), strict=True):
        np.testing.assert_allclose(a, b, atol=rtol * max(1e-30, float(np.abs(b).max())))


def _in_memory(function: Operation) -> list[tuple[int, ...]]:
    """Shapes of what is between kernels."""
    kernels = plan_of(function, ()).kernels
    given = set(function.regions[0].arguments)
    return [
        sizes_of(v) for k in kernels for v in (*k.results, *k.arguments)
        if isinstance(v, Value) and v not in given
    ]  # fmt: skip


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", NAMES)
def test_no_score_is_in_memory(name: str) -> None:
    function = cascades.graph_of(name, "f64", with_gradient=False)
    assert _SCORES not in _in_memory(function)
    loops = [k for k in plan_of(function, ()).kernels if "for j in" in k.source]
    assert len(loops) == 1 + (name in _TWO_LOOPS)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "with_bias"])
@pytest.mark.sample(5)
def test_no_score_of_a_gradient_is_in_memory(name: str) -> None:
    """But of the bias, whose gradient is one for each score."""
    assert _SCORES not in _in_memory(cascades.graph_of(name, "bf16", with_gradient=True))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_products_take_a_machines_exponential(dtype: str) -> None:
    """Also where other results of the loop are f32."""
    plan = plan_of(cascades.graph_of("attention", dtype, with_gradient=True), ())
    loops = [k.source for k in plan.kernels if "for j in" in k.source]
    assert len(loops) == 3
    assert all("fast.exp2" in text and " op.exp" not in text for text in loops)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sample(1)
def test_loops_give_what_operators_give(name: str) -> None:
    _check(cascades.graph_of(name, "f64", with_gradient=False), 1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_gradients_of_loops(name: str) -> None:
    if name != "cross_entropy":
        _check(cascades.graph_of(name, "f64", with_gradient=True), 1e-11)


@pytest.mark.parametrize("name", ["heads", "shared", "moved"])
@pytest.mark.sample(1)
def test_heads(name: str) -> None:
    for with_gradient in (False, True):
        _check(cascades.graph_of(name, "f64", with_gradient=with_gradient), 1e-11)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
@pytest.mark.sample(1)
def test_large_scores(scale: float) -> None:
    """Exponents are relative to the greatest so far: nothing overflows, in any order of rows."""
    function = cascades.graph_of("causal", "f64", with_gradient=False)
    inputs = [scale * v for v in _arguments(function)]
    (found,) = on_cpu.run(function, inputs)
    np.testing.assert_allclose(found, reference.run(function, inputs)[0], atol=1e-11 * scale)
    assert np.all(found[:3] == 0.0)  # these rows see no key


@pytest.mark.parametrize("seed", range(40))
def test_rewrites_keep_results(seed: int) -> None:
    function, inputs = random_graph(500 + seed, 10 + seed // 2)
    (found,), (wanted,) = (reference.run(f, inputs) for f in (decompose(function), function))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.slow
def test_random_cascades(seed: int) -> None:
    """Scores, lines along both axes of them, and products, in any order; every third with
    gradients."""
    function, inputs = random_cascade(seed, 4 + seed % 12)
    wanted = function
    if seed % 3 == 0:
        wanted = gradient_of(function, range(len(inputs)), seeded=True)
        rng = np.random.default_rng(seed)
        extra = wanted.regions[0].arguments[len(inputs) :]
        inputs = [*inputs, *(rng.uniform(-1.0, 1.0, sizes_of(v)) for v in extra)]
    found = on_cpu.run(cascades.prepared(wanted), inputs)
    for a, b in zip(found, reference.run(wanted, inputs), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9 * max(1e-3, float(np.abs(b).max())))


@pytest.mark.parametrize("length", [65, 90, 300, 5000])
@pytest.mark.sample(2)
def test_places_in_rows_of_any_length(length: int) -> None:
    """A row's room is rounded up, and that of its places with it."""
    b = GraphBuilder(OPERATORS)
    z, t = Value(TensorType(F64, (3, length)), "z"), Value(TensorType(I64, (3,)), "t")
    places = b.reshape(b.op("arange", shape=(str(length),), dtype=I64), (1, length))
    own = b.op("eq", b.broadcast(places, (3, length)),
               b.broadcast(b.reshape(t, (3, 1)), (3, length)))  # fmt: skip
    taken = b.sum(b.where(own, z, b.zeros(z)), (1,))
    loss = b.sum(b.sub(b.op("logsumexp", z, axes=(1,), keepdims=False), taken), (0,))
    function = gradient_of(b.function("f", [z, t], [loss]), (0,), seeded=False)
    inputs: list[Any] = [np.random.default_rng(0).standard_normal((3, length)),
                         np.array([0, length - 1, length // 2])]  # fmt: skip
    found = on_cpu.run(cascades.prepared(function), inputs)
    for a, w in zip(found, reference.run(function, inputs), strict=True):
        np.testing.assert_allclose(a, w, atol=1e-12)
