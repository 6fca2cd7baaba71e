"""Rules for views, shared buffers, loads and stores.

Addresses are computed in 64 bits. A guarded access compares every index with its size once,
unsigned; outside, a read gives 0, a write is skipped and the site is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tessera_backend.llvm import fault_reports, small_floats
from tessera_backend.llvm.cast import as_index
from tessera_backend.llvm.emitter import LaneEmitter, Place, Rule, scalar_type
from tessera_backend.llvm.types import code_of, memory_type, register_type, zero
from tessera_lang.ir.core import BufferType, Operation, PointerType, Value, ViewType
from tessera_lang.ir.layout import SharedLayout, swizzled
from tessera_lang.ir.tile.rules import table_numbers
from tessera_lang.record import dataclass


@dataclass(frozen=True, slots=True)
class ElementAccess:
    """An element that is accessed: where, by which indices, how it is guarded, on which axes."""

    place: Place
    indices: tuple[str, ...]
    bounds: str
    site: int
    open: tuple[int, ...]


def _view(e: LaneEmitter, op: Operation) -> None:
    kind = op.result.type
    pointer = op.operands[0]
    if not isinstance(kind, ViewType) or not isinstance(pointer.type, PointerType):
        raise TypeError("a view is made of a pointer")
    rank = len(kind.shape)
    known = [None if size is None else str(size) for size in kind.shape]
    sizes = [e.operand(v) for v in op.operands[1 : 1 + rank]]
    strides = tuple(e.operand(v) for v in op.operands[1 + rank :])
    e.places[op.result] = Place(
        e.operand(pointer), pointer.type.space, kind.dtype,
        tuple(k if k is not None else s for k, s in zip(known, sizes, strict=True)),
        None if kind.contiguous else strides, pointer, kind.mut,
    )  # fmt: skip


def _table(e: LaneEmitter, op: Operation) -> None:
    """Numbers of the code: a constant of the module."""
    kind = op.result.type
    if not isinstance(kind, PointerType):
        raise TypeError("a table gives a pointer")
    data = b"".join(
        code_of(v, kind.dtype).to_bytes(kind.dtype.bytes, "little")
        for v in table_numbers(str(op.attributes["values"]))
    )
    text = "".join(f"\\{byte:02X}" for byte in data)
    e.bind(op.result, e.dialect.constant(e, f'[{len(data)} x i8] c"{text}", align 16', len(data)))


def _shared_alloc(e: LaneEmitter, op: Operation) -> None:
    kind = op.result.type
    if not isinstance(kind, BufferType):
        raise TypeError("shared memory is a buffer")
    e.places[op.result] = Place(
        e.dialect.shared_pointer(e, op), "shared", kind.dtype,
        tuple(str(size) for size in kind.shape), None, op.result, layout=kind.layout,
    )  # fmt: skip


def _local_alloc(e: LaneEmitter, op: Operation) -> None:
    kind = op.result.type
    if not isinstance(kind, BufferType):
        raise TypeError("what a lane has of its own is a buffer")
    own = e.dialect.local_pointer(e, op)
    shape = kind.shape[:-1] if own else kind.shape
    e.places[op.result] = Place(
        own or e.dialect.shared_pointer(e, op), "local", kind.dtype,
        tuple(str(size) for size in shape), None, op.result,
    )  # fmt: skip


def access_of(e: LaneEmitter, op: Operation, array: int) -> ElementAccess:
    """The access of an operation whose operand number ``array`` is the view or buffer."""
    place = e.places[op.operands[array]]
    # Where a lane has memory of its own, the last index, of the lane, says nothing.
    operands = op.operands[array + 1 :][: len(place.sizes)]
    indices = tuple(as_index(e, e.operand(v), scalar_type(v)) for v in operands)
    axes = tuple(range(len(indices)))
    said = op.attributes.get("open", axes)
    open_ = tuple(axis for axis in axes if isinstance(said, tuple) and axis in said)
    return ElementAccess(place, indices, e.dialect.bounds_of(op), fault_reports.site_of(op), open_)


def address(e: LaneEmitter, access: ElementAccess) -> str:
    """Address of the element, for one access of it."""
    return e.dialect.at(e, access.place, _address(e, access))


def _address(e: LaneEmitter, access: ElementAccess) -> str:
    """Inside the array no step of the sum overflows."""
    f, place = e.f, access.place
    if place.layout is not None:
        return _laid_out(e, access, place.layout)
    inside = access.bounds != "off"
    # Of shared memory the sum is of 32 bits anyway, and in parts that do not change in loops.
    if inside and e.dialect.small and access.indices and place.space in ("global", "constant"):
        return _near(e, access)
    wrap = " nsw" if inside else ""
    offset = ""
    for axis, index in enumerate(access.indices):
        if place.strides is not None:
            term = f.value(f"mul{wrap} i64 {index}, {place.strides[axis]}")
            offset = f.value(f"add{wrap} i64 {offset}, {term}") if offset else term
        elif not offset:
            offset = index
        else:
            scaled = f.value(f"mul{wrap} i64 {offset}, {place.sizes[axis]}")
            offset = f.value(f"add{wrap} i64 {scaled}, {index}")
    if not offset:
        return place.pointer
    keyword = "getelementptr inbounds" if inside else "getelementptr"
    pointer = e.dialect.pointer_type(place.space)
    kind = memory_type(place.dtype)
    return f.value(f"{keyword} {kind}, {pointer} {place.pointer}, i64 {offset}")


def _near(e: LaneEmitter, access: ElementAccess) -> str:
    """The same of an element that is less than 2^31 bytes from the first: no step of the sum is
    more than the sum, which 32 bits hold."""
    f, place = e.f, access.place
    wrap = "nuw nsw" if place.strides is None else "nsw"
    offset = ""
    for axis, index in enumerate(access.indices):
        short = f.value(f"trunc i64 {index} to i32")
        if place.strides is not None:
            stride = f.value(f"trunc i64 {place.strides[axis]} to i32")
            short = f.value(f"mul {wrap} i32 {short}, {stride}")
        elif offset:
            size = f.value(f"trunc i64 {place.sizes[axis]} to i32")
            offset = f.value(f"mul {wrap} i32 {offset}, {size}")
        offset = f.value(f"add {wrap} i32 {offset}, {short}") if offset else short
    widen = "zext" if place.strides is None else "sext"
    wide = f.value(f"{widen} i32 {offset} to i64")
    pointer = e.dialect.pointer_type(place.space)
    kind = memory_type(place.dtype)
    return f.value(f"getelementptr inbounds {kind}, {pointer} {place.pointer}, i64 {wide}")


def _laid_out(e: LaneEmitter, access: ElementAccess, layout: SharedLayout) -> str:
    """Address of an element of a shared buffer with a layout: ``SharedLayout.offset`` in code."""
    f, place, element = e.f, access.place, access.place.dtype.bytes
    shape = tuple(int(size) for size in place.sizes)
    _, lines, width, pitch = layout.geometry(shape)
    stage = "0"
    for index, size in zip(access.indices[:-2], place.sizes[:-2], strict=True):
        stage = f.value(f"add i64 {f.value(f'mul i64 {stage}, {size}')}, {index}")
    matrix = access.indices[-2:] if len(shape) > 1 else ("0", access.indices[0])
    line, along = matrix if layout.major == 1 else matrix[::-1]
    panel, within = f.value(f"udiv i64 {along}, {width}"), f.value(f"urem i64 {along}, {width}")
    byte = f.value(f"mul i64 {within}, {element}")
    for number, bytes_ in ((line, pitch * element), (panel, lines * pitch * element)):
        byte = f.value(f"add i64 {byte}, {f.value(f'mul i64 {number}, {bytes_}')}")
    mask = swizzled(7 << 7, layout.swizzle) - (7 << 7)
    moved = f.value(f"and i64 {f.value(f'lshr i64 {byte}, 3')}, {mask}")
    byte = f.value(f"xor i64 {byte}, {moved}")
    skipped = f.value(f"mul i64 {stage}, {layout.matrix_bytes(shape, element)}")
    pointer = e.dialect.pointer_type(place.space)
    offset = f.value(f"add i64 {byte}, {skipped}")
    return f.value(f"getelementptr i8, {pointer} {place.pointer}, i64 {offset}")


def guard(
    e: LaneEmitter, access: ElementAccess, inside: Callable[[], str], outside: str, kind: str
) -> str:
    """``inside()``'s value where every index is in bounds, else ``outside`` and a report.

    ``kind`` is the LLVM type of the value, "" for an access that gives none.
    """
    if access.bounds != "guarded" or not access.open:
        return inside()
    f = e.f
    tests = {
        axis: f.value(f"icmp uge i64 {access.indices[axis]}, {access.place.sizes[axis]}")
        for axis in access.open
    }
    wrong, *others = tests.values()
    for test in others:
        wrong = f.value(f"or i1 {wrong}, {test}")
    cold, hot, join = f.label("outside"), f.label("inside"), f.label("joined")
    f.branch_if(wrong, cold, hot, fault_reports.unlikely(e))
    f.place(hot)
    value = inside()
    hot_end = f.block
    f.branch(join)
    f.place(cold)
    if access.site >= 0 and e.fault:
        axis, index, bound = _first_wrong(e, access, tests)
        fault_reports.report(e, access.site, axis, index, bound)
    cold_end = f.block
    f.place(join)
    if not kind:
        return ""
    return f.value(f"phi {kind} [ {value}, %{hot_end} ], [ {outside}, %{cold_end} ]")


def _first_wrong(
    e: LaneEmitter, access: ElementAccess, tests: Mapping[int, str]
) -> tuple[str, str, str]:  # fmt: skip
    """Axis, index and bound of the first axis that is outside."""
    *before, last = tests
    axis, index, bound = str(last), access.indices[last], access.place.sizes[last]
    for number in reversed(before):
        pick = f"select i1 {tests[number]}, i64"
        axis = e.f.value(f"{pick} {number}, i64 {axis}")
        index = e.f.value(f"{pick} {access.indices[number]}, i64 {index}")
        bound = e.f.value(f"{pick} {access.place.sizes[number]}, i64 {bound}")
    return axis, index, bound


def load_element(e: LaneEmitter, place: Place, pointer: str) -> str:
    """The element at an address, as a register value."""
    kind = memory_type(place.dtype)
    suffix = e.dialect.access_suffix(e, place, write=False)
    raw = e.f.value(
        f"load {kind}, {e.dialect.pointer_type(place.space)} {pointer}, "
        f"align {place.dtype.bytes}{suffix}"
    )
    return small_floats.from_bits(e, raw, place.dtype) if place.dtype.kind == "bool" else raw


def store_element(e: LaneEmitter, place: Place, pointer: str, value: str) -> None:
    kind = memory_type(place.dtype)
    raw = small_floats.as_bits(e, value, place.dtype) if place.dtype.kind == "bool" else value
    suffix = e.dialect.access_suffix(e, place, write=True)
    e.f.line(
        f"store {kind} {raw}, {e.dialect.pointer_type(place.space)} {pointer}, "
        f"align {place.dtype.bytes}{suffix}"
    )


def element_type(value: Value) -> str:
    """LLVM register type of a scalar value."""
    return register_type(scalar_type(value))


def _load(e: LaneEmitter, op: Operation) -> None:
    access = access_of(e, op, 0)

    def inside() -> str:
        return load_element(e, access.place, address(e, access))

    dtype = access.place.dtype
    e.bind(op.result, guard(e, access, inside, zero(dtype), register_type(dtype)))


def _store(e: LaneEmitter, op: Operation) -> None:
    access = access_of(e, op, 1)
    value = e.operand(op.operands[0])

    def inside() -> str:
        store_element(e, access.place, address(e, access), value)
        return ""

    guard(e, access, inside, "", "")


RULES: dict[str, Rule] = {
    "tile.view": _view,
    "tile.table": _table,
    "tile.shared.alloc": _shared_alloc,
    "tile.local.alloc": _local_alloc,
    "tile.load": _load,
    "tile.store": _store,
}
