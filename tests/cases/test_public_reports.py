"""Faults that users met in other tools, as tests of their whole kind.

Each test names the kind and the public report in its docstring. All run on both targets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES: dict[str, np.dtype[Any]] = {
    "i8": np.dtype(np.int8), "i16": np.dtype(np.int16), "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64), "u8": np.dtype(np.uint8), "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64), "f16": np.dtype(np.float16),
    "bf16": BF16, "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
}  # fmt: skip


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def load(source: str, target: str) -> Any:
    return tessera.compile(source, target=target)


def refused(source: str, *codes: str) -> tessera.TesseraError:
    """The source does not compile, for exactly these reasons."""
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(source, target="cpu").check()
    assert sorted(d.code for d in caught.value.diagnostics if d.severity == "error") == sorted(
        codes
    )
    return caught.value


MAP = """
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def f(x: {a}[n], out: mut {b}[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = {expression}
"""

MAP2 = """
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def f(x: {a}[n], y: {a}[n], out: mut {b}[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = {expression}
"""


def mapped(target: str, expression: str, x: np.ndarray, a: str, b: str | None = None) -> np.ndarray:
    b = b or a
    out = np.zeros(x.shape, DTYPES.get(b, np.dtype(bool)))
    load(MAP.format(a=a, b=b, expression=expression), target).f(x.astype(DTYPES[a]), out)
    return out


# --- sizes ---------------------------------------------------------------------------------


def test_empty_arrays_cold_and_warm(target: str) -> None:
    """B09 size: pytorch#178878. No launch, no error, outputs untouched, cold and warm."""
    m = load(MAP2.format(a="f32", b="f32", expression="x[i] + y[i]"), target)
    for n in (0, 8, 0, 8):
        x = np.arange(n, dtype=np.float32)
        out = np.full(n, 7, np.float32)
        m.f(x, x, out)
        assert np.array_equal(out, 2 * x)
    source = (Path(__file__).resolve().parents[2] / "examples" / "sum_reduce.tessera").read_text()
    out = np.full(1, 5, np.float32)
    load(source, target).sum_reduce(np.zeros(0, np.float32), out)
    assert out[0] == 5  # adds the empty sum, 0
    out = np.zeros(0, np.float32)
    load(source, target).sum_reduce(np.ones(4, np.float32), out)  # no groups


@pytest.mark.parametrize(
    ("shape", "dtype"), [((4, 2), "f32"), ((4, 3), "f16"), ((4, 1), "i8"), ((1, 1), "f64")]
)
def test_rows_narrower_than_a_vector(target: str, shape: tuple[int, int], dtype: str) -> None:
    """B11 size: warp#622. Exact copies of tiles with fewer than 16 bytes in the last dimension."""
    source = f"""
@kernel tile[(32,)] grid[(1,)]
def copy(x: {dtype}[m, n], out: mut {dtype}[m, n]):
    for k in range(tile_linear_id(), m * n, 32):
        out[k // n, k % n] = x[k // n, k % n]
"""
    x = np.arange(shape[0] * shape[1]).reshape(shape).astype(DTYPES[dtype])
    base = np.full((shape[0] + 2, *shape[1:]), 77, DTYPES[dtype])
    load(source, target).copy(x, base[1:-1])
    assert np.array_equal(base[1:-1], x)
    assert (base[0] == 77).all() and (base[-1] == 77).all()


@pytest.mark.parametrize("start", [0, 1])
def test_stepped_views_of_every_length(target: str, start: int) -> None:
    """B13 size: jax#23534. A stepped view whose length is no multiple of the step."""
    m = load(MAP.format(a="f32", b="f32", expression="x[i]"), target)
    for n in range(1, 13):
        view = np.arange(n, dtype=np.float32)[start::3]
        out = np.full(view.shape, np.nan, np.float32)
        m.f(view, out)
        assert np.array_equal(out, view)


def test_launch_extent_over_the_limit() -> None:
    """B19 overflow: warp#1799. The number of groups is refused by value, never wrapped."""
    source = """
@kernel tile[(1,)]
def nothing(out: mut i32[n]):
    out[0] = 1
"""
    m = load(source, "cpu")
    out = np.zeros(1, np.int32)
    with pytest.raises(tessera.TesseraError) as caught:
        m.nothing[1 << 62](out)
    assert str(1 << 62) in str(caught.value) and out[0] == 0


@pytest.mark.gpu
def test_rows_past_two_to_the_31st_element() -> None:
    """B15, B17 overflow: megablocks#185. Offsets are 64-bit: rows around 2^31 elements."""
    torch = pytest.importorskip("torch")
    rows, columns = 600000, 4096
    a = torch.zeros((rows, columns), dtype=torch.float16, device="cuda")
    out = torch.zeros(columns, dtype=torch.float16, device="cuda")
    source = """
@kernel tile[(128,)] grid[(1,)]
def row(a: f16[m, n], r: index, out: mut f16[n]):
    for k in range(tile_linear_id(), n, 128):
        out[k] = a[r, k]
"""
    m = load(source, "cuda")
    for r in (524287, 524288, 599999):
        a[r] = torch.randn(columns, device="cuda").half()
        m.row(a, r, out)
        assert torch.equal(out, a[r])


# --- strides -------------------------------------------------------------------------------


def test_reversed_and_stepped_inputs(target: str) -> None:
    """B21, B29 stride: numba#3705. Negative and large steps read what NumPy reads."""
    m = load(MAP.format(a="f32", b="f32", expression="x[i]"), target)
    x = np.arange(20, dtype=np.float32)
    for view in (x[::-1], x[::-2], x[5:1:-1], x[::3], x.reshape(4, 5)[:, 2], x.reshape(4, 5).T[1]):
        out = np.full(view.shape, np.nan, np.float32)
        m.f(view, out)
        assert np.array_equal(out, view)


def test_binary_search_over_a_stepped_view(target: str) -> None:
    """B23 stride: pytorch#135873. A search over boundaries[::2]."""
    source = """
@kernel tile[(32,)] grid[(ceil_div(m, 32),)]
def search(bounds: f32[n], x: f32[m], out: mut i64[m]):
    i = grid_tile_linear_id()
    if i < m:
        low = 0
        high = n
        while low < high:
            middle = (low + high) // 2
            if bounds[middle] < x[i]: low = middle + 1
            else: high = middle
        out[i] = i64(low)
"""
    bounds = np.linspace(0, 1, 33, dtype=np.float32)
    x = np.random.default_rng(0).uniform(-0.1, 1.1, 100).astype(np.float32)
    out = np.zeros(100, np.int64)
    load(source, target).search(bounds[::2], x, out)
    assert np.array_equal(out, np.searchsorted(bounds[::2], x))


def test_broadcast_views(target: str) -> None:
    """B25 stride: TransformerEngine#623. Stride 0 is read as it is, and refused as `mut`."""
    source = """
@kernel tile[(32,)] grid[(1,)]
def total(x: f32[m, n], out: mut f32[m]):
    for r in range(tile_linear_id(), m, 32):
        acc: f32 = 0.0
        for k in range(n): acc += x[r, k]
        out[r] = acc
"""
    m = load(source, target)
    out = np.zeros(64, np.float32)
    m.total(np.broadcast_to(np.float32(1), (64, 2)), out)
    assert (out == 2).all()
    shared = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (64,), (0,))
    with pytest.raises(tessera.TesseraError):
        m.total(np.ones((64, 2), np.float32), shared)


def test_reshape_of_a_strided_view(target: str) -> None:
    """B27 stride: pytorch#172693. The reshaped view holds NumPy's values."""
    base = np.arange(2 * 32 * 9, dtype=np.float32)
    view = np.lib.stride_tricks.as_strided(base, (2, 16, 9), (288 * 4, 9 * 4, 4)).reshape(2, 8, 18)
    source = """
@kernel tile[(64,)] grid[(a * b,)]
def plus_one(x: f32[a, b, c], out: mut f32[a, b, c]):
    i = group_linear_id() // b
    j = group_linear_id() % b
    for k in range(tile_linear_id(), c, 64):
        out[i, j, k] = x[i, j, k] + 1
"""
    out = np.zeros((2, 8, 18), np.float32)
    load(source, target).plus_one(view, out)
    assert np.array_equal(out, view + 1)


def test_halves_of_one_array(target: str) -> None:
    """B29 stride: triton#8926. Two column blocks of one array as inputs."""
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    source = """
@kernel tile[(32,)] grid[(1,)]
def both(a: f32[m, n], b: f32[m, n], out: mut f32[m, n]):
    for k in range(tile_linear_id(), m * n, 32):
        out[k // n, k % n] = a[k // n, k % n] + b[k // n, k % n]
"""
    out = np.zeros((4, 3), np.float32)
    load(source, target).both(x[:, 0:3], x[:, 3:6], out)
    assert np.array_equal(out, x[:, 0:3] + x[:, 3:6])


def test_overlap_of_a_mut_argument_is_refused(target: str) -> None:
    """Stride kind: a `mut` argument that shares memory with another one never runs."""
    m = load(MAP.format(a="f32", b="f32", expression="x[i]"), target)
    x = np.arange(10, dtype=np.float32)
    before = x.copy()
    for a, b in ((x[:5], x[4:9]), (x, x), (x[::2], x[1::2][::-1][:5][::-1])):
        if not np.shares_memory(a, b):
            m.f(a, b)
            x[:] = before
            continue
        with pytest.raises(tessera.TesseraError):
            m.f(a, b)
        assert np.array_equal(x, before)


# --- integers ------------------------------------------------------------------------------


def test_floor_division_everywhere(target: str) -> None:
    """B30 int: triton#619. `//` and `%` floor for literals, scalars and elements."""
    x = np.arange(-16, 16, dtype=np.int64)
    for divisor in (-2, 2, -7, 7):
        assert np.array_equal(mapped(target, f"x[i] // {divisor}", x, "i64"), x // divisor)
        assert np.array_equal(mapped(target, f"x[i] % {divisor}", x, "i64"), x % divisor)
    assert mapped(target, "-7 // 2 + x[i] * 0", np.zeros(1), "i64")[0] == -4
    assert mapped(target, "-7 % 2 + x[i] * 0", np.zeros(1), "i64")[0] == 1


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64"])
def test_ceil_div_with_signs(target: str, dtype: str) -> None:
    """B32 int: tilelang#2943. ceil_div rounds up whatever the signs."""
    pairs = np.array([(7, -3, -2), (6, -3, -2), (-6, -3, 2), (-7, -3, 3), (7, 3, 3), (-7, 3, -2)])
    m = load(MAP2.format(a=dtype, b=dtype, expression="ceil_div(x[i], y[i])"), target)
    a, b, want = (np.ascontiguousarray(c).astype(DTYPES[dtype]) for c in pairs.T)
    out = np.zeros_like(a)
    m.f(a, b, out)
    assert np.array_equal(out, want)


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64"])
def test_least_integer_by_minus_one(target: str, dtype: str) -> None:
    """B34 int: pytorch#190042. No fault of the processor: it wraps, and the remainder is 0."""
    least = np.full(3, np.iinfo(DTYPES[dtype]).min, DTYPES[dtype])
    minus = np.full(3, -1, DTYPES[dtype])
    for operator, want in (("//", least), ("%", least * 0)):
        m = load(MAP2.format(a=dtype, b=dtype, expression=f"x[i] {operator} y[i]"), target)
        out = np.full(3, 5, DTYPES[dtype])
        m.f(least, minus, out)
        assert np.array_equal(out, want)


def test_helper_used_signed_and_unsigned(target: str) -> None:
    """B36 int: triton#1340. One helper, two signatures in one kernel."""
    source = """
def half(v): return v // 2

@kernel tile[(1,)] grid[(1,)]
def f(a: i32[n], b: u32[n], s: mut i32[n], u: mut u32[n]):
    s[0] = half(a[0])
    u[0] = half(b[0])
"""
    s, u = np.zeros(1, np.int32), np.zeros(1, np.uint32)
    load(source, target).f(np.array([-4], np.int32), np.array([0xFFFFFFF0], np.uint32), s, u)
    assert (s[0], u[0]) == (-2, 0x7FFFFFF8)


@pytest.mark.parametrize(
    ("dtype", "value", "shift", "want"),
    [("u8", 48, 4, 0), ("i8", 8, 4, -8), ("u16", 48, 12, 0), ("i16", 8, 12, -32768)],
)
def test_shifts_of_narrow_integers(
    target: str, dtype: str, value: int, shift: int, want: int
) -> None:
    """B38 int: tilelang#2961. Narrow integers wrap at their own width."""
    x = np.array([value], DTYPES[dtype])
    got = mapped(target, f"(x[i] << {shift}) >> {shift}", x, dtype)[0]
    assert got == ((x << shift) >> shift)[0]
    if shift == 4:
        assert got == want


def test_mixed_signedness_stays_exact(target: str) -> None:
    """B40 int: numba#10151. u64 with a constant never goes through floating point."""
    a = np.array([1721142608025344941], np.uint64)
    b = np.array([1721142608025339990], np.uint64)
    source = """
@kernel tile[(1,)] grid[(1,)]
def f(a: u64[n], b: u64[n], s: i64[n], out: mut i32[4]):
    out[0] = 1 if a[0] >= b[0] + 5000 else 0
    out[1] = 1 if s[0] < a[0] else 0
    out[2] = 1 if a[0] > s[0] else 0
    out[3] = 1 if s[0] == u64(18446744073709551615) else 0
"""
    out = np.full(4, 9, np.int32)
    load(source, target).f(a, b, np.array([-1], np.int64), out)
    assert out.tolist() == [0, 1, 1, 0]


def test_wrap_and_shifts_of_i32(target: str) -> None:
    """B42 int: TornadoVM#947. Two's complement wrap, arithmetic `>>`, wide shift counts."""
    x = np.array([1, -1, 2**31 - 1, -(2**31), 123456789, -987654321], np.int32)
    with np.errstate(over="ignore"):
        assert np.array_equal(mapped(target, "x[i] << 31", x, "i32"), x << 31)
        assert np.array_equal(
            mapped(target, "-(x[i] & -2147483648)", x, "i32"), -(x & np.int32(-(2**31)))
        )
        assert np.array_equal(mapped(target, "(x[i] * x[i]) >> 20", x, "i32"), (x * x) >> 20)
    m = load(MAP2.format(a="i32", b="i32", expression="(x[i] << y[i]) + (x[i] >> y[i])"), target)
    for count, want in ((32, np.where(x < 0, -1, 0)), (100, np.where(x < 0, -1, 0))):
        out = np.zeros_like(x)
        m.f(x, np.full_like(x, count), out)
        assert np.array_equal(out, want.astype(np.int32))


def test_mixing_table() -> None:
    """B44 int: cutile. The table of implicit widening: symmetric, and no pair loses a bit but
    integers of 64 bits beside f64, which are rounded as in NumPy."""
    from tessera_lang.types.dtype import DTYPES as ALL
    from tessera_lang.types.dtype import common_dtype, integer_range, widens_to

    for a in ALL.values():
        for b in ALL.values():
            met = common_dtype(a, b)
            assert met == common_dtype(b, a)
            if met is None:
                continue
            assert widens_to(a, met) and widens_to(b, met)
            for side in (a, b):
                if side.is_float:
                    assert met.mantissa >= side.mantissa and met.exponent >= side.exponent
                elif met.is_float:
                    assert met.name == "f64" or side.bits - side.is_signed <= met.mantissa
                elif met.kind != "index":
                    (low, high), (least, most) = integer_range(side), integer_range(met)
                    assert least <= low and high <= most


def test_rewriting_keeps_the_wrap(target: str) -> None:
    """B162 overflow: Halide#3245. (x + c0) * c1 in i32 equals wrapping arithmetic."""
    x = np.array([-2147483000, -2147483648, 2147483647, 0, 647, 648], np.int32)
    with np.errstate(over="ignore"):
        want = (x + np.int32(2147483000)) * np.int32(7)
    assert np.array_equal(mapped(target, "(x[i] + 2147483000) * 7", x, "i32"), want)


# --- floats --------------------------------------------------------------------------------


def test_integer_to_bf16_rounds(target: str) -> None:
    """B46 float: tilelang#2483. Integers round to nearest even on the way to bf16."""
    x = np.array([257, 259, 511, -259, 16777217], np.int32)
    got = mapped(target, "bf16(x[i])", x, "i32", "bf16")
    assert np.array_equal(
        got.astype(np.float32), x.astype(np.float64).astype(BF16).astype(np.float32)
    )


def test_comparisons_with_nan(target: str) -> None:
    """B48 float: cutile. NaN is unequal to itself, also after optimization."""
    x = np.array([np.nan, 1.0, np.inf, -0.0], np.float32)
    for expression in ("x[i] == x[i]", "x[i] != x[i]", "x[i] < x[i]", "not (x[i] < x[i])"):
        want = eval(expression.replace("x[i]", "x").replace("not (x < x)", "~(x < x)"))
        assert np.array_equal(mapped(target, f"1 if {expression} else 0", x, "f32", "i32"), want)


def test_clamp_keeps_nan(target: str) -> None:
    """B50 float: tilelang#3024. clamp(NaN) is NaN; infinities go to the bounds."""
    x = np.array([np.nan, np.inf, -np.inf, 0.5], np.float32)
    got = mapped(target, "min(max(x[i], -1.0), 1.0)", x, "f32")
    assert np.isnan(got[0]) and got[1:].tolist() == [1, -1, 0.5]


def test_signed_zero(target: str) -> None:
    """B52 float: llvm#202268. The sign of zero through arithmetic, abs, min, max."""
    x = np.array([-0.0], np.float32)
    table = {
        "x[i] * 1.0": True, "x[i] + 0.0": False, "-x[i]": False, "abs(x[i])": False,
        "min(x[i], 0.0)": True, "max(x[i], 0.0)": False, "min(0.0, x[i])": True,
        "max(0.0, x[i])": False, "x[i] - 0.0": True,
    }  # fmt: skip
    for expression, negative in table.items():
        assert np.signbit(mapped(target, expression, x, "f32")[0]) == negative, expression
    assert mapped(target, "1.0 / x[i]", x, "f32")[0] == -np.inf


def test_sums_of_halves(target: str) -> None:
    """B54 float: pytorch#2391. f16 sums accumulate in f32; the mean of many ones is 1."""
    reduce = tessera.load("std.reduce", target=target)
    x = np.array([32000] * 4 + [-32000] * 4, np.float16)
    assert float(np.asarray(reduce.sum(x))) == 0
    assert float(np.asarray(reduce.mean(np.ones(70000, np.float16)))) == 1


# --- control flow --------------------------------------------------------------------------


def test_return_inside_a_loop_of_a_helper(target: str) -> None:
    """B56 flow: triton#2567. An early return leaves the helper, not the kernel."""
    source = """
def find(x, n: index, wanted: i32):
    for k in range(n):
        if x[k] == wanted: return i32(k)
    return i32(-1)

@kernel tile[(1,)] grid[(1,)]
def f(x: i32[n], out: mut i32[m]):
    for j in range(m):
        out[j] = find(x, n, i32(j)) * 10
"""
    out = np.zeros(5, np.int32)
    load(source, target).f(np.array([2, 0, 1, 3], np.int32), out)
    assert out.tolist() == [10, 20, 0, 30, -10]


def test_break_and_continue_in_nested_loops(target: str) -> None:
    """B58 flow: triton#3157. Python's results, lane by lane."""
    source = """
@kernel tile[(64,)] grid[(1,)]
def f(x: i32[m, n], out: mut i32[m]):
    i = tile_linear_id()
    if i < m:
        total = i32(0)
        for a in range(n):
            if x[i, a] == 3: continue
            for b in range(a, n):
                if x[i, b] < 0: break
                total += x[i, b]
            if total > 40: break
        out[i] = total
"""
    x = np.random.default_rng(1).integers(-3, 9, (50, 12)).astype(np.int32)
    want = []
    for row in x.tolist():
        total = 0
        for a in range(12):
            if row[a] == 3:
                continue
            for b in range(a, 12):
                if row[b] < 0:
                    break
                total += row[b]
            if total > 40:
                break
        want.append(total)
    out = np.zeros(50, np.int32)
    load(source, target).f(x, out)
    assert out.tolist() == want


def test_rebinding_the_loop_variable(target: str) -> None:
    """B62 flow: triton#2015. Rebinding does not touch the iteration."""
    source = """
@kernel tile[(1,)] grid[(1,)]
def f(x: i32[n], offset: index, out: mut i32[1]):
    acc = i32(0)
    for k in range(0, n - offset, 2):
        k = k + offset
        acc += x[k]
    out[0] = acc
"""
    x = np.arange(11, dtype=np.int32) ** 2
    out = np.zeros(1, np.int32)
    load(source, target).f(x, 3, out)
    assert out[0] == sum(int(x[k + 3]) for k in range(0, 8, 2))


def test_one_variable_one_type() -> None:
    """B64 flow: triton#3307. Two types for one variable: both are named."""
    error = refused(
        """
@kernel tile[(32,)] grid[(1,)]
def f(c: i32[n], out: mut f32[n]):
    v = c[0]
    if c[0] > 0:
        v = out[0]
    out[0] = f32(v)
""",
        "T0203",
    )
    assert "v" in str(error) and "i32" in str(error) and "f32" in str(error)


def test_variable_that_may_be_unset() -> None:
    """B66 flow: triton#10672. The use is reported, with the loop that may not run."""
    error = refused(
        """
@kernel tile[(32,)] grid[(1,)]
def f(out: mut f32[n]):
    for k in range(0, n):
        last = f32(k)
    out[0] = last
""",
        "T0109",
    )
    assert "last" in str(error)


def test_not_all_paths_return_a_value() -> None:
    """B68 flow: slang#5063. A helper that may fall off its end."""
    refused(
        """
def pick(v: f32):
    if v > 0:
        return v

@kernel tile[(32,)] grid[(1,)]
def f(x: f32[n], out: mut f32[n]):
    out[0] = pick(x[0])
""",
        "T0108",
    )


def test_range_whose_last_step_overflows(target: str) -> None:
    """B70 flow: grayscale#2027. Two iterations, then the end."""
    source = """
@kernel tile[(1,)] grid[(1,)]
def f(bounds: i32[3], out: mut i32[4]):
    count = i32(0)
    for v in range(bounds[0], bounds[1], bounds[2]):
        out[count] = i32(v)
        count += 1
        if count > 2: break
    out[3] = count
"""
    out = np.zeros(4, np.int32)
    load(source, target).f(np.array([2147483640, 2147483647, 4], np.int32), out)
    assert out.tolist() == [2147483640, 2147483644, 0, 2]
    out[:] = 0
    load(source, target).f(np.array([-2147483640, -2147483648, -5], np.int32), out)
    assert out.tolist() == [-2147483640, -2147483645, 0, 2]


# --- barriers and shared memory ------------------------------------------------------------


def test_slices_of_shared_memory_do_not_alias(target: str) -> None:
    """B85 shared: numba#5073. Two buffers are two places on every target."""
    source = """
@kernel tile[(32,)] shared(1_KiB) grid[(1,)]
def f(out: mut i32[2]):
    a = tshared.alloc((1,), i32)
    b = tshared.alloc((1,), i32)
    if tile_linear_id() == 0:
        a[0] = 1
        b[0] = 2
    tbarrier()
    if tile_linear_id() == 1:
        out[0] = a[0]
        out[1] = b[0]
"""
    out = np.zeros(2, np.int32)
    load(source, target).f(out)
    assert out.tolist() == [1, 2]


def test_lanes_that_are_no_whole_warp(target: str) -> None:
    """B77, B80 barrier: tilelang#2556, numba#1626. 48 of 64 lanes write, then read reversed."""
    source = """
@kernel tile[(64,)] shared(1_KiB) grid[(200,)]
def f(out: mut i32[200, 48]):
    s = tshared.alloc((48,), i32)
    t = tile_linear_id()
    if t < 48:
        s[t] = i32(t)
    tbarrier()
    if t < 48:
        out[group_linear_id(), t] = s[47 - t]
"""
    out = np.zeros((200, 48), np.int32)
    load(source, target).f(out)
    assert (out == np.arange(47, -1, -1)).all()


def test_tree_reduction_with_continue_is_accepted(target: str) -> None:
    """B93 uniform: gpuweb#5363. A barrier at the head of a loop with `continue` is uniform."""
    source = """
@kernel tile[(128,)] shared(1_KiB) grid[(1,)]
def f(x: f32[128], out: mut f32[1]):
    smem = tshared.alloc((256,), f32)
    t = tile_linear_id()
    smem[t] = x[t]
    s = 1
    while s <= 64:
        tbarrier()
        s2 = s
        s *= 2
        if t % (2 * s2) != 0: continue
        smem[t] += smem[t + s2]
    tbarrier()
    if t == 0: out[0] = smem[0]
"""
    x = np.arange(128, dtype=np.float32)
    out = np.zeros(1, np.float32)
    load(source, target).f(x, out)
    assert out[0] == x.sum()


@pytest.mark.parametrize(
    "body",
    [
        "    if i >= n: return\n    smem[0] = x[0]\n    tbarrier()",
        "    if tile_linear_id() < 32: tbarrier()",
        "    while True:\n        tbarrier()\n        if tile_linear_id() < 3: break",
        "    for k in range(8):\n        if x[i] > 0.0: continue\n        tbarrier()",
        "    if tile_linear_id() > 3 or waits(smem): smem[0] = 1.0",
    ],
)
def test_barrier_in_divergent_flow(body: str) -> None:
    """B73, B81, B95, B97 barrier: a barrier that only some lanes reach is an error."""
    refused(
        f"""
def waits(smem):
    tbarrier()
    return smem[0] > 0.0

@kernel tile[(128,)] shared(1_KiB)
def f(x: f32[n], out: mut f32[grid_groups]):
    smem = tshared.alloc((128,), f32)
    i = grid_tile_linear_id()
{body}
    out[group_linear_id()] = 1.0
""",
        "T0401",
    )


def test_shared_memory_over_the_budget() -> None:
    """B87, B89 shared: triton#8182. Said at compile time, with who took what and the limit."""
    error = refused(
        """
@kernel tile[(32,)] shared(4_KiB) grid[(1,)]
def f(out: mut f32[n]):
    a = tshared.alloc((512,), f32)
    b = tshared.alloc((1024,), f32)
    a[0] = 1.0
    b[0] = 2.0
    tbarrier()
    out[0] = a[0] + b[0]
""",
        "T0501",
    )
    text = str(error)
    assert "6144" in text and "4096" in text and "2048" in text


# --- atomics -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "u32", "i64"])
def test_atomic_max_and_min(target: str, dtype: str) -> None:
    """B99 atomic: float maxima by integer tricks are wrong for negative values."""
    source = f"""
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def f(x: {dtype}[n], high: mut {dtype}[1], low: mut {dtype}[1]):
    i = grid_tile_linear_id()
    if i < n:
        atomic_max(high[0], x[i])
        atomic_min(low[0], x[i])
"""
    kind = DTYPES[dtype]
    rng = np.random.default_rng(2)
    sets = [rng.integers(1, 1000, 300)] if dtype == "u32" else [
        -rng.integers(1, 1000, 300), rng.integers(-500, 500, 300)
    ]  # fmt: skip
    m = load(source, target)
    for values in sets:
        x = values.astype(kind)
        info = np.iinfo(kind) if kind.kind in "iu" else np.finfo(kind)
        high, low = np.array([info.min], kind), np.array([info.max], kind)
        m.f(x, high, low)
        assert high[0] == x.max() and low[0] == x.min()


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_narrow_atomics_leave_neighbours_alone(target: str, dtype: str) -> None:
    """B101 atomic: triton#1387. 512 adds of 1 on alternating elements, none lost."""
    source = f"""
@kernel tile[(64,)] grid[(8,)]
def f(out: mut {dtype}[n]):
    i = grid_tile_linear_id()
    atomic_add(out[(i % 4) * 2 + 1], 1)
"""
    kind = DTYPES[dtype]
    out = np.zeros(9, kind)
    load(source, target).f(out)
    assert out[1::2].astype(np.float64).tolist() == [128] * 4
    assert (out[::2].astype(np.float64) == 0).all()


# --- reductions and scans ------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 11, 33, 257])
@pytest.mark.sample(2)
def test_maxima_of_negative_values(target: str, n: int) -> None:
    """B109 reduce: tvm#12274. Lanes without an element never count."""
    reduce = tessera.load("std.reduce", target=target)
    x = -np.random.default_rng(n).uniform(1, 2, (5, n)).astype(np.float32)
    assert float(np.asarray(reduce.max(x))) == x.max()
    assert np.array_equal(np.asarray(reduce.max(x, axis=1)), x.max(axis=1))
    assert np.array_equal(np.asarray(reduce.max(x, axis=0)), x.max(axis=0))


def test_argmax_with_nan_and_inf(target: str) -> None:
    """B111 reduce: triton#9022. The first NaN wins, as in NumPy."""
    reduce = tessera.load("std.reduce", target=target)
    for row in ([np.inf, np.nan], [np.nan, np.inf], [np.nan, 6, 8], [1, 3, 3], [2, 1, 1]):
        x = np.array(row, np.float32)
        assert int(np.asarray(reduce.argmax(x))) == int(np.argmax(x))
        assert int(np.asarray(reduce.argmin(x))) == int(np.argmin(x))


def test_sums_of_bools_and_small_integers(target: str) -> None:
    """B113 reduce: triton#5763. They accumulate in 32 bits."""
    reduce = tessera.load("std.reduce", target=target)
    assert int(np.asarray(reduce.sum(np.ones(1024, bool)))) == 1024
    assert int(np.asarray(reduce.sum(np.full(300, 100, np.int8)))) == 30000


@pytest.mark.parametrize("n", [0, 1, 2, 31, 32, 33, 64, 128, 1000, 2048, 2049, 5000, 100003])
@pytest.mark.slow
def test_scans_of_every_length(target: str, n: int) -> None:
    """B103 scan: triton#2359. Inclusive, exclusive and running maxima against NumPy."""
    scan = tessera.load("std.scan", target=target)
    x = np.random.default_rng(n).integers(-50, 50, n).astype(np.int32)
    assert np.array_equal(np.asarray(scan.inclusive(x)), np.cumsum(x, dtype=np.int32))
    exclusive = np.concatenate([[0], np.cumsum(x)])[:n].astype(np.int32)
    assert np.array_equal(np.asarray(scan.exclusive(x)), exclusive)
    assert np.array_equal(np.asarray(scan.running_max(x)), np.maximum.accumulate(x))


# --- compile time --------------------------------------------------------------------------


@pytest.mark.parametrize("operators", [24, 200, 5000])
@pytest.mark.sample(1)
def test_long_expressions(operators: int) -> None:
    """B131 compile: aiken#1377. Thousands of operators in seconds, no recursion."""
    import time

    terms = " + ".join(["x[i] * x[i]"] * (operators // 2))
    start = time.perf_counter()
    got = mapped("cpu", terms, np.ones(3), "f32")
    assert time.perf_counter() - start < 20
    assert got[0] == operators // 2


def test_right_nested_expressions() -> None:
    """B131 compile: nested to the limit, then a diagnostic."""
    deep = "x[i]"
    for _ in range(60):
        deep = f"(1.0 + {deep})"
    assert mapped("cpu", deep, np.ones(1), "f32")[0] == 61
    for _ in range(300):
        deep = f"(1.0 + {deep})"
    with pytest.raises(tessera.TesseraError):
        mapped("cpu", deep, np.ones(1), "f32")


# --- cache, processes, devices -------------------------------------------------------------


def test_edits_are_seen(target: str, tmp_path: Path) -> None:
    """B135 cache: triton#586. A helper, a constant, an imported file, a string: all count."""
    main, other = tmp_path / "main.tessera", tmp_path / "other.tessera"

    def write(helper: str, constant: str, imported: str, choice: str) -> float:
        other.write_text(f"def more(v): return v + {imported}\n")
        main.write_text(
            f"""
from other import more

SCALE = {constant}

def once(v): return v * {helper}

def chosen[how: str](v):
    if how == "double": return v * 2.0
    return v

@kernel tile[(1,)] grid[(1,)]
def f(x: f32[n], out: mut f32[n], how: str = "{choice}"):
    out[0] = chosen[how](more(once(x[0])) * SCALE)
"""
        )
        out = np.zeros(1, np.float32)
        tessera.load(str(main), target=target).f(np.ones(1, np.float32), out)
        return float(out[0])

    assert write("3.0", "1.0", "1.0", "none") == 4
    assert write("5.0", "1.0", "1.0", "none") == 6
    assert write("5.0", "10.0", "1.0", "none") == 60
    assert write("5.0", "10.0", "2.0", "none") == 70
    assert write("5.0", "10.0", "2.0", "double") == 140
    assert write("3.0", "1.0", "1.0", "none") == 4


def test_launch_from_another_thread(target: str) -> None:
    """B141 process: triton#3729. A compiled kernel runs from any thread."""
    import threading

    m = load(MAP.format(a="f32", b="f32", expression="x[i] + 1.0"), target)
    x = np.zeros(100, np.float32)
    m.f(x, np.zeros_like(x))
    results: list[np.ndarray] = []
    errors: list[BaseException] = []

    def work(value: int) -> None:
        try:
            out = np.zeros_like(x)
            for _ in range(20):
                m.f(x + value, out)
            results.append(out - value)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(v,)) for v in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not errors and len(results) == 4
    assert all((r == 1).all() for r in results)


def test_out_of_bounds_is_reported_with_its_place(target: str) -> None:
    """B147 message: warp#1483. Array, index, bound and line; the program stays whole."""
    m = load(MAP.format(a="f32", b="f32", expression="x[i + 60]"), target)
    x = np.arange(64, dtype=np.float32)
    out = np.full(64, 9, np.float32)

    def run() -> None:
        m.f(x, out)
        tessera.synchronize()

    with pytest.raises(tessera.TesseraError) as caught:
        run()
    text = str(caught.value)
    assert "x[i + 60]" in text and ":6:" in text and "0 to 63" in text
    m2 = load(MAP.format(a="f32", b="f32", expression="x[i]"), target)
    m2.f(x, out)
    assert np.array_equal(out, x)
