"""``op.max(x[r, a:b])`` and its like in lane kernels: by a group where lanes agree, else by each
lane; clipped as slices are, guarded as elements are."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera
from tests.unit.lowering import lower_source, optimized

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
FLOATS = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip
INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
NUMPY = {
    **FLOATS,
    **{n: np.dtype(f"{'u' * (n[0] == 'u')}int{n[1:]}").type for n in INTEGERS},
    "bool": np.bool_,
}
SLICES = [(0, 70), (3, 11), (5, 5), (40, 20), (60, 1000), (90, 1000), (0, 33)]
Array = np.ndarray[Any, Any]


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def load(source: str, target: str) -> Any:
    return tessera.compile(source, target=target)


def values(dtype: str, *shape: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    low = 0 if dtype.startswith("u") else -3
    return rng.integers(low, 4, shape).astype(NUMPY[dtype])


def wide(dtype: str) -> str:
    """Where sums of a dtype are made."""
    if dtype in FLOATS:
        return dtype if dtype == "f64" else "f32"
    return "i32" if dtype in ("bool", "i8", "i16") else "u32" if dtype in ("u8", "u16") else dtype


def numbers(dtype: str, lanes: int, common: bool) -> str:
    """A kernel of every reduction of a slice: one row a group, or one row a lane."""
    total = wide(dtype)
    plain = dtype if dtype != "bool" else ""
    lines = ["total[r] = op.sum(x[r, a:b])"]
    lines += ["least[r] = op.min(x[r, a:b])", "most[r] = op.max(x[r, a:b])"] if plain else [
        "least[r] = op.all(x[r, a:b])", "most[r] = op.any(x[r, a:b])"]  # fmt: skip
    lines += ["if a < min(b, n):", "    place[r] = i32(op.argmax(x[r, a:b]))",
              "    last[r] = i32(op.argmin(x[r, a:b]))"]  # fmt: skip
    where = "group_linear_id()" if common else "grid_tile_linear_id()"
    body = "\n        ".join(lines)
    grid = "m" if common else f"ceil_div(m, {lanes})"
    return f"""
@kernel tile[({lanes},)] grid[({grid},)]
def f(
    x: {dtype}[m, n], a: i32, b: i32, total: mut {total}[m], least: mut {dtype}[m],
    most: mut {dtype}[m], place: mut i32[m], last: mut i32[m],
):
    r = {where}
    if r < m:
        {body}
"""


def expected(x: Array, dtype: str, a: int, b: int) -> list[Array]:
    part = x[:, a:b]
    floats = part.astype(np.float64) if dtype in FLOATS else part
    total = floats.sum(1).astype(NUMPY[wide(dtype)])
    if dtype == "bool":
        ends = [part.all(1), part.any(1)]
    elif part.shape[1]:
        ends = [part.min(1), part.max(1)]
    else:
        ends = [np.full(len(x), nothing(dtype, most), x.dtype) for most in (False, True)]
    if not part.shape[1]:
        return [total, *ends, *(np.zeros(len(x), np.int32) for _ in range(2))]
    places = [floats.argmax(1), floats.argmin(1)]
    return [total, *ends, *(p.astype(np.int32) for p in places)]


def nothing(dtype: str, most: bool) -> float:
    """What the least (greatest) of no elements is."""
    if dtype == "f8e4m3":
        return -448.0 if most else 448.0
    if dtype in FLOATS:
        return -np.inf if most else np.inf
    info = np.iinfo(NUMPY[dtype])
    return info.min if most else info.max


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.sample(1)
def test_every_dtype_and_kind(target: str, dtype: str) -> None:
    """One row a group (which shares it), and one row a lane (which does not)."""
    x = values(dtype, 5, 70)
    for lanes, common in ((96, True), (32, False)):
        f = load(numbers(dtype, lanes, common), target).f
        for a, b in SLICES if dtype == "f32" else SLICES[:3]:
            want = expected(x, dtype, a, b)
            found = [np.zeros_like(w) for w in want]
            f(x, a, b, *found)
            for one, other in zip(found, want, strict=True):
                assert np.array_equal(one, other), (lanes, a, b)


@pytest.mark.parametrize("lanes", [1, 7, 32, 48, 256])
@pytest.mark.sample(2)
def test_groups_of_any_size_share_long_rows(target: str, lanes: int) -> None:
    """Sums in f32, wide ones of f16, the mean and the variance; again and again in a loop."""
    source = f"""
