"""One strand: the lanes of a group or of a role, which go through their operations together.

Owns values, regions and control flow, and who runs what is inside ``tile.once``. What operations
mean stands in the tables that ``rules.py`` joins. Must not know what is asynchronous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera_backend.cpu.interpreter.access_history import Memory
from tessera_backend.cpu.interpreter.element_arithmetic import (
    element_type,
    numpy_type,
    scalar_operation,
)
from tessera_backend.cpu.interpreter.faults import AsynchronousFault, Unsupported
from tessera_backend.cpu.interpreter.happens_before import Clock, Key
from tessera_backend.cpu.interpreter.layouts import WARPS
from tessera_backend.cpu.interpreter.pending import Agent, Issued
from tessera_backend.cpu.interpreter.scheduler import Scheduler
from tessera_backend.cpu.interpreter.warp_group_order import Event, Noted, Trace
from tessera_lang.ir.core import Operation, Region, TileType, Value
from tessera_lang.record import dataclass, field
from tessera_lang.target.arch.isa_constants import WARP

Rule = Callable[["Strand", Operation], Sequence[Any]]
Left = tuple[str, Sequence[Any]] | None
"""How a region was left with which values, where an outer one is meant."""

FIRST_LANE = -1
"""Who runs the side of an ``if`` that some lanes take: a leader like one that is elected."""

_ENDS = ("yield", "break", "continue", "leave", "return", "condition")
_PASSING = ("mma.async", "mma.wait", "yield", "for", "if", "once", "roles", "scope", "leave")


@dataclass(slots=True, eq=False)
class Group:
    """A group of a cluster: its values and what its strands share."""

    number: int
    count: int
    lanes: int
    scheduler: Scheduler
    peers: list[Group]
    rules: dict[str, Rule]
    of_lanes: frozenset[Value] = frozenset()  # numbers that differ between lanes
    values: dict[Value, Any] = field(default_factory=dict[Value, Any])
    buffers: list[Memory] = field(default_factory=list[Memory])
    named: dict[int, Any] = field(default_factory=dict[int, Any])
    meeting: Any = None  # the barrier of the cluster, one for all peers
    reports: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    ended: bool = False
    strands: int = 0
    key: Key = ()  # of the strand that begins
    reached: dict[Key, tuple[int, Operation]] = field(
        default_factory=dict[Key, tuple[int, Operation]]
    )  # by strands of other groups: the time of the last operation
    trace: Trace | None = None  # where warp groups take turns

    @property
    def rank(self) -> int:
        return self.peers.index(self)

    def report(self, operation: Operation, axis: int = 0, index: int = 0, bound: int = 0) -> None:
        """A fault of the program that is run: the operation's site, as lanes report it."""
        site = operation.attributes.get("site", -1)
        if isinstance(site, int) and site >= 0:
            self.reports.append((site + 1, axis, index, bound, self.number, 0))


