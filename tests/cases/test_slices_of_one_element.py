"""Slices of one element stretch; places in a list for `op.take`; bools and integers where NumPy
takes them: what a program in NumPy style writes in tile kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.cases.test_scratch_arrays import module_for
from tests.numpy_style import TARGETS, agree, assembled, results_of

RNG = np.random.default_rng(11)
STRETCHED = [
    "x - x[:, 0:1]", "x - x[:1, :]", "x * x[:, :1]", "x - x[:, -1:]", "x[1:2, :] + x",
    "op.where(x > x[:, 1:2], x, x[:, 1:2])", "x[0:1, :] + x[:, 0:1]", "v - v[:1]", "v[-1:] * v",
    "x[:, 0:1] + x[:, 1:2]", "op.sum(x - x[:, 0:1], axis=1)", "op.maximum(x, x[-1:, :])",
    "(x - x[:1, :]) / op.sum(x, axis=0, keepdims=True)", "x == x[:, 0:1]",
]  # fmt: skip
SHAPES = ((3, 4), (2, 2), (70, 130))


def given(m: int, n: int) -> dict[str, Any]:
    x = RNG.random((m, n), np.float32) + np.float32(0.1)
    return {"x": x, "v": x[0].copy()}


@pytest.mark.parametrize("source", STRETCHED)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sample(5)
def test_a_slice_of_one_element_stretches(source: str, target: Any) -> None:
    for m, n in SHAPES:
        names = given(m, n)
        want = eval(source, {"op": np, **names})
        agree(results_of(source, names, target), want)


def test_a_slice_without_its_element_is_refused() -> None:
    wrong = (("x - x[:, 0:1]", 3, 0), ("x - x[1:2, :]", 1, 3), ("x[:, 0:1] + v[None, :]", 3, 0))
    for source, *shape in wrong:
        names = {"x": np.ones(shape, np.float32), "v": np.ones(4, np.float32)}
        with pytest.raises(tessera.TesseraError) as caught:
            results_of(source, names, "cpu")
        assert [d.code for d in caught.value.diagnostics] == ["T0838"]


OTHERS = {
    "op.take(x, [0, 2], axis=1)": "np.take(x, [0, 2], axis=1)",
    "op.take(x, (1, -1), axis=0)": "np.take(x, (1, -1), axis=0)",
    "x.take([-1, 0], axis=1)": "x.take([-1, 0], axis=1)",
    "op.take(v, [0, 2])": "np.take(v, [0, 2])",
    "op.take(x, [0, 2], axis=-1)": "np.take(x, [0, 2], axis=-1)",
    "op.any(x), op.all(x)": "np.any(x), np.all(x)",
    "op.any(i, axis=0), op.all(i, axis=1, keepdims=True)":
        "np.any(i, axis=0), np.all(i, axis=1, keepdims=True)",
    "op.floor(i), op.ceil(i), op.round(i), op.trunc(i)": "i, i, i, i",
    "op.maximum(b, c), op.minimum(b, c)": "np.maximum(b, c), np.minimum(b, c)",
    "max(b, c), min(b, c)": "b | c, b & c",
}  # fmt: skip


def others() -> dict[str, Any]:
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    x[0, 1], x[1] = np.nan, 0.0
    i = RNG.integers(-1, 2, (4, 3), dtype=np.int32)
    return {"x": x, "v": x[2].copy(), "i": i, "b": i[0] > 0, "c": i[1] > -1}


@pytest.mark.parametrize("source", OTHERS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sample(12)
def test_what_numpy_takes(source: str, target: Any) -> None:
    names = others()
    agree(results_of(source, names, target), eval(OTHERS[source], {"np": np, **names}))


@pytest.mark.parametrize("source", OTHERS)
def test_the_host_program_takes_it_too(source: str) -> None:
    names = others()
    text = f"def f({', '.join(names)}):\n    return {source}\n"
    m: Any = tessera.compile(text, target="cpu")
    want = eval(OTHERS[source], {"np": np, **names})
    agree(m.f(*names.values()), want)


@pytest.mark.parametrize("source", ["x - x[:, 0:1]", "op.sum(x - x[:1, :], axis=0)"])
def test_ptxas_takes_them(source: str) -> None:
    assembled(source, given(70, 130))


def test_bools_are_named_by_what_takes_numbers() -> None:
    for expression, name in (("op.hypot(b, c)", "op.hypot"), ("b ** c", "**")):
        text = f"@op.kernel\ndef f(b: bool[n], c: bool[n]):\n    return {expression}\n"
        with pytest.raises(tessera.TesseraError) as caught:
            module_for("cpu", text).f(np.ones(3, bool), np.ones(3, bool))
        assert caught.value.diagnostics[0].message == f"`{name}` takes numbers, not `bool`"


@pytest.mark.parametrize(("place", "k"), [("x[7, :]", 0), ("x[k, :]", 9), ("x[:, k - 1]", 0)])
def test_a_row_outside_says_no_index_that_nobody_wrote(place: str, k: int) -> None:
    text = f"@op.kernel\ndef f(x: f32[m, n], k: i32):\n    return {place} + k.to(f32)\n"
    with pytest.raises(tessera.TesseraError) as caught:
        module_for("cpu", text).f(np.ones((3, 4), np.float32), k)
    (found,) = caught.value.diagnostics
    assert found.code == "T0845" and f"`{place}`" in found.message
    assert "a place in the brackets is outside of its axis" in found.notes
