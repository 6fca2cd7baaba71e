"""Variables of tile kernels: a tile variable keeps dtype and capacity, and has an extent of now.

Owns the binding of values to names. Must not know what a value is made of.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Label
from tessera_lang.record import replace
from tessera_lang.sema.context import Variable
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Open, Term
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.name_values import variable_term
from tessera_lang.sema.side_tables import Local
from tessera_lang.sema.tile.context import TileContext, register_dtype
from tessera_lang.sema.tile.created_arrays import stored_names
from tessera_lang.sema.tile.fits_narrow_index import learn_bounds
from tessera_lang.sema.tile.operators import give_tile, is_waiting, settle_tile
from tessera_lang.sema.tile.subscripts import as_tile, root_name
from tessera_lang.sema.tile.symbolic import OWNER, dim_of, set_scalar
from tessera_lang.sema.variables import bind_variable, keeps_type
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import INDEX, DType, common_dtype
from tessera_lang.types.type import Scalar, Tensor, Tile, TileAxis, TupleType, Type, Weak


def bind(c: TileContext, target: ast.Name, value: ast.Expr | None, term: Term) -> None:
    """``name = value``; without an expression an item of a tuple."""
    v = c.variables.get(target.id)
    if v is None:
        return  # a compile-time parameter: the structure check says so
    if target in c.beginnings and not _takes(c, v, value, term):
        v = _another(c, v, value, term, target)
    if isinstance(v.type, Tensor) and isinstance(term, Tile) and v.local.kind == "variable":
        # A name of an array that takes a value too is one of values: of what the array held.
        c.valued.add(v)
        v.type = v.since = None
        c.kernel.changed = True
        return
    if isinstance(v.type, Tensor) and isinstance(term, Tensor) and _is_another(c, v, value):
        c.valued.add(v)  # it changes places with another array: what each held
        v.type = v.since = None
        c.kernel.changed = True
        return
    is_value = v in c.valued or isinstance(v.type, Tile) and v.local.kind == "variable"
    if isinstance(term, Tensor) and is_value and value is not None:
        term = as_tile(c, value, term)
    if c.final:
        c.typed.symbols[target] = v.local
    learn_bounds(c, target, value, term)
    if isinstance(term, Tile):
        bind_tile(c, v, value, term, target.span)
    elif not is_silent(term):
        _bind_other(c, v, value, term, target)
    current = variable_term(c, v)
    if isinstance(current, Tile) and isinstance(term, Tile):
        wide = current.wide or v in c.wide
        current = replace(current, axes=term.axes, wide=wide)
    c.note(target, current)
    c.terms.pop(target, None)


def _is_another(c: TileContext, v: Variable, value: ast.Expr | None) -> bool:
    """Whether a name of an array, of which no elements are stored, is given another array."""
    if v.local.kind != "variable" or value is None or v.since in (None, value.span):
        return False
    return v.local.name not in stored_names(c)


def _takes(c: TileContext, v: Variable, value: ast.Expr | None, term: Term) -> bool:
    """Whether a variable may have a value, beside those that it has had."""
    now = variable_term(c, v)
    if (v.type is None and v.cell is None) or is_silent(now) or is_silent(term):
        return True
    match now, term:
        case Tile(), Tile():
            room, other = ([a.capacity for a in t.axes] for t in (now, term))
            if room != other or now.buffer != term.buffer:
                return False
            waits = is_waiting(now) or is_waiting(term)
            return waits or _widens(c, value, term.dtype, now.dtype)
        case Tile(), _:
            return not now.axes
        case _, Tile():
            return not term.axes
        case Tensor(), Tensor():
            return value is not None and v.since == value.span
        case Scalar(), Scalar():
            return _widens(c, value, term.dtype, now.dtype)
        case Scalar(), Weak():
            return term.kind == ("float" if now.dtype.is_float else "int")
        case Open(), Weak():
            return term.kind == now.cell.root().kind
        case ((Scalar() | Open()), (Scalar() | Open() | Weak())):
            return True
        case _:
            return now == term


def _widens(c: TileContext, value: ast.Expr | None, dtype: DType, wanted: DType) -> bool:
    if common_dtype(dtype, wanted) == wanted:
        return True
    return value is not None and dtype == INDEX and c.narrows(value, wanted)


def _another(
    c: TileContext, v: Variable, value: ast.Expr | None, term: Term, target: ast.Name
) -> Variable:
    """Another variable of a name, whose uses meet none of those before: one that takes the value,
    or a new one."""
    found = c.several.setdefault(target.id, [v])
    taking = (x for x in found if _takes(c, x, value, term))
    kind = "variable" if v.local.kind == "parameter" else v.local.kind
    now = next(taking, None) or Variable(Local(target.id, kind, target.span))
    if now not in found:
        found.append(now)
        c.kernel.changed = True
    c.variables[target.id] = now
    c.aliases.pop(target.id, None)
    c.env.pop(target.id, None)
    c.env[target.id + OWNER] = found.index(now)
    return now


def _bind_other(
    c: TileContext, v: Variable, value: ast.Expr | None, term: Term, target: ast.Name
) -> None:
    if isinstance(v.type, Tile) and isinstance(term, Scalar) and not v.type.axes:
        if give_tile(c, value, term, v.type.dtype, v.type.wide):
            return
    bind_variable(c, v, value, term, target.span)
    if isinstance(term, Tensor) and value is not None:
        root = root_name(c, _behind(value))
        if root is not None:
            c.aliases[target.id] = root
    current = variable_term(c, v)
    integer = isinstance(current, Scalar) and current.dtype.is_integer
    if integer or (isinstance(current, Open) and current.cell.root().kind == "int"):
        dim = dim_of(c, value) if value is not None else c.fresh(target, c.full(target.id))
        set_scalar(c, target.id, dim)


def _behind(e: ast.Expr) -> ast.Expr:
    """What ``schedule.prefetch(A)`` names."""
    while isinstance(e, ast.Call) and e.arguments:
        e = e.arguments[0]
    return e


def bind_tile(c: TileContext, v: Variable, value: ast.Expr | None, term: Tile, span: Span) -> None:
    """Give a variable a tile."""
    name = v.local.name
    at = value.span if value is not None else span
    if value is not None and term.buffer and not isinstance(value, ast.Call):
        c.report(
            "T0609", f"`{name}` would be a second name of a buffer", value.span,
            helps=(f"use `{source_of(value)}` where `{name}` is used",
                   "or copy it into a buffer of its own: `copy[:] = ...`"),
        )  # fmt: skip
        return
    if v.type is None and v.cell is None:
        axes = tuple(
            TileAxis(None, a.extent) if (name, v.local.span, i) in c.kernel.roomless else a
            for i, a in enumerate(term.axes)
        )
        v.type = term = replace(term, axes=axes)
        v.since = at
    elif isinstance(v.type, Tile):
        open_ = [a.capacity is None for a in v.type.axes]
        if not _rebind(c, v, value, term, v.type, at):
            return
        if any(open_):  # it stays a value without room, whatever it is given
            pairs = zip(open_, term.axes, strict=True)
            axes = tuple(TileAxis(None, a.extent) if o else a for o, a in pairs)
            term = replace(term, axes=axes)
    elif isinstance(v.type, Scalar) and not term.axes and v.type.dtype == register_dtype(term):
        if value is not None:
            c.coerce(value, v.type.dtype)
        return
    elif v.cell is not None and not term.axes:
        if not is_waiting(term):
            c.cells.fix(v.cell, register_dtype(term), at)
        return
    else:
        keeps_type(c, v, value, term, variable_term(c, v), span)
        return
    c.env[name] = term.axes


def _rebind(
    c: TileContext, v: Variable, value: ast.Expr | None, term: Tile, current: Tile, at: Span
) -> bool:
    """Whether a variable keeps its type with another value."""
    if len(current.axes) != len(term.axes) or current.buffer != term.buffer:
        keeps_type(c, v, value, term, current, at)
        return False
    for i, (x, y) in enumerate(zip(current.axes, term.axes, strict=True)):
        if x.capacity is not None and y.capacity is None and not (c.in_tile_loop or c.final):
            c.kernel.roomless.add((v.local.name, v.local.span, i))
            c.kernel.changed = True  # from its first value on
        elif x.capacity is not None and x.capacity != y.capacity:
            _other_capacity(c, v, i, x.capacity, y.capacity, at)
            return False
    if is_waiting(current) and not is_waiting(term):
        settle_tile(c, current, term.dtype, term.wide, at)
        return True
    if is_waiting(term):
        if not is_waiting(current):
            settle_tile(c, term, current.dtype, current.wide, at)
        return True
    wide = current.wide or v in c.wide
    if term.dtype == current.dtype:
        if term.wide and not wide:
            c.wide.add(v)
            c.kernel.changed = True
        elif wide and not term.wide:
            if value is None:
                _other_dtype(c, v, value, term, replace(current, wide=True), at)
                return False
            c.convert(value, replace(term, wide=True))
        return True
    if value is None or not give_tile(c, value, term, current.dtype, wide):
        _other_dtype(c, v, value, term, current, at)
        return False
    return True


def _other_capacity(
    c: TileContext, v: Variable, axis: int, old: int | None, new: int | None, at: Span
) -> None:
    name = v.local.name
    shown = ["no fixed room" if n is None else f"room for {n}" for n in (new, old)]
    helps = ["a variable keeps one capacity: use another name, or one tile size"]
    if old is None and new is not None:
        helps.append(f"an array taken whole has none outside of a loop: `[0:{new}]` gives it room")
    c.report(
        "T0603", f"axis {axis} of `{name}` takes {shown[0]} here and had {shown[1]}", at,
        labels=(Label(v.since, "first here"),) if v.since else (),
        helps=tuple(helps),
    )  # fmt: skip


def _other_dtype(
    c: TileContext, v: Variable, value: ast.Expr | None, term: Tile, current: Tile, at: Span
) -> None:
    name = v.local.name
    shown = source_of(value) if value is not None else name
    c.report(
        "T0203", f"`{name}` is a tile of `{current.dtype}` and cannot take one of `{term.dtype}`:"
        " a variable keeps one type", at, f"this is `{c.shown(term)}`",
        labels=(Label(v.since, f"`{current.dtype}` since here"),) if v.since else (),
        helps=(f"start with it: `dtype={term.dtype}`",
               f"or convert the value: `({shown}).to({current.dtype})`"),
    )  # fmt: skip


def final_tile_type(c: TileContext, v: Variable, term: Type) -> Type:
    """The type of a variable for the editor: a tile with its last extents."""
    if not isinstance(term, Tile):
        return term
    axes = c.env.get(v.local.name) if c.variables.get(v.local.name) is v else None
    tile = replace(term, axes=axes) if isinstance(axes, tuple) else term
    return c.shown(replace(tile, wide=tile.wide or v in c.wide))


def unpack(c: TileContext, target: ast.TupleExpr, term: TupleType) -> None:
    for t, item in zip(target.items, term.items, strict=True):
        if isinstance(t, ast.Name):
            bind(c, t, None, item)
        else:
            c.report("T0118", "a tuple is unpacked into variables", t.span)
