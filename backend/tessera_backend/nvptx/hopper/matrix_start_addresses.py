"""Addresses in shared memory that the hardware's engines take: where a matrix begins.

Owns the sum of a buffer's base, its stage and its panel, constants apart from the rest. What
lies at a start must not be moved by the swizzle: starts fall on whole lines of eight. Must not
know operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tessera_backend.llvm.emitter import LaneEmitter
from tessera_lang.ir.core import BufferType, Value
from tessera_lang.ir.layout import SharedLayout
from tessera_lang.record import dataclass


@dataclass(frozen=True, slots=True)
class Offset:
    """Bytes as a constant and terms ``operand * factor`` (i32 operands)."""

    constant: int
    terms: tuple[tuple[str, int], ...]

    def units(self, e: LaneEmitter, size: int) -> str:
        """The terms alone as a multiple of ``size`` bytes: an i32 operand, "" without terms."""
        total = ""
        for operand, factor in self.terms:
            if factor % size:
                raise ValueError(f"a step of {factor} bytes is no multiple of {size}")
            scaled = operand
            if factor != size:
                scaled = e.f.value(f"mul nuw nsw i32 {operand}, {factor // size}")
            total = e.f.value(f"add nuw nsw i32 {total}, {scaled}") if total else scaled
        return total


def offset_of(e: LaneEmitter, buffer: BufferType, starts: Sequence[Value]) -> Offset:
    """Where the element at ``starts`` (one an axis) lies in its buffer."""
    element, shape = buffer.dtype.bytes, buffer.shape
    layout = buffer.layout or SharedLayout()
    panels, lines, width, pitch = layout.geometry(shape)
    factors: list[int] = []
    if len(shape) == 1:
        factors = [element]
    else:
        matrix = layout.matrix_bytes(shape, element)
        factors = [prod(shape[axis + 1 : -2]) * matrix for axis in range(len(shape) - 2)]
        both = [pitch * element, element]
        factors += both if layout.major == 1 else both[::-1]
    contiguous = len(shape) - 1 if layout.major == 1 or len(shape) == 1 else len(shape) - 2
    constant = 0
    terms: list[tuple[str, int]] = []
    for axis, (start, factor) in enumerate(zip(starts, factors, strict=True)):
        known = e.constant(start)
        panelled = axis == contiguous and panels > 1
        panel_bytes = lines * pitch * element
        if known is not None:
            panel, within = divmod(known, width) if panelled else (0, known)
            constant += panel * panel_bytes + within * factor
            continue
        number = e.f.value(f"trunc i64 {e.operand(start)} to i32")
        if panelled:
            terms.append((e.f.value(f"udiv i32 {number}, {width}"), panel_bytes))
            number = e.f.value(f"urem i32 {number}, {width}")
        terms.append((number, factor))
    return Offset(constant, tuple(terms))


def address_of(e: LaneEmitter, buffer: Value, starts: Sequence[Value]) -> str:
    """The address (``ptr addrspace(3)``) of the element at ``starts``."""
    t = buffer.type
    if not isinstance(t, BufferType):
        raise TypeError("a shared buffer was expected")
    return moved(e, e.places[buffer].pointer, offset_of(e, t, starts))


def moved(e: LaneEmitter, pointer: str, offset: Offset) -> str:
    """``pointer`` and ``offset``."""
    step = "getelementptr inbounds i8, ptr addrspace(3)"
    if offset.constant:
        pointer = e.f.value(f"{step} {pointer}, i32 {offset.constant}")
    dynamic = offset.units(e, 1)
    return e.f.value(f"{step} {pointer}, i32 {dynamic}") if dynamic else pointer
