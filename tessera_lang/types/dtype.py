"""Element types: one table of names, kinds and widths.

Owns what a dtype is and which conversions lose nothing. Must not know NumPy, LLVM or
MLIR beyond the spelling of a name.
"""

from __future__ import annotations

from typing import Literal

from tessera_lang.record import dataclass

Kind = Literal["bool", "int", "uint", "float", "index"]


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar type. ``bits`` is its width in registers; a ``bool`` is stored in a byte."""

    name: str
    kind: Kind
    bits: int
    mantissa: int = 0  # bits of significand with the hidden one, floats only
    exponent: int = 0  # bits of exponent, floats only

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Signed, unsigned and index types."""
        return self.kind in ("int", "uint", "index")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("int", "index")

    def __str__(self) -> str:
        return self.name


BOOL = DType("bool", "bool", 1)
I8, I16, I32, I64 = (DType(f"i{b}", "int", b) for b in (8, 16, 32, 64))
U8, U16, U32, U64 = (DType(f"u{b}", "uint", b) for b in (8, 16, 32, 64))
F16 = DType("f16", "float", 16, 11, 5)
BF16 = DType("bf16", "float", 16, 8, 8)
F32 = DType("f32", "float", 32, 24, 8)
F64 = DType("f64", "float", 64, 53, 11)
F8E4M3 = DType("f8e4m3", "float", 8, 4, 4)
F8E5M2 = DType("f8e5m2", "float", 8, 3, 5)
INDEX = DType("index", "index", 64)

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64, F8E4M3, F8E5M2, INDEX,
    )
}  # fmt: skip

# Spellings accepted in strings (``dtype="fp32"``), never as names of the language.
ALIASES: dict[str, str] = {
    "fp16": "f16", "float16": "f16", "half": "f16", "fp32": "f32", "float32": "f32",
    "float": "f32", "fp64": "f64", "float64": "f64", "double": "f64", "bfloat16": "bf16",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8",
    "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool_": "bool",
    "fp8e4m3": "f8e4m3", "float8_e4m3fn": "f8e4m3", "fp8e5m2": "f8e5m2", "float8_e5m2": "f8e5m2",
}  # fmt: skip


def dtype_named(name: str) -> DType | None:
    """The dtype with this name or accepted spelling."""
    return DTYPES.get(ALIASES.get(name, name))


def widens_to(narrow: DType, wide: DType) -> bool:
    """Whether every value of ``narrow`` is a value of ``wide`` by the language's rule.

    f8, f16 and bf16 with f32; a narrower integer with a wider one of the same sign; any
    integer with index. Nothing else is implicit: f32 with f64 needs the cast.
    """
    if narrow == wide:
        return True
    if narrow.kind == "float" and wide.kind == "float":
        return wide == F32 and narrow.bits < 32
    if wide.kind == "index":
        return narrow.is_integer
    return narrow.kind == wide.kind and narrow.is_integer and narrow.bits < wide.bits


def common_dtype(a: DType, b: DType) -> DType | None:
    """The dtype two operands meet in without losing a bit, or None: a cast is needed."""
    if widens_to(a, b):
        return b
    if widens_to(b, a):
        return a
    return None


def integer_range(dtype: DType) -> tuple[int, int]:
    """Least and greatest value of an integer (or bool) dtype."""
    if dtype.kind == "bool":
        return 0, 1
    if dtype.is_signed:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1
