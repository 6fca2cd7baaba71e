"""What checks found in programs, kept by what they looked at.

Owns the places of what is found again: a program that is the same but for where its operations
stand has the same faults, at other places. Must not know what is looked at, nor who looks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Program
from tessera_lang.record import dataclass, field, replace
from tessera_lang.source import Span

Places = tuple[Span | None, ...]
"""Where each operation of a program stands, in the order of a walk."""
_Moved = dict[Span | None, Span | None]


@dataclass(slots=True)
class Findings:
    """The last ``most`` findings; ``text`` of a program with all else that was looked at but where
    operations stand, which is ``places``."""

    most: int = 64
    _known: dict[bytes, tuple[Places, tuple[Diagnostic, ...]]] = field(
        default_factory=dict[bytes, tuple[Places, tuple[Diagnostic, ...]]]
    )

    def __len__(self) -> int:
        return len(self._known)

    def get(self, text: str, places: Places) -> tuple[Diagnostic, ...] | None:
        """What was found in such a program, at its places; None where it is to be looked at."""
        key = _digest(text)
        known = self._known.pop(key, None)
        if known is None:
            return None
        self._known[key] = known  # the last that was asked for
        before, found = known
        if before == places:
            return found
        moved = _moves(before, places)
        there = moved and _at(found, moved)
        return there if isinstance(there, tuple) else None

    def put(self, text: str, places: Places, found: tuple[Diagnostic, ...]) -> None:
        key = _digest(text)
        self._known.pop(key, None)
        self._known[key] = places, found
        if len(self._known) > self.most:
            del self._known[next(iter(self._known))]


@dataclass(slots=True)
class Kept:
    """What was found in the programs of a file, and in programs that were like one of them."""

    of: dict[Program, tuple[Diagnostic, ...]]
    alike: Findings


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _moves(before: Places, after: Places) -> _Moved | None:
    """Where each place is now. None where operations that stood at one place no longer do, or come
    in another order: what is said first, and what is said once, may differ then."""
    if len(before) != len(after):
        return None
    moved: _Moved = {}
    for old, new in zip(before, after, strict=True):
        if moved.setdefault(old, new) != new:
            return None
    ordered = sorted((s for s in moved if s is not None), key=_place)
    behind = [moved[s] for s in ordered]
    if None in behind or len(set(behind)) != len(behind) or moved.get(None) is not None:
        return None
    places = [_place(s) for s in behind if s is not None]
    return moved if places == sorted(places) else None


def _place(span: Span) -> tuple[str, int, int]:
    return span.file, span.lo, span.hi


def _at(found: Sequence[Diagnostic], moved: _Moved) -> tuple[Diagnostic, ...] | None:
    """The diagnostics at the new places; None where one speaks of another place."""
    told: list[Diagnostic] = []
    for d in found:
        spans = [d.span, *(label.span for label in d.labels)]
        if d.fixes or not all(s in moved for s in spans):
            return None
        labels = (replace(label, span=moved[label.span]) for label in d.labels)
        told.append(replace(d, span=moved[d.span], labels=tuple(labels)))
    return tuple(told)
