"""Several calls measured in turn: A B C, B C A, C A B, until each median is known well enough.

So whatever drifts (a clock that goes down, another program) meets all of them alike. Must not know
arrays or kernels.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from tessera_backend.measure.clocks import Call, Clock, Sample
from tessera_backend.measure.statistics import Estimate, estimate
from tessera_lang.record import dataclass

LEAST_ROUNDS, MOST_ROUNDS = 11, 1000
_WARM_UP = 0.25  # of the time for a call
_STEADY = 0.95  # of the best so far: what was not this much faster has settled
_GROWTH = 10


@dataclass(frozen=True, slots=True)
class Timing:
    """What was measured of one call. ``samples``: seconds of a call, each the mean of ``calls``
    calls; ``estimate`` is of them. ``reached``: whether the median is known to the precision asked
    for. ``host_bound``: whether a device waited for the host, so that this is the host's time."""

    samples: tuple[float, ...]
    calls: int
    estimate: Estimate
    reached: bool
    host_bound: bool


def measure(
    calls: Mapping[str, Call], clock: Clock, seconds: float, precision: float, cold: bool = False
) -> dict[str, Timing]:
    """Each call by its name. ``seconds``: about how long to measure for each call, after a first
    call of each (which may compile); ``precision``: the part of the median by which its confidence
    interval may go up and down. ``cold``: with the cache emptied before each call. What a call
    raises is raised."""
    for call in calls.values():
        clock.sample(call, 1)
    with _without_collector():
        # A cold call is a sample alone: the second of two would find what the first one read.
        counts = {n: _warmed_up(call, clock, seconds, cold) for n, call in calls.items()}
        found: dict[str, list[Sample]] = {name: [] for name in calls}
        names = list(calls)
        end = time.perf_counter() + seconds * len(names)
        for turn in range(MOST_ROUNDS):
            for at in range(len(names)):
                name = names[(turn + at) % len(names)]
                found[name].append(_sample(calls[name], clock, counts[name], cold))
            if time.perf_counter() >= end:
                break
            if turn + 1 >= LEAST_ROUNDS and all(
                estimate([s.seconds for s in samples]).is_within(precision)
                for samples in found.values()
            ):
                break
    return {n: _timing(samples, counts[n], precision) for n, samples in found.items()}


def _sample(call: Call, clock: Clock, count: int, cold: bool) -> Sample:
    if cold:
        clock.empty_cache()
    else:
        call()  # finds what the call before it, of another, has left in the cache
    return clock.sample(call, count)


def _warmed_up(call: Call, clock: Clock, seconds: float, cold: bool) -> int:
    """How many calls a sample has, after as many as it takes until they no longer get faster."""
    count, spent, best = 1, 0.0, math.inf
    while True:
        taken = clock.sample(call, count).seconds
        spent += taken * count
        if spent > _WARM_UP * seconds:
            break
        if taken * count < clock.shortest:
            wanted = math.ceil(clock.shortest / taken) if taken else math.inf
            count = int(min(max(wanted, count + 1), _GROWTH * count))
            continue
        if taken >= _STEADY * best:
            break
        best = min(best, taken)
    return 1 if cold else count


def _timing(samples: list[Sample], calls: int, precision: float) -> Timing:
    seconds = tuple(s.seconds for s in samples)
    found = estimate(seconds)
    issued = estimate([s.issued for s in samples]).median
    return Timing(seconds, calls, found, found.is_within(precision), issued > 0.9 * found.median)


@contextmanager
def _without_collector() -> Generator[None]:
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
