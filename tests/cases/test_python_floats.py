"""A float of Python's that a kernel's parameter without an annotation takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tests.numpy_style import GPU

TARGETS: list[Any] = ["cpu", GPU]
TILES = "@op.kernel\ndef f(x, rate, w):\n    return x * rate + w\n"
LANES = (
    "@kernel tile[(64,)] grid[(1,)]\ndef f(x: T[n], rate, out: mut T[n]):\n"
    "    i = tile_linear_id()\n    if i < n: out[i] = x[i] * rate\n"
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_has_the_bits_of_the_arrays(dtype: Any, target: Any) -> None:
    x, w = np.random.default_rng(1).standard_normal((2, 50)).astype(dtype)
    rate = 0.1 + 2.0**-40
    tiles = tessera.compile(TILES, target=target)
    bound = 2 * np.finfo(dtype).eps
    np.testing.assert_allclose(np.asarray(tiles.f(x, rate, w)), x * rate + w, bound, bound)
    name = "f32" if dtype == np.float32 else "f64"
    lanes = tessera.compile(LANES.replace("T[", f"{name}["), target=target)
    out = np.zeros_like(x)
    lanes.f(x, rate, out)
    tessera.synchronize()
    np.testing.assert_array_equal(out, x * dtype(rate))
    called = tessera.compile(f"{TILES}def g(x, rate, w): return f(x, rate, w)\n", target=target)
    np.testing.assert_allclose(np.asarray(called.g(x, rate, w)), x * rate + w, bound, bound)


ALONE = {
    "return rate * 0.5": "float64",
    "y = op.zeros((3,))\n    y[:] = rate\n    return y": "float64",
    "return op.full((2,), rate)": "float64",
    "return x.to(f64) * rate": "float64",
    "return op.mean(x) * rate": "float64",
    "return x.to(f32) * rate": "float32",
    "return op.astype(x, op.float32) * rate": "float32",
    "return op.zeros((3,), dtype='f32') + rate": "float32",
    "return op.zeros((3,), dtype=bf16).to(f32) + rate": "float32",
}
"""What is done with a float where no array of floats is there, and what comes out."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("body", ALONE)
def test_without_arrays_of_floats_it_is_f64_unless_a_narrower_dtype_is_named(
    body: str, target: Any
) -> None:
    x = np.arange(3, dtype=np.int32)
    kernel = f"@op.kernel\ndef f(x, rate):\n    {body}\n"
    through = f"{kernel}def g(x, rate):\n    return f(x, rate)\n"
    m = tessera.compile(through, target=target)
    for function in (m.f, m.g):
        found = np.asarray(function(x, 0.1))
        assert found.dtype.name == ALONE[body]
        scope = {"x": x, "rate": 0.1}
        said = body.replace("op.", "np.").replace("f32", "float32").replace("bf16", "float16")
        if "\n" not in said and ".to(" not in said and "dtype" not in said:
            want = eval(said.removeprefix("return "), {"np": np}, scope)
            bound = np.finfo(found.dtype).eps
            np.testing.assert_allclose(
                found.astype(float), np.broadcast_to(want, found.shape), bound
            )


NEWTON = """
{mark}
def root(a):
    x = a
    while op.abs(x * x - a) > 1e-9:
        x = 0.5 * (x + a / x)
    return x


{mark}
def half(f0, f1):
    lo = f0
    hi = f1
    while hi - lo > 1e-12:
        mid = 0.5 * (lo + hi)
        if mid * mid > 2.0:
            hi = mid
        else:
            lo = mid
    return lo
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mark", ["@op.kernel", ""])
def test_loops_until_a_small_difference_end(mark: str, target: Any) -> None:
    m = tessera.compile(NEWTON.format(mark=mark), target=target)
    assert abs(float(np.asarray(m.root(2.0))) - 2**0.5) < 1e-9
    assert abs(float(np.asarray(m.half(1.0, 2.0))) - 2**0.5) < 1e-11
    assert abs(float(np.asarray(m.root(np.float64(3.0)))) - 3**0.5) < 1e-9


@pytest.mark.parametrize("target", TARGETS)
def test_a_number_of_f32_is_narrower(target: Any) -> None:
    m = tessera.compile("@op.kernel\ndef f(a, b):\n    return a * b\n", target=target)
    assert np.asarray(m.f(np.float32(2.0), 0.1)).dtype == np.float32
    assert np.asarray(m.f(np.float64(2.0), 0.1)).dtype == np.float64


@pytest.mark.parametrize("target", TARGETS)
def test_arrays_that_a_function_makes_of_floats_are_f64(target: Any) -> None:
    text = """
