"""``graph.profile(f)``: what each kernel of a function takes, measured, and what became of its
operators.

Owns the lines and the trace. Must not know how a launch is measured, or how kernels are chosen.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from tessera_lang.driver.tile_compilation import ForMachine
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.graph.operators import is_operator
from tessera_lang.lower.ast_to_graph.derivative import Differentiated, Graphs, differentiated
from tessera_lang.lower.graph_to_kernels.clusters import NAME, GraphKernel, computed_by
from tessera_lang.lower.graph_to_kernels.fusion import plan_of
from tessera_lang.lower.graph_to_kernels.indexing_maps import sizes_of
from tessera_lang.lower.graph_to_kernels.report import does_work
from tessera_lang.record import dataclass
from tessera_lang.sema.side_tables import Signature
from tessera_lang.source import Span
from tessera_lang.target.host_world import KernelReference, Measured, MeasuringWorld
from tessera_lang.target.machine import Machine
from tessera_lang.types.dtype import DType

if TYPE_CHECKING:
    from tessera_lang.evaluate.host import Host
    from tessera_lang.evaluate.value import Derivative
    from tessera_lang.syntax import ast

_SHOWN = 4  # operators of a kernel that its line names
_SPELT = {"matmul": "MatMul", "logsumexp": "LogSumExp", "reduce_max": "Max", "reduce_min": "Min"}


class Compiler(Protocol):
    """What is needed of the session."""

    def signature(self, path: str, name: str, text: str = "") -> Signature: ...
    def machine(self, target: str, arch: str) -> Machine: ...
    def for_machine(
        self, path: str, kernel: str, signature: Signature, machine: Machine
    ) -> ForMachine: ...  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Row:
    """A kernel: the operators of the program that it computes, its tile, and what a launch took."""

    operators: tuple[str, ...]
    tile: tuple[int, ...]
    bytes: int
    measured: Measured

    @property
    def name(self) -> str:
        tile = "x".join(map(str, self.tile))
        if len(self.operators) == 1:
            return f"{self.operators[0]}[{tile}]"
        shown = "+".join(self.operators[:_SHOWN]) + "+..." * (len(self.operators) > _SHOWN)
        return f"FusedOp[{shown}{f' {tile}' if tile else ''}]"

    def line(self, width: int) -> str:
        m = self.measured
        return (
            f"{self.name:<{width}}  latency={_time(m.seconds):<9}  occupancy={m.occupancy:.0%}"
            f"  bandwidth={_rate(self.bytes / max(m.seconds, 1e-12))}  tiles={m.groups}"
        )


def profiled(
    session: Compiler, host: Host, derivative: Derivative, values: dict[str, object],
    call: ast.Call, graphs: Graphs, trace: str,
) -> None:  # fmt: skip
    """Runs a function and prints a line for each kernel; ``trace``: a file for events of Chrome's
    trace viewer ("": none). In a world that runs nothing the function is checked. Raises
    HostFault."""
    rows: list[_Row] = []
    seen: list[Differentiated] = []
    calls: list[str] = []

    def watch(made: Differentiated, kernel: GraphKernel, given: list[object]) -> None:
        world = host.world
        assert isinstance(world, MeasuringWorld)
        seen.append(made)
        if kernel.call is not None:  # may write what it has read, so that it runs once
            calls.append(kernel.call.kernel)
            return
        reference = KernelReference(kernel.path, NAME, pure=True)
        measured = world.measured(reference, tuple(given))
        tile = _tile_of(session, host, kernel, given)
        rows.append(_Row(_operators_of(made, kernel), tile, _bytes(kernel), measured))

    watching = Graphs(graphs.prepare, graphs.machine, graphs.known, watch)
    differentiated(host, derivative, values, call, None, watching)
    if not seen:
        return
    width = max((len(r.name) for r in rows), default=0)
    lines = [r.line(width) for r in rows]
    lines += [f"a call of `{name}`, which is not measured" for name in calls]
    lines += _rewrites(seen[0], rows)
    host.world.print("\n".join(lines) + "\n")
    if trace:
        Path(trace).write_text(json.dumps(_events(rows)))


# --- operators -------------------------------------------------------------------------------


def _operators_of(made: Differentiated, kernel: GraphKernel) -> tuple[str, ...]:
    """The operators of the program, of which a kernel computes all or a part."""
    parted = {o.span: o.name for o in _operations(made.before)
              if _was_parted(o, made) and does_work(o)}  # fmt: skip
    computed = computed_by(made.function, kernel)
    found: dict[tuple[str, Span | None], None] = {}
    for o in [o for o in computed if does_work(o)] or computed:
        found[parted.get(o.span, o.name).removeprefix("graph."), o.span] = None
    names = [n for n, _ in found]
    return tuple(map(_spelt, names)) or ("Copy",)


def _operations(function: Operation) -> tuple[Operation, ...]:
    return tuple(filter(is_operator, function.regions[0].operations[:-1]))


def _was_parted(own: Operation, made: Differentiated) -> bool:
    """Whether an operator is made of others in what runs."""
    now = {(o.name, o.span) for o in _operations(made.function)}
    return (own.name, own.span) not in now


def _spelt(name: str) -> str:
    return _SPELT.get(name) or "".join(part.title() for part in name.split("_"))


def _rewrites(made: Differentiated, rows: Iterable[_Row]) -> list[str]:
    """What became of operators, and what was not fused, and why."""
    lines = ["rewrites:"]
    for own in _operations(made.before):
        if _was_parted(own, made):
            parts = dict.fromkeys(
                o.name.removeprefix("graph.") for o in _operations(made.function)
                if o.span == own.span and does_work(o)
            )  # fmt: skip
            if parts and does_work(own):
                lines.append(f"  {_spelt(own.name.removeprefix('graph.'))} is {', '.join(parts)}")
    lines += [f"  one kernel: {', '.join(r.operators)}" for r in rows if len(r.operators) > 1]
    lines += [f"  not one loop: {r.value.tensor_type}: {r.why}"
              for r in plan_of(made.function, made.numbers,
                               machine=made.machine(made.target)).refusals]  # fmt: skip
    return lines if len(lines) > 1 else ["rewrites: none"]


# --- numbers ---------------------------------------------------------------------------------


def _tile_of(
    session: Compiler, host: Host, kernel: GraphKernel, given: list[object]
) -> tuple[int, ...]:
    """The tile of a kernel: that of the loop, or what the compiler chose for it."""
    if kernel.tile:
        return kernel.tile
    world, texts, target = host.world, list[str](), "cpu"
    for number, value in enumerate(given):
        if world.is_array(value):
            target = str(world.device(value))
            shape = ", ".join(map(str, cast("tuple[int, ...]", world.shape(value))))
            texts.append(f"x{number}: {cast('DType', world.dtype(value))}[{shape}]")
    signature = session.signature(kernel.path, NAME, ", ".join(texts))
    machine = session.machine(target, "native")
    made = session.for_machine(kernel.path, NAME, signature, machine)
    tile = made.schedule.operations[0].attributes.get("tile", ())
    return cast("tuple[int, ...]", tile) if isinstance(tile, tuple) else ()


def _bytes(kernel: GraphKernel) -> int:
    arrays = {v for v in (*kernel.arguments, *kernel.results) if isinstance(v, Value)}
    return sum(math.prod(sizes_of(v)) * max(8, v.tensor_type.dtype.bits) // 8 for v in arrays)


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.3g}µs" if seconds < 1e-3 else f"{seconds * 1e3:.3g}ms"


def _rate(bytes_a_second: float) -> str:
    for unit, size in (("TB/s", 1e12), ("GB/s", 1e9)):
        if bytes_a_second >= size:
            return f"{bytes_a_second / size:.3g}{unit}"
    return f"{bytes_a_second / 1e6:.3g}MB/s"


def _events(rows: Iterable[_Row]) -> dict[str, object]:
    """Kernels one behind the other, in microseconds, as Chrome's trace viewer reads them."""
    events: list[dict[str, object]] = []
    at = 0.0
    for row in rows:
        took = row.measured.seconds * 1e6
        arguments = {"tile": list(row.tile), "occupancy": row.measured.occupancy,
                     "bytes": row.bytes, "groups": row.measured.groups}  # fmt: skip
        events.append({"name": row.name, "ph": "X", "ts": at, "dur": took, "pid": 0, "tid": 0,
                       "args": arguments})  # fmt: skip
        at += took
    return {"traceEvents": events, "displayTimeUnit": "ns"}
