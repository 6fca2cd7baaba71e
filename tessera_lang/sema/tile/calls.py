"""Calls in tile kernels: the language's own functions, and functions of the program.

Owns who types a call. Must not know statements.
"""

from __future__ import annotations

from tessera_lang.sema import builtins
from tessera_lang.sema.argument_binding import Bound, bind_builtin
from tessera_lang.sema.bound_names import expressions, statement_expressions, statements
from tessera_lang.sema.builtin_calls import failed, one_of
from tessera_lang.sema.call_arguments import bind_call, bindings_of_call
from tessera_lang.sema.calls import call_function, infer_call, result_of_call
from tessera_lang.sema.context import Binding, text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Open, Term, Unknown
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.name_values import named_symbol
from tessera_lang.sema.operators import Operand
from tessera_lang.sema.side_tables import (
    Builtin,
    Constant,
    FunctionSymbol,
    TypedFunction,
)
from tessera_lang.sema.tile import (
    array_creation,
    array_manipulation,
    concatenation,
    elementwise_builtins,
    eye_linspace_array,
    order_statistics,
    reductions,
    sorting,
)
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.directives import tile_of_product
from tessera_lang.sema.tile.einsum import einsum
from tessera_lang.sema.tile.elementwise_builtins import attach_instance, cast_tile
from tessera_lang.sema.tile.expand_builtins import derived, expand, is_derived
from tessera_lang.sema.tile.masked_reductions import masked_reduction
from tessera_lang.sema.tile.operators import (
    Mixed,
    give_tile,
    is_tiled,
    is_waiting,
    make_float,
    mix,
    result_of,
    shape_of,
    value_of_operand,
)
from tessera_lang.sema.tile.products import product
from tessera_lang.sema.tile.reshape import reshape
from tessera_lang.sema.tile.shape_tuples import with_tuples
from tessera_lang.sema.tile.subscripts import read, written
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, DTYPES, F32, F64, INDEX, DType
from tessera_lang.types.type import NONE, Scalar, Tensor, Tile, Weak

PRECISIONS = ("exact", "tf32", "f32x3")
_OF_TILES = frozenset(n for n in builtins.TILE_FUNCTIONS if n not in builtins.LANE_REDUCTIONS)


def call(c: TileContext, e: ast.Call) -> Term:
    """A call of anything in a tile kernel."""
    symbol = named_symbol(c, e.function)
    if isinstance(symbol, Builtin):
        return _builtin(c, e, symbol.name)
    if isinstance(symbol, Constant) and isinstance(symbol.value, DType):
        return _cast(c, e, symbol.value)
    if isinstance(e.function, ast.Attribute) and symbol is None and e.function.name == "to":
        term = c.infer(e.function.value)
        if is_silent(term):
            _all(c, e)
            return term  # what it would be is not known: nothing is said of it again
        if is_tiled(term) and len(e.arguments) == 1 and not e.keywords:
            return _to(c, e, e.function, term)
    if isinstance(symbol, FunctionSymbol):
        return _function(c, e, symbol, ())
    if isinstance(e.function, ast.Subscript):
        inner = named_symbol(c, e.function.value)
        if isinstance(inner, FunctionSymbol):
            return _function(c, e, inner, e.function.items)
    return infer_call(c, e)


def _to(c: TileContext, e: ast.Call, function: ast.Attribute, term: Term) -> Term:
    c.infer(e.arguments[0])
    dtype = c.try_value(e.arguments[0])
    if not isinstance(dtype, DType):
        return c.report("T0218", "`.to` takes a dtype, as in `x.to(f32)`", e.arguments[0].span)
    if c.final:
        c.typed.symbols[function] = Builtin("to")
    assert isinstance(term, (Tile, Tensor))
    return cast_tile(c, function.value, term, dtype)


def _cast(c: TileContext, e: ast.Call, dtype: DType) -> Term:
    if len(e.arguments) == 1 and not e.keywords:
        term = c.infer(e.arguments[0])
        if isinstance(term, (Tile, Tensor)):
            if c.final:
                c.typed.symbols[e.function] = Builtin(dtype.name)
            return cast_tile(c, e.arguments[0], term, dtype)
    return infer_call(c, e)


# --- the language's own --------------------------------------------------------------------


