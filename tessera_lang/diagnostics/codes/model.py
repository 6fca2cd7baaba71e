"""What a diagnostic code is: the row of a table.

Owns the row only; each ``tNN.py`` beside this file holds the rows of one range.
"""

from __future__ import annotations

from tessera_lang.record import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """``code`` is stable and never reused; ``slug`` is its name in words with hyphens."""

    code: str
    slug: str
    summary: str
