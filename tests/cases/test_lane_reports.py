"""More faults that users met in other tools, in lane kernels: the reports that
``test_public_reports`` leaves out, each with the public report of its kind, on both targets.
"""

from __future__ import annotations

import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
BF16 = np.dtype(ml_dtypes.bfloat16)
INF, NAN = np.inf, np.nan


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def load(source: str, target: str = "cpu") -> Any:
    return tessera.compile(source, target=target)


def codes(source: str) -> list[str]:
    session = Session()
    session.set_text("p.tessera", source, 1)
    return [d.code for d in session.check("p.tessera")]


# --- sizes and offsets -------------------------------------------------------------------------


def test_neighbours_outside_of_an_image(target: str) -> None:
    """B03 size: triton#737. What is outside is what the program says, and nothing leaks."""
    source = """
@kernel tile[(8, 8)] grid[(1,)]
def sums(img: f16[m, n], out: mut f32[m, n]):
    i = tile_id(0)
    j = tile_id(1)
    total: f32 = 0.0
    for a in range(-1, 2):
        for b in range(-1, 2):
            v = f16(0)
            if 0 <= i + a and i + a < m and 0 <= j + b and j + b < n: v = img[i + a, j + b]
            total += v
    if i < m and j < n: out[i, j] = total
"""
    for shape in ((8, 8), (7, 5), (1, 1)):
        img = np.random.default_rng(0).integers(-9, 10, shape).astype(np.float16)
        out = np.full(shape, NAN, np.float32)
        load(source, target).sums(img, out)
        wide = np.pad(img.astype(np.float32), 1)
        m, n = shape
        want = sum(wide[d : d + m, e : e + n] for d in range(3) for e in range(3))
        assert np.array_equal(out, want)


def test_a_read_behind_the_end_is_the_value_asked_for(target: str) -> None:
    """B07 size: jax#21143. It is neither moved back nor what lies there."""
    source = """
@kernel tile[(8,)] grid[(1,)]
def filled(x: f32[n], start: index, out: mut f32[8]):
    i = start + tile_linear_id()
    out[tile_linear_id()] = x[i] if 0 <= i and i < n else -1.0
"""
    base = np.full(24, 77, np.float32)
    base[8:16] = np.arange(8)
    out = np.zeros(8, np.float32)
    for start in (3, 0, 8, 100, -3):
        load(source, target).filled(base[8:16], start, out)
        want = [float(k) if 0 <= k < 8 else -1.0 for k in range(start, start + 8)]
        assert out.tolist() == want


FAR = """
@kernel tile[(32,)] grid[(1,)]
def row(a: i8[b, t, h, k], x: index, y: index, z: index, out: mut i8[k]):
    for j in range(tile_linear_id(), k, 32): out[j] = a[x, y, z, j]

@kernel tile[(32,)] grid[(1,)]
def flat(a: i8[n], x: i32, y: i32, out: mut i8[1]):
    if tile_linear_id() == 0: out[0] = a[index(x) * index(y)]
"""


@pytest.mark.parametrize("rows", [4095, 4096, 4098])
def test_offsets_around_two_to_the_31(rows: int, target: str) -> None:
    """B15, B17 overflow: flash-linear-attention#1080. Just below 2^31 elements and just above.
    The memory is never touched but for what is read."""
    shape = (2, rows, 4, 65536)
    torch: Any = pytest.importorskip("torch") if target == "cuda" else None
    if torch is not None:
        a = torch.zeros(shape, dtype=torch.int8, device="cuda")
    else:
        a = np.zeros(shape, np.int8)
    m = load(FAR, target)
    for place in ((0, 0, 0), (0, rows - 1, 3), (1, 0, 0), (1, rows - 1, 3)):
        values = np.random.default_rng(sum(place)).integers(-128, 128, 65536).astype(np.int8)
        if torch is not None:
            a[place] = torch.from_numpy(values).cuda()
        else:
            a[place] = values
        out = np.zeros(65536, np.int8)
        m.row(a, *place, out)
        tessera.synchronize()
        assert np.array_equal(out, values)
        a[place] = 0


