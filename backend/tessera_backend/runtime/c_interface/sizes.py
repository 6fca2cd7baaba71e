"""Element types and sizes in C. Must not know kernels."""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.types.shape import Dim, Sym

C_TYPES = {
    "bool": "uint8_t", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "index": "int64_t", "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t",
    "u64": "uint64_t", "f32": "float", "f64": "double", "f16": "uint16_t", "bf16": "uint16_t",
    "f8e4m3": "uint8_t", "f8e5m2": "uint8_t",
}  # fmt: skip
"""What holds a number in C: of floats that C does not have, their bits."""

_FUNCTIONS = {
    "+": "tessera_add", "-": "tessera_subtract", "*": "tessera_multiply",
    "//": "tessera_floor_divide", "%": "tessera_modulo", "ceil_div": "tessera_ceil_divide",
}  # fmt: skip


def dtype_code(dtype: str) -> str:
    """The name of an element type in ``tessera.h``."""
    return f"TESSERA_{dtype.upper()}"


def size_text(dim: Dim, names: Mapping[str, str]) -> str:
    """A size as an expression of C over ``names``, which sets ``bad`` where it has no value."""
    if isinstance(dim, int):
        return f"INT64_C({dim})"
    if isinstance(dim, Sym):
        return names.get(dim.name) or "tessera_unknown(&bad)"
    left, right = size_text(dim.left, names), size_text(dim.right, names)
    if dim.operator in ("min", "max"):
        return f"tessera_{dim.operator}({left}, {right})"
    return f"{_FUNCTIONS[dim.operator]}(&bad, {left}, {right})"
