"""What a race is said to need is right: the program written so gives what lanes in turn give."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.spec.test_fixes import found_in, printed

HEAD = """
@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def k(x: f32[n], out: mut f32[2]):
    i = grid_tile_linear_id()
    if i < n:
{body}


x = op.cast(op.arange(1, 1001, dtype=i32), f32)
out = op.full((2,), 1.0, dtype=f32)
k(x, out)
print(out[0])
"""
LOOP = """\
        old = atomic_load(out[0])
        while True:
            found = atomic_cas(out[0], old, {value})
            if found == old:
                break
            old = found
"""
Step = Callable[[float, float], float]
UPDATES: dict[str, tuple[str, str, Step]] = {
    # What is stored, the atomic that does it, what the other operand is.
    "{o} + x[i]": ("add", "x[i]", lambda o, x: o + x),
    "x[i] + {o}": ("add", "x[i]", lambda o, x: o + x),
    "{o} - x[i]": ("sub", "x[i]", lambda o, x: o - x),
    "min({o}, x[i] - 500.0)": ("min", "x[i] - 500.0", lambda o, x: min(o, x - 500)),
    "max(x[i] * 2.0, {o})": ("max", "x[i] * 2.0", lambda o, x: max(o, x * 2)),
    "min({o} + x[i], 100.0)": ("", "", lambda o, x: min(o + x, 100)),
    "max(100.0, {o} - x[i])": ("", "", lambda o, x: max(100, o - x)),
    "{o} + x[i] * 0.0 * {o}": ("", "", lambda o, x: o),
    "{o} * 1.0 + 1.0": ("", "", lambda o, x: o + 1),
    "min({o}, {o} - 1.0)": ("", "", lambda o, x: o - 1),
    "max({o}, x[i]) + 0.0 * {o}": ("", "", lambda o, x: max(o, x)),
}


@pytest.mark.parametrize("value", UPDATES)
@pytest.mark.sample(1)
def test_the_update_that_is_offered(value: str) -> None:
    atomic, other, step = UPDATES[value]
    wrong = HEAD.format(body=f"        out[0] = {value.format(o='out[0]')}\n")
    (race,) = (d for d in found_in(wrong) if d.code == "T0414")
    named = re.search(r"`atomic_(\w+)\(", race.helps[0])
    if named:
        assert named[1] == atomic
        body = f"        atomic_{atomic}(out[0], {other})\n"
    else:
        assert not atomic
        assert "atomic_cas" in race.helps[0]
        body = LOOP.format(value=value.format(o="old"))
    right = HEAD.format(body=body)
    assert not found_in(right)
    expected = 1.0
    for x in np.arange(1, 1001, dtype=np.float32):
        expected = step(expected, float(x))
    (shown,) = printed(right)
    assert float(shown) == expected
