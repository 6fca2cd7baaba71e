"""Whether a lane loop is left to LLVM's vectorizer as a loop.

LLVM unrolls a loop of few trips before it vectorizes loops; what is left is straight code, of which
it makes vectors only here and there. A lane loop that vectors run faster therefore says that it is
not to be unrolled. One that they do not (most of its accesses lie apart) is faster unrolled. Must
not know LLVM.
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera_backend.cpu.group_plan import Control, GroupPlan, Piece
from tessera_backend.cpu.interchange import ARRAY_OPERAND, FEWEST_LANES, inner_axis
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import LOOPS
from tessera_lang.types.dtype import BOOL, INDEX, DType

_UNROLLED_AT_MOST = 1200
"""LLVM unrolls a whole loop where that gives at most 300 instructions, or up to four times as many
where they fold (`unroll-threshold`, `unroll-max-percent-threshold-boost`); others stay loops."""


class LaneLoopCosts:
    """The answer for the pieces of one kernel."""

    def __init__(self, plan: GroupPlan) -> None:
        group = plan.kernel.integers("group")
        self._lanes = group[inner_axis(group)]
        self._scalar = plan.scalars.is_scalar
        self._strides = plan.strides

    def stays_a_loop(self, piece: Piece) -> bool:
        """Whether vectors do more of a piece at once than element by element.

        A vector does arithmetic, and accesses side by side, in one step; an access that lies apart
        takes a step of its own for each lane, and one to move the element. So with vectors of w
        lanes the loop gains where ``together + 2 * w * apart < w * (together + apart)``, which for
        a large w says that there are more of the one than of the other.
        """
        if self._lanes < FEWEST_LANES or any(op.holds(LOOPS) for op in piece.operations):
            return False
        together, apart = len(piece.stores), 0
        for op in _inside(piece.operations):
            if op.name in ARRAY_OPERAND:
                lies_apart = self._lies_apart(op)
                together, apart = together + (not lies_apart), apart + lies_apart
            elif op.operands and any(_is_data(r) for r in op.results):
                together += 1
        return together > apart and self._lanes * (together + apart) <= _UNROLLED_AT_MOST

    def unrolls(self, node: Control) -> bool:
        """Whether LLVM may unroll a loop of the group, which has lane loops inside.

        The copies gain where lanes carry values from step to step: few enough stay in registers
        then. Else a step is a lane loop as long as one alone, and copies only take time to compile:
        the vectors of each become straight code.
        """
        carried = [a for a in node.operation.regions[0].arguments[1:] if not self._scalar(a)]
        return bool(carried)

    def _lies_apart(self, op: Operation) -> bool:
        """Whether a vector does an access element by element."""
        stride = self._strides.of_access(op)
        if op.name == "tile.load":
            return stride not in (-1, 0, 1)
        return stride not in (-1, 1)


def _is_data(value: Value) -> bool:
    """Positions and conditions cost little either way."""
    return isinstance(value.type, DType) and value.type not in (INDEX, BOOL)


def _inside(operations: Iterable[Operation]) -> Iterable[Operation]:
    for op in operations:
        yield from op.walk()
