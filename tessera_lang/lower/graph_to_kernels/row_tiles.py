"""How many rows a kernel of short rows takes at once.

Owns the size of such a tile. Must not know what is computed of the rows.
"""

from __future__ import annotations

from tessera_lang.lower.graph_to_kernels.cascaded_reductions import StreamKernel
from tessera_lang.target.tuned_constants import (
    BYTES_OF_HELD_ROWS,
    ROWS_OF_A_PRODUCT,
    ROWS_OF_A_TILE,
)


def usual_rows(length: int) -> int:
    """Of rows of a length, a power of two."""
    return _power_of_two(ROWS_OF_A_TILE // length)


def most_rows(kernel: StreamKernel, length: int) -> int:
    """Of a kernel: with a product, lines have many elements however short the rows are, and where
    values are not in registers each has memory of its own."""
    count = len(kernel.before) + len(kernel.body) + len(kernel.behind)
    bits = max((v.tensor_type.dtype.bits for v in kernel.arguments), default=32)
    words = max(1, bits // 32)
    of_row = (1 << (length - 1).bit_length()) * 4 * words * max(1, count)
    most = BYTES_OF_HELD_ROWS // of_row
    if kernel.products:
        most = min(most, ROWS_OF_A_PRODUCT // words)
    return _power_of_two(most)


def _power_of_two(most: int) -> int:
    return 1 << (max(1, most).bit_length() - 1)
