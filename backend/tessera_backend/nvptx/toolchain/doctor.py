"""What ``tesserac devices`` and ``tesserac doctor`` say of the CUDA target. Never raises."""

from __future__ import annotations

from tessera_backend.device import driver
from tessera_backend.device.driver_errors import version_text
from tessera_backend.nvptx.toolchain.ptxas import INSTALL, find_ptxas
from tessera_lang.diagnostics import TesseraError
from tessera_lang.target.arch import architecture_of
from tessera_lang.target.backend import DeviceInfo, Finding
from tessera_lang.target.installed import version_of


def arch_of(device: driver.Device) -> str:
    """What code for a device is made for: its architecture, or the model of it that the device is.
    Raises TesseraError for one that is not served."""
    row = architecture_of(device.capability)
    model = row.model_of_device(device.name, device.bandwidth) if row.models else None
    return model.name if model is not None else row.name


def describe_devices() -> tuple[DeviceInfo, ...]:
    """The CUDA devices that this process sees; empty where CUDA does not work."""
    try:
        return tuple(
            DeviceInfo("cuda", d.ordinal, d.name, d.arch, d.memory_bytes, d.units)
            for d in driver.devices()
        )
    except TesseraError:
        return ()


def diagnose() -> tuple[Finding, ...]:
    """Package, driver, devices and tools, in the order in which they are needed."""
    return (_package(), *_driver(), *_devices(), _ptxas())


def _package() -> Finding:
    for name in ("cuda-bindings", "cuda-python"):
        version = version_of(name)
        if version:
            return Finding("cuda-python", True, f"{name} {version}")
    return Finding(
        "cuda-python", False, "the package is not installed",
        "`pip install cuda-python` to use a CUDA device",
    )  # fmt: skip


def _driver() -> tuple[Finding, ...]:
    try:
        version = driver.driver().version
    except TesseraError as error:
        return tuple(
            Finding("NVIDIA driver", False, "; ".join((d.message, *d.notes)), "; ".join(d.helps))
            for d in error.diagnostics
        )
    return (Finding("NVIDIA driver", True, f"supports CUDA {version_text(version)}"),)


def _devices() -> tuple[Finding, ...]:
    found: list[Finding] = []
    for device in describe_devices():
        name = f"CUDA device {device.ordinal}"
        detail = f"{device.name}, {device.arch}, {device.memory_bytes >> 20} MiB"
        try:
            code = arch_of(driver.device(device.ordinal))
        except TesseraError as error:
            diagnostic = error.diagnostics[0]
            found.append(
                Finding(name, False, f"{detail}: {diagnostic.message}", diagnostic.helps[0])
            )
        else:
            found.append(Finding(name, True, f"{detail}; code is made for {code}"))
    return tuple(found)


def _ptxas() -> Finding:
    tool = find_ptxas()
    if tool is None:
        return Finding(
            "ptxas", False, "not found: the driver translates PTX at the first launch", INSTALL
        )
    return Finding("ptxas", True, f"{tool.version} ({tool.path})")
