"""Faults of ours on their way to a report.

Owns the exception that says which stage failed with what in its hands. Must not know how a
report is written (``crash_report.py``).
"""

from __future__ import annotations

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.source import Span


class InternalFault(Exception):
    """The compiler failed: ``stage`` names where, ``program`` is the IR before it."""

    def __init__(
        self, code: str, message: str, *, stage: str = "", program: str = "",
        span: Span | None = None,
    ) -> None:  # fmt: skip
        self.code = code
        self.stage = stage
        self.program = program
        self.span = span
        super().__init__(message)

    def diagnostic(self) -> Diagnostic:
        """The fault as a user sees it."""
        return Diagnostic(
            self.code, str(self), self.span,
            notes=("this is a fault of the compiler, not of your program",),
            helps=("please report it; `tesserac` writes a report file that you can attach",),
        )  # fmt: skip
