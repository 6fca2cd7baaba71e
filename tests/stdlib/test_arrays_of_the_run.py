"""std.arrays and the members of ``op`` that it makes, beside NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import GPU

TARGETS: list[Any] = ["cpu", GPU]
_R: Any = np.random.default_rng(1)
_I: Any = _R.integers(0, 7, 50)
GIVEN: dict[str, Any] = {
    "integers": _I, "i32": _I.astype(np.int32), "bytes": _R.integers(0, 200, 30).astype(np.uint8),
    "matrix": _R.integers(0, 5, (6, 8)).astype(np.float32), "floats": _R.normal(size=40),
    "turned": _R.integers(0, 5, (6, 8)).astype(np.float32).T, "none": np.zeros(0),
    "one": np.array([2.5]), "bools": _I > 3, "half": _I.astype(np.float16),
    "all_alike": np.full(9, 3.0), "cube": _R.integers(0, 2, (3, 4, 5)),
    "nan": np.array([1.0, np.nan, 2.0, np.nan, 1.0, -0.0, 0.0, np.inf]),
}  # fmt: skip
VECTORS = [name for name, x in GIVEN.items() if x.ndim == 1]
COUNTED = ["integers", "i32", "bytes"]
MEASURED = [name for name in GIVEN if name not in ("bools", "half", "nan")]
ENDS = np.array([-1.0, 0.5, 2.0, 4.0])


def agree(found: Any, want: Any, tolerance: float = 0.0) -> None:
    if isinstance(want, tuple):
        assert type(found) is tuple
        pairs = zip(cast("list[Any]", found), cast("list[Any]", want), strict=True)
        for a, b in pairs:
            agree(a, b, tolerance)
        return
    a, b = np.asarray(found), np.asarray(want)
    assert a.shape == b.shape and (a.dtype == b.dtype or b.ndim == 0)
    np.testing.assert_allclose(a, b, tolerance, tolerance)


UNARY: dict[str, Callable[[Any, Any], Any]] = {
    "unique": lambda m, x: m.unique(x),
    "unique and all": lambda m, x: m.unique(
        x, return_index=True, return_inverse=True, return_counts=True
    ),
    "unique, counted": lambda m, x: m.unique(x, return_counts=True),
    "flatnonzero": lambda m, x: m.flatnonzero(x),
    "nonzero": lambda m, x: m.nonzero(x),
    "argwhere": lambda m, x: m.argwhere(x),
    "extract": lambda m, x: m.extract(x != 0, x),
    "append": lambda m, x: m.append(x, x),
}


@pytest.fixture(scope="module", params=TARGETS)
def module(request: Any) -> Any:
    return tessera.load("std.arrays", target=request.param)


@pytest.mark.sample(3)
@pytest.mark.parametrize("function", UNARY)
@pytest.mark.parametrize("name", GIVEN)
def test_of_an_array(function: str, name: str, module: Any) -> None:
    call = UNARY[function]
    agree(call(module, GIVEN[name]), call(np, GIVEN[name]))


@pytest.mark.sample(2)
@pytest.mark.parametrize("function", ["union1d", "intersect1d", "setdiff1d", "setxor1d"])
@pytest.mark.parametrize("name", VECTORS)
def test_of_two_sets(function: str, name: str, module: Any) -> None:
    a = GIVEN[name]
    b = _R.permutation(a)[:5]
    for x, y in ((a, b), (b, a), (a, a), (a[:0], a)):
        agree(getattr(module, function)(x, y), getattr(np, function)(x, y))


@pytest.mark.parametrize("name", COUNTED)
def test_counts(name: str, module: Any) -> None:
    x = GIVEN[name]
    agree(module.bincount(x), np.bincount(x))
    agree(module.bincount(x[:0], minlength=3), np.bincount(x[:0], minlength=3))
    agree(module.bincount(x, minlength=300), np.bincount(x, minlength=300))
    for dtype in (np.float64, np.float32):
        w = _R.normal(size=x.shape).astype(dtype)
        agree(module.bincount(x, w), np.bincount(x, w))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MEASURED)
def test_histograms(name: str, module: Any) -> None:
    x = GIVEN[name]
    tolerance = 1e-6 if x.dtype == np.float32 else 1e-15
    agree(module.histogram(x), np.histogram(x), tolerance)
    agree(module.histogram(x, 5, (0.5, 4.0)), np.histogram(x, 5, (0.5, 4.0)), tolerance)
    agree(module.histogram_between(x, ENDS), np.histogram(x, ENDS), tolerance)
    if x.size:
        agree(module.histogram(x, 4, density=True), np.histogram(x, 4, density=True), tolerance)
        w = _R.normal(size=x.shape)
        agree(module.histogram(x, 3, weights=w), np.histogram(x, 3, weights=w), 1e-6)


SIZES = [(10, 3), (10, 4), (3, 10), (4, 10), (1, 1), (7, 7), (1, 5)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int32])
@pytest.mark.parametrize("sizes", SIZES)
def test_convolutions(sizes: tuple[int, int], dtype: Any, module: Any) -> None:
    a, v = (_R.integers(-5, 5, n).astype(dtype) for n in sizes)
    for mode in ("full", "same", "valid"):
        agree(module.convolve(a, v, mode), np.convolve(a, v, mode))
        agree(module.correlate(a, v, mode), np.correlate(a, v, mode))


@pytest.mark.parametrize("n", [1, 2, 3, 8, pytest.param(130, marks=pytest.mark.slow)])
def test_equations(n: int, module: Any) -> None:
    a, b, several = _R.normal(size=(n, n)), _R.normal(size=n), _R.normal(size=(n, 3))
    exchanged = np.eye(n)[_R.permutation(n)]
    for matrix in (a, a.T, exchanged):
        bound = 1e-13 * n * np.linalg.cond(matrix)
        agree(module.solve(matrix, b), np.linalg.solve(matrix, b), bound)
        agree(module.solve(matrix, several), np.linalg.solve(matrix, several), bound)
        agree(module.inv(matrix), np.linalg.inv(matrix), bound)
        agree(module.det(matrix), np.linalg.det(matrix), bound)
    narrow = a.astype(np.float32) + n * np.eye(n, dtype=np.float32)
    agree(module.solve(narrow, b.astype(np.float32)), np.linalg.solve(narrow, b.astype("f4")), 1e-4)


def test_what_has_no_answer_is_said(module: Any) -> None:
    for call, said in (
        (lambda: module.solve(np.ones((3, 3)), np.ones(3)), "singular"),
        (lambda: module.solve(np.ones((3, 2)), np.ones(3)), "square"),
        (lambda: module.bincount(np.array([1, -1])), "below 0"),
        (lambda: module.bincount(np.ones(3)), "takes integers"),
        (lambda: module.bincount(np.arange(3), minlength=-4), "no count"),
        (lambda: module.bincount(np.arange(3), np.ones(2)), "a weight for each"),
        (lambda: module.convolve(np.ones(3), np.ones(2), "all"), "mode"),
        (lambda: module.extract(np.ones(3), np.ones(1)), "a condition for each"),
        (lambda: module.extract(np.ones(1), np.ones(3)), "a condition for each"),
        (lambda: module.histogram(np.ones(3), bins=0), "an interval at least"),
        (lambda: module.histogram(np.ones(3), weights=np.ones(2)), "a weight for each"),
        (lambda: module.histogram_between(np.ones(3), np.ones(1)), "an interval at least"),
        (lambda: module.histogram_between(np.ones(3), np.array([2.0, 1.0])), "rise"),
        (lambda: module.histogram_between(np.ones(3), np.array([0.0, np.nan])), "rise"),
    ):
        with pytest.raises(tessera.TesseraError, match=said):
            call()


HOST = """
def f(x):
    values, counts = op.unique(x, return_counts=True)
    where = op.nonzero(x > 2.0)
    return values, counts, where[0], x[where[0]], op.where(x > 2.0)[0]

