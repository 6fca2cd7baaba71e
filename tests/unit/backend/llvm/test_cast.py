"""Conversions: exhaustive where the source has 8 or 16 bits, special values elsewhere."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tessera_backend.llvm.types import decode, encode

from tessera_lang.types.dtype import (
    BF16,
    BOOL,
    DTYPES,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F64,
    DType,
    integer_range,
)
from tests.quick_code import optimized_of
from tests.unit.backend.tile_kernels import NUMPY, map_kernel, map_kernels

Array = np.ndarray[Any, Any]
FLOATS = [F16, BF16, F32, F64, F8E4M3, F8E5M2]
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def every(dtype: DType) -> Array:
    """All values of a narrow dtype, special and random ones of a wide one."""
    kind = NUMPY[dtype.name]
    if dtype == BOOL:
        return np.array([False, True])
    if dtype.bits <= 16:
        return np.arange(1 << dtype.bits, dtype=BITS[dtype.bytes]).view(kind)
    generator = np.random.default_rng(5)
    if dtype.is_float:
        bits = generator.integers(0, 1 << 63, 3000, dtype=np.uint64).astype(BITS[dtype.bytes])
        scaled = generator.standard_normal(6000) * np.exp2(generator.integers(-30, 66, 6000))
        edges = [
            s * (2.0**e + d) for e in range(64) for d in (-1, -0.5, 0, 0.5, 1) for s in (1, -1)
        ]
        ties = [s * (1 + m / 512) * 2.0**e for m in range(512) for e in (-16, -9, -7, 0, 7, 8, 15)
                for s in (1, -1)]  # fmt: skip
        special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-300, 1e300, 448, 464, 57344, 61440]
        with np.errstate(all="ignore"):
            return np.concatenate(
                [bits.view(kind), np.concatenate([scaled, edges, ties, special]).astype(kind)]
            )
    low, high = integer_range(dtype)
    powers = [s * (2**e + d) for e in range(65) for d in (-1, 0, 1) for s in (1, -1)]
    halves = [(2**24 + 1) << e for e in range(40)] + [((1 << 9) + 1) << e for e in range(55)]
    some = {v for v in (*powers, *halves, 257, 259, 511, -259, low, high) if low <= v <= high}
    random = generator.integers(-(2**62), 2**62, 2000) >> generator.integers(0, 62, 2000)
    values = [*sorted(some), *(v for v in random.tolist() if low <= v <= high)]
    return np.array(values, kind)


def expected(values: Array, source: DType, to: DType) -> list[float | int | bool]:
    """Language section 10, value by value."""
    return [convert(value, source, to) for value in values.tolist()]


def convert(value: Any, source: DType, to: DType) -> Any:
    if to == BOOL:
        return value != 0
    if to.is_float:
        if source.is_integer or source == BOOL:
            return decode(round_integer(int(value), to), to)
        number = float(value)
        if to.is_float8 and math.isinf(number):  # a conversion saturates, as a literal does not
            number = math.copysign(to.largest, number)
        return decode(encode(number, to), to)
    low, high = integer_range(to)
    if source.is_float:
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return high if value > 0 else low
        return max(low, min(high, math.trunc(value)))
    value = int(value) & ((1 << to.bits) - 1)
    return value - (1 << to.bits) if to.is_signed and value >> (to.bits - 1) else value


def round_integer(value: int, to: DType) -> int:
    """Bits of the nearest float of an integer that a double may not hold."""
    magnitude, keep = abs(value), 50
    extra = max(0, magnitude.bit_length() - keep)
    if to != F64 and extra:
        sticky = magnitude & ((1 << extra) - 1) != 0
        magnitude = ((magnitude >> extra) | sticky) << extra
    return encode(math.copysign(float(magnitude), value) if value else 0.0, to)


PAIRS = [(a, b) for a in DTYPES.values() for b in DTYPES.values() if a != b]


@pytest.mark.parametrize("source", optimized_of(DTYPES.values(), BOOL, F32), ids=str)
@pytest.mark.sample(2)
def test_cast(source: DType) -> None:
    values = every(source)
    targets = [d for d in DTYPES.values() if d != source]
    run = map_kernels([source], targets, lambda b, v: [b.cast(v[0], to) for to in targets])
    for to, got in zip(targets, run(values), strict=True):
        wanted = np.array(expected(values, source, to), object)
        if to.is_float:
            g, w = got.astype(np.float64), wanted.astype(np.float64)
            np.testing.assert_array_equal(np.isnan(g), np.isnan(w), err_msg=f"{source} {to}")
            keep = ~np.isnan(w)
            np.testing.assert_array_equal(g[keep], w[keep], err_msg=f"{source} {to}")
            np.testing.assert_array_equal(np.signbit(g[keep]), np.signbit(w[keep]))
        else:
            wrong = np.nonzero(got != wanted.astype(got.dtype))[0]
            assert not wrong.size, (str(source), str(to), values[wrong[:3]], got[wrong[:3]])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_encode_agrees_with_ml_dtypes(dtype: DType) -> None:
    values = every(F64)
    with np.errstate(all="ignore"):
        wanted = values.astype(NUMPY[dtype.name]).astype(np.float64)
    if dtype.bits == 8:
        largest = float(ml_dtypes.finfo(NUMPY[dtype.name]).max)
        kept = np.isnan(values) | (np.isinf(values) & bool(dtype.infinite))
        wanted = np.where(kept, values, np.clip(values, -largest, largest))
        wanted = wanted.astype(NUMPY[dtype.name]).astype(np.float64)
    got = np.array([decode(encode(v, dtype), dtype) for v in values.tolist()])
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.sample(3)
def test_constants(dtype: DType) -> None:
    for value in (0.0, -0.0, 1.0, 0.1, -3.3, 448.0, 1e-3, 65504.0, 1e30, math.nan):
        run = map_kernel([dtype], dtype, lambda b, v, c=value: b.constant(c, dtype))
        got = float(run(np.zeros(1))[0])
        wanted = decode(encode(value, dtype), dtype)
        assert (math.isnan(got) and math.isnan(wanted)) or (
            got == wanted and math.copysign(1, got) == math.copysign(1, wanted)
        )


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d != BOOL], ids=str)
def test_bitcast(dtype: DType) -> None:
    values = every(dtype)
    for to in DTYPES.values():
        if to.bits == dtype.bits and to != dtype:
            got = map_kernel([dtype], to, lambda b, v, t=to: b.bitcast(v[0], t))(values)
            assert got.tobytes() == values.tobytes()
