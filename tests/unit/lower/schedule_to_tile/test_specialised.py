"""Kernels split into roles, on a machine where everything asynchronous is late."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu.interpreter import launch as machine
from tessera_backend.cpu.interpreter.faults import AsynchronousFault

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Attribute, Operation, Program
from tessera_lang.ir.rewrite import Replacement, rewrite_program
from tessera_lang.ir.verify import verify
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.machine import machine_named
from tessera_lang.types.dtype import BF16, DTYPES, F32, DType
from tests.unit.lower.ast_to_schedule import reference
from tests.unit.lower.schedule_to_tile import hopper_programs as forms
from tests.unit.opt.schedule.decided import decide
from tests.unit.opt.schedule.programs import Kernel, attention, matmul
from tests.unit.tiled import as_tiles

RANDOM = np.random.default_rng(11)
SMALL: Mapping[str, Attribute] = {"tile": (64, 64, 64)}


def numbers(shape: tuple[int, ...], dtype: DType = BF16) -> np.ndarray[Any, Any]:
    return RANDOM.integers(-4, 5, shape).astype(reference.numpy_type(dtype))


def lowered(kernel: Kernel) -> tuple[Program, LaunchPlan, Program]:
    machine = machine_named("cuda", "sm_90a")
    remarks: list[Diagnostic] = []
    program = kernel.program
    for one in decide(machine, remarks):
        program = verify(one.run(program))
    assert not [r for r in remarks if r.severity == "error"], remarks
    tiled, plan = as_tiles(program, kernel.plan, machine, remarks)
    return verify(tiled), plan, program


def check(kernel: Kernel, *arrays: np.ndarray[Any, Any], rtol: float = 0.0) -> Operation:
    tiled, plan, decided = lowered(kernel)
    ours, theirs = [a.copy() for a in arrays], [a.copy() for a in arrays]
    machine.launch(tiled, plan, *ours)
    reference.launch(decided, kernel.plan, *theirs)
    for x, y in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=rtol, atol=rtol)
    return tiled.operations[0]


def product(m: int, n: int, k: int, transposed: bool = True, **more: Any) -> Operation:
    dtype = more.get("dtype", BF16)
    kernel = matmul(m, n, k, transposed=transposed, **more)
    b = (n, k) if transposed else (k, n)
    out = reference.numpy_type(more.get("out") or dtype)
    return check(kernel, numbers((m, k), dtype), numbers(b, dtype), np.full((m, n), np.nan, out))


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("sizes", [(256, 256, 256), (200, 136, 72), (64, 64, 8), (64, 64, 640)])
@pytest.mark.sample
def test_products(sizes: tuple[int, int, int], transposed: bool) -> None:
    product(*sizes, transposed=transposed, attributes=SMALL)


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.sample(2)
def test_depths(stages: int) -> None:
    product(192, 128, 448, attributes={**SMALL, "pipeline_stages": stages})


@pytest.mark.parametrize("cluster", [(1, 1), (2, 1), (4, 1), (1, 2)])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.sample(1)
def test_clusters(cluster: tuple[int, int], transposed: bool) -> None:
    product(320, 384, 192, transposed, attributes={"tile": (64, 128, 64), "cluster": cluster})


def test_two_warp_groups() -> None:
    kernel = product(300, 520, 136, attributes={"tile": (128, 256, 64), "pipeline_stages": 3})
    roles = next(o for o in kernel.walk() if o.name == "tile.roles")
    assert roles.attributes["warps"] == (4, 8)


def test_an_odd_number_of_parts() -> None:
    product(128, 384, 128, attributes={"tile": (64, 192, 64)})


def test_a_wide_result() -> None:
    product(128, 128, 128, out=F32, attributes=SMALL)


def test_no_contraction() -> None:
    product(128, 128, 0, attributes=SMALL)


def test_attention() -> None:
    kernel = attention(192, 160, 2, 64, bm=64, bn=64)
    q, k, v = numbers((2, 192, 64)), numbers((2, 160, 64)), numbers((2, 160, 64))
    check(kernel, q, k, v, np.full((2, 192, 64), np.nan, q.dtype), rtol=2e-2)


@pytest.mark.parametrize("t", [0, 64, 100, 320])
@pytest.mark.sample(2)
def test_products_beside_each_other(t: int) -> None:
    """The last product of a turn is on its way while the next turn's first is done."""
    kernel = attention(128, max(t, 128), 2, 64, bm=64, bn=64)
    q, k, v = numbers((2, 128, 64)), numbers((2, t, 64)), numbers((2, t, 64))
    made = check(kernel, q, k, v, np.full((2, 128, 64), np.nan, q.dtype), rtol=2e-2)
    pending = [o.attributes["pending"] for o in made.walk() if o.name == "tile.mma.wait"]
    assert 1 in pending


