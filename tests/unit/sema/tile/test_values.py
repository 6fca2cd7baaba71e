"""What tiles are made of: tables, whole gathers, bits, shapes of other tiles, functions of numbers
that make tiles. The results are NumPy's, and `check` takes what runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.unit.sema.tile.programs import check, kernel

R = np.random.default_rng(3)
X = R.uniform(-1, 1, (21, 53)).astype(np.float32)
PLACES = R.integers(0, 9, (21, 53)).astype(np.uint8)
TABLE = R.uniform(-1, 1, 7).astype(np.float32)
ROWS = R.integers(0, 21, 30).astype(np.int32)
IN_TILES = """
@op.kernel
def k(x: f32[m, n], q: u8[m, n], table: f32[7]) -> f32[m, n]:
    y = op.empty(x.shape, f32)
    for i in op.tile_range(m, step=8):
        t = x[i:i+8, :]
        {}
        y[i:i+8, :] = u
    return y
"""


def ran(text: str, *arguments: Any) -> np.ndarray[Any, Any]:
    """The result; the module is checked first, as a build script does."""
    return np.asarray(tessera.compile(text, target="cpu").k(*arguments))


RIGHT = {
    "table": ("u = table[q[i:i+8, :]]", np.where(PLACES < 7, TABLE[PLACES % 7], 0)),
    "bits": ("u = bitcast(bitcast(t, u32) & 0x7fffffff, f32)", np.abs(X)),
    "shape of a tile": ("u = t + op.iota(t.shape, axis=1).to(f32)", X + np.arange(53)),
    "made as large": ("u = op.zeros(t.shape, f32)\n        u += t", X),
    "whole rows in a loop": ("u = t\n        for s in range(3):\n            u = u + t", X * 4),
    "sums along whole rows": ("u = op.cumsum(t, axis=1)", X.cumsum(1)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    line, right = RIGHT[name]
    found = ran(IN_TILES.format(line), X, PLACES, TABLE)
    assert np.allclose(found, right, atol=1e-5)


def test_arrays_taken_whole() -> None:
    text = "@op.kernel\ndef k(x: f32[v, n], rows: i32[m]) -> f32[m, n]:\n    return x[rows, :]\n"
    assert np.array_equal(ran(text, X, ROWS), X[ROWS])
    text = "@op.kernel\ndef k(q: u8[m, n], table: f32[7]) -> f32[m, n]:\n    return table[q]\n"
    assert np.array_equal(ran(text, PLACES, TABLE), RIGHT["table"][1])


TABLES = R.uniform(-1, 1, (3, 2, 7)).astype(np.float32)
WHICH = np.array([2, 0, 1, 5, -1], np.int32)
OF_TABLES = """
@op.kernel
def k(tables: f32[h, 2, 7], which: i32[m], q: u8[21, n], y: mut f32[m, 21, n]):
    for i in op.tile_range(m):
        y[i, :, :] = tables[{}, 1, q[:, :]]
"""


def test_one_table_of_several() -> None:
    def given(which: Any, line: str) -> tuple[Any, list[str]]:
        y = np.zeros((len(which), *PLACES.shape), np.float32)
        module = tessera.compile(OF_TABLES.format(line), target="cpu")
        try:
            module.k(TABLES, which, PLACES, y)
        except tessera.TesseraError as error:
            return y, [d.code for d in error.diagnostics]
        return y, []

    right = np.where(PLACES < 7, TABLES[WHICH[:3], 1][:, PLACES % 7], 0)
    found, codes = given(WHICH[:3], "which[i]")
    assert not codes and np.array_equal(found, right)
    found, codes = given(WHICH, "which[i]")
    assert codes == ["T0845"] and np.array_equal(found[:3], right) and not found[3:].any()
    found, codes = given(WHICH, "0")
    assert not codes and np.array_equal(found[4], np.where(PLACES < 7, TABLES[0, 1][PLACES % 7], 0))


def test_functions_of_numbers_that_make_tiles() -> None:
    text = """
def places(i, N: int):
    return i + op.iota((8, N), axis=0)

def mask(i, least, N: int):
    return places(i, N) >= least

@op.kernel
def k(x: f32[m, 16]) -> f32[m, 16]:
    y = op.empty((m, 16), f32)
    for i in op.tile_range(m, step=8):
        y[i:i+8, :] = op.where(mask(i, 5, 16), x[i:i+8, :], 0.0)
    return y
"""
    x = np.ascontiguousarray(X[:, :16])
    assert np.array_equal(ran(text, x), np.where(np.arange(21)[:, None] >= 5, x, 0))


def test_products_of_what_is_not_negative_begin_a_slice() -> None:
    text = """
@op.kernel
def k(x: f32[n]) -> f32[3]:
    y = op.zeros((3,), f32)
    part = ceil_div(n, 3)
    for s in range(3):
        for p in range(s * part, min((s + 1) * part, n), 8):
            y[s] += op.sum(x[p:min(p+8, min((s + 1) * part, n))])
    return y
