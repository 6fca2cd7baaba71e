"""Copies say what the second-level cache is to let go of first."""

from __future__ import annotations

from tests.unit.lower.schedule_to_tile.test_split_k import lowered
from tests.unit.opt.schedule.programs import matmul


def test_the_copies_of_the_wide_matrix_say_it() -> None:
    tiled, _, _ = lowered(matmul(16, 8192, 8192), "sm_90a")
    copies = [o for o in tiled.walk() if o.name == "tma.load"]
    said = {bool(o.attributes.get("hint")): o.operands[0].name for o in copies}
    assert len(said) == 2
    assert said[True] != said[False]
