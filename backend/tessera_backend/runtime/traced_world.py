"""The world in which a call of a plain function with device arrays is recorded.

The evaluator runs the call in it: arrays are handles, and launches happen and are kept. Must not
know which functions are called so, nor when a recording is used again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from tessera_backend.device.driver import device
from tessera_backend.device.memory import zero_function
from tessera_backend.device.workspace import workspace
from tessera_backend.runtime.arrays import ArrayView
from tessera_backend.runtime.dlpack import row_major
from tessera_backend.runtime.kernel import Launcher
from tessera_backend.runtime.recorded_calls import Allocation, Handle, Step, Tape, part_of
from tessera_backend.runtime.reshaping import reshaped
from tessera_lang.driver.modules import standard_library
from tessera_lang.target.arange_count import arange_count
from tessera_lang.target.host_world import (
    ChecksNan,
    CompilingWorld,
    Filling,
    Index,
    KernelReference,
    MeasuringWorld,
    WorldFault,
)
from tessera_lang.types.dtype import F32, DType


class _OnDevice:
    __slots__ = ("_view",)

    def __init__(self, view: ArrayView) -> None:
        self._view = view

    def __tessera_view__(self) -> ArrayView:
        return self._view


class TracedWorld:
    """The world of one recorded call: arrays are handles, launches happen and are kept."""

    floats: DType = F32

    def __init__(
        self, kernel: Callable[[KernelReference], Launcher], ordinal: int, stream: int, make: Any
    ) -> None:
        self._kernel = kernel
        self._ordinal = ordinal
        self._stream = stream
        self._make = make
        self.pointers: list[int] = []
        self.owners: list[Any] = []
        self.read_only: list[bool] = []
        self._parts: dict[int, Handle] = {}
        target = device(ordinal)
        self.tape = Tape(zero_function(target), functools.partial(workspace, target))

    def input(self, view: ArrayView) -> Any:
        """A handle for an argument."""
        self.pointers.append(view.pointer)
        self.owners.append(view.owner)
        self.read_only.append(view.read_only)
        self.tape.inputs = len(self.pointers)
        return Handle(len(self.pointers) - 1, 0, view.dtype, view.shape, view.strides)

    # --- what the evaluator asks (tessera_lang.target.host_world.World) -------------------------

    def is_array(self, value: object) -> bool:
        return isinstance(value, Handle)

    def dtype(self, array: Any) -> DType:
        return array.dtype

    def shape(self, array: Any) -> tuple[object, ...]:
        return array.shape

    def device(self, array: object) -> str:
        return "cuda"

    def fill(
        self, kind: Filling, shape: tuple[int, ...], dtype: DType, value: object = None
    ) -> object:
        if any(n < 0 for n in shape):
            raise WorldFault(f"an array cannot have the shape {shape}", code="T0846")
        zero = kind == "zeros" or (kind == "full" and value == 0 and not str(value).startswith("-"))
        if kind not in ("empty", "zeros", "workspace") and not zero:
            made = self.fill("empty", shape, dtype)
            flat = self.view("reshape", made, (-1,))
            self._library("elementwise", "fill", 1 if kind == "ones" else value, flat)
            return made
        shared = kind == "workspace"
        wanted = Allocation(dtype, shape, zero or shared, len(self.tape.steps), shared)
        owner, pointer = self._make(wanted, self._ordinal, self._stream)
        self.owners.append(owner)
        self.pointers.append(pointer)
        self.read_only.append(False)
        self.tape.allocations.append(wanted)
        return Handle(len(self.pointers) - 1, 0, dtype, shape, row_major(shape))

    def of_numbers(self, array: object, numbers: object = None) -> object:
        return array

    def beside(self, array: object, dtype: DType) -> object:
        return array

    def is_of_numbers(self, array: object) -> bool:
        return False

    def arange(self, start: float, stop: float, step: float, dtype: DType) -> object:
        made = self.fill("empty", (arange_count(start, stop, step, dtype),), dtype)
        if dtype.is_float:
            self._library("layout", "count_in_floats", float(start), float(step), made)
        else:
            self._library("layout", "count", int(start), int(step), made)
        return made

    def view(self, kind: str, array: Any, shape: tuple[int, ...] = ()) -> object:
        from tessera_lang.record import replace

        match kind:
            case "T" if len(array.shape) == 2:
                return replace(array, shape=array.shape[::-1], strides=array.strides[::-1])
            case "mT" if len(array.shape) >= 2:
                a, b = array.shape, array.strides
                return replace(array, shape=(*a[:-2], a[-1], a[-2]),
                               strides=(*b[:-2], b[-1], b[-2]))  # fmt: skip
            case "contiguous" if array.contiguous:
                return array
            case "contiguous" if len(array.shape) <= _PACKED_RANKS:
                packed = self.fill("empty", array.shape, array.dtype)
                self._library("layout", f"pack{len(array.shape)}", array, packed)
                return packed
            case "reshape":
                found = _resolved(shape, array)
                strides = reshaped(array.shape, array.strides, found)
                if strides is not None:
                    return replace(array, shape=found, strides=strides)
                return self.view("reshape", self.view("contiguous", array), found)
            case _:
                raise _not_here(f"`{kind}` of an array that is not contiguous",
                                "pass x.contiguous()")  # fmt: skip

    def read(self, array: Any, items: tuple[Index, ...]) -> object:
        """A part of an array, as a view of it."""
        slices = [i for i in items if isinstance(i, slice)]
        if len(slices) < len(items):
            raise _not_here("reading an element")
        if len(items) > len(array.shape):
            raise WorldFault(f"an array with {len(array.shape)} axes has no {len(items)}",
                             code="T0846")  # fmt: skip
        found = part_of(array, slices)
        self._parts[id(found)] = found
        return found

    def named(self, array: object) -> object:
        """A part that gets a name is a value: later writes of its array do not change it."""
        part = self._parts.get(id(array))
        if part is not array or part is None:
            return array
        if len(part.shape) > _PACKED_RANKS:
            raise _not_here(f"a name for a part with {len(part.shape)} axes")
        copy = self.fill("empty", part.shape, part.dtype)
        self._library("layout", f"pack{len(part.shape)}", part, copy)
        return copy

    def value_of(self, array: object) -> object:
        return None

    def release(self, array: object) -> None:
        pass

    def viewed(self, array: object, of: object) -> object:
        return array

    def shares(self, a: Any, b: Any) -> bool:
        return a.base == b.base

    def _library(self, module: str, kernel: str, *arguments: object) -> None:
        """Launch a kernel of the standard library."""
        root = standard_library()
        if root is None:
            raise WorldFault("the standard library is not installed", code="T0903",
                             helps=("install tessera-lang again",))  # fmt: skip
        reference = KernelReference(str(Path(root) / f"{module}.tessera"), kernel)
        self.launch(reference, arguments, {}, None)

    def launch(
        self, kernel: KernelReference, arguments: tuple[object, ...],
        constants: Mapping[str, object], groups: tuple[int, ...] | None,
    ) -> object:  # fmt: skip
        launcher = self._kernel(kernel)
        if groups is not None:
            launcher = launcher[groups]
        given = [
            _OnDevice(a.view(self.pointers[a.base], self._ordinal, None, self.read_only[a.base]))
            if isinstance(a, Handle) else a.name if isinstance(a, DType) else a
            for a in arguments
        ]  # fmt: skip
        named = {k: v.name if isinstance(v, DType) else v for k, v in constants.items()}
        values, prepared = launcher.on(self._stream).prepare(given, named, self._ordinal)
        results = [cast("Handle", self.fill("empty", shape, dtype))
                   for dtype, shape in prepared.results]  # fmt: skip
        views = [r.view(self.pointers[r.base], self._ordinal, None) for r in results]
        prepared.run([*values, *views], self._stream)
        self.tape.steps.append(_step(prepared, (*arguments, *results), values))
        return results[0] if len(results) == 1 else tuple(results) or None

    def print(self, text: str) -> None:
        raise _not_here("`print`")

    def finish(self) -> None:
        """Calls on a device return before the work is done."""

    def __getattr__(self, name: str) -> Any:
        # Before Python 3.12 it is asked for the methods of protocols that it does not have.
        if name.startswith("_") or name in _OF_OTHER_WORLDS:
            raise AttributeError(name)
        raise _not_here(f"`{name}` of arrays")


_OF_OTHER_WORLDS = frozenset(
    name
    for protocol in (ChecksNan, CompilingWorld, MeasuringWorld)
    for name in (*vars(protocol), *protocol.__annotations__)
    if not name.startswith("_")
)
"""What only some worlds have."""
_PACKED_RANKS = 4  # std.layout has a kernel for each of these


def _not_here(what: str, *helps: str) -> WorldFault:
    return WorldFault(f"{what} is not possible in a function that Python calls with device arrays",
                      code="T0809", helps=helps)  # fmt: skip


def _resolved(shape: tuple[int, ...], array: Any) -> tuple[int, ...]:
    size = known = 1
    for n in array.shape:
        size *= n
    for n in shape:
        known *= n if n >= 0 else 1
    open_axes = [i for i, n in enumerate(shape) if n < 0]
    if len(open_axes) == 1 and known and size % known == 0:
        at = open_axes[0]
        shape = (*shape[:at], size // known, *shape[at + 1 :])
        known = size
    if len(open_axes) > 1 or known != size:
        raise WorldFault(f"{size} elements do not make an array of shape {shape}", code="T0834")
    return shape


def _step(prepared: Any, arguments: tuple[Any, ...], values: list[Any]) -> Any:
    apart: list[tuple[int, int, int, int]] = []
    for i, j, i_low, i_high, j_low, j_high in prepared.pairs:
        p, q = arguments[i], arguments[j]
        shift = p.offset - q.offset
        apart.append((p.base, q.base, i_low - j_high + shift, i_high - j_low + shift))
    return Step(
        prepared,
        tuple((at, arguments[i].base, arguments[i].offset) for i, at in prepared.slots),
        tuple((at, encode(values[i])) for at, i, encode in prepared.encoders),
        tuple(apart),
    )
