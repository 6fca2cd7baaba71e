"""What the launch has seen to hold, as operations of the kernel: the number of groups that a grid
clause gives, and ``where`` clauses. Analyses take them as premises.

Needs the sizes of the frame. Must not know what is proved from them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.lower.ast_to_tile.context import Lowering
from tessera_lang.lower.ast_to_tile.kernel_parameters import GRID_GROUPS
from tessera_lang.lower.ast_to_tile.sizes import size_value
from tessera_lang.target.launch_plan import Condition
from tessera_lang.types.shape import Dim, Sym, symbols_of

_PREDICATES = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def assume_grid(lowering: Lowering, grid: Sequence[Dim]) -> None:
    """``group_count(axis)`` is what the clause says, along each axis."""
    builder = lowering.builder
    for axis, dim in enumerate(grid):
        if _known(lowering, dim) and dim != Sym(GRID_GROUPS):
            builder.assume("eq", builder.group_count(axis), size_value(lowering, dim))


def assume_conditions(lowering: Lowering, conditions: Sequence[Condition]) -> None:
    """Those of sizes and indices that hold by themselves; a number of another type is none of an
    analysis."""
    for condition in conditions:
        if condition.others:
            continue
        if _known(lowering, condition.left) and _known(lowering, condition.right):
            left = size_value(lowering, condition.left)
            right = size_value(lowering, condition.right)
            lowering.builder.assume(_PREDICATES[condition.comparison], left, right)


def _known(lowering: Lowering, dim: Dim) -> bool:
    return all(name in lowering.symbols for name in symbols_of(dim))
