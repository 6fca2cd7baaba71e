"""What a plain function does on a device, as steps that can be done again.

What the host part of a function decides depends on the layouts of its arrays and on its
other arguments alone, as long as it looks at no element. So one run per layout records the
allocations and launches, and later calls do only these. Must not know the evaluator.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

from tessera_backend.device.driver import device
from tessera_backend.device.memory import DeviceMemory, fill_bytes
from tessera_backend.runtime.arrays import ArrayView
from tessera_backend.runtime.device_array import DeviceArray
from tessera_backend.runtime.dlpack import row_major
from tessera_backend.runtime.dtypes import TORCH_NAMES
from tessera_backend.runtime.launch import Prepared
from tessera_lang.record import dataclass, replace
from tessera_lang.types.dtype import DType

_TORCH_DTYPES = {ours: name.removeprefix("torch.") for name, ours in TORCH_NAMES.items()}


@dataclass(frozen=True, slots=True)
class Handle:
    """An array of a traced call: a view of base ``base``, ``offset`` bytes into it."""

    base: int
    offset: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def contiguous(self) -> bool:
        return self.view(0, 0, None).contiguous

    def view(self, pointer: int, ordinal: int, owner: object, read_only: bool = False) -> ArrayView:
        """The view at a base address."""
        return ArrayView(self.dtype, self.shape, self.strides, pointer + self.offset, ordinal,
                         read_only, owner)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Allocation:
    dtype: DType
    shape: tuple[int, ...]
    zeroed: bool


@dataclass(frozen=True, slots=True)
class Step:
    """A launch: (slot, base, offset) of its arrays, (slot, bits) of its numbers, and the
    pairs of bases and ranges that must lie apart."""

    prepared: Prepared
    arrays: tuple[tuple[int, int, int], ...]
    numbers: tuple[tuple[int, int], ...]
    apart: tuple[tuple[int, int, int, int], ...]

    def run(self, pointers: Sequence[int], stream: int) -> bool:
        """Launch; False where written memory is shared and the launch must be refused."""
        for p, q, low, high in self.apart:
            if low < pointers[q] - pointers[p] < high:
                return False
        prepared = self.prepared
        frame = prepared.pool.pop() if prepared.pool else prepared.frame()
        block, fire = frame
        for slot, base, offset in self.arrays:
            block[slot] = pointers[base] + offset
        for slot, bits in self.numbers:
            block[slot] = bits
        fire(stream)
        prepared.pool.append(frame)
        return True


Maker = Callable[[Allocation, int, int], tuple[Any, int]]
"""Memory for an array on a device and stream, and its address."""


class Tape:
    """The steps of one function for one layout. Bases are the arguments, then what is
    allocated, in order; ``result`` is made of handles."""

    def __init__(self) -> None:
        self.inputs = 0
        self.allocations: list[Allocation] = []
        self.steps: list[Step] = []
        self.result: object = None
        # Memory that no caller sees, by stream: work of one stream is done in order, and a
        # call takes its memory out of the pool while it launches.
        self._scratch: dict[int, list[list[tuple[Any, int]]]] = {}
        self._fresh: list[tuple[int, Allocation]] = []
        self._reused: list[tuple[int, Allocation]] = []

    def close(self, result: object) -> None:
        """The recording is complete: tell results from scratch memory."""
        self.result = result
        seen = {handle.base for handle in _handles(result)}
        for at, wanted in enumerate(self.allocations):
            base = self.inputs + at
            kept = base in seen or wanted.zeroed
            (self._fresh if kept else self._reused).append((base, wanted))
        # The one result that is all of its memory is allocated in its own shape.
        if isinstance(result, Handle) and result.offset == 0 and result.contiguous:
            self._fresh = [
                (base, replace(wanted, shape=result.shape))
                if base == result.base and _count(wanted.shape) == _count(result.shape)
                else (base, wanted)
                for base, wanted in self._fresh
            ]

    def play(
        self, pointers: list[int], owners: list[Any], ordinal: int, stream: int, make: Maker
    ) -> bool:
        """Do the steps again; the lists hold the arguments and get what is allocated. False
        where arguments share memory that is written."""
        for _ in self.allocations:
            pointers.append(0)
            owners.append(None)
        for base, wanted in self._fresh:
            owners[base], pointers[base] = make(wanted, ordinal, stream)
        pool = self._scratch.setdefault(stream, [])
        scratch = pool.pop() if pool else [make(a, ordinal, stream) for _, a in self._reused]
        for (base, _), (_, pointer) in zip(self._reused, scratch, strict=True):
            pointers[base] = pointer
        for step in self.steps:
            if not step.run(pointers, stream):
                return False
        pool.append(scratch)
        return True

    def report_faults(self) -> None:
        """Raise what an earlier launch reported."""
        for step in self.steps:
            if step.prepared.flags != step.prepared.quiet:
                step.prepared.code.report()


def _handles(result: object) -> list[Handle]:
    if isinstance(result, Handle):
        return [result]
    if isinstance(result, (tuple, list)):
        items = cast("tuple[object, ...]", result)
        return [handle for item in items for handle in _handles(item)]
    return []


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


# --- memory for results ----------------------------------------------------------------------


def make_torch(wanted: Allocation, ordinal: int, stream: int) -> tuple[Any, int]:
    """A torch tensor: torch gives it back in the order of its current stream."""
    make = _torch_maker(wanted.zeroed, wanted.dtype.name, ordinal)
    tensor = make(wanted.shape)
    return tensor, tensor.data_ptr()


@functools.lru_cache(maxsize=256)
def _torch_maker(zeroed: bool, dtype: str, ordinal: int) -> Callable[[tuple[int, ...]], Any]:
    torch: Any = sys.modules["torch"]
    return functools.partial(
        torch.zeros if zeroed else torch.empty,
        dtype=getattr(torch, _TORCH_DTYPES[dtype]), device=torch.device("cuda", ordinal),
    )  # fmt: skip


def make_own(wanted: Allocation, ordinal: int, stream: int) -> tuple[Any, int]:
    """Memory of ours."""
    target = device(ordinal)
    size = wanted.dtype.bytes
    for n in wanted.shape:
        size *= n
    memory = DeviceMemory(target, size, stream)
    if wanted.zeroed:
        fill_bytes(target, memory.pointer, 0, size, stream)
    return memory, memory.pointer


def to_array(handle: Handle, owner: Any) -> Any:
    """What the caller gets: a view of an argument or a result, in the caller's library."""
    if isinstance(owner, DeviceMemory):
        if handle.offset == 0 and handle.strides == row_major(handle.shape):
            return DeviceArray(owner, handle.dtype, handle.shape)
        raise ValueError("a strided part of an array of ours")
    if hasattr(owner, "as_strided"):
        if handle.offset == 0 and owner.shape == handle.shape and owner.stride() == handle.strides:
            return owner
        start = owner.storage_offset() + handle.offset // handle.dtype.bytes
        return owner.as_strided(handle.shape, handle.strides, start)
    return owner
