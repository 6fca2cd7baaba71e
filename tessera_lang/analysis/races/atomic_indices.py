"""Arrays whose elements lanes are given by a counter: each goes where an `atomic_add` tells it.

Of the additions of positive numbers to one element no two give the same number, if nothing else
writes there; so no two lanes touch one element of an array that is indexed by such results alone.
Must not know what is stored.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera_lang.analysis.lanes.shared_access_log import BUFFER_AT
from tessera_lang.analysis.lanes.synchronised import widens
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import ATOMICS, WRITES
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import DType

_LEAST_BITS = 32  # of a counter: fewer come round
_Counter = tuple[Value, tuple[int, ...]]


def given_places(kernel: Operation, *, several: bool) -> frozenset[Value]:
    """The pointers of such arrays. ``several``: whether there may be more than one group, so that
    a counter has to be one of all."""
    return frozenset(_Places(kernel, several).given())


@dataclass(slots=True)
class _Places:
    kernel: Operation
    several: bool
    views: dict[Value, Value] = field(default_factory=dict[Value, Value])
    made: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    accesses: dict[Value, list[Operation]] = field(default_factory=dict[Value, list[Operation]])
    other: set[Value] = field(default_factory=set[Value])

    def __post_init__(self) -> None:
        for o in self.kernel.walk():
            self.made.update((v, o) for v in o.results)
            if o.name == "tile.view":
                self.views[o.result] = o.operands[0]
        for o in self.kernel.walk():
            if o.name in BUFFER_AT:
                pointer = self.views.get(o.operands[BUFFER_AT[o.name]])
                if pointer is not None:
                    self.accesses.setdefault(pointer, []).append(o)
            else:
                self.other.update(self.views[v] for v in o.operands if v in self.views)

    def given(self) -> Iterator[Value]:
        counted = {o: c for o in self.kernel.nested("tile.atomic") if (c := self._counter(o))}
        pointers = list(self.views.values())
        if not counted:
            return
        for pointer, accesses in self.accesses.items():
            if pointer in self.other or pointers.count(pointer) > 1:
                continue
            ways = [set(self._told(o, counted)) for o in accesses]
            if set[tuple[int, _Counter]].intersection(*ways):
                yield pointer

    def _told(
        self, access: Operation, counted: dict[Operation, _Counter]
    ) -> Iterator[tuple[int, _Counter]]:
        """Axes along which the index is a number of a counter."""
        for axis, index in enumerate(access.operands[BUFFER_AT[access.name] + 1 :]):
            made = self.made.get(index)
            while made is not None and made.name == "tile.cast" and widens(made):
                made = self.made.get(made.operands[0])
            if made in counted:
                yield axis, counted[made]

    def _counter(self, atomic: Operation) -> _Counter | None:
        """The element that an addition counts, if all that is done to its array leaves it one."""
        at = BUFFER_AT[atomic.name]
        pointer = self.views.get(atomic.operands[at])
        place = [self._number(v) for v in atomic.operands[at + 1 :]]
        if pointer is None or pointer in self.other or None in place:
            return None
        if list(self.views.values()).count(pointer) > 1:
            return None
        if not all(o.name not in WRITES or self._counts_up(o) for o in self.accesses[pointer]):
            return None
        return pointer, tuple(n for n in place if n is not None)

    def _counts_up(self, o: Operation) -> bool:
        if o.name not in ATOMICS or o.attributes.get("kind") != "add":
            return False
        dtype, number = o.result.type, self._number(o.operands[0])
        wide = isinstance(dtype, DType) and dtype.is_integer and dtype.bits >= _LEAST_BITS
        seen = not self.several or o.attributes["scope"] in ("device", "mesh")
        return wide and seen and number is not None and number > 0

    def _number(self, value: Value) -> int | None:
        made = self.made.get(value)
        held = made.attributes["value"] if made is not None and made.name == "tile.constant" else ""
        return held if isinstance(held, int) else None
