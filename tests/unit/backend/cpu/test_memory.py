"""Guards and the fault record, atomics from several threads, fences, strided views."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tessera_lang.ir.core import PointerType, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.target.launch_plan import LaunchPlan, Slot
from tessera_lang.types.dtype import (
    BF16,
    BOOL,
    DTYPES,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F64,
    I32,
    INDEX,
    DType,
)
from tests.unit.backend.cpu.kernels import add, histogram, position, when
from tests.unit.backend.tile_kernels import NUMPY, Kernel, Runner


def test_reads_outside_give_zero_writes_are_skipped() -> None:
    run = Runner(add("guarded", condition=False))
    for n in (0, 1, 255, 256, 257, 1000):
        x = np.arange(n, dtype=np.float32)
        y = np.ones(max(n - 3, 0), np.float32)
        out = np.full(n + 8, -1.0, np.float32)
        view = out[:n]
        run(x, y, view, groups=(4,))
        wanted = x.copy()
        wanted[: y.size] += 1
        np.testing.assert_array_equal(view, wanted)
        np.testing.assert_array_equal(out[n:], -1.0)
        state, axis, index, bound, group, lane = run.fault[:6]
        assert state in (1, 2, 3) and axis == 0
        assert index == group * 256 + lane and index >= bound
        assert bound == (x.size, y.size, view.size)[state - 1]


def test_the_first_axis_outside_is_reported() -> None:
    """A view of two axes, indices from memory, one of them wrong in each lane."""
    b = Builder()
    arguments = [("p", PointerType(F32, "global")), ("m", INDEX), ("n", INDEX),
                 ("q", PointerType(INDEX, "global")), ("fault", INDEX)]  # fmt: skip
    with b.region(*arguments) as region:
        p, m, n, q, _ = region.arguments
        view = b.view(p, [m, n], mut=True)
        index = b.view(q, [b.index(2)])
        row, column = (b.load(index, [b.index(i)], "proved") for i in (0, 1))
        b.store(b.load(view, [row, column], site=0), view, [b.index(0), b.index(0)], "proved")
        b.return_()
    names = [name for name, _ in arguments]
    b.kernel("k", region.region, group=(1,), grid_rank=1, parameters=names)
    kinds = ("data", "size", "size", "data", "fault")
    plan = LaunchPlan("k", (), tuple(Slot(k, 0) for k in kinds), (1,), None)  # type: ignore[arg-type]
    runner = Runner((b.program(), plan))
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    for where, wanted in (((1, 2), None), ((3, 2), (0, 3, 3)), ((-1, 9), (0, -1, 3)),
                          ((2, 4), (1, 4, 4)), ((0, 1 << 62), (1, 1 << 62, 4))):  # fmt: skip
        array[0, 0] = 77
        index = np.array(where, np.int64)
        fault = (ctypes.c_int64 * 8)()
        slots = (ctypes.c_int64 * 5)(
            array.ctypes.data, 3, 4, index.ctypes.data, ctypes.addressof(fault)
        )
        runner.kernel.launch(slots, (1,))
        if wanted is None:
            assert fault[0] == 0 and array[0, 0] == array[1, 2]
        else:
            assert (fault[0], fault[1], fault[2], fault[3]) == (1, *wanted)
            assert array[0, 0] == 0


def test_strided_and_reversed_views() -> None:
    b = Builder()
    arguments = [("p", PointerType(F32, "global")), ("m", INDEX), ("n", INDEX), ("s", INDEX),
                 ("t", INDEX), ("q", PointerType(F32, "global"))]  # fmt: skip
    with b.region(*arguments) as region:
        p, m, n, s, t, q = region.arguments
        view = b.view(p, [m, n], [s, t])
        out = b.view(q, [m, n], mut=True)
        row, column = b.lane_index(0), b.lane_index(1)
        inside = b.binary("and", b.cmp("lt", row, m), b.cmp("lt", column, n))
        when(b, inside, lambda: b.store(b.load(view, [row, column]), out, [row, column]))
        b.return_()
    names = [name for name, _ in arguments]
    b.kernel("k", region.region, group=(8, 8), grid_rank=1, parameters=names)
    kinds = ("data", "size", "size", "stride", "stride", "data")
    plan = LaunchPlan("k", (), tuple(Slot(k, 0) for k in kinds), (8, 8), None)  # type: ignore[arg-type]
    runner = Runner((b.program(), plan))
    base = np.arange(64, dtype=np.float32).reshape(8, 8)
    views = [base, base.T, base[::-1, ::2], base[:5, 3:], base[::-2, ::-3],
             np.broadcast_to(np.float32(1), (6, 2)), base[:1, :1]]  # fmt: skip
    for view in views:
        out = np.zeros(view.shape, np.float32)
        s, t = (stride // 4 for stride in view.strides)
        values = (view.__array_interface__["data"][0], *view.shape, s, t, out.ctypes.data)
        runner.kernel.launch((ctypes.c_int64 * 6)(*values), (1,))
        np.testing.assert_array_equal(out, view)


# --- atomics --------------------------------------------------------------------------------

ATOMIC = [d for d in DTYPES.values() if d.kind != "bool"]


def updates(dtype: DType, kind: str, scope: str = "device", lanes: int = 32) -> Runner:
    """Every lane of the grid updates cell 1 of three with its element."""

    def make(b: Builder, views: list[Value]) -> None:
        i = position(b, lanes)
        value = b.load(views[0], [i], "proved")
        b.atomic(kind, value, views[1], [b.index(1)], scope=scope, bounds="proved")

    return Runner(Kernel((lanes,)).build([dtype, dtype], make))


def combined(kind: str, values: Any, wide: Any, cells: Any) -> Any:
    """What 5 becomes; any exchange may have been the last."""
    start = np.array(5, cells.dtype)
    match kind:
        case "add" | "sub":
            return 5 + wide.sum() if kind == "add" else 5 - wide.sum()
        case "min" | "max":
            return min(5, wide.min()) if kind == "min" else max(5, wide.max())
        case "exchange":
            assert cells[1] in values
            return cells[1]
        case _:
            gather = getattr(np, f"bitwise_{kind}")
            return gather(gather.reduce(values), start)


@pytest.mark.parametrize("dtype", ATOMIC, ids=str)
@pytest.mark.sample(1)
def test_atomics_leave_neighbours_alone(dtype: DType) -> None:
    kinds = ["add", "sub", "min", "max", "exchange"]
    kinds += [] if dtype.is_float else ["and", "or", "xor"]
    kind_of = NUMPY[dtype.name]
    generator = np.random.default_rng(1)
    values = generator.integers(0, 2, 32 * 64).astype(kind_of)
    for kind in kinds:
        cells = np.array([7, 5, 6], kind_of)
        updates(dtype, kind)(values, cells, groups=(64,), threads=4)
        assert (float(cells[0]), float(cells[2])) == (7.0, 6.0), kind
        wide = values.astype(np.int64) if not dtype.is_float else values.astype(np.float64)
        if dtype.is_float and dtype.bits < 16 and kind in ("add", "sub"):
            continue  # sums are rounded at each step
        if dtype == BF16 and kind in ("add", "sub"):
            continue
        wanted = combined(kind, values, wide, cells)
        if not dtype.is_float and kind in ("add", "sub"):
            wanted = np.array(int(wanted) % (1 << dtype.bits), np.uint64).astype(kind_of)
        assert cells[1] == np.array(wanted).astype(kind_of), kind


@pytest.mark.parametrize("dtype", [F16, BF16, F8E4M3, F8E5M2], ids=str)
def test_narrow_sums_over_neighbouring_cells(dtype: DType) -> None:
    """256 additions of one over alternating 0 and 1, all cells in the same words."""

    def make(b: Builder, views: list[Value]) -> None:
        i = position(b, 32)
        cell = b.binary("mod", i, b.index(64))
        b.atomic("add", b.constant(1.0, dtype), views[0], [cell], bounds="proved")

    run = Runner(Kernel((32,)).build([dtype], make))
    cells = (np.arange(64) % 2).astype(NUMPY[dtype.name])
    run(cells, groups=(8,), threads=4)
    np.testing.assert_array_equal(cells.astype(np.float32), 4.0 + np.arange(64) % 2)


def test_float_extremes_with_signs_zeros_and_nan(whole: bool) -> None:
    for dtype in (F32, F64) if whole else (F32,):
        for values, least, most in (
            ([-3.0, -1.5, -8.0], -8.0, -1.5), ([-0.0, 0.0], -0.0, 0.0),
            ([-2.0, 4.0, 0.0], -2.0, 4.0), ([1.0, float("nan"), 3.0], np.nan, np.nan),
        ):  # fmt: skip
            padded = np.resize(np.array(values), 32).astype(NUMPY[dtype.name])
            for kind, start, wanted in (("max", -np.inf, most), ("min", np.inf, least)):
                for scope in ("device", "group"):
                    cells = np.array([0, start, 0], NUMPY[dtype.name])
                    updates(dtype, kind, scope)(padded, cells)
                    np.testing.assert_array_equal(cells[1], wanted)
                    assert np.isnan(wanted) or np.signbit(cells[1]) == np.signbit(wanted)


def test_tickets_are_dealt_once() -> None:
    """The old value that an atomic gives, and compare and exchange, across threads."""

    def make(b: Builder, views: list[Value]) -> None:
        counter, taken = views
        old = b.atomic("add", b.constant(1, I32), counter, [b.index(0)], bounds="proved")
        b.store(b.cast(b.lane_linear(), I32), taken, [b.cast(old, INDEX)], bounds="proved")
        with b.region(("f", INDEX)) as head:
            tried = b.atomic_load(counter, [b.index(1)], bounds="proved")
            more = b.binary("add", tried, b.constant(1, I32))
            found = b.atomic_cas(tried, more, counter, [b.index(1)], bounds="proved")
            b.condition(b.cmp("ne", found, tried), head.arguments[0])
        with b.region(("f", INDEX)) as body:
            b.yield_(body.arguments[0])
        b.while_([b.index(0)], head.region, body.region)

    run = Runner(Kernel((16,)).build([I32, I32], make, mut=(0, 1)))
    counter, taken = np.zeros(2, np.int32), np.full(1600, -1, np.int32)
    run(counter, taken, groups=(100,), threads=4)
    assert list(counter) == [1600, 1600]
    np.testing.assert_array_equal(np.bincount(taken, minlength=16), 100)


def test_groups_may_wait_for_lower_ones() -> None:
    """A chain: each group waits for the one before it, and hands on a sum."""

    def make(b: Builder, views: list[Value]) -> None:
        (chain,) = views
        g = b.group_linear("g")
        with b.region(("f", INDEX)) as head:
            seen = b.atomic_load(chain, [g], order="acquire", bounds="proved")
            b.condition(b.cmp("eq", seen, b.constant(0, I32)), head.arguments[0])
        with b.region(("f", INDEX)) as body:
            b.yield_(body.arguments[0])
        b.while_([b.index(0)], head.region, body.region)
        b.fence("device")
        value = b.atomic_load(chain, [g], order="acquire", bounds="proved")
        next_ = b.binary("add", g, b.index(1))
        more = b.binary("add", value, b.constant(2, I32))
        b.atomic_store(more, chain, [next_], order="release", bounds="proved")

    run = Runner(Kernel((1,)).build([I32], make))
    chain = np.zeros(501, np.int32)
    chain[0] = 1
    run(chain, groups=(500,), threads=4)
    np.testing.assert_array_equal(chain, 1 + 2 * np.arange(501))


def test_histogram_with_shared_counters() -> None:
    x = np.random.default_rng(0).integers(0, 256, 10007).astype(np.uint8)
    counts = np.zeros(256, np.int32)
    Runner(histogram())(x, counts, groups=(7,), threads=3)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=256))


def test_bools_are_bytes() -> None:
    def make(b: Builder, views: list[Value]) -> None:
        i = position(b, 8)
        b.store(b.unary("not", b.load(views[0], [i], "proved")), views[1], [i], "proved")
        b.atomic("or", b.load(views[0], [i], "proved"), views[2], [b.index(0)], bounds="proved")

    run = Runner(Kernel((8,)).build([BOOL, BOOL, BOOL], make, mut=(1, 2)))
    x = np.array([0, 1, 0, 0, 1, 1, 0, 1], bool)
    out, some = np.zeros(8, bool), np.zeros(1, bool)
    run(x, out, some)
    np.testing.assert_array_equal(out, ~x)
    assert some[0]


def test_large_offsets_stay_in_64_bits() -> None:
    """Row 2^31 of a view of rows that all are the same memory."""
    b = Builder()
    pointer = PointerType(F32, "global")
    with b.region(("p", pointer), ("m", INDEX), ("q", pointer)) as r:
        p, m, q = r.arguments
        view = b.view(p, [m, b.index(4)], [b.index(0), b.index(1)])
        row = b.binary("sub", m, b.index(1))
        out = b.view(q, [b.index(4)], mut=True)
        b.store(b.load(view, [row, b.lane_linear()]), out, [b.lane_linear()])
        b.return_()
    b.kernel("k", r.region, group=(4,), grid_rank=1, parameters=["p", "m", "q"])
    slots = (Slot("data", 0), Slot("size", 0, 0), Slot("data", 1))
    runner = Runner((b.program(), LaunchPlan("k", (), slots, (4,), None)))
    x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    runner.kernel.launch((ctypes.c_int64 * 3)(x.ctypes.data, 1 << 40, out.ctypes.data), (1,))
    np.testing.assert_array_equal(out, x)
