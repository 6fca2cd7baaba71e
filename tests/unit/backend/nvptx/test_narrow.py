"""Index arithmetic of lane kernels in PTX: in 32 bits for small arrays, else in 64."""

from __future__ import annotations

import re

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.record import replace
from tessera_lang.sema.side_tables import TensorArgument
from tessera_lang.target.backend import TargetOptions

WIDE = re.compile(r"^\s*((?:mul\.lo|setp\.\w+|add|sub|div|rem|min|max|shl)\.[sui]64)\b", re.M)
ROWS = (
    "@kernel tile[(8, 32)] grid[(ceil_div(m, 8), ceil_div(n, 32))]\n"
    "def k(x: f32[m, n], out: mut f32[n, m]):\n"
    "    i = group_id(0) * 8 + tile_id(0)\n"
    "    j = group_id(1) * 32 + tile_id(1)\n"
    "    if i < m and j < n: out[j, i] = x[i, j]\n"
)
LOOP = (
    "@kernel tile[(128,)] grid[(m,)]\n"
    "def k(x: f32[m, n], y: f32[n], out: mut f32[m]):\n"
    "    total = f32(0.0)\n"
    "    for j in range(tile_linear_id(), n, 128): total += x[group_id(0), j] * y[n - 1 - j]\n"
    "    if total > 0.0: out[group_id(0)] = total\n"
)
ELEMENTS = (
    "@kernel tile[(128,)] grid[(ceil_div(a * b * c, 128),)]\n"
    "def k(x: f32[a, b, c], out: mut f32[c, b, a]):\n"
    "    k = grid_tile_linear_id()\n"
    "    if k < a * b * c:\n"
    "        out[k % c, k // c % b, k // c // b] = x[k // c // b, k // c % b, k % c]\n"
)


def wide(text: str, *, small: bool, contiguous: bool = True) -> set[str]:
    """Instructions on 64 bits, but those that make addresses of an offset."""
    session = Session(overlay={"k.tessera": text})
    signature = tuple(
        replace(a, small=small, contiguous=contiguous) if isinstance(a, TensorArgument) else a
        for a in session.signature("k.tessera", "k")
    )
    options = TargetOptions("cuda", "sm_90")
    artifact = session.compile_kernel("k.tessera", "k", signature, options, ("ptx",))
    return {found for found in WIDE.findall(artifact.texts["ptx"]) if found != "add.s64"}


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", [ROWS, LOOP, ELEMENTS])
@pytest.mark.parametrize("contiguous", [True, False])
def test_small_arrays_take_32_bits(text: str, contiguous: bool) -> None:
    assert wide(text, small=True, contiguous=contiguous) == set()


@pytest.mark.parametrize("text", [ROWS, LOOP, ELEMENTS])
def test_others_take_64_bits(text: str) -> None:
    assert wide(text, small=False)
