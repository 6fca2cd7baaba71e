"""The state of a walk over a kernel for all lanes of a group at once.

Owns which lanes are where, what conditions tell, and the accesses as they are met. Must not know
``if``, loops and exits: ``lane_loops`` has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import cast

from tessera_lang.analysis.lanes.lane_forms import Form, Mask, Space
from tessera_lang.analysis.lanes.lane_rules import LaneRules
from tessera_lang.analysis.lanes.shared_access_log import (
    BUFFER_AT,
    KINDS,
    Record,
    SharedMemory,
    Tell,
    Way,
)
from tessera_lang.analysis.ranges.linear import Linear
from tessera_lang.ir.core import BufferType, Operation, Region, Value
from tessera_lang.ir.definitions import OUTER_EXITS
from tessera_lang.record import dataclass, field
from tessera_lang.target.launch_plan import LARGEST_SIZE
from tessera_lang.types.dtype import DType

_ROW = LARGEST_SIZE  # that places along the axes before are multiplied by, in an array
_NO_END = _ROW**8
STEPS = 20_000
"""Operations a walk may take before it gives up."""
Exit = tuple[Mask, tuple[Form, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayAccess:
    """An access with its index on each axis, and the lanes that may do it."""

    operation: Operation
    indices: tuple[Form, ...]
    mask: Mask


class GivesUp(Exception):
    """The walk would take too long, or met what it does not know."""

    def __init__(self, reason: str, operation: Operation) -> None:
        self.reason = reason
        self.operation = operation
        super().__init__(reason)


@dataclass(slots=True)
class Target:
    """A loop, a scope or the kernel, with the lanes that have left it or its iteration.

    ``left_ways``, ``back_ways``: the state at exits on one of the ways of a uniform condition.
    ``apart``: lanes that have left, as far as other lanes may still be within.
    """

    operation: Operation
    left: list[Exit] = field(default_factory=list[Exit])
    back: list[Exit] = field(default_factory=list[Exit])
    left_ways: list[Way] = field(default_factory=list[Way])
    back_ways: list[Way] = field(default_factory=list[Way])
    back_barriers: list[int] = field(default_factory=list[int])
    gone: int = 0
    apart: int = 0
    paused: int = 0


@dataclass(slots=True)
class LaneWalk:
    """The state of the walk. ``thorough``: what costs more is looked at too, as lanes seem to meet.
    ``unique``: atomics whose results no two lanes have, with the cell. ``arrays``: views that are
    looked at as shared memory is, with their pointers. ``guards``: what is at least 0 exactly in
    the lanes for which the conditions around that are not known hold; None where none says so.
    ``fills``: reads of how many elements of buffers are written, with these."""

    control: Mapping[str, Callable[[LaneWalk, Operation], None]]
    rules: LaneRules
    memory: SharedMemory
    mask: Mask
    facts: list[Linear] = field(default_factory=list[Linear])
    guards: tuple[Linear, ...] | None = ()
    targets: list[Target] = field(default_factory=list[Target])
    steps: int = 0
    parted: int = 0  # how many ways of uniform conditions that are not known we are in
    accesses: list[ArrayAccess] | None = None  # of arrays and buffers, where asked for
    thorough: bool = False
    unique: Mapping[Operation, object] = field(default_factory=dict[Operation, object])
    fills: Mapping[Operation, tuple[Value, ...]] = field(
        default_factory=dict[Operation, tuple[Value, ...]]
    )
    arrays: Mapping[Value, Value] = field(default_factory=dict[Value, Value])
    _relevant: dict[Operation, bool] = field(default_factory=dict[Operation, bool])

    @property
    def space(self) -> Space:
        return self.rules.space

    def block(self, region: Region) -> None:
        mark = len(self.facts)
        for operation in region.operations:
            if not self.mask.may:
                break
            self.steps += 1
            if self.steps > STEPS:
                raise GivesUp("it would take too many steps", operation)
            rule = self.control.get(operation.name)
            if self.accesses is not None and operation.name in BUFFER_AT:
                indices = operation.operands[BUFFER_AT[operation.name] + 1 :]
                forms = tuple(self.rules.form(i) for i in indices)
                self.accesses.append(ArrayAccess(operation, forms, self.mask))
            if rule is not None:
                rule(self, operation)
            elif operation.name in BUFFER_AT and self.is_shared(operation):
                self.access(operation)
                for value in operation.results:
                    self.rules.forms[value] = self.rules.unknown(value)
                    if operation in self.unique:
                        self.rules.unique[value] = (self.unique[operation], 0)
                    self._counted(operation, self.rules.forms[value])
            elif operation.regions:
                raise GivesUp(f"`{operation.name}` is not followed", operation)
            else:
                self.rules.apply(operation)
                if operation.name == "tile.floordiv":
                    self._quotient(operation)
        del self.facts[mark:]

    def _counted(self, operation: Operation, count: Form) -> None:
        if isinstance(count, Linear):
            for buffer in self.fills.get(operation, ()):
                self.memory.counted.setdefault(buffer, []).append(count)

    def _quotient(self, operation: Operation) -> None:
        """``c * (a // c)`` lies within ``c - 1`` below ``a``."""
        a, quotient = self.rules.form(operation.operands[0]), self.rules.form(operation.result)
        divisor = self.rules.form(operation.operands[1])
        if not (isinstance(a, Linear) and isinstance(quotient, Linear)):
            return
        if not isinstance(divisor, Linear) or divisor.terms or divisor.constant <= 0:
            return
        if self.space.uniform(a) and len(quotient.terms) == 1 and not self.space.known(quotient):
            rest = a - quotient.scaled(divisor.constant)
            self.facts.append(rest)
            self.facts.append(rest.scaled(-1).shifted(divisor.constant - 1))

    # --- accesses ---------------------------------------------------------------------------

    def is_shared(self, operation: Operation) -> bool:
        memory = operation.operands[BUFFER_AT[operation.name]]
        return isinstance(memory.type, BufferType) or memory in self.arrays

    def access(self, operation: Operation) -> None:
        at = BUFFER_AT[operation.name]
        memory, indices = operation.operands[at], operation.operands[at + 1 :]
        pointer = self.arrays.get(memory)
        if pointer is not None:
            place, mask, extent = self._place_in_array(indices), self.mask, _NO_END
        else:
            shape = cast("BufferType", memory.type).shape
            (place, mask), extent = self._place(indices, shape), prod(shape)
        value = self._stored(operation) if operation.name == "tile.store" else None
        tells = self._tells(indices) if self.thorough else ()
        record = Record(
            operation, KINDS[operation.name], mask, place, tuple(self.facts), value, tells,
            self.guards,
        )  # fmt: skip
        if mask.may:
            self.memory.touch(pointer or memory, extent, record)

    def _stored(self, operation: Operation) -> Linear | None:
        """What is stored, where it is the same in every lane."""
        form = self.rules.form(operation.operands[0])
        if isinstance(form, Mask):
            alike = form.exact and form.may in (0, self.space.everyone)
            return Linear((), form.may & 1) if alike else None
        return form if form is not None and self.space.uniform(form) else None

    def _tells(self, indices: Sequence[Value]) -> tuple[Tell, ...]:
        """What each axis says of the lane: its number and the unknowns in it, or a remainder of
        it, or that no other lane has it."""
        found: list[Tell] = []
        for axis, value in enumerate(indices):
            form = self.rules.form(value)
            residue = self.rules.residues.get(value)
            if isinstance(form, Linear):
                terms, numbers = self.space.split(form)
                found.append((axis, terms, numbers))
            if residue is not None:
                found.append((axis, *residue))
            if value in self.rules.unique:
                found.append((axis, self.rules.unique[value], None))
        return tuple(found)

    def _place(
        self, indices: Sequence[Value], shape: tuple[int, ...]
    ) -> tuple[Linear | None, Mask]:
        """The number of the cell, and the lanes whose index may be inside on every axis."""
        place, mask = Linear(), self.mask
        for value, extent in zip(indices, shape, strict=True):
            form = self.rules.unwrapped.get(value) or self.rules.form(value)
            if not isinstance(form, Linear):
                return None, mask
            low, high = self.space.range(form)
            if len(shape) > 1 and (low < 0 or high >= extent):
                inside = self.space.where(form, _within(extent))
                mask = mask.both(inside)
            place = place.scaled(extent) + form
        return place, mask

    def _place_in_array(self, indices: Sequence[Value]) -> Linear | None:
        """A number that is the same for equal indices, whatever the sizes are."""
        place = Linear()
        for value in indices:
            form = self.rules.form(value)
            if not isinstance(form, Linear):
                return None
            place = place.scaled(_ROW) + form
        return place

    # --- values -----------------------------------------------------------------------------

    def merge(self, value: Value, ways: Sequence[tuple[Mask, Form]]) -> Form:
        """A value that came by one of these ways."""
        if not ways:
            return None
        form = ways[0][1]
        if all(f == form for _, f in ways):
            return form
        if all(isinstance(f, Mask) for _, f in ways):
            must, may = self.space.everyone, 0
            for mask, f in ways:
                assert isinstance(f, Mask)
                must &= f.must | ~mask.may
                may |= f.may & mask.may
            return Mask(must & may, may)
        if all(mask.exact for mask, _ in ways) and _disjoint([mask.may for mask, _ in ways]):
            for mask, f in ways[1:]:
                form = self.rules.select(mask, f, form)
            if form is not None:
                return form
        return self.rules.unknown(value)

    def havoc(self, values: Sequence[Value]) -> None:
        for value in values:
            self.rules.forms[value] = self.rules.unknown(value)

    def gone(self) -> int:
        """Lanes that may have left something that we are in."""
        lanes = 0
        for target in self.targets:
            lanes |= target.apart | target.paused
        return lanes

    # --- what a condition tells -------------------------------------------------------------

    def assume(self, condition: Value, truth: bool) -> None:
        """Facts of the lanes for which a condition is true, or false."""
        waiting = [(condition, truth)]
        while waiting:
            value, holds = waiting.pop()
            operation = self.rules.uniformity.definitions.get(value)
            if operation is None:
                continue
            match operation.name:
                case "tile.cmp":
                    self.facts += self._compared(operation, holds)
                case "tile.and" if holds:
                    waiting.extend((o, True) for o in operation.operands)
                case "tile.or" if not holds:
                    waiting.extend((o, False) for o in operation.operands)
                case "tile.not":
                    waiting.append((operation.operands[0], not holds))
                case _:
                    pass

    def guarded_by(self, condition: Value, truth: bool) -> tuple[Linear, ...] | None:
        """``guards`` where a condition is true, or false."""
        found, waiting = list(self.guards or ()), [(condition, truth)]
        while waiting and self.guards is not None:
            value, holds = waiting.pop()
            operation = self.rules.uniformity.definitions.get(value)
            name = operation.name if operation is not None else ""
            if operation is None or name not in ("tile.cmp", "tile.not", _JOINS[holds]):
                return None
            if name != "tile.cmp":
                waiting.extend((o, holds == (name != "tile.not")) for o in operation.operands)
                continue
            facts = self._compared(operation, holds)
            if not facts:
                return None
            found += facts
        return None if self.guards is None else tuple(found)

    def _compared(self, operation: Operation, truth: bool) -> list[Linear]:
        """Facts that hold exactly if a comparison is true, or false; none where no sum says so."""
        a, b = (self.rules.form(o) for o in operation.operands)
        dtype = cast("DType", operation.operands[0].type)
        if not (isinstance(a, Linear) and isinstance(b, Linear) and dtype.is_integer):
            return []
        predicate = cast("str", operation.attributes["predicate"])
        if not truth:
            predicate = _NEGATED[predicate]
        difference = b - a
        if predicate in ("gt", "ge"):
            difference = difference.scaled(-1)
        match predicate:
            case "lt" | "gt":
                return [difference.shifted(-1)]
            case "ne":
                return []
            case "eq":
                return [difference, difference.scaled(-1)]
            case _:
                return [difference]

    # --- which parts matter -----------------------------------------------------------------

    def relevant(self, operation: Operation) -> bool:
        """Whether something inside touches shared memory, waits, or leaves what is around."""
        if self.accesses is not None:
            return True
        known = self._relevant.get(operation)
        if known is None:
            known = any(
                inner.name in _MATTERS or (inner.name in BUFFER_AT and self.is_shared(inner))
                for inner in operation.walk()
            )
            self._relevant[operation] = known
        return known


_JOINS = {True: "tile.and", False: "tile.or"}
"""What is true, or false, if and only if all its operands are."""
_MATTERS = {"tile.barrier", *OUTER_EXITS}
_NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}


def _disjoint(sets: Sequence[int]) -> bool:
    """Whether no lane came by two ways, as it does where the way is not known."""
    seen = 0
    for lanes in sets:
        if seen & lanes:
            return False
        seen |= lanes
    return True


def _within(extent: int) -> Callable[[int, int], tuple[bool, bool]]:
    return lambda low, high: (low >= 0 and high < extent, high >= 0 and low < extent)


def exact_within(condition: Mask, mask: Mask) -> bool:
    return condition.must & mask.may == condition.may & mask.may
