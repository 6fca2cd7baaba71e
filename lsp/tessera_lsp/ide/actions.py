"""Quick fixes: what diagnostics say would mend a place.

Owns the choice. Must not know LSP.
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera_lang.diagnostics import Diagnostic, Edit, Fix
from tessera_lang.driver.ignored import ignoring
from tessera_lang.record import dataclass
from tessera_lang.source import Span
from tessera_lsp.ide.document import Document


@dataclass(frozen=True, slots=True)
class QuickFix:
    """A fix and the diagnostic that it mends."""

    diagnostic: Diagnostic
    fix: Fix


def quick_fixes(
    document: Document, start: int, end: int, said: Iterable[Diagnostic]
) -> list[QuickFix]:
    """The fixes of diagnostics where a range of the file touches them or what they change, safe
    ones first; at last comments that ignore them. ``said``: what is said of the file."""
    own = [d for d in said if d.span is not None and d.span.file == document.path]
    found = [
        QuickFix(d, fix)
        for d in own
        for fix in d.fixes
        if any(
            span.file == document.path and span.lo <= end and start <= span.hi
            for span in (d.span, *(edit.span for edit in fix.edits))
            if span is not None
        )
    ]
    found.sort(key=lambda q: q.fix.applicability != "safe")
    for d in own:
        assert d.span is not None
        if d.severity != "error" and d.code != "P1007" and _touches(d.span, start, end):
            found.append(QuickFix(d, ignoring(document.file, d.code, d.span.lo)))
    return found


def _touches(span: Span, start: int, end: int) -> bool:
    return span.lo <= end and start <= span.hi


def safe_edits(document: Document, said: Iterable[Diagnostic]) -> list[Edit]:
    """The edits of the safe fixes of a file that touch no other's."""
    taken: list[Edit] = []
    for d in said:
        for fix in d.fixes:
            here = all(e.span.file == document.path for e in fix.edits)
            meets = any(
                a.span.lo == b.span.lo or (a.span.lo < b.span.hi and b.span.lo < a.span.hi)
                for a in fix.edits for b in taken
            )  # fmt: skip
            if fix.applicability == "safe" and here and not meets:
                taken.extend(fix.edits)
                break
    return taken
