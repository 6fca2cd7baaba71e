"""What begins as a literal and is returned: of the dtype that the result is declared with."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tessera_lang as tessera
from tests.cases.test_scratch_arrays import module_for
from tests.numpy_style import GPU, agree

TARGETS = ["cpu", "sm_90a", GPU]
X = np.arange(1.0, 6.0)
HEAD = "@op.kernel\ndef f(x: f64[n], u: u8[n]) -> {}:\n"
LOOP = "    e, steps = 1.0, 0\n    while e > 0.1:\n        e *= 0.5\n        steps += 1\n"
COUNTS = {
    ("i32", LOOP, "steps"): np.int32(4),
    ("i64", LOOP, "steps"): np.int64(4),
    ("u32", LOOP, "steps"): np.uint32(4),
    ("i32", LOOP, "steps + 1"): np.int32(5),
    ("i32", LOOP, "-steps * 2"): np.int32(-8),
    ("i32", "    a = 0\n    b = a\n    while a + b < 10:\n        a += 1\n        b += a\n", "b"):
        np.int32(10),
    ("i32", "    a = -1\n    for i in range(n):\n        if x[i] > 2.5:\n            a = i\n", "a"):
        np.int32(4),
    ("f64", f"{LOOP}    z = x[0] / 3.0 * x[2]\n", "z * steps"): np.float64(4.0),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", COUNTS)
def test_counts(case: tuple[str, str, str], target: str) -> None:
    dtype, body, e = case
    text = f"{HEAD.format(dtype)}{body}    return {e}\n"
    if dtype == "f64":
        text = text.replace("* steps", "* steps.to(f64)")
    agree(module_for(target, text).f(X, X.astype(np.uint8)), COUNTS[case])


HELPS = {
    ("i64", "op.sum(u)"): 15, ("i32", "x[0] + 1.0"): 2, ("u8", "op.sum(u)"): 15,
    ("i32", "x.to(f32)[0]"): 1, ("i32[n]", "x * 2"): X * 2,
    ("i32[n]", "op.cumsum(u)"): np.cumsum(X), ("i64[n]", "op.cumsum(u)"): np.cumsum(X),
    ("f32", "x[1]"): 2,
}  # fmt: skip


@pytest.mark.parametrize("case", HELPS)
def test_each_result_of_another_dtype_has_a_help_that_works(case: tuple[str, str]) -> None:
    declared, e = case
    text = f"{HEAD.format(declared)}    return {e}\n"
    arguments = X, X.astype(np.uint8)
    with pytest.raises(tessera.TesseraError) as raised:
        tessera.compile(text, target="cpu").f(*arguments)
    assert "T0208" in str(raised.value)
    found = re.search(r"help: convert it: `(.*)`", str(raised.value))
    assert found is not None
    made = tessera.compile(text.replace(f"return {e}", f"return {found[1]}"), target="cpu")
    dtype = {"f": "float", "i": "int", "u": "uint"}[declared[0]] + declared[1:].split("[")[0]
    agree(made.f(*arguments), np.asarray(HELPS[case]).astype(dtype))


@pytest.mark.parametrize(("declared", "e"), [("(i32, i32)", "1"), ("i32", "1, 2")])
def test_another_number_of_results(declared: str, e: str) -> None:
    with pytest.raises(tessera.TesseraError, match=r"help: declare .*, or return"):
        tessera.compile(f"{HEAD.format(declared)}    return {e}\n", target="cpu")
