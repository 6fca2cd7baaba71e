"""The check of shared memory on generated kernels, clean and with a planted fault."""

from __future__ import annotations

import pytest

from tests.fuzz.checker import Outcome, measure


def hold(out: Outcome) -> None:
    """All planted faults here are certain: affine places, loops that surely run."""
    assert not out.clean_blamed, out.clean_blamed[0]
    assert not out.blamed, out.blamed[0]
    assert not out.missed, out.missed[0]
    assert all(row.faulty for row in out.rows.values())


def test_planted_faults() -> None:
    hold(measure(10, seed=7))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 7])
def test_many_planted_faults(seed: int) -> None:
    hold(measure(200, seed))
