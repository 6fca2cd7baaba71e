"""Where rings lie that take the same bytes of shared memory in turn.

Owns their places and which rings have to be empty before one has its turn, with the sizes that
buffers really have. Must not know barriers.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import BufferType, Operation
from tessera_lang.opt.schedule.query.kernel_facts import Facts, Load
from tessera_lang.opt.schedule.query.producer_lane_copies import is_by_lanes, lanes_layout
from tessera_lang.opt.schedule.query.ring_overlays import STEP, in_turn, overlaid, places, turns_of
from tessera_lang.opt.schedule.query.staging_rings import Ring
from tessera_lang.opt.tile.shared_allocation import buffer_bytes


class RingPlaces:
    """``at``: the byte at which a ring begins, by its number; ``begins``: by the operation with
    which rings have their turn, the rings whose bytes each takes."""

    def __init__(self, rings: Sequence[Ring], facts: Facts) -> None:
        turns = turns_of(rings, facts) if in_turn(facts) else {}
        sizes = {
            i: sum(staged_bytes(x, r.stages, facts) for x in r.loads)
            for i, r in enumerate(rings) if r.reread is None
        }  # fmt: skip
        _, self.at = places(sizes, turns)
        self.begins: dict[Operation, dict[int, tuple[int, ...]]] = {}
        for number, others in overlaid(sizes, turns, self.at).items():
            if others:
                self.begins.setdefault(turns[number].begins, {})[number] = others


def staged_bytes(load: Load, stages: int, facts: Facts) -> int:
    """Bytes of the buffers of a staged tile, as far as the next may begin."""
    layout = lanes_layout(load, facts) if is_by_lanes(load) else None
    shape = (stages, *load.tile.sizes)
    size = buffer_bytes(BufferType(load.tile.dtype, shape, layout=layout))
    return -(-size // STEP) * STEP
