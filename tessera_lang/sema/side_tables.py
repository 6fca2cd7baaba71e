"""What sema hands on: types, meanings and conversions in side tables keyed by node.

The contract between ``sema`` (writes it), ``lower`` (reads it) and the editor (reads it).
A generic function is checked once per signature; each instance has tables of its own.
"""

from __future__ import annotations

from typing import Literal

from tessera_lang.record import dataclass, field
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DType
from tessera_lang.types.shape import Dim
from tessera_lang.types.type import Type

# --- signatures: what an instance is compiled for ------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """An array argument: dtype, rank and the launch facts that select the variant.

    The further facts are asked for by tile kernels only, else empty. ``sizes``: the size of each
    axis where the kernel is compiled for it, else None (only what ``TileInfo.needed`` names is
    given). ``hints``: a size of the same class for each axis (the schedule is chosen for it; it is
    never relied on). ``divisors``: a power of two, at most 128, that divides each size.
    ``unit``: the axis of stride 1 (-1: none); ``pitches``: whether every other stride is a
    multiple of 16 bytes.
    """

    dtype: DType
    rank: int
    contiguous: bool = True
    aligned: bool = False
    sizes: tuple[int | None, ...] = ()
    hints: tuple[int, ...] = ()
    divisors: tuple[int, ...] = ()
    unit: int = -1
    pitches: bool = False
    buckets: tuple[int | None, ...] = ()  # a bound of each size that holds (`TileInfo.whole`)
    small: bool = False  # see `target.plan.is_small`; told to lane kernels
    value: bool = False  # a `const` array that a launch on a GPU takes by value, row-major


@dataclass(frozen=True, slots=True)
class ScalarArgument:
    dtype: DType


@dataclass(frozen=True, slots=True)
class ConstantArgument:
    """A compile-time parameter's value: int, float, bool, str or a DType."""

    value: int | float | bool | str | DType


Argument = TensorArgument | ScalarArgument | ConstantArgument
Signature = tuple[Argument, ...]  # brackets first, then parameters, in order


# --- symbols: what a name means ------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Local:
    """A variable, parameter, loop variable or size of one function instance.

    ``size`` names (``n`` of ``f32[n]``) are locals of type index. Identity is the variable.
    """

    name: str
    kind: Literal["parameter", "variable", "loop", "size"]
    span: Span | None


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A module constant or compile-time parameter with a known value."""

    name: str
    value: object
    span: Span | None


@dataclass(frozen=True, slots=True, eq=False)
class ModuleVariable:
    """A top-level name whose value is known only while the host program runs; ``lost`` where
    what defines it was reported, so that nothing more is said about its uses."""

    name: str
    span: Span | None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Builtin:
    """A name of the language by its full dotted name: ``tile_linear_id``, ``tshared.alloc``,
    ``op.zeros``, ``f32``, ``range``, ``math.sqrt``."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class FunctionSymbol:
    declaration: ast.FunctionDef
    module: str  # path of the file that declares it


@dataclass(frozen=True, slots=True, eq=False)
class ModuleSymbol:
    """An imported module: ``path`` of a file, or a builtin namespace such as ``op``."""

    name: str
    path: str | None


Symbol = Local | Constant | ModuleVariable | Builtin | FunctionSymbol | ModuleSymbol


# --- instances -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """The clauses of a lane kernel, evaluated.

    ``group``: lanes per axis. ``shared_budget``: bytes or None. ``grid``: groups per axis as
    sizes, None where the call says it; ``(Sym("grid_groups"),)`` where a shape binds it.
    ``registers``: the most that a lane has on a GPU, or None.
    ``sizes``: the size symbols in order of first sight, each a ``Local`` of kind size
    (``grid_groups`` too where a shape names it). ``conditions``: the ``where`` clauses that
    the launch decides.
    """

    group: tuple[int, ...]
    shared_budget: int | None
    grid: tuple[Dim, ...] | None
    sizes: tuple[Local, ...]
    conditions: tuple[ast.Expr, ...] = ()
    registers: int | None = None


@dataclass(frozen=True, slots=True)
class Directive:
    """``schedule.name(value)`` at the top of a tile kernel: a number, a bool or numbers."""

    name: str
    value: int | bool | tuple[int, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two extents that are one only if ``left == right``, or a bound that keeps values of ``index``
    in a narrower type, over the names of sizes: checked at the launch. ``text`` names both arrays
    (``A.shape[1] == B.shape[0]``)."""

    left: Dim
    right: Dim
    text: str
    span: Span
    operator: Literal["==", "<="] = "=="


