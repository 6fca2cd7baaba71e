"""Which warnings of a compiled kernel are told to whoever compiles or launches it.

Owns the choice, each once. Must not know how they are shown.
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.record import replace

_IN_ORDER = ("T0705", "T0706")
ONE_GROUP = "T0750"
LOOPS_OF_LANES = "T0747"


PLACES_BELOW_0 = "T0624"


def told_anywhere(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The warnings that have nothing to do with the device."""
    return tuple(d for d in dict.fromkeys(diagnostics) if d.code == PLACES_BELOW_0)


def told(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """These, and the warnings about the form of a kernel. What keeps a loop in order is said with
    what it leads to, where that is one group."""
    found = [d for d in dict.fromkeys(diagnostics) if d.severity == "warning"
             and (d.code.startswith("T07") or d.code == PLACES_BELOW_0)]  # fmt: skip
    alone = next((d for d in found if d.code == ONE_GROUP), None)
    if alone is None:
        return tuple(found)
    causes = [d for d in found if d.code in _IN_ORDER and _overlap(d, alone)]
    if not causes:
        return tuple(found)
    first = causes[0]
    merged = replace(
        alone, labels=first.labels, notes=(first.message, *first.notes, *alone.notes[1:]),
        helps=first.helps or alone.helps,
    )  # fmt: skip
    return tuple(merged if d is alone else d for d in found if d not in causes)


def _overlap(a: Diagnostic, b: Diagnostic) -> bool:
    """Whether two speak of one loop: of spans of one file, one of which begins in the other."""
    if a.span is None or b.span is None or a.span.file != b.span.file:
        return False
    return a.span.lo <= b.span.lo < a.span.hi or b.span.lo <= a.span.lo < b.span.hi
