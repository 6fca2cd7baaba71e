"""Comparisons of places: which become one of 32 bits, and that no element changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tessera_backend.cpu.interpreter.launch import launch

from tessera_lang.driver.session import Session
from tessera_lang.types.dtype import I32, INDEX
from tests.unit.opt.schedule.decided import from_source

KERNEL = """\
@op.kernel
def kernel(x: bf16[n, 64], y: bf16[m, 64], w: i32, v: i64) -> f32[n, m]:
    out = op.empty((n, m), f32)
    for i, j in op.tile_range(n, m, step=(64, 64)):
        r = (i + op.arange(64))[:, None]
        c = (j + op.arange(64))[None, :]
        z = x[i:i+64, :] @ y[j:j+64, :].T
        out[i:i+64, j:j+64] = op.where({condition}, z, -1.0)
    return out
"""
FORMS: dict[str, tuple[str, Callable[[Any, Any, int], Any], bool]] = {
    # the condition, the same in NumPy, and whether its places are compared in 32 bits
    "le": ("c <= r", lambda r, c, w: c <= r, True),
    "lt, turned": ("r + w < c", lambda r, c, w: r + w < c, True),
    "ge": ("c >= r - w", lambda r, c, w: c >= r - w, True),
    "gt": ("r * 3 > c + w", lambda r, c, w: r * 3 > c + w, True),
    "eq": ("c == r + w", lambda r, c, w: c == r + w, True),
    "ne": ("r - c != w", lambda r, c, w: r - c != w, True),
    "one axis": ("c + 0 * r < w", lambda r, c, w: c + 0 * r < w, True),
    "both": ("(c <= r) & (c > r - w)", lambda r, c, w: (c <= r) & (c > r - w), True),
    "no place alone": ("c * 2 <= r * 3", lambda r, c, w: c * 2 <= r * 3, False),
    "no sum": ("c * c <= r + w", lambda r, c, w: c * c <= r + w, False),
    "any number of 64 bits": ("c + v <= r", lambda r, c, w: c - 5 <= r, False),
}  # fmt: skip
SHAPES = "x: bf16[{n}, 64], y: bf16[{m}, 64], w: i32, v: i64"


def text(name: str) -> str:
    return KERNEL.format(condition=FORMS[name][0])


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.sample(3)
def test_places_are_compared_in_32_bits(name: str) -> None:
    made = from_source(text(name), SHAPES.format(n=1024, m=1024)).schedule
    compared = [o for o in made.walk() if o.name == "tile.cmp" and "near" in o.attributes]
    assert bool(compared) is FORMS[name][2]
    assert all(o.operands[0].tile_type.dtype == I32 for o in compared)
    others = [o for o in made.walk() if o.name == "tile.cmp" and "near" not in o.attributes]
    wide = [o for o in others if getattr(o.operands[0].type, "dtype", None) == INDEX]
    assert bool(wide) is not FORMS[name][2]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("w", [0, 3, 70, -70, 2**31 - 1, -(2**31)])
@pytest.mark.sample(4)
def test_no_element_changes(name: str, w: int) -> None:
    n, m = 130, 200
    r, c = np.arange(n)[:, None], np.arange(m)[None, :]
    right = np.where(FORMS[name][1](r, c, w), 64.0, -1.0)
    x, y = (np.ones((k, 64), ml_dtypes.bfloat16) for k in (n, m))
    session = Session(overlay={"kernel.tessera": text(name)})
    wanted = session.signature("kernel.tessera", "kernel", SHAPES.format(n=n, m=m))
    program, plan = session.tile("kernel.tessera", "kernel", wanted,
                                 session.machine("cuda", "sm_90a"))  # fmt: skip
    (found,) = launch(program, plan, x, y, w, -5)
    np.testing.assert_array_equal(found, right)
