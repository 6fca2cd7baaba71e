"""Functions of each element: ``op.exp``, ``op.where``, ``min``, casts.

Owns their types, and the instances of ``std.math`` that stand behind them. Must not know
reductions or shapes beyond the meeting of operands.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.record import replace
from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.builtins import FAST_MATH
from tessera_lang.sema.context import Binding, text_of
from tessera_lang.sema.conversion_hints import float_beside, float_for
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Open, Term, Unknown
from tessera_lang.sema.literals import is_silent, settle
from tessera_lang.sema.operators import Operand, literal_as_float, meet, silent, size_as_float
from tessera_lang.sema.side_tables import Builtin, FunctionSymbol, TypedFunction
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.expand_builtins import expand
from tessera_lang.sema.tile.operators import (
    Mixed,
    convert_operand,
    counted_as_float,
    default_of_literals,
    is_narrow,
    is_waiting,
    make_float,
    mix,
    open_dtype,
    result_of,
    settle_literals,
    value_of_operand,
)
from tessera_lang.sema.tile.shapes import Side, broadcast
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, F32, F64, INDEX, DType
from tessera_lang.types.type import ERROR, Scalar, Tensor, Tile, Weak

NATIVE = ("op.sqrt", "op.floor", "op.ceil", "op.round", "op.trunc", *FAST_MATH)
"""Functions of floats that are operations."""
_OF_WHOLE = ("op.floor", "op.ceil", "op.round", "op.trunc")
"""What leaves integers as they are."""
ROUNDED = ("gelu", "sigmoid", "_silu")
"""Functions whose form in ``std.fast`` serves where the result is rounded to at most 16 bits at
once: its error, with that rounding, is at most 0.51 units of the last place of the result."""


def values(c: TileContext, arguments: list[ast.Expr]) -> list[Operand]:
    return [Operand(e, c.infer(e)) for e in arguments]


def elementwise(c: TileContext, e: ast.Call, name: str, x: ast.Expr) -> Term:
    """A function of floats of each element."""
    term = c.infer(x)
    if is_silent(term):
        return term
    plain = value_of_operand(c, Operand(x, term))
    if name in _OF_WHOLE and isinstance(plain.term, (Scalar, Tile)) and plain.term.dtype.is_integer:
        return expand(c, e, "+x", {"x": x})
    o = Operand(x, counted_as_float(c, plain))
    if isinstance(o.term, Tile) and is_waiting(o.term):
        make_float(c, o.term)
        return o.term
    if o.term == Scalar(INDEX) and c.is_size(x):
        o = Operand(x, size_as_float(c, e, x))
    if isinstance(o.term, Open):
        return o.term
    if isinstance(o.term, Weak):
        found = literal_as_float(c, e, o)
        if not isinstance(found, Scalar):
            return found
        settle(c, x, o.term, found.dtype)
        o = Operand(x, found)
    if name not in FAST_MATH:
        o = as_floats(c, o)
    if not isinstance(o.term, (Scalar, Tile)) or not o.term.dtype.is_float:
        helps: tuple[str, ...] = ()
        if isinstance(o.term, (Scalar, Tile)):
            to = F32 if name in FAST_MATH else float_for(c, o.term.dtype)
            helps = (f"convert it: `{to}({source_of(x)})`",)
        return c.report("T0207", f"`{name}` takes floats, not `{text_of(o.term)}`", x.span,
                        helps=helps)  # fmt: skip
    result = o.term
    if name in FAST_MATH and result.dtype == F64:
        return c.report(
            "T0207", f"`{name}` takes floats of at most 32 bits, not f64", x.span,
            helps=(f"write `{name.removeprefix('fast.')}({source_of(x)})`",),
        )  # fmt: skip
    if name not in NATIVE:
        compute = F64 if result.dtype == F64 else F32
        axes = result.axes if isinstance(result, Tile) else ()
        if not (isinstance(result, Tile) and result.wide):
            convert_operand(c, o, Mixed(compute, False, axes))
        kind = name.removeprefix("op.")
        if not _is_public(c, kind):
            kind = f"_{kind}" if compute == F32 else f"_{kind}_f64"
        if not attach_instance(c, e, f"math.{kind}", [Scalar(compute)]):
            return ERROR if c.final else Unknown()
        if kind in ROUNDED and compute == F32:
            attach_instance(c, e, f"fast.{kind}", [Scalar(compute)], rounded=True)
    if isinstance(plain.term, (Tile, Scalar)) and plain.term.dtype != result.dtype:
        axes = plain.term.axes if isinstance(plain.term, Tile) else ()
        convert_operand(c, plain, Mixed(result.dtype, False, axes))
    return result


def as_floats(c: TileContext, o: Operand) -> Operand:
    """Integers as the floats that they become by themselves; any other operand as it is."""
    if not isinstance(o.term, (Scalar, Tile)) or not o.term.dtype.is_integer:
        return o
    if isinstance(o.term, Tile) and is_waiting(o.term):
        return o
    found = float_beside(c, o.term.dtype)
    if found is None:
        return o
    made = Scalar(found) if isinstance(o.term, Scalar) else replace(o.term, dtype=found)
    return Operand(o.e, made)


def _is_public(c: TileContext, function: str) -> bool:
    """Whether lanes have a function of ``std.math`` too; else it stands there for tiles only."""
    scope = c.scope.scope_named("std.math")
    return scope is not None and function in scope.names


def attach_instance(
    c: TileContext, e: ast.Expr, name: str, bindings: list[Binding], *, rounded: bool = False,
    second: bool = False,
) -> TypedFunction | None:  # fmt: skip
    """The instance of a function of ``std.math`` or ``std.fast`` for scalars, written down at the
    call; ``rounded``: as the one that serves where the result is rounded at once; ``second``: as
    the other of two that stand behind the call."""
    module, _, function = name.partition(".")
    scope = c.scope.scope_named(f"std.{module}")
    symbol = None if scope is None else scope.names.get(function)
    if scope is None or not isinstance(symbol, FunctionSymbol):
        c.report("T0114", f"not built yet: `{name}` of tiles", e.span)
        return None
    declaration = symbol.declaration
    named = dict(zip((p.name for p in declaration.parameters), bindings, strict=True))
    lanes = c.kernel.lanes
    key = (declaration, *bindings)
    if key not in lanes.memo:
        lanes.memo[key] = lanes.instantiate(lanes, scope, declaration, named)
    instance, reports = lanes.memo[key]
    if instance is None or not instance.complete:
        if c.final:
            c.reports.extend(reports)
        return None
    if c.final:
        if second or not isinstance(e, ast.Call):
            c.typed.second[e] = instance
        else:
            (c.typed.rounded if rounded else c.typed.calls)[e] = instance
    return instance


def extreme(c: TileContext, e: ast.Call, name: str, operands: list[Operand]) -> Term:
    """``min(a, b)``, ``max(a, b, ...)`` where one of them is a tile."""
    if len(operands) == 1:
        return c.report(
            "T0105", f"`{name}` takes 2 or more values, not 1", e.span,
            helps=(f"for the {name} along an axis write `op.{name}(...)`",),
        )  # fmt: skip
    if len(operands) == 2 and all(_is_bool(o) for o in operands):
        return _extreme_of_bools(c, e, name, operands[0].e, operands[1].e)
    found = mix(c, e.span, operands, f"`{name}`")
    return result_of(c, found) if isinstance(found, Mixed) else found


def _is_bool(o: Operand) -> bool:
    return isinstance(o.term, (Scalar, Tile, Tensor)) and o.term.dtype == BOOL


def _extreme_of_bools(
    c: TileContext, e: ast.Call, name: str, a: ast.Expr, b: ast.Expr
) -> Term:  # fmt: skip
    return expand(c, e, "a | b" if "max" in name else "a & b", {"a": a, "b": b})


def rounded_up(c: TileContext, e: ast.Call) -> Term:
    """``ceil_div(a, b)`` where one of them is a tile."""
    if c.final:
        c.typed.symbols[e.function] = Builtin("ceil_div")
    found = mix(c, e.span, values(c, list(e.arguments)), "`ceil_div`", "//")
    if not isinstance(found, Mixed):
        return found
    if not found.dtype.is_integer:
        return c.report(
            "T0207", f"`ceil_div` takes integers, not `{found.dtype}`", e.span,
            helps=("of floats: `op.ceil(a / b)`",),
        )  # fmt: skip
    return result_of(c, found)


def absolute(c: TileContext, e: ast.Call, x: ast.Expr) -> Term:
    """``abs`` and ``op.relu``: of any numbers."""
    o = value_of_operand(c, Operand(x, c.infer(x)))
    if is_silent(o.term):
        return o.term
    if isinstance(o.term, (Weak, Open)):
        found = literal_as_float(c, e, o) if _is_float(o.term) else Scalar(INDEX)
        if not isinstance(found, Scalar):
            return found
        settle(c, x, o.term, found.dtype)
        return found
    if not isinstance(o.term, Tile | Scalar) or o.term.dtype == BOOL:
        return c.report("T0206", f"this takes numbers, not `{text_of(o.term)}`", x.span)
    return o.term


def _is_float(term: Weak | Open) -> bool:
    return (term.kind if isinstance(term, Weak) else term.cell.root().kind) == "float"


def where(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.where(condition, a, b)``."""
    test = value_of_operand(c, Operand(bound["condition"], c.infer(bound["condition"])))
    sides = values(c, [bound["a"], bound["b"]])
    if any(is_silent(o.term) for o in (test, *sides)):
        return silent(test, *sides)
    if not isinstance(test.term, (Scalar, Tile)) or test.term.dtype != BOOL:
        return c.report(
            "T0205", f"a condition is a `bool`, not `{text_of(test.term)}`", test.e.span
        )
    if all(isinstance(o.term, (Weak, Open)) for o in sides):
        if isinstance(test.term, Scalar) and len(e.arguments) == 3:
            return meet(c, e.span, *sides)  # as `a if condition else b`
        # Literals take the dtype that they meet, as a whole.
        dtype, wide = open_dtype(c, e, default_of_literals(*(o.term for o in sides)), literal=True)
        made = Tile(dtype, (), wide)
        if is_waiting(made):
            return replace(made, axes=test.term.axes if isinstance(test.term, Tile) else ())
        sides.append(Operand(sides[0].e, made))
    if all(isinstance(o.term, Scalar) and o.term.dtype == BOOL for o in sides):
        found: Mixed | Term = Mixed(BOOL, False, ())
    elif all(isinstance(o.term, Tile) and o.term.dtype == BOOL for o in sides):
        found = mix(c, e.span, sides, "`op.where`", "&")
    else:
        found = mix(c, e.span, sides, "`op.where`")
    if not isinstance(found, Mixed) and not (isinstance(found, Tile) and is_waiting(found)):
        return found
    axes = found.axes
    if isinstance(test.term, Tile) and test.term.axes:
        met = test.term.axes
        if axes:
            both = broadcast(c, e.span, Side(test.e, met), Side(e, axes), "`op.where`")
            if both is None:
                return ERROR if c.final else Unknown()
            met = both
        axes = met
    if isinstance(found, Mixed):
        return result_of(c, replace(found, axes=axes))
    return replace(found, axes=axes)