def test_a_product_of_two_i32_that_is_an_index() -> None:
    """B162 overflow: Halide#3245, as an index: it is made of 64 bits where the program says so."""
    a = np.zeros(2**31 + 2**17, np.int8)
    a[65536 * 32769] = 5
    out = np.zeros(1, np.int8)
    load(FAR).flat(a, 65536, 32769, out)
    assert out[0] == 5


def test_what_is_added_before_it_is_multiplied(target: str) -> None:
    """B162 overflow: Halide#3245. ``(x + c0) * c1`` wraps as it is written, also as an index."""
    source = """
@kernel tile[(8,)] grid[(1,)]
def f(x: i32[n], a: f32[m], out: mut i32[n], picked: mut f32[n]):
    i = tile_linear_id()
    if i < n:
        out[i] = (x[i] + 2147483000) * 7
        k = (x[i] + 2147483000) * 7 & 63
        picked[i] = a[k]
"""
    x = np.array([-2147483000, -2147483648, 2147483647, 0, 647, 648, -1], np.int32)
    with np.errstate(over="ignore"):
        want = (x + np.int32(2147483000)) * np.int32(7)
    a, out, picked = np.arange(64, dtype=np.float32), np.zeros_like(x), np.zeros(7, np.float32)
    load(source, target).f(x, a, out, picked)
    assert np.array_equal(out, want) and np.array_equal(picked, want & 63)


# --- loops that are written out ------------------------------------------------------------------

TURNS = """
@kernel tile[(1,)] grid[(1,)]
def f(out: mut i32[8], least: mut i32[1], x: i32[n]):
    k = 0
    for i in range(5):
        for j in range(4):
            if i == 3:
                out[k] = i32(j)
                k += 1
    least[0] = -1
    for i in range(16):
        if i < n and x[i] < 0:
            least[0] = i32(i)
            break
"""


def test_a_short_loop_runs_all_its_turns(target: str) -> None:
    """B60, B72 flow: taichi#4479, tilelang#2608. Known bounds, which a compiler writes out: every
    turn under the condition, and a `break` that ends it."""
    m = load(TURNS, target)
    for first in (0, 7, 15, 16):
        x = np.ones(16, np.int32)
        x[first:] = -1
        out, least = np.full(8, 9, np.int32), np.zeros(1, np.int32)
        m.f(out, least, x)
        assert out.tolist() == [0, 1, 2, 3, 9, 9, 9, 9]
        assert least[0] == (first if first < 16 else -1)


@pytest.mark.parametrize("word", ["unroll(range(4))", "range(unroll(4))", "schedule.unroll(4)"])
def test_a_loop_is_not_told_to_be_written_out(word: str) -> None:
    """B60, B133: lanes have no directive for it; one is refused, never dropped."""
    source = TURNS.replace("range(4)", word)
    assert codes(source)


@pytest.mark.parametrize("nested", [1, 3])
def test_a_long_loop_is_compiled_in_no_time(nested: int) -> None:
    """B133 compile: taichi#8151. A hundred thousand turns, and a million in three loops."""
    count = 100_000 if nested == 1 else 100
    lines = [f"{'    ' * (k + 1)}for i{k} in range({count}):" for k in range(nested)]
    source = "@kernel tile[(1,)] grid[(1,)]\ndef f(out: mut i64[1]):\n    t: i64 = 0\n"
    source += "\n".join(lines) + f"\n{'    ' * (nested + 1)}t += i64(i0) % 3\n    out[0] = t\n"
    start = time.monotonic()
    out = np.zeros(1, np.int64)
    load(source).f(out)
    assert out[0] == sum(k % 3 for k in range(count)) * count ** (nested - 1)
    assert time.monotonic() - start < 30


# --- barriers and races ---------------------------------------------------------------------------

EXCHANGE = """
@kernel tile[(64,)] shared(1_KiB) grid[(200,)]
def f(x: i32[64], out: mut i32[200, 64]):
    s = tshared.alloc((64,), i32)
    t = tile_linear_id()
    s[t] = x[t]
{between}    if t % 2 == 0:
        a = s[t + 1]
        s[t] = a
    tbarrier()
    out[group_linear_id(), t] = s[t]
"""


