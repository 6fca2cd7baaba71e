"""Arrays that the host program makes of numbers take the dtype of what they meet, as numbers do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tests.cases.test_host_edges import TARGETS

MADE: dict[str, Any] = {
    "op.array([0.1, 0.2, 0.3, 0.4])": [0.1, 0.2, 0.3, 0.4], "op.array([1, 2, 3, 4])": [1, 2, 3, 4],
    "op.linspace(0.0, 1.0, 4)": np.linspace(0, 1, 4), "op.zeros((4,))": np.zeros(4),
    "op.ones((4,))": np.ones(4), "op.full((4,), 0.3)": np.full(4, 0.3), "op.full((4,), 3)": [3] * 4,
    "op.arange(4)": range(4), "op.arange(0.0, 0.4, 0.1)": np.arange(4) * 0.1,
    "op.where(c, 1, -1)": [1, -1, 1, 1], "op.where(c, 0.1, 0.7)": [0.1, 0.7, 0.1, 0.1],
    "0.1 * c": [0.1, 0, 0.1, 0.1], "2 * c - 1": [1, -1, 1, 1],
    "0.3 - c / 2": [-0.2, 0.3, -0.2, -0.2],
    "0.5 * op.arange(4)": np.arange(4) * 0.5,
    "-op.array([0.1, 0.2, 0.3, 0.4])": [-0.1, -0.2, -0.3, -0.4],
    "op.array([0.1, 0.2, 0.3, 0.4]) * 3.0 + 0.1": np.array([0.1, 0.2, 0.3, 0.4]) * 3.0 + 0.1,
    "op.eye(4)[1]": [0, 1, 0, 0], "op.array([9, 0.1, 0.2, 0.3, 0.4])[1:]": [0.1, 0.2, 0.3, 0.4],
    "op.reshape(op.array([[0.1, 0.2], [0.3, 0.4]]), (4,))": [0.1, 0.2, 0.3, 0.4],
    "op.array([[0.1, 0.3], [0.2, 0.4]]).T[0]": [0.1, 0.2],
}  # fmt: skip
USES = [
    "w * x", "x - w", "op.maximum(x, w)", "op.stack((x, w))", "op.where(x > 0, x, w)",
    "x[:, None] * w[None, :]", "x @ w", "w.to(f64) * x.to(f64)", "x * w[1]",
]  # fmt: skip


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sample(6)
def test_they_take_the_dtype_of_what_they_meet(made: str, target: Any) -> None:
    lines = "".join(f"    r{i} = {use}\n" for i, use in enumerate(USES))
    results = ", ".join(f"r{i}" for i in range(len(USES)))
    text = f"def f(x, c):\n    w = {made}\n{lines}    return {results}\n"
    m: Any = tessera.compile(text, target=target)
    wide = np.array(MADE[made], np.float64)
    c = np.array([True, False, True, True])
    for dtype, rtol in ((np.float64, 1e-15), (np.float32, 2e-7), (np.float16, 2e-3)):
        x = np.array([1.5, -2.0, 0.25, 3.0], dtype)[: len(wide)]
        for use, found in zip(USES, m.f(x, c), strict=True):
            want = eval(use.replace("to(f64)", "astype(float)"), {"op": np, "w": wide, "x": x})
            kind = np.float64 if "f64" in use else dtype
            assert np.asarray(found).dtype == kind or use == "x @ w", use
            np.testing.assert_allclose(np.asarray(found, np.float64), want, rtol, rtol)


ALONE = {
    "op.array([0.5, 1.0])": np.float64, "op.array([1, 2])": np.int32,
    "op.zeros((2,))": np.float64,
    "op.arange(3)": np.int64, "op.linspace(0.0, 1.0, 3)": np.float64,
    "0.5 * op.arange(3)": np.float64,
    "op.where(c, 1, -1)": np.int32, "op.where(c, 0.5, -1)": np.float64,
    "op.array([1, 2]) / 2": np.float64,
    "op.arange(3) + 1": np.int64, "op.array([1, 2]) * 0.5": np.float64,
    "op.ones((2,)) + 1": np.float64,
}  # fmt: skip


@pytest.mark.parametrize("made", ALONE)
def test_alone_they_have_the_dtype_of_the_page(made: str) -> None:
    m: Any = tessera.compile(f"def f(c):\n    return {made}\n", target="cpu")
    assert np.asarray(m.f(np.array([True, False]))).dtype == ALONE[made]


STORED = [
    "w[0] = 5.0", "w[:] = 5.0", "w[w < 9.0] = 5.0", "w += 5.0", "fill(w)", "w[0:2][0] = 5.0",
    "op.reshape(w, (4,))[0] = 5.0", "w[[0, 1]] = 5.0",
]  # fmt: skip


@pytest.mark.parametrize("store", STORED)
@pytest.mark.parametrize("target", TARGETS)
def test_what_is_stored_is_what_is_met(store: str, target: Any) -> None:
    text = f"""
@op.kernel
def fill(w: mut f32[n]):
    w[:] = 5.0

