"""docs/architecture.md lists the passes that there are, and these are the ones that run."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import tessera_lang.opt.schedule as passes_of_schedules
from tessera_lang.driver import pipeline
from tessera_lang.driver.session import Session
from tessera_lang.opt.schedule.query.decision_context import MachinePass
from tessera_lang.target.backend import TargetOptions
from tests.run.pipeline_page import PAGE, in_page

LANES = """@kernel tile[(64,)]
def kernel(x: f32[n], y: mut f32[n]):
    i = group_linear_id() * 64 + tile_id(0)
    if i < n:
        y[i] = x[i] + 1.0
"""
ROWS = """@op.kernel
def kernel(x: f32[m, n], y: mut f32[m, n]):
    for i in op.tile_range(m):
        y[i, :] = x[i, :] / op.sum(x[i, :])
"""
PRODUCT = """@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n]):
    return a @ b
"""
SUM = """@op.kernel
def kernel(x: f32[n]):
    return x / op.sum(x)
"""


def test_the_page_lists_the_passes() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert in_page(text) == text, "run: python -m tests.run.pipeline_page --write"


def test_every_pass_has_a_name_and_a_line() -> None:
    for stage in pipeline.stages():
        for one in stage.passes:
            assert one.name.isidentifier() and one.does, one


def test_every_machine_pass_is_on_the_page() -> None:
    """What is marked ``@decides`` or ``@rewrites`` runs: nothing is left behind in a module."""
    listed = [one for _, rows in pipeline._FOR_MACHINE for _, one, _ in rows()]
    listed += [one for _, one, _ in pipeline._lane_rows()]
    prefix = passes_of_schedules.__name__ + "."
    for found in pkgutil.walk_packages(passes_of_schedules.__path__, prefix):
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if isinstance(value, MachinePass):
                assert any(value is one for one in listed), f"{found.name}.{name}"


def in_order(ran: list[str]) -> bool:
    """Whether passes follow each other as on the page. What comes once more for the next launch or
    attempt begins with the first pass of a section."""
    names = [one.name for stage in pipeline.stages() for one in stage.passes]
    firsts, at = set[int](), 0
    for stage in pipeline.stages():
        firsts.add(at)
        at += len(stage.passes)
    places = {-1}
    for name in ran:
        here = {i for i, known in enumerate(names) if known == name}
        places = {i for i in here if i in firsts or any(p < i for p in places)}
    return bool(places)


def test_another_order_is_seen() -> None:
    assert in_order(["simplify", "prove_bounds", "shrink_shared", "simplify"])
    assert not in_order(["simplify", "shrink_shared", "prove_bounds"])
    assert not in_order(["simplify", "no_pass"])


@pytest.mark.parametrize("text", [LANES, ROWS, PRODUCT, SUM])
@pytest.mark.parametrize(
    ("target", "arch"), [("cpu", "native"), ("cuda", "sm_80"), ("cuda", "sm_90a")]
)
@pytest.mark.sample(2)
def test_what_runs_is_on_the_page(text: str, target: str, arch: str) -> None:
    path = "kernel.tessera"
    session = Session(overlay={path: text})
    shapes = {ROWS: ["x: f32[64, 4096]"], PRODUCT: ["a: bf16[512, 512], b: bf16[512, 512]"]}
    signature = session.signature(path, "kernel", *shapes.get(text, []))
    session.compile_kernel(path, "kernel", signature, TargetOptions(target, arch))
    ran = [t.name for t in session.runner.timings]
    assert in_order(ran), ran
    assert ran[-1] == "generate_code"
