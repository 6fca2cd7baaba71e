"""Numbers of floats to any power in tile kernels, as tiles are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import TARGETS, agree, assembled, results_of

x = np.linspace(0.5, 2, 5).astype(np.float32)
GIVEN = {"x": x, "d": x.astype(np.float64), "s": 3}
f32 = np.float32
VALUES: dict[str, Callable[[], Any]] = {
    "op.sum(x) ** 1.5 * 2.0 + 1.0": lambda: f32(x.sum() ** 1.5 * 2 + 1),
    "2.0 * op.sum(x) ** 1.5": lambda: f32(2 * x.sum() ** 1.5),
    "1 / (1 + 10.0 ** (x[0] / 400)) - x[1]": lambda: f32(1 / (1 + 10 ** (x[0] / 400)) - x[1]),
    "x[0] ** -1": lambda: f32(2),
    "x[1] ** x[2] ** x[3] - 1.0": lambda: f32(x[1] ** x[2] ** x[3] - 1),
    "op.sum(d) ** 0.5": lambda: GIVEN["d"].sum() ** 0.5,
    "2.0 ** x.shape[0]": lambda: f32(32),
    "-op.sum(x) ** 0.5": lambda: f32(-(x.sum() ** 0.5)),
    "x * op.sum(x) ** 0.5": lambda: x * f32(x.sum() ** 0.5),
    "1 - 0.9 ** f32(s)": lambda: f32(1 - 0.9**3),
    "op.sum(x) ** 3": lambda: f32(x.sum() ** 3),
    "y = 1.0\nfor t in range(3):\n    y = y * (x[t] + 1.0) ** 0.25\nreturn y":
        lambda: f32(np.prod((x[:3] + 1) ** 0.25)),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", VALUES)
@pytest.mark.sample(3)
def test_values(source: str, target: str) -> None:
    given = {n: v for n, v in GIVEN.items() if n != "s"}
    if "f32(s)" in source:
        source = f"def f(s: i32):\n    return {source}"
        given = {"s": 3}
        want = VALUES["1 - 0.9 ** f32(s)"]()
    else:
        want = VALUES[source]()
    agree(results_of(source, given, target), want)


@pytest.mark.parametrize("source", ["s ** -1", "s ** s"])
def test_integers_do_not(source: str) -> None:
    with pytest.raises(tessera.TesseraError, match=r"T0209|T0201"):
        results_of(f"def f(s: i32):\n    return {source}", GIVEN, "cpu")


def test_code_for_gpus() -> None:
    assembled("op.sum(x) ** 1.5 * 2.0", {"x": x})
