"""std.random against the published answers and a reference in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tests.stdlib.arrays import DTYPES, INTEGERS, TARGETS, module, one_thread, same
from tests.stdlib.assembled import needs_ptxas
from tests.unit.lower.ast_to_schedule.test_early_exits import loaded
from tests.unit.lower.ast_to_schedule.test_numpy_names_assembled import assembled

MASK = np.uint64(0xFFFFFFFF)
SIZES = (0, 1, 2, 3, 4, 5, 1023, 1024, 1025, 10007)
# Counter, key, words: the known answers that Random123 is tested with.
KNOWN = (
    ("00000000 00000000 00000000 00000000", "00000000 00000000",
     "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
)  # fmt: skip


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.random", str(request.param))


def words_of(text: str) -> list[int]:
    return [int(w, 16) for w in text.split()]


def philox(counters: Any, key: tuple[int, int]) -> Any:
    """Ten rounds on rows of four words, held in 64 bits."""
    c = counters.astype(np.uint64)
    k = [np.uint64(v) for v in key]
    for _ in range(10):
        left, right = c[:, 0] * np.uint64(0xD2511F53), c[:, 2] * np.uint64(0xCD9E8D57)
        c = np.stack([
            (right >> np.uint64(32)) ^ c[:, 1] ^ k[0], right & MASK,
            (left >> np.uint64(32)) ^ c[:, 3] ^ k[1], left & MASK,
        ], axis=1)  # fmt: skip
        k = [(k[0] + np.uint64(0x9E3779B9)) & MASK, (k[1] + np.uint64(0xBB67AE85)) & MASK]
    return c


def words(count: int, stream: int, seed: int) -> Any:
    """The first `count` words of a stream."""
    blocks = -(-count // 4)
    counters = np.zeros((blocks, 4), np.uint64)
    counters[:, 0] = np.arange(blocks)
    counters[:, 2] = stream
    key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
    return philox(counters, key).reshape(-1)[:count]


def long_words(count: int, stream: int, seed: int) -> Any:
    both = words(2 * count, stream, seed)
    return both[0::2] << np.uint64(32) | both[1::2]


def test_the_published_answers(std: Any) -> None:
    counters = np.array([words_of(c) for c, _, _ in KNOWN], np.uint32)
    keys = np.array([words_of(k) for _, k, _ in KNOWN], np.uint32)
    out = np.zeros_like(counters)
    std.philox_words(counters, keys, out)
    same(out, np.array([words_of(w) for _, _, w in KNOWN], np.uint32))
    same(philox(counters[1:2], (keys[1, 0], keys[1, 1])).astype(np.uint32), out[1:2])


@pytest.mark.parametrize("seed", [0, 1, -1, 2**40 + 7])
def test_uniform(std: Any, seed: int) -> None:
    for n in SIZES:
        found = std.uniform((n,), seed=seed)
        assert found.dtype == np.float32
        same(found, ((words(n, 0, seed) >> np.uint64(8)) * 2.0**-24).astype(np.float32))
        found = std.uniform((n,), seed=seed, dtype="f64")
        same(found, (long_words(n, 1, seed) >> np.uint64(11)) * 2.0**-53)
    unit = std.uniform((1000,), seed=seed)
    moved = std.uniform((1000,), seed=seed, low=-3.0, high=5.0)
    same(moved, np.float32(-3) + np.float32(8) * unit)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.sample(2)
def test_integers(std: Any, dtype: str) -> None:
    limits = np.iinfo(DTYPES[dtype])
    most = min(int(limits.max), 2**63 - 1)
    for low, high in ((0, 2), (3, 4), (int(limits.min), most), (most - 5, most)):
        for n in (0, 1, 5, 1025):
            found = std.integers((n,), seed=3, low=low, high=high, dtype=dtype)
            assert found.dtype == DTYPES[dtype]
            drawn = [low + (int(w) * (high - low) >> 64) for w in long_words(n, 4, 3)]
            same(found, np.array(drawn, DTYPES[dtype]))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.sample(1)
def test_normal(std: Any, dtype: str) -> None:
    for n in SIZES:
        assert std.normal((n,), seed=2, dtype=dtype).shape == (n,)
    x = std.normal((400_000,), seed=2, dtype=dtype)
    assert x.dtype == DTYPES[dtype] and np.isfinite(x).all()
    x = np.sort(x.astype(np.float64))
    for below, share in ((-2.0, 0.022750), (-1.0, 0.158655), (0.0, 0.5), (1.5, 0.933193)):
        assert abs(np.searchsorted(x, below) / x.size - share) < 0.003
    assert abs(x.mean()) < 0.006 and abs(x.std() - 1) < 0.005


def test_normal_is_that_of_box_and_muller(std: Any) -> None:
    found = std.normal((4000,), seed=2)
    w = words(4000, 2, 2).astype(np.float64)
    radius = np.sqrt(-2 * np.log(w[0::2] * 2.0**-32 + 2.0**-33))
    angle = 2 * np.pi * (np.floor(w[1::2] / 256) * 2.0**-24)
    expected = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


def test_shapes_are_filled_in_row_major_order(std: Any) -> None:
    flat = std.uniform((105,), seed=8)
    same(std.uniform((3, 5, 7), seed=8), flat.reshape(3, 5, 7))
    same(std.uniform((), seed=8), flat[0])
    assert std.integers((2, 0), seed=8).shape == (2, 0)


def test_same_numbers_with_any_threads(std: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bits: set[bytes] = set()
    for threads in (1, 2, 5):
        one_thread(monkeypatch, threads)
        bits.add(std.normal((50_001,), seed=1).tobytes())
    assert len(bits) == 1


def test_same_normal_numbers_on_both_targets(std: Any) -> None:
    same(std.normal((10_007,), seed=6), module("std.random", "cpu").normal((10_007,), seed=6))


@pytest.mark.parametrize("call", [
    "uniform((-1,))", "uniform(3, dtype='i32')", "normal(3, dtype='f16')", "uniform()",
    "integers(3, low=5, high=5)", "integers(3, low=0, high=257, dtype='u8')",
    "integers(3, low=-1, high=3, dtype='u64')", "integers(3, dtype='f32')",
    "normal('three')", "uniform(3, seed=0.5)",
])  # fmt: skip
def test_wrong_calls_are_diagnostics(std: Any, call: str) -> None:
    with pytest.raises(tessera.TesseraError) as caught:
        eval(f"std.{call}", {"std": std})
    assert not any(d.code.startswith("T09") for d in caught.value.diagnostics)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.sample(1)
def test_arrays_are_filled_in_place(std: Any, dtype: str) -> None:
    """With what the functions give that allocate, whatever lies between the elements."""
    for n in (0, 1, 1027):
        given = np.full((n, 2), 7, DTYPES[dtype])
        std.fill_uniform(given[:, 0], 3, -1.0, 2.0)
        std.fill_normal(given[::-1, 1], 4)
        same(given[:, 0], std.uniform((n,), 3, -1.0, 2.0, dtype=dtype))
        same(given[::-1, 1], std.normal((n,), 4, dtype=dtype))


def test_what_is_not_filled(std: Any) -> None:
    for wrong in (np.zeros((2, 3), np.float32), np.zeros(5, np.int32), np.zeros(5, np.float16)):
        with pytest.raises(tessera.TesseraError):
            std.fill_uniform(wrong)
        with pytest.raises(tessera.TesseraError):
            std.fill_normal(wrong)


AT = """
from std.random import integers_at, normal_at, uniform_at