@kernel tile[({lanes},)] grid[(2,)]
def f(x: f32[m, n], h: f16[m, n], out: mut f32[m, 4], short: mut f16[m]):
    for r in range(group_linear_id(), m, 2):
        out[r, 0] = op.sum(x[r, :])
        out[r, 1] = op.mean(x[r, :])
        out[r, 2] = op.var(x[r, :])
        out[r, 3] = op.sum(h[r, :])
        short[r] = -op.sum(h[r, :]) * 2
"""
    x = np.random.default_rng(1).uniform(-1, 1, (5, 1000)).astype(np.float32)
    h = np.full((5, 1000), 3.0, np.float16)
    out, short = np.zeros((5, 4), np.float32), np.zeros(5, np.float16)
    load(source, target).f(x, h, out, short)
    y = x.astype(np.float64)
    want = np.stack([y.sum(1), y.mean(1), y.var(1), np.full(5, 3000.0)], 1)
    assert np.abs(out - want).max() < 1000 * 2.0**-22
    assert np.array_equal(short, np.full(5, -6000, np.float16))


def test_several_axes_and_whole_arrays(target: str) -> None:
    """Slices along several axes, axes left out, negative ends, arrays of the group and of a lane,
    in a function that is called."""
    source = """
def total(x):
    return op.sum(x)

@kernel tile[(64,)] grid[(1,)]
def f(x: i32[a, b, c], out: mut i32[8]):
    own = tlocal.alloc((40,), i32)
    for k in range(40): own[k] = (k * tile_linear_id()).to(i32)
    near = tshared.alloc((64,), i32)
    near[tile_linear_id()] = tile_linear_id().to(i32)
    tbarrier()
    out[0] = op.sum(x)
    out[1] = op.sum(x[1])
    out[2] = op.sum(x[:, 2, 1:-1])
    out[3] = op.sum(x[-2:, :2, -3:])
    out[4] = total(x)
    out[5] = op.sum(near)
    out[6] = op.max(near[3:near.shape[0] - 4])
    if tile_linear_id() == 7:
        out[7] = op.sum(own)
"""
    x = values("i32", 3, 4, 50)
    out = np.zeros(8, np.int32)
    load(source, target).f(x, out)
    assert out.tolist() == [
        x.sum(), x[1].sum(), x[:, 2, 1:-1].sum(), x[-2:, :2, -3:].sum(), x.sum(), 2016, 59, 5460
    ]  # fmt: skip


def test_what_the_group_wrote_is_seen_by_all(target: str) -> None:
    """The elements are read behind a barrier: also of an array that the lanes have just written."""
    source = """
@kernel tile[(128,)] grid[(1,)]
def f(x: mut f32[n], out: mut f32[128]):
    for k in range(tile_linear_id(), n, 128):
        x[k] = 1.0
    first = op.sum(x)
    for k in range(tile_linear_id(), n, 128):
        x[k] = 2.0
    out[tile_linear_id()] = first + op.sum(x)
"""
    x, out = np.zeros(3000, np.float32), np.zeros(128, np.float32)
    load(source, target).f(x, out)
    assert np.array_equal(out, np.full(128, 9000, np.float32))


def test_the_first_of_equals_and_the_first_nan(target: str) -> None:
    source = """
@kernel tile[(64,)] grid[(1,)]
def f(x: f32[n], out: mut i32[4]):
    out[0] = i32(op.argmax(x))
    out[1] = i32(op.argmin(x))
    out[2] = i32(op.argmax(x[5:]))
    out[3] = i32(op.argmin(x[300:400]))
"""
    f = load(source, target).f
    for nan in (False, True):
        x = np.tile(np.array([1, 3, 2, 3, 1, 0, 0], np.float32), 60)
        x[333] = np.nan if nan else x[333]
        x[370] = np.nan if nan else x[370]
        out = np.zeros(4, np.int32)
        f(x, out)
        assert out.tolist() == [x.argmax(), x.argmin(), x[5:].argmax(), x[300:400].argmin()]


def test_faults_are_reported_as_elsewhere(target: str) -> None:
    """A row outside reads zeros; a start below 0 is a fault, however far; nothing has no place."""
    source = """
