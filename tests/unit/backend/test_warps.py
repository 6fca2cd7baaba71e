"""Warp operations on both targets, against NumPy in the order of docs/ir.md."""

from __future__ import annotations

from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tessera_backend.nvptx.kernel import emit_kernel
from tessera_backend.nvptx.toolchain.llvm_to_ptx import translate
from tessera_backend.nvptx.toolchain.ptxas import assemble, find_ptxas

import tessera_lang as tessera
from tessera_lang.target.arch import ROWS, architecture_named
from tests.unit.lowering import lower_source
from tests.unit.tile_interpreter import launch

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
GROUPS = [(1,), (5,), (16,), (31,), (32,), (33,), (70,), (128,), (3, 40), (2, 4, 8)]
NUMBERS = {
    "i8": np.int8, "u16": np.uint16, "i32": np.int32, "u32": np.uint32, "i64": np.int64,
    "u64": np.uint64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
    "f64": np.float64,
}  # fmt: skip
NUMBERS_TEXT = """\
@kernel tile[{group}]
def k(x: {dtype}[n], at: i32[n], total: mut {dtype}[n], high: mut {dtype}[n],
      low: mut {dtype}[n], moved: mut {dtype}[n]):
    i = grid_tile_linear_id()
    v = x[i]
    total[i] = warp_sum(v)
    high[i] = warp_max(v)
    low[i] = warp_min(v)
    moved[i] = warp_shuffle(v, at[i])
"""
VOTES_TEXT = """\
@kernel tile[{group}]
def k(x: bool[n], some: mut bool[n], every: mut bool[n], bits: mut u32[n], moved: mut bool[n]):
    i = grid_tile_linear_id()
    some[i] = warp_any(x[i])
    every[i] = warp_all(x[i])
    bits[i] = warp_ballot(x[i])
    moved[i] = warp_shuffle(x[i], lane_id() + 1)
"""
MATCH_TEXT = """\
@kernel tile[{group}] shared(0)
def k(x: {dtype}[n], bits: mut u32[n], twice: mut u32[n]):
    for s in range(3):
        i = group_linear_id() * group_tile_count() * 3 + s * group_tile_count() + tile_linear_id()
        bits[i] = warp_match(x[i])
        twice[i] = warp_match(x[i])
"""
LOOP_TEXT = """\
def scaled(v):
    if v > 0.0: return v
    return -v

@kernel tile[{group}]
def k(x: f32[n], out: mut f32[n]):
    buffer = tshared.alloc((4,), f32)
    i = grid_tile_linear_id()
    acc = x[i]
    k = 0
    while k < 3:
        acc = acc * 0.5 + warp_sum(acc + f32(k))
        if k == 1:
            if tile_linear_id() == 0: buffer[0] = acc
            tbarrier()
            acc += buffer[0]
        k += 1
    out[i] = scaled(acc)
"""


def folded(values: Any, combine: Any) -> Any:
    """One warp, in the order of docs/ir.md."""
    values = list(values)
    for step in (16, 8, 4, 2, 1):
        for lane in range(step):
            if lane + step < len(values):
                values[lane] = combine(values[lane], values[lane + step])
    return values[0]


def by_warp(x: Any, lanes: int, each: Any) -> Any:
    """``each`` warp of each group of ``lanes``, as an array or one value for all of it."""
    out = []
    for group in range(0, len(x), lanes):
        for first in range(group, group + lanes, 32):
            part = x[first : min(first + 32, group + lanes)]
            out.append(np.broadcast_to(each(part), part.shape))
    return np.concatenate(out)


def numbers(dtype: str, count: int) -> Any:
    r = np.random.default_rng(7)
    kind = NUMBERS[dtype]
    if np.issubdtype(kind, np.integer):
        limits = np.iinfo(kind)
        return r.integers(limits.min, limits.max, count, dtype=kind, endpoint=True)
    return (r.standard_normal(count) * r.choice([1e-3, 1, 100], count)).astype(kind)


def same_bits(a: Any, b: Any) -> None:
    assert a.dtype == b.dtype
    assert np.array_equal(a.view(np.uint8), np.ascontiguousarray(b).view(np.uint8))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.sample(5)
