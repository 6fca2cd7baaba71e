"""The launches of a call, each with its own code and grid, one behind the other.

Owns their common block, and the memory that one leaves for another. The order on the stream is all
that orders them. Must not know what they compute.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from tessera_backend.runtime.arrays import HOST
from tessera_backend.runtime.bound_arguments import Bound
from tessera_backend.runtime.loaded_code import Block, Code, Fire, Frame
from tessera_backend.runtime.native_calls import MOST_BYTES, Launch, aligned_memory
from tessera_lang.locks import free_lock, free_reentrant_lock
from tessera_lang.record import replace

_LOCK = free_reentrant_lock()
"""Held from the first launch of a call that keeps values to its last: the memory is one for all
work of a stream."""

_OWN_BYTES = 1 << 16
"""Up to so much a block on the CPU has for itself."""

_MOST_FREE = 4

Place = tuple[Block, int, int]
"""A block, a slot of it, and the byte of the kept memory that the slot shows to."""


class CodeSequence:
    """The launches of a call. Faults go to the record of the first: all have the same sites."""

    def __init__(self, codes: Sequence[Code]) -> None:
        first = codes[0]
        self._codes = tuple(codes)
        self.plan = first.plan
        self.device = first.device
        self.then = tuple(code.plan for code in codes[1:])
        *offsets, self._words = accumulate((c.words for c in codes), initial=0)
        self.offsets = tuple(offsets)
        self.report = first.report

    @property
    def words(self) -> int:
        return self._words

    @property
    def flags(self) -> Any:
        return self._codes[0].flags

    @property
    def quiet(self) -> Any:
        return self._codes[0].quiet

    def frame(self, bound: Bound, block: Block | None = None) -> Frame:
        whole = (ctypes.c_int64 * self.words)() if block is None else block
        fires: list[Fire] = []
        places: list[Place] = []
        parts = zip(self._codes, self.offsets, (bound, *bound.then), strict=True)
        for code, first, part in parts:
            if part.empty:
                continue
            own = (ctypes.c_int64 * code.words).from_buffer(whole, 8 * first)
            fires.append(code.frame(part, own)[1])
            places += [(own, at, byte) for at, byte in part.memory.kept]
        if not places:
            return whole, _in_order(fires)
        if self.device == HOST and bound.memory.kept_bytes <= _OWN_BYTES:
            return whole, _with_own_memory(fires, places, bound.memory.kept_bytes)
        if self.device == HOST:
            return whole, _with_lent_memory(fires, places, bound.memory.kept_bytes)
        return whole, _with_memory_of_stream(fires, places, bound.memory.kept_bytes, self.device)

    def launches(self, bound: Bound, block: Block) -> list[Launch] | None:
        """For machine code on the CPU that launches itself; None where one of them cannot."""
        if bound.memory.kept_bytes > MOST_BYTES:
            return None
        found: list[Launch] = []
        memory, base = aligned_memory(bound.memory.kept_bytes)
        for code, first, part in zip(self._codes, self.offsets, (bound, *bound.then), strict=True):
            if part.empty:
                continue
            own = (ctypes.c_int64 * code.words).from_buffer(block, 8 * first)
            launches = code.launches(part, own)
            if launches is None:
                return None
            for at, byte in part.memory.kept:
                own[at] = base + byte
            found += [replace(launch, keep=(*launch.keep, memory)) for launch in launches]
        return found


def _in_order(fires: Sequence[Fire]) -> Fire:
    def fire(stream: int) -> None:
        for one in fires:
            one(stream)

    return fire


def _with_own_memory(fires: Sequence[Fire], places: Sequence[Place], size: int) -> Fire:
    """On the CPU a call has ended when it returns, and a block is for one thread at a time."""
    memory, base = aligned_memory(size)
    for block, at, byte in places:
        block[at] = base + byte

    def fire(stream: int, keep: Any = memory) -> None:
        for one in fires:
            one(stream)

    return fire


def _with_lent_memory(fires: Sequence[Fire], places: Sequence[Place], size: int) -> Fire:
    """Where it is too much for each layout of each thread to have its own."""

    def fire(stream: int) -> None:
        memory, base = _lent.take(size)
        try:
            for block, at, byte in places:
                block[at] = base + byte
            for one in fires:
                one(stream)
        finally:
            _lent.give_back(memory, base)

    return fire


class _Lent:
    """Memory for one call at a time; the last few are there for others."""

    def __init__(self) -> None:
        self._lock = free_lock()
        self._free: list[tuple[Any, int]] = []

    def take(self, size: int) -> tuple[Any, int]:
        """Memory, and an address in it, a multiple of 128, from which ``size`` bytes are there."""
        with self._lock:
            enough = [m for m in self._free if len(m[0]) >= size + 128]
            found = min(enough, key=lambda m: len(m[0]), default=None)
            if found is not None:
                self._free.remove(found)
                return found
        return aligned_memory(1 << (size - 1).bit_length())

    def give_back(self, memory: Any, base: int) -> None:
        with self._lock:
            self._free.append((memory, base))
            del self._free[:-_MOST_FREE]


_lent = _Lent()


def _with_memory_of_stream(
    fires: Sequence[Fire], places: Sequence[Place], size: int, ordinal: int
) -> Fire:
    from tessera_backend.device.driver import device
    from tessera_backend.device.workspace import kept

    target = device(ordinal)

    def fire(stream: int) -> None:
        with _LOCK:
            base = kept(target, stream, size)
            for block, at, byte in places:
                block[at] = base + byte
            for one in fires:
                one(stream)

    return fire
