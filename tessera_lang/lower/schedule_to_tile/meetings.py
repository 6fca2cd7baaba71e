"""Rows of groups that stay: what is begun before its iteration, kept over all, or read again.

A group of a cluster sends its part of a reduction and goes on; the numbers of the others are taken
where the result is used. A reduction of the next row (``begun``) is computed and sent while this
row's last one is on its way, so that nobody waits for either. Loads that do not move with the
iterations of a group are made once (``kept``). Rows lie in shared memory, so that what is cheap to
make of them is made again behind each reduction and needs no registers meanwhile. Owns the order of
one iteration. Must not know the loop or its ring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.tile.hopper_rules import SEND_PLACES
from tessera_lang.lower.schedule_to_tile.body import Body
from tessera_lang.lower.schedule_to_tile.facts import is_tile
from tessera_lang.lower.schedule_to_tile.operations import reduced_here
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import DType

LOAD, REDUCE, FULL = (f"tessera.schedule.{n}" for n in ("load", "reduce", "full"))
_CHEAP = ("tile.cast", "tile.add", "tile.sub", "tile.mul", FULL)


@dataclass(frozen=True, slots=True, eq=False)
class Meeting:
    """A reduction across groups, with the places of its numbers and their barriers."""

    reduction: Operation
    buffer: Value
    barriers: Value

    def send(self, body: Body, time: Value) -> None:
        """This group's part, of the tiles that are bound now."""
        here = reduced_here(body, self.reduction)
        body.builder.emit("tile.cluster_send", (here, self.buffer, self.barriers, time))

    def take(self, body: Body, time: Value) -> None:
        dtype = self.reduction.result.type
        kind = {"kind": self.reduction.attributes["kind"]}
        operands = (self.buffer, self.barriers, time)
        made = body.builder.emit("tile.cluster_take", operands, (dtype,), kind).result
        body.bind(self.reduction.result, made)


def meeting_of(body: Body, reduction: Operation) -> Meeting:
    dtype, groups = reduction.result.type, reduction.attributes["across"]
    assert isinstance(dtype, DType) and isinstance(groups, int)
    places = (SEND_PLACES * groups,)
    buffer = body.scratch.allocate(dtype, places, "cluster", "results of a cluster")
    return Meeting(reduction, buffer, body.scratch.barriers(SEND_PLACES, "met"))


def begun(operations: Sequence[Operation]) -> Operation | None:
    """The reduction of the next row that is begun while this one is computed."""
    return next((o for o in operations if o.attributes.get("begun")), None)


def last_across(operations: Sequence[Operation]) -> Operation | None:
    """The last reduction that waits for other groups."""
    found = [o for o in operations if o.name == REDUCE and o.attributes.get("across", 1) != 1]
    return found[-1] if found else None


def needed_by(operations: Sequence[Operation], last: Sequence[Operation]) -> list[Operation]:
    """The operations that ``last`` follow from, in order."""
    needed = {v for o in last for v in o.operands}
    found: list[Operation] = []
    for operation in reversed(operations):
        if operation not in last and needed.intersection(operation.results):
            needed.update(operation.operands)
            found.insert(0, operation)
    return found


def made_again(operations: Sequence[Operation], loads: Sequence[Operation]) -> list[Operation]:
    """What is cheap to make of rows in shared memory: they, casts, sums and products with one
    number, in order."""
    cheap: dict[Value, bool] = {o.result: True for o in loads}
    found = list(loads)
    for operation in operations:
        if operation.name not in _CHEAP or not is_tile(operation.results[0]):
            continue
        tiles = [v for v in operation.operands if isinstance(v.type, TileType)]
        if operation.name == FULL or all(v in cheap for v in tiles):
            cheap[operation.result] = operation.name != FULL
            found.append(operation)
    return found


def lower_again(
    body: Body, operations: Sequence[Operation], again: Sequence[Operation],
    instead: Callable[[Operation], bool],
) -> None:  # fmt: skip
    """``operations`` in order, of which ``instead`` may do one itself; behind each reduction what
    of ``again`` is used later is made once more."""
    for place, operation in enumerate(operations):
        if not instead(operation):
            body.lower([operation])
        if operation.name != REDUCE:
            continue
        later = operations[place + 1 :]
        before = [o for o in again if o in operations[:place]]
        wanted = [o for o in later if o not in again]
        used = needed_by([*before, *(o for o in later if o in again)], wanted)
        body.lower([o for o in used if o in before])
