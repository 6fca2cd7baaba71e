"""What the lowering to register tiles cannot do, as a value that the driver answers."""

from __future__ import annotations

from tessera_lang.source import Span


class NotTiled(Exception):
    """A program that has no form with register tiles; another lowering takes it.

    ``reason`` is a clause that stands behind "not lowered to register tiles: "; ``instead`` says
    what to write.
    """

    def __init__(self, reason: str, span: Span | None = None, instead: str = "") -> None:
        self.reason = reason
        self.span = span
        self.instead = instead
        super().__init__(reason)
