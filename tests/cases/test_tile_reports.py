"""Faults that users met in other tools, as tests of their whole kind, in tile kernels.

Each test names the kind and the public report in its docstring. All run on both targets. What
belongs to lane kernels is in ``test_public_reports``. On a GPU the arrays lie there in the layouts
they have here, gaps included.
"""

from __future__ import annotations

import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tests.on_device import with_layouts

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
BF16 = np.dtype(ml_dtypes.bfloat16)
Array = np.ndarray[Any, np.dtype[Any]]


MANY = pytest.mark.filterwarnings("ignore::tessera_backend.runtime.call_diagnostics.TesseraWarning")
"""For tests whose calls have more signatures than a user should have."""


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def load(source: str, target: str) -> Any:
    return with_layouts(tessera.compile(source, target=target), target)


def uniform(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype)


def f64(x: Array) -> Array:
    return x.astype(np.float64)


def close(found: Array, a: Array, b: Array, plus: Any = 0.0, of: float = 2.0**-24) -> None:
    """``found`` is ``a @ b + plus``, with the error of a sum in f32."""
    terms = a.shape[-1] + 4
    error = terms * of * (np.abs(f64(a)) @ np.abs(f64(b)) + np.abs(plus)) + 1e-30
    assert (np.abs(f64(found) - (f64(a) @ f64(b) + plus)) <= error).all()


# --- sizes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 7, 8, 16, 31, 32, 64, 128])
def test_tiles_narrower_than_a_warp(target: str, width: int) -> None:
    """B01 size: triton#435. A row maximum reads its own columns, all of them negative."""
    source = f"""
@op.kernel
def rowmax(x: f32[m, n], out: mut f32[m]):
    for r in op.tile_range(m, step=1):
        out[r] = op.max(x[r, 0:{width}])
"""
    x = np.full((16, width + 3), 9, np.float32)
    x[:, :width] = -1 - np.abs(uniform(16, width))
    out = np.zeros(16, np.float32)
    load(source, target).rowmax(x, out)
    assert np.array_equal(out, x[:, :width].max(axis=1))


@pytest.mark.parametrize("width", [8, 16, 32, 64, 128])
def test_a_row_maximum_in_a_lane_kernel(target: str, width: int) -> None:
    """B01 size: triton#435, as reported: by the lanes of a group."""
    source = f"""
@kernel tile[(8,)] grid[(m,)]
def rowmax(x: f32[m, {width}], out: mut f32[m]):
    r = group_linear_id()
    out[r] = op.max(x[r, 0:{width}])
"""
    x, out = uniform(16, width), np.zeros(16, np.float32)
    load(source, target).rowmax(x, out)
    assert np.array_equal(out, x.max(axis=1))


def test_a_window_over_the_edge_reads_zeros(target: str) -> None:
    """B03 size: triton#737. What lies outside of an image is 0 in each of nine shifted reads."""
    source = """
@op.kernel
def sums(img: f16[m, n], out: mut f32[m, n]):
    for i in op.tile_range(m, step=8):
        total = op.zeros((8, 8), f32)
        for d in range(3):
            for e in range(3):
                total += op.window(img, (i + d - 1, e - 1), (8, 8), fill=0).to(f32)
        out[i:i+8, 0:8] = total
"""
    img = uniform(8, 8, dtype=np.float16)
    out = np.full((8, 8), np.nan, np.float32)
    load(source, target).sums(img, out)
    wide = np.pad(f64(img), 1)
    want = sum(wide[d : d + 8, e : e + 8] for d in range(3) for e in range(3))
    assert np.abs(out - want).max() < 1e-5


def test_columns_that_no_split_divides(target: str) -> None:
    """B05 size: tilelang#2537. Every element of 16 x 104 is written, whatever the warps are."""
    a, b = uniform(16, 32), uniform(32, 104, seed=1)
    for directive in ("", "schedule.warps(12)", "schedule.warps(3)"):
        source = f"""
@op.kernel
def f(a, b, out):
    {directive or "schedule.vectorize(1)"}
    out[:] = a @ b
"""
        out = np.full((16, 104), 777, np.float32)
        load(source, target).f(a, b, out)
        close(out, a, b)


