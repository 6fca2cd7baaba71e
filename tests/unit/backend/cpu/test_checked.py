"""Checked code made of Tile IR: barriers that lanes miss, and what has a shadow."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu.backend import BACKEND
from tessera_backend.cpu.checked.checked_launch import CheckedKernel
from tessera_backend.cpu.checked.fault_records import CheckedFault
from tessera_backend.cpu.checked.lane_orders import ORDERS, Order, group_order, lane_rows
from tessera_backend.runtime.bound_arguments import MappedArray

from tessera_lang.ir.core import Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.target.backend import TargetOptions
from tessera_lang.types.dtype import F32, I32
from tests.unit.backend.cpu.kernels import Built, add, histogram, position, sum_reduce, when
from tests.unit.backend.tile_kernels import Kernel

LANES = 32


def checked(built: Built) -> CheckedKernel:
    program, plan = built
    options = TargetOptions("cpu", optimize=0, checked=True)
    return CheckedKernel(BACKEND.compile(program, plan, options, ()))


def launch(
    kernel: CheckedKernel, *arrays: np.ndarray[Any, Any], groups: int = 1, order: Order = "forward"
) -> None:
    """Arrays of one axis, each a pointer and a length."""
    block = (ctypes.c_int64 * (len(kernel.plan.slots) + 1))()
    record = (ctypes.c_int64 * 8)()
    layouts: dict[int, MappedArray] = {}
    for number, array in enumerate(arrays):
        block[2 * number], block[2 * number + 1] = array.ctypes.data, array.size
        dtype = F32 if array.dtype == np.float32 else I32
        layouts[2 * number] = MappedArray(dtype, array.shape, (1,))
    block[2 * len(arrays)] = ctypes.addressof(record)
    kernel.launch(block, (groups,), layouts, order, seed=1)


def found(kernel: CheckedKernel, *arrays: np.ndarray[Any, Any], **how: Any) -> str:
    with pytest.raises(CheckedFault) as caught:
        launch(kernel, *arrays, **how)
    return " ".join((caught.value.message, *caught.value.details))


# --- barriers ------------------------------------------------------------------------------


def behind_a_condition(limit: int) -> Built:
    """``if lane < x[0]: barrier``, which the front end refuses."""

    def make(b: Builder, views: list[Value]) -> None:
        x, out = views
        lane = b.lane_linear()
        most = b.load(x, [b.index(0)], "proved")

        def meet() -> None:
            b.barrier()

        when(b, b.cmp("lt", lane, b.cast(most, lane.type)), meet)  # type: ignore[arg-type]
        b.store(most, out, [lane], "proved")

    return Kernel((limit,)).build([I32, I32], make)


def test_lanes_that_miss_a_barrier_are_counted() -> None:
    kernel, out = checked(behind_a_condition(LANES)), np.zeros(LANES, np.int32)
    for all_or_none in (LANES, 0):
        launch(kernel, np.array([all_or_none], np.int32), out)
    text = found(kernel, np.array([30], np.int32), out)
    assert "30 of 32 lanes of group 0 get to the barrier" in text and "lane 31 does not" in text


def test_a_barrier_in_a_loop_of_other_lengths() -> None:
    def make(b: Builder, views: list[Value]) -> None:
        x, out = views
        lane = b.lane_linear()
        turns = b.cast(b.load(x, [lane], "proved"), lane.type)  # type: ignore[arg-type]
        with b.region(("k", lane.type)) as body:
            b.barrier()
            b.yield_()
        b.for_(b.index(0), turns, b.index(1), [], body.region)
        b.store(b.constant(1, I32), out, [lane], "proved")

    kernel = checked(Kernel((LANES,)).build([I32, I32], make))
    out, x = np.zeros(LANES, np.int32), np.full(LANES, 3, np.int32)
    launch(kernel, x, out)
    x[5] = 2
    assert "31 of 32 lanes of group 0 get to the barrier" in found(kernel, x, out)


# --- shadows -------------------------------------------------------------------------------


def test_what_needs_no_look_has_no_shadow() -> None:
    assert not checked(add("guarded", condition=True)).facts.roots  # each lane its own element
    facts = checked(sum_reduce("guarded")).facts
    assert not facts.roots and set(facts.proved) == {"smem", "the result"}
    assert not checked(histogram()).facts.roots  # atomics only, or proved


def scatter(*, lanes: int = LANES) -> Built:
    """``out[x[i]] = i``."""

    def make(b: Builder, views: list[Value]) -> None:
        x, out = views
        i = position(b, lanes)
        place = b.cast(b.load(x, [i], "guarded", 0), i.type)  # type: ignore[arg-type]
        b.store(b.cast(i, I32), out, [place], "guarded", 1)

    return Kernel((lanes,)).build([I32, I32], make)


@pytest.mark.parametrize("order", ORDERS)
def test_the_element_that_two_groups_write(order: Order) -> None:
    kernel, x = checked(scatter()), np.arange(64, dtype=np.int32)
    assert [r.name for r in kernel.facts.roots] == ["the result"]
    launch(kernel, x, np.zeros(64, np.int32), groups=2, order=order)
    x[40] = 3
    text = found(kernel, x, np.zeros(64, np.int32), groups=2, order=order)
    assert "the result[3]" in text and "lane 3 of group 0" in text and "lane 8 of group 1" in text


def test_launches_do_not_see_each_other() -> None:
    """Shadows are not cleared: their words are of another time."""
    kernel, out = checked(scatter()), np.zeros(64, np.int32)
    for shift in range(3):
        launch(kernel, np.roll(np.arange(64, dtype=np.int32), shift), out, groups=2)


def test_a_group_may_do_what_it_did_before() -> None:
    """One lane reads and writes its element again and again."""

    def make(b: Builder, views: list[Value]) -> None:
        x, out = views
        place = b.cast(b.load(x, [b.lane_linear()], "guarded", 0), b.index(0).type)  # type: ignore[arg-type]
        for _ in range(2):
            old = b.load(out, [place], "guarded", 1)
            b.store(b.binary("add", old, b.constant(1, I32)), out, [place], "guarded", 2)

    kernel = checked(Kernel((LANES,)).build([I32, I32], make))
    x, out = np.arange(LANES, dtype=np.int32), np.zeros(LANES, np.int32)
    launch(kernel, x, out)
    assert out.tolist() == [2] * LANES
    x[1] = 0
    assert "the result[0]" in found(kernel, x, out)


# --- orders --------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_orders_have_every_lane_and_group_once(order: Order) -> None:
    for row in lane_rows(order, 48, seed=3):
        assert sorted(row.tolist()) == list(range(48))
    assert sorted(group_order(order, 9, 3, waits=False).tolist()) == list(range(9))
    assert group_order(order, 9, 3, waits=True).tolist() == list(range(9))


def test_a_seed_is_an_order() -> None:
    one, two = (lane_rows("random", 64, seed) for seed in (1, 2))
    assert np.array_equal(one, lane_rows("random", 64, 1)) and not np.array_equal(one, two)
    assert not np.array_equal(one[0], one[1])  # another behind each barrier
