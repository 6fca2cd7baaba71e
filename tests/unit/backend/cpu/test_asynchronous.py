"""Code for a GPU on the CPU: layouts, what is found, the ways to it, and all kinds of arguments."""

from __future__ import annotations

import itertools
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tessera_backend.cpu.interpreter.access_history import Memory, box_of, common, covers
from tessera_backend.cpu.interpreter.bulk import Map
from tessera_backend.cpu.interpreter.faults import AsynchronousFault
from tessera_backend.cpu.interpreter.launch import launch
from tessera_backend.cpu.interpreter.layouts import as_lines, as_matrix, warp_groups
from tessera_backend.cpu.interpreter.serialized_kernel import KIND, AsynchronousKernel, encode
from tessera_backend.runtime.emulated_code import asynchronous_report

import tessera_lang as tessera
from tessera_lang.analysis.resources.register_layouts import mma_a, mma_c, wgmma_a, wgmma_c
from tessera_lang.driver.commands import group
from tessera_lang.ir.core import BufferType, Operation, Program
from tessera_lang.ir.layout import RegisterLayout, SharedLayout, swizzled
from tessera_lang.ir.parser import parse_program
from tessera_lang.target.backend import Artifact, TargetOptions
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import BF16
from tests.fuzz.asynchronous import CASES, Case, without

# --- layouts ------------------------------------------------------------------------------------

REGISTERS: list[tuple[RegisterLayout, tuple[int, ...]]] = [
    (wgmma_c((128, 64), 2), (128, 64)),
    (wgmma_c((192, 24), 3), (192, 24)),
    (wgmma_a((256, 32), 2, BF16), (256, 32)),
    (mma_c((64, 64), 2, 4), (64, 64)),
    (mma_a((32, 32), 2, 4, BF16), (32, 32)),
    (wgmma_c((128, 32), 2).without_axis(1), (128,)),
    (wgmma_c((128, 32), 2).without_axis(0), (32,)),
]


