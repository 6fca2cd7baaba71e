"""The two stages of a software pipeline: an iteration up to its last products, and the rest.

Owns the analysis. ``Divided.early`` runs an iteration ahead of ``Divided.late`` without a change
of any result; ``overlap`` decides and rewrites. Must not know a machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.definitions import (
    ARRAY_READS,
    GENERATES,
    IN_PLACE,
    LEAVES,
    LOOPS,
    MOVES,
    PERMUTES,
    READS,
    WRITES,
    with_effect,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    MASK,
    STORE,
    Facts,
)
from tessera_lang.opt.schedule.query.staging_rings import is_staged
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.record import dataclass

CHANGES = {"tile.print", *WRITES, *with_effect("sync")}
_MOVED = ARRAY_READS | MOVES
_READS = READS - WRITES
BOTH_READ = "both read one staged tile"
"""Why a loop is not divided whose last products read a tile that earlier ones read too."""


@dataclass(frozen=True, slots=True, eq=False)
class Divided:
    """The body of a loop with one axis. ``early``: operations in order, those of ``both``
    among them: numbers made of the loop's variable, which either part makes for itself.
    ``crossing``: what the late part takes from the early part of the same iteration;
    ``late_carried``: for each carried value, whether the late part makes it."""

    loop: Operation
    early: tuple[Operation, ...]
    late: tuple[Operation, ...]
    both: tuple[Operation, ...]
    crossing: tuple[Value, ...]
    late_carried: tuple[bool, ...]

    @property
    def variable(self) -> Value:
        return self.loop.regions[0].arguments[0]

    @property
    def carried(self) -> tuple[Value, ...]:
        return self.loop.regions[0].arguments[1:]


def divided(loop: Operation, facts: Facts) -> Divided | str:
    """The loop taken apart; else why it cannot be, "" where no product depends on another."""
    *body, _ = loop.regions[0].operations
    levels = _levels(body)
    deepest = max(levels.values(), default=0)
    if not deepest:
        return ""
    names = {o.name for one in body for o in one.walk()}
    if names & (LEAVES | LOOPS | {"tile.scope"}) or _nested(body):
        return "control flow stands between them"
    if names & CHANGES - {STORE} or not _is_written_alone(body, facts):
        return "the loop writes to arrays"
    made = _Dividing(loop, facts, levels, deepest).run()
    if not isinstance(made, str) and any(o.name == STORE for o in made.late):
        return "the last products of an iteration give what it stores"
    return made


def _is_written_alone(body: Sequence[Operation], facts: Facts) -> bool:
    """Whether the kernel does nothing with arrays that a body stores into but store into them: the
    stores stay in their order, since early parts do."""
    stores = [o for o in body if o.name == STORE]
    if sum(o.name == STORE for one in body for o in one.walk()) > len(stores):
        return False  # under a condition
    pointers = {facts.definitions[access_of(o).view].operands[0] for o in stores}
    views = {v for v, d in facts.definitions.items()
             if d.name == "tile.view" and d.operands[0] in pointers}  # fmt: skip
    users = (o for o in facts.kernel.walk() if any(v in views for v in o.operands))
    return all(o.name == STORE for o in users)


def last_products(loop: Operation) -> frozenset[int]:
    """The products of a loop's body that the most others in a row lead to, by identity."""
    *body, _ = loop.regions[0].operations
    levels = _levels(body)
    deepest = max(levels.values(), default=0)
    return frozenset(i for i, level in levels.items() if level == deepest)


def _levels(body: Sequence[Operation]) -> dict[int, int]:
    """For each product of a body, how many others its operands come from in a row."""
    behind: dict[Value, int] = {}
    out: dict[int, int] = {}
    for operation in body:
        level = max((behind.get(v, 0) for v in operation.uses()), default=0)
        if operation.name == DOT:
            out[id(operation)] = level
        more = operation.holds(DOT)
        behind.update(dict.fromkeys(operation.results, level + more))
    return out


def _nested(body: Sequence[Operation]) -> bool:
    """Whether products or staged tiles stand under control flow."""
    return any(
        o is not one and (o.name == DOT or o.attributes.get("stage") == "shared")
        for one in body for o in one.walk()
    )  # fmt: skip


