"""Accesses that must come out proved, those that must not, and indices surely outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera_lang.analysis import ranges
from tessera_lang.ir.core import Operation, Value
from tests.unit.lowering import lower_source, optimized
from tests.unit.tile_interpreter import launch

PROVED = {
    "guard": "    i = grid_tile_linear_id()\n    if i < n: out[i] = x[i]\n",
    "early return": "    i = grid_tile_linear_id()\n    if i >= n: return\n    out[i] = x[i]\n",
    "and": "    i = grid_tile_linear_id()\n    if 0 <= i and i < n and x[i] > 0.0: out[i] = 1.0\n",
    "grid stride": (
        "    for i in range(grid_tile_linear_id(), n, grid_tile_count()):\n        out[i] = x[i]\n"
    ),
    "continue": "    for i in range(2 * n):\n        if i >= n: continue\n        out[i] = x[i]\n",
    "four at a time": (
        "    i = grid_tile_linear_id()\n"
        "    if 4 * i + 3 < n:\n"
        "        for j in range(4):\n"
        "            out[4 * i + j] = x[4 * i + j]\n"
    ),
    "halves": ("    i = grid_tile_linear_id()\n    if i < n:\n        out[i // 2] = x[i >> 1]\n"),
    "clamped": (
        "    i = grid_tile_linear_id()\n"
        "    if n > 0:\n"
        "        out[0] = x[min(i, n - 1)] + x[max(0, min(i - 3, n - 1))]\n"
    ),
    "remainder": "    if n > 0: out[0] = x[grid_tile_linear_id() % n]\n",
    "backwards": ("    i = grid_tile_linear_id()\n    if i < n: out[n - 1 - i] = x[n - 1 - i]\n"),
    "down": "    for i in range(n - 1, -1, -1):\n        out[i] = x[i]\n",
    "while": "    i = 0\n    while i < n:\n        out[i] = x[i]\n        i += 2\n",
    "binary search": (
        "    lo = 0\n"
        "    hi = n\n"
        "    while lo < hi:\n"
        "        mid = (lo + hi) // 2\n"
        "        if x[mid] < 0.0:\n"
        "            lo = mid + 1\n"
        "        else:\n"
        "            hi = mid\n"
    ),
    "conditional": (
        "    i = grid_tile_linear_id()\n"
        "    if n > 0:\n"
        "        j = i if i < n else 0\n"
        "        out[0] = x[j]\n"
    ),
    "helper": "    i = grid_tile_linear_id()\n    if inside(i, n): out[i] = x[i]\n",
    "last": "    if n > 0: out[-1] = x[-1]\n",
}
UNPROVED = {
    "no guard": "    i = grid_tile_linear_id()\n    out[i] = x[i]\n",
    "off by one": "    i = grid_tile_linear_id()\n    if i <= n: out[i] = 1.0\n",
    "below": "    i = grid_tile_linear_id()\n    if i < n: out[i - 1] = 1.0\n",
    "wraps": "    i = grid_tile_linear_id() + a\n    if i < n: out[i] = 1.0\n",
    "a wrong stride": "    for i in range(0, n, 2):\n        out[i + 1] = 1.0\n",
    "rebinding": "    for i in range(n):\n        i = i * 2\n        out[i] = 1.0\n",
    "behind the loop": "    i = 0\n    while i < n:\n        i += 1\n    out[i] = 1.0\n",
}
SMALL_ELSEWHERE = {
    "product": (
        "        u = a * i\n        if a < 10 and i < 10:\n"
        "            if n > 100: out[i * a] = 1.0\n"
    ),
    "quotient": (
        "        u = a // 8\n        if a < 64:\n            w = (2 * a - a) // 8\n"
        "            if n > 100: out[w] = 1.0\n"
    ),
}
TEXT = (
    "def inside(i: index, n: index) -> bool:\n    return 0 <= i and i < n\n\n"
    "@kernel tile[(64,)]\ndef k(x: f32[n], out: mut f32[n], a: index):\n"
)


def _bounds(body: str) -> set[str]:
    program = optimized(TEXT + body)
    return {str(o.attributes["bounds"]) for o in program.walk() if "bounds" in o.attributes}


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", PROVED)
def test_proved(name: str) -> None:
    assert _bounds(PROVED[name]) == {"proved"}


@pytest.mark.parametrize("name", UNPROVED)
def test_not_proved(name: str) -> None:
    assert "guarded" in _bounds(UNPROVED[name])


def test_masks_and_small_dtypes_on_shared_memory() -> None:
    program = optimized(
        "@kernel tile[(64,)] shared(2_KiB)\n"
        "def k(x: u8[n], h: i32[n], out: mut i32[n]):\n"
        "    a = tshared.alloc((256,), i32)\n"
        "    b = tshared.alloc((64,), i32)\n"
        "    for i in range(grid_tile_linear_id(), n, grid_tile_count()):\n"
        "        a[x[i]] = 1\n"
        "        b[h[i] & 63] = a[h[i] % 256]\n"
        "        out[i] = b[(i + 1) % 64] + a[min(max(h[i], 0), 255)]\n"
    )
    bounds = [o.attributes["bounds"] for o in program.walk() if "bounds" in o.attributes]
    assert set(bounds) == {"proved"}


def test_two_axes() -> None:
    program = optimized(
        "@kernel tile[(8, 8)]\n"
        "def k(x: f32[m, n], out: mut f32[n, m]):\n"
        "    i = group_id(0) * 8 + tile_id(0)\n"
        "    j = tile_id(1)\n"
        "    while j < n:\n"
        "        if i < m: out[j, i] = x[i, j]\n"
        "        j += 8\n"
    )
    bounds = [o.attributes["bounds"] for o in program.walk() if "bounds" in o.attributes]
    assert set(bounds) == {"proved"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    s[t + 64] = 1.0\n", "this index is 64 to 127, always outside `s` (size 64)"),
        ("    s[t - 64] = 1.0\n", "this index is -64 to -1, always outside `s` (size 64)"),
        ("    out[n + t] = 1.0\n", "this index is always outside `out`"),
        ("    if t > 70: s[t] = 1.0\n", None),
        ("    if t > 60: s[t + 1] = 1.0\n", "in lane 63 this index is 64, outside `s` (size 64)"),
        ("    if t > 60 and t < 63: s[t + 1] = 1.0\n", None),
        ("    out[n - 1 - t] = 1.0\n", None),
    ],
)
def test_surely_outside(body: str, message: str | None) -> None:
    text = (
        "@kernel tile[(64,)] shared(1_KiB)\ndef k(out: mut f32[n]):\n"
        "    s = tshared.alloc((64,), f32)\n    t = tile_linear_id()\n"
    ) + body
    _, _, diagnostics = lower_source(text)
    assert [d.message for d in diagnostics] == ([] if message is None else [message])
    assert all(d.code == "T0402" for d in diagnostics)


def test_the_time_is_bounded() -> None:
    """Many guards and nested loops: questions have a limit of steps."""
    body = "".join(f"    if a > {i} and a < n - {i}: out[a] = 1.0\n" for i in range(60))
    body += "".join(f"{'    ' * (i + 1)}for i{i} in range(a, n, 2):\n" for i in range(6))
    body += "    " * 7 + "out[i0 + i5] = 1.0\n"
    program, _, _ = lower_source(TEXT + body)
    ranges(program.operations[0])


@pytest.mark.parametrize("name", SMALL_ELSEWHERE)
def test_bounds_of_one_place_do_not_hold_elsewhere(name: str) -> None:
    body = "    i = grid_tile_linear_id()\n    if a >= 0:\n" + SMALL_ELSEWHERE[name]
    program = optimized(TEXT + body + "        if n > 100: out[u] = 1.0\n")
    found = [o.attributes["bounds"] for o in program.walk() if o.name == "tile.store"]
    assert found == ["proved", "guarded"]


def test_a_divisor_is_not_known_from_a_product_of_another_place() -> None:
    body = (
        "    if a >= 1 and a < 100 and n >= 1 and n < 100: out[0] = f32(a * n)\n"
        "    if n > 1: out[1] = f32(n // a)\n"
    )
    (division,) = (o for o in optimized(TEXT + body).walk() if o.name == "tile.floordiv")
    assert division.attributes["site"] != -1


# --- arrays of one axis that are seen as two ---------------------------------------------------

FLAT = (
    "@kernel tile[(4, 4)] grid[(ceil_div(m, 4), ceil_div(n, 4))]\n"
    "def k(x: f32[m * n], out: mut f32[m, n]):\n"
    "    i = group_id(0) * 4 + tile_id(0)\n    j = group_id(1) * 4 + tile_id(1)\n"
)
ROW_MAJOR = {
    "an element": "    if i < m and j < n: out[i, j] = x[i * n + j]\n",
    "the one behind": "    if i < m and j < n - 1: out[i, j] = x[i * n + j + 1]\n",
    "the one below": "    if i < m - 1 and j < n: out[i, j] = x[(i + 1) * n + j]\n",
    "the one above": "    if 0 < i and i < m and j < n: out[i, j] = x[(i - 1) * n + j]\n",
    "all of a row": "    if i < m:\n        for t in range(n): out[i, t] = x[i * n + t]\n",
    "and back": (
        "    if i < m - 1 and j < n and 0 < i:\n        k = i * n + j\n"
        "        up, down = atomic_load(out[k // n + 1, j]), atomic_load(out[k // n - 1, j])\n"
        "        atomic_add(out[k // n, j], up + down)\n"
    ),
}
NOT_INSIDE = {
    "no row": "    if j < n: out[0, 0] = x[i * n + j]\n",
    "no column": "    if i < m: out[0, 0] = x[i * n + j]\n",
    "a row too many": "    if i <= m and j < n: out[0, 0] = x[i * n + j]\n",
    "the other way": "    if i < m and j < n: out[0, 0] = x[j * n + i]\n",
    "one too far behind": "    if i < m and j < n: out[0, 0] = x[i * n + j + 1]\n",
    "one too far below": "    if i < m and j < n: out[0, 0] = x[(i + 1) * n + j]\n",
    "one too far above": "    if i < m and j < n: out[0, 0] = x[(i - 1) * n + j]\n",
    "below, and back": (
        "    if i < m and j < n:\n        k = i * n + j\n        out[k // n + 1, j] = 1.0\n"
    ),
    "above, and back": (
        "    if i < m and j < n:\n        k = i * n + j\n        out[k // n - 1, j] = 1.0\n"
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ROW_MAJOR)
def test_row_major_places_are_inside(name: str) -> None:
    kernel = optimized(FLAT + ROW_MAJOR[name])
    assert {o.attributes["bounds"] for o in kernel.walk() if "bounds" in o.attributes} == {"proved"}


@pytest.mark.parametrize("name", [*ROW_MAJOR, *NOT_INSIDE])
@pytest.mark.sample(3)
def test_what_is_said_of_row_major_places_is_so(name: str) -> None:
    (kernel,) = optimized(FLAT + (ROW_MAJOR.get(name) or NOT_INSIDE[name])).operations
    known = ranges(kernel)
    if name in NOT_INSIDE:
        assert "guarded" in {o.attributes.get("bounds") for o in kernel.walk()}

    def seen(value: Value, number: Any) -> None:
        low, high = known.values.get(value, (-(2**63), 2**63))
        assert low <= int(number) <= high, (name, value, number)

    def touched(operation: Operation, inside: bool) -> None:
        assert inside or operation.attributes["bounds"] == "guarded", name

    for m, n in ((1, 1), (3, 2), (5, 4), (4, 7)):
        x, out = np.arange(m * n, dtype=np.float32), np.zeros((m, n), np.float32)
        groups = -(-m // 4) * -(-n // 4)
        launch(kernel, [x, out, np.int64(m), np.int64(n)], groups, seen, touched)
