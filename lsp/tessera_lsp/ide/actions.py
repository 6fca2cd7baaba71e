"""Quick fixes: what diagnostics say would mend a place.

Owns the choice. Must not know LSP.
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera_lang.diagnostics import Diagnostic, Fix
from tessera_lang.record import dataclass
from tessera_lsp.ide.document import Document


@dataclass(frozen=True, slots=True)
class QuickFix:
    """A fix and the diagnostic that it mends."""

    diagnostic: Diagnostic
    fix: Fix


def quick_fixes(
    document: Document, start: int, end: int, said: Iterable[Diagnostic]
) -> list[QuickFix]:
    """The fixes of diagnostics that a range of the file touches, safe ones first. ``said``: what
    is said of the file."""
    found = [
        QuickFix(d, fix)
        for d in said
        if d.span is not None
        and d.span.file == document.path
        and d.span.lo <= end
        and start <= d.span.hi
        for fix in d.fixes
    ]
    return sorted(found, key=lambda q: q.fix.applicability != "safe")
