"""What compiled code assumes about a launch, in one form: comparisons of numbers of the call.

Owns the list, made from the fields of a plan, and the numbers that it is about. Every launch looks
at all of it once for each layout (``runtime.binding``); a caller of a built object has to. Must not
know how arrays are held, or how code is made.

The numbers have these names, which no parameter can have: ``x.shape[0]``, ``x.strides[0]`` (in
elements), ``x.address`` (in bytes), and of the launch ``grid.axes`` and ``grid[0]``, the groups
along the first axis. Results are called ``result0`` and so on. Names of sizes and of numbers that
the kernel takes are themselves. What is no comparison is in ``written_pairs``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Literal

from tessera_lang.target.array_facts import bucket_below
from tessera_lang.target.launch_plan import (
    LARGEST_SIZE,
    SMALL_BYTES,
    SMALL_LANES,
    SMALL_SIZE,
    Compared,
    Comparison,
    Condition,
    LaunchPlan,
    ParameterPlan,
)
from tessera_lang.types.dtype import DTYPES
from tessera_lang.types.shape import Dim, Sym, dim_op

ALIGNMENT = 16
"""Bytes at whose multiples arrays begin, where code relies on it, and results always."""
MAP_AXIS, MAP_STRIDE = 1 << 31, 1 << 40
"""Elements along an axis of an array that has a tensor map, at most (its coordinates have 32 bits
and a sign), and bytes that its strides are below."""
GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""Groups along the last axis of a grid, the one before it and the first, on a GPU."""


def size(name: str, axis: int) -> Sym:
    return Sym(f"{name}.shape[{axis}]")


def stride(name: str, axis: int) -> Sym:
    return Sym(f"{name}.strides[{axis}]")


def address(name: str) -> Sym:
    return Sym(f"{name}.address")


def groups(axis: int) -> Sym:
    return Sym(f"grid[{axis}]")


def array_numbers(
    name: str, shape: Sequence[int], strides: Sequence[int], pointer: int
) -> dict[str, int]:
    """The numbers of an array in a call; strides are in elements."""
    found = {f"{name}.shape[{axis}]": n for axis, n in enumerate(shape)}
    found |= {f"{name}.strides[{axis}]": n for axis, n in enumerate(strides)}
    return {**found, f"{name}.address": pointer}


def grid_numbers(grid: Sequence[int]) -> dict[str, int]:
    """The numbers of the grid of a launch."""
    return {"grid.axes": len(grid), **{f"grid[{axis}]": n for axis, n in enumerate(grid)}}


def premises(plan: LaunchPlan, target: Literal["cpu", "cuda"]) -> tuple[Condition, ...]:
    """All that code of a plan assumes of the numbers of a launch, the launch first."""
    found = [*_of_grid(plan, target), *plan.conditions]
    for number, p in enumerate(plan.parameters):
        if p.kind == "tensor":
            found += _of_array(p)
            copies = [
                plan.first_copy + i for i, c in enumerate(plan.copies) if c.parameter == number
            ]
            found += _of_map(plan, (number, *copies), p.name, p.rank, DTYPES[p.dtype].bytes)
    for number, result in enumerate(plan.results):
        name, element = f"result{number}", DTYPES[result.dtype].bytes
        found.append(_multiple(address(name), max(ALIGNMENT, element), f"the address of `{name}`"))
        found += _of_map(plan, (len(plan.parameters) + number,), name, len(result.dims), element)
    return tuple(found)


def broken(plan: LaunchPlan, target: Literal["cpu", "cuda"], numbers: Mapping[str, int]) -> str:
    """The first premise that does not hold for the numbers of a launch, as text; empty where all
    do. What is about numbers that are not given is not looked at."""
    for premise in premises(plan, target):
        if premise.symbols <= numbers.keys() and not _holds(premise, numbers):
            return premise.text
    return ""


def _holds(premise: Condition, numbers: Mapping[str, int]) -> bool:
    try:
        return premise.holds(numbers)
    except ZeroDivisionError:
        return False


def written_pairs(plan: LaunchPlan) -> tuple[tuple[int, int], ...]:
    """Parameters that share no memory: (one that is written, another), each pair once. Elements of
    an array that is written share none either; nor do results with anything."""
    arrays = [i for i, p in enumerate(plan.parameters) if p.kind == "tensor"]
    return tuple(
        (i, j)
        for i in arrays if plan.parameters[i].mut
        for j in arrays if j != i and not (plan.parameters[j].mut and j < i)
    )  # fmt: skip


# --- the launch ------------------------------------------------------------------------------


def _of_grid(plan: LaunchPlan, target: Literal["cpu", "cuda"]) -> list[Condition]:
    axes = plan.grid_axes
    found = [_fact(Sym("grid.axes"), "==", axes, f"the grid has {_count(axes, 'axis', 'axes')}")]
    for axis, dim in enumerate(plan.grid or ()):
        text = f"the grid has {dim} groups along axis {axis}"
        found.append(_fact(groups(axis), "==", dim, text))
    total = _product([groups(axis) for axis in range(axes)])
    for axis in range(axes):
        most = GRID_LIMITS[axes - 1 - axis] if target == "cuda" else LARGEST_SIZE
        text = f"the grid has at most {most} groups along axis {axis}"
        found.append(_fact(groups(axis), "<=", most, text))
    found.append(_fact(total, "<=", LARGEST_SIZE, f"the grid has at most {LARGEST_SIZE} groups"))
    if any(p.small for p in plan.parameters):
        lanes = dim_op("*", total, prod(plan.group))
        found.append(_fact(lanes, "<", SMALL_LANES, f"the launch has below {SMALL_LANES} lanes"))
    for axis, count in enumerate(reversed(plan.cluster)):
        if count > 1:
            name = f"the number of groups along axis {axes - 1 - axis}"
            found.append(_multiple(groups(axes - 1 - axis), count, name))
    return found


