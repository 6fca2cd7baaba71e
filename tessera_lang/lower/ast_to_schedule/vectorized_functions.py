"""A function of numbers applied to every element of tiles.

The function is lowered once for one element, as in a lane; its operations are then repeated on
tiles. Where its control depends on the element, all sides are computed and chosen between.
Must not know syntax.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Region, TileType, Value
from tessera_lang.ir.definitions import DIVISIONS
from tessera_lang.ir.schedule.builder import ScheduleBuilder, like, tile_type
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import BOOL, INDEX


class NotSpread(Exception):
    """The function does something that elements cannot do each for itself."""


@dataclass(slots=True)
class _Exit:
    """What has left a scope so far: for which elements, and with which values."""

    left: Value | None = None
    values: tuple[Value, ...] = ()


@dataclass(slots=True)
class Spread:
    """``values`` maps what was built for one element to what holds for all of them."""

    b: ScheduleBuilder
    shape: tuple[int | str, ...]
    values: dict[Value, Value] = field(default_factory=dict[Value, Value])
    exits: list[_Exit] = field(default_factory=list[_Exit])

    def apply(
        self, region: Region, arguments: Sequence[Value], results: Sequence[Value]
    ) -> list[Value]:
        """The values of ``results`` (of the region, or seen from it) for these arguments."""
        self.values.update(zip(region.arguments, arguments, strict=True))
        self._operations(region.operations, None)
        return [self._all(self._get(v)) for v in results]

    # --- values -----------------------------------------------------------------------------

    def _get(self, value: Value) -> Value:
        return self.values.get(value, value)

    def _all(self, value: Value) -> Value:
        """A tile of it, where it is the same for all elements."""
        return value if isinstance(value.type, TileType) else self.b.full(value, self.shape)

    def _select(self, condition: Value, a: Value, b: Value) -> Value:
        if a is b:
            return a
        if not isinstance(condition.type, TileType):
            condition = self._all(condition)
        return self.b.select(condition, self._all(a), self._all(b))

    # --- operations ---------------------------------------------------------------------------

    def _operations(self, operations: Sequence[Operation], active: Value | None) -> None:
        for o in operations:
            if o.name == "tile.leave":
                self._leave(o, active)
            elif o.name == "tile.if":
                self._if(o, active)
            elif o.name == "tile.scope":
                self._scope(o, active)
            elif o.name == "tile.for":
                self._for(o)
            elif o.name == "tile.yield":
                return
            else:
                self._one(o)

    def _one(self, o: Operation) -> None:
        definition = TILE_OPS[o.name]
        plain = definition.pure or o.name in DIVISIONS
        if not plain or o.regions or len(o.results) != 1:
            raise NotSpread(o.name)
        operands = [self._get(v) for v in o.operands]
        if any(isinstance(v.type, TileType) for v in operands):
            operands = [self._all(v) for v in operands]
            like_ = tile_type(operands[-1])
            dtype = o.result.dtype
            result = like(like_, dtype)
        else:
            result = o.result.type
        made = self.b.emit(o.name, operands, (result,), o.attributes, (), (o.result.name,))
        self.values[o.result] = made.result

    def _and(self, a: Value | None, b: Value) -> Value:
        return b if a is None else self.b.binary("and", self._all(a), self._all(b))

    def _not(self, a: Value) -> Value:
        return self.b.unary("not", a)

    def _if(self, o: Operation, active: Value | None) -> None:
        condition = self._get(o.operands[0])
        then, other = o.regions
        self._operations(then.operations, self._and(active, condition))
        opposite = self._and(active, self._not(condition)) if self.exits else condition
        self._operations(other.operations, opposite)
        sides = [r.terminator for r in o.regions]
        falling = [t for t in sides if t.name == "tile.yield"]
        for i, result in enumerate(o.results):
            picked = [self._get(t.operands[i]) for t in falling]
            if len(picked) == 2:
                self.values[result] = self._select(condition, picked[0], picked[1])
            else:
                self.values[result] = picked[0]

    def _leave(self, o: Operation, active: Value | None) -> None:
        exit_ = self.exits[-1]
        given = tuple(self._get(v) for v in o.operands)
        if exit_.left is None:
            exit_.values = given
            exit_.left = active if active is not None else self.b.constant(True, BOOL)
            return
        fresh = self._not(exit_.left)
        now = self._and(active, fresh) if active is not None else fresh
        exit_.values = tuple(
            self._select(now, a, b) for a, b in zip(given, exit_.values, strict=True)
        )
        exit_.left = self.b.binary("or", self._all(exit_.left), self._all(now))

    def _scope(self, o: Operation, active: Value | None) -> None:
        self.exits.append(_Exit())
        self._operations(o.regions[0].operations, None)
        exit_ = self.exits.pop()
        self.values.update(zip(o.results, exit_.values, strict=True))

    def _for(self, o: Operation) -> None:
        """Bounds that are the same for all elements; what is carried becomes tiles."""
        lower, upper, step, *carried = (self._get(v) for v in o.operands)
        same = all(v.type == INDEX for v in (lower, upper, step))
        (region,) = o.regions
        if not same or region.terminator.name != "tile.yield":
            raise NotSpread(o.name)
        start = [self._all(v) for v in carried]
        at, *inner = region.arguments
        arguments = [("", INDEX), *((v.name, t.type) for v, t in zip(inner, start, strict=True))]
        with self.b.region(*arguments) as body:
            self.values.update(zip(region.arguments, body.arguments, strict=True))
            self._operations(region.operations, None)
            self.b.yield_(*(self._all(self._get(v)) for v in region.terminator.operands))
        results = self.b.loops([lower], [upper], [step], start, body.region, [at.name or "i"])
        self.values.update(zip(o.results, results, strict=True))