def _builtin(c: TileContext, e: ast.Call, name: str) -> Term:
    if name in DTYPES:
        return _cast(c, e, DTYPES[name])
    if name in ("min", "max", "abs"):
        operands = elementwise_builtins.values(c, list(e.arguments))
        if any(is_tiled(o.term) for o in operands) and not e.keywords:
            _note(c, e, name)
            if name == "abs" and len(operands) == 1:
                return elementwise_builtins.absolute(c, e, e.arguments[0])
            return elementwise_builtins.extreme(c, e, name, operands)
    if name in builtins.FLOAT_MATH and len(e.arguments) == 1 and not e.keywords:
        term = c.infer(e.arguments[0])
        if is_tiled(term) or _is_open(c, e, [term]):
            _note(c, e, f"op.{name.removeprefix('math.')}")
            return elementwise_builtins.elementwise(
                c, e, f"op.{name.removeprefix('math.')}", e.arguments[0]
            )
    masked = masked_reduction(c, e, name)
    if masked is not None:
        _note(c, e, name)
        return masked
    if name == "len" and len(e.arguments) == 1 and _any_tiled(c, e):
        _note(c, e, name)
        return expand(c, e, "x.shape[0]", {"x": e.arguments[0]})
    if name in builtins.LANE_ONLY:
        _all(c, e)
        return failed(c)  # the structure check says so
    if name not in builtins.TILE_FUNCTIONS:
        if name.startswith(("op.", "schedule.", "tile.")):
            _all(c, e)
            return failed(c)
        if name == "bitcast" and _any_tiled(c, e) and len(e.arguments) == 2:
            return _bitcast(c, e, *e.arguments)
        if name == "ceil_div" and _any_tiled(c, e) and len(e.arguments) == 2:
            return elementwise_builtins.rounded_up(c, e)
        return _fma(c, e) if name == "math.fma" and _any_tiled(c, e) else infer_call(c, e)
    _note(c, e, name)
    info = builtins.TILE_FUNCTIONS[name]
    bound = bind_builtin(e, info, lambda _: None)
    if bound is None:
        _all(c, e)
        if name == "op.tile_range":  # its arguments are looked at with a loop
            return c.report("T0607", f"`{name}` cannot stand here", e.span, helps=(_where(name),))
        return failed(c)
    if name == "op.arange" and "stop" not in bound:
        bound = {"stop" if k == "start" else k: v for k, v in bound.items()}
    bound = with_tuples(c, bound)
    if c.final:
        c.typed.arguments[e] = tuple(bound.get(p) for p in info.parameters)
    if is_derived(name):
        return derived(c, e, name, bound)
    special = _SPECIAL.get(name)
    return special(c, e, bound) if special is not None else _typed(c, e, name, bound)


_SPECIAL = {**concatenation.TYPES, **eye_linspace_array.TYPES, **array_manipulation.TYPES,
            **elementwise_builtins.TYPES,
            **sorting.TYPES, **order_statistics.TYPES, "op.einsum": einsum, "op.reshape": reshape,
            "op.ravel": reshape}  # fmt: skip


def _any_tiled(c: TileContext, e: ast.Call) -> bool:
    return not e.keywords and any(is_tiled(c.infer(a)) for a in e.arguments)


def _fma(c: TileContext, e: ast.Call) -> Term:
    """``math.fma(a, b, c)`` of tiles: one rounding for each element."""
    _note(c, e, "math.fma")
    found = mix(c, e.span, elementwise_builtins.values(c, list(e.arguments)), "`math.fma`")
    if not isinstance(found, Mixed):
        return found
    if not found.dtype.is_float or len(e.arguments) != 3:
        return c.report("T0207", "`math.fma` of tiles takes three of floats", e.span)
    return result_of(c, found)


def _bitcast(c: TileContext, e: ast.Call, x: ast.Expr, dtype: ast.Expr) -> Term:
    """``bitcast(x, dtype)`` of tiles: the bits of each element."""
    _note(c, e, "bitcast")
    c.infer(dtype)
    target = c.try_value(dtype)
    if not isinstance(target, DType):
        return c.report("T0218", "the second argument of `bitcast` is a dtype", dtype.span)
    o = value_of_operand(c, Operand(x, c.infer(x)))
    if not isinstance(o.term, Tile) or is_waiting(o.term):
        return o.term
    if o.term.wide:
        return c.report(
            "T0220", f"`bitcast` takes bits that are settled: `{source_of(x)}` is kept in f32 until"
            " it is rounded", x.span, helps=(f"round it: `{source_of(x)}.to({o.term.dtype})`",),
        )  # fmt: skip
    if o.term.dtype.bits != target.bits or BOOL in (o.term.dtype, target):
        return c.report(
            "T0220", f"`bitcast` keeps the bits: `{o.term.dtype}` has {o.term.dtype.bits},"
            f" `{target}` has {target.bits}", x.span,
        )  # fmt: skip
    return Tile(target, o.term.axes)