def test_numbers(dtype: str, group: tuple[int, ...], target: str) -> None:
    if group not in ((32,), (70,)) and dtype not in ("f32", "f64", "i32"):
        pytest.skip("other groups with three dtypes")
    lanes = prod(group)
    x = numbers(dtype, 2 * lanes)
    at = np.random.default_rng(8).integers(-70, 70, 2 * lanes).astype(np.int32)
    found = [np.zeros_like(x) for _ in range(4)]
    k = tessera.compile(NUMBERS_TEXT.format(group=group, dtype=dtype), target=target).k
    k[2](x, at, *found)
    tessera.synchronize()
    wide = x.astype(np.float32) if dtype in ("f16", "bf16") else x

    def add(part: Any) -> Any:
        with np.errstate(over="ignore"):
            return folded(part, lambda a, b: a + b)

    same_bits(found[0], by_warp(wide, lanes, add).astype(x.dtype))
    same_bits(found[1], by_warp(wide, lanes, np.max).astype(x.dtype))
    same_bits(found[2], by_warp(wide, lanes, np.min).astype(x.dtype))
    index = np.arange(2 * lanes)
    own = index % lanes
    source = own // 32 * 32 + (at & 31)
    source = np.where(source < lanes, index - own + source, index)
    same_bits(found[3], x[source])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.sample(3)
