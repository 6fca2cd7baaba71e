"""One SSA core for the three levels: values, operations, regions, programs.

Immutable. A region is one block: arguments and operations, the last one a terminator;
control flow is structured, and a loop is left by ``break`` and ``continue`` terminators of
the regions nested in it (no flags, no jumps). Values compare by identity. Spans take no
part in equality of printed programs. Must not know any operation set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Literal, cast

from tessera_lang.ir.layout import RegisterLayout, SharedLayout
from tessera_lang.record import dataclass, field
from tessera_lang.source import Span
from tessera_lang.types.dtype import DType
from tessera_lang.types.shape import Dim
from tessera_lang.types.type import Space

Level = Literal["graph", "schedule", "tile"]


@dataclass(frozen=True, slots=True)
class PointerType:
    """Address of the first element of an array: ``!tile.ptr<f32, global>``."""

    dtype: DType
    space: Space


@dataclass(frozen=True, slots=True)
class ViewType:
    """An array seen through sizes and strides: ``!tile.view<?x?xf32, global, mut>``.

    ``shape`` has None for a size known at run time only. ``contiguous`` views are row-major
    without gaps and carry no strides; ``aligned`` ones begin at a multiple of 16 bytes.
    """

    dtype: DType
    shape: tuple[int | None, ...]
    space: Space = "global"
    mut: bool = False
    contiguous: bool = True
    aligned: bool = False


@dataclass(frozen=True, slots=True)
class BufferType:
    """Shared memory of a group: ``!tile.buffer<128xf32, shared>``; row-major without a layout.

    ``!tile.buffer<4x128x64xbf16, shared, major=1 panel=64 pitch=64 swizzle=128>`` is a ring of
    four stages: the last two axes are a matrix that lies as its layout says.
    """

    dtype: DType
    shape: tuple[int, ...]
    space: Space = "shared"
    layout: SharedLayout | None = None


@dataclass(frozen=True, slots=True)
class TileType:
    """A tile as a value: ``!tile.tile<128x64xf32>``, of a capacity that all elements share.

    In Schedule IR a size may be a name (``$0``): a choice of the schedule that is still open,
    and there is no layout. In Tile IR every size is a number; the layout says which lane holds
    what. Without a layout in Tile IR (the CPU) the one lane holds all of it, row-major.
    """

    dtype: DType
    shape: tuple[int | str, ...]
    layout: RegisterLayout | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape, where every size is chosen. Raises ValueError."""
        known = tuple(n for n in self.shape if isinstance(n, int))
        if len(known) != len(self.shape):
            raise ValueError(f"open sizes in {self.shape}")
        return known


@dataclass(frozen=True, slots=True)
class BarrierType:
    """An array of transaction barriers in shared memory: ``!tile.mbarrier<4>``."""

    count: int


@dataclass(frozen=True, slots=True)
class TensorMapType:
    """A tensor map of an array, a kernel argument passed by value:
    ``!tile.tensor_map<64x128xbf16, swizzle=128>``; the shape is the box, outermost axis first."""

    dtype: DType
    box: tuple[int, ...]
    swizzle: int = 128


@dataclass(frozen=True, slots=True)
class TensorType:
    """A whole tensor as a value of Graph IR: ``!graph.tensor<f32, [n, (2 * k), 4]>``.

    A size is a number, or an expression of the names that a call binds. Nothing is said of memory,
    and nothing yet of the devices that hold it.
    """

    dtype: DType
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


