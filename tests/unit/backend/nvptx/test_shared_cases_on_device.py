"""The cases of the shared emitter, which the CPU's tests hold, run on a CUDA device."""

from __future__ import annotations

import pytest

from tests.unit.backend import tile_kernels
from tests.unit.backend.cpu import test_random_groups as random_groups
from tests.unit.backend.cpu.test_random_groups import (
    test_random_group,
    test_random_group_unoptimized,
)
from tests.unit.backend.llvm.test_arithmetic import (
    test_bool,
    test_comparison,
    test_division_by_a_constant,
    test_division_by_zero_is_reported,
    test_float_arithmetic,
    test_float_extremes,
    test_float_floor_division,
    test_float_remainder_is_exact,
    test_float_unary,
    test_fused_multiply_add,
    test_integer_binary,
    test_integer_unary,
    test_nothing_is_contracted,
)
from tests.unit.backend.llvm.test_cast import test_bitcast, test_cast, test_constants
from tests.unit.backend.nvptx.on_device import DeviceRunner, needs_device

pytestmark = [pytest.mark.gpu, needs_device]

__all__ = [
    "test_bitcast", "test_bool", "test_cast", "test_comparison", "test_constants",
    "test_division_by_a_constant", "test_division_by_zero_is_reported", "test_float_arithmetic",
    "test_float_extremes", "test_float_floor_division", "test_float_remainder_is_exact",
    "test_float_unary", "test_fused_multiply_add", "test_integer_binary", "test_integer_unary",
    "test_nothing_is_contracted", "test_random_group", "test_random_group_unoptimized",
]  # fmt: skip


@pytest.fixture(autouse=True)
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every runner of the cases is the device's."""
    monkeypatch.setattr(tile_kernels, "Runner", DeviceRunner)
    monkeypatch.setattr(random_groups, "Runner", DeviceRunner)
