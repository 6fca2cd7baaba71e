"""The shortest way to what a plain function recorded for a call with torch tensors, and the key of
a call with NumPy arrays.

The layout of the call before is asked about first: torch's own guard answers for all tensors
in one call. Otherwise a key of all facts is looked up. Must not know what a recording holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from tessera_backend.runtime.arrays import is_torch
from tessera_backend.runtime.launch_fast_path import guards_work, tensor_guard
from tessera_backend.runtime.numpy_address import address_function

_LAYOUTS = 1024


class SharedMemory(Exception):
    """Arguments share memory that one of them is written in: the evaluator says how."""


T = TypeVar("T")


class Quick(Generic[T]):
    """What belongs to the layouts of a function's calls."""

    def __init__(self) -> None:
        self._known: dict[Any, T] = {}
        self._recent: _Recent[T] | None = None

    def remember(self, arguments: tuple[Any, ...], found: T) -> None:
        """``found`` is for calls like this one, whose arrays are all torch's."""
        if len(self._known) >= _LAYOUTS:
            self._known.clear()
        self._known[_key(arguments)] = found
        self._recent = _recent(arguments, found)

    def find(self, arguments: tuple[Any, ...]) -> tuple[T, list[Any], list[int]] | None:
        """What belongs to a call, its tensors and their addresses."""
        recent = self._recent
        if recent is not None and (given := recent.match(arguments)):
            return recent.found, *given
        tensors = [a for a in arguments if is_torch(a.__class__)]
        try:
            found = self._known.get(_key(arguments)) if tensors else None
        except (TypeError, ValueError):  # arrays of others among them
            return None
        if found is None:
            return None
        self._recent = _recent(arguments, found)
        return found, tensors, [t.data_ptr() for t in tensors]


class _Recent(Generic[T]):
    """One layout, with torch's guard for it."""

    __slots__ = ("_aligned", "_check", "_count", "_others", "_places", "found")

    def __init__(
        self, arguments: tuple[Any, ...], tensors: list[Any], check: Callable[..., bool], found: T
    ) -> None:
        self.found = found
        self._check = check
        self._count = len(arguments)
        self._places = [i for i, a in enumerate(arguments) if is_torch(a.__class__)]
        self._others = [
            (i, constant_key(a)) for i, a in enumerate(arguments) if i not in self._places
        ]
        self._aligned = [t.data_ptr() & 15 == 0 for t in tensors]

    def match(self, arguments: tuple[Any, ...]) -> tuple[list[Any], list[int]] | None:
        """The tensors of a call of this layout, and their addresses."""
        if len(arguments) != self._count:
            return None
        for i, key in self._others:
            if arguments[i].__class__ is not key[0] or constant_key(arguments[i]) != key:
                return None
        tensors = [arguments[i] for i in self._places]
        try:
            if not self._check(*tensors):
                return None
        except TypeError:  # what is no tensor
            return None
        pointers = [t.data_ptr() for t in tensors]
        return (tensors, pointers) if [p & 15 == 0 for p in pointers] == self._aligned else None


def _recent(arguments: tuple[Any, ...], found: T) -> _Recent[T] | None:
    tensors = [a for a in arguments if is_torch(a.__class__)]
    check = tensor_guard(tensors) if guards_work() else None
    return None if check is None else _Recent(arguments, tensors, check, found)


def _key(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The layout of a call whose arrays are all torch's, without describing them."""
    return tuple([
        (a.__class__, a.shape, a.stride(), a.dtype, a.get_device(), a.is_neg(),
         not a.data_ptr() & 15)
        if is_torch(a.__class__) else constant_key(a)
        for a in arguments
    ])  # fmt: skip


def constant_key(value: Any) -> tuple[Any, ...]:
    """What tells an argument that is no array from others: 1, 1.0 and True are not the same,
    and the two zeros are not."""
    return (value.__class__, value) if value else (value.__class__, value, repr(value))


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
