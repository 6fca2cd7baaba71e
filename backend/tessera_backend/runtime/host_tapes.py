"""Calls of plain functions over NumPy arrays: what the evaluator did once is done again.

The first call of a layout runs as any other, and what it makes, views and launches is noted. Where
it looked at no element, later calls of the layout repeat these steps without the evaluator. Must
not know syntax, nor how a kernel is compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from tessera_backend.runtime.arrays import describe
from tessera_backend.runtime.dtypes import Array
from tessera_backend.runtime.function_fast_path import SharedMemory
from tessera_backend.runtime.host_environment import HostWorld
from tessera_backend.runtime.launch import Prepared
from tessera_backend.runtime.native_calls import Plan
from tessera_backend.runtime.native_tapes import Launched, Recording, tape_plan, unclean_workspace
from tessera_backend.runtime.numpy_address import address_function
from tessera_backend.runtime.results import aligned_empty
from tessera_backend.runtime.spare_memory import FEWEST, spare_memory
from tessera_lang.record import dataclass
from tessera_lang.target.host_world import Filling, Index, KernelReference, Reduction, WorldFault
from tessera_lang.types.dtype import DType

Step = Callable[[list[Any], list[int]], None]
"""Works on the arrays of a call and their addresses by number: arguments first, then what was
made."""


_OWN = ("zeros", "ones", "empty", "full", "workspace", "launch")
"""How an array is made that has memory of its own; see ``RecordingWorld.fill``."""
Apart = tuple[int, int, int, int, int, int]
"""Two arrays, and the bytes from the address of each that may have nothing in common."""
address_of = address_function()


def _check_apart(pair: Apart, pointers: list[int]) -> None:
    i, j, i_low, i_high, j_low, j_high = pair
    p, q = pointers[i], pointers[j]
    if p + i_low < q + j_high and q + j_low < p + i_high:
        raise SharedMemory


def _append_empty(
    shape: tuple[int, ...], dtype: Any, arrays: list[Any], pointers: list[int]
) -> None:
    made = spare_memory.empty(shape, dtype)
    arrays.append(made)
    pointers.append(address_of(made))


@dataclass(frozen=True, slots=True)
class Place:
    """An array of a call, by its number."""

    number: int


@dataclass(frozen=True, slots=True)
class NumberPlace:
    """The number in an array of a call, by the array's number."""

    number: int


class HostTape:
    """The steps of a call, and what it gives."""

    def __init__(
        self, steps: list[Step], result: Any, workspaces: list[int], apart: list[Apart],
        recording: Recording,
    ) -> None:  # fmt: skip
        self.hits = 0
        self._recording = recording
        self._steps = steps
        self._apart = apart
        self._result = result
        self._workspaces = workspaces
        given = _numbers_in(result)
        kept = {recording.arrays[number].root for number in given}
        self._inner = [
            number
            for number, seen in enumerate(recording.arrays)
            if seen.kind in _OWN and seen.root not in kept and seen.bytes >= FEWEST
        ]

    def plan(self, raw: Sequence[Any], names: Sequence[str]) -> Plan | None:
        """For machine code, calls with arguments like these, the last of them by ``names``."""
        if self._result.__class__ is not Place:
            return None
        return tape_plan(self._recording, self._result.number, raw, names)

    def play(self, arguments: Sequence[Any]) -> Any:
        """The result for other arrays of the same layout. Raises TesseraError, and SharedMemory
        before anything is launched."""
        arrays = [a for a in arguments if a.__class__ is np.ndarray]
        pointers = [address_of(a) for a in arrays]
        for pair in self._apart:
            _check_apart(pair, pointers)
        for step in self._steps:
            step(arrays, pointers)
            for number in self._workspaces:
                if number < len(arrays) and arrays[number].any():
                    raise unclean_workspace()
        found = _found(self._result, arrays)
        if self._inner:
            spare_memory.give([arrays[number] for number in self._inner])
        return found


def _numbers_in(result: Any) -> list[int]:
    if isinstance(result, tuple):
        items = cast("tuple[Any, ...]", result)
        return [number for item in items for number in _numbers_in(item)]
    if isinstance(result, dict):
        return _numbers_in(tuple(cast("dict[Any, Any]", result).values()))
    return [result.number] if result.__class__ is Place else []


def _found(result: Any, arrays: list[Any]) -> Any:
    if result.__class__ is Place:
        return arrays[result.number]
    if result.__class__ is NumberPlace:
        return arrays[result.number].item()
    if isinstance(result, tuple):
        return tuple(_found(item, arrays) for item in cast("tuple[Any, ...]", result))
    if isinstance(result, dict):
        pairs = cast("dict[Any, Any]", result).items()
        return {key: _found(item, arrays) for key, item in pairs}
    return result


