"""std.topk against a stable sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import DTYPES, TARGETS, few, module, numbers, same, some, views, wide
from tests.stdlib.assembled import ARCHS, assembles, needs_ptxas

TAKEN = [p for p in some("f32", "bf16", "u8") if (p if isinstance(p, str) else p.values[0])
         not in ("bool", "i64", "u64", "f8e4m3", "f8e5m2")]  # fmt: skip


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.topk", str(request.param))


def check(std: Any, x: Any, k: int, axis: int, largest: bool) -> None:
    keys = wide(x).astype(np.float64)
    keys = np.where(np.isnan(keys), np.inf, keys)  # behind infinity, which no input here has
    order = np.argsort(-keys if largest else keys, axis=axis, kind="stable")
    order = np.take(order, np.arange(k), axis=axis)
    values, places = std.topk(x, k, axis=axis, largest=largest)
    same(np.asarray(places), order)
    same(values, np.take_along_axis(x, order, axis))


@pytest.mark.parametrize("dtype", TAKEN)
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.sample(1)
def test_topk(std: Any, dtype: str, largest: bool) -> None:
    for n, k in ((1, 1), (5, 0), (7, 7), (130, 9), (1025, 4), (20011, 3)):
        for seed, of in enumerate((numbers, few)):
            check(std, of(dtype, (3, n), seed=seed + n), k, -1, largest)


@pytest.mark.slow
def test_every_axis_and_layout(std: Any) -> None:
    x = few("f32", (4, 5, 6))
    for axis in range(-3, 3):
        check(std, x, 3, axis, True)
    for view in views(few("f32", (20, 30))).values():
        check(std, view, 5, 1, False)
    for shape in ((0, 4), (4, 0)):
        assert np.asarray(std.topk(np.ones(shape, np.float32), 0)[0]).shape == (shape[0], 0)


def test_nan_infinities_and_zeros(std: Any) -> None:
    x = np.float32([-np.inf, -0.0, np.nan, 0.0, np.inf, -np.inf, -np.nan])
    for largest, order in ((True, [2, 6, 4, 1, 3, 0, 5]), (False, [0, 5, 1, 3, 4, 2, 6])):
        for dtype in ("f32", "f64"):
            values, places = std.topk(x.astype(DTYPES[dtype]), 7, largest=largest)
            same(places, np.array(order))
            same(np.isnan(values), np.isnan(x[order]))


@needs_ptxas
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "u8"])
@pytest.mark.sample(1)
def test_ptxas_takes_it(dtype: str, arch: str) -> None:
    key, most = ("i32", 2**31 - 1) if dtype in ("f32", "bf16") else ("i64", 2**63 - 1)
    form = (f"x: {dtype}[512, 1000], columns: i64[1000], values: mut {dtype}[512, 4],"
            f" places: mut i64[512, 4], LARGEST=True, K={key}, MOST={most}")  # fmt: skip
    assembles("topk", "_taken", form, arch)


@pytest.mark.parametrize(("call", "said"), [
    ("topk(x, 4)", "k is from 0 to 3, the elements of axis -1, not 4"),
    ("topk(x, -1)", "k is from 0 to 3"),
    ("topk(x, 1, axis=2)", "an array of rank 2 has no axis 2"),
    ("topk(x.astype('i8'), 1)", "integers up to 32 bits, not i64"),
])  # fmt: skip
def test_wrong_calls_are_diagnostics(std: Any, call: str, said: str) -> None:
    with pytest.raises(tessera.TesseraError) as caught:
        eval(f"std.{call}", {"std": std, "x": np.ones((2, 3), np.float32)})
    assert [d.code for d in caught.value.diagnostics] == ["T0805"]
    assert said in str(caught.value)
