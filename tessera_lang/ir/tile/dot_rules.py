"""The type rule of ``tile.dot_into``: products of buffers in place."""

from __future__ import annotations

from tessera_lang.ir.core import BufferType, Operation, VerifyError
from tessera_lang.types.dtype import F32, F64, I32, I64, INDEX, U32, U64

DTYPES = (F32, F64, I32, I64, U32, U64)


def dot_into(operation: Operation) -> None:
    """Three buffers of one dtype and rank whose matrices go together."""
    buffers = [v.type for v in operation.operands[:3]]
    numbers = operation.operands[3:]
    matrices: list[tuple[int, int]] = []
    for t in buffers:
        if not isinstance(t, BufferType) or len(t.shape) < 2 or t.layout is not None:
            raise VerifyError("multiplies row-major buffers", operation)
        if t.dtype not in DTYPES or t.dtype != buffers[0].dtype:  # type: ignore[union-attr]
            raise VerifyError(
                "takes buffers of one dtype: f32, f64, or integers of 32 or 64 bits", operation
            )
        if len(numbers) != 3 + len(t.shape) - 2:
            raise VerifyError("takes three extents, and an index for each axis before", operation)
        matrices.append((t.shape[-2], t.shape[-1]))
    if any(v.type != INDEX for v in numbers):
        raise VerifyError("extents and indices are index", operation)


RULES = {"dot_into": dot_into}
