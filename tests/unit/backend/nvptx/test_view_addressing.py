"""Tiles to and from global memory: the code is run lane by lane on the CPU, with every access
replaced by one that checks its alignment, for sizes and strides of all kinds."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

import llvmlite.binding
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tessera_backend.llvm.emitter import LaneEmitter
from tessera_backend.llvm.lane_rules import emit_kernel_body, lane_emitter
from tessera_backend.llvm.text import FunctionText, ModuleText
from tessera_backend.llvm.types import memory_type
from tessera_backend.nvptx.lanes.target_hooks import NvptxDialect
from tessera_backend.nvptx.tiles import global_memory, rules, words

from tessera_lang.analysis.ranges.divisibility import Divisors
from tessera_lang.analysis.resources.register_layouts import blocked, held_elements, mma_c, wgmma_c
from tessera_lang.ir.core import PointerType, TileType, Value
from tessera_lang.ir.layout import RegisterLayout
from tessera_lang.target.arch import architecture_named
from tessera_lang.types.dtype import F32, F64, I8, I16, I32, DType
from tests.unit.backend.nvptx.tile_kernels import Made, Tiles, gather, kernel, tile

llvm: Any = llvmlite.binding
Array = np.ndarray[Any, Any]


class _Lane(NvptxDialect):
    def lane_linear(self, e: LaneEmitter) -> str:
        return "%lane"

    def group_index(self, e: LaneEmitter, axis: int) -> str:
        return "%group"


def _access(e: LaneEmitter, cell: words.Cell, bytes_: int) -> str:
    """The pointer of an access; ``%flag`` is set where it is not aligned."""
    pointer = e.f.value(f"getelementptr i8, {cell.kind} {cell.address}, i64 {cell.offset}")
    bits = e.f.value(f"ptrtoint {cell.kind} {pointer} to i64")
    low = e.f.value(f"and i64 {bits}, {bytes_ - 1}")
    old = e.f.value("load i64, ptr %flag")
    e.f.line(f"store i64 {e.f.value(f'or i64 {old}, {low}')}, ptr %flag")
    return pointer


def _load(e: LaneEmitter, cell: words.Cell, dtype: DType, count: int, hint: str = "") -> list[str]:
    kind = memory_type(dtype)
    slots = [e.f.slot(kind) for _ in range(count)]
    here, after = e.f.label("load"), e.f.label("loaded")
    zero = "0.0" if kind in ("float", "double", "half") else "0"
    for slot in slots:
        e.f.line(f"store {kind} {zero}, ptr {slot}")
    e.f.branch_if(cell.predicate or "true", here, after)
    e.f.place(here)
    pointer = _access(e, cell, dtype.bytes * count)
    for i, slot in enumerate(slots):
        at = e.f.value(f"getelementptr {kind}, {cell.kind} {pointer}, i64 {i}")
        value = e.f.value(f"load {kind}, {cell.kind} {at}, align 1")
        e.f.line(f"store {kind} {value}, ptr {slot}")
    e.f.place(after)
    return [e.f.value(f"load {kind}, ptr {slot}") for slot in slots]


def _store(
    e: LaneEmitter, cell: words.Cell, values: Sequence[str], dtype: DType, hint: str = ""
) -> None:
    kind = memory_type(dtype)
    here, after = e.f.label("store"), e.f.label("stored")
    e.f.branch_if(cell.predicate or "true", here, after)
    e.f.place(here)
    pointer = _access(e, cell, dtype.bytes * len(values))
    for i, value in enumerate(values):
        at = e.f.value(f"getelementptr {kind}, {cell.kind} {pointer}, i64 {i}")
        e.f.line(f"store {kind} {value}, {cell.kind} {at}, align 1")
    e.f.place(after)


def text_of(made: Made) -> str:
    operation = made[0].operations[0]
    group = operation.attributes["group"]
    assert isinstance(group, tuple) and isinstance(group[0], int)
    dialect = _Lane(architecture_named("sm_90"), (group[0],), 1, {})
    dialect.divisors = Divisors(operation)
    module, function = ModuleText(), FunctionText()
    e = lane_emitter(module, function, dialect, "k")
    e.rules = {**e.rules, **rules.rules(e.rules)}
    parameters: list[str] = []
    for number, argument in enumerate(operation.regions[0].arguments):
        pointer = isinstance(argument.type, PointerType)
        parameters.append(f"{'ptr addrspace(1)' if pointer else 'i64'} %p{number}")
        e.bind(argument, f"%p{number}")
    emit_kernel_body(e, operation.regions[0], "exit")
    function.place("exit")
    function.terminate("ret void")
    head = ", ".join(["i64 %lane", "i64 %group", "ptr %flag", *parameters])
    module.add_function(f"define void @f({head}) {{\n{function.body()}\n}}")
    return module.render("")


class Run:
    """The kernel for all lanes of all groups."""

    def __init__(self, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(words, "load", _load)
            patch.setattr(words, "store", _store)
            # PTX inside, which this machine cannot run.
            patch.setattr(global_memory, "_copied", lambda _, value: value)
            text = text_of(made)
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._machine = llvm.Target.from_default_triple().create_target_machine(opt=0)
        self._module = llvm.parse_assembly(text)
        self._engine = llvm.create_mcjit_compiler(self._module, self._machine)
        self._engine.finalize_object()
        count = 3 + len(made[0].operations[0].regions[0].arguments)
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * count)
        self._function = kind(self._engine.get_function_address("f"))

    def __call__(self, arrays: Sequence[Array], numbers: Sequence[int], groups: int = 1) -> None:
        flag = ctypes.c_int64()
        for group in range(groups):
            for lane in range(128):
                self._function(
                    lane, group, ctypes.addressof(flag), *(a.ctypes.data for a in arrays), *numbers
                )
        assert flag.value == 0, "an access is not aligned"


def placed(shape: Sequence[int], dtype: Any, fill: int | None = None) -> Array:
    """An array at a multiple of 64 bytes, between guards."""
    size = int(np.prod(shape))
    raw = np.zeros(size * np.dtype(dtype).itemsize + 192, np.uint8)
    first = -raw.ctypes.data % 64 + 64
    out = raw[first : first + size * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
    if fill is None:
        out[...] = np.random.default_rng(0).integers(-100, 100, shape)
    else:
        out[...] = fill
    return out


NUMPY: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "i8": np.int8, "i16": np.int16}
ROWS, COLUMNS = 16, 32


def window(
    dtype: DType, vector: int, order: tuple[int, int], divisors: int, said: int, strided: bool
) -> Made:
    """y[i, j] = x[i, j] for the windows of 16 x 32 of a row of windows."""

    def body(t: Tiles, views: Sequence[Value]) -> None:
        x, y = views
        layout = blocked((ROWS, COLUMNS), vector, 4, order)
        kind, zero = TileType(dtype, (ROWS, COLUMNS), layout), t.n(0)
        column = t.mul(t.b.group_index(0), t.n(COLUMNS))
        left = t.b.binary("sub", t.sizes[1][1], column)  # below 0 behind the last window
        extents = (
            t.clipped(t.sizes[1][0], zero, ROWS), t.b.binary("min", t.n(COLUMNS), left)
        )  # fmt: skip
        attributes: dict[str, Any] = {"dims": (0, 1), "steps": (1, 1)}
        if said:
            attributes |= {"vector": said, "whole": True}
        made = t.op("load_tile", (x, zero, column, *extents), kind, **attributes)
        t.op("store_tile", (made, y, zero, column, *extents), None, **attributes)

    arrays = [("x", dtype, 2, False), ("y", dtype, 2, True)]
    names = ("x",) if strided else ()
    return kernel(arrays, body, divisors=divisors, strided=names)


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from([F32, F64, I8, I16]), st.sampled_from([1, 2, 4, 16]),
    st.sampled_from([(1, 0), (0, 1)]), st.sampled_from([1, 2, 8]), st.sampled_from([0, 8]),
    st.booleans(), st.data(),
)  # fmt: skip
def test_windows_of_any_size_move_exactly_their_elements(
    dtype: DType, vector: int, order: tuple[int, int], divisors: int, said: int, strided: bool,
    data: st.DataObject,
) -> None:  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        run = Run(window(dtype, vector, order, divisors, said, strided), patch)
    step = max(divisors, said // dtype.bytes if said else 1)
    for _ in range(6):
        rows = divisors * data.draw(st.integers(0, 17 // divisors))
        columns = step * data.draw(st.integers(0, 70 // step))
        pitch = columns
        if strided:
            pitch += step * data.draw(st.integers(0, 3))
        x = placed((max(rows, 1), max(pitch, 1)), NUMPY[dtype.name])
        y = placed((max(rows, 1) + 1, max(columns, 1)), NUMPY[dtype.name], 7)
        strides = [pitch, 1] if strided else []
        surplus = data.draw(st.integers(0, 3))  # of a cluster: their extents are below 0
        groups = -(-columns // COLUMNS) + surplus
        run([x, y], [rows, columns, *strides, rows, columns], groups)
        seen = min(rows, ROWS)
        if columns:
            assert np.array_equal(y[:seen], x[:seen, :columns])
        assert (y[seen:] == 7).all()


@pytest.mark.parametrize("dtype", [F32, I16])
def test_elements_beyond_the_extents_are_zero(
    dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(t: Tiles, views: Sequence[Value]) -> None:
        x, y = views
        kind, zero = tile(dtype, (8, 64)), t.n(0)
        made = t.load(x, (zero, zero), t.rest, kind)
        t.store(made, y, (zero, zero), (t.n(8), t.n(64)))

    made = kernel([("x", dtype, 2, False), ("y", dtype, 2, True)], body, numbers=2)
    run = Run(made, monkeypatch)
    beyond = [(-1, 64), (8, -31), (-5, -64), (-100000, 3)]  # groups behind the last tile
    for rows, columns in [(8, 64), (0, 0), (3, 64), (8, 5), (8, 32), (1, 1), *beyond]:
        x, y = (placed((8, 64), NUMPY[dtype.name], fill) for fill in (None, 7))
        run([x, y], [8, 64, 8, 64, rows, columns])
        wanted = np.zeros_like(x)
        rows, columns = max(0, rows), max(0, columns)
        wanted[:rows, :columns] = x[:rows, :columns]
        assert np.array_equal(y, wanted)


def row(dtype: DType, size: int, vector: int) -> Made:
    """y[i, :] = x[i, :] for the row of each group, as far as it goes."""

    def body(t: Tiles, views: Sequence[Value]) -> None:
        x, y = views
        kind = TileType(dtype, (size,), blocked((size,), vector, 4))
        starts, extent = (t.b.group_index(0), t.n(0)), t.sizes[0][1]
        made = t.load(x, starts, (extent,), kind, dims=(1,))
        t.store(made, y, starts, (extent,), dims=(1,))

    return kernel([("x", dtype, 2, False), ("y", dtype, 2, True)], body)


@pytest.mark.parametrize(
    ("dtype", "size", "vector"), [(I16, 1024, 1), (I16, 1024, 2), (I8, 512, 1), (F32, 1024, 2)]
)
def test_rows_of_any_length_move_exactly_their_elements(
    dtype: DType, size: int, vector: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(row(dtype, size, vector), monkeypatch)
    slab = 128 * vector
    for columns in {0, 1, slab + 1, size - slab - 1, size - slab, size - slab + 1, size - 1, size}:
        x, y = placed((3, columns), NUMPY[dtype.name]), placed((4, columns), NUMPY[dtype.name], 7)
        run([x, y], [3, columns, 4, columns], 3)
        assert np.array_equal(y[:3], x)
        assert (y[3:] == 7).all()


def test_of_a_long_row_only_the_last_registers_are_tested() -> None:
    """A row that ends in its last registers goes by accesses without predicates; the fallback alone
    tests each. What lies between a lane and the end is found once, no sum for each register."""
    text, registers = text_of(row(I16, 1024, 1)), 1024 // 128
    accesses = re.findall(r'asm sideeffect "[^"]*(?:ld|st)\.global[^"]*"', text)
    assert sum("@" in a for a in accesses) == 2 * (1 + registers)
    assert len(accesses) == 2 * (registers + registers)
    tests = re.findall(r"icmp slt i32 (.*)", text)
    assert len(tests) == 2 * (1 + registers)
    assert all(re.match(r"\d+, %", test) for test in tests)


@pytest.mark.parametrize("columns", [64, 48, 33])
def test_rows_are_gathered(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(gather(F32, 32, 64), monkeypatch)
    x, y = placed((100, columns), np.float32), placed((32, columns), np.float32, 7)
    rows = placed((32,), np.int32)
    rows[...] = np.arange(32) * 3
    rows[3], rows[9] = -1, 100
    run([x, rows, y], [100, columns, 32, 32, columns])
    wanted = x[rows.clip(0, 99)]
    wanted[[3, 9]] = 0
    assert np.array_equal(y, wanted)


def test_what_divides_follows_from_how_a_number_is_made() -> None:
    found: dict[str, int] = {}

    def body(t: Tiles, views: Sequence[Value]) -> None:
        n = t.sizes[0][0]
        made = {
            "size": n,
            "start": t.mul(t.b.group_index(0), t.n(64)),
            "clipped": t.clipped(n, t.mul(t.b.group_index(0), t.n(64)), 32),
            "odd": t.add(n, t.n(1)),
            "half": t.b.binary("floordiv", n, t.n(4)),
            "none": t.b.group_index(0),
            "zero": t.n(0),
        }
        with t.b.region(("i", n.type)) as loop:
            made["step"] = loop.arguments[0]
            t.b.yield_()
        t.b.for_(t.n(16), n, t.n(8), (), loop.region)
        values.update(made)

    values: dict[str, Value] = {}
    program, _ = kernel([("x", I32, 1, False)], body, divisors=16)
    divisors = Divisors(program.operations[0])
    for name, value in values.items():
        found[name] = divisors(value)
    assert found == {
        "size": 16, "start": 64, "clipped": 16, "odd": 1, "half": 4, "none": 1, "zero": 1 << 30,
        "step": 8,
    }  # fmt: skip


def put_and_taken(dtype: DType, t: TileType) -> Made:
    """y = x + x, of which one has been put down in w and is taken up again."""

    def body(tiles_: Tiles, views: Sequence[Value]) -> None:
        x, w, y = views
        zero, start = tiles_.n(0), tiles_.n(16)
        extents = [tiles_.n(n) for n in t.sizes]
        made = tiles_.load(x, (zero, zero), extents, t)
        tiles_.op("put_down", (made, w, start))
        tiles_.store(tiles_.op("take_up", (made, w, start), t), y, (zero, zero), extents)

    arrays = [("x", dtype, 2, False), ("w", dtype, 1, True), ("y", dtype, 2, True)]
    return kernel(arrays, body)


@pytest.mark.parametrize("dtype", [F32, F64, I32])
@pytest.mark.parametrize("layout", [
    wgmma_c((64, 24), 1), mma_c((32, 16), 2, 2), blocked((8, 128), 1, 4, (1, 0)),
    blocked((24, 64), 4, 4, (1, 0)),
], ids=str)  # fmt: skip
def test_registers_are_put_down_and_taken_up(
    dtype: DType, layout: RegisterLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = layout.shape(2)
    t = TileType(dtype, shape, layout)
    run = Run(put_and_taken(dtype, t), monkeypatch)
    kind = {"f32": np.float32, "f64": np.float64, "i32": np.int32}[dtype.name]
    count = held_elements(t)
    x, w, y = placed(shape, kind), placed((count + 32,), kind, 7), placed(shape, kind, 7)
    run([x, w, y], [*shape, count + 32, *shape])
    assert np.array_equal(y, 2 * x)
    assert (w[:16] == 7).all()
    assert (w[16 + count :] == 7).all()
