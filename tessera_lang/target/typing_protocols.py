"""Types of what Python hosts give and get, for type checkers: arrays, numbers, streams.

A protocol each, so that no array library is imported or preferred. What ``tesserac stubs`` writes
refers to these names. Must not know what a runtime does with a value.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

Target: TypeAlias = Literal["auto", "cpu", "cuda"]


class SupportsDLPack(Protocol):
    """An array that is shared through DLPack: torch, JAX, CuPy, NumPy."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


class SupportsCudaArrayInterface(Protocol):
    """An array on a CUDA device: CuPy, Numba."""

    @property
    def __cuda_array_interface__(self) -> Any: ...


class SupportsArrayInterface(Protocol):
    """An array in host memory: NumPy."""

    @property
    def __array_interface__(self) -> Any: ...


Array: TypeAlias = SupportsDLPack | SupportsCudaArrayInterface | SupportsArrayInterface
"""What a launch takes for an array."""


class NumPyNumber(Protocol):
    """A scalar of NumPy, whose type is kept."""

    def item(self) -> Any: ...

    def is_integer(self) -> bool: ...


Real: TypeAlias = float | NumPyNumber
"""What a launch takes for a number of a float dtype."""

Integer: TypeAlias = int | NumPyNumber
"""What a launch takes for a number of an integer dtype."""


class DTypeObject(Protocol):
    """A dtype of NumPy or torch."""

    @property
    def itemsize(self) -> int: ...


DType: TypeAlias = str | type[Any] | DTypeObject
"""An element type: ``"bf16"``, ``numpy.float32``, ``torch.float16``."""


class CudaStream(Protocol):
    """A stream by the protocol of CUDA's own Python packages."""

    def __cuda_stream__(self) -> tuple[int, int]: ...


class TorchStream(Protocol):
    """A stream of torch."""

    @property
    def cuda_stream(self) -> int: ...


class CupyStream(Protocol):
    """A stream of CuPy."""

    @property
    def ptr(self) -> int: ...


Stream: TypeAlias = int | CudaStream | TorchStream | CupyStream
"""A stream of a CUDA device, or its handle."""

Groups: TypeAlias = int | tuple[int, ...]
"""How many groups a launch has: one number, or one for each of up to three axes."""


class DeviceArray(Protocol):
    """An array that ``to_device`` made, in the memory of a CUDA device."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...

    @property
    def device(self) -> int:
        """The ordinal of the device."""
        ...

    @property
    def nbytes(self) -> int: ...

    def __len__(self) -> int: ...

    def numpy(self) -> Any:
        """A copy on the host, after the kernels before it. Raises what they reported."""
        ...

    def copy_from(self, value: object) -> None:
        """Overwrite the elements with those of an array of this shape and dtype."""
        ...

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...
