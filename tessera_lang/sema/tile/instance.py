"""A tile kernel checked for one signature, and functions inlined into it.

Owns the order of the work: parameters and what the signature says of sizes, walks until nothing
more is learnt, the walk for the tables, and the checks behind it. Must not know how a construct
is typed.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Diagnostic, Edit, Fix
from tessera_lang.record import dataclass, replace
from tessera_lang.sema.bound_names import assigned_names
from tessera_lang.sema.context import Binding, Frame, Instantiate, Shared, Variable
from tessera_lang.sema.float_dtypes import float_alone
from tessera_lang.sema.flow import check_flow, literal_value
from tessera_lang.sema.fully_typed import is_whole
from tessera_lang.sema.generic_check import check_function_structure
from tessera_lang.sema.grid_and_where_clauses import check_conditions, head_size
from tessera_lang.sema.inference_types import Cells
from tessera_lang.sema.module_scope import ModuleScope, Scopes
from tessera_lang.sema.name_values import variable_term
from tessera_lang.sema.narrow_sums import warn_narrow, wide_sum
from tessera_lang.sema.parameters import Parameters, bind_parameters, bindings_of
from tessera_lang.sema.side_tables import (
    FunctionSymbol,
    Local,
    Multiple,
    Signature,
    TensorArgument,
    TileInfo,
    TypedFunction,
)
from tessera_lang.sema.signature import parameters_of
from tessera_lang.sema.signature_example import sized_arguments
from tessera_lang.sema.sizes import BadSize
from tessera_lang.sema.tile.context import Kernel, TileContext, TileShared, Value
from tessera_lang.sema.tile.directives import check_tile
from tessera_lang.sema.tile.expressions import attach
from tessera_lang.sema.tile.facts import Facts
from tessera_lang.sema.tile.in_place import body_in_place
from tessera_lang.sema.tile.places_of_the_run import check_places
from tessera_lang.sema.tile.reshape import check_reshaped
from tessera_lang.sema.tile.results import unused_variables
from tessera_lang.sema.tile.statements import check_block
from tessera_lang.sema.tile.stores import check_sums
from tessera_lang.sema.tile.variables import final_tile_type
from tessera_lang.sema.variable_versions import beginnings
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.target.array_facts import size_in_bucket
from tessera_lang.types.shape import Dim, DimOp, Sym, symbols_of
from tessera_lang.types.type import (
    ERROR,
    NONE,
    Scalar,
    Tensor,
    Tile,
    TupleType,
    Type,
)

MOST_WALKS = 64
MOST_ASKED = 4
SOME_SIZE = 64
Axes = tuple[tuple[str, int], ...]
Outcome = tuple[TypedFunction | None, tuple[Diagnostic, ...]]


@dataclass(slots=True, eq=False)
class _Sizes:
    """What a signature says of the sizes of one parameter."""

    known: tuple[int | None, ...]
    bounds: tuple[int | None, ...]
    divisors: tuple[int, ...]


def examine_kernel(
    symbol: FunctionSymbol, signature: Signature, scopes: Scopes, lanes: Instantiate
) -> Outcome:
    """Check a tile kernel; ``lanes`` checks functions of numbers."""
    declaration = symbol.declaration
    scope = scopes(symbol.module)
    bindings, problems = bindings_of(declaration, signature)
    if bindings is None:
        return None, problems
    generic = check_function_structure(scope, declaration)
    parameters = bind_parameters(scope, declaration, bindings, is_kernel=True, is_tile=True)
    facts = Facts()
    kernel = Kernel(facts, Shared(scopes, lanes, counts=False), {})
    shared = TileShared(scopes, _inlined, kernel=kernel)
    shared.stack.append(Frame(declaration, None))
    kernel.lanes.stack.append(Frame(declaration, None))
    typed = TypedFunction(declaration, scope.path, signature)
    c = _context(shared, scope, declaration, typed, parameters, kernel)
    c.reports.extend(parameters.problems)
    _learn_sizes(c, signature)
    _learn_multiples(c, parameters.multiples, signature)
    _learn_conditions(c)
    _start(c)
    _walks(c)
    conditions = check_conditions(c)
    check_sums(c)
    check_reshaped(c)
    check_places(c)
    check_tile(c)
    if not any(d.severity == "error" for d in c.reports):
        unused_variables(c)
    _finish(c, parameters, conditions)
    reports = tuple(dict.fromkeys((*problems, *generic, *_flow(c, parameters), *c.reports)))
    missing = _missing(c, typed)
    if missing is not None:
        reports = (*reports, missing)
    typed.complete = not any(d.severity == "error" for d in reports) and is_whole(typed)
    return typed, reports


def needed_sizes(
    symbol: FunctionSymbol, signature: Signature, scopes: Scopes, lanes: Instantiate
) -> tuple[Axes, Axes]:
    """The axes whose size a kernel is compiled for, and those of which it takes a bound. What is
    asked for may hide more: it is asked again with some number for each that is known to be."""
    needed: Axes = ()
    whole: Axes = ()
    for _ in range(MOST_ASKED):
        typed, _ = examine_kernel(symbol, signature, scopes, lanes)
        if typed is None or typed.tile is None:
            break
        found = tuple(dict.fromkeys((*needed, *typed.tile.needed)))
        whole = whole or typed.tile.whole
        if found == needed:
            break
        needed, signature = found, _with_sizes(symbol.declaration, signature, found)
    return needed, tuple(a for a in whole if a not in needed)


def _with_sizes(declaration: ast.FunctionDef, signature: Signature, axes: Axes) -> Signature:
    made = list(signature)
    for i, ((_, p), a) in enumerate(zip(parameters_of(declaration), signature, strict=True)):
        if not isinstance(a, TensorArgument):
            continue
        sizes = a.sizes or (None,) * a.rank
        asked = [axis for name, axis in axes if name == p.name and axis < a.rank]
        made[i] = replace(a, sizes=tuple(
            SOME_SIZE if n is None and axis in asked else n for axis, n in enumerate(sizes)
        ))  # fmt: skip
    return tuple(made)


# --- what the head says --------------------------------------------------------------------


def _context(
    shared: Shared, scope: ModuleScope, declaration: ast.FunctionDef, typed: TypedFunction,
    parameters: Parameters, kernel: Kernel,
) -> TileContext:  # fmt: skip
    variables = dict(parameters.variables)
    for name, (span, kind) in assigned_names(declaration).items():
        if name not in variables and name not in parameters.compile_time:
            variables[name] = Variable(Local(name, kind, span))
    returns = Variable(Local("the result", "variable", declaration.name_span))
    types = [v.type for v in parameters.variables.values()]
    integers = any(isinstance(t, Tensor) and t.dtype.is_integer for t in types)
    alone = integers and not parameters.has_floats
    floats = float_alone(declaration) if alone else parameters.floats
    c = TileContext(
        scope, declaration, typed, shared, True,
        Cells(list(parameters.cells), floats=floats, has_floats=parameters.has_floats),
        variables, parameters.compile_time, returns, kernel=kernel,
    )  # fmt: skip
    c.returns_declared = parameters.results
    c.beginnings = beginnings(declaration)
    c.tables = False
    attach(c)
    typed.sizes = dict(parameters.sizes)
    return c


def _learn_sizes(c: TileContext, signature: Signature) -> None:
    """What the signature says of sizes; and which axis binds which name."""
    given = {
        p.name: _Sizes(a.sizes, a.buckets, a.divisors)
        for (_, p), a in zip(parameters_of(c.declaration), signature, strict=True)
        if isinstance(a, TensorArgument)
    }
    facts = c.kernel.facts
    for name, sizes in given.items():
        kind = c.variables[name].type
        if not isinstance(kind, Tensor):
            continue
        for axis, dim in enumerate(kind.shape):
            if isinstance(dim, Sym):
                c.kernel.origins.setdefault(dim.name, (name, axis))
                facts.least.setdefault(dim.name, 0)
        for axis, dim in enumerate(kind.shape):
            if not isinstance(dim, Sym):
                continue
            if axis < len(sizes.known) and (value := sizes.known[axis]) is not None:
                facts.learn(dim.name, value)
            if axis < len(sizes.bounds) and (bound := sizes.bounds[axis]) is not None:
                old = facts.bound.get(dim.name)
                facts.bound[dim.name] = bound if old is None else min(old, bound)
            if axis < len(sizes.divisors):
                facts.divides(dim.name, max(1, sizes.divisors[axis]))
                exact = size_in_bucket(facts.bound.get(dim.name, 0), sizes.divisors[axis])
                if exact:
                    facts.learn(dim.name, exact)


def _learn_multiples(c: TileContext, multiples: tuple[Multiple, ...], signature: Signature) -> None:
    """What the signature says of axes that are multiples of a size."""
    facts, c.kernel.multiples = c.kernel.facts, multiples
    named = zip(parameters_of(c.declaration), signature, strict=True)
    given = {p.name: a for (_, p), a in named if isinstance(a, TensorArgument)}
    for m in multiples:
        c.kernel.origins.setdefault(m.name, (m.parameter, m.axis))
        facts.least.setdefault(m.name, 0)
        a = given.get(m.parameter)
        if a is None or m.axis >= a.rank:
            continue
        known = a.sizes[m.axis] if a.sizes else None
        bound = a.buckets[m.axis] if a.buckets else None
        if known is not None:
            facts.learn(m.name, known // m.factor)
        if bound is not None:
            facts.bound[m.name] = bound // m.factor
        divisor = a.divisors[m.axis] if a.divisors else 1
        if divisor % m.factor == 0:
            facts.divides(m.name, max(1, divisor // m.factor))


def _learn_conditions(c: TileContext) -> None:
    """``where`` clauses as facts."""
    for operator, a, b in _comparisons(c.declaration.where):
        try:
            left, right = head_size(c, a), head_size(c, b)
        except BadSize:
            continue  # no sizes, or reported with the conditions
        _learn_comparison(c.kernel.facts, operator, left, right)


def _comparisons(conditions: tuple[ast.Expr, ...]) -> list[tuple[str, ast.Expr, ast.Expr]]:
    """What holds by itself, a chain taken apart."""
    found: list[tuple[str, ast.Expr, ast.Expr]] = []
    for e in conditions:
        if isinstance(e, ast.BoolOp) and e.operator == "and":
            found.extend(_comparisons(e.values))
        elif isinstance(e, ast.Compare):
            found.extend(zip(e.operators, (e.first, *e.rest), e.rest, strict=False))
    return found


def _learn_comparison(facts: Facts, operator: str, left: Dim, right: Dim) -> None:
    match operator, left, right:
        case "==", DimOp(operator="%", left=Sym(name=name), right=int(by)), 0 if by > 0:
            facts.divides(name, by)
        case "==", Sym(name=name), _ if name not in symbols_of(right):
            facts.learn(name, right)
        case "==", _, Sym(name=name) if name not in symbols_of(left):
            facts.learn(name, left)
        case ((">=" | ">"), Sym(name=name), int(value)):
            least = value + (operator == ">")
            facts.least[name] = max(facts.least.get(name, 0), least)
        case (("<=" | "<"), Sym(name=name), int(value)):
            most = value - (operator == "<")
            facts.bound[name] = min(facts.bound.get(name, most), most)
        case _:
            pass


def _start(c: TileContext) -> None:
    """What parameters are worth when the body begins."""
    for name, v in c.variables.items():
        if v.local.kind == "parameter" and isinstance(v.type, Scalar) and v.type.dtype.is_integer:
            full = c.full(name)
            c.env[name] = Sym(full)
            c.kernel.numbers[full] = v.type.dtype
            if v.type.dtype.kind == "uint":
                c.kernel.facts.least.setdefault(full, 0)
        elif isinstance(v.type, Tile) and v.local.kind == "parameter":
            c.env[name] = v.type.axes


# --- walks ---------------------------------------------------------------------------------


def _walks(c: TileContext) -> None:
    kernel, body = c.kernel, c.declaration.body
    start = dict(c.env)
    for _ in range(MOST_WALKS):
        c.cells.changed = kernel.changed = kernel.facts.changed = False
        _begin(c, start)
        check_block(c, body)
        if c.cells.changed or kernel.changed or kernel.facts.changed:
            continue
        blocked = tuple(cell for cell in c.blocked if cell.root().dtype is None)
        c.cells.default(blocked or c.cells.open)
        if not c.cells.changed and (c.inlined or not c.settle_open()):
            break
    c.cells.default(c.cells.open)
    c.final = True
    _begin(c, start)
    check_block(c, body)


def _begin(c: TileContext, start: dict[str, Value]) -> None:
    c.blocked.clear()
    c.terms.clear()
    c.loops.clear()
    c.aliases.clear()
    c.bounds.clear()
    c.ranks.clear()
    c.env = dict(start)
    c.branches = c.products = 0
    c.returns.type = c.returns.since = c.returned = None
    if not c.inlined:
        c.shared.memo.clear()
    for name, found in c.several.items():
        c.variables[name] = found[0]
    for v in c.every_variable():
        if v.local.kind != "parameter" and isinstance(v.type, (Tile, TupleType)):
            v.type, v.since = None, None


def _flow(c: TileContext, parameters: Parameters) -> tuple[Diagnostic, ...]:
    """Flow again, with compile-time tests decided."""

    def known(e: ast.Expr) -> object:
        value = c.try_value(e)
        return literal_value(e) if value is None else value

    heads = {*parameters.variables, *parameters.compile_time}
    first = {n: s for n, (s, _) in assigned_names(c.declaration).items() if n not in heads}
    found = check_flow(c.declaration, first, known, lambda _: False)
    return tuple(d for d in found if d.code != "T0119")


def _finish(c: TileContext, parameters: Parameters, conditions: tuple[ast.Expr, ...]) -> None:
    typed = c.typed
    for v in c.every_variable():
        found = variable_term(c, v)
        kind: Type = found if not _is_open(found) else ERROR  # type: ignore[assignment]
        typed.variables[v.local] = final_tile_type(c, v, kind)
    body = c.declaration.body
    typed.body = body_in_place(body, typed.in_place) if typed.in_place else body
    typed.parameters = tuple(parameters.order)
    typed.parameter_types = tuple(typed.variables[p] for p in parameters.order)
    typed.returns = _shown(c, c.returns.type) if c.returns.type is not None else NONE
    if c.inlined:
        return
    _warn_narrow(c)
    given = [
        (p.name, axis)
        for p, kind in zip(parameters.order, typed.parameter_types, strict=True)
        if isinstance(kind, Tensor)
        for axis in range(len(kind.shape))
        if _is_given(c, typed, p.name, axis)
    ]
    needed = tuple(dict.fromkeys((*c.kernel.needed, *given)))
    several = sorted(c.kernel.reduced & c.kernel.stretched)
    rows = [c.kernel.origins[name] for name in several if name in c.kernel.origins]
    whole = tuple(dict.fromkeys(a for a in (*c.kernel.whole, *rows) if a not in needed))
    typed.tile = TileInfo(
        tuple(parameters.sizes), tuple(c.directives), tuple(c.kernel.agreements.values()),
        c.kernel.results, needed, whole, conditions, c.kernel.multiples,
    )  # fmt: skip


def _is_open(term: object) -> bool:
    return type(term).__name__ in ("Open", "Unknown", "OpenBuffer")


def _shown(c: TileContext, kind: Type) -> Type:
    if isinstance(kind, Tile):
        return c.shown(kind)
    if isinstance(kind, TupleType):
        return TupleType(tuple(_shown(c, k) for k in kind.items))
    return kind


def _is_given(c: TileContext, typed: TypedFunction, name: str, axis: int) -> bool:
    for (_, p), a in zip(parameters_of(c.declaration), typed.signature, strict=True):
        if p.name == name and isinstance(a, TensorArgument) and axis < len(a.sizes):
            return a.sizes[axis] is not None
    return False


def _missing(c: TileContext, typed: TypedFunction) -> Diagnostic | None:
    """Sizes that the kernel must be compiled for and the signature does not give."""
    wanted = [(at, span) for at, span in c.kernel.needed.items() if not _is_given(c, typed, *at)]
    if not wanted:
        return None
    text = ", ".join(f"`{name}.shape[{axis}]`" for (name, axis), _ in wanted)
    example = sized_arguments(c.declaration, typed.signature, [at for at, _ in wanted])
    return Diagnostic(
        "T0650", f"`{c.declaration.name}` is compiled for the value of {text}, and it is not known",
        wanted[0][1], "it fixes the shape of a tile",
        helps=(f"give sizes in the signature: `--signature '{example}'`",),
    )  # fmt: skip


def _warn_narrow(c: TileContext) -> None:
    """An accumulator without a dtype became a number narrower than 32 bits."""
    for v in c.every_variable():
        warn_narrow(c, v)
        if v.accumulates is None or not isinstance(v.type, Tile) or v.since is None:
            continue
        made = next((t for t in c.kernel.tiles.values() if t.span == v.since), None)
        wide = wide_sum(made.dtype) if made is not None and not made.wide else None
        if made is None or wide is None:
            continue
        end = Span(made.span.anchor, made.span.end - 1, made.span.end - 1)
        c.report(
            "T0210", f"`{v.local.name}` adds up in `{made.dtype}`", made.span,
            "it has no dtype, and takes the one it meets",
            helps=(f"write `dtype={wide}` to add up in {wide}",),
            fixes=(Fix(f"add up in {wide}", (Edit(end, f", dtype={wide}"),)),), warning=True,
        )  # fmt: skip


# --- functions inlined into a kernel -------------------------------------------------------


def _inlined(
    shared: Shared, scope: ModuleScope, declaration: ast.FunctionDef, bindings: dict[str, Binding]
) -> Outcome:
    """Check a function for the tiles it is called with."""
    assert isinstance(shared, TileShared)
    caller = shared.kernel.callers[-1]
    generic = check_function_structure(scope, declaration)
    parameters = bind_parameters(scope, declaration, bindings, is_kernel=False, is_tile=True)
    typed = TypedFunction(declaration, scope.path, ())
    c = _context(shared, scope, declaration, typed, parameters, caller.kernel)
    c.is_kernel = False
    c.prefix = f"{declaration.name}."
    c.outer = caller.in_scope()
    c.reports.extend(parameters.problems)
    for name, v in c.variables.items():
        if v.local.kind == "parameter" and isinstance(v.type, Tile):
            v.type = replace(v.type, buffer=False)
            c.env[name] = v.type.axes
    c.instance = tuple(
        (name, v.type.dtype.name) for name, v in c.variables.items()
        if v.local.kind == "parameter" and isinstance(v.type, (Tile, Tensor, Scalar))
    )  # fmt: skip
    _start(c)
    parameters_ = {n for n, v in c.variables.items() if v.local.kind == "parameter"}
    c.env.update({n: d for n, d in caller.given.items() if n in parameters_})
    _walks(c)
    caller.products += c.products
    typed.conditions = check_conditions(c)
    _finish(c, parameters, ())
    sums = {x.array for x in c.sums}
    reads, writes = ({x.array for x in found} | sums for found in (c.reads, c.writes))
    c.kernel.touched[typed] = frozenset(reads), frozenset(writes)
    reports = tuple(dict.fromkeys((*generic, *_flow(c, parameters), *c.reports)))
    typed.complete = not any(d.severity == "error" for d in reports) and is_whole(typed)
    return typed, reports
