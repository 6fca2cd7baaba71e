"""Which loops become the grid: axes whose iterations are proved independent.

Owns the order of the steps: perfect nests are joined, neighbouring nests fused where that is
safe, axes proved and moved outwards. ``accesses.py`` proves; ``privatize.py`` takes the sums
out. Must not know a machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tessera_lang.diagnostics import Diagnostic, Label
from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.opt.schedule.accesses import (
    ACCUMULATE,
    FOR,
    Access,
    Nest,
    accesses_in,
    arrays_of,
    definitions_of,
)
from tessera_lang.opt.schedule.copies import is_result
from tessera_lang.opt.schedule.nests import fused, joined, split, sunk
from tessera_lang.opt.schedule.sink import sink_conditions
from tessera_lang.record import dataclass, replace


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of an axis: ``grid``, or why not; ``pair`` are accesses that may meet."""

    name: str
    grid: bool
    reason: str = ""
    pair: tuple[Access, Access] | None = None


def map_grid(program: Program, remarks: list[Diagnostic]) -> Program:
    """``program`` with every axis mapped: at most one loop, at the top, is the grid."""
    (kernel,) = program.operations
    kernel = arranged(kernel)
    region = kernel.regions[0]
    arrays = arrays_of(kernel)
    at = _candidate(region, arrays)
    definitions = definitions_of(kernel)
    operations: list[Operation] = []
    for i, o in enumerate(region.operations):
        if i == at:
            operations.extend(_mapped(o, definitions, arrays, remarks))
        else:
            if at is None and o.name == FOR and _writes(o, arrays):
                remarks.extend(_warnings(o, verdicts(o, definitions, arrays)))
            operations.append(_in_order(o))
    made = replace(kernel, regions=(Region(region.arguments, tuple(operations)),))
    return replace(program, operations=(made,))


def arranged(kernel: Operation) -> Operation:
    """The kernel with its loops as they are looked at: joined and fused where that is safe."""
    joined_ = _joined(sink_conditions(kernel.regions[0]))
    return _fuse(_turned(replace(kernel, regions=(joined_,))))


def _turned(kernel: Operation) -> Operation:
    """The kernel whose sums over loops around parts of their place are loops in each part: the
    parts are independent, the terms of a sum are not."""
    arrays, definitions = arrays_of(kernel), definitions_of(kernel)
    region = kernel.regions[0]
    out: list[Operation] = []
    for o in region.operations:
        made = sunk(o, arrays)
        if made is None or any(v.grid for v in verdicts(o, definitions, arrays)):
            out.append(o)
            continue
        found = verdicts(made, {**definitions, **definitions_of(made)}, arrays)
        out.append(made if any(v.grid for v in found) else o)
    return replace(kernel, regions=(Region(region.arguments, tuple(out)),))


# --- which loop --------------------------------------------------------------------------------


def _writes(o: Operation, arrays: Mapping[Value, Value]) -> list[Access]:
    return [a for a in accesses_in(o, arrays) if a.writes]


def _candidate(region: Region, arrays: Mapping[Value, Value]) -> int | None:
    """The only operation at the top that writes, where it is a loop that carries nothing, and
    nothing else reads what it writes."""
    writing = [i for i, o in enumerate(region.operations) if _writes(o, arrays)]
    if len(writing) != 1:
        return None
    loop = region.operations[writing[0]]
    if loop.name != FOR or loop.results:
        return None
    written = [a.array for a in _writes(loop, arrays)]
    for i, o in enumerate(region.operations):
        if i != writing[0] and any(a.array is w for a in accesses_in(o, arrays) for w in written):
            return None
    return writing[0]


def _in_order(o: Operation) -> Operation:
    """The operation with every open axis of loops in it run in order."""
    regions = tuple(
        Region(r.arguments, tuple(_in_order(inner) for inner in r.operations)) for r in o.regions
    )
    attributes = o.attributes
    if o.name == FOR:
        mapping = cast("tuple[str, ...]", attributes["mapping"])
        made = tuple("loop" if m == "open" else m for m in mapping)
        attributes = {**attributes, "mapping": made}
    elif not o.regions:
        return o
    return replace(o, regions=regions, attributes=attributes)


def _joined(region: Region) -> Region:
    return Region(region.arguments, tuple(joined(o) for o in region.operations))


