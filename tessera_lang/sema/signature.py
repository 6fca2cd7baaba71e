"""Annotations of parameters, and the signatures they allow.

Owns what an annotation says about an argument. Must not know bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Literal

from tessera_lang.diagnostics.diagnostic import Diagnostic, Edit, Fix
from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.evaluate.constant import NotConstant, evaluate_constant
from tessera_lang.record import dataclass
from tessera_lang.sema import builtins
from tessera_lang.sema.bound_names import (
    assigned_names,
    expressions,
    statement_expressions,
    statements,
)
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.side_tables import (
    Argument,
    Builtin,
    Constant,
    ConstantArgument,
    Multiple,
    ScalarArgument,
    Signature,
    TensorArgument,
)
from tessera_lang.sema.sizes import BadSize, read_size
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DTYPES, DType, dtype_named
from tessera_lang.types.type import Space

CompileTimeKind = Literal["int", "float", "bool", "str", "dtype", "any"]
DTypeLookup = Callable[[str], DType | None]


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """What an annotation asks for; ``any`` takes what it is called with."""

    kind: Literal["constant", "scalar", "tensor", "any"]
    constant: CompileTimeKind = "any"
    dtype: DType | None = None
    dims: tuple[ast.Expr, ...] = ()
    mut: bool = False
    space: Space = "global"


def is_compile_time(p: ast.Parameter, bracket: bool = False) -> bool:
    """Whether a parameter is fixed per instance."""
    if bracket:
        return True
    a = p.annotation
    return (
        a is not None
        and a.shape is None
        and isinstance(a.base, ast.Name)
        and a.base.id in builtins.COMPILE_TIME_TYPES
    )


def compile_time_kind(p: ast.Parameter) -> CompileTimeKind:
    """The kind of value a compile-time parameter takes."""
    base = None if p.annotation is None else p.annotation.base
    if isinstance(base, ast.Name):
        match base.id:
            case "int" | "float" | "bool" | "str" | "dtype":
                return base.id
            case _:
                pass
    return "any"


def spec_of(p: ast.Parameter, dtype_of: DTypeLookup) -> ParameterSpec | Diagnostic:
    """The annotation of a run-time parameter. ``dtype_of`` reads a name as a dtype."""
    a = p.annotation
    if a is None:
        return ParameterSpec("any")
    dtype = dtype_of(a.base.id) if isinstance(a.base, ast.Name) else None
    if dtype is None:
        return unknown_type(a)
    if a.shape is None:
        if a.qualifier:
            return Diagnostic(
                "T0217", f"`{a.qualifier}` belongs to arrays, not to scalars", a.span,
                helps=(f"for an array write `{a.qualifier} {dtype}[n]`",),
            )  # fmt: skip
        return ParameterSpec("scalar", dtype=dtype)
    space: Space = "constant" if a.qualifier == "const" else "global"
    return ParameterSpec("tensor", "any", dtype, a.shape, a.qualifier == "mut", space)


def multiples_of(
    function: ast.FunctionDef, specs: Iterable[tuple[ast.Parameter, tuple[ast.Expr, ...]]]
) -> tuple[Multiple, ...]:
    """Sizes that stand in no shape alone, and in one as a multiple of them; the first one counts.
    ``specs``: the run-time parameters, with their axes."""
    axes = [(p, i, e) for p, dims in specs for i, e in enumerate(dims)]
    alone = {e.id for _, _, e in axes if isinstance(e, ast.Name)}
    alone.update(p.name for _, p in parameters_of(function))
    found: dict[str, Multiple] = {}
    for p, axis, e in axes:
        match e:
            case (
                ast.Binary(operator="*", left=ast.IntLit(value=factor), right=ast.Name(id=name))
                | ast.Binary(operator="*", left=ast.Name(id=name), right=ast.IntLit(value=factor))
            ):
                if factor > 0 and name not in alone:
                    found.setdefault(name, Multiple(name, factor, p.name, axis, e.span))
            case _:
                pass
    return tuple(found.values())


def plain_sizes(function: ast.FunctionDef) -> frozenset[str]:
    """Names that are an axis of a parameter alone: sizes of the call, whatever the file means."""
    shapes = (p.annotation.shape or () for p in function.parameters if p.annotation is not None)
    return frozenset(e.id for dims in shapes for e in dims if isinstance(e, ast.Name))


def constants_for_memory(function: ast.FunctionDef, scope: ModuleScope) -> frozenset[str]:
    """Names of the shapes of shared memory, or of arrays of a lane, that are constants of the file:
    they are numbers in the shapes of parameters too, as the size of memory is one."""
    shapes = (
        e.arguments[0] for s in statements(function.body) for root in statement_expressions(s)
        for e in expressions(root)
        if isinstance(e, ast.Call) and e.arguments and isinstance(e.function, ast.Attribute)
        and e.function.name == "alloc" and isinstance(e.function.value, ast.Name)
        and e.function.value.id in ("tshared", "tlocal")
    )  # fmt: skip
    names = {e.id for shape in shapes for e in expressions(shape) if isinstance(e, ast.Name)}
    own = assigned_names(function)
    return frozenset(n for n in names if n not in own and constant_size(scope, n) is not None)


def constant_size(scope: ModuleScope, name: str) -> int | None:
    """The value of a constant of the file that may be a size."""
    symbol = scope.lookup(name)
    value = symbol.value if isinstance(symbol, Constant) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def constant_bytes(p: ast.Parameter, dtype_of: DTypeLookup) -> int:
    """Bytes of a ``const`` array whose sizes are numbers; 0 of any other."""
    spec = spec_of(p, dtype_of)
    if not isinstance(spec, ParameterSpec) or spec.space != "constant" or spec.dtype is None:
        return 0
    try:
        sizes = [read_size(e, lambda _: None) for e in spec.dims]
    except BadSize:
        return 0
    return spec.dtype.bytes * prod(n for n in sizes if isinstance(n, int))


def unknown_type(a: ast.TypeExpr) -> Diagnostic:
    """An annotation that names no type."""
    name = a.base.id if isinstance(a.base, ast.Name) else "this"
    spelled = dtype_named(name)
    close = spelled.name if spelled else nearest(name, (*DTYPES, *builtins.COMPILE_TIME_TYPES))
    helps = (f"did you mean `{close}`?",) if close else (f"the types are {', '.join(DTYPES)}",)
    fixes = (Fix(f"write `{close}`", (Edit(a.base.span, close),), "unsafe"),) if close else ()
    return Diagnostic("T0217", f"`{name}` is no type", a.base.span, helps=helps, fixes=fixes)


def dtype_lookup(scope: ModuleScope, compile_time: dict[str, Constant]) -> DTypeLookup:
    """Reads names of annotations: dtypes, dtype parameters, module constants."""

    def lookup(name: str) -> DType | None:
        symbol = compile_time.get(name) or scope.lookup(name)
        if isinstance(symbol, Constant) and isinstance(symbol.value, DType):
            return symbol.value
        if isinstance(symbol, Builtin):
            return DTYPES.get(symbol.name)
        return None

    return lookup


def constant_in(
    scope: ModuleScope, e: ast.Expr, compile_time: dict[str, Constant] | None = None
) -> object:
    """The value of a default or clause in a module. Raises NotConstant."""

    def name(n: ast.Name) -> object:
        symbol = (compile_time or {}).get(n.id) or scope.lookup(n.id)
        if isinstance(symbol, Constant):
            return symbol.value
        if isinstance(symbol, Builtin):
            raise LookupError(n.id)
        raise NotConstant(n, f"`{n.id}` is not known at compile time")

    return evaluate_constant(e, name)


def fits_kind(value: object, kind: CompileTimeKind) -> bool:
    """Whether a value may be given to a compile-time parameter of this kind."""
    match kind:
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "float":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "bool":
            return isinstance(value, bool)
        case "str":
            return isinstance(value, str)
        case "dtype":
            return isinstance(value, DType)
        case "any":
            return isinstance(value, (int, float, bool, str, DType))


def signature_of_annotations(function: ast.FunctionDef, scope: ModuleScope) -> Signature | None:
    """The signature that the annotations and defaults alone fix, or None."""
    arguments: list[Argument] = []
    compile_time: dict[str, Constant] = {}
    for bracket, p in parameters_of(function):
        if not is_compile_time(p, bracket):
            continue
        value = _default_value(p, scope)
        if value is None:
            return None
        compile_time[p.name] = Constant(p.name, value, p.span)
    lookup = dtype_lookup(scope, compile_time)
    for bracket, p in parameters_of(function):
        if is_compile_time(p, bracket):
            arguments.append(ConstantArgument(compile_time[p.name].value))  # type: ignore[arg-type]
            continue
        spec = spec_of(p, lookup)
        if isinstance(spec, Diagnostic) or spec.dtype is None:
            return None
        if spec.kind == "tensor":
            arguments.append(TensorArgument(spec.dtype, len(spec.dims)))
        else:
            arguments.append(ScalarArgument(spec.dtype))
    return tuple(arguments)


def _default_value(p: ast.Parameter, scope: ModuleScope) -> object | None:
    if p.default is None:
        return None
    try:
        value = constant_in(scope, p.default)
    except NotConstant:
        return None
    return value if fits_kind(value, compile_time_kind(p)) else None


def parameters_of(function: ast.FunctionDef) -> tuple[tuple[bool, ast.Parameter], ...]:
    """All parameters in signature order: brackets first; True marks a bracket."""
    return (
        *((True, p) for p in function.brackets),
        *((False, p) for p in function.parameters),
    )
