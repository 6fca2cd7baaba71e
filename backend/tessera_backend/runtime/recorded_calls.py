"""What a plain function does on a device, as steps that can be done again.

What the host part of a function decides depends on the layouts of its arrays and on its
other arguments alone, as long as it looks at no element. So one run per layout records the
allocations and launches, and later calls do only these. Must not know the evaluator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

from tessera_backend.device.driver import device
from tessera_backend.device.memory import DeviceMemory, zero_function
from tessera_backend.runtime.arrays import ArrayView
from tessera_backend.runtime.device_array import DeviceArray
from tessera_backend.runtime.dlpack import row_major
from tessera_backend.runtime.launch import Prepared
from tessera_backend.runtime.torch_memory import torch_empty
from tessera_lang.record import dataclass, replace
from tessera_lang.target.call_arena import ALIGNMENT, Need, arena_of
from tessera_lang.types.dtype import U8, DType


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


def part_of(array: Handle, slices: Sequence[slice]) -> Handle:
    """The part of an array that slices of its first axes take, as NumPy reads them."""
    offset, shape, strides = 0, list(array.shape), list(array.strides)
    for axis, one in enumerate(slices):
        start, stop, step = one.indices(array.shape[axis])
        shape[axis] = len(range(start, stop, step))
        strides[axis] *= step
        offset += start * array.strides[axis] if shape[axis] else 0
    moved = array.offset + offset * array.dtype.bytes
    return Handle(array.base, moved, array.dtype, tuple(shape), tuple(strides))


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory that the function asked for when it had done ``born`` steps; ``workspace``: zeros
    that each launch leaves as zeros."""

    dtype: DType
    shape: tuple[int, ...]
    zeroed: bool
    born: int = 0
    workspace: bool = False

    @property
    def bytes(self) -> int:
        return self.dtype.bytes * math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Step:
    """A launch: (slot, base, offset) of its arrays, (slot, bits) of its numbers, and the
    pairs of bases and ranges that must lie apart."""

    prepared: Prepared
    arrays: tuple[tuple[int, int, int], ...]
    numbers: tuple[tuple[int, int], ...]
    apart: tuple[tuple[int, int, int, int], ...]


Maker = Callable[[Allocation, int, int], tuple[Any, int]]
"""Memory for an array on a device and stream, and its address."""

Zero = Callable[[int, int, int], None]
"""``zero(address, bytes, stream)``."""

Space = Callable[[int, int], int]
"""``space(stream, bytes)``: the address of zeros that what uses them leaves as zeros."""


class _Rig:
    """The launches of one call in the making, for one thread at a time. ``known`` are the
    addresses that their blocks hold; most calls in a row have the same."""

    __slots__ = ("fires", "known", "uses")

    def __init__(self, roots: int) -> None:
        self.known = [0] * roots
        self.uses: list[list[tuple[Any, int, int]]] = [[] for _ in range(roots)]
        self.fires: list[Callable[[int], None]] = []

    def run(self, pointers: Sequence[int], stream: int) -> None:
        known = self.known
        if pointers != known:
            for root, pointer in enumerate(pointers):
                if pointer != known[root]:
                    known[root] = pointer
                    for block, slot, offset in self.uses[root]:
                        block[slot] = pointer + offset
        for fire in self.fires:
            fire(stream)