def _fuse(kernel: Operation) -> Operation:
    """Neighbouring nests with the same axes as one, where no two iterations then meet."""
    operations = list(kernel.regions[0].operations)
    i = 0
    while i < len(operations):
        j = next((j for j in range(i + 1, len(operations)) if operations[j].name == FOR), None)
        if operations[i].name != FOR or j is None:
            i += 1
            continue
        made = _fused_pair(kernel, operations, i, j)
        if made is None:
            i += 1
        else:
            operations = made
            i = next(k for k, o in enumerate(operations) if o.name == FOR and k >= i)
            region = Region(kernel.regions[0].arguments, tuple(operations))
            kernel = replace(kernel, regions=(region,))
    return kernel


def _fused_pair(
    kernel: Operation, operations: list[Operation], i: int, j: int
) -> list[Operation] | None:
    arrays, definitions = arrays_of(kernel), definitions_of(kernel)
    first, second, between = operations[i], operations[j], operations[i + 1 : j]
    if any(_writes(o, arrays) or accesses_in(o, arrays) for o in between):
        return None
    if any(v in o.operands for o in between for v in first.results):
        return None
    made = fused(first, second, definitions)
    if made is None or not _writes(first, arrays) or not _writes(second, arrays):
        return None
    definitions = {**definitions, **definitions_of(made)}
    if not all(v.grid for v in verdicts(made, definitions, arrays)):
        return None
    return [*operations[:i], *between, made, *operations[j + 1 :]]


# --- what is independent -------------------------------------------------------------------------


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
    return [_verdict(nest, axis, name, name in promised, pairs) for axis, name in enumerate(names)]


def _verdict(
    nest: Nest, axis: int, name: str, promised: bool, pairs: Sequence[tuple[Access, Access]]
) -> Verdict:
    summed = False
    for a, b in pairs:
        if nest.disjoint(axis, a, b):
            continue
        if a.operation.name == b.operation.name == ACCUMULATE and a.kind == b.kind:
            summed = True
            continue
        if not promised:
            what = f"`{_array_name(a)}` may be {a.verb} and {b.verb} in two of its iterations"
            if a is b:
                what = f"two of its iterations may write the same elements of `{_array_name(a)}`"
            return Verdict(name, False, what, (a, b))
    if summed:
        return Verdict(name, False, f"a sum over {name}")
    return Verdict(name, True)


def _array_name(access: Access) -> str:
    name = access.array.name
    return "return" if is_result(name) else name or "an array"


# --- the new nest --------------------------------------------------------------------------------


def _mapped(
    loop: Operation, definitions: Mapping[Value, Operation], arrays: Mapping[Value, Value],
    remarks: list[Diagnostic],
) -> list[Operation]:  # fmt: skip
    """The loop as a grid of the independent axes around loops over the others."""
    found = verdicts(loop, definitions, arrays)
    remarks.extend(_warnings(loop, found))
    grid = [i for i, v in enumerate(found) if v.grid]
    rest = [i for i, v in enumerate(found) if not v.grid]
    reasons = {i: found[i].reason for i in rest}
    inner = _in_order(loop)
    body = Region(inner.regions[0].arguments, inner.regions[0].operations)
    return [split(replace(loop, regions=(body,)), grid, rest, reasons)]


def _warnings(loop: Operation, found: Sequence[Verdict]) -> list[Diagnostic]:
    """What stands in the way of axes that were written as such."""
    plain = bool(loop.attributes.get("plain"))
    return [_warning(loop, v) for v in found if v.pair is not None and not plain]


def _warning(loop: Operation, v: Verdict) -> Diagnostic:
    assert v.pair is not None
    a, b = v.pair
    labels = [
        Label(x.operation.span, f"`{_array_name(x)}` is {x.verb} here")
        for x in ((a,) if a is b else (a, b))
        if x.operation.span is not None
    ]
    return Diagnostic(
        "T0706",
        f"the axis `{v.name}` runs in order: {v.reason}",
        loop.span,
        f"`{v.name}` is not spread over the device",
        severity="warning",
        labels=tuple(labels),
        notes=(_missing(v),),
        helps=(f'if its iterations are independent, say so: `independent=("{v.name}",)`',),
        certainty="estimated",
    )


def _missing(v: Verdict) -> str:
    """The fact that is not there."""
    assert v.pair is not None
    a, b = v.pair
    if any(s is None for s in (*a.starts, *b.starts)):
        return "which elements are touched is read from memory"
    return (
        "no axis of the array was found along which the slices of two iterations are apart by at"
        " least their width"
    )
