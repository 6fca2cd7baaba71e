"""Loops of graph functions as regions: random programs against NumPy, forward and backward, and
what stays step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.driver.function_graphs import graph_program, plain_functions
from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Operation, Program
from tessera_lang.ir.parser import parse_program
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.verify import verify
from tessera_lang.opt.graph import control_flow_derivatives
from tessera_lang.opt.graph.dead_code import without_unused
from tessera_lang.opt.graph.decompose import decompose
from tessera_lang.opt.graph.differentiate import gradient_of
from tessera_lang.opt.graph.push_forward import tangent_of
from tests.house.places import ROOT
from tests.unit.graph import on_cpu, reference
from tests.unit.graph.random_loops import (
    PARAMETERS,
    SIGNATURE,
    STEP_BY_STEP,
    STEPS,
    as_python,
    random_inputs,
    random_loop,
)


def graph_of(text: str, signature: str = SIGNATURE) -> Operation:
    session = Session(overlay={"a.tessera": text})
    (function,) = (f for f in plain_functions(session, "a.tessera") if f.name == "f")
    return graph_program(session, "a.tessera", function, signature).operations[0]


def checked(function: Operation) -> Operation:
    """Verified, and what it is when it has been printed."""
    program = verify(Program("graph", (function,)))
    text = print_program(program)
    parsed = verify(parse_program(text))
    assert print_program(parsed) == text
    return parsed.operations[0]


def slope(f: Callable[..., Any], inputs: Sequence[Any], moves: Sequence[Any]) -> Any:
    """How a function changes along a direction, by central differences."""
    h = 1e-6
    up, down = ([v + s * m for v, m in zip(inputs, moves, strict=True)] for s in (h, -h))
    return (f(*up) - f(*down)) / (2 * h)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sample(6)
def test_random_loops(seed: int) -> None:
    """Values, reverse mode, forward mode, and forward mode of reverse mode, by NumPy."""
    text, inputs = random_loop(seed), random_inputs(seed)
    wanted = as_python(text)
    function = checked(graph_of(text))
    (found,) = reference.run(function, inputs)
    np.testing.assert_allclose(found, wanted(*inputs), rtol=1e-9)
    rng: Any = np.random.default_rng(seed)
    moves: list[Any] = [rng.uniform(-1.0, 1.0, v.shape) for v in inputs]
    along = slope(wanted, inputs, moves)
    gradient = gradient_of(function, range(len(inputs)), seeded=False, with_results=False)
    gradients = reference.run(checked(decompose(checked(gradient))), inputs)
    there = sum(float(np.sum(g * m)) for g, m in zip(gradients, moves, strict=True))
    np.testing.assert_allclose(there, along, rtol=2e-5, atol=1e-6)
    value, moved = reference.run(checked(tangent_of(function, range(len(inputs)))),
                                 [*inputs, *moves])  # fmt: skip
    np.testing.assert_allclose(value, found, rtol=1e-12)
    np.testing.assert_allclose(moved, there, rtol=1e-9, atol=1e-10)
    for i in range(len(inputs)):  # one at a time: what is not asked for is left out
        one = gradient_of(function, [i], seeded=False, with_results=True)
        _, own = reference.run(checked(decompose(one)), inputs)
        np.testing.assert_allclose(own, gradients[i], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.sample(2)
def test_what_is_kept_changes_no_gradient(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but what is carried, or all that a step computes, and again for the gradient of the
    gradient."""
    text, inputs = random_loop(seed), random_inputs(seed)
    function, every = graph_of(text), range(len(inputs))
    found: list[Any] = []
    for operations in (math.inf, 0.0):
        monkeypatch.setattr(control_flow_derivatives, "OPERATIONS_OF_A_BYTE", {8: operations})
        one = gradient_of(function, every, seeded=False, with_results=False)
        ones: list[Any] = [np.ones_like(v) for v in inputs]
        two = gradient_of(without_unused(one), every, seeded=True, with_results=True)
        found.append(reference.run(checked(two), [*inputs, *ones]))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def test_products_of_long_rows_are_kept() -> None:
    text = """
def f(x, w):
    h = x[0]
    for row in x:
        h = op.sin(op.tanh(h @ w + row))
    return op.sum(h)
"""
    for n, kept in ((8, 2), (512, 3)):
        function = graph_of(text, f"x: f32[20, 4, {n}], w: f32[{n}, {n}]")
        gradient = without_unused(gradient_of(function, [0, 1], seeded=False, with_results=False))
        forward, back = (o for o in gradient.regions[0].operations if o.name == "graph.for")
        assert len(forward.results) == kept  # the last state, those before, and the products
        again = 4 * n * (1 if kept == 3 else 2 * n)
        assert back.integer("again") >= again and back.integer("spared") >= 4 * n * 4
        products = sum(o.name == "graph.matmul" for o in back.regions[0].operations)
        assert products == (2 if kept == 3 else 3)


