"""Elements of a float with infinities that were only picked come back as they are.

A narrowing to an 8-bit float saturates: what was computed has no infinity. But a maximum, a
selection or a reduction of elements is done in f32 and then narrowed, and an infinity among its
elements is one of the result. Owns which values are only picked: those that come from elements of
the narrow dtype and from literals through minima, maxima, selections, signs and moves, loops
included. Must not know a machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tessera_lang.ir.core import Operation, Program, TileType, Value
from tessera_lang.ir.definitions import BOUNDED, CONTRACTS, IN_PLACE, MIXES, MOVES
from tessera_lang.ir.rewrite import Replacement, rewrite_operation
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.array_dependence import FOR
from tessera_lang.opt.schedule.query.def_use import definitions_of
from tessera_lang.opt.schedule.query.kernel_facts import kernel_of
from tessera_lang.record import dataclass, replace
from tessera_lang.types.dtype import DType

_SAME = {"tile.max", "tile.min", "tile.abs", "tile.neg"}
_REDUCTIONS = BOUNDED & (CONTRACTS | MIXES)
_FULL, _INSERT = PREFIX + "full", PREFIX + "insert"
_EXTREMES = ("max", "min")


def keep_infinities(program: Program) -> Program:
    """The program with infinities kept where values are picked; itself where none are narrowed."""
    kernel = kernel_of(program)
    if not any(_narrows(o) for o in kernel.nested("tile.cast")):
        return program
    picked = _Picked(definitions_of(kernel), _carried(kernel))
    done = {o.operands[2] for o in kernel.nested("tile.select") if picked.is_far(o.operands[1])}

    def step(operation: Operation) -> Replacement | None:
        if not _narrows(operation) or operation.result in done:
            return None
        dtype = operation.result.element_dtype
        return _kept(operation, dtype) if picked.all_of(operation.operands[0], dtype) else None

    made = rewrite_operation(kernel, step)
    return program if made is kernel else replace(program, operations=(made,))


def _narrows(o: Operation) -> bool:
    if o.name != "tile.cast":
        return False
    to, source = o.result.element_dtype, o.operands[0].element_dtype
    return to.is_float8 and to.infinite and source.is_float and source != to


def _carried(kernel: Operation) -> dict[Value, tuple[Value, ...]]:
    """For what a loop carries, and leaves: what it is before the loop and behind an iteration."""
    found: dict[Value, tuple[Value, ...]] = {}
    for loop in kernel.nested(FOR):
        axes, (region,) = len(loop.strings("axes")), loop.regions
        values = zip(
            region.arguments[axes:], loop.results, loop.operands[3 * axes :],
            region.terminator.operands, strict=True,
        )  # fmt: skip
        for inside, result, before, behind in values:
            found[inside] = found[result] = (before, behind)
    return found


@dataclass(slots=True, eq=False)
class _Picked:
    definitions: Mapping[Value, Operation]
    carried: Mapping[Value, tuple[Value, ...]]

    def all_of(self, value: Value, dtype: DType) -> bool:
        """Whether all elements of a value are elements of the dtype, or literals. Each value of a
        loop is, unless something that reaches it is not."""
        reached, waiting = set[Value](), [value]
        while waiting:
            found = waiting.pop()
            if found in reached:
                continue
            reached.add(found)
            sources = self._sources(found, dtype)
            if sources is None:
                return False
            waiting.extend(sources)
        return True

    def is_far(self, value: Value) -> bool:
        """Whether a value is an infinity everywhere."""
        o = self.definitions.get(value)
        if o is not None and o.name == _FULL:
            o = self.definitions.get(o.operands[0])
        if o is None or o.name != "tile.constant":
            return False
        number = o.attributes["value"]
        return isinstance(number, float) and math.isinf(number)

    def _sources(self, value: Value, dtype: DType) -> tuple[Value, ...] | None:
        """The values whose elements a value has; None where it is computed."""
        if value.element_dtype == dtype:
            return ()
        if value in self.carried:
            return self.carried[value]
        o = self.definitions.get(value)
        if o is None:
            return None
        match o.name:
            case "tile.constant":
                return ()
            case "tile.cast":
                return o.operands if o.operands[0].element_dtype == dtype else None
            case "tile.select":
                return o.operands[1:]
            case _ if o.name in _SAME:
                return o.operands
            case _ if o.name in MOVES or o.name == _FULL:
                return o.operands[:1]
            case _ if o.name == _INSERT or (o.name in IN_PLACE and o.name in BOUNDED):  # a mask
                return o.operands[:2]
            case _ if o.name in _REDUCTIONS:
                return o.operands[:1] if o.attributes["kind"] in _EXTREMES else None
            case _:
                return None


def _kept(cast: Operation, dtype: DType) -> Replacement:
    b = ScheduleBuilder(cast.span)
    (source,) = cast.operands
    with b.region() as inner:
        found = b.cast(source, dtype)
        for far in (math.inf, -math.inf):
            wide, narrow = b.constant(far, source.element_dtype), b.constant(far, dtype)
            if isinstance(source.type, TileType):
                shape = source.type.shape
                wide, narrow = b.full(wide, shape), b.full(narrow, shape)
            found = b.select(b.cmp("eq", source, wide), narrow, found, hint=cast.result.name)
    return Replacement(tuple(inner.operations), (found,))
