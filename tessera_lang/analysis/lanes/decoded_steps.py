"""The operations that a run goes through, made ready: what computes a number is looked up once.

Must not know lanes, memory or control flow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from tessera_lang.analysis.lanes.concrete_lane import COMPARED, Compute, Step, Steps, Trace
from tessera_lang.analysis.lanes.lane_rules import INTEGERS, wrap
from tessera_lang.analysis.lanes.shared_access_log import BUFFER_AT
from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.definitions import EXITS
from tessera_lang.types.dtype import DType, integer_range


def steps_of(
    kept: Mapping[Region, Sequence[Operation]],
) -> Steps:
    """The steps of each region, and the constants, which need none."""
    steps: dict[Region, list[Step]] = {}
    constants: dict[Value, object] = {}
    for region, operations in kept.items():
        mine = steps[region] = []
        for o in operations:
            if o.name == "tile.constant":
                value = o.attributes["value"]
                is_float = cast("DType", o.result.type).is_float
                constants[o.result] = repr(value) if is_float else value
                continue
            kind = _kind(o)
            if kind:
                mine.append((kind, o, None))
            elif len(o.results) == 1 and isinstance(o.result.type, DType):
                mine.append(("", o, _computed(o)))
    return Steps(steps, constants)


def _kind(o: Operation) -> str:
    if o.name in EXITS:
        return "exit"
    if o.name in BUFFER_AT:
        return "access"
    if o.name == "tile.barrier":
        return "barrier"
    if o.name == "tile.fence":
        return "fence"
    return "control" if o.regions else ""


def _computed(o: Operation) -> Compute:
    name, dtype = o.name.removeprefix("tile."), cast("DType", o.result.type)
    of_integers = all(isinstance(v.type, DType) and v.type.is_integer for v in o.operands)
    if name in INTEGERS and dtype.is_integer:
        return _binary(o, INTEGERS[name], dtype)
    if name == "cmp" and of_integers:
        return _compared(o, COMPARED[cast("str", o.attributes["predicate"])])

    def other(trace: Trace) -> None:
        trace.values[o.result] = trace.compute(o)

    return other


def _binary(o: Operation, apply: Callable[[int, int, int], int], dtype: DType) -> Compute:
    (x, y), result, bits = o.operands, o.result, dtype.bits
    low, high = integer_range(dtype)

    def compute(trace: Trace) -> None:
        a, b = trace.values.get(x), trace.values.get(y)
        if not isinstance(a, int) or not isinstance(b, int):
            trace.values[result] = None
            return
        number = apply(a, b, bits)
        trace.values[result] = number if low <= number <= high else wrap(number, dtype)

    return compute


def _compared(o: Operation, holds: Callable[[int, int], bool]) -> Compute:
    (x, y), result = o.operands, o.result

    def compute(trace: Trace) -> None:
        a, b = trace.values.get(x), trace.values.get(y)
        if isinstance(a, int) and isinstance(b, int):
            trace.values[result] = holds(a, b)
        else:
            trace.values[result] = None

    return compute
