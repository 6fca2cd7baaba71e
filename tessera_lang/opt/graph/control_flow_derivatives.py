"""Derivatives of control flow in Graph IR: of loops of a number of steps in reverse mode, and of
all control flow in forward mode.

Reverse mode of a loop goes through its steps the other way round. What a step began with is kept
by the loop itself, as a result with an element for each step, and so is what takes longer to
compute again than to store and read (products of long rows); all else is computed again. Where the
number of steps is known to the run alone, the steps up to there are computed again. Owns these
rewrites. Must not know the rules of operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from tessera_lang.ir.core import Operation, Region, TensorType, Value
from tessera_lang.ir.graph.builder import RETURN, GraphBuilder
from tessera_lang.ir.graph.custom import floats
from tessera_lang.ir.graph.operators import is_operator, operator_of
from tessera_lang.ir.graph.regions import FOR, IF, WHILE, Counted, counted, function_of
from tessera_lang.opt.graph.dead_code import without_unused
from tessera_lang.record import replace
from tessera_lang.target.tuned_constants import OPERATIONS_OF_A_BYTE
from tessera_lang.types.dtype import F32, I64

DifferentiatedStep = Callable[[Operation, Sequence[int], int], Operation]
"""A function, the numbers of its parameters, and how many of its results, the last ones, have no
gradient: to a function of the gradients of the others that gives these, and the gradients."""
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
    step, and what a step computes that is read sooner than computed again, where it does not give
    that already."""
    loop = counted(operation)
    if loop.steps is None:
        return operation
    missing = [v for v in _kept(loop) if v not in loop.pieces]
    if not missing:
        return operation
    end = loop.region.terminator
    end = replace(end, operands=(*end.operands, *missing))
    region = Region(loop.region.arguments, (*loop.region.operations[:-1], end))
    more = (Value(loop.stacked(v)) for v in missing)
    return replace(operation, results=(*operation.results, *more), regions=(region,))


def _kept(loop: Counted) -> list[Value]:
    """What a gradient reads of each step: what the step begins with, and what it computes where
    memory stores and gives it in less time than its operation takes. Of the latter no more than the
    bytes of the operands of the loop: those first that save most operations a byte."""
    _, carried, _, _ = loop.arguments()
    makers = {o.result: o for o in loop.region.operations[:-1] if is_operator(o)}
    gains = {v: (_work(o) or 0.0) / max(1, _bytes(v)) for v, o in makers.items() if _is_kept(o)}
    left = sum(map(_bytes, loop.operands)) if gains else 0
    found: set[Value] = set()
    for value in sorted(gains, key=lambda v: -gains[v]):
        size = cast("int", loop.steps) * _bytes(value)
        if size <= left:
            found.add(value)
            left -= size
    return [*carried, *(v for v in makers if v in found)]


def _computed(region: Region) -> list[Value]:
    return [o.result for o in region.operations[:-1] if is_operator(o)]


def _is_kept(maker: Operation) -> bool:
    """Whether a value is stored and read in less time than it takes to compute it."""
    t, work = maker.result.tensor_type, _work(maker)
    if work is None or not t.dtype.is_float:
        return False
    return work > 2 * _bytes(maker.result) * OPERATIONS_OF_A_BYTE[max(2, t.dtype.bytes)]


def _work(operation: Operation) -> float | None:
    """The arithmetic operations of an operator, where its sizes are numbers."""
    shapes = [v.tensor_type.shape for v in (*operation.operands, operation.result)]
    if not all(isinstance(n, int) for shape in shapes for n in shape):
        return None
    *operands, result = cast("list[tuple[int, ...]]", shapes)
    return operator_of(operation).work(tuple(operands), result)


def _bytes(value: Value) -> int:
    """Those of a value; 0 where a size is a name."""
    t = value.tensor_type
    sizes = [n for n in t.shape if isinstance(n, int)]
    return math.prod(sizes) * max(8, t.dtype.bits) // 8 if len(sizes) == t.rank else 0


def _stacks(builder: GraphBuilder, operation: Operation) -> dict[Value, Value]:
    """What a loop of known length keeps of its steps, by the value in its region."""
    loop, results = counted(operation), operation.results
    kept = keeping_states(operation)
    if kept is not operation:
        results = builder.repeated(kept, kept.operands)
    pieces = counted(kept).pieces
    first = len(loop.carried)
    return {v: results[first + pieces.index(v)] for v in _kept(loop)}


