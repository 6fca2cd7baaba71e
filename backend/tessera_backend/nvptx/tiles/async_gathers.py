"""``tile.memcpy.gather``: rows with numbers from global to shared memory by ``cp.async``.

A lane copies pieces of the rows whose numbers it holds; a row outside of the view, and what is
beyond the extents, is zeros. Must not know where the numbers come from.
"""

from __future__ import annotations

from tessera_backend.llvm.emitter import LaneEmitter, Rule
from tessera_backend.nvptx.tiles import words
from tessera_backend.nvptx.tiles.element_places import dialect_of, terms_of
from tessera_backend.nvptx.tiles.global_memory import gathering, row_of, vectors
from tessera_backend.nvptx.tiles.shared_addressing import Cells, base_of, starts_of
from tessera_lang.analysis.resources.register_layouts import gathered
from tessera_lang.ir.core import Operation, TileType


def _gather(e: LaneEmitter, op: Operation) -> None:
    view, buffer, *numbers = op.operands
    t, dims, vector = buffer.buffer_type, op.integers("dims"), op.integer("vector")
    axes, width = len(e.places[view].sizes), vector // t.dtype.bytes
    row = next(d for d in dims if numbers[d] in e.tiles)
    shape = t.shape[-2:]
    layout, rows = gathered(shape, width, dialect_of(e).role.warps, dims.index(row))
    held = numbers[row].type
    if not isinstance(held, TileType) or held.layout != rows:
        raise ValueError("the numbers of the rows lie otherwise than their lanes copy")
    tile = TileType(t.dtype, shape, layout)
    window, jumps = gathering(e, op, tile, numbers[: axes + 2])
    if window.unit != 1 - dims.index(row):
        raise ValueError("pieces of rows are no neighbours in the view")
    inner = starts_of(e, numbers[axes + 2 :])
    cells = Cells(e, base_of(e, e.places[buffer].pointer), t, inner, terms_of(e, layout), 2)
    if not cells.contiguous(width):
        raise ValueError("pieces of rows do not stay together in the buffer")
    cache = "cg" if vector == 16 else "ca"
    for at in vectors(window, layout, width):
        source, from_, valid = row_of(e, window, jumps, at, width)
        target, to = cells.at(at)
        text = f"cp.async.{cache}.shared.global [$0+{to}], [$1+{from_}], {vector}"
        inputs = [(f"i32 {target}", "r"), (f"ptr addrspace(1) {source}", "l")]
        if valid:
            size = e.f.value(f"select i1 {valid}, i32 {vector}, i32 0")
            inputs.append((f"i32 {size}", "r"))
            text += ", $2"
        words.assembly(e, f"{text};", (), inputs)


RULES: dict[str, Rule] = {"tile.memcpy.gather": _gather}
