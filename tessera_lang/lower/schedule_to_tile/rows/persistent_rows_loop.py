"""Persistent groups, with the rows of later iterations on their way while they work.

Rows go through a ring of buffers, as tiles do in any loop (``multistage``); what is the same in all
iterations is loaded once before. Owns this loop. Must not know why groups stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.schedule_to_tile.ampere.multistage import Ahead, Multistage, ahead_of
from tessera_lang.lower.schedule_to_tile.ampere.staging import Staging
from tessera_lang.lower.schedule_to_tile.common.body import Body
from tessera_lang.lower.schedule_to_tile.rows.rematerialize_rows import lower_again, needed_by

Variables = Callable[[Value], Sequence[Value]]
"""The variables of the grid for the number of an iteration."""


def loads_early(loop: Operation) -> bool:
    """Whether a loop over groups loads rows before their iteration."""
    return any(o.attributes.get("early") for o in loop.regions[0].operations)


def build_early(
    body: Body, staging: Staging, loop: Operation, total: Value, variables: Variables
) -> None:
    """The iterations of one group, of ``total`` of all groups."""
    b = body.builder
    _keep(body, staging, loop, variables)
    ahead = ahead_of(staging, loop)
    assert ahead is not None, "what is loaded early is staged"
    ring = _Walk(body, staging, loop, ahead, variables)
    ring.innermost((b.group_linear(), total, b.group_count()), (), ())


def _kept(loop: Operation) -> list[Operation]:
    """The loads that are the same in all iterations of a group."""
    return [o for o in loop.regions[0].operations if o.attributes.get("kept")]


def _keep(body: Body, staging: Staging, loop: Operation, variables: Variables) -> None:
    """Loads them, to registers or to a buffer that is read in each iteration. The first wait of the
    ring, which stands behind these copies, is theirs too."""
    region, loads = loop.regions[0], _kept(loop)
    if not loads:
        return
    b = body.builder
    for value, made in zip(region.arguments, variables(b.group_linear()), strict=True):
        body.bind(value, made)
    body.lower(needed_by(region.operations, loads))
    for load in loads:
        staged = staging.of(load)
        if not staged:
            body.lower([load])
        for one in staged:
            staging.copy(body, one, None)
            one.slot = b.index(0)
    b.emit("tile.memcpy.commit")


class _Walk(Multistage):
    """A loop over numbers of iterations."""

    def __init__(
        self, body: Body, staging: Staging, loop: Operation, ahead: Ahead, places: Variables
    ) -> None:
        super().__init__(body, staging, loop, ahead)
        self._places = places
        held = [o for o in _kept(loop) if not staging.of(o)]
        self._operations = [o for o in loop.regions[0].operations[:-1] if o not in held]

    def enter(self, variable: Value) -> None:
        for value, place in zip(self.variables(), self._places(variable), strict=True):
            self.body.bind(value, place)

    def variables(self) -> list[Value]:
        return list(self.loop.regions[0].arguments)

    def work(self) -> None:
        lower_again(self.body, self._operations)
