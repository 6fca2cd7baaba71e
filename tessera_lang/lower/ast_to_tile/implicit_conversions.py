"""Values in the dtypes of the variables that take them.

Must not know assignments.
"""

from __future__ import annotations

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_tile.context import Bound, Lowering
from tessera_lang.types.dtype import DType
from tessera_lang.types.type import Scalar, TupleType, Type


def settled(lowering: Lowering, value: Bound, t: Type | None) -> Bound:
    """``value`` with the dtypes of ``t``: a variable keeps one type."""
    if isinstance(t, Scalar) and isinstance(value, Value) and isinstance(value.type, DType):
        return lowering.builder.cast(value, t.dtype)
    if isinstance(t, TupleType) and not isinstance(value, Value):
        pairs = zip(value, t.items, strict=True)
        return tuple(settled(lowering, part, item) for part, item in pairs)
    return value