def _logits_kept(function: Operation) -> bool:
    gradient = without_unused(gradient_of(function, [0, 1], seeded=False, with_results=False))
    forward = next(o for o in gradient.regions[0].operations if o.name == "graph.for")
    return any(v.tensor_type.rank == 3 for v in forward.results)


def test_cross_entropy_of_the_page_without_logits() -> None:
    """Beside NumPy, and what is kept of it: logits where they are smaller than what they are of."""
    page = (ROOT / "docs" / "graph.md").read_text(encoding="utf-8")
    text = page[page.index("def cross_entropy") :].split("```")[0].replace("cross_entropy", "f")
    n, d, parts, some = 9, 4, 16, 5
    signature = f"x: f32[{n}, {d}], w: f32[{parts}, {some}, {d}], y: i32[{n}]"
    function = checked(graph_of(text, signature))
    assert sum(o.name == "graph.for" for o in function.regions[0].operations) == 1
    rng: Any = np.random.default_rng(0)
    x, w = rng.normal(size=(n, d)), rng.normal(size=(parts, some, d))
    y = rng.integers(0, parts * some, n)
    z = x @ w.reshape(-1, d).T
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    wanted = np.mean(-np.log(p[np.arange(n), y]))
    np.testing.assert_allclose(reference.run(function, [x, w, y])[0], wanted, rtol=1e-12)
    gradient = checked(gradient_of(function, [0, 1], seeded=False, with_results=False))
    p[np.arange(n), y] -= 1.0
    p /= n
    dx, dw = reference.run(gradient, [x, w, y])
    np.testing.assert_allclose(dx, p @ w.reshape(-1, d), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(dw, (p.T @ x).reshape(w.shape), rtol=1e-9, atol=1e-12)
    sizes = "x: f32[{0}, {1}], w: f32[16, 20, {1}], y: i32[{0}]"
    assert _logits_kept(graph_of(text, sizes.format(64, 512)))
    assert not _logits_kept(graph_of(text, sizes.format(4096, 128)))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sample(1)
def test_second_derivatives_of_loops(seed: int) -> None:
    text, inputs = random_loop(seed), random_inputs(seed)
    function = graph_of(text)
    every = range(len(inputs))
    gradient = gradient_of(function, every, seeded=False, with_results=False)
    rng: Any = np.random.default_rng(seed)
    moves: list[Any] = [rng.uniform(-1.0, 1.0, v.shape) for v in inputs]
    forward = checked(tangent_of(gradient, every))
    products = reference.run(forward, [*inputs, *moves])[len(inputs) :]
    reverse = checked(gradient_of(gradient, every, seeded=True, with_results=False))
    for found, other in zip(products, reference.run(reverse, [*inputs, *moves]), strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-8, atol=1e-9)
    sides = [
        reference.run(gradient, [v + h * m for v, m in zip(inputs, moves, strict=True)])
        for h in (1e-6, -1e-6)
    ]
    for product, up, down in zip(products, *sides, strict=True):
        np.testing.assert_allclose(product, (up - down) / 2e-6, rtol=1e-4, atol=1e-4)


RECURRENT = """
def f(x, w):
    h = op.zeros((3,))
    out = []
    for row in x:
        h = op.tanh(h @ w + row)
        out.append(h)
    y = op.stack(out)
    return op.sum(y * y) + op.sum(h)
"""
UP_TO_DATA = """
def f(x, w, n):
    h, s = x[0], 0.0
    for t in range(op.max(n), -2, -1):
        h = op.tanh(h @ w + x[1] * t)
        s = s + op.sum(h * h)
    return s
"""


@pytest.mark.slow
@pytest.mark.parametrize("text", [RECURRENT, UP_TO_DATA])
def test_loops_as_kernels(text: str) -> None:
    """Values and gradients on the CPU."""
    sizes = "x: f64[20, 3], w: f64[3, 3]"
    function = graph_of(text, sizes + (", n: i64[2]" if text is UP_TO_DATA else ""))
    inputs: list[Any] = [*random_inputs(1)[::4], np.array([5, 3])][: 2 + (text is UP_TO_DATA)]
    gradient = decompose(gradient_of(function, [0, 1], seeded=False, with_results=True))
    wanted = reference.run(gradient, inputs)
    for a, b in zip(on_cpu.run(gradient, inputs), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_loops_called_again(target: Any) -> None:
    """With other elements, other strides, and gradients between: what a call keeps of the one
    before is right for the next."""
    module = tessera.compile(RECURRENT + "def g(x, w): return fused(f)(x, w)\n", target=target)
    for seed in range(4):
        x, w = random_inputs(seed)[::4]
        x = np.asfortranarray(x) if seed == 1 else x[::-1] if seed == 2 else x

        def wanted(x: Any, w: Any) -> Any:
            h, s = np.zeros(3), 0.0
            for row in x:
                h = np.tanh(h @ w + row)
                s = s + np.sum(h * h)
            return s + np.sum(h)

        np.testing.assert_allclose(module.g(x, w), wanted(x, w), rtol=1e-10)
        dx, dw = tessera.grad(module.f, wrt=("x", "w"))(x, w)
        for move in (0, 1):
            moves = [np.cos(x) * (move == 0), np.cos(w) * (move == 1)]
            there = np.sum(dx * moves[0]) + np.sum(dw * moves[1])
            np.testing.assert_allclose(there, slope(wanted, [x, w], moves), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(module.g(w, w), wanted(w, w), rtol=1e-10)


@pytest.mark.parametrize("n", [-3, 0, 4])
def test_ranges_of_data_have_gradients(n: int) -> None:
    """The steps before each step are computed again."""
    function = checked(graph_of(UP_TO_DATA, "x: f64[20, 3], w: f64[3, 3], n: i64[2]"))
    x, w = random_inputs(2)[::4]
    count = np.array([n, -5])

    def wanted(x: Any, w: Any) -> Any:
        h, s = x[0], 0.0
        for t in range(n, -2, -1):
            h = np.tanh(h @ w + x[1] * t)
            s = s + np.sum(h * h)
        return s

    np.testing.assert_allclose(reference.run(function, [x, w, count])[0], wanted(x, w), rtol=1e-12)
    rng: Any = np.random.default_rng(n + 5)
    moves: list[Any] = [rng.uniform(-1.0, 1.0, v.shape) for v in (x, w)]
    gradient = checked(gradient_of(function, [0, 1], seeded=False, with_results=False))
    gradients = reference.run(gradient, [x, w, count])
    there = sum(float(np.sum(g * m)) for g, m in zip(gradients, moves, strict=True))
    np.testing.assert_allclose(there, slope(wanted, [x, w], moves), rtol=1e-5, atol=1e-8)
    moved = reference.run(checked(tangent_of(function, [0, 1])), [x, w, count, *moves])[1]
    np.testing.assert_allclose(moved, there, rtol=1e-10, atol=1e-12)
    products = reference.run(checked(tangent_of(gradient, [0, 1])), [x, w, count, *moves])[2:]
    again = checked(gradient_of(gradient, [0, 1], seeded=True, with_results=False))
    for a, b in zip(products, reference.run(again, [x, w, count, *moves]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


WHILE = """
def f(x, w):
    y, s, k = x, 0.0, 0
    while op.sum(y * y) > 0.05 and k < 40:
        y = op.tanh(y @ w) * 0.8
        s = s + op.sum(y)
        k += 1
    return s + op.sum(y)
"""


def test_forward_mode_goes_through_while() -> None:
    function = graph_of(WHILE, "x: f64[2, 3], w: f64[3, 3]")

    def wanted(x: Any, w: Any) -> Any:
        y, s, k = x, 0.0, 0
        while np.sum(y * y) > 0.05 and k < 40:
            y = np.tanh(y @ w) * 0.8
            s, k = s + np.sum(y), k + 1
        return s + np.sum(y)

    rng: Any = np.random.default_rng(3)
    x, w, dx, dw = (rng.uniform(-0.8, 0.8, s) for s in ((2, 3), (3, 3)) * 2)
    for moves, wrt in (([dx, dw], [0, 1]), ([dw], [1])):
        value, moved = reference.run(checked(tangent_of(function, wrt)), [x, w, *moves])
        np.testing.assert_allclose(value, wanted(x, w), rtol=1e-12)
        direction = moves if len(wrt) == 2 else [0.0 * x, dw]
        np.testing.assert_allclose(moved, slope(wanted, [x, w], direction), rtol=1e-6, atol=1e-8)


def test_reverse_mode_of_while_is_refused_with_what_to_do() -> None:
    module = tessera.compile(WHILE, target="cpu")
    with pytest.raises(TesseraError) as error:
        tessera.grad(module.f)(np.ones((2, 3)), np.ones((3, 3)))
    (found,) = error.value.diagnostics
    assert (found.code, found.span is not None) == ("T0761", True)
    assert any("op.where" in h for h in found.helps) and any("jvp" in h for h in found.helps)


def test_sums_over_steps_have_32_bits() -> None:
    function = graph_of(RECURRENT, "x: bf16[20, 3], w: bf16[3, 3]")
    gradient = checked(gradient_of(function, [1], seeded=False, with_results=False))
    found = [o for o in gradient.regions[0].operations if o.name == "graph.for"]
    assert [str(v.tensor_type.dtype) for v in found[-1].results[:2]] == ["bf16", "f32"]
    assert str(gradient.regions[0].terminator.operands[0].tensor_type.dtype) == "bf16"


def test_what_nothing_needs_of_a_loop_goes() -> None:
    """Results, what is carried and operands; the gradient by one of them has no sums of others."""
    text = RECURRENT.replace("return op.sum(y * y) + op.sum(h)", "return op.sum(h)")
    made = graph_of(text, "x: f64[20, 3], w: f64[3, 3]")
    (loop,) = (o for o in made.regions[0].operations if o.name == "graph.for")
    assert len(loop.results) == 1
    gradient = without_unused(gradient_of(made, [0], seeded=False, with_results=False))
    last = [o for o in gradient.regions[0].operations if o.name == "graph.for"][-1]
    assert [len(last.results), last.integer("carried")] == [2, 1]


def test_a_loop_without_a_step_gives_memory_of_its_own() -> None:
    loop = "    for i in range(op.max(n)):\n        y = y * 2.0\n"
    text = f"def f(x, n):\n    y = x\n{loop}    return y\n"
    module = tessera.compile(text + "def g(x, n): return fused(f)(x, n)\n", target="cpu")
    x = np.arange(4.0)
    found = module.g(x, np.array([0, -1]))
    np.testing.assert_array_equal(found, x)
    assert not np.may_share_memory(found, x)
    np.testing.assert_array_equal(module.g(x, np.array([3, -1])), 8.0 * x)


@pytest.mark.parametrize("line", STEP_BY_STEP)
def test_what_needs_the_number_of_the_step_is_written_out(line: str) -> None:
    """Nothing that a region would do differently is in one."""
    head, start = f"for t in range({STEPS}):", "a, s, k, out = x[0], 0.0, 0, []"
    body = "".join(f"        {x}\n" for x in line.split("\n"))
    text = f"def f({', '.join(PARAMETERS)}):\n    {start}\n    {head}\n{body}    return op.sum(a)\n"
    function, inputs = graph_of(text), random_inputs(4)
    assert all(o.attributes.get("steps") != STEPS for o in function.regions[0].operations)
    wanted = as_python(text)(*inputs)
    np.testing.assert_allclose(reference.run(function, inputs)[0], wanted, rtol=1e-10)


def test_most_random_loops_are_regions() -> None:
    count = sum("graph.for" in print_program(Program("graph", (graph_of(random_loop(seed)),)))
                for seed in range(20))  # fmt: skip
    assert count >= 14
    assert set(PARAMETERS) == {"x", "q", "c", "z", "w"}
