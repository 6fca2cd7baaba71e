"""Work on rows and columns stands in front of their expansion, in kernels with products."""

from __future__ import annotations

import pytest

from tessera_lang.ir.core import Operation, TileType
from tests.unit.opt.schedule.decided import from_source

SIGNATURE = "a: f16[512, 256], b: f16[256, 512], c: f16[512]"


def schedule_of(work: str) -> Operation:
    text = f"@op.kernel\ndef kernel(a, b, c):\n    return ({work}).to(f16)\n"
    made = from_source(text, SIGNATURE)
    return made.schedule.operations[0]


def ranks(kernel: Operation, name: str) -> set[int]:
    types = (o.result.type for o in kernel.walk() if o.name == name)
    return {len(t.shape) for t in types if isinstance(t, TileType)}


@pytest.mark.parametrize(
    ("work", "name"),
    [
        ("a @ b + c[None, :]", "tile.cast"),
        ("(a @ b) * abs(c[:, None].to(f32))", "tile.abs"),
        ("a @ b - op.sqrt(c[None, :].to(f32))", "tile.sqrt"),
    ],
)
def test_the_smaller_tile_is_worked_on(work: str, name: str) -> None:
    kernel = schedule_of(work)
    found = ranks(kernel, name)
    assert found == ({1, 2} if name == "tile.cast" else {1})  # the result is rounded as a whole


def test_what_is_stretched_two_ways_stays() -> None:
    kernel = schedule_of("a @ b + c[:, None].to(f32) * c[None, :].to(f32)")
    assert ranks(kernel, "tile.mul") == {2}