class RecordingWorld(HostWorld):
    """The world of the host, that notes what a call does. ``elements``: the call looked at an
    element, or did something else that a later call may do otherwise."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.elements = False
        self._steps: list[Step] = []
        self._seen: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._workspace_numbers: list[int] = []
        self._apart: list[Apart] = []
        self._again: dict[int, Any] = {}
        self.hands_on = False
        """Whether numbers of the call are results and nothing else, as those of a gradient that
        Python calls: they are read behind it, and a later call may repeat it."""
        self._handed_on: set[int] = set()
        self._inputs = 0
        self._recording = Recording()

    def tape(self, result: object) -> HostTape | None:
        """What was noted; None where a later call may differ."""
        placed = self._placed(result)
        if self.elements:
            return None
        return HostTape(self._steps, placed, self._workspace_numbers, self._apart, self._recording)

    def _placed(self, result: object) -> Any:
        if isinstance(result, (tuple, list)):
            return tuple(self._placed(item) for item in cast("tuple[object, ...]", result))
        if isinstance(result, dict):
            pairs = cast("dict[object, object]", result).items()
            return {key: self._placed(item) for key, item in pairs}
        if not self.is_array(result):
            return result
        place = self._at(result)
        return NumberPlace(place.number) if id(result) in self._handed_on else place

    def _at(self, array: object) -> Place:
        number = self._numbers.get(id(array))
        if number is None:
            self.elements = True  # an array that came from elsewhere
            return Place(0)
        return Place(number)

    def _new(self, array: object, kind: str = "", base: Any = None, first: bytes = b"") -> Any:
        """An array of the call gets the next number; see ``Recording.see``."""
        number = -1 if base is None else self._at(base).number
        self._recording.see(array, kind, base, number, first)
        self._numbers[id(array)] = len(self._seen)
        self._seen.append(array)  # so that its id stays its own
        return array

    def _made(
        self, array: object, make: Callable[[list[Any]], Any], kind: str = "other",
        base: Any = None, first: bytes = b"",
    ) -> object:  # fmt: skip
        """An array that a step makes."""

        def step(arrays: list[Any], pointers: list[int]) -> None:
            made = make(arrays)
            arrays.append(made)
            pointers.append(address_of(made))

        self._steps.append(step)
        return self._new(array, kind, base, first)

    def handed_back(self, result: object) -> object:
        if id(result) in self._handed_on:
            return cast("Array", result).item()
        return super().handed_back(self._again.get(id(result), result))

    def forget(self) -> None:
        """The arrays of the call: what was noted holds on to this world."""
        self._seen.clear()
        self._numbers.clear()
        self._again.clear()
        self._handed_on.clear()

    # --- what is noted --------------------------------------------------------------------

    def adopt(self, value: object) -> object:
        own = super().adopt(value)
        if self.is_array(own):
            if own is not value:
                self.elements = True
            if id(own) in self._numbers:
                # One array given twice: a later call of the layout may give two.
                first, own = own, cast("Array", own).view()
                self._again[id(own)] = first
            self._new(own)
            self._inputs = self._recording.inputs = len(self._seen)
        return own

    def fill(
        self, kind: Filling, shape: tuple[int, ...], dtype: DType, value: object = None
    ) -> object:
        array = cast("Array", super().fill(kind, shape, dtype, value))
        if self.is_array(value):
            self.elements = True
        numpy, size = array.dtype, array.shape
        if kind == "empty":  # later calls write it, as the one that was noted did
            self._steps.append(functools.partial(_append_empty, size, numpy))
            return self._new(array, kind)
        first = array.reshape(-1)[0].copy() if kind in ("full", "ones") and array.size else 0

        def make(arrays: list[Any]) -> Any:
            made = spare_memory.empty(size, numpy)
            made[...] = first
            return made

        if kind == "workspace":
            self._workspace_numbers.append(len(self._seen))
        return self._made(array, make, kind, None, np.asarray(first, numpy).tobytes())

    def arange(self, start: float, stop: float, step: float, dtype: DType) -> object:
        array = cast("Array", super().arange(start, stop, step, dtype))
        values = array.copy()

        def make(arrays: list[Any]) -> Any:
            made = aligned_empty(values.shape, values.dtype)
            made[...] = values
            return made

        return self._made(array, make)

    def beside(self, array: object, dtype: DType) -> object:
        found = super().beside(array, dtype)
        if found is not array:
            self.elements = True
        return found

    def view(self, kind: Any, array: object, shape: tuple[int, ...] = ()) -> object:
        base, at = super(), self._at(array).number
        found = base.view(kind, array, shape)
        if found is array:
            return found
        plain = super().view
        return self._made(found, lambda arrays: plain(kind, arrays[at], shape), "view", array)

    def convert(self, array: object, dtype: DType) -> object:
        plain, at = super().convert, self._at(array).number
        return self._made(plain(array, dtype), lambda arrays: plain(arrays[at], dtype))

    def unary(self, operator: str, a: object) -> object:
        plain, at = super().unary, self._at(a).number
        return self._made(plain(operator, a), lambda arrays: plain(operator, arrays[at]))

    def binary(self, operator: str, a: object, b: object) -> object:
        if self.is_of_numbers(a) or self.is_of_numbers(b):
            self.elements = True
        plain, x, y = super().binary, self._argument(a), self._argument(b)
        return self._made(
            plain(operator, a, b),
            lambda arrays: plain(operator, _found(x, arrays), _found(y, arrays)),
        )

    def _argument(self, value: object) -> Any:
        return self._at(value) if self.is_array(value) else value

    def launch(
        self, kernel: KernelReference, arguments: tuple[object, ...],
        constants: Mapping[str, object], groups: tuple[int, ...] | None,
    ) -> object:  # fmt: skip
        launcher, interface = self._kernel(kernel)
        self._changes(interface, () if kernel.pure else arguments)
        if groups is not None:
            launcher = launcher[groups]
        given: list[Any] = [a.name if isinstance(a, DType) else a for a in arguments]
        named = {k: v.name if isinstance(v, DType) else v for k, v in constants.items()}
        values, prepared = launcher.prepare(given, named)
        results: list[Any] = []
        for dtype, shape in prepared.results:
            made = self._empty(shape, dtype)
            size, numpy = made.shape, made.dtype
            results.append(made)
            self._steps.append(functools.partial(_append_empty, size, numpy))
            self._new(made, "launch")
        prepared.run([*values, *(describe(r, "result") for r in results)], 0)
        self._check_workspaces(kernel)
        self._steps.append(self._step(prepared, [*arguments, *results], values))
        return results[0] if len(results) == 1 else tuple(results) or None

    def _step(self, prepared: Prepared, arguments: list[object], values: list[Any]) -> Step:
        """The launch with other addresses: all else is decided by the layout."""
        places = {i: self._at(a).number for i, a in enumerate(arguments) if self.is_array(a)}
        slots = [(at, places[i]) for i, at in prepared.slots]
        numbers = [(at, encode(values[i])) for at, i, encode in prepared.encoders]
        apart = [(places[i], places[j], a, b, c, d) for i, j, a, b, c, d in prepared.pairs]
        self._apart += self._of_inputs(apart)
        self._recording.events.append(Launched(prepared, slots, numbers, apart))
        pool, code, frame_of = prepared.pool, prepared.code, prepared.frame

        def step(arrays: list[Any], pointers: list[int]) -> None:
            if prepared.flags != prepared.quiet:
                code.report()
            try:
                frame = pool.pop()
            except IndexError:
                frame = frame_of()
            block = frame[0]
            for at, number in slots:
                block[at] = pointers[number]
            for at, bits in numbers:
                block[at] = bits
            frame[1](0)
            pool.append(frame)

        return step

    def _of_inputs(self, apart: list[Apart]) -> list[Apart]:
        """What has to be looked at in each call, before anything is launched: where views of two
        arguments lie. Two views of one array lie as they did; what a call makes lies alone."""
        found: list[Apart] = []
        for i, j, i_low, i_high, j_low, j_high in apart:
            a, b = self._recording.arrays[i], self._recording.arrays[j]
            if a.root != b.root and 0 <= min(a.root, b.root) <= max(a.root, b.root) < self._inputs:
                found.append((a.root, b.root, i_low + a.offset, i_high + a.offset,
                              j_low + b.offset, j_high + b.offset))  # fmt: skip
        return found

    # --- what may differ from call to call ------------------------------------------------

    def random(
        self, shape: tuple[int, ...], dtype: DType | None, seed: int, low: float, high: float
    ) -> object:
        self.elements = True
        return self._new(super().random(shape, dtype, seed, low, high))

    def load(self, path: str, key: str | None, dtype: DType | None) -> object:
        self.elements = True
        return self._new(super().load(path, key, dtype))

    def save(self, path: str, arrays: dict[str, object]) -> None:
        self.elements = True
        super().save(path, arrays)

    def read(self, array: object, items: tuple[Index, ...]) -> object:
        if self.hands_on and not items and id(array) in self._numbers:
            self._handed_on.add(id(array))
            raise WorldFault("the number is read behind the call", code="T0809")
        self.elements = True
        found = super().read(array, items)
        return self._new(found) if self.is_array(found) else found

    def named(self, array: object) -> object:
        found = super().named(array)
        return found if found is array else self._new(found)

    def write(self, array: object, items: tuple[Index, ...], value: object) -> None:
        self.elements = True
        super().write(array, items, value)

    def reduce(self, kind: Reduction, array: object, axis: int | None) -> object:
        self.elements = True
        found = super().reduce(kind, array, axis)
        return self._new(found) if self.is_array(found) else found

    def truth(self, array: object) -> bool:
        self.elements = True
        return super().truth(array)

    def text(self, array: object, format: str = "") -> str:
        self.elements = True
        return super().text(array, format)

    def print(self, text: str) -> None:
        self.elements = True
        super().print(text)
