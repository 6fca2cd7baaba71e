"""Python's own functions in the host program, constants of a file, and numbers divided by zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tests.cases.test_host_edges import TARGETS, value

V = [3.0, 1.0, 2.5]
SAME = {
    "sum([3.0, 1.0, 2.5])": sum(V), "sum([1, 2], 10)": 13, "sum([])": 0,
    "sorted([3.0, 1.0, 2.5])": sorted(V), "sorted(('b', 'a'))": ["a", "b"],
    "sorted([3.0, 1.0, 2.5], reverse=True)": sorted(V, reverse=True),
    "sorted([3, -4, 1], key=lambda v: abs(v))": [1, 3, -4],
    "list(range(3))": [0, 1, 2], "tuple([1, 2])": (1, 2), "list()": [],
    "list(reversed([1, 2, 3]))": [3, 2, 1],
    "list(zip([1, 2], (3.0, 4.0, 5.0)))": [(1, 3.0), (2, 4.0)],
    "list(enumerate([5, 6], start=1))": [(1, 5), (2, 6)], "dict_of()": {1: 5},
    "round(2.5)": 2, "round(3.14159, 2)": 3.14, "round(-0.5)": 0,
    "divmod(7, -2)": divmod(7, -2), "pow(2, 10)": 1024, "pow(4.0, 0.5)": 2.0,
    "any([v > 2.0 for v in [3.0, 1.0]])": True, "all([v > 2.0 for v in [3.0, 1.0]])": False,
    "any([])": False, "all([])": True, "sum(op.arange(5))": 10,
    "[sum(v) for v in [[1, 2], [3]]]": [3, 3], "list(op.arange(3))": [0, 1, 2],
    "max(sorted([2, 7, 1]))": 7,
}  # fmt: skip


@pytest.mark.parametrize("expression", SAME)
@pytest.mark.parametrize("target", TARGETS)
def test_functions_of_python(expression: str, target: Any) -> None:
    text = f"""
def dict_of():
    return {{1: 5}}

def f():
    return {expression}
"""
    m: Any = tessera.compile(text, target=target)
    found = m.f()
    want = SAME[expression]
    want = tuple(want) if isinstance(want, list) else want  # lists come out as tuples
    assert found == want and type(found) is type(want)


@pytest.mark.parametrize("target", TARGETS)
def test_a_sum_of_rows_is_an_array(target: Any) -> None:
    text = "def f(x):\n    return sum(x), sum([x[0], x[1]]), divmod(x, 2.0), round(x)\n"
    m: Any = tessera.compile(text, target=target)
    x = np.array([[1.5, 2.0, -0.5], [0.5, 1.0, 7.0]], np.float32)
    whole, listed, (q, r), near = m.f(x)
    np.testing.assert_array_equal(whole, x.sum(0))
    np.testing.assert_array_equal(listed, x.sum(0))
    np.testing.assert_array_equal(q, x // 2)
    np.testing.assert_array_equal(r, x % 2)
    np.testing.assert_array_equal(near, np.round(x))


WRONG = {
    "sum(1)": "an integer cannot be gone through", "sorted([1, 'a'])": "`<` does not take",
    "round('a')": "`round` does not take a string", "sum()": "lacks",
    "sorted([[1], ['a']])": "have no order",
}  # fmt: skip


@pytest.mark.parametrize("expression", WRONG)
def test_what_has_no_value_is_said(expression: str) -> None:
    with pytest.raises(tessera.TesseraError, match=WRONG[expression]):
        value(expression)


DIVIDED = [
    "1.0 / 0.0", "-1.0 / 0.0", "0.0 / 0.0", "1 / 0.0", "2.0 / 0", "1.0 / -0.0", "nan / 0.0",
    "inf / 0.0", "1.0 // 0.0", "-1.0 // 0.0", "0.0 // 0", "1.0 % 0.0", "math.log(0.0)",
]  # fmt: skip


@pytest.mark.parametrize("expression", DIVIDED)
def test_floats_divided_by_zero_are_as_in_arrays(expression: str) -> None:
    names = {"inf": np.float64("inf"), "nan": np.float64("nan"), "math": np}
    wide = expression.replace("math.log(0.0)", "math.log(np.float64(0.0))")
    for number in ("-1.0", "1.0", "0.0", "2.0", "1 "):
        if wide.startswith(number):
            wide = f"np.float64({number}){wide[len(number) :]}"
    with np.errstate(all="ignore"):
        want = eval(wide, {"np": np, **names})
    np.testing.assert_equal(value(expression), float(want))


def test_integers_divided_by_zero_have_no_value() -> None:
    for expression in ("1 / 0", "1 // 0", "1 % 0"):
        with pytest.raises(tessera.TesseraError, match="division by zero"):
            value(expression)


CONSTANTS = """
import math
SIGMA, RHO, BETA = 10.0, 28.0, 8.0 / 3.0
SHAPE = (2, 3)
ROWS, COLUMNS = SHAPE
(A, B), C = (1.0, 2.0), 4.0
ROOT = math.sqrt(2.0)
HALF = math.floor(math.pow(ROOT, 3.0) + ROWS) / 8.0

