"""Emits the test that chooses a version: its comparisons in the corners of a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from tessera_backend.cpu.group_versions import FAR, Compare, Flag, Inside, Test, Versions
from tessera_backend.cpu.target_hooks import CpuDialect
from tessera_backend.cpu.uniform_values import Scalars
from tessera_backend.llvm.emitter import LaneEmitter, scalar_type
from tessera_backend.llvm.types import register_type
from tessera_lang.ir.core import Operation, Value

_SIGNED = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
_WINDOW = 1 << 62


class Corners:
    """Writes tests into the group's code. ``steps``: variables of loops of the group."""

    def __init__(
        self, e: LaneEmitter, dialect: CpuDialect, scalars: Scalars, versions: Versions,
        steps: dict[Value, tuple[Operation, str]],
    ) -> None:  # fmt: skip
        self._e, self._dialect = e, dialect
        self._scalars, self._versions, self._steps = scalars, versions, steps

    def all_hold(self, tests: Iterable[Test]) -> str:
        """An i1: whether the tests hold in every lane."""
        listed = list(tests)
        parts: list[str] = []
        for test in listed:
            if isinstance(test, Flag):
                value = self._e.operand(test.value)
                parts.append(value if test.truth else self._e.f.value(f"xor i1 {value}, true"))
        compared = [t for t in listed if not isinstance(t, Flag)]
        parts += self._small_strides(self._numbers(compared))
        for corner in self._corners():
            with_values = self._values_at(corner, self._numbers(compared))
            for test in compared:
                parts += self._holds(test, with_values)
        result = parts[0] if parts else "true"
        for part in parts[1:]:
            result = self._e.f.value(f"and i1 {result}, {part}")
        return result

    def values_without_wrap(
        self, values: Sequence[Value]
    ) -> tuple[list[dict[Value, str]], list[str]]:
        """What ``values`` are in each corner, and tests of type i1: where all hold, no
        difference of two of them wraps, and in no lane is one beyond its corners."""
        corners = [self._values_at(corner, values) for corner in self._corners()]
        tests = self._small_strides(values)
        for corner in corners:
            tests += [self._in_window(corner[value]) for value in values]
        return corners, tests

    def _numbers(self, tests: Iterable[Test]) -> list[Value]:
        found: dict[Value, None] = {}
        for test in tests:
            if isinstance(test, Inside):
                found.setdefault(test.index)
            elif isinstance(test, Compare):
                found.setdefault(test.a)
                found.setdefault(test.b)
        return list(found)

    def _corners(self) -> Iterator[tuple[int, ...]]:
        yield from product(*((0, size - 1) if size > 1 else (0,) for size in self._dialect.group))

    def _values_at(self, lane: tuple[int, ...], values: Iterable[Value]) -> dict[Value, str]:
        """What ``values`` are in one lane."""
        dialect, known = self._dialect, dict(self._e.values)
        linear = 0
        for size, own in zip(dialect.group, lane, strict=True):
            linear = linear * size + own
        dialect.lane, dialect.lane_ids = str(linear), tuple(map(str, lane))
        found = {value: self._value(value) for value in values}
        dialect.lane, dialect.lane_ids = "0", tuple("0" for _ in dialect.group)
        self._e.values = known
        return found

    def _value(self, value: Value) -> str:
        e = self._e
        if value in e.values:
            return e.operand(value)
        if value in self._steps:
            loop, count = self._steps[value]
            kind = register_type(scalar_type(loop.operands[0]))
            lower, step = self._value(loop.operands[0]), self._value(loop.operands[2])
            moved = e.f.value(f"mul {kind} {count}, {step}")
            e.bind(value, e.f.value(f"add {kind} {lower}, {moved}"))
            return e.operand(value)
        op = self._scalars.definition(value)
        assert op is not None
        for operand in op.operands:
            self._value(operand)
        e.emit(op)
        return e.operand(value)

    def _small_strides(self, values: Iterable[Value]) -> list[str]:
        """Strides known at run time only must not wrap within the group."""
        f = self._e.f
        parts: list[str] = []
        zero = (0,) * len(self._dialect.group)
        for value in values:
            form = self._versions.form(value) or ()
            for axis, coefficient in enumerate(form):
                if coefficient is not None or self._dialect.group[axis] < 2:
                    continue
                unit = tuple(int(a == axis) for a in range(len(zero)))
                first = self._values_at(zero, [value])[value]
                second = self._values_at(unit, [value])[value]
                stride = f.value(f"sub i64 {second}, {first}")
                moved = f.value(f"add i64 {stride}, {FAR}")
                parts.append(f.value(f"icmp ult i64 {moved}, {2 * FAR}"))
        return parts

    def _holds(self, test: Test, values: dict[Value, str]) -> list[str]:
        f = self._e.f
        if isinstance(test, Inside):
            size = self._e.places[test.array].sizes[test.axis]
            return [f.value(f"icmp ult i64 {values[test.index]}, {size}")]
        assert isinstance(test, Compare)
        a, b = values[test.a], values[test.b]
        parts = [f.value(f"icmp {_SIGNED[test.predicate]} i64 {a}, {b}")]
        for value in (test.a, test.b):
            if any(c != 0 for c in self._versions.form(value) or ()):
                parts.append(self._in_window(values[value]))
        return parts

    def _in_window(self, number: str) -> str:
        moved = self._e.f.value(f"add i64 {number}, {_WINDOW}")
        return self._e.f.value(f"icmp ult i64 {moved}, {2 * _WINDOW}")
