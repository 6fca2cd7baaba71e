"""Checked mode against what is known of a program: nothing proved beforehand, nothing refused."""

from __future__ import annotations

import pytest

from tests.fuzz.agreement import NO_LAUNCH, fault, launch, nothing_proved, unchecked
from tests.fuzz.verdicts import Case, cases

# A wrong one that came later may show only where a certain lane comes first, or at other sizes.
# Of the fourth ones: an exit that data decide, a size of more than eight, and orders that a release
# of anything makes here. Of the fifth ones: a vote that is the same in both warps, a fence behind
# the flag, and a lock that nobody holds.
_NOT_SHOWN = {"f0_06", "f5_10", "f1_02", "f1_06", "f1_12", "g1_10", "g2_06", "g2_12"}
ALL = [
    c
    for c in cases()
    if "not run" not in c.hint
    and (c.right or not (c.kind.startswith(("read_", "later_")) or c.name in _NOT_SHOWN))
]

TWO_GROUPS = """
@kernel tile[(32,)] grid[(2,)]
def k(x: f32[2, 32], out: mut f32[2]):
    lock = tshared.alloc((1,), i32)
    s = tshared.alloc((2,), f32)
    t = tile_linear_id()
    if t == 0: lock[0] = 0
    if t < 2: s[t] = 0.0
    tbarrier()
    while atomic_cas(lock[0], 0, 1, scope="group", order="acquire") != 0: pass
    s[1] = s[0]
    s[0] += x[group_id(0), t]
    atomic_store(lock[0], 0, scope="group", order="release")
    tbarrier()
    if t == 0: out[group_id(0)] = s[1]
"""
"""What the last read of a group leaves in the shadow of its memory is not of the next group."""


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.name)
@pytest.mark.sample(6)
def test_agrees_with_what_is_known(case: Case) -> None:
    """Three orders of lanes, several sizes: a right program is never blamed, a wrong one is by
    some launch."""
    found = fault(case.text, outside=not case.right)
    if case.right:
        assert not found
    else:
        assert found or fault(case.text, seed=1)
        assert found != NO_LAUNCH


def test_memory_of_one_group_after_the_other() -> None:
    with unchecked(), nothing_proved():
        launch(TWO_GROUPS, {})
