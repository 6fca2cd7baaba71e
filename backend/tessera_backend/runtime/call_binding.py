"""One plan applied to one set of arguments: every check of a call, and the launch that it makes.

Made once per layout, never on the hot path. Owns the order of the checks and what goes into each
slot; each check stands in its own module. Must not know how code is launched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from tessera_backend.runtime.alias_checks import sharing_faults
from tessera_backend.runtime.array_checks import check_array
from tessera_backend.runtime.arrays import HOST, ArrayView
from tessera_backend.runtime.bound_arguments import (
    Bound,
    BoundCopy,
    BoundMemory,
    BoundSlots,
    MappedArray,
)
from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.dlpack import row_major
from tessera_backend.runtime.launch_grid import GRID, check_grid, grid_of
from tessera_backend.runtime.premise_checks import check_premises
from tessera_backend.runtime.size_checks import (
    Argument,
    Sizes,
    bind_symbols,
    check_condition,
    check_sizes,
    value_of,
)
from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.target.launch_plan import COPY_ALIGNMENT, CopyPlan, LaunchPlan
from tessera_lang.target.premises import written_pairs
from tessera_lang.types.dtype import DTYPES, DType
from tessera_lang.types.shape import evaluate_dim

_MASK = (1 << 64) - 1


def bind(
    plan: LaunchPlan, arguments: Sequence[Argument], groups: tuple[int, ...] | None,
    then: Sequence[LaunchPlan] = (), device: int = HOST,
) -> Bound:  # fmt: skip
    """Check a call against the plan. Raises TesseraError with every independent fault.

    ``arguments`` are one per parameter: a view for a tensor, a Python number for a scalar;
    ``then`` are the plans of the launches that follow; ``device`` is where the code runs.
    """
    found: list[Diagnostic] = []
    for p, value in zip(plan.parameters, arguments, strict=True):
        if isinstance(value, ArrayView):
            found += check_array(plan.kernel, p, p.declared, value)
    if found:
        raise error(*found)
    sizes = Sizes()
    bind_symbols(plan, arguments, sizes)
    found += check_sizes(plan, arguments, sizes)
    pairs = written_pairs(plan)
    found += sharing_faults(plan, arguments, pairs)
    if found:
        raise error(*found)
    for condition in plan.conditions:
        found += check_condition(plan, condition, sizes)
    grid, faults = grid_of(plan, groups, sizes)
    found += faults
    on_device = device != HOST
    found += check_grid(plan, grid, on_device)
    grids = [grid_of(p, None, sizes) for p in then]
    for p, (other, wrong) in zip(then, grids, strict=True):
        found += wrong or check_grid(p, other, on_device)
    if found:
        raise error(*found)
    sizes.values.setdefault(GRID, math.prod(grid))
    results = _results(plan, sizes, found)
    if found:
        raise error(*found)
    arrays = (*arguments, *results)
    target = "cuda" if on_device else "cpu"
    for p, (axes, _) in zip((plan, *then), ((grid, ()), *grids), strict=True):
        check_premises(p, target, arrays, sizes, axes)
    bound = _launch(plan, arrays, sizes, grid)
    bound.pairs = pairs
    bound.then = tuple(
        _launch(p, arrays, sizes, other) for p, (other, _) in zip(then, grids, strict=True)
    )
    return bound


def _launch(
    plan: LaunchPlan, arrays: Sequence[Argument], sizes: Sizes, axes: tuple[int, ...]
) -> Bound:
    """One launch on arguments and results."""
    given = (*arrays, *(_copied(c, arrays) for c in plan.copies))
    return Bound(axes, _slots(plan, given, sizes, axes), _memory(plan, given, sizes))


def _memory(plan: LaunchPlan, arguments: Sequence[Argument], sizes: Sizes) -> BoundMemory:
    made = zip(plan.results, arguments[len(plan.parameters) : plan.first_copy], strict=True)
    results = tuple((a.dtype, a.shape) for r, a in made if isinstance(a, ArrayView) and not r.kept)
    kept, kept_bytes = _kept(plan, arguments)
    return BoundMemory(
        results, tuple(_zeroed(plan, results)), _copies(plan, arguments),
        _space(plan, "workspace", sizes), _space(plan, "scratch", sizes), kept, kept_bytes,
    )  # fmt: skip


def _space(
    plan: LaunchPlan, kind: Literal["workspace", "scratch"], sizes: Sizes
) -> tuple[int, int] | None:
    """The slot of memory that a launch works in, and its bytes."""
    at = next((i for i, s in enumerate(plan.slots) if s.kind == kind), None)
    if at is None:
        return None
    return at, evaluate_dim(plan.workspace if kind == "workspace" else plan.scratch, sizes.values)


def _kept(
    plan: LaunchPlan, arguments: Sequence[Argument]
) -> tuple[tuple[tuple[int, int], ...], int]:
    """The slots of what launches leave for each other, each with its byte in their memory, and how
    much that is."""
    places: dict[int, int] = {}
    size = 0
    for number, result in enumerate(plan.results, len(plan.parameters)):
        if result.kept:
            array = arguments[number]
            assert isinstance(array, ArrayView)
            places[number] = size
            bytes_ = math.prod(array.shape) * array.dtype.bytes
            size += -(-bytes_ // COPY_ALIGNMENT) * COPY_ALIGNMENT
    slots = ((at, places[s.parameter]) for at, s in enumerate(plan.slots) if s.parameter in places)
    return tuple(slots), size


def _copied(copy: CopyPlan, arguments: Sequence[Argument]) -> ArrayView:
    """A copy of an array as a view, without an address yet."""
    source = arguments[copy.parameter]
    assert isinstance(source, ArrayView)
    strides = copy.strides(source.shape, source.dtype.bytes)
    return ArrayView(source.dtype, source.shape, strides, 0, source.device, False, None)


def _copies(plan: LaunchPlan, arguments: Sequence[Argument]) -> tuple[BoundCopy, ...]:
    out: list[BoundCopy] = []
    at = 0
    for number, copy in enumerate(plan.copies, plan.first_copy):
        source, made = arguments[copy.parameter], arguments[number]
        assert isinstance(source, ArrayView) and isinstance(made, ArrayView)
        lines = 1
        for axis in copy.axes[:-1]:
            lines *= source.shape[axis]
        # Where there is one line only its stride counts for nothing, its length does.
        pitch = copy.pitch(source.shape, made.dtype.bytes)
        out.append(BoundCopy(
            next(i for i, s in enumerate(plan.slots)
                 if s.kind == "data" and s.parameter == copy.parameter),
            tuple(i for i, s in enumerate(plan.slots)
                  if s.kind in ("data", "tensor_map") and s.parameter == number),
            made.dtype.bytes, tuple(source.shape[a] for a in copy.axes),
            tuple(source.strides[a] for a in copy.axes), pitch, at,
        ))  # fmt: skip
        at += max(-(-pitch * lines // COPY_ALIGNMENT) * COPY_ALIGNMENT, COPY_ALIGNMENT)
    return tuple(out)


def _results(plan: LaunchPlan, sizes: Sizes, found: list[Diagnostic]) -> tuple[ArrayView, ...]:
    """The arrays a kernel returns, not allocated yet."""
    made: list[ArrayView] = []
    for result in plan.results:
        shape = tuple(value_of(d, sizes, "", ("", 0, 0), found) or 0 for d in result.dims)
        if any(n < 0 for n in shape):
            does = "makes" if result.kept else "returns"
            found.append(diagnostic("T0846", f"`{plan.kernel}` {does} an array of shape {shape}"))
        made.append(ArrayView(
            DTYPES[result.dtype], shape, row_major(shape), 0, HOST, False, None
        ))  # fmt: skip
    return tuple(made)


def _slots(
    plan: LaunchPlan, arguments: Sequence[Argument], sizes: Sizes, axes: tuple[int, ...]
) -> BoundSlots:
    found = BoundSlots([0] * len(plan.slots))
    for at, slot in enumerate(plan.slots):
        value = arguments[slot.parameter] if slot.parameter >= 0 else None
        match slot.kind:
            case "data" | "tensor_map":
                assert isinstance(value, ArrayView)
                arrays = found.arrays if slot.kind == "data" else found.maps
                arrays[at] = MappedArray(value.dtype, value.shape, value.strides)
                if plan.is_given(slot.parameter):
                    found.data.append((at, slot.parameter))
            case "bytes":
                found.data.append((at, slot.parameter))
                found.by_value.append(at)
            case "size":
                assert isinstance(value, ArrayView)
                found.values[at] = value.shape[slot.axis]
            case "stride":
                assert isinstance(value, ArrayView)
                found.values[at] = value.strides[slot.axis] & _MASK
            case "symbol":
                found.values[at] = sizes.values[slot.symbol] & _MASK
            case "scalar":
                found.scalars.append((at, slot.parameter))
            case "groups":
                found.values[at] = math.prod(axes)
            case "fault":
                found.fault = at
            case "print":
                found.print = at
            case "workspace" | "scratch":
                pass  # memory of the launch
    return found


def _zeroed(
    plan: LaunchPlan, results: Sequence[tuple[DType, tuple[int, ...]]]
) -> Iterator[tuple[int, int]]:
    """The slot and the bytes of each result that begins as zeros, for the first launch."""
    for number, ((dtype, shape), result) in enumerate(
        zip(results, plan.results, strict=False), len(plan.parameters)
    ):
        if result.zeroed and not plan.launches_before:
            at = next(i for i, s in enumerate(plan.slots)
                      if s.kind == "data" and s.parameter == number)  # fmt: skip
            yield at, math.prod(shape) * dtype.bytes
