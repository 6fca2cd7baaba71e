"""Accesses to arrays and buffers in the range analysis: sizes, verdicts, cells touched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from tessera_lang.analysis.ranges.linear import Interval, Linear
from tessera_lang.analysis.ranges.state import BoundsVerdict, State
from tessera_lang.ir.core import BufferType, Operation, Value, ViewType
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
    flat = isinstance(array.type, BufferType) and len(array.type.shape) == 1
    if not ("verdicts" in state.wanted or (flat and "touched" in state.wanted)):
        return
    if isinstance(array.type, BufferType):
        sizes = tuple(Linear((), extent) for extent in array.type.shape)
    else:
        sizes = state.sizes.get(array, ())
    verdict = _verdict(state, [state.form(index) for index in indices], sizes)
    state.result.accesses[operation] = verdict
    if flat and "touched" in state.wanted:
        _touch(state, array, state.form(indices[0]), verdict.verdict == "proved")


def _verdict(
    state: State, indices: Sequence[Linear], sizes: tuple[Linear, ...]
) -> BoundsVerdict:  # fmt: skip
    verdict, open_ = BoundsVerdict("proved"), list[int]()
    for axis, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        found = _axis(state, index, size)
        if found == "outside" and state.known.contradicts():
            found = "unknown"  # nothing is certain where control never comes
        if found == "outside":
            return BoundsVerdict("outside", axis, _index(state, index))
        if found == "unknown":
            open_.append(axis)
            if verdict.verdict == "proved":
                verdict = BoundsVerdict("unknown", axis, _index(state, index))
    return replace(verdict, open=tuple(open_)) if open_ else verdict


def _index(state: State, index: Linear) -> Interval:
    return state.known.range(index, 3) if "indices" in state.wanted else (0, 0)


def _touch(state: State, buffer: Value, index: Linear, inside: bool) -> None:
    """Cells of a buffer of one axis that an access may touch, from its first on."""
    extent = cast("BufferType", buffer.type).shape[0]
    before = state.result.touched.get(buffer, 0)
    if before < extent:
        cells = state.known.range(index, 3)[1] + 1 if inside else extent
        state.result.touched[buffer] = max(before, min(cells, extent))


def touch_whole(state: State, operation: Operation) -> None:
    """A group that works on a buffer together may touch all of it."""
    for value in operation.operands:
        if isinstance(value.type, BufferType) and len(value.type.shape) == 1:
            state.result.touched[value] = value.type.shape[0]


def _axis(state: State, index: Linear, size: Linear) -> Literal["proved", "unknown", "outside"]:
    """Where an index lies in respect of ``0 .. size - 1``."""
    known, room = state.known, (size - index).shifted(-1)
    begins = known.proves(index)
    if begins and known.proves(room):
        return "proved"
    # What was shown to be no less than 0 is not shown to be less: a proof that fails is dear.
    over = known.proves(index - size)
    under = not (over or begins) and known.proves(index.scaled(-1).shifted(-1))
    return "outside" if over or under else "unknown"
