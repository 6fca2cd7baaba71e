"""Atomics of every dtype they take, on both targets: nothing lost, no neighbour touched.

Lanes of many groups meet on a few elements beside others that must stay; what is read back is
compared with NumPy, and the old values that atomics give are checked where their order cannot
matter. Sums are of numbers whose every order of adding is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.sema.atomics import SUPPORTED
from tests.stdlib.arrays import DTYPES, TARGETS

LANES, GROUPS = 64, 16
N = LANES * GROUPS
CELLS = 5  # elements that lanes meet on; between them lie others that must not change
COMBINE = {"add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum,
           "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}  # fmt: skip

GLOBAL = """
@kernel tile[(64,)] grid[(16,)]
def k_{op}(x: {t}[n], out: mut {t}[m]) where m == 11, n == 1024:
    i = grid_tile_linear_id()
    atomic_{op}(out[i % 5 * 2 + 1], x[i], scope="{scope}")
"""
SHARED = """
@kernel tile[(64,)] grid[(1,)]
def k_{op}(x: {t}[n], out: mut {t}[m]) where m == 11, n == 1024:
    cells = tshared.alloc((11,), {t})
    lane = tile_linear_id()
    if lane < 11: cells[lane] = out[lane]
    tbarrier()
    for i in range(lane, 1024, 64):
        atomic_{op}(cells[i % 5 * 2 + 1], x[i], scope="group")
    tbarrier()
    if lane < 11: out[lane] = cells[lane]
"""
TICKETS = """
@kernel tile[(64,)] grid[(16,)]
def swap(x: {t}[n], out: mut {t}[m], old: mut {t}[n]) where m == 3, n == 1024:
    i = grid_tile_linear_id()
    old[i] = atomic_exchange(out[1], x[i], scope="{scope}")

@kernel tile[(64,)] grid[(16,)]
def elect(x: {t}[n], out: mut {t}[m], old: mut {t}[n]) where m == 3, n == 1024:
    i = grid_tile_linear_id()
    old[i] = atomic_cas(out[1], {t}(0), x[i], scope="{scope}", order="acq_rel")

@kernel tile[(64,)] grid[(16,)]
def move(x: {t}[n], out: mut {t}[m], old: mut {t}[n]) where m == 1024, n == 1024:
    i = grid_tile_linear_id()
    atomic_store(out[i], x[i], scope="{scope}", order="release")
    old[i] = atomic_load(out[i], scope="{scope}", order="acquire")
"""
CASES = [(t, op) for op in COMBINE for t in SUPPORTED[op] if t != "index"]


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def sample(dtype: str, op: str) -> Any:
    r = np.random.default_rng(7)
    kind = DTYPES[dtype]
    if dtype == "bool":
        return r.integers(0, 2, N).astype(kind)
    if dtype.startswith(("i", "u")):
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        return r.integers(low, high, N, kind, endpoint=True)
    if op in ("add", "sub"):  # every partial sum is a whole number that each dtype holds
        return np.where(np.arange(N) % 37 < 5, r.integers(0, 2, N), 0).astype(kind)
    bits = np.dtype(f"u{kind.itemsize}")
    values = r.integers(0, np.iinfo(bits).max, N, bits, endpoint=True).view(kind)
    with np.errstate(invalid="ignore"):
        values[np.isnan(values.astype(np.float64))] = 0
    return values


def combined(op: str, start: Any, x: Any) -> Any:
    """Element by element, in any order."""
    out = start.copy()
    with np.errstate(over="ignore"):
        for cell in range(CELLS):
            part = x[np.arange(N) % CELLS == cell]
            value = out[2 * cell + 1]
            if op in ("min", "max"):
                wide = np.append(part, value).astype(np.float64) if x.dtype.kind in "fV" else None
                all_of = np.append(part, value)
                value = all_of[(np.argmin if op == "min" else np.argmax)(
                    all_of if wide is None else _with_signed_zeros(wide)
                )]  # fmt: skip
            else:
                for v in part:
                    value = x.dtype.type(COMBINE[op](value, v))
            out[2 * cell + 1] = value
    return out


def _with_signed_zeros(x: Any) -> Any:
    """Numbers in the same order, -0.0 below +0.0."""
    return np.where((x == 0) & np.signbit(x), -np.finfo(np.float64).smallest_subnormal, x)


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(("dtype", "op"), CASES)
@pytest.mark.sample
def test_nothing_is_lost_and_no_neighbour_changes(
    dtype: str, op: str, space: str, target: str
) -> None:
    text = (GLOBAL if space == "global" else SHARED).format(t=dtype, op=op, scope="device")
    x = sample(dtype, op)
    start = np.resize(sample(dtype, "min")[:11], 11)
    if op in ("add", "sub") and DTYPES[dtype].kind not in "iu":
        start = np.zeros(11, DTYPES[dtype])
    out = start.copy()
    getattr(tessera.compile(text, target=target), f"k_{op}")(x, out)
    tessera.synchronize()
    assert out.tobytes() == combined(op, start, x).tobytes()


@pytest.mark.parametrize("scope", ["device", "mesh"])
@pytest.mark.parametrize("dtype", [t for t in SUPPORTED["cas"] if t != "index"])
@pytest.mark.sample(1)
def test_values_change_hands_whole(dtype: str, scope: str, target: str) -> None:
    """What is exchanged comes out once each; one lane is elected; a word is never torn."""
    m = tessera.compile(TICKETS.format(t=dtype, scope=scope), target=target)
    x = sample(dtype, "min")
    start = np.resize(x[5:8], 3)
    out, old = start.copy(), np.zeros(N, DTYPES[dtype])
    m.swap(x, out, old)
    tessera.synchronize()
    assert sorted([*_bits(old), *_bits(out[1:2])]) == sorted([*_bits(x), *_bits(start[1:2])])
    assert _bits(out)[::2] == _bits(start)[::2]

    x[x.view(np.dtype(f"u{x.itemsize}")) == 0] = x.dtype.type(1)
    out, old = np.zeros(3, DTYPES[dtype]), np.zeros(N, DTYPES[dtype])
    m.elect(x, out, old)
    tessera.synchronize()
    # The first lane finds 0 and leaves its value; every other one finds that value.
    words = _bits(old)
    zero = bytes(DTYPES[dtype].itemsize)
    assert words.count(zero) == 1 and set(words) == {zero, _bits(out)[1]}
    assert _bits(out)[1] == _bits(x)[words.index(zero)]

    out, old = np.zeros(N, DTYPES[dtype]), np.zeros(N, DTYPES[dtype])
    m.move(x, out, old)
    tessera.synchronize()
    assert out.tobytes() == old.tobytes() == x.tobytes()


def _bits(x: Any) -> list[bytes]:
    return [v.tobytes() for v in x]


def test_a_skipped_atomic_gives_zero_and_reports(target: str) -> None:
    text = (
        "@kernel tile[(1,)] grid[(1,)]\n"
        "def k(out: mut u8[n], old: mut u8[1], at: index):\n"
        "    old[0] = atomic_add(out[at], 7)\n"
    )
    out, old = np.full(3, 9, np.uint8), np.full(1, 5, np.uint8)
    k = tessera.compile(text, target=target).k

    def call() -> None:
        k(out, old, 3)
        tessera.synchronize()

    with pytest.raises(tessera.TesseraError) as caught:
        call()
    assert "updates an element outside" in str(caught.value)
    assert out.tolist() == [9, 9, 9]
