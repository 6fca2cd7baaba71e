"""The interface of a module read from the compiler's trees; only where the cache has none.

Must not know the cache or arguments.
"""

from __future__ import annotations

from typing import Any, cast

from tessera_backend.runtime.module_interface import (
    Constant,
    ConstantValue,
    FunctionInterface,
    KernelInterface,
    ModuleInterface,
    ParameterInfo,
)
from tessera_lang.evaluate.constant import NotConstant
from tessera_lang.evaluate.modules import is_test, kernel_level
from tessera_lang.record import replace
from tessera_lang.sema.float_dtypes import float_alone
from tessera_lang.sema.kernel_clauses import says_grid
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.side_tables import Constant as ConstantSymbol
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


def module_interface(session: Any, path: str) -> ModuleInterface:
    """What a file gives. Raises TesseraError where it has errors."""
    parsed = session.parsed(path)
    scope: ModuleScope = session.scope(path)
    faults = [d for d in (*parsed.diagnostics, *scope.diagnostics) if d.severity == "error"]
    if faults:
        raise session.error(faults)
    file: SourceFile = session.source(path)
    kernels: dict[str, KernelInterface] = {}
    functions: dict[str, FunctionInterface] = {}
    marked: set[str] = {f.name for f in session.kernels(path)}
    for f in parsed.module.functions:
        parameters = tuple(_parameter(p, scope, file, False) for p in f.parameters)
        doc, returns = cleaned(f.docstring), _text(f.returns, file)
        alone = float_alone(f).name
        brackets = tuple(_parameter(p, scope, file, True) for p in f.brackets)
        if f.name in marked:
            level = kernel_level(f) or "lane"
            kernels[f.name] = KernelInterface(
                f.name, parameters, brackets, level, says_grid(f), doc, returns, alone
            )
        else:
            functions[f.name] = FunctionInterface(
                f.name, parameters, brackets, doc, returns, is_test(f), alone
            )
    for s in parsed.module.body:
        if isinstance(s, ast.Assign) and isinstance(s.target, ast.Name):
            derived = _derived(s.value, functions)
            if derived is not None and s.target.id not in functions:
                functions[s.target.id] = replace(derived, name=s.target.id)
    doc = cleaned(parsed.module.docstring)
    return ModuleInterface(kernels, functions, _constants(scope), doc)


def _derived(e: ast.Expr, functions: dict[str, FunctionInterface]) -> FunctionInterface | None:
    """The function of ``grad(f, wrt="x")``, which has the same parameters; None of all else."""
    if not (isinstance(e, ast.Call) and isinstance(e.function, ast.Name) and e.arguments):
        return None
    word, (of, *rest) = e.function.id, e.arguments
    named = [*rest, *(k.value for k in e.keywords)]
    items = [i for n in named for i in (n.items if isinstance(n, ast.TupleExpr) else (n,))]
    known = word in ("grad", "value_and_grad", "fused") and word not in functions
    if not known or not all(isinstance(i, ast.StringLit | ast.IntLit) for i in items):
        return None
    found = functions.get(of.id) if isinstance(of, ast.Name) else _derived(of, functions)
    return None if found is None or found.is_test else found


def cleaned(docstring: str | None) -> str:
    """A docstring without the indentation of its lines."""
    from inspect import cleandoc

    return cleandoc(docstring) if docstring else ""


def _text(node: ast.TypeExpr | ast.Expr | None, file: SourceFile) -> str:
    return "" if node is None else file.text[node.span.lo : node.span.hi]


def _constants(scope: ModuleScope) -> dict[str, Constant]:
    """The names that this file, and none that it imports, gives a value that never changes."""
    found: dict[str, Constant] = {}
    for s in scope.module.body:
        if isinstance(s, (ast.Assign, ast.AnnotatedAssign)) and isinstance(s.target, ast.Name):
            symbol = scope.names.get(s.target.id)
            value = _plain(symbol.value) if isinstance(symbol, ConstantSymbol) else None
            if value is not None:
                found[s.target.id] = value
    return found


def _plain(value: object) -> Constant | None:
    if isinstance(value, DType):
        return value.name
    if isinstance(value, tuple):
        items = [_plain(item) for item in cast("tuple[object, ...]", value)]
        return None if None in items else tuple(cast("list[Constant]", items))
    return value if isinstance(value, (int, float, bool, str)) else None


def _parameter(
    p: ast.Parameter, scope: ModuleScope, file: SourceFile, bracket: bool
) -> ParameterInfo:
    line, column = file.position(p.name_span.lo)
    place = (file.path, line + 1, column + 1)
    a = p.annotation
    declared, written = _text(a, file), _text(p.default, file)
    if is_compile_time(p, bracket):
        kind = compile_time_kind(p)
        dtype = "" if kind == "any" else kind
        return ParameterInfo(p.name, "constant", dtype, default=_default(p, scope), place=place,
                             declared=declared, written=written)  # fmt: skip
    default = _default(p, scope)
    if a is None:
        return ParameterInfo(p.name, "any", default=default, place=place, written=written)
    base = a.base.id if isinstance(a.base, ast.Name) else ""
    if a.shape is None:
        return ParameterInfo(p.name, "scalar", base, default=default, place=place,
                             declared=declared, written=written)  # fmt: skip
    constant = constant_bytes(p, dtype_lookup(scope, {}))
    return ParameterInfo(p.name, "array", base, len(a.shape), a.qualifier == "mut", default, place,
                         declared, constant, written)  # fmt: skip


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
