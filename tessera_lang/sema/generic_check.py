"""The generic check of a function: what is wrong whatever it is called with.

Owns decorators, parameters, placement of statements, names, flow and recursion. Its result
is kept in the scope, so that every instance can ask for it. Must not know types.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera_lang.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label
from tessera_lang.record import replace
from tessera_lang.sema import builtins
from tessera_lang.sema.bound_names import (
    assigned_names,
    expressions,
    statement_expressions,
    statements,
    targets,
    written_names,
)
from tessera_lang.sema.endless_loops import endless_loops
from tessera_lang.sema.flow import check_flow, literal_value
from tessera_lang.sema.heads import check_head
from tessera_lang.sema.kernel_clauses import kernel_decorator, tile_decorator
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.names import NameChecker
from tessera_lang.sema.places_below_0 import places_below_0
from tessera_lang.sema.side_tables import (
    Builtin,
    Constant,
    FunctionSymbol,
    Local,
    ModuleSymbol,
)
from tessera_lang.sema.signature import (
    DTypeLookup,
    dtype_lookup,
    is_compile_time,
    parameters_of,
    unknown_type,
)
from tessera_lang.sema.sizes import own_sizes
from tessera_lang.sema.unsupported import (
    not_built,
    recursion,
    statement_problem,
    tile_statement_problem,
)
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F32


def check_structure(scope: ModuleScope) -> tuple[Diagnostic, ...]:
    """Every function of a file, without signatures.

    What ``resolve_module`` found wrong stands in ``scope.diagnostics`` and is not repeated;
    top-level statements are evaluated symbolically elsewhere.
    """
    problems: list[Diagnostic] = []
    for s in statements(scope.module.body):
        if isinstance(s, ast.FunctionDef):
            problems.extend(check_function_structure(scope, s))
    return tuple(problems)


def check_function_structure(
    scope: ModuleScope, function: ast.FunctionDef
) -> tuple[Diagnostic, ...]:
    """The generic check of one function, made once per scope."""
    if function not in scope.structure:
        scope.structure[function] = _types_once(list(_check(scope, function)))
    return scope.structure[function]


def _types_once(found: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    """A type that is none is one fault of a function, wherever it stands; its fix mends all."""
    first: dict[str, int] = {}
    kept: list[Diagnostic] = []
    for d in found:
        name = d.message.split("`")[1] if d.code in ("T0217", "T0101") and "`" in d.message else ""
        if d.code == "T0217" and d.fixes and name not in first:
            first[name] = len(kept)
        elif name in first and d.fixes and d.span is not None:
            one = kept[first[name]]
            edits = (*one.fixes[0].edits, *d.fixes[0].edits)
            labels = (*one.labels, Label(d.span, "and here"))
            fix = replace(one.fixes[0], edits=edits)
            kept[first[name]] = replace(one, labels=labels, fixes=(fix,))
            continue
        kept.append(d)
    return tuple(kept)


def _check(scope: ModuleScope, function: ast.FunctionDef) -> Iterator[Diagnostic]:
    later = _later(function)
    if later is not None:
        yield later
        return
    kernel, tile = kernel_decorator(function), tile_decorator(function)
    yield from check_head(scope, function)
    yield from _placement(function.body, in_loop=False)
    if kernel is not None:
        yield from _lane_statements(function)
    elif tile is not None:
        yield from _tile_statements(function)
        yield from places_below_0(function)
    yield from _assignments(scope, function)
    variables = local_names(function)
    place = "lane" if kernel is not None else "tile" if tile is not None else "any"
    names = NameChecker(scope, place, variables, bare=kernel is None)
    check_names(names, function)
    yield from names.problems
    first = {n: span for n, (span, _) in _variables(function).items()}
    yield from check_flow(
        function, first, literal_value, lambda e: is_open(scope, function, e),
        at_run=kernel is None and tile is None,
    )  # fmt: skip
    yield from endless_loops(function)
    yield from _unwritable(function)
    if kernel is not None or tile is not None:
        yield from _recursion(scope, function)


def _later(function: ast.FunctionDef) -> Diagnostic | None:
    """Decorators of the language that are not built: one report, and no more."""
    for d in function.decorators:
        e = d.value.function if isinstance(d.value, ast.Call) else d.value
        match e:
            case ast.Attribute(value=ast.Name(id="op"), name="autotunable"):
                return not_built("tuning (`@op.autotunable`)", d.span)
            case ast.Name(id="bench" | "fast" as name):
                return not_built(f"`@{name}`", d.span)
            case _:
                pass
    return None


def local_names(function: ast.FunctionDef) -> dict[str, Local]:
    """Every name a function binds, as symbols for the editor and for lookup."""
    found: dict[str, Local] = {}
    for _, p in parameters_of(function):
        found[p.name] = Local(p.name, "parameter", p.name_span)
    for p in function.parameters:
        for e in p.annotation.shape or () if p.annotation is not None else ():
            for part in expressions(e):
                if isinstance(part, ast.Name) and part.id not in builtins.FUNCTIONS:
                    found.setdefault(part.id, Local(part.id, "size", part.span))
    for name, (span, kind) in assigned_names(function).items():
        found.setdefault(name, Local(name, kind, span))
    for s in statements(function.body):
        if isinstance(s, ast.ErrorStmt):
            for n in s.names:
                found.setdefault(n.id, Local(n.id, "variable", n.span))
        elif isinstance(s, (ast.Import, ast.FromImport)):
            for n in s.names:
                bound = n.alias or n.name.partition(".")[0]
                found.setdefault(bound, Local(bound, "variable", n.span))
    return found


def _variables(function: ast.FunctionDef) -> dict[str, tuple[Span, str]]:
    """Variables that are neither parameters nor sizes."""
    heads = {p.name for _, p in parameters_of(function)}
    sizes = {n for n, local in local_names(function).items() if local.kind == "size"}
    return {n: found for n, found in assigned_names(function).items() if n not in heads | sizes}


# --- names ---------------------------------------------------------------------------------


def check_names(names: NameChecker, function: ast.FunctionDef) -> None:
    """Names of defaults, conditions and the body; nested functions with what is around."""
    outside = NameChecker(names.scope, "any")
    for _, p in parameters_of(function):
        if p.default is not None:
            outside.check(p.default)
    names.problems.extend(outside.problems)
    for e in function.where:
        names.check(e)
    for s in statements(function.body):
        refused = (names.place == "lane" and statement_problem(s) is not None) or (
            names.place == "tile" and tile_statement_problem(s) is not None
        )
        for e in () if refused and isinstance(s, ast.For) else statement_expressions(s):
            names.check(e)
        for t in targets(s):
            if isinstance(t, ast.Name) and t.id in names.locals:
                names.scope.symbols[t] = names.locals[t.id]
        if isinstance(s, ast.FunctionDef):
            inner = NameChecker(
                names.scope, names.place, local_names(s), names.outer | set(names.locals),
                names.bare,
            )  # fmt: skip
            check_names(inner, s)
            names.problems.extend(inner.problems)


def is_open(scope: ModuleScope, function: ast.FunctionDef, test: ast.Expr) -> bool:
    """Whether a test is decided by compile-time parameters alone."""
    fixed = {p.name for b, p in parameters_of(function) if is_compile_time(p, b)}
    about = False
    for e in expressions(test):
        if isinstance(e, ast.Attribute) and e.name in ("dtype", "ndim", "shape"):
            about = True
        elif isinstance(e, ast.Name):
            symbol = scope.lookup(e.id)
            if e.id in fixed or isinstance(symbol, Constant):
                about = True
            elif not isinstance(symbol, (Builtin, ModuleSymbol)):
                parameters = {p.name for p in function.parameters}
                if e.id not in parameters or not _only_of_attributes(test, e):
                    return False
        elif isinstance(e, (ast.Call, ast.Subscript)) and not isinstance(e, ast.Subscript):
            return False
    return about


def _only_of_attributes(test: ast.Expr, name: ast.Name) -> bool:
    return any(
        isinstance(e, ast.Attribute) and e.value is name and e.name in ("dtype", "ndim")
        for e in expressions(test)
    )


# --- statements ----------------------------------------------------------------------------


def _placement(body: tuple[ast.Stmt, ...], *, in_loop: bool) -> Iterator[Diagnostic]:
    """``break`` and ``continue`` stand in loops."""
    for s in body:
        match s:
            case ast.Break() | ast.Continue():
                if not in_loop:
                    word = "break" if isinstance(s, ast.Break) else "continue"
                    yield Diagnostic("T0107", f"`{word}` outside a loop", s.span)
            case ast.If():
                yield from _placement(s.body, in_loop=in_loop)
                yield from _placement(s.orelse, in_loop=in_loop)
            case ast.With():
                yield from _placement(s.body, in_loop=in_loop)
            case ast.For() | ast.While():
                yield from _placement(s.body, in_loop=True)
            case _:
                pass


def _lane_statements(function: ast.FunctionDef) -> Iterator[Diagnostic]:
    for s in statements(function.body):
        problem = statement_problem(s)
        if problem is not None:
            yield problem


def _tile_statements(function: ast.FunctionDef) -> Iterator[Diagnostic]:
    for s in statements(function.body):
        problem = tile_statement_problem(s)
        if problem is not None:
            yield problem


def _assignments(scope: ModuleScope, function: ast.FunctionDef) -> Iterator[Diagnostic]:
    """Compile-time parameters and sizes are not variables."""
    fixed = {p.name: p for b, p in parameters_of(function) if is_compile_time(p, b)}
    sizes = {n: x for n, x in local_names(function).items() if x.kind == "size"}
    lookup = dtype_lookup(scope, {n: Constant(n, F32, None) for n in fixed})
    for s in statements(function.body):
        if isinstance(s, ast.AnnotatedAssign) and not _is_type(s.annotation, lookup):
            yield unknown_type(s.annotation)
        same = own_sizes(function, s)
        for t in targets(s):
            if not isinstance(t, ast.Name) or t in same:
                continue
            if t.id in fixed:
                yield _fixed(t, "a compile-time parameter", fixed[t.id].span)
            elif t.id in sizes:
                yield _fixed(t, "a size of an array", sizes[t.id].span)


def _is_type(a: ast.TypeExpr, lookup: DTypeLookup) -> bool:
    return isinstance(a.base, ast.Name) and (
        lookup(a.base.id) is not None or a.base.id in builtins.COMPILE_TIME_TYPES
    )


def _fixed(t: ast.Name, what: str, span: Span | None) -> Diagnostic:
    return Diagnostic(
        "T0112", f"`{t.id}` is {what} and cannot be assigned", t.span,
        labels=(Label(span, "declared here"),) if span is not None else (),
        helps=("use another variable",),
    )  # fmt: skip


def _unwritable(function: ast.FunctionDef) -> Iterator[Diagnostic]:
    """An annotated parameter that is written needs ``mut``."""
    written = written_names(function)
    for p in function.parameters:
        a = p.annotation
        if a is None or a.shape is None or a.qualifier == "mut" or p.name not in written:
            continue
        if a.qualifier == "const":
            yield Diagnostic(
                "T0111", f"`{p.name}` is constant and cannot be written", written[p.name],
                labels=(Label(a.span, "declared `const` here"),),
            )  # fmt: skip
            continue
        start = Span(a.span.anchor, a.span.start, a.span.start)
        yield Diagnostic(
            "T0111", f"`{p.name}` is written but its parameter is not `mut`", written[p.name],
            labels=(Label(a.span, "declared here"),),
            helps=(f"write `{p.name}: mut ...`",),
            fixes=(Fix("add `mut`", (Edit(start, "mut "),)),),
        )  # fmt: skip


# --- recursion -----------------------------------------------------------------------------


def _recursion(scope: ModuleScope, kernel: ast.FunctionDef) -> Iterator[Diagnostic]:
    """Calls of this file's functions that lead back to a function under way."""
    done: set[ast.FunctionDef] = set()
    found: list[Diagnostic] = []

    def visit(function: ast.FunctionDef, stack: tuple[ast.FunctionDef, ...]) -> None:
        bound = local_names(function)
        for s in statements(function.body):
            for root in statement_expressions(s):
                for e in expressions(root):
                    if not isinstance(e, ast.Call) or not isinstance(e.function, ast.Name):
                        continue
                    symbol = None if e.function.id in bound else scope.lookup(e.function.id)
                    if not isinstance(symbol, FunctionSymbol) or symbol.module != scope.path:
                        continue
                    if symbol.declaration in stack:
                        found.append(recursion(e, symbol.declaration))
                    elif symbol.declaration not in done and len(stack) < 100:
                        visit(symbol.declaration, (*stack, symbol.declaration))
        done.add(function)

    visit(kernel, (kernel,))
    yield from found
