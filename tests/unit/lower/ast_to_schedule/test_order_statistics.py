"""Medians, quantiles, and variances with a correction, beside NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tests.unit.backend.nvptx.kernels import needs_ptxas
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded

TARGETS = ["cpu", pytest.param("sm_90a", marks=pytest.mark.slow), GPU]
NAMES = {"float32": "f32", "float64": "f64", "float16": "f16", "int32": "i32"}
AXES = (None, 0, -1)
CALLS: dict[str, Callable[..., Any]] = {
    "op.median(x": np.median,
    "op.quantile(x, 0.3": lambda x, **k: np.quantile(x, 0.3, **k),
    "op.quantile(x, (0.0, 1, 0.77)": lambda x, **k: np.quantile(x, (0.0, 1, 0.77), **k),
    "op.percentile(x, [12.5]": lambda x, **k: np.percentile(x, [12.5], **k),
    "op.var(x, ddof=1": lambda x, **k: np.var(x, ddof=1, **k),
    "op.std(x, correction=1.5": lambda x, **k: np.std(x, ddof=1.5, **k),
}


def source(dtype: str, rank: int, texts: list[str]) -> str:
    sizes = ", ".join("abc"[:rank])
    return f"@op.kernel\ndef k(x: {NAMES[dtype]}[{sizes}]):\n    return {', '.join(texts)}\n"


@pytest.mark.sample(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("shape", [(9,), (6, 7), (2, 5, 4)])
@pytest.mark.parametrize("dtype", NAMES)
def test_calls(dtype: str, shape: tuple[int, ...], axis: int | None, target: str) -> None:
    """Even and odd lengths, some axes and all, with and without the axes that go."""
    x = (np.random.default_rng(len(shape)).standard_normal(shape) * 9).astype(dtype)
    wide = x.astype(np.float64)
    wanted: dict[str, Any] = {}
    for text, reference in CALLS.items():
        if dtype == "int32" and text.startswith("op.std"):
            continue
        keepdims = (len(wanted) + len(shape) + (axis or 0)) % 2 == 0
        said = f", axis={axis}" * (axis is not None) + ", keepdims=True" * keepdims
        wanted[f"{text}{said})"] = reference(wide, axis=axis, keepdims=keepdims)
    results = loaded(source(dtype, len(shape), list(wanted)), target).k(x)
    near = {"float16": 2e-3, "float64": 1e-13}.get(dtype, 1e-5)
    for (text, want), found in zip(wanted.items(), results, strict=True):
        assert np.shape(found) == np.shape(want), text
        np.testing.assert_allclose(np.asarray(found, np.float64), want, near, near, err_msg=text)


@pytest.mark.parametrize("target", TARGETS)
def test_infinities_and_nan(target: str) -> None:
    """A median of finite middles is finite beside infinities; one NaN makes its line NaN."""
    x = np.array([[1, 2, np.inf, -np.inf, 3], [np.nan, 1, 2, 3, 4], [np.inf] * 5,
                  [1, 2, np.inf, np.inf, np.inf]], np.float32)  # fmt: skip
    m = loaded(source("float32", 2, ["op.median(x, axis=1)", "op.quantile(x, 0.25, axis=1)",
                                     "op.median(x[:, 0:4], axis=1)"]), target)  # fmt: skip
    median, quarter, even = (np.asarray(v) for v in m.k(x))
    np.testing.assert_array_equal(median, [2, np.nan, np.inf, np.inf])
    np.testing.assert_array_equal(quarter, [1, np.nan, np.inf, 2])
    np.testing.assert_array_equal(even, [1.5, np.nan, np.inf, np.inf])


def test_too_few_elements_for_a_correction() -> None:
    x = np.ones((3, 2), np.float32)
    x[0, 1] = 2
    found = np.asarray(loaded(source("float32", 2, ["op.var(x, axis=1, ddof=2)"])).k(x))
    np.testing.assert_array_equal(found, [np.inf, np.nan, np.nan])


TILES = """
@op.kernel
def rows(x: f32[m, n], y: mut f32[m], z: mut f32[m, n]):
    for i in op.tile_range(m, step=4):
        t = x[i:i+4, :]
        y[i:i+4] = op.median(t, axis=1) + op.std(t, axis=1, ddof=1)
        z[i:i+4, :] = t - op.quantile(t, 0.9, axis=1, keepdims=True)