@op.kernel
def f(x: f32[n]):
    return x * SIGMA + RHO * BETA - A * B * C + ROOT * ROWS - COLUMNS + HALF

def host():
    return SIGMA, RHO, BETA, ROWS, COLUMNS, A, B, C, ROOT, HALF
"""


@pytest.mark.parametrize("target", TARGETS)
def test_constants_of_a_file(target: Any) -> None:
    m: Any = tessera.compile(CONSTANTS, target=target)
    sigma, rho, beta, (rows, columns), root = 10.0, 28.0, 8.0 / 3.0, (2, 3), math.sqrt(2.0)
    half = math.floor(root**3 + rows) / 8.0
    assert m.host() == (sigma, rho, beta, rows, columns, 1.0, 2.0, 4.0, root, half)
    x = np.linspace(0.0, 1.0, 7, dtype=np.float32)
    want = x * sigma + rho * beta - 8.0 + root * rows - columns + half
    np.testing.assert_allclose(m.f(x), want, 1e-6)


def test_names_that_change_are_no_constants() -> None:
    text = "A, B = 1.0, 2.0\nA = 3.0\n@op.kernel\ndef f(x):\n    return x * A\n"
    with pytest.raises(tessera.TesseraError, match="`A`"):
        tessera.compile(text, target="cpu").f(np.ones(3, np.float32))


TEXTS = {
    'chr(97 + k) + chr(98)': lambda k: chr(97 + k) + chr(98),
    'ord("a") + k': lambda k: ord("a") + k,
    '"".join(["#" if c > 1 else "." for c in (1, k, 3)])': lambda k: "".join(
        ["#" if c > 1 else "." for c in (1, k, 3)]
    ),
    '", ".join([str(k), "b"])': lambda k: ", ".join([str(k), "b"]),
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text: str) -> None:
    module: Any = tessera.compile(f"def f(k):\n    return {text}\n", target="cpu")
    for k in (2, 0):
        assert module.f(k) == TEXTS[text](k)


@pytest.mark.parametrize("text", ["chr(-1)", 'ord("ab")', "ord(k)", '"".join([k])'])
def test_texts_of_something_else(text: str) -> None:
    with pytest.raises(tessera.TesseraError, match="T08"):
        tessera.compile(f"def f(k):\n    return {text}\n", target="cpu").f(3)


def test_texts_are_checked_before_they_are_known() -> None:
    """`check` runs the program without values: what a loop over an array gives is not known."""
    text = (
        'b = op.ones((2, 3))\nfor row in b:\n    print("".join(["#" if c else "." for c in row]))\n'
    )
    assert not Session(overlay={"h.tessera": text}).check("h.tessera")
