"""Arrays whose elements lanes share with some sizes only: random places, beside Python for many
sizes; and waits for too few arrivals."""

from __future__ import annotations

import random

import pytest

from tessera_lang.analysis import unproved
from tests.unit.lowering import lower_source

LANES = 8
SIZES = (*range(1, 26), 31, 32, 33, 41, 64, 90)
MEET = "lanes do not meet in"


def verdict(text: str) -> str:
    """ "shown", "open" (checked, or not proved) or "proved", of lanes that meet."""
    program, plan, diagnostics = lower_source(text)
    found = [*diagnostics, *unproved(program.operations[0], plan)]
    if any(d.code in ("T0410", "T0414") for d in found):
        return "shown"
    return "open" if any(MEET in d.message for d in found) else "proved"


def meet(index: str, guard: str, size: str, premise: str) -> bool:
    """Whether two lanes of a launch update one element; groups are as many as cover ``n``."""
    for n in SIZES:
        for m in SIZES:
            if premise and not eval(premise, {}, {"n": n, "m": m}):
                continue
            seen = set[int]()
            for i in range(-(-n // LANES) * LANES):
                names = {"n": n, "m": m, "i": i, "t": i % LANES, "min": min}
                if not eval(guard, {}, names):
                    continue
                place = eval(index, {}, names)
                if 0 <= place < names[size] and place in seen:
                    return True
                seen.add(place)
    return False


def update(index: str, guard: str, size: str, premise: str) -> str:
    where = f" where {premise}" if premise else ""
    return (
        f"@kernel tile[({LANES},)] grid[(ceil_div(n, {LANES}),)]\n"
        f"def k(x: mut f32[{size}], a: f32[n], b: f32[m]){where}:\n"
        "    i = grid_tile_linear_id()\n    t = tile_linear_id()\n"
        f"    if {guard}:\n        at = {index}\n"
        f"        if at >= 0 and at < {size}: x[at] += a[i]\n"
    )


INDICES = [
    "i", "i + 1", "n - 1 - i", "2 * i", "i // 2", "i - t", "i % m", "i // m", "min(i, m - 1)",
    "i * m // n", "(i + 3) % m", "i % 20", "i % 9", "min(i, 21)", "2 * i % m", "i % n",
    "(i * 3) % m",
]  # fmt: skip


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 12))]
)
def test_what_is_not_told_does_not_meet(seed: int) -> None:
    r, shown, bad = random.Random(seed), 0, 0
    for _ in range(12):
        index = r.choice(INDICES)
        some = ["i < m", "i >= 1", "2 * i < n", "t < 7", "i < 20"]
        guard = " and ".join(["i < n", *r.sample(some, r.choice([0, 0, 1, 2]))])
        size = r.choice("nmm")
        premise = r.choice(["", "", "n == m", "n % 8 == 0", "n <= m", "m <= n"])
        text = update(index, guard, size, premise)
        found = verdict(text)
        if meet(index, guard, size, premise):
            bad += 1
            shown += found == "shown"
            assert found != "proved", text
        else:
            assert found != "shown", text
    assert 10 * shown >= 9 * bad


@pytest.mark.parametrize(
    "update",
    [
        "if i < n: x[i % 700] += a[i]",
        "if i >= 900 and i < n: x[i - 900] += a[i]\n    elif i < n: x[i] += a[i]",
        "if i < n: x[i] += a[i]\n    if i == 800 and i < n: x[0] = 5.0",
        "if i < n: x[i if i < 600 else i - 600] += a[i]",
    ],
)
def test_numbers_of_the_kernel_are_among_the_sizes(update: str) -> None:
    text = (
        "@kernel tile[(64,)] grid[(ceil_div(n, 64),)]\ndef k(x: mut f32[n], a: f32[n]):\n"
        f"    i = grid_tile_linear_id()\n    {update}\n"
    )
    assert verdict(text) == "shown"


def test_rows_of_groups() -> None:
    text = """
@kernel tile[(64,)] grid[(g,)]
def ring(x: f32[g, 64], rows: mut f32[600, 64]):
    b, t = group_linear_id(), tile_linear_id()
    rows[b % 600, t] += x[b, t]
"""
    assert verdict(text) == "shown"


def test_no_group_that_a_launch_has_not() -> None:
    text = """
@kernel tile[(8, 32)] grid[(ceil_div(m, 8), ceil_div(n, 32))]
def flip(x: mut f32[m, n]):
    r = group_id(0) * 8 + tile_id(0)
    c = group_id(1) * 32 + tile_id(1)
    if r < m and c % 2 == 0 and c + 1 < n:
        a = x[r, c]
        x[r, c] = x[r, c ^ 1]
        x[r, c ^ 1] = a
"""
    assert verdict(text) == "open"


HAND_OVER = """
@kernel tile[(64,)] shared(1_KiB) grid[(n,)]
def hand_over(x: f32[n, 32], out: mut f32[n, 32]):
    table = tshared.alloc((32,), f32)
    full = tshared.alloc((1,), i32)
    t = tile_linear_id()
    b = group_linear_id()
    if t == 0: full[0] = 0
    tbarrier()
    if LANES:
        table[P] = x[b, P] * 2.0
        tfence("group")
        atomic_add(full[0], 1, order="relaxed", scope="group")
    else:
        while atomic_load(full[0], order="relaxed", scope="group") < COUNT:
            pass
        tfence("group")
        l = C
        out[b, l] = table[31 - l]
"""
COLLECT = """
@kernel tile[(32,)] grid[(4,)]
def collect(x: f32[4, 32], parts: mut f32[4, 32], marks: mut i32[1], out: mut f32[32]):
    b, t = group_linear_id(), tile_linear_id()
    if b != LAST:
        parts[b, t] = x[b, t] * 2.0
        atomic_add(marks[0], 1, order="release", scope="device")
    else:
        while atomic_load(marks[0], order="acquire", scope="device") < COUNT: pass
        out[t] = parts[1, t] + parts[2, t] + parts[3 - LAST, t]
"""


@pytest.mark.parametrize("count", [1, 16, 30, 31, 32])
@pytest.mark.sample(1)
@pytest.mark.parametrize("first", ["producers", "consumers"])
def test_a_wait_for_too_few_lanes(count: int, first: str) -> None:
    lanes, producer, consumer = ("t < 32", "t", "t - 32")
    if first == "consumers":
        lanes, producer, consumer = ("t >= 32", "(t - 32)", "t")
    text = HAND_OVER.replace("LANES", lanes).replace("P]", f"{producer}]")
    text = text.replace("COUNT", str(count)).replace("= C", f"= {consumer}")
    assert (verdict(text) == "shown") == (count < 32)


@pytest.mark.parametrize("count", [1, 64, 95, 96])
@pytest.mark.sample(2)
@pytest.mark.parametrize("last", [0, 3])
def test_a_wait_for_too_few_of_other_groups(count: int, last: int) -> None:
    text = COLLECT.replace("LAST", str(last)).replace("COUNT", str(count))
    assert (verdict(text) == "shown") == (count < 96)
