"""Derivatives of control flow in Graph IR: of loops of a number of steps in reverse mode, and of
all control flow in forward mode.

Reverse mode of a loop goes through its steps the other way round. What a step began with is kept
by the loop itself, as a result with an element for each step; where the number of steps is known to
the run alone, the steps up to there are computed again. Owns these rewrites. Must not know the
rules of operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tessera_lang.ir.core import Operation, Region, TensorType, Value
from tessera_lang.ir.graph.builder import RETURN, GraphBuilder
from tessera_lang.ir.graph.custom import floats
from tessera_lang.ir.graph.regions import FOR, IF, WHILE, Counted, counted, function_of
from tessera_lang.opt.graph.dead_code import without_unused
from tessera_lang.record import replace
from tessera_lang.types.dtype import F32, I64

Differentiated = Callable[[Operation, Sequence[int]], Operation]
"""A function of Graph IR, and the numbers of its parameters, to one that has derivatives."""
_STEP = TensorType(I64, ())


def _region(builder: GraphBuilder, arguments: Sequence[Value], results: Sequence[Value]) -> Region:
    return Region(tuple(arguments), (*builder.operations, Operation(RETURN, tuple(results))))


def _copies(values: Sequence[Value]) -> list[Value]:
    return [Value(v.type, v.name) for v in values]


def built(builder: GraphBuilder, loop: Counted) -> tuple[Value, ...]:
    """The results of a loop."""
    return builder.operation(FOR, loop.operands, loop.types, loop.attributes, (loop.region,))


# --- reverse mode ----------------------------------------------------------------------------


def keeping_states(operation: Operation) -> Operation:
    """A loop of known length that also gives, behind its results, what it carries before each
    step, where it does not give that already."""
    loop = counted(operation)
    if loop.steps is None:
        return operation
    _, carried, _, _ = loop.arguments()
    missing = [v for v in carried if v not in loop.pieces]
    if not missing:
        return operation
    end = loop.region.terminator
    end = replace(end, operands=(*end.operands, *missing))
    region = Region(loop.region.arguments, (*loop.region.operations[:-1], end))
    more = (Value(loop.stacked(v)) for v in missing)
    return replace(operation, results=(*operation.results, *more), regions=(region,))


def _states(builder: GraphBuilder, operation: Operation) -> list[Value]:
    """What a loop of known length carries before each step."""
    loop, results = counted(operation), operation.results
    _, carried, _, _ = loop.arguments()
    if any(v not in loop.pieces for v in carried):
        kept = keeping_states(operation)
        results = builder.repeated(kept, kept.operands)
        loop = counted(kept)
    first = len(loop.carried)
    return [results[first + loop.pieces.index(v)] for v in carried]


def parts_of_loop(
    builder: GraphBuilder, operation: Operation, cts: Sequence[Value | None],
    gradient: Differentiated,
) -> list[tuple[Value, Value | None]]:  # fmt: skip
    """The gradients of the operands of a loop of a number of steps, by a loop that goes the other
    way. ``gradient``: a function that takes gradients of the results behind its parameters, and
    gives those of some parameters. Sums over the steps have 32 bits at least."""
    loop = counted(operation)
    inner = builder.another()
    inner.span = operation.span
    number, carried, sliced, rest = loop.arguments()
    wrt = [i for i, v in enumerate((number, *carried, *sliced, *rest)) if v in floats((v,))]
    pairs = zip(loop.pieces, cts[len(carried) :], strict=True)
    of_pieces = [(p, ct) for p, ct in pairs if ct is not None]
    made = without_unused(gradient(_giving(loop, [p for p, _ in of_pieces]), wrt)).regions[0]
    cts_of_carried = [Value(v.type, f"d{v.name}") for v in floats(carried)]
    sums = [Value(_summed(v), f"sum{i}") for i, v in enumerate(floats(rest))]
    elements = [Value(p.type) for p, _ in of_pieces]
    step = Value(_STEP, "step")
    own_states, own_sliced, own_rest = _copies(carried), _copies(sliced), _copies(rest)
    more: list[Value] = []  # what the steps before are computed of, where none is kept
    outer_more: list[Value] = []
    at, states = step, own_states
    if loop.steps is None:
        assert loop.count is not None
        count, first = Value(_STEP, "count"), _copies(carried)
        more, outer_more = [count, *first], [loop.count, *loop.carried]
        at = inner.sub(inner.plus(count, -1), step)
        again = Counted(None, tuple(first), (), tuple(own_rest), loop.region, count=at)
        states, own_states = list(built(inner, again)), []
    given = iter(cts_of_carried)
    seeds = [next(given) if v in floats((v,)) else inner.zeros(v) for v in carried]
    seeds += elements
    found = iter(inner.inlined(made, [at, *states, *own_sliced, *own_rest, *seeds]))
    before = [next(found) for _ in cts_of_carried]
    pieces = [next(found) for _ in floats(sliced)]
    added = [inner.add(s, inner.cast(next(found), s.tensor_type.dtype)) for s in sums]
    arguments = [step, *cts_of_carried, *sums, *own_states, *own_sliced, *elements,
                 *own_rest, *more]  # fmt: skip
    outer_states = [] if loop.steps is None else _states(builder, operation)
    starts = [
        ct or builder.zeros(v)
        for v, ct in zip(operation.results, cts, strict=True)
        if v in operation.results[: len(carried)] and v in floats((v,))
    ]
    zeros = [builder.zeros(s) for s in sums]
    back = Counted(
        loop.steps, (*starts, *zeros),
        (*outer_states, *loop.sliced, *(ct for _, ct in of_pieces)),
        (*loop.rest, *outer_more), _region(inner, arguments, (*before, *added, *pieces)),
        reverse=loop.steps is not None and not loop.reverse, count=loop.count,
    )  # fmt: skip
    results = iter(built(builder, back))
    parts: list[tuple[Value, Value | None]] = [(v, next(results)) for v in floats(loop.carried)]
    parts += [(v, builder.cast(next(results), v.tensor_type.dtype)) for v in floats(loop.rest)]
    return [*parts, *((v, next(results)) for v in floats(loop.sliced))]


def _giving(loop: Counted, pieces: Sequence[Value]) -> Operation:
    """A step as a function that gives what is carried and these pieces."""
    end = loop.region.terminator
    end = replace(end, operands=(*end.operands[: len(loop.carried)], *pieces))
    return function_of(Region(loop.region.arguments, (*loop.region.operations[:-1], end)))


def _summed(value: Value) -> TensorType:
    t = value.tensor_type
    return TensorType(F32 if t.dtype.bits < F32.bits else t.dtype, t.shape)


# --- forward mode ----------------------------------------------------------------------------


def pushed_through(
    builder: GraphBuilder, operation: Operation, operands: Sequence[Value],
    tangents: Mapping[Value, Value], tangent: Differentiated,
) -> tuple[tuple[Value, ...], list[Value]]:  # fmt: skip
    """The results of control flow of these operands, and how those that are floats change.
    ``tangent``: a function that takes changes of some parameters behind all of them, and gives
    changes of its results that are floats behind these."""
    if operation.name == IF:
        return _through_if(builder, operation, operands, tangents, tangent)
    if operation.name == WHILE:
        return _through_while(builder, operation, operands, tangents, tangent)
    return _through_for(builder, replace(operation, operands=tuple(operands)), tangents, tangent)


def _moves(
    builder: GraphBuilder, values: Sequence[Value], tangents: Mapping[Value, Value],
    every: bool = False,
) -> tuple[list[int], list[Value]]:  # fmt: skip
    """The values that change, by number, and how. ``every``: all that are floats, by 0 too."""
    places = [i for i, v in enumerate(values) if v in floats((v,)) and (every or v in tangents)]
    return places, [tangents.get(values[i]) or builder.zeros(values[i]) for i in places]


def _through_if(
    builder: GraphBuilder, operation: Operation, operands: Sequence[Value],
    tangents: Mapping[Value, Value], tangent: Differentiated,
) -> tuple[tuple[Value, ...], list[Value]]:  # fmt: skip
    condition, *given = operands
    places, moved = _moves(builder, given, tangents)
    regions = tuple(tangent(function_of(r), places).regions[0] for r in operation.regions)
    results = operation.results
    types = [v.tensor_type for v in (*results, *floats(results))]
    found = builder.operation(IF, (condition, *given, *moved), types, {}, regions)
    return found[: len(results)], list(found[len(results) :])


def _through_while(
    builder: GraphBuilder, operation: Operation, operands: Sequence[Value],
    tangents: Mapping[Value, Value], tangent: Differentiated,
) -> tuple[tuple[Value, ...], list[Value]]:  # fmt: skip
    count = len(operation.results)
    carried, rest = operands[:count], operands[count:]
    own, own_moved = _moves(builder, carried, tangents, every=True)
    others, other_moved = _moves(builder, rest, tangents)
    goes_on, body = operation.regions
    body = tangent(function_of(body), [*own, *(count + i for i in others)]).regions[0]
    regions: list[Region] = []
    for region in (goes_on, body):
        first, behind = _copies(carried), _copies(rest)
        moves, more = _copies(own_moved), _copies(other_moved)
        inner = builder.another()
        inner.span = operation.span
        given = (*first, *behind, *(() if region is goes_on else (*moves, *more)))
        found = inner.inlined(region, given)
        regions.append(_region(inner, (*first, *moves, *behind, *more), found))
    types = [v.tensor_type for v in (*carried, *own_moved)]
    made = builder.operation(WHILE, (*carried, *own_moved, *rest, *other_moved), types,
                             {"carried": len(types)}, tuple(regions))  # fmt: skip
    return made[:count], list(made[count:])


def _through_for(
    builder: GraphBuilder, operation: Operation, tangents: Mapping[Value, Value],
    tangent: Differentiated,
) -> tuple[tuple[Value, ...], list[Value]]:  # fmt: skip
    loop = counted(operation)
    groups = (loop.carried, loop.sliced, loop.rest)
    moving = [_moves(builder, g, tangents, every=g is loop.carried) for g in groups]
    starts = (1, 1 + len(loop.carried), 1 + len(loop.carried) + len(loop.sliced))
    wrt = [start + i for start, (places, _) in zip(starts, moving, strict=True) for i in places]
    made = tangent(function_of(loop.region), wrt).regions[0]
    step, carried, sliced, rest = loop.arguments()
    own = [_copies(g) for g in (carried, sliced, rest)]
    moves = [[Value(g[i].type, f"d{g[i].name}") for i in places]
             for g, (places, _) in zip(own, moving, strict=True)]  # fmt: skip
    inner = builder.another()
    inner.span = operation.span
    number = Value(step.type, step.name)
    found = inner.inlined(made, [number, *(v for g in (*own, *moves) for v in g)])
    count, results = len(loop.carried), len(loop.region.terminator.operands)
    changes = found[results:]
    of_carried = len(moves[0])
    region = _region(
        inner,
        (number, *(v for g, m in zip(own, moves, strict=True) for v in (*g, *m))),
        (*found[:count], *changes[:of_carried], *found[count:results], *changes[of_carried:]),
    )
    first, elements, others = ((*g, *m) for g, (_, m) in zip(groups, moving, strict=True))
    both = Counted(loop.steps, first, elements, others, region, loop.reverse, loop.count)
    given = built(builder, both)
    pieces = count + of_carried + len(loop.pieces)
    return (
        (*given[:count], *given[count + of_carried : pieces]),
        [*given[count : count + of_carried], *given[pieces:]],
    )