IRType = (
    DType | PointerType | ViewType | BufferType | TileType | BarrierType | TensorMapType
    | TensorType
)  # fmt: skip
Attribute = bool | int | float | str | DType | tuple["Attribute", ...]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A result of an operation or an argument of a region; ``name`` is a printing hint."""

    type: IRType
    name: str = ""

    @property
    def tile_type(self) -> TileType:
        """The type of a value that is a tile. Raises TypeError."""
        if isinstance(self.type, TileType):
            return self.type
        raise TypeError(f"%{self.name} is no tile but {self.type}")

    @property
    def tensor_type(self) -> TensorType:
        """The type of a value of Graph IR. Raises TypeError."""
        if isinstance(self.type, TensorType):
            return self.type
        raise TypeError(f"%{self.name} is no tensor but {self.type}")

    @property
    def view_type(self) -> ViewType:
        """The type of a value that is a view of an array. Raises TypeError."""
        if isinstance(self.type, ViewType):
            return self.type
        raise TypeError(f"%{self.name} is no view but {self.type}")

    @property
    def buffer_type(self) -> BufferType:
        """The type of a value that is a buffer. Raises TypeError."""
        if isinstance(self.type, BufferType):
            return self.type
        raise TypeError(f"%{self.name} is no buffer but {self.type}")

    @property
    def array_type(self) -> ViewType | BufferType:
        """The type of a value that holds elements in memory. Raises TypeError."""
        if isinstance(self.type, ViewType | BufferType):
            return self.type
        raise TypeError(f"%{self.name} is no array but {self.type}")

    @property
    def element_dtype(self) -> DType:
        """The dtype of a scalar, or of the elements of a tile. Raises TypeError."""
        return self.type.dtype if isinstance(self.type, TileType) else self.dtype

    @property
    def pointer_type(self) -> PointerType:
        """The type of a value that is a pointer. Raises TypeError."""
        if isinstance(self.type, PointerType):
            return self.type
        raise TypeError(f"%{self.name} is no pointer but {self.type}")

    @property
    def barrier_type(self) -> BarrierType:
        """The type of a value that is an array of transaction barriers. Raises TypeError."""
        if isinstance(self.type, BarrierType):
            return self.type
        raise TypeError(f"%{self.name} is no transaction barrier but {self.type}")

    @property
    def dtype(self) -> DType:
        """The type of a value that is one scalar. Raises TypeError."""
        if isinstance(self.type, DType):
            return self.type
        raise TypeError(f"%{self.name} is no scalar but {self.type}")


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    arguments: tuple[Value, ...] = ()
    operations: tuple[Operation, ...] = ()

    @property
    def terminator(self) -> Operation:
        return self.operations[-1]

    def walk(self) -> Iterator[Operation]:
        """Its operations and all nested ones, outermost first."""
        return _walk(self.operations)


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """``results = "name"(operands) ({regions}) {attributes}``; the name carries its level."""

    name: str
    operands: tuple[Value, ...] = ()
    results: tuple[Value, ...] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])
    regions: tuple[Region, ...] = ()
    span: Span | None = None

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        """An attribute that is an integer. Raises TypeError where it is not there and there is no
        ``default``, or is something else."""
        found = self.attributes.get(name, default)
        if isinstance(found, int):
            return found
        raise TypeError(f"`{name}` of {self.name} is no integer but {found!r}")

    def integers(self, name: str) -> tuple[int, ...]:
        """An attribute that is a tuple of integers; () where it is not there. Raises TypeError."""
        found = self.attributes.get(name, ())
        if isinstance(found, tuple) and all(isinstance(i, int) for i in found):
            return cast("tuple[int, ...]", found)
        raise TypeError(f"`{name}` of {self.name} holds no integers but {found!r}")

    def strings(self, name: str) -> tuple[str, ...]:
        """An attribute that is a tuple of strings; () where it is not there. Raises TypeError."""
        found = self.attributes.get(name, ())
        if isinstance(found, tuple) and all(isinstance(i, str) for i in found):
            return cast("tuple[str, ...]", found)
        raise TypeError(f"`{name}` of {self.name} holds no strings but {found!r}")

    def walk(self) -> Iterator[Operation]:
        """This operation and all nested ones, outermost first."""
        return _walk((self,))

    def holds(self, names: str | Collection[str]) -> bool:
        """Whether this operation, or one nested in it, has the name, or one of the names."""
        wanted = (names,) if isinstance(names, str) else names
        return any(operation.name in wanted for operation in self.walk())

    def nested(self, names: str | Collection[str]) -> list[Operation]:
        """Those of this operation and of the nested ones that have the name, or one of them."""
        wanted = (names,) if isinstance(names, str) else names
        return [operation for operation in self.walk() if operation.name in wanted]

    def uses(self) -> Iterator[Value]:
        """What this operation and all nested ones read, as often as they do."""
        for operation in self.walk():
            yield from operation.operands


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Operations of one level at the top: kernels, or functions of Graph IR."""

    level: Level
    operations: tuple[Operation, ...]

    def walk(self) -> Iterator[Operation]:
        return _walk(self.operations)


def _walk(operations: tuple[Operation, ...]) -> Iterator[Operation]:
    pending = [*reversed(operations)]  # no recursion: nests may be deep
    while pending:
        operation = pending.pop()
        yield operation
        if operation.regions:
            for region in reversed(operation.regions):
                pending.extend(reversed(region.operations))


class VerifyError(Exception):
    """A fault of ours: a program that breaks a rule of its level."""

    def __init__(self, message: str, operation: Operation | None = None) -> None:
        self.operation = operation
        super().__init__(message)
