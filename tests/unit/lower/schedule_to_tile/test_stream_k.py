"""Whole tiles and parts of those that make no wave, dealt to persistent groups: right, with the
same bits in any order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu.interpreter import launch as machine
from tessera_backend.cpu.interpreter.faults import AsynchronousFault

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Attribute, Value, ViewType
from tessera_lang.opt.schedule.query.kernel_facts import kernel_of
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import F32
from tessera_lang.types.shape import evaluate_dim
from tests.unit.lower.ast_to_schedule import reference
from tests.unit.lower.schedule_to_tile import hopper_programs as forms
from tests.unit.lower.schedule_to_tile.test_specialised import arrays_of, without
from tests.unit.lower.schedule_to_tile.test_split_k import (
    ARCHES,
    SUMS,
    attributed,
    less_its_rows,
    lowered,
    product,
    results,
    scaled,
    sizes_of,
)
from tests.unit.opt.schedule.decided import decided
from tests.unit.opt.schedule.programs import Kernel, matmul

QUICK = (forms.under_a_condition, forms.counted_by_memory, forms.computed_small)


def check(kernel: Kernel, arch: str, *arrays: Any, rtol: float = 0.0) -> LaunchPlan:
    """As the reference; groups in order, and in another one."""
    made = lowered(kernel, arch)
    theirs = [a.copy() for a in arrays]
    reference.launch(made[2], kernel.plan, *theirs)
    for seed in (None, 1):
        for x, y in zip(results(made, list(arrays), seed), theirs, strict=True):
            ours, wanted = x.astype(np.float64), y.astype(np.float64)
            np.testing.assert_allclose(ours, wanted, rtol=rtol, atol=rtol)
    return made[1]


def dealt(
    m: int, n: int, k: int, groups: int, parts: int = 2, **more: Any
) -> tuple[Kernel, list[Any]]:
    said: dict[str, Attribute] = {"stream": groups, **more.pop("attributes", {})}
    return product(m, n, k, parts, attributes=said, **more)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(
    ("sizes", "groups", "parts"),
    [((128, 64, 320), 3, 2), ((72, 136, 200), 5, 3), ((64, 64, 72), 2, 4), ((1, 64, 448), 3, 7),
     ((64, 64, 64), 4, 2), ((64, 64, 0), 2, 3), ((64, 0, 64), 2, 2), ((128, 64, 128), 2, 2),
     ((320, 64, 128), 2, 2)],
)  # fmt: skip
@pytest.mark.sample
def test_products(arch: str, sizes: tuple[int, int, int], groups: int, parts: int) -> None:
    """Whole tiles alone and with parts behind them; parts in one round and in several, some of
    them without turns."""
    kernel, arrays = dealt(*sizes, groups, parts)
    plan = check(kernel, arch, *arrays)
    assert (plan.grid, plan.persistent) == ((groups,), False)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("finish", [scaled, less_its_rows])
def test_what_stands_behind(arch: str, finish: Callable[..., Value]) -> None:
    kernel, arrays = dealt(64, 192, 256, 4, finish=finish, out=F32, tile=(64, 64, 64))
    check(kernel, arch, *arrays)


FORMS = [pytest.param(f, marks=() if f in QUICK else pytest.mark.slow, id=f.__name__) for f in SUMS]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sample(1)
def test_any_sums(form: Callable[[], Kernel]) -> None:
    kernel, remarks = form(), list[Diagnostic]()
    arrays = arrays_of(kernel, sizes_of(kernel))
    uneven = form is forms.counted_by_memory
    made = lowered(attributed(kernel, split=2, stream=3), "sm_90a", remarks)
    assert any("differs from tile to tile" in r.message for r in remarks) is uneven
    assert bool(kernel_of(made[2]).attributes["stream"]) is not uneven
    check(attributed(kernel, split=2, stream=3), "sm_90a", *arrays, rtol=1e-6)


@pytest.mark.parametrize("arch", ARCHES)
def test_the_bits_are_the_same_in_any_order(arch: str) -> None:
    rng: Any = np.random.default_rng(3)
    kernel, arrays = dealt(64, 192, 384, 2, 3, out=F32)
    arrays[:2] = [rng.standard_normal(a.shape).astype(a.dtype) for a in arrays[:2]]
    made = lowered(kernel, arch)
    found = [results(made, arrays, seed)[2].tobytes() for seed in (None, *range(5))]
    assert len(set(found)) == 1


@pytest.mark.parametrize("arch", ARCHES)
def test_every_group_has_as_many_turns(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """10 tiles of 7 turns to 4 groups are two whole tiles for each, and two in 2 parts."""
    kernel, arrays = dealt(5 * 64, 128, 7 * 64, 4, attributes={"pipeline_stages": 2})
    tiled, plan, _ = lowered(kernel, arch)
    found = [len(products) for products in turns_of_groups(tiled, plan, arrays, monkeypatch)]
    products = sum(found) // 70
    assert sorted(found) == [n * products for n in (17, 17, 18, 18)]


def turns_of_groups(
    tiled: Any, plan: Any, arrays: list[Any], monkeypatch: pytest.MonkeyPatch
) -> list[list[object]]:
    """The products that each group does."""
    names = {o.name for o in tiled.walk()}
    name = "tile.mma.async" if "tile.mma.async" in names else "tile.dot"
    rule, groups = machine.RULES[name], dict[int, list[object]]()

    def counted(strand: Any, operation: Any) -> Any:
        groups.setdefault(strand.group.number, []).append(operation)
        return rule(strand, operation)

    monkeypatch.setitem(machine.RULES, name, counted)
    machine.launch(tiled, plan, *[a.copy() for a in arrays])
    return list(groups.values())


@pytest.mark.parametrize("arch", ARCHES)
def test_nobody_waits_and_parts_have_places(arch: str) -> None:
    made = lowered(dealt(128, 192, 512, 4)[0], arch)
    sizes = {"m": 128, "n": 192, "k": 512}
    memory = [evaluate_dim(d, sizes) for d in (made[1].workspace, made[1].scratch)]
    assert memory == [4 * 4, 4 * 2 * 64 * 64 * 4]
    assert not [o for o in made[0].walk() if o.name == "tile.while"]


def test_results_leave_by_tma() -> None:
    names = [o.name for o in lowered(dealt(128, 192, 512, 4)[0], "sm_90a")[0].walk()]
    assert "tma.store" in names
    assert "tile.store_tile" not in names


def test_a_counter_that_is_not_set_back_is_found() -> None:
    kernel, arrays = dealt(64, 128, 512, 3, out=F32)
    tiled, plan, _ = lowered(kernel, "sm_90a")
    stores = [i for i, o in enumerate(x for x in tiled.walk() if x.name == "tile.store")
              if isinstance(o.operands[1].type, ViewType)]  # fmt: skip
    with pytest.raises(AsynchronousFault, match="not left zero"):
        machine.launch(without(tiled, "tile.store", stores[0]), plan, *arrays)


@pytest.mark.parametrize(
    ("said", "reason"),
    [({"cluster": (2, 1)}, "clusters"), ({"persistent": False}, "persistent(False)")],
)  # fmt: skip
def test_what_does_not_go_with_it_is_said(said: dict[str, Attribute], reason: str) -> None:
    remarks = list[Diagnostic]()
    made = lowered(dealt(256, 128, 512, 3, attributes=said)[0], "sm_90a", remarks)
    assert [r.code for r in remarks if reason in r.message][:1] == ["T0742"]
    assert kernel_of(made[2]).attributes["stream"] == 0


# --- when ---------------------------------------------------------------------------------------


def found_for(kernel: Kernel, arch: str = "sm_90a") -> Mapping[str, Attribute]:
    """The attributes that are decided, and what is said of the split."""
    made = decided(kernel, arch)
    said = tuple(r.message for r in made.remarks if r.code == "T0749")
    return {**made.kernel.attributes, "remarks": said}


@pytest.mark.parametrize("sizes", [(2560, 2560, 8192), (2304, 2304, 16384)])
def test_a_few_tiles_more_than_a_wave_have_parts(sizes: tuple[int, int, int]) -> None:
    kernel, remarks = decided(matmul(*sizes))
    found = kernel.attributes
    assert found["stream"] == 132
    assert int(str(found["split"])) > 1
    assert found["persistent"] is False
    assert "cluster" not in found
    said = [r.message for r in remarks if r.code == "T0749"]
    assert any("make no wave are computed in" in m for m in said)


@pytest.mark.parametrize("sizes", [(2048, 2048, 2048), (4096, 4096, 4096), (1000, 1000, 1000)])
def test_full_waves_and_short_loops_do_not(sizes: tuple[int, int, int]) -> None:
    assert "stream" not in found_for(matmul(*sizes))


def test_why_not_is_said() -> None:
    found = found_for(
        matmul(1792, 1792, 8192, attributes={"cluster": (2, 1), "tile": (128, 128, 64)})
    )
    assert "stream" not in found
    assert "clusters" in str(found["remarks"])


def test_a_cpu_deals_nothing() -> None:
    assert "stream" not in found_for(matmul(1792, 1792, 8192), "x86-64")
