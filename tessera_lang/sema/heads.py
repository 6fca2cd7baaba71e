"""The head of a function: decorators, clauses, parameters, result.

Owns the generic checks of what stands before the colon. Must not know bodies.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera_lang.diagnostics.diagnostic import Diagnostic, Label
from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.evaluate.constant import NotConstant
from tessera_lang.evaluate.modules import decorator_name, gradient_decorator
from tessera_lang.sema.builtins import NAMESPACES
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.flow import is_none
from tessera_lang.sema.kernel_clauses import (
    kernel_decorator,
    names_in,
    read_clauses,
    tile_decorator,
)
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.side_tables import Constant, FunctionSymbol, ModuleVariable
from tessera_lang.sema.signature import (
    compile_time_kind,
    constant_in,
    constant_size,
    dtype_lookup,
    fits_kind,
    is_compile_time,
    multiples_of,
    parameters_of,
    spec_of,
    unknown_type,
)
from tessera_lang.sema.sizes import BadSize, read_size
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F32
from tessera_lang.types.shape import Sym, symbols_of

_DECORATORS = ("kernel", "op.kernel", "op.autotunable", "test", "gradient", "bench", "fast")


def check_head(scope: ModuleScope, function: ast.FunctionDef) -> Iterator[Diagnostic]:
    """Everything before the body."""
    yield from _decorators(scope, function)
    yield from _names(function)
    yield from _defaults(scope, function)
    yield from _annotations(scope, function)


def _decorators(scope: ModuleScope, function: ast.FunctionDef) -> Iterator[Diagnostic]:
    first: ast.Decorator | None = None
    for d in function.decorators:
        if isinstance(d.value, ast.Name) and d.value.id == "kernel":
            if first is not None:
                yield Diagnostic("T0113", "a function is one kernel", d.span,
                                 labels=(Label(first.span, "the first `@kernel`"),))  # fmt: skip
                continue
            if (tile := tile_decorator(function)) is not None:
                yield Diagnostic("T0113", "a function is one kernel", d.span,
                                 labels=(Label(tile.span, "it is one by this too"),))  # fmt: skip
            first = d
            open_names = frozenset(
                p.name for b, p in parameters_of(function) if is_compile_time(p, b)
            )
            yield from read_clauses(d, scope, {}, open_names).problems
            continue
        if _is_test(d):
            yield from _test(function, d)
            continue
        if decorator_name(d) == "gradient":
            yield from _gradient(scope, function, d)
            continue
        if _is_tile_kernel(d):
            yield from _tile_kernel(function, d)
            continue
        callee = d.value.function if isinstance(d.value, ast.Call) else None
        if isinstance(callee, ast.Name) and callee.id == "kernel":
            yield Diagnostic(
                "T0113", "`@kernel` takes no arguments: its clauses stand behind it", d.span,
                helps=("write `@kernel tile[(128,)]`",),
            )  # fmt: skip
            continue
        name = d.value.id if isinstance(d.value, ast.Name) else ""
        close = nearest(name, _DECORATORS)
        yield Diagnostic(
            "T0113", f"`@{name}` is no decorator" if name else "this is no decorator", d.span,
            helps=(f"did you mean `@{close}`?",) if close
            else ("kernels are written `@kernel tile[(128,)]`",),
        )  # fmt: skip


def _is_tile_kernel(d: ast.Decorator) -> bool:
    e = d.value.function if isinstance(d.value, ast.Call) else d.value
    return isinstance(e, ast.Attribute) and e.name == "kernel" and (
        isinstance(e.value, ast.Name) and e.value.id == "op"
    )  # fmt: skip


def _tile_kernel(function: ast.FunctionDef, d: ast.Decorator) -> Iterator[Diagnostic]:
    if isinstance(d.value, ast.Call):
        yield Diagnostic("T0113", "`@op.kernel` takes no arguments", d.span,
                         helps=("write `@op.kernel`",))  # fmt: skip
    elif d.clauses:
        yield Diagnostic(
            "T0113", "`@op.kernel` takes no clauses", d.clauses[0].span,
            helps=("the compiler chooses groups and memory; `schedule.*` in the body says more",),
        )  # fmt: skip
    first = next(e for e in function.decorators if _is_tile_kernel(e))
    if first is not d:
        yield Diagnostic("T0113", "a function is one kernel", d.span,
                         labels=(Label(first.span, "it is one by this"),))  # fmt: skip


def _test(function: ast.FunctionDef, d: ast.Decorator) -> Iterator[Diagnostic]:
    """A test is a plain function that can be called with nothing."""
    parameters = (*function.brackets, *function.parameters)
    if d.clauses:
        yield Diagnostic("T0123", "`@test` takes no clauses", d.clauses[0].span)
    elif kernel_decorator(function) is not None or tile_decorator(function) is not None:
        helps = ("write a plain function that launches the kernel, and make that the test",)
        yield Diagnostic("T0123", "a kernel cannot be a test", d.span, helps=helps)
    elif d is not next(e for e in function.decorators if _is_test(e)):
        yield Diagnostic("T0123", "`@test` stands here twice", d.span)
    elif parameters or function.where:
        helps = ("make the values in its body, or call a function with parameters from it",)
        span = parameters[0].span if parameters else function.where[0].span
        what = "parameters" if parameters else "conditions"
        yield Diagnostic("T0123", f"a test has no {what}", span,
                         labels=(Label(d.span, "a test, by this"),), helps=helps)  # fmt: skip


def _gradient(
    scope: ModuleScope, function: ast.FunctionDef, d: ast.Decorator
) -> Iterator[Diagnostic]:
    """The gradient of a function is a plain function, and says of which."""
    of = list(d.value.arguments) if isinstance(d.value, ast.Call) else []
    named = len(of) == 1 and isinstance(of[0], ast.Name | ast.Attribute)
    if d.clauses or not named or (isinstance(d.value, ast.Call) and d.value.keywords):
        yield Diagnostic("T0113", "`@gradient` names the function of which this is the gradient",
                         d.span, helps=("write `@gradient(f)`",))  # fmt: skip
    elif kernel_decorator(function) is not None or tile_decorator(function) is not None:
        helps = ("write a plain function that launches the kernel, and make that the gradient",)
        yield Diagnostic("T0113", "a kernel cannot be a gradient", d.span, helps=helps)
    else:
        yield from _gradient_of(scope, function, of[0])


def _gradient_of(
    scope: ModuleScope, function: ast.FunctionDef, of: ast.Expr
) -> Iterator[Diagnostic]:
    """What has a gradient is a function or kernel that the file knows, and has one only."""
    text = source_of(of)
    outer = isinstance(of, ast.Attribute) and source_of(of.value)
    known = bool(outer) and outer not in NAMESPACES  # of another file, which a call looks into
    if isinstance(of, ast.Name):
        known = isinstance(scope.lookup(of.id), FunctionSymbol | ModuleVariable)
    if not known:
        close = nearest(text, [f.name for f in scope.module.functions if f is not function])
        helps = (f"did you mean `{close}`?",) if close else ()
        yield Diagnostic("T0113", f"`{text}` is no function or kernel of this file, so it has no"
                         " gradient", of.span, helps=helps)  # fmt: skip
        return
    for other in scope.module.functions:
        if other is function:
            return
        first = gradient_decorator(other)
        if first is not None and source_of(first) == text:
            yield Diagnostic("T0113", f"`{text}` has a gradient already", of.span,
                             labels=(Label(first.span, "its gradient is this"),))  # fmt: skip
            return


def _is_test(d: ast.Decorator) -> bool:
    return isinstance(d.value, ast.Name) and d.value.id == "test"


def _names(function: ast.FunctionDef) -> Iterator[Diagnostic]:
    seen: dict[str, ast.Parameter] = {}
    default: ast.Parameter | None = None
    for bracket, p in parameters_of(function):
        if p.name in seen:
            yield Diagnostic(
                "T0102", f"there are two parameters `{p.name}`", p.name_span,
                labels=(Label(seen[p.name].name_span, "the first"),),
            )  # fmt: skip
        seen.setdefault(p.name, p)
        if bracket:
            continue
        if p.default is not None:
            default = p
        elif default is not None:
            yield Diagnostic(
                "T0122", f"`{p.name}` has no default and stands behind `{default.name}`, which has"
                " one", p.span, labels=(Label(default.span, "this has a default"),),
                helps=("put parameters with a default last",),
            )  # fmt: skip


def _defaults(scope: ModuleScope, function: ast.FunctionDef) -> Iterator[Diagnostic]:
    lane = kernel_decorator(function) is not None or tile_decorator(function) is not None
    for bracket, p in parameters_of(function):
        if p.default is None or not (lane or is_compile_time(p, bracket)):
            continue
        try:
            value = constant_in(scope, p.default)
        except NotConstant as fault:
            if fault.expression is p.default or not _undefined(scope, fault.expression):
                yield Diagnostic("T0218", f"the default of `{p.name}` must be known at compile"
                                 " time", p.default.span, fault.reason)  # fmt: skip
            continue
        kind = compile_time_kind(p)
        if is_compile_time(p, bracket) and not fits_kind(value, kind):
            yield Diagnostic(
                "T0218", f"the default of `{p.name}` is no compile-time `{kind}`", p.default.span
            )


def _undefined(scope: ModuleScope, e: ast.Expr) -> bool:
    return isinstance(e, ast.Name) and scope.lookup(e.id) is None


def _annotations(scope: ModuleScope, function: ast.FunctionDef) -> Iterator[Diagnostic]:
    # A dtype parameter stands for some dtype: any will do for a generic check.
    fixed = {
        p.name: Constant(p.name, F32 if compile_time_kind(p) in ("dtype", "any") else 1, p.span)
        for b, p in parameters_of(function) if is_compile_time(p, b)
    }  # fmt: skip
    lookup = dtype_lookup(scope, fixed)
    run_time = {p.name for p in function.parameters} - set(fixed)
    plain: set[str] = set()
    bound: list[tuple[ast.Expr, frozenset[str]]] = []
    for bracket, p in parameters_of(function):
        a = p.annotation
        if a is None:
            continue
        if is_compile_time(p, bracket):
            if not is_compile_time(p):
                yield unknown_type(a)
            elif a.qualifier:
                yield Diagnostic("T0217", f"`{a.qualifier}` belongs to arrays", a.span)
            continue
        spec = spec_of(p, lookup)
        if isinstance(spec, Diagnostic):
            yield spec
            continue
        for e in spec.dims:
            if isinstance(e, ast.Name) and e.id not in fixed:
                plain.add(e.id)
            names = names_in(e) & run_time
            if names:
                yield Diagnostic(
                    "T0303", f"`{min(names)}` is a parameter, and sizes are bound by shapes",
                    e.span, helps=("drop the parameter: the size is known from the array",),
                )  # fmt: skip
                continue
            try:
                dim = read_size(e, lambda n: 1 if n.id in fixed else Sym(n.id))
            except BadSize as bad:
                yield Diagnostic("T0303", bad.reason, bad.span)
                continue
            bound.append((e, symbols_of(dim)))
    if tile_decorator(function) is not None:
        specs = [(p, spec_of(p, lookup)) for p in function.parameters]
        dims = [(p, s.dims) for p, s in specs if not isinstance(s, Diagnostic)]
        plain.update(m.name for m in multiples_of(function, dims))
    for e, names in bound:
        unbound = (n for n in names - plain if constant_size(scope, n) is None)
        for name in sorted(unbound)[:1]:
            yield Diagnostic(
                "T0312", f"the size `{name}` is never bound", e.span,
                helps=("give the axis a name of its own, and write what it is made of with that:"
                       " of `u8[m, n]` the third of an axis is `n // 3`, and `where n % 3 == 0`"
                       " says that nothing is left",
                       f"or give an array an axis of size `{name}` alone, as in `f32[{name}]`"),
            )  # fmt: skip
    yield from _result(function)


def _result(function: ast.FunctionDef) -> Iterator[Diagnostic]:
    a = function.returns
    if a is None or is_none(a) or kernel_decorator(function) is None:
        return
    yield Diagnostic(
        "T0212", "a lane kernel returns nothing", a.span,
        helps=("write the result to a `mut` parameter",),
    )  # fmt: skip
