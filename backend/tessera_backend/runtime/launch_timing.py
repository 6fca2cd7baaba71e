"""Launches that are measured: what a kernel takes, run again over the same arguments.

Owns the clocks. On a GPU marks in the stream are the clock, so that what Python does in between
counts only where the device waits for it. Must not know which kernels are measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from tessera_backend.device.driver import device
from tessera_backend.device.stream import Event
from tessera_backend.runtime.arrays import HOST, describe
from tessera_backend.runtime.dtypes import Array
from tessera_backend.runtime.kernel import Launcher
from tessera_backend.runtime.launch import Prepared
from tessera_backend.runtime.module_interface import KernelInterface
from tessera_lang.target.host_world import KernelReference, Measured
from tessera_lang.types.dtype import DType

_RUNS = (1, 3, 20)
"""Calls for a mean: longer ones are called less often. The least of three means is taken."""
_LONG, _SHORT = 0.1, 0.005  # seconds


class Measuring:
    """What a world needs to measure launches."""

    _device: int

    def _empty(self, shape: tuple[int, ...], dtype: DType) -> Array:
        raise NotImplementedError

    def _given(self, value: object) -> object:
        raise NotImplementedError

    def _kernel(self, kernel: KernelReference) -> tuple[Launcher, KernelInterface]:
        raise NotImplementedError

    def _prepared(
        self, launcher: Launcher, given: list[object], named: dict[str, Any]
    ) -> tuple[Prepared, list[Any], list[Array]]:
        """A launch of a tile kernel, its arguments, and the arrays of this world among them that it
        returns."""
        values, prepared = launcher.prepare(given, named, self._device)
        results = [self._empty(shape, dtype) for dtype, shape in prepared.results]
        views = [describe(self._given(array), "result") for array in results]
        return prepared, [*values, *views], results

    def measured(self, kernel: KernelReference, arguments: tuple[object, ...]) -> Measured:
        launcher, _ = self._kernel(kernel)
        prepared, given, _ = self._prepared(launcher, [self._given(a) for a in arguments], {})
        return measured(prepared, given, self._device)


def measured(prepared: Prepared, arguments: Sequence[Any], ordinal: int) -> Measured:
    """What a launch of a layout takes, on the CPU or on a device."""

    def launch() -> None:
        prepared.run(arguments, 0)

    groups = 1
    for n in prepared.axes:
        groups *= n
    if ordinal == HOST:
        return _on_cpu(launch, groups)
    return _on_device(launch, ordinal, groups, _resident(prepared))


def _runs(seconds: float) -> int:
    return _RUNS[0] if seconds > _LONG else _RUNS[1] if seconds > _SHORT else _RUNS[2]


def _on_cpu(launch: Callable[[], None], groups: int) -> Measured:
    """The occupancy is the part of the machine's processors that worked."""
    start = time.perf_counter()
    launch()
    count = _runs(time.perf_counter() - start)
    best = worked = float("inf")
    for _ in range(3):
        start, busy = time.perf_counter(), time.process_time()
        for _ in range(count):
            launch()
        seconds = (time.perf_counter() - start) / count
        if seconds < best:
            best, worked = seconds, (time.process_time() - busy) / count
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    processors = processors or os.cpu_count() or 1
    return Measured(best, min(1.0, worked / best / processors), groups)


def _on_device(
    launch: Callable[[], None], ordinal: int, groups: int, resident: tuple[int, float]
) -> Measured:
    """The occupancy is the part of the places for warps that the groups which run at once take."""
    on = device(ordinal)
    events = Event(on), Event(on)

    def mean(count: int) -> float:
        events[0].record()
        for _ in range(count):
            launch()
        events[1].record()
        events[1].synchronize()
        return events[0].seconds_until(events[1]) / count

    count = _runs(mean(1))
    best = min(mean(count) for _ in range(3))
    most, full = resident
    return Measured(best, full * min(1.0, groups / most if most else 1.0), groups)


def _resident(prepared: Prepared) -> tuple[int, float]:
    """Groups that run at once, and the part of the device's places for warps that these take."""
    kernel = getattr(prepared.code, "kernel", None)
    return (0, 0.0) if kernel is None else kernel.residents()
