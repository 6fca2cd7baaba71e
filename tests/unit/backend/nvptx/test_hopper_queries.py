"""What the matrix unit is told of layouts: every number against the layouts themselves."""

from __future__ import annotations

import pytest
from tessera_backend.nvptx.hopper.descriptors import NoDescriptor, matrix_operand
from tessera_backend.nvptx.hopper.fragments import NoFragment, accumulator, left_words

from tessera_lang.analysis.resources.register_layouts import blocked, mma_c, wgmma_a, wgmma_c
from tessera_lang.ir.core import BufferType
from tessera_lang.ir.layout import SharedLayout, swizzled
from tessera_lang.target.arch.isa_constants import STEP_BYTES
from tessera_lang.types.dtype import BF16, DTYPES, F32, I8, DType


def buffer(
    dtype: DType, rows: int, columns: int, swizzle: int, major: int = 1, stages: int = 1
) -> BufferType:
    panel = (swizzle or 16) // dtype.bytes
    return BufferType(
        dtype, (stages, rows, columns), layout=SharedLayout(major, panel, panel, swizzle)
    )


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("dtype", [BF16, F32, I8])
def test_steps_along_a_contiguous_contraction_are_the_layouts(dtype: DType, swizzle: int) -> None:
    t = buffer(dtype, 64, 128, swizzle)
    side = matrix_operand(t, 1)
    assert side.contraction_contiguous
    assert t.layout is not None
    for number in range(128 * dtype.bytes // STEP_BYTES):
        column = number * STEP_BYTES // dtype.bytes
        assert side.step(number) == t.layout.offset((0, 0, column), t.shape, dtype.bytes)
    for row in range(0, 64, 8):
        assert side.across(row) == t.layout.offset((0, row, 0), t.shape, dtype.bytes)


@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize("major", [0, 1])
def test_steps_across_the_contraction_are_the_layouts(major: int, swizzle: int) -> None:
    t = buffer(BF16, 64, 128, swizzle, major) if major else buffer(BF16, 128, 64, swizzle, major)
    side = matrix_operand(t, 1 - major)
    assert t.layout is not None

    def at(k: int, other: int) -> int:
        place = (0, k, other) if major else (0, other, k)
        assert t.layout is not None
        return t.layout.offset(place, t.shape, 2)

    assert not side.contraction_contiguous
    assert [side.step(i) for i in range(4)] == [at(16 * i, 0) for i in range(4)]
    width = swizzle // 2
    assert [side.across(n) for n in range(0, 128, width)] == [
        at(0, n) for n in range(0, 128, width)
    ]
    assert side.leading == at(0, width)
    assert side.stride == at(8, 0)


def test_the_bits_of_a_descriptor() -> None:
    side = matrix_operand(buffer(BF16, 64, 64, 128), 1)
    assert (side.high_bits, side.low_bits) == (1 << 30 | 1024 >> 4, 1 << 16)
    assert matrix_operand(buffer(BF16, 64, 64, 64), 1).high_bits >> 30 == 2
    assert matrix_operand(buffer(BF16, 64, 64, 32), 1).high_bits >> 30 == 3
    across = matrix_operand(buffer(BF16, 64, 128, 128), 0)
    assert across.low_bits >> 16 == 64 * 128 >> 4


@pytest.mark.parametrize(
    ("t", "contraction", "why"),
    [
        (BufferType(BF16, (64, 64)), 1, "no layout"),
        (BufferType(BF16, (64, 64), layout=SharedLayout(1, 64, 72, 128)), 1, "padded"),
        (BufferType(BF16, (64, 64), layout=SharedLayout(1, 64, 64, 64)), 1, "128 bytes"),
        (buffer(BF16, 60, 64, 128), 1, "60 lines"),
        (buffer(I8, 64, 128, 128), 0, "16 bits"),
        (buffer(BF16, 64, 64, 0), 0, "without a swizzle"),
    ],
)
def test_layouts_that_cannot_be_read_in_place(t: BufferType, contraction: int, why: str) -> None:
    with pytest.raises(NoDescriptor, match=why):
        matrix_operand(t, contraction)


def test_the_swizzle_leaves_the_start_of_every_instruction_to_the_hardware() -> None:
    """A start of eight lines is not moved; that within a line is moved with its address."""
    assert all(swizzled(line * 128, 128) == line * 128 for line in range(0, 64, 8))


def test_blocks_of_an_accumulator() -> None:
    one = accumulator(wgmma_c((64, 256), 1))
    assert (one.columns, one.blocks, one.groups) == (256, ((0, 0),), ((0, 0),))
    two = accumulator(wgmma_c((256, 128), 2))
    assert two.columns == 128
    assert two.blocks == ((0, 0), (64, 0))
    assert two.groups == ((0, 0), (128, 0))
    assert accumulator(wgmma_c((64, 8), 1)).columns == 8


def test_other_layouts_are_no_accumulators() -> None:
    for layout in (blocked((64, 64), 4, 4), mma_c((64, 64), 2, 2)):
        with pytest.raises(NoFragment):
            accumulator(layout)


@pytest.mark.parametrize("name", ["bf16", "i8", "f32"])
def test_words_of_a_left_operand_hold_neighbours_along_the_contraction(name: str) -> None:
    dtype = DTYPES[name]
    depth = 4 * STEP_BYTES // dtype.bytes
    layout = wgmma_a((128, depth), 1, dtype)
    word = 4 // dtype.bytes
    for row in (0, 64):
        words = left_words(layout, dtype, row, depth)
        assert len(words) == 16
        for number, registers in enumerate(words):
            step, j = divmod(number, 4)
            places = [layout.coordinates(r, 5, 1, 2) for r in registers]
            below = row + 16 + 1 + 8 * (j & 1)
            along = step * 8 * word + 4 * word * (j >> 1) + word
            assert places == [(below, along + i) for i in range(word)]
    with pytest.raises(NoFragment):
        left_words(blocked((64, depth), 1, 4), dtype, 0, depth)
