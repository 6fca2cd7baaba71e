"""Tile kernels as Schedule IR: what they compute, before and after the passes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver import pipeline
from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Program
from tessera_lang.ir.verify import verify
from tessera_lang.sema.side_tables import ConstantArgument
from tests.unit.lower.ast_to_schedule.lowering import argument, lower_source
from tests.unit.lower.ast_to_schedule.programs import CASES, HEAD, Case, close
from tests.unit.lower.ast_to_schedule.reference import Run, launch

SIZES: tuple[Mapping[str, int], ...] = (
    {"$0": 16, "$1": 32, "$2": 8, "$3": 8},
    {"$0": 3, "$1": 5, "$2": 7, "$3": 2},
)


def passed(program: Program) -> tuple[Program, list[Diagnostic]]:
    remarks: list[Diagnostic] = []
    for one in (*pipeline.parallel_loops(), *pipeline.for_any_machine(remarks)):
        program = verify(one.run(program))
    return program, remarks


def runs(case: Case) -> list[tuple[Mapping[str, int], str]]:
    first, *others = case.dtypes
    return [*((s, first) for s in case.sizes), *((case.sizes[-1], d) for d in others)]


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
@pytest.mark.sample(2)
def test_values(case: Case) -> None:
    random = np.random.default_rng(7)
    for (sizes, dtype), opened in zip(runs(case), itertools.cycle(SIZES), strict=False):
        given = case.arguments(sizes, dtype, random)
        constants = tuple(ConstantArgument(n) for n in case.leading)
        signature = (*constants, *(argument(a) for a in given))
        program, plan, found = lower_source(HEAD + case.text, *given, signature=signature)
        assert not found
        mapped, remarks = passed(program)
        assert not [d for d in remarks if d.severity == "error"]
        expected = case.expected(*given)
        for made, seed in ((program, None), (mapped, 1)):
            arrays = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
            shuffle = None if seed is None else np.random.default_rng(seed)
            results = launch(made, plan, *arrays, run=Run(sizes=opened, shuffle=shuffle))
            outcome = [*(arrays[i] for i in case.written), *results]
            for a, b in zip(outcome, expected, strict=True):
                close(a, b, dtype, case.tolerance)


def grid_of(text: str, *arguments: Any) -> tuple[str, list[str]]:
    program, _, _ = lower_source(HEAD + text, *arguments)
    mapped, remarks = passed(program)
    from tests.unit.opt.schedule.parallel.test_map_grid import grid_axes

    return ",".join(grid_axes(mapped)), [d.code for d in remarks]


def test_grids() -> None:
    a = np.ones((4, 4), np.float32)
    by_name = {c.name: c for c in CASES}
    assert grid_of(by_name["tiled_matmul"].text, a, a, a, 16) == ("i,j", [])
    assert grid_of(by_name["vec_add"].text, a[0], a[0], a[0].copy()) == ("i", [])
    assert grid_of(by_name["matmul_schedule"].text, a, a, a) == ("i,j", [])
    assert grid_of(by_name["softmax_rows"].text, a) == ("i", [])
    assert grid_of(by_name["pipelined_attention"].text, a, a, a, a, 128) == ("start", [])


def test_a_sum_is_rounded_once() -> None:
    bf16 = argument(np.ones(1, np.float32)).dtype  # type: ignore[union-attr]
    assert bf16.name == "f32"
    import ml_dtypes

    case = next(c for c in CASES if c.name == "tiled_matmul")
    a = np.full((16, 1024), 1, ml_dtypes.bfloat16)
    b = np.full((1024, 16), 1 / 32, ml_dtypes.bfloat16)
    c = np.full((16, 16), 256, ml_dtypes.bfloat16)
    program, plan, _ = lower_source(HEAD + case.text, a, b, c, 16)
    launch(passed(program)[0], plan, a, b, c, 16)
    assert (c.astype(np.float32) == 288).all()


def test_sizes_that_do_not_agree_are_conditions() -> None:
    case = next(c for c in CASES if c.name == "tiled_matmul")
    a, b, c = np.ones((4, 5), np.float32), np.ones((6, 4), np.float32), np.ones((4, 4), np.float32)
    program, plan, _ = lower_source(HEAD + case.text, a, b, c, 16)
    with pytest.raises(ValueError, match=r"A\.shape\[1\] == B\.shape\[0\]"):
        launch(program, plan, a, b, c, 16)


def test_the_prefetch_of_a_pipeline() -> None:
    """``{scope = "shared", double_buffer = true}``, as documents write it."""
    case = next(c for c in CASES if c.name == "pipeline_prefetch_mma")
    a = np.ones((4, 4), np.float32)
    program, _, _ = lower_source(HEAD + case.text, a, a, a.copy())
    found = [o for o in program.walk() if o.name == "tessera.schedule.prefetch"]
    assert [dict(o.attributes) for o in found] == [{"scope": "shared", "double_buffer": True}] * 2
    loops = [o for o in program.walk() if o.attributes.get("pipeline_stages")]
    assert [o.attributes["pipeline_stages"] for o in loops] == [2]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def f(a: mut f32[n, n]):\n    for i in op.tile_range(2, step=1):\n        a[:] = a @ a\n",
         "T0701"),
        ("def f(a: mut f32[n], b: mut f32[n]):\n    for i in op.tile_range(n, step=4):\n"
         "        t = a + 1.0\n        a[i:i+4] = b[i:i+4]\n        b[i:i+4] = t[i:i+4]\n",
         "T0702"),
        ("def f(a: f32[n], b: mut f32[n]):\n    for i in op.tile_range(2, step=1):\n"
         "        b[:] = op.cumsum(op.cumsum(a), reverse=True)\n", "T0700"),
    ],
)  # fmt: skip
def test_what_is_refused(text: str, code: str) -> None:
    given = [np.ones((4, 4) if "[n, n]" in text else (4,), np.float32)]
    given += [given[0].copy()] if "b:" in text else []
    _, _, found = lower_source(f"{HEAD}@op.kernel\n{text}", *given)
    assert [d.code for d in found] == [code]


FLAGS = """\
@op.kernel
def kernel[A: bool, B: bool](x: f32[n, m], y: mut f32[n, m]):
    for i in op.tile_range(n, step=32):
        for j in op.tile_range(m, step=32):
            if A: t = x[i:i+32, j:j+32] * 2.0
            u = x[i:i+32, j:j+32] + 1.0
            if A and not B: u = u + t
            if not A: u = u * 3.0
            y[i:i+32, j:j+32] = u
"""


@pytest.mark.parametrize("flags", ["A=True, B=False", "A=False, B=True", "A=True, B=True"])
def test_what_a_side_names_that_is_not_there_is_not_carried(flags: str) -> None:
    """A variable of one condition known at compile time, read in another: no loop hands it on."""
    session = Session(overlay={"kernel.tessera": FLAGS})
    wanted = session.signature(
        "kernel.tessera", "kernel", f"x: f32[n, m], y: mut f32[n, m], {flags}"
    )
    made = session.scheduled("kernel.tessera", "kernel", wanted)[0]
    loops = [o for o in made.walk() if o.name == "tessera.schedule.for"]
    assert loops and not any(o.results for o in loops)
    assert all(set(o.strings("mapping")) == {"grid"} for o in loops)