@kernel tile[(32,)] grid[(1,)]
def row(x: f32[m, n], out: mut f32[1], r: i32, a: i32):
    out[0] = op.max(x[r, a:])

@kernel tile[(32,)] grid[(1,)]
def place(x: f32[n], out: mut i32[1], a: i32):
    out[0] = i32(op.argmax(x[a:]))
"""
    m = load(source, target)
    x = np.full((4, 40), -5, np.float32)
    for r in (4, -1):
        out = np.ones(1, np.float32)
        assert "`row` reads outside of `x[r, a:]`" in fault_of(m.row, x, out, r, 0)
        assert target == "cuda" or out[0] == 0
    for a in (-2, -(2**31)):
        out = np.ones(1, np.float32)
        assert "the slice of `x` begins below 0, at `a`" in fault_of(m.row, x, out, 0, a)
        assert target == "cuda" or out[0] == -5
    assert "`op.argmax` of no elements" in fault_of(m.place, x[0], np.zeros(1, np.int32), 40)


FROM_END = ("1:-1", "t:-w", "-w:", "-(w + t):", ":-(w + t)", "-(w + 2):-w", "t:-w:3", "-w::2")
PLACED = ("argmax", "argmin")


@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var", "any", *PLACED])
@pytest.mark.sample(3)
def test_bounds_with_a_minus_in_front_count_from_the_end(
    target: str, name: str, common: bool
) -> None:
    """As in NumPy, also where they are not below 0, or before the first element."""
    t = "group_linear_id()" if common else "tile_linear_id()"
    dtype = "bool" if name == "any" else "f64" if name in ("mean", "var") else "i64"
    lines = [f"        out[t, {at}] = {'i64' if name in PLACED else ''}(op.{name}(x[0, {part}]))\n"
             for at, part in enumerate(FROM_END)]  # fmt: skip
    source = f"""
@kernel tile[(3,)] grid[(3,)]
def f(x: {dtype}[1, n], w: i32, out: mut {dtype}[3, {len(FROM_END)}]):
    t = {t}
    if tile_linear_id() == 0 or {not common}:
{"".join(lines)}
"""
    f = load(source, target).f
    x = (
        np.random.default_rng(3)
        .integers(0 if name == "any" else -9, 2, (1, 50))
        .astype(NUMPY[dtype])
    )
    for w in (1, 2, 7, 49, 60):
        out = np.zeros((3, len(FROM_END)), x.dtype)
        parts = [[eval(f"x[0, {p}]", {"x": x, "w": w, "t": t}) for p in FROM_END] for t in range(3)]
        fault = fault_of(f, x, w, out)
        for row, of_row in zip(out, parts, strict=True):
            for found, part in zip(row, of_row, strict=True):
                if part.size or name in ("sum", "any", "prod"):
                    assert np.allclose(found, getattr(np, name)(part))
        assert ("no elements" in fault) == (
            name in PLACED and any(not p.size for row in parts for p in row)
        ), fault


def test_other_stops_below_0_are_faults(target: str) -> None:
    source = """
@kernel tile[(32,)] grid[(1,)]
def f(x: f32[n], out: mut f32[1], w: i32):
    out[0] = op.sum(x[1:w])
"""
    f = load(source, target).f
    for w in (-1, -3, -(2**31)):
        fault = fault_of(f, np.ones(9, np.float32), np.zeros(1, np.float32), w)
        assert "the slice of `x` ends below 0, at `w`" in fault
    assert not fault_of(f, np.ones(9, np.float32), np.zeros(1, np.float32), 0)


def fault_of(kernel: Any, *arguments: Any) -> str:
    """What the run of a kernel reports."""
    try:
        kernel(*arguments)
        tessera.synchronize()
    except tessera.TesseraError as fault:
        return str(fault)
    return ""


def test_short_slices_and_rows_of_lanes_take_no_shared_memory() -> None:
    """A slice of few elements, whatever shows that, is gone through by each lane."""
    source = """
@kernel tile[(64,)] grid[(4,)]
def f(x: f32[m, n], y: f32[8], out: mut f32[m], k: index):
    r = group_linear_id()
    out[r] = op.max(x[r, 0:8]) + op.max(x[r, k:k+32]) + op.sum(y) + op.sum(x[0, :20])
    if tile_linear_id() < 3:
        out[r] = op.sum(x[r, :])
    out[r] = op.sum(x[tile_linear_id(), :])
