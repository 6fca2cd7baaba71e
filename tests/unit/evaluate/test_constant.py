"""Values of expressions at compile time."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera_lang.evaluate.arithmetic import convert, round_float
from tessera_lang.evaluate.constant import NotConstant, evaluate_constant
from tessera_lang.source import SourceFile
from tessera_lang.syntax import ast, parse_module
from tessera_lang.types.dtype import BF16, DTYPES, F8E4M3, F8E5M2, F16, F32, F64


def expression(text: str) -> ast.Expr:
    (statement,) = parse_module(SourceFile("c", text + "\n")).module.body
    assert isinstance(statement, ast.ExprStmt)
    return statement.value


def value(text: str, **names: object) -> object:
    return evaluate_constant(expression(text), lambda n: names[n.id])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 // -2", -4), ("-7 % 2", 1), ("7 / 2", 3.5), ("2 ** 10", 1024), ("-7 // 2", -4),
        ("ceil_div(7, -3)", -2), ("ceil_div(-6, -3)", 2), ("min(3, 2.5)", 2.5),
        ("max(1, 2, 3)", 3), ("abs(-4)", 4), ("16_KiB", 16384), ("(1, 2)[1]", 2),
        ("(128,)", (128,)), ("1 if 2 > 1 else 0", 1), ("1 < 2 < 3", True), ("not 0", True),
        ("0 or 5", 5), ("1 and 0", 0), ("f32", F32), ("f32 == f64", False), ("i8(300)", 44),
        ("u8(-1)", 255), ("f16(1e9)", math.inf), ("i32(1e20)", 2**31 - 1), ("i32(nan)", 0),
        ("'a' + 'b'", "ab"), ("~5", -6), ("1 << 40", 1 << 40), ("-8 >> 1", -4),
        ("(1 << 80) >> 70", 1024), ("True + 1", 2), ("2 in (1, 2)", True), ("None is None", True),
        ("18446744073709551615", 2**64 - 1), ("-inf", -math.inf), ("n * 2 + 1", 7),
    ],
)  # fmt: skip
def test_values(text: str, expected: object) -> None:
    found = value(text, n=3)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        "1 // 0", "1 % 0", "1 / 0", "2 ** 64", "1 << 70", "10 ** 1000000", "1 << -1", "x", "f(1)",
        "[1, 2]", "'a' - 1", "min('a', 1)", "f32('a')", "(1, 2)[2]", "abs(1, 2)", "x.y",
        "1 < 'a'", "ceil_div(1, 0)", "-9223372036854775809",
    ],
)  # fmt: skip
def test_not_constant(text: str) -> None:
    with pytest.raises(NotConstant) as caught:
        value(text)
    assert caught.value.reason


def test_a_name_may_be_shadowed() -> None:
    assert value("max", max=3) == 3


def test_a_long_left_chain() -> None:
    assert value(" + ".join(["1"] * 5000)) == 5000


def test_the_faulty_part_is_named() -> None:
    with pytest.raises(NotConstant) as caught:
        value("1 + 2 // 0 + 3")
    part = caught.value.expression
    assert (part.span.start, part.span.end) == (4, 10)


@given(st.integers(-(2**70), 2**70), st.sampled_from(["i8", "u8", "i32", "u32", "i64", "u64"]))
def test_integers_wrap(number: int, name: str) -> None:
    bits = DTYPES[name].bits
    want = number % (1 << bits)
    if name.startswith("i") and want >= 1 << (bits - 1):
        want -= 1 << bits
    assert convert(number, DTYPES[name]) == want


@given(st.floats(allow_nan=False))
def test_floats_round_to_nearest_even(number: float) -> None:
    with np.errstate(over="ignore"):
        for dtype, code in ((F32, "<f4"), (F16, "<f2")):
            want = np.float64(number).astype(code)
            assert struct.pack("<d", round_float(number, dtype)) == struct.pack("<d", float(want))
    assert round_float(number, F64) == number


@given(st.floats(-500, 500))
def test_narrow_floats_agree_with_ml_dtypes(number: float) -> None:
    import ml_dtypes

    single = float(np.float32(number))
    assert round_float(single, BF16) == float(np.float32(single).astype(ml_dtypes.bfloat16))
    if abs(single) <= 448:
        want = float(np.float32(single).astype(ml_dtypes.float8_e4m3fn))
        assert round_float(single, F8E4M3) == want
    assert round_float(single, F8E5M2) == float(np.float32(single).astype(ml_dtypes.float8_e5m2))
    assert round_float(1e6, F8E4M3) == 448 and round_float(1e6, F8E5M2) == 57344
    assert round_float(math.inf, F8E4M3) == 448 and round_float(math.inf, F8E5M2) == math.inf
