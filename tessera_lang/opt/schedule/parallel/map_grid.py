"""Which loops become the grid: axes whose iterations are proved independent.

Owns which loop is spread, the new nest, and what is said of axes that are not spread.
``independence.py`` judges an axis; the passes before have made the nests
(``driver/pipeline.py``). Must not know a machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tessera_lang.diagnostics import Diagnostic, Label
from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.opt.schedule.parallel.independence import Verdict, array_name, verdicts
from tessera_lang.opt.schedule.parallel.loop_interchange import Interchange
from tessera_lang.opt.schedule.parallel.loop_nest_rewrites import split
from tessera_lang.opt.schedule.query.array_dependence import (
    FOR,
    SCATTER,
    MemoryAccess,
    Repeated,
    accesses_in,
)
from tessera_lang.opt.schedule.query.def_use import arrays_of, definitions_of
from tessera_lang.record import replace


def map_grid(program: Program, remarks: list[Diagnostic]) -> Program:
    """``program`` with every axis mapped: at most one loop, at the top, is the grid."""
    (kernel,) = program.operations
    region = kernel.regions[0]
    arrays = arrays_of(kernel)
    at = _candidate(region, arrays)
    definitions = definitions_of(kernel)
    interchange = Interchange(definitions, arrays)
    operations: list[Operation] = []
    for i, o in enumerate(region.operations):
        if i == at:
            operations.append(_mapped(o, interchange, remarks))
        else:
            if at is None and o.name == FOR and _writes(o, arrays):
                remarks.extend(_warnings(o, verdicts(o, definitions, arrays)))
            operations.extend(interchange.inside(o))
    made = replace(kernel, regions=(Region(region.arguments, tuple(operations)),))
    return replace(program, operations=(made,))


# --- which loop --------------------------------------------------------------------------------


def _writes(o: Operation, arrays: Mapping[Value, Value]) -> list[MemoryAccess]:
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


# --- the new nest --------------------------------------------------------------------------------


def _mapped(loop: Operation, interchange: Interchange, remarks: list[Diagnostic]) -> Operation:
    """The loop as a grid of the independent axes around loops over the others."""
    found = verdicts(loop, interchange.definitions, interchange.arrays)
    remarks.extend(_warnings(loop, found))
    grid = [i for i, v in enumerate(found) if v.grid]
    rest = [i for i, v in enumerate(found) if not v.grid]
    reasons = {i: found[i].reason for i in rest}
    (region,) = loop.regions
    inner = (x for o in region.operations for x in interchange.inside(o))
    body = Region(region.arguments, tuple(inner))
    return split(replace(loop, regions=(body,)), grid, rest, reasons)


def _warnings(loop: Operation, found: Sequence[Verdict]) -> list[Diagnostic]:
    """What stands in the way of axes that were written as such."""
    plain = bool(loop.attributes.get("plain"))
    return [_warning(loop, v) for v in found if v.pair is not None and not plain]


def _warning(loop: Operation, v: Verdict) -> Diagnostic:
    assert v.pair is not None
    a, b = v.pair
    chosen = any(x.operation.name == SCATTER for x in v.pair)
    whose = "no row is written in two of them" if chosen else "its iterations are independent"
    labels = [
        Label(x.operation.span, f"`{array_name(x)}` is {x.verb} here")
        for x in ((a,) if a is b else (a, b))
        if x.operation.span is not None
    ]
    if v.repeated is not None:
        return _repeated(loop, v, v.repeated, labels)
    return Diagnostic(
        "T0706",
        f"the axis `{v.name}` runs in order: {v.reason}",
        loop.span,
        f"`{v.name}` is not spread over the device",
        severity="warning",
        labels=tuple(labels),
        notes=(_missing(v),),
        helps=(_of_one_place(a) if v.again else f"if {whose}, say so: `{_promise(v, chosen)}`",),
        certainty="estimated",
    )


def _repeated(loop: Operation, v: Verdict, how: Repeated, labels: list[Label]) -> Diagnostic:
    """Two iterations surely write the same elements; a promise that they do not is an error."""
    note = (
        f"the place that is written does not depend on `{v.name}`"
        if not how.width
        else f"an iteration writes {how.width} elements and the next one begins"
        f" {how.factor * how.step} further on"
    )
    helps = (f"give the loop a step of that many: `step={how.apart}`",) if how.apart else ()
    several = len(cast("tuple[str, ...]", loop.attributes["axes"])) > 1
    if how.apart and several:
        helps = (f"give the axis `{v.name}` a step of that many: {how.apart}",)
    if v.promised:
        message = f"`{v.name}` is said to be independent, and {v.reason}"
        return Diagnostic(
            "T0606", message, loop.span, f"`{v.name}` has a step of {how.step}",
            labels=tuple(labels), notes=(note,), helps=helps,
        )  # fmt: skip
    return Diagnostic(
        "T0706", f"the axis `{v.name}` runs in order: {v.reason}", loop.span,
        f"`{v.name}` is not spread over the device", severity="warning", labels=tuple(labels),
        notes=(note,), helps=helps,
    )  # fmt: skip


def _of_one_place(a: MemoryAccess) -> str:
    name = array_name(a)
    return (
        f"if the iterations add to `{name}`, write `{name}[...] += ...`: then they may run in any"
        " order"
    )


def _promise(v: Verdict, chosen: bool) -> str:
    said = f'independent=("{v.name}",)'
    return f"for {v.name} in op.tile_range(n, step=64, {said}):" if chosen else said


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
