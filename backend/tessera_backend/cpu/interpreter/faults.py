"""What the machine finds: two operations that nothing orders, or one that cannot go on.

Must not know how it is shown.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation
from tessera_lang.ir.printer import print_operations


class AsynchronousFault(Exception):
    """``operation`` breaks the asynchronous model, by what ``other`` has begun."""

    def __init__(
        self, message: str, operation: Operation | None = None, other: Operation | None = None
    ) -> None:
        self.message = message
        self.operation = operation
        self.other = other
        lines = [message, *(f"  {shown(o)}" for o in (operation, other) if o is not None)]
        super().__init__("\n".join(lines))


class Unsupported(AsynchronousFault):
    """An operation that this machine has no meaning for."""


def shown(operation: Operation) -> str:
    """The first line of an operation as the printer writes it."""
    return print_operations((operation,))[0].strip()
