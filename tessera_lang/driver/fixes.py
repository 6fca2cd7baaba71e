"""Applies the fixes of diagnostics to a file, and takes back what does not help.

Owns which fixes go together and how their effect is judged. Must not know how a file is
written. The session holds each try as an unsaved text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tessera_lang.diagnostics import Diagnostic, Edit, Fix
from tessera_lang.record import dataclass

if TYPE_CHECKING:
    from tessera_lang.driver.session import Session

ROUNDS = 10
_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Fixed:
    """A file's text after its fixes; ``remaining`` is what is still wrong with it."""

    text: str
    applied: tuple[str, ...]
    remaining: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class _Try:
    diagnostic: Diagnostic
    fix: Fix

    @property
    def key(self) -> tuple[str, str, str]:
        """What a fix is known by when the text around it has moved."""
        return (self.diagnostic.code, self.diagnostic.message, self.fix.title)


def apply_fixes(session: Session, path: str, unsafe: bool = False) -> Fixed:
    """Apply the fixes of a file's diagnostics that are safe, or all, until none is left.

    A fix is kept if its diagnostic is gone and no error came that was not there before.
    """
    path = session.files.spelling(path)
    applied: list[str] = []
    refused: set[tuple[str, str, str]] = set()
    for _ in range(ROUNDS):
        found = session.check(path)
        tries = _together(path, found, unsafe, refused)
        if not tries:
            break
        text = session.source(path).text
        if _attempt(session, path, text, tries, found) is not None:
            applied += [t.fix.title for t in tries]
        else:
            applied += _one_by_one(session, path, tries, found, refused)
    return Fixed(session.source(path).text, tuple(applied), session.check(path))


def _together(
    path: str, found: Iterable[Diagnostic], unsafe: bool, refused: set[tuple[str, str, str]]
) -> list[_Try]:
    """The first fix of each diagnostic, of this file alone, that touches no other's edits."""
    tries: list[_Try] = []
    taken: list[Edit] = []
    for diagnostic in found:
        for fix in diagnostic.fixes:
            step = _Try(diagnostic, fix)
            allowed = unsafe or fix.applicability == "safe"
            here = all(e.span.file == path for e in fix.edits)
            if not (allowed and here and fix.edits) or step.key in refused:
                continue
            if any(_touch(a, b) for a in fix.edits for b in taken):
                continue
            taken.extend(fix.edits)
            tries.append(step)
            break
    return tries


def _touch(a: Edit, b: Edit) -> bool:
    """Whether two edits change the same text, or insert at one place."""
    if a.span.lo == b.span.lo:
        return True
    return a.span.lo < b.span.hi and b.span.lo < a.span.hi


def edited(text: str, edits: Sequence[Edit]) -> str:
    """A text after edits that do not overlap."""
    for edit in sorted(edits, key=lambda e: e.span.lo, reverse=True):
        text = text[: edit.span.lo] + edit.replacement + text[edit.span.hi :]
    return text


def _attempt(
    session: Session, path: str, text: str, tries: Sequence[_Try], before: Iterable[Diagnostic]
) -> tuple[Diagnostic, ...] | None:
    """What is wrong after some fixes; None, with the old text back, where they do not help."""
    new = edited(text, [e for t in tries for e in t.fix.edits])
    session.set_text(path, new)
    after = session.check(path)
    if _helped(tries, before, after):
        return after
    session.set_text(path, text)
    session.parsed(path)  # puts the places of what stands behind back too
    return None


def _helped(
    tries: Sequence[_Try], before: Iterable[Diagnostic], after: Iterable[Diagnostic]
) -> bool:
    old, new = Counter(map(_key, before)), Counter(map(_key, after))
    gone = Counter(_key(t.diagnostic) for t in tries)
    if any(new[key] > old[key] - count for key, count in gone.items()):
        return False
    errors = Counter(_key(d) for d in after if d.severity == "error")
    return all(count <= old[key] for key, count in errors.items())


def _key(d: Diagnostic) -> _Key:
    return (d.code, d.message)


def _one_by_one(
    session: Session, path: str, tries: Sequence[_Try], found: tuple[Diagnostic, ...],
    refused: set[tuple[str, str, str]],
) -> list[str]:  # fmt: skip
    """Each fix by itself, from the last one in the text to the first, so that places hold."""
    kept: list[str] = []
    ordered = sorted(tries, key=lambda t: max(e.span.lo for e in t.fix.edits), reverse=True)
    separate = all(
        min(e.span.lo for e in a.fix.edits) > max(e.span.hi for e in b.fix.edits)
        for a, b in pairwise(ordered)
    )
    for step in ordered if separate else ordered[:1]:
        after = _attempt(session, path, session.source(path).text, (step,), found)
        if after is None:
            refused.add(step.key)
        else:
            found = after
            kept.append(step.fix.title)
    return kept
