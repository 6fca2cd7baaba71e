"""Parts of a graph whose gradient the program gives (``@gradient``).

Owns the operation: what is computed, and beside it what the gradients are. Must not know how either
is written in a program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.ir.core import Operation, Region, TensorType, Value, VerifyError
from tessera_lang.ir.graph.builder import RETURN, GraphBuilder
from tessera_lang.ir.graph.operator import Operator
from tessera_lang.ir.tile.op_definition import AttributeDef, OpDef
from tessera_lang.record import replace

WITH_GRADIENT = "graph.with_gradient"
WITH_GRADIENT_OP = OpDef(
    WITH_GRADIENT, ("operands...",), "graph_with_gradient", results=-1,
    attributes=(AttributeDef("of", "ints"),), terminators=((RETURN,), (RETURN,)),
)  # fmt: skip
"""The first region gives the results of the operands. The second one is of the operands, the
results and the gradients of those results that are floats; it gives the gradients of the operands
``of``."""


def floats(values: Sequence[Value]) -> list[Value]:
    """Those that have a gradient."""
    return [v for v in values if v.tensor_type.dtype.is_float]


def gradients_given(
    builder: GraphBuilder, operation: Operation, cts: Sequence[Value | None]
) -> list[tuple[Value, Value | None]]:
    """The gradients of operands, by the second region. ``cts``: of the results, None for 0."""
    pairs = zip(operation.results, cts, strict=True)
    given = [builder.zeros(v) if ct is None else ct
             for v, ct in pairs if v.tensor_type.dtype.is_float]  # fmt: skip
    operands = (*operation.operands, *operation.results, *given)
    found = builder.inlined(operation.regions[1], operands)
    of = operation.integers("of")
    return [(operation.operands[i], part) for i, part in zip(of, found, strict=True)]


def without_gradients(function: Operation, operators: Mapping[str, Operator]) -> Operation:
    """A function without gradients that the program gives: what is computed alone."""
    (body,) = function.regions
    if not any(o.name == WITH_GRADIENT for o in body.walk()):
        return function
    builder = GraphBuilder(operators)
    results = _computed(builder, body, body.arguments)
    name, spelt = str(function.attributes["sym_name"]), function.strings("parameters")
    return builder.function(name, body.arguments, results, spelt)


def _computed(builder: GraphBuilder, region: Region, given: Sequence[Value]) -> list[Value]:
    new = dict(zip(region.arguments, given, strict=True))
    for o in region.operations[:-1]:
        builder.span = o.span
        operands = [new[v] for v in o.operands]
        if o.name == WITH_GRADIENT:
            made: Sequence[Value] = _computed(builder, o.regions[0], operands)
        else:
            regions = tuple(_region(builder, r) for r in o.regions)
            made = builder.repeated(replace(o, regions=regions), operands)
        new.update(zip(o.results, made, strict=True))
    return [new[v] for v in region.terminator.operands]


def _region(around: GraphBuilder, region: Region) -> Region:
    """A region of control flow without them."""
    if not any(o.name == WITH_GRADIENT for o in region.walk()):
        return region
    builder = around.another()
    results = _computed(builder, region, region.arguments)
    return Region(region.arguments, (*builder.operations, Operation(RETURN, tuple(results))))


def check_with_gradient(operation: Operation) -> None:
    """Raises VerifyError."""
    values = (*operation.operands, *operation.results)
    if not all(isinstance(v.type, TensorType) for v in values):
        raise VerifyError("takes and gives tensors", operation)
    computed, given = operation.regions
    places = operation.integers("of")
    if not all(0 <= i < len(operation.operands) for i in places):
        raise VerifyError("has no such operand", operation)
    wanted = (
        (computed.arguments, operation.operands),
        (computed.terminator.operands, operation.results),
        (given.arguments, (*values, *floats(operation.results))),
        (given.terminator.operands, tuple(operation.operands[i] for i in places)),
    )
    for have, like in wanted:
        if [v.type for v in have] != [v.type for v in like]:
            raise VerifyError("has regions of other types", operation)
