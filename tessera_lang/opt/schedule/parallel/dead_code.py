"""Dead code elimination: pure operations, reads, and loops that leave nothing behind.

Owns the one backward walk. Must not know why something is not needed any more.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.ir.definitions import DEFINITIONS, is_pure
from tessera_lang.record import replace

_SILENT = ("none", "read")


def tidy(program: Program) -> Program:
    """``program`` without operations whose results are not used; itself if there are none."""
    (kernel,) = program.operations
    region, _ = _region(kernel.regions[0], set())
    if region is kernel.regions[0]:
        return program
    return replace(program, operations=(replace(kernel, regions=(region,)),))


def _region(region: Region, live: set[Value]) -> tuple[Region, set[Value]]:
    """The region without what is not needed, and the values it needs of outside."""
    kept: list[Operation] = []
    changed = False
    for o in reversed(region.operations):
        if not any(v in live for v in o.results) and is_silent(o):
            changed = True
            continue
        regions: list[Region] = []
        for inner in o.regions:
            made, needs = _region(inner, set())
            live |= needs
            regions.append(made)
        if any(a is not b for a, b in zip(regions, o.regions, strict=True)):
            o = replace(o, regions=tuple(regions))
            changed = True
        live.update(o.operands)
        kept.append(o)
    if not changed:
        return region, live
    return Region(region.arguments, tuple(reversed(kept))), live


def is_silent(o: Operation) -> bool:
    """Whether an operation does nothing but give its results."""
    definition = DEFINITIONS[o.name]
    if o.name == "tile.load":
        return o.attributes.get("bounds") != "guarded"
    if definition.is_terminator:
        return False
    if definition.effect in _SILENT or is_pure(o):
        return True
    if o.name == "tile.while":
        return False  # it may not end
    nested = definition.effect == "nested" and o.name != "tile.scope"
    return nested and all(
        is_silent(inner) or inner is r.terminator and inner.name == "tile.yield"
        for r in o.regions
        for inner in r.operations
    )
