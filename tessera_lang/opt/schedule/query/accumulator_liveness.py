"""The most registers of a lane that accumulators take at once: liveness of what products make.

Loops that follow each other share registers, arms of a condition exclude each other, and products
that add to one sum have one accumulator. The sum of a product is held from the product on until
the last element-wise work on it; a sum that a loop carries, all of the loop; a computed first
operand from where it is made to its product. Owns the intervals. Must not know passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tessera_lang.ir.core import Operation, Region, TileType, Value
from tessera_lang.ir.definitions import ELEMENT_WISE, IN_PLACE
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.kernel_facts import DOT, FOR, Facts
from tessera_lang.record import dataclass, field

_FULL = PREFIX + "full"
_DERIVED = ELEMENT_WISE | IN_PLACE


@dataclass(slots=True, eq=False)
class _Held:
    """Registers of one sum, and where it is held: places of operations in their order."""

    registers: int = 0
    first: int | None = None
    last: int = -1

    def at(self, place: int) -> None:
        self.first = place if self.first is None else min(self.first, place)
        self.last = max(self.last, place)


@dataclass(frozen=True, slots=True)
class Need:
    """Registers that one product takes: of its sum (``result``), of its first operand from where
    it is made, and beside it while it runs."""

    result: int
    operand: int
    beside: int


def most_at_once(facts: Facts, needs: dict[int, Need]) -> int:
    """The most registers of a lane that are taken at one place; ``needs`` by identity of the
    products."""
    walk = _Walk(facts, needs)
    walk.region(facts.kernel.regions[0])
    return walk.most()


@dataclass(slots=True, eq=False)
class _Walk:
    """``owner``: the sum that a value is, or is made of element by element; ``made``: where and
    inside which operations a value is made."""

    facts: Facts
    needs: dict[int, Need]
    place: int = 0
    sums: list[_Held] = field(default_factory=list[_Held])
    joined: dict[int, int] = field(default_factory=dict[int, int])
    owner: dict[Value, int] = field(default_factory=dict[Value, int])
    made: dict[Value, tuple[int, tuple[int, ...]]] = field(
        default_factory=dict[Value, tuple[int, tuple[int, ...]]]
    )
    inside: tuple[int, ...] = ()
    read: list[tuple[Value, int, tuple[int, ...]]] = field(
        default_factory=list[tuple[Value, int, tuple[int, ...]]]
    )
    ends: dict[int, int] = field(default_factory=dict[int, int])
    more: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])

    def region(self, region: Region) -> None:
        for operation in region.operations:
            self._operation(operation)

    def _operation(self, o: Operation) -> None:
        self.place += 1
        here = self.place
        for value in o.operands:
            self.read.append((value, here, self.inside))
        if o.name == FOR:
            self._loop(o, here)
        else:
            for region in o.regions:
                self.region(region)
                self._hand_on(region.operations[-1].operands if region.operations else (), o)
        self.place += 1
        self.ends[here] = self.place
        if o.name == DOT:
            self._product(o)
        elif o.name in _DERIVED and len(o.results) == 1:
            self._derive(o)
        for value in o.results:
            self.made[value] = (self.place, self.inside)

    def _hand_on(self, given: Sequence[Value], o: Operation) -> None:
        for result, value in zip(o.results, given, strict=False):
            self._join(result, value)

    def _loop(self, o: Operation, here: int) -> None:
        count = len(o.strings("axes"))
        around, self.inside = self.inside, (*self.inside, here)
        (region,) = o.regions
        carried = region.arguments[count:]
        given = o.operands[3 * count :]
        for argument, value, result in zip(carried, given, o.results, strict=True):
            self.made[argument] = (here, self.inside)
            if not self._is_full(value):
                self._join(argument, value)
            self._join(argument, result)
        self.region(region)
        for argument, value in zip(carried, region.operations[-1].operands, strict=False):
            self._join(argument, value)
        self.inside = around

    def _is_full(self, value: Value) -> bool:
        made = self.facts.definitions.get(value)
        return made is not None and made.name == _FULL

    # --- sums ---------------------------------------------------------------------------------

    def _of(self, value: Value) -> int:
        """The number of the sum that a value is; a new one where it is of none."""
        found = self.owner.get(value)
        if found is None:
            found = self.owner[value] = len(self.sums)
            self.sums.append(_Held())
            self.joined[found] = found
        return self._root(found)

    def _root(self, number: int) -> int:
        while self.joined[number] != number:
            number = self.joined[number]
        return number

    def _join(self, a: Value, b: Value) -> None:
        if not isinstance(a.type, TileType) or self._is_full(b):
            return
        x, y = self._of(a), self._of(b)
        if x != y:
            self.joined[y] = x
            self.sums[x].registers = max(self.sums[x].registers, self.sums[y].registers)

    def _product(self, o: Operation) -> None:
        need = self.needs.get(id(o))
        if need is None:
            return
        total = o.operands[2]
        if not self._is_full(total):
            self._join(o.result, total)
        held = self.sums[self._of(o.result)]
        held.registers = max(held.registers, need.result)
        if need.operand:
            first = self.made.get(o.operands[0], (self.place, ()))[0]
            self.more.append((first, self.place, need.operand))
        if need.beside:
            self.more.append((self.place - 1, self.place + 1, need.beside))

    def _derive(self, o: Operation) -> None:
        """Element-wise work takes the place of the first sum it is made of."""
        if not isinstance(o.result.type, TileType):
            return
        for value in o.operands:
            same = isinstance(value.type, TileType) and value.type.shape == o.result.type.shape
            if same and value in self.owner:
                self.owner[o.result] = self.owner[value]
                return

    # --- intervals ----------------------------------------------------------------------------

    def most(self) -> int:
        for value, (place, _) in self.made.items():
            if value in self.owner:
                self.sums[self._of(value)].at(place)
        for value, place, around in self.read:
            if value in self.owner:
                self.sums[self._of(value)].at(self._last(value, place, around))
        changes: dict[int, int] = {}
        for first, last, registers in self._intervals():
            changes[first] = changes.get(first, 0) + registers
            changes[last + 1] = changes.get(last + 1, 0) - registers
        most = now = 0
        for place in sorted(changes):
            now += changes[place]
            most = max(most, now)
        return most

    def _intervals(self) -> Iterator[tuple[int, int, int]]:
        for number, held in enumerate(self.sums):
            if self._root(number) == number and held.first is not None and held.registers:
                yield held.first, held.last, held.registers
        yield from self.more

    def _last(self, value: Value, place: int, around: tuple[int, ...]) -> int:
        """Where a value may go that is read here: behind the loop that it is not made in."""
        outer = self.made[value][1] if value in self.made else ()
        loops = [x for x in around if x not in outer]
        return self.ends[loops[0]] if loops else place
