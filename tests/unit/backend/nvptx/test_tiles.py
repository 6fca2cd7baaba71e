"""Kernels on register tiles through LLVM and ptxas: what instructions they become, and at what
price in registers."""

from __future__ import annotations

import re

import pytest

from tessera_lang.analysis.resources.register_layouts import (
    blocked,
    convert_scratch,
    mma_a,
    mma_b,
    mma_c,
)
from tessera_lang.ir.core import TileType
from tessera_lang.ir.layout import Mode, RegisterLayout
from tessera_lang.types.dtype import BF16, BOOL, DTYPES, F16, F32, F64, I8, I32, DType
from tests.unit.backend.nvptx.kernels import assembly_of, needs_ptxas, ptx_of, text_of
from tests.unit.backend.nvptx.tile_kernels import (
    Made,
    carried,
    converts,
    copy_tile,
    gather,
    lanes_and_tiles,
    reductions,
    rowwise_copy,
    scans,
    softmax,
    strided,
    transpose,
)
from tests.unit.backend.nvptx.tile_products import gemm, simt_async, simt_gemm

ARCHES = ["sm_80", "sm_90a", "sm_120"]


def count(made: Made, pattern: str, arch: str = "sm_90a") -> int:
    return len(re.findall(pattern, ptx_of(made, arch).ptx))


# --- global memory ----------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "elements"), [(F32, 4), (BF16, 8), (I8, 16), (F64, 2)])
def test_a_tile_goes_by_16_bytes_where_rows_are_aligned(dtype: DType, elements: int) -> None:
    made = copy_tile(dtype, divisors=16)
    vectors = 64 * 128 // 128 // elements
    # The whole tile, and one that is cut off: each once by vectors.
    assert count(made, r"ld\.global\.nc\.v\d\.b") == 2 * vectors
    assert count(made, r"st\.global\.v\d\.b") == 2 * vectors


@pytest.mark.parametrize(("dtype", "each"), [(BF16, 2), (F16, 2), (I8, 4), (F32, 1)])
def test_narrow_elements_leave_the_paths_in_words(dtype: DType, each: int) -> None:
    """Each is taken out of its word once, behind the paths."""
    text = text_of(copy_tile(dtype, divisors=16), "sm_90a").text
    joined = re.findall(r"= phi (\w+)", text)
    assert joined.count("float" if dtype == F32 else "i32") == 64 // each
    assert each == 1 or not {"i8", "i16", "half"} & set(joined)


def test_a_whole_tile_known_now_has_one_path_and_no_predicate() -> None:
    made = converts(F32, (64, 64), blocked((64, 64), 4, 4), blocked((64, 64), 4, 4))
    # Rows of an array of unknown pitch: tested once, and else element by element.
    assert count(made, r"ld\.global\.nc\.v4") == 8
    assert count(made, r"@%p\d+ ld\.global") == 0


def test_what_is_not_aligned_for_sure_is_tested_once() -> None:
    text = ptx_of(copy_tile(F32)).ptx
    assert len(re.findall(r"ld\.global\.nc\.v4", text)) == 32
    assert len(re.findall(r"ld\.global\.nc\.b32", text)) == 64


def test_strides_that_are_not_known_give_single_elements() -> None:
    assert count(strided(), r"ld\.global\.nc\.v") == 0


def test_hints_reach_the_instructions() -> None:
    made = rowwise_copy(F32, (4, 1024), 4, "stream")
    assert count(made, r"ld\.global\.nc\.L1::no_allocate\.v4") == 16
    assert count(made, r"st\.global\.cs\.v4") == 16


def test_a_gather_reads_rows_by_vectors() -> None:
    made = gather(F32, 32, 64)
    assert count(made, r"ld\.global\.nc\.b32") > 0
    assert count(made, r"st\.global\.v4") > 0


# --- shared memory ----------------------------------------------------------------------------


def test_a_transpose_goes_through_shared_memory_by_vectors() -> None:
    for made in (transpose(BF16, 64, swizzle=True), transpose(F32, 64)):
        assert count(made, r"st\.shared\.v4") > 0
        assert count(made, r"bar(rier)?\.sync|barrier\.cta\.sync") == 1


