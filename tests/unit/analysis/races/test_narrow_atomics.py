"""Atomics of one group at places that data say: with several groups `--strict` names the array."""

from __future__ import annotations

import pytest

from tests.fuzz.verdicts import Case, judged

UPDATES = (
    "atomic_add(c[x[i] & 15], 1{})", "atomic_max(c[x[i] & 15], i32(i){})",
    "atomic_exchange(c[x[i] & 15], 1{})",
)  # fmt: skip


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize(("scope", "groups", "verdict"), [
    ("group", "ceil_div(n, 64)", "not proved"), ("group", "2", "not proved"),
    ("group", "1", "proved"), ("device", "ceil_div(n, 64)", "proved"),
])  # fmt: skip
def test_places_of_data(update: str, scope: str, groups: str, verdict: str) -> None:
    text = f"""
@kernel tile[(64,)] grid[({groups},)]
def f(x: i32[n], c: mut i32[16]):
    i = grid_tile_linear_id()
    if i < n: {update.format(f', scope="{scope}"')}
"""
    assert judged(Case("", "f", True, "", "", text))[0] == verdict