def _note(c: TileContext, e: ast.Call, name: str) -> None:
    if c.final:
        c.typed.symbols[e.function] = Builtin(name)


def _all(c: TileContext, e: ast.Call) -> None:
    for argument in (*e.arguments, *(k.value for k in e.keywords)):
        c.infer(argument)


def _typed(c: TileContext, e: ast.Call, name: str, bound: Bound) -> Term:
    kind = name.removeprefix("op.")
    match name:
        case "op.matmul" | "tile.mma_sync":
            return _matmul(c, e, bound)
        case "op.cast":
            return _op_cast(c, bound)
        case "op.cumsum" | "op.cumprod" | "op.cummax" | "op.cummin":
            return reductions.scan(c, name, bound)
        case "op.tril" | "op.triu":
            return reductions.triangle(c, name, bound)
        case "op.transpose":
            return reductions.transpose(c, e, bound)
        case "op.softmax":
            return reductions.softmax(c, e, bound)
        case "op.causal":
            return reductions.causal(c, e, bound)
        case "op.window":
            return reductions.window(c, e, bound)
        case "op.shared":
            return array_creation.shared(c, e, bound)
        case "op.zeros" | "op.ones" | "op.empty" | "op.full":
            return array_creation.filled(c, e, name, bound)
        case "op.zeros_like" | "op.ones_like" | "op.empty_like" | "op.full_like":
            return array_creation.filled_like(c, e, name, bound)
        case "op.arange" | "op.iota":
            return array_creation.counted(c, e, name, bound)
        case "op.abs" | "op.relu":
            return elementwise_builtins.absolute(c, e, bound["x"])
        case "op.barrier":
            return NONE
        case "schedule.prefetch":
            return _schedule_prefetch(c, bound)
        case _:
            pass
    if kind in reductions.REDUCTIONS or kind in reductions.DERIVED:
        return reductions.reduction(c, e, name, bound)
    if name.startswith(("op.", "fast.")) and len(bound) == 1 and "x" in bound:
        return elementwise_builtins.elementwise(c, e, name, bound["x"])
    _all(c, e)  # a statement: `op.prefetch`, a directive, a loop
    return c.report("T0607", f"`{name}` cannot stand here", e.span, helps=(_where(name),))


def _where(name: str) -> str:
    if name == "op.tile_range":
        return "write `for i, j in op.tile_range(m, n, step=64):`"
    if name == "schedule.pipeline":
        return "write `with schedule.pipeline(double_buffer=True):`"
    return "it is a statement of its own"


