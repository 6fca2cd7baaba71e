"""Code on a device: loading cubin or PTX, and what the driver says of it.

Must not know how code is made. A loaded module lives as long as its object.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from tessera_backend.device.capture import beside_recordings
from tessera_backend.device.driver import Device
from tessera_backend.device.driver_errors import DriverError
from tessera_lang.diagnostics import TesseraError
from tessera_lang.target.backend import Artifact, Resources

STATIC_SHARED_LIMIT = 48 * 1024
"""Shared memory above this is asked for at the launch: the driver's limit for static."""

_LOG_BYTES = 8192
_NOT_FOR_THIS_DEVICE = frozenset(
    {
        "CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_INVALID_IMAGE",
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "CUDA_ERROR_INVALID_PTX",
    }
)  # fmt: skip


class Module:
    """One entry function loaded on one device."""

    def __init__(self, device: Device, code: bytes, entry: str) -> None:
        self._module: Any = None
        self.device = device
        call = device.driver.call
        with device.current(), beside_recordings(device):
            self._module = _load(device, code, entry)
            self.function: Any = call(
                "cuModuleGetFunction", self._module, entry.encode(), action=f"finding `{entry}`"
            )

    def attribute(self, name: str) -> int:
        """A function attribute by its name without the common prefix."""
        kind = getattr(self.device.driver.api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(self.device.driver.call("cuFuncGetAttribute", kind, self.function))

    def resources(self) -> Resources:
        """What the driver reports; spills are part of the local memory there."""
        with self.device.current():
            return Resources(
                registers=self.attribute("NUM_REGS"),
                shared_bytes=self.attribute("SHARED_SIZE_BYTES"),
                local_bytes=self.attribute("LOCAL_SIZE_BYTES"),
            )

    def allow_dynamic_shared(self, size: int) -> None:
        """Let launches ask for ``size`` bytes, above what is allowed by default."""
        driver = self.device.driver
        kind = driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        with self.device.current(), beside_recordings(self.device):
            driver.call("cuFuncSetAttribute", self.function, kind, size)

    def __del__(self) -> None:
        module, self._module = getattr(self, "_module", None), None
        if module is not None and not sys.is_finalizing():
            # A lost context took its modules along; a destructor has nobody to tell.
            with contextlib.suppress(TesseraError, RuntimeError), self.device.current():
                self.device.driver.call("cuModuleUnload", module)


def load_artifact(device: Device, artifact: Artifact) -> Module:
    """The artifact's code on a device; PTX kept beside machine code serves as a second try.

    Machine code of a newer toolkit than the driver, or of another architecture, is refused
    by the driver, which may still translate the PTX itself.
    """
    try:
        return Module(device, artifact.code, artifact.entry)
    except DriverError as error:
        ptx = artifact.texts.get("ptx", "") if artifact.kind == "cubin" else ""
        if not ptx or error.name not in _NOT_FOR_THIS_DEVICE:
            raise
        return Module(device, ptx.encode(), artifact.entry)


def _load(device: Device, code: bytes, entry: str) -> Any:
    driver = device.driver
    option = driver.api.CUjit_option
    log = bytearray(_LOG_BYTES)
    keys = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    image = code if code.startswith(b"\x7fELF") else code.rstrip(b"\0") + b"\0"
    action = f"loading `{entry}` on {device.name} ({device.arch})"
    try:
        return driver.call(
            "cuModuleLoadDataEx", image, len(keys), keys, [log, _LOG_BYTES], action=action
        )
    except DriverError as error:
        said = bytes(log).split(b"\0", 1)[0].decode("utf-8", "replace").strip()
        raise DriverError(error.name, action, said, error.said) from error
