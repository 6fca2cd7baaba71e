"""Where the elements of a register tile are: the coordinates that a lane adds to its registers'.

Owns the split of a coordinate into a part of the lane and warp (at run time) and a part of the
register (a constant), with the bits that the first can have. Must not know memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_backend.llvm.emitter import LaneEmitter
from tessera_backend.nvptx.lanes.target_hooks import WARP, NvptxDialect
from tessera_lang.ir.layout import Mode, RegisterLayout
from tessera_lang.record import dataclass

ALL_BITS = -1


@dataclass(frozen=True, slots=True)
class Term:
    """``operand * factor`` (i32) along an axis; ``bits``: those the operand may have set."""

    axis: int
    operand: str
    factor: int
    bits: int


def dialect_of(e: LaneEmitter) -> NvptxDialect:
    assert isinstance(e.dialect, NvptxDialect)
    return e.dialect


def lane_in_warp(e: LaneEmitter) -> str:
    linear = e.f.value(f"trunc i64 {e.dialect.lane_linear(e)} to i32")
    return e.f.value(f"and i32 {linear}, {WARP - 1}")


def _digits(e: LaneEmitter, number: str, modes: Sequence[Mode]) -> list[tuple[str, Mode]]:
    """The digits of a number (i32) for modes that move; the last one needs no remainder."""
    f, out, before = e.f, list[tuple[str, Mode]](), 1
    for index, mode in enumerate(modes):
        if mode.extent > 1 and mode.axis is not None:
            digit = number if before == 1 else f.value(f"udiv i32 {number}, {before}")
            if any(m.extent > 1 for m in modes[index + 1 :]):
                digit = f.value(f"urem i32 {digit}, {mode.extent}")
            out.append((digit, mode))
        before *= mode.extent
    return out


def terms_of(e: LaneEmitter, layout: RegisterLayout) -> list[Term]:
    """What lane and warp add to the coordinates of a layout."""
    return [*lane_terms(e, layout.lanes), *warp_terms(e, layout.warps)]


def lane_terms(e: LaneEmitter, modes: Sequence[Mode]) -> list[Term]:
    if all(m.axis is None for m in modes):
        return []
    return _terms(_digits(e, lane_in_warp(e), modes))


def warp_terms(e: LaneEmitter, modes: Sequence[Mode]) -> list[Term]:
    if all(m.axis is None or m.extent == 1 for m in modes):
        return []
    return _terms(_digits(e, dialect_of(e).role_warp(e), modes))


def _terms(found: Sequence[tuple[str, Mode]]) -> list[Term]:
    return [
        Term(m.axis, digit, m.stride, bits_below(m.extent))
        for digit, m in found
        if m.axis is not None
    ]


def bits_below(count: int) -> int:
    """Bits that a number below ``count`` may have set."""
    return (1 << (count - 1).bit_length()) - 1


def sum_of(e: LaneEmitter, terms: Sequence[Term], scale: int = 1) -> str:
    """The sum of terms times ``scale``, an i32 operand; "" for none."""
    total = ""
    for term in terms:
        factor = term.factor * scale
        scaled = term.operand
        if factor != 1:
            scaled = e.f.value(f"mul nsw i32 {term.operand}, {factor}")
        total = e.f.value(f"add nsw i32 {total}, {scaled}") if total else scaled
    return total


def bases(e: LaneEmitter, layout: RegisterLayout, rank: int) -> list[str]:
    """Per axis the coordinate (i32) of register 0 of this lane; "" for 0."""
    terms = terms_of(e, layout)
    return [sum_of(e, [t for t in terms if t.axis == axis]) for axis in range(rank)]


def plus(e: LaneEmitter, base: str, constant: int) -> str:
    """``base + constant`` in i32, where "" is 0."""
    if not base:
        return str(constant)
    return e.f.value(f"add nsw i32 {base}, {constant}") if constant else base


def below(e: LaneEmitter, constant: int, base: str, limit: str) -> str:
    """Whether ``base + constant`` is less than a limit (i32). All registers of a lane ask for what
    lies between its first one and the limit: a constant each, where sums would take a register."""
    rest = e.f.value(f"sub i32 {limit}, {base}") if base else limit
    return e.f.value(f"icmp slt i32 {constant}, {rest}")


def first_copy(e: LaneEmitter, layout: RegisterLayout) -> str:
    """An i1 operand that is true in the one lane that holds the first copy of its elements; ""
    where there are no copies."""
    tests: list[str] = []
    for modes, number in ((layout.lanes, "lane"), (layout.warps, "warp")):
        before = 1
        for mode in modes:
            if mode.axis is None and mode.extent > 1:
                whole = lane_in_warp(e) if number == "lane" else dialect_of(e).role_warp(e)
                digit = e.f.value(f"udiv i32 {whole}, {before}")
                digit = e.f.value(f"urem i32 {digit}, {mode.extent}")
                tests.append(e.f.value(f"icmp eq i32 {digit}, 0"))
            before *= mode.extent
    return conjunction(e, tests)


def conjunction(e: LaneEmitter, tests: Sequence[str]) -> str:
    """All of the i1 operands that are not ""."""
    found = ""
    for test in tests:
        if test:
            found = e.f.value(f"and i1 {found}, {test}") if found else test
    return found