def _matmul(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    precision = bound.get("precision")
    if precision is not None:
        c.infer(precision)
        if one_of(c, precision, PRECISIONS, "the precision of a product") in (None, "exact"):
            precision = None
    if "tile_shape" in bound:
        tile_of_product(c, bound["tile_shape"])
    a, b = elementwise_builtins.values(c, [bound["a"], bound["b"]])
    return product(c, e.span, a, b, precision)


def _op_cast(c: TileContext, bound: Bound) -> Term:
    term = c.infer(bound["x"])
    dtype = array_creation.dtype_argument(c, bound["dtype"])
    if dtype is None or is_silent(term):
        return failed(c)
    if isinstance(term, (Tile, Tensor)):
        return cast_tile(c, bound["x"], term, dtype)
    if isinstance(term, Scalar):
        return Scalar(dtype)
    return c.report("T0207", f"`op.cast` takes a tile, not `{text_of(term)}`", bound["x"].span,
                    helps=(f"write `{dtype}({source_of(bound['x'])})`",))  # fmt: skip


def _schedule_prefetch(c: TileContext, bound: Bound) -> Term:
    """As a value it is its argument."""
    term = c.infer(bound["x"])
    scope = bound.get("scope")
    if scope is not None:
        c.infer(scope)
        one_of(c, scope, ("shared",), "the scope of a prefetch")
    if is_silent(term) or isinstance(term, (Tile, Tensor)):
        return term
    return c.report("T0207", f"`schedule.prefetch` takes an array or a tile, not"
                    f" `{text_of(term)}`", bound["x"].span)  # fmt: skip


# --- functions of the program --------------------------------------------------------------


def _function(
    c: TileContext, e: ast.Call, symbol: FunctionSymbol, brackets: tuple[ast.Expr, ...]
) -> Term:
    """A plain function: of numbers as in lanes, of tiles inlined."""
    declaration = symbol.declaration
    terms = [c.infer(a) for a in (*e.arguments, *(k.value for k in e.keywords))]
    if any(is_silent(t) for t in terms):
        return next(t for t in terms if is_silent(t))
    if declaration.decorators:
        return call_function(c, e, symbol, brackets)
    if not any(is_tiled(t) for t in terms) and not _makes_tiles(c, symbol, set()):
        if _is_open(c, e, terms) and f"op.{declaration.name}" in builtins.TILE_FUNCTIONS:
            if _is_of(c, symbol, "math"):
                return _mapped(c, e, symbol, "math", terms)
        return _of_numbers(c, e, symbol, brackets)
    for module in ("math", "fast"):
        if _is_of(c, symbol, module):
            return _mapped(c, e, symbol, module, terms)
    if _is_of(c, symbol, "random") and not brackets:
        return _of_each(c, e, symbol, "random", terms)
    return _inlined(c, e, symbol, brackets)


def _is_open(c: TileContext, e: ast.Call, terms: list[Term]) -> bool:
    """Whether a call has one argument, a literal or a count: the result is of the float type that
    it meets."""
    if len(e.arguments) != 1 or e.keywords:
        return False
    count = terms[0] == Scalar(INDEX) and c.is_size(e.arguments[0])
    return count or isinstance(terms[0], (Weak, Open))


def _inlined(
    c: TileContext, e: ast.Call, symbol: FunctionSymbol, brackets: tuple[ast.Expr, ...]
) -> Term:
    c.kernel.callers.append(c)
    term = call_function(c, e, symbol, brackets)
    c.kernel.callers.pop()
    _touched(c, e)
    return term


def _makes_tiles(c: TileContext, symbol: FunctionSymbol, seen: set[ast.FunctionDef]) -> bool:
    """Whether a function that is given numbers alone works on tiles: it, or one that it calls,
    makes some."""
    declaration, scope = symbol.declaration, c.scope_of(symbol)
    if declaration in seen:
        return False
    seen.add(declaration)
    roots = (x for s in statements(declaration.body) for x in statement_expressions(s))
    for e in (e for root in roots for e in expressions(root) if isinstance(e, ast.Call)):
        f = e.function.value if isinstance(e.function, ast.Subscript) else e.function
        if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name):
            if f.value.id in ("op", "tile") and f"{f.value.id}.{f.name}" in _OF_TILES:
                return True
        inner = scope.names.get(f.id) if isinstance(f, ast.Name) else None
        if isinstance(inner, FunctionSymbol) and _makes_tiles(c, inner, seen):
            return True
    return False


def _touched(c: TileContext, e: ast.Call) -> None:
    """What an inlined function reads and writes of its arguments is read and written here."""
    instance = c.typed.calls.get(e)
    if instance is None or not c.final:
        return
    reads, writes = c.kernel.touched[instance]
    names = [p.name for p in instance.declaration.parameters]
    for name, argument in zip(names, c.typed.arguments[e], strict=True):
        if argument is not None and name in reads:
            read(c, argument)
        if argument is not None and name in writes:
            written(c, argument)


def _of_numbers(
    c: TileContext, e: ast.Call, symbol: FunctionSymbol, brackets: tuple[ast.Expr, ...]
) -> Term:
    arguments = bind_call(c, e, symbol.declaration, brackets)
    if arguments is None:
        return failed(c)
    if c.final:
        c.typed.symbols[e.function] = symbol
    bindings = bindings_of_call(c, e, symbol.declaration, arguments, symbol)
    if isinstance(bindings, Unknown):
        return bindings
    if bindings is None:
        return failed(c)
    lanes = c.kernel.lanes
    key = (symbol.declaration, *(repr(b) for b in bindings.values()))
    if key not in lanes.memo:
        scope = c.scope_of(symbol)
        lanes.memo[key] = lanes.instantiate(lanes, scope, symbol.declaration, bindings)
    instance, found = lanes.memo[key]
    if instance is None or any(d.severity == "error" for d in found):
        if any(c.infer(a) == Scalar(INDEX) and c.is_size(a) for a in arguments.values()):
            return _inlined(c, e, symbol, brackets)  # lanes do not know that it is a size
    c.shared.memo[key] = lanes.memo[key]
    term = result_of_call(c, e, symbol, arguments, bindings, key)
    instance = lanes.memo[key][0]
    used = None if instance is None else _lane_only(instance)
    if used is not None:
        return c.report(
            "T0607", f"`{symbol.declaration.name}` calls `{used}`, which belongs to lane kernels",
            e.span,
        )  # fmt: skip
    return term


