"""Random kernels against an interpreter that steps lanes one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera_lang.ir.core import Program
from tessera_lang.ir.verify import verify
from tessera_lang.opt.tile.delinearize_lane_axis import delinearize_lane_axis
from tessera_lang.target.launch_plan import LaunchPlan, Slot
from tests.unit.backend.cpu.random_groups import ELEMENTS, GroupKernel
from tests.unit.backend.tile_kernels import Runner
from tests.unit.tile_interpreter import launch

SHAPES = ((16,), (8,), (4, 4), (2, 8), (3,), (16, 1))
SLOTS = tuple(Slot(k, 0) for k in ("data", "size", "data", "size", "scalar", "scalar", "fault"))  # type: ignore[arg-type]


def check(seed: int, optimize: int, shape: tuple[int, ...] = ()) -> None:
    shape = shape or SHAPES[seed % len(SHAPES)]
    kernel = GroupKernel(seed, shape).build()
    program = verify(delinearize_lane_axis(Program("tile", (kernel,))))
    lanes, groups = int(np.prod(shape)), 2
    generator = np.random.default_rng(seed)
    x = generator.integers(-4, 9, 2 * lanes + 5).astype(np.float32)
    before = generator.integers(-3, 4, groups * lanes * ELEMENTS).astype(np.float32)
    a, c = int(generator.integers(-3, 9)), int(generator.integers(-3, 9))

    wanted = before.copy()
    arguments: list[Any] = [x, np.int64(x.size), wanted, np.int64(wanted.size), np.int64(a),
                            np.int32(c), np.int64(0)]  # fmt: skip
    faults = launch(kernel, arguments, groups)

    runner = Runner((program, LaunchPlan("k", (), SLOTS, shape, None)), optimize)
    got = before.copy()
    runner(x, got, a, c, groups=(groups,))
    np.testing.assert_array_equal(got, wanted)
    if faults:
        assert runner.fault[0] - 1 in faults
    else:
        assert runner.fault[0] == 0


# Kernels that broke a version of the planner.
ONCE_BROKEN = (1258, 1273, 2025)


@pytest.mark.parametrize("seed", [*range(60), *ONCE_BROKEN])
@pytest.mark.sample(1)
def test_random_group(seed: int) -> None:
    check(seed, 3)


@pytest.mark.parametrize("seed", range(400, 430))
@pytest.mark.parametrize("lanes", [64, 96])
@pytest.mark.sample(1)
def test_random_group_in_parts(seed: int, lanes: int) -> None:
    """A row of lanes that the kernel takes apart, which is two loops then."""
    check(seed, 3, (lanes,))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 400))
def test_many_random_groups(seed: int) -> None:
    check(seed, 3)


@pytest.mark.parametrize("seed", range(150, 165))
@pytest.mark.sample(5)
def test_random_group_unoptimized(seed: int) -> None:
    check(seed, 0)