def test_an_overrunning_slice_is_cut_not_moved(target: str) -> None:
    """B07 size: jax#21143. The slice keeps its start; what it lacks is what ``fill`` says."""
    source = """
@op.kernel
def filled(x: f32[n], out: mut f32[8]):
    out[0:8] = op.window(x, 3, 8, fill=-1)

@op.kernel
def cut(x: f32[n], out: mut f32[n]):
    out[0:8] = op.window(x, 3, 8)

@op.kernel
def clipped(x: f32[n], total: mut f32[1]):
    total[0] = op.sum(x[3:11])
"""
    m = load(source, target)
    x = np.arange(8, dtype=np.float32)
    out = np.zeros(8, np.float32)
    m.filled(x, out)
    assert out.tolist() == [3, 4, 5, 6, 7, -1, -1, -1]
    m.cut(x, out)
    assert out.tolist() == [3, 4, 5, 6, 7, 0, 0, 0]
    total = np.zeros(1, np.float32)
    m.clipped(x, total)
    assert total[0] == 25


def test_empty_arrays_cold_and_warm(target: str) -> None:
    """B09 size: pytorch#178878. Nothing is launched; the sum of none is 0, the max -inf."""
    m = load(
        """
@op.kernel
def add(x, y):
    return x + y

@op.kernel
def rows(x: f32[m, n]):
    return op.sum(x, axis=1), op.max(x, axis=1)
""",
        target,
    )
    for n in (0, 8, 0, 8):
        x = uniform(n)
        assert np.array_equal(m.add(x, x), x + x)
    for shape in ((3, 0), (0, 3), (3, 2), (3, 0)):
        x = uniform(*shape)
        total, top = m.rows(x)
        assert np.allclose(total, x.sum(axis=1))
        assert np.array_equal(top, x.max(axis=1, initial=-np.inf))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((4, 2), "f32"), ((4, 3), "f16"), ((4, 1), "i8"), ((1, 1), "f64"), ((5, 3), "u8")],
)
def test_rows_narrower_than_a_vector(target: str, shape: tuple[int, int], dtype: str) -> None:
    """B11 size: warp#622. Copies are exact where a row has fewer than 16 bytes."""
    kinds = {"f32": np.float32, "f16": np.float16, "i8": np.int8, "f64": np.float64, "u8": np.uint8}
    source = f"""
@op.kernel
def copy(x: {dtype}[m, n], out: mut {dtype}[m, n]):
    for i, j in op.tile_range(m, n, step=(4, 8)):
        out[i:i+4, j:j+8] = x[i:i+4, j:j+8]
"""
    x = np.arange(1, shape[0] * shape[1] + 1).reshape(shape).astype(kinds[dtype])
    base = np.full((shape[0] + 2, shape[1]), 77, kinds[dtype])
    load(source, target).copy(x, base[1:-1])
    assert np.array_equal(base[1:-1], x)
    assert (base[0] == 77).all() and (base[-1] == 77).all()


@MANY
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.sample(1)
def test_stepped_slices_of_every_length(target: str, start: int) -> None:
    """B13 size: jax#23534. A slice with a step has ceil((n - start) / step) elements."""
    source = f"""
@op.kernel
def total(x: f32[n], out: mut f32[1]):
    out[0] = op.sum(x[{start}:64:3])
"""
    m = load(source, target)
    for n in range(1, 26):
        x = np.arange(1, n + 1, dtype=np.float32)
        out = np.zeros(1, np.float32)
        m.total(x, out)
        assert out[0] == x[start::3].sum()


# --- large offsets -------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.slow
def test_rows_past_two_to_the_31st_element() -> None:
    """B15, B17 overflow: megablocks#185. Offsets of tiles are exact around 2^31 elements."""
    torch = pytest.importorskip("torch")
    a = torch.zeros((600000, 4096), dtype=torch.float16, device="cuda")
    out = torch.zeros(4096, dtype=torch.float16, device="cuda")
    m = load(
        """
@op.kernel
def row(a: f16[m, n], r: index, out: mut f16[n]):
    out[:] = a[max(r, 0), :]
""",
        "cuda",
    )
    for r in (524287, 524288, 599999):
        a[r] = torch.randn(4096, device="cuda").half()
        m.row(a, r, out)
        assert torch.equal(out, a[r])


# --- strides -------------------------------------------------------------------------------

