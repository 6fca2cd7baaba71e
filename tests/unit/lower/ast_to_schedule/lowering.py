"""For tests: source text to Schedule IR of its last tile kernel, for a signature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tessera_stdlib

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Program
from tessera_lang.ir.verify import verify
from tessera_lang.lower.ast_to_schedule import lower_tile_kernel
from tessera_lang.record import replace
from tessera_lang.sema import check_function, resolve_module
from tessera_lang.sema.instance import needed_sizes
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.side_tables import (
    Argument,
    ConstantArgument,
    FunctionSymbol,
    ScalarArgument,
    Signature,
    TensorArgument,
    TypedFunction,
)
from tessera_lang.source import SourceFile
from tessera_lang.syntax import ast, parse_module
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import DTYPES, DType
from tests.unit.lower.ast_to_schedule.reference import numpy_type

Lowered = tuple[Program, LaunchPlan, tuple[Diagnostic, ...]]
_STANDARD = Path(tessera_stdlib.__file__).parent
_scopes: dict[str, ModuleScope] = {}


def dtype_of(array: Any) -> DType:
    kind = np.asarray(array).dtype
    return next(d for n, d in DTYPES.items() if np.dtype(numpy_type(d)) == kind
                and n != "index")  # fmt: skip


def tensor(array: Any, sizes: tuple[int | None, ...] = (), **facts: Any) -> TensorArgument:
    contiguous = array.flags.c_contiguous
    return TensorArgument(
        dtype_of(array), array.ndim, contiguous=contiguous, sizes=sizes or (None,) * array.ndim,
        hints=array.shape, divisors=(1,) * array.ndim, buckets=(None,) * array.ndim, **facts,
    )  # fmt: skip


def argument(value: Any) -> Argument:
    """How a call would say it: arrays, NumPy numbers, and compile-time values."""
    if isinstance(value, np.ndarray):
        return tensor(value)
    if isinstance(value, np.generic):
        return ScalarArgument(dtype_of(value))
    return ConstantArgument(value)


def scope_of(path: Path) -> ModuleScope:
    if str(path) not in _scopes:
        source = SourceFile(str(path), path.read_text(encoding="utf-8"))
        _scopes[str(path)] = resolve_module(parse_module(source).module, imported)
    return _scopes[str(path)]


def imported(name: str, node: object) -> ModuleScope | Diagnostic:
    path = _STANDARD / f"{name.removeprefix('std.').replace('.', '/')}.tessera"
    if not name.startswith("std.") or not path.exists():
        return Diagnostic("T0101", f"no module {name}")
    return scope_of(path)


def opened(
    text: str,
) -> tuple[ast.FunctionDef, str, Callable[[str], ModuleScope], SourceFile]:
    """The last function of ``text``, and the scopes of all files by path."""
    source = SourceFile("case.tessera", text)
    parsed = parse_module(source)
    assert not parsed.diagnostics, parsed.diagnostics
    scope = resolve_module(parsed.module, imported)

    def scope_at(path: str) -> ModuleScope:
        return scope if path == source.path else scope_of(Path(path))

    return parsed.module.functions[-1], source.path, scope_at, source


def check(text: str, signature: Signature) -> tuple[TypedFunction | None, Any, SourceFile]:
    declaration, path, scope_at, source = opened(text)
    typed, reports = check_function(FunctionSymbol(declaration, path), signature, scope_at)
    return typed, reports, source


def lower_source(text: str, *arguments: Any, signature: Signature | None = None) -> Lowered:
    """The last function of ``text``, lowered for these arguments and verified."""
    given = signature or tuple(argument(a) for a in arguments)
    typed, reports, source = check(text, with_sizes(text, given, arguments))
    assert typed is not None, reports
    errors = [d for d in reports if d.severity == "error"]
    assert not errors, errors
    program, plan, diagnostics = lower_tile_kernel(typed, {source.path: source})
    if not any(d.severity == "error" for d in diagnostics):
        verify(program)
    return program, plan, diagnostics


def with_sizes(text: str, given: Signature, arguments: Sequence[Any]) -> Signature:
    """The signature with the sizes that a capacity needs."""
    declaration, path, scope_at = opened(text)[:3]
    needed, _ = needed_sizes(FunctionSymbol(declaration, path), given, scope_at)
    names = [p.name for p in (*declaration.brackets, *declaration.parameters)]
    values = [None] * (len(names) - len(arguments)) + list(arguments)
    made = list(given)
    for name, axis in needed:
        at = names.index(name)
        fact = made[at]
        assert isinstance(fact, TensorArgument)
        sizes = list(fact.sizes)
        sizes[axis] = values[at].shape[axis]
        made[at] = replace(fact, sizes=tuple(sizes))
    return tuple(made)
