"""What the PTX of small kernels holds: loads, rounding, atomics, fences, shared memory."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from tessera_backend.nvptx.kernel import entry_name
from tessera_backend.nvptx.toolchain.ptxas_workarounds import mended

from tessera_lang.ir.core import BufferType, Program, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.target.arch import ROWS
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U32, DType
from tests.unit.backend.nvptx.kernels import (
    assembly_of,
    kernel,
    lane,
    load,
    needs_ptxas,
    ptx_of,
    store,
    text_of,
)

Made = tuple[Program, LaunchPlan]


def element_wise(operation: str = "add", dtype: DType = F32) -> Made:
    def body(b: Builder, values: Sequence[Value]) -> None:
        x, y, out, _ = values
        i = lane(b)
        store(b, b.binary(operation, load(b, x, i), load(b, y, i)), out, i)

    return kernel([("x", dtype, False), ("y", dtype, False), ("out", dtype, True)], body)


def four_at_a_time(dtype: DType = F32, aligned: bool = True) -> Made:
    def body(b: Builder, values: Sequence[Value]) -> None:
        x, out, _ = values
        first = b.binary("mul", lane(b), b.index(4))
        for k in range(4):
            i = b.binary("add", first, b.index(k))
            v = load(b, x, i)
            store(b, b.binary("add", v, v), out, i)

    return kernel([("x", dtype, False), ("out", dtype, True)], body, aligned=aligned)


def with_value(write: object, dtype: DType = I32, mut: bool = True) -> Made:
    """``write(builder, array, index, value)`` on one array."""

    def body(b: Builder, values: Sequence[Value]) -> None:
        x, value, _ = values
        write(b, x, lane(b), value)  # type: ignore[operator]

    return kernel([("x", dtype, mut)], body, scalars=[("value", dtype)])


def atomic(kind: str, dtype: DType, scope: str = "device", order: str = "relaxed") -> Made:
    def write(b: Builder, x: Value, i: Value, value: Value) -> None:
        attributes = {"kind": kind, "scope": scope, "order": order, "bounds": "proved", "site": -1}
        b.emit("tile.atomic", (value, x, i), (dtype,), attributes)

    return with_value(write, dtype)


@needs_ptxas
@pytest.mark.parametrize("arch", ROWS)
def test_every_architecture_assembles_without_spills(arch: str) -> None:
    made = assembly_of(element_wise(), arch)
    assert made.cubin.startswith(b"\x7fELF")
    assert made.resources.spill_bytes == 0
    assert 0 < made.resources.registers < 64
    assert not made.diagnostics


@pytest.mark.parametrize("arch", ROWS)
def test_the_ptx_version_is_the_lowest(arch: str) -> None:
    ptx = ptx_of(element_wise(), arch).ptx
    row = ROWS[arch]
    assert ptx.startswith(f".version {row.ptx // 10}.{row.ptx % 10}\n.target {arch}\n")


def test_the_group_is_fixed_in_the_code() -> None:
    assert ".reqntid 128\n" in ptx_of(element_wise()).ptx


def test_arrays_that_are_only_read_take_the_read_only_path() -> None:
    ptx = ptx_of(element_wise()).ptx
    assert ptx.count("ld.global.nc.b32") == 2


def test_aligned_arrays_move_in_vectors() -> None:
    ptx = ptx_of(four_at_a_time()).ptx
    assert "ld.global.nc.v4" in ptx and "st.global.v4" in ptx


def test_arrays_without_the_fact_do_not() -> None:
    ptx = ptx_of(four_at_a_time(aligned=False)).ptx
    assert "v4" not in ptx and "v2" not in ptx


@pytest.mark.parametrize("dtype", [F32, F64, F16])
def test_nothing_is_contracted(dtype: DType) -> None:
    def body(b: Builder, values: Sequence[Value]) -> None:
        x, out, _ = values
        i = lane(b)
        v = load(b, x, i)
        store(b, b.binary("add", b.binary("mul", v, v), v), out, i)

    ptx = ptx_of(kernel([("x", dtype, False), ("out", dtype, True)], body)).ptx
    assert "fma" not in ptx
    assert re.search(r"mul\.rn\.f\d\d", ptx) and re.search(r"add\.rn\.f\d\d", ptx)


def test_division_and_root_are_correctly_rounded() -> None:
    assert "div.rn.f32" in ptx_of(element_wise("div")).ptx
    assert ".approx" not in ptx_of(element_wise("div")).ptx

    def body(b: Builder, values: Sequence[Value]) -> None:
        x, out, _ = values
        store(b, b.unary("sqrt", load(b, x, lane(b))), out, lane(b))

    ptx = ptx_of(kernel([("x", F32, False), ("out", F32, True)], body)).ptx
    assert "sqrt.rn.f32" in ptx and ".ftz" not in ptx


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16, I8, I16, I32, I64, U32])
@pytest.mark.parametrize("kind", ["add", "sub", "min", "max", "exchange"])
@needs_ptxas
@pytest.mark.sample(15)
def test_atomics_assemble(kind: str, dtype: DType) -> None:
    assert assembly_of(atomic(kind, dtype), "sm_80").cubin


@pytest.mark.parametrize("dtype", [F32, F64, I32, I64, U32])
def test_atomic_add_of_whole_words_is_one_instruction(dtype: DType) -> None:
    ptx = ptx_of(atomic("add", dtype)).ptx
    assert re.search(r"(atom|red)\.\S*add\.", ptx) and ".cas." not in ptx


@pytest.mark.parametrize(
    ("scope", "order", "expected"),
    [
        ("device", "acquire", "atom.acquire.gpu.global.add.u32"),
        ("device", "release", "atom.release.gpu.global.add.u32"),
        ("group", "acq_rel", "atom.acq_rel.cta.global.add.u32"),
        ("mesh", "relaxed", "atom.relaxed.sys.global.add.u32"),
        ("mesh", "acq_rel", "atom.acq_rel.sys.global.add.u32"),
    ],
)
@needs_ptxas
def test_order_and_scope_of_an_atomic_are_kept(scope: str, order: str, expected: str) -> None:
    made = atomic("add", I32, scope, order)
    assert expected in ptx_of(made, "sm_80").ptx
    assert assembly_of(made, "sm_80").cubin


@pytest.mark.parametrize("kind", ["add", "sub", "min", "max", "and", "or", "xor", "exchange"])
@pytest.mark.parametrize("dtype", [I32, I64, U32])
@needs_ptxas
@pytest.mark.sample(8)
def test_ordered_atomics_assemble(kind: str, dtype: DType) -> None:
    made = atomic(kind, dtype, "mesh", "acq_rel")
    assert ".acq_rel.sys." in ptx_of(made, "sm_80").ptx
    assert assembly_of(made, "sm_80").cubin


@pytest.mark.parametrize("kind", ["add", "exchange"])
@pytest.mark.parametrize("dtype", [F16, F32, F64])
@needs_ptxas
def test_ordered_float_atomics_assemble(kind: str, dtype: DType) -> None:
    made = atomic(kind, dtype, "mesh", "acq_rel")
    assert ".acq_rel.sys." in ptx_of(made, "sm_80").ptx
    assert assembly_of(made, "sm_80").cubin


@pytest.mark.parametrize("dtype", [I8, I16, I32, I64, F16, F32, BF16])
@needs_ptxas
def test_compare_and_exchange_assembles(dtype: DType) -> None:
    def write(b: Builder, x: Value, i: Value, value: Value) -> None:
        attributes = {"scope": "device", "order": "acq_rel", "bounds": "proved", "site": -1}
        b.emit("tile.atomic_cas", (value, value, x, i), (dtype,), attributes)

    made = with_value(write, dtype)
    # LLVM makes a loop on the word of 8 bits, between fences.
    expected = "fence.acq_rel.gpu" if dtype == I8 else ".acq_rel.gpu.global.cas"
    assert expected in ptx_of(made, "sm_80").ptx
    assert assembly_of(made, "sm_80").cubin


@pytest.mark.parametrize(
    ("scope", "expected"),
    [("group", "fence.sc.cta"), ("device", "fence.sc.gpu"), ("mesh", "fence.sc.sys")],
)
def test_fences_have_their_scope(scope: str, expected: str) -> None:
    def write(b: Builder, x: Value, i: Value, value: Value) -> None:
        store(b, value, x, i)
        b.emit("tile.fence", (), (), {"scope": scope})
        store(b, value, x, b.index(0))

    assert expected in ptx_of(with_value(write)).ptx


def through_shared(count: int) -> Made:
    """Each lane writes a shared element and reads its neighbour's behind a barrier."""

    def body(b: Builder, values: Sequence[Value]) -> None:
        x, out, _ = values
        buffer = b.emit(
            "tile.shared.alloc", (), (BufferType(F32, (count,)),), {"name": "buffer"}
        ).result
        other = b.emit("tile.shared.alloc", (), (BufferType(BOOL, (3,)),), {"name": "o"}).result
        me = b.lane_linear()
        store(b, load(b, x, lane(b)), buffer, me)
        store(b, b.constant(True, BOOL), other, b.index(0))
        b.emit("tile.barrier")
        mirrored = b.binary("sub", b.index(127), me)
        found = b.select(load(b, other, b.index(0)), load(b, buffer, mirrored), b.constant(0, F32))
        store(b, found, out, lane(b))

    return kernel([("x", F32, False), ("out", F32, True)], body)