def f(a):
    y = op.zeros((3,))
    y[1] = a
    return y, op.linspace(0.0, a, 3), op.array([a, 1.0]), op.full((2,), a)

def narrow(a):
    y = op.zeros((3,))
    y[1] = a
    return y + op.ones((3,), f32), op.linspace(0.0, a, 3)
"""
    m = tessera.compile(text, target=target)
    want = [0, 0.1, 0], np.linspace(0, 0.1, 3), [0.1, 1.0], [0.1, 0.1]
    for found, right in zip(m.f(0.1), want, strict=True):
        assert np.asarray(found).dtype == np.float64
        np.testing.assert_allclose(np.asarray(found), right, 1e-15)
    assert {np.asarray(v).dtype.name for v in m.narrow(0.1)} == {"float32"}


MADE_OF_FLOATS = (
    "op.zeros((3, 3))", "op.full((3, 3), 0.1)", "op.eye(3)", "op.identity(3)", "-op.eye(3)",
    "op.eye(3) @ op.array([[0.1], [2], [3]])", "op.linspace(0.1, 1.0, 9).reshape((3, 3))",
    "op.where(op.eye(3) > 0, 0.1, 0.2)", "op.where(op.eye(3) > 0, 0.1, 2)",
    "op.random((3, 3), seed=1)", "op.random((3, 3), seed=1, low=0.1, high=3)",
    "(op.eye(3) > 0) * 0.1", "op.sqrt(op.array([[0.1, 2.0, 3]]))", "op.arange(0.1, 3.1)[:, None]",
)  # fmt: skip
"""What makes an array of floats without a dtype, as it is written."""


@pytest.mark.sample(14)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("made", MADE_OF_FLOATS)
def test_every_maker_has_the_bits_of_the_arrays_of_a_function(made: str, target: Any) -> None:
    text = (
        f"def f(A):\n    x = {made}\n    x[0, 0] = A[0, 0] / 7.0\n    return x\n"
        f"def g(A):\n    x = {made}\n    x[0] = A[0, 0]\n    return x\n"
        f"def h(A):\n    return {made} * A + 0.1\n"
        f"def whole(x):\n    return op.sum({made} * x)\n"
        "def gradient(x):\n    return grad(whole)(x)\n"
        f"def alone(A):\n    return {made}\n"
    )
    A = np.random.default_rng(1).standard_normal((3, 3))
    m = tessera.compile(text, target=target)
    alone = np.asarray(m.alone(A))
    assert alone.dtype == np.float64
    stored, row = np.asarray(m.f(A)), np.asarray(m.g(A))
    assert stored.dtype == row.dtype == np.float64
    assert stored[0, 0] == A[0, 0] / 7 and row[0, 0] == A[0, 0]
    np.testing.assert_array_equal(stored.ravel()[1:], alone.ravel()[1:])
    np.testing.assert_allclose(np.asarray(m.h(A)), alone * A + 0.1, 1e-14, 1e-14)
    gradient = np.asarray(m.gradient(A))
    assert gradient.dtype == np.float64
    np.testing.assert_allclose(gradient, np.broadcast_to(alone, (3, 3)), 1e-14, 1e-14)
    narrow = np.asarray(m.h(A.astype(np.float32)))
    np.testing.assert_allclose(narrow, (alone * A + 0.1).astype(np.float32), 1e-5, 1e-6)
    assert narrow.dtype == np.float32


def test_random_numbers_of_f32_are_those_of_f64_rounded() -> None:
    """And a number of f64 is not rounded into them where no dtype is said."""
    text = """
def f(x):
    return op.random((50,), seed=7), op.random((50,), f32, seed=7)

def mixed(A, x, k: int):
    y = op.random((3,), seed=1) if k else op.random((3,), f32, seed=1)
    y[1] = A[0] / 7.0
    return y
