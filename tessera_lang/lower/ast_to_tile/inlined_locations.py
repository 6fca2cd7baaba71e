"""Faults inside of called functions, told where the kernel calls them.

Owns which call of a kernel a place belongs to. Must not know what the faults are about.
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera_lang.diagnostics import Diagnostic, Label
from tessera_lang.record import replace
from tessera_lang.sema.side_tables import TypedFunction
from tessera_lang.source import Span


def at_calls(kernel: TypedFunction, found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The faults, with the call that leads to each. Of a function in another file, which may
    be the library's, one fault is told for a call and a reason, and it is told at the call."""
    told: list[Diagnostic] = []
    seen: set[object] = set()
    for fault in found:
        found_call = None if fault.span is None else _call_of(kernel, fault, fault.span)
        if found_call is None or fault.span is None:
            told.append(fault)
            continue
        call, name = found_call
        if fault.span.file == call.file:
            labels = (*fault.labels, Label(call, "in this call"))
            told.append(replace(fault, labels=labels))
            continue
        reason = (call.lo, *((at.span.file, at.span.lo) for at in fault.labels))
        if reason not in seen:
            seen.add(reason)
            message = f"{fault.message}, in `{name}`"
            told.append(replace(fault, message=message, span=call))
    return tuple(told)


def _call_of(kernel: TypedFunction, fault: Diagnostic, place: Span) -> tuple[Span, str] | None:
    """The one call that leads to a place; of several the first behind the reason."""
    calls = sorted(_calls_to(kernel, place), key=lambda call: call[0].lo)
    if len(calls) > 1 and fault.labels and _holds(kernel, fault.labels[0].span):
        calls = [call for call in calls if call[0].lo >= fault.labels[0].span.lo][:1]
    return calls[0] if len(calls) == 1 else None


def _calls_to(kernel: TypedFunction, place: Span) -> list[tuple[Span, str]]:
    """The calls in the kernel that get to a place in a function."""
    if _holds(kernel, place):
        return []
    known: dict[TypedFunction, bool] = {}
    return [
        (call.span, inner.declaration.name)
        for call, inner in kernel.calls.items()
        if _reaches(inner, place, known)
    ]


def _holds(function: TypedFunction, place: Span) -> bool:
    whole = function.declaration.span
    return whole.file == place.file and whole.lo <= place.lo and place.hi <= whole.hi


def _reaches(function: TypedFunction, place: Span, known: dict[TypedFunction, bool]) -> bool:
    found = known.get(function)
    if found is None:
        found = known[function] = _holds(function, place) or any(
            _reaches(inner, place, known) for inner in function.calls.values()
        )
    return found
