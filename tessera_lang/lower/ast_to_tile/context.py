"""The state of one lowering: current function, variables, loops, fault sites.

Owns ``Lowering`` and how variables are held. Expressions and statements lower each other
through ``expression`` and ``block``, which ``ast_to_tile`` sets. Must not know what any
node means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeAlias

from tessera_lang.diagnostics import Diagnostic, Sink
from tessera_lang.ir.core import IRType, Operation, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.record import dataclass, field
from tessera_lang.sema.side_tables import Local, TypedFunction
from tessera_lang.source import SourceFile, Span
from tessera_lang.syntax import ast
from tessera_lang.target.launch_plan import Condition, FaultSite, PrintText
from tessera_lang.types.dtype import F32, INDEX, DType
from tessera_lang.types.type import Buffer, Scalar, TupleType, Type, Weak

Bound: TypeAlias = "Value | tuple[Bound, ...]"
"""What a variable holds: a scalar, array or buffer, or a tuple of such."""

SiteKind = Literal["read", "write", "atomic", "division", "step", "assert"]


class Unsupported(Exception):
    """A construct that lane kernels do not have yet; becomes T0490 at its statement."""

    def __init__(self, span: Span, what: str, help_text: str = "") -> None:
        self.span = span
        self.what = what
        self.help_text = help_text
        super().__init__(what)


@dataclass(frozen=True, slots=True)
class ElementLoop:
    """A nest of loops over the elements of a slice that is reduced, which the lanes of a group may
    share. What it carries begins with what changes nothing. ``most``: elements along each axis at
    most, outermost first, None where that is open."""

    operation: Operation
    kind: str
    most: tuple[int | None, ...]


@dataclass(slots=True)
class Frame:
    """A function that is being lowered; an inlined one has a frame of its own.

    ``style``: what ``return`` becomes: the end of the lane, the result of the frame (a
    single trailing one), or ``tile.leave``. ``depth`` counts the loops opened in it. ``uses``: how
    often variables are named in statements that were asked about. ``loose``: tiles whose extents
    change in a loop.
    """

    typed: TypedFunction
    style: Literal["kernel", "direct", "scope"]
    variables: dict[Local, Bound] = field(default_factory=dict[Local, Bound])
    result: Bound = ()
    depth: int = 0
    uses: dict[ast.Stmt, dict[Local, int]] = field(
        default_factory=dict["ast.Stmt", "dict[Local, int]"]
    )
    loose: dict[ast.Stmt, frozenset[Local]] = field(
        default_factory=dict["ast.Stmt", "frozenset[Local]"]
    )


@dataclass(slots=True)
class Lowering:
    """Everything that one kernel's lowering changes as it goes."""

    frame: Frame
    sources: Mapping[str, SourceFile]
    expression: Callable[[Lowering, ast.Expr], Bound]
    block: Callable[[Lowering, tuple[ast.Stmt, ...]], None]
    builder: Builder = field(default_factory=Builder)
    sink: Sink = field(default_factory=Sink)
    sites: list[FaultSite] = field(default_factory=list[FaultSite])
    prints: list[PrintText] = field(default_factory=list[PrintText])
    loops: list[tuple[Local, ...]] = field(default_factory=list[tuple[Local, ...]])
    allocations: list[Operation] = field(default_factory=list[Operation])
    conditions: list[Condition] = field(default_factory=list[Condition])
    element_loops: list[ElementLoop] = field(default_factory=list[ElementLoop])
    sizes: dict[Value, tuple[Value, ...]] = field(default_factory=dict[Value, tuple[Value, ...]])
    pointers: dict[Value, Value] = field(default_factory=dict[Value, Value])  # of parameters' views
    tables: dict[tuple[tuple[int | float, ...], DType], Value] = field(
        default_factory=dict[tuple[tuple[int | float, ...], DType], Value]
    )
    symbols: dict[str, Value] = field(default_factory=dict[str, Value])
    group: tuple[int, ...] = (1,)
    lanes: bool = False  # of a lane kernel
    assigned_name: str = ""
    hook: Callable[[Lowering, ast.Expr], Bound | None] | None = None
    """Looks at an expression first; None leaves it to the lanes' own rules."""

    # --- types ------------------------------------------------------------------------------

    def type_of(self, node: ast.Expr) -> Type:
        """The type sema gave a node; a literal that met nothing is ``index`` or ``f32``."""
        t = self.frame.typed.types[node]
        if isinstance(t, Weak):
            return Scalar(INDEX if t.kind == "int" else F32)
        return t

    def dtype_of(self, node: ast.Expr) -> DType:
        """The dtype of a scalar expression, before the conversion where it is used."""
        t = self.type_of(node)
        if not isinstance(t, Scalar):
            raise Unsupported(node.span, f"a value of type {t} here")
        return t.dtype

    # --- positions --------------------------------------------------------------------------

    def text(self, span: Span) -> str:
        """The source text of a span on one line; empty where the file is not at hand."""
        source = self.sources.get(span.file)
        return "" if source is None else " ".join(source.text[span.lo : span.hi].split())

    def position(self, span: Span) -> tuple[str, int, int]:
        """File, line and column (from 1); line 0 where the file is not at hand."""
        source = self.sources.get(span.file)
        if source is None:
            return span.file, 0, 0
        line, column = source.position(span.lo)
        return span.file, line + 1, column + 1

    def site(self, kind: SiteKind, span: Span, what: str, *, shown: str = "") -> int:
        """The number of a new fault site; it is shown as its source text if not otherwise."""
        file, line, column = self.position(span)
        self.sites.append(FaultSite(kind, shown or self.text(span) or what, file, line, column))
        return len(self.sites) - 1

    # --- reports ----------------------------------------------------------------------------

    def report(self, fault: Unsupported) -> None:
        helps = (fault.help_text,) if fault.help_text else ()
        message = f"lane kernels do not have {fault.what} yet"
        self.sink.add(Diagnostic("T0490", message, fault.span, "not supported", helps=helps))


