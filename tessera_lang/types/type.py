"""Types of values in the language, as sema infers them.

Owns the closed union ``Type``. Must not know syntax or the IR.
"""

from __future__ import annotations

from typing import Literal

from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import DType
from tessera_lang.types.shape import Dim

Space = Literal["global", "shared", "constant", "local"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A run-time number of a lane or of the host."""

    dtype: DType

    def __str__(self) -> str:
        return self.dtype.name


@dataclass(frozen=True, slots=True)
class Weak:
    """A number literal, or an expression of literals: it takes the type of what it meets."""

    kind: Literal["int", "float"]

    def __str__(self) -> str:
        return f"{self.kind} literal"


@dataclass(frozen=True, slots=True)
class Tensor:
    """An array in global (or constant) memory with symbolic sizes."""

    dtype: DType
    shape: tuple[Dim, ...]
    mut: bool = False
    space: Space = "global"

    def __str__(self) -> str:
        head = "mut " if self.mut else "const " if self.space == "constant" else ""
        return f"{head}{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Buffer:
    """Shared memory of a group, or an array that each lane has of its own (``local``); every
    size is known."""

    dtype: DType
    shape: tuple[int, ...]
    space: Space = "shared"

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}] @{self.space}"


@dataclass(frozen=True, slots=True)
class TileAxis:
    """One axis of a tile value.

    ``capacity``: the elements there is room for, known when compiled; None for a whole axis
    of an array, an iteration space that the schedule cuts into tiles. ``extent``: the elements
    that are there, over the names of sizes and loop variables; None while it is open
    (``op.zeros``: it takes the first one it meets).
    """

    capacity: int | None
    extent: Dim | None

    def __str__(self) -> str:
        if self.capacity is None:
            return str(self.extent)
        if self.extent is None or self.extent == self.capacity:
            return str(self.capacity)
        return f"{self.extent} of {self.capacity}"


@dataclass(frozen=True, slots=True)
class Tile:
    """A value of a tile kernel; ``wide``: its dtype is the operands', its bits are f32.

    ``buffer``: bound by ``op.shared``, may be stored into. Rank 0 is a ``Scalar``, not a tile.
    """

    dtype: DType
    axes: tuple[TileAxis, ...]
    wide: bool = False
    buffer: bool = False

    def __str__(self) -> str:
        inside = ", ".join(map(str, self.axes))
        return f"{'wide ' if self.wide else ''}{self.dtype}[{inside}] tile"


@dataclass(frozen=True, slots=True)
class TupleType:
    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


@dataclass(frozen=True, slots=True)
class Opaque:
    """A type without structure for the checker: ``str``, ``None``, ``dtype``, ``module`` ..."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class FunctionType:
    """A function or kernel by name; which declaration it is stands in the symbol."""

    name: str
    kind: Literal["kernel", "function", "builtin"] = "function"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class ErrorType:
    """The type of what was already reported: it agrees with everything and adds no error."""

    reason: str = field(default="", compare=False)

    def __str__(self) -> str:
        return "unknown"


Type = Scalar | Weak | Tensor | Buffer | Tile | TupleType | Opaque | FunctionType | ErrorType
ERROR = ErrorType()
NONE = Opaque("None")
STR = Opaque("str")
