"""Floats of fewer than 32 bits: to and from f32, written as integer code.

So no target needs a library routine for them, and every target rounds alike: to nearest,
ties to even; f8 saturates to its largest finite value and keeps NaN (language section 10).
Rounding f64 to a narrow float goes through an f32 rounded to odd, which keeps the second
rounding from seeing a false tie (Boldo and Melquiond, "When double rounding is odd", 2005).
"""

from __future__ import annotations

from tessera_backend.llvm.emitter import LaneEmitter
from tessera_backend.llvm.types import register_type
from tessera_lang.types.dtype import BF16, F16, F32, F64, DType


def widen(e: LaneEmitter, value: str, dtype: DType) -> str:
    """The f32 equal to a f16, bf16 or f8."""
    if dtype == F32:
        return value
    own = e.dialect.widen(e, value, dtype)
    if own is not None:
        return own
    if dtype == F16:
        return e.f.value(f"fpext half {value} to float")
    if dtype == BF16:
        wide = e.f.value(f"zext i16 {value} to i32")
        return _float(e, e.f.value(f"shl i32 {wide}, 16"))
    return _widen_f8(e, value, dtype)


def _widen_f8(e: LaneEmitter, value: str, dtype: DType) -> str:
    f = e.f
    stored = dtype.mantissa - 1
    bias = (1 << (dtype.exponent - 1)) - 1
    wide = f.value(f"zext i8 {value} to i32")
    magnitude = f.value(f"and i32 {wide}, 127")
    placed = f.value(f"shl i32 {magnitude}, {23 - stored}")
    # The exponent is off by a constant; a product mends normal and subnormal numbers alike.
    scale = float_bits_constant(254 - bias)
    scaled = f.value(f"fmul float {_float(e, placed)}, {scale}")
    bits = _bits(e, scaled)
    first = dtype.infinity_code if dtype.infinite else dtype.nan_code
    special = f.value(f"icmp uge i32 {magnitude}, {first}")
    kept = f.value(f"or i32 {placed}, {0x7F800000}")
    if not dtype.infinite:
        kept = str(0x7FC00000)
    chosen = f.value(f"select i1 {special}, i32 {kept}, i32 {bits}")
    sign = f.value(f"shl i32 {f.value(f'and i32 {wide}, 128')}, 24")
    return _float(e, f.value(f"or i32 {chosen}, {sign}"))


def narrow(e: LaneEmitter, value: str, dtype: DType) -> str:
    """The f16, bf16 or f8 nearest an f32."""
    if dtype == F32:
        return value
    own = e.dialect.narrow(e, value, dtype)
    if own is not None:
        return own
    if dtype == F16:
        return e.f.value(f"fptrunc float {value} to half")
    return _narrow_bf16(e, value) if dtype == BF16 else _narrow_f8(e, value, dtype)


def _narrow_bf16(e: LaneEmitter, value: str) -> str:
    f = e.f
    bits = _bits(e, value)
    high = f.value(f"lshr i32 {bits}, 16")
    odd = f.value(f"and i32 {high}, 1")
    biased = f.value(f"add i32 {bits}, {0x7FFF}")
    rounded = f.value(f"lshr i32 {f.value(f'add i32 {biased}, {odd}')}, 16")
    quiet = f.value(f"or i32 {high}, 64")
    nan = f.value(f"fcmp uno float {value}, 0.0")
    chosen = f.value(f"select i1 {nan}, i32 {quiet}, i32 {rounded}")
    return f.value(f"trunc i32 {chosen} to i16")


def _narrow_f8(e: LaneEmitter, value: str, dtype: DType) -> str:
    f = e.f
    stored = dtype.mantissa - 1
    bias = (1 << (dtype.exponent - 1)) - 1
    drop = 23 - stored
    bits = _bits(e, value)
    magnitude = f.value(f"and i32 {bits}, {0x7FFFFFFF}")
    # Normal results: round the dropped bits away, then move the exponent.
    odd = f.value(f"and i32 {f.value(f'lshr i32 {magnitude}, {drop}')}, 1")
    biased = f.value(f"add i32 {magnitude}, {(1 << (drop - 1)) - 1}")
    rounded = f.value(f"lshr i32 {f.value(f'add i32 {biased}, {odd}')}, {drop}")
    normal = f.value(f"sub i32 {rounded}, {(127 - bias) << stored}")
    # Subnormal results: adding a number whose last place is theirs rounds them.
    anchor = 127 + 1 - bias - stored + 23
    lifted = f.value(f"fadd float {_float(e, magnitude)}, {float_bits_constant(anchor)}")
    subnormal = f.value(f"sub i32 {_bits(e, lifted)}, {anchor << 23}")
    small = f.value(f"icmp ult i32 {magnitude}, {(128 - bias) << 23}")
    code = f.value(f"select i1 {small}, i32 {subnormal}, i32 {normal}")
    largest, nan_code = dtype.largest_code, dtype.nan_code
    above = f.value(f"icmp ugt i32 {code}, {largest}")
    code = f.value(f"select i1 {above}, i32 {largest}, i32 {code}")
    nan = f.value(f"icmp ugt i32 {magnitude}, {0x7F800000}")
    code = f.value(f"select i1 {nan}, i32 {nan_code}, i32 {code}")
    sign = f.value(f"lshr i32 {f.value(f'and i32 {bits}, -2147483648')}, 24")
    return f.value(f"trunc i32 {f.value(f'or i32 {code}, {sign}')} to i8")


