"""Rows that are read from shared memory again behind each reduction.

What is cheap to make of them is made again too, so that no lane holds it meanwhile. Owns which
operations those are. Must not know who reads rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.lower.schedule_to_tile.common.body import Body
from tessera_lang.opt.schedule.query.scalar_facts import is_tile

_REDUCE, _FULL = "tessera.schedule.reduce", "tessera.schedule.full"
_CHEAP = ("tile.cast", "tile.add", "tile.sub", "tile.mul", _FULL)


def lower_again(body: Body, operations: Sequence[Operation]) -> None:
    """``operations`` in order; behind each reduction what is used later of what is cheap to make of
    loads that say ``again`` is made once more."""
    again = _made_again(operations)
    for place, operation in enumerate(operations):
        body.lower([operation])
        if operation.name != _REDUCE or not again:
            continue
        before, later = operations[:place], operations[place + 1 :]
        wanted = [o for o in later if o not in again]
        body.lower([o for o in needed_by(again, wanted) if o in before])


def needed_by(operations: Sequence[Operation], last: Sequence[Operation]) -> list[Operation]:
    """The operations that ``last`` follow from, in order."""
    needed = {v for o in last for v in o.operands}
    found: list[Operation] = []
    for operation in reversed(operations):
        if operation not in last and needed.intersection(operation.results):
            needed.update(operation.operands)
            found.insert(0, operation)
    return found


def _made_again(operations: Sequence[Operation]) -> list[Operation]:
    """The loads, and casts, sums and products of them with one number, in order."""
    found = [o for o in operations if o.attributes.get("again")]
    if not found:
        return []
    cheap: set[Value] = {o.result for o in found}
    for operation in operations:
        if operation.name not in _CHEAP or not is_tile(operation.results[0]):
            continue
        if operation.name == _FULL:
            found.append(operation)
            continue
        tiles = [v for v in operation.operands if isinstance(v.type, TileType)]
        full = {o.result for o in found if o.name == _FULL}
        if all(v in cheap or v in full for v in tiles) and any(v in cheap for v in tiles):
            cheap.add(operation.result)
            found.append(operation)
    return found
