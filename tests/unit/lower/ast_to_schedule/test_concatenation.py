"""``op.flip``, ``concat``, ``stack``, ``broadcast_to``, ``eye``, ``linspace`` beside NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera_lang.driver.session import Session
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded

TARGETS = ["cpu", pytest.param("sm_90a", marks=pytest.mark.slow), GPU]
NAMES = {"float32": "f32", "float64": "f64", "float16": "f16", "int32": "i32", "uint8": "u8",
         "int64": "i64", "bool": "bool"}  # fmt: skip

WHOLE: dict[str, Any] = {
    "op.flip(x)": np.flip,
    "op.flip(x, 0)": lambda x: np.flip(x, 0),
    "op.flip(x, axis=-1)": lambda x: np.flip(x, -1),
    "op.flip(x, (0, 1)).T": lambda x: np.flip(x, (0, 1)).T,
    "op.flip(x + x, 1)": lambda x: np.flip(x + x, 1),
    "op.flip(x[1:, :], 0)": lambda x: np.flip(x[1:], 0),
    "op.flip(op.flip(x, 0), 0)": lambda x: x,
    "op.concat((x, x + x))": lambda x: np.concatenate((x, x + x)),
    "op.concat((x, x[:, 0:1], x), axis=1)": lambda x: np.concatenate((x, x[:, :1], x), 1),
    "op.concat([op.flip(x, 1), x[1:, :]], 0)":
        lambda x: np.concatenate((np.flip(x, 1), x[1:])),
    "op.concat((x.T, x.T), 1)": lambda x: np.concatenate((x.T, x.T), 1),
    "op.stack((x, x + x))": lambda x: np.stack((x, x + x)),
    "op.stack((x, x, x + x), axis=2)": lambda x: np.stack((x, x, x + x), 2),
    "op.stack((x, op.flip(x, 0)), -2)": lambda x: np.stack((x, np.flip(x, 0)), -2),
    "op.broadcast_to(x, (3, a, b))": lambda x: np.broadcast_to(x, (3, *x.shape)),
    "op.broadcast_to(x[:, 0][:, None], (a, b))": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "op.broadcast_to(x[0, :], (a, b)) + x": lambda x: x[0] + x,
}  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("text", WHOLE)
def test_whole_arrays(text: str, dtype: str, target: str) -> None:
    if dtype == "bool" and "x + x" in text or text.endswith("+ x") and dtype in ("bool", "uint8"):
        pytest.skip("no sum of these")
    kernel = f"@op.kernel\ndef k(x: {NAMES[dtype]}[a, b]):\n    return {text}\n"
    module = loaded(kernel, target)
    for shape in [(5, 7), (1, 2), (130, 67)]:
        x = np.random.default_rng(7).integers(0, 9, shape).astype(dtype)
        if x.dtype.kind == "f":
            x[0, :2], x[-1, -1], x[-1, 0] = np.nan, -np.inf, -0.0
        found, wanted = np.asarray(module.k(x)), WHOLE[text](x)
        np.testing.assert_array_equal(found, wanted)
        if x.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


HELD = """
@op.kernel
def flips(x: {T}[m, n], y: mut {T}[m, n]):
    for i in op.tile_range(m, step=4):
        t = x[i:i+4, 0:13]
        for j in range(3):
            t = op.flip(t, 1)
        y[i:i+4, 0:13] = t

@op.kernel
def all_of_it(x: {T}[m, n], y: mut {T}[m, n]):
    for i in op.tile_range(m, step=4):
        t = x[i:i+4, 0:13]
        if i >= 0: t = op.flip(t)
        y[i:i+4, 0:13] = t

@op.kernel
def joined(x: {T}[m, n], y: mut {T}[m, n]):
    for i in op.tile_range(m, step=1):
        t = x[i, 0:5]
        for j in range(1): t = op.flip(t)
        y[i, 0:13] = op.concat((x[i, 0:8], t))

@op.kernel
def pairs(x: {T}[m, n], y: mut {T}[m, 2, 4]):
    for i in op.tile_range(m, step=1):
        t, u = x[i, 0:4], x[i, 9:13]
        y[i, :, :] = op.stack((t, op.flip(u)))
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", NAMES)
def test_tiles(dtype: str, target: str) -> None:
    """Tiles that are kept, the last of which have fewer rows."""
    m = loaded(HELD.format(T=NAMES[dtype]), target)
    x = np.random.default_rng(3).integers(0, 9, (10, 13)).astype(dtype)
    if x.dtype.kind == "f":
        x[2, 3], x[4, 0], x[9, 12], x[0, 1] = np.nan, np.inf, -np.inf, -0.0
    y = np.zeros_like(x)
    m.flips(x, y)
    np.testing.assert_array_equal(y, x[:, ::-1])
    if x.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(y), np.signbit(x[:, ::-1]))
    m.all_of_it(x, y)
    wanted = np.concatenate([x[i : i + 4][::-1, ::-1] for i in (0, 4, 8)])
    np.testing.assert_array_equal(y, wanted)
    m.joined(x, y)
    np.testing.assert_array_equal(y, np.concatenate([x[:, :8], x[:, 4::-1]], 1))
    z = np.zeros((10, 2, 4), x.dtype)
    m.pairs(x, z)
    np.testing.assert_array_equal(z, np.stack([x[:, :4], x[:, 12:8:-1]], 1))


MADE: dict[str, Any] = {
    "op.eye(5)": np.eye(5, dtype=np.float32),
    "op.eye(5, 8, k=2)": np.eye(5, 8, 2, dtype=np.float32),
    "op.eye(8, 5, k=-1, dtype=i32)": np.eye(8, 5, -1, dtype=np.int32),
    "op.linspace(-1.0, 2.0, 8)": np.linspace(-1, 2, 8, dtype=np.float32),
    "op.linspace(3, 1, 1)": np.linspace(3, 1, 1, dtype=np.float32),
    "op.linspace(0.1, 0.7, 1000, dtype=f64)": np.linspace(0.1, 0.7, 1000),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", MADE)
def test_made(text: str, target: str) -> None:
    found = np.asarray(loaded(f"@op.kernel\ndef k(x: f32[n]): return {text}\n", target).k(
        np.zeros(3, np.float32)))  # fmt: skip
    wanted = MADE[text]
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=3e-7 if found.dtype == np.float32 else 1e-15)
    if found.ndim == 1 and len(found) > 1:
        assert found[-1] == wanted[-1]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("op.flip(x, 2)", "T0311"),
        ("op.concat(x)", "T0207"),
        ("op.concat((x, x[0, :]))", "T0604"),
        ("op.concat((x, x.to(i32)))", "T0206"),
        ("op.concat((x[:, 0:3], x[:, 0:4]))", "T0601"),
        ("op.stack((x[:, 0:3], x[:, 0:4]), 1)", "T0601"),
        ("op.broadcast_to(x[0:3, 0:4], (4, 4))", "T0601"),
        ("op.broadcast_to(x, (4,))", "T0604"),
        ("op.linspace(0, 1, 4, dtype=i32)", "T0207"),
        ("op.eye(4, 4, 0, 5)", "T0218"),
    ],
)
def test_bad_calls(body: str, code: str) -> None:
    text = f"@op.kernel\ndef k(x: f32[m, n]):\n    return {body}\n"
    found = Session(overlay={"k.tessera": text}).check("k.tessera", ())
    assert code in [d.code for d in found], found
