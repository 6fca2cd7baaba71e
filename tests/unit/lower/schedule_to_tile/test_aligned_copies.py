"""Arrays at no multiple of 16 bytes: copied before the launch where that pays, stored by lines."""

from __future__ import annotations

import numpy as np
import pytest
from tessera_backend.cpu.interpreter import launch as machine

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Program
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.verify import verify
from tessera_lang.target.launch_plan import CopyPlan, LaunchPlan
from tessera_lang.target.machine import machine_named
from tessera_lang.types.dtype import BF16, F32, DType
from tests.unit.lower.ast_to_schedule import reference
from tests.unit.opt.schedule.decided import decide
from tests.unit.opt.schedule.programs import Kernel, matmul
from tests.unit.tiled import as_tiles

RANDOM = np.random.default_rng(5)


def lowered(
    kernel: Kernel, arch: str = "sm_90a"
) -> tuple[Program, LaunchPlan, Program, list[Diagnostic]]:
    target = machine_named("cuda", arch)
    remarks: list[Diagnostic] = []
    program = kernel.program
    for one in decide(target, remarks):
        program = verify(one.run(program))
    tiled, plan = as_tiles(program, kernel.plan, target, remarks)
    return verify(tiled), plan, program, remarks


def split(program: Program) -> bool:
    return any(o.name == "tile.roles" for o in program.operations[0].walk())


@pytest.mark.parametrize("out", [BF16, F32])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("tile", [(64, 64, 64), (128, 128, 64), (192, 64, 64), (64, 192, 64)])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.sample(2)
def test_products(arch: str, tile: tuple[int, ...], transposed: bool, out: DType) -> None:
    m, n, k = 2 * tile[0] + 9, 2 * tile[1] + 5, 73
    kernel = matmul(
        m, n, k, transposed=transposed, aligned=2, out=out, attributes={"tile": tile}
    )  # fmt: skip
    a, b = (RANDOM.integers(-4, 5, s).astype(reference.numpy_type(BF16))
            for s in ((m, k), (n, k) if transposed else (k, n)))  # fmt: skip
    ours, theirs = (np.full((m, n), np.nan, reference.numpy_type(out)) for _ in range(2))
    program, plan, decided, _ = lowered(kernel, arch)
    assert plan.copies == (CopyPlan(0, (0, 1)), CopyPlan(1, (0, 1)))
    assert LaunchPlan.from_json(plan.to_json()) == plan
    assert split(program) == (arch == "sm_90a")
    machine.launch(program, plan, a, b, ours)
    reference.launch(decided, kernel.plan, a, b, theirs)
    np.testing.assert_array_equal(ours.astype(np.float64), theirs.astype(np.float64))


def test_the_decision_is_printed_and_said() -> None:
    *_, decided, remarks = lowered(matmul(4097, 4099, 4095, aligned=2))
    assert print_program(decided).count("repack = true") == 2
    said = [r.message for r in remarks if "copied once before the launch" in r.message]
    assert len(said) == 2


def test_what_is_read_once_is_not_copied() -> None:
    """One tile of rows: ``b`` goes through once, ``a`` for each tile of columns."""
    kernel = matmul(64, 4099, 4095, aligned=2, attributes={"tile": (64, 128, 64)})
    _, plan, _, _ = lowered(kernel)
    assert [c.parameter for c in plan.copies] == [0]


def test_aligned_arrays_are_not_copied() -> None:
    _, plan, decided, _ = lowered(matmul(4096, 4096, 4096))
    assert not plan.copies
    assert "repack" not in print_program(decided)


def test_strides_of_a_copy() -> None:
    assert CopyPlan(0, (0, 1)).strides((5, 65), 2) == (128, 1)
    assert CopyPlan(0, (1, 0)).strides((65, 5), 2) == (1, 128)
    assert CopyPlan(0, (0, 2, 1)).strides((3, 7, 4), 4) == (128, 1, 32)
    assert CopyPlan(0, (0, 1)).strides((4, 0), 2) == (0, 1)
