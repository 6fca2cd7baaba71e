"""What is said of the kernels of a graph: their text, what they read, write and compute beside what
any kernels would have to, and what was not fused, and why.

Owns the words. Must not know how kernels are chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.graph.operators import operator_of
from tessera_lang.lower.graph_to_kernels.clusters import GraphKernel
from tessera_lang.lower.graph_to_kernels.fusion import Plan
from tessera_lang.lower.graph_to_kernels.windows import sizes_of


def plan_text(function: Operation, plan: Plan) -> str:
    """The plan of a function whose sizes are numbers."""
    (body,) = function.regions
    name = function.attributes["sym_name"]
    count = len(plan.kernels)
    ends = {*body.arguments, *body.terminator.operands}
    moved = sum(_bytes(k.results) + _bytes(_arrays(k)) for k in plan.kernels)
    each = sum(_bytes((*o.operands, o.result)) for o in body.operations[:-1])
    lines = [
        f"# {name}: {len(body.operations) - 1} operators, {count} kernel{'s' * (count != 1)};"
        f" {_work(body.operations[:-1])}",
        f"# memory: {_size(moved)} in kernels; arguments and results alone {_size(_bytes(ends))};"
        f" operator by operator {_size(each)}",
    ]
    for number, kernel in enumerate(plan.kernels):
        results = ", ".join(map(_type, kernel.results))
        lines += [
            "", f"# kernel {number}: reads {_size(_bytes(_arrays(kernel)))}, writes"
            f" {_size(_bytes(kernel.results))}: {results}",
            kernel.source.strip(),
        ]  # fmt: skip
    for refusal in plan.refusals:
        lines.append(f"\n# not one loop: {_type(refusal.value)}: {refusal.why}")
    return "\n".join(lines) + "\n"


def _arrays(kernel: GraphKernel) -> tuple[Value, ...]:
    return tuple(v for v in kernel.arguments if isinstance(v, Value))


def _bytes(values: Iterable[Value]) -> int:
    return sum(
        math.prod(sizes_of(v)) * max(8, v.tensor_type.dtype.bits) // 8 for v in set(values)
    )  # fmt: skip


def _work(operations: Iterable[Operation]) -> str:
    total = 0.0
    for o in operations:
        operands = tuple(sizes_of(v) for v in o.operands)
        total += operator_of(o).work(operands, sizes_of(o.result))
    return f"{total / 1e9:.3g} billion operations"


def _size(count: float) -> str:
    return f"{count / 1e6:.3g} MB"


def _type(value: Value) -> str:
    t = value.tensor_type
    return f"{t.dtype}[{', '.join(map(str, t.shape))}]"
