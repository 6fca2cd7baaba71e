"""Rules for conversions (language section 10): integers wrap, floats to integers saturate
with NaN to 0, floats round once to nearest even, f8 saturates, ``bool`` is ``!= 0``."""

from __future__ import annotations

from tessera_backend.llvm import small_floats
from tessera_backend.llvm.emitter import LaneEmitter, Rule, scalar_type
from tessera_backend.llvm.types import float_constant, integer_constant, register_type
from tessera_lang.ir.core import Operation
from tessera_lang.types.dtype import BOOL, F32, F64, DType, integer_range


def convert(e: LaneEmitter, value: str, source: DType, to: DType) -> str:
    """``value`` of dtype ``source`` as a ``to``."""
    if source == to:
        return value
    if to == BOOL:
        return _to_bool(e, value, source)
    if source == BOOL:
        return _from_bool(e, value, to)
    if source.is_float and to.is_float:
        return _float_to_float(e, value, source, to)
    if source.is_float:
        return _float_to_integer(e, value, source, to)
    if to.is_float:
        return _integer_to_float(e, value, source, to)
    return _resize(e, value, source, to.bits)


def _resize(e: LaneEmitter, value: str, source: DType, bits: int) -> str:
    if source.bits == bits:
        return value
    if source.bits > bits:
        return e.f.value(f"trunc i{source.bits} {value} to i{bits}")
    extend = "sext" if source.is_signed else "zext"
    return e.f.value(f"{extend} i{source.bits} {value} to i{bits}")


def as_index(e: LaneEmitter, value: str, source: DType) -> str:
    """Any integer as an i64 index."""
    return _resize(e, value, source, 64)


def _to_bool(e: LaneEmitter, value: str, source: DType) -> str:
    if not source.is_float:
        return e.f.value(f"icmp ne {register_type(source)} {value}, 0")
    wide, kind = small_floats.to_computing(e, value, source)
    return e.f.value(f"fcmp une {kind} {wide}, 0.0")


def _from_bool(e: LaneEmitter, value: str, to: DType) -> str:
    kind = register_type(to)
    if to.is_float:
        one, zero = float_constant(1.0, to), float_constant(0.0, to)
        return e.f.value(f"select i1 {value}, {kind} {one}, {kind} {zero}")
    return e.f.value(f"zext i1 {value} to {kind}")


def _float_to_float(e: LaneEmitter, value: str, source: DType, to: DType) -> str:
    if source == F64:
        return small_floats.narrow_double(e, value, to)
    wide = small_floats.widen(e, value, source)
    return (
        e.f.value(f"fpext float {wide} to double")
        if to == F64
        else small_floats.narrow(e, wide, to)
    )


def _float_to_integer(e: LaneEmitter, value: str, source: DType, to: DType) -> str:
    wide, kind = small_floats.to_computing(e, value, source)
    bits = register_type(to)
    name = "fptosi.sat" if to.is_signed else "fptoui.sat"
    if e.dialect.lowers(name, kind):
        suffix = "f32" if kind == "float" else "f64"
        e.module.declare(f"{bits} @llvm.{name}.{bits}.{suffix}({kind})")
        return e.f.value(f"call {bits} @llvm.{name}.{bits}.{suffix}({kind} {wide})")
    return _compared_to_integer(e, wide, kind, to)


def _compared_to_integer(e: LaneEmitter, value: str, kind: str, to: DType) -> str:
    """Saturation from compares: the bounds are powers of two, exact in every float."""
    f, bits = e.f, register_type(to)
    low, high = integer_range(to)
    dtype = F32 if kind == "float" else F64
    top = float_constant(float(high + 1), dtype)
    bottom = float_constant(float(low), dtype)
    inside = f.value(f"fcmp olt {kind} {value}, {top}")
    above = f.value(f"fcmp ogt {kind} {value}, {bottom}")
    safe = f.value(f"and i1 {inside}, {above}")
    held = f.value(f"select i1 {safe}, {kind} {value}, {kind} 0.0")
    sign = "s" if to.is_signed else "u"
    whole = f.value(f"fpto{sign}i {kind} {held} to {bits}")
    at_top = f.value(f"fcmp oge {kind} {value}, {top}")
    at_bottom = f.value(f"fcmp ole {kind} {value}, {bottom}")
    least, most = integer_constant(low, to.bits), integer_constant(high, to.bits)
    capped = f.value(f"select i1 {at_top}, {bits} {most}, {bits} {whole}")
    return f.value(f"select i1 {at_bottom}, {bits} {least}, {bits} {capped}")


def _integer_to_float(e: LaneEmitter, value: str, source: DType, to: DType) -> str:
    sign = "s" if source.is_signed else "u"
    kind = register_type(to)
    if to in (F32, F64):
        return e.f.value(f"{sign}itofp i{source.bits} {value} to {kind}")
    if source.bits <= 16:  # exact in f32
        wide = e.f.value(f"{sign}itofp i{source.bits} {value} to float")
        own = e.dialect.narrow_whole(e, wide, to)
        return own if own is not None else small_floats.narrow(e, wide, to)
    return small_floats.narrow(e, _jammed(e, value, source), to)


def _jammed(e: LaneEmitter, value: str, source: DType) -> str:
    """An f32 of 24 significant bits, the last one set if any was lost: rounds once later."""
    f, kind = e.f, f"i{source.bits}"
    magnitude = value
    if source.is_signed:
        below = f.value(f"icmp slt {kind} {value}, 0")
        negated = f.value(f"sub {kind} 0, {value}")
        magnitude = f.value(f"select i1 {below}, {kind} {negated}, {kind} {value}")
    else:
        below = "false"
    e.module.declare(f"{kind} @llvm.ctlz.{kind}({kind}, i1)")
    zeros = f.value(f"call {kind} @llvm.ctlz.{kind}({kind} {magnitude}, i1 false)")
    free = source.bits - 24
    excess = f.value(f"sub {kind} {free}, {zeros}")
    some = f.value(f"icmp sgt {kind} {excess}, 0")
    shift = f.value(f"select i1 {some}, {kind} {excess}, {kind} 0")
    kept = f.value(f"lshr {kind} {magnitude}, {shift}")
    back = f.value(f"shl {kind} {kept}, {shift}")
    lost = f.value(f"icmp ne {kind} {back}, {magnitude}")
    sticky = f.value(f"or {kind} {kept}, {f.value(f'zext i1 {lost} to {kind}')}")
    small = sticky if kind == "i32" else f.value(f"trunc {kind} {sticky} to i32")
    count = shift if kind == "i32" else f.value(f"trunc {kind} {shift} to i32")
    whole = f.value(f"sitofp i32 {small} to float")
    field = f.value(f"shl i32 {f.value(f'add i32 {count}, 127')}, 23")
    scaled = f.value(f"fmul float {whole}, {f.value(f'bitcast i32 {field} to float')}")
    if not source.is_signed:
        return scaled
    return f.value(f"select i1 {below}, float {f.value(f'fneg float {scaled}')}, float {scaled}")


def _cast(e: LaneEmitter, op: Operation) -> None:
    source = scalar_type(op.operands[0])
    e.bind(op.result, convert(e, e.operand(op.operands[0]), source, scalar_type(op.result)))


def _bitcast(e: LaneEmitter, op: Operation) -> None:
    source, to = scalar_type(op.operands[0]), scalar_type(op.result)
    bits = small_floats.as_bits(e, e.operand(op.operands[0]), source)
    e.bind(op.result, small_floats.from_bits(e, bits, to))


RULES: dict[str, Rule] = {"tile.cast": _cast, "tile.bitcast": _bitcast}
