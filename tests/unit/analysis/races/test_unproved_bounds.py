"""Indices that some sizes put outside: random guards, beside Python for many sizes."""

from __future__ import annotations

import random

import pytest

from tessera_lang.analysis import unproved
from tessera_lang.diagnostics import Diagnostic
from tests.unit.lowering import lower_source

LANES = 8
SIZES = (*range(1, 26), 31, 32, 33)


def said(text: str) -> list[Diagnostic]:
    program, plan, diagnostics = lower_source(text)
    assert not diagnostics, diagnostics
    return unproved(program.operations[0], plan)


def outside(index: str, guard: str, size: str, premise: str) -> bool:
    """Whether a lane of a launch is outside; groups are as many as cover ``n``."""
    for n in SIZES:
        for m in SIZES:
            if premise and not eval(premise, {}, {"n": n, "m": m}):
                continue
            for i in range(-(-n // LANES) * LANES):
                names = {"n": n, "m": m, "i": i, "t": i % LANES}
                if eval(guard, {}, names) and not 0 <= eval(index, {}, names) < names[size]:
                    return True
    return False


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sample(1)
def test_random_guards(seed: int) -> None:
    r = random.Random(seed)
    for _ in range(12):
        index = r.choice(["i", "i", "i + 1", "i - 1", "n - 1 - i", "2 * i", "i // 2", "i - t"])
        some = ["i < n", "i <= n", "i < m", "i <= m", "i + 1 < n", "i > 0", "i >= 1", "2 * i < n",
                "n - i > 1", "i < n - 1", "t < 7"]  # fmt: skip
        guard = " and ".join(r.sample(some, r.randint(1, 3)))
        size = r.choice("nnm")
        premise = r.choice(["", "", "n == m", "n % 8 == 0", "n >= 8", "n <= m"])
        where = f" where {premise}" if premise else ""
        text = (
            f"@kernel tile[({LANES},)] grid[(ceil_div(n, {LANES}),)]\n"
            f"def k(x: mut f32[{size}], a: f32[n], b: f32[m]){where}:\n"
            "    i = grid_tile_linear_id()\n    t = tile_linear_id()\n"
            f"    if {guard}: x[{index}] = 1.0\n"
        )
        codes = {d.code for d in said(text)} & {"T0402", "T0416"}
        if outside(index, guard, size, premise):
            assert "T0402" in codes, text
        else:
            assert "T0402" not in codes, text


TILES = """
@kernel tile[(4, 4)] grid[(ceil_div(m, 4), ceil_div(n, 4))]
def k(x: f32[m, n], out: mut f32[n, m]):
    i = group_id(0) * 4 + tile_id(0)
    j = group_id(1) * 4 + tile_id(1)
    if i < m and j < n: out[j, i] = x[i, j]
"""
DATA = """
@kernel tile[(64,)] grid[(1,)]
def k(x: f32[64], h: index, out: mut f32[64]):
    s = tshared.alloc((64,), f32)
    t = tile_linear_id()
    s[t] = x[t]
    tbarrier()
    for k in range(h):
        v = s[(t + 1) % 64]
        tbarrier()
        s[t] = v
        tbarrier()
    out[t] = s[t]
"""


@pytest.mark.parametrize("guard", ["i <= m and j < n", "i < m and j <= n", "i < n and j < m"])
def test_guards_of_two_axes(guard: str) -> None:
    assert not said(TILES)
    found = said(TILES.replace("i < m and j < n", guard))
    assert {d.code for d in found if d.severity == "error"} == {"T0402"}
    assert "with m = " in found[0].label


def test_what_data_let_happen() -> None:
    """A loop whose number of iterations comes with the call, and a branch."""
    assert not said(DATA)
    wide = DATA.replace("(t + 1) % 64", "t + 1")
    assert {d.code for d in said(wide)} == {"T0412"}
    if_ = DATA.replace("v = s[(t + 1) % 64]", "v = s[t + 1] if x[t] > 0.0 else 0.0")
    assert {d.code for d in said(if_)} == {"T0412"}


def test_groups_of_the_call() -> None:
    """A kernel without a grid runs in as many groups as the call asks for."""
    text = "@kernel tile[(8,)]\ndef k(out: mut f32[n]):\n    {}out[grid_tile_linear_id()] = 1.0\n"
    assert {d.code for d in said(text.format(""))} == {"T0412"}
    assert not said(text.format("if grid_tile_linear_id() < n: "))


SORTED = """
@kernel tile[(512,)] grid[(m,)]
def f(x: f32[m, 1024], out: mut f32[m, 1024]):
    s = tshared.alloc((1024,), f32)
    t, r = tile_linear_id(), group_id(0)
    for k in range(0, 1024, 512): s[t + k] = x[r, t + k]
    size = 2
    while size <= 1024:
        d = size // 2
        while d > 0:
            tbarrier()
            a = 2 * t - (t & (d - 1))
            if (s[a] > s[a + d]) == ((a & size) == 0):
                v = s[a]
                s[a] = s[a + {}]
                s[a + d] = v
            d //= 2
        size *= 2
    tbarrier()
    for k in range(0, 1024, 512): out[r, t + k] = s[t + k]
"""


def test_places_of_every_lane_in_loops_that_are_known() -> None:
    """Where no range tells it, all lanes of a group at once do."""
    assert said(SORTED.format("d")) == []
    assert {d.code for d in said(SORTED.format("2 * d"))} & {"T0402", "T0410", "T0412"}


INSIDE = "0 <= {0} and {0} < k"
READS = {
    # the guard, what stands between, the index: what is told
    "one read": ("v = q[i]", INSIDE.format("v"), "", "v", ""),
    "up to the size": ("v = q[i]", "0 <= v and v <= k", "", "v", "up to a size"),
    "up to another size": ("v = q[i]", "0 <= v and v < n", "", "v", "up to a size"),
    "two reads of what is not changed": ("", INSIDE.format("p[i]"), "", "p[i]", ""),
    "two reads, up to the size": ("", "0 <= p[i] and p[i] <= k", "", "p[i]", "up to a size"),
    "two reads, up to a number": ("", "p[i] <= 10", "", "p[i]", "up to 10"),
    "one side of two reads": ("", "p[i] < k", "", "p[i]", ""),
    "two reads of what changes later": ("", INSIDE.format("q[i]"), "", "q[i]", ""),
    "a store between": ("", INSIDE.format("q[i]"), "q[i] += 1", "q[i]", "read again"),
    "a store to another array": ("", INSIDE.format("q[i]"), "o[i] += 1.0", "q[i]", ""),
    "a store in a condition": (
        "", INSIDE.format("q[i]"), "if i == 3: q[i] = 0", "q[i]", "read again"),
    "a store in a loop": (
        "", INSIDE.format("q[i]"), "for j in range(m): q[i] += 1", "q[i]", "read again"),
    "another element": ("", INSIDE.format("p[i]"), "", "p[n - 1 - i]", ""),
    "two atomic reads": (
        "", INSIDE.format("atomic_load(c[0])"), "", "atomic_load(c[0])", "read again"),
    "one atomic read": ("v = atomic_load(c[0])", INSIDE.format("v"), "", "v", ""),
    "a remainder of another size": ("", "i < n", "", "index(p[i]) % n", "up to a size"),
    "a remainder of the size": ("", "k > 0", "", "index(p[i]) % k", ""),
    "a limit by the size": ("", "k > 0", "", "max(0, min(index(p[i]), k))", "up to a size"),
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
@pytest.mark.sample(4)
def test_reads_of_what_a_guard_looked_at(name: str) -> None:
    first, guard, between, index, told = READS[name]
    lines = [first] if first else []
    lines += [f"if {guard}:", f"    {between or 'j = 0'}"]
    lines += [f"    o[i] = x[index({index})]", "atomic_add(c[0], 1)"]
    text = (
        "@kernel tile[(8,)] grid[(n // 8,)]\n"
        "def k0(p: i32[n], q: mut i32[n], c: mut i32[1], x: f32[k], o: mut f32[n], y: f32[m]):\n"
        "    i = grid_tile_linear_id()\n" + "".join(f"    {line}\n" for line in lines)
        + "    if i == 0: q[0] = 1\n"
    )  # fmt: skip
    found = [d for d in said(text) if d.code == "T0412" and "inside of `x`" in d.message]
    assert [told in d.label for d in found] == [True] * bool(told), (text, found)
