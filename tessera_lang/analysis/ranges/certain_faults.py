"""The check of certain faults: an index that is outside whatever the lane and the data.

Owns T0402. What may be outside is guarded, not reported.
"""

from __future__ import annotations

from tessera_lang.analysis.ranges.integer_ranges import ACCESSES, BoundsVerdict, Ranges, ranges
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation


def check_bounds(kernel: Operation, known: Ranges | None = None) -> tuple[Diagnostic, ...]:
    """One error per access that is outside every time it runs."""
    found = known or ranges(kernel)
    return tuple(
        _report(operation, access)
        for operation, access in found.accesses.items()
        if access.verdict == "outside"
    )


def _report(operation: Operation, access: BoundsVerdict) -> Diagnostic:
    array = operation.operands[ACCESSES[operation.name]]
    low, high = access.index
    size = array.array_type.shape[access.axis]
    name = f"`{array.name}`" if array.name else "the array"
    extent = "its size" if size is None else f"size {size}"
    axis = f" axis {access.axis} of" if len(array.array_type.shape) > 1 else ""
    helps: tuple[str, ...] = ()
    if size is not None:
        helps = (f"indices from 0 to {size - 1} are inside",) if size else ("it has no elements",)
    if low == high:
        message = f"index {low} is outside{axis} {name} ({extent})"
    elif size is None:
        message = f"this index is always outside{axis} {name}"
    else:
        message = f"this index is {low} to {high}, always outside{axis} {name} ({extent})"
    return Diagnostic("T0402", message, operation.span, "always outside", helps=helps)
