"""Warp operations on every dtype, made of those on numbers of 32 and 64 bits.

Floats of 16 and 8 bits are reduced in f32 and rounded once; a shuffle moves their bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tessera_lang.ir.core import Attribute, BufferType, Operation, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.ast_to_tile.builtin_arguments import needed, scalar
from tessera_lang.lower.ast_to_tile.context import Lowering
from tessera_lang.lower.ast_to_tile.operators import dtype_of, truth
from tessera_lang.syntax import ast
from tessera_lang.target.arch.isa_constants import WARP
from tessera_lang.types.dtype import DTYPES, F32, I32, INDEX, U8, U32, DType

WARP_KINDS = ("add", "min", "max")


def _word(dtype: DType) -> DType:
    """The narrowest type of 32 bits or more that holds every value of ``dtype``."""
    if dtype.bits >= 32:
        return dtype
    if dtype.is_float:
        return F32
    return I32 if dtype.is_signed else U32


def reduction(kind: str) -> Callable[[Lowering, ast.Call], Value]:
    def lower(lowering: Lowering, node: ast.Call) -> Value:
        return reduced_in_warp(lowering.builder, kind, scalar(lowering, needed(node, 0, "value")))

    return lower


def reduced_in_warp(builder: Builder, kind: str, value: Value) -> Value:
    """A number of any type, over the lanes of the warp."""
    dtype = dtype_of(value)
    total = builder.warp_reduce(kind, builder.cast(value, _word(dtype)))
    found = builder.cast(total, dtype)
    if dtype.is_float8 and dtype.infinite and kind != "add":
        # It is one of the lanes' numbers, and a cast would make a finite one of an infinity.
        code = dtype.infinity_code
        for infinity, bits in ((math.inf, code), (-math.inf, code | 0x80)):
            same = builder.cmp("eq", total, builder.constant(infinity, F32))
            kept = builder.bitcast(builder.constant(bits, U8), dtype)
            found = builder.select(same, kept, found)
    return found


def shuffle(lowering: Lowering, node: ast.Call) -> Value:
    value = scalar(lowering, needed(node, 0, "value"))
    lane = lowering.builder.cast(scalar(lowering, needed(node, 1, "lane")), INDEX)
    return shuffled_in_warp(lowering.builder, value, lane)


def shuffled_in_warp(builder: Builder, value: Value, lane: Value) -> Value:
    """A number of any type of another lane of the warp."""
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


def match(lowering: Lowering, node: ast.Call) -> Value:
    """Numbers of 8 bits meet in a table of each warp, whose cells are zeros between two calls."""
    value = scalar(lowering, needed(node, 0, "value"))
    if dtype_of(value).bits > 8:
        return lowering.builder.warp_match(value)
    name = "tile.shared.alloc"
    tables = [o for o in lowering.allocations if o.name == name and o.attributes.get("scratch")]
    if not tables:
        warps = -(-math.prod(lowering.group) // WARP)
        table = Value(BufferType(U32, (warps, 256)), "warp_match")
        attributes: dict[str, Attribute] = {"name": table.name, "scratch": True}
        tables = [Operation(name, (), (table,), attributes, (), node.span)]
        lowering.allocations += tables
    return lowering.builder.warp_match(value, [tables[0].result])


def ballot(lowering: Lowering, node: ast.Call) -> Value:
    condition = truth(lowering, scalar(lowering, needed(node, 0, "condition")))
    return lowering.builder.warp_ballot(condition)
