"""Runs a graph in the world of an evaluator: its kernels, one after the other.

Owns the order, and that no result shares memory with an argument. Must not know which operators a
kernel has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Literal, cast

from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.evaluate.builtin_protocol import Host
from tessera_lang.evaluate.double import Double
from tessera_lang.evaluate.fault import HostFault
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.graph.regions import FOR, IF, counted
from tessera_lang.lower.graph_to_kernels.clusters import NAME, GraphKernel, Planned
from tessera_lang.lower.graph_to_kernels.indexing_maps import sizes_of
from tessera_lang.lower.graph_to_kernels.live_memory import bytes_of, values_text
from tessera_lang.lower.graph_to_kernels.nan_origins import nan_origin
from tessera_lang.record import replace
from tessera_lang.target.host_world import (
    ChecksNan,
    CompilingWorld,
    KernelReference,
    Outline,
    WorldFault,
)
from tessera_lang.types.dtype import I64

NumberKind = Literal["array", "number", "double"]
"""What a result is in the host program: an array, a number, or one with all bits of an f64."""
_STORE = f"""@op.kernel
def {NAME}(x: {{dtype}}[n], out: mut {{dtype}}[n]):
    for i in op.tile_range(n, step=1024):
        out[i:i+1024] = x[i:i+1024]
