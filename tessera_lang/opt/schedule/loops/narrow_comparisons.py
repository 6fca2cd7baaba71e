"""Comparisons of places in a tile: in 32 bits, with what is one number for a row computed once.

``j + column <= i + row`` compares sums of 64 bits for every element; ``column <= i + row - j`` has
a place, which is small, on one side and a number for each row on the other. Limits beyond the tile
are drawn to its ends, so that they fit. The result is the same for every element. Owns the
rewriting; forms are ``monotone_conditions``'. Must not know what is compared for.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Program, TileType, Value
from tessera_lang.ir.rewrite import Replacement, rewrite_operation
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.opt.schedule.parallel.dead_code import tidy
from tessera_lang.opt.schedule.query.decision_context import Context, rewrites, with_kernel
from tessera_lang.opt.schedule.query.kernel_facts import Facts, facts_of, kernel_of
from tessera_lang.opt.schedule.query.monotone_conditions import Form, Forms, is_near
from tessera_lang.record import replace
from tessera_lang.types.dtype import I32, INDEX, integer_range

_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


@rewrites
def narrow(program: Program, context: Context) -> Program:
    if context.machine.target == "cpu":
        return program
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    forms = Forms(facts)

    def step(o: Operation) -> Replacement | None:
        return _compared(o, forms, facts) if o.name == "tile.cmp" else None

    made = rewrite_operation(kernel, step)
    return program if made is kernel else tidy(with_kernel(program, made))


def _compared(o: Operation, forms: Forms, facts: Facts) -> Replacement | None:
    """The comparison with a place on its left; None where no place stands alone."""
    t = o.result.type
    if not isinstance(t, TileType) or not all(isinstance(n, int) for n in t.shape):
        return None
    a, b = (forms.of(v) for v in o.operands)
    if a is None or b is None:
        return None
    form = a.plus(b, -1)
    if sum(abs(n) * t.sizes[k] for k, n in form.places.items()) > integer_range(I32)[1] // 2:
        return None
    alone = [k for k, n in form.places.items() if abs(n) == 1]
    if not alone or not is_near(replace(form, places={}), facts):
        return None
    axis, predicate = max(alone), str(o.attributes["predicate"])
    rest = Form(form.numbers, {k: n for k, n in form.places.items() if k != axis}, form.constant)
    turned = form.places[axis] < 0  # rest - place is compared with 0, not rest + place
    limit = rest if turned else rest.times(-1)
    builder = ScheduleBuilder(o.span)
    with builder.region() as made:
        right = _limit(builder, limit, axis, t.sizes)
        left = builder.iota(t.sizes, axis, I32)
        attributes = {"predicate": _TURNED[predicate] if turned else predicate, "near": True}
        compared = builder.emit("tile.cmp", (left, right), (t,), attributes, (), (o.result.name,))
        builder.yield_(compared.result)
    return Replacement(made.region.operations[:-1], (compared.result,))


def _limit(b: ScheduleBuilder, form: Form, axis: int, shape: Sequence[int]) -> Value:
    """A sum for each line along ``axis``, drawn to the ends of the axis, in 32 bits."""
    total = _number(b, form)
    least, most = b.index(-2), b.index(shape[axis] + 1)
    if not form.places:
        near = b.binary("min", b.binary("max", total, least), most)
        return b.full(b.cast(near, I32), shape)
    lines = (*shape[:axis], *shape[axis + 1 :])
    sums = b.full(total, lines)
    for k, n in form.places.items():
        place = b.iota(lines, k - (k > axis))
        if n != 1:
            place = b.binary("mul", place, b.full(b.index(n), lines))
        sums = b.binary("add", sums, place)
    near = b.binary("min", b.binary("max", sums, b.full(least, lines)), b.full(most, lines))
    return b.broadcast(b.expand(b.cast(near, I32), axis), shape)


def _number(b: ScheduleBuilder, form: Form) -> Value:
    """The numbers of a sum, and its constant."""
    total = b.index(form.constant)
    for value, n in form.numbers.items():
        assert value.type == INDEX
        total = b.binary("add", total, value if n == 1 else b.binary("mul", value, b.index(n)))
    return total
