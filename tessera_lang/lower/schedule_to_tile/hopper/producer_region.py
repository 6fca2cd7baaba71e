"""The region of the producer role: run by one lane, or by all where lanes copy tiles.

Owns which part of the kernel that role runs, in what layouts its own tiles lie, and which tiles
go through its registers. Must not know how rings are filled.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.lower.schedule_to_lanes.equal_numbers import Numbers
from tessera_lang.lower.schedule_to_tile.common.assign_layouts import Layouts
from tessera_lang.lower.schedule_to_tile.common.body import Body
from tessera_lang.lower.schedule_to_tile.common.engine import Engine
from tessera_lang.lower.schedule_to_tile.common.errors import NotTiled
from tessera_lang.lower.schedule_to_tile.common.prune_region import pruned
from tessera_lang.lower.schedule_to_tile.common.shared_scratch import Scratch
from tessera_lang.lower.schedule_to_tile.hopper.producer_pipeline import Pipeline, Producer
from tessera_lang.lower.schedule_to_tile.hopper.tile_scheduler import Walk, over_tiles
from tessera_lang.opt.schedule.query.producer_slice import moved_by_lanes, producer_slice
from tessera_lang.opt.schedule.query.scalar_facts import Facts
from tessera_lang.record import replace
from tessera_lang.target.machine import Machine


class Moving:
    """``scratch`` is the role's own: both roles exchange at the same time."""

    def __init__(self, pipeline: Pipeline, numbers: Numbers, machine: Machine, warps: int) -> None:
        self.pipeline = pipeline
        self.scratch = Scratch("moving_scratch")
        self._machine, self._warps = machine, warps
        threaded = pipeline.threaded
        self._grid = threaded.grid
        positions = [v for u in threaded.uses for v in (u.slot, u.phase)]
        positions += [v for waits in threaded.turns.values() for _, *at in waits for v in at]
        part = producer_slice(pipeline.schedule, positions)
        if part.reason:
            raise NotTiled(part.reason)
        arguments = self._grid.regions[0].arguments
        self._axes = len(arguments) - len(self._grid.results)
        self._body = pruned(self._grid.regions[0], part, arguments[self._axes :])
        (whole,) = threaded.kernel.regions
        at = next(i for i, o in enumerate(whole.operations) if o is self._grid)
        self._before = tuple(o for o in whole.operations[:at] if part.has(o))
        self._facts = Facts(self._kernel(), numbers.key)

    def _kernel(self) -> Operation:
        """The kernel, as far as this role runs it."""
        kernel, grid = self.pipeline.threaded.kernel, self._grid
        inside = Region(grid.regions[0].arguments, self._body.operations)
        operations = (*self._before, replace(grid, regions=(inside,)))
        end = kernel.regions[0].terminator
        region = Region(kernel.regions[0].arguments, (*operations, end))
        return replace(kernel, regions=(region,))

    def region(self, top: Body, walk: Walk) -> Region:
        b, lanes = top.builder, moved_by_lanes(self.pipeline.schedule)
        engine = Engine(self._machine, self._warps)
        layouts = Layouts(self._facts.kernel, self._facts, engine, direct=True, exact=True)
        body = Producer(b, self._facts, layouts, engine, self.scratch, self.pipeline, lanes)
        body.values = dict(top.values)
        with b.region() as role:
            if lanes:
                self._run(body, walk)
            else:
                with b.region() as one:
                    self._run(body, walk)
                    b.yield_()
                b.emit("tile.once", regions=(one.region,))
            b.yield_()
        return role.region

    def _run(self, body: Producer, walk: Walk) -> None:
        b, arguments = body.builder, self._grid.regions[0].arguments
        body.lower([o for o in self._before if any(v not in body.values for v in o.results)])
        start = [b.index(i % 2, v.name) for i, v in enumerate(arguments[self._axes :])]

        def tile(variables: Sequence[Value], carried: Sequence[Value]) -> list[Value]:
            for value, made in zip(arguments, (*variables, *carried), strict=True):
                body.bind(value, made)
            body.lower(self._body.operations[:-1])
            return body.scalars(self._body.terminator.operands)

        over_tiles(walk, start, tile)
