"""Stores: into arrays, whole buffers, parts of buffers; accumulation into arrays.

Owns the meeting of a value with its place. Must not know control flow.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Edit, Fix, Label
from tessera_lang.record import replace
from tessera_lang.sema.atomics import writable
from tessera_lang.sema.bound_names import expressions, statement_expressions, statements, targets
from tessera_lang.sema.context import text_of
from tessera_lang.sema.conversion_hints import cast_fix
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.fits_narrow_index import fits_by_range
from tessera_lang.sema.inference_types import Term
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.operators import Operand, operate
from tessera_lang.sema.tile.binary_operators import operate_tiles
from tessera_lang.sema.tile.context import Accumulation, TileContext
from tessera_lang.sema.tile.created_arrays import could_be_array, exchanged, other_value, refill
from tessera_lang.sema.tile.operators import (
    give_tile,
    is_narrow,
    is_waiting,
    settle_tile,
    value_of_operand,
)
from tessera_lang.sema.tile.shapes import Side, agree, lines_up, meet_axes, with_axes_in_front
from tessera_lang.sema.tile.size_normal_form import described
from tessera_lang.sema.tile.subscripts import is_whole, read, root_name, subscript, written
from tessera_lang.sema.tile.symbolic import dim_of
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.syntax.substitute import substituted
from tessera_lang.syntax.view_mutation_help import changed_slice, helps_for_slice
from tessera_lang.types.dtype import F32, F64, I32, I64, INDEX, U32, DType
from tessera_lang.types.shape import symbols_of
from tessera_lang.types.type import Scalar, Tensor, Tile, TileAxis, Weak

ACCUMULATING = ("+", "-", "*")
WHOLE = ("**", "@")
"""Operators that are no operation of elements: ``x **= e`` is ``x = x ** e``."""


def store(c: TileContext, target: ast.Subscript, value: ast.Expr, term: Term) -> None:
    """``place[...] = value``."""
    base = c.infer(target.value)
    if isinstance(base, Tensor):
        place = _place(c, target, base)
        if isinstance(place, (Tile, Scalar)):
            writable(c, target, base)
            written(c, target)
            _into_array(c, target, place, value, term)
    elif isinstance(base, Tile):
        into_buffer(c, target, base, value, term)
    elif not is_silent(base):
        c.report("T0213", f"`{text_of(base)}` cannot be stored to", target.span)


def _place(c: TileContext, target: ast.Subscript, base: Tensor | Tile) -> Term:
    place = subscript(c, target, base, target=True)
    c.note(target, place)
    return place


def _into_array(
    c: TileContext, target: ast.Subscript, place: Tile | Scalar, value: ast.Expr, term: Term
) -> None:
    rank = len(place.axes) if isinstance(place, Tile) else 0
    c.ranks.append(rank)
    o = value_of_operand(c, Operand(value, term))
    if is_silent(o.term):
        return
    if isinstance(place, Tile):
        fit_shape(c, target, place, o)
    elif isinstance(o.term, Tile) and o.term.axes:
        c.report(
            "T0604", f"`{source_of(target)}` is one element, and this is a tile", value.span,
            f"this is `{text_of(o.term)}`", helps=("write to a slice: `x[i:i+n]`",),
        )  # fmt: skip
        return
    fit_dtype(c, target, place.dtype, o)


def fit_shape(c: TileContext, target: ast.Subscript, place: Tile, o: Operand) -> bool:
    """Whether a value covers its place: equal ranks and extents, or axes of size 1."""
    if not isinstance(o.term, Tile) or not o.term.axes:
        return True
    a, b = Side(target, place.axes), Side(o.e, o.term.axes)
    if len(a.axes) < len(b.axes):
        c.report(
            "T0604", f"`{source_of(target)}` has {len(a.axes)} axes and the value {len(b.axes)}",
            o.e.span, f"this is `{text_of(o.term)}`",
        )  # fmt: skip
        return False
    if len(a.axes) > len(b.axes):
        if not lines_up(c, o.e.span, a, b, "the store"):
            return False
        b = Side(o.e, with_axes_in_front(b.axes, len(a.axes)))
    good = True
    for i, axis in enumerate(b.axes):
        if axis.capacity == 1 and axis.extent == 1:
            continue
        good = meet_axes(c, o.e.span, (a, i), (b, i), "a store") is not None and good
    return good


def fit_dtype(c: TileContext, target: ast.Subscript, dtype: DType, o: Operand) -> None:
    """A value goes into its place: rounded if it is wide, else without loss."""
    if isinstance(o.term, Tile) and is_waiting(o.term):
        settle_tile(c, o.term, dtype, False, o.e.span, place=True)
        return
    if give_tile(c, o.e, o.term, dtype, False):
        return
    if o.term == Scalar(INDEX) and fits_by_range(c, o.e, dtype):
        c.coerce(o.e, dtype)
        return
    if _widened(c, target, dtype, o.term):
        return
    number = isinstance(o.term, (Scalar, Tile))
    c.report(
        "T0208", f"`{source_of(target)}` holds `{dtype}`, not `{_held(o.term)}`", o.e.span,
        f"this is `{text_of(o.term)}`",
        helps=(f"convert it: `({source_of(o.e)}).to({dtype})`",) if number else (),
        fixes=(cast_fix(o.e, dtype),) if number else (),
    )  # fmt: skip


def _widened(c: TileContext, target: ast.Subscript, dtype: DType, term: Term) -> bool:
    """Whether the array was filled with a whole number, without a dtype: then it is of what is
    stored, from its beginning on."""
    name = target.value.id if isinstance(target.value, ast.Name) else ""
    if c.final or c.kernel.filled.get(name) != dtype or c.inlined:
        return False
    stored = term.dtype if isinstance(term, (Scalar, Tile)) else None
    if isinstance(term, Weak) and term.kind == "float":
        stored = c.cells.floats
    if stored is None or stored == dtype or stored not in (I64, F32, F64):
        return False
    c.kernel.filled[name] = stored
    c.kernel.changed = True
    return True


def _held(term: Term) -> str:
    return str(term.dtype) if isinstance(term, Tile) else text_of(term)


# --- buffers -------------------------------------------------------------------------------


def into_buffer(
    c: TileContext, target: ast.Subscript, base: Tile, value: ast.Expr, term: Term
) -> None:
    """A store into a buffer: whole, or a part of it."""
    if not base.buffer:
        name = source_of(target.value)
        if name in c.slices:
            helps = helps_for_slice(name, "", c.slices[name])
            c.report("T0609", changed_slice(name, c.slices[name]), target.span, helps=helps)
            return
        helps = (f"for an array of its own begin with a copy, `{name} = x.copy()`, outside of"
                 " loops",
                 "or make a buffer: `op.shared(shape, dtype=...)`",
                 f"or give the name a new value: `{source_of(target.value)} = ...`",
                 "or make it a parameter, an array of the call: `y: mut f32[n]`")  # fmt: skip
        labels: tuple[Label, ...] = ()
        fixes: tuple[Fix, ...] = ()
        if isinstance(target.value, ast.Name) and could_be_array(c, target.value.id):
            labels, helps, fixes = _made_elsewhere(c, target.value.id, helps[0])
        c.report(
            "T0609", f"`{source_of(target.value)}` is a value, not a buffer", target.span,
            "only buffers and arrays are stored into", labels=labels, helps=helps, fixes=fixes,
        )  # fmt: skip
        return
    if not isinstance(target.value, ast.Name):
        c.report("T0609", "a buffer is stored into by its name", target.span)
        return
    o = value_of_operand(c, Operand(value, term))
    if all(is_whole(i) for i in target.items) and len(target.items) <= len(base.axes):
        c.note(target, base)
        whole_store(c, target.value, base, o)
        return
    place = _place(c, target, replace(base, axes=full_axes(base)))
    if isinstance(place, Tile) and not is_silent(o.term):
        fit_shape(c, target, place, o)
    elif isinstance(o.term, Tile) and o.term.axes:
        c.report("T0604", f"`{source_of(target)}` is one element, and this is a tile", value.span)
    _buffer_dtype(c, target, base, o)
    c.env[target.value.id] = full_axes(base)


def _made_elsewhere(
    c: TileContext, name: str, copied: str
) -> tuple[tuple[Label, ...], tuple[str, ...], tuple[Fix, ...]]:
    """What makes a variable an array that gets another value, or is made in a loop."""
    fill, other = refill(c, name), other_value(c, name)
    again = f"; write `{name}[:] = {fill}` where it is made now" if fill else ""
    helps = (f"make `{name}` once, outside of loops and conditions, and give it no other"
             f" value: then it is an array{again}", copied)  # fmt: skip
    if other is None:
        return (), helps, ()
    at, stored = other
    labels = (Label(at, f"`{name}` gets another value here"),)
    if exchange := exchanged(c, name):
        return labels, (f"exchange their elements: `{exchange}`", *helps), ()
    if not stored:
        return labels, ("give the other value a name of its own", *helps), ()
    end = Span(at.anchor, at.end, at.end)
    fixes = (Fix("store into the array", (Edit(end, "[:]"),), "unsafe"),)
    return labels, (f"store the other value into it: `{stored}`", *helps), fixes


def full_axes(base: Tile) -> tuple[TileAxis, ...]:
    return tuple(TileAxis(a.capacity, a.capacity) for a in base.axes)


def whole_store(c: TileContext, name: ast.Name, base: Tile, o: Operand) -> None:
    """The buffer takes the value's extent; what the value does not cover is 0."""
    if is_silent(o.term):
        return
    place = ast.Subscript(name.span, name, (ast.SliceExpr(name.span, None, None, None),))
    axes = full_axes(base)
    if isinstance(o.term, Tile) and o.term.axes:
        if len(o.term.axes) != len(base.axes):
            fit_shape(c, place, replace(base, axes=axes), o)
            return
        for i, (room, axis) in enumerate(zip(base.axes, o.term.axes, strict=True)):
            _check_room(c, name, i, room, axis, o)
        axes = tuple(
            TileAxis(room.capacity, axis.extent)
            for room, axis in zip(base.axes, o.term.axes, strict=True)
        )
    elif not isinstance(o.term, Tile) and isinstance(o.term, Tensor):
        return
    _buffer_dtype(c, place, base, o)
    c.env[name.id] = axes