def _lane_only(instance: TypedFunction) -> str | None:
    for symbol in instance.symbols.values():
        if isinstance(symbol, Builtin) and symbol.name in builtins.LANE_ONLY:
            return symbol.name
    for inner in instance.calls.values():
        found = _lane_only(inner)
        if found is not None:
            return found
    return None


def _is_of(c: TileContext, symbol: FunctionSymbol, module: str) -> bool:
    scope = c.scope.scope_named(f"std.{module}")
    return scope is not None and symbol.module == scope.path


def _of_each(
    c: TileContext, e: ast.Call, symbol: FunctionSymbol, module: str, terms: list[Term]
) -> Term:
    """A function whose parameters are numbers of stated dtypes, given tiles: of each element."""
    name, declaration = f"{module}.{symbol.declaration.name}", symbol.declaration
    bases = [p.annotation.base for p in declaration.parameters if p.annotation is not None]
    dtypes = [DTYPES[b.id] for b in bases if isinstance(b, ast.Name) and b.id in DTYPES]
    if e.keywords or len(e.arguments) != len(dtypes) or len(dtypes) < len(declaration.parameters):
        return c.report("T0105", f"`{name}` of tiles takes {len(dtypes)} values, in order", e.span)
    operands = [Operand(a, t) for a, t in zip(e.arguments, terms, strict=True)]
    operands = [value_of_operand(c, o) for o in operands]
    if any(isinstance(o.term, Tile) and is_waiting(o.term) for o in operands):
        return Unknown()
    for o, dtype in zip(operands, dtypes, strict=True):
        if not give_tile(c, o.e, o.term, dtype, False):
            return c.report(
                "T0208", f"`{name}` takes `{dtype}` here, not `{text_of(o.term)}`", o.e.span,
                helps=(f"convert it: `{dtype}({source_of(o.e)})`",),
            )  # fmt: skip
    axes = shape_of(c, e.span, operands, f"`{name}`")
    if axes is None:
        return failed(c)
    _note_symbol(c, e, symbol)
    made = attach_instance(c, e, name, [Scalar(d) for d in dtypes])
    if made is None or not isinstance(made.returns, Scalar):
        return failed(c)
    return Tile(made.returns.dtype, axes) if axes else made.returns


def _mapped(
    c: TileContext, e: ast.Call, symbol: FunctionSymbol, module: str, terms: list[Term]
) -> Term:
    """A function of ``std.math`` or ``std.fast`` given tiles: of each element."""
    name = symbol.declaration.name
    own = module == "math" and f"op.{name}" in builtins.TILE_FUNCTIONS
    one = len(e.arguments) == len(symbol.declaration.parameters) == 1 and not e.keywords
    if own and one:
        _note(c, e, f"op.{name}")
        return elementwise_builtins.elementwise(c, e, f"op.{name}", e.arguments[0])
    wanted = len(symbol.declaration.parameters)
    if e.keywords or len(e.arguments) != wanted:
        return c.report(
            "T0105", f"`{module}.{name}` of tiles takes {wanted} value{'s' * (wanted != 1)}, in"
            " order", e.span,
        )  # fmt: skip
    operands = [Operand(a, t) for a, t in zip(e.arguments, terms, strict=True)]
    operands = [value_of_operand(c, o) for o in operands]
    for o in operands:
        if isinstance(o.term, Tile) and is_waiting(o.term):
            make_float(c, o.term)
    meeting = operands
    if module == "math" and not any(
        isinstance(o.term, (Tile, Scalar)) and o.term.dtype.is_float for o in operands
    ):
        meeting = [elementwise_builtins.as_floats(c, o) for o in operands]
    found = mix(c, e.span, meeting, f"`{module}.{name}`")
    if not isinstance(found, Mixed):
        return found
    if not found.dtype.is_float or (module == "fast" and found.dtype == F64):
        allowed = "floats of at most 32 bits" if module == "fast" else "floats"
        return c.report("T0207", f"`{module}.{name}` takes {allowed}, not `{found.dtype}`", e.span)
    compute = F64 if found.dtype == F64 else F32
    for o in operands:
        elementwise_builtins.convert_operand(c, o, Mixed(compute, False, ()))
    _note_symbol(c, e, symbol)
    bindings: list[Binding] = [Scalar(compute)] * len(operands)
    if attach_instance(c, e, f"{module}.{name}", bindings) is None:
        return failed(c)
    return result_of(c, found)


def _note_symbol(c: TileContext, e: ast.Call, symbol: FunctionSymbol) -> None:
    if c.final:
        c.typed.symbols[e.function] = symbol
