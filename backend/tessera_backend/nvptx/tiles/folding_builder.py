"""Integer arithmetic of the emitter: what is known folds, what is not becomes an instruction.

Must not know what the numbers stand for.
"""

from __future__ import annotations

from tessera_backend.llvm.emitter import LaneEmitter

Number = int | str
"""A number known now, or an operand (i64)."""


def number(operand: str) -> Number:
    """An operand as a number, where its text is one."""
    return int(operand) if operand.removeprefix("-").isdigit() else operand


def product(e: LaneEmitter, a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if 0 in (a, b):
        return 0
    if a == 1:
        return b
    if b == 1:
        return a
    return e.f.value(f"mul nsw i64 {a}, {b}")


def total(e: LaneEmitter, a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0:
        return b
    if b == 0:
        return a
    return e.f.value(f"add nsw i64 {a}, {b}")


def widened(e: LaneEmitter, operand: str) -> Number:
    """A coordinate (i32, "" for 0) as a number of 64 bits."""
    if not operand:
        return 0
    if operand.isdigit():
        return int(operand)
    return e.f.value(f"zext nneg i32 {operand} to i64")