def _check_room(
    c: TileContext, name: ast.Name, i: int, room: TileAxis, axis: TileAxis, o: Operand
) -> None:
    assert room.capacity is not None
    if axis.capacity is not None and axis.capacity <= room.capacity:
        return
    extent = axis.extent
    if extent is None:
        return
    most = c.kernel.facts.most(extent)
    if most is not None and most <= room.capacity:
        return
    if axis.capacity is None and agree(c, extent, room.capacity, o.e.span):
        return
    shown = described(c.kernel.facts.resolve(extent))
    c.report(
        "T0603", f"axis {i} of `{name.id}` has room for {room.capacity} elements, and the value"
        f" may have {axis.capacity or shown}", o.e.span, f"this is `{text_of(o.term)}`",
        helps=("take a slice of the buffer's size",),
    )  # fmt: skip


def _buffer_dtype(c: TileContext, target: ast.Subscript, base: Tile, o: Operand) -> None:
    if is_waiting(base):
        if isinstance(o.term, (Tile, Scalar)) and not (
            isinstance(o.term, Tile) and is_waiting(o.term)
        ):
            settle_tile(c, base, o.term.dtype, False, o.e.span)
        return
    fit_dtype(c, target, base.dtype, o)


# --- accumulation --------------------------------------------------------------------------


