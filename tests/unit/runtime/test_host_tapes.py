"""Plain functions over NumPy arrays: a later call of a layout gives what the evaluator gives."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.unit.lower.ast_to_schedule.test_early_exits import loaded

SOURCE = """
@op.kernel
def doubled(x: f32[n]) -> f32[n]: return x * 2.0

@op.kernel
def halves(x: f32[n]) -> (f32[n], f32[n]): return x * 0.5, x * 1.5

@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def add_to(x: mut f32[n], y: f32[n], by: f32):
    i = group_linear_id() * 64 + tile_id(0)
    if i < n:
        x[i] = x[i] + y[i] * by

def chained(x, by=1.0):
    a = doubled(x)
    b = op.zeros_like(x)
    add_to(b, a, by)
    return b

def several(x): return halves(x)

def itself(x):
    add_to(x, op.ones_like(x), 1.0)
    return x

def viewed(x):
    t = x.T
    return doubled(op.reshape(op.contiguous(t), (len(x) * x.shape[1],)))

def counted(x):
    y = op.arange(len(x), dtype=f32)
    add_to(y, x, 1.0)
    return y

def looks(x):
    if x[0] > 0.0: return doubled(x)
    return op.zeros_like(x)

def sums(x): return op.sum(x) + 0.0

def shape_of(x): return x.shape[0]

def by_elements(x): return doubled(x) + op.ones_like(x)

def shared(x, y):
    add_to(x, y, 1.0)
    return x

def difference(x, y):
    b = op.zeros_like(x)
    add_to(b, x, 1.0)
    add_to(b, y, -1.0)
    return b

def second(x, y):
    add_to(x, op.ones_like(x), 1.0)
    return y

@kernel tile[(1,)] grid[(1,)]
def add_rows(x: f32[m, n], y: mut f32[m, n]):
    for i in range(m):
        for j in range(n): y[i, j] = y[i, j] + x[i, j]

