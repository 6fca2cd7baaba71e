"""Accesses that must come out proved, those that must not, and indices surely outside."""

from __future__ import annotations

import pytest

from tessera_lang.analysis import ranges
from tests.unit.lowering import lower_source, optimized

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
TEXT = (
    "def inside(i: index, n: index) -> bool:\n    return 0 <= i and i < n\n\n"
    "@kernel tile[(64,)]\ndef k(x: f32[n], out: mut f32[n], a: index):\n"
)


def _bounds(body: str) -> set[str]:
    program = optimized(TEXT + body)
    return {str(o.attributes["bounds"]) for o in program.walk() if "bounds" in o.attributes}


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
        ("    if t > 60: s[t + 1] = 1.0\n", None),
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
