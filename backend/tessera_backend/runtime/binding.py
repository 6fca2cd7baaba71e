"""One plan applied to one set of arguments: every check of a call, the sizes, the grid.

Owns the checks and their messages; made once per layout, never on the hot path. Must not
know how code is launched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tessera_backend.runtime import overlap
from tessera_backend.runtime.arrays import HOST, ArrayView
from tessera_backend.runtime.dlpack import row_major
from tessera_backend.runtime.report import Place, diagnostic, error
from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.record import dataclass, field
from tessera_lang.target.plan import (
    COPY_ALIGNMENT,
    LARGEST_SIZE,
    Condition,
    CopyPlan,
    LaunchPlan,
    ParameterPlan,
    reach,
)
from tessera_lang.types.dtype import DTYPES, DType
from tessera_lang.types.shape import Dim, Sym, evaluate_dim, symbols_of

GRID = "grid_groups"
_LIMITS = (("x", 2**31 - 1), ("y", 65535), ("z", 65535))
Argument = ArrayView | int | float | bool | str | None


@dataclass(slots=True)
class Bound:
    """A checked call. ``grid`` is x, y, z (x belongs to the plan's last axis).

    ``axes`` are the groups as the language counts them, last axis fastest; ``values`` the
    slots with what this layout fixes; ``data`` and ``scalars`` name the slots that each call
    writes: (slot, parameter). ``pairs`` are (mut parameter, other). ``results`` are dtype and
    shape of what is to be allocated, counted behind the parameters. ``arrays`` are those of
    ``data`` slots, ``maps`` those of slots that hold a map of one (its address is among
    ``data``, or is a copy's), ``workspace`` and ``scratch`` their slots and bytes, ``copies`` what
    is copied before each launch, and ``zeroed`` the slots of results that are filled with zeros
    then, with their bytes. ``then`` are the launches behind it in the same call; ``kept`` are the
    slots of what they leave for each other, with the byte in memory of ``kept_bytes``.
    """

    grid: tuple[int, int, int]
    axes: tuple[int, ...]
    values: list[int]
    data: list[tuple[int, int]]
    scalars: list[tuple[int, int]]
    pairs: list[tuple[int, int]]
    fault_slot: int
    empty: bool
    results: tuple[tuple[DType, tuple[int, ...]], ...] = ()
    arrays: dict[int, MappedArray] = field(default_factory=dict[int, "MappedArray"])
    maps: dict[int, MappedArray] = field(default_factory=dict[int, "MappedArray"])
    by_value: list[int] = field(default_factory=list[int])
    workspace: tuple[int, int] | None = None
    scratch: tuple[int, int] | None = None
    copies: tuple[BoundCopy, ...] = ()
    zeroed: tuple[tuple[int, int], ...] = ()
    print_slot: int = -1
    then: tuple[Bound, ...] = ()
    kept: tuple[tuple[int, int], ...] = ()
    kept_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MappedArray:
    """An array as a map of it needs it; strides are in elements."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BoundCopy:
    """A copy of an array to make before each launch: axes outermost first, the last contiguous.

    ``source`` is the slot of the array, ``targets`` those that take the copy's address;
    ``element`` are an element's bytes, ``pitch`` those from line to line of the copy, ``at``
    those before it in the memory of all copies.
    """

    source: int
    targets: tuple[int, ...]
    element: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pitch: int
    at: int


@dataclass(slots=True)
class _Sizes:
    """Symbols as they bind, with the place that bound each."""

    values: dict[str, int] = field(default_factory=dict[str, int])
    origins: dict[str, tuple[str, Place, int]] = field(
        default_factory=dict[str, tuple[str, Place, int]]
    )


def label_of(p: ParameterPlan) -> tuple[Place, int]:
    return p.span, len(p.name)


def _declared(p: ParameterPlan) -> str:
    head = "mut " if p.mut else ""
    if p.rank and not p.dims:
        return f"{head}{p.dtype} array of rank {p.rank}"
    return f"{head}{p.dtype}[{', '.join(map(str, p.dims))}]" if p.rank else f"{head}{p.dtype}"


def check_array(kernel: str, p: ParameterPlan, declared: str, view: ArrayView) -> list[Diagnostic]:
    """Element type, rank and whether it may be written; ``declared`` is shown.

    A rank of -1 and an empty dtype are not known and agree with everything.
    """
    found: list[Diagnostic] = []
    place, length = label_of(p)
    label = f"declared `{declared}`" if declared else ""
    as_index = p.dtype == "index" and view.dtype.name == "i64"
    if p.dtype and view.dtype.name != p.dtype and not as_index:
        found.append(diagnostic(
            "T0832", f"argument `{p.name}` of `{kernel}` has {view.dtype} elements, and "
            f"{p.dtype} is expected", place, length, label,
            helps=(f"convert it before the call to {p.dtype}",),
        ))  # fmt: skip
    if len(view.shape) != p.rank >= 0:
        wanted = f"{_axes(p.rank)} {'is' if p.rank == 1 else 'are'}"
        found.append(diagnostic(
            "T0833", f"argument `{p.name}` of `{kernel}` has {_axes(len(view.shape))} "
            f"(shape {view.shape}), and {wanted} expected", place, length, label,
        ))  # fmt: skip
    if reach(view.shape) > LARGEST_SIZE:
        found.append(diagnostic(
            "T0846", f"argument `{p.name}` of `{kernel}` has the shape {view.shape}, and there may "
            f"be {LARGEST_SIZE} elements along its axes", place, length, label,
        ))  # fmt: skip
    if p.mut and view.read_only:
        found.append(diagnostic(
            "T0835", f"argument `{p.name}` of `{kernel}` is written, and the array given "
            "for it is read-only", place, length, label, helps=("pass a copy of it",),
        ))  # fmt: skip
    return found


def _axes(count: int) -> str:
    return "1 axis" if count == 1 else f"{count} axes"


def _bind_symbols(plan: LaunchPlan, arguments: Sequence[Argument], sizes: _Sizes) -> None:
    """Bind numbers by name, then plain symbols on first sight, parameter by parameter."""
    for p, value in zip(plan.parameters, arguments, strict=True):
        if p.kind != "tensor" and isinstance(value, int):
            sizes.values[p.name] = int(value)
    for p, value in zip(plan.parameters, arguments, strict=True):
        if isinstance(value, ArrayView):
            for axis, dim in enumerate(p.dims[: len(value.shape)]):
                if isinstance(dim, Sym) and dim.name not in sizes.values:
                    sizes.values[dim.name] = value.shape[axis]
                    sizes.origins[dim.name] = (p.name, p.span, axis)
            for axis, size in enumerate(value.shape):  # the size of an array without annotation
                sizes.values.setdefault(f"{p.name}.shape[{axis}]", size)


def _check_sizes(
    plan: LaunchPlan, arguments: Sequence[Argument], sizes: _Sizes
) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for p, value in zip(plan.parameters, arguments, strict=True):
        if not isinstance(value, ArrayView):
            continue
        for axis, dim in enumerate(p.dims[: len(value.shape)]):
            expected = _value_of(dim, sizes, p.name, p.span, found)
            if expected is not None and expected != value.shape[axis]:
                found.append(_size_mismatch(plan, p, axis, dim, value.shape[axis], expected, sizes))
    return found


def _value_of(
    dim: Dim, sizes: _Sizes, name: str, place: Place, found: list[Diagnostic]
) -> int | None:
    try:
        return evaluate_dim(dim, sizes.values)
    except KeyError as unbound:
        found.append(diagnostic("T0846", f"nothing says what the size `{unbound.args[0]}` is",
                                place, len(name)))  # fmt: skip
    except ZeroDivisionError:
        found.append(diagnostic("T0846", f"the size `{dim}` divides by zero in this call",
                                place, len(name)))  # fmt: skip
    return None


def _size_mismatch(
    plan: LaunchPlan, p: ParameterPlan, axis: int, dim: Dim, got: int, expected: int,
    sizes: _Sizes,
) -> Diagnostic:  # fmt: skip
    others: list[tuple[Place, int, str]] = []
    reasons: list[str] = []
    for symbol in sorted(symbols_of(dim)):
        if symbol in sizes.origins:
            other, place, other_axis = sizes.origins[symbol]
            value = sizes.values[symbol]
            reasons.append(f"`{symbol}` is {value}, axis {other_axis} of `{other}`")
            others.append((place, len(other), f"`{symbol}` = {value} from here"))
        elif symbol in sizes.values:
            reasons.append(f"`{symbol}` is {sizes.values[symbol]}")
    wanted = f"`{dim}` is {expected}" + (f" ({'; '.join(reasons)})" if reasons else "")
    if isinstance(dim, int):
        wanted = f"{expected} is expected"
    elif isinstance(dim, Sym) and reasons:
        wanted = reasons[0]
    return diagnostic(
        "T0834", f"argument `{p.name}` of `{plan.kernel}` has size {got} along axis {axis}, and "
        f"{wanted}", p.span, len(p.name), f"declared `{_declared(p)}`",
        others=others,
    )  # fmt: skip


def _check_condition(plan: LaunchPlan, condition: Condition, sizes: _Sizes) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    sides = (condition.left, condition.right)
    try:
        if condition.holds(sizes.values):
            return found
    except (KeyError, ZeroDivisionError):
        for dim in (d for a, _, b in condition.alternatives for d in (a, b)):
            _value_of(dim, sizes, condition.text, condition.span, found)
        return found
    names = sorted(condition.symbols)
    values = ", ".join(f"{name} = {sizes.values[name]}" for name in names)
    if condition.others:
        return [diagnostic(
            "T0838", f"`{plan.kernel}` requires `{condition.text}`, and here it does not hold",
            condition.span, len(condition.text), notes=(f"in this call {values}",),
        )]  # fmt: skip
    left, right = (evaluate_dim(dim, sizes.values) for dim in sides)
    if condition.comparison == "==" and isinstance(condition.left, Sym) and len(names) == 2:
        return [_disagreement(plan, condition, left, right)]
    return [diagnostic(
        "T0838", f"`{plan.kernel}` requires `{condition.text}`, and here it does not hold: "
        f"{left} {condition.comparison} {right} is false", condition.span, len(condition.text),
        notes=(f"in this call {values}",) if values else (),
    )]  # fmt: skip


def _disagreement(plan: LaunchPlan, condition: Condition, left: int, right: int) -> Diagnostic:
    """Two sizes that a kernel needs to be one."""
    return diagnostic(
        "T0838", f"`{plan.kernel}` needs `{condition.text}`, and here `{condition.left}` is {left} "
        f"and `{condition.right}` is {right}", condition.span,
    )  # fmt: skip


# --- memory shared between arguments -------------------------------------------------------


def mut_pairs(plan: LaunchPlan, arguments: Sequence[Argument]) -> list[tuple[int, int]]:
    """(mut parameter, other array parameter), each pair once."""
    arrays = [i for i, a in enumerate(arguments) if isinstance(a, ArrayView)]
    return [
        (i, j)
        for i in arrays if plan.parameters[i].mut
        for j in arrays if j != i and not (plan.parameters[j].mut and j < i)
    ]  # fmt: skip


def check_overlap(plan: LaunchPlan, views: Sequence[Argument], i: int, j: int) -> list[Diagnostic]:
    """Refuse a mut argument that shares memory with another."""
    a, b = views[i], views[j]
    assert isinstance(a, ArrayView) and isinstance(b, ArrayView)
    answer = overlap.between(a, b)
    if answer == "no":
        return []
    p, q = plan.parameters[i], plan.parameters[j]
    what = "shares memory with" if answer == "yes" else "may share memory with"
    notes = () if answer == "yes" else (
        "their address ranges cross and their strides do not decide it; that counts as overlap",
    )  # fmt: skip
    return [diagnostic(
        "T0836", f"argument `{p.name}` of `{plan.kernel}` is written and {what} `{q.name}`",
        p.span, len(p.name), "declared `mut`", ((q.span, len(q.name), "the other argument"),),
        notes, (f"pass a copy for `{q.name}`",),
    )]  # fmt: skip


def _check_self(plan: LaunchPlan, p: ParameterPlan, view: ArrayView) -> list[Diagnostic]:
    answer = overlap.within(view)
    if answer == "no":
        return []
    what = (
        "several of its elements share memory"
        if answer == "yes"
        else ("its strides do not decide whether elements share memory; that counts as sharing")
    )
    return [diagnostic(
        "T0837", f"argument `{p.name}` of `{plan.kernel}` is written, and {what} "
        f"(shape {view.shape}, strides {view.strides})", p.span, len(p.name), "declared `mut`",
        helps=("pass a copy of it",),
    )]  # fmt: skip


def check_sharing(plan: LaunchPlan, arguments: Sequence[Argument]) -> None:
    """Refuse written arguments that share memory, their own elements included."""
    found: list[Diagnostic] = []
    for p, value in zip(plan.parameters, arguments, strict=True):
        if p.mut and isinstance(value, ArrayView):
            found += _check_self(plan, p, value)
    for i, j in mut_pairs(plan, arguments):
        found += check_overlap(plan, arguments, i, j)
    if found:
        raise error(*found)


# --- the grid ------------------------------------------------------------------------------


def _grid(
    plan: LaunchPlan, groups: tuple[int, ...] | None, sizes: _Sizes
) -> tuple[tuple[int, ...], list[Diagnostic]]:
    found: list[Diagnostic] = []
    place: Place = plan.parameters[0].span if plan.parameters else ("", 0, 0)
    if plan.grid is None:
        if groups is None:
            return (), [diagnostic(
                "T0839", f"nothing says how many groups of `{plan.kernel}` to launch",
                helps=(f"write {plan.kernel}[groups](...)", "or give the kernel a clause "
                       "grid[(...,)] or a parameter of shape [grid_groups]"),
            )]  # fmt: skip
        return groups, found
    planned = tuple(_value_of(d, sizes, "", place, found) or 0 for d in plan.grid)
    if groups is not None and _strip(groups) != _strip(planned) and not found:
        found.append(diagnostic(
            "T0834", f"the call asks for {_shown(groups)} groups of `{plan.kernel}`, and its "
            f"{'arguments' if GRID in sizes.origins else 'grid clause'} for {_shown(planned)}",
        ))  # fmt: skip
    return planned, found


def _strip(grid: tuple[int, ...]) -> tuple[int, ...]:
    """Without leading axes of one group: (1, 1, 4) launches what (4,) does."""
    at = 0
    while at < len(grid) - 1 and grid[at] == 1:
        at += 1
    return grid[at:]


def _shown(grid: tuple[int, ...]) -> str:
    return " x ".join(map(str, grid))


def _check_grid(plan: LaunchPlan, grid: tuple[int, ...], on_device: bool) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for axis, (groups, (letter, limit)) in enumerate(zip(reversed(grid), _LIMITS, strict=False)):
        at = len(grid) - 1 - axis
        if groups < 0:
            found.append(
                diagnostic(
                    "T0846", f"the grid of `{plan.kernel}` has {groups} groups along axis {at}"
                )
            )
        elif groups > limit and (on_device or axis == 0):
            found.append(diagnostic(
                "T0840", f"the grid of `{plan.kernel}` has {groups} groups along axis {at} "
                f"({letter}), and the most is {limit}",
                helps=("let each group do more: loop over the elements by group_count(axis)",),
            ))  # fmt: skip
    if len(grid) > 3:
        found.append(diagnostic("T0840", f"the grid of `{plan.kernel}` has {len(grid)} axes, and "
                                "the most is 3"))  # fmt: skip
    return found


# --- all of it -----------------------------------------------------------------------------


def bind(
    plan: LaunchPlan, arguments: Sequence[Argument], groups: tuple[int, ...] | None,
    then: Sequence[LaunchPlan] = (),
) -> Bound:  # fmt: skip
    """Check a call against the plan. Raises TesseraError with every independent fault.

    ``arguments`` are one per parameter: a view for a tensor, a Python number for a scalar;
    ``then`` are the plans of the launches that follow.
    """
    found: list[Diagnostic] = []
    for p, value in zip(plan.parameters, arguments, strict=True):
        if isinstance(value, ArrayView):
            found += check_array(plan.kernel, p, _declared(p), value)
    if found:
        raise error(*found)
    sizes = _Sizes()
    _bind_symbols(plan, arguments, sizes)
    found += _check_sizes(plan, arguments, sizes)
    pairs = mut_pairs(plan, arguments)
    for p, value in zip(plan.parameters, arguments, strict=True):
        if p.mut and isinstance(value, ArrayView):
            found += _check_self(plan, p, value)
    for i, j in pairs:
        found += check_overlap(plan, arguments, i, j)
    if found:
        raise error(*found)
    for condition in plan.conditions:
        found += _check_condition(plan, condition, sizes)
    grid, faults = _grid(plan, groups, sizes)
    found += faults
    on_device = any(isinstance(a, ArrayView) and a.device != HOST for a in arguments)
    found += _check_grid(plan, grid, on_device)
    grids = [_grid(p, None, sizes) for p in then]
    for p, (other, wrong) in zip(then, grids, strict=True):
        found += wrong or _check_grid(p, other, on_device)
    if found:
        raise error(*found)
    total = 1
    for n in grid:
        total *= n
    sizes.values.setdefault(GRID, total)
    results = _results(plan, sizes, found)
    if found:
        raise error(*found)
    arrays = (*arguments, *results)
    bound = _launch(plan, arrays, sizes, grid, pairs)
    bound.then = tuple(
        _launch(p, arrays, sizes, other, []) for p, (other, _) in zip(then, grids, strict=True)
    )
    return bound


def _launch(
    plan: LaunchPlan, arrays: Sequence[Argument], sizes: _Sizes, grid: tuple[int, ...],
    pairs: list[tuple[int, int]],
) -> Bound:  # fmt: skip
    """One launch on arguments and results."""
    x, y, z = (*reversed(grid), 1, 1, 1)[:3]
    given = (*arrays, *(_copied(c, arrays) for c in plan.copies))
    bound = _slots(plan, given, sizes, (x, y, z), grid, pairs)
    bound.copies = _copies(plan, given)
    bound.kept, bound.kept_bytes = _kept(plan, given)
    return bound


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
        pitch = CopyPlan(0, (0, 1)).strides((1, source.shape[copy.axes[-1]]), made.dtype.bytes)[0]
        pitch *= made.dtype.bytes
        out.append(BoundCopy(
            next(i for i, s in enumerate(plan.slots)
                 if s.kind == "data" and s.parameter == copy.parameter),
            tuple(i for i, s in enumerate(plan.slots)
                  if s.kind in ("data", "tensor_map") and s.parameter == number),
            made.dtype.bytes, tuple(source.shape[a] for a in copy.axes),
            tuple(source.strides[a] for a in copy.axes), pitch, at,
        ))  # fmt: skip
        at += max(pitch * lines, COPY_ALIGNMENT)
    return tuple(out)


def _results(plan: LaunchPlan, sizes: _Sizes, found: list[Diagnostic]) -> tuple[ArrayView, ...]:
    """The arrays a kernel returns, not allocated yet."""
    made: list[ArrayView] = []
    for result in plan.results:
        shape = tuple(_value_of(d, sizes, "", ("", 0, 0), found) or 0 for d in result.dims)
        if any(n < 0 for n in shape):
            found.append(diagnostic("T0846", f"`{plan.kernel}` returns an array of shape {shape}"))
        made.append(ArrayView(
            DTYPES[result.dtype], shape, row_major(shape), 0, HOST, False, None
        ))  # fmt: skip
    return tuple(made)


def _slots(
    plan: LaunchPlan, arguments: Sequence[Argument], sizes: _Sizes, grid: tuple[int, int, int],
    axes: tuple[int, ...], pairs: list[tuple[int, int]],
) -> Bound:  # fmt: skip
    total = grid[0] * grid[1] * grid[2]
    bound = Bound(grid, axes, [0] * len(plan.slots), [], [], pairs, -1, total == 0)
    made = zip(plan.results, arguments[len(plan.parameters) : plan.first_copy], strict=True)
    bound.results = tuple(
        (a.dtype, a.shape) for r, a in made if isinstance(a, ArrayView) and not r.kept
    )
    for at, slot in enumerate(plan.slots):
        value = arguments[slot.parameter] if slot.parameter >= 0 else None
        match slot.kind:
            case "data":
                assert isinstance(value, ArrayView)
                bound.arrays[at] = MappedArray(value.dtype, value.shape, value.strides)
                if plan.is_given(slot.parameter):
                    bound.data.append((at, slot.parameter))
            case "bytes":
                bound.data.append((at, slot.parameter))
                bound.by_value.append(at)
            case "size":
                assert isinstance(value, ArrayView)
                bound.values[at] = value.shape[slot.axis]
            case "stride":
                assert isinstance(value, ArrayView)
                bound.values[at] = value.strides[slot.axis] & ((1 << 64) - 1)
            case "symbol":
                bound.values[at] = sizes.values[slot.symbol] & ((1 << 64) - 1)
            case "scalar":
                bound.scalars.append((at, slot.parameter))
            case "groups":
                bound.values[at] = total
            case "fault":
                bound.fault_slot = at
            case "print":
                bound.print_slot = at
            case "tensor_map":
                assert isinstance(value, ArrayView)
                if plan.is_given(slot.parameter):
                    bound.data.append((at, slot.parameter))
                bound.maps[at] = MappedArray(value.dtype, value.shape, value.strides)
            case "workspace":
                bound.workspace = at, evaluate_dim(plan.workspace, sizes.values)
            case "scratch":
                bound.scratch = at, evaluate_dim(plan.scratch, sizes.values)
    bound.zeroed = tuple(_zeroed(plan, bound))
    return bound


def _zeroed(plan: LaunchPlan, bound: Bound) -> Iterator[tuple[int, int]]:
    """The slot and the bytes of each result that begins as zeros, for the first launch."""
    for number, ((dtype, shape), result) in enumerate(
        zip(bound.results, plan.results, strict=False), len(plan.parameters)
    ):
        if result.zeroed and not plan.launches_before:
            at = next(i for i, s in enumerate(plan.slots)
                      if s.kind == "data" and s.parameter == number)  # fmt: skip
            yield at, math.prod(shape) * dtype.bytes
