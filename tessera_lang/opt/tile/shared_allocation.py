"""Shared memory: the pass ``shrink_shared``, how much a kernel takes, and the budget check.

Owns T0501 and T0502, and at which byte each buffer begins. Must not know how buffers are
addressed on a target.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import cast

from tessera_lang.analysis import ranges
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import BarrierType, BufferType, Operation, Program, Value
from tessera_lang.ir.definitions import SHARED_ALLOCATIONS
from tessera_lang.ir.rewrite import replace_values_in_program
from tessera_lang.record import replace
from tessera_lang.target.arch.isa_constants import VECTOR_BYTES

ALIGNMENT = VECTOR_BYTES
SWIZZLE_ALIGNMENT = 1024
"""The swizzle of the hardware goes by address bits, so its buffers begin where they are 0."""

_BARRIER_BYTES = 8


def buffer_bytes(buffer: BufferType) -> int:
    if buffer.layout is not None:
        return buffer.layout.bytes(buffer.shape, buffer.dtype.bytes)
    return prod(buffer.shape) * buffer.dtype.bytes


def buffer_alignment(allocation: Operation) -> int:
    """Bytes of which the address of an allocation is a multiple."""
    t = allocation.result.type
    swizzled = isinstance(t, BufferType) and t.layout is not None and t.layout.swizzle
    return SWIZZLE_ALIGNMENT if swizzled else ALIGNMENT


def shared_offsets(kernel: Operation) -> tuple[int, dict[Operation, int]]:
    """Bytes of all buffers and barriers of a kernel, and where each begins.

    Those that say their ``offset`` are there; the others follow, buffers with a swizzle first,
    so that nothing is lost between them.
    """
    offsets: dict[Operation, int] = {}
    total = 0
    rest: list[Operation] = []
    for op in _allocations(kernel, barriers=True):
        said = op.attributes.get("offset")
        if isinstance(said, int):
            offsets[op] = said
            total = max(total, said + _size(op))
        else:
            rest.append(op)
    for op in sorted(rest, key=buffer_alignment, reverse=True):
        step = buffer_alignment(op)
        offsets[op] = total = -(-total // step) * step
        total += _size(op)
    return -(-total // ALIGNMENT) * ALIGNMENT, offsets


def shared_bytes(kernel: Operation) -> int:
    """Bytes of all buffers and barriers of a kernel."""
    return shared_offsets(kernel)[0]


def _allocations(kernel: Operation, barriers: bool = False) -> list[Operation]:
    names = SHARED_ALLOCATIONS if barriers else {"tile.shared.alloc"}
    return kernel.nested(names)


def _size(allocation: Operation) -> int:
    t = allocation.result.type
    if isinstance(t, BarrierType):
        return t.count * _BARRIER_BYTES
    return buffer_bytes(cast("BufferType", t))


def shrink_shared(program: Program) -> Program:
    """Give each buffer of one axis no more elements than can be touched.

    Needs ``prove_bounds`` before it. Nothing can tell the difference: an access that might
    be outside keeps its buffer whole, since its guard compares with the extent.
    """
    smaller: dict[Value, Value] = {}
    for kernel in program.operations:
        buffers = [o.result for o in _allocations(kernel)]
        flat = [b for b in buffers if len(cast("BufferType", b.type).shape) == 1]
        touched = ranges(kernel, wanted={"touched"}).touched if flat else {}
        for buffer in flat:
            t = cast("BufferType", buffer.type)
            if 0 < (cells := touched.get(buffer, 0)) < t.shape[0]:
                smaller[buffer] = Value(replace(t, shape=(cells,)), buffer.name)
    if not smaller:
        return program
    return _with_results(replace_values_in_program(program, smaller), smaller)


def _with_results(program: Program, to: Mapping[Value, Value]) -> Program:
    """Allocations of ``to`` with their new results."""
    kernels: list[Operation] = []
    for kernel in program.operations:
        (region,) = kernel.regions
        operations = tuple(
            replace(o, results=(to[o.result],))
            if o.name == "tile.shared.alloc" and o.result in to
            else o
            for o in region.operations
        )
        kernels.append(replace(kernel, regions=(replace(region, operations=operations),)))
    return replace(program, operations=tuple(kernels))


def check_shared_budget(
    kernel: Operation, limit: int | None = None, target: str = ""
) -> tuple[Diagnostic, ...]:
    """Over the budget of ``shared(...)``, or over ``limit`` bytes of the target.

    The budget holds for what the source asks for, so before ``shrink_shared`` and without what
    the compiler takes for itself; the limit of a target for what is left behind it.
    """
    used = shared_bytes(kernel)
    own = sum(_size(o) for o in _allocations(kernel) if o.attributes.get("scratch"))
    budget = cast("int", kernel.attributes["shared_budget"])
    found: list[Diagnostic] = []
    if 0 <= budget < used - own:
        found.append(
            _over(
                kernel, used, "T0501", f"`shared(...)` allows {budget} bytes",
                "raise the budget in `shared(...)`, or allocate less",
            )
        )  # fmt: skip
    if limit is not None and limit < used:
        found.append(
            _over(
                kernel, used, "T0502", f"a group has {limit} bytes on {target or 'the target'}",
                "allocate less, or make the tiles of a tile kernel smaller",
            )
        )  # fmt: skip
    return tuple(found)


def _over(kernel: Operation, used: int, code: str, bound: str, help_text: str) -> Diagnostic:
    allocations = _allocations(kernel)
    widest = max(len(_name(o)) for o in allocations)
    rows = [
        f"{_name(o):<{widest}}  {cast('BufferType', o.result.type).dtype}"
        f"[{', '.join(map(str, cast('BufferType', o.result.type).shape))}]  {_size(o)} bytes"
        for o in allocations
    ]
    largest = max(allocations, key=_size)
    return Diagnostic(
        code,
        f"the kernel needs {used} bytes of shared memory, and {bound}",
        largest.span or kernel.span,
        f"{_size(largest)} bytes here",
        notes=tuple(rows),
        helps=(help_text,),
    )


def _name(allocation: Operation) -> str:
    return str(allocation.attributes["name"])