def augmented(c: TileContext, s: ast.AugmentedAssign, target: ast.Subscript) -> None:
    """``place[...] op= value``."""
    value = c.infer(s.value)
    base = c.infer(target.value)
    if s.operator in WHOLE:
        store_in_order(c, s, target)
        return
    if isinstance(base, Tile):
        _augmented_buffer(c, s, target, base, value)
        return
    if not isinstance(base, Tensor):
        if not is_silent(base):
            c.report("T0213", f"`{text_of(base)}` cannot be stored to", target.span)
        return
    place = _place(c, target, base)
    if not isinstance(place, (Tile, Scalar)):
        return
    writable(c, target, base)
    if _chooses_rows(c, target):
        return
    if s.operator == "/" and _divides_integers(c, s, target, place, value):
        return
    outermost = _outermost_unused(c, target)
    if _goes_in_order(c, s, target, outermost):
        store_in_order(c, s, target)
        return
    if s.operator not in ACCUMULATING and outermost is not None:
        c.report(
            "T0622", f"`{s.operator}=` cannot accumulate over a loop", s.operator_span,
            helps=("`+=`, `-=` and `*=` can; for others collect in a variable",),
        )  # fmt: skip
        return
    _remember(c, target, outermost)
    c.ranks.append(len(place.axes) if isinstance(place, Tile) else 0)
    o = value_of_operand(c, Operand(s.value, value))
    if is_silent(o.term):
        return
    if isinstance(place, Tile):
        if not fit_shape(c, target, place, o):
            return
    elif isinstance(o.term, Tile) and o.term.axes:
        c.report("T0604", f"`{source_of(target)}` is one element, and this is a tile",
                 s.value.span)  # fmt: skip
        return
    dtype, wide = accumulator(place.dtype)
    surrogate = Operand(s.value, o.term if isinstance(o.term, Scalar) else Scalar(dtype))
    if isinstance(surrogate.term, Scalar) and isinstance(o.term, Scalar):
        found = operate(c, s.operator, s.operator_span, Operand(target, Scalar(dtype)), surrogate)
        if is_silent(found):
            return
    if isinstance(o.term, Tile) and is_waiting(o.term):
        settle_tile(c, o.term, dtype, wide, s.span)
    elif o.term == Scalar(INDEX) and dtype in (F32, F64) and c.is_size(s.value):
        c.coerce(s.value, dtype)
    elif not give_tile(c, s.value, o.term, dtype, wide):
        fit_dtype(c, target, place.dtype, o)
    if c.final:
        c.typed.coercions.pop(target, None)


