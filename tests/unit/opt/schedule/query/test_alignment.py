"""Where tiles begin, and which of them a copy engine can bring: it counts lines in 16 bytes."""

from __future__ import annotations

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.opt.schedule.query.kernel_facts import LOAD

SOURCE = """
@op.kernel
def kernel(first: u16[m], A: {dtype}[{left}], B: {dtype}[n, k]) -> f32[m, n]:
    out = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in range({lower}, k, {step}):
            acc += {a} @ B[j:j+64, p:p+{step}].T
        out[i:i+64, j:j+64] = acc
    return out
"""


def copies(lower: str, step: int, dtype: str = "bf16", turned: bool = False) -> list[object]:
    a = f"A[p:p+{step}, i:i+64].T" if turned else f"A[i:i+64, p:p+{step}]"
    text = SOURCE.format(
        lower=lower, step=step, dtype=dtype, a=a, left="k, m" if turned else "m, k"
    )
    session = Session(overlay={"kernel.tessera": text})
    shapes = f"first: u16[1024], A: {dtype}[1024, 1024], B: {dtype}[1024, 1024]"
    signature = session.signature("kernel.tessera", "kernel", shapes)
    machine = session.machine("cuda", "sm_90a")
    made = session.for_machine("kernel.tessera", "kernel", signature, machine)
    assert "roles" in made.schedule.operations[0].attributes, made.remarks
    loads = [o for o in made.schedule.walk() if o.name == LOAD]
    reordered = "from a copy with its axes in another order"
    return [reordered if "lines" in o.attributes else o.attributes.get("copy") for o in loads]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("lower", "step", "aligned"),
    [("0", 64, True), ("i", 64, True), ("8", 64, True), ("2 * i + 64", 32, True),
     ("4", 64, False), ("first[i]", 64, False), ("first[i] * 8", 64, True),
     ("first[i] * 64 + 1", 64, False)],
)  # fmt: skip
def test_along_lines(lower: str, step: int, aligned: bool) -> None:
    assert all((how == "tma") == aligned for how in copies(lower, step))


def test_across_lines_any_start_is_right() -> None:
    left, right = copies("first[i]", 64, turned=True)
    assert left == "tma"
    assert right != "tma"
