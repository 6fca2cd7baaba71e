"""The state of a walk over a tile kernel or a function inlined into one.

Owns what is added to the lanes' ``Context``: the values that names have at a point of the walk
(``env``), the loops around it, and what the whole kernel shares. Must not know how a construct
is typed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tessera_lang.record import dataclass, field, replace
from tessera_lang.sema.context import Context, Shared, Variable
from tessera_lang.sema.inference_types import Term, Unknown
from tessera_lang.sema.side_tables import Agreement, Directive, Multiple, TypedFunction
from tessera_lang.sema.tile.facts import Facts
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.syntax.view_mutation_help import NamedSlice
from tessera_lang.types.dtype import F32, I32, DType
from tessera_lang.types.shape import Dim, Sym, symbols_of
from tessera_lang.types.type import ERROR, Scalar, Tile, TileAxis, Weak

Value = Dim | tuple[TileAxis, ...]
"""What a name is worth now: an integer as a size, a tile as its axes."""


Bounds = tuple[Dim, Dim]
"""Least and greatest value of integers, made of sizes."""
Instance = tuple[tuple[str, str], ...]
"""Of an inlined function: what its parameters hold, by their names."""


@dataclass(slots=True, eq=False)
class OpenTile:
    """A tile whose dtype the first typed value decides (``op.zeros`` without one).

    ``default`` is what it takes when it meets none. ``literal``: it is chosen from literals, which
    are computed in f32 beside narrower floats. ``joined``: another one, which it has met.
    """

    name: str
    span: Span
    default: DType
    literal: bool = False
    dtype: DType | None = None
    wide: bool = False
    met: Span | None = None
    joined: OpenTile | None = None

    def root(self) -> OpenTile:
        tile = self
        while tile.joined is not None:
            tile = tile.joined
        return tile

    def accepts(self, dtype: DType) -> bool:
        """Whether it may take this dtype at all."""
        if not self.literal:
            return True
        return dtype.is_float or (self.default.is_integer and dtype.is_integer)


@dataclass(frozen=True, slots=True)
class ArrayReference:
    """A read or write of an array: where, and in which loops."""

    array: str
    span: Span
    loops: tuple[ast.Stmt, ...]


@dataclass(slots=True, eq=False)
class Accumulation:
    """``C[s] += e``: the loops whose variables ``s`` does not use make one sum."""

    array: str
    target: ast.Expr
    span: Span
    outermost: ast.Stmt


@dataclass(slots=True, eq=False)
class Loop:
    """A loop around the statement that is checked: its variables by their names in extents,
    whether it is an ``op.tile_range``, and what names are worth where a round is cut short
    (``nexts``) or the loop is left (``breaks``)."""

    statement: ast.Stmt
    names: tuple[str, ...]
    over_tiles: bool = False
    nexts: list[dict[str, Value]] = field(default_factory=list["dict[str, Value]"])
    breaks: list[dict[str, Value]] = field(default_factory=list["dict[str, Value]"])


@dataclass(slots=True, eq=False)
class Kernel:
    """What a kernel and the functions inlined into it share over all walks."""

    facts: Facts
    lanes: Shared
    origins: dict[str, tuple[str, int]]  # the axis that binds a size
    agreements: dict[tuple[Dim, Dim], Agreement] = field(
        default_factory=dict[tuple[Dim, Dim], Agreement]
    )
    open: dict[tuple[ast.Expr, int], str] = field(default_factory=dict[tuple[ast.Expr, int], str])
    scopes: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    room: dict[str, int] = field(default_factory=dict[str, int])
    wraps: set[str] = field(default_factory=set[str])  # at least 0, unless too large for its dtype
    tiles: dict[tuple[ast.Expr, Instance], OpenTile] = field(
        default_factory=dict["tuple[ast.Expr, Instance]", OpenTile]
    )
    fresh: dict[tuple[object, str], str] = field(default_factory=dict[tuple[object, str], str])
    # Extents that a loop changes from one size to another, which may be equal.
    kept: dict[str, tuple[Dim, Dim]] = field(default_factory=dict[str, "tuple[Dim, Dim]"])
    one_size: set[str] = field(default_factory=set[str])  # those that the launch holds equal
    # What is stored into arrays that are filled with a whole number and have no dtype.
    filled: dict[str, DType] = field(default_factory=dict[str, DType])
    needed: dict[tuple[str, int], Span] = field(default_factory=dict[tuple[str, int], Span])
    whole: dict[tuple[str, int], None] = field(default_factory=dict[tuple[str, int], None])
    # Sizes of the last axes of whole arrays that are reduced, and that one element is stretched
    # along: what is both has rows that are needed several times.
    reduced: set[str] = field(default_factory=set[str])
    stretched: set[str] = field(default_factory=set[str])
    parts: bool = False  # it takes parts of axes, or multiplies: long axes are to be cut
    carried: bool = False  # a loop changes a tile that has a long axis, which it then must hold
    elements: set[str] = field(default_factory=set[str])  # of arrays, in extents
    changed: bool = False
    multiples: tuple[Multiple, ...] = ()
    numbers: dict[str, DType] = field(default_factory=dict[str, DType])  # of the call, in extents
    bounds: dict[tuple[ast.Expr, Instance, bool], Bounds | None] = field(
        default_factory=dict["tuple[ast.Expr, Instance, bool]", "Bounds | None"]
    )  # of what a variable takes at each of its places
    results: tuple[tuple[DType, tuple[Dim, ...]], ...] = ()
    # Of an inlined function: the parameters that it reads, and those that it writes.
    touched: dict[TypedFunction, tuple[frozenset[str], frozenset[str]]] = field(
        default_factory=dict[TypedFunction, tuple[frozenset[str], frozenset[str]]]
    )
    callers: list[TileContext] = field(default_factory=lambda: list["TileContext"]())
    # Calls and subscripts with the text that they stand for and its tree; names in such trees with
    # the arguments that they stand for.
    roomless: set[tuple[str, Span | None, int]] = field(
        default_factory=set["tuple[str, Span | None, int]"]
    )  # variables and their axes that hold a value without room in a loop, and so from their begin
    in_order: dict[ast.AugmentedAssign, ast.Binary] = field(
        default_factory=dict[ast.AugmentedAssign, ast.Binary]
    )  # what is stored where a sum goes in order
    masked: dict[ast.Stmt, ast.Assign] = field(
        default_factory=dict["ast.Stmt", ast.Assign]
    )  # what stands for a store into what bools choose
    in_place: dict[ast.AugmentedAssign, tuple[ast.AugmentedAssign, ast.Subscript]] = field(
        default_factory=dict[ast.AugmentedAssign, "tuple[ast.AugmentedAssign, ast.Subscript]"]
    )  # what stands for a sum into a name of an array, and its place
    filled_in_place: dict[ast.Assign, ast.Assign] = field(
        default_factory=dict[ast.Assign, ast.Assign]
    )  # what stands for another value of such a name
    expanded: dict[ast.Expr, tuple[str, ast.Expr]] = field(
        default_factory=dict[ast.Expr, "tuple[str, ast.Expr]"]
    )
    stands: dict[ast.Name, ast.Expr] = field(default_factory=dict[ast.Name, ast.Expr])
    shapes: dict[ast.Call, tuple[Dim, ...]] = field(
        default_factory=dict[ast.Call, "tuple[Dim, ...]"]
    )  # of arrays seen with other sizes, as they were named first


def _none() -> Kernel:
    raise AssertionError("a tile context is made with its kernel")


@dataclass(slots=True, eq=False)
class TileShared(Shared):
    """``Shared`` of a tile kernel; ``kernel.callers`` are the bodies that are being checked."""

    kernel: Kernel = field(default_factory=_none)


@dataclass(slots=True, eq=False)
class TileContext(Context):
    """``prefix`` stands before the names of an inlined function's variables."""

    kernel: Kernel = field(default_factory=_none)
    prefix: str = ""
    instance: Instance = ()
    env: dict[str, Value] = field(default_factory=dict[str, Value])
    loops: list[Loop] = field(default_factory=list[Loop])
    terms: dict[ast.Expr, Term] = field(default_factory=dict[ast.Expr, Term])
    negative: set[str] = field(default_factory=set[str])
    wide: set[Variable] = field(default_factory=set["Variable"])
    valued: set[Variable] = field(default_factory=set["Variable"])  # given an array, hold its value
    heads: dict[tuple[ast.Stmt, str], tuple[TileAxis, ...]] = field(
        default_factory=dict[tuple[ast.Stmt, str], tuple[TileAxis, ...]]
    )
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    slices: dict[str, NamedSlice] = field(default_factory=dict[str, NamedSlice])
    results: dict[str, ast.Call] = field(default_factory=dict[str, ast.Call])
    directives: list[Directive] = field(default_factory=list[Directive])
    reads: list[ArrayReference] = field(default_factory=list[ArrayReference])
    writes: list[ArrayReference] = field(default_factory=list[ArrayReference])
    reshaped: list[tuple[str, Span]] = field(default_factory=list["tuple[str, Span]"])
    sums: list[Accumulation] = field(default_factory=list[Accumulation])
    products: int = 0
    ranks: list[int] = field(default_factory=list[int])
    returns_declared: tuple[tuple[DType, tuple[Dim, ...]], ...] | None = None
    returned: tuple[tuple[DType, tuple[Dim, ...]] | None, ...] | None = None  # at the first place
    branches: int = 0  # run-time branches around the statement
    told: tuple[Dim, ...] = ()  # at least 0, say the tests of those branches
    worth: Callable[[TileContext, ast.Expr], Dim] = lambda c, e: 0  # set with ``infer``
    counts: Callable[[TileContext, str], bool] = lambda c, name: False  # likewise
    fits: Callable[[TileContext, ast.Expr, DType], bool] = lambda c, e, dtype: False
    bounds: dict[tuple[str, bool], Bounds] = field(
        default_factory=dict["tuple[str, bool]", "Bounds"]
    )  # of variables
    given: dict[str, Dim] = field(default_factory=dict[str, Dim])  # integers of the call in check
    place: bool = False  # the expression to be typed is a bound of a slice
    left: bool = False  # control does not come behind the statement just checked
    outer: frozenset[str] = frozenset()  # loop variables of the caller
    beginnings: frozenset[ast.Name] = frozenset()  # targets whose uses meet none of those before
    several: dict[str, list[Variable]] = field(default_factory=dict[str, "list[Variable]"])
    filled_again: dict[tuple[ast.FunctionDef, str], tuple[ast.Name, ...]] = field(
        default_factory=dict["tuple[ast.FunctionDef, str]", "tuple[ast.Name, ...]"]
    )
    made_again: dict[ast.FunctionDef, frozenset[str]] = field(
        default_factory=dict[ast.FunctionDef, frozenset[str]]
    )
    stored: dict[ast.FunctionDef, frozenset[str]] = field(
        default_factory=dict[ast.FunctionDef, "frozenset[str]"]
    )  # names that a function stores into, asked at each assignment

    def functions(self) -> Shared:
        return self.kernel.lanes

    @property
    def inlined(self) -> bool:
        return bool(self.prefix)

    def every_variable(self) -> list[Variable]:
        """A name that begins anew with another type has several."""
        again = [v for found in self.several.values() for v in found]
        return [*(v for v in self.variables.values() if v not in again), *again]

    # --- names in extents --------------------------------------------------------------

    def full(self, name: str) -> str:
        """The name of a local in extents."""
        return f"{self.prefix}{name}"

    def fresh(
        self, key: object, hint: str, *, negative: bool = True, inside: tuple[str, ...] = ()
    ) -> Dim:
        """A value that only the run knows; the same for the same key in every walk. It may be
        another in each round of the loops around, and of one with the variables ``inside``."""
        found = self.kernel.fresh.get((key, hint))
        if found is None:
            found = f"{hint}@{len(self.kernel.fresh) + 1}"
            self.kernel.fresh[(key, hint)] = found
            self.kernel.scopes[found] = self.in_scope().union(inside)
        if negative:
            self.kernel.facts.least.pop(found, None)
        else:
            self.kernel.facts.least[found] = 0
        return Sym(found)

    def in_scope(self) -> frozenset[str]:
        """Names of the loop variables around."""
        return self.outer.union(n for loop in self.loops for n in loop.names)

    # --- open extents and dtypes -------------------------------------------------------

    def open_extent(self, e: ast.Expr, axis: int, capacity: int) -> Dim:
        """The extent of an ``op.zeros`` tile: what it met, or a name that waits."""
        if capacity == 1:
            return 1  # which stretches along what it meets
        key = (e, axis)
        if key not in self.kernel.open:
            name = f"?{len(self.kernel.open) + 1}"
            self.kernel.open[key] = name
            self.kernel.scopes[name] = self.in_scope()
            self.kernel.room[name] = capacity
        return self.kernel.facts.resolve(Sym(self.kernel.open[key]))

    def is_size(self, e: ast.Expr) -> bool:
        if e in self.kernel.expanded:
            e = self.kernel.expanded[e][1]
        if self.terms.get(e) == Scalar(I32):
            return self.fits(self, e, F32)
        made_of_sizes = all(self.counts(self, n) for n in symbols_of(self.worth(self, e)))
        return made_of_sizes or self.fits(self, e, F32)

    def narrows(self, e: ast.Expr, dtype: DType) -> bool:
        return self.fits(self, e, dtype)

    def is_open(self, dim: Dim | None) -> bool:
        return isinstance(dim, Sym) and dim.name.startswith("?")

    def settle_open(self) -> bool:
        """Give open extents their capacity and open dtypes their default. True: some were."""
        facts = self.kernel.facts
        some = False
        for name in self.kernel.open.values():
            if name not in facts.equal:
                facts.equal[name] = self.kernel.room[name]
                some = True
        waiting = [t for t in self.kernel.tiles.values() if t.root() is t and t.dtype is None]
        floats = [t for t in waiting if t.default.is_float]
        for tile in floats or waiting:  # integers may still meet one of the floats
            tile.dtype = tile.default
            some = True
        return some

    def shown(self, tile: Tile) -> Tile:
        """A tile with what is known put into its extents."""
        axes = tuple(
            a if a.extent is None else TileAxis(a.capacity, self.kernel.facts.simplify(a.extent))
            for a in tile.axes
        )
        return replace(tile, axes=axes)

    # --- tables ------------------------------------------------------------------------

    def note(self, e: ast.Expr, term: Term) -> Term:
        if self.final and isinstance(term, Tile):
            term = self.shown(term)
        self.terms[e] = term
        return Context.note(self, e, term)

    def convert(self, e: ast.Expr, tile: Tile) -> None:
        """An implicit read or conversion of a tile."""
        if self.final:
            self.typed.coercions[e] = self.shown(tile)

    def call_key(self, arguments: Mapping[str, ast.Expr | None]) -> tuple[object, ...]:
        """What integers are worth, since a function slices by those it is given; and whether it
        is reached once, since it may make arrays then."""
        self.given = {}
        for name, e in arguments.items():
            term = None if e is None else self.terms.get(e)
            integer = isinstance(term, Scalar) and term.dtype.is_integer
            if e is not None and (integer or (isinstance(term, Weak) and term.kind == "int")):
                self.given[name] = self.worth(self, e)
        return (*self.given.items(), self.reached_once)

    @property
    def reached_once(self) -> bool:
        """Whether no loop and no condition of the run stands around, nor around a call."""
        return not any(x.loops or x.branches for x in (self, *self.kernel.callers))

    @property
    def in_tile_loop(self) -> bool:
        """Whether a loop over tiles stands around, or around a call."""
        return any(loop.over_tiles for x in (self, *self.kernel.callers) for loop in x.loops)

    def nothing(self) -> Term:
        """The term of what this walk cannot type: the next one may; in the last it is an error."""
        return ERROR if self.final else Unknown()


def variable_type(c: TileContext, v: Variable, term: Term) -> Term:
    """A variable's type with the extents it has now."""
    if not isinstance(term, Tile):
        return term
    axes = c.env.get(v.local.name)
    tile = replace(term, axes=axes) if isinstance(axes, tuple) else term
    return replace(tile, wide=True) if v in c.wide else tile


def register_dtype(tile: Tile) -> DType:
    """The dtype of the bits."""
    return F32 if tile.wide else tile.dtype


def scalar_of(tile: Tile) -> Scalar:
    return Scalar(tile.dtype)
