"""Dtypes in LLVM: register types, memory types, constants.

In registers a ``bool`` is ``i1``, ``bf16`` is ``i16`` and the f8s are ``i8`` (bits; every
conversion is written out), the rest is LLVM's own. In memory a ``bool`` is a byte.
"""

from __future__ import annotations

import struct

from tessera_lang.types.dtype import BOOL, F16, F32, F64, DType


def register_type(dtype: DType) -> str:
    """LLVM type of a value of ``dtype`` in a register."""
    return dtype.llvm or f"i{dtype.bits}"


def memory_type(dtype: DType) -> str:
    """LLVM type of an element in memory."""
    return "i8" if dtype == BOOL else register_type(dtype)


def bits_type(dtype: DType) -> str:
    """The integer type as wide as the element in memory."""
    return f"i{dtype.bytes * 8}"


def is_bits(dtype: DType) -> bool:
    """Whether a float lives in an integer register (bf16, f8)."""
    return dtype.is_float and not dtype.llvm


def zero(dtype: DType) -> str:
    """The zero of ``dtype`` as an operand."""
    if dtype == BOOL:
        return "false"
    return "0.0" if dtype.is_float and dtype.llvm else "0"


def integer_constant(value: int, bits: int) -> str:
    """``value`` modulo 2**bits as a signed operand."""
    value &= (1 << bits) - 1
    if value >> (bits - 1):
        value -= 1 << bits
    return str(value)


def float_constant(value: float, dtype: DType) -> str:
    """A constant of a float dtype, correctly rounded; f8 saturates, and keeps an infinity that it
    has: a literal is no conversion."""
    if dtype == F64:
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if dtype == F32:
        # LLVM spells a float constant as the double of the same value.
        rounded = decode(encode(value, dtype), dtype)
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    code = encode(value, dtype)
    if dtype == F16:
        return f"0xH{code:04X}"
    return integer_constant(code, dtype.bits)


def _special(dtype: DType) -> tuple[int, int, int]:
    """Codes of the largest finite, of what overflow gives, and of NaN, without sign."""
    overflow = dtype.largest_code if dtype.is_float8 else dtype.infinity_code
    return dtype.largest_code, overflow, dtype.nan_code


def code_of(value: float, dtype: DType) -> int:
    """Bits of a number as an element of ``dtype``."""
    return encode(value, dtype) if dtype.is_float else int(value) % (1 << dtype.bits)


def encode(value: float, dtype: DType) -> int:
    """Bits of the nearest value of a float dtype, ties to even (language section 10)."""
    if dtype == F64:
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    largest, overflow, nan = _special(dtype)
    raw = struct.unpack("<Q", struct.pack("<d", value))[0]
    sign = (raw >> 63) << (dtype.bits - 1)
    magnitude = raw & ((1 << 63) - 1)
    if magnitude > 0x7FF0000000000000:
        return sign | nan
    if magnitude == 0x7FF0000000000000:
        return sign | (dtype.infinity_code if dtype.infinite else overflow)
    stored = dtype.mantissa - 1
    bias = (1 << (dtype.exponent - 1)) - 1
    exponent = max((magnitude >> 52), 1) - 1023
    significand = (magnitude & ((1 << 52) - 1)) | ((1 << 52) if magnitude >> 52 else 0)
    least = max(exponent, 1 - bias) - stored  # exponent of the last place
    shift = least - (exponent - 52)
    kept, rest = significand >> shift, significand & ((1 << shift) - 1)
    half = 1 << (shift - 1)
    kept += rest > half or (rest == half and kept & 1 == 1)
    code = kept + ((max(exponent, 1 - bias) + bias - 1) << stored)
    return sign | (code if code <= largest else overflow)


def decode(code: int, dtype: DType) -> float:
    """The value of the bits of a float dtype."""
    stored = dtype.mantissa - 1
    bias = (1 << (dtype.exponent - 1)) - 1
    sign = -1.0 if code >> (dtype.bits - 1) else 1.0
    magnitude = code & ((1 << (dtype.bits - 1)) - 1)
    exponent, fraction = magnitude >> stored, magnitude & ((1 << stored) - 1)
    if not dtype.infinite:
        if magnitude == dtype.nan_code:
            return float("nan")
    elif exponent == (1 << dtype.exponent) - 1:
        return float("nan") if fraction else sign * float("inf")
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias - stored)
    return float(sign * ((1 << stored) + fraction) * 2.0 ** (exponent - bias - stored))
