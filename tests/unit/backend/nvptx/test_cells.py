"""Addresses in shared memory and coordinates of lanes: the code that is written for them is run
on the CPU for every lane, and compared with the layouts themselves."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llvmlite.binding
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tessera_backend.llvm.emitter import LaneEmitter
from tessera_backend.llvm.lane_rules import lane_emitter
from tessera_backend.llvm.text import FunctionText, ModuleText
from tessera_backend.nvptx.lanes.target_hooks import NvptxDialect
from tessera_backend.nvptx.tiles.element_places import bases, first_copy, plus, terms_of
from tessera_backend.nvptx.tiles.ldmatrix import Matrices, matrices_of, matrix_terms
from tessera_backend.nvptx.tiles.shared_addressing import Cells, Start

from tessera_lang.analysis.resources.register_layouts import (
    blocked,
    mma_a,
    mma_b,
    mma_c,
    register_coordinates,
    registers_at,
    wgmma_c,
)
from tessera_lang.ir.core import BufferType
from tessera_lang.ir.layout import Mode, RegisterLayout, SharedLayout
from tessera_lang.target.arch import architecture_named
from tessera_lang.types.dtype import BF16, F32, F64, I8, DType

llvm: Any = llvmlite.binding


class _Lane(NvptxDialect):
    """A lane whose number is the function's argument."""

    def lane_linear(self, e: LaneEmitter) -> str:
        return "%lane"


def emitter(warps: int) -> LaneEmitter:
    dialect = _Lane(architecture_named("sm_90"), (32 * warps,), 1, {})
    return lane_emitter(ModuleText(), FunctionText(), dialect, "k")


