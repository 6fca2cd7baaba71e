"""One function checked for one signature.

Owns the order of the work: parameters, clauses, walks over the body until every open
variable is settled, and the walk that writes the tables. Must not know how a construct is
typed.
"""

from __future__ import annotations

import sys

from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.record import replace
from tessera_lang.sema.bound_names import (
    assigned_names,
)
from tessera_lang.sema.context import Binding, Context, Frame, Shared, Variable
from tessera_lang.sema.expressions import attach
from tessera_lang.sema.flow import check_flow, literal_value
from tessera_lang.sema.fully_typed import is_whole
from tessera_lang.sema.generic_check import check_function_structure
from tessera_lang.sema.grid_and_where_clauses import check_conditions, read_grid
from tessera_lang.sema.inference_types import Cells
from tessera_lang.sema.inlined_size import too_large
from tessera_lang.sema.kernel_clauses import kernel_decorator, read_clauses, tile_decorator
from tessera_lang.sema.module_scope import ModuleScope, Scopes
from tessera_lang.sema.narrow_sums import warn_narrow
from tessera_lang.sema.parameters import Parameters, bind_parameters, bindings_of
from tessera_lang.sema.redundant_warps import warn_of_equal_warps
from tessera_lang.sema.shared import bare_buffer, check_bare
from tessera_lang.sema.side_tables import (
    FunctionSymbol,
    KernelInfo,
    Local,
    Signature,
    TypedFunction,
)
from tessera_lang.sema.statements import check_block
from tessera_lang.sema.tile.instance import Axes, examine_kernel
from tessera_lang.sema.tile.instance import needed_sizes as axes_asked
from tessera_lang.syntax import ast
from tessera_lang.types.shape import Sym
from tessera_lang.types.type import ERROR, NONE, Buffer, Scalar, Type

MOST_WALKS = 64
FRAMES = 12_000
"""Python frames that the deepest tree the parser lets through may take here."""

Outcome = tuple[TypedFunction | None, tuple[Diagnostic, ...]]


def check_function(symbol: FunctionSymbol, signature: Signature, scopes: Scopes) -> Outcome:
    """Check ``symbol`` for a signature: the instance and all diagnostics.

    The instance is None where there are errors, or where the parser left holes in the tree.
    The diagnostics contain those of the generic check of the function and of what it calls;
    ``unique`` drops what ``check_structure`` has reported too.
    """
    typed, reports = examine_function(symbol, signature, scopes)
    if typed is not None and typed.complete and (fault := too_large(typed)) is not None:
        return None, (*reports, fault)
    return (typed if typed is not None and typed.complete else None), reports


def examine_function(symbol: FunctionSymbol, signature: Signature, scopes: Scopes) -> Outcome:
    """The same for the editor: the tables as far as they go, ``complete`` or not."""
    # Never lowered again: another thread may be deep in a tree.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), FRAMES))
    scope = scopes(symbol.module)
    declaration = symbol.declaration
    if tile_decorator(declaration) is not None:
        return examine_kernel(symbol, signature, scopes, instantiate)
    bindings, problems = bindings_of(declaration, signature)
    if bindings is None:
        return None, problems
    shared = Shared(scopes, instantiate)
    shared.stack.append(Frame(declaration, None))
    typed, reports = instantiate(shared, scope, declaration, bindings)
    if typed is not None:
        typed.signature = signature
    return typed, unique((*problems, *reports))


