"""Forms of PTX that ptxas 13.0 turns into wrong machine code, and the same in other words.

Each was found by generated programs and seen in the machine code. Must not know Tile IR.
"""

from __future__ import annotations

import re

_ABS = re.compile(r"\babs(\.s(?:16|32|64)) *\t*(%\w+), (%\w+);")
_NEG_16 = re.compile(r"\bneg\.s16 *\t*(%\w+), (%\w+);")
_NEG_32 = re.compile(r"\b(?:neg\.s32 *\t*(%\w+), (%\w+)|mul\.lo\.s32 *\t*(%\w+), (%\w+), -1);")
_ORDER_32 = re.compile(r"\b(?:min|max)\.s32\b")
_CHOICE = re.compile(r"\bselp\.f32( *\t*%\w+), 0f(\w{8}), 0f(\w{8}), (%\w+);")
_NEGATIVE_ZERO = "80000000"


def mended(ptx: str) -> str:
    """The PTX without the forms that ptxas gets wrong.

    - ``abs`` counts as never below 0, so comparisons that the lowest number decides are dropped:
      it is the greater of two.
    - ``neg.s16`` is put behind the sign extension that follows, where the lowest number does not
      wrap: it is done in 32 bits and cut.
    - In ``min(min(a, -b), c)`` and its like, which are one instruction, the sign of ``b`` is lost:
      the negated number goes through 64 bits, which costs nothing and hides it.
    - A choice between -1.0 and -0.0 becomes a conversion of an integer, which has no -0: it is
      made between the bits.
    """
    # Most programs have none of them: to look for a word is much faster than for a form.
    if "abs.s" in ptx:
        ptx = _ABS.sub(_greater_of_two, ptx)
    if "neg.s16" in ptx:
        ptx = _NEG_16.sub(
            r"{ .reg .b32 %word; cvt.u32.u16 %word, \2; neg.s32 %word, %word;"
            r" cvt.u16.u32 \1, %word; }",
            ptx,
        )
    negates = "neg.s32" in ptx or "mul.lo.s32" in ptx
    if negates and ("min.s32" in ptx or "max.s32" in ptx) and _ORDER_32.search(ptx):
        ptx = _NEG_32.sub(_hidden_sign, ptx)
    if _NEGATIVE_ZERO in ptx and "selp.f32" in ptx:
        ptx = _CHOICE.sub(_bits_chosen, ptx)
    return ptx


def _greater_of_two(found: re.Match[str]) -> str:
    # Not in the result's register: it may be that of the operand.
    kind, to, x = found.groups()
    return (
        f"{{ .reg .b{kind[2:]} %negated; neg{kind} %negated, {x}; max{kind} {to}, %negated, {x}; }}"
    )


def _hidden_sign(found: re.Match[str]) -> str:
    to, x = (found[1], found[2]) if found[1] else (found[3], found[4])
    return (
        f"{{ .reg .b64 %wide; neg.s32 {to}, {x}; cvt.s64.s32 %wide, {to};"
        f" cvt.u32.u64 {to}, %wide; }}"
    )


def _bits_chosen(found: re.Match[str]) -> str:
    to, first, second, test = found.groups()
    if _NEGATIVE_ZERO not in (first, second):
        return found[0]
    return f"selp.b32{to}, 0x{first}, 0x{second}, {test};"
