"""``op.sort``, ``op.argsort`` and ``op.topk`` beside NumPy's stable sorts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tests.unit.backend.nvptx.kernels import needs_ptxas
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded

TARGETS = ["cpu", pytest.param("sm_90a", marks=pytest.mark.slow), GPU]
DTYPES: dict[str, Any] = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32,
    "u32": np.uint32, "i64": np.int64, "u64": np.uint64, "bool": np.bool_,
}  # fmt: skip
WITH_PLACES = [d for d in DTYPES if d != "bool"]

SORTS = """
@op.kernel
def whole(x: {T}[m, n]):
    return op.sort(x), op.sort(x, axis=0, descending=True)

@op.kernel
def rows(x: {T}[m, n], y: mut {T}[m, n]):
    for i in op.tile_range(m, step=2):
        y[i:i+2, :] = op.sort(x[i:i+2, :], axis=1)

@op.kernel
def blocks(x: {T}[m, n], y: mut {T}[m, n]):
    for i, j in op.tile_range(m, n, step=(3, 20)):
        t = x[i:i+3, j:j+20]
        for k in range(2):
            t = op.sort(op.sort(t, axis=0), axis=1)
        y[i:i+3, j:j+20] = t
"""
PLACES = """
@op.kernel
def places(x: {T}[m, n]):
    return op.argsort(x), op.argsort(x, axis=0, descending=True)

@op.kernel
def greatest(x: {T}[m, n]):
    v, at = op.topk(x, 3)
    w, there = op.topk(x, 2, axis=0, largest=False)
    return v, at, w, there
