"""Calls that machine code answers: what they give and refuse is what the first call does."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime.native_calls import interface

import tessera_lang as tessera

SOURCE = """
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def axpy(a: f32, x: f32[n], y: f32[n], out: mut f32[n], k: i32):
    i = group_linear_id() * 64 + tile_id(0)
    if i < n: out[i] = a * x[i] + y[i] + f32(k)

@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def halved(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n: out[i] = x[i] * 0.5

@kernel tile[(1,)] grid[(1,)]
def picked(x: f32[n], at: i32[1], out: mut f32[1]):
    out[0] = x[index(at[0])]

@kernel tile[(8,)] grid[(1,)]
def columns(x: f64[m, n], out: mut f64[n]):
    for j in range(tile_id(0), n, 8):
        total = f64(0)
        for i in range(m): total += x[i, j]
        out[j] = total

@op.kernel
def doubled(x: f32[n]) -> f32[n]: return x * 2.0

@kernel tile[(1,)] grid[(1,)]
def leaves(x: f32[n], w: mut u32[4], out: mut f32[n]):
    for i in range(n): out[i] = x[i]
    if x[0] > 5.0: w[2] = 7

@kernel tile[(1,)] grid[(1,)]
def cleans(w: mut u32[4]):
    for i in range(4): w[i] = 0

@kernel tile[(1,)] grid[(1,)]
def counts(x: f32[n], at: i32[1], w: mut u32[4], out: mut u32[1]):
    w[0] = w[0] + 1
    out[0] = w[0]
    if x[index(at[0])] > 0.0: w[0] = 0

def worked(x):
    w = op.workspace((4,), dtype=u32)
    out = op.empty((len(x),), dtype=f32)
    leaves(x, w, out)
    return out

def cleaned(x):
    w = op.workspace((4,), dtype=u32)
    out = op.empty((len(x),), dtype=f32)
    leaves(x, w, out)
    cleans(w)
    return out

def counted(x, at):
    w = op.workspace((4,), dtype=u32)
    out = op.empty((1,), dtype=u32)
    counts(x, at, w, out)
    return out

def given_back(x):
    w = op.workspace((4,), dtype=u32)
    leaves(x, w, op.empty((len(x),), dtype=f32))
    return w

def two(x, y):
    first = op.empty((len(x),), dtype=f32)
    axpy(1.0, x, x, first, 0)
    out = op.empty((len(x),), dtype=f32)
    axpy(1.0, y, first, out, 0)
    return out

def filled(x):
    out = op.full((len(x), 2), 7, dtype=i16)
    half = op.full((len(x),), -0.5, dtype=f32)
    ones = op.ones((len(x),), dtype=f32)
    sums = op.full((len(x),), 0.25, dtype=f32)
    axpy(2.0, half, ones, sums, 0)
    add_ones(sums, x, out)
    return out

@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def add_ones(a: f32[n], x: f32[n], out: mut i16[n, 2]):
    i = group_linear_id() * 64 + tile_id(0)
    if i < n and a[i] == 0.0 and x[i] > 0.0: out[i, 1] = 9

def chained(x, by=1):
    zeros = op.zeros((len(x),), dtype=f32)
    out = op.empty((len(x),), dtype=f32)
    first = op.empty((len(x),), dtype=f32)
    axpy(2.0, doubled(x), zeros, first, by)
    axpy(1.0, first, x, out, 0)
    return op.reshape(out, (1, len(x)))
"""


@pytest.fixture(scope="module", autouse=True)
def available() -> None:
    """Without this machine code nothing here would be looked at."""
    tessera.compile(SOURCE, target="cpu").doubled(np.ones(4, np.float32))
    if sys.implementation.name != "cpython":
        pytest.skip("another Python")
    assert interface() is not None


def module() -> Any:
    return tessera.compile(SOURCE, target="cpu")


def warmed(function: Any, *arguments: Any, **named: Any) -> Any:
    for _ in range(40):
        function(*arguments, **named)
    assert type(type(function).__call__).__name__ == "builtin_function_or_method"
    return function


def numbers(n: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(n).astype(dtype)


def unaligned(n: int) -> np.ndarray:
    raw = np.zeros(4 * n + 2, np.uint8)
    return raw[2:].view(np.uint8)[: 4 * n].view(np.float32)


class Sub(np.ndarray):
    """An array of a class of its own."""


def read_only(n: int) -> np.ndarray:
    array = numbers(n)
    array.flags.writeable = False
    return array


N = 24
CHANGES: dict[str, Callable[[list[Any]], object]] = {
    "nothing": lambda a: None,
    "another number": lambda a: a.__setitem__(0, 3.5),
    "a number of NumPy": lambda a: a.__setitem__(0, np.float32(0.1)),
    "an integer for a float": lambda a: a.__setitem__(0, 2),
    "no number": lambda a: a.__setitem__(0, "two"),
    "None": lambda a: a.__setitem__(1, None),
    "too large": lambda a: a.__setitem__(4, 1 << 31),
    "a float for an integer": lambda a: a.__setitem__(4, 1.5),
    "a bool": lambda a: a.__setitem__(4, True),
    "other sizes": lambda a: a.__setitem__(slice(1, 4), [numbers(9), numbers(9), numbers(9)]),
    "one other size": lambda a: a.__setitem__(2, numbers(N - 1)),
    "f64": lambda a: a.__setitem__(1, numbers(N, dtype=np.float64)),
    "i32": lambda a: a.__setitem__(1, np.ones(N, np.int32)),
    "another byte order": lambda a: a.__setitem__(1, numbers(N).astype(">f4")),
    "rank 2": lambda a: a.__setitem__(1, numbers(N).reshape(N, 1)),
    "rank 0": lambda a: a.__setitem__(1, np.float32(1.0).reshape(())),
    "every second": lambda a: a.__setitem__(1, numbers(2 * N)[::2]),
    "backwards": lambda a: a.__setitem__(1, numbers(N)[::-1]),
    "one for all": lambda a: a.__setitem__(1, np.broadcast_to(numbers(1), (N,))),
    "four bytes on": lambda a: a.__setitem__(1, numbers(N + 1)[1:]),
    "written four bytes on": lambda a: a.__setitem__(3, numbers(N + 1)[1:]),
    "unaligned": lambda a: a.__setitem__(1, unaligned(N)),
    "read-only": lambda a: a.__setitem__(1, read_only(N)),
    "written and read-only": lambda a: a.__setitem__(3, read_only(N)),
    "written twice": lambda a: a.__setitem__(1, a[3]),
    "in common": lambda a: (m := numbers(2 * N), a.__setitem__(1, m[:N]),
                            a.__setitem__(3, m[5 : 5 + N])),
    "side by side": lambda a: (m := numbers(2 * N), a.__setitem__(1, m[:N]),
                               a.__setitem__(3, m[N:])),
    "a class of its own": lambda a: a.__setitem__(1, numbers(N).view(Sub)),
    "a mask": lambda a: a.__setitem__(1, np.ma.array(numbers(N), mask=[True] * N)),
    "a list": lambda a: a.__setitem__(1, [1.0] * N),
    "one too few": lambda a: a.pop(),
    "one too many": lambda a: a.append(1),
}  # fmt: skip


def given() -> list[Any]:
    return [2.0, numbers(N), numbers(N, 1), np.zeros(N, np.float32), 3]


def outcome(function: Any, arguments: list[Any], **named: Any) -> tuple[str, Any]:
    try:
        function(*arguments, **named)
    except (tessera.TesseraError, TypeError) as fault:
        return type(fault).__name__, str(fault)
    return "", [np.array(a).tobytes() if isinstance(a, np.ndarray) else a for a in arguments]


@pytest.mark.parametrize("name", CHANGES)
def test_a_call_that_differs_is_as_it_is_at_first(name: str) -> None:
    """Machine code answers the layout that came often; any other call is a call as ever."""
    m, fresh = module(), module()
    warmed(m.axpy, *given())
    for _ in range(2):
        changed, same = given(), given()
        CHANGES[name](changed)
        CHANGES[name](same)
        assert outcome(m.axpy, changed) == outcome(fresh.axpy, same)
        assert outcome(m.axpy, given()) == outcome(fresh.axpy, given())


def test_named_arguments() -> None:
    m, fresh = module(), module()
    warmed(m.axpy, *given())
    a, x, y, out, k = given()
    for named in ({"k": k}, {"l": k}, {"k": k, "out": out}):
        first = [a, x, y, out][: 5 - len(named)]
        assert outcome(m.axpy, list(first), **named) == outcome(fresh.axpy, list(first), **named)


def test_arrays_changed_in_place() -> None:
    """The same object may have another shape or other memory a call later."""
    m = module()
    x, out = numbers(64 * 6, dtype=np.float64).reshape(64, 6), np.zeros(6)
    warmed(m.columns, x, out)
    x.shape = (32, 12)
    with pytest.raises(tessera.TesseraError, match="T0834"):
        m.columns(x, out)
    out.resize(12, refcheck=False)
    m.columns(x, out)
    assert np.allclose(out, x.sum(0))
    out.flags.writeable = False
    with pytest.raises(tessera.TesseraError):
        m.columns(x, out)


def test_more_layouts_than_are_kept() -> None:
    """The oldest is forgotten; a call of it is right all the same."""
    m = module()
    for _ in range(2):
        for n in range(1, 30):
            x, out = numbers(n * 3, dtype=np.float64).reshape(3, n), np.zeros(n)
            warmed(m.columns, x, out)
            assert np.allclose(out, x.sum(0))


def test_a_fault_is_raised_each_time() -> None:
    """With the message of the first time, and calls behind it work."""
    m, fresh = module(), module()
    x, at, out = numbers(5), np.zeros(1, np.int32), np.zeros(1, np.float32)
    warmed(m.picked, x, at, out)
    at[0] = 9
    for _ in range(3):
        with pytest.raises(tessera.TesseraError) as found:
            m.picked(x, at, out)
        with pytest.raises(tessera.TesseraError) as wanted:
            fresh.picked(x, at, out)
        assert str(found.value) == str(wanted.value)
    at[0] = 4
    m.picked(x, at, out)
    assert out[0] == x[4]


def test_results_are_new_each_time() -> None:
    """And nothing holds on to arguments or results."""
    m = module()
    x = numbers(N)
    for function in (m.doubled, m.chained, m.worked):
        warmed(function, x)
        before = sys.getrefcount(x)
        made = [function(x) for _ in range(100)]
        assert len({a.__array_interface__["data"][0] for a in made}) == 100
        assert sys.getrefcount(x) == before and {sys.getrefcount(a) for a in made} == {3}
        assert len({a.tobytes() for a in made}) == 1


def test_arrays_that_are_filled_anew() -> None:
    """With any number, of any width."""
    m = module()
    for n in (1, 3, N, 70):
        want = np.full((n, 2), 7, np.int16)
        for seed in range(20):
            x = numbers(n, seed)
            want[:, 1] = np.where(x > 0, 9, 7)
            assert np.array_equal(m.filled(x), want)
    warmed(m.filled, numbers(N))


def test_functions_of_several_launches() -> None:
    """Constants are part of a layout, by position and by name; zeros are filled anew."""
    m = module()
    for by in (1, 2, 1000, 1.0):
        for call in (lambda x: m.chained(x, by), lambda x: m.chained(x, by=by)):  # noqa: B023
            try:
                first = call(numbers(N))
            except tessera.TesseraError:
                assert by == 1.0
                continue
            for seed in range(40):
                x = numbers(N, seed)
                assert np.array_equal(call(x), (4 * x + by + x).reshape(1, N))
            assert np.array_equal(first, call(numbers(N)))
    warmed(m.chained, numbers(N))


def test_a_workspace_that_is_left_full() -> None:
    """Is told, and is empty again for the next call."""
    m = module()
    x = numbers(N)
    warmed(m.worked, x)
    for _ in range(2):
        with pytest.raises(tessera.TesseraError, match="T0854"):
            m.worked(np.full(N, 9, np.float32))
        assert np.array_equal(m.worked(x), x)


def test_a_workspace_is_looked_at_behind_each_launch() -> None:
    """Also where the next one would clean it, and where the call gives it back."""
    m = module()
    x = numbers(N)
    warmed(m.cleaned, x)
    for function in (m.cleaned, m.given_back):
        for _ in range(20):
            function(x)
        with pytest.raises(tessera.TesseraError, match="T0854"):
            function(np.full(N, 9, np.float32))


def test_a_workspace_of_a_call_that_failed() -> None:
    """The next call begins with zeros again."""
    m = module()
    x, at = np.ones(N, np.float32), np.zeros(1, np.int32)
    warmed(m.counted, x, at)
    for _ in range(3):
        at[0] = N + 5
        with pytest.raises(tessera.TesseraError, match="T0845"):
            m.counted(x, at)
        at[0] = 0
        for _ in range(20):
            assert m.counted(x, at).tolist() == [1]


def test_what_an_encoder_raises_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may come while a number becomes bits."""
    from tessera_backend.runtime import scalars

    m = module()
    warmed(m.axpy, *given())

    plain, left = scalars.encode, [1]

    def interrupted(*rest: Any) -> int:
        if left:
            left.pop()
            raise KeyboardInterrupt
        return plain(*rest)

    monkeypatch.setattr(scalars, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        m.axpy(*given())
    fresh, changed = module(), given()
    assert outcome(m.axpy, changed) == outcome(fresh.axpy, given())


class Number(float):
    """Runs code of its own when it is read."""

    called = None

    def __float__(self) -> float:
        if Number.called is not None:
            Number.called()
        return 2.0


def test_numbers_with_code_of_their_own() -> None:
    """It may call the kernel, or raise."""
    m, fresh = module(), module()
    for _ in range(40):
        m.axpy(Number(1.0), *given()[1:])
    again = given()
    Number.called = lambda: m.axpy(*again)
    try:
        changed, same = [Number(1.0), *given()[1:]], [Number(1.0), *given()[1:]]
        assert outcome(m.axpy, changed)[0] == outcome(fresh.axpy, same)[0] == ""
        assert changed[3].tobytes() == same[3].tobytes()

        def fail() -> None:
            raise ZeroDivisionError

        Number.called = fail
        with pytest.raises(ZeroDivisionError):
            m.axpy(*changed)
    finally:
        Number.called = None


def test_each_array_is_as_aligned_as_it_was() -> None:
    """Code of one launch relies on its own arrays, whatever those of others are."""
    m = module()
    x, y = numbers(N), numbers(N + 1, 1)[1:]
    assert x.ctypes.data % 16 == 0 and y.ctypes.data % 16
    warmed(m.two, x, y)
    layouts = len(m.two._host_tapes)
    assert np.array_equal(m.two(y, x), y + y + x)
    assert len(m.two._host_tapes) == layouts + 1


def test_a_finalizer_or_handler_that_calls() -> None:
    """While the tables of the same kernel are being changed: nobody waits for himself."""
    m = module()
    warmed(m.axpy, *given())
    for lock in (m.axpy._answering, m.axpy._family.lock):
        with lock:
            for n in (9, 10, 11):
                for _ in range(20):
                    m.axpy(2.0, numbers(n), numbers(n), np.zeros(n, np.float32), 3)
    warmed(m.chained, numbers(N))
    with m.chained._native_lock:
        for _ in range(20):
            m.chained(numbers(9))


def test_threads_that_call_at_once() -> None:
    """Each gets its own result, whoever is in machine code."""
    m = module()
    warmed(m.chained, numbers(N))
    failed: list[object] = []

    def work(seed: int) -> None:
        x = numbers(N, seed)
        want = (4 * x + 1 + x).reshape(1, N)
        out = np.zeros(N, np.float32)
        for _ in range(2000):
            m.axpy(1.0, x, x, out, 0)
            if not np.array_equal(m.chained(x), want) or not np.array_equal(out, x + x):
                failed.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_what_is_let_go() -> None:
    """Kernels, tables and blocks go with their module."""
    import weakref

    m = module()
    warmed(m.doubled, numbers(N))
    gone = weakref.ref(m.doubled)
    table = weakref.ref(type(m.doubled).__call__.__self__)
    del m
    gc.collect()
    assert gone() is None and table() is None


def test_a_long_launch_goes_back_to_threads() -> None:
    """Smallness is looked at in each call."""
    m = module()
    x, out = np.zeros((1 << 10, 8)), np.zeros(8)
    warmed(m.columns, x, out)
    big, sums = np.ones((1 << 16, 8)), np.zeros(8)
    for _ in range(40):
        m.columns(big, sums)
    assert sums.tolist() == [1 << 16] * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_in_a_forked_child() -> None:
    m = module()
    x = numbers(N)
    warmed(m.doubled, x)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(m.doubled(x), x * 2) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_launches_that_need_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout keeps no more than a little of its own."""
    from tessera_backend.runtime import cpu_code

    monkeypatch.setattr(cpu_code, "MOST_BYTES", 1)
    m = tessera.compile(
        "@op.kernel\ndef product(x: f32[m, k], y: f32[k, n]) -> f32[m, n]: return x @ y\n",
        target="cpu",
    )
    x = numbers(256).reshape(16, 16)
    for _ in range(40):
        assert np.allclose(m.product(x, x), x @ x, rtol=1e-4, atol=1e-4)
    assert m.product._native is None
    monkeypatch.setattr(cpu_code, "MOST_BYTES", 1 << 20)
    for _ in range(40):
        m.product(x, x)
    assert m.product._native is not None


def test_a_bound_call() -> None:
    m = module()
    _, x, y, out, k = given()
    call = m.axpy.bind(2.0, x, y, out, k)
    for _ in range(3):
        out[:] = 0
        call()
        assert np.array_equal(out, np.float32(2.0) * x + y + np.float32(3))
    out.resize(4 * N, refcheck=False)
    with pytest.raises(tessera.TesseraError, match="T0851"):
        call()


def test_with_one_thread_a_long_launch_stays_here() -> None:
    """There is nobody to wake. With more threads the call after the next goes to them."""
    m = module()
    x, out = np.ones(1 << 20, np.float32), numbers(1 << 20)
    events: list[str] = []

    def python_functions() -> int:
        events.clear()
        sys.setprofile(lambda frame, event, argument: events.append(event))
        m.halved(x, out)
        sys.setprofile(None)
        return events.count("call")

    tessera.set_num_threads(1)
    try:
        warmed(m.halved, x, out)
        assert python_functions() == 0
        assert (out == 0.5).all()
        tessera.set_num_threads(2)
        m.halved(x, out)
        assert python_functions() > 0
    finally:
        sys.setprofile(None)
        tessera.set_num_threads(None)
    assert (out == 0.5).all()
