"""Accesses to arrays and buffers in the range analysis: sizes, verdicts, cells touched."""

from __future__ import annotations

from typing import Literal, cast

from tessera_lang.analysis.ranges.linear import Linear
from tessera_lang.analysis.ranges.state import BoundsVerdict, State
from tessera_lang.ir.core import BufferType, Operation, ViewType
from tessera_lang.record import replace

ACCESSES = {
    "tile.load": 0, "tile.store": 1, "tile.atomic": 1, "tile.atomic_cas": 2,
    "tile.atomic_load": 0, "tile.atomic_store": 1,
}  # fmt: skip
"""Operations that touch an element, with the position of the array among the operands."""


def see_view(state: State, operation: Operation) -> None:
    """The sizes of a ``tile.view``: never negative, and bounded."""
    t = cast("ViewType", operation.result.type)
    forms: list[Linear] = []
    for axis, size in enumerate(t.shape):
        form = state.form(operation.operands[1 + axis])
        if size is not None:
            form = Linear((), size)
        state.known.holds(form)
        state.known.holds(form.scaled(-1).shifted(state.largest_size))
        forms.append(form)
        factors = state.factors.get(form, ())
        if len(factors) == 2:  # it has not wrapped: a launch compares it with a size that there is
            state.volumes.append(factors)
            state.wrapped.discard(operation.operands[1 + axis])
    state.sizes[operation.result] = tuple(forms)
    if len(forms) > 1:
        state.volumes.append(tuple(forms))


def check_access(state: State, operation: Operation) -> None:
    """Record whether an access is inside, and what it touches of a buffer of one axis."""
    if not state.recording:
        return
    at = ACCESSES[operation.name]
    array, indices = operation.operands[at], operation.operands[at + 1 :]
    if isinstance(array.type, BufferType):
        sizes = tuple(Linear((), extent) for extent in array.type.shape)
    else:
        sizes = state.sizes.get(array, ())
    verdict, open_ = BoundsVerdict("proved"), list[int]()
    for axis, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        found = _axis(state, state.form(index), size)
        if found == "outside" and state.known.contradicts():
            found = "unknown"  # nothing is certain where control never comes
        if found == "outside":
            verdict = BoundsVerdict("outside", axis, state.known.range(state.form(index), 3))
            break
        if found == "unknown":
            open_.append(axis)
            if verdict.verdict == "proved":
                verdict = BoundsVerdict("unknown", axis, state.known.range(state.form(index), 3))
    if verdict.verdict == "unknown":
        verdict = replace(verdict, open=tuple(open_))
    state.result.accesses[operation] = verdict
    if isinstance(array.type, BufferType) and len(array.type.shape) == 1:
        extent = array.type.shape[0]
        last = state.known.range(state.form(indices[0]), 3)[1]
        cells = last + 1 if verdict.verdict == "proved" else extent
        touched = state.result.touched.get(array, 0)
        state.result.touched[array] = max(touched, min(cells, extent))


def touch_whole(state: State, operation: Operation) -> None:
    """A group that works on a buffer together may touch all of it."""
    for value in operation.operands:
        if isinstance(value.type, BufferType) and len(value.type.shape) == 1:
            state.result.touched[value] = value.type.shape[0]


def _axis(state: State, index: Linear, size: Linear) -> Literal["proved", "unknown", "outside"]:
    """Where an index lies in respect of ``0 .. size - 1``."""
    room = (size - index).shifted(-1)
    if state.known.proves(index) and state.known.proves(room):
        return "proved"
    over = state.known.proves(index - size)
    under = state.known.proves(index.scaled(-1).shifted(-1))
    return "outside" if over or under else "unknown"
