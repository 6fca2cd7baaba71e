"""Whether the iterations of an axis are independent.

Owns the verdict on an axis and its reason; ``query/array_dependence.py`` proves that two accesses
never meet. Must not know what becomes of an axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tessera_lang.ir.core import Operation, Value
from tessera_lang.opt.schedule.query.array_dependence import (
    ACCUMULATE,
    MemoryAccess,
    Nest,
    Repeated,
    accesses_in,
)
from tessera_lang.opt.schedule.query.copy_rules import is_result
from tessera_lang.record import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of an axis: ``grid``, or why not; ``pair`` are accesses that may meet.

    ``repeated``: that they surely do, and how; ``promised``: though the program says otherwise.
    ``again``: all iterations read and write one place, so that they cannot be independent.
    """

    name: str
    grid: bool
    reason: str = ""
    pair: tuple[MemoryAccess, MemoryAccess] | None = None
    repeated: Repeated | None = None
    promised: bool = False
    again: bool = False


def verdicts(
    loop: Operation, definitions: Mapping[Value, Operation], arrays: Mapping[Value, Value]
) -> list[Verdict]:
    """For each axis of a loop whether its iterations are independent."""
    names = cast("tuple[str, ...]", loop.attributes["axes"])
    promised = cast("tuple[str, ...]", loop.attributes.get("independent", ()))
    if loop.results:
        return [Verdict(n, False, "an iteration takes a value from the one before") for n in names]
    accesses = accesses_in(loop, arrays)
    pairs = [
        (a, b)
        for i, a in enumerate(accesses)
        for b in accesses[i:]
        if a.array is b.array and (a.writes or b.writes)
    ]
    nest = Nest(loop, definitions)
    found: dict[int, Verdict] = {}
    proved = frozenset[int]()
    while True:
        for axis, name in enumerate(names):
            if axis not in proved:
                found[axis] = _verdict(nest, axis, name, name in promised, pairs, proved)
        # Two iterations that differ along a proved axis do not meet, whatever else differs: the
        # other axes have to keep those apart that are alike along it.
        now = frozenset(a for a, v in found.items() if v.grid and v.name not in promised)
        if now == proved or len(now) == len(names):
            return [found[axis] for axis in range(len(names))]
        proved = now


def _verdict(
    nest: Nest,
    axis: int,
    name: str,
    promised: bool,
    pairs: Sequence[tuple[MemoryAccess, MemoryAccess]],
    proved: frozenset[int],
) -> Verdict:
    summed = False
    for a, b in pairs:
        if nest.disjoint(axis, a, b, proved):
            continue
        repeated = nest.repeated(axis, a) if a is b else None
        if repeated is not None:
            what = f"two of its iterations write the same elements of `{array_name(a)}`"
            return Verdict(name, False, what, (a, b), repeated, promised)
        if a.operation.name == b.operation.name == ACCUMULATE and a.kind == b.kind:
            summed = True
            continue
        if not promised:
            what = f"`{array_name(a)}` may be {a.verb} and {b.verb} in two of its iterations"
            if a is b or (a.verb == b.verb and a.writes):
                what = f"two of its iterations may write the same elements of `{array_name(a)}`"
            again = any(nest.repeated(axis, x) is not None for x in (a, b) if x.writes)
            return Verdict(name, False, what, (a, b), again=again)
    if summed:
        return Verdict(name, False, f"a sum over {name}")
    return Verdict(name, True)


def array_name(access: MemoryAccess) -> str:
    name = access.array.name
    if is_result(name):
        name = access.view.name or "return"
    return name or "an array"
