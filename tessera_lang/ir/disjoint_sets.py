"""Classes of equal things that grow together: union-find.

Owns the one implementation. Must not know what the elements are.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class DisjointSets(Generic[T]):
    """An element that nobody has named is a class of its own."""

    def __init__(self) -> None:
        self._parents: dict[T, T] = {}

    def representative(self, element: T) -> T:
        """The one element that stands for the class; of two that are united the first one's."""
        at = start = element
        while (up := self._parents.get(at, at)) is not at:
            at = up
        while start is not at:  # the next one who asks is there at once
            up = self._parents.get(start, start)
            self._parents[start] = at
            start = up
        return at

    def unite(self, a: T, b: T) -> None:
        """The two are of one class."""
        x, y = self.representative(a), self.representative(b)
        if x != y:
            self._parents[y] = x
