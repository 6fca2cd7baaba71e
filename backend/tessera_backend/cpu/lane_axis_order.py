"""Which axis of a group's lanes is the innermost loop: that along which memory lies side by side.

The lanes between two barriers may run in any order. A kernel that counts ``tile_id(0)`` along the
rows of an array, as programs in CUDA's words do, has its axes turned round. Must not know LLVM.
"""

from __future__ import annotations

from tessera_backend.cpu.interchange import ARRAY_OPERAND, FEWEST_LANES, LaneStrides, inner_axis
from tessera_lang.analysis.uniformity.lane_uniformity import uniformity
from tessera_lang.ir.core import Operation, Program, Region
from tessera_lang.ir.definitions import ATOMICS, LOOPS, REPORTS
from tessera_lang.ir.pass_type import Pass
from tessera_lang.ir.rewrite import rewrite_operation
from tessera_lang.ir.tile.ops import WARP_OPS
from tessera_lang.record import replace

_ORDERED = ATOMICS | REPORTS | {"tile.fence"}
"""Operations that show in which order lanes ran."""
_COUNTED = frozenset(WARP_OPS) | {"tile.lane_linear"}
"""Operations for which lanes are a row."""
_TRIPS = 8  # of a loop, where accesses are weighed


def order_lane_axes(program: Program) -> Program:
    """The program with the same meaning; itself where the last axis is the best one."""
    kernels = tuple(map(_ordered, program.operations))
    if all(a is b for a, b in zip(kernels, program.operations, strict=True)):
        return program
    return replace(program, operations=kernels)


ORDER_LANES = Pass(
    "order_lane_axes", "tile", "tile", order_lane_axes,
    does="makes the axis of lanes along which memory lies side by side the last one",
)  # fmt: skip


def _ordered(kernel: Operation) -> Operation:
    if kernel.name != "tile.kernel" or kernel.holds(_ORDERED | _COUNTED):
        return kernel
    group = kernel.integers("group")
    inner = inner_axis(group)
    best, most = kernel, _gain(kernel)
    for axis in range(inner):
        if group[axis] >= FEWEST_LANES:
            turned = _with_last(kernel, axis)
            gain = _gain(turned)
            if gain > most:
                best, most = turned, gain
    return best


def _with_last(kernel: Operation, last: int) -> Operation:
    """The kernel with an axis of its lanes behind the others."""
    group = kernel.integers("group")
    order = [axis for axis in range(len(group)) if axis != last] + [last]

    def step(op: Operation) -> Operation | None:
        if op.name != "tile.lane_index":
            return None
        axis = order.index(op.integer("axis"))
        return replace(op, attributes={**op.attributes, "axis": axis})

    made = rewrite_operation(kernel, step)
    sizes = tuple(group[axis] for axis in order)
    return replace(made, attributes={**made.attributes, "group": sizes})


def _gain(kernel: Operation) -> int:
    """Accesses of neighbours side by side, less those that lie apart; more of them in loops."""
    strides = LaneStrides(kernel, uniformity(kernel))

    def of(region: Region, weight: int) -> int:
        total = 0
        for op in region.operations:
            if op.name in ARRAY_OPERAND:
                stride = strides.of_access(op)
                total += weight * ((stride in (-1, 1)) - (stride not in (-1, 0, 1)))
            inside = weight * _TRIPS if op.name in LOOPS else weight
            total += sum(of(inner, inside) for inner in op.regions)
        return total

    return of(kernel.regions[0], 1)
