"""Reverse-mode differentiation, a rewrite of Graph IR.

Owns the order in which gradients are added up; the rule of each operator is a column of its row.
Must not know how a function is called, or run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.calls import CALL
from tessera_lang.ir.graph.custom import WITH_GRADIENT, gradients_given
from tessera_lang.ir.graph.operator import NoGradient
from tessera_lang.ir.graph.operators import OPERATORS, operator_of
from tessera_lang.ir.graph.regions import FOR, IF, WHILE, function_of
from tessera_lang.opt.graph.control_flow_derivatives import keeping_states, parts_of_loop
from tessera_lang.opt.graph.dead_code import without_unused
from tessera_lang.source import Span


class GradientError(Exception):
    """A gradient that there is not; ``span``: of the operation that has none."""

    def __init__(self, message: str, span: Span | None = None, helps: tuple[str, ...] = ()) -> None:
        self.span = span
        self.helps = helps
        super().__init__(message)


def gradient_of(
    function: Operation, wrt: Sequence[int], *, seeded: bool, with_results: bool = True,
    alone: int = 0,
) -> Operation:  # fmt: skip
    """The function that gives the results of ``function`` (unless they are not asked for), and
    behind them the gradient of each parameter of ``wrt`` (its number), of the parameter's type.

    ``seeded``: the gradients of the results are further parameters, of their types; else the only
    result is one float, and its gradient is 1. ``alone``: how many of the results, the last ones,
    have no gradient; they are given in any case. Raises GradientError.
    """
    (body,) = function.regions
    builder = GraphBuilder(OPERATORS)
    new = replayed(builder, body)
    tape = list(builder.operations)
    results = [new[v] for v in body.terminator.operands]
    ends = len(results) - alone
    seeds = _seeds(builder, body.terminator.operands[:ends], seeded)
    sources = [body.arguments[i] for i in wrt]
    check_sources(sources)
    begun: dict[Value, Value] = {}
    for result, seed in zip(results[:ends], seeds, strict=True):
        begun[result] = builder.add(begun[result], seed) if result in begun else seed
    found = pulled_back(builder, tape, begun, sources)
    gradients = [found[s] if s in found else builder.zeros(s) for s in sources]
    extra = tuple(seeds) if seeded else ()
    names = (*function.strings("parameters"), *(f"d{i}" for i in range(len(extra))))
    given = results if with_results else results[ends:]
    name = f"{function.attributes['sym_name']}_gradient"
    return builder.function(name, (*body.arguments, *extra), (*given, *gradients), names)


def _gradient_of_step(function: Operation, wrt: Sequence[int], alone: int) -> Operation:
    return gradient_of(function, wrt, seeded=True, with_results=False, alone=alone)


def check_sources(sources: Sequence[Value]) -> None:
    """Raises GradientError for what holds no floats."""
    for source in sources:
        if not source.tensor_type.dtype.is_float:
            raise GradientError(f"there is no gradient of {source.tensor_type}: it holds no floats")


def replayed(builder: GraphBuilder, body: Region) -> dict[Value, Value]:
    """The function itself, built again, where loops keep what their steps begin with: what its
    values are called there."""
    new: dict[Value, Value] = {v: v for v in body.arguments}
    for operation in body.operations[:-1]:
        builder.span = operation.span
        operands = [new[v] for v in operation.operands]
        own = keeping_states(operation) if operation.name == FOR else operation
        new.update(zip(operation.results, builder.repeated(own, operands), strict=False))
    return new


def _seeds(builder: GraphBuilder, results: Sequence[Value], seeded: bool) -> list[Value]:
    if seeded:
        return [Value(v.type, f"d{i}") for i, v in enumerate(results)]
    (result,) = results
    return [builder.like(result, 1.0)]


def pulled_back(
    builder: GraphBuilder, tape: Sequence[Operation], seeds: Mapping[Value, Value],
    sources: Sequence[Value],
) -> dict[Value, Value]:  # fmt: skip
    """The gradients of values on the way from ``sources`` to the results, whose are ``seeds``."""
    active = set(sources)
    for operation in tape:
        if active.intersection(operation.operands):
            active.update(v for v in operation.results if v.tensor_type.dtype.is_float)
    gradients = {v: ct for v, ct in seeds.items() if v in active}
    for operation in reversed(tape):
        cts = [gradients.get(v) if v in active else None for v in operation.results]
        if all(ct is None for ct in cts):
            continue
        builder.span = operation.span
        for operand, part in parts_of(builder, operation, cts):
            if part is not None and operand in active:
                before = gradients.get(operand)
                gradients[operand] = part if before is None else builder.add(before, part)
    return gradients


def parts_of(
    builder: GraphBuilder, operation: Operation, cts: Sequence[Value | None]
) -> list[tuple[Value, Value | None]]:
    """What an operation hands on to each of its operands. ``cts``: the gradients of its results,
    of which there is one. Raises GradientError."""
    if operation.name == WITH_GRADIENT:
        return gradients_given(builder, operation, cts)
    if operation.name == CALL:
        kernel = operation.attributes["kernel"]
        message = f"nothing says what the gradient of the kernel `{kernel}` is"
        helps = (f"write it: a function that is marked `@gradient({kernel})`",)
        if "tessera_stdlib" in str(operation.attributes["file"]):
            helps = ("layers, losses and transforms have gradients as functions of `op`:"
                     " `op.conv2d`, `op.max_pool2d`, `op.layernorm`",)  # fmt: skip
        raise GradientError(message, operation.span, helps)
    if operation.name == WHILE:
        raise GradientError(
            "a loop that goes on while data say so has no gradient: how often it runs is not known"
            " before",
            operation.span,
            ("bound it: go over a `range`, and keep a value with `op.where(goes_on, new, old)`",
             "forward mode (`jvp`) goes through it"),
        )  # fmt: skip
    if operation.name == FOR:
        return parts_of_loop(builder, operation, cts, _gradient_of_step)
    if operation.name == IF:
        return _parts_of_branches(builder, operation, cts)
    (ct,) = cts
    assert ct is not None
    row = operator_of(operation)
    if isinstance(row.gradient, NoGradient):
        if not row.gradient.zero:
            raise GradientError(f"`{row.name}` has no gradient: {row.gradient.why}", operation.span)
        return []
    parts = row.gradient(builder, operation, ct)
    return list(zip(operation.operands, parts, strict=True))


def _parts_of_branches(
    builder: GraphBuilder, operation: Operation, cts: Sequence[Value | None]
) -> list[tuple[Value, Value | None]]:
    """The gradients of a choice: a choice between those of its regions. Raises GradientError."""
    condition, *operands = operation.operands
    wrt = [i for i, v in enumerate(operands) if v.tensor_type.dtype.is_float]
    if not wrt:
        return []
    seeds = [builder.zeros(v) if ct is None else ct
             for v, ct in zip(operation.results, cts, strict=True)]  # fmt: skip
    regions: list[Region] = []
    for region in operation.regions:
        made = gradient_of(function_of(region), wrt, seeded=True, with_results=False)
        regions.append(without_unused(made).regions[0])
    types = [operands[i].tensor_type for i in wrt]
    found = builder.operation(IF, (condition, *operands, *seeds), types, {}, tuple(regions))
    return list(zip((operands[i] for i in wrt), found, strict=True))