def g(x):
    return op.setdiff1d(x, [1.0, 3.0]), op.bincount([1, 1, 4]), op.append(x, [7.0])

def h(x):
    counts, ends = op.histogram(x, bins=[0.0, 2.0, 4.0])
    other, _ = op.histogram(x, bins=2, range=(0.0, 4.0))
    return counts, ends, other

def s(a, b):
    return op.linalg.solve(a, b), op.solve(a, b), op.linalg.det(a), op.linalg.inv(a)
"""


@pytest.mark.parametrize("target", TARGETS)
def test_members_of_op(target: Any) -> None:
    m = tessera.compile(HOST, target=target)
    for x in (np.array([3.0, 1.0, 3.0, 0.0]), np.array([1.0, 1.0, 1.0, 1.0]), np.arange(4.0)):
        # The same sizes again: what was recorded may not be taken for the elements of now.
        values, counts = np.unique(x, return_counts=True)
        where = np.flatnonzero(x > 2.0)
        agree(m.f(x), (values, counts, where, x[where], where))
        want = np.setdiff1d(x, [1.0, 3.0]), np.bincount([1, 1, 4]), np.append(x, [7.0])
        agree(m.g(x), want)
        counts, _, other = m.h(x)
        agree(counts, np.histogram(x, [0.0, 2.0, 4.0])[0])
        agree(other, np.histogram(x, 2, (0.0, 4.0))[0])
    a, b = np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([1.0, 2.0])
    x = np.linalg.solve(a, b)
    agree(m.s(a, b), (x, x, np.linalg.det(a), np.linalg.inv(a)), 1e-14)


@pytest.mark.parametrize("mark", ["@op.kernel\n", "@kernel tile[(64,)]\n"])
@pytest.mark.parametrize("name", ["unique", "nonzero", "bincount", "convolve", "linalg.solve"])
def test_a_kernel_is_told_where_they_are(name: str, mark: str) -> None:
    text = f"{mark}def f(x: f32[n]):\n    y = op.{name}(x, x)\n"
    with pytest.raises(tessera.TesseraError, match="in a plain function"):
        tessera.compile(text, target="cpu").f(np.ones(3, np.float32))
