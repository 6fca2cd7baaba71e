"""Infinities and signed zeros, bit for bit: what picks or places a value does not change it.

Literals, fills, selections, roundings and extremes of every float that has the value, in lanes, in
tiles and in the library. Arithmetic is not among them: f8 saturates what is computed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera
from tests import on_device

pytest.importorskip("llvmlite")
FLOATS = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip
INFINITE = [name for name in FLOATS if name != "f8e4m3"]
PLACES = ["cpu", "as sm_80", "as sm_90", pytest.param("cuda", marks=pytest.mark.gpu)]
INF = float("inf")

TILES = """
@op.kernel
def full(x: {T}[m, n]): return op.full((2, 3), {v}, dtype={T})
@op.kernel
def full_max(x: {T}[m, n]): return op.max(op.full((2, 3), {v}, dtype={T}), axis=1)
@op.kernel
def chosen(x: {T}[m, n]): return op.where(x > 0.0, x, {v})
@op.kernel
def window(x: {T}[m, n], y: mut {T}[m, 8]): y[:, :] = op.window(x, (0, -2), (2, 8), fill={v})
@op.kernel
def stored(x: {T}[m, n], y: mut {T}[m, 8]): y[:, :] = {v}
@op.kernel
def negated(x: {T}[m, n]): return -x
@op.kernel
def absolute(x: {T}[m, n]): return op.abs(x)
@op.kernel
def transposed(x: {T}[m, n]): return x.T
"""
INFINITIES = """
@op.kernel
def greatest(x): return op.max(x, axis=1)
@op.kernel
def least(x): return op.min(x, axis=1)
@op.kernel
def greatest_of_columns(x): return op.max(x, axis=0)
@op.kernel
def least_of_all(x): return op.min(x)
@op.kernel
def clamped(x): return op.clamp(x, -2.0, inf)
@op.kernel
def floor(x): return op.floor(x)
@op.kernel
def ceil(x): return op.ceil(x)
@op.kernel
def trunc(x): return op.trunc(x)
@op.kernel
def round(x): return op.round(x)
@op.kernel
def pairs(x): return max(x, min(x, x))
"""
LANES = """
@kernel tile[(32,)] grid[(1,)]
def picked(x: {T}[2, 3], y: mut {T}[16]):
    if tile_id(0) == 0:
        y[0] = {v}
        y[1] = {T}({v})
        y[2] = x[0, 0] if x[0, 1] > 0.0 else x[0, 1]
        y[3] = {v} if x[0, 1] > 0.0 else x[0, 1]
        y[4] = -x[0, 2]
        y[5] = abs(x[0, 2])
        y[6] = math.floor(x[0, 0])
        y[7] = math.ceil(x[0, 2])
        y[8] = math.trunc(x[0, 0])
        y[9] = math.round(x[0, 2])
        y[10] = max(x[0, 0], x[0, 1])
        y[11] = min(x[0, 2], x[0, 1])
        y[12] = op.max(x[0, :])
        y[13] = op.min(x[0, :])
"""


Case = tuple[str, str, str]


def load(tmp_path: Path, text: str, place: str) -> Any:
    if place.startswith("as "):
        path = tmp_path / "kept.tessera"
        path.write_text(text, encoding="utf-8")
        return tessera.load(str(path), target="cpu", arch_as=place[3:])
    return on_device.with_layouts(tessera.compile(text, target="auto"), place)


def numbers(name: str) -> Any:
    far = INF if name in INFINITE else 400.0
    rows = [[far, 1.0, -far], [2.5, -far, -0.0]]
    return np.array(rows, np.float32).astype(FLOATS[name])


def same(found: Any, expected: Any, what: str) -> None:
    """The same bits, signs of zeros included."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype and found.shape == expected.shape, what
    assert found.tobytes() == expected.tobytes(), (what, found, expected)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("name", "value"),
    [*((n, v) for n in INFINITE for v in ("inf", "-inf")), *((n, "-0.0") for n in FLOATS)],
)
@pytest.mark.sample(1)
def test_literals_and_fills(tmp_path: Path, name: str, value: str, place: str) -> None:
    m = load(tmp_path, TILES.format(T=name, v=value), place)
    x, v = numbers(name), np.array(float(value), np.float32).astype(FLOATS[name])
    same(m.full(x), np.broadcast_to(v, (2, 3)), "full")
    same(m.full_max(x), np.broadcast_to(v, (2,)), "full_max")
    wide = x.astype(np.float64)
    same(m.chosen(x), np.where(wide > 0, wide, float(value)).astype(x.dtype), "chosen")
    y = np.zeros((2, 8), x.dtype)
    m.window(x, y)
    expected = np.full((2, 8), v)
    expected[:, 2:5] = x
    same(y, expected, "window")
    m.stored(x, y)
    same(y, np.full((2, 8), v), "stored")
    same(m.negated(x), -x, "negated")
    same(m.absolute(x), abs(x), "absolute")
    same(m.transposed(x), np.ascontiguousarray(x.T), "transposed")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", INFINITE)
