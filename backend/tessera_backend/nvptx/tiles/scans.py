"""Scans along an axis of a register tile.

The axis is worked through from its fastest digit to its slowest, whether register, lane or warp
holds it: every element knows the sum of its block so far, every block its total. Must not know
memory beyond the scratch.
"""

from __future__ import annotations

from tessera_backend.llvm.emitter import LaneEmitter, Rule
from tessera_backend.llvm.types import float_constant, integer_constant, register_type
from tessera_backend.nvptx.tiles import words
from tessera_backend.nvptx.tiles.element_places import lane_in_warp, warp_terms
from tessera_backend.nvptx.tiles.elementwise import (
    Coordinates,
    apply,
    bind_at,
    held_at,
    layout_of,
    tile_type,
)
from tessera_backend.nvptx.tiles.reductions import Partials
from tessera_backend.nvptx.tiles.shared_memory import begin_scratch, check_scratch, end_scratch
from tessera_lang.analysis.resources.register_layouts import scan_scratch
from tessera_lang.ir.core import Operation
from tessera_lang.ir.layout import Mode, RegisterLayout
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import DType, integer_range


def _identity(kind: str, dtype: DType) -> str:
    if dtype.is_float:
        value = {"add": 0.0, "mul": 1.0, "max": -float("inf"), "min": float("inf")}[kind]
        return float_constant(value, dtype)
    low, high = integer_range(dtype)
    return integer_constant({"add": 0, "mul": 1, "max": low, "min": high}[kind], dtype.bits)


@dataclass(slots=True)
class _Scan:
    """``values``: by register, over its block so far; ``totals``: of each block; ``members``:
    the registers of each block. Blocks are named by the coordinates of their first register."""

    e: LaneEmitter
    op: Operation
    kind: str
    dtype: DType
    axis: int
    layout: RegisterLayout
    values: dict[Coordinates, str]
    totals: dict[Coordinates, str]
    members: dict[Coordinates, list[Coordinates]]
    partials: list[Partials] = field(default_factory=list[Partials])
    reverse: bool = False

    def both(self, a: str, b: str) -> str:
        return apply(self.e, f"tile.{self.kind}", self.dtype, a, b)

    def picked(self, condition: str, a: str, b: str) -> str:
        kind = register_type(self.dtype)
        return self.e.f.value(f"select i1 {condition}, {kind} {a}, {kind} {b}")

    def prefix(self, block: Coordinates, before: str, holds: str = "") -> None:
        """``before`` comes before all elements of a block (where ``holds``)."""
        for at in self.members[block]:
            value = self.both(before, self.values[at])
            self.values[at] = self.picked(holds, value, self.values[at]) if holds else value

    # --- registers --------------------------------------------------------------------------

    def registers(self, mode: Mode) -> None:
        axis = self.axis
        blocks: dict[Coordinates, list[Coordinates]] = {}
        for block in sorted(self.totals):
            digit = block[axis] // mode.stride % mode.extent
            first = (*block[:axis], block[axis] - digit * mode.stride, *block[axis + 1 :])
            blocks.setdefault(first, []).append(block)
        totals: dict[Coordinates, str] = {}
        members: dict[Coordinates, list[Coordinates]] = {}
        for first, forward in blocks.items():
            parts = forward[::-1] if self.reverse else forward
            total = self.totals[parts[0]]
            for block in parts[1:]:
                self.prefix(block, total)
                total = self.both(total, self.totals[block])
            totals[first] = total
            members[first] = [at for block in parts for at in self.members[block]]
        self.totals, self.members = totals, members

    # --- lanes ------------------------------------------------------------------------------

    def lanes(self, mode: Mode, position: int) -> None:
        f, e = self.e.f, self.e
        lane = lane_in_warp(e)
        digit = f.value(f"urem i32 {f.value(f'udiv i32 {lane}, {position}')}, {mode.extent}")
        last = f.value(f"or i32 {lane}, {(mode.extent - 1) * position}")
        way = "up"
        if self.reverse:  # the first lane is the last one
            last = f.value(f"sub i32 {last}, {(mode.extent - 1) * position}")
            digit, way = f.value(f"sub i32 {mode.extent - 1}, {digit}"), "down"
        later = f.value(f"icmp ne i32 {digit}, 0")
        for block, total in self.totals.items():
            step, reached = 1, total
            while step < mode.extent:
                below = self.moved(reached, way, str(step * position))
                holds = f.value(f"icmp uge i32 {digit}, {step}")
                reached = self.picked(holds, self.both(below, reached), reached)
                step *= 2
            self.prefix(block, self.moved(reached, way, str(position)), later)
            self.totals[block] = self.moved(reached, "idx", last)

    def moved(self, value: str, mode: str, at: str) -> str:
        return words.shuffled(self.e, value, self.dtype, mode, at)

    # --- warps ------------------------------------------------------------------------------

    def warps(self, mode: Mode, position: int, digit: str) -> None:
        """``position``: parts of the axis from one warp of the mode to the next."""
        f, scratch = self.e.f, self.op.operands[1]
        if not self.partials:
            tile = tile_type(self.op.operands[0])
            check_scratch(scratch, scan_scratch(tile, self.axis))
            rows = len({at[self.axis] for at in self.values})
            self.partials = [Partials(self.e, scratch, tile, self.axis, rows, [self.dtype])]
        partials = self.partials[0]
        begin_scratch(self.e, scratch)
        rows = {c: i for i, c in enumerate(sorted({b[self.axis] for b in self.totals}))}
        for block, total in self.totals.items():
            partials.write(rows[block[self.axis]], self.without(block), (total,))
        self.e.dialect.barrier(self.e)
        below = f.value(f"mul i32 {digit}, {position}")
        first = f.value(f"sub i32 {partials.part}, {below}")
        if self.reverse:
            digit = f.value(f"sub i32 {mode.extent - 1}, {digit}")
        for block in list(self.totals):
            row, at = rows[block[self.axis]], self.without(block)
            parts = [partials.read((first, i * position), row, at)[0] for i in range(mode.extent)]
            parts = parts[::-1] if self.reverse else parts
            before = total = parts[0]
            for number, part in enumerate(parts[1:], start=1):
                if number > 1:
                    holds = f.value(f"icmp uge i32 {digit}, {number}")
                    before = self.picked(holds, total, before)
                total = self.both(total, part)
            self.prefix(block, before, f.value(f"icmp ne i32 {digit}, 0"))
            self.totals[block] = total
        end_scratch(self.e, scratch)

    def without(self, at: Coordinates) -> Coordinates:
        return (*at[: self.axis], *at[self.axis + 1 :])


