"""A few generated tile programs; ``python -m tests.fuzz.tile_programs`` makes more."""

from __future__ import annotations

import pytest

from tests.fuzz.tile_programs import Products, tried

pytestmark = pytest.mark.slow  # the longer sample; a shorter one is in the tests beside it

GPU = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.mark.parametrize("seed", range(0, 400, 20))
def test_a_program_on_the_cpu(seed: int) -> None:
    found = tried(seed, "cpu", (), Products(), calls=1)
    assert not found, str(found[0])


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(1, 400, 20))
def test_a_program_on_a_gpu(seed: int) -> None:
    found = tried(seed, "cuda", (), Products(), calls=1)
    assert not found, str(found[0])


KNOWN = {28, 53, 100, 259, 305}
"""Do not fit into a GPU in any form that is there."""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("first", range(0, 100, 20))
def test_the_tile_ir_of_programs(arch: str, first: int) -> None:
    """Run by the interpreters of the tests, which see races and missing waits too."""
    for seed in range(first, first + 20):
        if seed not in KNOWN:
            found = tried(seed, arch, (), Products(), calls=1)
            assert not found, str(found[0])


def test_where_the_products_go() -> None:
    """Each product that is not wgmma in a ring has a remark that says why."""
    stats = Products()
    for seed in range(300, 312):
        if seed not in KNOWN:
            found = tried(seed, "", ("sm_90a",), stats)
            assert not found, str(found[0])
    assert stats.programs >= 10 and not stats.silent, str(stats)
