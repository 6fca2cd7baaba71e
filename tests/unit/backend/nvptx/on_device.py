"""Running a hand-made kernel on the first device with NumPy arrays in and out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tessera_backend.device.driver import Device, device
from tessera_backend.device.launch import CudaKernel, axes_to_xyz
from tessera_backend.device.memory import DeviceMemory, copy_to_device, copy_to_host
from tessera_backend.nvptx.backend import BACKEND

from tessera_lang.ir.core import Program
from tessera_lang.target.backend import Artifact, TargetOptions
from tessera_lang.target.launch_plan import LaunchPlan, ParameterPlan

Array = npt.NDArray[np.generic]

needs_device = pytest.mark.skipif(bool(BACKEND.available()), reason="no CUDA device")


def compiled(made: tuple[Program, LaunchPlan], kind: str = "cubin") -> Artifact:
    """The artifact for the first device; as PTX alone where the driver is to translate."""
    artifact = BACKEND.compile(*made, TargetOptions("cuda"), ())
    if kind == "ptx":
        ptx = artifact.texts["ptx"].encode()
        return Artifact("ptx", ptx, artifact.entry, artifact.plan, artifact.options)
    return artifact


def run(
    made: tuple[Program, LaunchPlan] | Artifact,
    arrays: Sequence[Array],
    groups: tuple[int, ...] = (1,),
    scalars: Sequence[float] = (),
    n: int | None = None,
    target: Device | None = None,
) -> list[Array]:
    """Copies of the arrays after the launch. ``n`` is the size that the kernel is told."""
    where = target or device(0)
    artifact = made if isinstance(made, Artifact) else compiled(made)
    code = CudaKernel(artifact, where)
    held = [DeviceMemory(where, max(a.nbytes, 1)) for a in arrays]
    for memory, array in zip(held, arrays, strict=True):
        copy_to_device(where, memory.pointer, array.ctypes.data, array.nbytes)
    values: list[float] = [*(m.pointer for m in held), *scalars]
    values.append(len(arrays[0]) if n is None else n)
    if any(slot.kind == "fault" for slot in artifact.plan.slots):
        values.append(code.fault.pointer)
    code.launch(values, groups)
    results = [np.empty_like(a) for a in arrays]
    for memory, result in zip(held, results, strict=True):
        copy_to_host(where, result.ctypes.data, memory.pointer, result.nbytes)
    return results


class DeviceRunner:
    """``tile_kernels.Runner`` on the first CUDA device: arrays are copied there and back."""

    def __init__(
        self,
        built: tuple[Program, LaunchPlan],
        optimize: int = 3,
        stages: tuple[str, ...] = (),
    ) -> None:
        program, plan = built
        count = 1 + max((s.parameter for s in plan.slots), default=0)
        parameters = tuple(
            ParameterPlan(f"p{i}", "tensor", "i8", 1, mut=True) for i in range(count)
        )
        options = TargetOptions("cuda", optimize=optimize)
        plan = replace(plan, parameters=parameters)
        self.artifact = BACKEND.compile(program, plan, options, stages)
        self._code = CudaKernel(self.artifact, device(0))
        self.fault = [0] * 8

    def __call__(self, *arguments: Any, groups: tuple[int, ...] = (1,), threads: int = 1) -> None:
        where = self._code.device
        values: list[int] = []
        held: list[tuple[DeviceMemory, Array]] = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                memory = DeviceMemory(where, max(argument.nbytes, 1))
                copy_to_device(where, memory.pointer, argument.ctypes.data, argument.nbytes)
                held.append((memory, argument))
                values += [memory.pointer, argument.size]
            else:
                values.append(int(argument))
        record = self._code.fault
        record.take()
        values.append(record.pointer)
        buffer = self._code.buffer()
        for slot, value in enumerate(values):
            buffer.block[slot] = value
        self._code.launch_packed(buffer, *axes_to_xyz(groups), 0)
        for memory, array in held:
            copy_to_host(where, array.ctypes.data, memory.pointer, array.nbytes)
        self.fault = list(record.take() or [0] * 8)
