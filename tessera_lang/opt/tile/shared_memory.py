"""Shared memory: the pass ``shrink_shared``, how much a kernel takes, and the budget check.

Owns T0501 and T0502. Must not know how buffers are addressed on a target.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import cast

from tessera_lang.analysis import ranges
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import BufferType, Operation, Program, Value
from tessera_lang.ir.rewrite import replace_values_in_program
from tessera_lang.opt.passes import Pass
from tessera_lang.record import replace

ALIGNMENT = 16


def buffer_bytes(buffer: BufferType) -> int:
    return prod(buffer.shape) * buffer.dtype.bytes


def shared_bytes(kernel: Operation) -> int:
    """Bytes of all buffers of a kernel, each at a multiple of 16."""
    return sum(-(-_size(o) // ALIGNMENT) * ALIGNMENT for o in _allocations(kernel))


def _allocations(kernel: Operation) -> list[Operation]:
    return [o for o in kernel.walk() if o.name == "tile.shared.alloc"]


def _size(allocation: Operation) -> int:
    return buffer_bytes(cast("BufferType", allocation.result.type))


def shrink_shared(program: Program) -> Program:
    """Give each buffer of one axis no more elements than can be touched.

    Needs ``prove_bounds`` before it. Nothing can tell the difference: an access that might
    be outside keeps its buffer whole, since its guard compares with the extent.
    """
    smaller: dict[Value, Value] = {}
    for kernel in program.operations:
        found = ranges(kernel)
        for allocation in _allocations(kernel):
            buffer = allocation.result
            t = cast("BufferType", buffer.type)
            cells = found.touched.get(buffer)
            if cells is not None and len(t.shape) == 1 and 0 < cells < t.shape[0]:
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

    The budget holds for what the source asks for, so before ``shrink_shared``; the limit of
    a target for what is left behind it.
    """
    used = shared_bytes(kernel)
    budget = cast("int", kernel.attributes["shared_budget"])
    found: list[Diagnostic] = []
    if 0 <= budget < used:
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
                "allocate less",
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


SHRINK_SHARED = Pass("shrink_shared", "tile", "tile", shrink_shared)