def test_no_barrier_is_put_where_lanes_part(target: str) -> None:
    """B75 barrier: tilelang#1026. None is made by the compiler: with the one that is written it
    runs, and without it the race is said with both lanes."""
    x, out = np.arange(64, dtype=np.int32), np.zeros((200, 64), np.int32)
    load(EXCHANGE.format(between="    tbarrier()\n"), target).f(x, out)
    assert (out == (x | 1)).all()
    assert codes(EXCHANGE.format(between="")) == ["T0410"]


SUM = """
@kernel tile[(64,)] shared(1_KiB) grid[(1,)]
def f(x: f32[n], out: mut f32[64]):
    s = tshared.alloc((64,), f32)
    t = tile_linear_id()
    total: f32 = 0.0
    for k in range({tiles}):
        s[t] = x[k * 64 + t]
        tbarrier()
        total += s[63 - t]
{end}    out[t] = total
"""


@pytest.mark.parametrize("tiles", [1, 2, 3])
def test_the_barrier_at_the_end_of_a_loop(tiles: int, target: str) -> None:
    """B83, B91 race: HeCBench#253. With one tile none is missing; with two it is an error."""
    clean = "        tbarrier()\n" if tiles > 1 else ""
    source = SUM.format(tiles=tiles, end=clean)
    assert codes(source) == []
    x, out = np.arange(64 * tiles, dtype=np.float32), np.zeros(64, np.float32)
    load(source, target).f(x, out)
    assert np.array_equal(out, x.reshape(tiles, 64)[:, ::-1].sum(axis=0))
    if tiles > 1:
        assert codes(SUM.format(tiles=tiles, end="")) == ["T0410"]


# --- atomics -------------------------------------------------------------------------------------

EXTREMES = """
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def f(x: {t}[n], high: mut {t}[1], low: mut {t}[1]):
    i = grid_tile_linear_id()
    if i < n:
        atomic_max(high[0], x[i])
        atomic_min(low[0], x[i])
"""
SETS = {
    "negative": [-3.0, -1.5, -7.0], "mixed": [-3.0, 2.5, 0.0, -0.5], "zeros": [0.0, -0.0],
    "infinities": [-INF, 5.0, INF], "nan": [-1.0, NAN, 7.0], "below all": [-INF, -INF],
    "subnormal": [-1e-45, 1e-45],
}  # fmt: skip


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_extremes_of_floats_by_atomics(target: str, dtype: str, name: str) -> None:
    """B99 atomic: atomicMax for floats. As `max` and `min`: -0.0 is less, a NaN stays."""
    kind = {"f16": np.dtype(np.float16), "bf16": BF16, "f32": np.dtype(np.float32),
            "f64": np.dtype(np.float64)}[dtype]  # fmt: skip
    x = np.tile(np.array(SETS[name]).astype(kind), 50)
    high, low = np.full(1, -INF).astype(kind), np.full(1, INF).astype(kind)
    load(EXTREMES.format(t=dtype), target).f(x, high, low)
    wide = x.astype(np.float64)
    for found, right in ((high, wide.max()), (low, wide.min())):
        got = float(found.astype(np.float64)[0])
        assert np.isnan(got) if np.isnan(right) else got == right
    if name == "zeros":
        assert not np.signbit(high[0]) and np.signbit(low[0])


# --- scans and reductions ------------------------------------------------------------------------

RECURRENCE = """
@kernel tile[(128,)] shared(4_KiB) grid[(1,)]
def f(x: f64[n], g: f64[n], out: mut f64[n]):
    a = tshared.alloc((128,), f64)
    b = tshared.alloc((128,), f64)
    t = tile_linear_id()
    carry: f64 = 0.0
    for start in range(0, n, 128):
        v = x[start + t] if start + t < n else f64(0)
        w = g[start + t] if start + t < n else f64(1)
        a[t] = v
        b[t] = w
        tbarrier()
        s = 1
        while s < 128:
            if t >= s:
                v = a[t - s] * w + v
                w = b[t - s] * w
            tbarrier()
            a[t] = v
            b[t] = w
            tbarrier()
            s *= 2
        if start + t < n: out[start + t] = v + carry * w
        carry = a[127] + carry * b[127]
        tbarrier()
"""


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 64, 128, 1000])
def test_a_scan_whose_operator_does_not_commute(n: int, target: str) -> None:
    """B103 scan: triton#2359. ``(x1 * g2 + x2, g1 * g2)``, in a tree, equals the loop; B105: an
    operator of one's own is written out, in the order that it is to have."""
    r = np.random.default_rng(n)
    x, g = r.uniform(-1, 1, n), r.uniform(-1, 1, n)
    out, want, state = np.zeros(n), np.zeros(n), 0.0
    for k in range(n):
        state = want[k] = state * g[k] + x[k]
    load(RECURRENCE, target).f(x, g, out)
    assert np.abs(out - want).max() < 1e-12


