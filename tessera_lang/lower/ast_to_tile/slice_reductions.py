"""Reductions of arrays and slices in lanes -> loops over the elements.

Each lane that asks gets the reduction of the slice that its own bounds name; the elements are
taken in order. ``cooperative_reductions`` deals out the loops that all lanes of a group would run
alike. Slices clip as everywhere; elements are guarded as everywhere. Must not know what is uniform.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.ir.core import BufferType, Operation, Value, ViewType
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.ast_to_tile import access
from tessera_lang.lower.ast_to_tile.builtin_arguments import needed
from tessera_lang.lower.ast_to_tile.context import ElementLoop, Lowering, Unsupported
from tessera_lang.record import dataclass
from tessera_lang.syntax import ast
from tessera_lang.target.tuned_constants import NEAR_OPERATIONS
from tessera_lang.types.dtype import BOOL, F32, INDEX, U8, U64, DType, integer_range

KINDS = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}
PLACES = {"argmax": "max", "argmin": "min"}
NAMES = (*KINDS, *PLACES, "mean", "var")

_LONGEST = 1 << 48
"""No axis has more elements: a longer step gives the first alone."""

Element = Callable[[Value], Value]


@dataclass(frozen=True, slots=True)
class Range:
    """Where a sliced axis begins and ends: clipped, so that an end may lie before its begin.
    ``most``: elements at most, where that is seen. With a ``step`` it counts the elements from 0,
    of which the first is at ``begin``."""

    axis: int
    lower: Value
    upper: Value
    most: int | None
    begin: Value | None = None
    step: int = 1

    def place(self, b: Builder, at: Value) -> Value:
        """Where in the axis the walk is at ``at``."""
        if self.begin is None:
            return at
        return b.binary("add", self.begin, b.binary("mul", at, b.index(self.step)))


@dataclass(frozen=True, slots=True)
class Part:
    """A slice: what is fixed of its index, and the axes that are walked, the last one fastest."""

    array: Value
    fixed: dict[int, Value]
    ranges: tuple[Range, ...]
    node: ast.Expr

    @property
    def dtype(self) -> DType:
        t = self.array.array_type
        return t.dtype


def reduction(name: str) -> Callable[[Lowering, ast.Call], Value]:
    """The rule for ``op.<name>`` of a slice."""

    def lower(lowering: Lowering, node: ast.Call) -> Value:
        part = _part(lowering, needed(node, 0, "x"))
        dtype = lowering.dtype_of(node)
        if name in PLACES:
            return _place(lowering, node, name, part)
        if name in KINDS:
            return _total(lowering, KINDS[name], part, dtype, lambda x: x)
        b = lowering.builder
        mean = _mean(lowering, part, dtype, lambda x: x)
        if name == "mean":
            return mean

        def distance(x: Value) -> Value:
            away = b.binary("sub", x, mean)
            return b.binary("mul", away, away)

        return _mean(lowering, part, dtype, distance)

    return lower


# --- slices ---------------------------------------------------------------------------------


def _part(lowering: Lowering, node: ast.Expr) -> Part:
    base = node.value if isinstance(node, ast.Subscript) else node
    array = lowering.expression(lowering, base)
    if not isinstance(array, Value) or not isinstance(array.type, (ViewType, BufferType)):
        raise Unsupported(node.span, "a reduction of this value")
    items = node.items if isinstance(node, ast.Subscript) else ()
    fixed: dict[int, Value] = {}
    ranges: list[Range] = []
    for axis in range(access.rank_of(array)):
        item = items[axis] if axis < len(items) else None
        if item is None or isinstance(item, ast.SliceExpr):
            ranges.append(_range(lowering, array, axis, item))
        else:
            fixed[axis] = access.index_of(lowering, array, axis, item)
    return Part(array, fixed, tuple(ranges), node)


def _range(lowering: Lowering, array: Value, axis: int, item: ast.SliceExpr | None) -> Range:
    b = lowering.builder
    size = access.size_of(lowering, array, axis)
    lower, upper = b.index(0), size
    said = lower
    if item is not None and item.lower is not None:
        said = _bound(lowering, item.lower, size)
        lower = _looked_at(lowering, array, item.lower, said, "begins")
    most = _most(array, axis)
    if item is not None and item.upper is not None:
        end = _bound(lowering, item.upper, size)
        width = _apart(lowering, said, end)
        most = min((n for n in (most, width) if n is not None), default=None)
        end = _looked_at(lowering, array, item.upper, end, "ends")
        upper = b.binary("min", end, size)
    step = lowering.frame.typed.constants.get(item.step) if item and item.step else 1
    if not isinstance(step, int) or step == 1:
        return Range(axis, lower, upper, most)
    step = min(step, _LONGEST)
    last = b.binary("add", b.binary("sub", upper, lower), b.index(step - 1))
    count = b.binary("floordiv", last, b.index(step))
    most = None if most is None else -(-most // step)
    return Range(axis, b.index(0), count, most, lower, step)


def _looked_at(lowering: Lowering, array: Value, node: ast.Expr, at: Value, does: str) -> Value:
    """A bound that is found below 0, and does not count from the end, is a fault; it is 0 then, so
    that no walk is longer than the array."""
    b, zero = lowering.builder, lowering.builder.index(0)
    known = lowering.frame.typed.constants.get(node)
    if isinstance(known, int) or isinstance(node, ast.IntLit) or _is_negated(node):
        return at
    text = lowering.text(node.span)
    shown = f"the slice of `{array.name}` {does} below 0, at `{text}`"
    b.assertion(b.cmp("ge", at, zero), lowering.site("assert", node.span, "", shown=shown))
    return b.binary("max", at, zero)


def _is_negated(node: ast.Expr) -> bool:
    return isinstance(node, ast.Unary) and node.operator == "-"


def _most(array: Value, axis: int) -> int | None:
    t = array.array_type
    return t.shape[axis]


def _apart(lowering: Lowering, lower: Value, upper: Value) -> int | None:
    """How far two bounds are from each other, where that is a constant."""
    a, b = _made_by(lowering, lower), _made_by(lowering, upper)
    start, end = (_constant(o) for o in (a, b))
    if end is not None:
        return max(0, end - (start or 0))  # it begins at 0 at the earliest
    if b is not None and b.name == "tile.add" and lower in b.operands:
        other = b.operands[b.operands[0] is lower]
        return _constant(_made_by(lowering, other))
    return None


def _made_by(lowering: Lowering, value: Value) -> Operation | None:
    """What gave a value, where that was built a few operations ago."""
    built = lowering.builder.current.operations[-NEAR_OPERATIONS:]
    return next((o for o in reversed(built) if value in o.results), None)


def _constant(operation: Operation | None) -> int | None:
    if operation is None or operation.name != "tile.constant":
        return None
    value = operation.attributes["value"]
    return value if isinstance(value, int) else None


def _bound(lowering: Lowering, node: ast.Expr, size: Value) -> Value:
    """A bound as an index; one below 0 that is a constant, or is written with a minus in front,
    counts from the end."""
    b = lowering.builder
    known = lowering.frame.typed.constants.get(node)
    if isinstance(known, int) and known < 0:
        return b.binary("max", b.index(0), b.binary("add", size, b.index(known)))
    value = lowering.expression(lowering, node)
    if not isinstance(value, Value) or not isinstance(value.type, DType):
        raise Unsupported(node.span, "a slice bound of this type")
    if value.type == U64:  # beyond every array stays beyond
        value = b.binary("min", value, b.constant(integer_range(INDEX)[1], U64))
    at = b.cast(value, INDEX)
    if not _is_negated(node):
        return at
    zero = b.index(0)
    end = b.binary("max", zero, b.binary("add", size, at))
    return b.select(b.cmp("lt", at, zero), end, at)


def _element(lowering: Lowering, part: Part, along: dict[int, Value]) -> Value:
    walked = {r.axis: r.place(lowering.builder, along[r.axis]) for r in part.ranges}
    at = {**part.fixed, **walked}
    indices = [at[axis] for axis in range(access.rank_of(part.array))]
    return access.load(lowering, access.element(lowering, part.array, indices, part.node.span))


# --- loops ----------------------------------------------------------------------------------


def _walk(
    lowering: Lowering, kind: str, ranges: Sequence[Range], start: Sequence[Value],
    step: Callable[[dict[int, Value], Sequence[Value]], Sequence[Value]],
    names: Sequence[str],
) -> tuple[Value, ...]:  # fmt: skip
    """``step`` for every element, with what it gave for the one before."""
    b = lowering.builder

    def nest(
        left: Sequence[Range], along: dict[int, Value], carried: Sequence[Value]
    ) -> Sequence[Value]:
        if not left:
            return step(along, carried)
        here, *inner = left
        hints = [(n, v.type) for n, v in zip(names, carried, strict=True)]
        with b.region((f"i{here.axis}", INDEX), *hints) as body:
            at, *values = body.arguments
            b.yield_(*nest(inner, {**along, here.axis: at}, values))
        return b.for_(here.lower, here.upper, b.index(1), carried, body.region, names=names)

    found = tuple(nest(ranges, {}, start))
    most = tuple(r.most for r in ranges)
    lowering.element_loops.append(ElementLoop(b.current.operations[-1], kind, most))
    return found


def _total(lowering: Lowering, kind: str, part: Part, dtype: DType, change: Element) -> Value:
    b = lowering.builder

    def step(along: dict[int, Value], carried: Sequence[Value]) -> Sequence[Value]:
        x = change(b.cast(_element(lowering, part, along), dtype))
        return (b.binary(kind, carried[0], x),)

    start = (identity(b, kind, dtype),)
    return _walk(lowering, kind, part.ranges, start, step, ("total",))[0]


def _mean(lowering: Lowering, part: Part, dtype: DType, change: Element) -> Value:
    b = lowering.builder
    total = _total(lowering, "add", part, dtype, change)
    return b.binary("div", total, b.cast(_count(lowering, part), dtype))


def _count(lowering: Lowering, part: Part) -> Value:
    b = lowering.builder
    count = b.index(1)
    for r in part.ranges:
        length = b.binary("max", b.binary("sub", r.upper, r.lower), b.index(0))
        count = b.binary("mul", count, length)
    return count


def identity(b: Builder, kind: str, dtype: DType) -> Value:
    """What a reduction starts with, and gives of nothing."""
    if kind in ("or", "and"):
        return b.constant(kind == "and", dtype)
    if kind in ("add", "mul"):
        return b.constant(0 if kind == "add" else 1, dtype)
    if dtype == BOOL:
        return b.constant(kind == "min", dtype)
    if dtype.is_float8 and dtype.infinite:  # a constant of it saturates
        code = dtype.infinity_code
        return b.bitcast(b.constant(code | 0x80 if kind == "max" else code, U8), dtype)
    if dtype.is_float:
        far = float("inf") if dtype.infinite else dtype.largest
        return b.constant(-far if kind == "max" else far, dtype)
    low, high = integer_range(dtype)
    return b.constant(low if kind == "max" else high, dtype)


# --- places ---------------------------------------------------------------------------------


def _place(lowering: Lowering, node: ast.Call, name: str, part: Part) -> Value:
    """The first index of the extreme, counted from where the slice begins. The walk starts with
    no place, so that whatever comes first is taken; a slice of nothing has none: a fault."""
    b, kind = lowering.builder, PLACES[name]
    (along,) = part.ranges
    narrow = part.dtype.is_float and part.dtype.bits < 32
    dtype = F32 if narrow else part.dtype
    b.assertion(
        b.cmp("lt", along.lower, along.upper),
        lowering.site("assert", node.span, name, shown=f"`op.{name}` of no elements"),
    )

    def step(at: dict[int, Value], carried: Sequence[Value]) -> Sequence[Value]:
        x = b.cast(_element(lowering, part, at), dtype)
        return better(b, kind, carried, (x, at[along.axis]))

    start = (identity(b, kind, dtype), b.index(-1))
    found = _walk(lowering, name, part.ranges, start, step, ("best", "place"))[1]
    nothing = b.cmp("lt", found, b.index(0))
    return b.select(nothing, b.index(0), b.binary("sub", found, along.lower))


def met(b: Builder, kind: str, held: Sequence[Value], new: Sequence[Value]) -> tuple[Value, ...]:
    """What two parts of a loop of that kind give together."""
    if kind not in PLACES:
        return (b.binary(kind, held[0], new[0]),)
    return better(b, PLACES[kind], held, new)


def better(
    b: Builder, kind: str, held: Sequence[Value], new: Sequence[Value]
) -> tuple[Value, Value]:
    """The better of two (value, place): the first of equals, a NaN before any number. A place
    below 0 is none."""
    (best, place), (x, at) = held, new
    draw = _draw(b, x, best)
    earlier = b.binary("and", draw, b.cmp("lt", at, place))
    wins = b.binary("or", _wins(b, kind, x, best), earlier)
    none, there = b.cmp("lt", place, b.index(0)), b.cmp("ge", at, b.index(0))
    wins = b.binary("and", there, b.binary("or", wins, none))
    return b.select(wins, x, best), b.select(wins, at, place)


def _wins(b: Builder, kind: str, x: Value, best: Value) -> Value:
    if x.type == BOOL:
        high, low = (x, best) if kind == "max" else (best, x)
        return b.binary("and", high, b.unary("not", low))
    wins = b.cmp("gt" if kind == "max" else "lt", x, best)
    if not (isinstance(x.type, DType) and x.type.is_float):
        return wins
    number = b.cmp("eq", best, best)
    return b.binary("or", b.binary("and", wins, number),
                    b.binary("and", b.cmp("ne", x, x), number))  # fmt: skip


def _draw(b: Builder, x: Value, best: Value) -> Value:
    if x.type == BOOL:
        return b.unary("not", b.binary("xor", x, best))
    draw = b.cmp("eq", x, best)
    if not (isinstance(x.type, DType) and x.type.is_float):
        return draw
    return b.binary("or", draw, b.binary("and", b.cmp("ne", x, x), b.cmp("ne", best, best)))
