"""The passes ``prove_bounds`` and ``drop_guards``: which accesses need no guard."""

from __future__ import annotations

from tessera_lang.analysis import ranges
from tessera_lang.analysis.ranges import ACCESSES, ZERO_REPORTS
from tessera_lang.ir.core import Operation, Program
from tessera_lang.ir.rewrite import rewrite_program
from tessera_lang.opt.passes import Pass
from tessera_lang.record import replace


def prove_bounds(program: Program) -> Program:
    """Set ``bounds = "proved"`` where ranges show that an access cannot be outside.

    Divisions and loops whose divisor or step cannot be 0 lose their site. What is not proved
    stays as it is. A loop that is rebuilt inside is not the operation that was analysed, so
    sites say which is which: they are unique.
    """
    proved: set[Operation] = set()
    silent: set[object] = set()
    for kernel in program.operations:
        found = ranges(kernel)
        proved.update(o for o, access in found.accesses.items() if access.verdict == "proved")
        silent.update(o.attributes["site"] for o in found.nonzero)

    def step(operation: Operation) -> Operation | None:
        site = operation.attributes.get("site", -1)
        if site == -1:
            return None
        if operation.name in ZERO_REPORTS and site in silent:
            return replace(operation, attributes={**operation.attributes, "site": -1})
        if operation not in proved or operation.attributes["bounds"] != "guarded":
            return None
        attributes = {**operation.attributes, "bounds": "proved", "site": -1}
        return replace(operation, attributes=attributes)

    return rewrite_program(program, step)


def drop_guards(program: Program) -> Program:
    """``--bounds=off``: no access is guarded; recorded as ``bounds = "off"``."""
    return rewrite_program(program, _unguarded)


def _unguarded(operation: Operation) -> Operation | None:
    if operation.name in ACCESSES and operation.attributes["bounds"] == "guarded":
        return replace(operation, attributes={**operation.attributes, "bounds": "off", "site": -1})
    return None


PROVE_BOUNDS = Pass("prove_bounds", "tile", "tile", prove_bounds)
DROP_GUARDS = Pass("drop_guards", "tile", "tile", drop_guards)