class _Dividing:
    def __init__(self, loop: Operation, facts: Facts, levels: dict[int, int], deepest: int) -> None:
        self.loop, self.facts, self.levels, self.deepest = loop, facts, levels, deepest
        *self.body, self.end = loop.regions[0].operations
        self.variable, *self.carried = loop.regions[0].arguments
        self.late = {i for i, level in levels.items() if level == deepest}
        self.made = {v: o for o in self.body for v in o.results}

    def run(self) -> Divided | str:
        self._follow()
        if any(i in self.late for i, level in self.levels.items() if level < self.deepest):
            return "the first of an iteration needs what the last of the iteration before gave"
        self._sink()
        both = self._both()
        late = [o for o in self.body if id(o) in self.late]
        early = [o for o in self.body if id(o) not in self.late]
        carried = tuple(self._is_late(v) for v in self.carried)
        ends = [v for v, is_late in zip(self.end.operands, carried, strict=True) if is_late]
        read = [v for o in late for v in o.uses()] + ends
        here = {v for o in early for v in o.results if id(o) not in both}
        here.update(v for v, is_late in zip(self.carried, carried, strict=True) if not is_late)
        crossing = tuple(dict.fromkeys(v for v in read if v in here))
        if any(map(self._is_staged, crossing)):
            return BOTH_READ
        shared = tuple(o for o in early if id(o) in both)
        return Divided(self.loop, tuple(early), tuple(late), shared, crossing, carried)

    def _is_staged(self, value: Value) -> bool:
        """Whether a value is a tile in a ring, or a view of one."""
        staged = {x.operation.result for x in self.facts.reads if is_staged(x)}
        while value not in staged:
            made = self.made.get(value)
            if made is None or made.name not in PERMUTES | IN_PLACE:
                return False
            value = made.operands[0]
        return True

    def _is_late(self, argument: Value) -> bool:
        """Whether the late part makes what a carried value is in the next iteration."""
        given = self.end.operands[self.carried.index(argument)]
        made = self.made.get(given)
        return made is not None and id(made) in self.late

    def _follow(self) -> None:
        """Everything that needs the last products, in this iteration or the next, is late."""
        before = -1
        while before != len(self.late):
            before = len(self.late)
            values = {v for o in self.body if id(o) in self.late for v in o.results}
            values.update(v for v in self.carried if self._is_late(v))
            for operation in self.body:
                if any(v in values for v in operation.uses()):
                    self.late.add(id(operation))
                    values.update(operation.results)

    def _sink(self) -> None:
        """What only the late part reads is late too, where it only moves data."""
        for operation in reversed(self.body):
            if not operation.results or not self._moves(operation):
                continue
            users = [u for v in operation.results for u in self.facts.users.get(v, ())]
            if users and all(id(u) in self.late for u in users):
                self.late.add(id(operation))

    def _moves(self, operation: Operation) -> bool:
        if operation.name == MASK:
            behind = self.facts.definitions.get(operation.operands[0])
            return behind is not None and behind.name in ARRAY_READS | PERMUTES
        return operation.name in _MOVED

    def _both(self) -> set[int]:
        """Numbers, and tiles of one number, that are made of the variable and of what is
        outside the loop."""
        out: set[int] = set()
        inside = {*self.carried, *self.made}
        for operation in self.body:
            made = all(not isinstance(v.type, TileType) for v in operation.results)
            if operation.regions or operation.name in _READS or id(operation) in self.late:
                continue
            if not operation.results:  # an assertion reports once
                continue
            if (made or operation.name in GENERATES) and not any(
                v in inside for v in operation.operands
            ):
                out.add(id(operation))
                inside.difference_update(operation.results)
        return out


def is_rounding(operation: Operation) -> bool:
    """Whether an operation only rounds a tile to fewer bits, or masks it."""
    if operation.name == MASK:
        return True
    if operation.name != "tile.cast":
        return False
    given, made = operation.operands[0].type, operation.result.type
    return (
        isinstance(given, TileType) and isinstance(made, TileType)
        and made.dtype.bits < given.dtype.bits
    )  # fmt: skip