# --- variables as lists of values ---------------------------------------------------------


def flatten(bound: Bound) -> Iterator[Value]:
    """The values in a variable, left to right."""
    if isinstance(bound, Value):
        yield bound
    else:
        for item in bound:
            yield from flatten(item)


def rebuild(like: Bound, values: Iterator[Value]) -> Bound:
    """``like`` with other values in the same places."""
    if isinstance(like, Value):
        return next(values)
    return tuple(rebuild(item, values) for item in like)


def is_scalar(bound: Bound) -> bool:
    """Whether only numbers are held: what may be chosen by control flow."""
    return all(isinstance(v.type, DType) for v in flatten(bound))


def flat_types(t: Type | None) -> tuple[IRType, ...]:
    """Types of the values that a result of this type is made of."""
    match t:
        case Scalar():
            return (t.dtype,)
        case Weak():
            return (INDEX if t.kind == "int" else F32,)
        case TupleType():
            return tuple(inner for item in t.items for inner in flat_types(item))
        case _:
            return ()


def zero(builder: Builder, t: Type) -> Bound | None:
    """A value for a variable whose value is never read; None for arrays."""
    match t:
        case Scalar():
            return builder.constant(0, t.dtype)
        case Weak():
            return builder.constant(0, INDEX if t.kind == "int" else F32)
        case TupleType():
            items = [zero(builder, item) for item in t.items]
            return None if None in items else tuple(i for i in items if i is not None)
        case Buffer():
            return None
        case _:
            return None


def named(builder: Builder, value: Value, name: str) -> Value:
    """``value`` with a printing hint, where it was built just now and has none.

    The hint is put into the value itself, frozen as it is: other variables may hold it already, so
    a copy under a name would leave them with a value that no operation gives.
    """
    operations = builder.current.operations
    if not value.name and operations and operations[-1].results == (value,):
        object.__setattr__(value, "name", name)
    return value
