"""500 random graphs of 20 to 60 operators: fused, operator by operator, and NumPy in float64 agree,
in what they give and in the gradients of it. The text of the kernels alone, run by NumPy, tells in
a hundredth of the time what is wrong with it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tessera_lang.evaluate.host import Host
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.opt.graph.dead_code import without_unused
from tessera_lang.opt.graph.differentiate import gradient_of
from tests.unit.graph import by_numpy, cascades, on_cpu, reference
from tests.unit.graph.random_operators import random_operators

SEEDS, IN_ONE_TEST = range(500), 5
FOUND = (0, 384, 502, 751)
"""Sums that are the same for all rows of a loop; kernels of which each needs the other;
a sum for each element of what a product contracts; a value that is the
same along its first axis."""
_FUSED, _SINGLE = 1e-8, 1e-9
"""Of the largest element: sums in another order, behind tens of operators."""


@cache
def _host() -> Host:
    return on_cpu.host()


def _operator_by_operator(function: Operation, inputs: list[Any]) -> list[Any]:
    """The results of a function, each operator by a kernel of its own."""
    (body,) = function.regions
    known: dict[Value, Any] = dict(zip(body.arguments, inputs, strict=True))
    for o in body.operations[:-1]:
        builder = GraphBuilder(OPERATORS)
        given = list(dict.fromkeys(o.operands))
        parameters = {v: Value(v.type, f"x{i}") for i, v in enumerate(given)}
        made = builder.add_operation(o, [parameters[v] for v in o.operands])
        if made in parameters.values():
            known[o.result] = known[o.operands[0]]
            continue
        one = builder.function("one", list(parameters.values()), [made])
        (known[o.result],) = on_cpu.run(one, [known[v] for v in given], _host())
    return [known[v] for v in body.terminator.operands]


def _check(function: Operation, inputs: list[Any], tolerance: float, found: list[Any]) -> None:
    for a, b in zip(found, reference.run(function, inputs), strict=True):
        assert np.shape(a) == np.shape(b)
        limit = tolerance * max(1.0, float(np.abs(b).max(initial=0.0)))
        np.testing.assert_allclose(np.asarray(a), b, rtol=0.0, atol=limit)


def _with_gradient(seed: int, function: Operation, inputs: list[Any]) -> tuple[Operation, Any]:
    both = gradient_of(function, range(len(inputs)), seeded=True)
    rng = np.random.default_rng(seed)
    extra = both.regions[0].arguments[len(inputs) :]
    seeds = (rng.uniform(-1.0, 1.0, v.tensor_type.shape) for v in extra)
    return without_unused(both), [*inputs, *seeds]


def check_graph(seed: int) -> None:
    """The results with their gradients, of every fourth also alone: fused otherwise."""
    function, inputs = random_operators(seed)
    if seed % 4 == 0:
        _check(function, inputs, _FUSED, on_cpu.run(cascades.prepared(function), inputs, _host()))
    both, inputs = _with_gradient(seed, function, inputs)
    _check(both, inputs, _FUSED, on_cpu.run(cascades.prepared(both), inputs, _host()))
    _check(both, inputs, _SINGLE, _operator_by_operator(both, inputs))


def check_text(seed: int) -> None:
    function, inputs = random_operators(seed)
    _check(function, inputs, _FUSED, by_numpy.run(cascades.prepared(function), inputs))
    both, inputs = _with_gradient(seed, function, inputs)
    _check(both, inputs, _FUSED, by_numpy.run(cascades.prepared(both), inputs))


@pytest.mark.parametrize("first", SEEDS[::IN_ONE_TEST])
@pytest.mark.slow
def test_fused_and_operator_by_operator(first: int) -> None:
    for seed in range(first, first + IN_ONE_TEST):
        check_graph(seed)


def test_kernels_of_rows_that_become_one_read_what_is_stored() -> None:
    """Two loops each compute a product in themselves; one kernel of both would read it."""
    check_text(407)


@pytest.mark.parametrize("first", SEEDS[:: 5 * IN_ONE_TEST])
@pytest.mark.slow
def test_text_of_kernels(first: int) -> None:
    for seed in range(first, first + 5 * IN_ONE_TEST):
        check_text(seed)


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", [*FOUND, 57, 201])
def test_text_of_some_kernels(seed: int) -> None:
    check_text(seed)
