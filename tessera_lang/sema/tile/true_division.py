"""``a / b`` of integers in tile kernels: a quotient of floats, as in Python.

Owns which floats: of counts those that the quotient meets, of other integers f64, which holds them.
Must not know how operands meet.
"""

from __future__ import annotations

from tessera_lang.record import replace
from tessera_lang.sema.inference_types import Term
from tessera_lang.sema.literals import settle
from tessera_lang.sema.operators import Operand, quotient_of_counts
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.fits_narrow_index import is_count
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F64, I32, INDEX
from tessera_lang.types.type import Scalar, Tile, Weak


def are_integers(operands: list[Operand]) -> bool:
    """Whether all operands are integers, and not all literals."""
    whole = (
        isinstance(o.term, Weak) and o.term.kind == "int"
        or isinstance(o.term, (Scalar, Tile)) and o.term.dtype.is_integer
        for o in operands
    )  # fmt: skip
    return all(whole) and any(isinstance(o.term, (Scalar, Tile)) for o in operands)


def are_counts(c: TileContext, operands: list[Operand]) -> bool:
    return all(
        isinstance(o.term, Weak)
        or o.term == Scalar(INDEX) and c.is_size(o.e)
        or isinstance(o.term, (Scalar, Tile)) and o.term.dtype in (INDEX, I32)
        and is_count(c, o.e)
        for o in operands
    )  # fmt: skip


def in_f64(operands: list[Operand]) -> list[Operand]:
    """Integers as what the quotient computes with."""
    return [
        Operand(o.e, replace(o.term, dtype=F64)) if isinstance(o.term, (Scalar, Tile)) else o
        for o in operands
    ]  # fmt: skip


def of_numbers(c: TileContext, e: ast.Binary, operands: list[Operand]) -> Term:
    """The quotient of two numbers."""
    if not are_counts(c, operands):
        for o in operands:
            if isinstance(o.term, Scalar):
                c.coerce(o.e, F64)
            else:
                settle(c, o.e, o.term, F64)
        return Scalar(F64)
    return quotient_of_counts(c, e, operands)
