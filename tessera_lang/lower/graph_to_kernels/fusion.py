"""Which kernels a graph becomes.

Owns the order in which values get kernels: a loop over cascaded reductions, a kernel of whole rows,
or one of a single value. Must not know how each of these is chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.evaluate.fault import HostFault
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.graph.calls import CALL, called
from tessera_lang.ir.graph.regions import function_of
from tessera_lang.lower.graph_to_kernels.clusters import (
    GraphKernel,
    Planned,
    cost_of,
    in_order,
    single_kernel,
    uses_of,
)
from tessera_lang.lower.graph_to_kernels.kept_values import kept_values
from tessera_lang.lower.graph_to_kernels.live_memory import values_text
from tessera_lang.lower.graph_to_kernels.planning import (
    Planning,
    Refusal,
)
from tessera_lang.lower.graph_to_kernels.rematerialization import OverBudget, within_budget
from tessera_lang.lower.graph_to_kernels.row_kernels import RowKernels
from tessera_lang.lower.graph_to_kernels.stream_loops import StreamLoops
from tessera_lang.record import dataclass, replace
from tessera_lang.target.machine import Machine

_ALONG = ("prod", "argmax", "argmin", "cumsum", "cumprod", "sort", "argsort")


@dataclass(frozen=True, slots=True)
class Plan:
    """The kernels of a graph, in an order in which they run."""

    kernels: tuple[GraphKernel, ...]
    refusals: tuple[Refusal, ...]


def plan_of(
    function: Operation, numbers: Collection[Value], tile: tuple[int, ...] = (),
    machine: Machine | None = None, budget: int = 0,
) -> Plan:  # fmt: skip
    """``numbers``: parameters that are numbers, not arrays. ``tile``: rows and places along the
    stream of the tiles of loops, where the program says them. A product that is stored, and that
    loops compute again, may be read by them: the plan that takes less time is taken. ``machine``:
    what the kernels are for, of which loops are judged where it is known. ``budget``: bytes that a
    call may have in memory, 0 without a limit: kernels run again where it needs more. Raises
    HostFault where no order of kernels keeps it."""
    plan = _cheapest(function, numbers, tile, machine)
    return plan if not budget else replace(plan, kernels=_kept(function, plan.kernels, budget))


def _cheapest(
    function: Operation, numbers: Collection[Value], tile: tuple[int, ...],
    machine: Machine | None,
) -> Plan:  # fmt: skip
    state = Planning(function, numbers, tile, machine)
    plan = _planned(state)
    given = {v for k in plan.kernels for v in k.results}
    again = (state.products & given) - {*function.regions[0].terminator.operands}
    if not again:
        return plan
    other = _planned(Planning(function, numbers, tile, machine, kept=again))
    return min(plan, other, key=lambda p: cost_of(function, p.kernels))


def _kept(
    function: Operation, kernels: tuple[GraphKernel, ...], budget: int
) -> tuple[GraphKernel, ...]:
    try:
        return within_budget(function, kernels, budget)
    except OverBudget as over:
        makers = {v: k.operator.removeprefix("graph.") for k in kernels for v in k.results}
        text, word = values_text(over.alive, makers), function.attributes["sym_name"]
        message = (
            f"`{word}` needs {over.least / 1e6:.3g} MB at least, and its memory budget is"
            f" {budget / 1e6:.3g} MB"
        )
        raise HostFault((Diagnostic(
            "T0762", message, over.kernel.origin,
            label="the most is in memory where this is computed", notes=(f"in memory are {text}",),
            helps=("say a larger `memory_budget=`, or take a smaller part of the data at a time",),
        ),)) from None  # fmt: skip


def _planned(state: Planning) -> Plan:
    state.begin()
    (body,) = state.function.regions
    uses, loops, rows = uses_of(body), StreamLoops(state), RowKernels(state)
    state.needed.update(state.kept, kept_values(state.function, state.large))
    state.needed.update(v for v in body.terminator.operands if v in state.order)
    while state.needed - state.there:
        value = max(state.needed - state.there, key=lambda v: state.order[v])
        kernel = (
            _call(state, value) or loops.kernel(value) or rows.kernel(value)
            or _single(state, value, uses)
        )  # fmt: skip
        state.found.append(kernel)
        state.there.update(kernel.results)
        state.needed.update(
            v for v in kernel.arguments if isinstance(v, Value) and v in state.order
        )
    return Plan(in_order(rows.merged()), tuple(state.refusals))


def _single(state: Planning, value: Value, uses: Counter[Value]) -> GraphKernel:
    """The kernel of one value; what no loop computes of products is told."""
    other = state.nearest(value, lambda o: o.name.removeprefix("graph.") in _ALONG and any(
        v in state.large for v in o.operands))  # fmt: skip
    if other is not None and all(r.value is not other.result for r in state.refusals):
        state.refusals.append(Refusal(other.result, state.terms(set()).why_apart(other)))
    return single_kernel(state.made, uses, state.numbers, value)


def _call(state: Planning, value: Value) -> GraphKernel | None:
    """The call of a kernel of the program, or the control flow, that gives a value; None for
    other values."""
    operation = state.calls.get(value)
    if operation is None:
        return None
    call = called(operation) if operation.name == CALL else None
    functions = map(function_of, operation.regions)
    regions = tuple(Planned(f, plan_of(f, (), machine=state.machine).kernels) for f in functions)
    return GraphKernel("", operation.operands, operation.results, operation.span,
                       operation.name, call=call, regions=regions,
                       control=operation if regions else None)  # fmt: skip
