"""Warp operations on every dtype, made of those on numbers of 32 and 64 bits.

Floats of 16 and 8 bits are reduced in f32 and rounded once; a shuffle moves their bits.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.ir.core import Value
from tessera_lang.lower.arguments import needed, scalar
from tessera_lang.lower.context import Lowering
from tessera_lang.lower.operators import dtype_of, truth
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DTYPES, F32, I32, INDEX, U32, DType


def _word(dtype: DType) -> DType:
    """The narrowest type of 32 bits or more that holds every value of ``dtype``."""
    if dtype.bits >= 32:
        return dtype
    if dtype.is_float:
        return F32
    return I32 if dtype.is_signed else U32


def reduction(kind: str) -> Callable[[Lowering, ast.Call], Value]:
    def lower(lowering: Lowering, node: ast.Call) -> Value:
        builder = lowering.builder
        value = scalar(lowering, needed(node, 0, "value"))
        dtype = dtype_of(value)
        total = builder.warp_reduce(kind, builder.cast(value, _word(dtype)))
        return builder.cast(total, dtype)

    return lower


def shuffle(lowering: Lowering, node: ast.Call) -> Value:
    builder = lowering.builder
    value = scalar(lowering, needed(node, 0, "value"))
    lane = builder.cast(scalar(lowering, needed(node, 1, "lane")), INDEX)
    dtype = dtype_of(value)
    if dtype.bits >= 32:
        return builder.warp_shuffle(value, lane)
    if not dtype.is_float:
        wide = builder.warp_shuffle(builder.cast(value, U32), lane)
        return builder.cast(wide, dtype)
    bits = DTYPES[f"u{dtype.bits}"]
    wide = builder.warp_shuffle(builder.cast(builder.bitcast(value, bits), U32), lane)
    return builder.bitcast(builder.cast(wide, bits), dtype)


def vote(kind: str) -> Callable[[Lowering, ast.Call], Value]:
    def lower(lowering: Lowering, node: ast.Call) -> Value:
        condition = truth(lowering, scalar(lowering, needed(node, 0, "condition")))
        return lowering.builder.warp_vote(kind, condition)

    return lower


def ballot(lowering: Lowering, node: ast.Call) -> Value:
    condition = truth(lowering, scalar(lowering, needed(node, 0, "condition")))
    return lowering.builder.warp_ballot(condition)
