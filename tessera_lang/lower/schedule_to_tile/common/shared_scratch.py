"""Shared memory that the lowering asks for: named buffers, and one scratch for all exchanges.

Operations that exchange through scratch surround it with barriers, so one buffer, as large as
the neediest, serves all of them one after the other. Buffers are allocated at the top of the
kernel. Owns the allocations. Must not know what they are for.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.analysis.resources.register_layouts import scratch_buffer
from tessera_lang.ir.core import BarrierType, BufferType, Operation, Value
from tessera_lang.ir.layout import SharedLayout
from tessera_lang.record import dataclass
from tessera_lang.target.tuned_constants import SCRATCH_APART
from tessera_lang.types.dtype import DType


@dataclass(frozen=True, slots=True)
class Taken:
    """One line of the table of shared memory: what takes how much, and why."""

    name: str
    bytes: int
    what: str


class Scratch:
    """The shared buffers of a kernel. ``of_a_part``: bytes of memory of the launch for the sums
    of one part of one tile."""

    def __init__(self, name: str = "scratch") -> None:
        self._name = name
        self._placeholder = Value(scratch_buffer(1), name)
        self._bytes = 0
        self._alternating = [(Value(scratch_buffer(1), f"{name}_{i}"), [0]) for i in range(2)]
        self.of_a_part = 0
        self._allocations: list[tuple[Operation, str]] = []
        self._names: set[str] = set()
        self._kept: dict[tuple[BufferType, str], Value] = {}

    def buffer(self, bytes_: int) -> tuple[Value, ...]:
        """The operand for an operation that needs so many bytes; none for 0."""
        if bytes_ == 0:
            return ()
        self._bytes = max(self._bytes, bytes_)
        return (self._placeholder,)

    def double_buffered(self, bytes_: int) -> tuple[Value, ...]:
        """As ``buffer``; where few bytes are needed two buffers take turns, so that one is written
        while another is read."""
        if not 0 < bytes_ <= SCRATCH_APART:
            return self.buffer(bytes_)
        value, most = self._alternating[0]
        self._alternating.reverse()
        most[0] = max(most[0], bytes_)
        return (value,)

    def allocate(
        self, dtype: DType, shape: Sequence[int], name: str, what: str,
        layout: SharedLayout | None = None, offset: int = -1,
    ) -> Value:  # fmt: skip
        """A buffer of its own; ``what`` stands in the table of who takes how much. ``offset``: the
        byte at which it begins, where that is known."""
        base, number = name or "buffer", 1
        while name in self._names or not name:
            number += 1
            name = f"{base}_{number}" if base in self._names else base
        self._names.add(name)
        value = Value(BufferType(dtype, tuple(shape), layout=layout), name)
        place = {"offset": offset} if offset >= 0 else {}
        operation = Operation("tile.shared.alloc", (), (value,), {"name": name, **place})
        self._allocations.append((operation, what))
        return value

    def shared(
        self, dtype: DType, shape: Sequence[int], name: str, what: str,
        layout: SharedLayout | None = None,
    ) -> Value:  # fmt: skip
        """A buffer that every user of this shape shares; whoever writes it first meets a
        barrier."""
        key = (BufferType(dtype, tuple(shape), layout=layout), name)
        if key not in self._kept:
            self._kept[key] = self.allocate(dtype, shape, name, what, layout)
        return self._kept[key]

    def barriers(self, count: int, name: str) -> Value:
        """Transaction barriers of one arrival."""
        base, number = name, 1
        while name in self._names:
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        value = Value(BarrierType(count), name)
        attributes = {"name": name, "arrivals": 1}
        self._allocations.append(
            (Operation("tile.mbarrier.alloc", (), (value,), attributes), "meetings of a cluster")
        )
        return value

    def finish(self) -> tuple[tuple[Operation, ...], dict[Value, Value]]:
        """The allocations, and what stands in for values given before sizes were known."""
        operations = [o for o, _ in self._allocations]
        replaced: dict[Value, Value] = {}
        for placeholder, bytes_ in self._exchanged():
            value = Value(scratch_buffer(bytes_), placeholder.name)
            replaced[placeholder] = value
            attributes = {"name": placeholder.name}
            operations.append(Operation("tile.shared.alloc", (), (value,), attributes))
        return tuple(operations), replaced

    def _exchanged(self) -> list[tuple[Value, int]]:
        alternating = sorted(
            ((v, most[0]) for v, most in self._alternating), key=lambda t: t[0].name
        )
        return [(v, n) for v, n in ((self._placeholder, self._bytes), *alternating) if n]

    def table(self) -> list[Taken]:
        """Who takes how much, the greatest first."""
        rows = [Taken(o.result.name, _bytes(o.result), what) for o, what in self._allocations]
        rows += [Taken(v.name, n, "exchanges between warps") for v, n in self._exchanged()]
        return sorted(rows, key=lambda row: -row.bytes)


def _bytes(buffer: Value) -> int:
    if isinstance(buffer.type, BarrierType):
        return 8 * buffer.type.count
    t = buffer.buffer_type
    return (t.layout or SharedLayout()).bytes(t.shape, t.dtype.bytes)
