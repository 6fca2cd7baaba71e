"""Tuples of numbers of a file in tile kernels: loops over them and over their places, arrays of
them, and what is said of a place that only the run knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tests.cases.test_scratch_arrays import module_for
from tests.numpy_style import TARGETS

HEAD = """
W = (0.25, -0.5, 2)
K = ((0.0, 0.25, 0.0), (0.25, -1.0, 0.25), (0.0, 0.5, 0.0))
STEPS = ((0, 1), (1, 0), (-1, 2))
"""
W: Any = np.array([0.25, -0.5, 2.0])
K: Any = np.array([[0, 0.25, 0], [0.25, -1, 0.25], [0, 0.5, 0]])
BODIES: dict[str, Callable[[Any], Any]] = {
    "for w in W:\n    y += w * x": lambda x: x * W.sum(),
    "for k in range(3):\n    y += W[k] * x": lambda x: x * W.sum(),
    "for k in range(len(W)):\n    y += W[k] * x * k": lambda x: x * (W * range(3)).sum(),
    "for k in range(-1, 2):\n    y += W[k + 1] * op.roll(x, k, axis=0)": lambda x: sum(
        W[k + 1] * np.roll(x, k, 0) for k in (-1, 0, 1)
    ),
    "for k, w in enumerate(W):\n    y += w * x * k": lambda x: x * (W * range(3)).sum(),
    "for a, b in zip(W, (1.0, 2.0, 3.0)):\n    y += a * b * x": lambda x: x * (W @ [1, 2, 3]),
    "for dy in range(3):\n    for dx in range(3):\n        y += K[dy][dx] * op.roll(op.roll("
    "x, dy - 1, axis=0), dx - 1, axis=1)": lambda x: sum(
        K[i, j] * np.roll(np.roll(x, i - 1, 0), j - 1, 1) for i in range(3) for j in range(3)
    ),
    "for dy, dx in STEPS:\n    y += op.roll(op.roll(x, dy, axis=0), dx, axis=1)": lambda x: sum(
        np.roll(np.roll(x, a, 0), b, 1) for a, b in ((0, 1), (1, 0), (-1, 2))
    ),
    "y += op.sum(op.array(W).to(x.dtype)) * x": lambda x: x * W.sum(),
    "y += W[2] * x - W[-2] * x": lambda x: x * 2.5,
    "for k in range(3):\n    if k == 1:\n        continue\n    y += x * (k + 1)": lambda x: x * 4,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sample(9)
def test_kernels_go_through_tuples(body: str, dtype: str, target: Any) -> None:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    text = f"{HEAD}\n@op.kernel\ndef f(x: {dtype}[m, n]):\n    y = x * 0.0\n{lines}    return y\n"
    x = np.random.default_rng(2).standard_normal((4, 5)).astype(f"float{dtype[1:]}")
    found = module_for(target, text).f(x.copy())
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found, BODIES[body](x), 1e-5, 1e-5)


def test_a_name_of_the_function_hides_the_tuple() -> None:
    body = "    s = 0.0\n    for w in W:\n        s += w\n    return s\n"
    text = f"{HEAD}\n@op.kernel\ndef f(W: f32[n]):\n{body}"
    found = module_for("cpu", text).f(np.arange(5, dtype=np.float32))
    assert float(np.asarray(found)) == 10.0


def test_a_changed_tuple_is_seen() -> None:
    body = "    y = x * 0.0\n    for w in W:\n        y += w * x\n    return y\n"
    kernel = f"@op.kernel\ndef f(x):\n{body}"
    for numbers, want in (("(1.0, 2.0)", 3.0), ("(1.0, 5.0)", 6.0)):
        m: Any = tessera.compile(f"W = {numbers}\n{kernel}", target="cpu")
        assert m.f(np.ones(2, np.float32))[0] == want


def test_the_help_for_another_place_works() -> None:
    text = f"{HEAD}\n@op.kernel\ndef f(x: f32[n], k: i32):\n    return x * W[k]\n"
    (found,) = Session(overlay={"main.tessera": text}).check("main.tessera")
    assert found.code == "T0302" and found.helps == ("write `op.array(W)[k]`",)
    mended = module_for("cpu", text.replace("W[k]", "op.array(W)[k]"))
    np.testing.assert_allclose(mended.f(np.ones(3, np.float32), 1), -0.5)


def test_a_damaged_line_in_a_loop_that_is_written_out() -> None:
    """It stands for names that were seen, which no value takes the place of."""
    host = "@test\ndef t():\n    for n in (3, 4):\n        for k ` (0, n): assert k < n\n"
    body = "    y = x * 1.0\n    for w in (1.0, 2.0):\n        y = y ` w\n    return y\n"
    tile = f"@op.kernel\ndef f(x: f32[n]):\n{body}"
    for text in (host, tile, host + tile):
        session = Session(overlay={"k.tessera": text})
        codes = {d.code for d in session.check("k.tessera", ())}
        assert codes == {"T0010"}, codes
