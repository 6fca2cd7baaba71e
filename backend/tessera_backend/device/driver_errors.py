"""What the driver refuses, in the user's words.

Owns the table from driver error names to diagnostics. Must not know how calls are made.
"""

from __future__ import annotations

from tessera_lang.diagnostics import Diagnostic, TesseraError

MINIMUM_DRIVER = 12000

_REMEDIES: dict[str, tuple[str, str, str]] = {
    # driver error name: code, sentence, help
    "CUDA_ERROR_OUT_OF_MEMORY": (
        "T0874", "the device has not enough free memory",
        "free arrays that are no longer needed, or use a smaller size",
    ),
    "CUDA_ERROR_NO_DEVICE": (
        "T0871", "no CUDA device is visible to this process",
        "check `nvidia-smi` and CUDA_VISIBLE_DEVICES, or run with `--target cpu`",
    ),
    "CUDA_ERROR_INVALID_DEVICE": (
        "T0871", "there is no such CUDA device",
        "`tesserac devices` lists the devices of this machine",
    ),
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": (
        "T0872", "the NVIDIA driver in the kernel and its library differ in version",
        "restart the machine after a driver update",
    ),
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": (
        "T0872", "the installed CUDA compatibility library does not support this device",
        "update the NVIDIA driver",
    ),
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": (
        "T0872", "the NVIDIA driver is too old for the PTX of this kernel",
        "update the NVIDIA driver, or install ptxas: `pip install tessera-lang[ptxas]`",
    ),
    "CUDA_ERROR_INVALID_PTX": (
        "T0877", "the driver refused the PTX: it is for another architecture, or a fault of ours",
        "compile for the architecture that `tesserac devices` shows",
    ),
    "CUDA_ERROR_NO_BINARY_FOR_GPU": (
        "T0877", "the compiled code is for another architecture than this device",
        "compile for the architecture that `tesserac devices` shows",
    ),
    "CUDA_ERROR_INVALID_IMAGE": (
        "T0877", "the compiled code is damaged or not for this driver",
        "build it again, or empty the cache with `tesserac cache clear`",
    ),
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": (
        "T0878", "the driver has no PTX compiler",
        "install ptxas: `pip install tessera-lang[ptxas]`",
    ),
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": (
        "T0876", "the kernel needs more registers or shared memory than the device gives a group",
        "use fewer lanes in `tile[...]`",
    ),
    "CUDA_ERROR_ILLEGAL_ADDRESS": (
        "T0875", "a kernel touched memory that is not its own",
        "run with bounds checks on (the default) to find the line",
    ),
    "CUDA_ERROR_MISALIGNED_ADDRESS": (
        "T0875", "a kernel used an address that is not a multiple of its element's size",
        "check where the array's memory comes from",
    ),
    "CUDA_ERROR_LAUNCH_FAILED": (
        "T0875", "a kernel stopped on the device",
        "run with bounds checks on (the default) to find the line",
    ),
    "CUDA_ERROR_LAUNCH_TIMEOUT": (
        "T0875", "a kernel ran longer than the display driver allows",
        "use a device without a display, or do less work in one launch",
    ),
    "CUDA_ERROR_ECC_UNCORRECTABLE": (
        "T0875", "the device's memory has a fault that could not be corrected",
        "the device needs a reset or repair",
    ),
    "CUDA_ERROR_NOT_INITIALIZED": (
        "T0873", "CUDA cannot be used in this process",
        "CUDA does not survive a fork: start worker processes with the `spawn` method",
    ),
    "CUDA_ERROR_MPS_CONNECTION_FAILED": (
        "T0873", "the connection to the MPS server failed",
        "check that the MPS control daemon runs",
    ),
}  # fmt: skip

NO_CONTEXT = (201, 400)
"""Invalid context and invalid handle: what a call gives in a thread without a context, or with
that of another device."""

# After these the context is lost: every later call in the process fails the same way.
FATAL = frozenset(
    {
        "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_MISALIGNED_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_LAUNCH_TIMEOUT", "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE", "CUDA_ERROR_INVALID_PC", "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_HARDWARE_STACK_ERROR", "CUDA_ERROR_ECC_UNCORRECTABLE",
    }
)  # fmt: skip


class DriverError(TesseraError):
    """A driver call that failed; ``name`` is the driver's name of the error, ``said`` the text
    that the driver has for it."""

    def __init__(self, name: str, action: str, detail: str = "", said: str = "") -> None:
        self.name = name
        self.said = said
        super().__init__((_describe(name, action, detail, said),))


def _describe(name: str, action: str, detail: str, said: str) -> Diagnostic:
    text = f" ({said})" if said else ""
    code, sentence, remedy = _REMEDIES.get(
        name, ("T0873", f"the NVIDIA driver refused an operation: {name}{text}", "")
    )
    if name in FATAL and name not in _REMEDIES:
        code, sentence = "T0875", "a kernel stopped on the device"
    notes = [f"{name}{text} while {action}"]
    if detail:
        notes.append(detail)
    if name in FATAL:
        notes.append("the device's context is lost: this process must be started again")
    return Diagnostic(code, sentence, notes=tuple(notes), helps=(remedy,) if remedy else ())


def missing_driver(detail: str, remedy: str) -> TesseraError:
    """No libcuda, or no cuda-python."""
    return TesseraError(
        (Diagnostic("T0870", "CUDA is not available", notes=(detail,), helps=(remedy,)),)
    )


def old_driver(version: int, needed: int) -> TesseraError:
    """The driver's CUDA version is below ``needed`` (1000 * major + 10 * minor)."""
    return TesseraError(
        (
            Diagnostic(
                "T0872",
                f"the NVIDIA driver supports CUDA {version_text(version)}, "
                f"and {version_text(needed)} is needed",
                helps=("update the NVIDIA driver, or run with `--target cpu`",),
            ),
        )
    )


def launch_too_large(message: str, remedy: str) -> TesseraError:
    """A launch beyond a limit of the device."""
    return TesseraError((Diagnostic("T0876", message, helps=(remedy,)),))


def version_text(version: int) -> str:
    """``13000`` as ``13.0``."""
    return f"{version // 1000}.{version % 1000 // 10}"
