"""Element types: one row each, with what every part of the compiler calls them.

Owns what a dtype is and which conversions lose nothing. Must not know NumPy, LLVM, MLIR, PTX or C
beyond the spelling of a name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from tessera_lang.record import dataclass, field

Kind = Literal["bool", "int", "uint", "float", "index"]


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar type. ``bits`` is its width in registers; a ``bool`` is stored in a byte.

    ``mantissa``: bits of the significand with the hidden one, ``exponent``: bits of the exponent,
    both of floats only. ``infinite``: a float has infinities; one without has a single NaN, whose
    bits are all set. The rest is what others call it:

    ``mlir``: its spelling, where that is not its name. ``numpy``: in NumPy and torch, or with
    ``ml_dtypes.`` in front there and in torch. ``dlpack``: the code of DLPack, -1 where no dtype of
    theirs is made this one. ``c``: what holds it. ``llvm``: in registers, where that is no integer
    as wide. ``matrix``: what PTX calls it as an operand of matrix units ("": they have it not).
    ``product``: the dtype in which its products are added up ("": it has none). ``tensor_map``: of
    the driver's ``CUtensorMapDataType``; -1 for the unsigned integer as wide. ``aliases``: further
    spellings in strings (``dtype="fp32"``), never names of the language.
    """

    name: str
    kind: Kind
    bits: int
    mantissa: int = 0
    exponent: int = 0
    infinite: bool = field(default=True, compare=False)
    mlir: str = field(default="", compare=False)
    numpy: str = field(default="", compare=False)
    dlpack: int = field(default=-1, compare=False)
    c: str = field(default="", compare=False)
    llvm: str = field(default="", compare=False)
    matrix: str = field(default="", compare=False)
    product: str = field(default="", compare=False)
    tensor_map: int = field(default=-1, compare=False)
    aliases: tuple[str, ...] = field(default=(), compare=False)

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_float8(self) -> bool:
        """Whether it is a float of 8 bits, to which conversions saturate."""
        return self.kind == "float" and self.bits == 8

    @property
    def infinity_code(self) -> int:
        """Bits of infinity; of a float without one, of what would be it."""
        return ((1 << self.exponent) - 1) << (self.mantissa - 1)

    @property
    def nan_code(self) -> int:
        """Bits of the quiet NaN, without sign."""
        if not self.infinite:
            return (1 << (self.bits - 1)) - 1
        return self.infinity_code | (1 << (self.mantissa - 2))

    @property
    def largest_code(self) -> int:
        """Bits of the largest finite number of a float."""
        return (self.infinity_code if self.infinite else self.nan_code) - 1

    @property
    def largest(self) -> float:
        """The largest finite number of a float."""
        stored = self.mantissa - 1
        code = self.largest_code
        bias = (1 << (self.exponent - 1)) - 1
        fraction = 1.0 + (code & ((1 << stored) - 1)) / (1 << stored)
        return float(fraction * 2.0 ** ((code >> stored) - bias))

    @property
    def is_integer(self) -> bool:
        """Signed, unsigned and index types."""
        return self.kind in ("int", "uint", "index")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("int", "index")

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:  # what is compared: it is part of keys
        return (
            f"DType(name={self.name!r}, kind={self.kind!r}, bits={self.bits},"
            f" mantissa={self.mantissa}, exponent={self.exponent})"
        )


BOOL = DType("bool", "bool", 1, mlir="i1", numpy="bool", dlpack=6, c="uint8_t", llvm="i1",
             aliases=("bool_",))  # fmt: skip


def _integer(kind: Literal["int", "uint"], bits: int, **more: Any) -> DType:
    theirs = f"{kind}{bits}"
    name = f"{kind[0]}{bits}"
    unsigned = kind == "uint"
    return DType(
        name, kind, bits, mlir=f"ui{bits}" if unsigned else "", numpy=theirs, dlpack=int(unsigned),
        c=f"{theirs}_t", aliases=(theirs,), **more,
    )  # fmt: skip