def in_steps(x, y):
    add_to(x, op.ones_like(x), 1.0)
    add_rows(op.reshape(x, (2, len(x) // 2)), y)
"""


@pytest.fixture(scope="module")
def m() -> Any:
    return loaded(SOURCE)


def numbers(n: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


EXPECTED: dict[str, Any] = {
    "chained": lambda x: x * 2,
    "several": lambda x: (x * np.float32(0.5), x * np.float32(1.5)),
    "itself": lambda x: x + 1,
    "counted": lambda x: np.arange(len(x), dtype=np.float32) + x,
    "looks": lambda x: x * 2 if x[0] > 0 else np.zeros_like(x),
    "sums": lambda x: np.sum(x),
    "shape_of": len,
    "by_elements": lambda x: x * 2 + 1,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_later_calls(m: Any, name: str) -> None:
    """Of the same layout with other numbers, and of others in between."""
    for seed, n in enumerate((100, 100, 65, 100, 65, 0, 100, 0)):
        if n == 0 and name == "looks":
            continue
        x = numbers(n, seed)
        wanted = EXPECTED[name](x.copy())
        found = getattr(m, name)(x)
        if isinstance(wanted, tuple):
            assert isinstance(found, tuple)
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
    if name == "itself":
        x = numbers(100, 3)
        assert m.itself(x) is x


def test_what_looks_at_elements_is_evaluated_each_time(m: Any) -> None:
    m.looks(numbers(10, 0)), m.chained(numbers(10, 0))
    assert list(m.looks._host_tapes.values())[-1] is None
    assert list(m.chained._host_tapes.values())[-1] is not None


def test_constants_are_part_of_the_layout(m: Any) -> None:
    x = numbers(100, 0)
    for by in (1.0, 3.0, 1.0, -0.0, 0.0, 3.0):
        np.testing.assert_array_equal(m.chained(x, by), x * 2 * np.float32(by))
        np.testing.assert_array_equal(m.chained(x, by=by), x * 2 * np.float32(by))


def test_results_are_separate_arrays(m: Any) -> None:
    x = numbers(100, 0)
    a, b = m.chained(x), m.chained(x)
    assert not np.shares_memory(a, b)
    a[...] = 0
    np.testing.assert_array_equal(m.chained(x), b)


def test_strides_and_addresses(m: Any) -> None:
    """Layouts that differ in their strides or in the alignment of their address."""
    whole = numbers(400, 0)
    for x in (whole[:100], whole[1:101], whole[::4], whole[3:103], whole[::-1][:100]):
        for _ in range(3):
            np.testing.assert_array_equal(m.chained(x), x * 2)
    grid = whole.reshape(20, 20)
    for x in (grid, grid[:, :7], grid.T, grid[::2]):
        for _ in range(3):
            np.testing.assert_array_equal(m.viewed(x), np.ascontiguousarray(x.T).reshape(-1) * 2)


def test_shared_memory_is_refused_each_time(m: Any) -> None:
    memory = numbers(200, 0)
    x, y = memory[:100].copy(), memory[100:]
    for _ in range(2):
        m.shared(x, y)
    for _ in range(3):
        before = memory.copy()
        with pytest.raises(tessera.TesseraError, match="T0836"):
            m.shared(memory[:100], memory[50:150])
        np.testing.assert_array_equal(memory, before)


@pytest.mark.parametrize("first", [0, 20])
def test_an_array_given_twice(first: int) -> None:
    """Later calls of the layout give two arrays, and the other way round."""
    m = loaded(SOURCE)
    x, y = numbers(100, 0), numbers(100, 1)
    for _ in range(first):
        np.testing.assert_array_equal(m.difference(x, y), x - y)
    for _ in range(20):
        np.testing.assert_array_equal(m.difference(x, x), x - x)
    for _ in range(20):
        np.testing.assert_array_equal(m.difference(x, y), x - y)
    for a, b in ((x, x), (x, y), (x, x)):
        assert m.second(a, b) is b


def test_nothing_is_done_twice() -> None:
    """Where views of arguments may share memory, before anything was launched."""
    m = loaded(SOURCE)
    for _ in range(20):
        x, y = np.zeros(16, np.float32)[::2], np.zeros(16, np.float32)[::2].reshape(2, 4)
        m.in_steps(x, y)
        assert x.tolist() == [1.0] * 8 and y.tolist() == [[1.0] * 4] * 2
        memory = np.zeros(16, np.float32)
        x, y = memory[::2], memory[1::2].reshape(2, 4)
        m.in_steps(x, y)
        assert memory.tolist() == [1.0] * 16


def test_a_dirty_workspace_is_told_each_time() -> None:
    text = """
@kernel tile[(1,)] grid[(1,)]
def dirty(x: f32[n], w: mut f32[m]):
    w[0] = x[0]

def f(x):
    w = op.workspace((4,), f32)
    dirty(x, w)
    return x
"""
    m = loaded(text)
    clean, dirty = np.zeros(8, np.float32), np.ones(8, np.float32)
    for _ in range(2):
        assert m.f(clean) is clean
    for _ in range(2):
        with pytest.raises(tessera.TesseraError, match="T0854"):
            m.f(dirty)
        assert m.f(clean) is clean


def test_faults_are_told_each_time() -> None:
    text = """
@kernel tile[(1,)] grid[(1,)]
def checked(x: f32[n], y: mut f32[n]):
    assert x[0] > 0.0, "the first is above 0"
    y[0] = x[0]

def f(x):
    y = op.zeros_like(x)
    checked(x, y)
    return y
"""
    m = loaded(text)
    good, bad = np.ones(8, np.float32), np.zeros(8, np.float32)
    for _ in range(2):
        assert m.f(good)[0] == 1
    for _ in range(2):
        with pytest.raises(tessera.TesseraError, match="the first is above 0"):
            m.f(bad)
        assert m.f(good)[0] == 1


def test_several_threads(m: Any) -> None:
    """Calls of one layout at the same moment have blocks of their own."""
    wrong: list[int] = []

    def work(seed: int) -> None:
        for k in range(40):
            x = numbers(100, seed * 100 + k)
            if not np.array_equal(m.chained(x), x * 2):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
