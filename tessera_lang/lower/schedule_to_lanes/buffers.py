"""Memory for tiles: shared buffers that are taken and given back as tiles live and die.

Owns ``Buffers``. A buffer has the tile's shape; where rows are padded only its type knows. Must
not know which tiles are stored.
"""

from __future__ import annotations

from tessera_lang.ir.core import BufferType, Operation, Value
from tessera_lang.record import dataclass
from tessera_lang.target.tuned_constants import CPU_LINE, CPU_SAME_SETS
from tessera_lang.types.dtype import DType


@dataclass(slots=True, eq=False)
class Buffer:
    """``holder``: the tile that is in it; None where nobody needs the content."""

    value: Value
    dtype: DType
    sizes: tuple[int, ...]
    holder: Value | None = None

    @property
    def key(self) -> tuple[DType, tuple[int, ...]]:
        return self.dtype, self.sizes


class Buffers:
    """``pad``: whether rows begin at cache lines (and not all in the same sets)."""

    def __init__(self, pad: bool) -> None:
        self._pad = pad
        self._free: dict[tuple[DType, tuple[int, ...]], list[Buffer]] = {}
        self._names: dict[str, int] = {}
        self.allocations: list[Operation] = []

    def take(self, dtype: DType, sizes: tuple[int, ...], name: str) -> Buffer:
        free = self._free.get((dtype, sizes))
        if free:
            return free.pop()
        name = name or "tile"
        number = self._names.get(name, 0)
        self._names[name] = number + 1
        spelt = f"{name}_{number}" if number else name
        value = Value(BufferType(dtype, self._padded(dtype, sizes)), spelt)
        op = Operation("tile.shared.alloc", (), (value,), {"name": spelt})
        self.allocations.append(op)
        return Buffer(value, dtype, sizes)

    def give_back(self, buffer: Buffer) -> None:
        buffer.holder = None
        self._free.setdefault(buffer.key, []).append(buffer)

    def _padded(self, dtype: DType, sizes: tuple[int, ...]) -> tuple[int, ...]:
        sizes = tuple(max(1, n) for n in sizes)
        if not self._pad or len(sizes) < 2:
            return sizes
        line = CPU_LINE // dtype.bytes
        pitch = -(-sizes[-1] // line) * line
        if pitch * dtype.bytes % CPU_SAME_SETS == 0 and sizes[-2] > 8:
            pitch += line
        return (*sizes[:-1], pitch)
