"""Tiles of a fused loop, as text.

Owns how a tile is spelt beside others. Must not know what is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tessera_lang.evaluate.arithmetic import round_float
from tessera_lang.ir.core import Operation
from tessera_lang.lower.graph_to_kernels.indexing_maps import Windows, labels_of, sizes_of
from tessera_lang.lower.graph_to_kernels.reduction_terms import NotFused, Term
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import F32, DType


@dataclass(frozen=True, slots=True)
class Part:
    """A tile of a value, or a number (no labels), as text; floats of 16 bits are ``narrow`` only
    where they were just read."""

    text: str
    labels: tuple[str, ...]
    dtype: DType


@dataclass(slots=True, eq=False)
class Running:
    """A reduction that the loop computes: the variable it is in, the terms of the axis that stand
    behind the loop. ``scaled``: what it is before the end is relative to a running divisor."""

    name: str
    labels: tuple[str, ...]
    dtype: DType
    pulled: tuple[Term, ...]
    scaled: bool = False


def wide_of(dtype: DType) -> DType:
    return F32 if dtype.is_float and dtype.bits < 32 else dtype


def number_text(value: float, dtype: DType) -> str:
    return f"{dtype}({float(value)!r})"


def turned(text: str, windows: Windows, dtype: DType) -> Part:
    """What is read has the axes of the array; tiles have an order of their own."""
    have = tuple(w.label for w in windows if w.label)
    labels = labels_of(windows)
    if have == labels:
        return Part(text, labels, dtype)
    if len(labels) != 2:
        raise NotFused("an array of three axes in a tile lies in another order")
    return Part(f"{text}.T", labels, dtype)


def aligned(part: Part, labels: tuple[str, ...]) -> str:
    """A part beside others that have these axes."""
    if part.labels == labels or not part.labels:
        return part.text
    at = ", ".join(":" if x in part.labels else "None" for x in labels)
    return f"{part.text}[{at}]"


def number_part(operation: Operation) -> Part:
    """The number that all elements of a value are."""
    dtype = operation.result.tensor_type.dtype
    value = cast("float", operation.attributes["value"])
    if not dtype.is_float:
        return Part(str(value) if dtype.bits == 1 else f"{dtype}({value})", (), dtype)
    return Part(number_text(round_float(float(value), dtype), wide_of(dtype)), (), wide_of(dtype))


def places_part(operation: Operation, windows: Windows, size: Callable[[int], str]) -> Part:
    """The places along an axis; ``size``: how sizes are spelt."""
    (window,) = windows
    dtype = operation.result.tensor_type.dtype
    if not window.label:
        text = f"{dtype}({window.index})"
    elif window.capacity:
        start = window.index.split(":")[0]
        text = f"({start} + op.arange({window.capacity}))"
        text = text if dtype.name in ("i32", "i64") else f"{text}.to({dtype})"
    else:
        text = f"op.arange({size(sizes_of(operation.result)[0])})"  # has its room
    return Part(text, labels_of(windows), dtype)
