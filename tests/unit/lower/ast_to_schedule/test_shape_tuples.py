"""Shapes made of shapes, in tile kernels and in the host program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera_lang.driver.session import Session
from tessera_lang.types.dtype import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U32, widest
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded

TARGETS = ["cpu", GPU]
SHAPES = (
    "x.shape[:2]", "x.shape[1:]", "x.shape[:-1]", "x.shape[-2:]", "x.shape[0:1] + (4,)",
    "x.shape[::2]", "x.shape[::-1]", "(2,) + x.shape", "x.shape[:1] + (2, 5) + x.shape[2:]",
    "(x.shape[0] + 1,) + x.shape[1:]", "y.shape + y.shape", "(x + x).shape[1:]",
)  # fmt: skip


@pytest.mark.sample
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("function", ["op.zeros({}, f32)", "op.full({}, 2.0)",
                                      "op.iota({}, axis=0)"])  # fmt: skip
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape: str, function: str, target: str) -> None:
    text = f"@op.kernel\ndef k(x: f32[a, b, c], y: f32[d]):\n    return {function.format(shape)}\n"
    x, y = np.ones((2, 3, 4), np.float32), np.ones(7, np.float32)
    wanted = eval(shape, {"x": x, "y": y})
    assert np.shape(loaded(text, target).k(x, y)) == wanted


VIEWS = """
@op.kernel
def k(x: f32[a, b, c], y: f32[d]):
    z = op.reshape(y, x.shape[:2]) + 1.0
    return z, op.broadcast_to(z, (2,) + z.shape), op.tile(z, z.shape[:0] + (1, 2))

def host(x, y):
    return op.reshape(y, x.shape[:2]), op.zeros((2,) + x.shape[1:], f32)
"""


@pytest.mark.parametrize("target", TARGETS)
def test_views(target: str) -> None:
    m = loaded(VIEWS, target)
    x, y = np.ones((2, 3, 4), np.float32), np.arange(6, dtype=np.float32)
    z = y.reshape(2, 3) + 1
    wanted: tuple[Any, ...] = (z, np.broadcast_to(z, (2, 2, 3)), np.tile(z, (1, 2)))
    for found, want in zip(m.k(x, y), wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(found), want)
    reshaped, made = m.host(x, y)
    np.testing.assert_array_equal(np.asarray(reshaped), y.reshape(2, 3))
    assert np.shape(made) == (2, 3, 4)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("op.zeros(x.shape[:m], f32)", "T0302"),
        ("op.zeros(x.shape[::0], f32)", "T0302"),
        ("op.zeros((2,) + m, f32)", "T0206"),
    ],
)
def test_bad_shapes(body: str, code: str) -> None:
    text = f"@op.kernel\ndef k(x: f32[m, 3]):\n    return {body}\n"
    found = Session(overlay={"k.tessera": text}).check("k.tessera", ())
    assert code in [d.code for d in found], found


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [(I32, F32, F64), (I8, F16, F16), (U8, I8, I16), (U32, I32, I64), (F16, BF16, F32),
     (F32, F64, F64), (BOOL, I32, I32), (I16, F16, F32), (I64, F32, F64)],
)  # fmt: skip
def test_what_loses_nothing_is_named(a: Any, b: Any, wanted: Any) -> None:
    assert widest(a, b) == widest(b, a) == wanted


def test_concat_names_the_wider_dtype() -> None:
    text = "@op.kernel\ndef k(x: f32[n], y: i32[n]):\n    return op.concat((y, x + x))\n"
    (found,) = Session(overlay={"k.tessera": text}).check("k.tessera", ())
    assert found.code == "T0206" and found.helps == ("convert: `y.to(f64)`, `(x + x).to(f64)`",)