def _divides_integers(
    c: TileContext, s: ast.AugmentedAssign, target: ast.Subscript, place: Tile | Scalar, value: Term
) -> bool:
    """``place /= value`` of integers, which is reported."""
    term = value_of_operand(c, Operand(s.value, value)).term
    whole = isinstance(term, Weak) and term.kind == "int"
    whole |= isinstance(term, (Scalar, Tile)) and term.dtype.is_integer
    if not whole or not place.dtype.is_integer:
        return False
    number = Scalar(place.dtype)
    c.places[target] = s
    operate(c, "/", s.operator_span, Operand(target, number), Operand(s.value, number))
    return True


def _goes_in_order(
    c: TileContext, s: ast.AugmentedAssign, target: ast.Subscript, outermost: ast.Stmt | None
) -> bool:
    """Whether each round of a loop needs what the one before made: it reads the array too, or
    stores into it, or what it does is no sum."""
    loop = next((x for x in c.loops if x.statement is outermost), None)
    if loop is None or loop.over_tiles or not isinstance(target.value, ast.Name):
        return False
    assert isinstance(outermost, ast.For | ast.While)
    if s.operator not in ACCUMULATING:
        return True
    inside = tuple(statements(outermost.body))
    parts = [e for x in inside for root in statement_expressions(x) for e in expressions(root)]
    uses: set[ast.Expr] = {e for e in parts if isinstance(e, ast.Name) and e.id == target.value.id}
    varying = _varying(outermost, inside)
    for x in inside:  # what is summed into is no use, nor is what only asks for sizes
        if isinstance(x, ast.AugmentedAssign) and not _mentions(x.target, varying):
            uses.discard(x.target.value if isinstance(x.target, ast.Subscript) else x.target)
    for e in parts:
        if isinstance(e, ast.Attribute) and e.name in ("shape", "dtype", "ndim"):
            uses.discard(e.value)
        elif isinstance(e, ast.Call) and isinstance(e.function, ast.Name):
            uses.difference_update(e.arguments if e.function.id == "len" else ())
    return bool(uses)


def _varying(loop: ast.For | ast.While, inside: tuple[ast.Stmt, ...]) -> set[str]:
    """Names that are another number in each round: a place that they say is no sum of rounds."""
    bound = [e for x in inside if not isinstance(x, ast.For) for e in targets(x)]
    names = [e.id for e in (*targets(loop), *bound) if isinstance(e, ast.Name)]
    return set(names)


def _mentions(target: ast.Expr, names: set[str]) -> bool:
    if not isinstance(target, ast.Subscript):
        return False
    parts = (e for item in target.items for e in expressions(item))
    return any(isinstance(e, ast.Name) and e.id in names for e in parts)


def store_in_order(c: TileContext, s: ast.AugmentedAssign, target: ast.Subscript) -> None:
    """``u[...] = u[...] + value``, which stands in the place of the statement."""
    value = written_out(c, s, target)
    store(c, target, value, c.infer(value))


