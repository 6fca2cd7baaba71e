"""Copies by the tensor memory accelerator in NVPTX: ``tma.*`` and the fence in front of it.

One lane issues them (inside ``tile.once``). Must not know layouts: a box lands at an address.
"""

from __future__ import annotations

from tessera_backend.llvm.emitter import LaneEmitter, NotLowered, Rule
from tessera_backend.nvptx.hopper.matrix_start_addresses import address_of
from tessera_backend.nvptx.hopper.mbarriers import barrier_at
from tessera_backend.nvptx.hopper.roles import dialect_of, immediates, intrinsic
from tessera_lang.ir.core import BufferType, Operation, TensorMapType, Value

_HINTS = {"first": 0x12F0000000000000, "last": 0x14F0000000000000}
"""Policies of the second-level cache as the hardware codes them: what to evict first, last."""


def _one_lane(e: LaneEmitter, op: Operation) -> None:
    if not dialect_of(e).role.single:
        raise NotLowered(op.name, "every lane: it stands outside `tile.once`", e.dialect.name)


def _shape(op: Operation, tensor_map: Value, buffer: Value) -> tuple[int, int]:
    """Axes of the array and of the buffer."""
    if not isinstance(tensor_map.type, TensorMapType) or not isinstance(buffer.type, BufferType):
        raise TypeError(f"{op.name} takes a tensor map and a buffer")
    return len(tensor_map.type.box), len(buffer.type.shape)


def _coordinates(e: LaneEmitter, values: tuple[Value, ...]) -> list[tuple[str, str]]:
    """Innermost first, as the instruction counts them."""
    return [
        ("i32", e.f.value(f"trunc i64 {e.operand(value)} to i32")) for value in reversed(values)
    ]


def _load(e: LaneEmitter, op: Operation) -> None:
    _one_lane(e, op)
    tensor_map, buffer, barrier, slot, *numbers = op.operands
    rank, axes = _shape(op, tensor_map, buffer)
    target = address_of(e, buffer, numbers[:axes])
    target = e.f.value(f"addrspacecast ptr addrspace(3) {target} to ptr addrspace(7)")
    mask, hint = op.attributes.get("multicast", 0), _HINTS.get(str(op.attributes.get("hint", "")))
    intrinsic(
        e, f"cp.async.bulk.tensor.g2s.tile.{rank}d",
        ("ptr addrspace(7)", target), ("ptr addrspace(3)", barrier_at(e, barrier, slot)),
        ("ptr", e.operand(tensor_map)), *_coordinates(e, tuple(numbers[axes:])),
        ("i16", str(mask)), ("i64", str(hint or 0)), ("i1", _flag(bool(mask))),
        ("i1", _flag(hint is not None)), ("i32", "0"),
    )  # fmt: skip


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _store(e: LaneEmitter, op: Operation) -> None:
    """``tma.store`` and ``tma.reduce``."""
    _one_lane(e, op)
    buffer, tensor_map, *numbers = op.operands
    rank, axes = _shape(op, tensor_map, buffer)
    way = f"reduce.{op.attributes['kind']}" if op.name == "tma.reduce" else "s2g"
    intrinsic(
        e, f"cp.async.bulk.tensor.{way}.tile.{rank}d",
        ("ptr addrspace(3)", address_of(e, buffer, numbers[:axes])),
        ("ptr", e.operand(tensor_map)), *_coordinates(e, tuple(numbers[axes:])),
        ("i64", "0"), ("i1", "false"),
    )  # fmt: skip


def _commit(e: LaneEmitter, op: Operation) -> None:
    intrinsic(e, "cp.async.bulk.commit.group")


def _wait(e: LaneEmitter, op: Operation) -> None:
    pending = op.integer("pending")
    immediates(e, "cp.async.bulk.wait.group.read", ("i32", pending))


def _fence(e: LaneEmitter, op: Operation) -> None:
    intrinsic(e, "fence.proxy.async.shared_cta")


def prefetch(e: LaneEmitter, tensor_map: str) -> None:
    """Brings a tensor map near before its first use."""
    e.f.line(f'call void asm sideeffect "prefetch.tensormap [$0];", "l"(ptr {tensor_map}) #1')


RULES: dict[str, Rule] = {
    "tma.load": _load,
    "tma.store": _store,
    "tma.reduce": _store,
    "tma.commit": _commit,
    "tma.wait": _wait,
    "tile.fence_async": _fence,
}
