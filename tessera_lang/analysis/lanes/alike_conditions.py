"""Conditions and trip counts that are the same in all lanes of a group, though made of the lane.

A number is a known vector over the lanes and a sum of unknowns that all lanes share; of some
unknowns a divisor is known (by ``where n % 64 == 0``, by the step of a loop). A comparison is
decided alike where no sum that is possible lies between the numbers of two lanes. Lanes in one
iteration of a loop are compared, as in uniformity. Must not know what is done with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import cast

from tessera_lang.analysis.lanes.lane_forms import Form, Mask, Space
from tessera_lang.analysis.lanes.lane_rules import LaneRules
from tessera_lang.analysis.ranges.linear import Interval, Linear
from tessera_lang.analysis.ranges.state import Ranges
from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity
from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import DType, integer_range

_STEPS = 20_000  # operations that are looked at; what is behind is not known


@dataclass(slots=True)
class Alike:
    """``decided``: ``tile.if``, ``tile.for`` and ``tile.while`` whose condition or number of
    iterations is made of the lane and yet the same in all lanes. ``parted``: two lanes of which
    one surely goes into an ``if`` and the other does not."""

    decided: dict[Operation, None] = field(default_factory=dict[Operation, None])
    parted: dict[Operation, tuple[int, int]] = field(
        default_factory=dict["Operation", "tuple[int, int]"]
    )


def alike_conditions(kernel: Operation, uniform: Uniformity, known: Ranges) -> Alike:
    group = kernel.integers("group")
    lanes = 1
    for extent in group:
        lanes *= extent
    space = Space(lanes)
    walk = _Walk(LaneRules(group, space, uniform, known), space, uniform, known)
    walk.rules.forms.update(arguments_of(kernel, walk.rules))
    walk.region(kernel.regions[0])
    return walk.found


def arguments_of(kernel: Operation, rules: LaneRules) -> dict[Value, Form]:
    """The kernel's arguments, as multiples of what their premises say that they are."""
    region, space = kernel.regions[0], rules.space
    divisors, equal, bounds = _premises(region)
    found: dict[Value, Form] = {}
    for argument in region.arguments:
        form = rules.unknown(argument, argument)
        factor = divisors.get(argument, 1)
        if argument in equal:
            form = Linear((), equal[argument])
        elif isinstance(form, Linear) and (factor > 1 or argument in bounds):
            (low, high), (least, most) = space.range(form), bounds.get(argument, _ANY)
            low, high = max(low, least), min(high, most)
            low, high = -(-low // factor), high // factor
            form = space.symbol((argument, factor), (low, max(low, high))).scaled(factor)
        found[argument] = form
    return found


_ANY: Interval = (-(1 << 70), 1 << 70)
_SWAPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _premises(
    region: Region,
) -> tuple[dict[Value, int], dict[Value, int], dict[Value, Interval]]:
    """``tile.assume`` of ``argument % number == 0``, of ``argument == number``, and bounds."""
    made = {o.result: o for o in region.operations if len(o.results) == 1}

    def number(value: Value) -> int | None:
        o = made.get(value)
        held = o.attributes["value"] if o is not None and o.name == "tile.constant" else None
        return held if isinstance(held, int) else None

    found: dict[Value, int] = {}
    equal: dict[Value, int] = {}
    bounds: dict[Value, Interval] = {}
    arguments = set(region.arguments)
    for o in region.operations:
        if o.name != "tile.assume":
            continue
        if o.attributes["predicate"] != "eq":
            _bound(o, arguments, number, bounds)
            continue
        for a, b in (o.operands, o.operands[::-1]):
            rest, held = made.get(a), number(b)
            if a in arguments and held is not None:
                equal[a] = held
            if rest is None or rest.name != "tile.mod" or held != 0:
                continue
            divisor = number(rest.operands[1])
            if rest.operands[0] in arguments and divisor is not None and divisor > 0:
                argument = rest.operands[0]
                before = found.get(argument, 1)
                found[argument] = before * divisor // gcd(before, divisor)
    return found, equal, bounds


def _bound(
    assume: Operation, arguments: set[Value], number: Callable[[Value], int | None],
    bounds: dict[Value, Interval],
) -> None:  # fmt: skip
    (a, b), predicate = assume.operands, cast("str", assume.attributes["predicate"])
    if predicate not in _SWAPPED:
        return
    if b in arguments:
        a, b, predicate = b, a, _SWAPPED[predicate]
    held = number(b)
    if a not in arguments or held is None:
        return
    low, high = bounds.get(a, _ANY)
    match predicate:
        case "lt" | "le":
            high = min(high, held - (predicate == "lt"))
        case _:
            low = max(low, held + (predicate == "gt"))
    bounds[a] = (low, high)


@dataclass(slots=True)
class _Walk:
    """``loose``: sums that a value equals but for a multiple of what its dtype holds."""

    rules: LaneRules
    space: Space
    uniform: Uniformity
    known: Ranges
    found: Alike = field(default_factory=Alike)
    loose: dict[Value, Linear] = field(default_factory=dict[Value, Linear])
    steps: int = _STEPS

    # --- regions ----------------------------------------------------------------------------

    def region(self, region: Region) -> None:
        for operation in region.operations:
            self.steps -= 1
            if self.steps < 0:
                self._forget(region)
                return
            match operation.name:
                case "tile.if":
                    self._if(operation)
                case "tile.for":
                    self._for(operation)
                case "tile.while":
                    self._while(operation)
                case _ if operation.regions:
                    for inner in operation.regions:
                        self.region(inner)
                    self._unknown(operation.results)
                case _:
                    self.rules.apply(operation)
                    self._loosely(operation)

    def _forget(self, region: Region) -> None:
        for operation in region.walk():
            self._unknown(operation.results)

    def _unknown(self, values: Sequence[Value]) -> None:
        for value in values:
            self.rules.forms[value] = self.rules.unknown(value)
            self.loose.pop(value, None)

    def _if(self, operation: Operation) -> None:
        condition = operation.operands[0]
        if not self.uniform.is_uniform(condition):
            self._decide(operation, self._alike(condition))
        taken = self.rules.mask(condition)
        for region in operation.regions:
            self.region(region)
        self._unknown(operation.results)
        ends = [r.terminator for r in operation.regions]
        if not all(end.name == "tile.yield" for end in ends):
            return
        for i, value in enumerate(operation.results):
            a, b = (self.rules.form(end.operands[i]) for end in ends)
            form = self.rules.select(taken, a, b)
            if form is not None and self.rules.forms[value] is None:
                self.rules.forms[value] = form

    def _decide(self, operation: Operation, alike: bool) -> None:
        """An ``if`` in a loop is looked at once more with other forms: it is to hold in all."""
        if not alike:
            self.found.decided.pop(operation, None)
            condition = operation.operands[0] if operation.name == "tile.if" else None
            form = self.rules.form(condition) if condition is not None else None
            if isinstance(form, Mask) and form.must and form.may != self.space.everyone:
                there = self.space.members(form.must)[0]
                absent = self.space.members(self.space.everyone & ~form.may)[0]
                self.found.parted[operation] = (there, absent)
            return
        self.found.decided[operation] = None

    def _for(self, operation: Operation) -> None:
        region = operation.regions[0]
        counter = region.arguments[0]
        lower, upper, step = (self.rules.form(v) for v in operation.operands[:3])
        varying = not all(self.uniform.is_uniform(v) for v in operation.operands[:3])
        if varying:
            self._decide(operation, self._same_trips(lower, upper, step))
        form = self.rules.unknown(counter)
        factor = self._factor(step)
        if isinstance(lower, Linear) and factor:
            low, high = self.known.interval(counter)
            turns = self.space.symbol(None, (0, max(0, (high - low) // factor)))
            form = lower + turns.scaled(factor)
        self.rules.forms[counter] = form
        self.loose.pop(counter, None)
        self._carried(operation, region, region.arguments[1:], operation.operands[3:])
        self._unknown(operation.results)

    def _factor(self, step: Form) -> int:
        """What divides the step of a loop that counts up; 0 where that is not known."""
        if not isinstance(step, Linear) or not self.space.uniform(step):
            return 0
        if self.space.range(step)[0] < 1:
            return 0
        return gcd(step.constant, *(k for _, k in step.terms))

    def _while(self, operation: Operation) -> None:
        head, body = operation.regions
        self._carried(operation, head, head.arguments, operation.operands, body)
        self._unknown(operation.results)

    # --- what loops carry -------------------------------------------------------------------

    def _carried(
        self, operation: Operation, region: Region, arguments: Sequence[Value],
        starts: Sequence[Value], body: Region | None = None,
    ) -> None:  # fmt: skip
        """A carried number keeps its difference between lanes, if each iteration does."""
        guessed = {a: s for a, s in zip(arguments, starts, strict=True) if self._guess(a, s)}
        single = not any(o.name == "tile.continue" for r in operation.regions for o in r.walk())
        begun = {a: self.rules.form(s) for a, s in guessed.items()}
        steps: dict[Value, int] = {}
        while True:
            kept = dict(self.found.decided)
            for argument in arguments:
                if argument not in guessed or not single:
                    self._unknown((argument,))
            self.region(region)
            if body is not None:
                self._enter(operation, region, body)
            end = (body or region).terminator
            if not guessed or not single or end.name != "tile.yield":
                return
            back = dict(zip(arguments, end.operands, strict=True))
            wrong = [a for a in guessed if not self._keeps(a, back[a])]
            before = dict(steps)
            steps = {a: self._step(a, back[a], begun[a]) for a in guessed if a not in wrong}
            if not wrong and (before or max(steps.values()) < 2):
                return
            for argument in wrong:
                del guessed[argument]
            for a, s in guessed.items():
                self._guess(a, s)
                self._in_steps(a, begun[a], steps[a])
            self.found.decided.clear()
            self.found.decided.update(kept)

    def _enter(self, operation: Operation, head: Region, body: Region) -> None:
        condition, *values = head.terminator.operands
        if not self.uniform.is_uniform(condition):
            self._decide(operation, self._alike(condition))
        for argument, value in zip(body.arguments, values, strict=True):
            self.rules.forms[argument] = self.rules.form(value)
            if value in self.loose:
                self.loose[argument] = self.loose[value]
            else:
                self.loose.pop(argument, None)
        self.region(body)

    def _guess(self, argument: Value, start: Value) -> bool:
        """Give a carried number that varies the differences that it starts with."""
        form = self.rules.form(start)
        t = argument.type
        if not isinstance(t, DType) or not t.is_integer or self.uniform.is_uniform(argument):
            return False
        if not isinstance(form, Linear):
            return False
        _, values = self.space.split(form)
        low, high = self.known.interval(argument)
        first = [v - values[0] for v in values]
        whole = integer_range(t)
        if high - low + max(first) - min(first) > whole[1] - whole[0]:
            return False
        common: Interval = (low - min(first), high - max(first))
        if common[0] > common[1]:
            return False
        self.rules.forms[argument] = self.space.vector(first) + self.space.symbol(None, common)
        self.loose.pop(argument, None)
        return True

    def _step(self, argument: Value, back: Value, start: Form) -> int:
        """What divides all that iterations add to a number."""
        mine, theirs = self.rules.form(argument), self.rules.form(back)
        if not (isinstance(mine, Linear) and isinstance(theirs, Linear)):
            return 1
        added = theirs - mine
        return gcd(added.constant, *(k for _, k in added.terms)) or 1

    def _in_steps(self, argument: Value, start: Form, step: int) -> None:
        """Give a carried number the value that it begins with and a number of steps."""
        form = self.rules.form(argument)
        if step < 2 or not (isinstance(form, Linear) and isinstance(start, Linear)):
            return
        (low, high), (least, most) = self.space.range(form), self.space.range(start)
        turns = self.space.symbol(None, (-((most - low) // step), (high - least) // step))
        self.rules.forms[argument] = start + turns.scaled(step)

    def _keeps(self, argument: Value, back: Value) -> bool:
        mine, theirs = self._sum(argument), self._sum(back)
        if mine is None or theirs is None:
            return False
        return self.space.uniform(theirs - mine)

    # --- sums that may wrap -----------------------------------------------------------------

    def _sum(self, value: Value) -> Linear | None:
        form = self.rules.form(value)
        return form if isinstance(form, Linear) else self.loose.get(value)

    def _loosely(self, operation: Operation) -> None:
        for value in operation.results:
            self.loose.pop(value, None)
        if operation.name not in ("tile.add", "tile.sub"):
            return
        value = operation.result
        dtype = cast("DType", value.type)
        if not dtype.is_integer or self.rules.form(value) is not None:
            return
        a, b = (self._sum(o) for o in operation.operands)
        if a is None or b is None:
            return
        total = a.plus(b, 1 if operation.name == "tile.add" else -1)
        if self.space.uniform(total):
            low, high = integer_range(dtype)
            self.rules.forms[value] = self.space.symbol((dtype.name, total), (low, high))
        else:
            self.loose[value] = total

    # --- questions --------------------------------------------------------------------------

    def _alike(self, condition: Value) -> bool:
        form = self.rules.form(condition)
        if isinstance(form, Mask) and form.exact and form.may in (0, self.space.everyone):
            return True
        made = self.uniform.definitions.get(condition)
        if self.uniform.is_uniform(condition):
            return True
        if made is None:
            return False
        if made.name in ("tile.and", "tile.or", "tile.not"):
            return all(self._alike(o) for o in made.operands)
        if made.name != "tile.cmp":
            return False
        a, b = (self.rules.form(o) for o in made.operands)
        if not (isinstance(a, Linear) and isinstance(b, Linear)):
            return False
        return self._compared(cast("str", made.attributes["predicate"]), a - b)

    def _compared(self, predicate: str, difference: Linear) -> bool:
        """Whether ``difference < 0``, ``== 0`` ... is the same in all lanes."""
        terms, values = self.space.split(difference)
        if predicate in ("eq", "ne"):
            zeros = {-v for v in values}
            return len(zeros) == 1 or not any(self._reaches(terms, z, z) for z in zeros)
        least, most = -max(values), -min(values)
        if predicate in ("lt", "ge"):
            return not self._reaches(terms, least, most - 1)
        return not self._reaches(terms, least + 1, most)

    def _reaches(self, terms: tuple[tuple[int, int], ...], low: int, high: int) -> bool:
        """Whether a sum of shared unknowns may lie in ``[low, high]``."""
        least, most = self.space.range(Linear(terms))
        low, high = max(low, least), min(high, most)
        step = gcd(*(k for _, k in terms)) if terms else 0
        if step == 0:
            return low <= 0 <= high
        return high // step * step >= low

    def _same_trips(self, lower: Form, upper: Form, step: Form) -> bool:
        """``ceil(distance / step)`` is the same in all lanes if ``ceil(distance / c)`` is, for a
        divisor c of the step."""
        if not (isinstance(lower, Linear) and isinstance(upper, Linear)):
            return False
        distance, factor = upper - lower, self._factor(step)
        if not factor and isinstance(step, Linear):
            distance, factor = lower - upper, self._factor(step.scaled(-1))
        if self.space.uniform(distance) and isinstance(step, Linear) and self.space.uniform(step):
            return True
        terms, values = self.space.split(distance)
        if not factor or any(k % factor for _, k in terms):
            return False
        return len({-(-v // factor) for v in values}) == 1
