"""Arrays of which every element belongs to one group: barriers order its lanes there."""

from __future__ import annotations

import pytest

from tests.fuzz.verdicts import Case, judged

HEAD = """
@kernel tile[(64,)] grid[({grid},)]
def f(x: mut i32[m, n], c: mut i32[m, 16], pick: i32[4]):
    r, t = group_id(0), tile_linear_id()
"""
RIGHT = {
    "halved": "s = 32\nwhile s > 0:\n    if t < s and t + s < n: x[r, t] += x[r, t + s]\n"
    "    tbarrier()\n    s //= 2",
    "set, then counted": "if t < 16: c[r, t] = 0\ntbarrier()\n"
    'for j in range(t, n, 64): atomic_add(c[r, x[r, j] & 15], 1, scope="group")',
    "moved": "for j in range(0, n, 64):\n    v = 0\n    if j + t + 1 < n: v = x[r, j + t + 1]\n"
    "    tbarrier()\n    if j + t < n: x[r, j + t] = v\n    tbarrier()",
    "one of two ways": "if pick[0] > 0:\n    if t == 0: c[r, 0] = 1\n"
    "else:\n    if t == 63: c[r, 0] = 2",
    "an early return": "if pick[0] == 0:\n    if t == 0: c[r, 1] = 0\n    return\n"
    "if t == 63: c[r, 1] = i32(t)",
}  # fmt: skip
WRONG = {
    "halved": RIGHT["halved"].replace("    tbarrier()\n", ""),
    "set, then counted": RIGHT["set, then counted"].replace("tbarrier()\n", ""),
    "moved": RIGHT["moved"].replace("    tbarrier()\n", "", 1),
    "of another group": RIGHT["halved"].replace("x[r, t + s]", "x[(r + 1) % m, t + s]"),
    "an early return": RIGHT["an early return"].replace("    return\n", ""),
}


def verdict(body: str, grid: str = "m") -> tuple[str, list[str]]:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return judged(Case("", "f", True, "", "", HEAD.format(grid=grid) + lines))


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", RIGHT)
def test_lanes_of_a_group_in_order(kind: str) -> None:
    said, codes = verdict(RIGHT[kind])
    assert said in ("proved", "checked"), codes  # indices of `x` may be only checked


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", WRONG)
def test_no_order_is_no_proof(kind: str) -> None:
    said, codes = verdict(WRONG[kind])
    assert said not in ("proved", "checked"), codes


@pytest.mark.parametrize(("grid", "place", "proved"), [
    ("m", "r, 0", True), ("m", "0, 0", False), ("1", "0, 0", True), ("m", "r // 2, r % 2", True),
    ("m", "r // 2, 0", False),
])  # fmt: skip
def test_groups_that_share(grid: str, place: str, proved: bool) -> None:
    body = f"if t == 0: c[{place}] = 1\ntbarrier()\nif t == 1: c[{place}] = 2"
    assert (verdict(body, grid)[0] in ("proved", "checked")) == proved
