"""Launches of Tile IR on NumPy arrays: clusters one after the other, each with its groups.

``run`` takes values for the kernel's arguments; ``launch`` what a caller of the kernel gives.
Different clusters are not compared: that their iterations are independent is proved before.
Must not know argument blocks.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tessera_backend.cpu.interpreter.access_history import History, Memory
from tessera_backend.cpu.interpreter.barrier_state import Meeting
from tessera_backend.cpu.interpreter.bulk import Map
from tessera_backend.cpu.interpreter.element_arithmetic import (
    Array,
    garbage,
    is_array,
    numpy_type,
    strided,
)
from tessera_backend.cpu.interpreter.faults import AsynchronousFault
from tessera_backend.cpu.interpreter.rules import RULES
from tessera_backend.cpu.interpreter.scheduler import Scheduler
from tessera_backend.cpu.interpreter.strand import Group, Strand
from tessera_backend.cpu.interpreter.warp_group_order import Trace, replay
from tessera_lang.ir.core import Operation, Program, Region, TensorMapType, Value
from tessera_lang.ir.definitions import SHARED_ALLOCATIONS
from tessera_lang.target.arch.isa_constants import WARP
from tessera_lang.target.launch_plan import LaunchPlan, Slot
from tessera_lang.types.dtype import DTYPES, DType
from tessera_lang.types.shape import Sym, evaluate_dim

_MOST_CLUSTERS = 3
"""Clusters of a kernel whose groups take tile after tile: few, so that each takes several."""

Reports = list[tuple[int, ...]]


def run(
    program: Program, plan: LaunchPlan, values: Sequence[Any], groups: int,
    most: int = _MOST_CLUSTERS, seed: int | None = None,
) -> Reports:  # fmt: skip
    """Run all groups; ``values`` are one a slot: an array for what holds an address or a map.
    ``seed``: clusters, and what happens inside them, in another order.

    Returns the faults of the program that lanes reported. Raises AsynchronousFault.
    """
    (kernel,) = program.operations
    cluster = int(np.prod(plan.cluster or (1,)))
    if groups % cluster:
        raise AsynchronousFault(f"{groups} groups are no whole number of clusters", kernel)
    if plan.persistent:
        groups = min(groups, most * cluster)
    reports: Reports = []
    order = list(range(0, groups, cluster))
    if seed is not None:
        random.Random(seed).shuffle(order)
    for first in order:
        reports += _Cluster(kernel, plan, groups, first, cluster, seed).run(values)
    for slot, value in zip(plan.slots, values, strict=True):
        if slot.kind == "workspace" and value.any():
            raise AsynchronousFault("the workspace is not left zero", kernel)
    return reports


class _Cluster:
    def __init__(
        self, kernel: Operation, plan: LaunchPlan, groups: int, first: int, size: int,
        seed: int | None,
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.plan = plan
        self.lanes = int(np.prod(plan.group))
        self.scheduler = Scheduler(seed)
        self.groups: list[Group] = []
        ordered = any(o.name == "tile.ordered_barrier" for o in kernel.walk())
        self.trace = Trace() if ordered else None
        meeting, of_lanes = Meeting(self.lanes * size), _of_lanes(kernel)
        for number in range(first, first + size):
            group = Group(number, groups, self.lanes, self.scheduler, self.groups, RULES, of_lanes)
            group.meeting, group.trace = meeting, self.trace
            self.groups.append(group)

    def run(self, values: Sequence[Any]) -> Reports:
        region = self.kernel.regions[0]
        for group in self.groups:
            self._bind(group, values)
            first = Strand(group, "all lanes", max(1, self.lanes // WARP))
            group.key = first.clock.key
            for o in region.operations:
                if o.name in SHARED_ALLOCATIONS:
                    first.put(o.results, RULES[o.name](first, o))
            self.scheduler.add(first.name, lambda s=first, g=group: _whole(s, g, region))
        self.scheduler.run()
        if self.scheduler.late:
            raise AsynchronousFault("a copy lands behind the end of the kernel", self.kernel)
        if self.trace is not None:
            replay(self.trace)
        return [report for group in self.groups for report in group.reports]

    def _bind(self, group: Group, values: Sequence[Any]) -> None:
        """Arrays get a history of their own in each group: lanes of one group are compared."""
        memories: dict[int, Memory] = {}
        arguments = self.kernel.regions[0].arguments
        for at, (argument, value, slot) in enumerate(
            zip(arguments, values, self.plan.slots, strict=False)
        ):
            if is_array(value):
                written = _is_written(self.plan, slot.parameter)
                number = slot.parameter if slot.parameter >= 0 else -1 - at
                memory = memories.get(number)
                if memory is None:
                    history = History() if written else None
                    memory = memories[number] = Memory(value, history)
                held: Any = memory
                if isinstance(argument.type, TensorMapType):
                    held = Map(memory, slot.axes, slot.box)
            else:
                held = value
                if isinstance(argument.type, DType):
                    held = numpy_type(argument.type)(value)
            group.values[argument] = held


def _of_lanes(kernel: Operation) -> frozenset[Value]:
    """Numbers made of the number of a lane."""
    found: set[Value] = set()
    for o in kernel.walk():
        if o.name == "tile.lane_linear" or any(v in found for v in o.operands):
            found.update(v for v in o.results if isinstance(v.type, DType))
    return frozenset(found)


def _whole(s: Strand, group: Group, region: Region) -> None:
    """Barriers are initialised first, and then known to the whole cluster."""
    if any(o.name == "tile.mbarrier.alloc" for o in region.operations):
        s.clock.learn({peer.key: 1 for peer in group.peers}, None)
    rest = tuple(o for o in region.operations if o.name not in SHARED_ALLOCATIONS)
    s.clock.barrier()
    s.run(Region(region.arguments, rest))
    for key, (time, operation) in group.reached.items():
        if s.clock.knows(key, None) <= time:
            raise AsynchronousFault(
                f"nothing orders {operation.name} of another group before the end of group "
                f"{group.number}, whose memory it reaches", operation,
            )  # fmt: skip
    group.ended = True


def _is_written(plan: LaunchPlan, parameter: int) -> bool:
    if parameter < 0:
        return True  # memory of the launch
    if parameter < len(plan.parameters):
        return plan.parameters[parameter].mut
    return parameter < plan.first_copy


# --- calls --------------------------------------------------------------------------------------


def launch(
    program: Program, plan: LaunchPlan, *arguments: Any, most: int = _MOST_CLUSTERS,
    seed: int | None = None,
) -> tuple[Array, ...]:  # fmt: skip
    """Run a kernel on the arguments of a call; the results. Arrays are written in place.
    ``seed``: in another order of events than the latest one."""
    sizes = bound_sizes(plan, arguments)
    results = [
        poisoned(tuple(evaluate_dim(d, sizes) for d in r.dims), numpy_type(DTYPES[r.dtype]))
        for r in plan.results
    ]
    for result, array in zip(plan.results, results, strict=True):
        if result.zeroed:
            array[...] = 0
    arrays = [*arguments, *results]
    arrays += [copied(plan, number, arrays) for number in range(len(plan.copies))]
    if plan.grid is None:
        raise ValueError("the plan does not say how many groups there are")
    groups = int(np.prod([evaluate_dim(d, sizes) for d in plan.grid]))
    spaces = {"workspace": plan.workspace, "scratch": plan.scratch}
    values = [
        memory_of(program.operations[0], at, slot, evaluate_dim(spaces[slot.kind], sizes))
        if slot.kind in spaces else _value(slot, arrays, sizes)
        for at, slot in enumerate(plan.slots)
    ]  # fmt: skip
    run(program, plan, values, groups, most, seed)
    return tuple(results)


def poisoned(shape: tuple[int, ...], dtype: Any) -> Array:
    return np.full(shape, garbage(dtype), dtype)


def memory_of(kernel: Operation, at: int, slot: Slot, size: int) -> Array:
    """Memory of a launch: zeros where its code relies on them, else poison."""
    t = kernel.regions[0].arguments[at].pointer_type
    found = poisoned((size // t.dtype.bytes,), numpy_type(t.dtype))
    if slot.kind == "workspace":
        found[...] = 0
    return found


def bound_sizes(plan: LaunchPlan, arguments: Sequence[Any]) -> dict[str, int]:
    """The symbols of a plan by the shapes of a call. Raises ValueError where they disagree."""
    sizes: dict[str, int] = {}
    for parameter, argument in zip(plan.parameters, arguments, strict=True):
        if parameter.kind != "tensor":
            continue
        for axis, size in enumerate(argument.shape):
            sizes[f"{parameter.name}.shape[{axis}]"] = size
        for dim, size in zip(parameter.dims, argument.shape, strict=False):
            if isinstance(dim, Sym) and sizes.setdefault(dim.name, size) != size:
                raise ValueError(f"{dim.name} is {sizes[dim.name]} and {size}")
    return sizes


def copied(plan: LaunchPlan, number: int, arrays: Sequence[Array]) -> Array:
    """A copy of an array as a plan asks for it, with poison between its lines."""
    copy = plan.copies[number]
    array = arrays[copy.parameter]
    strides = copy.strides(array.shape, array.itemsize)
    span = max((n * s for n, s in zip(array.shape, strides, strict=True)), default=0)
    flat = poisoned((max(1, span),), array.dtype.type)
    steps = [s * array.itemsize for s in strides]
    made = strided(flat, array.shape, steps)
    made[...] = array
    return made


def _value(slot: Any, arrays: Sequence[Any], sizes: Mapping[str, int]) -> Any:
    match slot.kind:
        case "data" | "tensor_map" | "scalar":
            return arrays[slot.parameter]
        case "size":
            return arrays[slot.parameter].shape[slot.axis]
        case "stride":
            array = arrays[slot.parameter]
            return array.strides[slot.axis] // array.itemsize
        case "symbol":
            return sizes[slot.symbol]
        case _:
            raise ValueError(f"a {slot.kind} slot")
