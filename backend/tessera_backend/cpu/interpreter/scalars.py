"""Rules of operations on numbers, of views, of single elements and of what is reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera_backend.cpu.interpreter.access_history import Memory, box_of
from tessera_backend.cpu.interpreter.element_arithmetic import element_type, scalar_operation
from tessera_backend.cpu.interpreter.happens_before import AccessRecord
from tessera_backend.cpu.interpreter.strand import Rule, Strand
from tessera_lang.ir.core import Operation


def _constant(s: Strand, o: Operation) -> Sequence[Any]:
    return (element_type(o.result.type)(o.attributes["value"]),)


def _group_linear(s: Strand, o: Operation) -> Sequence[Any]:
    return (np.int64(s.group.number),)


def _group_count(s: Strand, o: Operation) -> Sequence[Any]:
    return (np.int64(s.group.count),)


def _lane_linear(s: Strand, o: Operation) -> Sequence[Any]:
    """Lanes go together: what only some do is what the first of them does."""
    return (np.int64(0),)


def _assert(s: Strand, o: Operation) -> Sequence[Any]:
    if not s.values[o.operands[0]]:
        s.group.report(o, bound=-1)
    return ()


def _view(s: Strand, o: Operation) -> Sequence[Any]:
    memory, *numbers = s.get(o.operands)
    t = o.result.view_type
    rank = len(t.shape)
    sizes, strides = [int(n) for n in numbers[:rank]], [int(n) for n in numbers[rank:]]
    if t.contiguous:
        strides = [int(np.prod(sizes[i + 1 :])) for i in range(rank)]
    return (memory.view(sizes, strides),)


def _inside(s: Strand, o: Operation, memory: Memory, place: Sequence[int]) -> bool:
    for axis, (i, n) in enumerate(zip(place, memory.data.shape, strict=True)):
        if not 0 <= i < n:
            s.group.report(o, axis, i, n)
            return False
    return True


def element(s: Strand, o: Operation, memory: Memory, place: Sequence[int], kind: Any) -> None:
    """Note that one lane touches an element, or all of them, each for itself."""
    if memory.history is not None:
        box = box_of(place, (1,) * len(place))
        lanes = ("element", id(memory.history), s.leader)
        memory.history.add(
            AccessRecord(kind, o, s.clock, box, memory.frame, lanes=lanes, leader=s.leader)
        )


def _load(s: Strand, o: Operation) -> Sequence[Any]:
    memory, place = s.values[o.operands[0]], tuple(s.numbers(o.operands[1:]))
    if not _inside(s, o, memory, place):
        return (memory.data.dtype.type(0),)
    element(s, o, memory, place, "read")
    return (memory.data[place],)


def _store(s: Strand, o: Operation) -> Sequence[Any]:
    value, memory = s.get(o.operands[:2])
    place = tuple(s.numbers(o.operands[2:]))
    if _inside(s, o, memory, place):
        element(s, o, memory, place, "write")
        memory.data[place] = value
    return ()


def _atomic(s: Strand, o: Operation) -> Sequence[Any]:
    """Groups run one after the other, so nothing comes in between."""
    value, memory = s.get(o.operands[:2])
    place = tuple(s.numbers(o.operands[2:]))
    if not _inside(s, o, memory, place):
        return (memory.data.dtype.type(0),)
    element(s, o, memory, place, "write")
    old, kind = memory.data[place], str(o.attributes["kind"])
    memory.data[place] = value if kind == "exchange" else scalar_operation(o, kind, (old, value))
    return (old,)


def _nothing(s: Strand, o: Operation) -> Sequence[Any]:
    """A fence orders what groups do among themselves, which is not looked at; ``assume`` speaks to
    analyses."""
    return ()


RULES: dict[str, Rule] = {
    "tile.constant": _constant,
    "tile.group_linear": _group_linear,
    "tile.group_count": _group_count,
    "tile.lane_linear": _lane_linear,
    "tile.assert": _assert,
    "tile.assume": _nothing,
    "tile.view": _view,
    "tile.load": _load,
    "tile.store": _store,
    "tile.atomic": _atomic,
    "tile.fence": _nothing,
}
