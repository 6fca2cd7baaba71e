"""Element-wise operators on tiles: shapes as ``shapes`` says, dtypes as for lanes.

Owns the meeting of tiles, arrays and scalars under an operator. Must not know calls.
"""

from __future__ import annotations

from tessera_lang.record import dataclass, replace
from tessera_lang.sema.comparisons import compare, is_integer_literal
from tessera_lang.sema.conversion_hints import float_beside, float_for
from tessera_lang.sema.inference_types import Open, Term, Unknown
from tessera_lang.sema.literals import is_silent, settle
from tessera_lang.sema.operators import Operand, is_bool, not_numbers, operate, silent
from tessera_lang.sema.tile import true_division
from tessera_lang.sema.tile.context import OpenTile, TileContext, register_dtype
from tessera_lang.sema.tile.fits_narrow_index import is_count
from tessera_lang.sema.tile.shapes import Side, broadcast
from tessera_lang.sema.tile.subscripts import as_tile
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, F32, I32, I64, INDEX, DType, common_dtype
from tessera_lang.types.type import ERROR, Scalar, Tensor, Tile, TileAxis, Weak


@dataclass(frozen=True, slots=True)
class Mixed:
    """What operands meet in: the dtype, whether it is wide, and the axes."""

    dtype: DType
    wide: bool
    axes: tuple[TileAxis, ...]

    @property
    def tile(self) -> Tile:
        return Tile(self.dtype, self.axes, self.wide)


def is_tiled(term: Term) -> bool:
    """Whether an operand makes an operation one on tiles."""
    return isinstance(term, (Tile, Tensor))


def value_of_operand(c: TileContext, o: Operand) -> Operand:
    """An operand as a value: an array is read, a buffer is what it holds."""
    if isinstance(o.term, Tensor):
        return Operand(o.e, as_tile(c, o.e, o.term))
    if isinstance(o.term, Tile) and o.term.buffer:
        return Operand(o.e, replace(o.term, buffer=False))
    return o


def is_narrow(dtype: DType) -> bool:
    """Floats whose products and reductions are wide."""
    return dtype.is_float and dtype.bits < 32


def is_waiting(tile: Tile) -> bool:
    """Whether the dtype of a tile is still open."""
    return tile.dtype.name.startswith("?")


def default_of_literals(*terms: Term | None) -> DType:
    """What a tile made of literals alone is where it meets nothing typed."""
    found = [t.kind if isinstance(t, Weak) else t.cell.root().kind
             for t in terms if isinstance(t, (Weak, Open))]  # fmt: skip
    return I32 if found and "float" not in found else F32


def open_dtype(
    c: TileContext, e: ast.Expr, default: DType, *, literal: bool = False
) -> tuple[DType, bool]:
    """The dtype of the tile that an expression makes, as far as it is known; is it wide?"""
    key = e, c.instance
    found = c.kernel.tiles.get(key)
    if found is None:
        default = c.cells.floats if default == F32 else default
        found = OpenTile(f"?{len(c.kernel.tiles) + 1}", e.span, default, literal)
        c.kernel.tiles[key] = found
    found = found.root()
    if found.dtype is None:
        return DType(found.name, "int" if found.default.is_integer else "float", 32), False
    return found.dtype, found.wide


def _open_tile(c: TileContext, tile: Tile) -> OpenTile | None:
    named = (t.root() for t in c.kernel.tiles.values() if t.name == tile.dtype.name)
    found = next(named, None)
    return None if found is None or found.dtype is not None else found


def settle_tile(
    c: TileContext, tile: Tile, dtype: DType, wide: bool, span: Span, *, place: bool = False
) -> None:
    """A tile with an open dtype meets its first typed value; ``place``: where it is kept."""
    waiting = _open_tile(c, tile)
    if waiting is None:
        return
    if not waiting.accepts(dtype):
        beside = dtype.is_integer and waiting.default == F32
        dtype, wide = float_for(c, dtype) if beside else waiting.default, False
    elif waiting.literal and is_narrow(dtype) and not place:
        dtype, wide = F32, False
    waiting.dtype, waiting.wide, waiting.met = dtype, wide, span
    c.kernel.changed = True


def settle_literals(c: TileContext, tile: Tile, dtype: DType, span: Span) -> None:
    """Floats that are written down, of open dtype, become ``dtype``."""
    waiting = _open_tile(c, tile)
    if waiting is not None and waiting.literal and waiting.default.is_float:
        settle_tile(c, tile, dtype, False, span)


def make_float(c: TileContext, tile: Tile) -> Tile:
    """A tile with an open dtype meets a literal of floats, or what gives floats."""
    waiting = _open_tile(c, tile)
    if waiting is not None and waiting.default.is_integer:
        waiting.default = F32
        c.kernel.changed = True
    return replace(tile, dtype=DType(tile.dtype.name, "float", 32))


