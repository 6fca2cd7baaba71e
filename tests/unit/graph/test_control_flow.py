"""Branches and loops on data in graph functions: regions of the graph, beside NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.driver.function_graphs import graph_program, graph_text, plain_functions
from tessera_lang.driver.session import Session
from tessera_lang.ir.parser import parse_program
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.verify import verify
from tests.unit.graph.test_derivatives import differences

TEXT = """
def clipped(x, limit: f64 = 2.0):
    norm = op.sqrt(op.sum(x * x))
    y = x * 0.5
    if norm > limit:
        y = x * (limit / norm)
        scale = 1.0
    else:
        scale = norm
    return op.sum(y * y) + scale


def power(a, steps: i32 = 50):
    v = op.sum(a, axis=1)
    old = 0.0
    now = 1.0
    n = 0
    while not (abs(now - old) <= 1e-9 or n >= steps):
        w = a @ v
        old = now
        now = op.max(op.abs(w))
        v = w / now
        n += 1
    return now, v, n


def collatz(x):
    n = op.sum(x).to(i64)
    count = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        count = count + 1
    return count


def several(x, k):
    n = op.max(k)
    y = op.zeros_like(x)
    last = -1
    for i in range(n):
        y = op.tanh(x + y) * 0.5
        last = i
    for i in range(n, 0, -2):
        y = y + i
    return y, last


def early(x):
    s = op.sum(x)
    if s > 0.0:
        return s, x * 2.0
    if s < -5.0:
        return s * s, x - 1.0
    y = op.exp(x)
    return op.sum(y), y


def nested(x):
    y = x
    k = 0
    while k < 3:
        total = op.sum(y)
        if total > 4.0:
            y = y * 0.25
        else:
            t = y + 1.0
            y = op.sin(t) @ x
        k += 1
        if op.max(y) > 100.0:
            k = 10
    return y


def doubled(x):
    return x * 2.0


@gradient(doubled)
def d_doubled(x, cotangent):
    return cotangent * 3.0


def with_custom(x):
    y = x
    if op.sum(x) > 0.0:
        y = doubled(x)
    return op.sum(y)


