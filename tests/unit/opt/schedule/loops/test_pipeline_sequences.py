"""Loops one after the other as one software pipeline: the same results, and only where they fit."""

from __future__ import annotations

import numpy as np
import pytest

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation, Program
from tessera_lang.record import replace
from tessera_lang.target.launch_plan import LaunchPlan
from tests.unit.lower.ast_to_schedule import reference
from tests.unit.lower.ast_to_schedule.lowering import lower_source, tensor
from tests.unit.opt.schedule.decided import around
from tests.unit.opt.schedule.loops.test_software_pipeline import arrays

HEAD = """
@op.kernel
def f(a: bf16[m, 64], b: bf16[n, 64], c: bf16[n, 64], d: bf16[n, 64], out: mut f32[m, 64]):
    for i in op.tile_range(m, step=64):
        x = op.zeros((64, 64), f32)
        top = op.zeros((64,), f32)
"""
BODY = """
        for j in {range}:
            y = a[i:i+64, :] @ b[j:j+64, :].T
            {more}
            now = max(top, op.max(y, axis=1))
            x = x * (now - top)[:, None] + (y * now[:, None]).to(bf16) @ {last}[j:j+64, :]
            top = now
"""
TAIL = """
        out[i:i+64, :] = x + top[:, None]
"""


def body(range_: str = "op.tile_range(n, step=64)", more: str = "y = y", last: str = "c") -> str:
    return BODY.format(range=range_, more=more, last=last)


MASKED = "y = op.where((i + op.arange(64))[:, None] >= (j + op.arange(64))[None, :], y, -1.0)"
BY_HAND = (
    HEAD + body("range(0, i, 64)") + body("range(i, min(n, i + 64), 64)", "y = y * 2.0") + TAIL
)
SOURCES = {
    "ragged": HEAD + body() + TAIL,
    "causal": HEAD + body(more=MASKED) + TAIL,
    "causal to the diagonal": HEAD + body("op.tile_range(min(n, i + 64), step=64)", MASKED) + TAIL,
    "by hand": BY_HAND,
    "another array": BY_HAND.replace("c[j:j+64, :]", "d[j:j+64, :]", 1),
    "a number between": BY_HAND.replace(
        "        for j in range(i, min", "        w = i\n        for j in range(w, min"),
    "a tile between": BY_HAND.replace(
        "        for j in range(i, min", "        x *= 2.0\n        for j in range(i, min"),
}  # fmt: skip
PIPELINES = ("ragged", "causal", "causal to the diagonal")
"""Of the others the copies have rings of their own, or the last products differ."""


def overlapped(name: str) -> tuple[Program, Program, LaunchPlan, list[Diagnostic]]:
    given = arrays(200, 321)
    signature = tuple(
        replace(tensor(x, aligned=True), divisors=(1, 64), hints=(1000, 64)) for x in given
    )
    program, plan, reports = lower_source(SOURCES[name], *given, signature=signature)
    assert not [d for d in reports if d.severity == "error"], reports
    remarks: list[Diagnostic] = []
    before, after = around(program, "software_pipeline", remarks)
    return before, after, plan, [d for d in remarks if d.code == "T0748"]


def loops(program: Program) -> list[Operation]:
    found = [o for o in program.operations[0].walk() if o.name.endswith("schedule.for")]
    return [o for o in found if o.attributes["mapping"] == ("loop",)]


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.sample(4)
def test_which_loops_are_one_pipeline(name: str) -> None:
    """A pipeline ends with the last product alone: under one condition for all its loops."""
    before, after, _, remarks = overlapped(name)
    assert len(loops(before)) >= 2
    overlap = [d.message for d in remarks if "overlap" in d.message]
    behind = [m for m in overlap if "loop before" in m]
    assert len(behind) == (len(loops(before)) - 1 if name in PIPELINES else 0), overlap
    assert len(loops(before)) == len(loops(after))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SOURCES)
def test_results_are_the_same(name: str) -> None:
    before, after, plan, _ = overlapped(name)
    a, b, c, d, out = arrays(200, 321)
    for n in (0, 1, 63, 64, 65, 128, 130, 321):
        x, y = out.copy(), out.copy()
        for program, result in ((before, x), (after, y)):
            reference.launch(program, plan, a, b[:n], c[:n], d[:n], result)
        np.testing.assert_array_equal(x, y)
        assert not np.isnan(x).any()