def _join(c: TileContext, tiles: list[Tile]) -> Tile:
    """Tiles with open dtypes meet: they will have one."""
    first = _open_tile(c, tiles[0])
    for tile in tiles[1:]:
        other = _open_tile(c, tile)
        if first is None or other is None or first is other:
            continue
        if other.literal < first.literal:  # the one that takes more
            first, other = other, first
        if other.default.is_float:
            first.default = other.default
        other.joined = first
        c.kernel.changed = True
    if first is None:
        return tiles[0]
    kind = "int" if first.default.is_integer else "float"
    return replace(tiles[0], dtype=DType(first.name, kind, 32))


def shape_of(
    c: TileContext, span: Span, operands: list[Operand], what: str
) -> tuple[TileAxis, ...] | None:
    """The axes in which operands meet; those of rank 0 fit everywhere."""
    axes: tuple[TileAxis, ...] = ()
    first: Operand | None = None
    for o in operands:
        if not isinstance(o.term, Tile) or not o.term.axes:
            continue
        if first is None:
            first, axes = o, o.term.axes
            continue
        met = broadcast(c, span, Side(first.e, axes), Side(o.e, o.term.axes), what)
        if met is None:
            return None
        axes = met
    return axes


def mix(
    c: TileContext, span: Span, operands: list[Operand], what: str = "this operator",
    operator: ast.BinaryOperator = "+",
) -> Mixed | Term:  # fmt: skip
    """What operands of an element-wise operation meet in; conversions are written down."""
    if any(is_silent(o.term) for o in operands):
        return silent(*operands)
    for o in operands:
        if not isinstance(o.term, (Scalar, Weak, Open, Tile, Tensor)):
            return not_numbers(c, span, o)
    plain = [value_of_operand(c, o) for o in operands]
    operands = counts_as_floats(c, plain)
    if operator in ("+", "-", "*", "/"):
        operands = _bools_as_numbers(c, operands)
    open_ones = any(isinstance(o.term, Tile) and is_waiting(o.term) for o in operands)
    if operator == "/" and not open_ones and true_division.are_integers(operands):
        counts = true_division.are_counts(c, operands)
        operands = ([Operand(o.e, counted_as_float(c, o)) for o in operands] if counts
                    else true_division.in_f64(operands))  # fmt: skip
    axes = shape_of(c, span, operands, what)
    if axes is None:
        return ERROR if c.final else Unknown()
    waiting = [o for o in operands if isinstance(o.term, Tile) and is_waiting(o.term)]
    if waiting:
        return _mix_waiting(c, span, operands, axes, floats=operator == "/")
    wide = any(isinstance(o.term, Tile) and o.term.wide for o in operands)
    before = len(c.reports)
    met = _meet(c, span, operands, operator, wide)
    if what != "this operator":
        for i, d in enumerate(c.reports[before:], before):
            c.reports[i] = replace(d, message=d.message.replace("`+` takes", f"{what} takes"))
    if not isinstance(met, Scalar):
        return met
    result = Mixed(met.dtype, wide and is_narrow(met.dtype), axes)
    for o in plain:
        convert_operand(c, o, result)
    return result


def counts_as_floats(c: TileContext, operands: list[Operand]) -> list[Operand]:
    """Operands that meet floats: tiles of ``index`` that are counts become floats, as a literal
    does."""
    typed = [o.term.dtype for o in operands if isinstance(o.term, (Scalar, Tile))]
    floats = [d for d in typed if d.is_float]
    if not {INDEX, I32, I64}.intersection(typed) or not (
        floats or any(_is_float_literal(o.term) for o in operands)
    ):
        return operands
    return [Operand(o.e, counted_as_float(c, o)) for o in operands]


def counted_as_float(c: TileContext, o: Operand) -> Term:
    """A tile of counts as one of floats of open dtype; anything else as it is."""
    if (
        not isinstance(o.term, Tile)
        or o.term.dtype not in (INDEX, I32, I64)
        or not is_count(c, o.e)
    ):
        return o.term
    made, wide = open_dtype(c, o.e, F32, literal=True)
    return replace(o.term, dtype=made, wide=wide)