VIEWS = """
@op.kernel
def copy(x):
    return x + 0.0

@op.kernel
def both(x: f32[m, n], y: f32[m, n]):
    return x + y

@op.kernel
def written(x: mut f32[m, n]):
    x[:] = 1.0
"""


def test_reversed_and_stepped_views(target: str) -> None:
    """B21 stride: numba#3705. ``x[::-1]`` and its like read what NumPy reads."""
    m = load(VIEWS, target)
    x = np.arange(1, 11, dtype=np.float32)
    for view in (x[::-1], x[::-2], x[5:1:-1], x[1::3], x[:0]):
        assert np.array_equal(m.copy(view), view)


def test_every_second_boundary(target: str) -> None:
    """B23 stride: pytorch#135873. How many of the boundaries of a stepped view lie below."""
    source = """
@op.kernel
def below(b: f32[n], x: f32[m], out: mut i32[m]):
    for i in op.tile_range(m, step=16):
        out[i:i+16] = op.sum(b[:][None, :] < x[i:i+16][:, None], axis=1)
"""
    b = np.sort(uniform(33))
    x = uniform(40, seed=1)
    for view in (b[::2], b[::2].copy(), b[::-1], b[32:]):
        out = np.zeros(40, np.int32)
        load(source, target).below(view, x, out)
        assert np.array_equal(out, np.searchsorted(np.sort(view), x))


def test_a_number_that_is_broadcast(target: str) -> None:
    """B25 stride: TransformerEngine#623. All strides 0: every read is the one number; no write."""
    m = load(VIEWS, target)
    ones = np.broadcast_to(np.float32(1), (64, 2))
    assert np.array_equal(m.copy(ones), np.ones((64, 2)))
    base = np.zeros(1, np.float32)
    shared = np.lib.stride_tricks.as_strided(base, (64, 2), (0, 0))
    with pytest.raises(tessera.TesseraError):
        m.written(shared)
    assert base[0] == 0


def test_a_view_with_a_gap_between_its_planes(target: str) -> None:
    """B27 stride: pytorch#172693. Strides (288, 9, 1) of (2, 16, 9), and a reshaped copy."""
    m = load(VIEWS, target)
    base = uniform(2, 32, 9)
    view = base[:, :16]
    assert view.strides == (288 * 4, 36, 4)
    assert np.array_equal(m.copy(view), view)
    assert np.array_equal(m.copy(view.reshape(2, 8, 18)), view.reshape(2, 8, 18))


def test_two_halves_of_one_array(target: str) -> None:
    """B29 stride: triton#8926. Two views side by side in one array."""
    x = uniform(4, 6)
    assert np.array_equal(load(VIEWS, target).both(x[:, :3], x[:, 3:]), x[:, :3] + x[:, 3:])


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int8])
@pytest.mark.sample(1)
def test_products_of_any_layout(target: str, dtype: Any) -> None:
    """Strides of the operands of a product: transposed, stepped, reversed, broadcast."""
    m = load("@op.kernel\ndef f(a, b):\n    return a @ b\n", target)
    r = np.random.default_rng(0)
    base = r.integers(-4, 5, (80, 90)).astype(dtype)
    other = r.integers(-4, 5, (90, 80)).astype(dtype)
    for a in (base[:33, :40], base.T[:33, :40], base[:66:2, :80:2], base[32::-1, 39::-1]):
        for b in (other[:40, :35], other.T[:40, :35], other[1:80:2, :35],
                  np.broadcast_to(other[:1, :35], (40, 35))):  # fmt: skip
            want = f64(a) @ f64(b)
            assert np.array_equal(
                f64(m.f(a, b)), f64(want.astype(dtype)) if dtype == BF16 else want
            )


@pytest.mark.parametrize(
    "sizes", [(1, 32, 2, 64), (1, 128, 128, 64), (2, 1, 64, 64), (2, 64, 1, 8)]
)
@pytest.mark.sample(1)
def test_axes_of_one_element_have_strides_of_any_kind(
    target: str, sizes: tuple[int, int, int, int]
) -> None:
    """What is never stepped along has a stride that means nothing, odd ones included."""
    m = load(
        """
@op.kernel
def f(a: bf16[g, m, k], b: bf16[g, n, k]):
    out = op.empty((g, m, n), f32)
    for z, i, j in op.tile_range(g, m, n, step=(1, 64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=64):
            acc += a[z, i:i+64, p:p+64] @ b[z, j:j+64, p:p+64].T
        out[z, i:i+64, j:j+64] = acc
    return out
""",
        target,
    )
    g, rows, columns, k = sizes
    r = np.random.default_rng(0)
    a = r.integers(-4, 5, (g, rows, k)).astype(BF16)
    b = r.integers(-4, 5, (g, columns, k)).astype(BF16)
    want = f64(a) @ f64(b).transpose(0, 2, 1)
    for turn in (lambda x: x, lambda x: np.ascontiguousarray(x.T).T, odd_where_one):
        assert np.array_equal(m.f(turn(a), turn(b)), want)


