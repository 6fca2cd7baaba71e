"""What is said of the kernels of a graph: their text, what they read, write and compute beside what
any kernels would have to, and what was not fused, and why.

Owns the words. Must not know how kernels are chosen.
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.graph.operators import is_operator, operator_of
from tessera_lang.ir.graph.regions import FOR, counted
from tessera_lang.lower.graph_to_kernels.clusters import GraphKernel, computed_by, cost_of
from tessera_lang.lower.graph_to_kernels.fusion import Plan, Refusal
from tessera_lang.lower.graph_to_kernels.indexing_maps import ONE, moved, sizes_of
from tessera_lang.lower.graph_to_kernels.live_memory import arrays, bytes_of, peak_of
from tessera_lang.target.call_arena import Need, arena_of


def plan_text(function: Operation, plan: Plan) -> str:
    """The plan of a function whose sizes are numbers."""
    (body,) = function.regions
    name = function.attributes["sym_name"]
    count = len(plan.kernels)
    ends = {*body.arguments, *body.terminator.operands}
    moved = sum(_bytes(k.results) + _bytes(arrays(k)) for k in plan.kernels)
    each = sum(_bytes((*o.operands, *o.results)) for o in body.operations[:-1])
    lines = [
        f"# {name}: {len(body.operations) - 1} operators, {count} kernel{'s' * (count != 1)};"
        f" {_work(body.operations[:-1])}",
        f"# memory: {_size(moved)} in kernels; arguments and results alone {_size(_bytes(ends))};"
        f" operator by operator {_size(each)}",
    ]
    for number, kernel in enumerate(plan.kernels):
        results = ", ".join(map(_type, kernel.results))
        lines += [
            "", f"# kernel {number}{_again(plan, kernel)}: reads {_size(_bytes(arrays(kernel)))},"
            f" writes {_size(_bytes(kernel.results))}: {results}",
            kernel.source.strip() or _call_text(kernel) or _regions_text(kernel),
        ]  # fmt: skip
    for refusal in plan.refusals:
        lines.append(f"\n# not one loop: {_refused(function, refusal)}: {refusal.why}")
    return "\n".join(lines) + "\n"


def fusion_text(function: Operation, plan: Plan) -> str:
    """What became of operators: each kernel with what it computes, and the memory that it saves
    beside one kernel for each operator; what was not fused, and why."""
    lines = [f"# {function.attributes['sym_name']}"]
    for number, kernel in enumerate(plan.kernels):
        if kernel.call is not None:
            own = _bytes(kernel.results) + _bytes(arrays(kernel))
            lines.append(
                f"kernel {number} is a call of `{kernel.call.kernel}`: {_size(own)} of memory"
            )
            continue
        if kernel.regions:
            lines.append(f"kernel {number} is {_control(kernel)}")
            continue
        if kernel.first is not None:
            at, own = _number_of(plan, kernel.first), _bytes(kernel.results)
            lines.append(f"kernel {number} is kernel {at} again: its {_size(own)} were not kept")
            continue
        computed = [o for o in computed_by(function, kernel) if does_work(o)]
        own = _bytes(kernel.results) + _bytes(arrays(kernel))
        each = sum(_bytes((*o.operands, o.result)) for o in computed)
        named = computed or computed_by(function, kernel)
        names = [o.name.removeprefix("graph.") for o in named]
        lines.append(
            f"taken: kernel {number} computes {', '.join(names)}: {_size(own)} of memory,"
            f" {_size(max(0, each - own))} less than operator by operator"
        )
    for r in plan.refusals:
        way = "in the loop that needs it" if r.apart else "by a loop of its own"
        lines.append(f"refused: {_refused(function, r)} {way}: {r.why}")
    return "\n".join(lines) + "\n"


def _again(plan: Plan, kernel: GraphKernel) -> str:
    return "" if kernel.first is None else f", kernel {_number_of(plan, kernel.first)} again"


def _number_of(plan: Plan, first: GraphKernel) -> int:
    return next(n for n, k in enumerate(plan.kernels) if k.results == first.results)


def _control(kernel: GraphKernel) -> str:
    """What control flow is, and how many kernels its regions have."""
    word, inner = kernel.operator.removeprefix("graph."), _inner_kernels(kernel)
    if kernel.operator != FOR or kernel.control is None:
        return f"a `{word}` on data: its regions have {inner} kernels"
    steps = counted(kernel.control).steps
    number = "as many steps as data say" if steps is None else f"{steps} steps"
    return f"a loop of {number}: a step has {inner} kernels"


def _refused(function: Operation, refusal: Refusal) -> str:
    """A value by what computes it."""
    makers = {v: o for o in function.regions[0].operations for v in o.results}
    maker = makers.get(refusal.value)
    name = "" if maker is None else f"{maker.name.removeprefix('graph.')} "
    return name + _type(refusal.value)


def does_work(o: Operation) -> bool:
    """Whether an operator is named beside others: it does more than to move elements, or to make
    them of nothing."""
    is_move = bool(o.operands) and moved(o, (ONE,) * o.result.tensor_type.rank) is not None
    return bool(o.operands) and not is_move and o.name != "graph.cast"


def memory_text(function: Operation, plan: Plan) -> str:
    """What is in memory while the kernels run one after the other, in one arena a call."""
    (body,) = function.regions
    results = set(body.terminator.operands)
    born = {v: n for n, k in enumerate(plan.kernels) for v in k.results if v not in results}
    last = {v: n for n, k in enumerate(plan.kernels) for v in arrays(k) if v in born}
    values = list(born)
    needs = [
        Need(i, _bytes((v,)), zeroed=False, born=born[v], last=last.get(v, born[v]))
        for i, v in enumerate(values)
    ]
    arena = arena_of(needs)
    ends = _bytes(body.arguments) + _bytes(results - set(body.arguments))
    alive = [
        [v for v in values if born[v] <= n <= last.get(v, born[v])]
        for n in range(len(plan.kernels))
    ]
    most = max(range(len(alive)), key=lambda n: _bytes(alive[n]), default=0)
    given = _bytes(body.arguments)
    peak = given + peak_of(function, plan.kernels)
    lines = [
        f"# {function.attributes['sym_name']}: peak {_size(peak)}: arguments {_size(given)},"
        f" results {_size(ends - given)}; what is between kernels has room in an arena of"
        f" {_size(arena.size)}",
    ]  # fmt: skip
    again = [k for k in plan.kernels if k.first is not None]
    if again:
        time = _size(cost_of(function, again))
        lines.append(f"# within the budget: {len(again)} kernels run again, as long as {time} take")
    lines += map(_loop_line, (k for k in plan.kernels if k.operator == FOR))
    if values:
        lines.append(f"# most is alive at kernel {most}: {', '.join(map(_type, alive[most]))}")
    for i, v in enumerate(values):
        lines.append(
            f"{_type(v)}: {_size(_bytes((v,)))} at {arena.offsets[i]}, kernels {born[v]} to"
            f" {last.get(v, born[v])}"
        )
    return "\n".join(lines) + "\n"


def _loop_line(kernel: GraphKernel) -> str:
    """What a loop keeps of its steps, and what it computes again instead."""
    assert kernel.control is not None
    loop = counted(kernel.control)
    kept = kernel.results[len(loop.carried) :]
    line = f"# {_control(kernel)}"
    if kept:
        types = ", ".join(map(_type, kept))
        line += f"; it gives an element of each: {types}, {_size(_bytes(kept))}"
    if loop.again and loop.steps is not None:
        line += (
            f"; a gradient: it does {loop.again * loop.steps / 1e9:.3g} billion operations again,"
            f" in place of {_size(loop.spared * loop.steps)} that would be kept"
        )
    return line


def _bytes(values: Iterable[Value]) -> int:
    return sum(map(bytes_of, set(values)))


def _work(operations: Iterable[Operation]) -> str:
    total = 0.0
    for o in filter(is_operator, operations):
        operands = tuple(sizes_of(v) for v in o.operands)
        total += operator_of(o).work(operands, sizes_of(o.result))
    return f"{total / 1e9:.3g} billion operations"


def _call_text(kernel: GraphKernel) -> str:
    """A call as the program has it."""
    call = kernel.call
    if call is None:
        return ""
    names = {v: f"x{i}" for i, v in enumerate(arrays(kernel))}
    given = call.given([names.get(v, v) if isinstance(v, Value) else v for v in kernel.arguments])
    writes = [str(names[v]) for v in (kernel.arguments[i] for i in call.writes)
              if isinstance(v, Value)]  # fmt: skip
    written = f"  # writes {', '.join(writes)}" if writes else ""
    return f"{call.kernel}({', '.join(map(str, given))}){written}"


def _inner_kernels(kernel: GraphKernel) -> int:
    return sum(1 if not k.regions else _inner_kernels(k) for r in kernel.regions for k in r.kernels)


def _regions_text(kernel: GraphKernel) -> str:
    """Control flow, and the kernels of its regions."""
    word = kernel.operator.removeprefix("graph.")
    lines = [f"# control flow: {word}, of {_inner_kernels(kernel)} kernels"]
    names = {"if": ("where it holds", "else"), "for": ("step",)}.get(word, ("goes on", "step"))
    for name, region in zip(names, kernel.regions, strict=True):
        for inner in region.kernels:
            text = inner.source.strip() or _call_text(inner) or _regions_text(inner)
            lines += [f"# {word}, {name}:", text]
    return "\n".join(lines)


def _size(count: float) -> str:
    return f"{count / 1e6:.3g} MB"


def _type(value: Value) -> str:
    t = value.tensor_type
    return f"{t.dtype}[{', '.join(map(str, t.shape))}]"
