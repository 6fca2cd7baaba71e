"""Lists where programs of NumPy have them: places, parts that are joined, what loops go over."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.cases.test_scratch_arrays import module_for
from tests.numpy_style import GPU, agree

X = np.arange(12.0).reshape(3, 4)
LOOP = "s = 0.0\n    for d in {}:\n        s += x[1, 1] * d + d * d * 0.5\n    return s"
LISTS: dict[str, Any] = {
    "return x[[0, 2]]": X[[0, 2]],
    "return x[[0, 2], :]": X[[0, 2]],
    "return x[:, [3, 1, 1]]": X[:, [3, 1, 1]],
    "return x[[0, 1], [0, 2]]": X[[0, 1], [0, 2]],
    "return (x * 2.0)[[2, 0]]": X[[2, 0]] * 2,
    "v = x[0]\n    return v[[3, 1]]": X[0, [3, 1]],
    "return op.stack([op.sum(x), x[0, 1]])": np.array([66.0, 1.0]),
    "return op.stack((x[0, 1], 2.0, x[1, 1]))": np.array([1.0, 2.0, 5.0]),
}  # fmt: skip
LOOPS = [(-1, 0, 1), (0, 1, 2), (4, 2, 0), (3, 1), (0, 1, 3), (5,), (2, 2), (1, 0, -1), (-3, 3)]


def said(text: str) -> str:
    with pytest.raises(tessera.TesseraError) as raised:
        tessera.compile(text, target="cpu").f(X)
    found = re.search(r"help: .*write (.*)", str(raised.value))
    assert found is not None, str(raised.value)
    return found[1]


@pytest.mark.sample(12)
@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.parametrize("body", LISTS)
def test_lists(body: str, target: str) -> None:
    agree(module_for(target, f"@op.kernel\ndef f(x: f64[m, n]):\n    {body}\n").f(X), LISTS[body])


def test_numbers_are_not_joined_along_an_axis() -> None:
    text = "@op.kernel\ndef f(x: f64[m, n]):\n    return op.concat([x[0, 1], x[1, 1]])\n"
    made = f"{text.rpartition('return ')[0]}return {said(text).strip('`')}\n"
    agree(module_for("cpu", made).f(X), np.array([1.0, 5.0]))


@pytest.mark.sample(27)
@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.parametrize("values", LOOPS)
@pytest.mark.parametrize("brackets", ["()", "[]"])
def test_loops(values: tuple[int, ...], brackets: str, target: str) -> None:
    inside = ", ".join(map(str, values)) + ("," if len(values) == 1 else "")
    body = LOOP.format(f"{brackets[0]}{inside}{brackets[1]}")
    want = np.float64(sum(X[1, 1] * d + d * d * 0.5 for d in values))
    agree(module_for(target, f"@op.kernel\ndef f(x: f64[m, n]):\n    {body}\n").f(X), want)
