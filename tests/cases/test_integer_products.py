"""Products of integers and bools: what NumPy gives, with sums of 8 and 16 bits in 32."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests import on_device
from tests.cases.test_scratch_arrays import TARGETS, module_for
from tests.numpy_style import assembled, results_of

_R = np.random.default_rng(0)
NAMES = {"bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
         "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64"}  # fmt: skip
FORMS = {
    "matrices": ("a @ b", (5, 7), (7, 4)), "row": ("a @ b", (7,), (7, 4)),
    "column": ("op.matmul(a, b)", (5, 7), (7,)), "dot": ("op.dot(a, b)", (7,), (7,)),
    "stacks": ("a @ b", (3, 5, 7), (3, 7, 2)), "turned": ("b.T @ a.T", (5, 7), (7, 4)),
    "parts": ("a[1:, ::2] @ b[::2, 1:]", (5, 7), (7, 4)),
    "computed": ("op.roll(a, 1, axis=1) @ b[::-1]", (5, 7), (7, 4)),
}  # fmt: skip
PAIRS = [("i32", "i32"), ("i64", "i64"), ("u32", "u32"), ("u64", "u64"), ("bool", "bool"),
         ("i32", "i64"), ("bool", "i32"), ("i64", "bool"), ("u8", "u8"), ("i16", "i32"),
         ("u16", "u16"), ("i16", "i16"), ("bool", "f32"), ("f64", "bool")]  # fmt: skip


def _made(dtype: str, shape: tuple[int, ...]) -> Any:
    if dtype == "bool":
        return _R.random(shape) < 0.3
    if dtype[0] == "f":
        return _R.integers(-9, 10, shape).astype(np.dtype(f"float{dtype[1:]}"))
    info = np.iinfo(NAMES[dtype])
    return _R.integers(info.min, info.max, shape, dtype=NAMES[dtype], endpoint=True)


def _wanted(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.int32) if dtype.kind in "iu" and dtype.itemsize < 4 else dtype


def _same(form: str, pair: tuple[str, str], target: str) -> None:
    text, left, right = FORMS[form]
    a, b = _made(pair[0], left), _made(pair[1], right)
    given = {"a": a, "b": b}
    wide = _wanted(np.result_type(a, b))
    names: dict[str, Any] = {"op": np, **given}
    if wide != np.result_type(a, b):  # the sums have 32 bits
        names |= {"a": a.astype(wide), "b": b.astype(wide)}
    want = np.asarray(eval(text, names))
    got = np.asarray(results_of(text, given, target))
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.slow
def test_as_numpy(form: str, target: str) -> None:
    at = list(FORMS).index(form)
    step = {"cpu": 2, "cuda": 1}.get(target, 5)
    for pair in PAIRS[at % step :: step]:
        _same(form, pair, target)


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_some_as_numpy(target: str) -> None:
    for form, pair in zip(("matrices", "computed", "dot"), PAIRS[:1] + PAIRS[4:6], strict=True):
        _same(form, pair, target)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["i32", "i64", "u64"])
def test_larger_products(dtype: str) -> None:
    text = f"@op.kernel\ndef f(a: {dtype}[m, k], b: {dtype}[k, n]):\n    return a @ b\n"
    module = module_for("cpu", text)
    for m, k, n in itertools.product((1, 130), (1, 200), (3, 70)):
        a, b = _made(dtype, (m, k)), _made(dtype, (k, n))
        np.testing.assert_array_equal(on_device.call(module.f, (a, b), "cpu"), a @ b)


@pytest.mark.slow
def test_ptxas_takes_them() -> None:
    for dtype in ("i32", "bool"):
        assembled("a @ b", {"a": _made(dtype, (64, 40)), "b": _made(dtype, (40, 64))})


def test_counts_meet_floats() -> None:
    v = np.arange(8, dtype=np.float32)
    got = np.asarray(results_of("op.arange(8) @ v", {"v": v}, "cpu"))
    assert got.dtype == np.float32
    assert got == 140
