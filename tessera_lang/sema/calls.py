"""Calls in lanes: what is called, and instances of plain functions.

Owns argument binding to a function's parameters and the labels at the call. Must not know
statements or how an instance is checked (``Shared.instantiate``).
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Label
from tessera_lang.record import replace
from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.builtin_calls import cast, failed, infer_builtin
from tessera_lang.sema.call_arguments import bind_call, bindings_of_call
from tessera_lang.sema.context import Binding, Context, Frame, Known, text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Term, Unknown
from tessera_lang.sema.inlined_size import MOST_NESTED, nested_too_deep
from tessera_lang.sema.literals import give, settle
from tessera_lang.sema.name_values import named_symbol
from tessera_lang.sema.operators import float_of_cell
from tessera_lang.sema.side_tables import (
    Builtin,
    Constant,
    FunctionSymbol,
    Local,
    ModuleSymbol,
    Symbol,
)
from tessera_lang.sema.signature import (
    is_compile_time,
)
from tessera_lang.sema.unsupported import recursion
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import INDEX, DType
from tessera_lang.types.type import NONE, ErrorType, Opaque, Scalar, Tensor, Weak

DTYPE = Opaque("dtype")


def infer_call(c: Context, e: ast.Call) -> Term:
    """A call of anything."""
    function = e.function
    brackets: tuple[ast.Expr, ...] = ()
    if isinstance(function, ast.Subscript):
        symbol = named_symbol(c, function.value)
        if isinstance(symbol, FunctionSymbol):
            function, brackets = function.value, function.items
    symbol = named_symbol(c, function)
    if isinstance(symbol, (FunctionSymbol, Builtin)) and c.final:
        c.typed.symbols[function] = symbol
    match symbol:
        case Builtin():
            return infer_builtin(c, e, symbol.name)
        case FunctionSymbol():
            return call_function(c, e, symbol, brackets)
        case Constant() if isinstance(symbol.value, DType):
            return _dtype_call(c, e, symbol.value)
        case _:
            pass
    if isinstance(function, ast.Attribute) and symbol is None:
        if function.name == "to":
            return _to(c, e, function)
        if isinstance(named_symbol(c, function.value), ModuleSymbol):
            return _infer_arguments(c, e)
    return _not_callable(c, e, function, symbol)


def _infer_arguments(c: Context, e: ast.Call) -> Term:
    for argument in e.arguments:
        c.infer(argument)
    for keyword in e.keywords:
        c.infer(keyword.value)
    return failed(c)


def _not_callable(c: Context, e: ast.Call, function: ast.Expr, symbol: Symbol | None) -> Term:
    if symbol is None and isinstance(function, ast.Name):
        return _infer_arguments(c, e)  # undefined: the structure check names it
    term = c.infer(function)
    _infer_arguments(c, e)
    if isinstance(term, (Unknown, ErrorType)):
        return term
    return c.report("T0216", f"`{text_of(term)}` cannot be called", function.span)


def _dtype_call(c: Context, e: ast.Call, dtype: DType) -> Term:
    """``T(x)`` with a dtype parameter."""
    if c.final:
        c.typed.symbols[e.function] = Builtin(dtype.name)
    if len(e.arguments) != 1 or e.keywords:
        return c.report("T0105", f"`{dtype}` takes 1 argument", e.span)
    return cast(c, e, e.arguments[0], dtype)


def _to(c: Context, e: ast.Call, function: ast.Attribute) -> Term:
    """``x.to(f32)``."""
    if len(e.arguments) != 1 or e.keywords:
        _infer_arguments(c, e)
        return c.report("T0105", "`.to` takes 1 argument, a dtype", e.span)
    c.infer(e.arguments[0])
    dtype = c.try_value(e.arguments[0])
    if not isinstance(dtype, DType):
        c.infer(function.value)
        return c.report("T0218", "`.to` takes a dtype, as in `x.to(f32)`", e.arguments[0].span)
    if c.final:
        c.typed.symbols[function] = Builtin("to")
    return cast(c, e, function.value, dtype)


# --- functions of the program --------------------------------------------------------------


def call_function(
    c: Context, e: ast.Call, symbol: FunctionSymbol, brackets: tuple[ast.Expr, ...]
) -> Term:
    """A call of a function of the program."""
    declaration = symbol.declaration
    if declaration.decorators:
        _infer_arguments(c, e)
        return c.report(
            "T0216", f"`{declaration.name}` cannot be called from lanes: it is a kernel", e.span,
            labels=(Label(declaration.name_span, "declared here"),),
            helps=("put the shared work in a plain function",),
        )  # fmt: skip
    if any(f.declaration is declaration for f in c.shared.stack):
        _infer_arguments(c, e)
        return c.add(recursion(e, declaration))
    if len(c.shared.stack) > MOST_NESTED:
        _infer_arguments(c, e)
        return c.add(nested_too_deep(e))
    arguments = bind_call(c, e, declaration, brackets)
    if arguments is None:
        return _infer_arguments(c, e)
    bindings = bindings_of_call(c, e, declaration, arguments, symbol)
    if isinstance(bindings, Unknown):
        return bindings
    if bindings is None:
        return failed(c)
    if (waiting := _counts_as_floats(c, e, symbol, arguments, bindings)) is not None:
        return waiting
    c.shared.stack.append(Frame(declaration, e.span))
    key = (declaration, *(_key(b) for b in bindings.values()), *c.call_key(arguments))
    if key not in c.shared.memo:
        scope = c.scope_of(symbol)
        c.shared.memo[key] = c.shared.instantiate(c.shared, scope, declaration, bindings)
    c.shared.stack.pop()
    return result_of_call(c, e, symbol, arguments, bindings, key)


def _counts_as_floats(
    c: Context, e: ast.Call, symbol: FunctionSymbol, arguments: Bound, bindings: dict[str, Binding]
) -> Term | None:
    """Counts and literals given to a function of ``std.math`` bind its parameters as floats: those
    of the other arguments, else those that the result meets, for which the term that is returned
    waits."""
    if symbol.module == c.scope.path or not c.shared.counts:
        return None
    counts = [
        n for n, a in arguments.items()
        if bindings.get(n) == Scalar(INDEX) and c.is_size(a) or isinstance(bindings.get(n), Weak)
    ]  # fmt: skip
    if not counts:
        return None
    scope = c.scope.scope_named("std.math")
    if scope is None or symbol.module != scope.path:
        return None
    floats = [b for b in bindings.values() if isinstance(b, Scalar) and b.dtype.is_float]
    found = floats[0] if floats else float_of_cell(c, e)
    if not isinstance(found, Scalar):
        return found
    for name in counts:
        if isinstance(term := bindings[name], Weak):
            settle(c, arguments[name], term, found.dtype)
        else:
            c.coerce(arguments[name], found.dtype)
        bindings[name] = found
    return None


def _key(binding: Binding) -> object:
    if isinstance(binding, Known):
        return (type(binding.value).__name__, repr(binding.value))
    if isinstance(binding, Tensor):
        return replace(binding, mut=False)
    return binding


def result_of_call(
    c: Context, e: ast.Call, symbol: FunctionSymbol, arguments: Bound,
    bindings: dict[str, Binding], key: tuple[object, ...],
) -> Term:  # fmt: skip
    """The type of the call; reports of the instance get a label here, once."""
    declaration = symbol.declaration
    instance, reports = c.shared.memo[key]
    if c.final and reports:
        shown = ", ".join(_shown(b) for b in bindings.values())
        label = Label(e.span, f"in the call with ({shown})")
        generic = c.scope_of(symbol).structure.get(declaration, ())
        c.reports.extend(
            d
            if d in generic or d.code in ("T0110", "T0316")
            else replace(d, labels=(*d.labels, label))
            for d in reports
        )
        c.shared.memo[key] = (instance, ())
    if instance is None or not instance.complete:
        return failed(c)
    if instance.shared_bytes:
        c.allocations[e] = instance.shared_bytes
    run_time = [p for p in declaration.parameters if not is_compile_time(p)]
    for p, local, kind in zip(
        run_time, instance.parameters, instance.parameter_types, strict=False
    ):
        argument = arguments.get(p.name)
        if argument is None:
            continue
        if isinstance(kind, Scalar):
            give(c, argument, _term_again(c, argument), kind.dtype)
        elif isinstance(kind, Tensor) and kind.mut:
            _needs_mut(c, argument, local, declaration)
    if c.final:
        c.typed.calls[e] = instance
        c.typed.arguments[e] = tuple(arguments.get(p.name) for p in declaration.parameters)
    return instance.returns if instance.returns is not None else NONE


def _term_again(c: Context, argument: ast.Expr) -> Term:
    """The type of an argument as it was inferred a moment ago."""
    return c.typed.types.get(argument, Unknown())


def _shown(binding: Binding) -> str:
    return repr(binding.value) if isinstance(binding, Known) else str(binding)


def _needs_mut(
    c: Context, argument: ast.Expr, parameter: Local, declaration: ast.FunctionDef
) -> None:
    """The callee writes the array: the caller must be allowed to."""
    term = c.infer(argument)
    if not isinstance(term, Tensor) or term.mut:
        return
    variable = c.variables.get(argument.id) if isinstance(argument, ast.Name) else None
    annotations = {p.name: p.annotation for p in c.declaration.parameters}
    if variable is not None and variable.local.kind == "parameter":
        if annotations.get(variable.local.name) is None:
            variable.type = replace(term, mut=True)
            c.cells.changed = True
            return
    c.report(
        "T0111", f"`{declaration.name}` writes its parameter `{parameter.name}`, and"
        f" `{source_of(argument)}` is not `mut`", argument.span,
        labels=(Label(parameter.span, "written through this parameter"),)
        if parameter.span else (),
    )  # fmt: skip
