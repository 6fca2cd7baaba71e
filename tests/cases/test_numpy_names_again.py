"""Running extremes, elements along an axis, comparisons within a tolerance: as NumPy has them, in
tile kernels and in the host program. What is not there says what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import TARGETS, agree, assembled, results_of

R = np.random.default_rng(0)
x = R.normal(size=(6, 8)).astype(np.float32)
x[0, 0], x[1, 1] = np.inf, np.nan
y = x.copy()
y[2, 3] += 1e-7
a = R.normal(size=(3, 4, 5)).astype(np.float32)
v = x[3].copy()
p = R.integers(0, 8, (6, 3)).astype(np.int32)
GIVEN = {"x": x, "y": y, "a": a, "v": v, "p": p}
VALUES: dict[str, Callable[[], Any]] = {
    "op.take_along_axis(x, p, axis=1)": lambda: np.take_along_axis(x, p, 1),
    "op.take_along_axis(y, op.argsort(y, axis=1), axis=-1)": lambda: np.sort(y, 1),
    "op.take_along_axis(y, op.argsort(y, axis=0), axis=0)": lambda: np.sort(y, 0),
    "op.take_along_axis(a, op.argsort(a, axis=1), axis=1)": lambda: np.sort(a, 1),
    "op.take_along_axis(v, op.argsort(v))": lambda: np.sort(v),
    "op.copy(v)": lambda: v.copy(),
    "op.isclose(x, y)": lambda: np.isclose(x, y),
    "op.allclose(x, y)": lambda: np.allclose(x, y),
    "op.allclose(v, v + 0.05, rtol=1e-3, atol=0.1)": lambda: True,
    "op.array_equal(v, v)": lambda: True,
    "op.array_equal(x, y)": lambda: False,
    "op.deg2rad(v) + op.rad2deg(v)": lambda: np.deg2rad(v) + np.rad2deg(v),
    "op.rint(v * 4.0) + op.fabs(v)": lambda: np.rint(v * 4) + np.fabs(v),
    "op.fliplr(p) - op.flipud(p)": lambda: np.fliplr(p) - np.flipud(p),
}  # fmt: skip
HELPS = {
    "op.bincount(p)": "op.arange(bins)", "op.histogram(x)": "op.floor",
    "op.searchsorted(x, v)": "v[None, :] < x[:, None]", "op.unique(p)": "in a plain function",
    "op.interp(x, v, v)": "fp[k]", "op.cross(x, v)": "op.stack", "op.gradient(x)": "(x[2:]",
    "op.digitize(v, x)": "bins[None, :]", "op.polyval(v, v)": "c[k]",
    "op.take_along_axis(x * 2.0, p, axis=1)": "store it into an array first",
    "op.cummax(x.to(f8e4m3), axis=1)": "f16",
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", VALUES)
@pytest.mark.sample(2)
def test_values(source: str, target: str) -> None:
    agree(results_of(source, GIVEN, target), VALUES[source]())


@pytest.mark.parametrize("source", VALUES)
@pytest.mark.sample(4)
def test_values_in_the_host_program(source: str) -> None:
    names = [n for n in GIVEN if f"({n}" in source or f", {n}" in source]
    text = f"def f({', '.join(names)}):\n    return {source}\n"
    agree(tessera.compile(text, target="cpu").f(*(GIVEN[n] for n in names)), VALUES[source]())


@pytest.mark.parametrize("source", HELPS)
def test_what_is_not_there_says_what_to_write(source: str) -> None:
    with pytest.raises(tessera.TesseraError) as error:
        results_of(source, GIVEN, "cpu")
    helps = [line for line in str(error.value).splitlines() if "= help" in line]
    assert any(HELPS[source] in line for line in helps), str(error.value)


SHAPES = [((7,), 0, True), ((3000,), 0, False), ((5, 9), 0, False), ((3, 400), 1, True)]
DTYPES = [np.float32, np.float64, np.float16, np.int32, np.int64, np.uint8]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.sample(2)
def test_running_extremes(dtype: Any, name: str, target: str) -> None:
    numpy = np.maximum if name == "cummax" else np.minimum
    for shape, axis, reverse in SHAPES if target != "sm_90a" else SHAPES[::2]:
        z = (R.normal(size=shape) * 50 + 60).astype(dtype)
        if z.dtype.kind == "f":
            z.flat[z.size // 2], z.flat[1] = np.nan, -np.inf
        source = f"op.{name}(z, axis={axis}, reverse={reverse})"
        found = np.asarray(results_of(source, {"z": z}, target))
        want = numpy.accumulate(np.flip(z, axis) if reverse else z, axis=axis)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, np.flip(want, axis) if reverse else want)


def test_running_extremes_before_each_element() -> None:
    found = np.asarray(results_of("op.cummax(v, exclusive=True)", GIVEN, "cpu"))
    assert found[0] == -np.inf
    np.testing.assert_array_equal(found[1:], np.maximum.accumulate(v)[:-1])


@pytest.mark.sample(1)
@pytest.mark.parametrize("source", [
    "op.cummax(x, axis=1)", "op.cummin(v, reverse=True)", "op.take_along_axis(x, p, axis=1)",
])  # fmt: skip
def test_code_for_gpus(source: str) -> None:
    assembled(source, GIVEN)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "uint64"])
def test_comparisons_within_a_tolerance_of_every_dtype(dtype: str) -> None:
    text = "@op.kernel\ndef f(a, b):\n    return op.isclose(a, b), op.allclose(a, b)\n"
    a = np.array([1, 2, 3, 100], dtype)
    b = a + np.array([0, 1, 0, 0], dtype)
    near, all_near = tessera.compile(text, target="cpu").f(a, b)
    np.testing.assert_array_equal(near, np.isclose(a, b))
    assert not all_near and tessera.compile(text, target="cpu").f(a, a)[1]
