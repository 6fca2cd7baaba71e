"""Functions that call each other twice: what a kernel becomes is known before it is made."""

from __future__ import annotations

import pytest

from tessera_lang.driver.session import Session

LANES = """
@kernel tile[(32,)] grid[(ceil_div(n, 32),)]
def k(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n: out[i] = part{last}(x[i])
"""
TILES = """
@op.kernel
def k(x: f32[n], out: mut f32[n]):
    for i in op.tile_range(n, step=32):
        out[i:i+32] = part{last}(x[i:i+32])
"""


def functions(count: int) -> str:
    parts = ["def part0(a):\n    return a * 2.0\n"]
    for i in range(1, count):
        parts.append(f"def part{i}(a):\n    return part{i - 1}(a) + part{i - 1}(a + 1.0)\n")
    return "\n".join(parts)


@pytest.mark.parametrize("kernel", [LANES, TILES])
@pytest.mark.parametrize(("count", "codes"), [(4, []), (40, ["T0316"])])
@pytest.mark.sample(1)
def test_code_that_doubles(kernel: str, count: int, codes: list[str]) -> None:
    session = Session()
    session.set_text("p.tessera", functions(count) + kernel.format(last=count - 1), 1)
    found = session.check("p.tessera")
    assert [d.code for d in found] == codes
    assert all(d.span is not None and d.helps for d in found)


@pytest.mark.parametrize(("count", "codes"), [(40, []), (320, ["T0316"])])
def test_calls_in_calls(count: int, codes: list[str]) -> None:
    chain = functions(count).replace(" + part", " + 1.0  # ")
    session = Session()
    session.set_text("p.tessera", chain + LANES.format(last=count - 1), 1)
    assert [d.code for d in session.check("p.tessera")] == codes
