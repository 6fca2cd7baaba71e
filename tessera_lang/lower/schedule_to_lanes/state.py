"""The state of one lowering: what stands for the values of the program, and where tiles lie.

Owns ``Lowering``. Loops over elements, elements and regions are made by the files that take it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from typing import Literal

from tessera_lang.ir.core import Operation, PointerType, Value, ViewType
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.schedule_to_lanes.buffers import Buffer, Buffers
from tessera_lang.lower.schedule_to_lanes.def_use import Source, tile_type
from tessera_lang.lower.schedule_to_lanes.equal_numbers import Numbers
from tessera_lang.lower.schedule_to_lanes.materialization_choice import Placement
from tessera_lang.lower.schedule_to_lanes.tile_extents import Domains
from tessera_lang.record import dataclass, field
from tessera_lang.target.machine import Machine
from tessera_lang.types.dtype import INDEX, DType

Index = tuple[Value, ...]
Mode = Literal["assume", "guard"]


@dataclass(slots=True, eq=False)
class Slots:
    """Where a construct's terminators put its tiles: one buffer each, None for scalars."""

    operation: Operation
    buffers: list[Buffer | None]
    flat: bool = False


@dataclass(slots=True)
class Lowering:
    """``values``: what stands for a scalar or view. ``stored``: buffers of tiles. ``below``: for
    an index inside a loop over elements, keys of numbers it is less than. ``assumed``: pairs
    (least, most) of numbers that have to be in order for accesses made in mode ``assume``.
    ``touched``: roots of memory read since ``capture`` began. ``unsafe``: roots that lanes wrote
    (True) or read since the last barrier."""

    machine: Machine
    source: Source
    numbers: Numbers
    domains: Domains
    placement: Placement
    buffers: Buffers
    lanes: int
    b: Builder = field(default_factory=Builder)
    values: dict[Value, Value] = field(default_factory=dict[Value, Value])
    stored: dict[Value, Buffer] = field(default_factory=dict[Value, Buffer])
    memo: dict[tuple[Value, Index], Value] = field(default_factory=dict[tuple[Value, Index], Value])
    below: dict[Value, list[Hashable]] = field(default_factory=dict[Value, list[Hashable]])
    limits: dict[Value, int | Value] = field(default_factory=lambda: dict[Value, "int | Value"]())
    mode: Mode = "guard"
    assumed: dict[tuple[Hashable, Hashable], tuple[int | Value, Value]] = field(
        default_factory=lambda: dict[tuple[Hashable, Hashable], "tuple[int | Value, Value]"]()
    )
    touched: dict[Value, None] = field(default_factory=dict[Value, None])
    unsafe: dict[Value, bool] = field(default_factory=dict[Value, bool])
    slots: list[Slots] = field(default_factory=list[Slots])
    owned: list[list[Buffer]] = field(default_factory=lambda: [list[Buffer]()])
    constants: list[dict[tuple[int, DType], Value]] = field(
        default_factory=lambda: [dict[tuple[int, DType], Value]()]
    )

    @property
    def on_cpu(self) -> bool:
        return self.machine.target == "cpu"

    # --- scalars ----------------------------------------------------------------------------

    def scalar(self, value: Value) -> Value:
        """What stands for a scalar or a view of the program."""
        return self.values[value]

    def bound(self, extent: int | Value) -> Value:
        return self.index(extent) if isinstance(extent, int) else self.scalar(extent)

    def index(self, number: int) -> Value:
        """A constant, made once where it can be seen."""
        for known in self.constants:
            if (number, INDEX) in known:
                return known[number, INDEX]
        made = self.b.index(number)
        self.constants[-1][number, INDEX] = made
        return made

    def add(self, a: Value, b: Value) -> Value:
        """The sum of two indices; one that is a constant 0 is not added."""
        if self.is_zero(a):
            return b
        return a if self.is_zero(b) else self.b.binary("add", a, b)

    def is_zero(self, value: Value) -> bool:
        return any(known.get((0, INDEX)) is value for known in self.constants)

    # --- memory -----------------------------------------------------------------------------

    def root(self, array: Value) -> Value:
        """The memory behind a view or a buffer of the program made: its pointer, or itself."""
        return self.roots.get(array, array)

    roots: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def stored_dtype(self, value: Value) -> DType:
        return self.placement.wide.get(value, tile_type(value).dtype)

    def take(self, dtype: DType, sizes: tuple[int, ...], name: str) -> Buffer:
        """A buffer that is given back when the region being lowered is done with it."""
        buffer = self.buffers.take(dtype, sizes, name)
        self.owned[-1].append(buffer)
        return buffer

    def give_back(self, buffer: Buffer) -> None:
        """Ends the life of a buffer that was taken in the region being lowered."""
        self.owned[-1].remove(buffer)
        self.buffers.give_back(buffer)

    # --- regions ----------------------------------------------------------------------------

    @contextmanager
    def inside(self) -> Generator[None]:
        """What is known only in the region of Tile IR being built is forgotten behind it."""
        memo = dict(self.memo)
        self.constants.append({})
        try:
            yield
        finally:
            self.constants.pop()
            self.memo = memo

    def capture(self, build: Callable[[], object]) -> tuple[Operation, ...]:
        """The operations that ``build`` appends, without appending them."""
        with self.b.region() as region, self.inside():
            build()
        return region.region.operations

    def splice(self, operations: tuple[Operation, ...]) -> None:
        for operation in operations:
            self.b.append(operation)

    def barrier(self) -> None:
        """All lanes meet; nothing written or read before is unsafe behind it."""
        if self.lanes > 1:
            self.b.barrier()
        self.unsafe.clear()

    def ready(self, reads: list[Value], writes: list[Value]) -> None:
        """A barrier where lanes wrote what is read now, or touched what is written now."""
        if self.lanes == 1:
            return
        if any(self.unsafe.get(r) for r in reads) or any(w in self.unsafe for w in writes):
            self.barrier()
        for root in reads:
            self.unsafe.setdefault(root, False)
        for root in writes:
            self.unsafe[root] = True


def view_type(value: Value) -> ViewType:
    if not isinstance(value.type, ViewType):
        raise TypeError("an array was expected")
    return value.type


def is_pointer(value: Value) -> bool:
    return isinstance(value.type, PointerType)
