"""What the checks of one function instance share: tables, variables, reports.

Owns the state of one walk over a body. Must not know how any construct is typed:
``infer`` is filled in by ``instance.py``, so that the parts need not know each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tessera_lang.diagnostics.diagnostic import Diagnostic, Fix, Label
from tessera_lang.evaluate.constant import NotConstant, evaluate_constant
from tessera_lang.record import dataclass, field
from tessera_lang.sema.inference_types import (
    BareBuffer,
    Cell,
    Cells,
    Open,
    OpenBuffer,
    Term,
    Unknown,
)
from tessera_lang.sema.module_scope import ModuleScope, Scopes
from tessera_lang.sema.side_tables import Builtin, Constant, FunctionSymbol, Local, TypedFunction
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DTYPES, DType
from tessera_lang.types.shape import Dim
from tessera_lang.types.type import ERROR, Buffer, Scalar, Tensor, Tile, Type, Weak


@dataclass(slots=True, eq=False)
class Variable:
    """One name of a function over all walks: how it got its type.

    Exactly one of ``type`` and ``cell`` is set once it is bound. ``since`` is where its type
    was decided, ``declared`` that an annotation said it.
    """

    local: Local
    type: Type | None = None
    cell: Cell | None = None
    bare: BareBuffer | None = None
    since: Span | None = None
    declared: bool = False
    literal: Span | None = None  # the first literal it was bound to
    accumulates: Span | None = None  # a statement that adds to it


@dataclass(slots=True, eq=False)
class Frame:
    """A call that is being checked, for recursion and for labels at the call."""

    declaration: ast.FunctionDef
    call: Span | None


@dataclass(frozen=True, slots=True)
class Known:
    """A compile-time argument."""

    value: object


Binding = Tensor | Buffer | Tile | Scalar | Weak | Known
"""What a parameter of an instance is bound to; ``Weak`` for a literal."""

Instantiate = Callable[
    ["Shared", ModuleScope, ast.FunctionDef, dict[str, Binding]],
    tuple[TypedFunction | None, tuple[Diagnostic, ...]],
]


@dataclass(slots=True, eq=False)
class Shared:
    """What a kernel and the functions it calls share. ``counts``: whether counts meet floats in
    functions of numbers; a tile kernel takes those into its body, where it knows what is one."""

    scopes: Scopes
    instantiate: Instantiate
    memo: dict[tuple[object, ...], tuple[TypedFunction | None, tuple[Diagnostic, ...]]] = field(
        default_factory=lambda: dict[
            tuple[object, ...], tuple[TypedFunction | None, tuple[Diagnostic, ...]]
        ]()
    )
    stack: list[Frame] = field(default_factory=list[Frame])
    counts: bool = True


@dataclass(slots=True, eq=False)
class Context:
    """The state of the walk. ``final`` is the last one: only it writes tables and reports."""

    scope: ModuleScope
    declaration: ast.FunctionDef
    typed: TypedFunction
    shared: Shared
    is_kernel: bool
    cells: Cells
    variables: dict[str, Variable]
    compile_time: dict[str, Constant]
    returns: Variable
    budget: int | None = None
    final: bool = False
    group: tuple[int, ...] = ()
    reports: list[Diagnostic] = field(default_factory=list[Diagnostic])
    known: set[ast.Expr] = field(default_factory=set[ast.Expr])
    values: dict[ast.Expr, object] = field(default_factory=dict[ast.Expr, object])
    blocked: list[Cell] = field(default_factory=list[Cell])
    allocations: dict[ast.Expr, int] = field(default_factory=dict[ast.Expr, int])
    own_arrays: dict[ast.Expr, int] = field(default_factory=dict[ast.Expr, int])
    size_cells: dict[ast.Expr, Cell] = field(default_factory=dict[ast.Expr, Cell])
    tables: bool = True  # whether the run may choose one of several numbers of the program
    wide_calls: dict[ast.Expr, DType] = field(default_factory=dict[ast.Expr, DType])
    bare: dict[ast.Expr, BareBuffer] = field(default_factory=dict[ast.Expr, BareBuffer])
    dims: dict[str, Dim] = field(default_factory=dict[str, Dim])
    places: dict[ast.Expr, ast.AugmentedAssign] = field(
        default_factory=dict[ast.Expr, ast.AugmentedAssign]
    )  # what augmented assignments change, by which statement
    infer: Callable[[ast.Expr], Term] = lambda _: ERROR
    is_count: Callable[[ast.Expr], bool] = lambda _: False  # set with ``infer``
    count_fits: Callable[[ast.Expr, DType], bool] = lambda e, dtype: False  # likewise
    taken: dict[str, list[ast.Expr | None]] | None = None  # by variables, found once

    def functions(self) -> Shared:
        """Where instances of functions of numbers are."""
        return self.shared

    # --- reports -----------------------------------------------------------------------

    def report(
        self,
        code: str,
        message: str,
        span: Span | None,
        label: str = "",
        *,
        labels: tuple[Label, ...] = (),
        notes: tuple[str, ...] = (),
        helps: tuple[str, ...] = (),
        fixes: tuple[Fix, ...] = (),
        warning: bool = False,
    ) -> Term:
        """Report in the last walk; gives the type of what is wrong, which adds no error."""
        if self.final:
            severity = "warning" if warning else "error"
            self.reports.append(
                Diagnostic(code, message, span, label, severity, labels, notes, helps, fixes)
            )
            return ERROR
        return Unknown()

    def add(self, diagnostic: Diagnostic) -> Term:
        """Report a diagnostic made elsewhere, in the last walk."""
        if self.final:
            self.reports.append(diagnostic)
            return ERROR
        return Unknown()

    # --- tables ------------------------------------------------------------------------

    def note(self, e: ast.Expr, term: Term) -> Term:
        """Write down the type of an expression."""
        if self.final and not isinstance(term, (Open, Unknown, OpenBuffer)):
            self.typed.types[e] = term
        return term

    def coerce(self, e: ast.Expr, dtype: DType) -> None:
        """An implicit conversion that loses nothing."""
        if self.final:
            self.typed.coercions[e] = Scalar(dtype)

    # --- compile-time values -----------------------------------------------------------

    def is_known(self, e: ast.Expr) -> bool:
        return e in self.known

    def value_of(self, e: ast.Expr) -> object:
        """The value of an expression marked as known. Raises NotConstant."""
        if e in self.values:
            return self.values[e]
        value = evaluate_constant(e, self._name_value, self._attribute_value)
        self.values[e] = value
        self.typed.constants[e] = value
        return value

    def is_size(self, e: ast.Expr) -> bool:
        """Whether an index is made of counts and nothing else, which floats meet."""
        return self.shared.counts and self.is_count(e)

    def narrows(self, e: ast.Expr, dtype: DType) -> bool:
        """Whether an index goes where a number of ``dtype`` is wanted, if need be by a check at
        the launch or in the run."""
        return self.shared.counts and self.count_fits(e, dtype)

    def try_value(self, e: ast.Expr) -> object | None:
        """The value of a known expression, or None (also where its arithmetic fails)."""
        if e not in self.known:
            return None
        try:
            return self.value_of(e)
        except NotConstant:
            return None

    def set_value(self, e: ast.Expr, value: object) -> None:
        """A value found otherwise than by evaluating the expression."""
        self.known.add(e)
        self.values[e] = value
        self.typed.constants[e] = value

    def _name_value(self, e: ast.Name) -> object:
        if e in self.values:
            return self.values[e]
        symbol = self.name_symbol(e.id)
        if isinstance(symbol, Constant):
            return symbol.value
        if isinstance(symbol, Builtin):
            if symbol.name in DTYPES:
                return DTYPES[symbol.name]
            raise LookupError(e.id)
        raise NotConstant(e, f"`{e.id}` is not known at compile time")

    def _attribute_value(self, e: ast.Attribute) -> object:
        if e in self.values:
            return self.values[e]
        raise LookupError(e.name)

    # --- names -------------------------------------------------------------------------

    def call_key(self, arguments: Mapping[str, ast.Expr | None]) -> tuple[object, ...]:
        """What an instance of a function depends on beside the types of its arguments."""
        return ()

    def name_symbol(self, name: str) -> object:
        """What a name means here: local, compile-time parameter, module name or builtin."""
        if name in self.compile_time:
            return self.compile_time[name]
        variable = self.variables.get(name)
        if variable is not None:
            return variable.local
        found = self.scope.lookup(name)
        if found is None and self.typed.kernel is None:  # no kernel of lanes, which says so by name
            return self.scope.bare_function(name)
        return found

    def scope_of(self, symbol: FunctionSymbol) -> ModuleScope:
        """The scope that declares a function."""
        if symbol.module == self.scope.path:
            return self.scope
        return self.shared.scopes(symbol.module)


def text_of(t: Term) -> str:
    """A type in words for messages."""
    if isinstance(t, Open):
        return f"{t.cell.root().kind} literal"
    if isinstance(t, Unknown):
        return "unknown"
    return str(t)
