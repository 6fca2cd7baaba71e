"""Section 10 of the language word by word, on both targets: all pairs of 8 bits, all numbers of 16.

The same kernels run on the CPU and on a GPU; each is compared with a table in
Python or NumPy, so the targets agree with each other too. Any NaN is as good as another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import DTYPES, TARGETS

WHERE: Callable[..., Any] = np.where
LARGEST = {"f8e4m3": 448.0, "f8e5m2": 57344.0}


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def mapped(
    target: str, expressions: dict[str, str], given: dict[str, tuple[str, Any]]
) -> dict[str, Any]:
    """What each expression (its dtype by ``name: dtype``) is of the arrays, element by element."""
    names = {f"o{k}": key for k, key in enumerate(expressions)}
    inputs = ", ".join(f"{n}: {t}[n]" for n, (t, _) in given.items())
    outputs = ", ".join(f"{o}: mut {key.split(':')[-1]}[n]" for o, key in names.items())
    body = "".join(f"            {o}[i] = {expressions[key]}\n" for o, key in names.items())
    text = (
        f"@kernel tile[(128,)] grid[(64,)]\ndef k({inputs}, {outputs}):\n"
        "    for j in range(0, n, grid_tile_count()):\n"
        "        i = j + grid_tile_linear_id()\n        if i < n:\n" + body
    )
    size = len(next(iter(given.values()))[1])
    made = [np.zeros(size, DTYPES[key.split(":")[-1]]) for key in expressions]
    kernel = tessera.compile(text, target=target).k
    arrays = [np.ascontiguousarray(a) for _, a in given.values()]
    try:
        kernel(*arrays, *made)
        tessera.synchronize()
    except tessera.TesseraError as fault:  # divisions by zero give 0 and are reported
        assert "divides by zero" in str(fault)
    return dict(zip(expressions, made, strict=True))


def same(found: Any, wanted: Any, what: object) -> None:
    """Equal bit for bit but for NaN."""
    a, b = np.asarray(found), np.asarray(wanted)
    assert a.dtype == b.dtype, what
    if a.dtype.kind in "fV":
        with np.errstate(invalid="ignore"):
            x, y = a.astype(np.float64), b.astype(np.float64)
        bits = np.dtype(f"u{a.itemsize}")
        wrong = (np.isnan(x) != np.isnan(y)) | ((a.view(bits) != b.view(bits)) & ~np.isnan(y))
    else:
        wrong = a != b
    at = np.nonzero(wrong)[0][:3]
    assert not wrong.any(), (what, at, a[at], b[at])


def pairs(dtype: str) -> tuple[Any, Any]:
    every = np.arange(256, dtype=np.uint8)
    a, b = np.meshgrid(every, every, indexing="ij")
    return a.ravel().view(DTYPES[dtype]), b.ravel().view(DTYPES[dtype])


def shifted(a: int, count: int, left: bool, dtype: str) -> int:
    count = count if 0 <= count < 8 else 8
    return (a << count if count < 8 else 0) if left else a >> count


INTEGER: dict[str, Callable[[int, int], int]] = {
    "x[i] + y[i]": lambda a, b: a + b, "x[i] - y[i]": lambda a, b: a - b,
    "x[i] * y[i]": lambda a, b: a * b, "x[i] // y[i]": lambda a, b: a // b if b else 0,
    "x[i] % y[i]": lambda a, b: a % b if b else 0, "x[i] & y[i]": lambda a, b: a & b,
    "x[i] | y[i]": lambda a, b: a | b, "x[i] ^ y[i]": lambda a, b: a ^ b,
    "x[i] << y[i]": lambda a, b: shifted(a, b, True, ""),
    "x[i] >> y[i]": lambda a, b: shifted(a, b, False, ""),
    "min(x[i], y[i])": min, "max(x[i], y[i])": max,
    "ceil_div(x[i], y[i])": lambda a, b: -(-a // b) if b else 0,
    "-x[i]": lambda a, b: -a, "~x[i]": lambda a, b: ~a, "abs(x[i])": lambda a, b: abs(a),
}  # fmt: skip
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "x[i] == y[i]": np.equal,
    "x[i] != y[i]": np.not_equal,
    "x[i] < y[i]": np.less,
    "x[i] <= y[i]": np.less_equal,
    "x[i] > y[i]": np.greater,
    "x[i] >= y[i]": np.greater_equal,
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_all_pairs_of_8_bit_integers(dtype: str, target: str) -> None:
    a, b = pairs(dtype)
    expressions = {f"{e}:{dtype}": e for e in INTEGER} | {f"{e}:bool": e for e in COMPARED}
    found = mapped(target, expressions, {"x": (dtype, a), "y": (dtype, b)})
    for e, meaning in INTEGER.items():
        exact = [meaning(x, y) & 255 for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        same(found[f"{e}:{dtype}"], np.array(exact, np.uint8).view(DTYPES[dtype]), e)
    for e, meaning in COMPARED.items():
        same(found[f"{e}:bool"], meaning(a, b), e)


def test_comparisons_of_signs_are_exact(target: str) -> None:
    a, b = pairs("i8")
    b = b.view(np.uint8)
    found = mapped(target, {f"{e}:bool": e for e in COMPARED}, {"x": ("i8", a), "y": ("u8", b)})
    for e, meaning in COMPARED.items():
        same(found[f"{e}:bool"], meaning(a.astype(np.int32), b.astype(np.int32)), e)


def rounded(x: Any, dtype: str) -> Any:
    """From wide floats; f8 saturates."""
    most = LARGEST.get(dtype)
    kept: Any = x if most is None else WHERE(np.isnan(x), x, np.clip(x, -most, most))
    with np.errstate(all="ignore"):
        return kept.astype(DTYPES[dtype])


FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "x[i] + y[i]": np.add,
    "x[i] - y[i]": np.subtract,
    "x[i] * y[i]": np.multiply,
    "x[i] / y[i]": np.divide,
}


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2"])
def test_all_pairs_of_8_bit_floats(dtype: str, target: str) -> None:
    a, b = pairs(dtype)
    expressions = {f"{e}:{dtype}": e for e in FLOAT} | {f"{e}:bool": e for e in COMPARED}
    expressions |= {f"{m}:{dtype}": f"{m}(x[i], y[i])" for m in ("min", "max")}
    found = mapped(target, expressions, {"x": (dtype, a), "y": (dtype, b)})
    x, y = a.astype(np.float32), b.astype(np.float32)
    with np.errstate(all="ignore"):
        for e, meaning in FLOAT.items():
            same(found[f"{e}:{dtype}"], rounded(meaning(x, y), dtype), e)
        for e, meaning in COMPARED.items():
            same(found[f"{e}:bool"], meaning(x, y), e)
        for name, first in (("min", x < y), ("max", x > y)):
            low = np.signbit(x) if name == "min" else ~np.signbit(x)
            pick = np.isnan(x) | (~np.isnan(y) & (first | ((x == y) & low)))
            bits: Any = WHERE(pick, a.view(np.uint8), b.view(np.uint8))
            same(found[f"{name}:{dtype}"], bits.view(DTYPES[dtype]), name)


UNARY: dict[str, Callable[[Any], Any]] = {
    "-x[i]": np.negative,
    "abs(x[i])": np.abs,
    "math.sqrt(x[i])": np.sqrt,
    "math.floor(x[i])": np.floor,
    "math.ceil(x[i])": np.ceil,
    "math.trunc(x[i])": np.trunc,
    "math.round(x[i])": np.round,
    "x[i] * x[i]": lambda x: x * x,
    "x[i] + x[i]": lambda x: x + x,
}


COMPUTED = ("math.sqrt(x[i])", "x[i] * x[i]", "x[i] + x[i]")


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3", "f8e5m2"])
def test_every_number_through_every_unary_operation(dtype: str, target: str) -> None:
    kind = DTYPES[dtype]
    x = np.arange(1 << (8 * kind.itemsize), dtype=np.dtype(f"u{kind.itemsize}")).view(kind)
    found = mapped(target, {f"{e}:{dtype}": e for e in UNARY}, {"x": (dtype, x)})
    with np.errstate(all="ignore"):
        wide = x.astype(np.float32)
        for e, meaning in UNARY.items():
            exact = rounded(meaning(wide), dtype)
            if dtype in LARGEST and e not in COMPUTED:  # an infinity stays
                exact = meaning(wide).astype(kind)
            same(found[f"{e}:{dtype}"], exact, e)


CONVERTED = ["bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32",
             "f64", "f8e4m3", "f8e5m2"]  # fmt: skip


@pytest.mark.parametrize("source", ["bool", "i8", "u8", "i16", "u16", "f16", "bf16", "f8e4m3",
                                    "f8e5m2"])  # fmt: skip
@pytest.mark.sample(5)
def test_every_number_to_every_dtype(source: str, target: str) -> None:
    kind = DTYPES[source]
    if source == "bool":
        x: Any = np.array([False, True])
    else:
        x = np.arange(1 << (8 * kind.itemsize), dtype=np.dtype(f"u{kind.itemsize}")).view(kind)
    others = [d for d in CONVERTED if d != source]
    found = mapped(target, {f":{d}": f"{d}(x[i])" for d in others}, {"x": (source, x)})
    for d in others:
        same(found[f":{d}"], converted(x, d), (source, d))


def converted(x: Any, dtype: str) -> Any:
    kind = DTYPES[dtype]
    is_float = x.dtype.kind in "fV"
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64) if is_float else x.astype(np.int64)
    if dtype == "bool":
        return wide != 0
    if kind.kind in "fV":
        return rounded(wide.astype(np.float64), dtype)
    if not is_float:
        return wide.astype(kind)  # wraps
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    exact = [0 if math.isnan(v) else high if v == math.inf else low if v == -math.inf
             else max(low, min(high, math.trunc(v))) for v in wide.tolist()]  # fmt: skip
    return np.array(exact, kind)
