"""Contractions in parts: right whoever comes last, with the same bits, for any sums and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu.interpreter import launch as machine
from tessera_backend.cpu.interpreter.faults import AsynchronousFault

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Attribute, Program, TileType, Value
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.ir.verify import verify
from tessera_lang.opt.schedule.query.kernel_facts import facts_of, kernel_of
from tessera_lang.opt.schedule.query.splittable_reductions import sums_of
from tessera_lang.record import replace
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.machine import machine_named
from tessera_lang.types.dtype import BF16, F32
from tessera_lang.types.shape import evaluate_dim
from tests.unit.lower.ast_to_schedule import reference
from tests.unit.lower.schedule_to_tile import hopper_programs as forms
from tests.unit.lower.schedule_to_tile.test_specialised import arrays_of, numbers, without
from tests.unit.opt.schedule.decided import decide, decided
from tests.unit.opt.schedule.programs import Kernel, attention, matmul
from tests.unit.tiled import as_tiles

ARCHES = ("sm_80", "sm_90a")
Array = np.ndarray[Any, Any]


def attributed(kernel: Kernel, **more: Attribute) -> Kernel:
    (operation,) = kernel.program.operations
    attributes = {**operation.attributes, **more}
    return Kernel(Program("schedule", (replace(operation, attributes=attributes),)), kernel.plan)


def lowered(
    kernel: Kernel, arch: str, remarks: list[Diagnostic] | None = None
) -> tuple[Program, LaunchPlan, Program]:
    target = machine_named("cuda", arch)
    notes = [] if remarks is None else remarks
    program = kernel.program
    for one in decide(target, notes):
        program = verify(one.run(program))
    assert not [r for r in notes if r.severity == "error"], notes
    tiled, plan = as_tiles(program, kernel.plan, target, notes)
    return verify(tiled), plan, program


def results(made: tuple[Program, LaunchPlan, Program], arrays: list[Array], seed: int | None):
    tiled, plan, _ = made
    held = [a.copy() for a in arrays]
    machine.launch(tiled, plan, *held, seed=seed)
    return held


def check(kernel: Kernel, arch: str, *arrays: Array, rtol: float = 0.0) -> LaunchPlan:
    """As the reference, in any order of groups."""
    made = lowered(kernel, arch)
    theirs = [a.copy() for a in arrays]
    reference.launch(made[2], kernel.plan, *theirs)
    for seed in (None, 1, 2):
        for x, y in zip(results(made, list(arrays), seed), theirs, strict=True):
            np.testing.assert_allclose(
                x.astype(np.float64), y.astype(np.float64), rtol=rtol, atol=rtol
            )
    return made[1]


def product(m: int, n: int, k: int, parts: int, **more: Any) -> tuple[Kernel, list[Array]]:
    attributes = {"tile": (64, 64, 64), "split": parts, **more.pop("attributes", {})}
    kernel = matmul(m, n, k, attributes=attributes, **more)
    out = np.full((m, n), np.nan, reference.numpy_type(more.get("out") or BF16))
    return kernel, [numbers((m, k)), numbers((n, k)), out]


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(
    ("sizes", "parts"),
    [((128, 128, 512), 2), ((136, 200, 640), 3), ((64, 64, 72), 2), ((1, 64, 448), 7),
     ((64, 8, 1000), 16), ((64, 64, 64), 4), ((64, 64, 0), 2), ((64, 0, 64), 2)],
)  # fmt: skip
@pytest.mark.sample(4)
def test_products(arch: str, sizes: tuple[int, int, int], parts: int) -> None:
    """Parts with more and with fewer turns than others, and with none."""
    kernel, arrays = product(*sizes, parts)
    check(kernel, arch, *arrays)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.sample(1)
def test_groups_that_stay(arch: str, persistent: bool) -> None:
    kernel, arrays = product(200, 136, 448, 3, attributes={"persistent": persistent})
    check(kernel, arch, *arrays)


def scaled(b: ScheduleBuilder, acc: Value) -> Value:
    assert isinstance(acc.type, TileType)
    half = b.full(b.constant(0.5, F32), acc.type.shape)
    return b.binary("add", b.binary("mul", acc, half), half)


def less_its_rows(b: ScheduleBuilder, acc: Value) -> Value:
    """What a row has in common is needed of the whole sum."""
    assert isinstance(acc.type, TileType)
    most = b.reduce("max", acc, b.index(int(acc.type.shape[1])), 1)
    return b.binary("sub", b.broadcast(b.expand(most, 1), acc.type.shape), acc)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("finish", [scaled, less_its_rows])
@pytest.mark.parametrize("out", [BF16, F32])
@pytest.mark.sample(1)
def test_what_stands_behind(arch: str, finish: Callable[..., Value], out: Any) -> None:
    kernel, arrays = product(128, 128, 512, 3, finish=finish, out=out, tile=(64, 64, 64))
    check(kernel, arch, *arrays)


SUMS = [
    forms.two_sums, forms.read_twice, forms.under_a_condition, forms.counted_by_memory,
    forms.added_to_memory, forms.several_results, forms.transposed_left, forms.nested_sums,
    forms.row_sums, forms.computed_right, forms.computed_both, forms.computed_small,
]  # fmt: skip
OTHERS = [forms.used_each_turn, forms.one_after_the_other]


def sizes_of(kernel: Kernel) -> dict[str, int]:
    hints: Any = kernel_of(kernel.program).attributes["hints"]
    names = [s.symbol for s in kernel.plan.slots if s.kind == "symbol"]
    return dict(zip(names, hints[len(hints) - len(names) :], strict=True))


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("form", SUMS, ids=lambda f: f.__name__)
@pytest.mark.sample(1)
def test_any_sums(form: Callable[[], Kernel], arch: str) -> None:
    kernel = form()
    assert sums_of(facts_of(kernel_of(kernel.program))).loop is not None
    arrays = arrays_of(kernel, sizes_of(kernel))
    plan = check(attributed(kernel, split=2), arch, *arrays, rtol=1e-6)
    assert plan.scratch


@pytest.mark.parametrize("form", OTHERS, ids=lambda f: f.__name__)
@pytest.mark.sample(1)
def test_what_is_no_sum_stays_whole(form: Callable[[], Kernel]) -> None:
    kernel, remarks = form(), list[Diagnostic]()
    arrays = arrays_of(kernel, sizes_of(kernel))
    made = lowered(attributed(kernel, split=2), "sm_90a", remarks)
    assert [r.code for r in remarks if "split" in r.message] == ["T0742"]
    assert not made[1].scratch
    check(kernel, "sm_90a", *arrays, rtol=1e-6)


def test_attention_carries_more_than_sums() -> None:
    found = sums_of(facts_of(kernel_of(attention(64, 64, 1, 64, bm=64, bn=64).program)))
    assert found.loop is None
    assert "no sum" in found.reason


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.sample(1)
def test_the_bits_are_the_same_in_any_order(arch: str) -> None:
    rng: Any = np.random.default_rng(3)
    kernel, arrays = product(64, 128, 2048, 5, out=F32)
    arrays[:2] = [rng.standard_normal(a.shape).astype(a.dtype) for a in arrays[:2]]
    made = lowered(kernel, arch)
    found = [results(made, arrays, seed)[2].tobytes() for seed in (None, *range(6))]
    assert len(set(found)) == 1


@pytest.mark.parametrize("arch", ARCHES)
def test_a_part_is_a_group_and_has_a_place(arch: str) -> None:
    one, three = (lowered(product(128, 192, 512, n)[0], arch) for n in (1, 3))
    sizes = {"m": 128, "n": 192, "k": 512}
    groups = [evaluate_dim(made[1].grid[0], sizes) for made in (one, three)]  # type: ignore[index]
    assert groups == [6, 18]
    memory = [[evaluate_dim(d, sizes) for d in (p.workspace, p.scratch)]
              for p in (one[1], three[1])]  # fmt: skip
    assert memory == [[0, 0], [6 * 4, 18 * 64 * 64 * 4]]
    names = [[o.name for o in made[0].walk()] for made in (one, three)]
    assert [n.count("tile.atomic") for n in names] == [0, 1]
    assert not [o for o in three[0].walk() if o.name == "tile.while"]  # nobody waits


def test_a_counter_that_is_not_set_back_is_found() -> None:
    kernel, arrays = product(64, 64, 512, 2, out=F32)
    tiled, plan, _ = lowered(kernel, "sm_90a")
    held = [a.copy() for a in arrays]
    with pytest.raises(AsynchronousFault, match="not left zero"):
        machine.launch(without(tiled, "tile.store", 1), plan, *held)


# --- when ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ARCHES)
def test_lanes_wait_for_what_one_of_them_has_counted(arch: str) -> None:
    """One lane stores the count in shared memory and all load it, with a barrier between."""
    kernel, arrays = product(128, 64, 512, 2)
    tiled, plan, _ = lowered(kernel, arch)
    (region,) = tiled.operations[0].regions
    names = [o.name for o in Program("tile", region.operations).walk()]
    first = names.index("tile.store")
    place = names[:first].count("tile.barrier")
    message = "tile.load reads what tile.store has written: no barrier stands between lanes"
    with pytest.raises(AsynchronousFault, match=message):
        machine.launch(without(tiled, "tile.barrier", place), plan, *arrays)


def test_few_tiles_with_a_long_loop_are_split() -> None:
    kernel, remarks = decided(matmul(128, 128, 32768))
    found, parts = kernel.attributes, kernel.attributes["split"]
    assert isinstance(parts, int)
    assert parts > 2
    assert "split=cost model" in found["origins"]  # type: ignore[operator]
    assert any("is split in" in r.message for r in remarks if r.code == "T0749")


@pytest.mark.parametrize("sizes", [(4096, 4096, 4096), (8192, 28672, 8192), (128, 128, 128)])
def test_enough_tiles_or_a_short_loop_are_not(sizes: tuple[int, int, int]) -> None:
    assert "split" not in decided(matmul(*sizes)).kernel.attributes


def test_clusters_share_copies_instead() -> None:
    kernel = matmul(128, 128, 32768, attributes={"cluster": (1, 2), "tile": (64, 64, 64)})
    found, remarks = decided(kernel)
    assert "split" not in found.attributes
    assert any("clusters" in r.message for r in remarks if r.code == "T0749")


def test_lines_across_those_of_the_cache_do_not_make_clusters_of_few_tiles() -> None:
    """Clusters would save copies, parts save more."""
    found = decided(matmul(128, 128, 32760)).kernel.attributes
    assert "cluster" not in found
    assert int(str(found["split"])) > 2


def test_an_unrolled_product_is_shared_all_the_same() -> None:
    """Its loop stays one, as it stages tiles; others would be several."""
    kernel = matmul(128, 128, 32768, attributes={"unroll": 2, "tile": (64, 64, 64)})
    assert decided(kernel).kernel.attributes["split"] != 1


def test_a_cpu_splits_nothing() -> None:
    assert "split" not in decided(matmul(128, 128, 32768), "x86-64").kernel.attributes