@needs_ptxas
def test_shared_memory_is_static_up_to_48_kib() -> None:
    made = through_shared(128)
    assert text_of(made).shared_bytes == 512 + 16
    assert "bar.sync" in ptx_of(made).ptx
    assert assembly_of(made).resources.shared_bytes >= 512 + 3


def test_a_load_behind_a_barrier_sees_other_lanes() -> None:
    def body(b: Builder, values: Sequence[Value]) -> None:
        x, out, _ = values
        cell = b.emit("tile.shared.alloc", (), (BufferType(F32, (1,)),), {"name": "c"}).result
        first = b.cmp("eq", b.lane_linear(), b.index(0))
        with b.region() as then:
            store(b, load(b, x, lane(b)), cell, b.index(0))
            b.emit("tile.yield")
        with b.region() as otherwise:
            b.emit("tile.yield")
        b.emit("tile.if", (first,), (), {}, (then.region, otherwise.region))
        b.emit("tile.barrier")
        store(b, load(b, cell, b.index(0)), out, lane(b))

    ptx = ptx_of(kernel([("x", F32, False), ("out", F32, True)], body)).ptx
    before, behind = ptx.split("bar.sync")
    assert "st.shared" in before and "ld.shared" in behind


@needs_ptxas
def test_more_shared_memory_is_dynamic() -> None:
    made = through_shared(20_000)
    assert text_of(made).shared_bytes == 80_000 + 16
    assert ".extern .shared .align 16 .b8 shared[]" in ptx_of(made).ptx
    assert assembly_of(made).resources.shared_bytes < 2048


