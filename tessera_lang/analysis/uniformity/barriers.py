"""The check of barriers and warp operations: every lane of the group must get to each of them.

Owns T0401 and T0403. Must not know how uniformity is found.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.analysis.uniformity.lane_uniformity import Cause, Uniformity, uniformity
from tessera_lang.diagnostics import Diagnostic, Label
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import LOOP_EXITS, LOOPS
from tessera_lang.ir.tile.ops import WARP_OPS

_SOURCES = {
    "tile.lane_linear": "this is another number in each lane",
    "tile.lane_index": "this is another number in each lane",
    "tile.load": "this is read from memory that lanes write, so it may differ between lanes",
    "tile.atomic": "the result of an atomic differs between lanes",
    "tile.atomic_cas": "the result of an atomic differs between lanes",
    "tile.atomic_load": "this is read from memory that lanes write, so it may differ between lanes",
    **dict.fromkeys(WARP_OPS, "this is another value in each warp"),
}


_COLLECTIVE = ("tile.barrier", *WARP_OPS)


def check_barriers(
    kernel: Operation, known: Uniformity | None = None,
    parted: Mapping[Operation, tuple[int, int]] | None = None,
) -> tuple[Diagnostic, ...]:  # fmt: skip
    """One error per barrier or warp operation that some lanes of a group may not get to.
    ``parted``: for an ``if`` a lane for which the condition surely holds, and one for which it
    surely does not."""
    found = known or uniformity(kernel)
    return tuple(
        _report(found, operation, found.divergent[operation], parted or {})
        for operation in kernel.walk()
        if operation.name in _COLLECTIVE and operation in found.divergent
    )


def _report(
    found: Uniformity, barrier: Operation, cause: Cause,
    parted: Mapping[Operation, tuple[int, int]],
) -> Diagnostic:  # fmt: skip
    labels: list[Label] = []
    if cause.operation.span is not None:
        labels.append(Label(cause.operation.span, _parting(cause, parted)))
    if cause.exit is not None and cause.exit.span is not None:
        labels.append(Label(cause.exit.span, "some lanes leave here"))
    source = _source(found, cause.value)
    if source is not None and source.span is not None:
        labels.append(Label(source.span, _SOURCES.get(source.name, "this differs between lanes")))
    if barrier.name != "tile.barrier":
        return Diagnostic(
            "T0403",
            "not every lane of the group gets to this warp operation",
            barrier.span,
            "some lanes may be missing here",
            labels=tuple(labels),
            notes=("a warp operation takes a value of every lane of its warp; whether the whole"
                   " group gets to it is what is checked",),
            helps=("move it out of the `if` or loop, and give the lanes that have nothing to add"
                   " a value that changes nothing, such as 0 for a sum",),
        )  # fmt: skip
    return Diagnostic(
        "T0401",
        "not every lane of the group gets to this barrier",
        barrier.span,
        "some lanes may be missing here",
        labels=tuple(labels),
        notes=("a barrier waits for all lanes of the group; one that is missing would hang it",),
        helps=(_help(cause),),
    )


def _help(cause: Cause) -> str:
    left = cause.exit.name if cause.exit is not None else ""
    if left in LOOP_EXITS:
        return (
            "let the whole group decide when the loop ends: `group_max(...)` gives every lane one"
            " number to ask"
        )
    if left:
        return "let all lanes stay up to the last barrier, and put what some of them do inside `if`"
    if cause.operation.name in LOOPS:
        return (
            "let all lanes go through the loop equally often, as `for k in range(0, n, 64)` does,"
            " and put the work of single lanes inside `if`: `if k + t < n: ...`"
        )
    return "move the barrier out, and keep only the work of single lanes inside `if`"


def _parting(cause: Cause, parted: Mapping[Operation, tuple[int, int]]) -> str:
    match cause.operation.name:
        case "tile.for" | "tile.while":
            return "lanes may leave this loop at different times"
        case _ if cause.operation in parted:
            holds, fails = parted[cause.operation]
            return f"lanes part here: the condition holds in lane {holds}, and not in lane {fails}"
        case _:
            return "lanes part here: the condition may differ between them"


def _source(found: Uniformity, value: Value | None) -> Operation | None:
    return None if value is None else found.definitions.get(found.origin(value))
