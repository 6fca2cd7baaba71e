"""The passes ``prove_bounds`` and ``drop_guards``: which accesses need no guard."""

from __future__ import annotations

from tessera_lang.analysis import ranges
from tessera_lang.analysis.ranges.integer_ranges import ACCESSES, ZERO_REPORTS, BoundsVerdict
from tessera_lang.ir.core import Operation, Program
from tessera_lang.ir.rewrite import rewrite_program
from tessera_lang.record import replace


def prove_bounds(program: Program) -> Program:
    """Set ``bounds = "proved"`` where ranges show that an access cannot be outside.

    Of an access that keeps its guard the axes are noted whose index is not proved. Divisions and
    loops whose divisor or step cannot be 0 lose their site. What is not proved
    stays as it is. A loop that is rebuilt inside is not the operation that was analysed, so
    sites say which is which: they are unique.
    """
    known: dict[Operation, BoundsVerdict] = {}
    silent: set[object] = set()
    for kernel in program.operations:
        found = ranges(kernel, wanted={"verdicts"})
        known.update(found.accesses)
        silent.update(o.attributes["site"] for o in found.nonzero)

    def step(operation: Operation) -> Operation | None:
        site = operation.attributes.get("site", -1)
        if site == -1:
            return None
        if operation.name in ZERO_REPORTS and site in silent:
            return replace(operation, attributes={**operation.attributes, "site": -1})
        access = known.get(operation)
        if access is None or operation.attributes["bounds"] != "guarded":
            return None
        if access.verdict == "proved":
            attributes = {**operation.attributes, "bounds": "proved", "site": -1}
            return replace(operation, attributes=attributes)
        rank = len(operation.operands) - ACCESSES[operation.name] - 1
        if access.open == operation.attributes.get("open", tuple(range(rank))) or not access.open:
            return None
        return replace(operation, attributes={**operation.attributes, "open": access.open})

    return rewrite_program(program, step)


def drop_guards(program: Program) -> Program:
    """``--bounds=off``: no access is guarded; recorded as ``bounds = "off"``."""
    return rewrite_program(program, _unguarded)


def _unguarded(operation: Operation) -> Operation | None:
    if operation.name in ACCESSES and operation.attributes["bounds"] == "guarded":
        return replace(operation, attributes={**operation.attributes, "bounds": "off", "site": -1})
    return None