def f(x):
    w = op.zeros((4,))
    before = w + 0.0
    {store}
    return w, w * x, before * x
"""
    m: Any = tessera.compile(text, target=target)
    w, product, before = m.f(np.ones(4, np.float32))
    assert w[0] == 5.0
    np.testing.assert_array_equal(product, w)
    np.testing.assert_array_equal(before, np.zeros(4))


@pytest.mark.parametrize("store", STORED)
def test_stored_into_they_are_arrays_of_their_dtype(store: str) -> None:
    text = f"""
@op.kernel
def fill(w: mut f32[n]):
    w[:] = 5.0

def f(x, y):
    w = op.zeros((4,))
    {store}
    return w * x
"""
    m: Any = tessera.compile(text, target="cpu")
    given = np.ones(4), np.ones(4, np.float32)  # beside arrays of both dtypes they are f32
    if store == "w += 5.0":  # a new array of numbers
        np.testing.assert_array_equal(m.f(*given), np.full(4, 5.0))
        return
    with pytest.raises(tessera.TesseraError, match="f32 and f64"):
        m.f(*given)


WRONG = {
    "op.array([0.5, 1.5], dtype=f32) * x": "f32 and f64",
}  # fmt: skip


@pytest.mark.parametrize("expression", WRONG)
def test_what_a_dtype_does_not_hold_is_refused(expression: str) -> None:
    m: Any = tessera.compile(f"def f(x, i):\n    return {expression}\n", target="cpu")
    with pytest.raises(tessera.TesseraError, match=WRONG[expression]):
        m.f(np.ones(2), np.ones(2, np.int32))


def test_calls_from_python_that_are_done_again_meet_the_same() -> None:
    m: Any = tessera.compile(
        "def f(x):\n    return op.arange(4) * x + op.zeros((4,))\n", target="cpu"
    )
    for _ in range(4):
        found = m.f(np.full(4, 0.5, np.float32))
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, np.arange(4) * 0.5)


def test_check_takes_them() -> None:
    text = "".join(f"y{i} = x * ({made})\n" for i, made in enumerate(MADE) if "T[0]" not in made)
    source = (
        f"x = op.random((4,), dtype=f64)\nc = x > 0.5\n{text}z = y0 + op.array([1.0], dtype=f32)\n"
    )
    found = Session(overlay={"main.tessera": source}).check("main.tessera")
    assert [d.code for d in found] == ["T0818"]


OF_BOOLS = ["m & n", "m | n", "m ^ n", "m & True", "~m", "m == n", "m != n", "op.logical_or(m, n)",
            "op.logical_not(m)", "op.where(m & n, x, 0.0)", "op.where(m, m, n)", "op.any(m & ~n)",
            "m + 1", "m * 0.5", "op.sum(m)", "m + n", "m - n", "m * n", "m < n"]  # fmt: skip


@pytest.mark.parametrize("use", OF_BOOLS)
def test_comparisons_of_numbers_are_bools_like_any_others(use: str) -> None:
    """What is done with them is the same, refusals too, whether their operands had a dtype."""
    text = f"def f(x, i):\n    m, n = i > 3, i < 9\n    return {use}\n"
    own = text.replace("f(x, i)", "g(x)").replace("    m,", "    i = op.arange(12)\n    m,")
    m: Any = tessera.compile(text + "\n\n" + own)
    x, i = np.ones(12, np.float32), np.arange(12, dtype=np.int32)
    try:
        want = m.f(x, i)
    except tessera.TesseraError as error:
        with pytest.raises(tessera.TesseraError, match=error.diagnostics[0].code):
            m.g(x)
        return
    found = m.g(x)
    np.testing.assert_array_equal(found, want)
    if np.ndim(want):
        assert np.asarray(found).dtype == np.asarray(want).dtype


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32])
def test_integers_without_room_are_refused_and_never_wrap(dtype: type[np.integer[Any]]) -> None:
    """Of random numbers each result is NumPy's, which is i64, or a refusal."""
    r = np.random.default_rng(np.dtype(dtype).num)
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    refused = 0
    for number in range(30):
        limit = int(r.integers(1, 7)) if number % 2 else high
        x = r.integers(max(low, -limit), min(high, limit), 5, endpoint=True).astype(dtype)
        start, step = int(r.integers(0, 20)), int(r.integers(1, 6))
        operator = "+-*"[number % 3]
        numbers = f"op.arange({start}, {start + 5 * step}, {step})"
        numbers = numbers if number % 4 else f"({start} * (x > 3))"
        text = f"def f(x): return x {operator} {numbers}\n"
        want = eval(f"x {operator} {numbers}", {"x": x.astype(np.int64), "op": np})
        m = tessera.compile(text, target="cpu")
        for _ in range(3):  # the first call, and those that do again what it did
            try:
                found = np.asarray(m.f(x))
            except tessera.TesseraError as error:
                assert "T0818" in str(error)
                assert want.min() < low or want.max() > high
                refused += 1
            else:
                np.testing.assert_array_equal(found, want)
    assert 0 < refused < 90