def written_out(
    c: TileContext, s: ast.AugmentedAssign, target: ast.Subscript | ast.Name
) -> ast.Binary:
    """``u + value``, which is stored or bound in the place of ``u += value``."""
    value = c.kernel.in_order.get(s)
    if value is None:
        old = substituted(source_of(target), {}, target.span, lambda _, e: e)
        value = c.kernel.in_order[s] = ast.Binary(s.span, s.operator, s.operator_span, old, s.value)
    c.places[value.left] = s
    if c.final:
        c.typed.in_order[s] = ast.Assign(s.span, target, value)
    return value


def _chooses_rows(c: TileContext, target: ast.Subscript) -> bool:
    """Reports a sum into rows that a tile of numbers chooses, of which two may be one."""
    for item in target.items:
        if not isinstance(item, (ast.SliceExpr, ast.NoneLit)) and isinstance(
            c.infer(item), (Tile, Tensor)
        ):
            name, rows = source_of(target.value), source_of(item)
            c.report(
                "T0622", "rows that a tile chooses are not accumulated into", target.span,
                f"a row may stand twice in `{rows}`",
                notes=("NumPy would add only one of the values to such a row",),
                helps=(
                    f"a loop over them adds all: `for r in range(n): {name}[rows[r], :] += ...`",
                    f"if each stands there once: `old = {name}[rows, :]`,"
                    f" then `{name}[rows, :] = old + ...`",
                ),
            )  # fmt: skip
            return True
    return False


def accumulator(dtype: DType) -> tuple[DType, bool]:
    """The type a sum is kept in until its loops are done."""
    if is_narrow(dtype):
        return dtype, True
    if dtype.is_integer and dtype.bits < 32:
        return (I32 if dtype.is_signed else U32), False
    return dtype, False


def _outermost_unused(c: TileContext, target: ast.Subscript) -> ast.Stmt | None:
    """The outermost loop with a variable that the place does not depend on."""
    names: set[str] = set()
    for item in target.items:
        bounds = (item.lower, item.upper) if isinstance(item, ast.SliceExpr) else (item,)
        for e in bounds:
            if e is not None and not isinstance(e, ast.NoneLit):
                names |= symbols_of(dim_of(c, e))
    if any("@" in n for n in names):
        return None
    for loop in c.loops:
        if not set(loop.names) <= names:
            return loop.statement
    return None


def _remember(c: TileContext, target: ast.Subscript, outermost: ast.Stmt | None) -> None:
    name = root_name(c, target)
    if not c.final or name is None:
        return
    if outermost is None:
        read(c, target)
        written(c, target)
    else:
        c.sums.append(Accumulation(name, target, target.span, outermost))


def _augmented_buffer(
    c: TileContext, s: ast.AugmentedAssign, target: ast.Subscript, base: Tile, value: Term
) -> None:
    if not base.buffer or not isinstance(target.value, ast.Name):
        into_buffer(c, target, base, s.value, value)
        return
    place = subscript(c, target, base, target=True)
    c.note(target, place)
    if not isinstance(place, Tile):
        return
    whole = all(is_whole(i) for i in target.items)
    part = replace(place, buffer=False)
    found = operate_tiles(
        c, s.operator, s.operator_span, Operand(target, part), Operand(s.value, value)
    )
    if isinstance(found, Tile):
        if len(found.axes) != len(part.axes):
            fit_shape(c, target, part, Operand(s.value, found))
        elif found.dtype != base.dtype:
            fit_dtype(c, target, base.dtype, Operand(s.value, found))
    if not whole:
        c.env[target.value.id] = full_axes(base)


def check_sums(c: TileContext) -> None:
    """An array that is summed into is read or written otherwise in no round of the loops."""
    for found in c.sums:
        for kind, accesses in (("read", c.reads), ("written", c.writes)):
            for a in accesses:
                if a.array != found.array or found.outermost not in a.loops:
                    continue
                c.report(
                    "T0621", f"`{found.array}` is {kind} while it is summed into", a.span,
                    f"{kind} here",
                    labels=(
                        Label(found.span, "this is one sum over all rounds of the loop"),
                        Label(_head(found.outermost), "of this loop"),
                    ),
                    notes=("its elements have their new value when the loop is done",),
                    helps=(
                        f"if each round needs what the one before made of `{found.array}`, write"
                        f" `{source_of(found.target)} = {source_of(found.target)} + ...`",
                        "else collect the sum in a variable, and store it behind the loop",
                    ),
                )  # fmt: skip
                break


def _head(s: ast.Stmt) -> Span:
    return s.iterable.span if isinstance(s, ast.For) else s.span
