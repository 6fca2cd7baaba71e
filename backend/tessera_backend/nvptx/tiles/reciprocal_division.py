"""Division of the elements of a tile by one number a row: a reciprocal a row, and no branch each.

``fdiv`` of f32 is seventeen instructions an element, among them a call for what is out of the
ordinary. A lane that divides many elements by one number rounds its reciprocal once, corrects each
quotient twice by what it misses, which gives the quotient rounded to nearest, and asks once whether
all was ordinary: numbers of 2**-60 to 2**60 or zeros, by a positive divisor. Else it divides anew.
Where the quotient is rounded to at most 16 bits at once, the product with the reciprocal is enough,
whatever the dividends are.
Owns that sequence. Must not know where divisors come from.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from tessera_backend.llvm.emitter import LaneEmitter, Rule
from tessera_backend.nvptx.tiles.elementwise import apply
from tessera_lang.ir.core import Operation, TileType
from tessera_lang.types.dtype import F32, U32

ROW = 4
"""Elements of a lane by one divisor from which on the sequence is shorter than divisions."""
TOGETHER = 16
"""Elements behind one question: dividends and quotients have registers until it is answered."""
_SPAN = 60
"""The exponents of ordinary numbers, up and down."""


def by_rows(general: Rule) -> Rule:
    """The rule of ``tile.div`` where lanes have several elements by one divisor."""

    def rule(e: LaneEmitter, op: Operation) -> None:
        t = op.result.type
        if not isinstance(t, TileType) or t.dtype != F32:
            general(e, op)
            return
        columns = [e.tiles[v] for v in op.operands]
        pairs = list(dict.fromkeys(zip(*columns, strict=True)))
        divisors = list(dict.fromkeys(d for _, d in pairs))
        if len(pairs) < ROW * len(divisors):
            general(e, op)
            return
        shares = {d: e.f.value(f"fdiv float 1.0, {d}") for d in divisors}
        made: dict[tuple[str, str], str] = {}
        for first in range(0, len(pairs), TOGETHER):
            some = pairs[first : first + TOGETHER]
            found = _quotients(e, some, shares, bool(op.attributes.get("rounded")))
            made.update(zip(some, found, strict=True))
        e.tiles[op.result] = tuple(made[pair] for pair in zip(*columns, strict=True))

    return rule


def _quotients(
    e: LaneEmitter, pairs: Sequence[tuple[str, str]], shares: Mapping[str, str], rounded: bool
) -> list[str]:
    f = e.f
    divisors = list(dict.fromkeys(d for _, d in pairs))
    if rounded:
        quick = [f.value(f"fmul float {x}, {shares[d]}") for x, d in pairs]
        ordinary = _all_of(e, _are_ordinary(divisors))
    else:
        quick = [_quotient(e, x, d, shares[d]) for x, d in pairs]
        ordinary = _ordinary(e, [x for x, _ in pairs], divisors)
    slow, join = f.label("divide"), f.label("divided")
    start = f.block
    f.branch_if(ordinary, join, slow)
    f.place(slow)
    exact = [f.value(f"fdiv float {x}, {d}") for x, d in pairs]
    end = f.block
    f.place(join)
    return [
        f.value(f"phi float [ {a}, %{start} ], [ {b}, %{end} ]")
        for a, b in zip(quick, exact, strict=True)
    ]


def _quotient(e: LaneEmitter, x: str, divisor: str, share: str) -> str:
    """Twice less what is too much; signs so that a zero keeps its own."""
    less, back = e.f.value(f"fneg float {x}"), e.f.value(f"fneg float {share}")
    found = e.f.value(f"fmul float {x}, {share}")
    for _ in range(2):
        found = apply(e, "tile.fma", F32, apply(e, "tile.fma", F32, divisor, found, less), back,
                      found)  # fmt: skip
    return found


def _ordinary(e: LaneEmitter, dividends: Sequence[str], divisors: Sequence[str]) -> str:
    """Whether no step loses bits: a zero less one is the greatest number without a sign, and a
    NaN makes the sum of magnitudes one."""
    f = e.f
    low, total = "", ""
    for x in dict.fromkeys(dividends):
        bits = f.value(f"bitcast float {x} to i32")
        above = f.value(f"add i32 {f.value(f'shl i32 {bits}, 1')}, -1")
        low = apply(e, "tile.min", U32, low, above) if low else above
        size = apply(e, "tile.abs", F32, x)
        total = f.value(f"fadd float {total}, {size}") if total else size
    (bits,) = struct.unpack("<I", struct.pack("<f", 2.0**-_SPAN))
    tests = [f"icmp uge i32 {low}, {2 * bits - 1}", f"fcmp olt float {total}, {_MOST}"]
    return _all_of(e, [*tests, *_are_ordinary(divisors)])


def _are_ordinary(divisors: Sequence[str]) -> list[str]:
    """Tests of divisors, two each."""
    return [
        f"fcmp {test} float {divisor}, {end}"
        for divisor in divisors for test, end in (("ole", _MOST), ("oge", _LEAST))
    ]  # fmt: skip


def _all_of(e: LaneEmitter, tests: Sequence[str]) -> str:
    found = ""
    for test in tests:
        true = e.f.value(test)
        found = e.f.value(f"and i1 {found}, {true}") if found else true
    return found


def _literal(number: float) -> str:
    """A float as LLVM writes it: the bits of a double."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", number))
    return f"0x{bits:016X}"


_MOST, _LEAST = _literal(2.0**_SPAN), _literal(2.0**-_SPAN)
