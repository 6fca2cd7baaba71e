"""How types and attributes are spelt in MLIR's generic form; printer and parser share it.

Owns both directions of every scalar spelling. Must not know operations.
"""

from __future__ import annotations

import math
import re
import struct

from tessera_lang.ir.core import (
    Attribute,
    BarrierType,
    BufferType,
    IRType,
    PointerType,
    TensorMapType,
    TensorType,
    TileType,
    ViewType,
)
from tessera_lang.ir.layout import register_layout, shared_layout
from tessera_lang.types.dtype import DTYPES, F64, DType
from tessera_lang.types.shape import dim_of_text

DTYPE_SPELLING: dict[str, str] = {name: d.mlir or name for name, d in DTYPES.items()}
SPELT_DTYPE: dict[str, DType] = {DTYPE_SPELLING[name]: d for name, d in DTYPES.items()}


def type_text(t: IRType) -> str:
    """``f32``, ``!tile.view<?x4xf32, global, mut>`` ..."""
    if isinstance(t, DType):
        return DTYPE_SPELLING[t.name]
    if isinstance(t, BarrierType):
        return f"!tile.mbarrier<{t.count}>"
    element = DTYPE_SPELLING[t.dtype.name]
    if isinstance(t, PointerType):
        return f"!tile.ptr<{element}, {t.space}>"
    if isinstance(t, TensorMapType):
        box = "".join(f"{n}x" for n in t.box)
        return f"!tile.tensor_map<{box}{element}, swizzle={t.swizzle}>"
    if isinstance(t, TensorType):
        return f"!graph.tensor<{element}, [{', '.join(map(str, t.shape))}]>"
    if isinstance(t, TileType):
        layout = "" if t.layout is None else f", {t.layout}"
        return f"!tile.tile<{''.join(f'{n}x' for n in t.shape)}{element}{layout}>"
    sizes = "".join(f"{'?' if n is None else n}x" for n in t.shape)
    if isinstance(t, BufferType):
        layout = "" if t.layout is None else f", {t.layout}"
        return f"!tile.buffer<{sizes}{element}, {t.space}{layout}>"
    words = [w for w in ("mut", "contiguous", "aligned") if getattr(t, w)]
    return f"!tile.view<{', '.join([sizes + element, t.space, *words])}>"


_SIZES = re.compile(r"((?:(?:\?|\d+)x)*)([A-Za-z]\w*)")
_TILE_SIZES = re.compile(r"((?:(?:\$\d+|\d+)x)*)([A-Za-z]\w*)")


_TENSOR = re.compile(r"\s*([A-Za-z]\w*)\s*,\s*\[(.*)\]\s*")


def tensor_type(body: str) -> TensorType:
    """The type of ``!graph.tensor<body>``: ``f32, [n, (2 * k)]``. Raises ValueError."""
    match = _TENSOR.fullmatch(body)
    dtype = SPELT_DTYPE.get(match[1]) if match else None
    if match is None or dtype is None:
        raise ValueError(f"no tensor in '{body}'")
    return TensorType(dtype, tuple(map(dim_of_text, _parts(match[2]))))


