"""Recorded calls of plain functions as machine code runs them: see ``native_calls.py``.

Owns what a recording keeps of its arrays: which memory each lies in. Arrays that the caller does
not get are parts of one block of memory, made once. Must not know the evaluator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.caller_errors import show_to_caller
from tessera_backend.runtime.launch import Prepared
from tessera_backend.runtime.native_calls import MOST_BYTES, Plan, Step, aligned_memory
from tessera_backend.runtime.native_launches import launch_steps
from tessera_backend.runtime.numpy_address import address_function
from tessera_backend.runtime.results import small_maker
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.record import dataclass, field

_LINE = 64
address_of = address_function()


@dataclass(slots=True)
class Seen:
    """An array of a recorded call. ``root``: the number of the array in whose memory it lies, -1
    where it is a copy that machine code does not make; ``kind``: how a root was made; ``first``:
    what is in all elements of one that was filled."""

    shape: tuple[int, ...]
    dtype: Any
    contiguous: bool
    root: int
    offset: int = 0
    kind: str = ""
    first: bytes = b""

    @property
    def each(self) -> int:
        """A word of equal elements."""
        return int.from_bytes(self.first * (8 // len(self.first)), "little", signed=True)

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(slots=True)
class Launched:
    """A launch of a recorded call: (slot, array) and (slot, bits); ``pairs`` of arrays whose bytes
    may not meet: numbers, and the first and last byte of each from its address."""

    prepared: Prepared
    slots: list[tuple[int, int]]
    bits: list[tuple[int, int]]
    pairs: list[tuple[int, int, int, int, int, int]]


@dataclass(slots=True)
class Recording:
    """What a call did: its arrays by number, arguments first, and the roots that it made and its
    launches, in order."""

    arrays: list[Seen] = field(default_factory=list[Seen])
    inputs: int = 0
    events: list[int | Launched] = field(default_factory=list[Any])

    def see(
        self, array: Any, kind: str = "", base: Any = None, number: int = -1, first: bytes = b""
    ) -> None:
        """The next array; ``base`` and its number: what it may be a view of."""
        here = len(self.arrays)
        seen = Seen(array.shape, array.dtype, array.flags.c_contiguous, here, 0, kind, first)
        if base is not None:
            seen.root = -1
            if array.size and np.may_share_memory(array, base):
                seen.root = self.arrays[number].root
                seen.offset = self.arrays[number].offset + address_of(array) - address_of(base)
        elif kind in ("", "other"):
            seen.root = here if kind == "" else -1
        else:
            self.events.append(here)
        self.arrays.append(seen)


def tape_plan(
    recording: Recording, result: int, raw: Sequence[Any], names: Sequence[str]
) -> Plan | None:
    """The plan for calls with arguments like these, which give the array ``result``; None where
    machine code cannot do what they do."""
    arrays = recording.arrays
    places = [i for i, value in enumerate(raw) if value.__class__ is np.ndarray]
    given = arrays[result]
    root = given.root
    known = all(seen.root >= 0 for seen in arrays) and len(places) == recording.inputs
    if not known or root < recording.inputs or given.offset or not given.contiguous:
        return None
    whole = arrays[root]
    if whole.kind == "workspace":
        return None  # it has to be looked at like one inside
    if (
        math.prod(whole.shape) * whole.dtype.itemsize
        != math.prod(given.shape) * given.dtype.itemsize
    ):
        return None
    return _Planner(recording, result, raw, names, places).plan()


class _Planner:
    def __init__(
        self, recording: Recording, result: int, raw: Sequence[Any], names: Sequence[str],
        places: Sequence[int],
    ) -> None:  # fmt: skip
        self._recording, self._result = recording, recording.arrays[result]
        self._raw, self._names = raw, names
        self._places = places  # the argument that each input is
        self._made = len(raw)  # the place of the result
        self._addresses: dict[int, int] = {}
        self._clean = (0, 0)

    def plan(self) -> Plan | None:
        memory = self._lay_out()
        if memory is None:
            return None
        steps: list[Step] = []
        for event in self._recording.events:
            found = self._root(event) if isinstance(event, int) else self._launch(event)
            if found is None:
                return None
            steps += found
            if found and self._clean[1] and not isinstance(event, int):
                address, words = self._clean
                steps.append(Step(address=address, words=words, complain=_complain))
        return Plan(self._raw, self._names, {}, self._pairs(), steps, self._made + 1, (memory,))

    def _lay_out(self) -> Any:
        """Memory for the arrays that stay inside, those that must be left clean first."""
        arrays = self._recording.arrays
        inner = [e for e in self._recording.events if isinstance(e, int) and e != self._result.root]
        inner.sort(key=lambda number: arrays[number].kind != "workspace")
        offsets: list[int] = []
        size = clean = 0
        for number in inner:
            seen = arrays[number]
            offsets.append(size)
            size += -(-seen.bytes // _LINE) * _LINE
            clean = size if seen.kind == "workspace" else clean
        if size > MOST_BYTES:
            return None
        memory, base = aligned_memory(size)
        self._addresses = {n: base + at for n, at in zip(inner, offsets, strict=True)}
        self._clean = (base, clean // 8)
        return memory

    def _root(self, number: int) -> list[Step] | None:
        seen = self._recording.arrays[number]
        if number == self._result.root:
            make = small_maker(self._result.shape, self._result.dtype, fill=seen.first)
            return [Step(make=make, place=self._made)]
        if seen.kind == "workspace" or not seen.first:
            return []
        return [Step(address=self._addresses[number], words=-(-seen.bytes // 8), each=seen.each)]

    def _launch(self, launched: Launched) -> list[Step] | None:
        fills: list[tuple[int, int, int]] = []
        constants = list(launched.bits)
        for at, number in launched.slots:
            seen = self._recording.arrays[number]
            if seen.root < len(self._places):
                fills.append((at, self._places[seen.root], seen.offset))
            elif seen.root == self._result.root:
                fills.append((at, self._made, seen.offset))
            else:
                constants.append((at, self._addresses[seen.root] + seen.offset))
        return launch_steps(launched.prepared, fills, [], constants)

    def _pairs(self) -> list[tuple[int, int, int, int]]:
        """Those of two arguments: others are apart by the way they were made, or were looked at
        when the call was recorded."""
        found: list[tuple[int, int, int, int]] = []
        for event in self._recording.events:
            for i, j, i_low, i_high, j_low, j_high in [] if isinstance(event, int) else event.pairs:
                a, b = self._recording.arrays[i], self._recording.arrays[j]
                if a.root != b.root and max(a.root, b.root) < len(self._places):
                    shift = a.offset - b.offset
                    found.append((
                        self._places[a.root], self._places[b.root], i_low - j_high + shift,
                        i_high - j_low + shift,
                    ))  # fmt: skip
        return found


def _complain() -> None:
    try:
        raise unclean_workspace()
    except TesseraError as failure:
        show_to_caller(failure)
        raise


def unclean_workspace() -> TesseraError:
    """What is told where a kernel did not leave zeros."""
    return error(diagnostic(
        "T0854", "a kernel left other bits than zeros in an array of `op.workspace`",
        helps=("take `op.zeros`, which is filled anew",),
    ))  # fmt: skip