def test_fragments_are_stored_by_stmatrix_from_hopper_on() -> None:
    made = converts(BF16, (64, 64), mma_c((64, 64), 2, 2), blocked((64, 64), 8, 4))
    assert count(made, r"stmatrix\.sync\.aligned\.m8n8\.x4") == 4
    assert count(made, "stmatrix", "sm_80") == 0


def test_operands_are_read_by_ldmatrix_and_transposed_on_the_way() -> None:
    a = converts(BF16, (64, 64), blocked((64, 64), 8, 4), mma_a((64, 64), 2, 2, BF16))
    b = converts(BF16, (64, 64), blocked((64, 64), 8, 4), mma_b((64, 64), 2, 2, BF16))
    assert count(a, r"ldmatrix\.sync\.aligned\.m8n8\.x4\.shared") == 8
    assert count(b, r"ldmatrix\.sync\.aligned\.m8n8\.x4\.trans\.shared") == 8


def test_the_next_product_takes_the_accumulator_without_shared_memory() -> None:
    made = converts(BF16, (64, 64), mma_c((64, 64), 4, 1), mma_a((64, 64), 4, 1, BF16))
    assert count(made, r"\.shared|shfl") == 0
    t = TileType(BF16, (64, 64), mma_c((64, 64), 4, 1))
    assert not convert_scratch(t, mma_a((64, 64), 4, 1, BF16))


# --- products ---------------------------------------------------------------------------------


@needs_ptxas
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.sample(1)
def test_a_gemm_of_three_stages(arch: str) -> None:
    made = gemm(BF16, stages=3)
    text = ptx_of(made, arch).ptx
    # 4 x 8 fragments a warp and two steps of the contraction; four words an access.
    assert text.count("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") == 64
    assert len(re.findall(r"ldmatrix\.sync\.aligned\.m8n8\.x4\.shared", text)) == 8
    assert len(re.findall(r"ldmatrix\.sync\.aligned\.m8n8\.x4\.trans", text)) == 8
    # Two fills before the loop and one in it, of a whole tile or one that is cut off.
    assert len(re.findall(r"cp\.async\.cg\.shared\.global", text)) == 3 * 2 * 8
    assert text.count("cp.async.wait_group 1") == 1
    resources = assembly_of(made, arch).resources
    assert resources.spill_bytes == 0
    assert resources.registers <= 240


@needs_ptxas
@pytest.mark.parametrize(
    ("made", "instruction", "number"),
    [
        (gemm(F16, b_major=0), "m16n8k16.row.col.f32.f16.f16.f32", 64),
        (gemm(F32, precision="tf32", b_major=0), "m16n8k8.row.col.f32.tf32.tf32.f32", 128),
        (gemm(I8, (128, 128, 64), b_major=0, out=I32), "m16n8k32.row.col.s32.s8.s8.s32", 64),
        (gemm(BF16, from_buffers=True), "m16n8k16.row.col.f32.bf16.bf16.f32", 64),
        (gemm(DTYPES["f8e4m3"], (64, 64, 64), b_major=0), "m16n8k16.row.col.f32.f16.f16.f32", 32),
    ],
)
@pytest.mark.sample(1)
def test_every_dtype_has_its_instruction(made: Made, instruction: str, number: int) -> None:
    assert ptx_of(made).ptx.count(f"mma.sync.aligned.{instruction}") == number
    assert assembly_of(made).resources.spill_bytes == 0


def test_8_bit_floats_multiply_natively_where_the_machine_can() -> None:
    made = gemm(DTYPES["f8e4m3"], (64, 64, 64), b_major=0)
    assert count(made, r"m16n8k32\.row\.col\.f32\.e4m3\.e4m3\.f32", "sm_120") == 16


@needs_ptxas
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.sample(1)
def test_f32_multiplies_exactly_by_multiply_adds(arch: str) -> None:
    made = simt_gemm()
    text = ptx_of(made, arch).ptx
    assert text.count("fma.rn.f32") == 64 * 16
    # Two vectors of rows and two of columns for each step.
    assert len(re.findall(r"ld\.shared\.v4", text)) == 4 * 16
    resources = assembly_of(made, arch).resources
    assert resources.spill_bytes == 0
    assert resources.registers <= 168


