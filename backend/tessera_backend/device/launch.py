"""Launching: the shortest way from a Python call to the driver.

Owns the argument block of a launch and the call itself. A slot that holds a tensor map takes
the address of the array, as one of data does; the launch makes the map of it. The driver's
``cuLaunchKernelEx`` is called by address: it takes four pointers, so a call converts next to
nothing (cuda-python's own form with argument tuples takes twice the time). What arguments
mean, and what to check before a launch, is the runtime's.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from tessera_backend.device.aligned_row_copies import LANES, LOCK, Copying, repacker
from tessera_backend.device.driver import Device
from tessera_backend.device.driver_errors import NO_CONTEXT, launch_too_large
from tessera_backend.device.memory import FaultRecord, fault_record, spare_zeros
from tessera_backend.device.module import STATIC_SHARED_LIMIT, Module, load_artifact
from tessera_backend.device.occupancy import LaunchConfig, resident_groups
from tessera_backend.device.permute_copy_kernel import Copy
from tessera_backend.device.tensor_map import MappedArray, TensorMap, TensorMaps
from tessera_backend.device.workspace import scratch, workspace
from tessera_lang.locks import once
from tessera_lang.target.backend import Artifact
from tessera_lang.target.launch_plan import Slot
from tessera_lang.target.premises import GRID_LIMITS

_UNSHAPED = (0, 0, 0, 0)
_KEPT_LAYOUTS = 256

Space = Callable[[Device, int, int], int]
"""Memory for work of a stream: of a device, for a stream, so many bytes."""

_CELLS = {"f64": "d", "f32": "f4x", "f16": "e6x"}


def slot_packer(slots: Sequence[Slot]) -> Callable[..., None]:
    """``pack(buffer.block, 0, *values)``: one value a slot into its 8-byte cell.

    Addresses, sizes, strides and integer scalars are Python ints (bools too); f64, f32 and
    f16 scalars Python floats. Scalars of other float types are given as their bits.
    """
    return struct.Struct("<" + "".join(_cell(slot) for slot in slots)).pack_into


def _cell(slot: Slot) -> str:
    if slot.kind != "scalar":
        return "q"
    unsigned = slot.dtype.startswith("u") or slot.dtype == "bool"
    return _CELLS.get(slot.dtype, "Q" if unsigned else "q")


class LaunchBuffer:
    """The arguments of one launch in the making, and its shape. One a thread and kernel.

    ``block`` is written by ``slot_packer``'s function. The driver copies it during the call.
    """

    __slots__ = (
        "block", "config", "config_address", "geometry", "pointers", "pointers_address",
    )  # fmt: skip

    def __init__(
        self, slot_count: int, group: tuple[int, int, int], shared_bytes: int,
        block: ctypes.Array[ctypes.c_int64] | None = None,
    ) -> None:  # fmt: skip
        count = max(slot_count, 1)
        self.block = (ctypes.c_int64 * count)() if block is None else block
        base = ctypes.addressof(self.block)
        self.pointers = (ctypes.c_void_p * count)(*(base + 8 * i for i in range(count)))
        self.pointers_address = ctypes.addressof(self.pointers)
        self.config = LaunchConfig(0, 0, 0, *group, shared_bytes, None, None, 0)
        self.config_address = ctypes.addressof(self.config)
        self.geometry: tuple[int, int, int, int] = _UNSHAPED


class CudaKernel:
    """A kernel on one device, ready to launch from any thread."""

    __slots__ = (
        "_function", "_launch", "_maps", "_module", "device", "dynamic_shared", "entry", "fault",
        "group", "pack", "plan", "resident", "slot_count",
    )  # fmt: skip

    def __init__(self, artifact: Artifact, device: Device) -> None:
        plan = artifact.plan
        self.device = device
        self.entry = artifact.entry
        self.plan = plan
        self.group = axes_to_xyz(plan.group)
        self.slot_count = len(plan.slots)
        self.pack = slot_packer(plan.slots)
        _check_group(self.group, plan.shared_bytes, device)
        self._module = load_artifact(device, artifact)
        shared = max(plan.shared_bytes, artifact.resources.shared_bytes)
        self.dynamic_shared = shared if shared > STATIC_SHARED_LIMIT else 0
        if self.dynamic_shared:
            self._module.allow_dynamic_shared(self.dynamic_shared)
        self._function = int(self._module.function)
        self._launch = _launch_function(device)
        self._maps: dict[tuple[int, tuple[int, ...], tuple[int, ...]], TensorMaps] = {}
        self.resident = 0
        if plan.persistent:
            cluster = max(prod(plan.cluster), 1)
            self.resident = resident_groups(
                device, self._function, self.group, self.dynamic_shared, cluster
            )
        self.fault: FaultRecord = fault_record(device)

    def residents(self) -> tuple[int, float]:
        """Groups that run on the device at once, and the part of its places for lanes that these
        take."""
        cluster = max(prod(self.plan.cluster), 1)
        groups = resident_groups(
            self.device, self._function, self.group, self.dynamic_shared, cluster
        )
        places = self.device.attribute("MAX_THREADS_PER_MULTIPROCESSOR") * self.device.units
        return groups, groups * prod(self.group) / places

    @property
    def module(self) -> Module:
        return self._module

    def buffer(self, block: ctypes.Array[ctypes.c_int64] | None = None) -> LaunchBuffer:
        """A fresh argument block for this kernel, or in that memory; keep one a thread."""
        return LaunchBuffer(self.slot_count, self.group, self.dynamic_shared, block)

    def launch_packed(self, buffer: LaunchBuffer, gx: int, gy: int, gz: int, stream: int) -> None:
        """Launch ``gx * gy * gz`` groups with the arguments in ``buffer``; none launch nothing.

        ``stream`` is a handle. Returns before the kernel has run. Raises TesseraError.
        """
        geometry = (gx, gy, gz, stream)
        if geometry != buffer.geometry and not _reshape(buffer, geometry):
            return
        status = self._launch(buffer.config_address, self._function, buffer.pointers_address, None)
        if status:
            self._retry(buffer, status)

    def launcher(
        self, buffer: LaunchBuffer, gx: int, gy: int, gz: int,
        maps: Mapping[int, MappedArray] | None = None, space: tuple[int, int] | None = None,
        copies: Sequence[Copy] = (), anything: tuple[int, int] | None = None,
        by_value: Sequence[int] = (),
    ) -> Callable[[int], None]:  # fmt: skip
        """``fire(stream)`` for one buffer and shape: the least that a launch can cost.

        The buffer's values may change between launches; a buffer is for one thread at a time.
        ``maps``: the arrays of the slots that hold a tensor map; ``space``: the slot of the
        workspace and its bytes; ``anything``: those of the scratch; ``copies``: what is copied
        before each launch; ``by_value``: slots whose value is the address of what a launch copies.
        Of a persistent kernel no more groups start than run at once.
        """
        if self.resident:
            gx = min(gx, self.resident)
        fire = self._launcher(buffer, gx, gy, gz)
        spaces = [(of, *s) for of, s in ((workspace, space), (scratch, anything)) if s is not None]
        if copies or maps or spaces or by_value:
            fire = self._filling(buffer, fire, maps or {}, spaces, by_value)
        if not copies:
            return fire
        make, launch = repacker(self.device, buffer.block, copies, self._copying), fire

        def fire_copied(stream: int) -> None:
            with LOCK:
                make(stream)
                launch(stream)

        return fire_copied

    def _copying(self, module: Module, values: Sequence[int], groups: int) -> Copying:
        """The arguments of a kernel that copies arrays, and what launches it; the module stays
        loaded."""
        buffer = LaunchBuffer(len(values), (LANES, 1, 1), 0)
        buffer.block[:] = values
        fire = self._launcher(buffer, groups, 1, 1, int(module.function))

        def launch(stream: int, keep: Any = module) -> None:
            fire(stream)

        return buffer.block, launch

    def _filling(
        self, buffer: LaunchBuffer, fire: Callable[[int], None],
        maps: Mapping[int, MappedArray], spaces: Sequence[tuple[Space, int, int]],
        by_value: Sequence[int],
    ) -> Callable[[int], None]:  # fmt: skip
        """``fire`` with what a launch makes of the values in the block before it."""
        block, pointers, device = buffer.block, buffer.pointers, self.device
        made = [(at, self._maps_of(at, array).of) for at, array in maps.items()]
        # The storage of a map is held as long as a pointer of this buffer shows to it.
        held: dict[int, tuple[int, TensorMap]] = {}

        def fire_filled(stream: int) -> None:
            for at, of_address in made:
                address = block[at]
                if at not in held or held[at][0] != address:
                    tensor_map = of_address(address)
                    pointers[at] = tensor_map.address
                    held[at] = address, tensor_map
            for at in by_value:
                pointers[at] = block[at]
            for memory, at, size in spaces:
                block[at] = memory(device, stream, size)
            fire(stream)

        return fire_filled

    def _maps_of(self, at: int, array: MappedArray) -> TensorMaps:
        """The maps of a slot for arrays of one layout, which all buffers share."""
        key = (at, array.shape, array.strides)
        found = self._maps.get(key)
        if found is None:
            if len(self._maps) >= _KEPT_LAYOUTS:
                self._maps.clear()
            slot = self.plan.slots[at]
            spare = spare_zeros(self.device)
            found = self._maps[key] = TensorMaps(self.device, slot, array, spare)
        return found

    def _launcher(
        self, buffer: LaunchBuffer, gx: int, gy: int, gz: int, other: int = 0
    ) -> Callable[[int], None]:  # fmt: skip
        """``other``: a function in place of this kernel."""
        geometry = (gx, gy, gz, 0)
        buffer.geometry = _UNSHAPED
        if not _reshape(buffer, geometry):
            return _launch_nothing
        launch, retry, config = self._launch, self._retry, buffer.config
        where, pointers = ctypes.c_void_p(buffer.config_address), buffer.pointers_address
        function, values = ctypes.c_void_p(other or self._function), ctypes.c_void_p(pointers)
        current = 0

        def fire(stream: int) -> None:
            nonlocal current
            if stream != current:
                config.stream = stream or None
                current = stream
            status = launch(where, function, values, None)
            if status:
                retry(buffer, status, other)

        return fire

    def launch(
        self, values: Sequence[int | float], groups: tuple[int, ...], stream: int = 0
    ) -> None:
        """The simple form: values by slot order, groups per axis of the grid."""
        buffer = self.buffer()
        self.pack(buffer.block, 0, *values)
        self.launch_packed(buffer, *axes_to_xyz(groups), stream)

    def bind(
        self, values: Sequence[int | float], groups: tuple[int, ...], stream: int = 0
    ) -> Callable[[], None]:
        """A launch with everything decided: the callable only asks the driver.

        The caller keeps the arrays behind the addresses alive and looks at ``fault``.
        """
        buffer = self.buffer()
        self.pack(buffer.block, 0, *values)
        return functools.partial(self.launcher(buffer, *axes_to_xyz(groups)), stream)

    def _retry(self, buffer: LaunchBuffer, status: int, function: int = 0) -> None:
        """A thread that has no context yet, or another device's, launches within ours."""
        if status in NO_CONTEXT:
            with self.device.current():
                status = self._launch(
                    buffer.config_address, function or self._function, buffer.pointers_address,
                    None,
                )  # fmt: skip
        if status:
            raise self.device.driver.failure(status, f"launching `{self.entry}`")