def test_warp_groups_alternate() -> None:
    kernel = attention(256, 320, 2, 64, bm=128, bn=64, attributes={"pingpong": True})
    q, k, v = numbers((2, 256, 64)), numbers((2, 320, 64)), numbers((2, 320, 64))
    made = check(kernel, q, k, v, np.full((2, 256, 64), np.nan, q.dtype), rtol=2e-2)
    barrier = "tile.ordered_barrier"
    for region in (r for o in made.walk() for r in o.regions):
        steps = [o.attributes["step"] for o in region.operations if o.name == barrier]
        steps = [s for s in steps if s != "init"]
        assert steps == ["wait", "arrive"] * (len(steps) // 2)
    steps = [o.attributes["step"] for o in made.walk() if o.name == barrier]
    assert (steps.count("init"), steps.count("wait")) == (1, 3)


@pytest.mark.sample(3)
@pytest.mark.parametrize("cluster", [(1, 1), (2, 1)])
@pytest.mark.parametrize("sizes", [(128, 256, 64), (200, 136, 72), (64, 64, 8)])
def test_multiply_adds_of_a_role(sizes: tuple[int, int, int], cluster: tuple[int, int]) -> None:
    """Exact f32: lanes read what another role brings."""
    made = product(
        *sizes, transposed=False, dtype=F32, attributes={
            "tile": (64, 64, 16), "cluster": cluster, "warp_specialize": True,
        },
    )  # fmt: skip
    names = {o.name for o in made.walk()}
    assert {"tile.roles", "tile.dot", "tma.load"} <= names
    assert "tile.mma.async" not in names


def arrays_of(kernel: Kernel, sizes: Mapping[str, int]) -> list[np.ndarray[Any, Any]]:
    """Numbers for what is read; results poisoned, but for what is read before."""
    out: list[np.ndarray[Any, Any]] = []
    for p in kernel.plan.parameters:
        shape = tuple(sizes[str(d)] for d in p.dims)
        if p.name == "count":
            out.append(np.array([200, 0, 70], np.int32))
        else:
            out.append(numbers(shape, DTYPES[p.dtype]))
    return out


FORMS = [
    forms.two_sums, forms.read_twice, forms.used_each_turn, forms.under_a_condition,
    forms.counted_by_memory, forms.one_after_the_other, forms.added_to_memory,
    forms.several_results, forms.transposed_left, forms.nested_sums, forms.row_sums,
    forms.computed_right, forms.computed_both, forms.computed_small,
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("cluster", [(1, 1), (2, 1)])
@pytest.mark.sample(3)
def test_forms(form: Any, cluster: tuple[int, int]) -> None:
    kernel = form()
    operation = kernel.program.operations[0]
    hints: Any = operation.attributes["hints"]
    names = [s.symbol for s in kernel.plan.slots if s.kind == "symbol"]
    sizes = dict(zip(names, hints[len(hints) - len(names) :], strict=True))
    attributes = {**operation.attributes, "cluster": cluster}
    made = Operation(operation.name, (), (), attributes, operation.regions)
    made_kernel = Kernel(Program("schedule", (made,)), kernel.plan)
    check(made_kernel, *arrays_of(kernel, sizes), rtol=1e-6)


def without(program: Program, name: str, place: int) -> Program:
    """The program less one operation of a name; what it gives is what it took."""
    seen = -1

    def step(operation: Operation) -> Replacement | None:
        nonlocal seen
        if operation.name != name:
            return None
        seen += 1
        given = operation.operands if operation.results else ()
        return Replacement((), given) if seen == place else None

    return rewrite_program(program, step)


PLANTED = [
    ("tile.mbarrier.wait", 0),  # the producer's, for an empty slot
    ("tile.mbarrier.wait", 1),  # the consumer's, for a full one
    ("tile.mbarrier.arrive", 0),
    ("tile.mma.wait", 0),
    ("tile.mma.wait", 1),
    ("tile.fence_async", 0),
    ("tma.wait", 0),
    ("tile.named_barrier", 1),
]


@cache
def unplanted() -> tuple[Program, LaunchPlan, Any, Any, Any]:
    """A kernel that walks over its tiles, its arguments, and what it gives."""
    kernel = matmul(256, 512, 512, attributes={
        "tile": (128, 128, 64), "pipeline_stages": 2, "cluster": (1, 1), "persistent": True,
    })  # fmt: skip
    tiled, plan, _ = lowered(kernel)
    a, b = numbers((256, 512)), numbers((512, 512))
    right = np.full((256, 512), np.nan, a.dtype)
    machine.launch(tiled, plan, a, b, right, most=1)
    return tiled, plan, a, b, right


@pytest.mark.parametrize(("name", "place"), PLANTED)
@pytest.mark.sample(1)
def test_a_planted_fault_is_found(name: str, place: int) -> None:
    tiled, plan, a, b, right = unplanted()
    wrong = np.full((256, 512), np.nan, a.dtype)
    try:
        machine.launch(without(tiled, name, place), plan, a, b, wrong, most=1)
    except AsynchronousFault:
        return
    assert not np.array_equal(right, wrong)
