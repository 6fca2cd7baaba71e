"""Positions in source text.

Owns spans and the anchors they hang on. Must not know text, files on disk or how a
position is shown: lines and columns are made at the edge (``file.py``).

Offsets are indices into the decoded text (Python ``str`` indices), not bytes: that is
what every stage here holds in its hand. UTF-8 and UTF-16 columns are made at the edge.
"""

from __future__ import annotations

from tessera_lang.record import dataclass


@dataclass(slots=True, eq=False)
class Anchor:
    """The start of one declaration in one file.

    Spans are relative to an anchor, so that a declaration whose text did not change
    keeps its tree, its types and its diagnostics when lines above it move: only
    ``offset`` is updated.
    """

    file: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of text; ``start`` and ``end`` are relative to ``anchor``."""

    anchor: Anchor
    start: int
    end: int

    @property
    def file(self) -> str:
        return self.anchor.file

    @property
    def lo(self) -> int:
        """Absolute offset of the first character."""
        return self.anchor.offset + self.start

    @property
    def hi(self) -> int:
        """Absolute offset behind the last character."""
        return self.anchor.offset + self.end

    def to(self, other: Span) -> Span:
        """The smallest span of this anchor that covers both."""
        shift = other.anchor.offset - self.anchor.offset
        return Span(
            self.anchor,
            min(self.start, other.start + shift),
            max(self.end, other.end + shift),
        )
