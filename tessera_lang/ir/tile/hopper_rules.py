"""Type rules of the operations of Hopper, by the table's names.

Must not know where an operation stands, nor how a target does it; what the hardware cannot read
in place is the emitter's to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.ir.core import (
    BarrierType,
    BufferType,
    Operation,
    TensorMapType,
    TileType,
    Value,
    VerifyError,
)
from tessera_lang.ir.layout import SharedLayout
from tessera_lang.types.dtype import BOOL, F32, I32, INDEX, DType

Rule = Callable[[Operation], None]

_NAMED_BARRIERS = 8
_WARP_GROUP = 4
_LEAST_REGISTERS, _MOST_REGISTERS = 24, 256
_MOST_BOX = 256


def _require(holds: bool, message: str, operation: Operation) -> None:
    if not holds:
        raise VerifyError(message, operation)


def _indices(values: Sequence[Value], operation: Operation) -> None:
    for value in values:
        _require(value.type == INDEX, "slots, starts and coordinates are index", operation)


# --- barriers --------------------------------------------------------------------------------


def _mbarrier_alloc(operation: Operation) -> None:
    t = operation.result.type
    holds = isinstance(t, BarrierType) and t.count > 0
    _require(holds, "gives barriers", operation)
    _require(operation.integer("arrivals", 0) > 0, "waits for at least one arrival", operation)


def _mbarrier(operation: Operation) -> None:
    barrier, *numbers = operation.operands
    _require(isinstance(barrier.type, BarrierType), "takes barriers", operation)
    _indices(numbers, operation)


def _named_barrier(operation: Operation) -> None:
    number, lanes = operation.integer("id", 0), operation.integer("lanes", 0)
    _require(
        0 <= number < _NAMED_BARRIERS, f"there are {_NAMED_BARRIERS} named barriers", operation
    )
    _require(lanes > 0 and lanes % 32 == 0, "whole warps meet", operation)


def _ordered_barrier(operation: Operation) -> None:
    number = operation.integer("id", 0)
    _require(
        0 <= number < _NAMED_BARRIERS, f"there are {_NAMED_BARRIERS} named barriers", operation
    )


def _cluster_reduce(operation: Operation) -> None:
    value, buffer, barrier = operation.operands
    holds = isinstance(value.type, DType) and value.type.bytes in (4, 8)
    _require(holds, "combines numbers of 4 or 8 bytes", operation)
    _require(operation.result.type == value.type, "gives such a number", operation)
    t = buffer.type
    holds = isinstance(t, BufferType) and t.dtype == value.type and len(t.shape) == 1
    _require(holds, "takes a buffer with a place for each group of the cluster", operation)
    holds = isinstance(barrier.type, BarrierType) and barrier.type.count in (1, 2)
    _require(holds, "takes one barrier, or two for more than once", operation)


# --- copies ----------------------------------------------------------------------------------


def _map_and_buffer(
    operation: Operation, tensor_map: Value, buffer: Value, numbers: Sequence[Value]
) -> None:
    """A box of the map fits into the buffer's matrix, which lies as the map says."""
    m, b = tensor_map.type, buffer.type
    if not isinstance(m, TensorMapType) or not isinstance(b, BufferType):
        raise VerifyError("takes a tensor map and a shared buffer", operation)
    _require(b.space == "shared", "takes a shared buffer", operation)
    _require(m.dtype == b.dtype, "map and buffer have one dtype", operation)
    _require(1 <= len(m.box) <= 5, "an array has 1 to 5 axes", operation)
    holds = all(0 < n <= _MOST_BOX for n in m.box)
    _require(holds, f"a box has 1 to {_MOST_BOX} elements along an axis", operation)
    layout = b.layout or SharedLayout()
    _require(m.swizzle == layout.swizzle, "map and buffer have one swizzle", operation)
    if len(b.shape) > 1:
        _, _, width, pitch = layout.geometry(b.shape)
        _require(pitch == width, "a box has no gaps between its lines", operation)
        holds = m.box[-1] == width
        _require(holds, "a box is as wide as a panel of the buffer", operation)
    count = len(b.shape) + len(m.box)
    _require(len(numbers) == count, "takes starts and coordinates, one an axis", operation)
    _indices(numbers, operation)


