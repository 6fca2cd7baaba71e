"""Element-wise operations in a row are emitted register by register."""

from __future__ import annotations

from tessera_backend.nvptx.tiles.elementwise_runs import RUN, grouped

from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.layout import register_layout
from tessera_lang.types.dtype import BF16, F32

LAYOUT = register_layout("regs(4@0*1) lanes(32@0*4) warps()")
TILE = TileType(F32, (128,), LAYOUT)


def one(name: str, *operands: Value, t: TileType = TILE) -> Operation:
    return Operation(f"tile.{name}", operands, (Value(t),))


def test_what_needs_nothing_of_a_run_moves_before_it() -> None:
    x = Value(TILE)
    a = one("add", x, x)
    constant = Operation("tile.constant", (), (Value(F32),), {"value": 2.0})
    wide = one("splat", constant.result)
    b = one("mul", a.result, wide.result)
    narrow = one("cast", b.result, t=TileType(BF16, (128,), LAYOUT))
    barrier = Operation("tile.barrier")
    c = one("sub", x, x)
    found = list(grouped([a, constant, wide, b, narrow, barrier, c]))
    names = ["tile.constant", "tile.splat", RUN, "tile.cast", "tile.barrier", "tile.sub"]
    assert [o.name for o in found] == names
    assert found[2].regions[0].operations == (a, b)


def test_other_layouts_and_users_end_a_run() -> None:
    x = Value(TILE)
    a, b = one("add", x, x), one("neg", x)
    other = TileType(F32, (128,), register_layout("regs(2@0*1 2@0*64) lanes(32@0*2) warps()"))
    converted = one("convert", b.result, t=other)
    c = one("neg", converted.result, t=other)
    found = list(grouped([a, b, converted, c]))
    assert [o.name for o in found] == [RUN, "tile.convert", "tile.neg"]
