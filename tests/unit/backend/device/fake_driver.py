"""A stand-in for ``cuda.bindings.driver``: two devices, contexts per thread, no GPU."""

from __future__ import annotations

import ctypes
import enum
import threading
from typing import Any


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_INITIALIZED = 3
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


class CUdevice_attribute(enum.IntEnum):
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115


class CUfunction_attribute(enum.IntEnum):
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


class CUstreamCaptureMode(enum.IntEnum):
    CU_STREAM_CAPTURE_MODE_GLOBAL = 0
    CU_STREAM_CAPTURE_MODE_RELAXED = 2


class CUjit_option(enum.IntEnum):
    CU_JIT_ERROR_LOG_BUFFER = 5
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6


class FakeApi:
    """Only what the device layer calls. ``fail`` maps a function to the status it gives."""

    CUresult = CUresult
    CUdevice_attribute = CUdevice_attribute
    CUfunction_attribute = CUfunction_attribute
    CUjit_option = CUjit_option
    CUstreamCaptureMode = CUstreamCaptureMode

    def __init__(
        self, version: int = 13000, capabilities: tuple[tuple[int, int], ...] = ((9, 0), (8, 0))
    ) -> None:
        self.version = version
        self.capabilities = capabilities
        self.fail: dict[str, int] = {}
        self.calls: list[str] = []
        self.launched: list[tuple[int, ...]] = []
        self.loaded: list[bytes] = []
        self.unloaded: list[int] = []
        self.attributes: dict[int, int] = {}
        self.recordings: dict[int, int] = {}
        self.filled: list[tuple[int, ...]] = []
        self.mode = CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        self._thread = threading.local()
        self._host: dict[int, Any] = {}
        pointer = ctypes.c_void_p
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, pointer, pointer)
        self._launch = prototype(self._on_launch)
        self.maps: list[tuple[int, ...]] = []
        number = ctypes.c_int
        encode = ctypes.CFUNCTYPE(
            number, pointer, number, ctypes.c_uint32, *[pointer] * 5, *[number] * 4
        )
        self._entries = {
            b"cuLaunchKernelEx": self._launch,
            b"cuTensorMapEncodeTiled": encode(self._on_encode),
            b"cuOccupancyMaxActiveClusters": ctypes.CFUNCTYPE(number, *[pointer] * 3)(
                self._on_clusters
            ),
            b"cuMemsetD8Async": ctypes.CFUNCTYPE(
                number, pointer, ctypes.c_ubyte, ctypes.c_size_t, pointer
            )(self._on_fill),
            b"cuCtxGetCurrent": ctypes.CFUNCTYPE(number, pointer)(self._on_current),
            b"cuStreamGetCaptureInfo": ctypes.CFUNCTYPE(number, *[pointer] * 6)(
                self._on_capture_info
            ),
        }

    def _stack(self) -> list[int]:
        if not hasattr(self._thread, "stack"):
            self._thread.stack = []
        stack: list[int] = self._thread.stack
        return stack

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if not name.startswith("cu"):
            return value
        self.calls.append(name)
        status = self.fail.get(name, 0)
        return (lambda *_: (status, None)) if status else value

    def cuInit(self, flags: int) -> tuple[int]:
        return (0,)

    def cuDriverGetVersion(self) -> tuple[int, int]:
        return 0, self.version

    def cuDeviceGetCount(self) -> tuple[int, int]:
        return 0, len(self.capabilities)

    def cuDeviceGet(self, ordinal: int) -> tuple[int, int]:
        return 0, ordinal

    def cuDeviceGetName(self, size: int, handle: int) -> tuple[int, bytes]:
        return 0, b"Fake %d\0\0    " % handle

    def cuDeviceTotalMem(self, handle: int) -> tuple[int, int]:
        return 0, 1 << 30

    def cuDeviceGetAttribute(self, kind: int, handle: int) -> tuple[int, int]:
        major, minor = self.capabilities[handle]
        return 0, {16: 132, 75: major, 76: minor, 97: 232448, 115: 0}[kind]

    def cuDevicePrimaryCtxRetain(self, handle: int) -> tuple[int, int]:
        return 0, 1000 + handle

    def cuCtxGetCurrent(self) -> tuple[int, int]:
        return 0, self._stack()[-1] if self._stack() else 0

    def cuCtxSetCurrent(self, context: int) -> tuple[int]:
        self._stack()[-1:] = [context]
        return (0,)

    def cuCtxPushCurrent(self, context: int) -> tuple[int]:
        self._stack().append(context)
        return (0,)

    def cuCtxPopCurrent(self) -> tuple[int, int]:
        return 0, self._stack().pop()

    def cuCtxSynchronize(self) -> tuple[int]:
        return (0,)

    def cuMemAlloc(self, size: int) -> tuple[int, int]:
        # A thread in the usual mode that records may not allocate.
        refused = self.recordings and self.mode == CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        return (CUresult.CUDA_ERROR_INVALID_VALUE if refused else 0), 4096

    def cuThreadExchangeStreamCaptureMode(
        self, mode: CUstreamCaptureMode
    ) -> tuple[int, CUstreamCaptureMode]:
        before, self.mode = self.mode, mode
        return 0, before

    def cuMemFree(self, pointer: int) -> tuple[int]:
        return (0,)

    def cuMemHostAlloc(self, size: int, flags: int) -> tuple[int, int]:
        block = ctypes.create_string_buffer(size)
        address = ctypes.addressof(block)
        self._host[address] = block
        return 0, address

    def cuMemHostGetDevicePointer(self, host: int, flags: int) -> tuple[int, int]:
        return 0, host

    def cuModuleLoadDataEx(self, image: bytes, *_: Any) -> tuple[int, int | None]:
        if image.startswith(b"\x7fELF wrong"):
            return CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU, None
        if self.recordings and self.mode == CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL:
            return CUresult.CUDA_ERROR_INVALID_VALUE, None
        self.loaded.append(image)
        return 0, 76 + len(self.loaded)

    def cuModuleGetFunction(self, module: int, name: bytes) -> tuple[int, int]:
        return 0, 0x5000

    def cuModuleUnload(self, module: int) -> tuple[int]:
        self.unloaded.append(module)
        return (0,)

    def cuGetErrorString(self, status: int) -> tuple[int, bytes]:
        return 0, f"text of {int(status)}".encode()

    def cuFuncGetAttribute(self, kind: int, function: int) -> tuple[int, int]:
        return 0, {4: 24, 1: 512, 3: 0}[kind]

    def cuFuncSetAttribute(self, function: int, kind: int, value: int) -> tuple[int]:
        self.attributes[kind] = value
        return (0,)

    def cuGetProcAddress(self, name: bytes, version: int, flags: int) -> tuple[int, int, int]:
        return 0, ctypes.cast(self._entries[name], ctypes.c_void_p).value or 0, 0

    def cuMemsetD8Async(self, target: int, value: int, size: int, stream: int) -> tuple[int]:
        return (self._on_fill(target, value, size, stream),)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, *_: int) -> tuple[int, int]:
        return 0, 2

    def _on_fill(self, target: int, value: int, size: int, stream: int) -> int:
        self.filled.append((target, value, size, stream or 0, self._stack()[-1]))
        return self.fail.get("fill", 0)

    def _on_current(self, found: int) -> int:
        ctypes.c_void_p.from_address(found).value = self._stack()[-1] if self._stack() else None
        return 0

    def _on_capture_info(self, stream: int, state: int, number: int, *_: int) -> int:
        if not self._stack():
            return CUresult.CUDA_ERROR_INVALID_CONTEXT
        graph = self.recordings.get(stream or 0, 0)
        ctypes.c_int.from_address(state).value = 1 if graph else 0
        ctypes.c_uint64.from_address(number).value = graph
        return 0

    def _on_clusters(self, found: int, function: int, config: int) -> int:
        ctypes.c_int.from_address(found).value = 60
        return 0

    def _on_encode(self, target: int, kind: int, rank: int, address: int, *rest: int) -> int:
        """Notes kind, address, sizes, strides, box and the modes; the map begins with them."""
        if not self._stack():
            return CUresult.CUDA_ERROR_INVALID_CONTEXT
        sizes, strides, box, _, *modes = rest
        words = (ctypes.c_uint64 * rank).from_address(sizes)
        steps = (ctypes.c_uint64 * max(rank - 1, 1)).from_address(strides)
        numbers = (ctypes.c_uint32 * rank).from_address(box)
        ctypes.c_int64.from_address(target).value = 1000 + len(self.maps)
        self.maps.append((kind, address, *words, *steps[: rank - 1], *numbers, *modes))
        if 0 in words or any(step % 16 for step in steps[: rank - 1]):
            return CUresult.CUDA_ERROR_INVALID_VALUE
        return self.fail.get("encode", 0)

    def _on_launch(self, config: int, function: int, pointers: int, extra: int) -> int:
        if not self._stack():
            return CUresult.CUDA_ERROR_INVALID_CONTEXT
        failing = self.fail.get("launch", 0)
        if failing:
            return failing
        shape = (ctypes.c_uint * 7).from_address(config)
        stream = ctypes.c_void_p.from_address(config + 32).value or 0
        addresses = (ctypes.c_void_p * 2).from_address(pointers)
        values = [ctypes.c_int64.from_address(a or 0).value for a in addresses]
        self.launched.append((*shape, stream, *values))
        return 0
