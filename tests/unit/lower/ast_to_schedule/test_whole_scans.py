"""Scans over whole arrays: along axes that have no capacity, part after part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera_lang.driver.session import Session
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded

TARGETS = ["cpu", pytest.param("sm_90a", marks=pytest.mark.slow), GPU]
NATURAL = Path(__file__).parents[5] / "shared" / "problems" / "natural"


def softmax(a: Any) -> Any:
    power = np.exp(a - a.max(1, keepdims=True))
    return power / power.sum(1, keepdims=True)


def exclusive(a: Any, axis: int) -> Any:
    first = np.ones_like(a.take([0], axis))
    count = a.shape[axis] - 1
    return np.concatenate([first, np.cumprod(a, axis).take(range(count), axis)], axis)


FORMS: dict[str, Any] = {
    "op.cumsum(x, axis=1)": lambda x: np.cumsum(x, 1),
    "op.cumsum(x, axis=0)": lambda x: np.cumsum(x, 0),
    "op.cumsum(x[0, :])": lambda x: np.cumsum(x[0]),
    "op.cumsum(x * 2.0, axis=1) - x": lambda x: np.cumsum(x * 2, 1) - x,
    "op.cumprod(1.0 + x / 16.0, axis=1, exclusive=True).T": lambda x: exclusive(1 + x / 16, 1).T,
    "op.sum(op.cumsum(x, axis=1), axis=1)": lambda x: np.cumsum(x, 1).sum(1),
    "op.argmax(op.cumsum(x, axis=1), axis=1)": lambda x: np.cumsum(x, 1).argmax(1),
    "op.cumsum(op.cumsum(x, axis=1), axis=1)": lambda x: np.cumsum(np.cumsum(x, 1), 1),
    "op.cumsum(x, axis=1) @ x.T": lambda x: np.cumsum(x, 1) @ x.T,
    "op.softmax(op.cumsum(x, axis=1), axis=1)": lambda x: softmax(np.cumsum(x, 1)),
    "op.cumsum(x / op.sum(x * x, axis=1)[:, None], axis=1)":
        lambda x: np.cumsum(x / (x * x).sum(1, keepdims=True), 1),
    "op.cumsum(op.where(x > 0.0, x, 0.0), axis=1) + op.cumsum(x, axis=1, exclusive=True)":
        lambda x: np.cumsum(np.where(x > 0, x, 0), 1) + np.cumsum(x, 1) - x,
}  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", FORMS)
def test_scans_in_expressions(text: str, target: str) -> None:
    module = loaded(f"@op.kernel\ndef k(x: f32[a, b]):\n    return {text}\n", target)
    random = np.random.default_rng(len(text))
    shapes = [(5, 7), (1, 3001)] if target.startswith("sm_") else [(5, 7), (130, 999), (3, 9001)]
    for shape in shapes:
        x = random.uniform(-1, 1, shape).astype(np.float32)
        wanted = FORMS[text](x.astype(np.float64))
        found = np.asarray(module.k(x))
        scale = max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(found / scale, wanted / scale, atol=3e-5)


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float16", "float64"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scans_of_every_dtype(axis: int, dtype: str, target: str) -> None:
    name = {"int32": "i32", "int64": "i64", "uint8": "u8", "float16": "f16", "float64": "f64"}
    cast = ".to(i32)" if dtype == "uint8" else ""
    text = f"@op.kernel\ndef k(x: {name[dtype]}[a, b, c]): return op.cumsum(x{cast}, axis={axis})"
    x = np.random.default_rng(axis).integers(0, 9, (3, 70, 130)).astype(dtype)
    found = np.asarray(loaded(text, target).k(x))
    exact = np.cumsum(x.astype(np.float64), axis)
    assert found.shape == x.shape and (found.astype(np.float64) == exact).all()


def test_what_is_no_number_stays_along_the_rest() -> None:
    """A NaN or an infinity of one part of an axis reaches those behind it; -0.0 stays."""
    module = loaded("@op.kernel\ndef k(x: f32[a, b]): return op.cumsum(x, axis=1)\n", "cpu")
    x = np.zeros((4, 9001), np.float32)
    x[0, 5], x[1, 70], x[2, 8000], x[3] = np.nan, np.inf, -np.inf, -0.0
    x[1, 8999] = -np.inf
    found, wanted = np.asarray(module.k(x)), np.cumsum(x, 1)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("text", [
    "op.cumsum(op.cumsum(x, axis=0), axis=1)", "op.cumsum(x, axis=0) + op.cumsum(x, axis=0).T",
    "op.sum(op.cumsum(x, axis=0), axis=1)[:, None] + x",
])  # fmt: skip
def test_what_needs_all_of_a_scan_says_so(text: str) -> None:
    """In a loop over tiles: elsewhere it is kept in an array of the call."""
    lines = f"    for i in op.tile_range(3, step=1):\n        y[:] = {text}\n"
    source = f"@op.kernel\ndef k(x: f32[n, n], y: mut f32[n, n]):\n{lines}"
    found = Session(overlay={"k.tessera": source}).check("k.tessera", ())
    assert [d.code for d in found if d.severity == "error"] == ["T0700"], found
    assert "store it into an array first" in " ".join(found[-1].helps)


FOLLOWED = """
@op.kernel
def integral(x: f32[m, n]):
    y = op.empty((m, n), f32)
    z = op.empty((m, n), f32)
    y[:, :] = op.cumsum(x, axis=0)
    z[:, :] = op.cumsum(y, axis=1)
    return z, y