"""
_COPY = f"@op.kernel\ndef {NAME}(x):\n    return op.copy(x)\n"


def run_kernels(
    host: Host, function: Operation, inputs: Sequence[object], numbers: Sequence[NumberKind],
    kernels: Sequence[GraphKernel],
    watch: Watch | None = None,
) -> list[object]:  # fmt: skip
    """The results of a function of Graph IR whose sizes are numbers, by its ``kernels``.
    ``inputs``: arrays of the host's world, and floats; ``numbers``: which results are numbers;
    ``watch`` is told of each kernel and its arguments."""
    (body,) = function.regions
    values: dict[Value, object] = dict(zip(body.arguments, inputs, strict=True))
    kept = {*body.arguments, *body.terminator.operands}
    last = {v: n for n, k in enumerate(kernels) for v in k.arguments if v not in kept}
    for number, kernel in enumerate(kernels):
        given = [values[v] if isinstance(v, Value) else v for v in kernel.arguments]
        free = {v for v in kernel.arguments if isinstance(v, Value) and last.get(v) == number}
        try:
            if kernel.regions:
                made: object = _run_regions(host, kernel, given, watch)
            elif kernel.call is None:
                made = _launched(host, kernel, given)
            else:
                made = _called(host, kernel, given, free)
        except HostFault as error:
            raise _with_memory(error, values, kernels[:number]) from None
        except WorldFault as refused:
            if refused.code != "T0846":
                raise
            found = Diagnostic(refused.code, refused.message, kernel.origin, helps=refused.helps)
            raise _with_memory(HostFault((found,)), values, kernels[:number]) from None
        if watch is not None and not kernel.regions:
            watch(kernel, given)
        if len(kernel.results) == 1 and kernel.call is None and not kernel.regions:
            made = (made,)
        world = host.world
        if isinstance(world, ChecksNan) and not kernel.regions and (
            world.has_nan(made) and not world.has_nan(given)
        ):  # fmt: skip
            launch = partial(_launched, host)
            raise HostFault((nan_origin(function, kernel, given, world.has_nan, launch),))
        pairs = zip(kernel.results, cast("tuple[object, ...]", made), strict=True)
        values.update((v, a) for v, a in pairs if v in last or v in kept)
        made = None
        for v in kernel.arguments:  # the memory of what no other kernel needs is free
            if isinstance(v, Value) and last.get(v) == number:
                values.pop(v, None)
    taken = set(body.arguments)
    results: list[object] = []
    for value, kind in zip(body.terminator.operands, numbers, strict=True):
        found = values[value]
        if kind != "array":
            found = _number(host, found, kind == "double")
        elif value in taken:
            found = _copied(host, value, found)
        taken.add(value)
        results.append(found)
    return results


def _with_memory(
    error: HostFault, values: Mapping[Value, object], done: Sequence[GraphKernel]
) -> HostFault:
    """Where there was no memory: which values were in it, the largest first."""
    if not any(d.code in ("T0846", "T0874") for d in error.diagnostics):
        return error
    makers = {v: k.operator.removeprefix("graph.") for k in done for v in k.results}
    total = sum(map(bytes_of, values)) / 1e6
    note = f"{total:.3g} MB were in memory: {values_text(values, makers)}"
    first, *others = error.diagnostics
    return HostFault((replace(first, notes=(*first.notes, note)), *others))


def begin_kernels(
    host: Host, kernels: Sequence[GraphKernel], inputs: Mapping[Value, object]
) -> None:
    """Begin the code of all kernels that are made of operators, of regions too, so that it is
    generated while the next ones are lowered. ``inputs``: of the function, by which numbers are
    known."""
    world, seen = host.world, set[object]()
    if not isinstance(world, CompilingWorld):
        return

    def visit(kernels: Sequence[GraphKernel]) -> None:
        for kernel in kernels:
            for region in kernel.regions:
                visit(region.kernels)
            if kernel.regions or kernel.call is not None:
                continue
            given = tuple(_outline(v, inputs) for v in kernel.arguments)
            types = tuple("" if isinstance(g, float) else g for g in given)
            if (kernel.path, types) not in seen:
                seen.add((kernel.path, types))
                host.modules.add_text(kernel.path, kernel.source, kernel.origin)
                world.begin(KernelReference(kernel.path, NAME, pure=True), given)

    visit(kernels)


def _outline(value: Value | float, inputs: Mapping[Value, object]) -> float | Outline:
    number = inputs.get(value) if isinstance(value, Value) else value
    if isinstance(number, float) or not isinstance(value, Value):
        return float(cast("float", number))
    return value.tensor_type.dtype, sizes_of(value)


def _launched(host: Host, kernel: GraphKernel, arguments: list[object]) -> object:
    host.modules.add_text(kernel.path, kernel.source, kernel.origin)
    try:
        return host.world.launch(
            KernelReference(kernel.path, NAME, pure=True), tuple(arguments), {}, None
        )
    except TesseraError as error:
        raise HostFault(tuple(_of_program(d, kernel) for d in error.diagnostics)) from error


Watch = Callable[[GraphKernel, list[object]], None]


def _run_regions(
    host: Host, kernel: GraphKernel, operands: list[object], watch: Watch | None
) -> tuple[object, ...]:  # fmt: skip
    """The results of control flow on data, which is waited for."""
    types = [v.tensor_type for v in kernel.arguments if isinstance(v, Value)]
    given = [
        v if host.world.is_array(v) else host.world.fill("full", (), t.dtype, v)
        for v, t in zip(operands, types, strict=True)
    ]

    def run(region: Planned, inputs: list[object]) -> list[object]:
        count = len(region.function.regions[0].terminator.operands)
        kinds: list[NumberKind] = ["array" for _ in range(count)]
        return run_kernels(host, region.function, inputs, kinds, region.kernels, watch)

    if kernel.operator == FOR:
        (step,) = kernel.regions
        return tuple(_run_loop(host, kernel, given, partial(run, step)))
    first, second = kernel.regions
    if kernel.operator == IF:
        condition, *inputs = given
        return tuple(run(first if _truth(host, condition) else second, inputs))
    count = len(kernel.results)
    carried, rest = given[:count], given[count:]
    begun = False
    while _truth(host, run(first, [*carried, *rest])[0]):
        carried, begun = run(second, [*carried, *rest]), True
    return tuple(carried if begun else _apart(host, kernel, carried))


def _store(host: Host, value: Value, piece: object, row: object) -> None:
    """Writes a part of the result ``value`` of a loop, where kernels run."""
    size = math.prod(sizes_of(value)[1:])
    if not size:
        return
    source = _STORE.format(dtype=value.tensor_type.dtype)
    host.modules.add_text(path := f"<graph: {source.strip()}>", source, None)
    lines = tuple(host.world.view("reshape", v, (size,)) for v in (piece, row))
    host.world.launch(KernelReference(path, NAME), lines, {}, None)


def _apart(host: Host, kernel: GraphKernel, carried: Sequence[object]) -> list[object]:
    """What a loop without a step gives, in memory of its own."""
    return [_copied(host, v, a) for v, a in zip(kernel.results, carried, strict=False)]


def _run_loop(
    host: Host, kernel: GraphKernel, given: list[object],
    run: Callable[[list[object]], list[object]],
) -> list[object]:  # fmt: skip
    """The results of a loop of a number of steps. ``run``: a step."""
    assert kernel.control is not None
    world, loop = host.world, counted(kernel.control)
    steps = loop.steps
    if steps is None:
        steps = cast("int", world.read(world.view("reshape", given.pop(0), (1,)), (0,)))
    ends = len(loop.carried), len(loop.carried) + len(loop.sliced)
    carried, sliced, rest = given[: ends[0]], given[ends[0] : ends[1]], given[ends[1] :]
    behind = kernel.results[ends[0] :]
    stacks = [world.fill("empty", sizes_of(v), v.tensor_type.dtype) for v in behind]
    order = range(steps - 1, -1, -1) if loop.reverse else range(steps)
    for step in order:
        elements = [world.view("row", v, (step,)) for v in sliced]
        number = world.fill("full", (), I64, step)
        found = run([number, *carried, *elements, *rest])
        carried, pieces = found[: ends[0]], found[ends[0] :]
        for stack, piece, v in zip(stacks, pieces, behind, strict=True):
            _store(host, v, piece, world.view("row", stack, (step,)))
    return [*(carried if steps > 0 else _apart(host, kernel, carried)), *stacks]


def _truth(host: Host, array: object) -> bool:
    return bool(host.world.read(host.world.view("reshape", array, (1,)), (0,)))


def _copied(host: Host, value: Value, array: object) -> object:
    return _launched(host, GraphKernel(_COPY, (value,), (value,), None), [array])


def _called(
    host: Host, kernel: GraphKernel, operands: list[object], free: Collection[Value]
) -> tuple[object, ...]:  # fmt: skip
    """The results of a call of a kernel of the program: what it returns, and behind that the arrays
    that it wrote. It writes into the memory of an operand that is ``free``, else into a copy."""
    call = kernel.call
    assert call is not None
    for i in call.numbers:
        if host.world.is_array(operands[i]):  # what is launched depends on it: it is waited for
            line = host.world.view("reshape", operands[i], (1,))
            operands[i] = host.world.read(line, (0,))
    for i in call.writes:
        value = kernel.arguments[i]
        assert isinstance(value, Value)
        if value not in free or kernel.arguments.count(value) > 1:
            operands[i] = _copied(host, value, operands[i])
    made = host.world.launch(
        KernelReference(call.file, call.kernel, pure=not call.writes), call.given(operands),
        call.given_constants(), call.groups,
    )  # fmt: skip
    several = cast("tuple[object, ...]", made) if isinstance(made, tuple) else (made,)
    return (*(several if made is not None else ()), *(operands[i] for i in call.writes))


def _of_program(d: Diagnostic, kernel: GraphKernel) -> Diagnostic:
    """What is wrong with a kernel that nobody wrote, said of the part of the program that it
    computes: what speaks of names of the kernel is a fault of ours."""
    inside = d.span is None or d.span.file == kernel.path
    own = inside or any(label.span.file == kernel.path for label in d.labels)
    if not own or kernel.origin is None:
        return d
    operator = f"`{kernel.operator.removeprefix('graph.')}`"
    if "`" not in d.message:
        message = f"the kernel that was made of {operator} here is refused: {d.message}"
        return Diagnostic(d.code, message, kernel.origin, severity=d.severity)
    message = f"the compiler refuses a kernel that it made itself of {operator} here ({d.code})"
    return Diagnostic(
        "T0902", message, kernel.origin, severity=d.severity,
        notes=("nobody wrote this kernel, so the fault is one of Tessera's: please report it",),
    )  # fmt: skip


def _number(host: Host, found: object, double: bool) -> object:
    """The number in an array of rank 0; the array where the world cannot wait for it."""
    if not host.world.is_array(found):
        return found
    try:
        number = host.world.read(found, ())
    except WorldFault as fault:
        if fault.code != "T0809":
            raise
        return found
    if isinstance(number, float):
        return Double(number) if double else float(number)
    return number
