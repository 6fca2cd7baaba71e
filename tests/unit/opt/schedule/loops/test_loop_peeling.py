"""The last turn of a loop apart: nothing is masked in the others, and no result changes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera_lang.ir.core import Operation, Program
from tessera_lang.record import replace
from tessera_lang.target.launch_plan import LaunchPlan
from tests.unit.lower.ast_to_schedule import reference
from tests.unit.lower.ast_to_schedule.lowering import lower_source, tensor
from tests.unit.opt.schedule.decided import around

SUMS = """
@op.kernel
def f(a: bf16[m, 64], b: bf16[n, 64], c: bf16[n, 64], out: mut f32[m, 64]):
    for i in op.tile_range(m, step=64):
        x = op.zeros((64, 64), f32)
        for j in op.tile_range(n, step=64):
            y = a[i:i+64, :] @ b[j:j+64, :].T
            x = x * op.max(y, axis=1)[:, None] + max(y, 0.0).to(bf16) @ c[j:j+64, :]
        out[i:i+64, :] = x
"""
PRODUCT = """
@op.kernel
def f(a: bf16[m, n], b: bf16[n, 64], c: bf16[n, 64], out: mut f32[m, 64]):
    for i in op.tile_range(m, step=64):
        x = op.zeros((64, 64), f32)
        for j in op.tile_range(n, step=64):
            x += a[i:i+64, j:j+64] @ b[j:j+64, :]
        out[i:i+64, :] = x
"""


def peeled(
    source: str, width: int, n: int, divisor: int = 1
) -> tuple[Program, Program, LaunchPlan, list[np.ndarray[Any, Any]]]:
    """The schedule before and behind the pass, its plan, and arrays."""
    rng = np.random.default_rng(n)
    shapes = ((100, width), (n, 64), (n, 64))
    given = [rng.integers(-2, 3, s).astype(ml_dtypes.bfloat16) for s in shapes]
    given.append(np.full((100, 64), np.nan, np.float32))
    signature = tuple(
        replace(tensor(x, aligned=True), divisors=(divisor, 64), hints=(1000, 64)) for x in given
    )
    program, plan, _ = lower_source(source, *given, signature=signature)
    before, after = around(program, "loop_peeling")
    return before, after, plan, given


def loops(program: Program) -> list[Operation]:
    found = [o for o in program.operations[0].walk() if o.name.endswith("schedule.for")]
    return [o for o in found if o.attributes["mapping"] == ("loop",)]


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 200])
def test_results_are_the_same(n: int) -> None:
    before, after, plan, (a, b, c, out) = peeled(SUMS, 64, n)
    x, y = out.copy(), out.copy()
    reference.launch(before, plan, a, b, c, x)
    reference.launch(after, plan, a, b, c, y)
    np.testing.assert_array_equal(x, y)
    assert not np.isnan(x).any()


def test_whole_turns_are_not_masked() -> None:
    before, after, _, _ = peeled(SUMS, 64, 200)
    assert len(loops(before)) == 1
    definitions = {v: o for o in after.operations[0].walk() for v in o.results}
    known: list[bool] = []
    for loop in loops(after):
        (reduction,) = (o for o in loop.walk() if o.name.endswith("schedule.reduce"))
        known.append(definitions[reduction.operands[1]].name == "tile.constant")
    assert known == [True, False]


def test_a_bound_that_the_step_divides_stays() -> None:
    before, after, _, _ = peeled(SUMS, 64, 128, divisor=64)
    assert before is after


def test_a_known_bound_that_the_step_divides_stays() -> None:
    known = SUMS.replace("tile_range(n, step=64)", "tile_range(128, step=64)")
    before, after, _, _ = peeled(known, 64, 128)
    assert before is after


def test_what_masks_nothing_stays() -> None:
    before, after, _, _ = peeled(PRODUCT, 200, 200)
    assert before is after
