"""Products that are not done by the asynchronous unit: the remark names the operand."""

from __future__ import annotations

import pytest

from tessera_lang.driver.session import Session

TWO = """\
@op.kernel
def kernel(q: bf16[m, d], k: bf16[n, d], v: bf16[n, e]) -> f32[m, e]:
    y = op.empty((m, e), f32)
    for i in op.tile_range(m, step=128):
        acc = op.zeros((128, 64), f32)
        for j in op.tile_range(n, step=64):
            s = q[i:i+128, 0:64] @ k[j:j+64, 0:64].T
            acc += s.to(bf16) @ v[j:j+64, 0:64]
        y[i:i+128, 0:64] = acc
    return y
"""


def said(e: int) -> list[str]:
    session = Session(overlay={"k.tessera": TWO})
    signature = f"q: bf16[128, 64], k: bf16[1024, 64], v: bf16[1024, {e}]"
    wanted = session.signature("k.tessera", "kernel", signature)
    made = session.for_machine("k.tessera", "kernel", wanted, session.machine("cuda", "sm_90a"))
    return [d.message for d in made.remarks if d.code == "T0744"]


@pytest.mark.parametrize("e", [65, 67, 71])
def test_an_odd_pitch_is_named_at_each_product(e: int) -> None:
    found = said(e)
    assert len(found) == 2
    assert all("`v` one element at a time" in m and "multiples of 16" in m for m in found)


@pytest.mark.parametrize("e", [64, 72, 128])
def test_what_the_remark_says_helps(e: int) -> None:
    assert said(e) == []
