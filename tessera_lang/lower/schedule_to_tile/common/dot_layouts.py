"""How a product is computed: fragments and layouts, as an engine answers.

Owns the record. Must not know operations or machines.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.ir.layout import RegisterLayout
from tessera_lang.record import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """How one ``dot`` is computed: ``multiples`` of rows, columns and contraction that its tiles
    are padded to, and the layouts of accumulator, left and right operand for padded shapes
    (rank 2: ``m x n``, ``m x k``, ``k x n``). ``left`` and ``right`` are None where the operand
    is read from a buffer only."""

    unit: str
    multiples: tuple[int, int, int]
    accumulator: Callable[[Shape], RegisterLayout]
    left: Callable[[Shape], RegisterLayout] | None = None
    right: Callable[[Shape], RegisterLayout] | None = None
    step: int = 1  # contraction of one instruction
