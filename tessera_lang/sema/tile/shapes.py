"""Agreement of extents: proved, left to the launch, or refused.

Owns the meeting of the axes of two operands, and of a value with its place. Must not know
dtypes or syntax beyond spans.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Label
from tessera_lang.evaluate.missing_axes import says_axes
from tessera_lang.record import dataclass
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.fits_narrow_index import bounds_of_size
from tessera_lang.sema.tile.launch_promises import promise
from tessera_lang.sema.tile.rank_hints import given, is_reduced_over_last, rank_advice, stands_last
from tessera_lang.sema.tile.size_normal_form import (
    Form,
    add,
    described,
    dim_of_form,
    form_of,
    items_of,
    normal,
)
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.shape import Dim, DimOp, Sym, symbols_of
from tessera_lang.types.type import Tile, TileAxis


@dataclass(frozen=True, slots=True)
class Side:
    """One of two operands that meet: its expression and axes, and which axis is looked at."""

    e: ast.Expr
    axes: tuple[TileAxis, ...]


def broadcast(
    c: TileContext, span: Span, a: Side, b: Side, what: str = "this operator"
) -> tuple[TileAxis, ...] | None:
    """The axes of an element-wise operation; None where they do not agree (reported)."""
    if len(a.axes) != len(b.axes):
        if not lines_up(c, span, a, b, what):
            return None
        rank = max(len(a.axes), len(b.axes))
        a, b = (Side(s.e, with_axes_in_front(s.axes, rank)) for s in (a, b))
    axes: list[TileAxis] = []
    for i, (x, y) in enumerate(zip(a.axes, b.axes, strict=True)):
        if _stretches(c, x, y) or _is_one_at_launch(c, x, y, span):
            axes.append(y)
            _goes_along(y, c.kernel.stretched)
        elif _stretches(c, y, x) or _is_one_at_launch(c, y, x, span):
            axes.append(x)
            _goes_along(x, c.kernel.stretched)
        else:
            axis = meet_axes(c, span, (a, i), (b, i), what)
            if axis is None:
                return None
            axes.append(axis)
    return tuple(axes)


def _goes_along(axis: TileAxis, names: set[str]) -> None:
    """Remember an axis without a capacity by the name of its size."""
    if axis.capacity is None and isinstance(axis.extent, Sym):
        names.add(axis.extent.name)


def is_walked(c: TileContext, tile: Tile, axis: int, *, again: bool = False) -> None:
    """Remember that rows of a whole array are reduced; ``again``: and then needed once more."""
    if len(tile.axes) > 1 and axis == len(tile.axes) - 1:
        _goes_along(tile.axes[axis], c.kernel.reduced)
        if again:
            _goes_along(tile.axes[axis], c.kernel.stretched)


def _stretches(c: TileContext, one: TileAxis, other: TileAxis) -> bool:
    """Whether an axis of one element is as long as the other, which may have room for one too."""
    if one.capacity != 1 or one.extent != 1:
        return False
    now = _now(c, other.extent)
    return other.capacity != 1 or not (now is None or c.is_open(now))


def _is_one_at_launch(c: TileContext, one: TileAxis, other: TileAxis, span: Span) -> bool:
    """Whether a slice with room for one element, as `x[:, 0:1]`, meets a longer axis: the launch
    looks that the element is there."""
    if one.capacity != 1 or other.capacity == 1 or one.extent is None or other.extent is None:
        return False
    extent, longer = _now(c, one.extent), _now(c, other.extent)
    if extent is None or longer is None or isinstance(extent, int) or c.is_open(longer):
        return False
    if not _is_size(c, extent) or all(part.known != 1 for part in _choices(extent) or ()):
        return False
    if extent == longer or c.kernel.facts.equals(extent, longer):
        return False
    promise(c, extent, 1, span)
    return True


def with_axes_in_front(axes: tuple[TileAxis, ...], rank: int) -> tuple[TileAxis, ...]:
    """The axes of an operand in front of which axes of one element stand, up to ``rank``."""
    return (*[TileAxis(1, 1)] * (rank - len(axes)), *axes)


def lines_up(c: TileContext, span: Span, a: Side, b: Side, what: str) -> bool:
    """Whether the operand of fewer axes stands along the last ones of the other, as in NumPy. Where
    only other axes have the names of its sizes, it is refused: it would take sizes that happen to
    be equal."""
    low, high = (a, b) if len(a.axes) < len(b.axes) else (b, a)
    if any(says_axes(e) for s in (a, b) for e in (s.e, given(c, s.e)) if e is not None):
        return True
    helps, fixes = rank_advice(c, low.e, low.axes, high.axes)
    if stands_last(c, low.axes, high.axes):
        if is_reduced_over_last(c, low.e, low.axes, high.e, high.axes):
            c.report(
                "T0623", f"`{source_of(low.e)}` stands along the last axes, as in NumPy, and not"
                " along those that its reduction left", span, labels=(_axes_label(c, low),),
                helps=(*helps, "to say that it stands so write `[None, :]` behind it"),
                fixes=fixes, warning=True,
            )  # fmt: skip
        return True
    c.report(
        "T0604", f"the axes of `{source_of(low.e)}` are not the last ones that {what} meets", span,
        labels=(_axes_label(c, a), _axes_label(c, b)), helps=helps, fixes=fixes,
    )  # fmt: skip
    return False


def _axes_label(c: TileContext, side: Side) -> Label:
    shown = ", ".join(_text(c, a.extent) for a in side.axes)
    return Label(side.e.span, f"its shape is ({shown})")


def meet_axes(
    c: TileContext, span: Span, a: tuple[Side, int], b: tuple[Side, int], what: str
) -> TileAxis | None:
    """One axis of each of two operands that must have equal extents."""
    x, y = a[0].axes[a[1]], b[0].axes[b[1]]
    if not agree(c, x.extent, y.extent, span):
        _refuse(c, span, a, b, what)
        return None
    extent = y.extent if c.is_open(_now(c, x.extent)) else x.extent
    if x.capacity == y.capacity or y.capacity is None:
        return TileAxis(x.capacity, extent)
    if x.capacity is None:
        return TileAxis(y.capacity, extent)
    known = c.kernel.facts.value(extent) if extent is not None else None
    if known is not None and known <= min(x.capacity, y.capacity):
        return TileAxis(min(x.capacity, y.capacity), extent)
    c.report(
        "T0603", f"axis {a[1]} of `{source_of(a[0].e)}` has room for {x.capacity} elements and"
        f" axis {b[1]} of `{source_of(b[0].e)}` for {y.capacity}", span,
        labels=(_capacity_label(a), _capacity_label(b)),
        helps=("give both the same tile size",),
    )  # fmt: skip
    return None


def _capacity_label(side: tuple[Side, int]) -> Label:
    axis = side[0].axes[side[1]]
    return Label(side[0].e.span, f"axis {side[1]} has room for {axis.capacity}")


def _refuse(
    c: TileContext, span: Span, a: tuple[Side, int], b: tuple[Side, int], what: str
) -> None:
    x, y = a[0].axes[a[1]], b[0].axes[b[1]]
    left, right = _text(c, x.extent), _text(c, y.extent)
    numbers = isinstance(_now(c, x.extent), int) and isinstance(_now(c, y.extent), int)
    how = "not" if numbers else "which is not known to be"
    helps: tuple[str, ...] = ()
    opens = [s for s in (x.extent, y.extent) if c.is_open(_now(c, s))]
    if opens:
        helps = ("a tile made outside of a loop keeps one extent over all rounds: let the tile"
                 " size divide the size, as in `where n % 64 == 0`",)  # fmt: skip
    elif any("@" in n for e in (x.extent, y.extent) if e is not None for n in symbols_of(e)):
        helps = ("take both from slices of one start and width",)
    c.report(
        "T0601", f"{what} takes equal extents: axis {a[1]} of `{source_of(a[0].e)}` is {left},"
        f" {how} {right}, axis {b[1]} of `{source_of(b[0].e)}`", span,
        labels=(Label(a[0].e.span, f"axis {a[1]} is {left}"),
                Label(b[0].e.span, f"axis {b[1]} is {right}")),
        helps=helps,
    )  # fmt: skip


def _now(c: TileContext, dim: Dim | None) -> Dim | None:
    return None if dim is None else c.kernel.facts.resolve(dim)


def _text(c: TileContext, dim: Dim | None) -> str:
    if dim is None:
        return "open"
    now = c.kernel.facts.resolve(dim)
    if isinstance(now, Sym) and now.name.startswith("?"):
        return "open"
    return described(now)


# --- one extent with another ---------------------------------------------------------------


def agree(c: TileContext, a: Dim | None, b: Dim | None, span: Span) -> bool:
    """Whether two extents are equal, or are left to the launch."""
    if a is None or b is None:
        return True
    facts = c.kernel.facts
    a, b = facts.resolve(a), facts.resolve(b)
    if a == b:
        return True
    if isinstance(a, Sym) and c.is_open(a):
        return _settle(c, a.name, b, span)
    if isinstance(b, Sym) and c.is_open(b):
        return _settle(c, b.name, a, span)
    a, b = facts.simplify(a), facts.simplify(b)
    if a == b or facts.equals_where(a, b, c.told):
        return True
    if _agree_clipped(c, a, b, span) or _agree_sizes(c, a, b, span):
        return True
    if _agree_at_launch(c, a, b, span) or _agree_at_run(c, a, b):
        return True
    if _ends_in_time(c, a, b, span) or _ends_in_time(c, b, a, span):
        return True
    if _is_full(c, a, b, span) or _is_full(c, b, a, span):
        return True
    return _is_kept(c, a, span) or _is_kept(c, b, span)


def _is_full(c: TileContext, a: Dim, b: Dim, span: Span) -> bool:
    """``min(3, n - i)`` is 3 where a loop counts ``i`` up to a number: the launch looks whether
    there are as many elements behind the last one."""
    parts = _choices(a)
    if parts is None or not isinstance(b, int) or all(p.known != b for p in parts):
        return False
    others = [dim_of_form(p) for p in parts if p.known != b]
    least = [bounds_of_size(c, x) for x in others]
    known = [c.kernel.facts.simplify(x[0]) for x in least if x is not None]
    if len(known) < len(others) or not all(_is_size(c, x) for x in known):
        return False
    for low in known:
        promise(c, b, low, span, "<=")
    return True


def _is_kept(c: TileContext, dim: Dim, span: Span) -> bool:
    """Whether a loop keeps an extent that is one size at its begin and another at the end of a
    round: the launch looks that these are equal."""
    sizes = c.kernel.kept.get(dim.name) if isinstance(dim, Sym) else None
    if sizes is None or not all(isinstance(x, int) or _is_size(c, x) for x in sizes):
        return False
    assert isinstance(dim, Sym)
    if not agree(c, *sizes, span):
        return False
    if dim.name not in c.kernel.one_size:
        c.kernel.one_size.add(dim.name)
        c.kernel.changed = True  # the loop is gone through again
    return True


def _ends_in_time(c: TileContext, a: Dim, b: Dim, span: Span) -> bool:
    """``min(n, i)`` is ``i`` where a loop counts ``i`` no further than ``n``: the launch looks."""
    parts = _choices(a)
    others = [dim_of_form(p) for p in parts or () if not c.kernel.facts.equals(dim_of_form(p), b)]
    found = bounds_of_size(c, b)
    if parts is None or len(others) == len(parts) or found is None:
        return False
    if not c.kernel.facts.not_negative(b) or not all(_is_size(c, x) for x in others):
        return False
    most = c.kernel.facts.simplify(found[1])
    for other in others:
        promise(c, most, other, span, "<=")
    return True


def _agree_at_run(c: TileContext, a: Dim, b: Dim) -> bool:
    """A slice whose start is read from memory is in its array as a whole: the run looks, and
    reports where it is not."""
    new = False
    for dim in (a, b):
        for rest in _choices(dim) or ():
            unknown = [k for atom, k in rest.terms if any("@" in n for n in symbols_of(atom))]
            sizes = [atom for atom, k in rest.terms if k > 0]
            if unknown and max(unknown) < 0 and sizes and all(_is_size(c, x) for x in sizes):
                new = c.kernel.facts.must_fit(dim_of_form(rest)) or new
    return new


def _agree_at_launch(c: TileContext, a: Dim, b: Dim, span: Span) -> bool:
    """Any two extents of sizes alone, where nothing says that they differ."""
    facts = c.kernel.facts
    for dim in (a, b):
        if not isinstance(dim, int) and not _is_size(c, dim):
            return False
    if isinstance(a, int) and isinstance(b, int) or facts.differ(a, b):
        return False
    promise(c, a, b, span)
    for one, other in ((a, b), (b, a)):
        parts = _choices(one)
        names = [x.name for p in parts or () if isinstance(x := p.alone, Sym)]
        if parts is not None and isinstance(other, int) and len(names) == 1 and len(parts) == 2:
            if any(p.known == other for p in parts):  # `min(8, n) == 8`
                facts.least[names[0]] = max(facts.least.get(names[0], 0), other)
    return True


def _settle(c: TileContext, name: str, other: Dim, span: Span) -> bool:
    """An open extent takes the first one it meets, if that lives as long."""
    facts = c.kernel.facts
    if isinstance(other, Sym) and c.is_open(other):
        narrow, wide = sorted((name, other.name), key=lambda n: len(c.kernel.scopes[n]))
        facts.learn(wide, Sym(narrow))
        return True
    names = symbols_of(other)
    loops = (names & frozenset(facts.ranges)).union(
        *(c.kernel.scopes[n] for n in names if "@" in n)
    )
    room = c.kernel.room[name]
    if loops <= c.kernel.scopes[name]:
        if not _has_room(c, room, facts.simplify(other), span):
            return False
        facts.learn(name, other)
        return True
    if facts.equals(other, room) or _agree_clipped(c, facts.simplify(other), room, span):
        facts.learn(name, room)
        return True
    return False


def _has_room(c: TileContext, room: int, extent: Dim, span: Span) -> bool:
    """A tile of ``room`` elements meets a size of the launch. In a loop over tiles fewer elements
    are the end of an array; whole values have equal sizes, as in NumPy. The launch looks."""
    whole = not c.in_tile_loop
    if room == 1:
        return True  # it is stretched
    if isinstance(extent, int):
        return extent == room or (not whole and extent < room)
    if _is_size(c, extent):
        promise(c, extent, room, span, "==" if whole else "<=")
        if whole and isinstance(extent, Sym):
            c.kernel.facts.learn(extent.name, room)
    return True


def _agree_clipped(c: TileContext, a: Dim, b: Dim, span: Span) -> bool:
    """Slices of one start and width of two sizes; a full tile with a clipped one."""
    x, y = _choices(a), _choices(b)
    if x is None and y is None:
        return False
    left, right = x or [form_of(a)], y or [form_of(b)]
    only_left = [f for f in left if f not in right]
    only_right = [f for f in right if f not in left]
    if len(only_left) == 1 and len(only_right) == 1:
        if _is_size(c, a) and _is_size(c, b):
            return False  # the launch looks whether they are equal, and not the sizes in them
        one, other = dim_of_form(only_left[0]), dim_of_form(only_right[0])
        return _agree_sizes(c, one, other, span)
    if not only_right and len(only_left) == 1:
        return _fills(c, only_left[0], right, span)
    if not only_left and len(only_right) == 1:
        return _fills(c, only_right[0], left, span)
    return False


def _choices(dim: Dim) -> list[Form] | None:
    """The parts of a ``min``, also below a ``max(0, ...)``."""
    if isinstance(dim, DimOp) and dim.operator == "max":
        parts = [i for i in items_of(dim) if i.known != 0]
        if len(parts) != 1:
            return None
        inner = dim_of_form(parts[0])
        return _choices(inner) or [parts[0]]
    if isinstance(dim, DimOp) and dim.operator == "min":
        return items_of(dim)
    return None


def _fills(c: TileContext, rest: Form, room: list[Form], span: Span) -> bool:
    """``min(t, n - i)`` is ``t`` where ``t`` divides ``n``: left to the launch."""
    facts = c.kernel.facts
    by = room[0].known if len(room) == 1 else None
    if by is None or by <= 1:
        return False
    sizes = Form(tuple(t for t in rest.terms if _is_size(c, t[0])), rest.constant)
    others = add(rest, sizes, -1)
    if not others.terms and not others.constant:
        return False  # sizes alone: the launch can look whether there are as many
    if not facts.not_negative(dim_of_form(add(rest, Form((), -1)))):
        # The loop walks over an axis of another array: the two are one size.
        stop = _stop_of(c, others)
        if stop is None or not _agree_sizes(c, dim_of_form(sizes), stop, span):
            return False
        if facts.divisor(stop) % by == 0:
            return True
    if not sizes.terms or facts.divisor(dim_of_form(others)) % by:
        return False
    left = normal(DimOp("%", dim_of_form(sizes), by))
    if left == 0:
        return True
    promise(c, left, 0, span)
    atom = sizes.alone
    if isinstance(atom, Sym):
        facts.divides(atom.name, by)
    return True


def _stop_of(c: TileContext, others: Form) -> Dim | None:
    """Where the loop ends whose variable is taken off a size: ``n - i``, or ``n - 64 * i`` of a
    loop that counts tiles."""
    (atom, k) = others.terms[0] if len(others.terms) == 1 else (0, 0)
    found = c.kernel.facts.ranges.get(atom.name) if isinstance(atom, Sym) and k < 0 else None
    if found is None or found.last is None or others.constant or (k < -1 and found.step != 1):
        return None
    stop = normal(DimOp("*", -k, DimOp("+", found.last, 1)))
    return stop if _is_size(c, stop) else None


def _is_size(c: TileContext, dim: Dim) -> bool:
    names = symbols_of(dim)
    return bool(names) and all(n in c.kernel.origins for n in names)


def _is_choice(atom: Dim) -> bool:
    return isinstance(atom, DimOp) and atom.operator in ("min", "max")


def _agree_sizes(c: TileContext, a: Dim, b: Dim, span: Span) -> bool:
    """Two extents whose difference is one of sizes alone."""
    difference = add(form_of(a), form_of(b), -1)
    if not difference.terms:
        return difference.constant == 0
    if not all(_is_size(c, atom) and not _is_choice(atom) for atom, _ in difference.terms):
        return False
    plus = Form(tuple(t for t in difference.terms if t[1] > 0), max(0, difference.constant))
    minus = Form(tuple((x, -k) for x, k in difference.terms if k < 0), max(0, -difference.constant))
    left, right = dim_of_form(plus), dim_of_form(minus)
    if _never(plus, minus):
        return False
    if _first_of(c, right) < _first_of(c, left):
        left, right = right, left
    promise(c, left, right, span)
    _solve(c, difference)
    return True


def _never(plus: Form, minus: Form) -> bool:
    """Whether the sides differ whatever the sizes are: ``n == n + 1``, ``n + 1 == 0``."""
    if not plus.terms:
        plus, minus = minus, plus
    return not minus.terms and minus.constant <= 0 < plus.constant


def _first_of(c: TileContext, dim: Dim) -> int:
    order = list(c.kernel.origins)
    return min((order.index(n) for n in symbols_of(dim)), default=len(order))


def _solve(c: TileContext, difference: Form) -> None:
    """Put the last name that stands alone in terms of the others."""
    order = list(c.kernel.origins)
    names = [
        (order.index(atom.name), atom, k)
        for atom, k in difference.terms
        if isinstance(atom, Sym) and abs(k) == 1
    ]
    if not names:
        return
    _, atom, k = max(names, key=lambda t: t[0])
    rest = Form(tuple(t for t in difference.terms if t[0] != atom), difference.constant)
    c.kernel.facts.learn(atom.name, dim_of_form(Form(
        tuple((x, -j * k) for x, j in rest.terms), -rest.constant * k
    )))  # fmt: skip
