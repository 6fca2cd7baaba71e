"""What a computed tile is made of, element by element.

Owns the walk from a tile back to the matrix in memory that it is computed from. Must not know
what the tile is for.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.definitions import (
    ARRAY_READS,
    IN_PLACE,
    PERMUTES,
)
from tessera_lang.opt.schedule.query.copy_rules import (
    contiguous_axis,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    TRANSPOSE,
    Facts,
    Load,
    swaps_last,
)
from tessera_lang.opt.schedule.query.tile_access import access_of


def source_axis(value: Value, facts: Facts) -> int:
    """The axis of a tile (-1 or -2) along which the first matrix in memory that it is computed
    from is contiguous; 0 where there is none, or a product or loop has to do with it."""
    return 0 if _is_result(value, facts, set()) else _first_axis(value, facts, {})


def _is_result(value: Value, facts: Facts, seen: set[Value]) -> bool:
    """Whether products or loops give anything that a tile is computed from; nothing that was
    seen, or the walk has ended."""
    if value in seen:
        return False
    seen.add(value)
    operation = facts.definitions.get(value)
    if not isinstance(value.type, TileType):
        return False
    if operation is None or operation.regions or operation.name == DOT:
        return True
    if operation.name in ARRAY_READS:
        return False
    return any(_is_result(v, facts, seen) for v in operation.operands)


def _first_axis(value: Value, facts: Facts, known: dict[Value, int]) -> int:
    if value not in known:
        known[value] = _first_axis_now(value, facts, known)
    return known[value]


def _first_axis_now(value: Value, facts: Facts, known: dict[Value, int]) -> int:
    operation = facts.definitions.get(value)
    if operation is None or not isinstance(value.type, TileType) or len(value.type.shape) < 2:
        return 0
    if operation.name in ARRAY_READS:
        axis = contiguous_axis(access_of(operation), facts) - len(value.type.shape)
        return axis if axis >= -2 else 0
    if operation.name == TRANSPOSE:
        axis = _first_axis(operation.operands[0], facts, known) if swaps_last(operation) else 0
        return -3 - axis if axis else 0
    if not _is_element_wise(operation):
        return 0
    found = (_first_axis(v, facts, known) for v in operation.operands)
    return next((axis for axis in found if axis), 0)


def _is_element_wise(operation: Operation) -> bool:
    if operation.name in IN_PLACE:
        return True
    return operation.name.startswith("tile.") and not operation.regions


def feeds(load: Load, facts: Facts) -> bool:
    """Whether element-wise work leads from a load to an operand of a product."""
    waiting, seen = [load.operation.result], set[Value]()
    while waiting:
        value = waiting.pop()
        for user in facts.users.get(value, ()):
            if user.name == DOT and value is not user.operands[2]:
                return True
            tiles = [v for v in user.results if isinstance(v.type, TileType)]
            if user.regions or not _keeps_elements(user) or not tiles or tiles[0] in seen:
                continue
            seen.add(tiles[0])
            waiting.append(tiles[0])
    return False


def _keeps_elements(operation: Operation) -> bool:
    return operation.name.startswith("tile.") or operation.name in PERMUTES | IN_PLACE
