"""Memory that calls leave behind serves later calls, and never an array that somebody has."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tessera_backend.runtime.spare_memory import FEWEST, MOST, SpareMemory, spare_memory

import tessera_lang as tessera

SOURCE = """
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def plus(x: f32[n], c: f32, out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n: out[i] = x[i] + c

@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def add(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n: out[i] = out[i] + x[i]

def chained(x):
    a = op.empty((x.shape[0],), dtype=f32)
    b = op.empty((x.shape[0],), dtype=f32)
    c = op.zeros((x.shape[0],), dtype=f32)
    plus(x, 1.0, a)
    plus(a, 2.0, b)
    add(b, c)
    return op.reshape(c, (-1, 2)), b
"""
N = FEWEST


def test_blocks_are_given_out_once() -> None:
    spare = SpareMemory()
    a = spare.empty((FEWEST,), np.dtype(np.uint8))
    b = spare.empty((FEWEST // 4,), np.dtype(np.float32))
    assert not np.shares_memory(a, b) and a.ctypes.data % 64 == b.ctypes.data % 64 == 0
    place = a.ctypes.data
    spare.give([a])
    again, other = (spare.empty((FEWEST,), np.dtype(np.uint8)) for _ in range(2))
    assert again.ctypes.data == place
    assert not np.shares_memory(again, other)


def test_no_more_than_so_much_is_kept() -> None:
    spare = SpareMemory()
    half = [spare.empty((MOST // 2,), np.dtype(np.uint8)) for _ in range(3)]
    places = [a.ctypes.data for a in half]
    spare.give(half)
    spare.give([spare.empty((MOST + 1,), np.dtype(np.uint8))])
    spare.give([spare.empty((1,), np.dtype(np.uint8))])
    found = [spare.empty((MOST // 2,), np.dtype(np.uint8)).ctypes.data for _ in range(2)]
    assert found[0] == places[2]
    assert spare._bytes == 0  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("n", [1000, N, 3 * N])
def test_results_stay_what_they_are(n: int) -> None:
    m = tessera.compile(SOURCE, target="cpu")
    kept = []
    for value in range(40):
        x = np.full(n, value, np.float32)
        kept.append((value, *m.chained(x)))
    for value, c, b in kept:
        assert (c == value + 3).all() and (b == value + 3).all()


def test_threads_at_once() -> None:
    m = tessera.compile(SOURCE, target="cpu")
    wrong: list[float] = []

    def work(first: int) -> None:
        for value in range(first, first + 30):
            c, b = m.chained(np.full(N, value, np.float32))
            if not ((c == value + 3).all() and (b == value + 3).all()):
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(1000 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_call_leaves_what_it_does_not_give() -> None:
    """Of three arrays two are given to the caller."""
    m = tessera.compile(SOURCE, target="cpu")
    x = np.ones(5 * N + 2, np.float32)
    for _ in range(3):
        m.chained(x)
    sizes = [block.size for block in spare_memory._blocks]  # pyright: ignore[reportPrivateUsage]
    own = [size for size in sizes if x.nbytes <= size <= x.nbytes + 8192]
    assert len(own) == 1
