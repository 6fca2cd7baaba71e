"""Arguments of a call of a program's function: bound to names, fitted to annotations.

Owns what each parameter of the instance is bound to. Must not know instances.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Diagnostic, Label
from tessera_lang.evaluate.constant import NotConstant
from tessera_lang.record import replace
from tessera_lang.sema.argument_binding import Bound, bind
from tessera_lang.sema.context import Binding, Context, Known, text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Cell, Open, OpenBuffer, Term, Unknown
from tessera_lang.sema.literals import give, misfit, settle
from tessera_lang.sema.parameters import axes_counted
from tessera_lang.sema.side_tables import (
    Constant,
    FunctionSymbol,
)
from tessera_lang.sema.signature import (
    ParameterSpec,
    compile_time_kind,
    constant_in,
    dtype_lookup,
    fits_kind,
    is_compile_time,
    parameters_of,
    spec_of,
)
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, F32, INDEX, DType
from tessera_lang.types.type import Buffer, ErrorType, Opaque, Scalar, Tensor, Tile, Weak


def bind_call(
    c: Context, e: ast.Call, declaration: ast.FunctionDef, brackets: tuple[ast.Expr, ...]
) -> Bound | None:
    """All arguments by name, brackets too."""
    what = f"`{declaration.name}`"
    reports: list[Diagnostic] = []
    if len(brackets) > len(declaration.brackets):
        c.report(
            "T0105", f"{what} takes {len(declaration.brackets)} arguments in brackets, not"
            f" {len(brackets)}", brackets[len(declaration.brackets)].span,
        )  # fmt: skip
        return None
    by_bracket = dict(zip((p.name for p in declaration.brackets), brackets, strict=False))
    bracket_names = {p.name for p in declaration.brackets} - set(by_bracket)
    in_parentheses = tuple(k for k in e.keywords if k.name in bracket_names)
    by_bracket |= {k.name: k.value for k in in_parentheses}
    call = replace(e, keywords=tuple(k for k in e.keywords if k not in in_parentheses))
    bound = bind(
        call, [p.name for p in declaration.parameters],
        [p.name for p in declaration.parameters if p.default is None], what, reports.append,
        declaration.name_span,
    )  # fmt: skip
    for p in declaration.brackets:
        if p.name not in by_bracket and p.default is None:
            reports.append(Diagnostic(
                "T0105", f"{what} needs `{p.name}` in brackets", e.span,
                helps=(f"write `{declaration.name}[...](...)`",),
            ))  # fmt: skip
            bound = None
    if c.final:
        c.reports.extend(reports)
    if bound is None:
        return None
    return by_bracket | bound


def bindings_of_call(
    c: Context, e: ast.Call, declaration: ast.FunctionDef, arguments: Bound, symbol: FunctionSymbol
) -> dict[str, Binding] | Unknown | None:
    """What each parameter is bound to; None where something was reported."""
    scope = c.scope_of(symbol)
    bindings: dict[str, Binding] = {}
    compile_time: dict[str, Constant] = {}
    waits: list[Cell] = []
    quiet, good = False, True
    for bracket, p in parameters_of(declaration):
        if is_compile_time(p, bracket):
            value = _constant_argument(c, e, p, arguments.get(p.name), symbol)
            good = good and value is not None
            if value is not None:
                bindings[p.name] = value
                compile_time[p.name] = Constant(p.name, value.value, p.span)
    lookup = dtype_lookup(scope, compile_time)
    for bracket, p in parameters_of(declaration):
        if is_compile_time(p, bracket):
            continue
        spec = spec_of(p, lookup)
        argument = arguments.get(p.name)
        if isinstance(spec, Diagnostic):
            spec = ParameterSpec("any")  # the instance reports it
        if argument is None:
            binding: Binding | Unknown | None = _default(c, p, spec, symbol)
        else:
            binding = _argument(c, e, p, argument, spec, declaration)
        if isinstance(binding, Unknown):
            quiet = True
            waits.extend(binding.cells)
        elif binding is None:
            good = False
        else:
            bindings[p.name] = binding
    if not good:
        return None
    if quiet:
        c.blocked.extend(waits)
        return Unknown(tuple(waits))
    return {p.name: bindings[p.name] for _, p in parameters_of(declaration)}


def _constant_argument(
    c: Context, e: ast.Call, p: ast.Parameter, argument: ast.Expr | None, symbol: FunctionSymbol
) -> Known | None:
    kind = compile_time_kind(p)
    wanted = {"any": "a compile-time value"}.get(kind, f"a compile-time `{kind}`")
    if argument is None:
        try:
            value = constant_in(c.scope_of(symbol), p.default) if p.default else None
        except NotConstant:
            return None  # reported at the declaration
        return Known(value)
    term = c.infer(argument)
    value = c.try_value(argument)
    if isinstance(term, Weak):
        settle(c, argument, term, _kind_of_value(value))
    if value is not None and fits_kind(value, kind):
        return Known(float(value) if kind == "float" else value)  # type: ignore[arg-type]
    if not isinstance(term, (Unknown, ErrorType)):
        c.report(
            "T0218", f"`{p.name}` of `{symbol.declaration.name}` takes {wanted}", argument.span,
            f"this is `{text_of(term)}`",
            labels=(Label(p.span, "declared here"),),
            helps=(_of_the_run(p, kind),) if p.annotation is not None else (),
        )  # fmt: skip
    return None


def _of_the_run(p: ast.Parameter, kind: str) -> str:
    """How a parameter is declared whose values the lanes have."""
    other = {"int": f"`{p.name}: index`, `{p.name}: i32`", "float": f"`{p.name}: f32`"}.get(kind)
    without = f"`{p.name}` without an annotation takes what it is called with"
    return f"{without}; {other} are numbers of the run" if other else without


def _kind_of_value(value: object) -> DType:
    return F32 if isinstance(value, float) else INDEX


def _default(
    c: Context, p: ast.Parameter, spec: ParameterSpec, symbol: FunctionSymbol
) -> Binding | None:
    """The default of a run-time parameter: a literal value."""
    assert p.default is not None
    try:
        value = constant_in(c.scope_of(symbol), p.default)
    except NotConstant:
        return None
    if spec.kind == "scalar" and spec.dtype is not None:
        return Scalar(spec.dtype) if misfit(value, spec.dtype) is None else None
    if isinstance(value, bool):
        return Scalar(BOOL)
    if isinstance(value, (int, float)):
        return Weak("float" if isinstance(value, float) else "int")
    return Known(value)


def _argument(
    c: Context,
    e: ast.Call,
    p: ast.Parameter,
    argument: ast.Expr,
    spec: ParameterSpec,
    declaration: ast.FunctionDef,
) -> Binding | Unknown | None:
    """What an argument binds its parameter to; None where it does not fit (reported)."""
    term = c.infer(argument)
    if isinstance(term, ErrorType):
        return None
    if spec.kind == "scalar" and spec.dtype is not None:
        if isinstance(term, Unknown):
            return Scalar(spec.dtype)
        if give(c, argument, term, spec.dtype):
            return Scalar(spec.dtype)
        _wrong_argument(c, p, argument, term, str(spec.dtype), declaration)
        return None
    match term:
        case Unknown():
            return term
        case OpenBuffer():
            return Unknown(term.buffer.waits)
        case Open():
            return Scalar(spec.dtype) if spec.dtype else Unknown((term.cell,))
        case Tensor() | Buffer() | Tile():
            same = spec.kind == "tensor" and term.dtype == spec.dtype
            if spec.kind == "any" or (same and _rank(term) == len(spec.dims)):
                return term
            if same:
                _wrong_rank(c, p, argument, term, spec, declaration)
                return None
        case Scalar() | Weak() if spec.kind == "any":
            return term
        case Opaque() if spec.kind == "any" and argument in c.known:
            return Known(c.value_of(argument))
        case _:
            pass
    shape = ", ".join(source_of(d) for d in spec.dims)
    wanted = f"{spec.dtype}[{shape}]" if spec.kind == "tensor" else "a number or an array"
    _wrong_argument(c, p, argument, term, wanted, declaration)
    return None


def _wrong_argument(
    c: Context, p: ast.Parameter, argument: ast.Expr, term: Term, wanted: str,
    declaration: ast.FunctionDef,
) -> None:  # fmt: skip
    scalar = isinstance(term, Scalar) and " " not in wanted and "[" not in wanted
    c.report(
        "T0207", f"`{p.name}` of `{declaration.name}` takes `{wanted}`, not `{text_of(term)}`",
        argument.span, labels=(Label(p.span, "declared here"),),
        helps=(f"convert it: `{wanted}({source_of(argument)})`",) if scalar else (),
    )  # fmt: skip


def _wrong_rank(
    c: Context, p: ast.Parameter, argument: ast.Expr, term: Tensor | Buffer | Tile,
    spec: ParameterSpec, declaration: ast.FunctionDef,
) -> None:  # fmt: skip
    c.report(
        "T0307", f"`{p.name}` of `{declaration.name}` has {axes_counted(len(spec.dims))}, and"
        f" `{source_of(argument)}` has {_rank(term)}", argument.span, f"this is `{term}`",
        labels=(Label(p.span, "declared here"),),
    )  # fmt: skip


def _rank(term: Tensor | Buffer | Tile) -> int:
    return len(term.axes) if isinstance(term, Tile) else len(term.shape)
