"""A lane axis that a kernel takes apart gets an axis for each part.

Where a kernel divides the number of its lane (``t % 32`` and ``t // 32``, the lane of a warp and
the warp), parts and remainders are positions along axes of the group: so a target whose lanes are
loops has one loop for each, and what neighbours access lies side by side along the innermost.
Gives the same bits. Must not know targets.
"""

from __future__ import annotations

from math import prod

from tessera_lang.ir.core import Attribute, Operation, Program, Value
from tessera_lang.ir.definitions import LANE_IDS
from tessera_lang.ir.rewrite import Replacement, rewrite_operation
from tessera_lang.ir.tile.ops import WARP_OPS
from tessera_lang.record import replace
from tessera_lang.target.arch.isa_constants import WARP
from tessera_lang.types.dtype import INDEX

_FEWEST = 32  # of shorter rows there are many, and each is an axis whose ends are looked at
_MOST_AXES = 3
_PARTS = ("tile.floordiv", "tile.mod", "tile.shr", "tile.and")


def delinearize_lane_axis(program: Program) -> Program:
    """Kernels with one axis of lanes that divide its positions; others stay."""
    kernels = tuple(map(_split, program.operations))
    if all(a is b for a, b in zip(kernels, program.operations, strict=True)):
        return program
    return replace(program, operations=kernels)


def _split(kernel: Operation) -> Operation:
    group = kernel.integers("group")
    if kernel.name != "tile.kernel" or len(group) != 1:
        return kernel
    linear = {
        op.result
        for op in kernel.walk()
        if op.name in LANE_IDS and op.attributes.get("axis", 0) == 0
    }
    constants = {
        op.result: value
        for op in kernel.walk()
        if op.name == "tile.constant" and isinstance(value := op.attributes.get("value"), int)
    }
    parts = {
        op: size
        for op in kernel.walk()
        if op.name in _PARTS and op.operands[0] in linear
        if (size := _divisor(op, constants.get(op.operands[1]))) is not None
    }
    axes = _axes(group[0], {*parts.values(), *_of_warps(kernel)})
    if len(axes) == 1:
        return kernel
    places = {prod(axes[number:]): number for number in range(1, len(axes))}

    def step(op: Operation) -> Operation | Replacement | None:
        if op.name == "tile.lane_index":
            if op.attributes["axis"] == 0:
                return replace(op, name="tile.lane_linear", attributes={})
            return replace(op, name="tile.constant", attributes={"value": 0})
        size = parts.get(op)
        if size not in places:
            return None
        low = op.name in ("tile.mod", "tile.and")
        number = places[size]
        return _position(op.result, axes, range(number, len(axes)) if low else range(number))

    made = rewrite_operation(kernel, step)
    return replace(made, attributes={**made.attributes, "group": axes})


def _divisor(op: Operation, known: int | None) -> int | None:
    """What an operation divides its first operand by, where that is above 0."""
    if known is None or known <= 0 or op.result.type != INDEX:
        return None
    match op.name:
        case "tile.shr":
            return 1 << known if known < 16 else None
        case "tile.and":
            return known + 1 if known & (known + 1) == 0 else None
        case _:
            return known


def _of_warps(kernel: Operation) -> tuple[int, ...]:
    return (WARP,) if kernel.holds(frozenset(WARP_OPS)) else ()


def _axes(lanes: int, divisors: set[int]) -> tuple[int, ...]:
    """Sizes of the axes, the innermost last: each divisor must be a multiple of those below."""
    axes: list[int] = []
    inside = 1
    for size in sorted(divisors):
        fits = _FEWEST <= size < lanes and lanes % size == 0 and size % inside == 0
        if fits and len(axes) + 1 < _MOST_AXES:
            axes.insert(0, size // inside)
            inside = size
    return (lanes // inside, *axes)


def _position(result: Value, axes: tuple[int, ...], part: range) -> Replacement:
    """The position along several neighbouring axes together."""
    out: list[Operation] = []

    def made(name: str, *operands: Value, **attributes: Attribute) -> Value:
        value = Value(INDEX, result.name)
        out.append(Operation(name, operands, (value,), attributes=attributes))
        return value

    found = made("tile.lane_index", axis=part[0])
    for axis in part[1:]:
        size = made("tile.constant", value=axes[axis])
        found = made("tile.mul", found, size)
        found = made("tile.add", found, made("tile.lane_index", axis=axis))
    return Replacement(tuple(out), (found,))
