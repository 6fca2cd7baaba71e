"""Tiles of a fused loop, as text.

Owns how a tile is spelt beside others. Must not know what is computed.
"""

from __future__ import annotations

from tessera_lang.lower.graph_to_kernels.terms import NotFused
from tessera_lang.lower.graph_to_kernels.windows import Windows, labels_of
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import F32, DType


@dataclass(frozen=True, slots=True)
class Part:
    """A tile of a value, or a number (no labels), as text; floats of 16 bits are ``narrow`` only
    where they were just read."""

    text: str
    labels: tuple[str, ...]
    dtype: DType


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
