"""Every pair of dtypes: which meet, in what, and that the order does not matter (B44)."""

from __future__ import annotations

import itertools

import pytest

from tests.unit.sema.program import check, kernel

NAMES = (
    "bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "index", "f16", "bf16", "f32",
    "f64", "f8e4m3", "f8e5m2",
)  # fmt: skip
SIGNED = ("i8", "i16", "i32", "i64", "index")
UNSIGNED = ("u8", "u16", "u32", "u64", "index")
INTEGERS = (*SIGNED, *UNSIGNED)
HELD = {"f16": ("i8", "u8"), "bf16": ("i8", "u8"), "f32": ("i16", "u16")}


def meeting(a: str, b: str) -> str | None:
    """The written table: the dtype of ``a + b``, or None where a cast is asked for."""
    if "bool" in (a, b):  # 0 and 1 of the other; two bools are no numbers
        return None if a == b else b if a == "bool" else a
    if a == b:
        return a
    for chain in (SIGNED, UNSIGNED):
        if a in chain and b in chain:
            return chain[max(chain.index(a), chain.index(b))]
    floats = {x for x in (a, b) if x[0] in "fb" and x != "bool"}
    for one, other in ((a, b), (b, a)):
        if one in INTEGERS and other in floats:  # which have all of them; f64 rounds as in NumPy
            narrow = one in (*HELD["f16"], *(HELD["f32"] if other == "f32" else ()))
            return other if other == "f64" or narrow and other in HELD else None
    small = ("f16", "bf16", "f8e4m3", "f8e5m2", "f32")
    return "f32" if "f32" in (a, b) and a in small and b in small else None


def comparable(a: str, b: str) -> bool:
    if "bool" in (a, b):
        return a == b
    return (a in INTEGERS and b in INTEGERS) or meeting(a, b) is not None


@pytest.mark.parametrize(
    ("a", "b"), list(itertools.combinations_with_replacement(NAMES, 2)), ids=str
)
@pytest.mark.sample(82)
def test_pair(a: str, b: str) -> None:
    parameters = f"x: {a}[n], y: {b}[n], out: mut u8[n]"
    for left, right in (("x[i]", "y[i]"), ("y[i]", "x[i]")):
        p = check(kernel(f"z = {left} + {right}", parameters))
        expected = meeting(a, b)
        if expected is None:
            assert p.codes == ["T0206" if a == b == "bool" else "T0201"]
        else:
            assert p.codes == [] and p.variable("k", "z") == expected
        p = check(kernel(f"z = {left} == {right}", parameters))
        assert (p.codes == []) == comparable(a, b)