def axes_to_xyz(axes: tuple[int, ...]) -> tuple[int, int, int]:
    """Sizes per axis of the language (last fastest) as the hardware's x, y, z."""
    x, y, z = (*reversed(axes), 1, 1)[:3]
    return x, y, z


def _launch_nothing(stream: int) -> None:
    """A launch of no groups."""


def _reshape(buffer: LaunchBuffer, geometry: tuple[int, int, int, int]) -> bool:
    """Write a new launch shape; False where there is nothing to launch."""
    gx, gy, gz, stream = geometry
    if gx == 0 or gy == 0 or gz == 0:
        return False
    for size, limit, axis in zip(
        (gx, gy, gz), GRID_LIMITS, ("last", "second", "first"), strict=True
    ):
        if not 0 < size <= limit:
            raise launch_too_large(
                f"{size} groups along the {axis} axis of the grid, and a CUDA device takes {limit}",
                "let each group do more, or put the longest axis last",
            )
    config: Any = buffer.config
    config.grid_x, config.grid_y, config.grid_z, config.stream = gx, gy, gz, stream or None
    buffer.geometry = geometry
    return True


def _check_group(group: tuple[int, int, int], shared_bytes: int, device: Device) -> None:
    lanes = group[0] * group[1] * group[2]
    if lanes > 1024 or group[2] > 64:
        raise launch_too_large(
            f"a group of {lanes} lanes, and a CUDA device takes 1024, 64 along the first of "
            "three axes",
            "use fewer lanes in `tile[...]`",
        )
    if shared_bytes > device.shared_limit:
        raise launch_too_large(
            f"a group needs {shared_bytes} bytes of shared memory, and {device.name} has "
            f"{device.shared_limit}",
            "allocate less with `tshared.alloc`",
        )


@once
def _launch_function(device: Device) -> Any:
    """``cuLaunchKernelEx`` as a ctypes function that lets other threads run meanwhile."""
    pointer = ctypes.c_void_p
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, pointer, pointer)
    return prototype(device.driver.entry_point("cuLaunchKernelEx"))
