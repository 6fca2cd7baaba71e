"""Forms of plain NumPy in kernels: bits of counts, casts of floats as counts, lists among arrays
that are joined, and masks beside numbers and slices."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests import on_device
from tests.cases.test_scratch_arrays import TARGETS, module_for

BITS = ("(k + r) & 1", "(k + 1) >> r", "k >> 1", "3 & k", "k | r", "k ^ 5", "(k + r) << 2",
        "~k & 3", "-(k >> 1)", "~(k ^ r)", "(k - 3) >> 1",
        "(k * r) % 4 + (k & 2) // 2")  # fmt: skip
FLOATS = ("v - op.floor(v).astype(int)", "v * op.minimum(op.floor(v).astype(int), n - 2)",
          "op.floor(v).astype(int) * 0.5 + v", "v - op.trunc(v).astype(i64) % 3",
          "v + op.minimum(op.floor(v).astype(int) + 1, 7)", "v * ((op.arange(n) >> 1) & 1)",
          "v < op.round(v).astype(int)")  # fmt: skip
JOINED = {
    "first": "op.concatenate([[0], op.cumsum(w)])", "element": "op.concatenate([w[1:], [w[0]]])",
    "floats": "op.concatenate(([0.5, 1.0], v, [2]))",
    "number": "op.concatenate([[s], w, (s + 1, 3)])",
    "rows": "op.concatenate([A, [[1.0, 2.0, 3.0]]])", "hstack": "op.hstack([[0.0], v])",
    "stack": "op.stack([[1.0, 2.0, 3.0, 4.0], v[:4]])",
}  # fmt: skip
MASKS = {
    "column": "A[w == 1, 2] = 5\nA[w == 2, 0] += 1", "other": "A[w == 0, 0] *= A[w == 0, 1]",
    "slice": "A[w == 1, 0:2] = 5\nA[w == 2, :] -= 1\nA[w == 0, 1:] = A[w == 0, 1:] * 2",
    "loop": "for k in range(3):\n    A[w == k, k] += 1\n    A[w != k, k] = 2.0 * d[w != k]",
    "row": "A[1, A[1] > 0] = 7\nA[2:, A[0] < 0] = 8",
    "several": "B[1, A > 0] = 0\nB[B[:, :, 0] < 0.5, 1] = 3",
    "whole": "A[w == 1] = 5\nA[A > 2] *= 0.5",
}  # fmt: skip


def _given() -> dict[str, Any]:
    random = np.random.default_rng(4)
    A = random.normal(size=(6, 3))
    return {
        "v": random.uniform(0, 5, 6).astype(np.float32), "w": random.integers(0, 3, 6),
        "A": A, "d": A[:, 0] + 1.0, "B": np.stack([A, 2 * A]), "s": 4,
    }  # fmt: skip


def _kernel(body: str) -> tuple[str, list[Any]]:
    given = _given()
    names = [n for n in given if re.search(rf"\b{n}\b", body)]
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return f"def f({', '.join(names)}):\n    n = len({names[0]})\n{lines}", [
        given[n] for n in names
    ]


def _compare(body: str, target: str, dtypes: bool = False) -> None:
    text, given = _kernel(body)
    names: dict[str, Any] = {"op": np, "i64": np.int64}
    exec(text, names)
    theirs = [g.copy() if isinstance(g, np.ndarray) else g for g in given]
    want = names["f"](*theirs)
    found = on_device.call(module_for(target, f"@op.kernel\n{text}").f, given, target)
    results = () if want is None else ((found, want),)
    for got, right in (*results, *zip(given, theirs, strict=True)):
        mine, other = np.asarray(got), np.asarray(right)
        assert mine.shape == other.shape
        np.testing.assert_allclose(mine.astype(float), other.astype(float), 1e-5, 1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", BITS)
@pytest.mark.sample(8)
def test_bits_of_counts_go_into_narrow_integers(form: str, target: str) -> None:
    text = (
        "def f(H, J):\n    for r in range(3):\n        for k in range(7):\n"
        f"            H[r, k] = {form}\n    g(J)\n"
    )
    rows = f"def g(J):\n    k = op.arange(7)\n    for r in range(3):\n        J[r] += {form}\n"
    want, got = ([np.zeros((3, 7), np.int32) for _ in range(2)] for _ in range(2))
    names: dict[str, Any] = {"op": np}
    exec(rows + text, names)
    names["f"](*want)
    kernel = text.replace("f(H, J)", "f(H: mut i32[3, 7], J: mut i32[3, 7])")
    on_device.call(module_for(target, f"{rows}\n@op.kernel\n{kernel}").f, got, target)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("form", ["k << r << 30", "(k * 300) & 1023", "k ^ 200", "-k | 1"])
def test_bits_that_may_not_fit_are_refused(form: str) -> None:
    text = (
        "@op.kernel\ndef f(H: mut i8[70]):\n    for r in range(3):\n        for k in range(70):\n"
    )
    with pytest.raises(tessera.TesseraError, match="T0208"):
        tessera.compile(f"{text}            H[k] = {form}\n", target="cpu").f(np.zeros(70, np.int8))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", FLOATS)
@pytest.mark.sample(6)
def test_floats_that_were_cast_are_counts(form: str, target: str) -> None:
    _compare(f"return {form}", target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", JOINED)
@pytest.mark.sample(6)
def test_lists_among_arrays(form: str, target: str) -> None:
    _compare(f"return {JOINED[form]}", target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", MASKS)
@pytest.mark.sample(6)
def test_masks_beside_other_indices(form: str, target: str) -> None:
    _compare(MASKS[form], target)


WRAPS = {
    "a = 0\n    for k in range(n):\n        a = (a + x[k]) % 65521\n    return a": "a + i32(x[k])",
    "return (x + x) * 300": "i32(x) + i32(x)",
    "return (x - p * 2) % 1000": "i32(x) - (i32(p) * 2)",
}


@pytest.mark.parametrize("body", WRAPS)
def test_what_is_told_to_convert_is_what_would_wrap(body: str) -> None:
    text = f"@op.kernel\ndef f(x: u8[n], p: u8):\n    {body}\n"
    with pytest.raises(tessera.TesseraError, match="T0202") as caught:
        tessera.compile(text, target="cpu").f(np.ones(3, np.uint8), 3)
    assert f"`{WRAPS[body]}`" in str(caught.value)


NUMBERS = {"k & 1": "(k & 1) != 0", "k": "k != 0", "k % 3": "k % 3 != 0",
           "k if k > 1 else 2": "(k if k > 1 else 2) != 0"}  # fmt: skip


@pytest.mark.parametrize("test", NUMBERS)
def test_a_number_as_a_condition_is_told_how_it_is_compared(test: str) -> None:
    text = "@op.kernel\ndef f(x: mut i64[n]):\n    for k in range(n):\n        if {}:\n"
    text += "            x[k] = 1\n"
    with pytest.raises(tessera.TesseraError, match="T0205") as caught:
        tessera.compile(text.format(test), target="cpu").f(np.zeros(9, np.int64))
    assert f"`{NUMBERS[test]}`" in str(caught.value)
    x = np.zeros(9, np.int64)
    tessera.compile(text.format(NUMBERS[test]), target="cpu").f(x)
    np.testing.assert_array_equal(x, [bool(eval(test, {"k": k})) for k in range(9)])


EXCHANGED = "a[:], b[:] = b.copy(), a.copy()"
BUFFERS = """def f(x, steps):
    a = x.copy()
    b = op.zeros_like(x)
    for t in range(steps):
        b[1:-1] = 0.5 * (a[:-2] + a[2:])
        {}
    return a
"""
LABELS = """def f(h: mut f64[n, m], lab: i64[n]):
    {}
"""


def test_buffers_that_change_places_are_told_how_their_elements_do() -> None:
    text = f"@op.kernel\n{BUFFERS}"
    x = np.arange(7.0) ** 2
    with pytest.raises(tessera.TesseraError, match="T0609") as caught:
        tessera.compile(text.format("a, b = b, a"), target="cpu").f(x, 3)
    assert f"`{EXCHANGED}`" in str(caught.value)
    names: dict[str, Any] = {"op": np}
    exec(BUFFERS.format("a, b = b, a"), names)
    got = tessera.compile(text.format(EXCHANGED), target="cpu").f(x, 3)
    np.testing.assert_allclose(np.asarray(got), names["f"](x, 3))


def test_places_side_by_side_are_stored_into() -> None:
    text = f"@op.kernel\n{LABELS}"
    lab = np.array([0, 3, 1, 2, 1, 0])
    want, h = np.zeros((6, 4)), np.zeros((6, 4))
    want[np.arange(6), lab] = 1
    tessera.compile(text.format("h[op.arange(n), lab] = 1"), target="cpu").f(h, lab)
    np.testing.assert_array_equal(h, want)
