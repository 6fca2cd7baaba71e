"""A float of Python's that a kernel's parameter without an annotation takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tests.numpy_style import GPU

TARGETS = ["cpu", GPU]
TILES = "@op.kernel\ndef f(x, rate, w):\n    return x * rate + w\n"
LANES = (
    "@kernel tile[(64,)] grid[(1,)]\ndef f(x: T[n], rate, out: mut T[n]):\n"
    "    i = tile_linear_id()\n    if i < n: out[i] = x[i] * rate\n"
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_has_the_bits_of_the_arrays(dtype: Any, target: str) -> None:
    x, w = np.random.default_rng(1).standard_normal((2, 50)).astype(dtype)
    rate = 0.1 + 2.0**-40
    tiles = tessera.compile(TILES, target=target)
    bound = 2 * np.finfo(dtype).eps
    np.testing.assert_allclose(np.asarray(tiles.f(x, rate, w)), x * rate + w, bound, bound)
    name = "f32" if dtype == np.float32 else "f64"
    lanes = tessera.compile(LANES.replace("T[", f"{name}["), target=target)
    out = np.zeros_like(x)
    lanes.f(x, rate, out)
    tessera.synchronize()
    np.testing.assert_array_equal(out, x * dtype(rate))
    called = tessera.compile(f"{TILES}def g(x, rate, w): return f(x, rate, w)\n", target=target)
    np.testing.assert_allclose(np.asarray(called.g(x, rate, w)), x * rate + w, bound, bound)


def test_beside_no_array_and_beside_integers_it_is_f32() -> None:
    m = tessera.compile("@op.kernel\ndef f(x, rate):\n    return x.to(f32) * rate\n", target="cpu")
    assert np.asarray(m.f(np.arange(3), 0.5)).dtype == np.float32


def test_beside_two_floats_the_help_is_followed() -> None:
    text = "@op.kernel\ndef f(x, y, rate):\n    return x * rate + y.to(f64)\n"
    given = np.arange(3.0), np.ones(3, np.float32), 0.1
    with pytest.raises(tessera.TesseraError, match="`rate: f64`") as caught:
        tessera.compile(text, target="cpu").f(*given)
    (found,) = caught.value.diagnostics
    ((edit,),) = (fix.edits for fix in found.fixes)
    text = text[: edit.span.start] + edit.replacement + text[edit.span.end :]
    right = tessera.compile(text, target="cpu").f(*given)
    np.testing.assert_array_equal(np.asarray(right), given[0] * 0.1 + 1)


def test_check_says_what_the_launch_says() -> None:
    text = f"{TILES}y = f(op.zeros((4,), dtype=f64), 0.1, op.ones((4,), dtype=f64))\nprint(y)\n"
    session = Session(overlay={"m.tessera": text})
    assert not session.check("m.tessera")