class Tape:
    """The steps of one function for one layout.

    While it records, bases are the arguments and what is allocated, in order. A call later
    has ``roots``: the arguments, the memory of results, one block for all that no caller
    sees, and the workspace of the stream. Nothing else is kept from one call to the next, so
    memory is used as its library means it: by stream, within a recording of a graph, given back
    when the call is over.
    """

    def __init__(self, zero: Zero, space: Space | None = None) -> None:
        self.inputs = 0
        self.allocations: list[Allocation] = []
        self.steps: list[Step] = []
        self.result: object = None
        # The root that the result is, where it is all of memory in its own shape.
        self.whole = 0
        self.zero = zero
        self.space = space
        # Bytes of the stream's workspace.
        self.shared = 0
        # Pairs of arguments, and the distances between which one would be written in the other.
        self.apart: list[tuple[int, int, int, int]] = []
        # One launch of each record of faults.
        self.watched: list[Prepared] = []
        self._rigs: list[_Rig] = []
        self._fresh: list[Allocation] = []
        self._block: Allocation | None = None
        self._places: list[tuple[int, int]] = []
        self._fills: list[tuple[int, int, int, int]] = []

    def close(self, result: object) -> None:
        """The recording is complete: tell results from other memory, and find its places."""
        handles = _handles(result)
        seen = {handle.base for handle in handles}
        self._places = [(base, 0) for base in range(self.inputs)]
        self._places += [(-1, 0)] * len(self.allocations)
        last = {base: at for at, step in enumerate(self.steps) for _, base, _ in step.arrays}
        needs: list[Need] = []
        shared: list[tuple[int, int]] = []
        for base, wanted in enumerate(self.allocations, self.inputs):
            if base not in seen and wanted.workspace and self.space is not None:
                shared.append((base, self.shared))
                self.shared += -(-wanted.bytes // ALIGNMENT) * ALIGNMENT
                continue
            if base not in seen:
                until = max(last.get(base, 0), wanted.born)
                needs.append(Need(base, wanted.bytes, wanted.zeroed, wanted.born, until))
                continue
            root = self.inputs + len(self._fresh)
            self._places[base] = root, 0
            if wanted.zeroed and wanted.bytes:
                self._fills.append((wanted.born, root, 0, wanted.bytes))
            self._fresh.append(_shaped(replace(wanted, zeroed=False), base, handles))
        arena = arena_of(needs)
        root = self.inputs + len(self._fresh)
        for base, offset in arena.offsets.items():
            self._places[base] = root, offset
        self._fills += [(step, root, offset, size) for step, offset, size in arena.fills]
        if arena.size:
            self._block = Allocation(U8, (arena.size,), False)
            root += 1
        for base, offset in shared:
            self._places[base] = root, offset
        self.result = _moved(result, self._places)
        if isinstance(self.result, Handle) and self.result.base >= self.inputs:
            made = self._fresh[self.result.base - self.inputs]
            whole = self.result.contiguous and self.result.shape == made.shape
            self.whole = self.result.base if whole else 0
        # What is allocated lies apart from all else, and parts of one argument do not move.
        self.apart = [
            pair for step in self.steps for pair in step.apart
            if pair[0] != pair[1] and max(pair[:2]) < self.inputs
        ]  # fmt: skip
        flags = {id(step.prepared.flags): step.prepared for step in self.steps}
        self.watched = list(flags.values())

    def play(
        self, pointers: list[int], owners: list[Any], ordinal: int, stream: int, make: Maker
    ) -> bool:
        """Do the steps again; the lists hold the arguments and get the results. False where
        arguments share memory that is written."""
        for p, q, low, high in self.apart:
            if low < pointers[q] - pointers[p] < high:
                return False
        for wanted in self._fresh:
            owner, pointer = make(wanted, ordinal, stream)
            owners.append(owner)
            pointers.append(pointer)
        # Lives until all is launched: work of this stream that gets the memory then comes later.
        block = None
        if self._block is not None:
            block, pointer = make(self._block, ordinal, stream)
            pointers.append(pointer)
        if self.space is not None and self.shared:
            pointers.append(self.space(stream, self.shared))
        try:
            rig = self._rigs.pop()
        except IndexError:
            rig = self._rig()
        rig.run(pointers, stream)
        self._rigs.append(rig)
        del block
        return True

    @property
    def made(self) -> tuple[Allocation, ...]:
        """What each call allocates: the roots behind the arguments."""
        return (*self._fresh, *(() if self._block is None else (self._block,)))

    @property
    def roots(self) -> int:
        """The addresses that a call has."""
        return self.inputs + len(self.made) + (self.shared > 0)

    @property
    def sequence(self) -> list[Step | tuple[int, int, int]]:
        """Launches, and (root, offset, bytes) of what is filled with zeros, in order."""
        found: list[Step | tuple[int, int, int]] = []
        fills = sorted(self._fills)
        for at, step in enumerate(self.steps):
            while fills and fills[0][0] <= at:
                found.append(fills.pop(0)[1:])
            found.append(step)
        return [*found, *(fill[1:] for fill in fills)]

    def places_of(self, step: Step) -> list[tuple[int, int, int]]:
        """(slot, root, offset) of the arrays of a launch."""
        found: list[tuple[int, int, int]] = []
        for slot, base, offset in step.arrays:
            root, start = self._places[base]
            found.append((slot, root, start + offset))
        return found

    def frames(self) -> list[Any]:
        """A block with its numbers for each launch, and what fires it, one after the other."""
        found: list[Any] = []
        for step in self.steps:
            block, fire = step.prepared.frame()
            for slot, bits in step.numbers:
                block[slot] = bits
            found += [block, fire]
        return found

    def _rig(self) -> _Rig:
        rig = _Rig(self.roots)
        frames = iter(self.frames())
        for part in self.sequence:
            if isinstance(part, tuple):
                rig.fires.append(self._filling(rig, *part))
                continue
            block, fire = next(frames), next(frames)
            for slot, root, offset in self.places_of(part):
                rig.uses[root].append((block, slot, offset))
            rig.fires.append(fire)
        return rig

    def _filling(self, rig: _Rig, root: int, offset: int, size: int) -> Callable[[int], None]:
        zero, known = self.zero, rig.known

        def fill(stream: int) -> None:
            zero(known[root] + offset, size, stream)

        return fill

    def report_faults(self) -> None:
        """Raise what an earlier launch reported."""
        for prepared in self.watched:
            if prepared.flags != prepared.quiet:
                prepared.code.report()


def _shaped(wanted: Allocation, base: int, handles: Sequence[Handle]) -> Allocation:
    """In the shape of a result that is all of this memory, so that no view of it is needed."""
    size = math.prod(wanted.shape)
    for handle in handles:
        there = handle.base == base and handle.offset == 0 and handle.dtype == wanted.dtype
        if there and handle.contiguous and math.prod(handle.shape) == size:
            return replace(wanted, shape=handle.shape)
    return wanted


def _moved(result: object, places: Sequence[tuple[int, int]]) -> object:
    """A result whose handles count roots."""
    if isinstance(result, Handle):
        return replace(result, base=places[result.base][0])
    if isinstance(result, (tuple, list)):
        items = cast("tuple[object, ...]", result)
        return tuple(_moved(item, places) for item in items)
    if isinstance(result, dict):
        pairs = cast("dict[object, object]", result).items()
        return {key: _moved(item, places) for key, item in pairs}
    return result


def _handles(result: object) -> list[Handle]:
    if isinstance(result, Handle):
        return [result]
    if isinstance(result, (tuple, list)):
        items = cast("tuple[object, ...]", result)
        return [handle for item in items for handle in _handles(item)]
    if isinstance(result, dict):
        return _handles(tuple(cast("dict[object, object]", result).values()))
    return []


# --- memory for results ----------------------------------------------------------------------


def make_torch(wanted: Allocation, ordinal: int, stream: int) -> tuple[Any, int]:
    """A torch tensor: torch gives it back in the order of its current stream."""
    tensor = torch_empty(wanted.dtype.name, ordinal, wanted.zeroed)(wanted.shape)
    return tensor, tensor.data_ptr()


def make_own(wanted: Allocation, ordinal: int, stream: int) -> tuple[Any, int]:
    """Memory of ours."""
    target, size = device(ordinal), wanted.bytes
    memory = DeviceMemory(target, size, stream)
    if wanted.zeroed:
        zero_function(target)(memory.pointer, size, stream)
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