def f_clipped(x): return fused(clipped)(x)
def f_power(a, steps: i32 = 50): return fused(power)(a, steps)
def f_collatz(x): return fused(collatz)(x)
def f_several(x, k): return fused(several)(x, k)
def f_custom(x): return fused(with_custom)(x)
def f_early(x): return fused(early)(x)
def f_nested(x): return fused(nested)(x)
"""
RNG = np.random.default_rng(5)
A = RNG.uniform(0.1, 1.0, (6, 6))
numpy: Any = np


@pytest.fixture(scope="module")
def module() -> Any:
    return tessera.compile(TEXT, target="cpu")


def test_branches(module: Any) -> None:
    for scale in (0.1, 10.0):
        x = A * scale
        norm = np.sqrt(np.sum(x * x))
        wanted = 4.0 + 1.0 if norm > 2.0 else np.sum(0.25 * x * x) + norm
        np.testing.assert_allclose(module.f_clipped(x), wanted, rtol=1e-12)


@pytest.mark.parametrize("scale", [0.1, 1.0])
@pytest.mark.sample(1)
def test_gradients_of_branches(module: Any, scale: float) -> None:
    x = A * scale
    found = tessera.grad(module.clipped)(x)
    wanted = differences(module.f_clipped, [x], 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    found = tessera.grad(module.early)(x, cotangent=(1.0, x))
    wanted = differences(lambda v: module.f_early(v)[0] + numpy.sum(module.f_early(v)[1] * x),
                         [x], 0)  # fmt: skip
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_gradients_that_the_program_gives(module: Any) -> None:
    np.testing.assert_allclose(tessera.grad(module.with_custom)(A), np.full((6, 6), 3.0))
    np.testing.assert_allclose(tessera.grad(module.with_custom)(-A), np.ones((6, 6)))
    np.testing.assert_allclose(module.f_custom(A), 2.0 * A.sum())


def test_loops(module: Any) -> None:
    now, v, n = module.f_power(A)
    wanted = np.max(np.abs(np.linalg.eigvals(A)))
    np.testing.assert_allclose(now, wanted, rtol=1e-7)
    np.testing.assert_allclose(A @ v, wanted * v, rtol=1e-5)
    assert 2 < n < 50
    assert module.f_power(A, 3)[2] == 3
    assert module.f_collatz(np.array([20.0, 7.0])) == 111


@pytest.mark.parametrize("n", [0, 1, 5])
def test_ranges_of_data(module: Any, n: int) -> None:
    y = np.zeros_like(A)
    for _ in range(n):
        y = np.tanh(A + y) * 0.5
    for i in range(n, 0, -2):
        y = y + i
    found, last = module.f_several(A, np.array([n, 0], np.int64))
    np.testing.assert_allclose(found, y, rtol=1e-12)
    assert last == n - 1


@pytest.mark.parametrize("shift", [0.0, -0.5, -3.0])
def test_returns(module: Any, shift: float) -> None:
    x = A + shift
    s = x.sum()
    wanted = (s, x * 2.0) if s > 0.0 else (s * s, x - 1.0)
    if -5.0 <= s <= 0.0:
        wanted = (np.exp(x).sum(), np.exp(x))
    for a, b in zip(module.f_early(x), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_branches_in_loops(module: Any) -> None:
    for scale in (0.2, 1.0, 40.0):
        x = A * scale
        y, k = x, 0
        while k < 3:
            y = y * 0.25 if y.sum() > 4.0 else np.sin(y + 1.0) @ x
            k = 10 if y.max() > 100.0 else k + 1
        np.testing.assert_allclose(module.f_nested(x), y, rtol=1e-11)


def _graph(name: str, signature: str) -> Any:
    session = Session(overlay={"a.tessera": TEXT})
    (function,) = (f for f in plain_functions(session, "a.tessera") if f.name == name)
    return graph_program(session, "a.tessera", function, signature)


@pytest.mark.parametrize(("name", "regions"), [("clipped", "graph.if"), ("power", "graph.while"),
                                               ("nested", "graph.while")])  # fmt: skip
def test_regions_are_printed_and_parsed(name: str, regions: str) -> None:
    parameter = "a" if name == "power" else "x"
    program = _graph(name, f"{parameter}: f64[n, n]" + (", steps: i32" if name == "power" else ""))
    text = print_program(program)
    assert text.count(f'"{regions}"') == 1
    assert print_program(verify(parse_program(text))) == text


REFUSED = {
    "    while op.sum(x) > 1.0:\n        x = x * 0.5\n    return op.sum(x)":
        ("T0761", "a loop that goes on while data say so has no gradient"),
    "    y = op.zeros_like(x)\n    if op.sum(x) > 0.0:\n        y[0] = x[0]\n    return op.sum(y)":
        ("T0760", "a store into an array"),
    "    found = []\n    if op.sum(x) > 0.0:\n        found.append(x)\n    return op.sum(x)":
        ("T0760", "a list that changes where data decide"),
    "    y = x\n    if op.sum(x) > 0.0:\n        y = op.sum(x, axis=0)\n    return op.sum(y)":
        ("T0834", "`y` is f64[6] where the condition holds, and f64[6, 6] where it does not"),
    "    while op.sum(x) > 1.0:\n        x = op.sum(x, axis=0)\n    return op.sum(x)":
        ("T0834", "`x` is f64[6, 6] before the loop, and f64[6] behind a step"),
    "    while op.sum(x) > 1.0:\n        x = x * 0.5\n        if op.max(x) < 0.1:\n"
    "            break\n    return op.sum(x)": ("T0760", "`break` where data decide"),
    "    y = x\n    if op.sum(x) > 0.0:\n        y = 'no'\n    return op.sum(x)":
        ("T0760", "`y` is no array or number on both sides"),
}  # fmt: skip


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_refused(body: str) -> None:
    code, says = REFUSED[body]
    module = tessera.compile(f"def f(x):\n{body}\n", target="cpu")
    with pytest.raises(TesseraError) as error:
        tessera.grad(module.f)(A)
    (found,) = error.value.diagnostics
    assert (found.code, says in found.message) == (code, True), found.message
    assert found.span is not None


def test_what_becomes_of_regions() -> None:
    """Each region is fused alone, and its kernels are shown."""
    session = Session(overlay={"a.tessera": TEXT})
    (function,) = (f for f in plain_functions(session, "a.tessera") if f.name == "nested")
    texts = {stage: graph_text(session, "a.tessera", function, "x: f64[6, 6]", stage)
             for stage in ("fused", "fusion", "memory")}  # fmt: skip
    assert "# control flow: while, of" in texts["fused"]
    assert "@op.kernel" in texts["fused"].split("# control flow: while, of")[1]
    assert "kernel 0 is a `while`" in texts["fusion"] or "is a `while`" in texts["fusion"]
    assert "peak" in texts["memory"]
