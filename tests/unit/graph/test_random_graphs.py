"""Random graphs: gradients against central differences, kernels against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera_lang.driver.pass_runner import PassRunner
from tessera_lang.driver.pipeline import GRAPH
from tessera_lang.ir.core import Operation, Program
from tessera_lang.opt.graph.differentiate import gradient_of
from tests.unit.graph import cascades, on_cpu, reference
from tests.unit.graph.random_graphs import random_graph


def _with_gradient(function: Operation) -> Operation:
    wrt = range(len(function.regions[0].arguments))
    made = Program("graph", (gradient_of(function, wrt, seeded=False),))
    return PassRunner(verify_each=True).run(made, GRAPH).operations[0]


def _check_differences(function: Operation, inputs: list[Any], gradients: list[Any]) -> None:
    """Along one direction for all arguments, at two distances: where a choice lies between, the
    two differ, and that place tells nothing."""
    rng = np.random.default_rng(1)
    directions: list[Any] = [rng.uniform(-1.0, 1.0, v.shape) for v in inputs]
    found: list[float] = []
    for h in (1e-5, 1e-6):
        sides = [
            reference.run(
                function, [v + s * h * d for v, d in zip(inputs, directions, strict=True)]
            )
            for s in (1.0, -1.0)
        ]
        found.append(float(sides[0][0] - sides[1][0]) / (2 * h))
    if abs(found[0] - found[1]) > 1e-4 * (1.0 + abs(found[0])):
        return
    slope = sum(float(np.sum(g * d)) for g, d in zip(gradients, directions, strict=True))
    np.testing.assert_allclose(slope, found[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sample(12)
def test_gradients_of_random_graphs(seed: int) -> None:
    function, inputs = random_graph(seed, 8 + seed)
    both = _with_gradient(function)
    value, *gradients = reference.run(both, inputs)
    np.testing.assert_allclose(value, reference.run(function, inputs)[0], rtol=1e-12)
    assert [g.shape for g in gradients] == [v.shape for v in inputs]
    _check_differences(function, inputs, gradients)


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.sample(1)
def test_kernels_of_random_graphs(seed: int) -> None:
    """A graph and its gradient, run as kernels."""
    function, inputs = random_graph(100 + seed, 4 + seed)
    both = _with_gradient(function)
    found = on_cpu.run(both, inputs)
    for a, b in zip(found, reference.run(both, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.slow
def test_fused_kernels_of_long_random_graphs(seed: int) -> None:
    """Of 20 to 60 operators, every other one with its gradient, rewritten and fused."""
    function, inputs = random_graph(3000 + seed, 20 + seed * 41 // 12)
    both = _with_gradient(function) if seed % 2 == 0 else function
    found = on_cpu.run(cascades.prepared(both), inputs)
    for a, b in zip(found, reference.run(both, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12 + 1e-9 * float(np.abs(b).max()))
