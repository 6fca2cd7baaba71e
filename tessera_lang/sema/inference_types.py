"""Types under construction: what an expression is before every variable is settled.

Owns the open type of a variable bound to a literal, the open element type of a bare shared
buffer, and what is not known yet. None of them survives the last walk over a function.
"""

from __future__ import annotations

from typing import Literal

from tessera_lang.record import dataclass
from tessera_lang.source import Span
from tessera_lang.types.dtype import F32, F64, INDEX, DType
from tessera_lang.types.type import Type

LiteralKind = Literal["int", "float"]


@dataclass(slots=True, eq=False)
class Cell:
    """The type that a group of open variables will share.

    ``dtype`` is set by the first typed value they meet, at ``met``. ``wide``: a size of an array
    is among them, which no narrower float than f32 holds.
    """

    kind: LiteralKind
    wide: bool = False
    dtype: DType | None = None
    met: Span | None = None
    parent: Cell | None = None

    def root(self) -> Cell:
        cell = self
        while cell.parent is not None:
            cell = cell.parent
        return cell


@dataclass(frozen=True, slots=True)
class Open:
    """The type of a value that depends on a variable whose type is still open."""

    cell: Cell


@dataclass(frozen=True, slots=True)
class Unknown:
    """Not known in this walk; ``cells`` are what it waits for."""

    cells: tuple[Cell, ...] = ()


@dataclass(slots=True, eq=False)
class BareBuffer:
    """``tshared.alloc`` without arguments: the first store says what it holds."""

    span: Span
    name: str
    dtype: DType | None = None
    decided: Span | None = None
    seen: bool = False  # a store was seen in this walk
    waits: tuple[Cell, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenBuffer:
    """A bare shared buffer before its first store was typed."""

    buffer: BareBuffer


Term = Type | Open | Unknown | OpenBuffer


def default_dtype(kind: LiteralKind, floats: DType = F32) -> DType:
    """What a literal is that meets nothing typed."""
    return INDEX if kind == "int" else floats


def accepts(kind: LiteralKind, dtype: DType, wide: bool = False) -> bool:
    """Whether a literal of this kind may take this type at all; ``wide``: beside a size."""
    if wide:
        return dtype in (F32, F64)
    return dtype.is_float or (kind == "int" and dtype.is_integer)


@dataclass(slots=True)
class Cells:
    """All cells of one function; ``changed`` says that another walk may learn more. ``floats``:
    what floats are that meet nothing typed, f64 where all arrays of floats are f64. ``has_floats``:
    whether anything that the function takes or gives is of floats."""

    all: list[Cell]
    changed: bool = False
    floats: DType = F32
    has_floats: bool = True

    def new(self, kind: LiteralKind, wide: bool = False) -> Cell:
        cell = Cell(kind, wide)
        self.all.append(cell)
        self.changed = True
        return cell

    def fix(self, cell: Cell, dtype: DType, span: Span | None) -> None:
        """A typed value was met."""
        root = cell.root()
        if root.dtype is None and accepts(root.kind, dtype, root.wide):
            root.dtype, root.met = dtype, span
            self.changed = True

    def widen(self, cell: Cell, kind: LiteralKind) -> None:
        """A float literal was met."""
        root = cell.root()
        if kind == "float" and root.kind == "int" and root.dtype is None:
            root.kind = "float"
            self.changed = True

    def unify(self, a: Cell, b: Cell) -> Cell:
        """Two open values met: they will have one type."""
        x, y = a.root(), b.root()
        if x is y:
            return x
        if x.dtype is not None and y.dtype is not None:
            return x
        if x.dtype is None and y.dtype is not None:
            x, y = y, x
        if x.dtype is None and y.kind == "float":
            x.kind = "float"
        x.wide = x.wide or y.wide
        y.parent = x
        self.changed = True
        return x

    def default(self, cells: tuple[Cell, ...]) -> None:
        """Give cells that met nothing their own type."""
        for cell in cells:
            root = cell.root()
            if root.dtype is None:
                root.dtype = default_dtype(root.kind, self.floats)
                self.changed = True

    @property
    def open(self) -> tuple[Cell, ...]:
        return tuple(c for c in self.all if c.root().dtype is None)
