"""Layouts: constructors make bijections, queries agree with counting."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera_lang.analysis.resources.register_layouts import (
    WARP,
    bank_degree,
    blocked,
    canonical,
    conversion,
    convert_scratch,
    covers,
    crosses_warps,
    mma_a,
    mma_b,
    mma_c,
    mma_depth,
    reduce_scratch,
    register_coordinates,
    registers_at,
    shared_vector,
    staging,
    transposed,
    vector_width,
    wgmma_a,
    wgmma_c,
)
from tessera_lang.ir.core import BufferType, TileType
from tessera_lang.ir.layout import Mode, RegisterLayout, SharedLayout, register_layout
from tessera_lang.types.dtype import BF16, DTYPES, F32, I8, DType
from tests.unit.register_layouts import is_bijection

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=3).filter(lambda n: prod(n) <= 300)
FEW = settings(deadline=None, max_examples=30)
F8 = DTYPES["f8e4m3"]


@FEW
@given(SIZES, st.sampled_from([1, 2, 4, 8]), st.integers(1, 8), st.data())
def test_blocked_tiles_of_any_size_are_bijections(
    shape: list[int], vector: int, warps: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    layout = blocked(shape, vector, warps, order)
    assert layout.warp_count == warps
    assert is_bijection(layout, shape)
    assert covers(layout, shape)
    assert register_layout(str(layout)) == layout


@pytest.mark.parametrize("warps", [1, 4, 8])
@pytest.mark.parametrize("shape", [(48, 80), (80, 48), (96, 48), (80, 80), (24, 40), (112, 16)])
def test_lanes_are_not_left_without_elements(shape: tuple[int, int], warps: int) -> None:
    """An odd number of wide vectors is no reason to hold everything many times over."""
    for vector in (1, 4, 8, 16):
        for order in ((1, 0), (0, 1)):
            held = blocked(shape, vector, warps, order).register_count
            assert held <= blocked(shape, 1, warps, order).register_count
            assert held <= 4 * -(-prod(shape) // (WARP * warps)), (vector, order)


@FEW
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3),
    st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 3]),
    st.sampled_from([BF16, F32, I8, F8]),
)  # fmt: skip
def test_fragments_of_mma_are_bijections(
    m: int, n: int, k: int, warps_m: int, warps_n: int, dtype: DType
) -> None:
    rows, columns, depth = 16 * m * warps_m, 8 * n * warps_n, mma_depth(dtype) * k
    for layout, shape in (
        (mma_c((rows, columns), warps_m, warps_n), (rows, columns)),
        (mma_a((rows, depth), warps_m, warps_n, dtype), (rows, depth)),
        (mma_b((depth, columns), warps_m, warps_n, dtype), (depth, columns)),
    ):
        assert is_bijection(layout, shape)
        assert layout.warp_count == warps_m * warps_n
        assert canonical(layout) == layout


@FEW
@given(st.integers(1, 2), st.integers(1, 4), st.integers(1, 2), st.integers(1, 2))
def test_fragments_of_wgmma_are_bijections(m: int, n: int, k: int, groups: int) -> None:
    rows, columns, depth = 64 * m * groups, 8 * n, 16 * k
    assert is_bijection(wgmma_c((rows, columns), groups), (rows, columns))
    assert is_bijection(wgmma_a((rows, depth), groups, BF16), (rows, depth))


def test_the_accumulator_of_wgmma_is_as_the_page_says() -> None:
    wanted = "regs(2@1*1 2@0*8 32@1*8) lanes(4@1*2 8@0*1) warps(4@0*16 2@0*64)"
    assert wgmma_c((128, 256), 2) == canonical(register_layout(wanted))


def test_fragments_lie_as_the_instruction_set_says() -> None:
    """Lane 5 of the fragments of m16n8k16: group 1, place 1 (PTX ISA, matrix fragments)."""
    a = mma_a((16, 16), 1, 1, BF16)
    assert [a.coordinates(r, 5, 0, 2) for r in range(8)] == [
        (1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11), (9, 10), (9, 11),
    ]  # fmt: skip
    b = mma_b((16, 8), 1, 1, BF16)
    assert [b.coordinates(r, 5, 0, 2) for r in range(4)] == [(2, 1), (3, 1), (10, 1), (11, 1)]
    c = mma_c((16, 8), 1, 1)
    assert [c.coordinates(r, 5, 0, 2) for r in range(4)] == [(1, 2), (1, 3), (9, 2), (9, 3)]


def test_the_accumulator_is_the_next_left_operand_without_moving() -> None:
    """Two products in a row: lanes agree, a lane at most reorders its registers."""
    c, a = mma_c((64, 32), 4, 1), mma_a((64, 32), 4, 1, BF16)
    assert conversion(c, a, 2) in ("nothing", "repack")
    assert conversion(wgmma_c((64, 32), 1), wgmma_a((64, 32), 1, BF16), 2) != "shared"
    assert conversion(c, blocked((64, 32), 4, 4), 2) == "shared"
    assert conversion(c, c, 2) == "nothing"


@FEW
@given(SIZES, st.sampled_from([1, 2, 4, 8]), st.integers(1, 4), st.data())
def test_the_width_of_a_vector_holds_for_every_lane(
    shape: list[int], vector: int, warps: int, data: st.DataObject
) -> None:
    rank = len(shape)
    order = data.draw(st.permutations(range(rank)))
    axis = data.draw(st.integers(0, rank - 1))
    layout = blocked(shape, vector, warps, order)
    width = vector_width(layout, axis, rank, 8)
    held = registers_at(layout, rank)
    for lane in (0, 1, 7, 31):
        for warp in range(warps):
            base = layout.coordinates(0, lane, warp, rank)[axis]
            assert base % width == 0
    for at in held:
        if at[axis] % width == 0:
            for i in range(width):
                assert (*at[:axis], at[axis] + i, *at[axis + 1 :]) in held


def test_a_transposed_layout_has_transposed_coordinates() -> None:
    layout = mma_c((32, 16), 2, 1)
    turned = transposed(layout, (1, 0))
    for lane in range(WARP):
        for register in range(layout.register_count):
            a = layout.coordinates(register, lane, 1, 2)
            assert turned.coordinates(register, lane, 1, 2) == a[::-1]


def test_canonical_keeps_the_meaning() -> None:
    long = RegisterLayout(
        (Mode(2, 0, 1), Mode(1, 0, 7), Mode(2, 0, 2)), (Mode(4, None), Mode(8, None)), ()
    )  # fmt: skip
    short = canonical(long)
    assert str(short) == "regs(4@0*1) lanes(32@_) warps()"
    assert register_coordinates(long, 1) == register_coordinates(short, 1)


@pytest.mark.parametrize(
    ("shared", "degree"),
    [
        (SharedLayout(), 8),
        (SharedLayout(pitch=72), 1),
        (SharedLayout(1, 64, 64, 128), 1),
    ],
)
def test_banks_of_eight_lines_below_each_other(shared: SharedLayout, degree: int) -> None:
    """Lanes that read 16 bytes each, line below line, as a matrix load does."""
    layout = RegisterLayout((Mode(8, 1, 1), Mode(8, 1, 8)), (Mode(32, 0, 1),), ())
    buffer = BufferType(BF16, (32, 64), layout=shared)
    assert shared_vector(layout, buffer, 2) == 8
    assert bank_degree(layout, buffer, 8) == degree


def test_staging_has_fewer_conflicts_than_rows_without_gaps() -> None:
    a, b = blocked((64, 64), 4, 4), blocked((64, 64), 4, 4, (0, 1))
    buffer = staging(a, b, (64, 64), F32)
    plain = BufferType(F32, (64, 64))
    assert bank_degree(b, buffer) < bank_degree(b, plain)


def test_scratch_is_asked_for_where_warps_meet() -> None:
    by_rows = TileType(F32, (8, 64), blocked((8, 64), 4, 4))
    assert not reduce_scratch(by_rows, 1, "add")
    assert crosses_warps(blocked((8, 64), 4, 4), 0)
    assert reduce_scratch(by_rows, 0, "add") == 4 * 64 * 4
    assert reduce_scratch(by_rows, 0, "argmax") == 2 * 4 * 64 * 4
    turned = blocked((8, 64), 4, 4, (0, 1))
    assert convert_scratch(by_rows, turned) >= 8 * 64 * 4
    assert not convert_scratch(by_rows, blocked((8, 64), 4, 4))