"""
    x = X[0]
    right = [x[18 * s : 18 * s + 18].sum() for s in range(3)]
    assert np.allclose(ran(text, x), right, atol=1e-5)


def test_quotients_and_rests_by_sizes_are_not_negative() -> None:
    text = """
@op.kernel
def k(x: f32[m, n]) -> f32[m, n]:
    y = op.empty((m, n), f32)
    down, across = ceil_div(m, 8), ceil_div(n, 16)
    for t in range(down * across):
        i = t // across * 8
        j = t % across * 16
        y[i:i+8, j:j+16] = x[i:i+8, j:j+16] * 2.0
    return y
"""
    assert np.array_equal(ran(text, X), X * 2)


def test_a_small_array_taken_whole_is_a_tile_of_a_loop() -> None:
    text = """
@op.kernel
def k(a: f32[8, 8], x: f32[b, 8, 8]) -> f32[b, 8, 8]:
    y = op.empty((b, 8, 8), f32)
    for z in op.tile_range(b):
        v = x[z, :, :]
        for t in range(3):
            v = a @ v
        y[z, :, :] = v
    return y
"""
    a, x = X[:8, :8].copy(), R.uniform(-1, 1, (3, 8, 8)).astype(np.float32)
    assert np.allclose(ran(text, a, x), np.linalg.matrix_power(a, 3) @ x, atol=1e-4)


WRONG = {
    "table of unknown size": (
        "q: u8[m, n], t: f32[s], y: mut f32[m, n]", ("u8 m n", "f32 s", "f32 m n"),
        "for i in op.tile_range(m, step=8):\n        y[i:i+8, :] = t[q[i:i+8, :]]", "T0215"),
    "table by floats": ("q: f32[m, n], t: f32[7], y: mut f32[m, n]",
                        ("f32 m n", "f32 7", "f32 m n"), "y[:, :] = t[q]", "T0215"),
    "bits of another width": ("x: f32[n], y: mut u16[n]", ("f32 n", "u16 n"),
                              "y[:] = bitcast(x[:], u16)", "T0220"),
    "bits that are not settled": ("x: bf16[m, m], y: mut u16[m, m]", ("bf16 m m", "u16 m m"),
                                  "y[:, :] = bitcast(x @ x, u16)", "T0220"),
    "no dtype": ("x: f32[n], y: mut u32[n]", ("f32 n", "u32 n"), "y[:] = bitcast(x[:], 3)",
                 "T0218"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    parameters, arguments, body, code = WRONG[name]
    found = check(kernel(body, parameters), *arguments)
    assert found.codes == [code], found.diagnostics


SHIFTED = """
@op.kernel
def k(x: f32[n], q: i32[1]) -> f32[8]:
    acc = op.zeros((8,), f32)
    for p in range(0, n, 8):
        {}
    return acc
"""
SHOWN = (
    "if p >= 8: acc += x[p-8:p]",
    "if p > 0: acc += x[p-8:p]",  # the multiples of 8 above 0 begin with 8
    "if q[0] > 0 and 8 <= p: acc += x[p-8:p]",
    "if not p < 8: acc += x[p-8:p]",
    "if p < 8: continue\n        acc += x[p-8:p]",
)


@pytest.mark.parametrize("body", SHOWN)
def test_a_test_shows_where_a_slice_begins(body: str) -> None:
    x = np.arange(24, dtype=np.float32)
    found = ran(SHIFTED.format(body), x, np.ones(1, np.int32))
    assert np.array_equal(found, x[:8] + x[8:16])


@pytest.mark.parametrize("body", [
    "if p >= 7 - 8: acc += x[p-8:p]",
    "if p >= 8 or q[0] > 0: acc += x[p-8:p]",
    "if p >= 8: pass\n        acc += x[p-8:p]",
    "if q[0] >= 8: acc += x[p-8:p]",
    "if p >= 8:\n            a = p - 16\n            acc += x[a:a+8]",
    "if p <= 8: acc += x[p-8:p]",
])  # fmt: skip
def test_not_what_it_does_not_show(body: str) -> None:
    text = SHIFTED.format(body)
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(text, target="cpu")
    assert "T0605" in str(caught.value)


@pytest.mark.parametrize("dtypes", [("f16", "bf16"), ("f8e4m3", "bf16"), ("f64", "f32")])
def test_a_product_that_is_not_there_lists_those_that_are(dtypes: tuple[str, str]) -> None:
    a, b = dtypes
    parameters = f"x: {a}[m, m], z: {b}[m, m], y: mut f64[m, m]"
    text = kernel("y[:, :] = (x @ z).to(f64)", parameters)
    found = check(text, f"{a} m m", f"{b} m m", "f64 m m")
    assert found.codes == ["T0201"]
    assert "`bf16 @ bf16`" in found.diagnostics[0].notes[0]