"""
    assert lower_source(source)[1].shared_bytes == 0
    assert lower_source(source.replace("k:k+32", "k:k+33"))[1].shared_bytes == 16
    budget = source.replace("grid", "shared(16) grid").replace("k:k+32", "k:k+33")
    codes = [d.code for d in lower_source(budget)[2]]
    assert "T0501" not in codes, "the compiler's own memory is not the budget's"


REFUSED = {
    "op.max(f32(1.0))": "T0207",
    "op.max(x[0, 1])": "T0207",
    "op.max(x[0, ::-2])": "T0606",
    "op.max(x[0, ::0])": "T0606",
    "op.max(x[0, ::n])": "T0606",
    "op.max(x, axis=0)": "T0311",
    "op.max(x[0, :], axis=1)": "T0311",
    "op.argmax(x)": "T0105",
    "op.any(x[0, :])": "T0207",
    "op.max(x[0, 0, :])": "T0301",
    "op.max(x[0, 1.0:])": "T0215",
    "op.max(x[7, :])": "T0302",
    "op.max(x[0, :], 0, 1)": "T0106",
    "op.softmax(x[0, :])": "T0114",
    "op.exp(x[0, 0])": "T0114",
    "op.max(x[0, :] * 2)": "T0114",
    "max(x)": "T0105",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_lanes_do_not_take_is_said(text: str) -> None:
    """With the line, and where there is something, what to write instead."""
    head = "@kernel tile[(32,)] grid[(1,)]\ndef f(x: f32[4, n], out: mut f32[1]):\n"
    source = f"{head}    out[0] = {text}\n"
    with pytest.raises(tessera.TesseraError) as fault:
        tessera.compile(source, target="cpu").f(np.zeros((4, 8), np.float32), np.zeros(1))
    assert REFUSED[text] in str(fault.value)


STEPPED = """
K = 3
@kernel tile[({lanes},)] grid[(1,)]
def k(z: i64[m, n], lo: i32, hi: i32, one: mut i64[7], each: mut i64[{lanes}]):
    t = tile_linear_id()
    one[0] = op.sum(z[0:m:K, 1])
    one[1] = op.max(z[5:m:7, 0:2])
    one[2] = i64(op.argmax(z[3, lo:hi:5]))
    one[3] = op.sum(z[lo:hi:4, 2:n:9])
    one[4] = op.min(z[::11, ::6])
    one[5] = op.sum(z[39, 70::9223372036854775807])
    one[6] = op.sum(z[39, 70:3:2])
    each[t] = op.sum(z[t % 40, t % 5:60:4]) + i64(op.argmin(z[t % 40, t % 3::7]))
"""


@pytest.mark.parametrize("lanes", [1, 7, 96])
@pytest.mark.sample(1)
def test_slices_with_a_step(target: str, lanes: int) -> None:
    z = np.random.default_rng(lanes).integers(-9, 10, (40, 77))
    k = load(STEPPED.format(lanes=lanes), target).k
    for lo, hi in ((0, 77), (4, 30), (30, 31)):
        one, each = np.zeros(7, np.int64), np.zeros(lanes, np.int64)
        k(z, lo, hi, one, each)
        tessera.synchronize()
        assert one.tolist() == [
            z[::3, 1].sum(), z[5::7, :2].max(), z[3, lo:hi:5].argmax(), z[lo:hi:4, 2::9].sum(),
            z[::11, ::6].min(), z[39, 70], 0,
        ]  # fmt: skip
        rows = [(z[t % 40], t) for t in range(lanes)]
        assert each.tolist() == [r[t % 5 : 60 : 4].sum() + r[t % 3 :: 7].argmin() for r, t in rows]


def test_a_slice_with_a_step_needs_no_guard() -> None:
    text = "@kernel tile[(64,)] grid[(m,)]\ndef k(x: f32[m, n], o: mut f32[m]):\n"
    text += "    r = group_linear_id()\n    o[r] = op.sum(x[r, 1:n:3]) + op.max(x[r, ::2])\n"
    program = optimized(text)
    loads = [o for o in program.operations[0].walk() if o.name == "tile.load"]
    assert loads and all(o.attributes["bounds"] == "proved" for o in loads)