class Strand:
    """``warps`` warps of a group that run one region."""

    def __init__(self, group: Group, name: str, warps: int, forked: bool = False) -> None:
        group.strands += 1
        self.group = group
        self.name = f"{name} of group {group.number}"
        self.warps = warps
        self.parts = max(1, warps // WARPS)
        key: Key = ("strand", group.number, group.strands)
        self.clock = Clock(key, self.parts)
        self.values = group.values
        self.leader: int | None = None
        self.copies = Agent(("copy", *key))
        self.products = Agent(("mma", *key))
        self.stores: dict[int, Agent] = {}
        self.touched = 0
        self.noted: Noted | None = None
        if group.trace is not None:
            lanes = min(warps, WARPS) * WARP
            self.noted = Noted(self.name, self.parts, lanes, group.number, forked)
            group.trace.strands[key] = self.noted
        self._structure: dict[str, Callable[[Operation], Left]] = {
            "if": self._if, "scope": self._scope, "for": self._for, "while": self._while,
            "once": self._once, "roles": self._roles,
        }  # fmt: skip

    # --- values -----------------------------------------------------------------------------

    def get(self, values: Sequence[Value]) -> tuple[Any, ...]:
        return tuple(self.values[v] for v in values)

    def number(self, value: Value) -> int:
        return int(self.values[value])

    def numbers(self, values: Sequence[Value]) -> list[int]:
        return [int(self.values[v]) for v in values]

    def put(self, values: Sequence[Value], given: Sequence[Any]) -> None:
        for value, item in zip(values, given, strict=True):
            if isinstance(value.type, TileType):
                if item.shape != value.type.sizes:
                    raise AssertionError(f"{value} of {item.shape}")
                if item.dtype != numpy_type(value.type.dtype):
                    raise AssertionError(f"{value} of {item.dtype}")
            self.values[value] = item

    def anew(self) -> int:
        """A number nobody has had."""
        self.touched += 1
        return self.touched

    def wait(self, ready: Callable[[], bool], operation: Operation) -> None:
        self.group.scheduler.block(ready, operation)

    # --- barriers ---------------------------------------------------------------------------

    def note(self, kind: str, operation: Operation, *what: Any) -> None:
        """Come to a barrier: who of the strand, and what of it, stands in ``Event``."""
        if self.noted is not None:
            part = None if self.leader is None else max(0, self.leader)
            self.noted.events.append(Event(kind, operation, part, what))

    def meet(self, operation: Operation) -> None:
        """A barrier of all lanes of the strand."""
        self.note("role", operation)
        self.clock.barrier()

    # --- structure --------------------------------------------------------------------------

    def region(self, region: Region) -> tuple[str, Sequence[Any]]:
        for o in region.operations:
            kind = o.name.removeprefix("tile.")
            if kind in _ENDS:
                return kind, self.get(o.operands)
            left = self.operation(o, kind)
            if left is not None:
                return left
        raise AssertionError("a region without a terminator")

    def operation(self, o: Operation, kind: str) -> Left:
        if kind not in _PASSING:
            for value in o.operands:
                held = self.values.get(value)
                if isinstance(held, Issued):
                    raise AsynchronousFault(
                        f"{o.name} uses a product that nobody has waited for", o, held.operation
                    )
        if o.regions:
            structure = self._structure.get(kind)
            if structure is None:
                raise Unsupported(f"{o.name} is not run under --as", o)
            return structure(o)
        rule = self.group.rules.get(o.name)
        self.put(o.results, rule(self, o) if rule else (self.elementwise(o, kind),))
        return None

    def elementwise(self, o: Operation, kind: str) -> Any:
        result = o.result.type
        tile = isinstance(result, TileType)
        dtype = element_type(result)
        if isinstance(result, TileType):
            for v in o.operands:
                if isinstance(v.type, TileType) and v.type.layout != result.layout:
                    raise AsynchronousFault(f"the layouts of {o.name} differ", o)
        operands = self.get(o.operands)
        if kind in ("floordiv", "mod") and not tile and not operands[1]:
            self.group.report(o)
        try:
            found = np.asarray(scalar_operation(o, kind, operands))
        except AssertionError:
            raise Unsupported(f"{o.name} is not run under --as", o) from None
        return found.astype(dtype) if tile else dtype(found)

    def _if(self, o: Operation) -> Left:
        leader = self.leader
        if leader is None and o.operands[0] in self.group.of_lanes:
            self.leader = FIRST_LANE
        try:
            kind, values = self.region(o.regions[0 if self.values[o.operands[0]] else 1])
        finally:
            self.leader = leader
        return self._left(o, kind, values, "yield")

    def _scope(self, o: Operation) -> Left:
        return self._left(o, *self.region(o.regions[0]), "leave")

    def _left(self, o: Operation, kind: str, values: Sequence[Any], own: str) -> Left:
        if kind != own:
            return kind, values
        self.put(o.results, values)
        return None

    def _for(self, o: Operation) -> Left:
        lower, upper, step = self.numbers(o.operands[:3])
        carried: Sequence[Any] = self.get(o.operands[3:])
        variable = o.regions[0].arguments[0].type
        for i in range(lower, upper, step):
            self.put(o.regions[0].arguments, (element_type(variable)(i), *carried))
            kind, values = self.region(o.regions[0])
            if kind in ("leave", "return"):
                return kind, values
            carried = values
            if kind == "break":
                break
        self.put(o.results, carried)
        return None

    def _while(self, o: Operation) -> Left:
        carried: Sequence[Any] = self.get(o.operands)
        while True:
            self.put(o.regions[0].arguments, carried)
            _, (test, *carried) = self.region(o.regions[0])
            if not test:
                break
            self.put(o.regions[1].arguments, carried)
            kind, values = self.region(o.regions[1])
            if kind in ("leave", "return"):
                return kind, values
            carried = values
            if kind == "break":
                break
        self.put(o.results, carried)
        return None

    def _once(self, o: Operation) -> Left:
        """By one elected lane, or one of each warp group, one after the other."""
        if self.leader is not None:
            raise AsynchronousFault("tile.once inside tile.once", o)
        each = o.attributes.get("each") == "warp_group"
        try:
            for leader in range(self.parts if each else 1):
                self.leader = leader
                self.region(o.regions[0])
        finally:
            self.leader = None
        return None

    def _roles(self, o: Operation) -> Left:
        names: Any = o.attributes["names"]
        warps: Any = o.attributes["warps"]
        scheduler = self.group.scheduler
        strands: list[Strand] = []
        for name, count in zip(names, warps, strict=True):
            made = Strand(self.group, f"role {name}", count, forked=True)
            made.clock.learn(self.clock.known, None)
            made.clock.known[self.clock.key] = self.clock.whole
            strands.append(made)
        keys = [s.clock.key for s in strands]
        self.note("fork", o, *keys)
        started = [
            scheduler.add(s.name, lambda s=s, r=region: s.run(r))
            for s, region in zip(strands, o.regions, strict=True)
        ]
        self.wait(lambda: all(t.done for t in started), o)
        self.note("join", o, *keys)
        for s in strands:
            self.clock.learn(s.clock.told(None), None)
            self.clock.ended[s.clock.key] = s.clock.time + 1
        return None

    def run(self, region: Region) -> None:
        self.region(region)
        self.check_end()

    def check_end(self) -> None:
        """Nothing of this strand may be under way any more."""
        left = [*self.copies.left(), *self.products.left()]
        for stores in self.stores.values():
            left += stores.left()
        if left:
            raise AsynchronousFault(
                f"{self.name} ends while {left[0].name} is under way", None, left[0]
            )
