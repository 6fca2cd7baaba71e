"""Values that loops count up or down by multiples of one number: counters, and what a `while` or a
`for` carries and only adds constants to. Must not know ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd

from tessera_lang.analysis.ranges.state import State
from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.definitions import LOOPS
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import DType


@dataclass(frozen=True, slots=True)
class Steady:
    """``value``: in a loop, ``start`` before it. ``by``: the step of a `for`; otherwise ``steps``
    are added by the operations ``added``, one in each iteration."""

    value: Value
    start: Value
    by: Value | None = None
    steps: tuple[int, ...] = ()
    added: tuple[Value, ...] = ()

    def step_in(self, state: State) -> int:
        """What all differences from the start are multiples of; 0 where that is not known."""
        if self.by is not None:
            form = state.forms.get(self.by)
            return form.constant if form is not None and not form.terms else 0
        return 0 if state.wrapped.intersection(self.added) else gcd(*self.steps)


def steady_values(kernel: Operation) -> Iterator[Steady]:
    made = {v: o for o in kernel.walk() for v in o.results}
    for loop in kernel.walk():
        if loop.name == "tile.for":
            (body,) = loop.regions
            yield Steady(body.arguments[0], loop.operands[0], loop.operands[2])
            for i, value in enumerate(body.arguments[1:]):
                yield from _carried(body, i, value, {value}, loop.operands[3 + i], made)
        elif loop.name == "tile.while":
            head, body = loop.regions
            for i, value in enumerate(head.arguments):
                names, kept = {value}, head.terminator.operands[1:]
                if kept[i : i + 1] == (value,):
                    names.add(body.arguments[i])
                yield from _carried(body, i, value, names, loop.operands[i], made)


def _carried(
    body: Region, i: int, value: Value, names: set[Value], start: Value,
    made: Mapping[Value, Operation],
) -> Iterator[Steady]:  # fmt: skip
    if not isinstance(value.type, DType) or not value.type.is_integer:
        return
    steps: list[int] = []
    added: list[Value] = []
    for end in _ends(body):
        after = end.operands[i]
        if after in names:
            continue
        o = made.get(after)
        if o is None or o.name not in ("tile.add", "tile.sub"):
            return
        a, b = o.operands
        if o.name == "tile.add" and b in names:
            a, b = b, a
        number = made[b].attributes.get("value") if b in made else None
        if a not in names or not isinstance(number, int) or made[b].name != "tile.constant":
            return
        steps.append(number)
        added.append(after)
    yield Steady(value, start, None, tuple(steps), tuple(added))


def _ends(region: Region) -> Iterator[Operation]:
    """Where an iteration ends and the next one begins."""
    if region.terminator.name == "tile.yield":
        yield region.terminator
    waiting = list(region.operations)
    while waiting:
        o = waiting.pop()
        if o.name == "tile.continue":
            yield o
        elif o.name not in LOOPS:
            waiting.extend(inner for r in o.regions for inner in r.operations)
