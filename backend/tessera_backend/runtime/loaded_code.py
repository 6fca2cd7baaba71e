"""Compiled code on one device: what a launch needs of it, for the CPU and for CUDA alike.

Owns the protocol; ``cpu_code.py`` and ``cuda_code.py`` are what it is for. Must not know
arguments, signatures or where the artifact came from.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

from tessera_backend.runtime.bound_arguments import Bound
from tessera_backend.runtime.native_calls import Launch
from tessera_lang.target.launch_plan import LaunchPlan

Block = ctypes.Array[ctypes.c_int64]
Fire = Callable[[int], None]
Frame = tuple[Any, Fire]
"""The argument block of one launch in the making and what launches it: ``block[slot]`` takes
64 bits, ``fire(stream)`` launches with them. For one thread at a time."""


class Code(Protocol):
    """A kernel that can be launched. ``device`` is HOST or a CUDA ordinal. ``then`` are the plans
    of launches behind that of ``plan``, ``offsets`` where the slots of each begin in a block, and
    ``words`` the 64-bit words of a block."""

    plan: LaunchPlan
    device: int
    then: tuple[LaunchPlan, ...]
    offsets: tuple[int, ...]

    @property
    def words(self) -> int: ...

    def frame(self, bound: Bound, block: Block | None = None) -> Frame:
        """A block holding the values of a checked call, with the fault address in its slot; in
        ``block``, which is zeros, where that is given.

        A slot that holds a map of an array takes the array's address, as one of data does. On
        a device ``fire`` returns before the groups have run.
        """
        ...

    def launches(self, bound: Bound, block: Block) -> list[Launch] | None:
        """The launches of a frame in ``block``, for machine code that begins them itself; None
        where there is no such way."""
        ...

    @property
    def flags(self) -> Any:
        """Fault flags to look at before a launch; equal to ``quiet`` where none is raised."""
        ...

    @property
    def quiet(self) -> Any: ...

    def report(self) -> None:
        """Raise the fault behind a flag, once."""
        ...
