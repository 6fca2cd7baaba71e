"""Arrays of which every element belongs to one lane, held against every lane of small launches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random
from textwrap import indent

import pytest

from tessera_lang.analysis.races.lane_owned_arrays import owned
from tests.unit.lowering import lower_source, optimized

HEAD = "@kernel tile[{tile}] grid[{grid}]\ndef k({parameters}):\n"


def names(body: str, tile: str = "(64,)", grid: str = "(n,)",
          parameters: str = "x: f32[n], out: mut f32[n]") -> set[str]:  # fmt: skip
    text = HEAD.format(tile=tile, grid=grid, parameters=parameters)
    kernel = optimized(text + "".join(f"    {line}\n" for line in body.splitlines())).operations[0]
    return {p.name for p in owned(kernel)[0]}


OWN = [
    "i = grid_tile_linear_id()\nif i < n: out[i] = x[i]",
    "i = grid_tile_linear_id() * 4\nfor k in range(4):\n    if i + k < n: out[i + k] = 1.0",
    "i = grid_tile_linear_id() * 4\nif i + 3 < n:\n    out[i] = 1.0\n    out[i + 3] = 1.0\n"
    "else:\n    for k in range(i, n): out[k] = 2.0",
    "i = grid_tile_linear_id()\nif i < n:\n    out[i] = 1.0\n    out[i] += x[i]",
    "out[group_linear_id() * 128 + (63 - tile_linear_id()) * 2] = 1.0",
    "if tile_linear_id() == 0: out[group_linear_id()] = 1.0",
    "if tile_linear_id() == 5:\n    for k in range(3): out[group_linear_id() * 3 + k] = 1.0",
]
SHARED = [
    "if tile_linear_id() < 2: out[group_linear_id()] = 1.0",
    "if tile_linear_id() == 0: out[group_linear_id()] = 1.0\n"
    "if tile_linear_id() == 1: out[group_linear_id()] = x[1]",
    "if tile_linear_id() == 0: out[0] = 1.0",
    "i = grid_tile_linear_id()\nif i < n: out[i // 2] = x[i]",
    "i = grid_tile_linear_id()\nfor k in range(2):\n    if i + k < n: out[i + k] = 1.0",
    "i = grid_tile_linear_id()\nif i + 1 < n:\n    out[i] = 1.0\n    out[n - 1 - i] = 1.0",
    "out[tile_linear_id()] = 1.0",
    "out[group_linear_id()] = 1.0",
    "out[group_linear_id() * 63 + tile_linear_id()] = 1.0",
    "i = grid_tile_linear_id()\nif i < n: out[i] = x[i]\nif i == 0: out[n - 1] = 2.0",
    "i = grid_tile_linear_id() * 4\nfor k in range(i, n): out[k] = 2.0",
]


@pytest.mark.parametrize("body", OWN)
def test_every_lane_its_own(body: str) -> None:
    assert "out" in names(body)


@pytest.mark.parametrize("body", SHARED)
def test_lanes_that_may_meet(body: str) -> None:
    assert "out" not in names(body)


def test_axes_tell_ids_together() -> None:
    two = "x: f32[n, m], out: mut f32[n, m]"
    body = "i = group_id(0) * 8 + tile_id(0)\nj = group_id(1) * 16 + tile_id(1)\n"
    body += "if i < n and j < m: out[{}] = 1.0"
    how = {"tile": "(8, 16)", "grid": "(n, m)", "parameters": two}
    assert "out" in names(body.format("i, j"), **how)
    assert "out" not in names(body.format("i, 0"), **how)


@pytest.mark.parametrize(("stride", "step"), list(itertools.product((1, 2, 5, 8), (1, 3, 8, 40))))
def test_affine_places_against_every_lane(stride: int, step: int) -> None:
    """``lane * stride + group * step + (0 to 2)``, lanes of a group of 4 and any 3 groups."""
    body = f"i = tile_linear_id() * {stride} + group_linear_id() * {step}\n"
    body += "for k in range(3):\n    if i + k < n: out[i + k] = 1.0"
    places = [
        {lane * stride + group * step + k for k in range(3)}
        for lane in range(4) for group in range(3)
    ]  # fmt: skip
    apart = sum(map(len, places)) == len(set[int]().union(*places))
    assert ("out" in names(body, tile="(4,)")) <= apart


TWO_AXES = [
    ("f32[m * n]", "if i < m and j < n: out[i * n + j] = x[i, j]", True),
    ("f32[m * n]", "if i < m and j < n: out[i * n + (n - 1 - j)] = 1.0", True),
    ("f32[m * n]", "if i < m and j <= n: out[i * n + j] = 1.0", False),
    ("f32[m * n]", "if i < m and j < n: out[i * m + j] = 1.0", False),
    ("f32[m * n]", "if i < m: out[i * n + j] = 1.0", False),
    ("f32[m * n]", "if i < m and j < n:\n    out[i * n + j] = 1.0\n    out[i * n] = 1.0", False),
    ("f32[n, m]", "if i < m and j < n: out[(i * n + j) % n, (i * n + j) // n] = 1.0", True),
    ("f32[n, m]", "if i < m and j < n: out[(i * n + j) % m, (i * n + j) // n] = 1.0", False),
    ("f32[m, n]", "for k in range(0, m - m % 64, 64): out[i + k, j] = 1.0", False),
]


@pytest.mark.parametrize(("array", "body", "own"), TWO_AXES)
def test_digits_of_an_index(array: str, body: str, own: bool) -> None:
    head = "i = group_id(0) * 8 + tile_id(0)\nj = group_id(1) * 16 + tile_id(1)\n"
    parameters = f"x: f32[m, n], out: mut {array}"
    grid = "(ceil_div(m, 8), ceil_div(n, 16))"
    assert ("out" in names(head + body, "(8, 16)", grid, parameters)) == own


QUOTIENTS = [
    ("i = grid_tile_linear_id()\nif i < m * n: out[i // n, i % n] = x[i // n, i % n]", True),
    ("i = grid_tile_linear_id()\nif i < m * n: out[i // n, i % m] = 1.0", False),
    ("t = tile_linear_id()\nif t % 4 == 3: out[group_linear_id(), t // 4] = 1.0", True),
    ("t = tile_linear_id()\nif t % 4 != 3: out[group_linear_id(), t // 4] = 1.0", False),
    ("t = tile_linear_id()\nif t & 7 == 0: out[group_linear_id(), 2 * (t // 8) + 1] = 1.0", True),
    ("t = tile_linear_id()\nif t & 6 == 0: out[group_linear_id(), 2 * (t // 8) + 1] = 1.0", False),
    ("if lane_id() == 0: out[group_linear_id(), warp_id()] = 1.0", True),
    (
        "for k in range(0, 32, 8):\n    out[group_linear_id(), tile_linear_id() // 8 + k] = 1.0",
        False,
    ),
]


@pytest.mark.parametrize(("body", "own"), QUOTIENTS)
def test_quotients_and_remainders_tell_what_was_divided(body: str, own: bool) -> None:
    parameters = "x: f32[m, n], out: mut f32[m, n]"
    assert ("out" in names(body, parameters=parameters)) == own


WHILE = "k = {}\nwhile k < m:\n    out[group_linear_id(), k] = 1.0\n    {}"


@pytest.mark.parametrize(("start", "step", "own"), [
    ("tile_linear_id()", "k += 64", True), ("tile_linear_id()", "k += 32", False),
    ("tile_linear_id() + 5", "k += 128", True), ("2 * tile_linear_id()", "k += 192", True),
    ("tile_linear_id()", "k += 64 if k < 100 else 63", False),
    ("tile_linear_id() // 2", "k += 64", False),
    ("tile_linear_id()", "if k == 640:\n        k += 128\n        continue\n    k += 64", True),
    ("tile_linear_id()", "if k == 640:\n        k += 1\n        continue\n    k += 64", False),
])  # fmt: skip
def test_what_a_loop_adds(start: str, step: str, own: bool) -> None:
    parameters = "x: f32[m, n], out: mut f32[n, m]"
    assert ("out" in names(WHILE.format(start, step), parameters=parameters)) == own


def test_what_one_axis_needs_of_another_is_told_first() -> None:
    """Each axis tells one id if the other one is known, and neither is."""
    body = "a = tile_id(0)\nb = tile_id(1)\nfor k in range(3):\n    for j in range(3):\n"
    body += "        out[group_id(0), {} * a + 5 * b + k, 5 * a + {} * b + j] = 1.0"
    how = {"tile": "(8, 8)", "parameters": "out: mut f32[n, m, m]"}
    assert "out" not in names(body.format(3, 3), **how)
    assert "out" in names(body.format(3, 0), **how)


ATOMS = ("a", "b", "g", "k", "i", "2 * a", "3 * b", "4 * a", "8 * g", "5 * a", "4 * b", "7 * k")
SUMS = ("i", "4 * a + b", "a + 4 * b", "i + k", "16 * k + i", "g * n + 4 * a + b", "m - 1 - a")
SIZES = ((1, 1), (2, 3), (3, 2), (5, 4), (3, 20))
GROUPS = 3


def index(choose: Random) -> str:
    parts = choose.sample(ATOMS, choose.randint(1, 3))
    total = choose.choice((" + ".join(parts), *SUMS))
    return choose.choice((
        total, total, f"({total}) * n + {choose.choice(ATOMS)}", f"{total} + n", f"{total} + 1",
        f"({total}) // n", f"({total}) % n", f"({total}) // 4", f"({total}) % 4",
    ))  # fmt: skip


def guard(choose: Random) -> str:
    parts = [f"{index(choose)} < {choose.choice(('m', 'n', '4', 'm * n'))}"]
    parts += [f"{choose.choice(ATOMS)} < {choose.choice(('m', 'n', '2'))}" for _ in range(2)]
    parts.append(f"({choose.choice(ATOMS)}) % 4 == {choose.randint(0, 1)}")
    return " and ".join(choose.sample(parts, choose.choice((1, 1, 2, 3))))


def places(body: str, m: int, n: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The lane and the element of each access."""
    found: list[tuple[int, ...]] = []

    def touch(*place: int) -> None:
        found.append(place)

    code = compile(body.replace("out[", "out(").replace("] = 1.0", ")"), "kernel", "exec")
    for g, a, b in itertools.product(range(GROUPS), range(4), range(4)):
        found.clear()
        names = {"g": g, "a": a, "b": b, "m": m, "n": n, "i": g * 16 + 4 * a + b}
        exec(code, names | {"out": touch})
        yield from (((g, a, b), place) for place in found)


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(s, marks=pytest.mark.slow) for s in range(4, 24))]
)
def test_random_places_against_every_lane(seed: int) -> None:
    choose = Random(seed)
    for _ in range(30):
        rank = choose.choice((1, 2, 2))
        begin, end, step = (choose.choice(c) for c in (("0", "a", "b"), ("4", "9", "n"), "1248"))
        body = f"for k in range({begin}, {end}, {step}):\n"
        for _ in range(choose.choice((1, 1, 2))):
            place = ", ".join(index(choose) for _ in range(rank))
            body += f"    if {guard(choose)}: out[{place}] = 1.0\n"
        head = "g = group_id(0)\na = tile_id(0)\nb = tile_id(1)\ni = g * 16 + 4 * a + b\n"
        shapes = ("f32[n]", "f32[m * n]") if rank == 1 else ("f32[m, n]", "f32[n, 64]")
        parameters = f"x: f32[m, n], out: mut {choose.choice(shapes)}"
        text = HEAD.format(tile="(4, 4)", grid="(3,)", parameters=parameters)
        program, _, _ = lower_source(text + indent(head + body, "    "))
        own = "out" in {p.name for p in owned(program.operations[0])[0]}
        if own:
            for m, n in SIZES:
                owners = dict[tuple[int, ...], tuple[int, ...]]()
                for who, place in places(body, m, n):
                    assert owners.setdefault(place, who) == who, (body, m, n, place)
