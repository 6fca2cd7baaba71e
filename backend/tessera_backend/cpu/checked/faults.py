"""What checked mode finds in a run. Must not know how it is shown."""

from __future__ import annotations

from tessera_lang.ir.core import Operation


class CheckedFault(Exception):
    """``operation`` is at fault, with what ``other`` did before. ``details`` are sentences."""

    def __init__(
        self, message: str, operation: Operation, other: Operation | None = None,
        details: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.message = message
        self.operation = operation
        self.other = other
        self.details = details
        super().__init__(message)


class NotChecked(Exception):
    """An operation that checked mode has no meaning for."""