def clamp(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    found = mix(c, e.span, values(c, [bound["x"], bound["low"], bound["high"]]), "`op.clamp`")
    return result_of(c, found) if isinstance(found, Mixed) else found


def pair(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.maximum(a, b)`` and ``op.minimum``."""
    operands, name = values(c, [bound["a"], bound["b"]]), source_of(e.function)
    if all(_is_bool(o) for o in operands):
        return _extreme_of_bools(c, e, name, bound["a"], bound["b"])
    found = mix(c, e.span, operands, f"`{name}`")
    return result_of(c, found) if isinstance(found, Mixed) else found


def cast_tile(c: TileContext, x: ast.Expr, term: Tile | Tensor, dtype: DType) -> Term:
    """``bf16(x)``, ``x.to(bf16)`` of a tile: of a wide one the rounding. Literals that become f64
    are f64 from the start: in f32 they would have lost digits."""
    o = value_of_operand(c, Operand(x, term))
    assert isinstance(o.term, Tile)
    if dtype == F64:
        settle_literals(c, o.term, dtype, x.span)
    if not o.term.axes:
        return Scalar(dtype)
    return Tile(dtype, o.term.axes)


def widened(tile: Tile) -> Tile:
    """What a reduction of narrow floats gives."""
    return replace(tile, wide=tile.wide or is_narrow(tile.dtype))


TYPES: dict[str, Callable[[TileContext, ast.Call, Bound], Term]] = {
    "op.where": where, "op.clamp": clamp, "op.maximum": pair, "op.minimum": pair,
}  # fmt: skip