@pytest.mark.sample(1)
def test_selections_keep_infinities(tmp_path: Path, name: str, place: str) -> None:
    m = load(tmp_path, INFINITIES, place)
    x = numbers(name)
    wide = x.astype(np.float64)
    for function, expected in {
        "greatest": wide.max(1), "least": wide.min(1), "greatest_of_columns": wide.max(0),
        "least_of_all": wide.min(), "clamped": wide.clip(-2.0, INF), "floor": np.floor(wide),
        "ceil": np.ceil(wide), "trunc": np.trunc(wide), "round": np.round(wide), "pairs": wide,
    }.items():  # fmt: skip
        same(getattr(m, function)(x), np.asarray(expected).astype(x.dtype), function)


@pytest.mark.parametrize("place", [p for p in PLACES if p not in ("as sm_80", "as sm_90")])
@pytest.mark.parametrize(
    ("name", "value"), [*((n, v) for n in INFINITE for v in ("inf", "-inf")), ("f8e4m3", "-0.0")]
)
@pytest.mark.sample(8)
def test_lanes(tmp_path: Path, name: str, value: str, place: str) -> None:
    m = load(tmp_path, LANES.format(T=name, v=value), place)
    x, y = numbers(name), np.zeros(16, FLOATS[name])
    m.picked(x, y)
    w, v = x.astype(np.float64), float(value)
    expected = [
        v, v, w[0, 0], v, -w[0, 2], -w[0, 2], w[0, 0], w[0, 2], w[0, 0], w[0, 2], w[0, 0],
        w[0, 2], w[0, 0], w[0, 2], 0.0, 0.0,
    ]  # fmt: skip
    same(y, np.array(expected).astype(y.dtype), "picked")


@pytest.mark.parametrize("place", [p for p in PLACES if p not in ("as sm_80", "as sm_90")])
@pytest.mark.parametrize("name", INFINITE)
@pytest.mark.parametrize("function", ["max", "min", "running_max", "running_min"])
@pytest.mark.sample(1)
def test_the_library(function: str, name: str, place: str) -> None:
    x = numbers(name)
    module = "scan" if function.startswith("running") else "reduce"
    std = on_device.with_layouts(tessera.load(f"std.{module}", target="auto"), place)
    if module == "reduce":
        for axis in (None, 0, 1):
            given = () if axis is None else (axis,)
            expected = np.asarray(getattr(x.astype(np.float64), function)(axis)).astype(x.dtype)
            same(np.asarray(getattr(std, function)(x, *given)).astype(x.dtype), expected, function)
        return
    row = np.tile(x.reshape(-1), 300)
    ufunc = np.maximum if function == "running_max" else np.minimum
    expected = ufunc.accumulate(row.astype(np.float64)).astype(x.dtype)
    same(getattr(std, function)(row), expected, function)


PICKED = """
@op.kernel
def beside_a_literal(x): return max(op.min(x, axis=0), 1.0)
@op.kernel
def selected(x): return op.where(x > 1.0, op.min(x), 2.0)
@op.kernel
def with_axes(x): return op.max(x, axis=1, keepdims=True)
@op.kernel
def in_a_loop(x: f8e5m2[4, 4]):
    found = op.full((4,), -inf, f32)
    for i in op.tile_range(4, step=1):
        found = max(found, op.max(x[i:i+1, :], axis=0))
    return f8e5m2(found)
@op.kernel
def computed(x): return op.sum(x, axis=0)
"""


@pytest.mark.parametrize("arch", ["", "sm_90a"])
def test_picked_infinities_stay_and_computed_ones_saturate(
    arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERA_ARCH_AS", arch)
    m = tessera.compile(PICKED, target="cpu")
    x = np.full((4, 4), np.inf, ml_dtypes.float8_e5m2)
    for name in ("beside_a_literal", "selected", "with_axes", "in_a_loop"):
        assert np.isposinf(np.asarray(getattr(m, name)(x)).astype(np.float32)).all(), name
    assert (np.asarray(m.computed(x)).astype(np.float32) == 57344.0).all()