def _tma_load(operation: Operation) -> None:
    tensor_map, buffer, barrier, slot, *numbers = operation.operands
    _require(isinstance(barrier.type, BarrierType), "completes on a barrier", operation)
    _indices((slot,), operation)
    _map_and_buffer(operation, tensor_map, buffer, numbers)
    mask = operation.integer("multicast", 0)
    _require(0 <= mask < 1 << 16, "the mask has one bit a group of the cluster", operation)


def _tma_store(operation: Operation) -> None:
    buffer, tensor_map, *numbers = operation.operands
    _map_and_buffer(operation, tensor_map, buffer, numbers)


# --- roles -----------------------------------------------------------------------------------


def _once(operation: Operation) -> None:
    _require(not operation.regions[0].arguments, "its region takes no arguments", operation)


def _roles(operation: Operation) -> None:
    names, warps = operation.strings("names"), operation.integers("warps")
    registers = operation.integers("registers")
    count = len(operation.regions)
    holds = len(names) == len(warps) == len(registers) == count
    _require(holds, "says name, warps and registers of each role", operation)
    _require(count < _NAMED_BARRIERS, f"has fewer than {_NAMED_BARRIERS} roles", operation)
    first = 0
    for number, most in zip(warps, registers, strict=True):
        _require(number > 0, "a role has warps", operation)
        if most:
            whole = number % _WARP_GROUP == 0 and first % _WARP_GROUP == 0
            _require(whole, "registers are set for whole warp groups", operation)
            holds = _LEAST_REGISTERS <= most <= _MOST_REGISTERS and most % 8 == 0
            _require(holds, "registers are a multiple of 8 from 24 to 256", operation)
        first += number
    for region in operation.regions:
        _require(not region.arguments, "its regions take no arguments", operation)


# --- products --------------------------------------------------------------------------------


def _matrix(value: Value, transposed: bool, operation: Operation) -> tuple[int, int]:
    """Rows and columns of an operand as the product sees it."""
    t = value.type
    if not isinstance(t, TileType | BufferType) or len(t.shape) < 2:
        raise VerifyError("takes matrices", operation)
    rows, columns = (n for n in t.shape[-2:])
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise VerifyError("the sizes of operands are numbers", operation)
    return (columns, rows) if transposed else (rows, columns)


def _mma_async(operation: Operation) -> None:
    accumulator, a, b, accumulate, *starts = operation.operands
    c = accumulator.type
    if not isinstance(c, TileType) or len(c.shape) != 2:
        raise VerifyError("adds to a matrix in registers", operation)
    _require(operation.result.type == c, "gives what it adds to", operation)
    if not isinstance(b.type, BufferType):
        raise VerifyError("the right operand is a shared buffer", operation)
    across_a = operation.attributes["transpose_a"] is True
    across_b = operation.attributes["transpose_b"] is True
    if isinstance(a.type, TileType):
        _require(not across_a, "a left operand in registers is m x k", operation)
    m, k = _matrix(a, across_a, operation)
    depth, n = _matrix(b, across_b, operation)
    rows, columns = c.sizes
    exact = isinstance(a.type, TileType)
    holds = depth >= k if exact else depth == k
    _require(holds, f"the contractions are {k} and {depth}", operation)
    holds = (rows == m if exact else rows <= m) and columns <= n
    _require(holds, f"{m} x {k} by {depth} x {n} does not hold {rows} x {columns}", operation)
    _require(accumulate.type == BOOL, "whether to add is a bool", operation)
    _require(c.dtype in (F32, I32), "adds in f32 or i32", operation)
    count = sum(len(v.type.shape) for v in (a, b) if isinstance(v.type, BufferType))
    _require(len(starts) == count, "takes starts, one an axis of each buffer", operation)
    _indices(starts, operation)


def _mma_wait(operation: Operation) -> None:
    given = tuple(v.type for v in operation.operands)
    _require(tuple(v.type for v in operation.results) == given, "gives what it takes", operation)
    _require(operation.integer("pending", 0) >= 0, "a number of groups may be open", operation)
    inside = all(0 <= i < len(given) for i in operation.integers("computed"))
    _require(inside, "some of what it takes is computed before", operation)


RULES: dict[str, Rule] = {
    "cluster_reduce": _cluster_reduce,
    "mbarrier_alloc": _mbarrier_alloc,
    "mbarrier": _mbarrier,
    "named_barrier": _named_barrier,
    "ordered_barrier": _ordered_barrier,
    "tma_load": _tma_load,
    "tma_store": _tma_store,
    "once": _once,
    "roles": _roles,
    "mma_async": _mma_async,
    "mma_wait": _mma_wait,
}
