"""The CUDA driver through cuda-python: loading it, its devices and their contexts.

The only importer of ``cuda.bindings``, and only when a device is asked for. Contexts are
the devices' primary ones, so arrays of other libraries in the process are ours to use.
Must not know kernels or plans.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tessera_backend.device.driver_errors import (
    MINIMUM_DRIVER,
    DriverError,
    missing_driver,
    old_driver,
)
from tessera_lang.diagnostics import TesseraError
from tessera_lang.locks import free_lock, free_reentrant_lock
from tessera_lang.target.arch import name_of

_INSTALL_DRIVER = "install the NVIDIA driver, or run with `--target cpu`"
_INSTALL_PACKAGE = "`pip install cuda-python`, or run with `--target cpu`"


class Driver:
    """The loaded and initialised driver. Made once a process by ``driver()``."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self.call("cuInit", 0, action="starting CUDA")
        self.version: int = self.call("cuDriverGetVersion")
        if self.version < MINIMUM_DRIVER:
            raise old_driver(self.version, MINIMUM_DRIVER)
        self.device_count: int = self.call("cuDeviceGetCount", action="counting devices")
        if self.device_count == 0:
            raise DriverError("CUDA_ERROR_NO_DEVICE", "counting devices")

    def call(self, name: str, *arguments: Any, action: str = "") -> Any:
        """One driver call: its result, a tuple of several, or None. Raises DriverError."""
        try:
            status, *results = getattr(self.api, name)(*arguments)
        except (AttributeError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "not found" not in str(error):
                raise
            raise old_driver(getattr(self, "version", 0), MINIMUM_DRIVER) from error
        if status != 0:
            raise self.failure(status, action or f"calling {name}")
        if not results:
            return None
        return results[0] if len(results) == 1 else tuple(results)

    def error_name(self, status: int) -> str:
        """``CUDA_ERROR_...`` of a status number."""
        try:
            return str(self.api.CUresult(int(status)).name)
        except ValueError:
            return f"CUDA_ERROR_{int(status)}"

    def failure(self, status: int, action: str) -> DriverError:
        """The error of a call that gave this status."""
        return DriverError(self.error_name(status), action, said=self._error_text(status))

    def _error_text(self, status: int) -> str:
        """What the driver says of a status number; "" where it says nothing."""
        try:
            failed, text = self.api.cuGetErrorString(self.api.CUresult(int(status)))
        except (AttributeError, RuntimeError, TypeError, ValueError):
            return ""
        return "" if failed or not text else _text(text)

    def entry_point(self, name: str, version: int = MINIMUM_DRIVER) -> int:
        """Address of a driver function, for calls that must cost little."""
        address, _ = self.call("cuGetProcAddress", name.encode(), version, 0)
        if not address:
            raise old_driver(self.version, version)
        return int(address)


class Device:
    """One device and its primary context, which any thread may enter."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        action = f"opening CUDA device {ordinal}"
        if not 0 <= ordinal < driver.device_count:
            raise DriverError("CUDA_ERROR_INVALID_DEVICE", action)
        self.driver = driver
        self.ordinal = ordinal
        self.handle: Any = driver.call("cuDeviceGet", ordinal, action=action)
        self.name: str = _text(driver.call("cuDeviceGetName", 256, self.handle))
        self.capability = (
            self.attribute("COMPUTE_CAPABILITY_MAJOR"),
            self.attribute("COMPUTE_CAPABILITY_MINOR"),
        )
        self.arch = name_of(self.capability)
        self.units = self.attribute("MULTIPROCESSOR_COUNT")
        self._lock = free_lock()
        self._context: Any = None

    def attribute(self, name: str) -> int:
        """A device attribute by its name without the common prefix."""
        kind = getattr(self.driver.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.driver.call("cuDeviceGetAttribute", kind, self.handle))

    @functools.cached_property
    def memory_bytes(self) -> int:
        return int(self.driver.call("cuDeviceTotalMem", self.handle))

    @functools.cached_property
    def bandwidth(self) -> float:
        """What the driver says that the memory moves, in GB a second; 0 where it does not say."""
        try:
            kilohertz = self.attribute("MEMORY_CLOCK_RATE")
            bits = self.attribute("GLOBAL_MEMORY_BUS_WIDTH")
        except (AttributeError, DriverError):
            return 0.0
        return 2 * kilohertz * bits / 8e6  # on both edges of the clock

    @functools.cached_property
    def shared_limit(self) -> int:
        """Bytes of shared memory that one group can have at most."""
        return self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")

    @property
    def context(self) -> Any:
        if self._context is None:
            with self._lock:
                if self._context is None:
                    self._context = self.driver.call(
                        "cuDevicePrimaryCtxRetain",
                        self.handle,
                        action=f"starting CUDA device {self.ordinal}",
                    )
        return self._context

    def activate(self) -> None:
        """Make this device's context the calling thread's, for good."""
        self.driver.call("cuCtxSetCurrent", self.context)

    @contextmanager
    def current(self) -> Generator[None]:
        """This device's context within the block; the thread's own one again after it.

        A thread that had none keeps this one: launches by address need a current context.
        """
        call = self.driver.call
        before = int(call("cuCtxGetCurrent"))
        if before == int(self.context):
            yield
        elif before == 0:
            self.activate()
            yield
        else:
            call("cuCtxPushCurrent", self.context)
            try:
                yield
            finally:
                call("cuCtxPopCurrent")

    def synchronize(self) -> None:
        """Wait for all work on the device."""
        with self.current():
            self.driver.call("cuCtxSynchronize", action="waiting for the device")


class _Loaded:
    """The driver or why there is none, for one process: a fork starts anew."""

    def __init__(self) -> None:
        self.lock = free_reentrant_lock()
        self.forget()

    def forget(self) -> None:
        self.driver: Driver | None = None
        self.error: TesseraError | None = None
        self.devices: dict[int, Device] = {}

    def open(self) -> Driver:
        if self.driver is not None:
            return self.driver
        with self.lock:
            if self.error is not None:
                raise TesseraError(self.error.diagnostics)
            if self.driver is None:
                try:
                    self.driver = Driver(_bindings())
                except TesseraError as error:
                    self.error = error
                    raise
            return self.driver

    def device(self, ordinal: int) -> Device:
        opened = self.open()
        found = self.devices.get(ordinal)
        if found is None:
            with self.lock:
                found = self.devices.get(ordinal)
                if found is None:
                    found = self.devices[ordinal] = Device(opened, ordinal)
        return found


_loaded = _Loaded()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loaded.forget)


def driver() -> Driver:
    """The driver, started on first use. Raises TesseraError with the reason and a remedy."""
    return _loaded.open()


def device(ordinal: int = 0) -> Device:
    """The device of that number; the same object each time."""
    return _loaded.device(ordinal)


def devices() -> tuple[Device, ...]:
    """All devices in the driver's order. Raises as ``driver`` does."""
    return tuple(device(n) for n in range(driver().device_count))


def _bindings() -> Any:
    """The low-level module of cuda-python, with libcuda loaded behind it."""
    try:
        api = importlib.import_module("cuda.bindings.driver")
    except (ImportError, OSError) as error:
        raise missing_driver(
            f"the package cuda-python cannot be imported: {error}", _INSTALL_PACKAGE
        ) from error
    try:
        api.cuDriverGetVersion()
    except (RuntimeError, OSError, ImportError) as error:  # differs between releases
        raise missing_driver(
            f"the NVIDIA driver library was not found: {error}", _INSTALL_DRIVER
        ) from error
    return api


def _text(value: bytes | str) -> str:
    raw = value if isinstance(value, str) else value.decode("utf-8", "replace")
    return raw.split("\0", 1)[0]  # what is behind the end may be anything
