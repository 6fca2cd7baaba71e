"""What samples of one quantity say: the median, its confidence interval, the spread.

Nothing is assumed of the distribution: times have a hard lower end and a long tail. Must not know
what was measured.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tessera_lang.record import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of samples, in their unit. ``low`` and ``high`` bound the median with a confidence of at
    least 95 % where ``confident``; otherwise there are too few samples for that, and they are the
    least and the largest one. ``spread`` is the distance of the quartiles over the median."""

    median: float
    low: float
    high: float
    spread: float
    least: float
    confident: bool

    def is_within(self, precision: float) -> bool:
        """Whether the median is known to this part of itself, up and down."""
        return self.confident and self.high - self.low <= 2 * precision * self.median


def estimate(samples: Sequence[float]) -> Estimate:
    """Of at least one sample."""
    ordered = sorted(samples)
    count = len(ordered)
    rank = _outer_rank(count)
    median = quantile(ordered, 0.5)
    distance = quantile(ordered, 0.75) - quantile(ordered, 0.25)
    return Estimate(
        median, ordered[max(rank - 1, 0)], ordered[min(count - rank, count - 1)],
        distance / median if median else 0.0, ordered[0], rank > 0,
    )  # fmt: skip


def quantile(ordered: Sequence[float], part: float) -> float:
    """Between the two samples nearest to the part, in proportion."""
    at = part * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


@functools.lru_cache(maxsize=4096)
def _outer_rank(count: int) -> int:
    """The largest rank r such that the r-th sample from either end bounds the median: fewer than r
    of ``count`` samples lie on one side of it with a chance of at most 2.5 %, which is a sum of
    binomial coefficients. 0 where there is no such rank."""
    whole, term, below, rank = 1 << count, 1, 0, 0
    while True:
        below += term
        if 2 * below > (1 - CONFIDENCE) * whole:
            return rank
        term = term * (count - rank) // (rank + 1)
        rank += 1
