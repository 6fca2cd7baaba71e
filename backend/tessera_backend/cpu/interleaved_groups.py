"""Groups side by side run row by row: the first row of lanes of each, then the second.

A group of 16 x 16 lanes reads 16 pieces of rows, each of which is far from the next in memory.
Where lanes have nothing to do with each other, a thread takes a run of groups that are neighbours
along the last axis and goes along each row of lanes through all of them, as a loop over the array
would.
Must not know LLVM.
"""

from __future__ import annotations

from tessera_backend.cpu.interchange import ARRAY_OPERAND, FEWEST_LANES, LaneStrides
from tessera_lang.analysis.uniformity.lane_uniformity import uniformity
from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.definitions import ATOMICS, BUFFERS, LOOPS, REPORTS, with_effect
from tessera_lang.ir.rewrite import Replacement, rewrite_operation
from tessera_lang.record import dataclass, replace
from tessera_lang.types.dtype import INDEX

_LANES = 1024  # of a run along the last axis: a few of their rows stay in the first cache
_TOGETHER = LOOPS | BUFFERS | ATOMICS | REPORTS | with_effect("sync", "warp")


@dataclass(frozen=True, slots=True)
class RowRuns:
    """A kernel whose groups have one row of lanes, number ``row`` (an argument behind the others)
    of ``rows``; ``groups``: how many are a run."""

    kernel: Operation
    row: Value
    rows: int
    groups: int


def row_runs(kernel: Operation) -> RowRuns | None:
    """None where lanes depend on each other, have loops (their steps use what is in registers for
    several rows), or do not lie side by side in memory along the last axis."""
    group = kernel.integers("group")
    if len(group) != 2 or kernel.attributes["grid_rank"] != 2:
        return None
    rows, lanes = group
    if rows < 2 or lanes < FEWEST_LANES or kernel.holds(_TOGETHER):
        return None
    strides = LaneStrides(kernel, uniformity(kernel))
    accesses = [op for op in kernel.walk() if op.name in ARRAY_OPERAND]
    if any(strides.of_access(op) not in (-1, 0, 1) for op in accesses):
        return None
    row = Value(INDEX, "row")

    def step(op: Operation) -> Operation | Replacement | None:
        if op.name == "tile.lane_index" and op.attributes["axis"] == 0:
            return Replacement((), (row,))
        return _linear(op, row, lanes) if op.name == "tile.lane_linear" else None

    made = rewrite_operation(kernel, step)
    body = made.regions[0]
    made = replace(
        made, attributes={**made.attributes, "group": (1, lanes)},
        regions=(Region((*body.arguments, row), body.operations),),
    )  # fmt: skip
    return RowRuns(made, row, rows, max(1, _LANES // lanes))


def _linear(op: Operation, row: Value, lanes: int) -> Replacement:
    """The number of a lane: of those in the rows before, and of those in its own."""
    size, before, own, all_ = (Value(INDEX) for _ in range(4))
    return Replacement((
        Operation("tile.constant", (), (size,), attributes={"value": lanes}),
        Operation("tile.mul", (row, size), (before,)),
        replace(op, results=(own,)),
        Operation("tile.add", (before, own), (all_,)),
    ), (all_,))  # fmt: skip
