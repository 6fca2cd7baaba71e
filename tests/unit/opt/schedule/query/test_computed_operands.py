"""Operands that lanes compute of matrices in memory: the tiles they are given, and what is waited
for when."""

from __future__ import annotations

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Operation

PATH = "kernel.tessera"
SECOND = """
@op.kernel
def kernel(a: bf16[m, k], q: i8[k, n], s: f32[n]) -> bf16[m, n]:
    return (a @ (q.to(f32) * s[None, :]).to(bf16)).to(bf16)
"""
FIRST = """
@op.kernel
def kernel(q: i8[m, k], b: bf16[k, n]) -> bf16[m, n]:
    return (q.to(bf16) @ b).to(bf16)
"""
SIGNATURES = {
    SECOND: "a: bf16[4096, 4096], q: i8[4096, 4096], s: f32[4096]",
    FIRST: "q: i8[4096, 4096], b: bf16[4096, 4096]",
}


def compiled(text: str) -> tuple[Operation, Operation]:
    """The kernel with its schedule, and as Tile IR."""
    session = Session(overlay={PATH: text})
    wanted = session.signature(PATH, "kernel", SIGNATURES[text])
    made = session.for_machine(PATH, "kernel", wanted, session.machine("cuda", "sm_90a"))
    assert made.lowered is not None
    return made.schedule.operations[0], made.lowered[0].operations[0]


@pytest.mark.parametrize(("text", "tile"), [(SECOND, (256, 128, 64)), (FIRST, (128, 256, 64))])
def test_what_is_computed_is_the_smaller_side(text: str, tile: tuple[int, ...]) -> None:
    """And not so deep that its two buffers leave no room for a ring: measured twice as fast."""
    assert compiled(text)[0].attributes["tile"] == tile


@pytest.mark.parametrize("text", [SECOND, FIRST])
def test_what_is_brought_beside_has_time_until_the_other_is_computed(text: str) -> None:
    _, kernel = compiled(text)
    loop = next(
        o for o in kernel.walk()
        if o.name == "tile.for" and any(x.name == "tile.mma.async" for x in o.regions[0].operations)
    )  # fmt: skip
    names = [o.name for o in loop.regions[0].operations]
    waits = [i for i, n in enumerate(names) if n == "tile.mbarrier.wait"]
    assert len(waits) == 2
    assert waits[0] < names.index("tile.write_tile") < waits[1] < names.index("tile.mma.async")
