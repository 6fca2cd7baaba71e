"""Diagnostic values, the table of codes, rendering."""

from tessera_lang.diagnostics.diagnostic import (
    Diagnostic,
    Edit,
    Fix,
    Label,
    Severity,
    Sink,
    TesseraError,
)

__all__ = ["Diagnostic", "Edit", "Fix", "Label", "Severity", "Sink", "TesseraError"]
