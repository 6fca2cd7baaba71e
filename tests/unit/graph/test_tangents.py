"""``jvp`` and ``vjp``: forward mode against reverse mode and central differences, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.ir.core import Operation, Program, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operator import NoGradient
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.ir.verify import verify
from tessera_lang.opt.graph.differentiate import gradient_of
from tessera_lang.opt.graph.push_forward import tangent_of
from tests.unit.graph import reference
from tests.unit.graph.random_graphs import random_graph
from tests.unit.graph.samples import sample_of
from tests.unit.graph.test_derivatives import LOSSES, arrays, differences


def _program(function: Operation) -> Operation:
    return verify(Program("graph", (function,))).operations[0]


def _graph_of(name: str, rng: Any) -> tuple[Operation, list[Any]]:
    """A function of one operator, and arguments."""
    operands, attributes = sample_of(OPERATORS[name], rng)
    builder = GraphBuilder(OPERATORS)
    parameters = [Value(t, f"x{i}") for i, (_, t) in enumerate(operands)]
    result = builder.op(name, *parameters, **attributes)
    return builder.function("one", parameters, [result]), [v for v, _ in operands]


NO_TANGENT = {
    "no float comes out": (
        "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "any", "all", "argmax",
        "argmin", "argsort", "size",
    ),
    "it takes nothing": ("full", "arange"),
}  # fmt: skip
"""Operators of which there is no tangent to compare, by the reason."""
WITHOUT = {name for names in NO_TANGENT.values() for name in names}
STEPS_ALONE = ("floor", "ceil", "trunc", "round", "floordiv")
"""Operators whose results have steps: their tangents are 0, and so are differences."""


def test_every_operator_has_a_tangent_or_a_reason() -> None:
    """The list is what the table says: nothing is left out for another reason."""
    rng: Any = np.random.default_rng(3)
    for name, row in OPERATORS.items():
        function, _ = _graph_of(name, rng)
        result = function.regions[0].terminator.operands[0].tensor_type
        why = None if result.dtype.is_float else "no float comes out"
        if not row.operands:
            why = "it takes nothing"
        found = next((w for w, names in NO_TANGENT.items() if name in names), None)
        assert found == why, name
        if isinstance(row.gradient, NoGradient):
            assert row.gradient.zero, f"{name}: a derivative is refused, which no test expects"
            assert name in WITHOUT or name in STEPS_ALONE, name


@pytest.mark.parametrize("name", [n for n in OPERATORS if n not in WITHOUT])
@pytest.mark.sample(12)
def test_tangents_of_operators(name: str) -> None:
    """Forward mode against central differences along a direction, and against reverse mode."""
    rng: Any = np.random.default_rng([7, *name.encode()])
    compared = 0
    for _ in range(3):
        function, inputs = _graph_of(name, rng)
        parameters = function.regions[0].arguments
        wrt = [i for i, v in enumerate(parameters) if v.tensor_type.dtype.is_float]
        if not wrt or not function.regions[0].terminator.operands[0].tensor_type.dtype.is_float:
            continue  # of this sample: a cast to integers
        compared += 1
        moves: list[Any] = [rng.uniform(-1.0, 1.0, inputs[i].shape) for i in wrt]
        _, moved = reference.run(_program(tangent_of(function, wrt)), [*inputs, *moves])
        sides: list[Any] = []
        for h in (1e-6, -1e-6):
            at = list(inputs)
            for i, move in zip(wrt, moves, strict=True):
                at[i] = at[i] + h * move
            sides.append(reference.run(function, at)[0])
        np.testing.assert_allclose(moved, (sides[0] - sides[1]) / 2e-6, rtol=2e-5, atol=2e-6)
        weights = rng.uniform(-1.0, 1.0, moved.shape)
        gradient = _program(gradient_of(function, wrt, seeded=True, with_results=False))
        found = reference.run(gradient, [*inputs, weights])
        there = sum(np.sum(g * m) for g, m in zip(found, moves, strict=True))
        np.testing.assert_allclose(np.sum(moved * weights), there, rtol=1e-9, atol=1e-9)
        if name in STEPS_ALONE:
            np.testing.assert_array_equal(moved, 0.0)
    assert compared


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.sample(8)
def test_tangents_of_random_graphs(seed: int) -> None:
    """Forward mode, reverse mode, and forward mode of reverse mode against differences of it."""
    function, inputs = random_graph(seed, 12)
    rng: Any = np.random.default_rng(seed)
    wrt = range(len(inputs))
    moves: list[Any] = [rng.uniform(-1.0, 1.0, v.shape) for v in inputs]
    _, moved = reference.run(_program(tangent_of(function, wrt)), [*inputs, *moves])
    gradient = _program(gradient_of(function, wrt, seeded=False, with_results=False))
    found = reference.run(gradient, inputs)
    there = sum(np.sum(g * m) for g, m in zip(found, moves, strict=True))
    np.testing.assert_allclose(moved, there, rtol=1e-8, atol=1e-10)
    turned = reference.run(_program(tangent_of(gradient, wrt)), [*inputs, *moves])[len(inputs) :]
    sides = [
        reference.run(gradient, [v + h * m for v, m in zip(inputs, moves, strict=True)])
        for h in (1e-6, -1e-6)
    ]
    for product, up, down in zip(turned, *sides, strict=True):
        np.testing.assert_allclose(product, (up - down) / 2e-6, rtol=1e-4, atol=1e-5)


TEXT = (
    "".join(f"def {name}(x, y):\n    return {body}\n\n\n" for name, body in LOSSES.items())
    + """