def _parts(text: str) -> list[str]:
    """What commas separate, where they stand in no parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts if text.strip() else []


def compound_type(head: str, body: str) -> IRType:
    """The type of ``!tile.head<body>``. Raises ValueError."""
    parts = [p.strip() for p in body.split(",")]
    if head in ("tile", "tensor_map"):
        return _tile_type(head, body, parts)
    if head == "mbarrier":
        if not body.strip().isdigit():
            raise ValueError(f"no number of barriers in '{body}'")
        return BarrierType(int(body))
    match = _SIZES.fullmatch(parts[0])
    dtype = SPELT_DTYPE.get(match[2]) if match else None
    if match is None or dtype is None:
        raise ValueError(f"no element type in '{body}'")
    sizes = tuple(None if n == "?" else int(n) for n in match[1].split("x")[:-1])
    space = parts[1] if len(parts) > 1 else ""
    if space not in ("global", "shared", "constant", "local"):
        raise ValueError(f"no memory space in '{body}'")
    words = parts[2:]
    if head == "view":
        unknown = set(words) - {"mut", "contiguous", "aligned"}
        if unknown or len(set(words)) != len(words):
            raise ValueError(f"unknown words in '{body}'")
        return ViewType(
            dtype, sizes, space, "mut" in words, "contiguous" in words, "aligned" in words
        )
    if len(words) > (head == "buffer"):
        raise ValueError(f"too many parts in '{body}'")
    if head == "ptr" and not sizes:
        return PointerType(dtype, space)
    if head == "buffer":
        known = tuple(n for n in sizes if n is not None)
        if len(known) == len(sizes):
            return BufferType(dtype, known, space, shared_layout(words[0]) if words else None)
    raise ValueError(f"no type '!tile.{head}<{body}>'")


def _tile_type(head: str, body: str, parts: list[str]) -> IRType:
    """``128x$0xf32[, layout]`` or ``64x128xbf16, swizzle=128``. Raises ValueError."""
    match = _TILE_SIZES.fullmatch(parts[0])
    dtype = SPELT_DTYPE.get(match[2]) if match else None
    if match is None or dtype is None or len(parts) > 2:
        raise ValueError(f"no tile in '{body}'")
    sizes = tuple(n if n.startswith("$") else int(n) for n in match[1].split("x")[:-1])
    if head == "tile":
        return TileType(dtype, sizes, register_layout(parts[1]) if len(parts) > 1 else None)
    box = tuple(n for n in sizes if isinstance(n, int))
    swizzle = parts[1].removeprefix("swizzle=") if len(parts) > 1 else ""
    if len(box) != len(sizes) or swizzle not in ("0", "32", "64", "128"):
        raise ValueError(f"no tensor map in '{body}'")
    return TensorMapType(dtype, box, int(swizzle))


# --- numbers ---------------------------------------------------------------------------------


def float_text(value: float, dtype: DType) -> str:
    """A float with its type: shortest decimal that reads back, hexadecimal if not finite."""
    if not math.isfinite(value):
        return _bits_text(value, dtype)
    mantissa, _, exponent = repr(value).partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    tail = f"e{exponent}" if exponent else ""
    return f"{mantissa}{tail} : {DTYPE_SPELLING[dtype.name]}"


def _bits_text(value: float, dtype: DType) -> str:
    if dtype.is_float8:
        dtype = F64  # the f8 types have no or few such values: kept exact as f64
    exponent, mantissa = dtype.exponent, dtype.mantissa - 1
    bits = ((1 << exponent) - 1) << mantissa
    if math.isnan(value):
        bits |= 1 << (mantissa - 1)
    if math.copysign(1.0, value) < 0:
        bits |= 1 << (exponent + mantissa)
    return f"0x{bits:0{dtype.bits // 4}X} : {DTYPE_SPELLING[dtype.name]}"


def float_of_bits(bits: int, dtype: DType) -> float:
    """The value of a bit pattern. Raises ValueError where the type has no such width."""
    if bits >> dtype.bits:
        raise ValueError(f"0x{bits:X} is wider than {dtype}")
    match dtype.name:
        case "f64":
            return float(struct.unpack("<d", struct.pack("<Q", bits))[0])
        case "f32":
            return float(struct.unpack("<f", struct.pack("<I", bits))[0])
        case "bf16":
            return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
        case "f16":
            return float(struct.unpack("<e", struct.pack("<H", bits))[0])
        case _:
            raise ValueError(f"no hexadecimal form for {dtype}")


# --- strings ---------------------------------------------------------------------------------


def string_text(text: str) -> str:
    """A quoted string; anything but plain ASCII as the bytes of its UTF-8."""
    out: list[str] = []
    for byte in text.encode("utf-8", "surrogatepass"):
        if 0x20 <= byte < 0x7F and byte not in (0x22, 0x5C):
            out.append(chr(byte))
        else:
            out.append(f"\\{byte:02X}")
    return f'"{"".join(out)}"'


_ESCAPE = re.compile(rb'\\(?:([0-9A-Fa-f]{2})|([nt"\\]))')
_NAMED = {b"n": b"\n", b"t": b"\t", b'"': b'"', b"\\": b"\\"}


def string_value(quoted: str) -> str:
    """What ``string_text`` wrote. Raises ValueError for bytes that are not UTF-8."""
    raw = quoted[1:-1].encode("utf-8", "surrogatepass")
    raw = _ESCAPE.sub(lambda m: bytes.fromhex(m[1].decode()) if m[1] else _NAMED[bytes(m[2])], raw)
    return raw.decode("utf-8", "surrogatepass")


def attribute_text(value: Attribute, dtype: DType | None = None) -> str:
    """An attribute; numbers are written as ``dtype`` where it fits them, else i64 and f64."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            spelt = dtype.name if dtype is not None and dtype.is_integer else "i64"
            return f"{value} : {DTYPE_SPELLING[spelt]}"
        case float():
            return float_text(value, dtype if dtype is not None and dtype.is_float else F64)
        case str():
            return string_text(value)
        case DType():
            return DTYPE_SPELLING[value.name]
        case tuple():
            return f"[{', '.join(attribute_text(v) for v in value)}]"