@needs_ptxas
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.sample(1)
def test_a_wide_block_by_multiply_adds_from_a_ring(arch: str) -> None:
    made = simt_async()
    text = ptx_of(made, arch).ptx
    assert text.count("fma.rn.f32") == 128 * 8
    assert len(re.findall(r"ld\.shared\.v4", text)) == 6 * 8
    assert assembly_of(made, arch).resources.spill_bytes == 0


def test_a_long_contraction_is_a_loop() -> None:
    assert count(simt_gemm(F32, (64, 64, 160), (2, 2)), r"fma\.rn\.f32") <= 1024


@needs_ptxas
def test_f64_multiplies_by_multiply_adds() -> None:
    made = simt_gemm(F64, (64, 64, 16), (2, 2))
    assert count(made, r"fma\.rn\.f64") == 32 * 16
    assert assembly_of(made).resources.spill_bytes == 0


# --- reductions -------------------------------------------------------------------------------


def across(shape: tuple[int, int]) -> RegisterLayout:
    """Lanes and warps all along the second axis."""
    rows, columns = shape
    return RegisterLayout(
        (Mode(columns // 128, 1, 1), Mode(rows, 0, 1)),
        (Mode(32, 1, columns // 128),), (Mode(4, 1, columns // 4),),
    )  # fmt: skip


@needs_ptxas
def test_a_softmax_within_warps_needs_no_barrier() -> None:
    made = softmax()
    text = ptx_of(made).ptx
    assert "bar.sync" not in text and "barrier" not in text
    assert text.count("shfl.sync.bfly") == 2 * 16 * 5
    assert assembly_of(made).resources.spill_bytes == 0


@needs_ptxas
def test_a_softmax_across_warps_meets_in_shared_memory() -> None:
    made = softmax(8, 256, across((8, 256)))
    assert count(made, r"bar(rier)?\.sync|barrier\.cta\.sync") == 4  # two for each reduction
    assert assembly_of(made).resources.spill_bytes == 0


KINDS = ["add", "mul", "max", "min", "argmax", "argmin"]


@needs_ptxas
@pytest.mark.parametrize("dtype", [F32, F16, I8, F64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sample(1)
def test_every_reduction_is_code(kind: str, dtype: DType) -> None:
    shape = (16, 128)
    for axis, layout in ((0, blocked(shape, 4, 4)), (1, across(shape))):
        made = reductions(kind, dtype, shape, axis, layout)
        assert assembly_of(made, "sm_80").resources.spill_bytes == 0


@needs_ptxas
@pytest.mark.parametrize("kind", ["any", "all"])
def test_truth_is_reduced_too(kind: str) -> None:
    shape = (16, 128)
    for axis, layout in ((0, blocked(shape, 4, 4)), (1, across(shape))):
        made = reductions(kind, BOOL, shape, axis, layout)
        assert count(made, "shfl") > 0 or axis == 0
        assert assembly_of(made, "sm_80").resources.spill_bytes == 0


@needs_ptxas
@pytest.mark.parametrize("inclusive", [True, False])
@pytest.mark.parametrize("dtype", [F32, I32, F64])
@pytest.mark.sample(1)
def test_every_scan_is_code(dtype: DType, inclusive: bool) -> None:
    shape = (16, 128)
    for axis, layout in ((0, blocked(shape, 4, 4)), (1, across(shape))):
        made = scans("add", dtype, shape, axis, layout, inclusive)
        assert assembly_of(made, "sm_80").resources.spill_bytes == 0


# --- tiles and control, tiles and lanes -------------------------------------------------------


@needs_ptxas
def test_loops_and_branches_carry_tiles_in_registers() -> None:
    resources = assembly_of(carried()).resources
    assert resources.spill_bytes == 0
    assert resources.local_bytes == 0


def test_single_lanes_see_the_layout_of_a_buffer() -> None:
    from tessera_lang.ir.layout import SharedLayout

    text = ptx_of(lanes_and_tiles(BF16, SharedLayout(1, 64, 64, 128))).ptx
    assert re.search(r"xor\.b(32|64)", text)


@pytest.mark.parametrize("made", [copy_tile(), gemm(BF16), softmax(), simt_gemm()])
def test_equal_kernels_are_equal_text(made: Made) -> None:
    assert text_of(made).text == text_of(made).text
