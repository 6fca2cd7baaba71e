"""One kernel of Tile IR as LLVM text for NVPTX: parameters, shared memory, the body.

Every slot of the plan is one kernel parameter, in order. Must not know how the text
becomes PTX.
"""

from __future__ import annotations

import re
from math import prod

from tessera_backend.device.module import STATIC_SHARED_LIMIT
from tessera_backend.llvm.debug_lines import DebugLines
from tessera_backend.llvm.emitter import LaneEmitter
from tessera_backend.llvm.lane_rules import emit_kernel_body, lane_emitter
from tessera_backend.llvm.text import FunctionText, ModuleText
from tessera_backend.llvm.types import register_type
from tessera_backend.nvptx.hopper import rules as hopper_rules
from tessera_backend.nvptx.lanes import warp
from tessera_backend.nvptx.lanes.target_hooks import NvptxDialect
from tessera_backend.nvptx.tiles import elementwise_runs
from tessera_backend.nvptx.tiles import rules as tile_rules
from tessera_backend.nvptx.tiles.dot import products_beside
from tessera_lang.analysis.ranges.divisibility import Divisors
from tessera_lang.ir.core import (
    BarrierType,
    BufferType,
    Operation,
    PointerType,
    TensorMapType,
    Value,
)
from tessera_lang.opt.tile.shared_allocation import buffer_alignment, buffer_bytes, shared_offsets
from tessera_lang.record import dataclass
from tessera_lang.target.arch import Architecture
from tessera_lang.target.launch_plan import LaunchPlan, Slot
from tessera_lang.types.dtype import DTYPES, DType

_HEADER = 'target triple = "nvptx64-nvidia-cuda"'
_EXIT = "exit"


@dataclass(frozen=True, slots=True)
class KernelText:
    """LLVM text with the name of its entry and the shared memory it takes, in bytes. ``turns``:
    whether the text with ``short_turns`` is another."""

    text: str
    entry: str
    shared_bytes: int
    turns: bool = False


def entry_name(kernel: str) -> str:
    """The symbol of a kernel: a prefix keeps it apart from every word of PTX and LLVM."""
    safe = re.sub(r"[^A-Za-z0-9_]", lambda m: f"_u{ord(m.group()):x}_", kernel)
    return f"tessera_{safe}"


def emit_kernel(
    operation: Operation, plan: LaunchPlan, arch: Architecture, *, short_turns: bool = False,
    lines: bool = False,
) -> KernelText:  # fmt: skip
    """The text of a ``tile.kernel``, with debug locations for ``lines``. Raises NotLowered where
    NVPTX cannot do an operation."""
    module, function = ModuleText(), FunctionText()
    total, pointers = _shared_memory(operation, module)
    group = _integers(operation.attributes["group"])
    grid_rank = operation.attributes["grid_rank"]
    if not isinstance(grid_rank, int):
        raise TypeError("grid_rank is an integer")
    cluster = prod(_integers(operation.attributes.get("cluster", ())))
    dialect = NvptxDialect(arch, group, grid_rank, pointers, cluster)
    dialect.short_turns = short_turns
    dialect.waits = _waits(operation)
    dialect.products_beside = products_beside(operation)
    dialect.small = bool(operation.attributes.get("small"))
    emitter = lane_emitter(module, function, dialect, plan.kernel)
    dialect.divisors = Divisors(operation)
    lanes_rules = {**emitter.rules, **warp.RULES}
    emitter.rules = {
        **lanes_rules,
        **tile_rules.rules(lanes_rules),
        **hopper_rules.RULES,
        **elementwise_runs.RULES,
    }
    emitter.grouped = elementwise_runs.grouped
    entry = entry_name(plan.entry)
    told = emitter.lines = DebugLines(module, entry) if lines else None
    parameters = _bind_parameters(emitter, operation, plan)
    hopper_rules.begin_kernel(emitter, operation)
    emit_kernel_body(emitter, operation.regions[0], _EXIT)
    function.place(_EXIT)
    function.terminate("ret void")
    attached = told.attachment if told is not None else ""
    module.add_function(
        f"define ptx_kernel void @{entry}({', '.join(parameters)}) #0{attached} "
        f"{{\n{function.body()}\n}}"
    )
    footer = (
        f"attributes #0 = {{ norecurse nounwind {_launch_bounds(operation, group)} }}\n"
        "attributes #1 = { convergent nocallback nounwind }"
    )
    footer += f"\n{told.footer}" if told is not None else ""
    turns = dialect.has_turns and not short_turns
    return KernelText(module.render(_HEADER, footer), entry, total, turns)


def _waits(kernel: Operation) -> bool:
    """Whether a loop may go on until another lane has done something."""
    return any(
        inner.name.startswith("tile.atomic")
        for loop in kernel.nested("tile.while") for inner in loop.walk()
    )  # fmt: skip


def _launch_bounds(operation: Operation, group: tuple[int, ...]) -> str:
    """What ptxas must know: without the lanes it ignores ``setmaxnreg`` (C7508)."""

    def sizes(axes: tuple[int, ...]) -> str:
        return ",".join(str(n) for n in reversed(axes))

    words = [f'"nvvm.reqntid"="{sizes(group)}"']
    cluster = _integers(operation.attributes.get("cluster", ()))
    if max(cluster, default=1) > 1:
        words.append(f'"nvvm.cluster_dim"="{",".join((sizes(cluster) + ",1,1").split(",")[:3])}"')
    registers = operation.attributes.get("registers", 0)
    if registers:
        words.append(f'"nvvm.maxnreg"="{registers}"')
    return " ".join(words)


