"""Values that are read twice at each of many steps: no walk over definitions takes every path.

Each program is compiled at two lengths, and the calls of every function of the compiler are
counted: twice the length is at most some times the calls. A walk that does not remember what it
has seen makes hundreds of times as many.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions

pytest.importorskip("llvmlite")
SHORT, LONG = 9, 18
_TIMES = 40
"""As many calls at most at twice the length; what takes every path makes 512 times as many."""
_LEAST = 30_000
"""Calls of a function below which nothing is said: lanes that are followed number by number make
some thousands, by a limit of their own; every path of the long program is 262144."""

X = "x: f32[m, n]"
TILE: dict[str, tuple[str, str, str, str]] = {
    # parameters, the first value, what is repeated, the end
    "products of elements": (X, "t = x * 1.5", "t = t * t", "return t"),
    "sums": ("x: f32[n]", "t = x + 1.5", "t = t + t", "return t"),
    "choices": (X, "t = x + 1.5", "t = op.where(t > 0.5, t, t * 0.5)", "return t"),
    "greatest": (X, "t = x + 1.5", "t = max(t, t + 1.0)", "return t"),
    "functions": (X, "t = x + 1.5", "t = op.exp(t) + t", "return t"),
    "rows": (X, "t = x + 1.5", "t = t * t", "return t / op.sum(t, axis=1)[:, None]"),
    "reductions": (X, "t = x + 1.5", "t = t + op.max(t * t, axis=1)[:, None]", "return t"),
    "operands": ("x: f32[m, n], w: f32[n, p]", "t = x + 1.5", "t = t * t", "return t @ w"),
    "of a product": ("x: f32[m, n], w: f32[n, p]", "t = x @ w", "t = t * t", "return t"),
    "transposed": ("x: f32[n, n]", "t = x + 1.5", "t = t + t.T", "return t"),
    "integers": ("x: i32[m, n]", "t = x + 1", "t = (t ^ t) + t", "return t"),
    "stored": ("x: f32[m, n], y: mut f32[m, n]", "t = x + 1.5", "t = t * t", "y[:, :] = t"),
    "in place": ("x: mut f32[m, n]", "t = x * 1.5", "t = t * t", "x[:, :] = x + t"),
    "numbers": ("x: f32[n], a: i32", "t = a + 1", "t = t * t + t", "return x * f32(t)"),
    "in loops": (
        "x: f32[m, n], y: mut f32[m, n]",
        "for i in op.tile_range(m, step=32):\n        t = x[i:i+32, :] * 1.5",
        "    t = t * t", "    y[i:i+32, :] = t",
    ),
    "rows by number": (
        "x: f32[m, n], y: mut f32[m, n]", "for i in op.tile_range(m, step=1):\n        t = i",
        "    t = (t + t) // 2", "    y[i, :] = x[t, :] * 2.0",
    ),
    "conditions on numbers": (
        "x: f32[m, n], y: mut f32[m, n]", "for i in op.tile_range(m, step=1):\n        t = i",
        "    t = t + t", "    if t < m: y[i, :] = x[i, :] * f32(t)",
    ),
    "ends of loops": (
        "x: f32[m, n], y: mut f32[m, n], a: i32", "t = index(a)", "t = t + t",
        "for i in op.tile_range(m, step=16):\n        s = op.zeros((16, 64), f32)\n"
        "        for j in range(t): s += x[i:i+16, 0:64]\n        y[i:i+16, 0:64] = s",
    ),
    "carried": (
        X + ", y: mut f32[m, n]",
        "for i in op.tile_range(m, step=16):\n        t = x[i:i+16, 0:64] * 1.0\n"
        "        for j in range(3):\n            t = t + 1.0",
        "        t = t * t", "    y[i:i+16, 0:64] = t",
    ),
    "places of slices": (
        "x: f32[n], y: mut f32[n], a: i32",
        "t = index(a) + 1", "t = t + t", "y[0:8] = op.window(x, t, 8, fill=0.0)",
    ),
}  # fmt: skip
LANES: dict[str, tuple[str, str, str, str]] = {
    "numbers": ("x: mut f32[n]", "t = x[i]", "t = t * t", "x[i] = t"),
    "choices": ("x: mut f32[n]", "t = x[i]", "t = t if t > 0.5 else t * t", "x[i] = t"),
    "conditions": ("x: mut f32[n]", "t = x[i]", "if t > 0.5: t = t * t", "x[i] = t"),
    "indices": ("x: mut f32[n]", "t = i", "t = t + t", "x[t] = 1.0"),
    "divided": ("x: mut f32[n]", "t = i", "t = (t + t) // 2 + t % 5", "x[t] = 1.0"),
    "guards": ("x: f32[n], y: mut f32[n]", "t = i\n    s = f32(0.0)",
               "t = t + t\n    s += x[t] + x[t + 1]", "y[i] = s"),
    "loops": ("x: mut f32[n]", "t = x[i]", "for k in range(n): t = t * t + t", "x[i] = t"),
    "shared": (
        "x: mut f32[n]", "s = tshared.alloc((64,), f32)\n    t = tile_id(0)", "t = (t + t) % 64",
        "s[tile_id(0)] = x[i]\n    tbarrier()\n    x[i] = s[t]",
    ),
}  # fmt: skip


def program(kind: str, name: str, length: int) -> str:
    parameters, first, repeated, end = (TILE if kind == "tile" else LANES)[name]
    head = "@op.kernel\n" if kind == "tile" else (
        "@kernel tile[(64,)] grid[(ceil_div(n, 64),)]\n"
    )  # fmt: skip
    start = "" if kind == "tile" else "    i = grid_tile_linear_id()\n"
    body = "".join(f"    {line}\n" for line in (first, *[repeated] * length, end))
    return f"{head}def k({parameters}):\n{start}{body}"


class TooMany(Exception):
    """More calls than a walk that remembers can make."""


def calls_of(text: str, options: TargetOptions, most: dict[CodeType, int]) -> dict[CodeType, int]:
    """How often each function of the compiler is called for a program."""
    counts: dict[CodeType, int] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            count = counts[code] = counts.get(code, 0) + 1
            if count > most.get(code, _LEAST) and "tessera" in code.co_filename:
                sys.setprofile(None)
                raise TooMany(f"{code.co_qualname} in {code.co_filename}")

    session = Session(overlay={"k.tessera": text})
    session.parsed("k.tessera")
    sys.setprofile(note)
    try:
        signature = session.signature("k.tessera", "k", "")
        session.compile_kernel("k.tessera", "k", signature, options)
    finally:
        sys.setprofile(None)
    return counts


@pytest.mark.sample(1)
@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90"])
@pytest.mark.parametrize(
    ("kind", "name"), [*(("tile", name) for name in TILE), *(("lane", name) for name in LANES)]
)
def test_twice_the_length_is_no_power_of_the_calls(kind: str, name: str, target: str) -> None:
    options = TargetOptions("cpu", "native") if target == "cpu" else TargetOptions("cuda", target)
    without_limit = dict[CodeType, int]()

    class _Any(dict[CodeType, int]):
        def get(self, *_: Any) -> Any:
            return 1 << 62

    calls_of(program(kind, name, SHORT), options, _Any(without_limit))  # caches are filled
    few = calls_of(program(kind, name, SHORT), options, _Any(without_limit))
    most = {code: max(_LEAST, _TIMES * count) for code, count in few.items()}
    calls_of(program(kind, name, LONG), options, most)