def _machine() -> Any:
    """A new one each time: an engine owns its machine."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(opt=0)


def values_of(e: LaneEmitter, operands: Sequence[str], warps: int) -> list[list[int]]:
    """The i32 operands for every lane of the group."""
    for i, operand in enumerate(operands):
        place = e.f.value(f"getelementptr i32, ptr %out, i64 {i}")
        e.f.line(f"store i32 {operand}, ptr {place}")
    e.f.terminate("ret void")
    e.module.add_function(f"define void @f(i64 %lane, i64 %start, ptr %out) {{\n{e.f.body()}\n}}")
    text = e.module.render("", "attributes #1 = { nounwind }")
    machine = _machine()
    module = llvm.parse_assembly(text)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    function = kind(engine.get_function_address("f"))
    found: list[list[int]] = []
    for lane in range(32 * warps):
        out = (ctypes.c_int32 * len(operands))()
        function(lane, START, ctypes.addressof(out))
        found.append(list(out))
    return found


START = 1
SHARED = [
    SharedLayout(), SharedLayout(pitch=72), SharedLayout(0), SharedLayout(0, 0, 72),
    SharedLayout(1, 64, 64, 128), SharedLayout(1, 32, 32, 64), SharedLayout(1, 16, 16, 32),
    SharedLayout(0, 64, 64, 128), SharedLayout(1, 32, 40), SharedLayout(1, 24, 24),
]  # fmt: skip
LAYOUTS = [
    blocked((64, 64), 8, 4), blocked((64, 64), 4, 2, (0, 1)), mma_c((64, 64), 2, 2),
    mma_a((64, 64), 4, 1, BF16), mma_b((64, 64), 1, 4, BF16), wgmma_c((64, 64), 1),
    blocked((48, 40), 4, 3), blocked((33, 5), 2, 1),
]  # fmt: skip


def expected(
    layout: RegisterLayout, buffer: BufferType, starts: Sequence[int], at: Sequence[int], lane: int
) -> int:
    held = registers_at(layout, 2)
    place = layout.coordinates(held[tuple(at)], lane % 32, lane // 32, 2)
    full = list(starts)
    for axis, c in enumerate(place):
        full[len(starts) - 2 + axis] += c
    shared = buffer.layout or SharedLayout()
    return shared.offset(full, buffer.shape, buffer.dtype.bytes)


@settings(deadline=None)
@given(
    st.sampled_from(LAYOUTS), st.sampled_from(SHARED), st.sampled_from([I8, BF16, F32, F64]),
    st.booleans(), st.tuples(st.integers(0, 3), st.integers(0, 3)),
)  # fmt: skip
def test_every_lane_finds_its_elements(
    layout: RegisterLayout, shared: SharedLayout, dtype: DType, staged: bool,
    steps: tuple[int, int],
) -> None:  # fmt: skip
    if shared.swizzle and shared.panel * dtype.bytes != shared.swizzle:
        span = shared.swizzle // dtype.bytes
        shared = SharedLayout(shared.major, span, span, shared.swizzle)
    if shared.pitch and not shared.panel:
        shared = SharedLayout(shared.major, 0, 88)
    inner = [8 * s for s in steps]
    shape = (3, 88, 88) if staged else (88, 88)
    if shared.panel:  # whole panels
        whole = shared.panel * -(-88 // shared.panel)
        shape = (*shape[:-2], whole, whole)
    buffer = BufferType(dtype, shape, layout=shared)
    warps = layout.warp_count
    e = emitter(warps)
    starts = [Start(s, 1) for s in inner]
    known = inner
    if staged:
        starts.insert(0, Start(e.f.value("trunc i64 %start to i32"), 1))
        known = [START, *inner]
    cells = Cells(e, "0", buffer, starts, terms_of(e, layout), 2)
    places = list(registers_at(layout, 2))[:24]
    operands: list[str] = []
    for at in places:
        address, offset = cells.at(at)
        operands.append(e.f.value(f"add i32 {address}, {offset}"))
    for lane, found in enumerate(values_of(e, operands, warps)):
        wanted = [expected(layout, buffer, known, at, lane) for at in places]
        assert found == wanted, (lane, str(layout), str(shared))


@settings(deadline=None, max_examples=30)
@given(st.sampled_from([2, 8, 16, 64]), st.sampled_from(SHARED[4:8]), st.booleans())
def test_a_start_at_run_time_is_right_whatever_divides_it(
    divisor: int, shared: SharedLayout, rows: bool
) -> None:
    layout = blocked((64, 64), 8, 4)
    buffer = BufferType(BF16, (192, 192), layout=shared)
    e = emitter(4)
    narrow = e.f.value("trunc i64 %start to i32")
    moving = Start(e.f.value(f"mul i32 {narrow}, {divisor}"), divisor)
    starts = [moving, Start(64, 1)] if rows else [Start(64, 1), moving]
    known = [START * divisor, 64] if rows else [64, START * divisor]
    cells = Cells(e, "0", buffer, starts, terms_of(e, layout), 2)
    places = list(registers_at(layout, 2))[::3]
    operands = [
        e.f.value(f"add i32 {address}, {offset}") for address, offset in map(cells.at, places)
    ]
    for lane, found in enumerate(values_of(e, operands, 4)):
        assert found == [expected(layout, buffer, known, at, lane) for at in places]


MATRICES = [
    (mma_a((64, 64), 2, 2, BF16), BF16, SharedLayout(1, 64, 64, 128), False, 4),
    (mma_b((64, 64), 2, 2, BF16), BF16, SharedLayout(1, 64, 64, 128), True, 4),
    (mma_b((64, 64), 2, 2, BF16), BF16, SharedLayout(0, 64, 64, 128), False, 4),
    (mma_a((64, 64), 4, 1, BF16), BF16, SharedLayout(pitch=72), False, 4),
    (mma_a((64, 64), 4, 1, BF16), BF16, SharedLayout(0, 0, 72), True, 4),
    (mma_a((64, 64), 4, 1, I8), I8, SharedLayout(pitch=80), False, 4),
    (mma_a((64, 64), 4, 1, F32), F32, SharedLayout(1, 32, 32, 128), False, 4),
    (mma_c((64, 8), 4, 1), BF16, SharedLayout(), False, 2),
    (mma_b((16, 24), 1, 1, BF16), BF16, SharedLayout(0), False, 2),
]


@pytest.mark.parametrize(("layout", "dtype", "shared", "transposed", "count"), MATRICES)
def test_lanes_give_the_lines_of_matrices(
    layout: RegisterLayout, dtype: DType, shared: SharedLayout, transposed: bool, count: int
) -> None:
    """Line r of matrix m, at lane 8 m + r, begins with the element that lane 4 r (or, where the
    access transposes, the lane of that row) holds in the register of matrix m."""
    shape = layout.shape(2)
    buffer = BufferType(dtype, shape, layout=shared)
    warps = layout.warp_count
    e = emitter(warps)
    starts = (Start(0, 1), Start(0, 1))
    found = matrices_of(layout, 2, Cells(e, "0", buffer, starts, (), 2))
    assert isinstance(found, Matrices)
    assert (found.transposed, 1 << len(found.steps)) == (transposed, count)
    cells = Cells(e, "0", buffer, starts, matrix_terms(e, layout, found), 2)
    operands = [
        e.f.value(f"add i32 {address}, {offset}") for address, offset in map(cells.at, found.firsts)
    ]
    addresses = values_of(e, operands, warps)
    for warp in range(warps):
        origin = layout.coordinates(0, 0, warp, 2)
        for number, first in enumerate(found.firsts):
            for matrix in range(count):
                corner = list(first)
                for bit, step in enumerate(found.steps):
                    corner = [
                        c + (matrix >> bit & 1) * s for c, s in zip(corner, step, strict=True)
                    ]
                for line in range(8):
                    at = [c + o for c, o in zip(corner, origin, strict=True)]
                    at[found.line] += line
                    lane = 32 * warp + 8 * matrix + line
                    wanted = shared.offset(at, shape, dtype.bytes)
                    assert addresses[lane][number] == wanted


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lanes_know_their_coordinates(layout: RegisterLayout) -> None:
    warps = layout.warp_count
    e = emitter(warps)
    both = bases(e, layout, 2)
    at = register_coordinates(layout, 2)[-1]
    operands = [plus(e, base, step) for base, step in zip(both, at, strict=True)]
    for lane, found in enumerate(values_of(e, operands, warps)):
        last = layout.register_count - 1
        assert tuple(found) == layout.coordinates(last, lane % 32, lane // 32, 2)


def test_one_lane_writes_what_several_hold() -> None:
    layout = RegisterLayout(
        (Mode(2, 0, 1),), (Mode(4, 0, 2), Mode(8, None)), (Mode(2, None), Mode(2, 0, 8))
    )  # fmt: skip
    e = emitter(4)
    once = first_copy(e, layout)
    found = values_of(e, [e.f.value(f"zext i1 {once} to i32")], 4)
    seen = [
        layout.coordinates(0, lane % 32, lane // 32, 1) for lane, (own,) in enumerate(found) if own
    ]
    assert sorted(seen) == [(2 * i,) for i in range(8)]


@pytest.mark.parametrize(("swizzle", "most"), [(0, 1), (32, 2), (64, 4), (128, 8)])
@pytest.mark.parametrize("dtype", [F32, BF16, F64])
@pytest.mark.parametrize("major", [0, 1])
def test_a_swizzle_takes_few_addresses(swizzle: int, most: int, dtype: DType, major: int) -> None:
    """Lanes beside each other along a line and every line a constant: what the swizzle moves
    are the places of a line, and all else is an offset in the instruction."""
    width = (swizzle or 128) // dtype.bytes
    shape = (64, 2 * width) if major == 1 else (2 * width, 64)
    layout = SharedLayout(major, width, width, swizzle)
    along = 1 if major == 1 else 0
    rows = Mode(64, 1 - along, 1)
    held = RegisterLayout((rows,), (Mode(min(32, 2 * width), along, 1),), ())
    e = emitter(1)
    starts = (Start(0, 1), Start(0, 1))
    cells = Cells(e, "%base", BufferType(dtype, shape, "shared", layout), starts,
                  terms_of(e, held), 2)  # fmt: skip
    addresses = {cells.at(at)[0] for at in registers_at(held, 2)}
    assert len(addresses) <= most
