"""Which calls of kernels machine code may answer, and the plans for it.

Must not know the tables of the code (``native_calls.py``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera_backend.cpu.call_stub import WORTH_WAKING
from tessera_backend.cpu.thread_count import thread_count
from tessera_backend.runtime.arrays import ArrayView
from tessera_backend.runtime.dtypes import TO_NUMPY
from tessera_backend.runtime.launch import Prepared, pointers_of
from tessera_backend.runtime.native_calls import Launch, Plan, Step
from tessera_backend.runtime.results import small_maker
from tessera_lang.record import replace


def is_short(launch: Launch) -> bool:
    """Whether no other thread would be woken for it, judged by the launch before."""
    if thread_count() == 1:
        return True
    x, y, z = launch.axes
    each = ctypes.c_double.from_address(launch.group_time).value
    return x * y * z <= 1 or x * y * z * each < WORTH_WAKING


def launch_steps(
    prepared: Prepared,
    fills: Sequence[tuple[int, int, int]],
    encodes: Sequence[tuple[int, int]],
    constants: Sequence[tuple[int, int]] = (),
    *,
    short: bool = True,
) -> list[Step] | None:
    """The launches of a layout: ``fills`` are (slot, place, bytes), ``encodes`` (slot, argument),
    ``constants`` (slot, bits), slots counted from the first launch's. None where machine code
    cannot launch them, or with ``short`` where one was long."""
    block = (ctypes.c_int64 * prepared.code.words)()
    launches = [] if prepared.empty else prepared.code.launches(prepared.bound, block)
    zeroed = prepared.bound.memory.zeroed
    if launches is None or (zeroed and not launches):
        return None
    if short and not all(map(is_short, launches)):
        return None
    for at, bits in constants:
        block[at] = bits - (1 << 64) if bits >= 1 << 63 else bits
    if not launches:
        return []
    # The first launch fills the block of all.
    first = (launches[0].slots - ctypes.addressof(block)) // 8
    launches[0] = replace(
        launches[0],
        zeroed=tuple((at - first, size) for at, size in zeroed),
        keep=(*launches[0].keep, block),
    )
    steps = [Step(launch) for launch in launches]
    steps[0].fills = [(at - first, place, offset) for at, place, offset in fills]
    steps[0].encodes = [(at - first, argument) for at, argument in encodes]
    return steps


def is_known(kind: type) -> bool:
    """Arrays and numbers whose methods are Python's and NumPy's own: nobody's code runs, and
    changes arrays, while the machine code has their addresses."""
    if kind in (np.ndarray, int, float, bool):
        return True
    return kind.__module__ in ("numpy", "ml_dtypes") and issubclass(kind, np.generic)


def kernel_plan(raw: Sequence[Any], prepared: Prepared) -> Plan | None:
    """A call of a kernel with arguments like these; None where it is not for machine code."""
    if not all(is_known(a.__class__) for a in raw) or len(prepared.results) > 1:
        return None
    steps = launch_steps(
        prepared,
        [(at, i, 0) for i, at in prepared.slots],
        [(at, i) for at, i, _ in prepared.encoders],
    )
    if steps is None:
        return None
    count = len(raw)
    for dtype, shape in prepared.results:
        steps.insert(0, Step(make=small_maker(shape, TO_NUMPY[dtype.name]), place=count))
    encoders: dict[int, Callable[[Any], int] | None] = {i: e for _, i, e in prepared.encoders}
    pairs = [
        (i, j, i_low - j_high, i_high - j_low)
        for i, j, i_low, i_high, j_low, j_high in prepared.pairs
        if i < count and j < count
    ]
    return Plan(raw, (), encoders, pairs, steps, count + len(prepared.results), keep=(prepared,))


def bound_plan(values: Sequence[Any], prepared: Prepared) -> Plan | None:
    """A call without arguments, of arrays that stay the same."""
    if prepared.results or not all(
        not isinstance(v, ArrayView) or v.owner.__class__ is np.ndarray for v in values
    ):
        return None
    pointers = pointers_of(values)
    constants = [(at, pointers[i]) for i, at in prepared.slots]
    constants += [(at, encode(values[i])) for at, i, encode in prepared.encoders]
    steps = launch_steps(prepared, [], [], constants, short=False)
    if steps is None:
        return None
    held = [Step(held=v.owner) for v in values if isinstance(v, ArrayView)]
    return Plan((), (), {}, (), [*held, *steps], 0, keep=(prepared,))