def _digit(e: LaneEmitter, layout: RegisterLayout, mode: Mode) -> str:
    """The digit of a mode of the warps (i32)."""

    alone = tuple(m if m is mode else Mode(m.extent, None) for m in layout.warps)
    (term,) = warp_terms(e, alone)
    return term.operand


def _scan(e: LaneEmitter, op: Operation) -> None:
    tile = tile_type(op.result)
    axis, kind, layout = op.integer("axis"), str(op.attributes["kind"]), layout_of(tile)
    held = held_at(e, op.operands[0])
    nothing = _identity(kind, tile.dtype)
    values = dict(held) if op.attributes["inclusive"] else dict.fromkeys(held, nothing)
    scan = _Scan(
        e, op, kind, tile.dtype, axis, layout, values, dict(held), {at: [at] for at in held},
        reverse=bool(op.attributes.get("reverse")),
    )  # fmt: skip
    steps = [("register", m, 0) for m in layout.registers if m.axis == axis]
    for name, modes in (("lane", layout.lanes), ("warp", layout.warps)):
        position = 1
        for m in modes:
            if m.axis == axis and m.extent > 1:
                steps.append((name, m, position))
            if name == "lane" or m.axis == axis:
                position *= m.extent
    for name, mode, position in sorted(steps, key=lambda s: s[1].stride):
        if name == "register":
            scan.registers(mode)
        elif name == "lane":
            scan.lanes(mode, position)
        else:
            scan.warps(mode, position, _digit(e, layout, mode))
    bind_at(e, op.result, scan.values.__getitem__)


RULES: dict[str, Rule] = {"tile.scan_tile": _scan}
