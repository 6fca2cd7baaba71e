"""Lists where NumPy's programs have them: what is said to write instead runs, and is right."""

from __future__ import annotations

import re
from itertools import pairwise
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
    "return op.concat([x[0, 1], x[1, 1]])": np.array([1.0, 5.0]),
}  # fmt: skip
LOOPS = [(-1, 0, 1), (0, 1, 2), (4, 2, 0), (3, 1), (0, 1, 3), (5,), (2, 2), (1, 0, -1), (-3, 3)]


def said(text: str) -> str:
    with pytest.raises(tessera.TesseraError) as raised:
        tessera.compile(text, target="cpu").f(X)
    found = re.search(r"help: .*write (.*)", str(raised.value))
    assert found is not None, str(raised.value)
    return found[1]


@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.parametrize("body", LISTS)
def test_lists(body: str, target: str) -> None:
    text = f"@op.kernel\ndef f(x: f64[m, n]):\n    {body}\n"
    instead = said(text).strip("`")
    made = f"{text.rpartition('return ')[0]}return {instead}\n"
    agree(module_for(target, made).f(X), LISTS[body])


@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.parametrize("values", LOOPS)
@pytest.mark.parametrize("brackets", ["()", "[]"])
def test_loops(values: tuple[int, ...], brackets: str, target: str) -> None:
    inside = ", ".join(map(str, values)) + ("," if len(values) == 1 else "")
    over = f"{brackets[0]}{inside}{brackets[1]}"
    body = LOOP.format(over)
    parts = re.findall(r"`([^`]*)`", said(f"@op.kernel\ndef f(x: f64[m, n]):\n    {body}\n"))
    if len(parts) == 1:
        body = body.replace(f"for d in {over}:", parts[0])
    else:
        first, loop, inner = parts
        body = body.replace(f"for d in {over}:", f"{first}\n    {loop}\n        {inner}")
    steps = {b - a for a, b in pairwise(values)}
    assert (len(parts) == 1) == (len(steps) == 1 and steps != {0})
    body = body.replace("* d +", "* d.to(f64) +").replace("+ d * d *", "+ (d * d).to(f64) *")
    want = np.float64(sum(X[1, 1] * d + d * d * 0.5 for d in values))
    agree(module_for(target, f"@op.kernel\ndef f(x: f64[m, n]):\n    {body}\n").f(X), want)