def test_votes(group: tuple[int, ...], target: str) -> None:
    lanes = prod(group)
    r = np.random.default_rng(3)
    x = np.concatenate([r.random(4 * lanes) < p for p in (0.0, 0.02, 0.5, 0.98, 1.0)]).astype(
        np.bool_
    )
    found = [np.zeros(len(x), t) for t in (np.bool_, np.bool_, np.uint32, np.bool_)]
    k = tessera.compile(VOTES_TEXT.format(group=group), target=target).k
    k[len(x) // lanes](x, *found)
    tessera.synchronize()

    def bits(part: Any) -> Any:
        return np.uint32(sum(1 << n for n, v in enumerate(part) if v))

    same_bits(found[0], by_warp(x, lanes, np.any))
    same_bits(found[1], by_warp(x, lanes, np.all))
    same_bits(found[2], by_warp(x, lanes, bits))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f8e5m2", "f8e4m3", "bf16", "f16", "f32", "f64"])
def test_the_greatest_and_least_of_every_float(dtype: str, target: str) -> None:
    """Infinities, NaN and the largest finite number come back as they are."""
    kind = np.dtype({"f8e5m2": ml_dtypes.float8_e5m2, "f8e4m3": ml_dtypes.float8_e4m3fn}.get(
        dtype, NUMBERS.get(dtype)))  # fmt: skip
    top = ml_dtypes.finfo(kind).max
    text = f"""\
@kernel tile[(32,)] grid[(1,)]
def k(x: {dtype}[n], out: mut {dtype}[2, n]):
    i = tile_linear_id()
    out[0, i] = warp_max(x[i])
    out[1, i] = warp_min(x[i])
"""
    k = tessera.compile(text, target=target).k
    for least, most in (
        (-np.inf, np.inf),
        (-top, top),
        (-np.inf, top),
        (np.inf, np.inf),
        (0, np.nan),
    ):
        x = np.full(32, most, kind)
        x[7] = least
        if dtype == "f8e4m3" and np.isinf(float(least) + float(most)):
            continue
        out = np.zeros((2, 32), kind)
        k(x, out)
        tessera.synchronize()
        wide = x.astype(np.float64)
        want = np.stack([np.full(32, wide.max()), np.full(32, wide.min())])
        assert np.array_equal(out.astype(np.float64), want, equal_nan=True), (least, most)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", ["bool", "i8", "u8", "u16", "i32", "u64"])
@pytest.mark.sample
def test_matches(dtype: str, group: tuple[int, ...], target: str) -> None:
    """Several in a loop: what one leaves behind must not reach the next."""
    if group not in ((32,), (70,)) and dtype not in ("u8", "i32"):
        pytest.skip("other groups with two dtypes")
    lanes = prod(group)
    x = (
        np.random.default_rng(5)
        .integers(0, 4, 6 * lanes)
        .astype(np.bool_ if dtype == "bool" else NUMBERS.get(dtype, np.uint8))
    )
    if dtype != "bool":
        x[: 3 * lanes] = (x[: 3 * lanes] * 83).astype(x.dtype)
    bits, twice = np.zeros(len(x), np.uint32), np.zeros(len(x), np.uint32)
    k = tessera.compile(MATCH_TEXT.format(group=group, dtype=dtype), target=target).k
    k[2](x, bits, twice)
    tessera.synchronize()

    def matched(part: Any) -> list[int]:
        return [sum(1 << n for n, w in enumerate(part) if w == v) for v in part]

    wanted = [
        bit
        for first in range(0, len(x), lanes)
        for warp in range(first, first + lanes, 32)
        for bit in matched(x[warp : min(warp + 32, first + lanes)].tolist())
    ]
    assert bits.tolist() == wanted and twice.tolist() == wanted


@pytest.mark.parametrize("target", TARGETS)
def test_nan_and_zeros(target: str) -> None:
    x = np.zeros(96, np.float32)
    x[::2] = -0.0
    x[40] = np.nan
    x[64:] = -0.0
    found = [np.zeros_like(x) for _ in range(4)]
    k = tessera.compile(NUMBERS_TEXT.format(group=(96,), dtype="f32"), target=target).k
    k[1](x, np.zeros(96, np.int32), *found)
    tessera.synchronize()
    total, high, low, _ = found
    for found_in in (total, high, low):
        assert np.isnan(found_in[32:64]).all()
    assert not np.signbit(high[:32]).any() and np.signbit(low[:32]).all()
    assert not np.signbit(total[:32]).any() and np.signbit(total[64:]).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("group", [(40,), (64,)], ids=str)
def test_in_loops_beside_barriers(group: tuple[int, ...], target: str) -> None:
    text = LOOP_TEXT.format(group=group)
    x = numbers("f32", 2 * prod(group))
    out, expected = np.zeros_like(x), np.zeros_like(x)
    tessera.compile(text, target=target).k[2](x, out)
    tessera.synchronize()
    program, _, diagnostics = lower_source(text)
    assert not diagnostics
    launch(program.operations[0], (x, expected, np.int64(len(x))), 2)
    same_bits(out, expected)


@pytest.mark.parametrize("dtype", ["u8", "i32"])
def test_the_interpreter_matches(dtype: str) -> None:
    text = MATCH_TEXT.format(group=(70,), dtype=dtype)
    program, _, diagnostics = lower_source(text)
    assert not diagnostics
    x = np.random.default_rng(5).integers(0, 4, 210).astype(NUMBERS.get(dtype, np.uint8))
    ours, theirs = ([np.zeros(210, np.uint32) for _ in range(2)] for _ in range(2))
    tessera.compile(text, target="cpu").k[1](x, *ours)
    launch(program.operations[0], (x, *theirs, np.int64(len(x))), 1)
    for a, b in zip(ours, theirs, strict=True):
        same_bits(a, b)


def test_a_match_of_floats_is_refused() -> None:
    with pytest.raises(tessera.TesseraError, match="bitcast"):
        tessera.compile(MATCH_TEXT.format(group=(32,), dtype="f32"), target="cpu").k[2](
            np.zeros(192, np.float32), np.zeros(192, np.uint32), np.zeros(192, np.uint32)
        )


@pytest.mark.parametrize("group", [(5,), (32,), (70,)], ids=str)
@pytest.mark.parametrize("dtype", ["i32", "f16", "f64"])
@pytest.mark.sample(5)
def test_the_interpreter_agrees(dtype: str, group: tuple[int, ...]) -> None:
    text = NUMBERS_TEXT.format(group=group, dtype=dtype)
    program, _, diagnostics = lower_source(text)
    assert not diagnostics
    x = numbers(dtype, prod(group))
    at = np.arange(prod(group), dtype=np.int32)[::-1].copy()
    ours, theirs = ([np.zeros_like(x) for _ in range(4)] for _ in range(2))
    tessera.compile(text, target="cpu").k[1](x, at, *ours)
    launch(program.operations[0], (x, at, *theirs, np.int64(len(x))), 1)
    for a, b in zip(ours, theirs, strict=True):
        same_bits(a, b)


@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas on this machine")
@pytest.mark.parametrize("arch", ROWS)
@pytest.mark.parametrize("text", [
    *(NUMBERS_TEXT.format(group=g, dtype=d) for g, d in
      (((32,), "f32"), ((70,), "f64"), ((5,), "i32"), ((128,), "u32"), ((33,), "u64"))),
    VOTES_TEXT.format(group=(128,)), VOTES_TEXT.format(group=(70,)),
], ids=range(7))  # fmt: skip
@pytest.mark.sample
def test_ptxas_takes_it(text: str, arch: str) -> None:
    program, plan, _ = lower_source(text)
    row = architecture_named(arch)
    translation = translate(emit_kernel(program.operations[0], plan, row).text, row)
    tool = find_ptxas()
    assert tool is not None
    assert assemble(tool, translation.ptx, arch).resources.spill_bytes == 0


def test_whole_warps_exchange_in_butterflies() -> None:
    program, plan, _ = lower_source(NUMBERS_TEXT.format(group=(64,), dtype="f32"))
    row = architecture_named("sm_90")
    ptx = translate(emit_kernel(program.operations[0], plan, row).text, row).ptx
    assert ptx.count("shfl.sync.bfly.b32") == 15 and "shfl.sync.down" not in ptx
    for step in (16, 8, 4, 2, 1):
        assert f", {step}, 31, -1;" in ptx


@pytest.mark.parametrize("body", [
    "if i < n: out[i] = warp_sum(x[i])",
    "for k in range(i): out[i] = warp_max(x[i])",
    "if i >= n: return\n    out[i] = warp_shuffle(x[i], 0)",
    "if warp_any(x[i] > 0.0): tbarrier()",
])  # fmt: skip
def test_divergent_control_is_an_error(body: str) -> None:
    _, _, diagnostics = lower_source(
        "@kernel tile[(64,)]\ndef k(x: f32[n], out: mut f32[n]):\n"
        f"    i = grid_tile_linear_id()\n    {body}\n"
    )
    (found,) = diagnostics
    assert found.code == ("T0401" if "tbarrier" in body else "T0403")
    assert found.labels


ONE_WARP_TEXT = """\
@kernel tile[({lanes},)] grid[(1,)]
def k(x: i32[n], out: mut i32[n]):
    s = tshared.alloc(({lanes},), i32)
    i = tile_linear_id()
    v = {made}
    w = x[i]
    s[i] = w
    if v > 3:
        tbarrier()
        w += s[(i + 1) % {lanes}]
    if x[i] > 2:
        for k in range(v + 1): w += k.to(i32)
    else: w -= v * 3
    for k in range(v % 3):
        tbarrier()
        w += v
    left = v
    while left > 0:
        tbarrier()
        left -= 7
    out[i] = w + left
"""
OF_ALL: dict[str, Any] = {
    "warp_sum(x[i])": np.sum, "warp_max(x[i])": np.max, "group_sum(x[i])": np.sum,
    "group_min(x[i]) + 4": lambda x: np.min(x) + 4, "i32(warp_any(x[i] > 7))": lambda x: 1,
    "i32(warp_ballot(x[i] > 7))": lambda x: sum(1 << int(k) for k in np.flatnonzero(x > 7)),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("made", "lanes"), [
    *((m, n) for m in OF_ALL for n in (12, 32) if not ("ballot" in m and n == 32)),
    ("group_sum(x[i])", 40), ("group_min(x[i]) + 4", 40),
])  # fmt: skip
@pytest.mark.sample(4)
def test_a_group_decides_by_what_its_lanes_made(target: str, made: str, lanes: int) -> None:
    """Where the group is one warp, the result is one value for it, which control may need."""
    x = (np.arange(lanes) % 9).astype(np.int32)
    out = np.zeros(lanes, np.int32)
    tessera.compile(ONE_WARP_TEXT.format(made=made, lanes=lanes), target=target).k(x, out)
    tessera.synchronize()
    v = int(OF_ALL[made](x))
    want = x + (np.roll(x, -1) if v > 3 else 0)
    want += np.where(x > 2, v * (v + 1) // 2, -3 * v) + v % 3 * v
    assert out.tolist() == (want + v - 7 * -(-v // 7)).tolist()
