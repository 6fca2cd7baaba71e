"""Checks tile kernels given as text, for the tests of ``sema.tile``."""

from __future__ import annotations

import textwrap
from functools import cache
from pathlib import Path

from tessera_lang import sema
from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.sema.instance import examine_function, needed_sizes
from tessera_lang.sema.module_scope import ImportNode, ModuleScope
from tessera_lang.sema.side_tables import (
    Argument,
    ConstantArgument,
    FunctionSymbol,
    ScalarArgument,
    TensorArgument,
    TypedFunction,
)
from tessera_lang.source import SourceFile
from tessera_lang.syntax import ast, parse_module
from tessera_lang.types.dtype import DType, dtype_named

STD = Path(__file__).resolve().parents[4] / "stdlib" / "tessera_stdlib"


class Checked:
    """One kernel checked for one signature."""

    def __init__(
        self, file: SourceFile, typed: TypedFunction | None, diagnostics: tuple[Diagnostic, ...]
    ) -> None:
        self.file = file
        self.typed = typed
        self.diagnostics = diagnostics

    @property
    def codes(self) -> list[str]:
        return sorted(d.code for d in self.diagnostics)

    @property
    def table(self) -> TypedFunction:
        assert self.typed is not None
        return self.typed

    def variable(self, name: str) -> str:
        return next(str(t) for x, t in self.table.variables.items() if x.name == name)

    def text(self, e: ast.Expr) -> str:
        return self.file.text[e.span.lo : e.span.hi]

    def types(self, text: str) -> list[str]:
        return [str(t) for e, t in self.table.types.items() if self.text(e) == text]

    def coerced(self, text: str) -> list[str]:
        return [str(t) for e, t in self.table.coercions.items() if self.text(e) == text]

    @property
    def agreements(self) -> list[str]:
        assert self.table.tile is not None
        return [a.text for a in self.table.tile.agreements]


def argument(text: str) -> Argument:
    """``bf16 m 64`` an array with known sizes where there are numbers, ``=32`` a constant,
    ``f32`` a scalar."""
    if text.startswith("="):
        if text[1:] in ("True", "False"):
            return ConstantArgument(text == "=True")
        return ConstantArgument(int(text[1:]))
    name, *sizes = text.split()
    dtype = _dtype(name)
    if not sizes:
        return ScalarArgument(dtype)
    if sizes == ["-"]:
        return TensorArgument(dtype, 0)
    known = tuple(int(s) if s.isdigit() else None for s in sizes)
    return TensorArgument(dtype, len(sizes), sizes=known)


def _dtype(name: str) -> DType:
    found = dtype_named(name)
    assert found is not None
    return found


@cache
def standard(name: str) -> ModuleScope:
    path = STD / f"{name.removeprefix('std.')}.tessera"
    file = SourceFile(name, path.read_text(encoding="utf-8"))
    return sema.resolve_module(parse_module(file).module, _load)


def _load(name: str, node: ImportNode, /) -> ModuleScope | Diagnostic:
    del node
    if not (STD / f"{name.removeprefix('std.')}.tessera").exists():
        return Diagnostic("T0130", f"there is no module `{name}`")
    return standard(name)


def check(text: str, *arguments: str, name: str = "k") -> Checked:
    """Check the kernel ``name`` of a program for a signature."""
    file = SourceFile("main", textwrap.dedent(text).lstrip("\n"))
    parsed = parse_module(file)
    assert parsed.diagnostics == (), parsed.diagnostics
    scope = sema.resolve_module(parsed.module, _load)
    found = [*scope.diagnostics, *sema.check_structure(scope)]
    symbol = scope.names[name]
    assert isinstance(symbol, FunctionSymbol)

    def scopes(path: str) -> ModuleScope:
        return scope if path == "main" else standard(path)

    signature = tuple(argument(a) for a in arguments)
    typed, reports = examine_function(symbol, signature, scopes)
    return Checked(file, typed, sema.unique((*found, *reports)))


def asked(text: str, *arguments: str) -> tuple[tuple[tuple[str, int], ...], ...]:
    """What ``needed_sizes`` says of the kernel ``k``."""
    file = SourceFile("main", textwrap.dedent(text).lstrip("\n"))
    scope = sema.resolve_module(parse_module(file).module, _load)
    symbol = scope.names["k"]
    assert isinstance(symbol, FunctionSymbol)
    signature = tuple(argument(a) for a in arguments)
    return needed_sizes(symbol, signature, lambda p: scope if p == "main" else standard(p))


def kernel(body: str, parameters: str = "x, y") -> str:
    lines = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    return f"@op.kernel\ndef k({parameters}):\n{lines}\n"