def odd_where_one(x: Any) -> Any:
    """The same elements, with an odd stride where an axis has one element."""
    strides = [3 * x.itemsize if n == 1 else s for n, s in zip(x.shape, x.strides, strict=True)]
    return np.lib.stride_tricks.as_strided(x, strides=strides)


# --- integers and floats in tiles ------------------------------------------------------------


def test_division_floors_in_tiles_too(target: str) -> None:
    """B30 int: triton#619. ``//`` and ``%`` of tile elements are Python's; INT_MIN // -1 wraps."""
    source = """
@op.kernel
def f(x, y):
    return x // y, x % y
"""
    for dtype in (np.int8, np.int32, np.int64):
        x = np.arange(-8, 8).astype(dtype)
        for y in (-3, -2, -1, 2, 7):
            q, r = load(source, target).f(x, np.full(16, y, dtype))
            assert np.array_equal(q, x // dtype(y)) and np.array_equal(r, x % dtype(y))
    low = np.full(1, np.iinfo(np.int32).min, np.int32)
    q, r = load(source, target).f(low, np.full(1, -1, np.int32))
    assert q[0] == low[0] and r[0] == 0


def test_sums_of_f16_do_not_overflow_on_the_way(target: str) -> None:
    """B54 float: pytorch#2391. Sums of f16 are kept in f32 and rounded once."""
    m = load(
        """
@op.kernel
def total(x: f16[n]):
    return op.sum(x)

@op.kernel
def mean(x: f16[n]):
    return op.mean(x)
""",
        target,
    )
    assert m.total(np.array([32000] * 4 + [-32000] * 4, np.float16)) == 0
    assert m.mean(np.ones(70000, np.float16)) == 1


def test_a_loop_variable_that_is_changed(target: str) -> None:
    """B62 flow: triton#2015. Python's rounds, whatever the pipeline is."""
    for stages in (1, 2, 3):
        source = f"""
@op.kernel
def f(x: f32[n], offset: index, out: mut f32[1]):
    schedule.pipeline_stages({stages})
    total: f32 = 0.0
    for k in range(0, 20, 4):
        k = k + max(offset, 0)
        total += op.sum(x[k:k+2])
    out[0] = total
"""
        x, out = uniform(64), np.zeros(1, np.float32)
        try:
            load(source, target).f(x, 3, out)
        except tessera.TesseraError as refused:  # or refused, with the line
            assert refused.diagnostics[0].span is not None
            assert not refused.diagnostics[0].code.startswith("T09")
            continue
        want = sum(float(x[k + 3 : k + 5].sum()) for k in range(0, 20, 4))
        assert abs(out[0] - want) < 1e-5


# --- shared memory ---------------------------------------------------------------------------


def test_two_buffers_are_apart(target: str) -> None:
    """B85 shared: numba#5073. Two buffers, and two parts of one, do not meet."""
    source = """
@op.kernel
def f(out: mut i32[n]):
    a = op.shared((2,), dtype=i32)
    b = op.shared((2,), dtype=i32)
    a[:] = 1
    b[:] = 2
    a[1:2] = 7
    out[0:2] = a
    out[2:4] = b
"""
    out = np.zeros(4, np.int32)
    load(source, target).f(out)
    assert out.tolist() == [1, 7, 2, 2]


def test_too_much_shared_memory_is_refused_when_compiled() -> None:
    """B87, B89 shared: triton#8182, warp#1701. The buffers, their bytes and the limit are named."""
    source = """
@op.kernel
def f(a: bf16[m, k], b: bf16[k, n]) -> bf16[m, n]:
    schedule.tile((128, 256, 64))
    schedule.pipeline_stages(8)
    return a @ b
"""
    session = Session(overlay={"p.tessera": source})
    signature = session.signature("p.tessera", "f", text="a: bf16[4096, 4096], b: bf16[4096, 4096]")
    from tessera_lang.target.backend import TargetOptions

    with pytest.raises(tessera.TesseraError) as caught:
        session.compile_kernel("p.tessera", "f", signature, TargetOptions("cuda", "sm_90a"))
    (fault,) = caught.value.diagnostics
    numbers = [int(w.replace(",", "")) for w in fault.message.replace("`", " ").split()
               if w.replace(",", "").isdigit()]  # fmt: skip
    assert fault.code == "T0740" and fault.notes and fault.helps
    assert max(numbers) > 232448 >= min(numbers)


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_a_buffer_read_then_filled_again(target: str, rounds: int) -> None:
    """B91 race: tilelang#2699. Read, fill, read again, in every round."""
    source = f"""
@op.kernel
def f(x: f32[8, 64], out: mut f32[2, 64]):
    buf = op.shared((1, 64), dtype=f32)
    first = op.zeros((1, 64), f32)
    second = op.zeros((1, 64), f32)
    for r in range({rounds}):
        op.prefetch(buf, x[r:r+1, :])
        op.barrier()
        first += buf * 1.0
        buf[:] = 2.0
        second += buf * 1.0
    out[0:1, :] = first
    out[1:2, :] = second
"""
    x, out = uniform(8, 64), np.zeros((2, 64), np.float32)
    load(source, target).f(x, out)
    assert np.abs(out[0] - f64(x[:rounds]).sum(axis=0)).max() < 1e-5
    assert (out[1] == 2 * rounds).all()


# --- reductions ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 11, 33])
@pytest.mark.sample(2)
def test_a_maximum_of_few_negative_numbers(target: str, n: int) -> None:
    """B109 reduce: tvm#12274. What lies beyond the row is no 0 to the maximum."""
    x = -1 - np.abs(uniform(5, n))
    m = load("@op.kernel\ndef f(x):\n    return op.max(x, axis=1), op.min(x, axis=1)\n", target)
    top, low = m.f(x)
    assert np.array_equal(top, x.max(axis=1)) and np.array_equal(low, x.min(axis=1))


def test_the_first_nan_is_the_greatest(target: str) -> None:
    """B111 reduce: triton#9022. ``argmax`` of NaN and infinities is NumPy's."""
    source = """
@op.kernel
def f(x: f32[m, n], out: mut i64[m]):
    for r in op.tile_range(m, step=1):
        out[r] = i64(op.argmax(x[r, :]))
"""
    inf, nan = np.inf, np.nan
    x = np.array([[inf, nan, 0], [nan, inf, 0], [nan, 6, 8], [1, nan, nan], [-inf, -inf, -inf]],
                 np.float32)  # fmt: skip
    out = np.full(5, -1, np.int64)
    load(source, target).f(x, out)
    assert out.tolist() == x.argmax(axis=1).tolist()


def test_counts_of_bools_and_bytes(target: str) -> None:
    """B113 reduce: triton#5763. Bools count, bytes add up in 32 bits."""
    m = load("@op.kernel\ndef f(x):\n    return op.sum(x)\n", target)
    assert m.f(np.ones(1024, bool)) == 1024
    assert m.f(np.full(300, 100, np.int8)) == 30000
    assert m.f(np.full(300, 200, np.uint8)) == 60000


# --- products --------------------------------------------------------------------------------


SMALL = (0, 1, 2, 3, 7, 8, 15, 16, 17, 33)


@MANY
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
def test_products_of_every_small_size(target: str, dtype: Any) -> None:
    """B116 matmul: triton#4230. Below, at and above the sizes of the units; K = 0 too (R1)."""
    m = load("@op.kernel\ndef f(a, b):\n    return a @ b\n", target)
    r = np.random.default_rng(0)
    for rows in SMALL:
        for columns in SMALL[:: 1 if rows == 17 else 4]:
            for k in SMALL[rows % 2 :: 2]:
                a = r.integers(-3, 4, (rows, k)).astype(dtype)
                b = r.integers(-3, 4, (k, columns)).astype(dtype)
                assert np.array_equal(f64(m.f(a, b)), f64(a) @ f64(b))


def test_a_store_ends_at_the_inner_extent(target: str) -> None:
    """B120 tma: triton#11583. A view of 466 bytes in rows of 512: the rest is as it was."""
    m = load(
        """
@op.kernel
def copy(x: i8[m, n], out: mut i8[m, n]):
    for i, j in op.tile_range(m, n, step=(32, 128)):
        out[i:i+32, j:j+128] = x[i:i+32, j:j+128]

@op.kernel
def product(a: i8[m, k], b: i8[k, n], out: mut i32[m, n]):
    out[:] = a @ b
""",
        target,
    )
    r = np.random.default_rng(0)
    for width in (466, 465, 480, 1, 16):
        x = r.integers(-128, 128, (32, width)).astype(np.int8)
        base = np.full((34, 512), 77, np.int8)
        m.copy(x, base[1:33, :width])
        assert np.array_equal(base[1:33, :width], x)
        assert (base[0] == 77).all() and (base[33] == 77).all() and (base[:, width:] == 77).all()
        a = r.integers(-8, 8, (32, 40)).astype(np.int8)
        b = r.integers(-8, 8, (40, width)).astype(np.int8)
        wide = np.full((34, 512), 77, np.int32)
        m.product(a, b, wide[1:33, :width])
        assert np.array_equal(wide[1:33, :width], a.astype(np.int32) @ b.astype(np.int32))
        assert (wide[0] == 77).all() and (wide[33] == 77).all() and (wide[:, width:] == 77).all()


@pytest.mark.parametrize("stages", [0, 1, 2, 3, 4])
def test_a_buffer_is_read_before_it_is_filled(target: str, stages: int) -> None:
    """B122 pipe: tilelang#2668. Each round uses the tile of the round before."""
    directive = f"    schedule.pipeline_stages({stages})\n" if stages else ""
    source = f"""
@op.kernel
def f(a: f32[32, 128], b: f32[128, 32], out: mut f32[32, 32]):
{directive}    near = op.shared((32, 16), dtype=f32)
    near[:] = 0.0
    acc = op.zeros((32, 32), f32)
    for p in range(0, 128, 16):
        acc += near @ b[p:p+16, 0:32]
        op.prefetch(near, a[0:32, p:p+16])
    out[0:32, 0:32] = acc
"""
    a, b, out = uniform(32, 128), uniform(128, 32, seed=1), np.zeros((32, 32), np.float32)
    load(source, target).f(a, b, out)
    close(out, a[:, :112], b[16:])


@pytest.mark.parametrize("t", [16, 32, 48, 64])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.sample
def test_two_products_into_one_accumulator(target: str, t: int, dtype: Any) -> None:
    """B124 matmul: triton#10821. Both products of a round are in the sum."""
    source = """
@op.kernel
def f(a, b, c, d, out: mut f32[m, n], t: int):
    for i, j in op.tile_range(out.shape[0], out.shape[1], step=t):
        acc = op.zeros((t, t), f32)
        for k in op.tile_range(a.shape[1], step=t):
            acc += a[i:i+t, k:k+t] @ b[k:k+t, j:j+t]
            acc += c[i:i+t, k:k+t] @ d[k:k+t, j:j+t]
        out[i:i+t, j:j+t] = acc
"""
    a, b = uniform(65, 100, dtype=dtype), uniform(100, 70, dtype=dtype, seed=1)
    c, d = uniform(65, 100, dtype=dtype, seed=2), uniform(100, 70, dtype=dtype, seed=3)
    out = np.zeros((65, 70), np.float32)
    load(source, target).f(a, b, c, d, out, t=t)
    close(out, np.hstack([a, c]), np.vstack([b, d]))


# --- softmax, norms, attention ---------------------------------------------------------------


def softmax(z: Array) -> Array:
    top = z.max(axis=-1, keepdims=True)
    e = np.exp(z - np.where(np.isinf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


@pytest.mark.parametrize("n", [0, 1, 2, 33, 128, 8192, 8193, 20000])
@pytest.mark.sample(2)
def test_a_row_without_a_key(target: str, n: int) -> None:
    """B125 softmax: burn#4694. Nothing but -inf gives zeros; one element gives 1 (R2)."""
    source = """
@op.kernel
def whole(x):
    return op.softmax(x)

@op.kernel
def rows(x: f32[m, n]) -> f32[m, n]:
    y = op.empty_like(x)
    for i in op.tile_range(m, step=1):
        y[i, :] = op.softmax(x[i, :])
    return y
"""
    x = uniform(4, n)
    x[1], x[2, ::2] = -np.inf, -np.inf
    m = load(source, target)
    for found in (m.whole(x), m.rows(x)):
        assert found.shape == x.shape
        if n:
            assert np.abs(found - softmax(f64(x))).max() <= (n + 10) * 2.0**-24
            assert (found[1] == 0).all() and (n > 1 or found[0, 0] == 1)


NORM = """
@op.kernel
def norm(x: f32[m, n]) -> f32[m, n]:
    y = op.empty_like(x)
    for i in op.tile_range(m, step=1):
        row = x[i, :]
        away = row - op.mean(row)
        scale = rsqrt(op.mean(away * away) + 1e-5)
        y[i, :] = away * scale
    return y

@op.kernel
def columns(x: f32[m, n]) -> f32[m, n]:
    y = op.empty_like(x)
    for j in op.tile_range(n, step=32):
        part = x[:, j:j+32]
        total = op.sum(exp(part), axis=0)
        y[:, j:j+32] = part - log(total)[None, :]
    return y
"""


@pytest.mark.parametrize("n", [1, 31, 1025, 4095, 8192, 8193, 20001])
@pytest.mark.sample(4)
def test_norms_of_rows_of_every_size(target: str, n: int) -> None:
    """Norms, kind K: a row that is streamed gives what a row that fits gives."""
    x = uniform(3, n) + np.float32(5)
    z = f64(x) - f64(x).mean(axis=1, keepdims=True)
    want = z / np.sqrt((z * z).mean(axis=1, keepdims=True) + 1e-5)
    assert np.abs(load(NORM, target).norm(x) - want).max() < 1e-4


@pytest.mark.parametrize("m", [5, 2048, 2049, 3000, 9001])
@pytest.mark.sample(3)
def test_what_is_used_in_each_part_of_a_column_is_kept(target: str, m: int) -> None:
    """A value from before a loop was overwritten in the first round of it (our own fault)."""
    x = uniform(m, 33)
    want = f64(x) - np.log(np.exp(f64(x)).sum(axis=0))
    assert np.abs(load(NORM, target).columns(x) - want).max() < 1e-5


ATTENTION = """
@op.kernel
def attention[BM: int = 32, BN: int = 32](
    q: f32[s, d], k: f32[t, d], v: f32[t, d], bias: f32[s, t], scale: f32, causal: bool = False
) -> f32[s, d]:
    o = op.empty_like(q)
    for i in op.tile_range(s, step=BM):
        top = op.full((BM,), -inf, f32)
        total = op.zeros((BM,), f32)
        acc = op.zeros((BM, d), f32)
        for j in op.tile_range(t, step=BN):
            logits = (q[i:i+BM, :] @ k[j:j+BN, :].T) * scale + bias[i:i+BM, j:j+BN]
            if causal:
                logits = op.causal(logits, row=i, column=j, offset=t - s)
            new_top = max(top, op.max(logits, axis=1))
            p = exp(logits - new_top[:, None])
            shrink = exp(top - new_top)
            total = total * shrink + op.sum(p, axis=1)
            acc = acc * shrink[:, None] + p @ v[j:j+BN, :]
            top = new_top
        o[i:i+BM, :] = acc / total[:, None]
    return o

@op.kernel
def whole(q, k, v, bias, scale: f32):
    return op.softmax(q @ k.T * scale + bias) @ v
"""


@pytest.mark.parametrize("s", [1, 2, 48, 63, 64, 65, 96, 127, 128, 129])
@pytest.mark.sample(1)
def test_attention_with_a_mask_that_is_added(target: str, s: int) -> None:
    """B127, B129 attention: triton#2626, triton-msl#7. One tolerance where tiles divide or not."""
    q, k, v = uniform(s, 16), uniform(s, 16, seed=1), uniform(s, 16, seed=2)
    mask = np.where(np.tri(s, dtype=bool), 0, -np.inf).astype(np.float32)
    want = softmax(f64(q) @ f64(k).T * 0.25 + f64(mask)) @ f64(v)
    m = load(ATTENTION, target)
    none = np.zeros((s, s), np.float32)
    for found in (
        m.attention(q, k, v, mask, 0.25),
        m.attention(q, k, v, none, 0.25, causal=True),
        m.whole(q, k, v, mask, 0.25),
    ):
        assert np.abs(found - want).max() < 2e-6


# --- what the compiler itself takes --------------------------------------------------------------


@pytest.mark.parametrize("operators", [24, 200, 2000])
@pytest.mark.sample(1)
def test_long_expressions_of_tiles(operators: int) -> None:
    """B131 compile: aiken#1377. The time grows with the number of operators, not faster."""
    terms = " + ".join(["x", *("y * x" if i % 2 else "y" for i in range(operators // 2))])
    source = f"@op.kernel\ndef f(x, y):\n    return {terms}\n"
    x, y = uniform(33), uniform(33, seed=1)
    start = time.monotonic()
    try:
        found = load(source, "cpu").f(x, y)
    except tessera.TesseraError as refused:
        assert not any(d.code.startswith("T09") for d in refused.diagnostics)
    else:
        want = f64(x) + sum(f64(y) * f64(x) if i % 2 else f64(y) for i in range(operators // 2))
        assert np.abs(found - want).max() < operators**2 * 2.0**-24
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1)])
def test_axes_of_one(target: str, shape: tuple[int, int]) -> None:
    """R5: size-1 axes in broadcasts, reductions and transposes."""
    m = load(
        """
@op.kernel
def f(x: f32[m, n], row: f32[n], column: f32[m]):
    return x * row[None, :] + column[:, None]

@op.kernel
def g(x):
    return op.sum(x, axis=0), op.max(x, axis=1), x.T
""",
        target,
    )
    x, row, column = uniform(*shape), uniform(shape[1]), uniform(shape[0])
    assert np.array_equal(m.f(x, row, column), x * row + column[:, None])
    total, top, turned = m.g(x)
    assert np.allclose(total, x.sum(axis=0)) and np.array_equal(top, x.max(axis=1))
    assert np.array_equal(turned, x.T)


def test_a_default_takes_the_dtype_of_its_bracket() -> None:
    """A whole number as default of ``alpha: S`` is an ``S``, no index (our own fault)."""
    source = "@op.kernel\ndef f[S: dtype = f32](x: S[n], alpha: S = 1):\n    return alpha * x\n"
    x = uniform(3)
    assert np.array_equal(load(source, "cpu").f(x), x)


def test_an_assert_behind_a_return_that_is_taken() -> None:
    """A function that returns for one dtype asserts for the others only."""
    source = """
def raised(x):
    if x.dtype == f64: return x
    assert x.dtype == f32, "f32 or f64"
    return x * 1.0

@op.kernel
def f(x):
    return raised(x)
"""
    x = uniform(3, dtype=np.float64)
    assert np.array_equal(load(source, "cpu").f(x), x)


# --- sums of rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [BF16, np.int8])
@pytest.mark.parametrize("n", [5, 700])
@pytest.mark.sample(1)
def test_a_sum_of_rows_of_any_length(target: str, dtype: Any, n: int) -> None:
    """Narrow sums into a place without a capacity, kept unrounded over the loop: the parts of a
    row are outside of the loop over the rows, whatever their loops are called."""
    kind = "bf16" if dtype == BF16 else "i8"
    source = f"""
@op.kernel
def f(x: {kind}[m, n], y: mut {kind}[n]):
    for i in op.tile_range(m, step=1):
        y[0:n] += x[i, :]

@op.kernel
def scaled(x: {kind}[m, n], s: {kind}[m], y: mut {kind}[n]):
    for r in op.tile_range(m, step=1):
        y[:] += x[r, :] * s[r]

@op.kernel
def weighed(x: {kind}[m, n], y: mut {kind}[n]):
    for r in range(m):
        y[:] += x[r, :] * op.max(x[r, :])
"""
    x, s, y = np.ones((300, n), dtype), np.ones(300, dtype), np.zeros(n, dtype)
    want = np.full(n, 300.0 if dtype == BF16 else 44.0)
    m = load(source, target)
    m.f(x, y)
    assert np.array_equal(f64(y), want)
    y[:] = 0
    m.scaled(x, s, y)
    assert np.array_equal(f64(y), want)
    y[:] = 0
    m.weighed(x, y)
    assert np.array_equal(f64(y), want)