@op.kernel
def made(x: f32[n], seed: i64):
    place = op.arange(1003)
    return uniform_at(place, seed), normal_at(place, seed), integers_at(place, seed, -5, 100)

@op.kernel
def dropout(x: f32[m, n], y: mut f32[m, n], seed: i64):
    for i, j in op.tile_range(m, n, step=(16, 32)):
        at = (i + op.arange(16))[:, None] * n + (j + op.arange(32))[None, :]
        y[i:i+16, j:j+32] = op.where(uniform_at(at, seed) >= 0.25, x[i:i+16, j:j+32], 0.0)

@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def lanes(out: mut f32[n], seed: i64):
    i = grid_tile_linear_id()
    if i < n: out[i] = normal_at(i, seed) + uniform_at(i, seed)
"""


@pytest.mark.parametrize("target", ["cpu", "sm_90a", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.sample(1)
def test_kernels_have_the_same_numbers(target: str) -> None:
    """In tiles and in lanes, bit for bit those that the host program has."""
    made, host = loaded(AT, target), tessera.load("std.random")
    for seed in (0, 2**40 + 3):
        u, z, k = made.made(np.zeros(3, np.float32), seed)
        np.testing.assert_array_equal(u, host.uniform((1003,), seed=seed))
        np.testing.assert_array_equal(z, host.normal((1003,), seed=seed))
        np.testing.assert_array_equal(k, host.integers((1003,), seed=seed, low=-5, high=100))
        x = np.arange(1, 40 * 70 + 1, dtype=np.float32).reshape(40, 70)
        y = np.zeros_like(x)
        made.dropout(x, y, seed)
        kept = np.asarray(host.uniform(x.shape, seed=seed)) >= 0.25
        np.testing.assert_array_equal(y, np.where(kept, x, 0))
        out = np.zeros(999, np.float32)
        made.lanes(out, seed)
        z, u = host.normal((999,), seed=seed), host.uniform((999,), seed=seed)
        np.testing.assert_array_equal(out, np.asarray(z) + np.asarray(u))


@needs_ptxas
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.slow
def test_ptxas_takes_kernels_with_them(arch: str) -> None:
    assembled(AT, ("made", "dropout"), arch)


@pytest.mark.parametrize(("call", "code"), [
    ("uniform_at(op.arange(4))", "T0105"), ("uniform_at(x, 1)", "T0208"),
    ("uniform_at(op.arange(4), 1.5)", "T0202"), ("op.random((4,))", "T0114"),
])  # fmt: skip
def test_wrong_calls_in_tile_kernels(call: str, code: str) -> None:
    text = "from std.random import uniform_at\n@op.kernel\ndef k(x: f32[n]):\n"
    found = Session(overlay={"k.tessera": f"{text}    return {call}\n"}).check("k.tessera", ())
    assert code in [d.code for d in found], found