CONSTANT = 1.5


def layer(p, x, k: int):
    h = op.tanh(x @ p["w"] + p["b"][None, :])
    return h * k, op.argmax(h, axis=1), {"sum": op.sum(h)}


def of_layer(x, y):
    p = {"w": x, "b": x[0]}
    (h, places, s), (dh, none, ds) = jvp(layer, (p, y, 2), ({"w": y, "b": y[1]}, None, None))
    return h, dh, s["sum"], ds["sum"]


def mixed(x, y):
    return op.sum(op.sin(x) * op.exp(y)) + op.sum(x @ y)


def curved(x, y):
    (g, dg) = jvp(grad(mixed, wrt=("x", "y")), (x, y), (y, x))
    return g[0], dg[1]


def pulled(x, y):
    (a, b), pull = vjp(lambda x, y: (x @ y, op.sum(x)), x, y)
    dx, dy = pull((y, 2.0))
    return a, b, dx, dy


def by_pull(x, y):
    value, pull = vjp(mixed, x, y)
    dx, dy = pull(1.0)
    return op.sum(dx * dx) + op.sum(dy)


def by_push(x, y):
    value, moved = jvp(mixed, (x, y), (y, None))
    return value * moved
"""
)


@pytest.fixture(scope="module")
def module() -> Any:
    return tessera.compile(TEXT, target="cpu")


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.sample(1)
def test_tangents_and_gradients_of_functions(module: Any, name: str) -> None:
    f = getattr(module, name)
    x, y = arrays()
    dx, dy = arrays(5)
    for _ in range(2):  # recorded, and replayed
        value, moved = tessera.jvp(f, (x, y), (dx, dy))
        np.testing.assert_allclose(value, f(x, y), rtol=1e-12)
        h = 1e-6
        wanted = (f(x + h * dx, y + h * dy) - f(x - h * dx, y - h * dy)) / (2 * h)
        np.testing.assert_allclose(moved, wanted, rtol=1e-5, atol=1e-7)
        same, pull = tessera.vjp(f, x, y)
        gx, gy = pull(1.0)
        np.testing.assert_allclose(same, value, rtol=1e-12)
        np.testing.assert_allclose(np.sum(gx * dx) + np.sum(gy * dy), moved, rtol=1e-9)


def test_parameters_of_several_arrays_and_results_without_tangents(module: Any) -> None:
    x, y = arrays()
    h, dh, total, moved = module.of_layer(x, y)
    wanted: Any = np.tanh(y @ x + x[0])
    slope = (1 - wanted**2) * (y @ y + y[1])
    np.testing.assert_allclose(h, 2 * wanted, rtol=1e-12)
    np.testing.assert_allclose(dh, 2 * slope, rtol=1e-12)
    np.testing.assert_allclose((total, moved), (wanted.sum(), slope.sum()), rtol=1e-12)


def test_tangents_of_gradients(module: Any) -> None:
    x, y = arrays()
    for call in (module.curved, tessera.fused(module.curved)):
        g, dg = call(x, y)
        np.testing.assert_allclose(g, np.cos(x) * np.exp(y) + y.sum(axis=1), rtol=1e-10)
        wanted = np.cos(x) * y * np.exp(y) + np.sin(x) * np.exp(y) * x
        np.testing.assert_allclose(dg, wanted + y.sum(axis=0)[:, None], rtol=1e-10)


def test_pullbacks(module: Any) -> None:
    x, y = arrays()
    a, b, dx, dy = module.pulled(x, y)
    np.testing.assert_allclose(a, x @ y, rtol=1e-12)
    np.testing.assert_allclose(b, x.sum(), rtol=1e-12)
    np.testing.assert_allclose(dx, y @ y.T + 2.0, rtol=1e-12)
    np.testing.assert_allclose(dy, x.T @ y, rtol=1e-12)


@pytest.mark.parametrize("name", ["by_pull", "by_push"])
@pytest.mark.sample(1)
def test_gradients_of_pulls_and_pushes(module: Any, name: str) -> None:
    f = getattr(module, name)
    x, y = arrays()
    dx, dy = tessera.grad(f, wrt=("x", "y"))(x, y)
    np.testing.assert_allclose(dx, differences(f, [x, y], 0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dy, differences(f, [x, y], 1), rtol=1e-5, atol=1e-6)


def test_calls_that_are_refused(module: Any) -> None:
    x, y = arrays()
    refused = {
        "is a tuple": lambda: tessera.jvp(module.mixed, x, (y,)),
        "2 primals and 1 tangents": lambda: tessera.jvp(module.mixed, (x, y), (y,)),
        "the tangents are f64.3., and the parameters f64.3, 3.":
            lambda: tessera.jvp(module.mixed, (x, y), (y[0], None)),
        "a tuple of 2 is needed, not": lambda: tessera.vjp(module.curved, x, y)[1](x),
        "with 3 arguments": lambda: tessera.vjp(module.mixed, x, y, x),
        "no argument of `mixed` holds floats": lambda: tessera.vjp(module.mixed, 1, 2),
    }  # fmt: skip
    for says, call in refused.items():
        with pytest.raises(TesseraError, match=says):
            call()
