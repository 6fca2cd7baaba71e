"""Products that depend on each other beside each other: the same results from another order."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation, Program
from tessera_lang.record import replace
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.machine import machine_named
from tests.unit.lower.ast_to_schedule import reference
from tests.unit.lower.ast_to_schedule.lowering import lower_source, tensor
from tests.unit.opt.schedule.decided import around

ONE_AND_ONE = """
@op.kernel
def f(a: bf16[m, 64], b: bf16[n, 64], c: bf16[n, 64], d: bf16[n, 64], out: mut f32[m, 64]):
    for i in op.tile_range(m, step=64):
        x = op.zeros((64, 64), f32)
        for j in op.tile_range(n, step=64):
            y = a[i:i+64, :] @ b[j:j+64, :].T
            x = x * 0.5 + max(y, 0.0).to(bf16) @ c[j:j+64, :]
        out[i:i+64, :] = x
"""
CARRIED = """
@op.kernel
def f(a: bf16[m, 64], b: bf16[n, 64], c: bf16[n, 64], d: bf16[n, 64], out: mut f32[m, 64]):
    for i in op.tile_range(m, step=64):
        x = op.zeros((64, 64), f32)
        top = op.zeros((64,), f32)
        before = op.zeros((64,), f32)
        for j in op.tile_range(n, step=64):
            y = a[i:i+64, :] @ b[j:j+64, :].T
            now = max(top, op.max(y, axis=1))
            x = x * (top - before)[:, None] + (y * now[:, None]).to(bf16) @ c[j:j+64, :]
            before = top
            top = now
        out[i:i+64, :] = x * before[:, None] + top[:, None]
"""
THREE = """
@op.kernel
def f(a: bf16[m, 64], b: bf16[n, 64], c: bf16[n, 64], d: bf16[n, 64], out: mut f32[m, 64]):
    for i in op.tile_range(m, step=64):
        x = op.zeros((64, 64), f32)
        for j in op.tile_range(n, step=64):
            y = a[i:i+64, :] @ b[j:j+64, :].T
            z = (y * 0.5).to(bf16) @ c[j:j+64, :]
            x += (z + 1.0).to(bf16) @ b[j:j+64, :]
        out[i:i+64, :] = x
"""
TWO_FIRST = """
@op.kernel
def f(a: bf16[m, 64], b: bf16[n, 64], c: bf16[n, 64], d: bf16[n, 64], out: mut f32[m, 64]):
    for i in op.tile_range(m, step=64):
        x = op.zeros((64, 64), f32)
        for j in op.tile_range(n, step=64):
            y = a[i:i+64, :] @ b[j:j+64, :].T
            z = a[i:i+64, :] @ c[j:j+64, :].T
            x += (y * z).to(bf16) @ d[j:j+64, :]
        out[i:i+64, :] = x
"""
POWERS = """
@op.kernel
def f(a: bf16[m, 64], b: bf16[n, 64], c: bf16[n, 64], d: bf16[n, 64], out: mut f32[m, 64]):
    for i in op.tile_range(m, step=64):
        x = a[i:i+64, :].to(f32)
        for j in op.tile_range(n, step=64):
            y = x.to(bf16) @ b[j:j+64, :].T
            x = y.to(bf16) @ c[j:j+64, :]
        out[i:i+64, :] = x
"""
SHARED = """
@op.kernel
def f(a: bf16[m, 64], b: bf16[n, 64], c: bf16[n, 64], d: bf16[n, 64], out: mut f32[m, 64]):
    for i in op.tile_range(m, step=64):
        x = op.zeros((64, 64), f32)
        for j in op.tile_range(n, step=64):
            k = b[j:j+64, :]
            x += (a[i:i+64, :] @ k.T).to(bf16) @ k
        out[i:i+64, :] = x
