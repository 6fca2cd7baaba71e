"""Compiled code on a CUDA device: its argument blocks and its fault record.

Must not know arguments.
"""

from __future__ import annotations

from typing import Any

from tessera_backend.device.driver import device
from tessera_backend.device.launch import CudaKernel, axes_to_xyz
from tessera_backend.device.memory import PinnedMemory
from tessera_backend.runtime.bound_arguments import Bound
from tessera_backend.runtime.faults import FaultSlot, cuda_faults
from tessera_backend.runtime.loaded_code import Block, Frame
from tessera_backend.runtime.printing import printing
from tessera_lang.target.backend import Artifact
from tessera_lang.target.launch_plan import PRINT_WORDS, LaunchPlan


class CudaCode:
    """A kernel in a module on a CUDA device. ``fault``: the record of the launch before it in the
    same call."""

    then: tuple[LaunchPlan, ...] = ()
    offsets: tuple[int, ...] = (0,)

    def __init__(self, artifact: Artifact, ordinal: int, fault: FaultSlot | None = None) -> None:
        self.plan = artifact.plan
        self.device = ordinal
        self._device = device(ordinal)
        self._kernel = CudaKernel(artifact, self._device)
        self._faults = cuda_faults(ordinal)
        self.fault = fault or self._faults.slot(artifact.plan)
        self.report = self._faults.report

    @property
    def kernel(self) -> CudaKernel:
        return self._kernel

    @property
    def flags(self) -> Any:
        return self.fault.flags

    @property
    def quiet(self) -> Any:
        return self.fault.quiet

    @property
    def words(self) -> int:
        return max(1, self._kernel.slot_count)

    def frame(self, bound: Bound, block: Block | None = None) -> Frame:
        slots, memory = bound.slots, bound.memory
        buffer = self._kernel.buffer(block)
        for at, value in enumerate(slots.values):
            buffer.block[at] = value
        if slots.fault >= 0:
            buffer.block[slots.fault] = self.fault.address
        fire = self._kernel.launcher(
            buffer, *axes_to_xyz(bound.axes), slots.maps, memory.workspace, memory.copies,
            memory.scratch, slots.by_value,
        )  # fmt: skip
        if slots.print >= 0:
            pinned = PinnedMemory(self._device, 8 * PRINT_WORDS)
            buffer.block[slots.print] = pinned.pointer
            words = pinned.view().cast("q")
            fire = printing(self.plan, words, fire, self._device.synchronize)
        return buffer.block, fire

    def launches(self, bound: Bound, block: Block) -> None:
        """Launches on a device go through its driver."""