def test_the_grid_has_up_to_three_axes_last_fastest() -> None:
    def body(b: Builder, values: Sequence[Value]) -> None:
        out, _ = values
        where = b.binary("add", b.group_linear(), b.lane_linear())
        total = b.binary("mul", b.group_count(), b.group_count(0))
        store(b, b.cast(b.binary("add", total, b.lane_index(1)), I64), out, where)

    ptx = ptx_of(kernel([("out", I64, True)], body, group=(2, 4, 8), grid_rank=3)).ptx
    assert ".reqntid 8, 4, 2\n" in ptx
    for register in ("%ctaid.z", "%nctaid.y", "%tid.y", "%nctaid.z"):
        assert register in ptx


def test_scalars_and_bools_are_parameters() -> None:
    def body(b: Builder, values: Sequence[Value]) -> None:
        out, flag, half, _ = values
        chosen = b.select(flag, b.cast(half, F32), b.constant(0, F32))
        store(b, chosen, out, lane(b))

    made = kernel([("out", F32, True)], body, scalars=[("flag", BOOL), ("half", BF16)])
    ptx = ptx_of(made).ptx
    assert ".param .u8 tessera_k_param_1" in ptx and ".param .b16" in ptx or ".param .u16" in ptx


def test_a_guarded_access_reports_to_the_fault_record() -> None:
    def body(b: Builder, values: Sequence[Value]) -> None:
        x, out, _ = values
        i = lane(b)
        store(b, load(b, x, i, "guarded", 0), out, i, "guarded", 1)

    made = kernel([("x", F32, False), ("out", F32, True)], body, sites=2)
    assert "cas.b64" in ptx_of(made).ptx


@pytest.mark.parametrize("name", ["add", "ld", "WARP_SZ", "memset", "größe", "a__b"])
def test_entries_clash_with_nothing(name: str) -> None:
    assert re.fullmatch(r"tessera_[A-Za-z0-9_]+", entry_name(name))


def test_equal_programs_give_equal_ptx() -> None:
    assert ptx_of(through_shared(128)).ptx == ptx_of(through_shared(128)).ptx
    assert "llvm" not in ptx_of(element_wise()).ptx.lower()


def test_const_arrays_are_read_through_the_read_only_path() -> None:
    """A `const` parameter is an address in global memory: `ld.global.nc`, and ptxas takes it."""
    from tessera_lang.driver.session import Session
    from tessera_lang.target.backend import TargetOptions, backend_named

    source = (
        "@kernel tile[(64,)] grid[(1,)]\n"
        "def f(w: const f32[64], out: mut f32[64]):\n"
        "    out[tile_linear_id()] = w[tile_linear_id()]\n"
    )
    session = Session(overlay={"c.tessera": source})
    program, plan = session.tile("c.tessera", "f", session.signature("c.tessera", "f"))
    options = TargetOptions("cuda", "sm_90")
    artifact = backend_named("cuda").compile(program, plan, options, ("ptx",))
    assert "ld.global.nc" in artifact.texts["ptx"]


