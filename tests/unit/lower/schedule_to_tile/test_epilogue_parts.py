"""Parts of a tile that are whole registers of each lane."""

from __future__ import annotations

import pytest

from tessera_lang.analysis.resources.register_layouts import canonical, transposed, wgmma_c
from tessera_lang.lower.schedule_to_tile.hopper.epilogue import sliced
from tests.unit.register_layouts import is_bijection


@pytest.mark.parametrize(("rows", "groups"), [(64, 1), (128, 2), (192, 3), (256, 2)])
@pytest.mark.parametrize("columns", [64, 128, 192, 256])
@pytest.mark.parametrize("part", [32, 64])
def test_columns_of_an_accumulator(rows: int, groups: int, columns: int, part: int) -> None:
    found = sliced(wgmma_c((rows, columns), groups), 1, part)
    assert found == canonical(wgmma_c((rows, part), groups))


def test_columns_that_lie_in_several_warps_are_no_part() -> None:
    turned = transposed(wgmma_c((256, 64), 2), (1, 0))
    assert is_bijection(turned, (64, 256))
    assert sliced(turned, 1, 64) is None


def test_the_whole_is_a_part() -> None:
    layout = wgmma_c((128, 64), 2)
    assert sliced(layout, 1, 64) == canonical(layout)
