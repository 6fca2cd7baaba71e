"""The result of binding a call: sizes, strides and copies, of which argument blocks are made.

Must not know how a call is checked, nor how code is launched.
"""

from __future__ import annotations

from math import prod

from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import DType


@dataclass(frozen=True, slots=True)
class MappedArray:
    """An array as a map of it needs it; strides are in elements."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BoundCopy:
    """A copy of an array to make before each launch: axes outermost first, the last contiguous.

    ``source`` is the slot of the array, ``targets`` those that take the copy's address;
    ``element`` are an element's bytes, ``pitch`` those from line to line of the copy, ``at``
    those before it in the memory of all copies.
    """

    source: int
    targets: tuple[int, ...]
    element: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pitch: int
    at: int


@dataclass(slots=True)
class BoundSlots:
    """The slots of an argument block, by number.

    ``values``: one a slot, with what the layout fixes. ``data`` and ``scalars``: those that each
    call writes, as (slot, parameter); results are counted behind the parameters. ``by_value``:
    those of ``data`` that take the bytes of an array. ``arrays``: the arrays of those that hold
    an address; ``maps``: of those that hold a map (its address is among ``data``, or is a
    copy's). ``fault`` and ``print``: the slot of the record, -1 where the code has none.
    """

    values: list[int]
    data: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    scalars: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    by_value: list[int] = field(default_factory=list[int])
    arrays: dict[int, MappedArray] = field(default_factory=dict[int, MappedArray])
    maps: dict[int, MappedArray] = field(default_factory=dict[int, MappedArray])
    fault: int = -1
    print: int = -1


@dataclass(slots=True)
class BoundMemory:
    """What a launch needs beside the arrays it is given.

    ``results``: dtype and shape of what is to be allocated. ``zeroed``: (slot, bytes) of results
    that are filled with zeros before each launch, ``copies`` what is copied then. ``workspace``
    and ``scratch``: (slot, bytes). ``kept``: (slot, byte) of what launches of a call leave for
    each other, in memory of ``kept_bytes``.
    """

    results: tuple[tuple[DType, tuple[int, ...]], ...] = ()
    zeroed: tuple[tuple[int, int], ...] = ()
    copies: tuple[BoundCopy, ...] = ()
    workspace: tuple[int, int] | None = None
    scratch: tuple[int, int] | None = None
    kept: tuple[tuple[int, int], ...] = ()
    kept_bytes: int = 0


@dataclass(slots=True)
class Bound:
    """One launch of a checked call.

    ``axes``: its groups as the language counts them, last axis fastest. ``pairs``: (written
    parameter, other array) whose memory may meet. ``then``: the launches behind it in the same
    call.
    """

    axes: tuple[int, ...]
    slots: BoundSlots
    memory: BoundMemory
    pairs: tuple[tuple[int, int], ...] = ()
    then: tuple[Bound, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is no group to launch."""
        return prod(self.axes) == 0