@dataclass(frozen=True, slots=True)
class Multiple:
    """A size that an axis says as a multiple of it, and no axis alone: ``u8[m, 3*k]``. The launch
    divides, and refuses what does not divide."""

    name: str
    factor: int
    parameter: str
    axis: int
    span: Span

    @property
    def whole(self) -> str:
        """The name of the axis for the launch."""
        return f"{self.name}_times_{self.factor}"


@dataclass(frozen=True, slots=True)
class TileInfo:
    """What a tile kernel says beside its body.

    ``sizes`` as in ``KernelInfo``. ``results``: dtype and sizes of each array it returns, which
    the runtime allocates. ``needed``: (parameter, axis) of sizes that reach a capacity, so that
    the signature must give them; where one is missing the instance is None and ``T0650`` is
    reported with this list on the ``TypedFunction``. ``whole``: (parameter, axis) of axes that a
    slice takes whole, so that a bucket (64, or the next multiple of 128) may be given.
    ``multiples``: sizes that the launch finds by dividing.
    """

    sizes: tuple[Local, ...] = ()
    directives: tuple[Directive, ...] = ()
    agreements: tuple[Agreement, ...] = ()
    results: tuple[tuple[DType, tuple[Dim, ...]], ...] = ()
    needed: tuple[tuple[str, int], ...] = ()
    whole: tuple[tuple[str, int], ...] = ()
    conditions: tuple[ast.Expr, ...] = ()
    multiples: tuple[Multiple, ...] = ()


