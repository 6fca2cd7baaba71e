"""The row of the device here, held against what its driver says."""

from __future__ import annotations

import pytest
from tessera_backend.device.driver import Device, device
from tessera_backend.nvptx.backend import BACKEND

from tessera_lang.target.arch import architecture_of, find_architecture, runs_on

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(BACKEND.available()), reason="no device"),
]


@pytest.fixture
def here() -> Device:
    return device(0)


def test_the_limits_of_the_row_are_the_devices(here: Device) -> None:
    limits = architecture_of(here.capability).limits
    assert limits.warps == here.attribute("MAX_THREADS_PER_MULTIPROCESSOR") // 32
    assert limits.groups == here.attribute("MAX_BLOCKS_PER_MULTIPROCESSOR")
    assert limits.registers == here.attribute("MAX_REGISTERS_PER_MULTIPROCESSOR")
    assert limits.shared == here.attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR")
    assert limits.group_shared == here.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
    assert limits.reserved == here.attribute("RESERVED_SHARED_MEMORY_PER_BLOCK")


def test_no_device_has_more_multiprocessors_than_its_row(here: Device) -> None:
    assert here.units <= architecture_of(here.capability).units


def test_the_device_is_a_model_of_its_row(here: Device) -> None:
    """By its name and by its memory alone, which agree."""
    row = architecture_of(here.capability)
    name = BACKEND.arch_of_device(0)
    assert find_architecture(name) == row and runs_on(name, here.capability, machine_code=True)
    assert here.bandwidth > 100
    if row.models:
        by_memory = row.model_of_device("", here.bandwidth)
        assert by_memory is not None and name == by_memory.name
