"""The shortest way to what a plain function recorded for a call with torch tensors, and the key of
a call with NumPy arrays.

The layout of the call before is asked about first: torch's own guard answers for all tensors
in one call. Otherwise a key of all facts is looked up. Must not know what a recording holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tessera_backend.runtime.arrays import is_torch
from tessera_backend.runtime.numpy_address import address_function
from tessera_backend.runtime.recorded_shortcuts import MISSED, Shortcut, constant_key

_LAYOUTS = 1024


class SharedMemory(Exception):
    """Arguments share memory that one of them is written in: the evaluator says how."""


class Quick:
    """The shortcuts for the layouts of a function's calls."""

    def __init__(self) -> None:
        self._known: dict[Any, Shortcut] = {}
        # That of the call before, which is asked about first.
        self.recent: Callable[..., Any] | None = None

    def remember(self, arguments: tuple[Any, ...], found: Shortcut) -> None:
        """``found`` is for calls like this one, whose arrays are all torch's."""
        if len(self._known) >= _LAYOUTS:
            self._known.clear()
        self._known[_key(arguments)] = found
        self.recent = found.guarded

    def answer(self, arguments: tuple[Any, ...]) -> Any:
        """What a call gives that another than the one before was like; MISSED where none was."""
        if not any(is_torch(a.__class__) for a in arguments):
            return MISSED
        try:
            found = self._known.get(_key(arguments))
        except (TypeError, ValueError):  # arrays of others among them
            return MISSED
        if found is None:
            return MISSED
        self.recent = found.guarded
        return found.plain(*arguments)


def _key(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The layout of a call whose arrays are all torch's, without describing them."""
    return tuple([
        (a.__class__, a.shape, a.stride(), a.dtype, a.get_device(), a.is_neg(),
         not a.data_ptr() & 15)
        if is_torch(a.__class__) else constant_key(a)
        for a in arguments
    ])  # fmt: skip


address_of = address_function()
_CONSTANTS = (int, float, bool, str, type(None))


def host_key(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """The layout of a call; None where an argument is neither a NumPy array nor a constant."""
    found: list[Any] = []
    for value in (*arguments, *named.values()) if named else arguments:
        if value.__class__ is np.ndarray:
            found.append((value.shape, value.strides, value.dtype, not address_of(value) & 15,
                          value.flags.writeable))  # fmt: skip
        elif value.__class__ in _CONSTANTS:
            found.append(constant_key(value))
        else:
            return None
    return (tuple(found), tuple(named)) if named else tuple(found)
