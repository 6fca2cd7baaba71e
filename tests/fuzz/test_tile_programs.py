"""A few generated tile programs; ``python -m tests.fuzz.tile_programs`` makes more."""

from __future__ import annotations

from typing import Any

import pytest

from tessera_lang.driver import tile_compilation
from tessera_lang.opt.schedule.cost import split_k_cost
from tessera_lang.opt.schedule.cost.cost_model import Work, cycles, in_parts
from tessera_lang.opt.schedule.decide import stream_k
from tessera_lang.target.machine import Machine
from tests.fuzz.products import Products
from tests.fuzz.tile_programs import built, large, tried
from tests.fuzz.tile_programs_many import generate

GPU = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.mark.parametrize(("seed", "place"), [
    *((seed, "sm_90a") for seed in range(2, 322, 20)), *((seed, "sm_80") for seed in (8, 97, 1001)),
    *((seed, "cpu") for seed in (45, 146, 1107)), (20003, "sm_90a"), (20046, "sm_90a"),
])  # fmt: skip
@pytest.mark.sample(1)
def test_a_few_programs_each_time(seed: int, place: str) -> None:
    found = tried(seed, place, (), Products(), calls=1)
    assert not found, str(found[0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(0, 400, 20), *range(1000, 1400, 40)])
def test_a_program_on_the_cpu(seed: int) -> None:
    found = tried(seed, "cpu", (), Products(), calls=1)
    assert not found, str(found[0])


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("seed", [*range(1, 400, 20), *range(1001, 1400, 40)])
def test_a_program_on_a_gpu(seed: int) -> None:
    found = tried(seed, "cuda", (), Products(), calls=1)
    assert not found, str(found[0])


@pytest.mark.slow
@pytest.mark.parametrize("place", ["sm_90a", "cpu", GPU])
@pytest.mark.parametrize("first", range(20000, 20300, 60))
def test_programs_of_up_to_four_products(place: str, first: int) -> None:
    """One behind the other, of which one runs, in each other's loops, in chains, with masks."""
    for seed in range(first, first + 10):
        found = tried(seed, place, (), Products(), calls=1)
        assert not found, str(found[0])


@pytest.mark.slow
@pytest.mark.parametrize("first", [20000, 20100])
def test_where_up_to_four_products_go(first: int) -> None:
    """Without a ring of two buffers are a few whose tiles have no room, each with a remark."""
    stats = Products()
    for seed in range(first, first + 16):
        program = generate(seed)
        found = built(program, "sm_90a", large(program, 8), stats)
        assert not found, str(found)
    assert not stats.silent and stats.ring >= 0.9 * stats.legal > 36, str(stats)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("first", [*range(0, 100, 20), 1000, 1100])
def test_the_tile_ir_of_programs(arch: str, first: int) -> None:
    """Run by the interpreters of the tests, which see races and missing waits too."""
    for seed in range(first, first + 20):
        found = tried(seed, arch, (), Products(), calls=1)
        assert not found, str(found[0])


@pytest.mark.slow
@pytest.mark.parametrize("place", ["sm_80", "sm_90a", GPU])
def test_programs_in_parts(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sum that may be shared by groups is, whatever it costs."""

    def parts(work: Work, machine: Machine) -> tuple[int, float]:
        return 3, cycles(in_parts(work, 3), machine)

    def always(work: Work, machine: Machine) -> bool:
        return True

    monkeypatch.setattr(split_k_cost, "best_parts", parts)
    monkeypatch.setattr(split_k_cost, "is_few", always)
    monkeypatch.setenv("TESSERA_CACHE", "off")
    for seed in range(400, 430):
        found = tried(seed, place, (), Products(), calls=1)
        assert not found, str(found[0])


@pytest.mark.slow
@pytest.mark.parametrize("place", ["sm_80", "sm_90a", GPU])
def test_programs_dealt_to_groups_that_stay(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with whole tiles, and parts of those that are left."""

    def two(work: Work, machine: Machine) -> tuple[int, float]:
        return 2, 0.0

    def three(machine: Machine) -> int:
        return 3

    monkeypatch.setattr(stream_k, "best_dealt", two)
    monkeypatch.setattr(stream_k, "_groups", three)
    monkeypatch.setenv("TESSERA_CACHE", "off")
    for seed in range(400, 430):
        found = tried(seed, place, (), Products(), calls=1)
        assert not found, str(found[0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [30, 64, 97, 134, 169])
def test_tiles_that_lanes_bring_in_pieces(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where lanes had too few registers for whole tiles."""
    usual = tile_compilation.for_machine

    def again(program: Any, plan: Any, machine: Machine, runner: Any = None) -> Any:
        return usual(program, plan, machine, runner, 1)

    monkeypatch.setattr(tile_compilation, "for_machine", again)
    monkeypatch.setenv("TESSERA_CACHE", "off")
    found = tried(seed, "sm_90a", (), Products())
    assert not found, str(found[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "least"),
    [(64, 0.95), (8, 0.95), pytest.param(1, 0.33, id="odd")],
)
@pytest.mark.parametrize("first", [300, 1000, 1100])
def test_where_the_products_go(first: int, unit: int, least: float) -> None:
    """Nearly all are wgmma in a ring where TMA can bring rows, whether or not tiles divide the
    sizes; odd pitches it cannot. Each product that is not has a remark that says why."""
    stats = Products()
    for seed in range(first, first + 12):
        program = generate(seed)
        found = built(program, "sm_90a", large(program, unit), stats)
        assert not found, str(found)
    assert stats.programs == 12 and not stats.silent, str(stats)
    assert stats.ring >= least * stats.legal > 9 * least, str(stats)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("seed", [28, 53, 100, 259, 305])
def test_programs_whose_tiles_did_not_fit_once(seed: int, arch: str) -> None:
    found = tried(seed, arch, (arch,), Products(), calls=1)
    assert not found, str(found[0])
