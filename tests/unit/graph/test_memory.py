"""What ``explain --memory`` says of a call beside what it takes, and what is said without it."""

from __future__ import annotations

import gc
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.driver.function_graphs import graph_program, graph_text, plain_functions
from tessera_lang.driver.session import Session
from tests.unit.graph import cascades, on_cpu

TEXT = """
def layers(x, w, v):
    h = op.cumsum(op.sort(op.relu(x @ w), axis=1), axis=0)
    y = op.tanh(h) @ v
    return op.sum(y * y) + op.sum(h), y + 1.0


def attention(x, w, v):
    return op.softmax(x @ w, axis=1) @ op.cumsum(op.tanh(w.T), axis=0), op.cumsum(v, axis=0)


def chain(x, w, v):
    a = op.cumsum(x, axis=0)
    b = op.sort(a, axis=1)
    c = op.cumsum(b, axis=1)
    d = op.cumprod(op.tanh(c), axis=0)
    return op.sum(d * a)


def early_result(x, w, v):
    a = op.cumsum(x, axis=0)
    b = op.sort(a, axis=1)
    c = op.cumsum(b, axis=0)
    return a, op.sum(op.sort(c, axis=1) @ w)


def on_data(x, w, v):
    y = op.cumsum(x, axis=0)
    if op.sum(y) > 0.0:
        y = op.sort(op.cumsum(y, axis=1), axis=0)
    return op.sum(y)


def outer(x, y):
    a = op.cumsum(x, axis=0)
    return op.sum(op.sort(a[:, None] + y[None, :], axis=1))


def run_layers(x, w, v): return fused(layers)(x, w, v)
def run_attention(x, w, v): return fused(attention)(x, w, v)
def run_chain(x, w, v): return fused(chain)(x, w, v)
def run_early_result(x, w, v): return fused(early_result)(x, w, v)
def run_on_data(x, w, v): return fused(on_data)(x, w, v)
def run_outer(x, y): return fused(outer)(x, y)
"""
SIGNATURE = "x: f64[512, 128], w: f64[128, 512], v: f64[512, 64]"
NAMES = re.findall(r"def run_(\w+)\(x, w, v\)", TEXT)


@pytest.fixture(scope="module")
def module() -> Any:
    return tessera.compile(TEXT, target="cpu")


def _said(name: str) -> float:
    session = Session(overlay={"a.tessera": TEXT})
    (function,) = (f for f in plain_functions(session, "a.tessera") if f.name == name)
    text = graph_text(session, "a.tessera", function, SIGNATURE, "memory")
    found = re.search(r"peak ([\d.e+-]+) MB", text)
    assert found is not None, text
    return float(found[1]) * 1e6


def _peak(graph: Any, inputs: list[Any], host: Any) -> int:
    """Bytes that a call allocates at most, with those of its results."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        found = on_cpu.run(graph, inputs, host)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found
    return peak - before


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sample(1)
def test_the_peak_is_that_of_a_call(name: str) -> None:
    """Within 5 %: what Python has allocated at most, with the arguments. The memory that each
    thread has for itself, from the first kernel it has a part in, is of no call."""
    tessera.set_num_threads(1)
    try:
        _compared(name)
    finally:
        tessera.set_num_threads(None)


def _compared(name: str) -> None:
    rng = np.random.default_rng(0)
    given = [rng.uniform(0.0, 1.0, s) for s in ((512, 128), (128, 512), (512, 64))]
    session = Session(overlay={"a.tessera": TEXT})
    (function,) = (f for f in plain_functions(session, "a.tessera") if f.name == name)
    (graph,) = graph_program(session, "a.tessera", function, SIGNATURE).operations
    graph, host = cascades.prepared(graph), on_cpu.host()
    inputs = given[: len(graph.regions[0].arguments)]
    on_cpu.run(graph, inputs, host)
    # The least of some: another thread, and what Python remembers, only add to it.
    peak = min(_peak(graph, inputs, host) for _ in range(4))
    real = peak + sum(v.nbytes for v in inputs)
    assert abs(_said(name) - real) <= 0.05 * real


def test_without_memory_values_are_named(module: Any) -> None:
    x = np.ones(1 << 23)  # its square is beyond all addresses, also where memory is promised freely
    with pytest.raises(TesseraError) as error:
        module.run_outer(x, x)
    (found,) = error.value.diagnostics
    assert found.code == "T0846" and found.span is not None
    (note,) = [n for n in found.notes if "in memory" in n]
    assert "f64[8388608] of `cumsum` (67.1 MB)" in note
    assert "f64[8388608] of an argument (67.1 MB)" in note
