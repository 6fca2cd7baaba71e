"""Compiled code on one device: what a launch needs of it, for the CPU and for CUDA alike.

Owns the protocol; ``host_code.py`` and ``cuda_code.py`` are what it is for. Must not know
arguments, signatures or where the artifact came from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tessera_backend.runtime.binding import Bound
from tessera_lang.target.plan import LaunchPlan

Fire = Callable[[int], None]
Frame = tuple[Any, Fire]
"""The argument block of one launch in the making and what launches it: ``block[slot]`` takes
64 bits, ``fire(stream)`` launches with them. For one thread at a time."""


class Code(Protocol):
    """A kernel that can be launched. ``device`` is HOST or a CUDA ordinal."""

    plan: LaunchPlan
    device: int

    def frame(self, bound: Bound) -> Frame:
        """A block holding the values of a checked call, with the fault address in its slot.

        A slot that holds a map of an array takes the array's address, as one of data does. On
        a device ``fire`` returns before the groups have run.
        """
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
