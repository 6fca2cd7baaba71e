"""Subscripts: slices of arrays, parts of tiles, gathers, elements.

Owns capacity and extent of what a subscript names. Must not know what is done with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from tessera_lang.record import replace
from tessera_lang.sema.context import text_of
from tessera_lang.sema.expression_text import item_source, source_of
from tessera_lang.sema.indexing import element, index
from tessera_lang.sema.inference_types import Term, Unknown
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.tile.context import ArrayReference, TileContext
from tessera_lang.sema.tile.expand_builtins import expand
from tessera_lang.sema.tile.paired_subscripts import beside_numbers, of_each_row, side_by_side
from tessera_lang.sema.tile.size_normal_form import (
    described,
    dim_of_form,
    form_of,
    items_of,
    normal,
)
from tessera_lang.sema.tile.symbolic import dim_of, follows
from tessera_lang.syntax import ast
from tessera_lang.target.array_facts import CUT_AXIS, WHOLE_AXIS
from tessera_lang.types.dtype import BOOL, INDEX
from tessera_lang.types.shape import Dim, DimOp, Sym, symbols_of
from tessera_lang.types.type import ERROR, Scalar, Tensor, Tile, TileAxis, Weak

MOST_LOOKED_UP = 64
"""Elements of a table that each element of a tile may choose from."""
MOST_NAMED = 128 * 128
"""Elements of an array of known sizes that is one tile where a loop takes it whole."""


def whole_axis(c: TileContext, size: Dim, *, room: bool = True) -> TileAxis:
    """An axis taken whole: room for its size where that is known, or for its bucket.

    Without ``room`` it is an axis of an iteration space, which a schedule cuts into tiles.
    """
    facts = c.kernel.facts
    now = facts.resolve(size)
    if not room:
        return TileAxis(1 if size == 1 else None, now)  # which stretches
    names = [n.name for n in (size, now) if isinstance(n, Sym)]
    for name in names:
        if name in c.kernel.origins:
            c.kernel.whole.setdefault(c.kernel.origins[name])
    bound = next((facts.bound[name] for name in names if name in facts.bound), None)
    most = CUT_AXIS if c.kernel.parts and not c.kernel.carried else WHOLE_AXIS
    if isinstance(now, int):
        return TileAxis(max(1, now) if now <= most else None, now)
    return TileAxis(None if bound is not None and bound > most else bound, now)


def takes_parts(c: TileContext) -> None:
    """From now on an axis that is longer than most is no tile as a whole."""
    if not c.kernel.parts:
        c.kernel.parts = c.kernel.changed = True


def holds_whole(c: TileContext, axes: Sequence[TileAxis]) -> None:
    """A loop changes a tile of these axes: from now on a long axis that is taken whole has room."""
    if c.kernel.parts and not c.kernel.carried and any(a.capacity is None for a in axes):
        c.kernel.carried = c.kernel.changed = True


def as_tile(c: TileContext, e: ast.Expr, term: Tensor) -> Tile:
    """An array used as a value: read whole."""
    room = has_room(c, term.shape)
    tile = Tile(term.dtype, tuple(whole_axis(c, d, room=room) for d in term.shape))
    c.convert(e, tile)
    read(c, e)
    return tile


def has_room(c: TileContext, shape: Sequence[Dim]) -> bool:
    """Whether an array taken whole is a tile of the loop around, or an iteration space."""
    if not c.loops or len(shape) == 1:
        return bool(c.loops)
    sizes = [c.kernel.facts.value(size) for size in shape]
    known = [n for n in sizes if n is not None]
    return len(known) == len(sizes) and prod(known) <= MOST_NAMED


def root_name(c: TileContext, e: ast.Expr) -> str | None:
    """The array that an expression is a part or view of."""
    while isinstance(e, (ast.Subscript, ast.Attribute)):
        e = e.value
    return c.aliases.get(e.id, e.id) if isinstance(e, ast.Name) else None


def read(c: TileContext, e: ast.Expr) -> None:
    """Remember that an array is read here."""
    name = root_name(c, e)
    if c.final and name is not None:
        c.reads.append(ArrayReference(name, e.span, tuple(x.statement for x in c.loops)))


def written(c: TileContext, e: ast.Expr) -> None:
    """Remember that an array is written here."""
    name = root_name(c, e)
    if c.final and name is not None:
        c.writes.append(ArrayReference(name, e.span, tuple(x.statement for x in c.loops)))


def subscript(c: TileContext, e: ast.Subscript, base: Tensor | Tile, *, target: bool) -> Term:
    """``base[...]``, read or named as a place."""
    rank = len(base.shape) if isinstance(base, Tensor) else len(base.axes)
    given = sum(not isinstance(i, ast.NoneLit) for i in e.items)
    if given > rank:
        for item in e.items:
            _item_term(c, item)
        what = f"`{source_of(e.value)}` has {_count(rank, 'axis', 'axes')}"
        helps = () if rank else (f"the element of rank 0 is `{source_of(e.value)}[()]`",)
        return c.report(
            "T0301", f"{what} and is indexed with {_count(given, 'index', 'indices')}", e.span,
            f"this is `{base}`", helps=helps,
        )  # fmt: skip
    found = of_each_row(c, e, base, target) if isinstance(base, Tile) else None
    if found is not None:
        return found
    if any(isinstance(i, ast.ListExpr) for i in e.items):
        return _lists(c, e, rank - given)
    terms = [_item_term(c, item) for item in e.items]
    if any(is_silent(t) for t in terms):
        return next(t for t in terms if is_silent(t))
    found = side_by_side(c, e, base, terms, target)
    if found is not None:
        return found
    if isinstance(base, Tensor):
        return _of_array(c, e, base, terms, target)
    return _of_tile(c, e, base, terms, target)


def _lists(c: TileContext, e: ast.Subscript, lacks: int) -> Term:
    """``B[[0, 1]]``: places in a list, which are an array here."""
    items = [_as_array(i) if isinstance(i, ast.ListExpr) else item_source(i) for i in e.items]
    shown, base = ", ".join((*items, *[":"] * lacks)), source_of(e.value)
    simple = isinstance(e.value, (ast.Name, ast.Call, ast.Subscript, ast.Attribute))
    return c.report(
        "T0118", "a list of places cannot stand in a subscript of a tile kernel",
        next(i for i in e.items if isinstance(i, ast.ListExpr)).span,
        helps=(f"write `{base if simple else f'({base})'}[{shown}]`",),
    )  # fmt: skip


def _as_array(e: ast.ListExpr) -> str:
    if not e.items:
        return "op.arange(0)"
    return f"op.array([{', '.join(source_of(x) for x in e.items)}])"


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


def _item_term(c: TileContext, item: ast.Expr) -> Term:
    """Type what stands in a bracket; an integer is converted to index."""
    if isinstance(item, ast.SliceExpr):
        for bound in (item.lower, item.upper, item.step):
            if bound is not None:
                c.place = True
                term = c.infer(bound)
                if is_silent(term):
                    return term
                if isinstance(term, Tile):
                    return c.report(
                        "T0215", f"a slice bound is an integer, not `{text_of(term)}`", bound.span
                    )
                _index(c, bound)
        return Scalar(INDEX)
    term = c.infer(item)
    if isinstance(term, Tensor):
        return as_tile(c, item, term)
    if isinstance(item, ast.NoneLit) or is_silent(term) or isinstance(term, Tile):
        return term
    _index(c, item)
    return Scalar(INDEX)


def _index(c: TileContext, e: ast.Expr) -> None:
    index(c, e)
    kind = c.typed.types.get(e) if c.final else None
    if isinstance(kind, Scalar) and kind.dtype.is_integer and kind.dtype != INDEX:
        c.coerce(e, INDEX)


def _of_array(
    c: TileContext, e: ast.Subscript, base: Tensor, terms: list[Term], target: bool
) -> Term:
    if not target:
        found = _looked_up(c, e, base, terms) or _taken(c, e, terms, least=2)
        found = found or beside_numbers(c, e, base, terms)
        if found is not None:
            return found
    axes: list[TileAxis] = []
    position = 0
    good = True
    whole = all(
        is_whole(i) or isinstance(i, ast.NoneLit) or _is_open(x)
        for i, x in zip(e.items, terms, strict=True)
    )
    slices = _slice_axes(c, e, base, target)
    room = has_room(c, base.shape) if whole else bool(c.loops) or not _any_open(slices.values())
    for number, (item, term) in enumerate(zip(e.items, terms, strict=True)):
        if isinstance(item, ast.NoneLit):
            axes.append(TileAxis(1, 1))
            continue
        size = base.shape[position]
        if is_whole(item):
            axes.append(whole_axis(c, size, room=room))
        elif isinstance(item, ast.SliceExpr):
            axis = slices[number]
            if axis is None or axis.capacity != 1:  # of one place it is what an index is
                takes_parts(c)
            good = good and axis is not None
            if axis is not None:
                axes.append(axis)
        elif isinstance(term, Tile):
            axis = _gather(c, item, term)
            good = good and axis is not None
            if axis is not None:
                axes.append(axis)
        else:
            _check_index(c, e, item, size, position)
        position += 1
    axes.extend(whole_axis(c, size, room=room) for size in base.shape[position:])
    if sum(a.capacity != 1 for a in axes) > 1:
        takes_parts(c)
    if not target:
        read(c, e)
    if not good:
        return ERROR if c.final else Unknown()
    if not axes:
        return element(c, e, base)
    return Tile(base.dtype, tuple(axes))


def _slice_axes(
    c: TileContext, e: ast.Subscript, base: Tensor, target: bool
) -> dict[int, TileAxis | None]:
    """What each ``start:stop`` takes, by its number among the items."""
    found: dict[int, TileAxis | None] = {}
    position = 0
    for number, item in enumerate(e.items):
        if isinstance(item, ast.NoneLit):
            continue
        if isinstance(item, ast.SliceExpr) and not is_whole(item):
            size = base.shape[position]
            found[number] = slice_axis(c, item, size, position, e, target=target)
        position += 1
    return found


def _any_open(axes: Iterable[TileAxis | None]) -> bool:
    """Whether one has no room: what is taken is an iteration space then, also along whole axes."""
    return any(a is not None and a.capacity is None for a in axes)


def _is_open(term: Term) -> bool:
    """Whether rows are chosen by an array taken whole, as an iteration space."""
    return isinstance(term, Tile) and all(a.capacity is None for a in term.axes)


def is_whole(item: ast.Expr) -> bool:
    """``:``."""
    return isinstance(item, ast.SliceExpr) and not (item.lower or item.upper or item.step)


def _check_index(c: TileContext, e: ast.Subscript, item: ast.Expr, size: Dim, axis: int) -> None:
    value, known = c.try_value(item), c.kernel.facts.value(size)
    if isinstance(value, int) and known is not None and not -known <= value < known:
        c.report(
            "T0302", f"index {value} is outside axis {axis} of `{source_of(e.value)}`", item.span,
            f"the axis has {known} elements",
        )  # fmt: skip


def _gather(c: TileContext, item: ast.Expr, term: Tile) -> TileAxis | None:
    if not term.dtype.is_integer or len(term.axes) != 1:
        c.report(
            "T0215", f"rows are chosen by a tile of integers with one axis, not `{term}`",
            item.span,
            helps=("in a loop over tiles take rows of one axis: `x[places[i, :]]`",
                   f"only a last axis of at most {MOST_LOOKED_UP} elements, a number that is known,"
                   " takes places of more axes there, behind one index for each axis before it")
            if term.dtype.is_integer else
            ("how many are true only the run knows: of a value take `op.where(condition, x, 0.0)`",
             "to store where it is true, write `:` for the condition beside other indices:"
             " `x[:, 2] = op.where(condition, value, x[:, 2])`")
            if term.dtype == BOOL else (),
        )  # fmt: skip
        return None
    return term.axes[0]


def _looked_up(c: TileContext, e: ast.Subscript, base: Tensor, terms: list[Term]) -> Tile | None:
    """``table[places]``, where the places are a tile of two axes or more: an element of a small
    table for each of them. ``tables[i, places]`` is of the table with a number."""
    if not terms:  # `x[()]`
        return None
    *numbers, term = terms
    if len(terms) != len(base.shape) or not isinstance(term, Tile):
        return None
    size = c.kernel.facts.value(base.shape[-1])
    if len(term.axes) < 2 or not term.dtype.is_integer or size is None or size > MOST_LOOKED_UP:
        return None
    if not all(_is_number(i, t) for i, t in zip(e.items, numbers, strict=False)):
        return None
    for axis, item in enumerate(e.items[:-1]):
        _check_index(c, e, item, base.shape[axis], axis)
    takes_parts(c)
    read(c, e)
    return Tile(base.dtype, term.axes)


def _is_number(item: ast.Expr, term: Term) -> bool:
    return isinstance(term, Scalar | Weak) and not isinstance(item, ast.SliceExpr | ast.NoneLit)


def slice_axis(
    c: TileContext, item: ast.SliceExpr, size: Dim, axis: int, e: ast.Subscript, *, target: bool
) -> TileAxis | None:
    """``start:stop:step`` of an axis with ``size`` elements."""
    facts = c.kernel.facts
    step = 1
    if item.step is not None:
        found = c.try_value(item.step)
        if found == -1 and not (item.lower or item.upper or target):
            return whole_axis(c, size)  # all of it, from the end
        if not isinstance(found, int) or found <= 0:
            _bad_step(c, item, e, target)
            return None
        step = found
    if item.lower is None and item.upper is None and step == 1:
        return whole_axis(c, size)
    start = 0 if item.lower is None else _bound(c, item.lower, size)[0]
    stop, from_end = (size, False) if item.upper is None else _bound(c, item.upper, size)
    if item.lower is not None and not _is_proved(c, start):
        if not _is_looked_at(c, item.lower, start):
            _may_be_negative(c, item.lower, e, axis, start, "start", target)
            return None
        start = normal(DimOp("max", 0, start))
        if c.final:
            c.typed.starts[item] = None
    if item.upper is not None and not _stops_inside(c, item, start, stop):
        _may_be_negative(c, item.upper, e, axis, stop, "stop", target)
        return None
    if c.final and not c.kernel.wraps.isdisjoint(symbols_of(start)):
        c.typed.wrapping[item] = None
    extent = facts.clipped(start, stop, stop if from_end else size, step)
    width = facts.most(facts.clipped(start, stop, stop, step))
    if step == 1 and width is not None and facts.is_to_fit(normal(DimOp("-", size, start))):
        extent = facts.clipped(start, stop, stop)
        if c.final:
            c.typed.fits[item] = None
    shown = facts.most(extent)
    room = width if shown is None else shown if width is None else min(width, shown)
    if isinstance(extent, int):
        room = extent
    if room is None and facts.equals(extent, size):
        return whole_axis(c, size)
    return TileAxis(None if room is None else max(1, room), extent)


def _bad_step(c: TileContext, item: ast.SliceExpr, e: ast.Subscript, target: bool) -> None:
    assert item.step is not None
    step, name = c.try_value(item.step), source_of(e.value)
    first = item_source(item.lower) if item.lower is not None else "0"
    if target:
        helps = ("reverse the value instead: `op.flip(value, axis)`",) if step else ()
    elif isinstance(step, int):
        whole = f"all of an axis backwards is `{name}[::-1]`; turn a part of it with `op.flip`"
        helps = (whole,) if step else ()
    else:
        places = f"{first} + {source_of(item.step)} * op.arange(32)"
        helps = (f"take places, of which those that are not there give zeros: `{name}[{places}]`",)
    c.report(
        "T0606", "the step of a slice is a positive number known at compile time", item.step.span,
        helps=helps,
    )  # fmt: skip


def _bound(c: TileContext, e: ast.Expr, size: Dim) -> tuple[Dim, bool]:
    """A bound, and whether it counts from the end, as what is certainly below 0 does."""
    value = c.try_value(e)
    if isinstance(value, int):
        end = normal(DimOp("max", 0, DimOp("+", size, value)))
        return (end, True) if value < 0 else (value, False)
    bound = dim_of(c, e)
    if not c.kernel.facts.less(bound, 0) and not follows(c, normal(DimOp("-", -1, bound))):
        return bound, False
    if c.final:
        c.typed.from_end[e] = None
    return normal(DimOp("max", 0, DimOp("+", size, bound))), True


def _is_proved(c: TileContext, bound: Dim) -> bool:
    """Whether a bound is at least 0, where the branches around are taken."""
    return c.kernel.facts.not_negative(bound) or follows(c, bound)


def _is_looked_at(c: TileContext, lower: ast.Expr, start: Dim) -> bool:
    """Whether the run looks that a start is at least 0: one that is read from memory, with what is
    added to it."""
    elements = {n for n in symbols_of(start) if n in c.kernel.elements}
    others = symbols_of(start) - elements
    return (
        bool(elements)
        and not isinstance(lower, ast.Unary)
        and all(c.kernel.facts.not_negative(Sym(n)) for n in others)
    )


def _stops_inside(c: TileContext, item: ast.SliceExpr, start: Dim, stop: Dim) -> bool:
    """Whether a stop does not count from the end, or the run looks whether it does.

    ``n - k`` of a size ``n`` is what ``-k`` is, so that none is left where ``k`` is more.
    """
    assert item.upper is not None
    if _is_proved(c, stop) or _is_proved(c, normal(DimOp("-", stop, start))):
        return True
    if isinstance(item.upper, ast.Unary):
        return False
    if _is_of_size(c, stop):
        return True
    if all(name in c.kernel.facts.ranges or name in c.kernel.facts.least
           for name in symbols_of(stop)):  # fmt: skip
        return False
    if c.final:
        c.typed.stops[item] = None
    return True


def _is_of_size(c: TileContext, stop: Dim) -> bool:
    """Whether a stop is a size, or a minimum of sizes, and what is added or taken away."""
    facts = c.kernel.facts
    form = form_of(facts.resolve(stop))
    if isinstance(form.alone, DimOp) and form.alone.operator in ("min", "max"):
        parts = (dim_of_form(i) for i in items_of(form.alone))
        return all(_is_proved(c, part) or _is_of_size(c, part) for part in parts)
    names = (atom.name for atom, k in form.terms if k > 0 and isinstance(atom, Sym))
    return any(name in facts.least and name not in facts.ranges for name in names)


def _may_be_negative(
    c: TileContext, at: ast.Expr, e: ast.Subscript, axis: int, bound: Dim, what: str, target: bool
) -> None:
    name, text = source_of(e.value), item_source(at)
    if isinstance(at, ast.Unary):
        by = item_source(at.operand)
        by = f"({by})" if isinstance(at.operand, ast.Binary) else by
        end = f"{name}.shape[{axis}] - {by}"
        shown = f"max({end}, 0):" if what == "start" else f":{end}"
        helps = (f"to count from the end write `{shown}`",)
    elif what == "start":
        window = f"to read past the edge write `op.window({name}, {text}, length, fill=0)`"
        least = f"give it a lower bound: `max({text}, 0)`"
        helps = (least,) if target else (window, f"or {least}")
    else:
        helps = (f"give it a lower bound: `max({text}, 0)`",
                 f"to count from the end write `:{name}.shape[{axis}] + {text}`")  # fmt: skip
    c.report(
        "T0605", f"the slice of `{name}` may {what} below 0", at.span,
        # A number that the run finds has a name of ours.
        f"`{text if '@' in described(bound) else described(bound)}` is not proved to be at least 0",
        notes=(f"a {what} counts from the end where it is certain to be below 0",),
        helps=helps,
    )  # fmt: skip


# --- parts of tiles ------------------------------------------------------------------------


def _of_tile(c: TileContext, e: ast.Subscript, base: Tile, terms: list[Term], target: bool) -> Term:
    taken = None if target else _taken(c, e, terms)
    if taken is not None:
        return taken
    axes: list[TileAxis] = []
    position = 0
    for item, term in zip(e.items, terms, strict=True):
        if isinstance(item, ast.NoneLit):
            axes.append(TileAxis(1, 1))
            continue
        axis = base.axes[position]
        if isinstance(item, ast.SliceExpr):
            part = _part(c, item, axis, position, e, target=target)
            if part is None:
                return ERROR if c.final else base
            axes.append(part)
        elif isinstance(term, Tile):
            return c.report(
                "T0114", "not built yet: rows of a tile chosen by a tile", item.span,
                helps=("places with one axis may choose, and along one axis: take the columns of"
                       f" `{source_of(item)}` one after the other in a loop",),
            )  # fmt: skip
        elif axis.extent is not None and not c.is_open(axis.extent):
            _check_index(c, e, item, axis.extent, position)
        position += 1
    axes.extend(base.axes[position:])
    tile = replace(base, axes=tuple(axes), buffer=False)
    if not axes and not base.wide:
        return Scalar(base.dtype)
    return replace(tile, buffer=True) if target and base.buffer else tile


def _taken(c: TileContext, e: ast.Subscript, terms: list[Term], least: int = 1) -> Term | None:
    """``t[rows]`` and ``t[:, columns]`` of a computed tile: what ``op.take`` gives. Of an array
    too, where the places have several axes (``least``)."""
    places = [i for i, t in enumerate(terms) if isinstance(t, Tile) and len(t.axes) >= least]
    several = [t for t in terms if isinstance(t, Tile) and len(t.axes) > 1]
    if several and (c.in_tile_loop or not several[0].dtype.is_integer):
        return None
    if len(places) != 1 or any(not is_whole(x) for i, x in enumerate(e.items) if i != places[0]):
        return None
    axis = places[0]
    return expand(c, e, f"op.take(x, i, axis={axis})", {"x": e.value, "i": e.items[axis]})


def _part(
    c: TileContext, item: ast.SliceExpr, axis: TileAxis, position: int, e: ast.Subscript, *,
    target: bool,
) -> TileAxis | None:  # fmt: skip
    """A slice of an axis of a tile."""
    if item.lower is None and item.upper is None and item.step is None:
        return axis
    extent = axis.extent
    if extent is None or c.is_open(c.kernel.facts.resolve(extent)):
        extent = axis.capacity
    if extent is None:
        return axis
    return slice_axis(c, item, extent, position, e, target=target)