"""


def elements(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    """Numbers of which many are equal, and all kinds of them."""
    r, kind = np.random.default_rng(seed), np.dtype(DTYPES[dtype])
    if dtype == "bool":
        return r.integers(0, 2, shape).astype(kind)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return r.choice(np.array([info.min, info.max, 0, 1, 2, info.max - 1], kind), shape)
    x = r.integers(-4, 5, shape).astype(kind)
    few = np.array([np.inf, -np.inf, 0.0, ml_dtypes.finfo(kind).max,
                    ml_dtypes.finfo(kind).smallest_subnormal]).astype(kind)  # fmt: skip
    return np.where(r.random(shape) < 0.3, r.choice(few, shape), x)


def order(x: Any, axis: int, descending: bool) -> Any:
    """A stable order; NaN is greater than all."""
    keys = x.astype(np.float64) if x.dtype.itemsize < 8 else x
    keys = np.where(keys != keys, np.inf, keys) if keys.dtype.kind == "f" else keys
    ranks = np.unique(keys, return_inverse=True)[1].reshape(x.shape).astype(np.int64)
    ranks = np.where(x != x, 2**40, ranks)
    return np.argsort(-ranks if descending else ranks, axis=axis, kind="stable")


def in_order(x: Any, axis: int = -1, descending: bool = False) -> Any:
    return np.take_along_axis(x, order(x, axis, descending), axis)


SHAPES = ((4, 1), (5, 7), (3, 64), (7, 201))


@pytest.mark.sample(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sort(dtype: str, target: str) -> None:
    m = loaded(SORTS.format(T=dtype), target)
    for shape in SHAPES:
        x = elements(dtype, shape)
        across, down = m.whole(x)
        np.testing.assert_array_equal(across, in_order(x))
        np.testing.assert_array_equal(down, in_order(x, 0, True))
        y = np.zeros_like(x)
        m.rows(x, y)
        np.testing.assert_array_equal(y, in_order(x))
        m.blocks(x, y)
        for i in range(0, shape[0], 3):
            for j in range(0, shape[1], 20):
                part = x[i : i + 3, j : j + 20]
                for _ in range(2):
                    part = in_order(in_order(part, 0), 1)
                np.testing.assert_array_equal(y[i : i + 3, j : j + 20], part)


@pytest.mark.sample(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", WITH_PLACES)
def test_places(dtype: str, target: str) -> None:
    m = loaded(PLACES.format(T=dtype), target)
    for shape in SHAPES[1:]:
        x = elements(dtype, shape, 1)
        across, down = m.places(x)
        np.testing.assert_array_equal(across, order(x, 1, False))
        np.testing.assert_array_equal(down, order(x, 0, True))
        v, at, w, there = m.greatest(x)
        first, last = order(x, 1, True)[:, :3], order(x, 0, False)[:2]
        np.testing.assert_array_equal(at, first)
        np.testing.assert_array_equal(there, last)
        np.testing.assert_array_equal(v, np.take_along_axis(x, first, 1))
        np.testing.assert_array_equal(w, np.take_along_axis(x, last, 0))


@pytest.mark.optimized
@pytest.mark.parametrize("target", TARGETS)
def test_nan_and_zeros(target: str) -> None:
    """NaN last, whatever its sign; -0.0 before 0.0, which are equal where places are asked for."""
    m = loaded(SORTS.format(T="f32") + PLACES.format(T="f32"), target)
    x = np.array([[np.nan, 0.0, -0.0, -np.inf, -np.nan, np.inf, 0.0]], np.float32)
    found, _ = m.whole(x)
    np.testing.assert_array_equal(found, [[-np.inf, 0, 0, 0, np.inf, np.nan, np.nan]])
    assert np.signbit(found[0, 1]) and not np.signbit(found[0, 2:4]).any()
    across, _ = m.places(x)
    np.testing.assert_array_equal(across, [[3, 1, 2, 6, 5, 0, 4]])
    v, at, _, _ = m.greatest(np.concatenate([x, x]))
    np.testing.assert_array_equal(at[0], [0, 4, 5])
    np.testing.assert_array_equal(v[0], [np.nan, np.nan, np.inf])


MADE_OF = """
@op.kernel
def median(x: f32[m, n]) -> f32[m]:
    s = op.sort(x, axis=1)
    return 0.5 * (s[:, (n - 1) // 2] + s[:, n // 2])

@op.kernel
def gates(x: f32[m, n]):
    v, at = op.topk(x, 4)
    return op.softmax(v), at

@op.kernel
def ranks(x: f32[m, n], y: mut i32[m, n]):
    for i in op.tile_range(m, step=1):
        y[i, :] = i32(op.argsort(op.array([3.0, 1.0, 2.0])[0] * x[i, :]))

@op.kernel
def trimmed(x: f32[n]):
    y = op.sort(x * x)
    return op.sum(y[2:-2])
"""


@pytest.mark.sample
@pytest.mark.parametrize("target", TARGETS)
def test_what_is_made_of_it(target: str) -> None:
    m = loaded(MADE_OF, target)
    x = np.random.default_rng(2).standard_normal((6, 40)).astype(np.float32)
    np.testing.assert_array_equal(m.median(x), np.median(x, axis=1))
    weights, at = m.gates(x)
    first = np.argsort(-x, axis=1, kind="stable")[:, :4]
    np.testing.assert_array_equal(at, first)
    e = np.exp(np.take_along_axis(x, first, 1).astype(np.float64))
    np.testing.assert_allclose(weights, e / e.sum(1, keepdims=True), rtol=1e-6)
    y = np.zeros(x.shape, np.int32)
    m.ranks(x, y)
    np.testing.assert_array_equal(y, np.argsort(np.float32(3) * x, axis=1, kind="stable"))
    found = float(np.asarray(m.trimmed(x[0])))
    assert abs(found - np.sort(x[0] * x[0])[2:-2].astype(np.float64).sum()) < 1e-4


@needs_ptxas
@pytest.mark.sample(1)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_assembled(arch: str) -> None:
    session = Session(overlay={"m.tessera": SORTS.format(T="f16") + PLACES.format(T="f16")})
    for name, form in (("rows", "x: f16[64, 200], y: f16[64, 200]"), ("places", "x: f16[64, 200]"),
                       ("blocks", "x: f16[64, 200], y: f16[64, 200]")):  # fmt: skip
        signature = session.signature("m.tessera", name, form)
        made = session.compile_kernel("m.tessera", name, signature, TargetOptions("cuda", arch))
        assert all(part.kind == "cubin" for part in (made, *made.then))
        assert not [d for d in made.diagnostics if d.severity == "warning"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("op.sort(x, axis=2)", "T0311"),
        ("op.sort(1.0)", "T0207"),
        ("op.sort(x[:, 0:8], descending=1)", "T0311"),
        ("op.sort(f8e5m2(x))", "T0207"),
        ("op.topk(x[:, 0:8], n)", "T0311"),
        ("op.topk(x[:, 0:8], 9)", "T0207"),
        ("op.topk(x[:, 0:8] > 0.0, 2)", "T0206"),
        ("op.sort(op.zeros((9000,), f32))", "T0608"),
    ],
)
def test_bad_calls(body: str, code: str) -> None:
    text = f"@op.kernel\ndef k(x: f32[m, n]):\n    y = {body}\n"
    found = Session(overlay={"k.tessera": text}).check("k.tessera", ())
    assert code in [d.code for d in found], found


ONE_OF_SEVERAL = """
def two(x):
    return op.sum(x), x * 2.0


@op.kernel
def values(x):
    return op.topk(x, 2)[0]


@op.kernel
def places(x):
    return x[op.topk(x, 2)[-1]]


@op.kernel
def numbers(x):
    return two(x)[0] + two(x)[1] + two(x)[-2]
"""


@pytest.mark.parametrize("target", TARGETS)
def test_one_of_several_values(target: str) -> None:
    m = loaded(ONE_OF_SEVERAL, target)
    x = np.array([3.0, 1.0, 7.0, 5.0], np.float32)
    np.testing.assert_array_equal(m.values(x), [7, 5])
    np.testing.assert_array_equal(m.places(x), [7, 5])
    np.testing.assert_array_equal(m.numbers(x), 32 + 2 * x)
