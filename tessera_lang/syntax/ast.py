"""The syntax tree: what a file says, with a span on every node.

Owns the closed unions ``Expr`` and ``Stmt``. Nodes are compared and hashed by identity, so
that side tables (types, symbols) can be keyed by node; spans take no part in meaning. Must
not know types, names' meanings or the parser.
"""

from __future__ import annotations

from typing import Literal

from tessera_lang.record import dataclass
from tessera_lang.source import Span

UnaryOperator = Literal["-", "+", "not", "~"]
BinaryOperator = Literal["+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>"]
CompareOperator = Literal["==", "!=", "<", "<=", ">", ">=", "in", "not in", "is", "is not"]


# --- expressions ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    span: Span
    id: str


@dataclass(frozen=True, slots=True, eq=False)
class IntLit:
    """``42``, ``0x2a``, ``1_000``; with a unit (``16_KiB``) ``value`` counts bytes."""

    span: Span
    value: int
    unit: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class FloatLit:
    span: Span
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class StringLit:
    span: Span
    value: str


@dataclass(frozen=True, slots=True, eq=False)
class FString:
    """An f-string: literal text and expressions (with an optional format) in order."""

    span: Span
    parts: tuple[str | FormattedValue, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FormattedValue:
    span: Span
    value: Expr
    format: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class BoolLit:
    span: Span
    value: bool


@dataclass(frozen=True, slots=True, eq=False)
class NoneLit:
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class TupleExpr:
    span: Span
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ListExpr:
    span: Span
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DictExpr:
    span: Span
    keys: tuple[Expr, ...]
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Comprehension:
    """``[element for target in iterable if condition]``. ``joined``: the element is what comes of
    the next loop, ``[x for a in y for x in a]``, whose items are those of the list."""

    span: Span
    element: Expr
    target: Expr
    iterable: Expr
    conditions: tuple[Expr, ...]
    joined: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Unary:
    span: Span
    operator: UnaryOperator
    operand: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Binary:
    """A chain of 5,000 of these is legal: walk ``left`` in a loop, never by recursion."""

    span: Span
    operator: BinaryOperator
    operator_span: Span
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True, eq=False)
class BoolOp:
    """``a and b and c``: one node for the whole chain; evaluation stops early."""

    span: Span
    operator: Literal["and", "or"]
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Compare:
    """``first op[0] rest[0] op[1] rest[1] ...`` with Python's chaining."""

    span: Span
    first: Expr
    operators: tuple[CompareOperator, ...]
    rest: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Conditional:
    """``then if test else orelse``."""

    span: Span
    test: Expr
    then: Expr
    orelse: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Keyword:
    span: Span
    name: str
    name_span: Span
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    span: Span
    function: Expr
    arguments: tuple[Expr, ...]
    keywords: tuple[Keyword, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Attribute:
    span: Span
    value: Expr
    name: str
    name_span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Subscript:
    """``value[i, j:k]``; ``items`` has one entry an axis (none: ``value[()]``); an entry may be a
    ``SliceExpr``."""

    span: Span
    value: Expr
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SliceExpr:
    """``lower:upper:step``; only ever an item of a ``Subscript``."""

    span: Span
    lower: Expr | None
    upper: Expr | None
    step: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class Lambda:
    span: Span
    parameters: tuple[Parameter, ...]
    body: Expr


@dataclass(frozen=True, slots=True, eq=False)
class ErrorExpr:
    """Where the parser put something in for what it could not read; already reported.

    ``inner`` is what was read before the fault: the receiver of ``smem.`` with no name yet.
    """

    span: Span
    inner: Expr | None = None


Expr = (
    Name | IntLit | FloatLit | StringLit | FString | BoolLit | NoneLit | TupleExpr | ListExpr
    | DictExpr | Comprehension | Unary | Binary | BoolOp | Compare | Conditional | Call
    | Attribute | Subscript | SliceExpr | Lambda | ErrorExpr
)  # fmt: skip


# --- statements ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ExprStmt:
    span: Span
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Assign:
    """``target = value``; ``a, b = v`` has a ``TupleExpr`` target."""

    span: Span
    target: Expr
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class AnnotatedAssign:
    """``acc: f32 = 0.0``; without a value a declaration."""

    span: Span
    target: Expr
    annotation: TypeExpr
    value: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class AugmentedAssign:
    span: Span
    target: Expr
    operator: BinaryOperator
    operator_span: Span
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """An ``elif`` is an ``If`` alone in ``orelse``."""

    span: Span
    test: Expr
    body: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class For:
    span: Span
    target: Expr
    iterable: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class While:
    span: Span
    test: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class With:
    span: Span
    context: Expr
    target: Expr | None
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Break:
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Continue:
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Return:
    span: Span
    value: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class Assert:
    span: Span
    test: Expr
    message: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class ImportedName:
    """``name as alias``; ``name`` is dotted in ``import a.b``."""

    span: Span
    name: str
    alias: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Import:
    """``import std.reduce as r, other``."""

    span: Span
    names: tuple[ImportedName, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FromImport:
    """``from std.reduce import sum, max as most``."""

    span: Span
    module: str
    module_span: Span
    names: tuple[ImportedName, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TypeExpr:
    """An annotation: ``mut f32[n, k]``, ``const f32[64]``, ``int``, ``f32``.

    ``qualifier`` is ``mut``, ``const`` or empty; ``base`` the name (possibly dotted) and
    ``shape`` the sizes, or None where there are no brackets. ``items``: the types of several
    results, ``(f32[m], f32[n])``, whose base is an empty tuple.
    """

    span: Span
    qualifier: Literal["", "mut", "const"]
    base: Expr
    shape: tuple[Expr, ...] | None
    items: tuple[TypeExpr, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    span: Span
    name: str
    name_span: Span
    annotation: TypeExpr | None
    default: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class Clause:
    """A clause behind a decorator: ``tile[(128,)]``, ``shared(16_KiB)``, ``grid[...]``."""

    span: Span
    name: str
    arguments: tuple[Expr, ...]
    bracket: Literal["[", "("]


@dataclass(frozen=True, slots=True, eq=False)
class Decorator:
    """``@kernel tile[...] shared(...)``, ``@op.kernel``, ``@test``, ``@op.autotunable(...)``."""

    span: Span
    value: Expr
    clauses: tuple[Clause, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class FunctionDef:
    """A function of any kind. ``brackets`` are compile-time parameters ``def f[N: int](...)``.

    ``where`` holds the conditions behind ``where``; ``docstring`` is the text of a leading
    string statement (which also stays in ``body``). ``signature_span`` covers ``def`` to ``:``.
    """

    span: Span
    name: str
    name_span: Span
    signature_span: Span
    decorators: tuple[Decorator, ...]
    brackets: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]
    returns: TypeExpr | None
    where: tuple[Expr, ...]
    body: tuple[Stmt, ...]
    docstring: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ErrorStmt:
    """Lines that could not be read; already reported. ``names`` are those seen in them."""

    span: Span
    names: tuple[Name, ...] = ()


Stmt = (
    ExprStmt | Assign | AnnotatedAssign | AugmentedAssign | If | For | While | With | Break
    | Continue | Pass | Return | Assert | Import | FromImport | FunctionDef | ErrorStmt
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """One file. ``docstring`` as in a function."""

    path: str
    body: tuple[Stmt, ...]
    docstring: str | None = None

    @property
    def functions(self) -> tuple[FunctionDef, ...]:
        return tuple(s for s in self.body if isinstance(s, FunctionDef))
