"""Element types and sizes in C. Must not know kernels."""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.types.dtype import DTYPES
from tessera_lang.types.shape import Dim, Sym

C_TYPES = {name: dtype.c for name, dtype in DTYPES.items()}
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
