"""Arrays of which every element belongs to one lane of the grid: nobody meets there.

Must not know passes, syntax or targets.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Value


def owned(kernel: Operation) -> set[Value]:
    """The pointers of such arrays."""
    return set()