@dataclass(slots=True, eq=False)
class TypedFunction:
    """One function checked for one signature.

    ``types``: the type of every expression after literals settled (a literal used as f32 has
    Scalar(F32)). ``coercions``: expressions whose value is implicitly converted where it is
    used, with the type it takes there. ``symbols``: the meaning of each ``Name`` and of each
    ``Attribute`` that names something (``op.zeros``); on an assignment target, of what is
    assigned. ``calls``: the checked instance of every call to a plain function (inlined by
    ``lower``). ``constants``: expressions whose value is known at compile time.
    ``variables``: the final type of every local. ``arguments``: for a call with keywords or
    defaults the argument expressions in parameter order (None = use the default);
    every call of a plain function has an entry. ``sizes``: the size names of the annotations
    with what they are worth: in a kernel each is its own symbol, in a called function the
    caller's size. An axis of a parameter without annotation is ``Sym("x.shape[0]")``. ``fits``:
    slices that must be in their array as a whole, which the run looks after. ``wrapping``: slices
    that start below 0 only where an integer has wrapped: they are outside then. ``starts``
    and ``stops``: slices whose start or stop is at least 0, which the run looks after;
    ``from_end``: bounds of slices that are certainly below 0 and count from the end.
    ``narrowed``: counts that are returned as a narrower integer, which the run looks after.
    ``worth``: of names in extents that only the run knows, the variable that is it.
    ``conditions``: of a called
    function the ``where`` clauses that its signature leaves open. ``nonempty``: reductions that
    look for a place where there may be none, with how many elements there are; True: whenever the
    kernel runs. ``tables``: numbers of the program of which the run chooses one.
    """

    declaration: ast.FunctionDef
    module: str
    signature: Signature
    kernel: KernelInfo | None = None
    tile: TileInfo | None = None  # of a tile kernel; `kernel` is None there
    parameters: tuple[Local, ...] = ()
    parameter_types: tuple[Type, ...] = ()
    returns: Type | None = None
    in_order: dict[ast.Stmt, ast.Assign] = field(
        default_factory=dict["ast.Stmt", ast.Assign]
    )  # stores that stand for statements of a tile kernel: for sums, where each round needs what
    # the one before made, and for stores into what bools choose
    in_place: dict[ast.Stmt, ast.Stmt] = field(
        default_factory=dict[ast.Stmt, ast.Stmt]
    )  # `C -= e` of an array, and `C[...] -= e`, which stands for it
    body: tuple[ast.Stmt, ...] = ()  # what a tile kernel is lowered from: `in_place` done
    types: dict[ast.Expr, Type] = field(default_factory=dict[ast.Expr, Type])
    coercions: dict[ast.Expr, Type] = field(default_factory=dict[ast.Expr, Type])
    symbols: dict[ast.Expr, Symbol] = field(default_factory=dict[ast.Expr, Symbol])
    calls: dict[ast.Call, TypedFunction] = field(
        default_factory=lambda: dict[ast.Call, "TypedFunction"]()
    )
    fits: dict[ast.SliceExpr, None] = field(default_factory=dict[ast.SliceExpr, None])
    wrapping: dict[ast.SliceExpr, None] = field(default_factory=dict[ast.SliceExpr, None])
    starts: dict[ast.SliceExpr, None] = field(default_factory=dict[ast.SliceExpr, None])
    stops: dict[ast.SliceExpr, None] = field(default_factory=dict[ast.SliceExpr, None])
    from_end: dict[ast.Expr, None] = field(default_factory=dict[ast.Expr, None])
    narrowed: dict[ast.Expr, None] = field(default_factory=dict[ast.Expr, None])
    worth: dict[str, Local] = field(default_factory=dict[str, Local])
    rounded: dict[ast.Call, TypedFunction] = field(
        default_factory=lambda: dict[ast.Call, "TypedFunction"]()
    )  # what a tile kernel may call where the result goes at once into a float of 16 bits or fewer
    second: dict[ast.Expr, TypedFunction] = field(
        default_factory=lambda: dict[ast.Expr, "TypedFunction"]()
    )  # the other of two functions behind a builtin; of `a ** b` the function of powers, at `b`
    arguments: dict[ast.Call, tuple[ast.Expr | None, ...]] = field(
        default_factory=dict[ast.Call, tuple[ast.Expr | None, ...]]
    )
    constants: dict[ast.Expr, object] = field(default_factory=dict[ast.Expr, object])
    variables: dict[Local, Type] = field(default_factory=dict[Local, Type])
    sizes: dict[Local, Dim] = field(default_factory=dict[Local, Dim])
    conditions: tuple[ast.Expr, ...] = ()
    tables: dict[ast.Subscript, tuple[int | float, ...]] = field(
        default_factory=dict[ast.Subscript, "tuple[int | float, ...]"]
    )
    nonempty: dict[ast.Call, tuple[Dim, bool]] = field(
        default_factory=dict[ast.Call, "tuple[Dim, bool]"]
    )
    expanded: dict[ast.Expr, ast.Expr] = field(
        default_factory=dict[ast.Expr, ast.Expr]
    )  # calls and subscripts that stand for another expression
    lines: dict[ast.Call, int] = field(default_factory=dict[ast.Call, int])
    # of calls that sort, the room for a line
    reshaped: dict[ast.Call, tuple[Dim, ...]] = field(
        default_factory=dict[ast.Call, "tuple[Dim, ...]"]
    )  # the sizes of arrays that are seen with others
    made: dict[Local, bool] = field(
        default_factory=dict[Local, bool]
    )  # arrays that a tile kernel makes, and whether it returns them: else only it sees them
    stands: dict[ast.Name, ast.Expr] = field(
        default_factory=dict[ast.Name, ast.Expr]
    )  # names in these expressions, with the arguments that they are
    shared_bytes: int = 0  # what it allocates, with the functions it calls
    complete: bool = True  # False in the editor's tables of a function with faults
