"""What the check says of arrays in random programs of several groups, beside runs of every lane."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fuzz.groups import Maker, Program, Reflecting, compiled, disagreement, launch

BLOCKS = range(30)


def held(seeds: range, maker: type[Maker] = Maker) -> Counter[str]:
    said: list[str] = []
    counts: Counter[str] = Counter()
    for seed in seeds:
        counts += disagreement(seed, said.append, maker)
    assert not said, "\n".join(said)
    return counts


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(b, marks=pytest.mark.slow) for b in BLOCKS[1:])]
)
def test_proved_and_errors_are_right(block: int) -> None:
    size = 40 if block else 25
    counts = held(range(block * size, block * size + size))
    assert counts["proved, does not"] > 3
    assert counts["error, meets"] > 0


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(b, marks=pytest.mark.slow) for b in range(1, 16))]
)
def test_opposite_places_and_numbers_of_the_launch(block: int) -> None:
    size = 40 if block else 20
    counts = held(range(block * size, block * size + size), Reflecting)
    assert counts["proved, does not"] > 1
    assert counts["error, meets"] > 0


def test_lanes_are_run() -> None:
    """The runs that the check is held against see what is there to see."""
    sizes, call = {"m": 2, "n": 8}, {"h": 2, "data": 1}

    def meets(*lines: str) -> bool:
        made = Program(lines, {"u": "m, n"}, "(m,)", "(8,)")
        memory = launch(made, compiled(made), sizes, call)
        assert memory is not None
        return memory["u"].meets()

    assert not meets("u[q, t] = f32(t)")
    assert meets("u[0, t] = f32(q)")
    assert not meets("u[0, t] = 2.0")
    assert meets("u[q, t] = 2.0", "y += u[q, 7 - t]")
    assert not meets("u[q, t] = 2.0", "tbarrier()", "y += u[q, 7 - t]")
    assert meets("u[0, t] = 2.0", "tbarrier()", "y += u[0, 7 - t]")
    assert not meets("atomic_add(u[0, 0], 1.0)")
    assert meets("atomic_add(u[0, 0], 1.0)", "y += u[0, 0]")
    assert not meets("y += u[0, t]", "y += u[q, t + 8]")
