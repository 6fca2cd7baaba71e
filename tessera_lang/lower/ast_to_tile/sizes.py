"""Symbolic sizes as values of a kernel.

Needs ``Lowering.symbols`` to hold the value of every name. Must not know where these come
from.
"""

from __future__ import annotations

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_tile.context import Lowering
from tessera_lang.types.dtype import INDEX
from tessera_lang.types.shape import Dim, Sym

_OPERATIONS = {"+": "add", "-": "sub", "*": "mul", "//": "floordiv", "%": "mod"}


def size_value(lowering: Lowering, dim: Dim) -> Value:
    """The value of a size; a division by a size of 0 gives 0 (the launch refused it)."""
    builder = lowering.builder
    if isinstance(dim, int):
        return builder.index(dim)
    if isinstance(dim, Sym):
        return lowering.symbols[dim.name]
    a, b = size_value(lowering, dim.left), size_value(lowering, dim.right)
    if dim.operator == "ceil_div":
        rest = builder.cmp("ne", builder.binary("mod", a, b), builder.index(0))
        return builder.binary("add", builder.binary("floordiv", a, b), builder.cast(rest, INDEX))
    return builder.binary(_OPERATIONS.get(dim.operator, dim.operator), a, b)