"""
    m, A = tessera.compile(text, target="cpu"), np.ones(3)
    wide, said = map(np.asarray, m.f(A))
    of_f32 = np.asarray(m.f(A.astype(np.float32))[0])
    assert (wide.dtype, said.dtype, of_f32.dtype) == (np.float64, np.float32, np.float32)
    np.testing.assert_array_equal(said, of_f32)
    np.testing.assert_array_equal(wide.astype(np.float32), of_f32)
    with pytest.raises(tessera.TesseraError, match="T0818"):
        m.mixed(A, A.astype(np.float32), 1)
    assert np.asarray(m.mixed(A, A.astype(np.float32), 0))[1] == np.float32(1 / 7)


def test_beside_two_floats_the_help_is_followed() -> None:
    text = "@op.kernel\ndef f(x, y, rate):\n    return x * rate + y.to(f64)\n"
    given = np.arange(3.0), np.ones(3, np.float32), 0.1
    with pytest.raises(tessera.TesseraError, match="`rate: f64`") as caught:
        tessera.compile(text, target="cpu").f(*given)
    (found,) = caught.value.diagnostics
    ((edit,),) = (fix.edits for fix in found.fixes)
    text = text[: edit.span.start] + edit.replacement + text[edit.span.end :]
    right = tessera.compile(text, target="cpu").f(*given)
    np.testing.assert_array_equal(np.asarray(right), given[0] * 0.1 + 1)


def test_check_says_what_the_launch_says() -> None:
    text = f"{TILES}y = f(op.zeros((4,), dtype=f64), 0.1, op.ones((4,), dtype=f64))\nprint(y)\n"
    session = Session(overlay={"m.tessera": text})
    assert not session.check("m.tessera")


@pytest.mark.parametrize("name", ["half", "float32", "float16", "bfloat16", "f32"])
def test_a_variable_by_the_name_of_a_dtype_is_none(name: str) -> None:
    m = tessera.compile(
        f"def local(a, n: int):\n    {name} = a * 3\n    return {name} * op.linspace(0.0, 1.0, n)\n"
        f"def given({name}, n: int): return {name} * op.linspace(0.0, 1.0, n)\n"
        f"def bisect(lo, hi):\n    while hi - lo > 1e-13:\n        {name} = 0.5 * (lo + hi)\n"
        f"        if {name} * {name} > 2.0: hi = {name}\n        else: lo = {name}\n"
        "    return op.array([lo])\n", target="cpu",
    )  # fmt: skip
    for found, wanted in (
        (m.local(0.3, 7), 0.3 * 3 * np.linspace(0, 1, 7)),
        (m.given(0.3, 7), 0.3 * np.linspace(0, 1, 7)), (m.bisect(1.0, 2.0), [np.sqrt(2.0)]),
    ):  # fmt: skip
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_a_function_of_no_arrays_makes_floats_of_f64() -> None:
    text = """
def nodes(n: int):
    k = op.arange(1, n + 1)
    x = op.cos(op.pi * (k - 0.25) / (n + 0.5))
    return x, op.full(n, 0.1), op.linspace(0.0, 1.0, n) ** 3, op.eye(3) / 3
def roots(n: int): return op.sqrt(op.arange(n))
def constants(): return op.array([0.1, 0.2]), op.ones(3) * 0.1
def narrow(n: int): return op.full((n,), 0.1, f32), op.arange(n) * 0.1
"""
    m = tessera.compile(text, target="cpu")
    k = np.arange(1, 6)
    wanted = (
        np.cos(np.pi * (k - 0.25) / 5.5), np.full(5, 0.1), np.linspace(0, 1, 5) ** 3, np.eye(3) / 3,
    )  # fmt: skip
    for make in (m.nodes, tessera.fused(m.nodes)):
        for found, want in zip(make(5), wanted, strict=True):
            assert np.asarray(found).dtype == np.float64
            np.testing.assert_allclose(np.asarray(found), want, rtol=1e-14)
    assert m.roots(5).tolist() == np.sqrt(np.arange(5)).tolist()
    for found, want in zip(m.constants(), ([0.1, 0.2], np.ones(3) * 0.1), strict=True):
        assert found.dtype == np.float64 and found.tolist() == list(want)
    assert [x.dtype for x in m.narrow(4)] == [np.float32, np.float32]
