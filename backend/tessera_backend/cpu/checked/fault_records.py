"""What checked mode finds in a run. Must not know how it is shown."""

from __future__ import annotations

from tessera_lang.source import Span


class CheckedFault(Exception):
    """``span`` is where it is, ``other`` where the earlier access is. ``details`` are sentences.
    ``endless``: lanes are in a loop that may end where lanes run in another order."""

    def __init__(
        self, message: str, span: Span | None, other: Span | None = None,
        details: tuple[str, ...] = (), endless: bool = False,
    ) -> None:  # fmt: skip
        self.message = message
        self.span = span
        self.other = other
        self.details = details
        self.endless = endless
        super().__init__(message)