# --- arrays ----------------------------------------------------------------------------------


def _of_array(p: ParameterPlan) -> list[Condition]:
    name, element = p.name, DTYPES[p.dtype].bytes
    sizes = [size(name, axis) for axis in range(p.rank)]
    begins = max(ALIGNMENT, element) if p.aligned else element
    found = [_multiple(address(name), begins, f"the address of `{name}`")]
    for axis, dim in enumerate(p.dims):
        text = f"the size of axis {axis} of `{name}` is {dim}"
        found.append(_fact(sizes[axis], "==", dim, text))
    reach = _product([dim_op("max", n, 1) for n in sizes])
    found.append(_fact(
        reach, "<=", LARGEST_SIZE, f"`{name}` has at most {LARGEST_SIZE} elements along its axes"
    ))  # fmt: skip
    if p.contiguous:
        found += _row_major(name, sizes)
    if p.small:
        found += _small(name, sizes, element, reach)
    for axis, n in enumerate(p.sizes):
        if n is not None:
            found.append(_fact(sizes[axis], "==", n, f"the size of axis {axis} of `{name}` is {n}"))
    for axis, n in enumerate(p.divisors):
        if n > 1:
            found += _whole(sizes[axis], n, f"the size of axis {axis} of `{name}`")
    for axis, most in enumerate(p.buckets):
        if most is not None:
            least = bucket_below(most)
            what = f"the size of axis {axis} of `{name}`"
            found.append(_fact(sizes[axis], "<=", most, f"{what} is at most {most}"))
            if least:
                found.append(_fact(sizes[axis], ">", least, f"{what} is above {least}"))
    return [*found, *_strided(p, sizes, element)]


def texts_of(p: ParameterPlan) -> tuple[str, ...]:
    """What code assumes of an array, in words."""
    return tuple(dict.fromkeys(premise.text for premise in _of_array(p)))


def _whole(of: Dim, by: int, what: str) -> list[Condition]:
    """Of no elements nothing is whole."""
    text = f"{what} is a multiple of {by}, and above 0"
    return [_fact(dim_op("%", of, by), "==", 0, text), _fact(of, ">", 0, text)]


def _row_major(name: str, sizes: Sequence[Dim]) -> list[Condition]:
    """Strides of axes of one element are anything, and all are where there is no element."""
    empty: list[Compared] = [(n, "==", 0) for n in sizes]
    return [
        Condition(
            stride(name, axis), "==", _product(sizes[axis + 1 :]),
            f"`{name}` is contiguous, row by row", others=((n, "==", 1), *empty),
        )
        for axis, n in enumerate(sizes)
    ]  # fmt: skip


def _small(name: str, sizes: Sequence[Dim], element: int, reach: Dim) -> list[Condition]:
    text = f"32 bits hold all sizes and offsets of `{name}`"
    far: Dim = 1
    for axis, n in enumerate(sizes):
        step = stride(name, axis)
        length = dim_op("max", step, dim_op("-", 0, step))
        far = dim_op("+", far, dim_op("*", dim_op("max", dim_op("-", n, 1), 0), length))
    return [
        *(_fact(n, "<=", SMALL_SIZE, text) for n in sizes),
        _fact(reach, "<", SMALL_BYTES, text),
        _fact(dim_op("*", far, element), "<=", SMALL_BYTES, text),
    ]


def _strided(p: ParameterPlan, sizes: Sequence[Dim], element: int) -> list[Condition]:
    found: list[Condition] = []
    for axis, n in enumerate(sizes):
        step = stride(p.name, axis)
        what = f"the stride of axis {axis} of `{p.name}`"
        one: tuple[Compared, ...] = ((n, "<=", 1),)
        if axis == p.unit and p.contiguous:
            continue  # it says so
        if axis == p.unit:
            found.append(Condition(step, "==", 1, f"{what} is 1", others=one))
        elif p.pitches:
            text = f"{what} is a multiple of {ALIGNMENT} bytes, and above 0"
            in_bytes = dim_op("%", dim_op("*", step, element), ALIGNMENT)
            found.append(Condition(step, ">", 0, text, others=one))
            found.append(Condition(in_bytes, "==", 0, text, others=one))
    return found


def _of_map(
    plan: LaunchPlan, numbers: Sequence[int], name: str, rank: int, element: int
) -> list[Condition]:
    """What the copy engine takes. ``numbers``: those of the array, and of its copies."""
    mapped = {s.parameter for s in plan.slots if s.kind == "tensor_map"}
    if not mapped & {*numbers}:
        return []
    found = [
        _fact(size(name, axis), "<=", MAP_AXIS,
              f"the size of axis {axis} of `{name}` is at most {MAP_AXIS}")
        for axis in range(rank)
    ]  # fmt: skip
    if numbers[0] in mapped and numbers[0] < len(plan.parameters):
        found += [
            _fact(dim_op("*", stride(name, axis), element), "<", MAP_STRIDE,
                  f"the stride of axis {axis} of `{name}` is below {MAP_STRIDE} bytes")
            for axis in range(rank)
        ]  # fmt: skip
    return found


# --- pieces ----------------------------------------------------------------------------------


def _fact(left: Dim, comparison: Comparison, right: Dim, text: str) -> Condition:
    return Condition(left, comparison, right, text)


def _multiple(of: Dim, by: int, what: str) -> Condition:
    return Condition(dim_op("%", of, by), "==", 0, f"{what} is a multiple of {by}")


def _product(factors: Sequence[Dim]) -> Dim:
    total: Dim = 1
    for n in factors:
        total = dim_op("*", total, n)
    return total


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"