def needed_sizes(symbol: FunctionSymbol, signature: Signature, scopes: Scopes) -> tuple[Axes, Axes]:
    """Of a tile kernel: the axes (parameter, axis) whose size a signature must give, since it
    fixes the shape of a tile, and those of which it may give a bound (``buckets``)."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), FRAMES))
    return axes_asked(symbol, signature, scopes, instantiate)


def unique(diagnostics: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """Without repetitions, in order of first sight."""
    return tuple(dict.fromkeys(diagnostics))


def instantiate(
    shared: Shared, scope: ModuleScope, declaration: ast.FunctionDef, bindings: dict[str, Binding]
) -> Outcome:
    """Check a function for what its parameters are bound to."""
    generic = check_function_structure(scope, declaration)
    typed = TypedFunction(declaration, scope.path, ())
    decorator = kernel_decorator(declaration)
    parameters = bind_parameters(scope, declaration, bindings, is_kernel=decorator is not None)
    c = _context(shared, scope, declaration, typed, parameters)
    c.reports.extend(parameters.problems)
    if decorator is not None:
        _kernel(c, decorator, parameters)
    _walks(c)
    _finish(c, parameters)
    flow = _flow(c, parameters)
    reports = unique((*generic, *flow, *c.reports))
    typed.complete = not any(d.severity == "error" for d in reports) and is_whole(typed)
    return typed, reports


def _context(
    shared: Shared, scope: ModuleScope, declaration: ast.FunctionDef, typed: TypedFunction,
    parameters: Parameters,
) -> Context:  # fmt: skip
    variables = dict(parameters.variables)
    for name, (span, kind) in assigned_names(declaration).items():
        if name not in variables and name not in parameters.compile_time:
            variables[name] = Variable(Local(name, kind, span))
    returns = Variable(Local("the result", "variable", declaration.name_span))
    if declaration.returns is not None and parameters.returns is not None:
        returns.type, returns.since = parameters.returns, declaration.returns.span
    c = Context(
        scope, declaration, typed, shared, kernel_decorator(declaration) is not None,
        Cells(list(parameters.cells), floats=parameters.floats, has_floats=parameters.has_floats),
        variables, parameters.compile_time, returns,
    )  # fmt: skip
    attach(c)
    typed.sizes = dict(parameters.sizes)
    return c


def _kernel(c: Context, decorator: ast.Decorator, parameters: Parameters) -> None:
    clauses = read_clauses(decorator, c.scope, c.compile_time)
    c.reports.extend(clauses.problems)
    c.group, c.budget = clauses.group or (), clauses.shared
    grid = None
    c.final = True  # the head is read once: report now
    if clauses.grid is not None:
        grid = read_grid(c, clauses.grid, parameters)
    if parameters.binds_grid:
        grid = (Sym("grid_groups"),)
    c.final = False
    sizes = tuple(parameters.sizes)
    c.typed.kernel = KernelInfo(c.group, c.budget, grid, sizes, (), clauses.registers)


def _walks(c: Context) -> None:
    """Walk until nothing more is learnt, settle what met nothing, walk for the tables."""
    body = c.declaration.body
    for _ in range(MOST_WALKS):
        c.cells.changed = False
        _begin(c)
        check_block(c, body)
        if c.cells.changed:
            continue
        blocked = tuple(cell for cell in c.blocked if cell.root().dtype is None)
        c.cells.default(blocked or c.cells.open)
        if not c.cells.changed:
            break
    c.cells.default(c.cells.open)
    c.final = True
    _begin(c)
    check_block(c, body)
    conditions = check_conditions(c)
    if c.typed.kernel is not None:
        c.typed.kernel = replace(c.typed.kernel, conditions=conditions)
    else:
        c.typed.conditions = conditions
    for bare in c.bare.values():
        check_bare(c, bare)


def _flow(c: Context, parameters: Parameters) -> tuple[Diagnostic, ...]:
    """Flow again, with compile-time tests decided."""

    def known(e: ast.Expr) -> object:
        value = c.try_value(e)
        return literal_value(e) if value is None else value

    heads = {*parameters.variables, *parameters.compile_time}
    first = {n: s for n, (s, _) in assigned_names(c.declaration).items() if n not in heads}
    found = check_flow(c.declaration, first, known, lambda _: False)
    # A branch that one signature never takes is no dead code of the function.
    return tuple(d for d in found if d.code != "T0119")


def _begin(c: Context) -> None:
    c.blocked.clear()
    for bare in c.bare.values():
        bare.seen, bare.waits = False, ()


def _finish(c: Context, parameters: Parameters) -> None:
    typed = c.typed
    for v in c.variables.values():
        typed.variables[v.local] = final_type(c, v)
        warn_narrow(c, v)
    if typed.kernel is not None:
        warn_of_equal_warps(c)
    typed.shared_bytes = sum(c.allocations.values())
    typed.parameters = tuple(parameters.order)
    typed.parameter_types = tuple(typed.variables[p] for p in parameters.order)
    unset = c.returns.cell is None and c.returns.type is None
    typed.returns = NONE if unset else final_type(c, c.returns)


def final_type(c: Context, v: Variable) -> Type:
    """The type of a variable after the last walk."""
    if v.bare is not None:
        term = bare_buffer(c, v.bare)
        return term if isinstance(term, Buffer) else ERROR
    if v.cell is not None:
        dtype = v.cell.root().dtype
        return Scalar(dtype) if dtype is not None else ERROR
    return v.type or ERROR
