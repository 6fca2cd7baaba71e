"""Rules for atomics, fences and the barrier.

A read-modify-write is one instruction where the dialect says so; otherwise a loop of compare
and exchange on the element's own width, so that a neighbour is never written. Compare and
exchange compares bits: a NaN finds itself, -0.0 does not find +0.0.
"""

from __future__ import annotations

from tessera_backend.llvm import arithmetic, small_floats
from tessera_backend.llvm.emitter import LaneEmitter, Place, Rule
from tessera_backend.llvm.memory import (
    access_of,
    address,
    guard,
    load_element,
    store_element,
)
from tessera_backend.llvm.types import bits_type, memory_type, register_type, zero
from tessera_lang.ir.core import Operation
from tessera_lang.types.dtype import DType

_ORDERS = {"relaxed": "monotonic", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}
_LOAD_ORDERS = {**_ORDERS, "release": "monotonic", "acq_rel": "acquire"}
_STORE_ORDERS = {**_ORDERS, "acquire": "monotonic", "acq_rel": "release"}


def _text(op: Operation, name: str) -> str:
    return str(op.attributes[name])


def combine(e: LaneEmitter, kind: str, old: str, value: str, dtype: DType) -> str:
    """The new content, in register values."""
    f, llvm = e.f, register_type(dtype)
    if kind == "exchange":
        return value
    if kind in ("min", "max"):
        return arithmetic.extreme(e, old, value, dtype, kind)
    if kind in ("and", "or", "xor"):
        return f.value(f"{kind} {llvm} {old}, {value}")
    if not dtype.is_float:
        return f.value(f"{kind} {llvm} {old}, {value}")
    (a, wide), (b, _) = (small_floats.to_computing(e, v, dtype) for v in (old, value))
    return small_floats.from_computing(e, f.value(f"f{kind} {wide} {a}, {b}"), dtype)


def _native_name(kind: str, dtype: DType) -> str:
    if kind == "exchange":
        return "xchg"
    if dtype.is_float:
        return {"add": "fadd", "sub": "fsub"}[kind]
    if kind in ("min", "max"):
        return kind if dtype.is_signed else f"u{kind}"
    return kind


def _native(e: LaneEmitter, op: Operation, place: Place, pointer: str, value: str) -> str:
    dtype = place.dtype
    kind = _text(op, "kind")
    whole = kind == "exchange" or not dtype.is_float
    llvm = bits_type(dtype) if whole else memory_type(dtype)
    operand = small_floats.as_bits(e, value, dtype) if whole else value
    old = e.dialect.read_modify_write(
        e, place, pointer, _native_name(kind, dtype), llvm, operand, _text(op, "scope"),
        _ORDERS[_text(op, "order")],
    )  # fmt: skip
    return small_floats.from_bits(e, old, dtype) if whole else old


def _loop(e: LaneEmitter, op: Operation, place: Place, pointer: str, value: str) -> str:
    """Compare and exchange until nobody was in between."""
    f, dtype = e.f, place.dtype
    bits, scope = bits_type(dtype), _text(op, "scope")
    first = f.value(
        f"load atomic {bits}, {e.dialect.pointer_type(place.space)} {pointer} "
        f"{e.dialect.syncscope(scope)}monotonic, align {dtype.bytes}"
    )
    before, again, done = f.block, f.label("cas"), f.label("cas.done")
    f.place(again)
    # The value of a further round is known only behind the exchange: a slot stands for it.
    slot = f.slot(bits)
    seen = f.fresh()
    loaded = f.fresh()
    f.line(f"{seen} = phi {bits} [ {first}, %{before} ], [ {loaded}, %{again}.next ]")
    new = combine(e, _text(op, "kind"), small_floats.from_bits(e, seen, dtype), value, dtype)
    found = e.dialect.compare_exchange(
        e, place, pointer, seen, small_floats.as_bits(e, new, dtype), dtype.bytes * 8, scope,
        _ORDERS[_text(op, "order")],
    )  # fmt: skip
    f.line(f"store {bits} {found}, ptr {slot}")
    f.branch_if(f.value(f"icmp eq {bits} {found}, {seen}"), done, f"{again}.next")
    f.place(f"{again}.next")
    f.line(f"{loaded} = load {bits}, ptr {slot}")
    f.branch(again)
    f.place(done)
    return small_floats.from_bits(e, found, dtype)