def _integers(value: object) -> tuple[int, ...]:
    if not isinstance(value, tuple):
        raise TypeError("a tuple of integers was expected")
    return tuple(n for n in value if isinstance(n, int))  # pyright: ignore[reportUnknownVariableType]


def _bind_parameters(emitter: LaneEmitter, operation: Operation, plan: LaunchPlan) -> list[str]:
    """Declares one parameter a slot and binds the region's arguments to the first ones."""
    arguments = operation.regions[0].arguments
    parameters: list[str] = []
    for index, slot in enumerate(plan.slots):
        name = f"%p{index}"
        argument = arguments[index] if index < len(arguments) else None
        parameters.append(_parameter(emitter, slot, argument, name, plan))
        if slot.kind == "fault":
            emitter.fault = name
        if slot.kind == "print":
            emitter.prints = name
    return parameters


def _parameter(
    emitter: LaneEmitter, slot: Slot, argument: Value | None, name: str, plan: LaunchPlan
) -> str:
    if slot.kind == "data":
        return _pointer_parameter(emitter, slot, argument, name, plan)
    if slot.kind == "bytes":
        return _value_parameter(emitter, slot, argument, name, plan)
    if slot.kind == "tensor_map":
        if argument is None or not isinstance(argument.type, TensorMapType):
            raise TypeError("a tensor_map slot is a tensor map of the kernel")
        emitter.bind(argument, name)
        return f'ptr byval([128 x i8]) align 64 "nvvm.grid_constant" {name}'
    if argument is not None and isinstance(argument.type, PointerType):  # the workspace
        emitter.bind(argument, name)
        return f"ptr addrspace(1) noalias align 16 {name}"
    dtype = DTYPES["index"]
    if argument is not None and isinstance(argument.type, DType):
        dtype = argument.type
    kind = register_type(dtype)
    if argument is not None:
        emitter.bind(argument, name)
    if kind == "i1":
        if argument is not None:
            emitter.bind(argument, emitter.f.value(f"trunc i8 {name} to i1"))
        return f"i8 {name}"
    return f"{kind} {name}"


def _pointer_parameter(
    emitter: LaneEmitter, slot: Slot, argument: Value | None, name: str, plan: LaunchPlan
) -> str:
    """No two arrays overlap where one is written: the runtime has refused that."""
    if argument is None or not isinstance(argument.type, PointerType):
        raise TypeError("a data slot is a pointer argument of the kernel")
    emitter.bind(argument, name)
    element = argument.type.dtype
    is_result = slot.parameter >= len(plan.parameters)  # which the runtime allocates
    aligned = is_result or plan.parameters[slot.parameter].aligned
    align = max(16, element.bytes) if aligned else element.bytes
    access = "" if is_result or plan.parameters[slot.parameter].mut else " readonly"
    return f"ptr addrspace(1) noalias{access} align {align} {name}"


def _value_parameter(
    emitter: LaneEmitter, slot: Slot, argument: Value | None, name: str, plan: LaunchPlan
) -> str:
    """An array in the bank of parameters, where lanes read it with any index."""
    if argument is None:
        raise TypeError("a slot of bytes is a pointer argument of the kernel")
    emitter.bind(argument, name)
    size = DTYPES[slot.dtype].bytes * prod(_integers(plan.parameters[slot.parameter].dims))
    return f'ptr byval([{size} x i8]) align 16 "nvvm.grid_constant" {name}'


def _shared_memory(operation: Operation, module: ModuleText) -> tuple[int, dict[Operation, str]]:
    """Globals for the shared allocations; above the static limit one external array.

    The total is what a launch asks for. The globals are visible outside, so that LLVM takes no
    load behind a barrier for its own store.
    """
    total, offsets = shared_offsets(operation)
    if total > STATIC_SHARED_LIMIT:
        align = max(buffer_alignment(op) for op in offsets)
        module.add_global("shared", f"external addrspace(3) global [0 x i8], align {align}")
        base = "getelementptr inbounds (i8, ptr addrspace(3) @shared, i64 {})"
        return total, {op: base.format(offset) for op, offset in offsets.items()}
    if any("offset" in op.attributes for op in offsets):  # buffers share bytes
        align = max(buffer_alignment(op) for op in offsets)
        module.add_global("shared", f"addrspace(3) global [{total} x i8] undef, align {align}")
        base = "getelementptr inbounds (i8, ptr addrspace(3) @shared, i64 {})"
        return total, {op: base.format(offset) for op, offset in offsets.items()}
    for index, op in enumerate(offsets):
        module.add_global(
            f"shared_{index}",
            f"addrspace(3) global [{max(_allocated(op), 1)} x i8] undef, "
            f"align {buffer_alignment(op)}",
        )
    return total, {op: f"@shared_{index}" for index, op in enumerate(offsets)}


def _allocated(op: Operation) -> int:
    t = op.result.type
    if isinstance(t, BarrierType):
        return 8 * t.count
    if not isinstance(t, BufferType):
        raise TypeError("a shared allocation gives a buffer")
    return buffer_bytes(t)
