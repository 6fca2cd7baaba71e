"""Faults planted into the text of right kernels: what a run shows is not passed over."""

from __future__ import annotations

import pytest

from tests.fuzz.planted import Planted, all_planted, result

OPEN = {"guard for two lanes", "group left out", "index without its remainder"}
"""Kinds of which some may be passed over: sums of data that several lanes store into one element,
and places that are made of data. Of seeds 1 and 2 none is."""


def hold(planted: list[Planted]) -> int:
    """How many faults a run shows."""
    shown = 0
    for p, verdict, harm in map(result, planted):
        shown += harm == "fault"
        if p.fault not in OPEN:
            assert verdict != "silent" or harm != "fault", p.text
    return shown


def test_planted_faults() -> None:
    _, planted = all_planted(8, seed=3)
    assert hold([p for p in planted if p.source.startswith("generated")][::3]) > 2


PARTS = 16
"""A seed's faults take minutes together."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("seed", [2, 3])
def test_many_planted_faults(seed: int, part: int) -> None:
    _, planted = all_planted(40, seed)
    assert hold([p for p in planted if not p.path][part::PARTS]) > 6
