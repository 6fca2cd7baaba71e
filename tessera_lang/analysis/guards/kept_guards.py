"""Which accesses keep their guard, and what would have to be known to drop it.

Owns P1004. To be asked of a kernel after the passes. Must not know how guards are made.
"""

from __future__ import annotations

from tessera_lang.analysis.guards.guard_groups import GroupFinder, decided, is_guarded
from tessera_lang.analysis.guards.hoistable_values import KernelValues
from tessera_lang.analysis.ranges.integer_ranges import ACCESSES, Ranges, ranges
from tessera_lang.analysis.ranges.state import BoundsVerdict
from tessera_lang.diagnostics import Diagnostic, Label
from tessera_lang.ir.core import Operation, Value
from tessera_lang.record import replace


def explain_guards(kernel: Operation, known: Ranges | None = None) -> tuple[Diagnostic, ...]:
    """One hint for each access that is guarded, with the place where a test of a GPU decides for
    several at once."""
    found = known or ranges(kernel)
    values = KernelValues(kernel, found)
    groups = decided(GroupFinder(values), kernel)
    return tuple(
        _grouped(_kept(o, found.accesses.get(o), values.definitions), groups.get(o))
        for o in kernel.walk()
        if is_guarded(o)
    )


def _grouped(hint: Diagnostic, group: tuple[Operation, int] | None) -> Diagnostic:
    if group is None:
        return hint
    first, count = group
    others = f"with {count - 1} others" if count > 2 else "with another" if count > 1 else "ahead"
    text = f"a GPU decides it here, {others}, in one test"
    if first.span is None or first.span == hint.span:
        return replace(hint, notes=(text,))
    return replace(hint, labels=(Label(first.span, text),))


def _kept(
    operation: Operation, access: BoundsVerdict | None, definitions: dict[Value, Operation]
) -> Diagnostic:
    at = ACCESSES[operation.name]
    array = operation.operands[at]
    axis = access.axis if access is not None else 0
    index = operation.operands[at + 1 + axis]
    size = _size(array, axis, definitions)
    low, high = access.index if access is not None else (-1, -1)
    name = f"`{index.name}`" if index.name else "the index"
    where = f" on axis {axis}" if len(array.array_type.shape) > 1 else ""
    missing = f"`0 <= {index.name or 'index'}`" if low < 0 else ""
    extent = array.array_type.shape[axis]
    if extent is None or high >= extent:
        upper = f"`{index.name or 'index'} < {size}`"
        missing = f"{missing} and {upper}" if missing else upper
    kind = {"tile.load": "read", "tile.store": "write"}.get(operation.name, "atomic")
    return Diagnostic(
        "P1004",
        f"this {kind} of `{array.name}` keeps its guard: nothing proves {missing}{where}",
        operation.span,
        f"{name} is {_range(low, high)}, the size is {size}",
        "hint",
        helps=("say it in an `if` around the access, or in a `where` clause if it is about sizes",),
    )


def _size(array: Value, axis: int, definitions: dict[Value, Operation]) -> str:
    extent = array.array_type.shape[axis]
    if extent is not None:
        return str(extent)
    view = definitions.get(array)
    name = view.operands[1 + axis].name if view is not None else ""
    return name or f"{array.name}.shape[{axis}]"


def _range(low: int, high: int) -> str:
    """Bounds in words; those of whole types and of sizes are none."""
    far = 1 << 31
    if low <= -far and high >= far:
        return "anything"
    if high >= far:
        return f"{low} or more"
    return f"at most {high}" if low <= -far else f"{low} to {high}"
