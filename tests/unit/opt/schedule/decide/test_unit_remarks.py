"""Products that are not done by the asynchronous unit: the remark names the operand."""

from __future__ import annotations

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.driver.tile_compilation import ForMachine

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


ONCE = TWO.replace("q: bf16[m, d]", "q: bf16[d, m]").replace(
    "q[i:i+128, 0:64]", "q[0:64, i:i+128].T"
)
COMPUTED = """\
@op.kernel
def kernel(a: bf16[m, k], b: i8[k, n], s: f32[k]) -> f32[m, n]:
    y = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=(128, 64)):
        acc = op.zeros((128, 64), f32)
        for p in op.tile_range(k, step=64):
            x = b[p:p+64, j:j+64].to(f32) * s[p:p+64][:, None]
            acc += op.relu(a[i:i+128, p:p+64]) @ x.to(bf16)
        y[i:i+128, j:j+64] = acc
    return y
"""


def made(text: str, signature: str) -> ForMachine:
    session = Session(overlay={"k.tessera": text})
    wanted = session.signature("k.tessera", "kernel", signature)
    return session.for_machine("k.tessera", "kernel", wanted, session.machine("cuda", "sm_90a"))


def said(e: int) -> list[str]:
    found = made(TWO, f"q: bf16[128, 64], k: bf16[1024, 64], v: bf16[1024, {e}]")
    return [d.message for d in found.remarks if d.code == "T0744"]


@pytest.mark.parametrize("e", [65, 67, 71])
def test_an_odd_pitch_is_named_at_each_product(e: int) -> None:
    found = said(e)
    assert len(found) == 2
    assert all("`v` one element at a time" in m and "multiples of 16" in m for m in found)


@pytest.mark.parametrize("e", [64, 72, 128])
def test_what_the_remark_says_helps(e: int) -> None:
    assert said(e) == []


def test_what_is_brought_once_is_no_reason() -> None:
    """Lanes of the moving role bring a tile of an odd pitch, where it is one for all iterations."""
    kernel = made(ONCE, "q: bf16[64, 127], k: bf16[1024, 64], v: bf16[1024, 64]").schedule
    copies = {str(o.attributes["copy"]) for o in kernel.walk() if o.attributes.get("copy")}
    units = {o.attributes["unit"] for o in kernel.walk() if o.name.endswith("schedule.dot")}
    assert copies == {"plain", "tma"} and units == {"wgmma"}


def test_factors_are_computed_of_aligned_copies() -> None:
    """A matrix whose odd lines many groups read comes through a ring, whatever is made of it."""
    found = made(COMPUTED, "a: bf16[1025, 1023], b: i8[1023, 1027], s: f32[1023]")
    loads = [o for o in found.schedule.walk() if o.attributes.get("stage") == "shared"]
    assert len(loads) >= 2 and all(o.attributes.get("repack") for o in loads)
    assert all(
        o.attributes["copy"] == "tma" and int(str(o.attributes["stages"])) > 1 for o in loads
    )


PRODUCT = "@op.kernel\ndef kernel(a: bf16[m, k], b: bf16[n, k]):\n    return (a @ b.T).to(bf16)\n"


@pytest.mark.sample(2)
@pytest.mark.parametrize(("m", "n", "k", "copied"), [
    (512, 384, 142, False), (256, 256, 130, False), (4098, 4096, 4098, True),
    (512, 384, 143, True), (1280, 8768, 2150, True),
])  # fmt: skip
def test_an_array_is_copied_where_lanes_would_take_longer(
    m: int, n: int, k: int, copied: bool
) -> None:
    """Lines that begin at multiples of 4 bytes lanes can copy; of few a copy is the longer way."""
    found = made(PRODUCT, f"a: bf16[{m}, {k}], b: bf16[{n}, {k}]").schedule
    loads = [o for o in found.walk() if o.attributes.get("stage") == "shared"]
    assert loads and all(bool(o.attributes.get("repack")) == copied for o in loads)
    assert all(o.attributes["copy"] == ("tma" if copied else "async") for o in loads)


BEGINS_LATE = """\
@op.kernel
def kernel(a: bf16[m, k], b: bf16[n, k]) -> f32[m, 64]:
    y = op.zeros((m, 64), f32)
    for i in op.tile_range({first}, m, step=64):
        acc = op.zeros((64, 64), f32)
        for j in op.tile_range(n, step=64):
            acc += a[i:i+64, 0:64] @ b[j:j+64, 0:64].T
        for j in op.tile_range(n, step=64):
            acc += a[i:i+64, 64:128] @ b[j:j+64, 64:128].T
        y[i:i+64, :] = acc
    return y
"""


@pytest.mark.parametrize("first", [0, 192, 256, 1000])
@pytest.mark.parametrize("k", [142, 143, 144])
@pytest.mark.sample
def test_a_grid_may_be_empty(first: int, k: int) -> None:
    """Whatever a launch moves, estimates of it are numbers: of nothing they are 0."""
    text = BEGINS_LATE.format(first=first)
    found = made(text, f"a: bf16[256, {k}], b: bf16[384, {k}]").schedule
    assert all(o.attributes["unit"] == "wgmma" for o in found.walk() if o.name.endswith(".dot"))