@op.kernel
def parts(x: f32[m, n], y: mut f32[k, n]):
    for i in op.tile_range(m, step=8):
        y[i // 8, :] = op.median(x[i:i+8, :], axis=0)
"""


@pytest.mark.parametrize("target", TARGETS)
def test_tiles(target: str) -> None:
    m = loaded(TILES, target)
    x = np.random.default_rng(2).standard_normal((21, 12)).astype(np.float32)
    y, z, p = np.zeros(21, np.float32), np.zeros_like(x), np.zeros((3, 12), np.float32)
    m.rows(x, y, z)
    np.testing.assert_allclose(y, np.median(x, 1) + np.std(x, 1, ddof=1), 1e-5, 1e-6)
    np.testing.assert_allclose(z, x - np.quantile(x, 0.9, axis=1, keepdims=True), 1e-5, 1e-6)
    m.parts(x, p)
    wanted = [np.median(x[i : i + 8], 0) for i in (0, 8, 16)]
    np.testing.assert_allclose(p, wanted, 1e-5, 1e-6)


@needs_ptxas
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.sample(1)
def test_assembled(arch: str) -> None:
    session = Session(overlay={"m.tessera": TILES})
    for name in ("rows", "parts"):
        sizes = "x: f32[21,12], y: f32[21], z: f32[21,12]"
        sizes = "x: f32[21,12], y: f32[3,12]" if name == "parts" else sizes
        signature = session.signature("m.tessera", name, sizes)
        made = session.compile_kernel("m.tessera", name, signature, TargetOptions("cuda", arch))
        assert made.kind == "cubin"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("op.quantile(x, 1.5, axis=1)", "T0311"),
        ("op.quantile(x, x[0, 0], axis=1)", "T0311"),
        ("op.percentile(x, -1, axis=1)", "T0311"),
        ("op.median(x, axis=(0, 0))", "T0311"),
        ("op.median(x > 0.0, axis=1)", "T0207"),
        ("op.median(1.0)", "T0207"),
        ("op.var(x, ddof=1, correction=1)", "T0106"),
        ("op.var(x, ddof=x[0, 0])", "T0311"),
        ("op.std(x, correction=True)", "T0311"),
        ("op.mean(x, ddof=1)", "T0106"),
    ],
)
def test_bad_calls(body: str, code: str) -> None:
    text = f"@op.kernel\ndef k(x: f32[m, n]):\n    return {body}\n"
    found = Session(overlay={"k.tessera": text}).check("k.tessera", ())
    assert code in [d.code for d in found], found


def test_in_the_host_program() -> None:
    m = loaded(
        "def f(x):\n    return op.median(x, axis=1), op.quantile(x, 0.3), op.std(x, ddof=1.5),"
        " op.ptp(x), op.percentile(x, [20.0, 30], axis=0), op.pad(x, ((1, 1), (2, 2)),"
        " constant_values=2.0)\n"
    )
    x = np.random.default_rng(2).standard_normal((5, 12)).astype(np.float32)
    wanted = (np.median(x, 1), np.quantile(x, 0.3), np.std(x, ddof=1.5), np.ptp(x),
              np.percentile(x, [20, 30], axis=0), np.pad(x, ((1, 1), (2, 2)), constant_values=2),
              )  # fmt: skip
    for found, want in zip(m.f(x), wanted, strict=True):
        np.testing.assert_allclose(found, want, 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("op.sum(op.ones((4,)))", 4.0),
        ("op.sum(op.ones((4,))) * op.sum(x)", 24.0),
        ("op.sum(op.ones((4, 5)), axis=0) / 2.0", np.full(5, 2.0)),
        ("op.mean(op.full((4, 5), 3), axis=0, keepdims=True)", np.full((1, 5), 3.0)),
        ("op.argmax(op.zeros((4, 5)), axis=0)", np.zeros(5)),
        ("op.var(op.zeros((4,)), ddof=1)", 0.0),
        ("op.max(op.full((4,), 2))", 2.0),
    ],
)
def test_reductions_of_what_has_no_dtype_yet(body: str, wanted: Any) -> None:
    """It is f32, as alone; such a reduction ended in a fault of the compiler."""
    text = f"@op.kernel\ndef k(x: f32[m, n]):\n    return {body}\n"
    found = np.asarray(loaded(text).k(np.ones((2, 3), np.float32)))
    np.testing.assert_array_equal(found, wanted)