@pytest.mark.parametrize("dtype", [I8, I16, I32, I64], ids=str)
def test_the_lowest_number_has_no_absolute_value(dtype: DType) -> None:
    """ptxas takes the result of an ``abs`` as never below 0, which is not true of it."""

    def body(b: Builder, values: Sequence[Value]) -> None:
        x, out, _ = values
        i = lane(b)
        store(b, b.unary("abs", load(b, x, i)), out, i)

    text = ptx_of(kernel([("x", dtype, False), ("out", dtype, True)], body)).ptx
    assert not re.search(r"\babs\.s", text)
    assert "neg.s" in text and "max.s" in text


def test_forms_that_the_assembler_gets_wrong_are_written_otherwise() -> None:
    """What each becomes; the machine code was read once, by hand, for each of them."""
    assert mended("\tneg.s16 \t%rs2, %rs1;").count("neg.s16") == 0
    alone = "\tneg.s32 \t%r2, %r1;"
    assert mended(alone) == alone
    for other in ("min.s32", "max.s32"):
        text = mended(f"{alone}\n\t{other} \t%r4, %r3, %r2;")
        assert "cvt.s64.s32 %wide, %r2; cvt.u32.u64 %r2, %wide;" in text
    assert "cvt.s64.s32" in mended("\tmul.lo.s32 \t%r2, %r1, -1;\n\tmin.s32 \t%r4, %r3, %r2;")
    choice = "\tselp.f32 \t%r6, 0fBF800000, 0f80000000, %p2;"
    assert mended(choice) == "\tselp.b32 \t%r6, 0xBF800000, 0x80000000, %p2;"
    other = "\tselp.f32 \t%r6, 0fBF800000, 0f00000000, %p2;"
    assert mended(other) == other


def _run(text: str, registers: dict[str, int]) -> dict[str, int]:
    """The few integer instructions of the mended forms, one after the other; registers as unsigned
    numbers of their width."""

    def signed(value: int, bits: int) -> int:
        value &= (1 << bits) - 1
        return value - (1 << bits) if value >> (bits - 1) else value

    for line in re.split(r"[;{}\n]", text):
        word, _, rest = line.strip().partition(" ")
        if not word or word == ".reg":
            continue
        operation, *_, kind = word.split(".")
        to, *names = [x.strip() for x in rest.split(",")]
        bits, given = int(kind[1:]), [registers.get(x, 0) for x in names]
        if operation == "cvt":
            source = word.split(".")[2]
            registers[to] = (
                signed(given[0], int(source[1:])) if source[0] == "s" else given[0]
            ) & ((1 << int(word.split(".")[1][1:])) - 1)
            continue
        of = [signed(x, bits) for x in given]
        result = {
            "neg": lambda of=of: -of[0],
            "abs": lambda of=of: abs(of[0]),
            "max": lambda of=of: max(of),
            "min": lambda of=of: min(of),
        }[operation]()
        registers[to] = result & ((1 << bits) - 1)
    return registers


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("operation", ["abs", "neg"])
@pytest.mark.parametrize("to", ["%r1", "%r2"])
def test_mended_forms_compute_the_same_in_any_registers(operation: str, bits: int, to: str) -> None:
    """Also where the result's register is the operand's (seed 4597: `v = abs(v)` in a branch)."""
    least = 1 << (bits - 1)
    plain = f"{operation}.s{bits} {to}, %r1;\nmin.s32 %r8, %r8, %r9;"
    text = mended(plain)
    assert text != plain or (operation, bits) == ("neg", 64)
    for x in (0, 1, 5, least - 1, least, least + 1, 2 * least - 7, 2 * least - 1):
        want = _run(plain, {"%r1": x, "%r8": 0, "%r9": 0})
        got = _run(text, {"%r1": x, "%r8": 0, "%r9": 0})
        assert got[to] == want[to], (x, text)
        assert got["%r1"] == want["%r1"]


@pytest.mark.parametrize("dtype", [I8, I16], ids=str)
def test_an_integer_becomes_bf16_by_way_of_f32(dtype: DType) -> None:
    """LLVM is not to see an integer become bf16: of a condition, -1 or 0, it makes 1 or 0."""

    def body(b: Builder, values: Sequence[Value]) -> None:
        x, out, _ = values
        i = lane(b)
        store(b, b.cast(load(b, x, i), BF16), out, i)

    text = ptx_of(kernel([("x", dtype, False), ("out", BF16, True)], body)).ptx
    assert re.search(r"cvt\.rn\.f32\.s\d+", text) and "cvt.rn.bf16.f32" in text
    assert not re.search(r"cvt\.rn\.bf16\.s\d+", text)