I8 = _integer("int", 8, matrix="s8", product="i32")
I16 = _integer("int", 16)
I32 = _integer("int", 32, product="i32", tensor_map=3)
I64 = _integer("int", 64, product="i64", tensor_map=5)
U8 = _integer("uint", 8, matrix="u8", product="i32")
U16 = _integer("uint", 16, tensor_map=1)
U32 = _integer("uint", 32, product="u32", tensor_map=2)
U64 = _integer("uint", 64, product="u64", tensor_map=4)
F16 = DType(
    "f16", "float", 16, 11, 5, numpy="float16", dlpack=2, c="uint16_t", llvm="half", matrix="f16",
    product="f32", tensor_map=6, aliases=("fp16", "float16", "half"),
)  # fmt: skip
BF16 = DType(
    "bf16", "float", 16, 8, 8, numpy="ml_dtypes.bfloat16", dlpack=4, c="uint16_t", matrix="bf16",
    product="f32", tensor_map=9, aliases=("bfloat16",),
)  # fmt: skip
F32 = DType(
    "f32", "float", 32, 24, 8, numpy="float32", dlpack=2, c="float", llvm="float", matrix="tf32",
    product="f32", tensor_map=7, aliases=("fp32", "float32", "float"),
)  # fmt: skip
F64 = DType(
    "f64", "float", 64, 53, 11, numpy="float64", dlpack=2, c="double", llvm="double",
    product="f64", tensor_map=8, aliases=("fp64", "float64", "double"),
)  # fmt: skip
F8E4M3 = DType(
    "f8e4m3", "float", 8, 4, 4, infinite=False, mlir="f8E4M3FN", numpy="ml_dtypes.float8_e4m3fn",
    dlpack=10, c="uint8_t", matrix="e4m3", product="f32", aliases=("fp8e4m3", "float8_e4m3fn"),
)  # fmt: skip
F8E5M2 = DType(
    "f8e5m2", "float", 8, 3, 5, mlir="f8E5M2", numpy="ml_dtypes.float8_e5m2", dlpack=12,
    c="uint8_t", matrix="e5m2", product="f32", aliases=("fp8e5m2", "float8_e5m2"),
)  # fmt: skip
INDEX = DType("index", "index", 64, numpy="int64", c="int64_t", tensor_map=5)

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64, F8E4M3, F8E5M2, INDEX,
    )
}  # fmt: skip

ALIASES: dict[str, str] = {alias: d.name for d in DTYPES.values() for alias in d.aliases}


def dtype_named(name: str) -> DType | None:
    """The dtype with this name or accepted spelling."""
    return DTYPES.get(ALIASES.get(name, name))


def float_beside(arrays: Iterable[DType], alone: DType = F32) -> DType:
    """What a float of Python's is where nothing else says it: f64 if the arrays of floats beside
    it are all f64, so that no bit of it is lost, else f32. ``alone``: where there are none."""
    floats = {a for a in arrays if a.is_float}
    return alone if not floats else F64 if floats == {F64} else F32


def holds_integers(floats: DType, integers: DType) -> bool:
    """Whether each integer of a dtype is a number of ``floats``."""
    return integers.bits - integers.is_signed <= floats.mantissa


def widens_to(narrow: DType, wide: DType) -> bool:
    """Whether ``narrow`` goes into ``wide`` without a cast, by the language's rule.

    f8, f16 and bf16 with f32; a narrower integer with a wider one of the same sign; any
    integer with index; integers with the floats that have all of them, and with f64, which
    rounds those of more than 53 bits as NumPy does. Nothing else is implicit: f32 with f64
    needs the cast, and so do integers of 32 and more bits with f32.
    """
    if narrow == wide:
        return True
    if narrow.kind == "float" and wide.kind == "float":
        return wide == F32 and narrow.bits < 32
    if wide.kind == "float":
        return narrow.is_integer and (wide == F64 or holds_integers(wide, narrow))
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


def cast_to_meet(a: DType, b: DType) -> tuple[bool, DType]:
    """Which of two operands that do not meet to convert, True for the first, and to what."""
    if BOOL in (a, b):
        return a == BOOL, b if a == BOOL else a
    if a.is_float != b.is_float:
        number = a if a.is_float else b
        return b is number, number if number.bits >= 32 else F32
    if a.is_float:
        return a != F64, F64 if F64 in (a, b) else F32
    unsigned, signed = (b, a) if a.is_signed else (a, b)
    return unsigned is a, signed if unsigned.bits < signed.bits else I64


def dtype_with_number(dtype: DType, value: float) -> DType | None:
    """The dtype for elements of ``dtype`` that meet a number which it does not hold, if there is
    one."""
    if isinstance(value, float):
        return F32 if dtype.bits < 32 else F64
    for wide in (I32, I64):
        low, high = integer_range(wide)
        least, most = integer_range(dtype) if not dtype.is_float else (low, high)
        if low <= min(value, least) and max(value, most) <= high:
            return F64 if dtype.is_float else wide
    return None


def mean_dtype(dtype: DType) -> DType:
    """What means, and what else divides a sum or takes its root, are of elements of ``dtype``:
    floats stay, integers of 32 and more bits give f64, and narrower ones f32, which has them
    all."""
    if dtype.is_float:
        return dtype
    return F64 if dtype.bits >= 32 else F32


def float_of_integers(integers: DType, floats: DType, double: bool = False) -> DType:
    """The dtype of integers of an array of the host program beside a float. ``floats``: what
    floats are there that nothing gives a dtype; ``double``: the float is one of f64."""
    return F64 if double or floats == F64 else mean_dtype(integers)


def widest(a: DType, b: DType) -> DType:
    """The narrowest dtype that has all values of two; f64 where none has."""

    def holds(wide: DType, one: DType) -> bool:
        if one.is_float or wide.is_float:
            return widens_to(one, wide) or not one.is_float and holds_integers(wide, one)
        (least, most), (low, high) = integer_range(one), integer_range(wide)
        return low <= least and most <= high

    return next((d for d in (a, b, I16, I32, I64, F32) if holds(d, a) and holds(d, b)), F64)


def integer_range(dtype: DType) -> tuple[int, int]:
    """Least and greatest value of an integer (or bool) dtype."""
    if dtype.kind == "bool":
        return 0, 1
    if dtype.is_signed:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1