"""


@pytest.mark.parametrize("target", TARGETS)
def test_the_form_for_two_axes_works(target: str) -> None:
    x = np.random.default_rng(0).integers(-3, 4, (70, 300)).astype(np.float32)
    z, y = loaded(FOLLOWED, target).integral(x)
    np.testing.assert_array_equal(np.asarray(y), np.cumsum(x, 0))
    np.testing.assert_array_equal(np.asarray(z), np.cumsum(np.cumsum(x, 0), 1))


@pytest.mark.parametrize("target", ["cpu", pytest.param("sm_90a", marks=pytest.mark.slow), GPU])
def test_programs_as_first_written(target: str) -> None:
    if not NATURAL.is_dir():
        pytest.skip("no programs here")
    scans = loaded((NATURAL / "scans_whole_cumsum.tessera").read_text(), target)
    x = np.random.default_rng(0).integers(-3, 4, (5, 999)).astype(np.float32)
    mask = x > 0
    total = np.cumsum(x, 1)
    np.testing.assert_array_equal(np.asarray(scans.cumsum(x)), total)
    np.testing.assert_array_equal(np.asarray(scans.exclusive_cumsum(x)), total - x)
    np.testing.assert_array_equal(np.asarray(scans.reverse_cumsum(x)), total[:, -1:] - total + x)
    masked = np.asarray(scans.masked_cumsum(x, mask))
    np.testing.assert_array_equal(masked, np.cumsum(np.where(mask, x, 0), 1))
    one = loaded((NATURAL / "prefixsum_whole_cumsum.tessera").read_text(), target)
    np.testing.assert_array_equal(np.asarray(one.natural(x[0])), total[0])


BACKWARDS = """
@op.kernel
def whole(x: {T}[m, n]): return op.cumsum(x, axis=1, reverse=True)

@op.kernel
def rows(x: {T}[m, n]): return op.cumsum(x, axis=0, reverse=True, exclusive=True)

@op.kernel
def products(x: {T}[m, n]): return op.cumprod(x * x, axis=1, reverse=True)

@op.kernel
def parts(x: {T}[m, n], y: mut {T}[m, n]):
    for i, j in op.tile_range(m, n, step=(5, 13)):
        y[i:i+5, j:j+13] = op.cumsum(x[i:i+5, j:j+13], axis=1, reverse=True)
"""


def backwards(x: Any, axis: int) -> Any:
    return np.flip(np.cumsum(np.flip(x, axis), axis, dtype=x.dtype), axis)


@pytest.mark.sample(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
@pytest.mark.parametrize("shape", [(5, 7), (70, 999), (2, 5001)])
def test_backwards(shape: tuple[int, int], dtype: str, target: str) -> None:
    name = {"int32": "i32", "float32": "f32", "float64": "f64"}[dtype]
    m = loaded(BACKWARDS.format(T=name), target)
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(dtype)
    np.testing.assert_array_equal(np.asarray(m.whole(x)), backwards(x, 1))
    np.testing.assert_array_equal(np.asarray(m.rows(x)), backwards(x, 0) - x)
    one = np.where(np.arange(shape[1]) < shape[1] - 4, 1, x).astype(dtype)
    wanted = np.flip(np.cumprod(np.flip(one * one, 1), 1, dtype=dtype), 1)
    np.testing.assert_array_equal(np.asarray(m.products(one)), wanted)
    y = np.zeros_like(x)
    m.parts(x, y)
    parts = [backwards(x[:, j : j + 13], 1) for j in range(0, shape[1], 13)]
    np.testing.assert_array_equal(y, np.concatenate(parts, 1))


PADDED = """
@op.kernel
def k(x: f16[m, 13], w: f16[13, 13], y: mut f32[m, 13]):
    for i in op.tile_range(m, step=5):
        y[i:i+5, :] = op.cumsum(x[i:i+5, :] @ w + 1.0, axis={axis}, reverse={reverse})
"""


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_tiles_that_are_padded_for_a_product(axis: int, reverse: bool, target: str) -> None:
    random = np.random.default_rng(0)
    x, w = (random.integers(-3, 4, (n, 13)).astype(np.float16) for n in (18, 13))
    y = np.zeros((18, 13), np.float32)
    loaded(PADDED.format(axis=axis, reverse=reverse), target).k(x, w, y)
    product = x.astype(np.float32) @ w.astype(np.float32) + 1
    scanned = backwards if reverse else np.cumsum
    parts = [scanned(product[i : i + 5], axis) for i in range(0, 18, 5)]
    np.testing.assert_array_equal(y, np.concatenate(parts))
