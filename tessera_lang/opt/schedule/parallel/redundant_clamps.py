"""Floats that are surely in a range need no limits: a minimum or a maximum that changes nothing
goes, and what is computed of the difference to it is known.

``exp`` limits its argument, and has a second factor for powers that one cannot hold; behind
``x - max(x)`` neither does anything. No bit of a result changes. Owns the rewriting;
``float_ranges`` has the rules. Must not know a function.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Program, TileType, Value
from tessera_lang.ir.rewrite import Replacement, rewrite_program
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.opt.schedule.query.float_ranges import FloatRanges, dtype_of
from tessera_lang.opt.tile import constant_evaluation
from tessera_lang.opt.tile.constant_evaluation import Number


def redundant_clamps(program: Program) -> Program:
    """``program`` without limits that change nothing; itself where there are none."""
    return rewrite_program(program, _Folding().step)


class _Folding:
    """``made``: what this pass found to be a number, from which more follows."""

    def __init__(self) -> None:
        self.ranges = FloatRanges()
        self.made: set[Value] = set()

    def step(self, operation: Operation) -> Replacement | None:
        found = None
        if len(operation.results) == 1 and not operation.regions:
            found = self._limit(operation) or self._identity(operation)
            number = None if found else self._number(operation)
            if number is not None:
                return self._constant(operation, number)
        if found is not None:
            return Replacement((), (found,))
        self.ranges.see(operation)
        return None

    def _limit(self, o: Operation) -> Value | None:
        """What a minimum or a maximum always is. Zeros of either sign are equal but not alike."""
        dtype = dtype_of(o.result)
        if o.name not in ("tile.min", "tile.max") or dtype is None or not dtype.is_float:
            return None
        a, b = o.operands
        for x, y in ((a, b), (b, a)):
            if self.ranges.constant(y) is None:
                continue  # it may be NaN
            (low, high), (end, last) = self.ranges.of(x), self.ranges.of(y)
            if end != last:
                continue  # the ranges do not say where it lies: floats of 8 bits
            unchanged = high <= end if o.name == "tile.min" else low >= end
            if unchanged and end != 0:
                return x
        return None

    def _identity(self, o: Operation) -> Value | None:
        """A product with a factor that is found to be 1."""
        if o.name != "tile.mul":
            return None
        a, b = o.operands
        for x, y in ((a, b), (b, a)):
            if y in self.made and self.ranges.constant(y) == 1:
                return x
        return None

    def _number(self, o: Operation) -> Number | None:
        """What all elements of a result are, where an operand was found to be a number, or it is
        the difference of the same bits."""
        dtype = dtype_of(o.result)
        if dtype is None:
            return None
        name = o.name.removeprefix("tile.")
        if name == "sub" and not dtype.is_float and self._same_bits(*o.operands):
            return 0
        if not any(v in self.made for v in o.operands):
            return None
        known = [self.ranges.constant(v) for v in o.operands]
        if name == "bitcast" and known[0] is not None:
            given = dtype_of(o.operands[0])
            return None if given is None else constant_evaluation.bitcast(known[0], given, dtype)
        if len(known) != 2 or known[0] is None or known[1] is None or dtype.is_float:
            return None
        return constant_evaluation.binary(name, known[0], known[1], dtype)

    def _same_bits(self, a: Value, b: Value) -> bool:
        x, y = (self.ranges.definitions.get(v) for v in (a, b))
        return (
            x is not None and y is not None and x.name == y.name == "tile.bitcast"
            and x.operands[0] is y.operands[0]
        )  # fmt: skip

    def _constant(self, o: Operation, number: Number) -> Replacement:
        dtype = dtype_of(o.result)
        assert dtype is not None
        b = ScheduleBuilder(o.span)
        with b.region() as made:
            value = b.constant(number, dtype)
            if isinstance(o.result.type, TileType):
                value = b.full(value, o.result.type.shape)
            b.yield_()
        operations = made.region.operations[:-1]
        for one in operations:
            self.ranges.see(one)
        self.made.add(value)
        return Replacement(operations, (value,))
