"""Codes of the CUDA target: driver, devices, code loading, launches and tools."""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

CODES: dict[str, Code] = {
    c.code: c
    for c in (
        Code("T0870", "cuda-driver-missing", "The NVIDIA driver or its Python package is missing."),
        Code("T0871", "no-cuda-device", "No CUDA device is visible to this process."),
        Code("T0872", "cuda-driver-too-old", "The NVIDIA driver is older than the code needs."),
        Code("T0873", "cuda-driver-error", "The NVIDIA driver refused an operation."),
        Code("T0874", "device-out-of-memory", "The device has not enough free memory."),
        Code("T0875", "kernel-crashed", "A kernel stopped on the device."),
        Code("T0876", "launch-too-large", "A launch is beyond the limits of the device."),
        Code("T0877", "code-for-another-device", "Compiled code does not fit the device."),
        Code("T0878", "ptxas-failed", "Ptxas is missing, timed out or refused the PTX."),
        Code("T0879", "disassembler-missing", "No disassembler for SASS was found."),
        Code("T0880", "unknown-cuda-architecture", "An architecture the CUDA target cannot serve."),
        Code("T0881", "ptxas-warning", "Ptxas warns that the code will be slow."),
        Code("T0882", "not-on-this-architecture", "The architecture lacks what the kernel asks."),
    )
}
