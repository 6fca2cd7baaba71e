"""Rules of products that complete later (``wgmma``), and of the fence before what is issued."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera_backend.cpu.interpreter.access_history import Memory, box_of
from tessera_backend.cpu.interpreter.async_copies import pending_of
from tessera_backend.cpu.interpreter.element_arithmetic import Array, numpy_type, without_low_bits
from tessera_backend.cpu.interpreter.happens_before import AccessRecord
from tessera_backend.cpu.interpreter.pending import Issued
from tessera_backend.cpu.interpreter.strand import Rule, Strand
from tessera_lang.ir.core import BufferType, Operation, Value


def _fence_async(s: Strand, o: Operation) -> Sequence[Any]:
    """What these lanes have written is in order before what is issued behind a barrier; what
    they know that lanes have copied, before what they issue."""
    for memory in s.group.buffers:
        if memory.history is None:
            continue
        for access in memory.history.writes:
            if access.proxy == "lanes" and access.agent is not None:
                if s.clock.knows(access.agent, s.leader) >= access.count:
                    access.fenced_by.add(s.clock.key)
                continue
            mine = access.clock is s.clock and (s.leader is None or s.leader == access.leader)
            if mine and access.proxy == "lanes" and access.agent is None and access.fenced is None:
                access.fenced = s.clock.time
    return ()


def _mma_async(s: Strand, o: Operation) -> Sequence[Any]:
    accumulator, a, b, flag, *starts = o.operands
    places = s.numbers(starts)
    sides: list[Callable[[], Array]] = []
    for value, name in ((a, "transpose_a"), (b, "transpose_b")):
        if isinstance(value.type, BufferType):
            rank = len(value.type.shape)
            at, places = places[:rank], places[rank:]
            sides.append(_matrix(s, o, value, at, bool(o.attributes[name])))
        else:
            held = s.values[value]
            sides.append(lambda held=held: held)
    start, add = s.values[accumulator], bool(s.values[flag])
    t = o.result.tile_type
    cut = o.attributes["precision"] == "tf32"

    def compute() -> Array:
        held = start.value() if isinstance(start, Issued) else start
        left, right = (side() for side in sides)
        if cut and left.dtype == np.float32:
            left, right = without_low_bits(left), without_low_bits(right)
        product = np.matmul(left.astype(held.dtype), right.astype(held.dtype))
        return (held + product if add else product).astype(held.dtype)

    issued = Issued(o, compute, t.sizes, numpy_type(t.dtype))
    s.products.issue(o, issued.value)
    return (issued,)


def _matrix(
    s: Strand, o: Operation, value: Value, at: Sequence[int], turned: bool
) -> Callable[[], Array]:
    """An operand in a buffer, read when the product is done."""
    memory: Memory = s.values[value]
    rest = [n - x for n, x in zip(memory.data.shape[-2:], at[-2:], strict=True)]
    if memory.history is not None:
        box = box_of(at, (*(1,) * (len(at) - 2), *rest))
        memory.history.add(AccessRecord(
            "read", o, s.clock, box, memory.frame, leader=s.leader, agent=s.products.key,
            count=s.products.count, proxy="async",
        ))  # fmt: skip
    place = (*at[:-2], slice(at[-2], None), slice(at[-1], None))
    return lambda: memory.data[place].T if turned else memory.data[place]


def _commit(s: Strand, o: Operation) -> Sequence[Any]:
    s.products.commit()
    return ()


def _wait(s: Strand, o: Operation) -> Sequence[Any]:
    """The values that are there by now; others stay on their way."""
    s.products.wait(pending_of(o))
    s.clock.learn({s.products.key: s.products.done}, s.leader)
    return tuple(
        v.found if isinstance(v, Issued) and v.found is not None else v for v in s.get(o.operands)
    )


RULES: dict[str, Rule] = {
    "tile.fence_async": _fence_async,
    "tile.mma.async": _mma_async,
    "tile.mma.commit": _commit,
    "tile.mma.wait": _wait,
}
