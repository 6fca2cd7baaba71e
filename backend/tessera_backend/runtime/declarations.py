"""Kernel interfaces read from the compiler's trees; only where the cache has none.

Must not know the cache or arguments.
"""

from __future__ import annotations

from typing import Any

from tessera_backend.runtime.interface import ConstantValue, KernelInterface, ParameterInfo
from tessera_lang.evaluate.constant import NotConstant
from tessera_lang.evaluate.library import kernel_level
from tessera_lang.sema.clauses import says_grid
from tessera_lang.sema.scope import ModuleScope
from tessera_lang.sema.signature import (
    compile_time_kind,
    constant_bytes,
    constant_in,
    dtype_lookup,
    is_compile_time,
)
from tessera_lang.source import SourceFile
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DType


def kernel_interfaces(session: Any, path: str) -> list[KernelInterface]:
    """The kernels of a file. Raises TesseraError where the file has errors."""
    parsed = session.parsed(path)
    scope: ModuleScope = session.scope(path)
    faults = [d for d in (*parsed.diagnostics, *scope.diagnostics) if d.severity == "error"]
    if faults:
        raise session.error(faults)
    file: SourceFile = session.source(path)
    return [
        KernelInterface(
            f.name,
            tuple(_parameter(p, scope, file, False) for p in f.parameters),
            tuple(_parameter(p, scope, file, True) for p in f.brackets),
            kernel_level(f) or "lane",
            says_grid(f),
        )
        for f in session.kernels(path)
    ]


def plain_functions(session: Any, path: str) -> tuple[str, ...]:
    """The functions of a file that are no kernels."""
    kernels = {f.name for f in session.kernels(path)}
    return tuple(f.name for f in session.parsed(path).module.functions if f.name not in kernels)


def _parameter(
    p: ast.Parameter, scope: ModuleScope, file: SourceFile, bracket: bool
) -> ParameterInfo:
    line, column = file.position(p.name_span.lo)
    place = (file.path, line + 1, column + 1)
    a = p.annotation
    declared = "" if a is None else file.text[a.span.lo : a.span.hi]
    if is_compile_time(p, bracket):
        kind = compile_time_kind(p)
        dtype = "" if kind == "any" else kind
        return ParameterInfo(p.name, "constant", dtype, default=_default(p, scope), place=place,
                             declared=declared)  # fmt: skip
    default = _default(p, scope)
    if a is None:
        return ParameterInfo(p.name, "any", default=default, place=place)
    base = a.base.id if isinstance(a.base, ast.Name) else ""
    if a.shape is None:
        return ParameterInfo(p.name, "scalar", base, default=default, place=place,
                             declared=declared)  # fmt: skip
    constant = constant_bytes(p, dtype_lookup(scope, {}))
    return ParameterInfo(p.name, "array", base, len(a.shape), a.qualifier == "mut", default, place,
                         declared, constant)  # fmt: skip


def _default(p: ast.Parameter, scope: ModuleScope) -> ConstantValue | None:
    if p.default is None:
        return None
    try:
        value = constant_in(scope, p.default)
    except NotConstant:
        return None
    if isinstance(value, DType):
        return value.name
    return value if isinstance(value, (int, float, bool, str)) else None
