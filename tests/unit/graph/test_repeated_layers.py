"""Layers that are the same become the same kernels, however many there are, and values that each
layer adds to are in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.graph_to_kernels.fusion import plan_of
from tessera_lang.lower.graph_to_kernels.indexing_maps import sizes_of
from tessera_lang.opt.graph.differentiate import gradient_of
from tests.unit.graph import by_numpy, reference
from tests.unit.graph.cascades import prepared

TEXT = """
def normed(x):
    y = x - op.mean(x, axis=1, keepdims=True)
    return y * op.rsqrt(op.mean(y * y, axis=1, keepdims=True) + 1e-5)
def model({parameters}):
{layers}    return op.mean(x * x)
"""
LAYER = """    h = normed(x)
    q, k, v = h @ a{i}, h @ b{i}, h @ c{i}
    x = x + op.softmax(q @ k.T * 0.25, axis=1) @ v
    x = x + op.gelu(normed(x) @ d{i}) @ e{i}
"""
ROWS, WIDTH, INNER = 48, 16, 40


def gradient_of_layers(layers: int) -> Operation:
    from tessera_lang.driver.function_graphs import graph_program, plain_functions
    from tessera_lang.driver.session import Session

    shapes = {"a": (WIDTH, WIDTH), "b": (WIDTH, WIDTH), "c": (WIDTH, WIDTH),
              "d": (WIDTH, INNER), "e": (INNER, WIDTH)}  # fmt: skip
    given = {"x": (ROWS, WIDTH)}
    given.update({f"{n}{i}": s for i in range(layers) for n, s in shapes.items()})
    text = TEXT.format(
        parameters=", ".join(given), layers="".join(LAYER.format(i=i) for i in range(layers))
    )
    session = Session(overlay={"model.tessera": text})
    (f,) = (x for x in plain_functions(session, "model.tessera") if x.name == "model")
    signature = ", ".join(f"{n}: f32[{a}, {b}]" for n, (a, b) in given.items())
    (made,) = graph_program(session, "model.tessera", f, signature).operations
    return prepared(gradient_of(made, range(len(given)), seeded=False))


def test_more_layers_are_no_more_kernels_to_compile() -> None:
    plans = {n: plan_of(gradient_of_layers(n), ()) for n in (3, 4, 6)}
    texts = {n: {k.source for k in p.kernels} for n, p in plans.items()}
    assert texts[3] == texts[4] == texts[6]
    counts = {n: len(p.kernels) for n, p in plans.items()}
    assert counts[6] - counts[4] == 2 * (counts[4] - counts[3])


def test_what_a_layer_adds_to_is_read_once() -> None:
    """The arrays of its size that a kernel reads do not grow with the layers."""
    for kernel in plan_of(gradient_of_layers(6), ()).kernels:
        shapes = [sizes_of(v) for v in kernel.arguments if isinstance(v, Value)]
        assert shapes.count((ROWS, WIDTH)) <= 6, kernel.source


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_results(layers: int) -> None:
    function = gradient_of_layers(layers)
    rng = np.random.default_rng(layers)
    inputs: list[Any] = [0.3 * rng.standard_normal(sizes_of(v))
                         for v in function.regions[0].arguments]  # fmt: skip
    for a, b in zip(by_numpy.run(function, inputs), reference.run(function, inputs), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6 * max(1e-3, float(np.abs(b).max())))


@pytest.mark.slow
def test_how_often_a_repeated_layer_is_compiled_and_examined(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Five layers after three: nothing is, in the same folder of compiled kernels."""
    from tessera_lang.driver.session import Session
    from tessera_lang.sema.tile import instance

    counts = {"compiled": 0, "examined": 0}
    begun, examined = Session.begin_kernel, instance.examine_kernel

    def counted(*given: Any, **named: Any) -> Any:
        counts["compiled"] += 1
        return begun(*given, **named)

    def counted_too(*given: Any, **named: Any) -> Any:
        counts["examined"] += 1
        return examined(*given, **named)

    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(Session, "begin_kernel", counted)
    monkeypatch.setattr(instance, "examine_kernel", counted_too)
    found: list[dict[str, int]] = []
    for layers in (3, 5):
        counts.update(compiled=0, examined=0)
        text = TEXT.format(
            parameters="x, ws",
            layers="    for a0, b0, c0, d0, e0 in ws:\n"
            + "".join(f"    {line}\n" for line in LAYER.format(i=0).splitlines()),
        )
        rng = np.random.default_rng(0)
        shapes = (*((WIDTH, WIDTH),) * 3, (WIDTH, INNER), (INNER, WIDTH))
        ws = [tuple(rng.standard_normal(s).astype(np.float32) * 0.3 for s in shapes)
              for _ in range(layers)]  # fmt: skip
        module = tessera.compile(text, target="cpu")
        x = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
        tessera.value_and_grad(module.model)(x, ws)
        found.append(dict(counts))
    first, second = found
    assert first["compiled"] and first["examined"] <= 2 * first["compiled"]
    assert second == {"compiled": 0, "examined": 0}


def test_code_is_begun_before_the_first_launch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of each kernel once, for the layouts that the launches have; a wrong one is told as ever."""
    from tessera_backend.runtime.compiler import SessionProvider

    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    asked, waited = list[str](), list[bool]()
    own = ("out: mut", "op.copy(x)")  # what a loop does between its kernels
    begin: Any = SessionProvider.begin
    compiled: Any = getattr(SessionProvider, "_compiled")  # noqa: B009

    def beginning(self: SessionProvider, *given: Any) -> None:
        asked.append(self.path)
        begin(self, *given)

    def counted(self: Any, *given: Any) -> Any:
        waited.append(given[-1] in self._begun or any(t in self.path for t in own))
        return compiled(self, *given)

    monkeypatch.setattr(SessionProvider, "begin", beginning)
    monkeypatch.setattr(SessionProvider, "_compiled", counted)
    text = """
def f(x, w, steps):
    y = op.softmax(x @ w, axis=1)
    for i in range(steps):
        if op.sum(y) > 0.5:
            y = y * 0.5 + op.sort(x, axis=1)[:, :1]
    return op.sum(y * y)
"""
    module = tessera.compile(text, target="cpu")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((5, 7), (7, 6)))
    value, gradient = tessera.value_and_grad(module.f)(x, w, 3)
    count = len(asked)
    assert count > 2 and waited == [True] * len(waited)
    again = tessera.value_and_grad(module.f)(x, w, 3)
    assert len(asked) == count and again[0] == value
    np.testing.assert_array_equal(again[1], gradient)