def _bools_as_numbers(c: TileContext, operands: list[Operand]) -> list[Operand]:
    """Operands that meet numbers: bools are 0 and 1 of their dtype, as in NumPy."""
    others = [o.term for o in operands if not is_bool(o.term) and not _is_bools(o.term)]
    if not others or len(others) == len(operands):
        return operands
    tiles = [t for t in others if isinstance(t, Tile) and not is_waiting(t)]
    scalars = [t for t in others if isinstance(t, Scalar)]
    made: list[Operand] = []
    for o in operands:
        term = o.term
        if isinstance(term, Tile) and _is_bools(term):
            if tiles:
                term = replace(term, dtype=tiles[0].dtype, wide=tiles[0].wide)
            elif scalars:
                term = replace(term, dtype=scalars[0].dtype)
            else:
                floats = any(_is_float_literal(t) for t in others)
                dtype, wide = open_dtype(c, o.e, F32 if floats else I32)
                term = replace(term, dtype=dtype, wide=wide)
        elif is_bool(term) and (tiles or scalars):
            term = Scalar(tiles[0].dtype) if tiles else scalars[0]
        made.append(Operand(o.e, term))
    return made


def _is_bools(term: Term) -> bool:
    return isinstance(term, Tile) and term.dtype == BOOL


def _mix_waiting(
    c: TileContext, span: Span, operands: list[Operand], axes: tuple[TileAxis, ...], *,
    floats: bool = False,
) -> Term:  # fmt: skip
    """Some operand's dtype is open: it takes that of the others, and the next walk knows.
    ``floats``: the operation gives floats, of integers too."""
    tiles = [o.term for o in operands if isinstance(o.term, Tile)]
    waiting = [t for t in tiles if is_waiting(t)]
    typed = [(t.dtype, t.wide) for t in tiles if not is_waiting(t)]
    for o in operands:
        size = o.term == Scalar(INDEX) and c.is_size(o.e)  # which meets any float
        if isinstance(o.term, Scalar) and not size:
            typed.append((o.term.dtype, False))
    met = next((d for d in typed if d[0] != BOOL), None)
    if met is not None:
        for tile in waiting:
            settle_tile(c, tile, *met, span)
        return Unknown()
    if floats or any(_is_float_literal(o.term) for o in operands):
        for tile in waiting:
            make_float(c, tile)
    if typed:
        return Unknown()
    return replace(_join(c, waiting), axes=axes)


def settle_together(c: TileContext, operands: list[Operand]) -> bool:
    """Parts of one dtype, of which some may be open: whether none is."""
    tiles = [o.term for o in operands if isinstance(o.term, Tile)]
    if not any(is_waiting(t) for t in tiles):
        return True
    _mix_waiting(c, operands[0].e.span, operands, ())
    return False


def _is_float_literal(term: Term) -> bool:
    return isinstance(term, (Weak, Open)) and default_of_literals(term).is_float


def with_floats(c: TileContext, o: Operand, other: Operand) -> Operand:
    """Integers beside a literal with a point, as the floats that they are there."""
    if not isinstance(o.term, (Scalar, Tile)) or not _is_float_literal(other.term):
        return o
    found = float_beside(c, o.term.dtype) if o.term.dtype.is_integer else None
    if found is None or is_waiting_term(o.term):
        return o
    made = Scalar(found) if isinstance(o.term, Scalar) else replace(o.term, dtype=found)
    return Operand(o.e, made)


def is_waiting_term(term: Term) -> bool:
    """Whether a term is a tile whose dtype is still open."""
    return isinstance(term, Tile) and is_waiting(term)


def surrogate(o: Operand, wide: bool) -> Operand:
    """A tile as a scalar of its dtype, for the rules of lanes."""
    if isinstance(o.term, Tile):
        return Operand(o.e, Scalar(register_dtype(o.term) if wide else o.term.dtype))
    return o


def _meet(
    c: TileContext, span: Span, operands: list[Operand], operator: ast.BinaryOperator, wide: bool
) -> Term:
    """The dtype of an operation, by the rules of lanes; a literal beside a wide value is f32."""
    literals = any(isinstance(o.term, (Weak, Open)) for o in operands)
    typed = [o for o in operands if isinstance(o.term, (Scalar, Tile))]
    if wide:  # computed in f32, which takes sizes
        rest = [o for o in typed if o.term != Scalar(INDEX) or not c.is_size(o.e)]
        typed = rest or typed
    result: Term = surrogate(typed[0], False).term if typed else Unknown()
    at = typed[0].e if typed else operands[0].e
    for o in typed[1:]:
        result = operate(c, operator, span, Operand(at, result), surrogate(o, False))
        if not isinstance(result, Scalar):
            return result
    if literals and isinstance(result, Scalar):
        met = Scalar(_register(result.dtype, wide))
        for o in operands:
            if isinstance(o.term, (Weak, Open)):
                first = o is operands[0]
                pair = (o, Operand(at, met)) if first else (Operand(at, met), o)
                found = operate(c, operator, span, *pair)
                if not isinstance(found, Scalar):
                    return found
                if met.dtype.is_integer and met != found:  # beside a float
                    met = result = found
    elif len(typed) == 1 and len(operands) == 1:
        return result
    return result


