"""The tiles that the model chooses where there are few: what was measured best on an H100."""

from __future__ import annotations

import pytest

from tessera_lang.opt.schedule.cost.cost_model import (
    Product,
    Work,
    clustered,
    cycles,
    iteration_cycles,
)
from tessera_lang.record import replace
from tessera_lang.target.machine import machine_named
from tests.unit.opt.schedule.decided import decided
from tests.unit.opt.schedule.programs import matmul

HOPPER = machine_named("cuda", "sm_90a")

MEASURED = [
    ((512, 512, 512), (64, 32, 128)),
    ((1024, 1024, 1024), (64, 128, 64)),
    ((1000, 1000, 1000), (64, 128, 64)),
    ((2048, 2048, 2048), (128, 256, 64)),
    ((256, 8192, 28672), (128, 128, 64)),
    ((16, 8192, 8192), (16, 64, 128)),
    ((1, 8192, 8192), (8, 64, 128)),
    ((64, 28672, 8192), (64, 256, 64)),
    ((8192, 8192, 8192), (128, 256, 64)),
]


@pytest.mark.parametrize(("sizes", "tile"), MEASURED)
@pytest.mark.sample(5)
def test_the_best_that_was_measured(sizes: tuple[int, int, int], tile: tuple[int, ...]) -> None:
    assert decided(matmul(*sizes)).kernel.attributes["tile"] == tile


@pytest.mark.parametrize("size", [512, 1024, 2048])
def test_one_wave_neither_stays_nor_clusters(size: int) -> None:
    found = decided(matmul(size, size, size)).kernel.attributes
    assert found["persistent"] is False
    assert "cluster" not in found


def test_one_wave_shares_copies_whose_lines_lie_across_those_of_the_cache() -> None:
    found = decided(matmul(1000, 1000, 1000)).kernel.attributes
    assert found["cluster"] == (2, 1)
    assert found["persistent"] is False


@pytest.mark.parametrize(("rows", "hints"), [(16, 1), (1024, 0)])
def test_the_cache_lets_go_first_of_what_is_read_once(rows: int, hints: int) -> None:
    """The wide matrix, where one row of tiles reads it; of several each reads it again."""
    kernel = decided(matmul(rows, 8192, 8192)).kernel
    assert sum(o.attributes.get("hint") == "first" for o in kernel.walk()) == hints


def test_what_the_cache_can_hold_stays() -> None:
    assert not any("hint" in o.attributes for o in decided(matmul(16, 1024, 1024)).kernel.walk())


def test_several_waves_do() -> None:
    found = decided(matmul(4096, 4096, 4096)).kernel.attributes
    assert found["persistent"] is True
    assert found["cluster"] == (2, 1)


@pytest.mark.parametrize(
    ("tile", "cluster"),
    [((128, 256, 64), (2, 1)), ((256, 128, 64), (1, 2)), ((128, 128, 64), (2, 1))],
)
def test_neighbours_share_the_larger_side(tile: tuple[int, ...], cluster: tuple[int, ...]) -> None:
    assert (
        decided(matmul(4096, 4096, 4096, attributes={"tile": tile})).kernel.attributes["cluster"]
        == cluster
    )


@pytest.mark.parametrize(("k", "shared"), [(512, False), (4096, True)])
def test_tiles_of_few_turns_share_nothing(k: int, shared: bool) -> None:
    """Neighbours wait for each other at each end of a tile."""
    assert ("cluster" in decided(matmul(4096, 4096, k)).kernel.attributes) == shared


def work(tiles: int, product: Product, **more: int) -> Work:
    return Work(tiles, (product,), 0, 0, **more)  # type: ignore[arg-type]


def test_a_wave_more_costs_a_wave() -> None:
    product = Product(128, 128, 64, 16, 64, "wgmma")
    one, two = (cycles(work(n, product), HOPPER) for n in (132, 133))
    assert 1.8 < two / one < 2.2


def test_lines_across_lines_cost_the_cache_more() -> None:
    product = Product(128, 128, 64, 16, 64, "wgmma")
    aligned = iteration_cycles(product, work(132, product), HOPPER)
    one, both = (replace(product, across=shares) for shares in ((1.0, 0.0), (1.0, 1.0)))
    assert iteration_cycles(both, work(132, both), HOPPER) > 1.4 * aligned
    half = iteration_cycles(one, work(132, one), HOPPER)
    assert aligned < half < iteration_cycles(both, work(132, both), HOPPER)


def test_short_lines_cost_requests() -> None:
    """A tile of 96 columns is cut into lines of 64 bytes."""
    product = Product(64, 96, 64, 16, 64, "wgmma")
    cut = replace(product, pieces=(1.0, 2.0))
    whole, pieces = (iteration_cycles(p, work(132, p), HOPPER) for p in (product, cut))
    assert pieces > 1.3 * whole


def test_few_buffers_wait() -> None:
    product = Product(128, 256, 64, 16, 64, "wgmma")
    deep, flat = (
        iteration_cycles(product, work(132, product, room=n * 49152), HOPPER) for n in (4, 2)
    )
    assert flat > 1.2 * deep


def test_main_memory_is_a_floor() -> None:
    product = Product(64, 16, 128, 16, 64, "wgmma")
    moved = 8192 * 8192 * 2
    assert cycles(Work(128, (product,), 0, moved), HOPPER) >= moved / 2300


def test_lines_across_lines_are_shared_from_two_waves_on() -> None:
    product = Product(192, 192, 64, 16, 47, "wgmma")
    across = Work(256, (replace(product, across=(1.0, 1.0)),), 192 * 192 * 2, 0)
    assert clustered(across, HOPPER).cluster == 2
    assert clustered(Work(256, (product,), 192 * 192 * 2, 0), HOPPER).cluster == 1
