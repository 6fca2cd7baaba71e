"""What the host program is told to write about operands that do not meet is right."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest
from tessera_backend.runtime.host_environment import HostWorld

from tessera_lang.driver.fixes import edited
from tessera_lang.driver.session import Session
from tessera_lang.evaluate.fault import HostFault
from tests.spec.test_fixes import PATH, found_in, printed

DTYPES = ["bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64"]
MIX = """
x = op.cast(op.arange(6, dtype=i32), {a})
y = op.cast(op.arange(1, 7, dtype=i32), {b})
print({value})
"""


def told(source: str) -> str:
    """The first help of what goes wrong when a program runs; empty: nothing does."""
    session = Session()
    session.set_text(PATH, source, 1)
    try:
        session.run(PATH, HostWorld(session, "cpu", lambda _: None))
    except HostFault as error:
        return error.diagnostics[0].helps[0]
    return ""


@pytest.mark.parametrize(("a", "b"), [*combinations(DTYPES, 2)])
def test_the_conversion_that_is_named(a: str, b: str) -> None:
    for first, second in ((a, b), (b, a)):
        source = MIX.format(a=first, b=second, value="op.sum((x + y).to(f64))")
        help = told(source)
        if not help:
            continue
        found = re.fullmatch(r"convert the (left|right) operand: `(\.to\(\w+\))`(;.*)?", help)
        assert found is not None
        assert found[2] != f".to({first if found[1] == 'left' else second})", help
        old = "x + y"
        new = f"x{found[2]} + y" if found[1] == "left" else f"x + y{found[2]}"
        right = source.replace(old, new)
        assert not [d for d in found_in(right) if d.severity == "error"]
        lowest = [np.arange(6) != 0 if first == "bool" else np.arange(6),
                  np.arange(1, 7) != 0 if second == "bool" else np.arange(1, 7)]  # fmt: skip
        assert float(printed(right)[0]) == float(sum(np.sum(v) for v in lowest))


@pytest.mark.parametrize(
    ("dtype", "number"),
    [("u8", "300"), ("u8", "-1"), ("i32", "5000000000"), ("u32", "-1"), ("i16", "-40000"),
     ("i16", "70000")],
)  # fmt: skip
def test_the_conversion_for_a_number(dtype: str, number: str) -> None:
    source = MIX.format(a=dtype, b="i32", value=f"op.sum((x + {number}).to(f64))")
    found = re.fullmatch(r"convert the array first: `(\.to\((\w+)\))`", told(source))
    assert found is not None
    assert found[2] != dtype
    right = source.replace("x +", f"x{found[1]} +")
    assert float(printed(right)[0]) == 15 + 6 * float(number)


RANKS = {
    "x - op.mean(x, axis=1)": "x - op.mean(x, axis=1)[:, None]",
    "x - op.max(x, -1)": "x - op.max(x, -1)[:, None]",
    "op.sum(x, axis=1) + x": "op.sum(x, axis=1)[:, None] + x",
    "x - op.mean(x, axis=1) * 2.0": "x - (op.mean(x, axis=1) * 2.0)[:, None]",
    "z - op.min(z, axis=1)": "z - op.min(z, axis=1)[:, None, :]",
    "z - op.min(z, axis=(1, 2))": "z - op.min(z, axis=(1, 2))[:, None, None]",
    "w - u": "w - u[:, None]",
    "w > u": "w > u[:, None]",
}


@pytest.mark.parametrize("value", RANKS)
def test_the_axes_that_are_missing(value: str) -> None:
    source = f"""
x = op.reshape(op.cast(op.arange(15, dtype=i32), f32), (3, 5))
z = op.reshape(op.cast(op.arange(24, dtype=i32), f32), (3, 4, 2))
w = op.reshape(op.cast(op.arange(12, dtype=i32), f32), (3, 4))
u = op.cast(op.arange(3, dtype=i32), f32)
r = {value}
print(op.sum(op.cast(r, f32)))
"""
    (d,) = found_in(source)
    (fix,) = d.fixes
    right = edited(source, fix.edits)
    assert f"r = {RANKS[value]}\n" in right
    assert not found_in(right)
    assert printed(right)


def test_an_array_of_two_squares_says_both() -> None:
    source = "x = op.zeros((3, 3, 4), dtype=f32)\nv = op.zeros((3,), dtype=f32)\nprint(x - v)\n"
    (d,) = found_in(source)
    assert not d.fixes
    assert "`v[None, :, None]`, the same along axes 0 and 2" in d.helps[0]
    assert "`v[:, None, None]`, the same along axes 1 and 2" in d.helps[0]


SORTS = {
    "op.topk(x, 3)": ("std.topk", "std.topk.topk(x, 3)"),
    "op.topk(x, 3, axis=0)": ("std.topk", "std.topk.topk(x, 3, axis=0)"),
    "op.topk(x, 2, largest=False)": ("std.topk", "std.topk.topk(x, 2, largest=False)"),
    "op.sort(x)": ("std.sort", "std.sort.sort(x)"),
    "op.argsort(x)": ("std.sort", "std.sort.argsort(x)"),
}


@pytest.mark.parametrize("call", SORTS)
@pytest.mark.sample(1)
def test_what_sorts_long_lines(call: str) -> None:
    module, written = SORTS[call]
    source = f"x = op.cast(op.arange(9000, dtype=i32), f32)\nr = {call}\nprint(1)\n"
    help = told(source)
    assert f"`import {module}`" in help
    assert f"`{written}`" in help
    right = f"import {module}\n{source.replace(call, written)}"
    assert printed(right) == ["1"]


@pytest.mark.parametrize(("columns", "axis"), [(2, 1), (2, -1), (4, 0)])
def test_more_elements_than_an_axis_has(columns: int, axis: int) -> None:
    source = f"x = op.zeros((2, {columns}), dtype=f32)\nv, p = op.topk(x, 3, axis={axis})\n"
    assert told(source) == "`k` is from 1 to 2"


@pytest.mark.parametrize("use", ["a, b = f(x)", "for v in f(x):\n    print(v)"])
def test_a_function_without_return(use: str) -> None:
    source = "def f(x):\n    y = (op.sum(x), op.max(x))\n\n\nx = op.ones((4,), dtype=f32)\n"
    (d,) = found_in(f"{source}{use}\n")
    assert "`return`" in d.helps[0]
    right = source.replace("op.max(x))\n", "op.max(x))\n    return y\n")
    assert not found_in(f"{right}{use}\n")


@pytest.mark.parametrize("groups", ["1, 2, 3, 4", "(1, 1, 1, 1)", "1, 1, 1, 1, 1"])
def test_a_grid_of_too_many_axes(groups: str) -> None:
    source = """
@kernel tile[(32,)]
def k(out: mut f32[n]):
    i = lane_id()
    if i < n: out[i] = 1.0


out = op.zeros((4,), dtype=f32)
"""
    (d,) = found_in(f"{source}k[{groups}](out)\n")
    assert d.code == "T0839"
    assert "at most 3 axes" in d.message
    assert not found_in(f"{source}k[1, 1, 1](out)\n")