def _register(dtype: DType, wide: bool) -> DType:
    return F32 if wide and is_narrow(dtype) else dtype


def convert_operand(c: TileContext, o: Operand, result: Mixed) -> None:
    """Write down what an operand becomes; a scalar stays one."""
    if not c.final:
        return
    if isinstance(o.term, Tile):
        old = c.typed.coercions.get(o.e)
        axes = _with_room(o.term.axes, result.axes)
        same = (o.term.dtype, o.term.wide) == (result.dtype, result.wide)
        if not same or isinstance(old, Tile) or axes != o.term.axes:
            c.convert(o.e, Tile(result.dtype, axes, result.wide))
        else:
            c.typed.coercions.pop(o.e, None)
    elif isinstance(o.term, Scalar):
        wanted = _register(result.dtype, result.wide)
        if o.term.dtype != wanted:
            c.typed.coercions[o.e] = Scalar(wanted)
        else:
            c.typed.coercions.pop(o.e, None)


def _with_room(axes: tuple[TileAxis, ...], result: tuple[TileAxis, ...]) -> tuple[TileAxis, ...]:
    """An axis of an iteration space beside a tile takes the tile's capacity."""
    if len(axes) != len(result):
        return axes
    return tuple(
        TileAxis(r.capacity, a.extent) if a.capacity is None else a
        for a, r in zip(axes, result, strict=True)
    )


def result_of(c: TileContext, mixed: Mixed) -> Term:
    """Rank 0 is a scalar, unless it is wide."""
    del c
    return mixed.tile if mixed.axes or mixed.wide else Scalar(mixed.dtype)


def compare_tiles(
    c: TileContext, operator: ast.CompareOperator, span: Span, a: Operand, b: Operand
) -> Term:
    """``a < b`` of tiles: a tile of bools."""
    if is_silent(a.term) or is_silent(b.term):
        return silent(a, b)
    plain = value_of_operand(c, a), value_of_operand(c, b)
    a, b = counts_as_floats(c, list(plain))
    a, b = _bool_as_number(c, a, b), _bool_as_number(c, b, a)
    axes = shape_of(c, span, [a, b], f"`{operator}`")
    if axes is None:
        return ERROR if c.final else Unknown()
    if any(isinstance(o.term, Tile) and is_waiting(o.term) for o in (a, b)):
        _mix_waiting(c, span, [a, b], axes)
        return Tile(BOOL, axes) if axes else Unknown()
    wide = any(isinstance(o.term, Tile) and o.term.wide for o in (a, b))
    literals = any(isinstance(o.term, (Weak, Open)) for o in (a, b))
    pair = [surrogate(o, wide and literals) for o in (a, b)]
    if not compare(c, operator, span, *pair):
        return ERROR if c.final else Unknown()
    if c.final:
        met = tuple(with_floats(c, o, other) for o, other in ((a, b), (b, a)))
        _convert_compared(c, met, plain, wide)
    return Tile(BOOL, axes) if axes else Scalar(BOOL)


def _bool_as_number(c: TileContext, o: Operand, other: Operand) -> Operand:
    """A tile of bools as 0 and 1, beside an integer literal."""
    is_bools = isinstance(o.term, Tile) and o.term.dtype == BOOL and not is_waiting(o.term)
    if not is_bools or not is_integer_literal(c, other):
        return o
    return Operand(o.e, replace(o.term, dtype=I32))


def _convert_compared(
    c: TileContext, met: tuple[Operand, ...], plain: tuple[Operand, Operand], wide: bool
) -> None:
    typed = [o.term.dtype for o in met if isinstance(o.term, (Tile, Scalar))]
    common = typed[0] if len(typed) == 1 else common_dtype(*typed)
    for o in plain:
        if common is not None and not isinstance(o.term, (Weak, Open)):
            convert_operand(c, o, Mixed(common, wide and is_narrow(common), ()))


def give_tile(c: TileContext, e: ast.Expr | None, term: Term, dtype: DType, wide: bool) -> bool:
    """Use a value where this dtype is wanted: literals settle, widening is implicit, a wide
    value is rounded to its own dtype. False: it does not go without a cast."""
    if isinstance(term, (Weak, Open)) and e is not None:
        settle(c, e, term, _register(dtype, wide))
        return True
    if is_silent(term):
        return True
    if not isinstance(term, (Scalar, Tile)):
        return False
    if common_dtype(term.dtype, dtype) != dtype and not (
        e is not None and term.dtype == INDEX and c.narrows(e, dtype)
    ):
        return False
    is_wide = isinstance(term, Tile) and term.wide
    if e is not None and (term.dtype, is_wide) != (dtype, wide):
        if isinstance(term, Tile):
            c.convert(e, Tile(dtype, term.axes, wide))
        else:
            c.coerce(e, _register(dtype, wide))
    return True
