"""Compiled code on one device: what a launch needs of it, for the CPU and for CUDA alike.

Owns the protocol; ``host_code.py`` and ``cuda_code.py`` are what it is for. Must not know
arguments, signatures or where the artifact came from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tessera_lang.target.plan import LaunchPlan

Fire = Callable[[int], None]
Frame = tuple[Any, Fire]
"""The argument block of one launch in the making and what launches it: ``block[slot]`` takes
64 bits, ``fire(stream)`` launches with them. For one thread at a time."""


class Code(Protocol):
    """A kernel that can be launched. ``device`` is HOST or a CUDA ordinal."""

    plan: LaunchPlan
    device: int

    def frame(self, values: Sequence[int], fault_slot: int, axes: tuple[int, ...]) -> Frame:
        """A block holding ``values``, with the fault address in its slot.

        ``axes``: groups as the language counts them. On a device ``fire`` returns before they
        have run.
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
