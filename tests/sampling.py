"""Which cases of a test with many are run each time, and which by ``make test-all`` only.

``@pytest.mark.sample`` keeps as few cases as hold every value of every parameter at least once.
``@pytest.mark.sample(n)`` keeps ``n``, from the first to the last at equal steps, for parameters
that are seeds or sizes of one kind. The others get the marker ``slow``. The choice hangs on the
parameters alone, so that it is the same in every run, on every machine and in every process; cases
for a GPU are a sample of their own.

A test that takes the argument ``whole`` and goes through many sizes in itself is two cases: with
False, for which ``few`` leaves some of the sizes, and with True, which has the marker ``slow``.

``--part=K/N`` runs the K-th of N parts of what is chosen otherwise, by a sum over the names of the
tests: so that who has no time for all slow tests runs some, and others the next time.
"""

from __future__ import annotations

import argparse
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", type=part, help="run the K-th of N parts only")


def part(text: str) -> tuple[int, int]:
    """``3/12`` as numbers."""
    one, _, of = text.partition("/")
    if not (one.isdigit() and of.isdigit() and 1 <= int(one) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part: write --part=3/12, from 1/12 on")
    return int(one), int(of)


def part_of(nodeid: str, parts: int) -> int:
    """The part of a test, from 1 to ``parts``."""
    return zlib.crc32(nodeid.encode()) % parts + 1


def spread(count: int, most: int) -> list[int]:
    """Numbers of ``most`` of ``count`` things, at equal steps, with both ends."""
    if most >= count:
        return list(range(count))
    if most == 1:
        return [0]
    return [round(i * (count - 1) / (most - 1)) for i in range(most)]


def few(values: Iterable[T], most: int, whole: bool) -> list[T]:
    """All values where the run is ``whole``, else ``most`` of them at equal steps."""
    found = list(values)
    return found if whole else [found[i] for i in spread(len(found), most)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "whole" in metafunc.fixturenames:
        slow = pytest.param(True, marks=pytest.mark.slow, id="whole")
        metafunc.parametrize("whole", [pytest.param(False, id="few"), slow])


def covering(cases: Sequence[frozenset[Any]]) -> list[int]:
    """Numbers of cases that hold together all that any holds: always the one with most news."""
    left = set[Any]().union(*cases)
    taken: list[int] = []
    while left:
        best = max(range(len(cases)), key=lambda i: (len(cases[i] & left), -i))
        taken.append(best)
        left -= cases[best]
    return sorted(taken)


def _values(item: pytest.Item) -> frozenset[Any]:
    spec = getattr(item, "callspec", None)
    return frozenset((name, repr(v)) for name, v in spec.params.items()) if spec else frozenset()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_what_is_left_out(items)
    if chosen := config.getoption("--part"):
        one, of = chosen
        others = [item for item in items if part_of(item.nodeid, of) != one]
        items[:] = [item for item in items if part_of(item.nodeid, of) == one]
        config.hook.pytest_deselected(items=others)


def mark_what_is_left_out(items: Sequence[pytest.Item]) -> None:
    groups: defaultdict[tuple[str, bool], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("slow"):
            function = item.nodeid.partition("[")[0]
            groups[function, bool(item.get_closest_marker("gpu"))].append(item)
    for group in groups.values():
        marker = group[0].get_closest_marker("sample")
        assert marker is not None
        if marker.args:
            kept = spread(len(group), marker.args[0])
        else:
            kept = covering([_values(item) for item in group])
        for number in set(range(len(group))) - set(kept):
            group[number].add_marker(pytest.mark.slow)
