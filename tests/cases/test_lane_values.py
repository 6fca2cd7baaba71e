"""Values that lanes write down: tuples of them, literals that a type cannot tell from 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
HEAD = "@kernel tile[(1,)] grid[(1,)]\ndef k(out: mut {}[n]):\n"


def diagnostics(text: str) -> list[Any]:
    session = Session()
    session.set_text("p.tessera", text, 1)
    return list(session.check("p.tessera"))


@pytest.mark.parametrize("target", TARGETS)
def test_items_of_a_tuple(target: str) -> None:
    source = (
        """
def both(v):
    return v, v * 2.0

"""
        + HEAD.format("f32")
        + """
    a = (tile_linear_id(), 2)
    for i in range(3):
        a = (a[0] + 1, a[1] * 2)
    p = both(3.0)
    out[a[0]] = f32(a[-1])
    out[0] = p[1] + both(5.0)[0]
"""
    )
    out = np.zeros(4, np.float32)
    tessera.compile(source, target=target).k(out)
    assert out.tolist() == [11.0, 0.0, 0.0, 16.0]


LEAST = {"f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133, "f64": 5e-324, "f8e5m2": 2.0**-16,
         "f8e4m3": 2.0**-9}  # fmt: skip


@pytest.mark.parametrize("dtype", LEAST)
def test_a_literal_that_would_be_zero_is_an_error(dtype: str) -> None:
    """An epsilon of 1e-8 is 0 in f16: what is divided by it is not what was meant."""
    body = HEAD.format(dtype) + "    out[0] = {}\n"
    for right in ("0.0", "-0.0", repr(LEAST[dtype]), repr(-LEAST[dtype] * 0.51)):
        if dtype != "f64" or float(right) in (0.0, LEAST[dtype]):
            assert not diagnostics(body.format(right)), right
    for wrong in (LEAST[dtype] / 2, -LEAST[dtype] / 3):
        if wrong:
            (fault,) = diagnostics(body.format(repr(wrong)))
            assert fault.code == "T0202" and "it would be 0" in fault.label


@pytest.mark.parametrize("name", ["inf", "nan", "pi", "e"])
def test_constants_of_math_are_numbers(name: str) -> None:
    assert not diagnostics(HEAD.format("f32") + f"    out[0] = -math.{name}\n")


@pytest.mark.parametrize("target", TARGETS)
def test_constants_of_the_module_in_heads_and_bodies(target: str) -> None:
    """A tuple as the grid, its length, an array that is chosen when the kernel is compiled."""
    source = """
WEIGHTS = (1, -3, 5, 7)
COUNT = len(WEIGHTS)
GRID = (2, COUNT // 2)

def one_of(x, z): return x if x.dtype == f64 else z

@kernel tile[(8,)] grid[GRID]
def k(x: f32[n], z: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i >= n: return
    y = z if len(WEIGHTS) == COUNT else x
    t = f32(0)
    for j in range(COUNT): t = t * 2.0 + f32(WEIGHTS[j])
    out[i] = t + y[i] + one_of(x, y)[n - 1 - i] + f32(group_count(0) * 10 + group_count(1))
"""
    x, z, out = np.zeros(32, np.float32), np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    tessera.compile(source, target=target).k(x, z, out)
    tessera.synchronize()
    assert (out == 13 + 31 + 22).all()