def parts_of_loop(
    builder: GraphBuilder, operation: Operation, cts: Sequence[Value | None],
    gradient: DifferentiatedStep,
) -> list[tuple[Value, Value | None]]:  # fmt: skip
    """The gradients of the operands of a loop of a number of steps, by a loop that goes the other
    way. Sums over the steps have 32 bits at least."""
    loop = counted(operation)
    inner = builder.another()
    inner.span = operation.span
    number, carried, sliced, rest = loop.arguments()
    wrt = [i for i, v in enumerate((number, *carried, *sliced, *rest)) if v in floats((v,))]
    pairs = zip(loop.pieces, cts[len(carried) :], strict=True)
    of_pieces = [(p, ct) for p, ct in pairs if ct is not None]
    kept = [] if loop.steps is None else _kept(loop)[len(carried) :]
    computed = _computed(loop.region)
    seeded = _giving(loop, [*(p for p, _ in of_pieces), *computed])
    found_again = gradient(seeded, wrt, len(computed)).regions[0]
    made, again, spared = _reading(found_again, computed, kept)
    cts_of_carried = [Value(v.type, f"d{v.name}") for v in floats(carried)]
    sums = [Value(_summed(v), f"sum{i}") for i, v in enumerate(floats(rest))]
    elements = [Value(p.type) for p, _ in of_pieces]
    step = Value(_STEP, "step")
    own_states, own_sliced, own_rest = _copies(carried), _copies(sliced), _copies(rest)
    at, states, more, outer_more = step, own_states, list[Value](), list[Value]()
    if loop.steps is None:
        at, states, more = _states_again(inner, loop, step, own_rest)
        own_states, outer_more = [], [cast("Value", loop.count), *loop.carried]
    given = iter(cts_of_carried)
    seeds = [next(given) if v in floats((v,)) else inner.zeros(v) for v in carried]
    seeds += elements
    own_kept = _copies(kept)
    given_all = [at, *states, *own_sliced, *own_rest, *seeds, *own_kept]
    found = iter(inner.inlined(made, given_all))
    before = [next(found) for _ in cts_of_carried]
    pieces = [next(found) for _ in floats(sliced)]
    added = [inner.add(s, inner.cast(next(found), s.tensor_type.dtype)) for s in sums]
    arguments = [step, *cts_of_carried, *sums, *own_states, *own_kept, *own_sliced,
                 *elements, *own_rest, *more]  # fmt: skip
    stacks = {} if loop.steps is None else _stacks(builder, operation)
    starts = [
        ct or builder.zeros(v)
        for v, ct in zip(operation.results, cts, strict=True)
        if v in operation.results[: len(carried)] and v in floats((v,))
    ]
    zeros = [builder.zeros(s) for s in sums]
    back = Counted(
        loop.steps, (*starts, *zeros),
        (*stacks.values(), *loop.sliced, *(ct for _, ct in of_pieces)),
        (*loop.rest, *outer_more), _region(inner, arguments, (*before, *added, *pieces)),
        reverse=loop.steps is not None and not loop.reverse, count=loop.count,
        again=again, spared=spared,
    )  # fmt: skip
    results = iter(built(builder, back))
    parts: list[tuple[Value, Value | None]] = [(v, next(results)) for v in floats(loop.carried)]
    parts += [(v, builder.cast(next(results), v.tensor_type.dtype)) for v in floats(loop.rest)]
    return [*parts, *((v, next(results)) for v in floats(loop.sliced))]


def _states_again(
    inner: GraphBuilder, loop: Counted, step: Value, rest: Sequence[Value]
) -> tuple[Value, list[Value], list[Value]]:
    """The number of the step that is the last but ``step``, what it begins with, and the arguments
    of which that is computed: the number of steps, and what is carried before the first."""
    count, first = Value(_STEP, "count"), _copies(loop.arguments()[1])
    at = inner.sub(inner.plus(count, -1), step)
    before_it = Counted(None, tuple(first), (), tuple(rest), loop.region, count=at)
    return at, list(built(inner, before_it)), [count, *first]


def _reading(
    made: Region, computed: Sequence[Value], kept: Sequence[Value]
) -> tuple[Region, int, int]:
    """A step of the gradient that reads what is kept, by further arguments. ``made``: one that
    gives, before the gradients, what the step of the loop has ``computed``. Beside it how many
    operations it has still to do again, and how many bytes these results are."""
    end = made.terminator
    again, gradients = end.operands[: len(computed)], end.operands[len(computed) :]
    here = dict(zip(computed, again, strict=True))
    own = _copies(kept)
    there = {here[v]: argument for v, argument in zip(kept, own, strict=True)}
    operations = [
        replace(o, operands=tuple(there.get(v, v) for v in o.operands))
        for o in (*made.operations[:-1], replace(end, operands=gradients))
    ]
    region = Region((*made.arguments, *own), tuple(operations))
    region = without_unused(function_of(region)).regions[0]
    left = [o for o in region.operations[:-1] if is_operator(o) and o.result in set(again)]
    work = [_work(o) for o in left]
    if any(w is None for w in work):
        return region, 0, 0
    return region, round(sum(w or 0.0 for w in work)), sum(_bytes(o.result) for o in left)


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
