"""One kernel of Tile IR as LLVM text for NVPTX: parameters, shared memory, the body.

Every slot of the plan is one kernel parameter, in order. Must not know how the text
becomes PTX.
"""

from __future__ import annotations

import re

from tessera_backend.device.module import STATIC_SHARED_LIMIT
from tessera_backend.llvm.emitter import LaneEmitter
from tessera_backend.llvm.lane import emit_kernel_body, lane_emitter
from tessera_backend.llvm.text import FunctionText, ModuleText
from tessera_backend.llvm.types import register_type
from tessera_backend.nvptx import warp
from tessera_backend.nvptx.architecture import Architecture
from tessera_backend.nvptx.dialect import NvptxDialect, shared_bytes
from tessera_lang.ir.core import Operation, PointerType, Value
from tessera_lang.record import dataclass
from tessera_lang.target.plan import LaunchPlan, Slot
from tessera_lang.types.dtype import DTYPES, DType

_HEADER = 'target triple = "nvptx64-nvidia-cuda"'
_EXIT = "exit"
_SHARED_ALIGN = 16


@dataclass(frozen=True, slots=True)
class KernelText:
    """LLVM text with the name of its entry and the shared memory it takes, in bytes."""

    text: str
    entry: str
    shared_bytes: int


def entry_name(kernel: str) -> str:
    """The symbol of a kernel: a prefix keeps it apart from every word of PTX and LLVM."""
    safe = re.sub(r"[^A-Za-z0-9_]", lambda m: f"_u{ord(m.group()):x}_", kernel)
    return f"tessera_{safe}"


def emit_kernel(operation: Operation, plan: LaunchPlan, arch: Architecture) -> KernelText:
    """The text of a ``tile.kernel``. Raises NotLowered where NVPTX cannot do an operation."""
    module, function = ModuleText(), FunctionText()
    total, pointers = _shared_memory(operation, module)
    group = _integers(operation.attributes["group"])
    grid_rank = operation.attributes["grid_rank"]
    if not isinstance(grid_rank, int):
        raise TypeError("grid_rank is an integer")
    dialect = NvptxDialect(arch, group, grid_rank, pointers)
    emitter = lane_emitter(module, function, dialect, plan.kernel)
    emitter.rules = {**emitter.rules, **warp.RULES}
    parameters = _bind_parameters(emitter, operation, plan)
    emit_kernel_body(emitter, operation.regions[0], _EXIT)
    function.place(_EXIT)
    function.terminate("ret void")
    entry = entry_name(plan.kernel)
    module.add_function(
        f"define ptx_kernel void @{entry}({', '.join(parameters)}) #0 {{\n{function.body()}\n}}"
    )
    lanes = ",".join(str(n) for n in reversed(group))
    footer = (
        f'attributes #0 = {{ norecurse nounwind "nvvm.reqntid"="{lanes}" }}\n'
        "attributes #1 = { convergent nocallback nounwind }"
    )
    return KernelText(module.render(_HEADER, footer), entry, total)


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
    return parameters


def _parameter(
    emitter: LaneEmitter, slot: Slot, argument: Value | None, name: str, plan: LaunchPlan
) -> str:
    if slot.kind == "data":
        return _pointer_parameter(emitter, slot, argument, name, plan)
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
    parameter = plan.parameters[slot.parameter]
    element = argument.type.dtype
    align = max(16, element.bytes) if parameter.aligned else element.bytes
    access = "" if parameter.mut else " readonly"
    return f"ptr addrspace(1) noalias{access} align {align} {name}"


def _shared_memory(operation: Operation, module: ModuleText) -> tuple[int, dict[Operation, str]]:
    """Globals for the shared allocations; above the static limit one external array.

    All start at multiples of 16 bytes, in order; the total is what a launch asks for. The
    globals are visible outside, so that LLVM takes no load behind a barrier for its own store.
    """
    offsets: list[tuple[Operation, int]] = []
    total = 0
    for op in operation.walk():
        if op.name == "tile.shared.alloc":
            offsets.append((op, total))
            total += -(-shared_bytes(op) // _SHARED_ALIGN) * _SHARED_ALIGN
    if total > STATIC_SHARED_LIMIT:
        module.add_global("shared", f"external addrspace(3) global [0 x i8], align {_SHARED_ALIGN}")
        base = "getelementptr inbounds (i8, ptr addrspace(3) @shared, i64 {})"
        return total, {op: base.format(offset) for op, offset in offsets}
    for index, (op, _) in enumerate(offsets):
        module.add_global(
            f"shared_{index}",
            f"addrspace(3) global [{max(shared_bytes(op), 1)} x i8] undef, align {_SHARED_ALIGN}",
        )
    return total, {op: f"@shared_{index}" for index, (op, _) in enumerate(offsets)}
