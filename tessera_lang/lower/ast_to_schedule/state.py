"""The state of one lowering of a tile kernel, beside that of the lanes' own lowering.

Owns variables that hold tiles or views, versions of arrays, and the values of symbolic sizes.
Must not know what any node of the syntax means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tessera_lang.diagnostics import Diagnostic, Label
from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule.axis_loops import Nests
from tessera_lang.lower.ast_to_schedule.demand_driven_evaluation import Demand, NeedsMemory
from tessera_lang.lower.ast_to_schedule.early_exits import Leaving
from tessera_lang.lower.ast_to_schedule.emitter import Emitter
from tessera_lang.lower.ast_to_schedule.liveness import Liveness
from tessera_lang.lower.ast_to_schedule.scratch_arrays import ScratchArrays
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Axis,
    Filled,
    Held,
    Node,
    Read,
    replaced,
    walk,
)
from tessera_lang.lower.ast_to_tile.context import Bound, Frame, Lowering, Unsupported
from tessera_lang.record import dataclass, field
from tessera_lang.sema.side_tables import Local, TypedFunction
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F32, INDEX, DType
from tessera_lang.types.shape import Dim, symbols_of
from tessera_lang.types.type import Tile, TileAxis, Type

T = TypeVar("T")


@dataclass(slots=True)
class Write:
    """How often an array was written so far, and where last."""

    count: int = 0
    span: Span | None = None


@dataclass(slots=True, eq=False)
class State:
    """``results`` are views of what the kernel returns, ``result_of`` variables that are one,
    ``zeroed`` the numbers of those that are 0 when the kernel begins."""

    low: Lowering
    b: Emitter
    on_node: Callable[[State, ast.Expr], Node]
    on_evaluate: Callable[[State, ast.Expr], Node | Bound]
    on_block: Callable[[State, tuple[ast.Stmt, ...]], None]
    on_keep: Callable[[State, Node, Span, str, Sequence[Value] | None], Node | None]
    tiles: dict[Local, Node] = field(default_factory=dict[Local, Node])
    writes: dict[Value, Write] = field(default_factory=dict[Value, Write])
    results: list[Value] = field(default_factory=list[Value])
    result_of: dict[Local, Value] = field(default_factory=dict[Local, Value])
    own: dict[Local, Value] = field(default_factory=dict[Local, Value])
    """Arrays that only the kernel sees, also behind the loop or condition that makes them."""
    zeroed: frozenset[int] = frozenset()
    private: ScratchArrays | None = None
    carried: dict[Local, Node] = field(default_factory=dict[Local, Node])
    """Variables that the loops around change, as reads of the arrays that hold them."""
    tile_loops: int = 0  # around what is lowered
    keeping: set[int] = field(default_factory=set[int])  # nodes that are being stored so
    later: frozenset[Local] = frozenset()  # variables that what follows the statement needs
    bound_in: dict[Local, object] = field(default_factory=dict[Local, object])
    """Of variables of values the region in which they were bound last."""
    below: dict[Value, tuple[Value, Value]] = field(
        default_factory=dict[Value, tuple[Value, Value]]
    )  # loop variables with their bounds
    frames: list[Frame] = field(default_factory=list[Frame])
    lives: dict[TypedFunction, Liveness] = field(default_factory=dict[TypedFunction, Liveness])
    stages: int | None = None  # of the pipeline around
    double_buffer: bool | None = None
    leaving: list[Leaving] = field(default_factory=list[Leaving])  # the innermost is the last
    made: Nests | None = None
    rooms: dict[Value, Axis] = field(default_factory=dict[Value, Axis])  # of sizes with a bound
    given: dict[ast.Expr, Node] = field(default_factory=dict[ast.Expr, Node])
    """Arguments that the expression a call stands for uses several times."""
    seen: dict[Value, tuple[Value, tuple[int, ...]]] = field(
        default_factory=dict["Value", "tuple[Value, tuple[int, ...]]"]
    )
    """Of a view with merged axes that of the array, and how many of its axes each axis is."""
    ways: dict[tuple[Value, int], tuple[int, ...]] = field(
        default_factory=dict["tuple[Value, int]", "tuple[int, ...]"]
    )
    """How an array is seen with so many axes."""
    made_for: dict[Value, int] = field(default_factory=dict[Value, int])
    """Sizes that are numbers in every launch of the code."""

    def node(self, e: ast.Expr) -> Node:
        """An expression as a node; a number has rank 0."""
        return self.on_node(self, e)

    def evaluate(self, e: ast.Expr) -> Node | Bound:
        """A node for what is a tile or an array, else the lanes' value."""
        return self.on_evaluate(self, e)

    def block(self, statements: tuple[ast.Stmt, ...]) -> None:
        self.on_block(self, statements)

    @property
    def nests(self) -> Nests:
        if self.made is None:
            self.made = Nests(self.b, self._stale)
        return self.made

    @property
    def demand(self) -> Demand:
        return self.nests.demand

    @property
    def typed(self) -> TypedFunction:
        return self.low.frame.typed

    @property
    def live(self) -> Liveness:
        typed = self.typed
        if typed not in self.lives:
            self.lives[typed] = Liveness(typed).run()
        return self.lives[typed]

    # --- arrays -------------------------------------------------------------------------------

    def number_of(self, size: Value) -> int | None:
        """The number that a size is, or that the code is made for."""
        known = self.b.known(size)
        return self.made_for.get(size) if known is None else known

    def merged_view(self, view: Value, dim: int) -> Value | None:
        """An array with one axis in place of ``dim`` and the next; None where it is seen otherwise
        with as many axes, as accesses are compared axis by axis."""
        base, of = self.seen.get(view, (view, (1,) * len(self.low.sizes[view])))
        merged = (*of[:dim], of[dim] + of[dim + 1], *of[dim + 2 :])
        if self.ways.setdefault((base, len(merged)), merged) != merged:
            return None
        sizes = self.low.sizes[view]
        known = [(n, self.number_of(n)) for n in sizes[dim : dim + 2]]
        both = self.b.arithmetic("mul", *(n if k is None else self.b.number(k) for n, k in known))
        sizes = (*sizes[:dim], both, *sizes[dim + 2 :])
        made = self.b.merged(base, sizes, merged)
        self.seen[made] = base, merged
        self.low.sizes[made] = sizes
        return made

    def version(self, view: Value) -> int:
        view, _ = self.seen.get(view, (view, ()))
        return self.writes.setdefault(view, Write()).count

    def wrote(self, view: Value, span: Span | None) -> None:
        self.writes.setdefault(view, Write())
        now = self.writes[view]
        self.writes[view] = Write(now.count + 1, span)

    def joined_writes(self, before: dict[Value, Write], other: dict[Value, Write]) -> None:
        """Behind a condition: what a side of it wrote is what it was on neither side."""
        for view in {*self.writes, *other}:
            sides = [w.get(view, Write()) for w in (other, self.writes)]
            if any(w.count != before.get(view, Write()).count for w in sides):
                last = max(sides, key=lambda w: w.count)
                self.writes[view] = Write(last.count + 1, last.span)

    def _stale(self, node: Read) -> None:
        """A whole-tensor value is computed where it is used: its arrays must be as they were."""
        view, _ = self.seen.get(node.view, (node.view, ()))
        now = self.writes.get(view)
        if now is None or now.count == node.version:
            return
        name = node.view.name
        labels = (Label(now.span, "written here"),) if now.span is not None else ()
        raise Refused(
            Diagnostic(
                "T0702",
                f"`{name}` is written before a value made of it is used",
                node.span,
                "this value is computed where it is used",
                labels=labels,
                helps=(
                    "use the value in front of the write, or compute it in front of the loop over"
                    " tiles around it",
                ),
            )
        )

    # --- sizes --------------------------------------------------------------------------------

    def dim(self, dim: Dim | None) -> Value | None:
        """The value of a size of sema's; None where one of its names is known to the run only."""
        if dim is None:
            return None
        names: dict[str, Value] = {}
        for name in symbols_of(dim):
            found = self.lookup(name)
            if found is None:
                return None
            names[name] = found
        return self.b.dim(dim, names)

    def lookup(self, name: str) -> Value | None:
        if name in self.low.symbols:
            return self.low.symbols[name]
        if "@" in name or "?" in name:
            return self._known_to_the_run(name)
        function, _, local = name.rpartition(".")
        function = function.rpartition(".")[2]
        for frame in reversed(self.frames):
            if function and frame.typed.declaration.name != function:
                continue
            if not function and frame is not self.frames[0]:
                continue
            for variable, value in frame.variables.items():
                if variable.name == local and isinstance(value, Value) and value.type == INDEX:
                    return value
            return None
        return None

    def _known_to_the_run(self, name: str) -> Value | None:
        """The variable that a name in extents stands for."""
        for frame in reversed(self.frames):
            local = frame.typed.worth.get(name)
            value = None if local is None else frame.variables.get(local)
            if isinstance(value, Value) and isinstance(value.type, DType):
                return self.b.cast(value, INDEX)
        return None

    def axis(self, axis: TileAxis, otherwise: Value | None = None) -> Axis:
        """An axis of sema's; ``otherwise`` is its extent where sema's is known to the run only."""
        extent = self.dim(axis.extent)
        if extent is None:
            extent = otherwise
        if extent is None:
            if axis.capacity is None:
                raise ValueError("an axis of which nothing is known")
            extent = self.b.number(axis.capacity)
        return Axis(extent, axis.capacity)

    # --- values in memory ---------------------------------------------------------------------

    def keep(
        self,
        node: Node,
        span: Span,
        name: str = "kept",
        room: Sequence[Value] | None = None,
    ) -> Node | None:
        """A value stored into an array of the call now, as a read of it; None where it cannot.
        ``name``: of the array in messages."""
        return self.on_keep(self, node, span, name, room)

    def computed(self, node: Node, compute: Callable[[Node], T]) -> T:
        """What ``compute`` gives for a node; what can only be read from memory is stored first."""
        before = dict(self.demand.before)
        while True:
            try:
                return compute(node)
            except NeedsMemory as need:
                self.demand.before = dict(before)
                kept = self.keep(need.node, need.span)
                if kept is None or not any(n is need.node for n in walk(node)):
                    raise
                node = replaced(node, need.node, kept)

    # --- variables ------------------------------------------------------------------------------

    def held(self, node: Node, span: Span) -> Held:
        """A node computed now."""
        if any(a.capacity is None for a in node.axes):
            what = "a whole-tensor value that a loop carries or a condition chooses"
            raise Unsupported(span, what, "store it into an array")
        return self.demand.held(node)

    def view(self, node: ast.Expr) -> Value | None:
        """The array that a name is, where it is one."""
        symbol = self.typed.symbols.get(node)
        if not isinstance(symbol, Local):
            return None
        value = self.low.frame.variables.get(symbol, self.own.get(symbol))
        return value if isinstance(value, Value) else None

    def array(self, node: ast.Expr) -> Value | None:
        """The array that a name is, or that it is a part of as a parameter."""
        while isinstance(node, ast.Name) and node in self.typed.stands:
            node = self.typed.stands[node]
        symbol = self.typed.symbols.get(node)
        part = self.tiles.get(symbol) if isinstance(symbol, Local) else None
        return part.view if isinstance(part, Read) else self.view(node)

    def scalar(self, value: Value, dtype: DType) -> Filled:
        return Filled(value, dtype, ())


class Refused(Exception):
    """A program that is wrong at this level; carries what is said about it."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic
        super().__init__(diagnostic.message)


def register_dtype(t: Type | None) -> DType | None:
    """The dtype of the bits of a tile or scalar."""
    if isinstance(t, Tile):
        return F32 if t.wide else t.dtype
    dtype = getattr(t, "dtype", None)
    return dtype if isinstance(dtype, DType) else None