def _plain(e: LaneEmitter, op: Operation, place: Place, pointer: str, value: str) -> str:
    old = load_element(e, place, pointer)
    store_element(e, place, pointer, combine(e, _text(op, "kind"), old, value, place.dtype))
    return old


def _atomic(e: LaneEmitter, op: Operation) -> None:
    access = access_of(e, op, 1)
    place, value = access.place, e.operand(op.operands[0])
    form = e.dialect.atomic_form(_text(op, "kind"), place.dtype, place.space, _text(op, "scope"))
    write = {"native": _native, "cas": _loop, "plain": _plain}[form]

    def inside() -> str:
        return write(e, op, place, address(e, access), value)

    result = guard(e, access, inside, zero(place.dtype), register_type(place.dtype))
    e.bind(op.result, result)


def _cas(e: LaneEmitter, op: Operation) -> None:
    access = access_of(e, op, 2)
    place, dtype = access.place, access.place.dtype
    expected, desired = (small_floats.as_bits(e, e.operand(v), dtype) for v in op.operands[:2])
    scope, order = _text(op, "scope"), _ORDERS[_text(op, "order")]

    def inside() -> str:
        pointer = address(e, access)
        if e.dialect.atomic_form("exchange", dtype, place.space, scope) != "plain":
            bits = dtype.bytes * 8
            old = e.dialect.compare_exchange(
                e, place, pointer, expected, desired, bits, scope, order
            )
            return small_floats.from_bits(e, old, dtype)
        old_value = load_element(e, place, pointer)
        old = small_floats.as_bits(e, old_value, dtype)
        same = e.f.value(f"icmp eq {bits_type(dtype)} {old}, {expected}")
        new = e.f.value(f"select i1 {same}, {bits_type(dtype)} {desired}, {bits_type(dtype)} {old}")
        store_element(e, place, pointer, small_floats.from_bits(e, new, dtype))
        return old_value

    e.bind(op.result, guard(e, access, inside, zero(dtype), register_type(dtype)))


def _atomic_load(e: LaneEmitter, op: Operation) -> None:
    access = access_of(e, op, 0)
    place, dtype = access.place, access.place.dtype

    def inside() -> str:
        raw = e.f.value(
            f"load atomic {bits_type(dtype)}, {e.dialect.pointer_type(place.space)} "
            f"{address(e, access)} {e.dialect.syncscope(_text(op, 'scope'))}"
            f"{_LOAD_ORDERS[_text(op, 'order')]}, align {dtype.bytes}"
        )
        return small_floats.from_bits(e, raw, dtype)

    e.bind(op.result, guard(e, access, inside, zero(dtype), register_type(dtype)))


def _atomic_store(e: LaneEmitter, op: Operation) -> None:
    access = access_of(e, op, 1)
    place, dtype = access.place, access.place.dtype
    value = small_floats.as_bits(e, e.operand(op.operands[0]), dtype)

    def inside() -> str:
        e.f.line(
            f"store atomic {bits_type(dtype)} {value}, {e.dialect.pointer_type(place.space)} "
            f"{address(e, access)} {e.dialect.syncscope(_text(op, 'scope'))}"
            f"{_STORE_ORDERS[_text(op, 'order')]}, align {dtype.bytes}"
        )
        return ""

    guard(e, access, inside, "", "")


def _fence(e: LaneEmitter, op: Operation) -> None:
    e.dialect.fence(e, _text(op, "scope"))


def _barrier(e: LaneEmitter, op: Operation) -> None:
    e.dialect.barrier(e)


RULES: dict[str, Rule] = {
    "tile.atomic": _atomic,
    "tile.atomic_cas": _cas,
    "tile.atomic_load": _atomic_load,
    "tile.atomic_store": _atomic_store,
    "tile.fence": _fence,
    "tile.barrier": _barrier,
}