def widen_f16(e: LaneEmitter, value: str) -> str:
    """The f32 equal to a f16, without an instruction for it."""
    f = e.f
    wide = f.value(f"zext i16 {f.value(f'bitcast half {value} to i16')} to i32")
    magnitude = f.value(f"and i32 {wide}, {0x7FFF}")
    placed = f.value(f"shl i32 {magnitude}, 13")
    scaled = f.value(f"fmul float {_float(e, placed)}, {float_bits_constant(254 - 15)}")
    special = f.value(f"icmp uge i32 {magnitude}, {0x7C00}")
    nan = f.value(f"icmp ugt i32 {magnitude}, {0x7C00}")
    quiet = f.value(f"select i1 {nan}, i32 {0x7FC00000}, i32 {0x7F800000}")
    kept = f.value(f"or i32 {placed}, {quiet}")
    chosen = f.value(f"select i1 {special}, i32 {kept}, i32 {_bits(e, scaled)}")
    sign = f.value(f"shl i32 {f.value(f'and i32 {wide}, 32768')}, 16")
    return _float(e, f.value(f"or i32 {chosen}, {sign}"))


def narrow_f16(e: LaneEmitter, value: str) -> str:
    """The f16 nearest an f32, ties to even, without an instruction for it."""
    f = e.f
    bits = _bits(e, value)
    magnitude = f.value(f"and i32 {bits}, {0x7FFFFFFF}")
    odd = f.value(f"and i32 {f.value(f'lshr i32 {magnitude}, 13')}, 1")
    biased = f.value(f"add i32 {magnitude}, {(1 << 12) - 1}")
    rounded = f.value(f"lshr i32 {f.value(f'add i32 {biased}, {odd}')}, 13")
    normal = f.value(f"sub i32 {rounded}, {(127 - 15) << 10}")
    anchor = 127 + 1 - 15 - 10 + 23
    lifted = f.value(f"fadd float {_float(e, magnitude)}, {float_bits_constant(anchor)}")
    subnormal = f.value(f"sub i32 {_bits(e, lifted)}, {anchor << 23}")
    small = f.value(f"icmp ult i32 {magnitude}, {(128 - 15) << 23}")
    code = f.value(f"select i1 {small}, i32 {subnormal}, i32 {normal}")
    above = f.value(f"icmp ugt i32 {code}, {0x7C00}")
    code = f.value(f"select i1 {above}, i32 {0x7C00}, i32 {code}")
    payload = f.value(f"and i32 {f.value(f'lshr i32 {magnitude}, 13')}, {0x1FF}")
    quiet = f.value(f"or i32 {payload}, {0x7E00}")
    nan = f.value(f"icmp ugt i32 {magnitude}, {0x7F800000}")
    code = f.value(f"select i1 {nan}, i32 {quiet}, i32 {code}")
    sign = f.value(f"lshr i32 {f.value(f'and i32 {bits}, -2147483648')}, 16")
    low = f.value(f"trunc i32 {f.value(f'or i32 {code}, {sign}')} to i16")
    return f.value(f"bitcast i16 {low} to half")


def round_to_odd(e: LaneEmitter, value: str) -> str:
    """The f32 rounded to odd from an f64: exact, or truncated with its last bit set."""
    f = e.f
    near = f.value(f"fptrunc double {value} to float")
    back = f.value(f"fpext float {near} to double")
    bits = _bits(e, near)
    wanted = f.value(f"and i64 {f.value(f'bitcast double {value} to i64')}, {(1 << 63) - 1}")
    got = f.value(f"and i64 {f.value(f'bitcast double {back} to i64')}, {(1 << 63) - 1}")
    above = f.value(f"icmp ugt i64 {got}, {wanted}")
    down = f.value(f"sub i32 {bits}, {f.value(f'zext i1 {above} to i32')}")
    odd = f.value(f"or i32 {down}, 1")
    inexact = f.value(f"fcmp one double {back}, {value}")
    return _float(e, f.value(f"select i1 {inexact}, i32 {odd}, i32 {bits}"))


def narrow_double(e: LaneEmitter, value: str, dtype: DType) -> str:
    """The narrow float nearest an f64 (f32 too)."""
    if dtype == F32:
        return e.f.value(f"fptrunc double {value} to float")
    return narrow(e, round_to_odd(e, value), dtype)


def to_computing(e: LaneEmitter, value: str, dtype: DType) -> tuple[str, str]:
    """A float in the type its arithmetic is done in, and that type."""
    if dtype == F64:
        return value, "double"
    return widen(e, value, dtype), "float"


def from_computing(e: LaneEmitter, value: str, dtype: DType) -> str:
    return value if dtype == F64 else narrow(e, value, dtype)


def as_bits(e: LaneEmitter, value: str, dtype: DType) -> str:
    """A value as the integer as wide as its element in memory."""
    kind = register_type(dtype)
    if kind == "i1":
        return e.f.value(f"zext i1 {value} to i8")
    if kind.startswith("i"):
        return value
    return e.f.value(f"bitcast {kind} {value} to i{dtype.bits}")


def from_bits(e: LaneEmitter, value: str, dtype: DType) -> str:
    """The value whose element in memory has these bits."""
    kind = register_type(dtype)
    if kind == "i1":
        return e.f.value(f"icmp ne i8 {value}, 0")
    if kind.startswith("i"):
        return value
    return e.f.value(f"bitcast i{dtype.bits} {value} to {kind}")


def float_bits_constant(exponent_field: int) -> str:
    """The power of two whose f32 has this exponent field."""
    return f"0x{(exponent_field - 127 + 1023) << 52:016X}"


def _float(e: LaneEmitter, bits: str) -> str:
    return e.f.value(f"bitcast i32 {bits} to float")


def _bits(e: LaneEmitter, value: str) -> str:
    return e.f.value(f"bitcast float {value} to i32")