"""
SHARED_TURNED = SHARED.replace("k = b[j:j+64, :]", "k = b[j:j+64, :].T").replace(
    "k.T).to(bf16) @ k", "k).to(bf16) @ k.T"
)
FEW_PLACES = SHARED.replace("    for i in", "    schedule.pipeline_stages(2)\n    for i in", 1)
HOPPER = machine_named("cuda", "sm_90a")


def arrays(m: int, n: int) -> tuple[np.ndarray[Any, Any], ...]:
    rng = np.random.default_rng(m + 1000 * n)
    given = (rng.integers(-2, 3, (rows, 64)).astype(ml_dtypes.bfloat16) for rows in (m, n, n, n))
    return *given, np.full((m, 64), np.nan, np.float32)


def overlapped(
    source: str, *given: np.ndarray[Any, Any], relief: int = 0
) -> tuple[Program, Program, LaunchPlan, list[Diagnostic]]:
    """The schedule before and behind the pass, and what it says."""
    signature = tuple(replace(tensor(x, aligned=True), divisors=(1, 64)) for x in given)
    program, plan, reports = lower_source(source, *given, signature=signature)
    assert not [d for d in reports if d.severity == "error"], reports
    remarks: list[Diagnostic] = []
    before, after = around(
        program, "software_pipeline", remarks, relief, ("index_set_splitting", "loop_peeling")
    )
    return before, after, plan, [d for d in remarks if d.code == "T0748"]


def loop_of(program: Program) -> Operation:
    """The innermost loop that holds products."""
    return [
        o for o in program.operations[0].walk()
        if o.name.endswith("schedule.for") and any(x.name.endswith("dot") for x in o.walk())
    ][-1]  # fmt: skip


CASES = [
    *((source, n) for source in (ONE_AND_ONE, CARRIED, TWO_FIRST) for n in (0, 1, 64, 65, 320)),
    *((THREE, n) for n in (0, 64, 128, 320)),
    *((source, n) for source in (SHARED, SHARED_TURNED) for n in (0, 1, 64, 65, 320)),
]


@pytest.mark.parametrize(("source", "n"), CASES)
@pytest.mark.sample(5)
def test_results_are_the_same(source: str, n: int) -> None:
    given = arrays(100, 320)
    before, after, plan, remarks = overlapped(source, *given)
    assert "overlap" in remarks[0].message, remarks[0].message
    assert before is not after
    a, b, c, d, out = given
    x, y = out.copy(), out.copy()
    for program, result in ((before, x), (after, y)):
        reference.launch(program, plan, a, b[:n], c[:n], d[:n], result)
    np.testing.assert_array_equal(x, y)
    assert not np.isnan(x).any()


def test_the_form() -> None:
    """The first product of a turn stands before the last of the turn before; both read rings
    that go on from before the loop, and behind it."""
    _, after, _, _ = overlapped(ONE_AND_ONE, *arrays(256, 320))
    loop = loop_of(after)
    first, last = (o for o in loop.regions[0].operations if o.name.endswith("dot"))
    assert last.operands[0] in loop.regions[0].arguments
    assert first.result not in last.operands
    dots = [o for o in after.operations[0].walk() if o.name.endswith("dot")]
    assert len(dots) == 4
    walk = after.operations[0].walk()
    rings = [int(str(o.attributes["ring"])) for o in walk if o.attributes.get("stage") == "shared"]
    assert sorted(rings) == [0, 1, 1, 2, 2]


@pytest.mark.parametrize(("source", "reason"), [
    (POWERS, "the first of an iteration needs what the last of the iteration before gave"),
    (FEW_PLACES, "both read one staged tile"),
])  # fmt: skip
def test_reasons(source: str, reason: str) -> None:
    before, after, _, remarks = overlapped(source, *arrays(256, 320))
    assert before is after
    assert [reason in d.message for d in remarks] == [True]


def test_not_where_lanes_had_too_few_registers() -> None:
    before, after, _, remarks = overlapped(ONE_AND_ONE, *arrays(256, 320), relief=1)
    assert before is after
    assert ["too few registers" in d.message for d in remarks] == [True]


def test_one_turn_stays() -> None:
    before, after, _, remarks = overlapped(ONE_AND_ONE, *arrays(256, 64))
    assert before is after
    assert not remarks


def test_products_alone_say_nothing() -> None:
    alone = ONE_AND_ONE.replace("max(y, 0.0).to(bf16) @ c[j:j+64, :]", "y")
    before, after, _, remarks = overlapped(alone, *arrays(256, 320))
    assert before is after
    assert not remarks
