"""What names are as values: variables, constants, functions, modules.

Owns the term of a symbol. Must not know expressions around a name.
"""

from __future__ import annotations

import math
from typing import Protocol, cast

from tessera_lang.diagnostics.diagnostic import Label
from tessera_lang.sema.context import Context, Variable
from tessera_lang.sema.inference_types import Open, Term, Unknown
from tessera_lang.sema.kernel_clauses import kernel_decorator, tile_decorator
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.shared import bare_buffer
from tessera_lang.sema.side_tables import (
    Builtin,
    Constant,
    FunctionSymbol,
    Local,
    ModuleSymbol,
    ModuleVariable,
    Symbol,
)
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, DTYPES, DType
from tessera_lang.types.type import (
    ERROR,
    NONE,
    STR,
    FunctionType,
    Opaque,
    Scalar,
    TupleType,
    Type,
    Weak,
)

DTYPE = Opaque("dtype")
MODULE = Opaque("module")


def variable_term(c: Context, v: Variable) -> Term:
    """What a variable is at this point of the walks."""
    if v.bare is not None:
        return bare_buffer(c, v.bare)
    if v.cell is not None:
        root = v.cell.root()
        return Open(root) if root.dtype is None else Scalar(root.dtype)
    if v.type is not None:
        return v.type
    return ERROR if c.final else Unknown()


def symbol_term(c: Context, e: ast.Expr, symbol: Symbol) -> Term:
    """What a name that is no local means as a value."""
    match symbol:
        case Constant():
            return constant_term(c, e, symbol.value)
        case ModuleVariable(lost=True):
            return ERROR
        case ModuleVariable():
            return c.report(
                "T0115", f"`{symbol.name}` is a variable of the module", e.span,
                "lanes may read module constants only",
                labels=(Label(symbol.span, "its value is known only while the program runs"),)
                if symbol.span else (),
                helps=("pass it as an argument, or give it a constant value",),
            )  # fmt: skip
        case FunctionSymbol():
            f = symbol.declaration
            kernel = kernel_decorator(f) is not None or tile_decorator(f) is not None
            return FunctionType(f.name, "kernel" if kernel else "function")
        case ModuleSymbol():
            return MODULE
        case Builtin():
            return _builtin_term(c, e, symbol.name)
        case Local():
            return variable_term(c, c.variables[symbol.name])


def _builtin_term(c: Context, e: ast.Expr, name: str) -> Term:
    if name in DTYPES:
        c.set_value(e, DTYPES[name])
        return DTYPE
    if name in ("inf", "nan"):
        c.set_value(e, math.inf if name == "inf" else math.nan)
        return Weak("float")
    if name == "tshared.alloc":
        return bare_buffer(c, c.bare[e]) if e in c.bare else FunctionType(name, "builtin")
    return FunctionType(name, "builtin")


def constant_term(c: Context, e: ast.Expr, value: object) -> Term:
    """The type of a compile-time value; numbers are weak."""
    term = type_of_value(value)
    c.set_value(e, value)
    return term


def type_of_value(value: object) -> Type:
    match value:
        case bool():
            return Scalar(BOOL)
        case int():
            return Weak("int")
        case float():
            return Weak("float")
        case str():
            return STR
        case DType():
            return DTYPE
        case tuple():
            return TupleType(tuple(type_of_value(v) for v in value))  # type: ignore[misc]
        case _:
            return NONE


class Names(Protocol):
    """Where names are looked up: both walks of functions, of lanes and of tiles."""

    @property
    def scope(self) -> ModuleScope: ...
    def name_symbol(self, name: str) -> object: ...


def module_of(c: Names, e: ast.Expr) -> ModuleSymbol | None:
    """The module that a name or dotted name means."""
    symbol = named_symbol(c, e)
    return symbol if isinstance(symbol, ModuleSymbol) else None


def named_symbol(c: Names, e: ast.Expr) -> Symbol | None:
    """What a name or dotted name means, if it names something."""
    if isinstance(e, ast.Name):
        return cast("Symbol | None", c.name_symbol(e.id))
    if isinstance(e, ast.Attribute) and (base := module_of(c, e.value)) is not None:
        return c.scope.member(base, e.name)
    return None
