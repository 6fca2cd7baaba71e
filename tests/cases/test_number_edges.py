"""Numbers at the edges of their types where they cross into the language: one rounding,
saturation, and what is out of range.

Kinds int and float: a number that is rounded twice is wrong in the last place only where the first
rounding makes a tie, so each of these numbers lies beside a tie.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.opt.tile.constant_evaluation import round_exact
from tessera_lang.types.dtype import DTYPES, DType

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
FLOATS: dict[str, Any] = {
    "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip
KERNELS = """
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def lanes[S: dtype, T: dtype](x: S[n], out: mut T[n]):
    i = grid_tile_linear_id()
    if i < n: out[i] = T(x[i])

@op.kernel
def tiles[T: dtype](x):
    return x.to(T)

def host(x, T): return op.cast(x, T)

@kernel tile[(1,)] grid[(1,)]
def scalar[T: dtype](x: T, out: mut T[1]):
    out[0] = x
"""


def beside_ties(dtype: DType) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Numbers half between two of the dtype, a little more and a little less."""
    r = np.random.default_rng(0)
    digits = dtype.mantissa - 1
    half = r.integers(2**digits, 2 ** (digits + 1), 60) + 0.5
    away = [half + d for d in (0, 2.0**-19, -(2.0**-19), 2.0**-27, -(2.0**-27))]
    scale = 2.0 ** (r.integers(-6, 7, 60) - digits)
    x = np.concatenate([a * scale for a in away])
    return np.concatenate([x, -x])


def integers_beside_ties(dtype: DType) -> np.ndarray[Any, np.dtype[np.int64]]:
    if dtype.exponent < 8:  # f16 and f8 end before an integer of them needs two roundings
        return np.arange(-(2**17), 2**17, 173, dtype=np.int64)
    r = np.random.default_rng(1)
    heads = r.integers(2 ** (dtype.mantissa - 1), 2**dtype.mantissa, 40)
    x = [int(h) * 2**s + 2 ** (s - 1) + d for h in heads for s in (20, 36) for d in (0, 1, -1)]
    return np.array([*x, *(-v for v in x), 2**63 - 1, -(2**63), 0, 1], np.int64)


def rounded(x: Any, dtype: DType) -> list[float]:
    return [round_exact(Fraction(v), dtype) for v in x.tolist()]


@pytest.mark.sample(10)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", ["f64", "i64"])
@pytest.mark.parametrize("name", FLOATS)
def test_a_cast_rounds_once(name: str, source: str, target: str) -> None:
    dtype = DTYPES[name]
    x = beside_ties(dtype) if source == "f64" else integers_beside_ties(dtype)
    want = rounded(x, dtype)
    m: Any = tessera.compile(KERNELS, target=target)
    out = np.zeros(len(x), FLOATS[name])
    m.lanes(x, out)
    for found in (out, m.tiles(x, T=name), m.host(x, name)):
        assert np.asarray(found).astype(np.float64).tolist() == want


@pytest.mark.parametrize("name", FLOATS)
def test_a_number_of_python_rounds_once(name: str) -> None:
    m: Any = tessera.compile(KERNELS, target="cpu")
    dtype, out = DTYPES[name], np.zeros(1, FLOATS[name])
    whole = [v for v in integers_beside_ties(dtype).tolist() if abs(v) < 400 or dtype.exponent >= 8]
    for v in [*beside_ties(dtype).tolist()[::7], *whole[::7]]:
        m.scalar(v, out, T=name)
        assert float(out[0]) == round_exact(Fraction(v), dtype), v


@pytest.mark.parametrize("name", [*FLOATS, "f64", "i64", "u8"])
@pytest.mark.parametrize("digits", [30, 400, 6000])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_huge_integer_is_refused_in_few_words(name: str, digits: int, sign: int) -> None:
    """An integer of Python has no bound; a float made of it raises, and so does its text."""
    m: Any = tessera.compile(KERNELS, target="cpu")
    value = sign * 10**digits
    out = np.zeros(1, {**FLOATS, "f64": np.float64, "i64": np.int64, "u8": np.uint8}[name])
    if digits == 30 and name in ("f32", "bf16", "f64"):
        m.scalar(value, out, T=name)
        assert float(out[0]) == round_exact(Fraction(value), DTYPES[name])
        return
    with pytest.raises(tessera.TesseraError) as caught:
        m.scalar(value, out, T=name)
    (found,) = caught.value.diagnostics
    assert found.code == "T0843" and len(found.message) < 200


def test_the_largest_numbers_are_taken() -> None:
    m: Any = tessera.compile(KERNELS, target="cpu")
    for name, dtype in {**FLOATS, "f64": np.float64}.items():
        largest = float(cast("Any", ml_dtypes.finfo)(dtype).max)
        out = np.zeros(1, dtype)
        m.scalar(largest, out, T=name)
        assert float(out[0]) == largest
    out = np.zeros(1)
    m.scalar(int(sys.float_info.max), out, T="f64")
    assert out[0] == sys.float_info.max


@pytest.mark.parametrize("text", ["1e400", "-1e309", "9" * 400 + ".0", "1e99999999999999999999"])
@pytest.mark.parametrize("where", ["x = {}\n", KERNELS + "X = {}\n"])
def test_a_literal_beyond_every_float_is_an_error(text: str, where: str) -> None:
    """As one beyond f32 is; infinity is written `inf`."""
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile("\n" + where.format(text), target="cpu")
    assert caught.value.diagnostics[0].code == "T0012" and "`inf`" in str(caught.value)


@pytest.mark.parametrize("text", [
    "def f(out: mut f32[{}]): pass", "def f(out: mut f32[n]) where n < {}: pass",
    "def f(x: f32[n], out: mut f32[n * {}]): pass",
])  # fmt: skip
def test_a_size_beyond_64_bits_is_an_error(text: str) -> None:
    """It was a fault of ours (T0901)."""
    source = "@kernel tile[(1,)] grid[(1,)]\n" + text.format("9" * 20) + "\n"
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(source, target="cpu")
    assert all(d.code in ("T0303", "T0313", "T0222") for d in caught.value.diagnostics)


@pytest.mark.parametrize("digits", [30, 6000])
@pytest.mark.parametrize("kind", ["int", "bool", "str", "dtype"])
def test_a_compile_time_value_has_64_bits(kind: str, digits: int) -> None:
    source = (
        f"@kernel tile[(1,)] grid[(1,)]\ndef f[B: {kind}](out: mut f32[1]):\n    out[0] = 1.0\n"
    )
    m: Any = tessera.compile(source, target="cpu")
    with pytest.raises(tessera.TesseraError) as caught:
        m.f(np.zeros(1, np.float32), B=10**digits)
    assert caught.value.diagnostics[0].code == "T0850"


@pytest.mark.parametrize("given", [
    "bf16", np.dtype(ml_dtypes.bfloat16), ml_dtypes.bfloat16,
])  # fmt: skip
def test_a_dtype_of_numpy_is_a_dtype(given: Any) -> None:
    m: Any = tessera.compile(
        "@kernel tile[(1,)] grid[(1,)]\ndef f[T: dtype](out: mut f32[1]):\n"
        "    out[0] = f32(T(1.001))\n",
        target="cpu",
    )
    out = np.zeros(1, np.float32)
    m.f(out, T=given)
    assert out[0] == 1
    for wrong in (np.complex64, "f33", float, np.dtype("M8[s]"), 3, None):
        with pytest.raises(tessera.TesseraError, match="T0850"):
            m.f(out, T=wrong)
