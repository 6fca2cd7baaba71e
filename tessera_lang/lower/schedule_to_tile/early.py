"""Groups that stay, with the tiles of later iterations on their way while they work.

What asynchronous copies can move goes through a ring of buffers, as in any loop (``multistage``).
Other tiles are carried in registers: loaded once before the loop, then at the top of every
iteration for the one behind; behind the last one stands the last of all once more, so that no load
has to ask whether there is a next. Owns this loop. Must not know why groups stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.schedule_to_tile.body import Body
from tessera_lang.lower.schedule_to_tile.facts import is_tile
from tessera_lang.lower.schedule_to_tile.multistage import Ahead, Multistage, ahead_of
from tessera_lang.lower.schedule_to_tile.staging import Staging

Variables = Callable[[Value], Sequence[Value]]
"""The variables of the grid for the number of an iteration."""


def early_loads(loop: Operation) -> list[Operation]:
    """The loads of a loop over groups that are to be made before their iteration."""
    return [o for o in loop.regions[0].operations if o.attributes.get("early")]


def build_early(
    body: Body, staging: Staging, loop: Operation, total: Value, variables: Variables
) -> None:
    """The iterations of one group, of ``total`` of all groups."""
    b = body.builder
    ahead = ahead_of(staging, loop)
    if ahead is None:
        _carrying(body, loop, total, variables)
        return
    ring = _Walk(body, staging, loop, ahead, variables)
    ring.innermost((b.group_linear(), total, b.group_count()), (), ())


class _Walk(Multistage):
    """A loop over numbers of iterations."""

    def __init__(
        self, body: Body, staging: Staging, loop: Operation, ahead: Ahead, places: Variables
    ) -> None:
        super().__init__(body, staging, loop, ahead)
        self._places = places

    def enter(self, variable: Value) -> None:
        for value, place in zip(self.variables(), self._places(variable), strict=True):
            self.body.bind(value, place)

    def variables(self) -> list[Value]:
        return list(self.loop.regions[0].arguments)


def _carrying(body: Body, loop: Operation, total: Value, variables: Variables) -> None:
    b, region = body.builder, loop.regions[0]
    loads = early_loads(loop)
    before = _before(region.operations, loads)

    def load(number: Value) -> list[Value]:
        for value, made in zip(region.arguments, variables(number), strict=True):
            body.bind(value, made)
        body.lower([*before, *loads])
        return [body.tile(o.result) for o in loads]

    first, step = b.group_linear(), b.group_count()
    last = b.binary("sub", total, b.index(1))
    carried = load(first)
    arguments = [("tile", total.type), *((v.name, v.type) for v in carried)]
    with b.region(*arguments) as made:
        number, *held = made.arguments
        following = load(b.binary("min", b.binary("add", number, step), last))
        for value, at in zip(region.arguments, variables(number), strict=True):
            body.bind(value, at)
        for operation, tile in zip(loads, held, strict=True):
            body.bind(operation.result, tile)
        body.lower([o for o in region.operations[:-1] if o not in loads])
        b.yield_(*following)
    b.for_(first, total, step, carried, made.region)


def _before(operations: Sequence[Operation], loads: Sequence[Operation]) -> list[Operation]:
    """The numbers that loads need, in order."""
    needed = {v for o in loads for v in o.operands}
    found: list[Operation] = []
    for operation in reversed(operations):
        if operation in loads or not needed.intersection(operation.results):
            continue
        assert not any(map(is_tile, operation.results)), "an early load depends on no tile"
        needed.update(operation.operands)
        found.insert(0, operation)
    return found