@pytest.mark.parametrize(("layout", "shape"), REGISTERS, ids=str)
def test_warp_groups_are_those_of_the_layout(
    layout: RegisterLayout, shape: tuple[int, ...]
) -> None:
    held: dict[tuple[int, ...], set[int]] = {}
    numbers = (range(layout.register_count), range(32), range(layout.warp_count))
    for register, lane, warp in itertools.product(*numbers):
        at = layout.coordinates(register, lane, warp, len(shape))
        held.setdefault(at, set()).add(warp // 4)
    found = warp_groups(layout, shape)
    assert set(held) == set(np.ndindex(*shape))
    for at, groups in held.items():
        assert found[at] == (min(groups) if len(groups) == 1 else -1)


@pytest.mark.parametrize("major", [0, 1])
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_boxes_lie_as_the_hardware_puts_them(major: int, swizzle: int) -> None:
    """A box lands line after line, its chunks swizzled; the machine says which elements they are,
    the layout where those have to lie."""
    width = (swizzle or 64) // 2
    lines, panels = 16, 2
    shape = (2, lines, width * panels) if major == 1 else (2, width * panels, lines)
    layout = SharedLayout(major, width, width, swizzle)
    buffer = BufferType(BF16, shape, layout=layout)
    box = np.arange(lines * width).reshape(1, lines, width)
    part = as_matrix(box, buffer)
    np.testing.assert_array_equal(as_lines(part, buffer, box.shape), box)
    panel_bytes = lines * width * 2
    for stage, panel in itertools.product(range(2), range(panels)):
        base = (stage * panels + panel) * panel_bytes
        for row, column in np.ndindex(*part.shape):
            along = panel * width
            at = (stage, row, column + along) if major == 1 else (stage, row + along, column)
            inside = base + 2 * int(part[row, column])
            assert layout.offset(at, shape, 2) == swizzled(inside, swizzle)


def test_boxes() -> None:
    a, b = box_of((0, 4), (8, 8)), box_of((4, 0), (8, 8))
    assert common(a, b) == ((4, 8, 1), (4, 8, 1))
    assert common(box_of((0,), (4,), (2,)), box_of((1,), (4,), (2,))) is None
    assert common(a, box_of((8, 4), (1, 1))) is None
    assert covers(box_of((0, 0), (8, 16)), a) and not covers(a, b)


# --- what is found ------------------------------------------------------------------------------


@cache
def case_of(number: int) -> Case:
    """Lowered and run once: no test changes one."""
    return Case(CASES[number])


def fault_of(number: int, name: str, place: int) -> AsynchronousFault:
    case = case_of(number)
    with pytest.raises(AsynchronousFault) as caught:
        case.run(without(case.program, name, place), None)
    return caught.value


@pytest.mark.parametrize(
    ("name", "place", "operation", "other", "said"),
    [
        ("tile.mbarrier.wait", 1, "tile.mma.async", "tma.load", "waited for its completion"),
        ("tile.mma.wait", 0, "tma.load", "tile.mma.async", "waited for its completion"),
        ("tile.fence_async", 0, "tma.store", "tile.write_tile", "no fence_async"),
        ("tma.wait", 0, "tile.write_tile", "tma.store", "waited for its completion"),
        ("tile.mbarrier.arrive", 0, "tile.mbarrier.wait", "", "deadlock"),
    ],
)
def test_both_operations_are_named(
    name: str, place: int, operation: str, other: str, said: str
) -> None:
    fault = fault_of(0, name, place)
    assert said in fault.message
    assert fault.operation is not None and fault.operation.name == operation
    assert not other or (fault.other is not None and fault.other.name == other)


def test_copies_of_lanes() -> None:
    fault = fault_of(5, "tile.memcpy.wait", 0)
    assert "tile.memcpy.async" in str(fault) and "completion" in fault.message
    assert "no barrier" in fault_of(5, "tile.barrier", 0).message


@pytest.mark.slow
def test_any_order_of_events_gives_the_same_bits() -> None:
    for number in range(3):
        case = case_of(number)
        assert all(case.run(case.program, seed) == case.right for seed in range(4))


def test_a_wrong_phase() -> None:
    """A kernel that waits for the other parity reads what is not there, or never goes on."""
    plan = LaunchPlan("k", (), (), (128,), (1,))
    text = """\
"tile.kernel"() ({
  %full = "tile.mbarrier.alloc"() {arrivals = 1 : i64, name = "full"} : () -> !tile.mbarrier<1>
  %0 = "tile.constant"() {value = 0 : i64} : () -> index
  %phase = "tile.constant"() {value = PHASE : i64} : () -> index
  "tile.mbarrier.expect"(%full, %0) {bytes = 0 : i64} : (!tile.mbarrier<1>, index) -> ()
  "tile.mbarrier.wait"(%full, %0, %phase) : (!tile.mbarrier<1>, index, index) -> ()
  "tile.return"() : () -> ()
}) {grid_rank = 1 : i64, group = [128 : i64], parameters = [], sym_name = "k"} : () -> ()
"""
    launch(parse_program(text.replace("PHASE", "0")), plan)
    with pytest.raises(AsynchronousFault, match="deadlock"):
        launch(parse_program(text.replace("PHASE", "1")), plan)


@pytest.mark.parametrize(("start", "right"), [(0, True), (8, True), (64, True), (4, False)])
def test_a_box_begins_at_16_bytes_of_a_line(start: int, right: bool) -> None:
    seen = Map(Memory(np.zeros((4, 128), np.float16)), (0, 1), (2, 32))
    copy = Operation("tma.load", (), ())
    if right:
        seen.check(copy, (1, start))
        return
    with pytest.raises(AsynchronousFault, match="no multiple of 16 bytes"):
        seen.check(copy, (1, start))


# --- the ways to it -----------------------------------------------------------------------------

SOURCE = """\
import op
import schedule

@op.kernel
def product(A: T[m, k], B: T[k, n], s: f32):
    schedule.tile((64, 64, 64))
    return (A @ B) * s

@op.kernel
def steps(x: f32[n], limit: i32, y: mut f32[n]):
    for i in op.tile_range(n, step=64):
        t = x[i:i+64]
        count = 0
        while count < limit:
            t = t + t
            count += 1
        if limit > 2:
            t = t - x[i:i+64]
        y[i:i+64] = t

@op.kernel
def checked(x: f32[n], limit: i32, y: mut f32[n]):
    for i in op.tile_range(n, step=64):
        assert limit < 3
        y[i:i+64] = x[i:i+64]
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TESSERA_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "kernels.tessera"
    file.write_text(SOURCE.replace("T[", "bf16["), encoding="utf-8")

    def loaded(arch_as: str) -> Any:
        return tessera.load(file, target="cpu", arch_as=arch_as)

    return loaded


def small(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(3).integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80", "sm_89", "sm_91", "sm_100", "sm_121", "H200"])
@pytest.mark.sample(1)
def test_results_scalars_and_strides(module: Any, arch: str) -> None:
    import ml_dtypes

    dtype = ml_dtypes.bfloat16
    a, b = small(130, 72, dtype=dtype), small(72, 96, dtype=dtype)
    turned, spread = np.asfortranarray(a), np.zeros((72, 192), dtype)[:, ::2]
    spread[...] = b
    ours, plain = module(arch), module("")
    for x, y in ((a, b), (turned, b), (a, spread), (a[::-1], b)):
        found = ours.product(x, y, np.float32(2.0))
        np.testing.assert_array_equal(found, plain.product(x, y, np.float32(2.0)))


@pytest.mark.parametrize("limit", [0, 3])
def test_control_flow(module: Any, limit: int) -> None:
    x = small(150)
    found, plain = np.zeros(150, np.float32), np.zeros(150, np.float32)
    module("sm_90a").steps(x, np.int32(limit), found)
    module("").steps(x, np.int32(limit), plain)
    np.testing.assert_array_equal(found, plain)


def test_an_assertion_of_the_kernel(module: Any) -> None:
    x, y = small(64), np.zeros(64, np.float32)
    module("sm_90a").checked(x, np.int32(1), y)
    np.testing.assert_array_equal(x, y)
    with pytest.raises(tessera.TesseraError, match="limit < 3"):
        module("sm_90a").checked(x, np.int32(5), y)


def test_what_is_refused(module: Any, tmp_path: Path) -> None:
    with pytest.raises(tessera.TesseraError, match="T0880"):
        module("sm_10")
    with pytest.raises(tessera.TesseraError, match="T0814"):
        tessera.load(tmp_path / "kernels.tessera", target="cuda", arch_as="sm_90a")


def test_code_with_a_fault_is_shown(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code lacks a wait: the error names the line and both operations."""
    import ml_dtypes

    def damaged(program: Program) -> bytes:
        return encode(without(program, "tile.mbarrier.wait", 1))

    monkeypatch.setattr("tessera_backend.cpu.interpreter.serialized_kernel.encode", damaged)
    made = small(64, 128, dtype=ml_dtypes.bfloat16)
    with pytest.raises(tessera.TesseraError) as caught:
        module("sm_90a").product(made, made.T.copy(), np.float32(1.0))
    (found,) = caught.value.diagnostics
    assert found.code == "T0904" and "tile.mma.async reads what tma.load has written" in str(found)
    assert found.span is not None and found.span.file.endswith("kernels.tessera")
    line = SOURCE.replace("T[", "bf16[")[: found.span.lo].count("\n") + 1
    assert SOURCE.splitlines()[line - 1].strip() == "return (A @ B) * s"
    assert any("tile.mma.async" in n for n in found.notes)
    assert any("tma.load" in n for n in found.notes)


def test_the_cache_tells_them_apart(module: Any) -> None:
    x, y = small(64), np.zeros(64, np.float32)
    before = launches()
    for arch, runs in (("sm_90a", 1), ("", 1), ("sm_90a", 2), ("sm_80", 3)):
        module(arch).checked(x, np.int32(1), y)
        assert launches() - before == runs


def launches() -> int:
    """Of kernels as Tile IR in this process."""
    lines = asynchronous_report("sm_90a")
    return sum(int(n) for n in re.findall(r"` (\d+)x", lines[0]))


@pytest.mark.parametrize("command", ["run", "test"])
def test_on_the_command_line(tmp_path: Path, command: str) -> None:
    file = tmp_path / "product.tessera"
    file.write_text(
        SOURCE.replace("T[", "f16[") + "\n\n@test\ndef ones():\n    x = op.ones((64, 64), f16)\n"
        "    z = product(x, x, 1.0)\n    assert z[0, 0] == 64.0\n\nones()\n",
        encoding="utf-8",
    )
    done = CliRunner().invoke(group, [command, str(file), "--as", "sm_90a"], standalone_mode=False)
    assert done.exit_code == 0 and not done.return_value, (done.output, done.stderr)
    assert "as sm_90a" in done.stderr and "`product`" in done.stderr


def test_encoding_keeps_places() -> None:
    case = case_of(0)
    options = TargetOptions("cpu", arch_as="sm_90a")
    held = Artifact(KIND, encode(case.program), "kernel", case.plan, options)
    read = AsynchronousKernel(held)
    names = [o.name for o in case.program.walk()]
    assert [o.name for o in read.program.walk()] == names
    for ours, theirs in zip(case.program.walk(), read.program.walk(), strict=True):
        span = read.finding(AsynchronousFault("", theirs)).span
        assert (span is None) == (ours.span is None)
        assert (
            span is None or ours.span is None or (span.lo, span.hi) == (ours.span.lo, ours.span.hi)
        )