ORDERED = """
@kernel tile[(1,)] grid[(1,)]
def f(x: f32[n], out: mut f32[n]):
    state: f32 = 0.0
    for k in range(n):
        state = state * 0.5 + x[k] if k > 0 else x[k]
        out[k] = state
"""


def test_a_scan_whose_operator_is_not_associative(target: str) -> None:
    """B105 scan: triton#3485. In sequence: 1, 2.5, 4.25, 6.125. `std.scan` has sums and extremes
    only, so none is given that the tree would change."""
    out = np.zeros(4, np.float32)
    load(ORDERED, target).f(np.arange(1, 5, dtype=np.float32), out)
    assert out.tolist() == [1, 2.5, 4.25, 6.125]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.sample(1)
def test_a_scan_of_some_rows(axis: int, target: str) -> None:
    """B107 scan: tilelang#2536. A part of an array is scanned where it lies, and nothing else."""
    scan = tessera.load("std.scan", target=target)
    x = np.random.default_rng(0).integers(-9, 10, (128, 32)).astype(np.int32)
    before = x.copy()
    part = x[64:96, 3] if axis == 0 else x[77, 5:30]
    assert np.array_equal(np.asarray(scan.inclusive(part)), part.cumsum())
    assert np.array_equal(x, before)


@pytest.mark.parametrize("dtype", [
    "f16", *(pytest.param(t, marks=pytest.mark.slow) for t in ("f8e4m3", "bf16", "f32", "f64")),
])  # fmt: skip
def test_nan_goes_through_every_reduction(target: str, dtype: str) -> None:
    """B115 reduce: tilelang#2697. Of every float dtype, whole and along an axis, first or last."""
    kind = {"f8e4m3": ml_dtypes.float8_e4m3fn, "f16": np.float16, "bf16": BF16,
            "f32": np.float32, "f64": np.float64}[dtype]  # fmt: skip
    reduce = tessera.load("std.reduce", target=target)
    for place in (0, 150, 299):
        x = np.ones((3, 300)).astype(kind)
        x[1, place] = NAN
        for name in ("max", "min", "sum"):
            f = getattr(reduce, name)
            assert np.isnan(np.asarray(f(x)).astype(np.float64))
            rows = np.asarray(f(x, axis=1)).astype(np.float64)
            assert np.isnan(rows).tolist() == [False, True, False]
            columns = np.asarray(f(x, axis=0)).astype(np.float64)
            assert np.flatnonzero(np.isnan(columns)).tolist() == [place]


# --- devices -------------------------------------------------------------------------------------


def test_code_is_for_the_architecture_that_was_asked_for() -> None:
    """B143 device: cutile. The architecture is a part of what is compiled, and of its key."""
    source = (
        "@kernel tile[(32,)] grid[(1,)]\ndef f(out: mut f32[32]):\n"
        "    out[tile_linear_id()] = 1.0\n"
    )
    session = Session(overlay={"p.tessera": source})
    signature = session.signature("p.tessera", "f")
    texts: list[str] = []
    for arch in ("sm_80", "sm_90a", "sm_80"):
        made = session.compile_kernel("p.tessera", "f", signature, TargetOptions("cuda", arch),
                                      stages=("ptx",))  # fmt: skip
        assert made.options.arch == arch and f".target {arch}" in made.texts["ptx"]
        texts.append(made.texts["ptx"])
    assert texts[0] == texts[2] != texts[1]
