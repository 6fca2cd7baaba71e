"""Forward-mode differentiation, a rewrite of Graph IR.

The gradient of each operator is linear in the gradient of its result, and its transpose is what the
operator does to tangents: so there is one rule for both modes. Owns the transposes. Must not know
the rules, nor how a function is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.custom import WITH_GRADIENT, floats
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.ir.graph.regions import FOR, IF, WHILE
from tessera_lang.opt.graph.control_flow_derivatives import pushed_through
from tessera_lang.opt.graph.dead_code import without_unused
from tessera_lang.opt.graph.differentiate import (
    GradientError,
    check_sources,
    parts_of,
    pulled_back,
)


def tangent_of(function: Operation, wrt: Sequence[int]) -> Operation:
    """The function that gives the results of ``function``, and behind them how those that are
    floats change when the parameters of ``wrt`` (their numbers) change by further parameters, of
    their types. Raises GradientError."""
    (body,) = function.regions
    builder = GraphBuilder(OPERATORS)
    new: dict[Value, Value] = {v: v for v in body.arguments}
    sources = [body.arguments[i] for i in wrt]
    check_sources(sources)
    given = [Value(v.type, f"d{v.name}") for v in sources]
    tangents = dict(zip(sources, given, strict=True))
    pushed = set[Operation]()
    for operation in body.operations[:-1]:
        builder.span = operation.span
        operands = [new[v] for v in operation.operands]
        if operation.name in (IF, WHILE, FOR) and not tangents.keys().isdisjoint(operands):
            made, moved = pushed_through(builder, operation, operands, tangents, tangent_of)
            tangents.update(zip(floats(made), moved, strict=True))
            pushed.update(o for v in made if (o := builder.origin(v)) is not None)
        else:
            made = builder.repeated(operation, operands)
            for own in _reached(builder, made, pushed):
                _push(builder, own, tangents)
        new.update(zip(operation.results, made, strict=True))
    results = [new[v] for v in body.terminator.operands]
    moved = [tangents.get(v) or builder.zeros(v) for v in floats(results)]
    names = (*function.strings("parameters"), *(v.name for v in given))
    name = f"{function.attributes['sym_name']}_tangent"
    made = builder.function(name, (*body.arguments, *given), (*results, *moved), names)
    return without_unused(made)


def _reached(
    builder: GraphBuilder, values: Sequence[Value], pushed: set[Operation]
) -> list[Operation]:
    """The operations that values are made by and that are not pushed yet, in order. Among them may
    be some that tangents were made of before the function came to them."""
    found: list[Operation] = []
    left = [o for v in values if (o := builder.origin(v)) is not None]
    while left:
        operation = left[-1]
        origins = (builder.origin(v) for v in operation.operands)
        before = [o for o in origins if o is not None and o not in pushed]
        if operation in pushed:
            left.pop()
        elif before:
            left += before
        else:
            pushed.add(left.pop())
            found.append(operation)
    return found


def _push(builder: GraphBuilder, operation: Operation, tangents: dict[Value, Value]) -> None:
    """Adds how the results of an operation change."""
    if tangents.keys().isdisjoint(operation.operands):
        return
    for result in floats(operation.results):
        moved = _pushed(builder, operation, result, tangents)
        if moved is not None:
            tangents[result] = moved


def _pushed(
    builder: GraphBuilder, operation: Operation, result: Value, tangents: Mapping[Value, Value]
) -> Value | None:
    """How a result changes when operands do; None where it does not."""
    slope = Value(result.type)  # the gradient of the result, of which there is the transpose alone
    begun = len(builder.operations)
    cts = [slope if v is result else None for v in operation.results]
    seeds: dict[Value, Value] = {}
    given = parts_of(builder, operation, cts)
    for operand, part in given:
        if part is not None and operand in tangents:
            moved = tangents[operand]
            seeds[part] = builder.add(seeds[part], moved) if part in seeds else moved
    tape = builder.operations[begun:]
    try:
        return pulled_back(builder, tape, seeds, [slope]).get(slope)
    except GradientError as error:
        if operation.name != WITH_GRADIENT:
            raise
        message = f"there is no forward mode through the gradient that is given here: {error}"
        raise GradientError(message, operation.span) from None
