"""What stands beside products on their way: carried operands, and waits that come too early."""

from __future__ import annotations

import re

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions

SOURCE = """
@op.kernel
def f(q: bf16[32768, 64], k: bf16[32768, 64], v: bf16[32768, 64]) -> f32[32768, 64]:
    out = op.empty((32768, 64), f32)
    for i in op.tile_range(32768, step=128):
        total = op.zeros((128,), f32)
        acc = op.zeros((128, 64), f32)
        for j in op.tile_range(32768, step=128):
            p = fast.exp2(q[i:i+128, :] @ k[j:j+128, :].T)
            total = total + op.sum(p, axis=1)
            acc += p.to(bf16) @ v[j:j+128, :]
        out[i:i+128, :] = acc * total[:, None]
    return out
"""


def loop_of(ptx: str) -> str:
    """The text between the loop's first product and the jump back behind its last wait."""
    issued = [m.start() for m in re.finditer("wgmma.fence", ptx)]
    assert len(issued) == 4  # before the loop, two inside, behind it
    return ptx[issued[1] : issued[3]]


def ptx() -> str:
    session = Session(overlay={"f.tessera": SOURCE})
    wanted = session.signature("f.tessera", "f")
    made = session.compile_kernel("f.tessera", "f", wanted, TargetOptions("cuda", "sm_90a"), ())
    assert not made.diagnostics, made.diagnostics
    return made.texts["ptx"]


def test_the_form_of_the_loop() -> None:
    text = ptx()
    loop = loop_of(text)
    waits = [m.start() for m in re.finditer(r"wgmma\.wait_group\.sync\.aligned \d", loop)]
    powers = [m.start() for m in re.finditer("ex2.approx.ftz", loop)]
    first, never, last = waits
    assert loop[first:].startswith("wgmma.wait_group.sync.aligned 1;")
    assert all(first < at < never for at in powers)
    assert len(powers) == 64
    assert "vote.sync.any" in loop[powers[-1] : never]
    assert "cvt.rn.bf16x2" not in loop[first:last]  # they write what the last product reads
    assert text.count("cvt.rn.bf16x2") == 64  # before the loop, and in it


def test_tiles_of_sixteen_bits_are_carried_in_words() -> None:
    """Else each of their registers took a whole one, and instructions joined them each turn."""
    loop = loop_of(ptx())
    assert "prmt" not in loop
    assert not re.search(r"mov\.b32 \s*%r\d+, \{%rs", loop)


TWO = """
@op.kernel
def f(
    c: mut {t}[1024, 1024], x: {d}[1024, 512], y: {d}[1024, 512], v: {d}[1024, 512],
    w: {d}[1024, 512],
):
    for i, j in op.tile_range(1024, 1024, step=(64, 64)):
        first = op.zeros((64, 64), {t})
        second = op.zeros((64, 64), {t})
        for p in range(0, 512, 64):
            first += x[i:i+64, p:p+64] @ y[j:j+64, p:p+64].T
            second += v[i:i+64, p:p+64] @ w[j:j+64, p:p+64].T
        c[i:i+64, j:j+64] = first + second
"""


@pytest.mark.parametrize(("dtype", "to"), [("bf16", "f32"), ("i8", "i32")])
def test_two_sums_that_begin_as_one_tile_do_not_wait_for_each_other(dtype: str, to: str) -> None:
    session = Session(overlay={"f.tessera": TWO.replace("{d}", dtype).replace("{t}", to)})
    wanted = session.signature("f.tessera", "f")
    made = session.compile_kernel("f.tessera", "f", wanted, TargetOptions("cuda", "sm_90a"), ())
    assert not [d for d in made.diagnostics if "C75" in d.message], made.diagnostics
    assert "wgmma.wait_group.sync.aligned 2;" in made.texts["ptx"]


UNCHANGING = """
@op.kernel
def f(x: {d}[1024, 64], w: {d}[64, 64], k: {d}[1024, 64], v: {d}[1024, 64], y: mut f32[1024, 64]):
    for i in op.tile_range(1024, step=128):
        inner = op.iota((128, 64), axis=1) < op.iota((128, 64), axis=0)
        h = op.where(inner, (x[i:i+128, :] @ w).to({d}), 0.0)
        acc = op.zeros((128, 64), f32)
        for j in op.tile_range(1024, step=64):
            acc += op.relu(h @ k[j:j+64, :].T).to({d}) @ v[j:j+64, :]
        y[i:i+128, :] = acc
"""


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_first_operands_that_stay_the_same_in_a_loop_are_copied_in_it(dtype: str) -> None:
    """ptxas 13.0 puts its own copies in front of the loop, into registers of the other product."""
    session = Session(overlay={"f.tessera": UNCHANGING.replace("{d}", dtype)})
    wanted = session.signature("f.tessera", "f")
    made = session.compile_kernel("f.tessera", "f", wanted, TargetOptions("cuda", "sm_90a"), ())
    pieces = re.findall(r"\{ \.reg \.pred p;\n([^}]*?)wgmma\.fence", made.texts["ptx"])
    assert [n for piece in pieces if (n := piece.count("prmt.b32 a"))] == [16]
