"""Loops whose products lanes multiply and add are judged by the rates of a GPU: one loop, or
kernels of their own, and the results are the same."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tessera_lang.driver.graph_verification import planned_for
from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Operation
from tessera_lang.lower.graph_to_kernels.fusion import Plan, plan_of
from tessera_lang.lower.graph_to_kernels.indexing_maps import sizes_of
from tessera_lang.opt.graph.differentiate import gradient_of
from tests.unit.graph import by_numpy, cascades, reference
from tests.unit.graph.random_cascades import random_cascade

NAMES: list[str] = re.findall(r"def (\w+)", cascades.TEXT)
SIZES = {"s": 4096, "t": 4096, "d": 128, "e": 128}


def _plan(name: str, dtype: str, sizes: dict[str, int], arch: str = "H200") -> Plan:
    function = cascades.graph_of(name, dtype, with_gradient=False, sizes=sizes)
    return plan_of(function, (), machine=planned_for("cuda", arch))


def _loops(plan: Plan) -> list[str]:
    return [k.source for k in plan.kernels if "for j in" in k.source]


@pytest.mark.parametrize("name", ["attention", "by_greatest", "by_norm"])
@pytest.mark.parametrize("arch", ["H200", "sm_80"])
def test_few_rows_are_kernels_of_their_own(name: str, arch: str) -> None:
    """4096 rows are not tiles enough for all multiprocessors, whose lanes are what takes long."""
    plan = _plan(name, "f32", SIZES, arch)
    assert not _loops(plan) and len(plan.kernels) == 3
    (why,) = (r.why for r in plan.refusals if "cycles" in r.why)
    loop, apart = (float(x) for x in re.findall(r"(\S+) cycles of sm_\w+, .* (\S+)$", why)[0])
    assert loop > apart


@pytest.mark.parametrize(("name", "dtype", "sizes"), [
    ("attention", "f32", {**SIZES, "s": 1 << 15}),  # enough, of 128 rows
    ("by_norm", "bf16", SIZES),  # matrix units take no time
    ("attention", "f32", cascades.SIZES),  # launches take longer
])  # fmt: skip
def test_one_loop(name: str, dtype: str, sizes: dict[str, int]) -> None:
    plan = _plan(name, dtype, sizes)
    assert len(_loops(plan)) == len(plan.kernels) == 1


def test_more_rows_are_taken_where_groups_are_enough() -> None:
    large = _plan("attention", "f32", {**SIZES, "s": 1 << 15})
    few = _plan("attention", "f32", {**SIZES, "s": 512, "t": 256})
    assert "step=128" in _loops(large)[0] and "step=32" in _loops(few)[0]


def test_without_a_gpu_nothing_is_judged() -> None:
    function = cascades.graph_of("attention", "f32", with_gradient=False, sizes=SIZES)
    assert len(_loops(plan_of(function, (), machine=planned_for("cpu")))) == 1


def test_what_is_said_of_it() -> None:
    from tessera_lang.driver.function_graphs import graph_text, plain_functions

    text = "def f(q, k, v): return op.softmax(q @ k.T, axis=1) @ v\n"
    session = Session(overlay={"f.tessera": text})
    (function,) = plain_functions(session, "f.tessera")
    given = ", ".join(f"{x}: f32[4096, 128]" for x in "qkv")
    told = graph_text(session, "f.tessera", function, given, "fusion", planned_for("cuda", "H200"))
    assert "one loop, in 128 groups of 32 rows, would take" in told


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("with_gradient", [False, True])
@pytest.mark.sample(6)
def test_results(name: str, with_gradient: bool) -> None:
    """Sizes of which some plans are loops and some are not."""
    if name == "cross_entropy" and with_gradient:
        return
    rng = np.random.default_rng([*map(ord, name)])
    sizes = {"s": 70, "t": int(rng.choice([90, 700])), "d": 16, "e": 24}
    function = cascades.graph_of(name, "f32", with_gradient, sizes)
    _compare(function, function, _inputs(function, rng, sizes["t"]))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.slow
def test_random_cascades(seed: int) -> None:
    function, inputs = random_cascade(1000 + seed, 4 + seed % 12)
    wanted = function
    if seed % 3 == 0:
        wanted = gradient_of(function, range(len(inputs)), seeded=True)
        rng = np.random.default_rng(seed)
        extra = wanted.regions[0].arguments[len(inputs) :]
        inputs = [*inputs, *(rng.uniform(-1.0, 1.0, sizes_of(v)) for v in extra)]
    _compare(cascades.prepared(wanted), wanted, inputs)


def _inputs(function: Operation, rng: np.random.Generator, most: int) -> list[Any]:
    made: list[Any] = []
    for value in function.regions[0].arguments:
        shape = sizes_of(value)
        floats = value.tensor_type.dtype.is_float
        found = rng.uniform(-1.0, 1.0, shape) if floats else rng.integers(0, most, shape)
        made.append(found)
    return made


def _compare(function: Operation, wanted: Operation, inputs: list[Any]) -> None:
    made = by_numpy.run(function, inputs, machine=planned_for("cuda", "H200"))
    for a, b in zip(made, reference.run(wanted, inputs), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * max(1e-3, float(np.abs(b).max())))
