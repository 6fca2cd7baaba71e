"""Statistics against their definition, and sampling by a clock that the test turns."""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable

import pytest
from tessera_backend.measure.clocks import HostClock, Sample, last_cache_bytes
from tessera_backend.measure.interleaving import LEAST_ROUNDS, MOST_ROUNDS, measure
from tessera_backend.measure.statistics import estimate


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 8, 9, 20, 101, 1000])
def test_the_interval_is_the_narrowest_of_order_statistics(count: int) -> None:
    found = estimate([float(n) for n in random.Random(count).sample(range(count), count)])

    def outside(rank: int) -> float:
        """The chance that the median lies outside the rank-th sample from either end."""
        return 2 * sum(math.comb(count, n) for n in range(rank)) / 2**count

    rank = int(found.low) + 1
    assert found.high == count - rank
    assert found.confident == (outside(1) <= 0.05)
    if found.confident:
        assert outside(rank) <= 0.05 < outside(rank + 1)
    else:
        assert rank == 1
    assert found.median == (count - 1) / 2
    assert found.least == 0


def test_equal_and_zero_samples() -> None:
    found = estimate([0.0] * 9)
    assert (found.median, found.low, found.high, found.spread) == (0, 0, 0, 0)
    assert found.is_within(0.01)
    assert not estimate([1.0] * 5).is_within(0.5)


class Turned:
    """A clock that moves as far as calls say."""

    name = "turned"
    shortest = 1e-3

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []
        self.emptied = 0

    def sample(self, call: Callable[[], object], count: int) -> Sample:
        start = self.now
        for _ in range(count):
            call()
        self.log.append(f"{count}")
        return Sample((self.now - start) / count)

    def empty_cache(self) -> None:
        self.emptied += 1

    def takes(self, name: str, seconds: Callable[[], float]) -> Callable[[], None]:
        def call() -> None:
            self.now += seconds()
            if not self.log or self.log[-1] != name:
                self.log.append(name)

        return call


def test_calls_take_turns_and_end_when_they_are_known() -> None:
    clock = Turned()
    calls = {n: clock.takes(n, lambda s=s: s) for n, s in (("a", 1e-5), ("b", 2e-3), ("c", 1.0))}
    found = measure(calls, clock, 10.0, 0.01)
    assert [round(t.estimate.median, 9) for t in found.values()] == [1e-5, 2e-3, 1.0]
    assert all(t.reached and len(t.samples) == LEAST_ROUNDS for t in found.values())
    assert found["a"].calls >= 100
    assert found["b"].calls == found["c"].calls == 1
    turns = "".join(n for n in clock.log if n.isalpha())
    assert turns.endswith("abc" + "bca" + "cab" + "abc" + "bca")


def test_a_drift_meets_all_alike() -> None:
    """The clock of a processor that gets slower all the time: the ratio is still right."""
    clock = Turned()
    drift = [1.0]

    def slower(seconds: float) -> Callable[[], float]:
        def take() -> float:
            drift[0] *= 1.001
            return seconds * drift[0]

        return take

    calls = {"a": clock.takes("a", slower(0.01)), "b": clock.takes("b", slower(0.01))}
    found = measure(calls, clock, 0.05, 1e-9)
    ratio = found["a"].estimate.median / found["b"].estimate.median
    assert len(found["a"].samples) <= MOST_ROUNDS
    assert not found["a"].reached
    assert abs(ratio - 1) < 0.01


def test_the_first_slow_calls_do_not_count() -> None:
    clock = Turned()
    times = iter([5.0, 0.5, 0.1, 0.04, *[0.02] * 10_000])
    found = measure({"a": clock.takes("a", lambda: next(times))}, clock, 10.0, 0.01)
    assert max(found["a"].samples) < 0.021


def test_cold_calls_are_alone_behind_an_emptied_cache() -> None:
    clock = Turned()
    found = measure({"a": clock.takes("a", lambda: 1e-6)}, clock, 10.0, 0.01, cold=True)
    assert found["a"].calls == 1
    assert clock.emptied == len(found["a"].samples)


def test_what_a_call_raises_is_raised_and_the_collector_is_as_before() -> None:
    count = [0]

    def fails() -> None:
        count[0] += 1
        if count[0] == 5:
            raise ValueError("the fifth")

    with pytest.raises(ValueError, match="the fifth"):
        measure({"a": fails}, HostClock(), 1.0, 0.01)
    assert gc.isenabled()


def test_the_clock_of_the_host() -> None:
    clock = HostClock()
    assert clock.sample(lambda: None, 100).seconds > 0
    assert last_cache_bytes() >= 1 << 10
