"""Under a memory budget kernels run again: the same bits, and no more bytes than it says."""

from __future__ import annotations

import gc
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.driver.function_graphs import graph_text, plain_functions
from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.graph_to_kernels.clusters import GraphKernel
from tessera_lang.lower.graph_to_kernels.fusion import plan_of
from tessera_lang.lower.graph_to_kernels.live_memory import bytes_of, peak_of
from tessera_lang.lower.graph_to_kernels.rematerialization import OverBudget, within_budget
from tests.unit.graph import random_graphs
from tests.unit.graph.cascades import prepared
from tests.unit.graph.test_repeated_layers import gradient_of_layers

TEXT = """
def normed(x):
    y = x - op.mean(x, axis=1, keepdims=True)
    return y * op.rsqrt(op.mean(y * y, axis=1, keepdims=True) + 1e-5)


def loss(x, ws):
    for a, b in ws:
        x = x + op.gelu(normed(x) @ a) @ b
    return op.mean(x * x)
"""


def _named(function: Operation, kernels: tuple[GraphKernel, ...]) -> tuple[object, ...]:
    """What each result of a function is made of, by kernels in this order: it fails where one is
    not in memory."""
    (body,) = function.regions
    known: dict[Value, object] = {v: ("argument", i) for i, v in enumerate(body.arguments)}
    ids: dict[object, int] = {}
    for kernel in kernels:
        given = tuple(known[v] if isinstance(v, Value) else v for v in kernel.arguments)
        for i, v in enumerate(kernel.results):
            assert v not in known
            key = kernel.source, given, i
            known[v] = ids.setdefault(key, len(ids))
    return tuple(known[v] for v in body.terminator.operands)


def _check(function: Operation, parts: int) -> int:
    """How many budgets between the least and all were kept."""
    kernels = plan_of(function, ()).kernels
    given = sum(map(bytes_of, {*function.regions[0].arguments}))
    most, kept = given + peak_of(function, kernels), 0
    wanted = _named(function, kernels)
    for part in range(1, parts):
        budget = given + (most - given) * part // parts
        try:
            found = within_budget(function, kernels, budget)
        except OverBudget as over:
            assert over.least > budget and over.alive and over.kernel in kernels
            continue
        kept += 1
        assert given + peak_of(function, found) <= budget
        assert _named(function, found) == wanted
        firsts = [k for k in found if k.first is None]
        assert len(firsts) == len(kernels)
        assert all(k.first is not None and k.first.source == k.source
                   for k in found if k not in firsts)  # fmt: skip
    return kept


@pytest.mark.parametrize("layers", [2, 5])
def test_layers_are_computed_again(layers: int) -> None:
    """Half of what is between the kernels of layers need not be kept."""
    function = gradient_of_layers(layers)
    assert _check(function, 8) >= 3


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sample(4)
def test_random_graphs(seed: int) -> None:
    function, _ = random_graphs.random_graph(seed, 30)
    _check(prepared(function), 6)


def _given(rows: int = 96, width: int = 32, layers: int = 4) -> tuple[Any, list[Any]]:
    rng = np.random.default_rng(0)

    def made(*shape: int) -> Any:
        return (0.2 * rng.standard_normal(shape)).astype(np.float32)

    return made(rows, width), [(made(width, 64), made(64, width)) for _ in range(layers)]


def test_the_bits_are_the_same_and_memory_is_less() -> None:
    module = tessera.compile(TEXT, target="cpu")
    x, ws = _given(rows=4096)
    budget = 6.2e6
    tessera.set_num_threads(1)  # each has memory for itself, that is of no call
    try:
        peaks: list[int] = []
        found: list[Any] = []
        for step in (
            tessera.value_and_grad(module.loss, "ws"),
            tessera.value_and_grad(module.loss, "ws", memory_budget=budget),
        ):
            step(x, ws)
            gc.collect()
            tracemalloc.start()
            found.append(step(x, ws))
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    finally:
        tessera.set_num_threads(None)
    (value, gradient), (again, other) = found
    assert value == again
    for pair, its in zip(gradient, other, strict=True):
        for a, b in zip(pair, its, strict=True):
            np.testing.assert_array_equal(a, b)
    arguments = x.nbytes + sum(w.nbytes for pair in ws for w in pair)
    assert arguments + peaks[0] > 1.2 * budget, peaks
    assert arguments + peaks[1] <= 1.05 * budget, peaks


def test_what_is_said() -> None:
    text = TEXT + "\n\ndef step(x, a, b):\n    return grad(loss)(x, [(a, b)] * 4)\n"
    session = Session(overlay={"m.tessera": text})
    (f,) = (g for g in plain_functions(session, "m.tessera") if g.name == "step")
    signature = "x: f32[96, 32], a: f32[32, 64], b: f32[64, 32]"
    peaks: list[float] = []
    for budget in (0, 100000):
        session.memory_budget = budget
        said = graph_text(session, "m.tessera", f, signature, "memory")
        found = re.search(r"peak ([\d.e+-]+) MB", said)
        assert found is not None and ("run again" in said) == (budget > 0)
        peaks.append(float(found[1]) * 1e6)
    assert peaks[1] <= 100000 < peaks[0]
    assert "again: its" in graph_text(session, "m.tessera", f, signature, "fusion")
    session.memory_budget = 30000
    with pytest.raises(TesseraError) as error:
        graph_text(session, "m.tessera", f, signature, "memory")
    (one,) = error.value.diagnostics
    assert one.code == "T0762" and one.span is not None and "at least" in one.message
    assert "f32[96, 32] of an argument" in one.notes[0]


@pytest.mark.parametrize(("call", "says"), [
    ("grad(loss, memory_budget=0)(x, ws)", "above 0"),
    ('grad(loss, memory_budget="8 GB")(x, ws)', "above 0"),
    ("fused(loss, memory_budget=True)(x, ws)", "above 0"),
    ("grad(grad(loss, memory_budget=1e9))(x, ws, cotangent=x)", "outermost"),
    ("vjp(fused(loss, memory_budget=1e9), x, ws)", "outermost"),
    ("fused(outer)(x, ws)", "outermost"),
    ("grad(loss, memory_budget=1000)(x, ws)", "at least"),
])  # fmt: skip
def test_what_is_refused(call: str, says: str) -> None:
    text = f"""{TEXT}

def outer(x, ws):
    return grad(loss, memory_budget=1e9)(x, ws)


def run(x, ws):
    return {call}
"""
    module = tessera.compile(text, target="cpu")
    with pytest.raises(TesseraError) as error:
        module.run(*_given(8, 4, 1))
    (one,) = error.value.diagnostics
    assert one.code == "T0762" and says in f"{one.message} {' '.join(one.helps)}"
