"""Which operands that lanes compute share a buffer of shared memory."""

from __future__ import annotations

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.opt.schedule.query.computed_operands import written_buffers
from tessera_lang.opt.schedule.query.kernel_facts import facts_of

HEAD = """\
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], e: i32[m]) -> f32[m, n]:
    y = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=(128, 64)):
        acc = op.zeros((128, 64), f32)
{body}
        y[i:i+128, j:j+64] = acc
    return y
"""
STEP = "{acc} += a[i:i+128, p:p+{d}] @ (b[p:p+{d}, j:j+64] * 2.0)"


def loop(depth: int = 64, acc: str = "acc", more: str = "") -> str:
    step = STEP.format(acc=acc, d=depth) + more.format(d=depth)
    lines = "".join("    " + line + "\n" for line in step.splitlines())
    return f"for p in op.tile_range(k, step={depth}):\n{lines}"


TWO_PRODUCTS = "\nacc += a[i:i+128, p:p+{d}] @ (b[p:p+{d}, j:j+64] * 3.0)"
FORMS = {
    "one loop": (loop(), [1]),
    "two loops": (loop() + loop(), [2]),
    "of other sizes": (loop() + loop(32), [1, 1]),
    "arms": ("if e[i] > 0:\n" + "    " + loop().replace("\n    ", "\n        ") + "else:\n    "
             + loop().replace("\n    ", "\n        "), [2]),
    "two in a loop": (loop(more=TWO_PRODUCTS), [1, 1]),
    "two in each": (2 * loop(more=TWO_PRODUCTS), [2, 2]),
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("form", FORMS)
def test_loops_behind_each_other_share(form: str) -> None:
    """With lengths that steps divide, no loop is taken into parts."""
    text, wanted = FORMS[form]
    body = "".join(" " * 8 + line + "\n" for line in text.splitlines())
    session = Session(overlay={"k.tessera": HEAD.format(body=body.rstrip("\n"))})
    signature = session.signature(
        "k.tessera", "kernel", "a: bf16[1024, 1024], b: bf16[1024, 1024], e: i32[1024]"
    )
    machine = session.machine("cuda", "sm_90a")
    made = session.for_machine("k.tessera", "kernel", signature, machine)
    found = written_buffers(facts_of(made.schedule.operations[0]))
    assert [len(x.places) for x in found] == wanted
    assert made.lowered is not None
    names = [o for o in made.lowered[0].walk() if o.name == "tile.shared.alloc"]
    taken = [o for o in names if str(o.attributes["name"]).startswith("operand")]
    assert len(taken) == len(wanted)
