"""Conditions that the lanes of a row share, as those of a warp share ``warp_id() == 0``.

Where the lanes of a group are loops in loops, such a condition is asked once before the innermost
one: a row for which it fails does not even look at what it skips. Must not know LLVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tessera_backend.cpu.group_plan import GroupPlan
from tessera_backend.cpu.interchange import inner_axis
from tessera_backend.cpu.uniform_values import AGAIN
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import DIVISIONS


class RowConditions:
    """The conditions of one kernel."""

    def __init__(self, plan: GroupPlan) -> None:
        group = plan.kernel.integers("group")
        self._several = sum(size > 1 for size in group) > 1
        self._inner = inner_axis(group)
        self._scalars, self._uniform = plan.scalars, plan.uniform
        self._shared: dict[Value, bool] = {}

    def parts(self, condition: Value) -> Iterator[Value]:
        """Conditions of a row without which ``condition`` does not hold."""
        if not self._several:
            return
        op = self._scalars.definition(condition)
        if op is not None and op.name == "tile.and":
            for value in op.operands:
                yield from self.parts(value)
        elif (
            op is not None
            and self._is_shared(condition)
            and not self._uniform.is_uniform(condition)
            and self._scalars.again(condition) is not None
        ):
            yield condition

    def _is_shared(self, value: Value) -> bool:
        """Whether a value has nothing to do with the position in a row."""
        if value not in self._shared:
            op = self._scalars.definition(value)
            if self._uniform.is_uniform(value):
                self._shared[value] = True
            elif op is None:
                self._shared[value] = False
            elif op.name == "tile.lane_index":
                self._shared[value] = op.attributes["axis"] != self._inner
            else:
                pure = op.name in AGAIN or op.name in DIVISIONS
                self._shared[value] = pure and all(map(self._is_shared, op.operands))
        return self._shared[value]

    def of_piece(self, operations: Sequence[Operation]) -> tuple[Value | None, list[Operation]]:
        """A condition of a row, and the ``if``s whose work is not done where it fails."""
        asked: Value | None = None
        skipped: list[Operation] = []
        for op in operations:
            if op.name != "tile.if" or len(op.regions[0].operations) < 2:
                continue
            parts = list(self.parts(op.operands[0]))
            if asked is None and parts:
                asked = parts[0]
            if asked is not None and asked in parts:
                skipped.append(op)
        return asked, skipped
