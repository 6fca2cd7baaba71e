"""Integers of any signs, bools and numbers that an array could not hold are compared exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import TARGETS, agree, assembled, results_of

GIVEN: dict[str, Any] = {
    "u": np.array([0, 1, 200, 255], np.uint8), "i": np.array([-56, 1, 127, -1], np.int8),
    "w": np.array([-56, 1, 200, 2**31 - 1], np.int32), "b": np.array([True, False, True, True]),
    "q": np.array([2**64 - 56, 1, 200, 2**63], np.uint64), "k": np.array([-56, 1, 200, 2**40]),
    "v": np.array([2**32 - 56, 1, 200, 0], np.uint32), "f": np.array([1, 2, 4, 8], np.float32),
}  # fmt: skip
NUMBERS = [
    "u == 300", "u != -1", "300 > u", "u <= 255", "-1 < u", "u >= 256", "i < 200", "-129 <= i",
    "q > -1", "q == -1", "q != -56", "-1 > q", "v == -56", "w < 2 ** 40", "b == 1", "1 != b",
    "b > 0",
    "b == 2", "b >= 1", "-1 < b", "b == True", "op.isin(u, [300, 1])", "op.isin(q, [1, -1])",
    "op.sum(u > -1)", "op.equal(u, 300)", "300 in u", "op.where(u == 300, f, -f)",
]  # fmt: skip
PAIRS = [
    f"{a} {sign} {b}" for a, b in ("iu", "ui", "uw", "wv", "iq", "qw", "kq", "qk", "vk")
    for sign in ("==", "!=", "<", "<=", ">", ">=")
]  # fmt: skip
FORMS = [
    "op.any(i[:, None] == u, axis=1)", "op.sum(w[:, None] < q, axis=0)", "op.isin(i, u)",
    "op.isin(w, q)", "op.where(v > w, f, 0.0)", "op.count_nonzero(u[:, None] != w[None, :])",
]  # fmt: skip


RUN = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def _wanted(form: str) -> Any:
    return eval(form, {"op": np, **GIVEN})


@pytest.mark.parametrize("form", NUMBERS)
def test_numbers_in_the_host_program(form: str) -> None:
    text = f"def f({', '.join(GIVEN)}):\n    return {form}\n"
    found = np.asarray(tessera.compile(text, target="cpu").f(*GIVEN.values()))
    np.testing.assert_array_equal(found, _wanted(form))


@pytest.mark.parametrize("form", [n for n in NUMBERS if n[0] in "ub31-q" and "op." not in n
                                  and " in " not in n])  # fmt: skip
def test_numbers_in_graphs(form: str) -> None:
    names = ", ".join(GIVEN)
    text = f"def f({names}):\n    return op.sum(op.where({form}, f, 3.0 * f))\n"
    module = tessera.compile(text + "g = grad(f, 'f')\n", target="cpu")
    found = module.g(*GIVEN.values())
    np.testing.assert_array_equal(np.asarray(found), np.where(_wanted(form), 1, 3))


@pytest.mark.parametrize("target", RUN)
def test_numbers_in_kernels(target: str) -> None:
    forms = [n for n in NUMBERS if " in " not in n and "isin" not in n]
    head = "u: u8[n], i: i8[n], q: u64[n], v: u32[n], w: i32[n], b: bool[n], f: f32[n]"
    text = f"@op.kernel\ndef k({head}):\n    return {', '.join(forms)}\n"
    names = [p.split(":")[0] for p in head.split(", ")]
    found = tessera.compile(text, target=target).k(*(GIVEN[n] for n in names))
    for form, got in zip(forms, found, strict=True):
        np.testing.assert_array_equal(np.asarray(got), _wanted(form), err_msg=form)


@pytest.mark.parametrize("target", RUN)
def test_numbers_in_lanes(target: str) -> None:
    forms = [n for n in NUMBERS if "op." not in n and " in " not in n and n != "b == True"]
    names = ("u", "i", "q", "v", "w", "b")
    lanes = [" ".join(f"{p}[t]" if p in names else p for p in n.split()) for n in forms]
    body = "".join(f"        if {n}: y[{i}, t] = 1\n" for i, n in enumerate(lanes))
    text = (
        "@kernel tile[(32,)] grid[(1,)]\ndef k(u: u8[n], i: i8[n], q: u64[n], v: u32[n],"
        " w: i32[n], b: bool[n], y: mut i32[m, n]):\n"
        f"    t = tile_id(0)\n    if t < n:\n{body}"
    )
    y = np.zeros((len(forms), 4), np.int32)
    tessera.compile(text, target=target).k(*(GIVEN[n] for n in names), y)
    tessera.synchronize()
    for form, got in zip(forms, y, strict=True):
        np.testing.assert_array_equal(got, _wanted(form), err_msg=form)


def _kernel(pairs: list[str]) -> str:
    return f"return {', '.join(pairs)}"


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "sm_90a"])
@pytest.mark.parametrize("at", range(0, len(PAIRS), 6))
def test_arrays_of_two_signs_in_kernels(at: int, target: str) -> None:
    pairs = PAIRS[at : at + 6]
    agree(results_of(_kernel(pairs), GIVEN, target), tuple(map(_wanted, pairs)))


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "sm_90a"])
@pytest.mark.parametrize("form", FORMS)
def test_pairs_of_all_in_kernels(form: str, target: str) -> None:
    found = np.asarray(results_of(form, GIVEN, target))
    np.testing.assert_array_equal(found, _wanted(form))


def test_the_code_for_devices_is_taken() -> None:
    assembled(
        _kernel([PAIRS[i] for i in (2, 26, 32, 40)] + ["u == 300", "q > -1", "b == 1"]), GIVEN
    )
